//! Times that are rounded to days: a row is visible from midnight, though it came to exist during the
//! day.

use std::collections::BTreeMap;

use super::path::Path;
use super::predictors::Sample;
use super::{Finding, Kind};
use crate::days::DAY_US;
use crate::error::Result;
use crate::store::{ALWAYS_VISIBLE, NEVER_VISIBLE, Store, Table};

/// The fewest rows from which anything is concluded.
const ROWS_MIN: usize = 50;
/// The share of times at midnight from which times are rounded.
const MIDNIGHTS: f64 = 0.99;
/// The share and the number of seeds that see a row of their own day, from which a table is named.
const SHARE_MIN: f64 = 0.01;
const SEEDS_MIN: usize = 10;

/// Returns the tables whose times are rounded to days and have no delay of a day or more.
pub(super) fn rounded_tables(store: &Store, row_limit: u32) -> Result<Vec<u32>> {
    let mut rounded = Vec::new();
    for (number, table) in (0..).zip(store.tables()) {
        if delay_us(table).is_some_and(|delay| delay < DAY_US) && is_rounded(table, row_limit)? {
            rounded.push(number);
        }
    }
    Ok(rounded)
}

fn delay_us(table: &Table) -> Option<i64> {
    table.metadata().time.as_ref().map(crate::store::TimeMetadata::delay_us)
}

fn is_rounded(table: &Table, row_limit: u32) -> Result<bool> {
    let delay = delay_us(table).unwrap_or(0);
    let step = (table.row_count() / row_limit).max(1);
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
    let mut seeing: BTreeMap<u32, Vec<bool>> = BTreeMap::new();
    for path in Path::all_from(store, sample.anchor).iter().skip(1) {
        if !rounded.contains(&path.table) {
            continue;
        }
        let table = &store.tables()[path.table as usize];
        let delay = delay_us(table).unwrap_or(0);
        let seeing = seeing.entry(path.table).or_insert_with(|| vec![false; sample.seeds.len()]);
        for (sees, seed) in seeing.iter_mut().zip(&sample.seeds) {
            let own_time = store.tables()[sample.anchor as usize].row(seed.row)?.time();
            for &row in &path.follow(store, sample.anchor, seed)?.rows {
                let time = table.row(row)?.time();
                if time == ALWAYS_VISIBLE || time >= NEVER_VISIBLE {
                    continue;
                }
                // What is of the very event that the seed is of came with it.
                let is_of_the_event = rounded.contains(&sample.anchor) && time == own_time;
                let ends_later = time.saturating_sub(delay).saturating_add(DAY_US) > seed.obs_time;
                *sees |= ends_later && !is_of_the_event;
            }
        }
    }
    let count = sample.seeds.len();
    let found = seeing.into_iter().filter_map(|(table, seeing)| {
        let seeds = seeing.into_iter().filter(|&sees| sees).count();
        let is_much = seeds >= SEEDS_MIN && seeds as f64 >= SHARE_MIN * count as f64;
        let name = &store.metadata().tables[table as usize].name;
        is_much.then(|| Finding {
            kind: Kind::RoundedTime,
            task: Some(sample.task.clone()),
            subject: name.clone(),
            evidence: format!(
                "{name}: its times are rounded to days, and {seeds} of {count} seeds see rows of the \
                 day on which they are observed, which may have come to exist after the observation"
            ),
            remedy: "give the table's time a delay: delay = \"1 day\"".to_owned(),
        })
    });
    Ok(found.collect())
}
