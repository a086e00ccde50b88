//! Pools: the rows of a table as seeds without a target.

use super::database::Database;
use super::names::find;
use crate::days::time_text;
use crate::error::{Context, Error, Result};
use crate::store::{
    ALWAYS_VISIBLE, Cell, NEVER_VISIBLE, SEES_EVERYTHING, Seed, Table, is_time, is_visible,
};

/// A table whose rows are seeds without a target: to learn from masked cells, or to encode rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The table, as `table` or `database/table`.
    pub table: String,
    /// When all rows are observed, in microseconds, or `SEES_EVERYTHING`; else each row is observed at
    /// its own time.
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

    /// Returns the settings that decide which rows are no seeds, as lines.
    pub(super) fn left_out(&self) -> String {
        let obs_time = self.obs_time.map_or_else(|| "own time".to_owned(), |at| at.to_string());
        format!("observed {obs_time}\nvisible until {}", self.visible_until)
    }

    /// The error of a table of which no row is a seed.
    pub(super) fn no_seed(&self, table: &Table) -> Error {
        let remedy = match (self.obs_time.is_some(), self.visible_until < i64::MAX) {
            (true, true) => "give the table a later time in pools, and set a later `visible_until`",
            (true, false) => "give the table a later time in pools",
            (false, true) => "set a later `visible_until`",
            (false, false) => "give the table a time in pools, at which all rows are observed",
        };
        let when = self.obs_time.map_or_else(String::new, |at| format!(" ({})", time_text(at)));
        Error::invalid(format!(
            "pools: expected rows of {:?} that exist at their observation time{when}, found none among {}; \
             {remedy}, or name another table",
            table.metadata().name,
            table.row_count()
        ))
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
    // The rows of a summary stand for those of other tables, and no model learns from a label.
    all.retain(|&(database, table)| {
        let Database { summaries, store, .. } = &databases[database];
        summaries.iter().all(|summary| summary.relation.table != table)
            && store.metadata().label_tables().all(|(_, labels)| labels != table)
    });
    let name = |&(database, table): &(usize, u32)| full_name(&databases[database], table);
    let names: Vec<String> = all.iter().map(name).collect();
    let mut found = Vec::new();
    for (number, Pool { table: wanted, obs_time }) in pools.iter().enumerate() {
        refuse_labels(databases, wanted)?;
        refuse_summaries(databases, wanted)?;
        if let Some(time) = obs_time.filter(|&time| time != SEES_EVERYTHING && !is_time(time)) {
            return Err(Error::invalid(format!(
                "pools: expected a time within 292,000 years of 1970 for {wanted:?}, found {time} us"
            )));
        }
        let place = find("table", wanted, &names).context(|| "pools")?;
        let (database, table) = all[place];
        let metadata = databases[database].store.tables()[table as usize].metadata();
        if obs_time.is_none() && metadata.time.is_none() {
            return Err(Error::invalid(format!(
                "pools: expected a time at which the rows of {wanted:?} are observed, because the table has \
                 none of its own, found none; give one with the table, such as {{{wanted:?}: \
                 \"2024-06-01\"}}, or set `time` of the table in the schema"
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

/// Returns the name of a table with that of its database.
fn full_name(database: &Database, table: u32) -> String {
    format!("{}/{}", database.name, database.store.tables()[table as usize].metadata().name)
}

/// Rejects a pool whose rows are the labels of a task.
fn refuse_labels(databases: &[Database], wanted: &str) -> Result<()> {
    for database in databases {
        let metadata = database.store.metadata();
        for (task, table) in metadata.label_tables() {
            if find("table", wanted, &[full_name(database, table)]).is_ok() {
                return Err(Error::invalid(format!(
                    "pools: expected a table without labels, found {wanted:?}, whose rows are the labels of \
                     task {:?}, those of test seeds, too; name another table, such as {:?}",
                    task.name, metadata.tables[task.anchor as usize].name
                )));
            }
        }
    }
    Ok(())
}

/// Rejects a pool whose rows are those of a summary.
fn refuse_summaries(databases: &[Database], wanted: &str) -> Result<()> {
    for database in databases {
        for summary in &database.summaries {
            if find("table", wanted, &[full_name(database, summary.relation.table)]).is_ok() {
                return Err(Error::invalid(format!(
                    "pools: expected a table of the sources, found the summary {wanted:?}, whose rows are \
                     made of those of other tables; name one of these"
                )));
            }
        }
    }
    Ok(())
}
