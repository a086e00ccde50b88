//! The names of columns and files, and how errors list them.

use crate::error::{Error, Result};

/// The most names that an error lists.
const SHOWN: usize = 20;

/// Joins names with commas; of many, the first ones.
pub(super) fn listed(mut names: impl Iterator<Item = String>) -> String {
    let shown: Vec<String> = names.by_ref().take(SHOWN).collect();
    match names.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Quotes and joins the names of columns.
pub(super) fn quoted(names: &[String]) -> String {
    listed(names.iter().map(|name| format!("{name:?}")))
}

/// Sets the names of a matrix's columns to those of a file, or rejects names that differ from those
/// of the files before: columns would be mixed up.
pub(super) fn learn_names(known: &mut Option<Vec<String>>, names: &[String]) -> Result<()> {
    match known {
        Some(known) if known == names => Ok(()),
        Some(known) => Err(Error::invalid(format!(
            "expected the columns {}, as in the files before, found {}; choose columns with \
            --select, in the same order for all files",
            quoted(known),
            quoted(names)
        ))),
        None => {
            *known = Some(names.to_vec());
            Ok(())
        }
    }
}
