//! The summaries that a seed may see: of each period that ended by the observation time.
//!
//! A summary in which the seed's target is counted tells of the target: all of it, where the seed is the
//! only row. So of a summary of targets, or of another column that the seed hides, it sees periods that
//! ended before its own row came to be known, whenever it is observed.

use super::database::{Database, SummaryShape, TableRelation};
use crate::error::Result;
use crate::store::{ALWAYS_VISIBLE, NEVER_VISIBLE};

/// What a seed may see of summaries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight<'a> {
    pub obs_time: i64,
    /// The table of the seed row, and when the row came to be known.
    pub table: u32,
    pub own_time: i64,
    /// The columns of the table that the seed hides.
    pub hidden: &'a [u32],
}

impl Sight<'_> {
    /// Returns the latest time of a summary's rows that the seed may see.
    pub(super) fn until(&self, summary: &SummaryShape) -> i64 {
        let is_counted = |column| summary.of == self.table && summary.columns.contains(column);
        if !self.hidden.iter().any(is_counted) {
            return self.obs_time;
        }
        match self.own_time {
            // Nobody knows which periods ended before; no row of a summary is as early as this.
            ALWAYS_VISIBLE | NEVER_VISIBLE => i64::MIN,
            time => time.min(self.obs_time),
        }
    }

    /// Returns the latest time of the children through a relation that the seed may see.
    pub(super) fn until_of(&self, database: &Database, relation: TableRelation) -> i64 {
        database.summary_of(relation).map_or(self.obs_time, |summary| self.until(summary))
    }
}

/// Returns the latest row that the seed may see of each summary that is of no parent.
///
/// # Cost
/// A binary search among the periods of each.
pub(super) fn latest_rows(
    database: &Database,
    sight: Sight<'_>,
) -> impl Iterator<Item = Result<(TableRelation, u32)>> {
    let summaries = database.summaries.iter().filter(|summary| summary.is_global);
    summaries.filter_map(move |summary| {
        let row = latest_row(database, summary.relation.table, sight.until(summary)).transpose()?;
        Some(row.map(|row| (summary.relation, row)))
    })
}

/// Returns the last row of a table, sorted by time, with a time of at most `until`.
fn latest_row(database: &Database, table: u32, until: i64) -> Result<Option<u32>> {
    let table = &database.store.tables()[table as usize];
    let (mut low, mut high) = (0, table.row_count());
    while low < high {
        let middle = low.midpoint(high);
        if table.row(middle)?.time() <= until {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low.checked_sub(1))
}
