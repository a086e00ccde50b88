//! The tasks that a sampler serves: their seeds, divided into splits, and their targets.

use rayon::prelude::*;

use super::database::{ColumnShape, Database};
use super::sequence::{Heading, Target};
use super::settings::Settings;
use super::subset::Subset;
use crate::error::{Context, Error, Result};
use crate::plan::{Permutation, Split, SplitRule};
use crate::random::{Purpose, name_identity};
use crate::store::{Cell, ColumnStats, TargetMetadata, Task as StoreTask};

/// How many words of a subset one piece of parallel work fills.
const WORDS_AT_A_TIME: usize = 256;

/// A task of one of the databases.
pub(super) struct Task {
    /// Its database among the sampler's.
    pub database: usize,
    /// Its place among that database's tasks.
    pub place: usize,
    /// `database/task`.
    pub name: String,
    pub weight: f64,
    pub heading: Heading,
    /// The columns of the anchor that the seed row hides: the target of a cell task, and those that
    /// would tell it.
    pub hidden: Vec<u32>,
    /// The identity of the name, part of the random words of its draws.
    pub identity: u64,
    subsets: [Subset; 3],
}

impl Task {
    fn new(
        databases: &[Database],
        (database, place): (usize, usize),
        rule: &SplitRule,
    ) -> Result<Self> {
        let store = &databases[database].store;
        let task = &store.tasks()[place];
        let metadata = task.metadata();
        let name = format!("{}/{}", databases[database].name, metadata.name);
        let column = store.metadata().target_column(metadata);
        let (cat_emb_start, cat_emb_count) = match column.stats {
            // A model chooses among the categories of the training period.
            ColumnStats::Categorical { cat_emb_start, cat_emb_count, known_count } => {
                (cat_emb_start, known_count.unwrap_or(cat_emb_count))
            }
            _ => (0, 0),
        };
        let heading = Heading {
            target_stype: column.semantic() as u8,
            task_idx: 0,
            cat_emb_start,
            cat_emb_count,
        };
        let subsets =
            divide(&databases[database], task, rule).context(|| format!("task {name:?}"))?;
        let identity = name_identity(&name);
        let hidden = match &metadata.target {
            TargetMetadata::Cell { column, hide } => [&[*column], &hide[..]].concat(),
            TargetMetadata::Derived { .. } => Vec::new(),
        };
        Ok(Self { database, place, name, weight: 1.0, heading, hidden, identity, subsets })
    }

    /// Checks that seeds of the task can be observed earlier.
    pub(super) fn check_staleness(&self, databases: &[Database]) -> Result<()> {
        let task = databases[self.database].store.tasks()[self.place].metadata();
        let found = match task.target {
            TargetMetadata::Cell { .. } => {
                "which predicts a cell of the seed row, and no context has that row before its time"
            }
            TargetMetadata::Derived { .. } if task.sees_everything => {
                "whose seeds may have no observation time"
            }
            TargetMetadata::Derived { .. } => return Ok(()),
        };
        Err(Error::invalid(format!(
            "staleness: expected tasks with targets from a table of their own and an observation time \
             for each seed, found task {:?}, {found}; name other tasks, or set the staleness to 0",
            self.name
        )))
    }

    /// Returns the number of seeds of a split.
    pub(super) fn count(&self, split: Split) -> u64 {
        self.subsets[split as usize].count()
    }

    /// Returns the `seed_index` at `ordinal` of a split, in the order of the store.
    pub(super) fn seed(&self, split: Split, ordinal: u64) -> u32 {
        self.subsets[split as usize].at(ordinal)
    }

    /// Returns the split of a seed of the task.
    pub(super) fn split_of(&self, seed_index: u32) -> Split {
        let is_in = |split: &Split| self.subsets[*split as usize].contains(seed_index);
        Split::ALL.into_iter().find(is_in).expect("every seed is in some split")
    }

    /// Returns the order of an epoch's seeds in a split that has some.
    pub(super) fn shuffle(&self, seed: u64, split: Split, epoch: u64) -> Result<Permutation> {
        let identity = [self.identity, split as u64, epoch];
        Permutation::new(self.count(split), seed, Purpose::Permutation, identity)
    }

    /// Returns the task of the store.
    pub(super) fn stored<'a>(&self, databases: &'a [Database]) -> &'a StoreTask {
        &databases[self.database].store.tasks()[self.place]
    }

    /// Returns the place of a seed's target, whose value is `cell`.
    pub(super) fn target(&self, databases: &[Database], cell: Cell) -> Target<'_> {
        let (metadata, hidden) = (self.stored(databases).metadata(), &self.hidden[..]);
        match &metadata.target {
            TargetMetadata::Cell { column, .. } => {
                Target { cell: *column as usize, own: None, hidden }
            }
            TargetMetadata::Derived { column, .. } => {
                let table = &databases[self.database].tables[metadata.anchor as usize];
                Target {
                    cell: table.columns.len(),
                    own: Some((ColumnShape::of(column), cell)),
                    hidden,
                }
            }
        }
    }

    /// Rejects a task whose target lies past the end of every sequence.
    fn check_fits(&self, databases: &[Database], sequence_length: u32) -> Result<()> {
        let target = self.target(databases, Cell::Null).cell;
        if target < sequence_length as usize {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "task {:?}: expected a sequence length of at least {}, because the target is that cell \
             of the seed row, found {sequence_length}; use longer sequences",
            self.name,
            target + 1
        )))
    }
}

/// Divides the seeds of a task into the three splits.
///
/// # Cost
/// A hash for each seed whose split is not recorded, in parallel.
fn divide(database: &Database, task: &StoreTask, rule: &SplitRule) -> Result<[Subset; 3]> {
    let metadata = task.metadata();
    let anchor = &database.store.tables()[metadata.anchor as usize];
    let identity = name_identity(&metadata.name);
    let split_of = |index: u32| -> Result<Split> {
        let (row, recorded) = task.anchor_and_split(index)?;
        match recorded {
            Some(split) => Ok(split),
            None => Ok(rule.split_of(identity, anchor.identity(row)?)),
        }
    };
    let word_count = (metadata.seed_count as usize).div_ceil(64);
    let mut words: [Vec<u64>; 3] = Default::default();
    words.iter_mut().for_each(|words| words.resize(word_count, 0));
    let [train, val, test] = &mut words;
    let pieces = train
        .par_chunks_mut(WORDS_AT_A_TIME)
        .zip(val.par_chunks_mut(WORDS_AT_A_TIME))
        .zip(test.par_chunks_mut(WORDS_AT_A_TIME));
    pieces.enumerate().try_for_each(|(piece, ((train, val), test))| {
        let mut splits = [train, val, test];
        let first = piece * WORDS_AT_A_TIME * 64;
        let last = (first + splits[0].len() * 64).min(metadata.seed_count as usize);
        for seed in first..last {
            let words = &mut splits[split_of(seed as u32)? as usize];
            words[(seed - first) / 64] |= 1 << (seed % 64);
        }
        Ok(())
    })?;
    Ok(words.map(Subset::new))
}

/// Returns the tasks that `settings` name, in the order of the databases and their tasks.
pub(super) fn tasks(databases: &[Database], settings: &Settings) -> Result<Vec<Task>> {
    let all: Vec<(usize, usize)> = (databases.iter().enumerate())
        .flat_map(|(database, d)| (0..d.store.tasks().len()).map(move |place| (database, place)))
        .collect();
    let name = |&(database, place): &(usize, usize)| {
        let Database { name, store, .. } = &databases[database];
        format!("{name}/{}", store.tasks()[place].metadata().name)
    };
    let mut weights = vec![None; all.len()];
    match &settings.tasks {
        None => weights.fill(Some(1.0)),
        Some(wanted) => {
            let given = settings.task_weights.as_deref();
            if let Some(given) = given.filter(|given| given.len() != wanted.len()) {
                return Err(Error::invalid(format!(
                    "expected {} task weights, one for each task, found {}; give one for each, or none",
                    wanted.len(),
                    given.len()
                )));
            }
            let names: Vec<String> = all.iter().map(name).collect();
            for (number, wanted) in wanted.iter().enumerate() {
                let place = find(wanted, &names)?;
                let weight = given.map_or(1.0, |given| given[number]);
                if weights[place].replace(weight).is_some() {
                    return Err(Error::invalid(format!(
                        "task {wanted:?} is named twice; name each task once"
                    )));
                }
            }
        }
    }
    let mut tasks = Vec::new();
    for (place, weight) in all.into_iter().zip(weights).filter_map(|(p, w)| Some((p, w?))) {
        let mut task = Task::new(databases, place, &settings.split)?;
        task.check_fits(databases, settings.shape.sequence_length)?;
        (task.weight, task.heading.task_idx) = (weight, tasks.len() as u32);
        tasks.push(task);
    }
    if tasks.is_empty() {
        return Err(Error::invalid(
            "there is no task to serve; name one, or prepare a store whose schema has tasks",
        ));
    }
    Ok(tasks)
}

/// Returns the place of the task called `wanted`, short (`churn`) or full (`shop/churn`), among the
/// full `names`.
///
/// # Errors
/// `InvalidArgument` when no task has the name, or several have.
pub(super) fn find(wanted: &str, names: &[impl AsRef<str>]) -> Result<usize> {
    let has_name =
        |name: &str| name == wanted || name.split_once('/').is_some_and(|(_, task)| task == wanted);
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let found: Vec<usize> = (0..names.len()).filter(|&place| has_name(names[place])).collect();
    let (what, candidates) = match found[..] {
        [place] => return Ok(place),
        [] => ("no task is called", names),
        _ => ("several tasks are called", found.into_iter().map(|place| names[place]).collect()),
    };
    Err(Error::invalid(format!("{what} {wanted:?}; name one of {}", candidates.join(", "))))
}
