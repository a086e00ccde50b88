//! The tasks that a sampler serves: their seeds, divided into splits, and their targets.

use std::ops::Range;
use std::sync::Arc;

use super::database::{ColumnShape, Database};
use super::division::Division;
use super::names::find;
use super::pools::{RowSeeds, row_seeds};
use super::sequence::{Heading, Target};
use super::settings::Settings;
use super::subset::{Grouped, Subset};
use crate::days::time_text;
use crate::error::{Context, Error, Result};
use crate::plan::{Permutation, Plan, Split, SplitRule};
use crate::random::{Purpose, name_identity};
use crate::store::{Cell, ColumnStats, Seed, Table, TargetMetadata, Task as StoreTask};

/// The type of a target in batches that have none.
const NO_TYPE: u8 = u8::MAX;

/// What a sampler serves under one name: a task of one of the databases, or a pool.
pub(super) struct Task {
    /// Its database among the sampler's.
    pub database: usize,
    /// The table of its seed rows.
    pub anchor: u32,
    /// `database/task`, or `database/pool:table`.
    pub name: String,
    pub weight: f64,
    pub heading: Heading,
    /// The columns of the anchor that the seed row hides: the target of a cell task, and those that
    /// would tell it.
    pub hidden: Vec<u32>,
    /// The identity of the name, part of the random words of its draws.
    pub identity: u64,
    seeds: Seeds,
    subsets: [Subset; 3],
}

/// The seeds of a task.
enum Seeds {
    /// Those of a task of the store, by its place.
    Stored(usize),
    /// Rows of the anchor.
    Rows(RowSeeds),
}

impl Task {
    /// Returns a task of a store.
    fn of_store(
        databases: &[Database],
        (database, place): (usize, usize),
        settings: &Settings,
    ) -> Result<Self> {
        let Database { name, store, .. } = &databases[database];
        let task = &store.tasks()[place];
        let metadata = task.metadata();
        let column = store.metadata().target_column(metadata);
        let (cat_emb_start, cat_emb_count) = match column.stats {
            // A model chooses among the categories of the training period.
            ColumnStats::Categorical { cat_emb_start, cat_emb_count, known_count } => {
                (cat_emb_start, known_count.unwrap_or(cat_emb_count))
            }
            _ => (0, 0),
        };
        let target_stype = column.semantic() as u8;
        let anchor = &store.tables()[metadata.anchor as usize];
        let identity = name_identity(&metadata.name);
        let by_key = Splitter { rule: &settings.split, identity, anchor };
        let splits_of = |seeds: Range<u32>, splits: &mut [Option<Split>]| -> Result<()> {
            match task.anchors(seeds.clone())? {
                Some(rows) => by_key.splits_of_any(rows, splits)?,
                None => by_key.splits_of(seeds.clone(), splits)?,
            }
            if settings.require_label {
                for (split, seed) in splits.iter_mut().zip(seeds) {
                    if task.seed(anchor, seed)?.target == Cell::Null {
                        *split = None;
                    }
                }
            }
            Ok(())
        };
        let name = format!("{name}/{}", metadata.name);
        let is_recorded = task.records_split() || settings.split.seed == SplitRule::DEFAULT_SEED;
        let subsets = match is_recorded {
            true => recorded(task, settings),
            false => {
                let (rule, seed_count) = (&settings.split, metadata.seed_count);
                let left_out = format!("label required {}", settings.require_label);
                Division { store, name: &metadata.name, seed_count, rule, left_out }
                    .subsets(splits_of)
            }
        };
        let subsets = subsets.context(|| format!("task {name:?}"))?;
        let hidden = match &metadata.target {
            TargetMetadata::Cell { column, hide } => [&[*column], &hide[..]].concat(),
            TargetMetadata::Derived { .. } => Vec::new(),
        };
        Ok(Self {
            database,
            anchor: metadata.anchor,
            identity: name_identity(&name),
            name,
            weight: 1.0,
            heading: Heading { target_stype, task_idx: 0, cat_emb_start, cat_emb_count },
            hidden,
            seeds: Seeds::Stored(place),
            subsets,
        })
    }

    /// Returns the pool of a table's rows.
    fn of_rows(
        databases: &[Database],
        database: usize,
        rows: RowSeeds,
        rule: &SplitRule,
    ) -> Result<Self> {
        let Database { name, store, .. } = &databases[database];
        let anchor = &store.tables()[rows.table as usize];
        let own_name = format!("pool:{}", anchor.metadata().name);
        let by_key = Splitter { rule, identity: name_identity(&own_name), anchor };
        let splits_of = |of: Range<u32>, splits: &mut [Option<Split>]| -> Result<()> {
            by_key.splits_of(of.clone(), splits)?;
            for (split, row) in splits.iter_mut().zip(of) {
                if rows.seed(anchor, row)?.is_none() {
                    *split = None;
                }
            }
            Ok(())
        };
        let name = format!("{name}/{own_name}");
        let division = Division {
            store,
            name: &own_name,
            seed_count: anchor.row_count(),
            rule,
            left_out: rows.left_out(),
        };
        let subsets = division.subsets(splits_of).context(|| format!("{name:?}"))?;
        if subsets.iter().all(|subset| subset.count() == 0) {
            return Err(rows.no_seed(anchor));
        }
        Ok(Self {
            database,
            anchor: rows.table,
            identity: name_identity(&name),
            name,
            weight: 1.0,
            heading: Heading {
                target_stype: NO_TYPE,
                task_idx: 0,
                cat_emb_start: 0,
                cat_emb_count: 0,
            },
            hidden: Vec::new(),
            seeds: Seeds::Rows(rows),
            subsets,
        })
    }

    /// Adds the weight to a plan, and when the rows of a pool are observed.
    pub(super) fn add_to(&self, plan: &mut Plan) -> Result<()> {
        plan.add(format!("task/{}", self.name), self.weight.to_string().as_str())?;
        match &self.seeds {
            Seeds::Rows(RowSeeds { obs_time: Some(at), .. }) => {
                plan.add(format!("observed/{}", self.name), time_text(*at).as_str())
            }
            Seeds::Rows(RowSeeds { obs_time: None, .. }) | Seeds::Stored(_) => Ok(()),
        }
    }

    /// Checks that seeds of the task can be observed earlier.
    pub(super) fn check_staleness(&self, databases: &[Database]) -> Result<()> {
        let metadata = self.stored(databases).map(StoreTask::metadata);
        let found = match metadata.map(|task| (&task.target, task.sees_everything)) {
            None => "whose rows are observed at a time of their own",
            Some((TargetMetadata::Cell { .. }, _)) => {
                "which predicts a cell of the seed row, and no context has that row before its time"
            }
            Some((TargetMetadata::Derived { .. }, true)) => {
                "whose seeds may have no observation time"
            }
            Some((TargetMetadata::Derived { .. }, false)) => return Ok(()),
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
    ///
    /// # Errors
    /// `Corrupt` when the store is damaged.
    pub(super) fn seed_index(&self, split: Split, ordinal: u64) -> Result<u32> {
        self.subsets[split as usize].at(ordinal)
    }

    /// Reads ahead what tells the seed at `ordinal` of a split, if memory does not hold the store.
    pub(super) fn read_ahead_to_find(&self, split: Split, ordinal: u64) {
        self.subsets[split as usize].read_ahead(ordinal);
    }

    /// Returns the split of a seed of the task.
    ///
    /// # Errors
    /// `InvalidArgument` for a seed that is left out.
    pub(super) fn split_of(&self, seed_index: u32) -> Result<Split> {
        for split in Split::ALL {
            if self.subsets[split as usize].contains(seed_index)? {
                return Ok(split);
            }
        }
        Err(self.left_out(seed_index))
    }

    /// The error of a seed that is in no split.
    fn left_out(&self, seed_index: u32) -> Error {
        let why = match self.seeds {
            Seeds::Stored(_) => "its target is NULL",
            Seeds::Rows(_) => "the row does not exist at its observation time",
        };
        Error::invalid(format!(
            "task {:?}: expected a seed of train, val or test, found seed_index {seed_index}, which is left \
             out because {why}; choose another",
            self.name
        ))
    }

    /// Returns the order of an epoch's seeds in a split that has some.
    pub(super) fn shuffle(&self, seed: u64, split: Split, epoch: u64) -> Result<Permutation> {
        let identity = [self.identity, split as u64, epoch];
        Permutation::new(self.count(split), seed, Purpose::Permutation, identity)
    }

    /// Returns the task of the store; none for a pool.
    pub(super) fn stored<'a>(&self, databases: &'a [Database]) -> Option<&'a StoreTask> {
        match self.seeds {
            Seeds::Stored(place) => Some(&databases[self.database].store.tasks()[place]),
            Seeds::Rows(_) => None,
        }
    }

    /// Returns the table of the seed rows.
    pub(super) fn table<'a>(&self, databases: &'a [Database]) -> &'a Table {
        &databases[self.database].store.tables()[self.anchor as usize]
    }

    /// Returns a seed.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such seed, `Corrupt` when damaged.
    pub(super) fn seed(&self, databases: &[Database], seed_index: u32) -> Result<Seed> {
        let table = self.table(databases);
        match &self.seeds {
            Seeds::Stored(place) => {
                databases[self.database].store.tasks()[*place].seed(table, seed_index)
            }
            Seeds::Rows(rows) => {
                rows.seed(table, seed_index)?.ok_or_else(|| self.left_out(seed_index))
            }
        }
    }

    /// Returns the last time of which rows are visible to a seed that is observed at `obs_time`.
    pub(super) fn sees_until(&self, databases: &[Database], obs_time: i64) -> i64 {
        self.stored(databases).map_or(obs_time, |task| task.sees_until(obs_time))
    }

    /// Returns the place of a seed's target, whose value is `cell`.
    pub(super) fn target(&self, databases: &[Database], cell: Cell) -> Target<'_> {
        let hidden = &self.hidden[..];
        match self.stored(databases).map(|task| &task.metadata().target) {
            None => Target { cell: None, own: None, hidden },
            Some(TargetMetadata::Cell { column, .. }) => {
                Target { cell: Some(*column as usize), own: None, hidden }
            }
            Some(TargetMetadata::Derived { column, .. }) => {
                let table = &databases[self.database].tables[self.anchor as usize];
                Target {
                    cell: Some(table.columns.len()),
                    own: Some((ColumnShape::of(column), cell)),
                    hidden,
                }
            }
        }
    }

    /// Rejects a task whose target lies past the end of every sequence.
    fn check_fits(&self, databases: &[Database], sequence_length: u32) -> Result<()> {
        let Some(target) = self.target(databases, Cell::Null).cell else { return Ok(()) };
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

/// Splits rows by their keys.
struct Splitter<'a> {
    rule: &'a SplitRule,
    /// The identity of the task's name, which is part of the hash.
    identity: u64,
    anchor: &'a Table,
}

impl Splitter<'_> {
    /// Writes the splits of rows that follow each other.
    fn splits_of(&self, rows: Range<u32>, splits: &mut [Option<Split>]) -> Result<()> {
        for (split, key) in splits.iter_mut().zip(self.anchor.identities(rows)?) {
            *split = Some(self.rule.split_of(self.identity, *key));
        }
        Ok(())
    }

    /// Writes the splits of any rows.
    fn splits_of_any(&self, rows: &[u32], splits: &mut [Option<Split>]) -> Result<()> {
        for (split, row) in splits.iter_mut().zip(rows) {
            *split = Some(self.rule.split_of(self.identity, self.anchor.identity(*row)?));
        }
        Ok(())
    }
}

/// Returns the three splits of a task by the groups that its store records.
///
/// # Cost
/// Reads half a byte for each seed whose split is a bucket's, and less for recorded splits.
fn recorded(task: &StoreTask, settings: &Settings) -> Result<[Subset; 3]> {
    let groups = task.groups();
    groups.check_counts()?;
    let of_split = |split| {
        let wanted = groups.of_split(split, settings.split.ratios, settings.require_label);
        Ok(Subset::Grouped(Grouped::new(Arc::clone(groups), wanted)?))
    };
    let [train, val, test] = Split::ALL.map(of_split);
    Ok([train?, val?, test?])
}

/// Returns the tasks that `settings` name, in the order of the databases and their tasks, then the pools.
pub(super) fn tasks(databases: &[Database], settings: &Settings) -> Result<Vec<Task>> {
    let wanted = settings.tasks.as_deref();
    // Somebody who names pools alone wants pools alone.
    let wanted = wanted.or((!settings.pools.is_empty()).then_some(&[]));
    let pools = row_seeds(databases, &settings.pools, settings.visible_until)?;
    let given = settings.task_weights.as_deref();
    let named = wanted.map_or(0, <[_]>::len);
    if let Some(given) = given.filter(|given| given.len() != named + pools.len()) {
        return Err(Error::invalid(format!(
            "task_weights: expected one number for each task and then for each pool, {} in all, found {}; or \
             leave them out",
            named + pools.len(),
            given.len()
        )));
    }
    let weight = |number: usize| given.map_or(1.0, |given| given[number]);
    let mut tasks = Vec::new();
    for (place, number) in places(databases, wanted)? {
        let task = Task::of_store(databases, place, settings)?;
        task.check_fits(databases, settings.shape.sequence_length)?;
        tasks.push(Task { weight: number.map_or(1.0, weight), ..task });
    }
    for (database, rows, number) in pools {
        let pool = Task::of_rows(databases, database, rows, &settings.split)?;
        tasks.push(Task { weight: weight(named + number), ..pool });
    }
    for (number, task) in tasks.iter_mut().enumerate() {
        task.heading.task_idx = number as u32;
    }
    if tasks.is_empty() {
        return Err(Error::invalid(
            "expected at least one task or pool, found none; name one, or prepare a store whose schema has \
             tasks",
        ));
    }
    Ok(tasks)
}

/// A task of a store as database and place, and its place among those that are named.
type Place = ((usize, usize), Option<usize>);

/// Returns the tasks that are `wanted`, in the order of the databases and their tasks.
fn places(databases: &[Database], wanted: Option<&[String]>) -> Result<Vec<Place>> {
    let all = (databases.iter().enumerate())
        .flat_map(|(database, d)| (0..d.store.tasks().len()).map(move |place| (database, place)));
    let all: Vec<(usize, usize)> = all.collect();
    let Some(wanted) = wanted else {
        return Ok(all.into_iter().map(|place| (place, None)).collect());
    };
    let name = |&(database, place): &(usize, usize)| {
        let Database { name, store, .. } = &databases[database];
        format!("{name}/{}", store.tasks()[place].metadata().name)
    };
    let names: Vec<String> = all.iter().map(name).collect();
    let mut numbers = vec![None; all.len()];
    for (number, wanted) in wanted.iter().enumerate() {
        if numbers[find("task", wanted, &names)?].replace(number).is_some() {
            return Err(Error::invalid(format!(
                "task {wanted:?} is named twice; name each task once"
            )));
        }
    }
    let named = all.into_iter().zip(numbers);
    Ok(named.filter(|(_, number)| number.is_some()).collect())
}
