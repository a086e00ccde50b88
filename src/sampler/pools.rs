//! Pools: the rows of a table as seeds without a target.

use super::database::Database;
use super::names::find;
use crate::error::{Context, Error, Result};
use crate::store::{ALWAYS_VISIBLE, Cell, NEVER_VISIBLE, Seed, Table, is_visible};

/// A table whose rows are seeds without a target: to learn from masked cells, or to encode rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The table, as `table` or `database/table`.
    pub table: String,
    /// When all rows are observed, in microseconds; else each row is observed at its own time.
    pub obs_time: Option<i64>,
}

/// The rows of a table of a store as seeds.
#[derive(Clone, Copy)]
pub(super) struct RowSeeds {
    pub table: u32,
    pub obs_time: Option<i64>,
    /// The latest observation time of the sampler.
    visible_until: i64,
}

impl RowSeeds {
    /// Returns the seed that a row is; none for a row that does not exist at its observation.
    pub(super) fn seed(&self, table: &Table, row: u32) -> Result<Option<Seed>> {
        let time = table.row(row)?.time();
        let obs_time = match self.obs_time {
            Some(at) => at,
            // A row without a time of its own has no observation.
            None if matches!(time, ALWAYS_VISIBLE | NEVER_VISIBLE) => return Ok(None),
            None => time,
        };
        let seed = Seed { row, obs_time, target: Cell::Null, split: None };
        Ok(is_visible(time, obs_time.min(self.visible_until)).then_some(seed))
    }
}

/// Returns the tables that `pools` name, as database and rows, in the order of the databases and their
/// tables, and the place of each among `pools`.
pub(super) fn row_seeds(
    databases: &[Database],
    pools: &[Pool],
    visible_until: Option<i64>,
) -> Result<Vec<(usize, RowSeeds, usize)>> {
    let mut all: Vec<(usize, u32)> = (databases.iter().enumerate())
        .flat_map(|(database, d)| (0..d.tables.len() as u32).map(move |table| (database, table)))
        .collect();
    // The rows of a summary stand for those of other tables.
    all.retain(|&(database, table)| {
        databases[database].summaries.iter().all(|summary| summary.relation.table != table)
    });
    let name = |&(database, table): &(usize, u32)| {
        let Database { name, store, .. } = &databases[database];
        format!("{name}/{}", store.tables()[table as usize].metadata().name)
    };
    let names: Vec<String> = all.iter().map(name).collect();
    let mut found = Vec::new();
    for (number, Pool { table: wanted, obs_time }) in pools.iter().enumerate() {
        let place = find("table", wanted, &names).context(|| "pools")?;
        let (database, table) = all[place];
        let metadata = databases[database].store.tables()[table as usize].metadata();
        if obs_time.is_none() && metadata.time.is_none() {
            return Err(Error::invalid(format!(
                "pools: expected a time at which the rows of {wanted:?} are observed, because the table has \
                 none of its own, found none; give one with the table"
            )));
        }
        let rows = RowSeeds {
            table,
            obs_time: *obs_time,
            visible_until: visible_until.unwrap_or(i64::MAX),
        };
        found.push((place, (database, rows, number)));
    }
    found.sort_by_key(|(place, _)| *place);
    if let Some(twice) = found.windows(2).find(|two| two[0].0 == two[1].0) {
        return Err(Error::invalid(format!(
            "pools: table {:?} is named twice; name each table once",
            names[twice[0].0]
        )));
    }
    Ok(found.into_iter().map(|(_, found)| found).collect())
}
