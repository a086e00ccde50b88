//! Times that are rounded to days: a row is visible from midnight, though it came to exist during the
//! day.

use std::collections::{BTreeMap, BTreeSet};

use super::path::Path;
use super::predictors::Sample;
use super::{Finding, Kind};
use crate::days::DAY_US;
use crate::error::Result;
use crate::store::{ALWAYS_VISIBLE, NEVER_VISIBLE, Seed, Store, Table, TimeMetadata};

/// The fewest rows from which anything is concluded.
const ROWS_MIN: usize = 50;
/// The share of times at midnight from which times are rounded.
const MIDNIGHTS: f64 = 0.99;

/// Returns the tables whose times are rounded to days and have no delay of a day or more.
pub(super) fn rounded_tables(store: &Store, row_limit: u32) -> Result<Vec<u32>> {
    let mut rounded = Vec::new();
    for (number, table) in (0..).zip(store.tables()) {
        let delay = delay_us(store, number);
        if table.metadata().time.is_some() && delay < DAY_US && is_rounded(table, delay, row_limit)?
        {
            rounded.push(number);
        }
    }
    Ok(rounded)
}

/// Returns the delay of a table's times, with those of the tables from which it inherits them.
fn delay_us(store: &Store, mut table: u32) -> i64 {
    let mut delay: i64 = 0;
    while let Some(time) = &store.tables()[table as usize].metadata().time {
        delay = delay.saturating_add(time.delay_us());
        match time {
            TimeMetadata::Inherited { relation, .. } => {
                table = store.relations()[*relation as usize].metadata().parent;
            }
            _ => break,
        }
    }
    delay
}

fn is_rounded(table: &Table, delay: i64, row_limit: u32) -> Result<bool> {
    let step = table.row_count().div_ceil(row_limit).max(1);
    let (mut midnights, mut all) = (0, 0);
    for row in (0..table.row_count()).step_by(step as usize) {
        let time = table.row(row)?.time();
        if time != ALWAYS_VISIBLE && time < NEVER_VISIBLE {
            all += 1;
            midnights += usize::from(time.saturating_sub(delay).rem_euclid(DAY_US) == 0);
        }
    }
    Ok(all >= ROWS_MIN && midnights as f64 >= MIDNIGHTS * all as f64)
}

/// Finds tables with rounded times of which seeds see rows of their own day.
pub(super) fn findings(sample: &Sample<'_>, rounded: &[u32]) -> Result<Vec<Finding>> {
    let store = sample.store;
    // What belongs to the very event that a cell is of came with it.
    let event_of_seed = |seed: &Seed| event(store, sample.anchor, seed.row).map(Some);
    let events = match sample.is_cell() {
        true => sample.seeds.iter().map(event_of_seed).collect::<Result<Vec<_>>>()?,
        false => vec![None; sample.seeds.len()],
    };
    // By the table whose column the times are of: the tables that see them, and the seeds that do.
    let mut seeing: BTreeMap<u32, (BTreeSet<u32>, Vec<bool>)> = BTreeMap::new();
    for path in Path::all_from(store, sample.anchor).iter().skip(1) {
        // A row that came to exist did so after the rows that it refers to.
        if !path.is_many() || !rounded.contains(&path.table) {
            continue;
        }
        let table = &store.tables()[path.table as usize];
        let delay = delay_us(store, path.table);
        let ends_later = |time: i64, seed: &Seed| {
            time.saturating_sub(delay).saturating_add(DAY_US) > seed.obs_time
        };
        for (place, seed) in sample.seeds.iter().enumerate() {
            for &row in &path.follow(store, sample.anchor, seed)?.rows {
                let time = table.row(row)?.time();
                if time == ALWAYS_VISIBLE || time >= NEVER_VISIBLE || !ends_later(time, seed) {
                    continue;
                }
                let of_row = event(store, path.table, row)?;
                if events[place] != Some(of_row) {
                    let none = || (BTreeSet::new(), vec![false; sample.seeds.len()]);
                    let (tables, seeing) = seeing.entry(of_row.0).or_insert_with(none);
                    tables.insert(path.table);
                    seeing[place] = true;
                }
            }
        }
    }
    let count = sample.seeds.len();
    let name = |table: u32| store.metadata().tables[table as usize].name.as_str();
    let found = seeing.into_iter().filter_map(|(table, (tables, seeing))| {
        let seeds = seeing.into_iter().filter(|&sees| sees).count();
        let tables: Vec<_> = tables.into_iter().map(name).collect();
        let subject = name(table);
        sample.are_many(seeds).then(|| Finding {
            kind: Kind::RoundedTime,
            task: Some(sample.task.clone()),
            subject: subject.to_owned(),
            evidence: format!(
                "{subject}: its times are rounded to days, and {seeds} of {count} seeds see rows of {} \
                 of the day on which they are observed, which may have come to exist after the \
                 observation",
                tables.join(", ")
            ),
            remedy: format!(
                "give the time of {subject} a delay: delay = \"1 day\"; tables that inherit it have \
                 it, too"
            ),
        })
    });
    Ok(found.collect())
}

/// Returns the row from which a row inherits its time, through as many tables as it takes, with its
/// table; the row itself if it has its time of its own.
fn event(store: &Store, mut table: u32, mut row: u32) -> Result<(u32, u32)> {
    while let Some(TimeMetadata::Inherited { relation, .. }) =
        store.tables()[table as usize].metadata().time
    {
        let relation = &store.relations()[relation as usize];
        let record = store.tables()[table as usize].row(row)?;
        let Some(parent) = relation.parent(&record)? else { break };
        (table, row) = (relation.metadata().parent, parent);
    }
    Ok((table, row))
}
