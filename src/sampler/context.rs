//! One context in the open: which rows it has, how the walk came upon each, and what it did not see.

use super::Sampler;
use super::database::Database;
use super::engine::Subject;
use super::walk::{Visit, Walker};
use crate::error::Result;
use crate::plan::Split;
use crate::store::{Cell, TargetMetadata, is_visible};

/// The context of one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// The task, as `database/task`.
    pub task: String,
    /// The place of the database among the sampler's stores.
    pub database: usize,
    /// When the seed is observed.
    pub obs_time: i64,
    /// The split that the seed belongs to.
    pub split: Split,
    /// What is to be predicted.
    pub target: Cell,
    /// The target's column in the seed row; none when it is a cell of the task's own.
    pub target_column: Option<u32>,
    /// The rows in the order of the walk, the seed first.
    pub rows: Vec<Visit>,
    /// The references among the rows, in the order of the rows and of the relations.
    pub links: Vec<Link>,
    /// What each row is linked with, in the order of the rows; of each first the relations to its
    /// parents. What a row has no links through is left out.
    pub neighbours: Vec<Neighbours>,
    /// How many rows the walk came upon and did not see, because they came to exist later.
    ///
    /// It is at most the sum of what [`neighbours`](Self::neighbours) says is hidden: a walk that is full, at its
    /// last hop or out of budget looks no further, nor through a relation whose child width is 0. A
    /// walk by priority that was never full, without such widths, came upon all of them.
    pub hidden_count: u64,
    /// How many cells the rows have, of which a sequence may have fewer.
    pub cell_count: usize,
}

/// A reference from one row of a context to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The place of the row that refers.
    pub child: u32,
    /// The place of the row that it refers to.
    pub parent: u32,
    /// Through which of the store's relations.
    pub relation: u32,
}

/// The rows that a row of a context is linked with through one relation, in the context or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbours {
    /// The place of the row in the context.
    pub place: u32,
    /// Which of the store's relations.
    pub relation: u32,
    /// Whether this is about the row's parent, and not about its children.
    pub is_parent: bool,
    /// How many of them existed when the seed is observed.
    pub visible: u64,
    /// How many came to exist later.
    pub hidden: u64,
}

impl Sampler {
    /// The context of seed `index` of a task, as the first epoch has it.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such task or seed.
    pub fn context(&self, task: &str, index: u32) -> Result<Context> {
        self.check_alive()?;
        let engine = &self.engine;
        let task = &engine.tasks[self.task_number(task)?];
        let database = &engine.databases[task.database];
        let mut scratch = engine.take_scratch();
        let seed = engine.collect(task, Subject::Seed { index, epoch: 0 }, &mut scratch)?;
        let walker = &scratch.walker;
        let (links, neighbours) = links_and_neighbours(database, walker, seed.obs_time)?;
        Ok(Context {
            task: task.name.clone(),
            database: task.database,
            obs_time: seed.obs_time,
            split: task.split_of(index),
            target: seed.target,
            target_column: match task.stored(&engine.databases).metadata().target {
                TargetMetadata::Cell { column } => Some(column),
                TargetMetadata::Derived { .. } => None,
            },
            rows: walker.visits().to_vec(),
            links,
            neighbours,
            hidden_count: walker.hidden(),
            cell_count: walker.cells(),
        })
    }
}

/// What the rows of a walk are linked with, read once more from the store: the walk itself takes
/// down only what a batch needs.
fn links_and_neighbours(
    database: &Database,
    walker: &Walker,
    obs_time: i64,
) -> Result<(Vec<Link>, Vec<Neighbours>)> {
    let (mut links, mut neighbours) = (Vec::new(), Vec::new());
    let tables = database.store.tables();
    for (place, visit) in (0..).zip(walker.visits()) {
        let record = tables[visit.table as usize].row(visit.row)?;
        // Only a seed can be; its links are not known then.
        if !is_visible(record.time(), obs_time) {
            continue;
        }
        let shape = &database.tables[visit.table as usize];
        for &link in &shape.parents {
            let Some(row) = database.relation(link).parent(&record)? else { continue };
            let relation = link.relation;
            if let Some(parent) = walker.place(link.table, row) {
                links.push(Link { child: place, parent, relation });
            }
            let is_visible = is_visible(tables[link.table as usize].row(row)?.time(), obs_time);
            let (visible, hidden) = (u64::from(is_visible), u64::from(!is_visible));
            neighbours.push(Neighbours { place, relation, is_parent: true, visible, hidden });
        }
        for &link in &shape.children {
            let children = database.relation(link).children(visit.row)?;
            let visible = children.visible_count(obs_time)? as u64;
            let hidden = children.count() as u64 - visible;
            if visible + hidden > 0 {
                let relation = link.relation;
                neighbours.push(Neighbours { place, relation, is_parent: false, visible, hidden });
            }
        }
    }
    Ok((links, neighbours))
}
