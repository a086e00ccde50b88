//! Rows without a time, which are always visible, though another of their times is later than the
//! observation.

use std::collections::BTreeMap;

use super::path::Path;
use super::predictors::Sample;
use super::{Finding, Kind};
use crate::error::Result;
use crate::store::{ALWAYS_VISIBLE, Cell, SemanticType};

/// Finds tables with times whose rows without one are seen before another of their times.
pub(super) fn findings(sample: &Sample<'_>) -> Result<Vec<Finding>> {
    let store = sample.store;
    // By table and column, the seeds that see a row before the time in the column.
    let mut seeing: BTreeMap<(u32, usize), Vec<bool>> = BTreeMap::new();
    for path in Path::all_from(store, sample.anchor).iter().skip(1) {
        let table = &store.tables()[path.table as usize];
        let columns = table.metadata().columns.iter().enumerate();
        let times: Vec<usize> = columns
            .filter(|(_, column)| column.semantic() == SemanticType::Timestamp)
            .map(|(place, _)| place)
            .collect();
        if table.metadata().time.is_none() || times.is_empty() {
            continue;
        }
        for (place, seed) in sample.seeds.iter().enumerate() {
            for &row in &path.follow(store, sample.anchor, seed)?.rows {
                let record = table.row(row)?;
                if record.time() != ALWAYS_VISIBLE {
                    continue;
                }
                for &column in &times {
                    if matches!(record.cell(column), Cell::Timestamp(time) if time > seed.obs_time)
                    {
                        let none = || vec![false; sample.seeds.len()];
                        seeing.entry((path.table, column)).or_insert_with(none)[place] = true;
                    }
                }
            }
        }
    }
    let count = sample.seeds.len();
    // Of several columns of a table, the one that tells most.
    let mut worst: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for ((table, column), seeing) in seeing {
        let seeds = seeing.into_iter().filter(|&sees| sees).count();
        let worst = worst.entry(table).or_insert((0, column));
        if seeds > worst.0 {
            *worst = (seeds, column);
        }
    }
    let worst = worst.into_iter().filter(|(_, (seeds, _))| sample.are_many(*seeds));
    let finding = |(table, (seeds, column)): (u32, (usize, usize))| {
        let metadata = &store.metadata().tables[table as usize];
        let (subject, column) = (&metadata.name, &metadata.columns[column].name);
        Finding {
            kind: Kind::NoTime,
            task: Some(sample.task.clone()),
            subject: subject.clone(),
            evidence: format!(
                "{subject}: its rows without a time are always visible, and {seeds} of {count} seeds see \
                 such a row whose {column:?} is later than the observation"
            ),
            remedy: format!(
                "give {subject} a time that every row has ({column:?}, if it is one), or leave the rows without \
                 a time out of the source; if {column:?} was known before, accept the table"
            ),
        }
    };
    Ok(worst.map(finding).collect())
}
