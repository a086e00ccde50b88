//! The time of a table's rows, in words.

use crate::store::{Store, TableMetadata, TimeMetadata};

/// Returns where the time of a table's rows comes from.
#[must_use]
pub fn time_words(store: &Store, table: &TableMetadata) -> String {
    let (from, delay_us) = match &table.time {
        None => return "always visible".to_owned(),
        Some(TimeMetadata::Column { column, delay_us }) => {
            (table.columns[*column as usize].name.clone(), *delay_us)
        }
        Some(TimeMetadata::Inherited { relation, delay_us, .. }) => {
            let relation = store.relations()[*relation as usize].metadata();
            (format!("of its {}", relation.name), *delay_us)
        }
        Some(TimeMetadata::Ignored { column, delay_us, .. }) => {
            (format!("{column} (ignored as a cell)"), *delay_us)
        }
        Some(TimeMetadata::Period { .. }) => ("end of its period".to_owned(), 0),
    };
    match delay_us {
        0 => format!("time {from}"),
        delay => format!("time {from} + {}", crate::prepare::schema::Delay(delay)),
    }
}
