//! The columns that SQL finds in prepared tables beside those of the schema.

/// The column with the number of each row, from 0.
pub(in crate::prepare) const ROW: &str = "row of the table";

/// Returns the name of the column with the texts by which the keys in column `name` are compared.
pub(in crate::prepare) fn key_column(name: &str) -> String {
    format!("{name} as a key")
}
