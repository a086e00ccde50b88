//! The pairs of a task that asks which rows will be linked, and what was known of their links.

use rayon::prelude::*;

use super::time::ALWAYS_VISIBLE;
use super::{LinkMetadata, Store, Task};
use crate::error::{Error, Result};

/// The number of pairs that one piece of parallel work takes.
const PAIRS_AT_A_TIME: usize = 1 << 14;

/// The pairs of a task, in the order of its seeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    /// The rows that the task asks about.
    pub anchors: Vec<u32>,
    /// The rows to which they may be linked.
    pub candidates: Vec<u32>,
    /// The observation times.
    pub observed: Vec<i64>,
}

/// What was known of the links of pairs at their observation times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairHistory {
    /// The number of links of the candidate.
    pub popularity: Vec<u32>,
    /// The time of the last link of the two; `i64::MIN` for none.
    pub last: Vec<i64>,
}

impl Store {
    /// Returns the pairs of a task of this store that asks which rows will be linked.
    ///
    /// # Errors
    /// `InvalidArgument` for another task, `Corrupt` when damaged.
    pub fn pairs(&self, task: &Task) -> Result<Pairs> {
        let link = link_of(task)?;
        let table = &self.tables()[task.metadata().anchor as usize];
        let [anchor, candidate] =
            [link.anchor, link.candidate].map(|relation| &self.relations()[relation as usize]);
        let mut pairs = Pairs::default();
        for index in 0..task.metadata().seed_count {
            let seed = task.seed(table, index)?;
            let row = table.row(seed.row)?;
            let (Some(anchor), Some(candidate), true) =
                (anchor.parent(&row)?, candidate.parent(&row)?, seed.row == index)
            else {
                return Err(Error::corrupt(format!(
                    "task {:?}: expected seed {index} to be pair {index}, with two rows, found \
                     pair {}; prepare the store again",
                    task.metadata().name,
                    seed.row
                )));
            };
            pairs.anchors.push(anchor);
            pairs.candidates.push(candidate);
            pairs.observed.push(task.sees_until(seed.obs_time));
        }
        Ok(pairs)
    }

    /// Returns what was known of the links of `pairs`, those of `task`, at their observation times, and
    /// by `until`.
    ///
    /// # Cost
    /// A binary search for each pair; the links of an anchor once for each of its observations.
    ///
    /// # Errors
    /// `InvalidArgument` for another task, `Corrupt` when damaged.
    pub fn pair_history(&self, task: &Task, pairs: &Pairs, until: i64) -> Result<PairHistory> {
        let link = link_of(task)?;
        let pieces: Vec<usize> = (0..pairs.anchors.len()).step_by(PAIRS_AT_A_TIME).collect();
        let pieces = pieces.into_par_iter().map(|first| {
            let end = (first + PAIRS_AT_A_TIME).min(pairs.anchors.len());
            self.history_of(link, pairs, first..end, until)
        });
        let mut history = PairHistory::default();
        for piece in pieces.collect::<Result<Vec<_>>>()? {
            history.popularity.extend(piece.popularity);
            history.last.extend(piece.last);
        }
        Ok(history)
    }

    fn history_of(
        &self,
        link: &LinkMetadata,
        pairs: &Pairs,
        range: std::ops::Range<usize>,
        until: i64,
    ) -> Result<PairHistory> {
        let [from_anchor, from_candidate] = [link.from_anchor, link.from_candidate]
            .map(|relation| &self.relations()[relation as usize]);
        let linking = &self.tables()[from_anchor.metadata().child as usize];
        let mut history = PairHistory::default();
        // The candidates to which an anchor was linked, sorted, each with the last time.
        let mut linked: Vec<(u32, i64)> = Vec::new();
        let mut last = None;
        for place in range {
            let (anchor, candidate) = (pairs.anchors[place], pairs.candidates[place]);
            let observed = pairs.observed[place].min(until);
            let popularity = from_candidate.children(candidate)?.visible_count(observed)?;
            history.popularity.push(popularity as u32);
            if last.replace((anchor, observed)) != Some((anchor, observed)) {
                linked.clear();
                let children = from_anchor.children(anchor)?;
                for child in 0..children.visible_count(observed)? {
                    let row = linking.row(children.row(child)?)?;
                    if let Some(to) = from_candidate.parent(&row)? {
                        linked.push((to, row.time()));
                    }
                }
                linked.sort_unstable();
                // Of one candidate the last time stays.
                linked.reverse();
                linked.dedup_by_key(|&mut (to, _)| to);
                linked.reverse();
            }
            let found = linked.binary_search_by_key(&candidate, |&(to, _)| to);
            history.last.push(found.map_or(ALWAYS_VISIBLE, |found| linked[found].1));
        }
        Ok(history)
    }
}

fn link_of(task: &Task) -> Result<&LinkMetadata> {
    task.metadata().link().ok_or_else(|| {
        Error::invalid(format!(
            "expected a task with what = \"link\", found {:?}, whose seeds are no pairs",
            task.metadata().name
        ))
    })
}
