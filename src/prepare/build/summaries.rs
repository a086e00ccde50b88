//! Summaries: for each period and parent the number of rows that came to be known, and means and
//! quantiles of their columns, as tables of their own.

use std::ops::Range;

use super::columns::{ColumnSummary, Summary as Statistics};
use super::links::Parents;
use super::records::{StagedTable, numbers_of};
use super::row_numbers::RowNumbers;
use crate::error::{Context, Error, Result};
use crate::prepare::schema::{Schema, Summary};
use crate::store::{
    ALWAYS_VISIBLE, Cell, ColumnMetadata, ColumnStats, NEVER_VISIBLE, Period, Scale, Total, counts,
    fixed_point, identity_of,
};

/// The quantiles of a numerical column, in hundredths.
const QUANTILES: [(&str, usize); 3] = [("0.1", 10), ("0.5", 50), ("0.9", 90)];

/// The statistics of a share, which leave it as it is.
const SHARE: ColumnStats =
    ColumnStats::Numerical { scale: Scale::Linear, mean: 0.0, std: 1.0, min: 0.0, max: 1.0 };

/// The rows of a summary, by (end of the period, parent).
pub(super) struct SummaryRows {
    /// The summary's place in the schema.
    pub number: usize,
    /// The end of the period of each row.
    pub ends: Vec<i64>,
    /// The parent of each row, in a summary by a reference.
    pub parents: Option<Vec<u32>>,
    pub columns: Vec<SummaryColumn>,
    /// The places of the summarised columns in their table.
    pub of_columns: Vec<u32>,
}

/// A column of a summary.
pub(super) struct SummaryColumn {
    name: String,
    stats: ColumnStats,
    /// The number in each row, as the store has it; none for NULL.
    pub cells: Vec<Option<f32>>,
}

/// The rows of a table in the order of their groups: those that came to be known in one period, of one
/// parent.
struct Grouped {
    rows: Vec<u32>,
    /// The places of each group's rows.
    groups: Vec<Range<usize>>,
}

/// Returns the rows of all summaries of a table.
///
/// # Cost
/// Reads the staging file once more for each summary with columns, and keeps 20 bytes for each row and
/// 4 for each of its summarised values.
pub(super) fn summarise(schema: &Schema, of: &StagedTable<'_>) -> Result<Vec<SummaryRows>> {
    let own = schema.summaries.iter().enumerate();
    let own = own.filter(|(_, summary)| summary.table == of.table.name);
    own.map(|(number, summary)| {
        of.rows(number, summary).context(|| format!("summary {:?}", summary.name()))
    })
    .collect()
}

impl StagedTable<'_> {
    fn rows(&self, number: usize, summary: &Summary) -> Result<SummaryRows> {
        let parents = summary.by.as_deref().and_then(|by| self.table.reference(by));
        let parents = parents.map(|place| &self.parents[place]);
        let keys = self.keys(summary.period, parents);
        if keys.is_empty() {
            return Err(Error::data(format!(
                "no row of table {:?} has a time{}; remove the summary, or correct the data",
                self.table.name,
                if parents.is_some() { " and a parent" } else { "" }
            )));
        }
        let is_same = |a: &(i64, u32, u32), b: &(i64, u32, u32)| (a.0, a.1) == (b.0, b.1);
        let mut groups: Vec<Range<usize>> = Vec::new();
        let (mut ends, mut of_parents) = (Vec::new(), Vec::new());
        for chunk in keys.chunk_by(is_same) {
            let from = groups.last().map_or(0, |last| last.end);
            groups.push(from..from + chunk.len());
            ends.push(chunk[0].0);
            of_parents.push(chunk[0].1);
        }
        let rows = keys.iter().map(|&(_, _, row)| row).collect();
        let grouped = Grouped { rows, groups };
        let mut columns = vec![grouped.count()];
        let mut of_columns = Vec::new();
        for (place, values) in self.values(summary)? {
            grouped.summarise(&self.columns[place], &values, &mut columns);
            of_columns.push(place as u32);
        }
        let parents = parents.is_some().then_some(of_parents);
        Ok(SummaryRows { number, ends, parents, columns, of_columns })
    }

    /// Returns (end of its period, parent, row) of each row with a time and, in a summary by a reference,
    /// a parent; sorted.
    fn keys(&self, period: Period, parents: Option<&Parents>) -> Vec<(i64, u32, u32)> {
        let parent = |row: usize| match parents {
            None => Some(0),
            Some(parents) => parents.row(row),
        };
        let times = self.times.unwrap_or_default().iter().enumerate();
        let known = times.filter(|(_, time)| ![ALWAYS_VISIBLE, NEVER_VISIBLE].contains(time));
        let mut keys: Vec<_> = known
            .filter_map(|(row, &time)| Some((period.end(time), parent(row)?, row as u32)))
            .collect();
        keys.sort_unstable();
        keys
    }

    /// Returns the summarised columns by their places, with the value of each row as a cell has it; not
    /// a number for NULL.
    fn values(&self, summary: &Summary) -> Result<Vec<(usize, RowNumbers<f32>)>> {
        let column = |name: &String| {
            let mut columns = self.columns.iter().enumerate();
            let column = columns.find(|(_, column)| column.name == *name);
            column.ok_or_else(|| Error::schema(format!("there is no column {name:?}")))
        };
        let columns = summary.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
        let values = numbers_of(self.staged, &columns, number, self.scratch)?;
        Ok(columns.into_iter().map(|(place, _)| place).zip(values).collect())
    }
}

/// Returns the number of a cell with a mean; not a number for NULL.
fn number(cell: Option<Cell>) -> f32 {
    match cell {
        Some(Cell::Numerical(number)) => number,
        Some(Cell::Boolean(truth)) => f32::from(u8::from(truth)),
        _ => f32::NAN,
    }
}

impl Grouped {
    /// Returns the column with the number of rows.
    fn count(&self) -> SummaryColumn {
        let counts = || self.groups.iter().map(|group| group.len() as u32);
        SummaryColumn {
            name: "count".to_owned(),
            stats: ColumnStats::Count {
                min: counts().min().unwrap_or_default(),
                max: counts().max().unwrap_or_default(),
            },
            cells: counts().map(|count| Some(counts::of_count(count.into()))).collect(),
        }
    }

    /// Adds the mean of a column, and the quantiles of a numerical one.
    fn summarise(&self, column: &ColumnSummary, values: &[f32], all: &mut Vec<SummaryColumn>) {
        let mut add = |what: &str, stats: &ColumnStats| {
            let name = format!("{}: {what}", column.name);
            all.push(SummaryColumn { name, stats: stats.clone(), cells: Vec::new() });
            all.len() - 1
        };
        // Means and quantiles have the scale of the column, so that they compare with its values.
        let (stats, cell): (_, fn(f32) -> Cell) = match &column.summary {
            Statistics::Numerical(numbers) => (numbers.stats(), Cell::Numerical),
            _ => (SHARE, |truth| Cell::Boolean(truth > 0.0)),
        };
        let mean = add("mean", &stats);
        let is_number = matches!(column.summary, Statistics::Numerical(_));
        let quantiles: Vec<_> = (QUANTILES.into_iter().filter(|_| is_number))
            .map(|(name, hundredths)| (add(&format!("quantile {name}"), &stats), hundredths))
            .collect();
        let mut known = Vec::new();
        for group in &self.groups {
            let rows = &self.rows[group.clone()];
            known.clear();
            known.extend(rows.iter().map(|&row| values[row as usize]).filter(|v| !v.is_nan()));
            known.sort_unstable_by(f32::total_cmp);
            let fixed = known.iter().filter_map(|&value| fixed_point(cell(value)));
            let total = Total { sum: fixed.map(i64::from).sum(), count: known.len() as u32 };
            all[mean].cells.push(total.mean());
            for &(place, hundredths) in &quantiles {
                all[place].cells.push(quantile(&known, hundredths));
            }
        }
    }
}

/// Returns the least of the sorted values that at least so many hundredths of them do not exceed.
fn quantile(sorted: &[f32], hundredths: usize) -> Option<f32> {
    let rank = (sorted.len() * hundredths).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

impl SummaryRows {
    /// Returns the columns as the store describes them, numbered from `first_index` on.
    pub(super) fn column_metadata(&self, first_index: u32) -> Vec<ColumnMetadata> {
        let metadata = |(index, column): (u32, &SummaryColumn)| ColumnMetadata {
            name: column.name.clone(),
            index,
            offset: 0,
            null_count: column.cells.iter().filter(|cell| cell.is_none()).count() as u64,
            stats: column.stats.clone(),
            known: None,
        };
        (first_index..).zip(&self.columns).map(metadata).collect()
    }

    /// Returns the identity of each row: the digest of its time and its numbers.
    pub(super) fn identities(&self) -> Vec<u64> {
        let mut bytes = Vec::new();
        let mut identity = |(row, end): (usize, &i64)| {
            bytes.clear();
            bytes.extend(end.to_le_bytes());
            for column in &self.columns {
                bytes.push(u8::from(column.cells[row].is_some()));
                bytes.extend(column.cells[row].map(f32::to_le_bytes).into_iter().flatten());
            }
            identity_of(&bytes)
        };
        self.ends.iter().enumerate().map(&mut identity).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_are_values_of_the_nearest_rank_from_below() {
        let values: Vec<f32> = (1..=11_u8).map(f32::from).collect();
        let of = |count: usize, hundredths| quantile(&values[..count], hundredths);
        assert_eq!([10, 50, 90].map(|h| of(0, h)), [None; 3]);
        assert_eq!([10, 50, 90].map(|h| of(1, h)), [Some(1.0); 3]);
        assert_eq!([10, 50, 90].map(|h| of(2, h)), [Some(1.0), Some(1.0), Some(2.0)]);
        assert_eq!([10, 50, 90].map(|h| of(10, h)), [Some(1.0), Some(5.0), Some(9.0)]);
        assert_eq!([10, 50, 90].map(|h| of(11, h)), [Some(2.0), Some(6.0), Some(10.0)]);
    }
}
