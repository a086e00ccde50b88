//! A cell, a row's name and a time as text.

use serde::Serialize;

use super::relation::aggregate_name;
use super::words::{plural, significant};
use crate::days;
use crate::error::Result;
use crate::store::{
    AggregateMetadata, AggregateValue, Cell, ColumnMetadata, NEVER_VISIBLE, SemanticType, Store,
    Table, counts,
};

/// A cell with a readable value.
#[derive(Clone, Serialize)]
pub(crate) struct CellView {
    pub column: String,
    pub semantic: String,
    pub value: Option<String>,
}

impl CellView {
    pub(super) fn of(store: &Store, column: &ColumnMetadata, cell: Cell) -> Result<Self> {
        let (name, semantic) = (column.name.clone(), column.semantic().to_string());
        Ok(Self { column: name, semantic, value: cell_text(store, column, cell)? })
    }
}

impl CellView {
    /// Shows an aggregate of a row's children.
    pub(super) fn of_aggregate(store: &Store, aggregate: &AggregateMetadata, cell: Cell) -> Self {
        let value = match cell {
            Cell::Numerical(number) => Some(aggregate_text(store, aggregate, number)),
            _ => None,
        };
        let semantic = SemanticType::Numerical.to_string();
        Self { column: aggregate_name(store, aggregate), semantic, value }
    }
}

/// Returns a count as a number, a mean in the units of its column and a time as a span.
fn aggregate_text(store: &Store, aggregate: &AggregateMetadata, number: f32) -> String {
    let column = |column: u32| {
        let child = store.relations()[aggregate.relation as usize].metadata().child;
        &store.tables()[child as usize].metadata().columns[column as usize]
    };
    match aggregate.value {
        AggregateValue::Count => counts::count_of(number).to_string(),
        AggregateValue::SinceLast => span(counts::seconds_of(number).saturating_mul(1_000_000)),
        AggregateValue::Mean { column: place } => match column(place).stats.number(number) {
            Some(mean) => significant(mean),
            None => format!("{:.1} %", f64::from(number) * 100.0),
        },
    }
}

/// Returns a time in its two largest units.
pub(super) fn span(micros: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400_000_000, "day"),
        (3_600_000_000, "hour"),
        (60_000_000, "minute"),
        (1_000_000, "second"),
    ];
    let mut rest = micros;
    let mut parts = Vec::new();
    for (unit, name) in UNITS {
        let whole = rest / unit;
        rest %= unit;
        if whole > 0 && parts.len() < 2 {
            parts.push(plural(whole, name));
        }
    }
    if parts.is_empty() { "0 seconds".to_owned() } else { parts.join(" ") }
}

/// Returns the key of a row, or its number as `#5` in a table without a key.
pub(super) fn row_name(table: &Table, row: u32) -> Result<String> {
    if table.metadata().key.is_empty() {
        Ok(format!("#{row}"))
    } else {
        table.key(row).map(str::to_owned)
    }
}

/// Returns the value of a cell as in the source; a number to six digits, or to all before its point.
pub(super) fn cell_text(
    store: &Store,
    column: &ColumnMetadata,
    cell: Cell,
) -> Result<Option<String>> {
    Ok(Some(match cell {
        Cell::Null => return Ok(None),
        Cell::Identifier => "present".to_owned(),
        Cell::Boolean(truth) => truth.to_string(),
        Cell::Timestamp(time) => time_text(time),
        Cell::Categorical(index) => store.category(index)?.to_owned(),
        Cell::Text(index) => store.text(index)?.to_owned(),
        Cell::Numerical(score) => match column.stats.number(score) {
            Some(number) => significant(number),
            None => score.to_string(),
        },
    }))
}

/// Returns a time as ISO text; "never" for that of a row that only a seed that sees everything sees.
#[must_use]
pub fn time_text(time_us: i64) -> String {
    if time_us == NEVER_VISIBLE {
        return "never".to_owned();
    }
    days::time_text(time_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_row_whose_parent_is_missing_is_never() {
        assert_eq!(time_text(NEVER_VISIBLE), "never");
        assert_eq!(time_text(0), "1970-01-01 00:00:00");
    }
}
