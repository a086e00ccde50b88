//! The names of columns and of files, and how errors tell them.

use crate::error::{Error, Result};

/// How many names an error tells.
const SHOWN: usize = 20;

/// Names one after the other, the first ones of many.
pub(super) fn listed(mut names: impl Iterator<Item = String>) -> String {
    let shown: Vec<String> = names.by_ref().take(SHOWN).collect();
    match names.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The names of columns, as an error tells them.
pub(super) fn quoted(names: &[String]) -> String {
    listed(names.iter().map(|name| format!("{name:?}")))
}

/// Takes the names of a file's columns for those of its matrix. Refuses others than those of the files
/// before it: columns would be mixed up.
pub(super) fn learn_names(known: &mut Option<Vec<String>>, names: &[String]) -> Result<()> {
    match known {
        Some(known) if known == names => Ok(()),
        Some(known) => Err(Error::invalid(format!(
            "expected the columns {} as in the files before it, found {}; choose them with \
             --select, in one order for all files",
            quoted(known),
            quoted(names)
        ))),
        None => {
            *known = Some(names.to_vec());
            Ok(())
        }
    }
}
