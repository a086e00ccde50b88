//! Paths: how a seed's context comes to a row, over at most two links.

use crate::error::Result;
use crate::store::{Seed, Store, is_visible};

/// The most children of one row that are looked at, the latest first.
const CHILDREN_MAX: usize = 64;

/// One link of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The number of the store's relation.
    pub relation: u32,
    /// Whether it leads to the parent; else it leads to the children.
    pub is_parent: bool,
}

/// The way from a seed's table to another, or to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub steps: Vec<Step>,
    /// The table that it leads to.
    pub table: u32,
}

/// The rows at the end of a path that a seed sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The latest of them, the very latest first.
    pub rows: Vec<u32>,
    /// The number of all that are visible, and of those that are later than the observation.
    pub visible: u64,
    pub hidden: u64,
}

impl Path {
    /// Returns the paths from a table: to its own row, then over one link, then over two.
    pub(super) fn all_from(store: &Store, table: u32) -> Vec<Self> {
        let mut paths = vec![Self { steps: Vec::new(), table }];
        for length in 0..2 {
            let longest: Vec<Self> =
                paths.iter().filter(|path| path.steps.len() == length).cloned().collect();
            paths.extend(longest.iter().flat_map(|path| path.longer(store)));
        }
        paths
    }

    fn longer(&self, store: &Store) -> Vec<Self> {
        let mut longer = Vec::new();
        for (relation, metadata) in (0..).zip(&store.metadata().relations) {
            for is_parent in [true, false] {
                let (from, table) = match is_parent {
                    true => (metadata.child, metadata.parent),
                    false => (metadata.parent, metadata.child),
                };
                // From a child back to its parent leads to where the path was.
                let goes_back = self
                    .steps
                    .last()
                    .is_some_and(|last| last.relation == relation && !last.is_parent && is_parent);
                if from == self.table && !goes_back {
                    let steps = [&self.steps[..], &[Step { relation, is_parent }]].concat();
                    longer.push(Self { steps, table });
                }
            }
        }
        longer
    }

    /// Whether it leads to any number of rows.
    pub(super) fn is_many(&self) -> bool {
        self.steps.last().is_some_and(|step| !step.is_parent)
    }

    /// Returns the rows that a seed of table `anchor` sees at the end of the path, without its own.
    /// Of the children on the way, the latest leads on.
    pub(super) fn follow(&self, store: &Store, anchor: u32, seed: &Seed) -> Result<Found> {
        let (mut table, mut row) = (anchor, seed.row);
        let is_own = |table: u32, row: u32| (table, row) == (anchor, seed.row);
        let mut found = Found { rows: vec![row], visible: 1, hidden: 0 };
        for step in &self.steps {
            let relation = &store.relations()[step.relation as usize];
            found = Found::default();
            if step.is_parent {
                let record = store.tables()[table as usize].row(row)?;
                table = relation.metadata().parent;
                if let Some(parent) = relation.parent(&record)?
                    && !is_own(table, parent)
                {
                    let time = store.tables()[table as usize].row(parent)?.time();
                    match is_visible(time, seed.obs_time) {
                        true => (found.rows, found.visible) = (vec![parent], 1),
                        false => found.hidden = 1,
                    }
                }
            } else {
                let children = relation.children(row)?;
                table = relation.metadata().child;
                let visible = children.visible_count(seed.obs_time)?;
                found.hidden = (children.count() - visible) as u64;
                found.visible = visible as u64;
                for place in (0..visible).rev() {
                    let child = children.row(place)?;
                    match is_own(table, child) {
                        true => found.visible -= 1,
                        false => found.rows.push(child),
                    }
                    if found.rows.len() == CHILDREN_MAX {
                        break;
                    }
                }
            }
            match found.rows.first() {
                Some(&first) => row = first,
                None => return Ok(found),
            }
        }
        Ok(found)
    }

    /// Returns the path in words: `results of the same race_id`.
    pub(super) fn words(&self, store: &Store) -> String {
        let name = |step: &Step| store.short_relation_name(step.relation as usize);
        let tables = &store.metadata().tables;
        let child = |step: &Step| {
            let relation = store.relations()[step.relation as usize].metadata();
            tables[relation.child as usize].name.clone()
        };
        match &self.steps[..] {
            [] => "the seed row".to_owned(),
            [one] if one.is_parent => format!("the parent by {}", name(one)),
            [one] => format!("{} of the seed row, by {}", child(one), name(one)),
            [first, second] if first.is_parent && second.is_parent => {
                format!("the parent by {}, then by {}", name(first), name(second))
            }
            [first, second] if first.is_parent => {
                format!("other {} of the parent by {}", child(second), name(first))
            }
            [first, second] if second.is_parent => {
                format!("the parent by {} of the latest {}", name(second), child(first))
            }
            [first, second, ..] => {
                format!("{} of the latest {}, by {}", child(second), child(first), name(second))
            }
        }
    }
}
