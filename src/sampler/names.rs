//! Names of what several databases have: tasks and tables.

use crate::error::{Error, Result};

/// Returns the place of the `what` called `wanted`, short (`churn`) or full (`shop/churn`), among the
/// full `names`.
///
/// # Errors
/// `InvalidArgument` when none has the name, or several have.
pub(super) fn find(what: &str, wanted: &str, names: &[impl AsRef<str>]) -> Result<usize> {
    let has_name =
        |name: &str| name == wanted || name.split_once('/').is_some_and(|(_, own)| own == wanted);
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let found: Vec<usize> = (0..names.len()).filter(|&place| has_name(names[place])).collect();
    let (found, candidates) = match found[..] {
        [place] => return Ok(place),
        [] => (format!("no {what} is called"), names),
        _ => (
            format!("several {what}s are called"),
            found.into_iter().map(|place| names[place]).collect(),
        ),
    };
    let hint = if what == "task" && wanted.contains("pool:") {
        "; to serve a pool, name its table in pools"
    } else {
        ""
    };
    Err(Error::invalid(format!("{found} {wanted:?}; name one of {}{hint}", candidates.join(", "))))
}
