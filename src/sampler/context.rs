//! One context in the open: which rows it has, and how the walk came upon each.

use super::Sampler;
use super::engine::Subject;
use super::walk::Visit;
use crate::error::Result;
use crate::store::{Cell, TargetMetadata};

/// The context of one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// The task, as `database/task`.
    pub task: String,
    /// The place of the database among the sampler's stores.
    pub database: usize,
    /// When the seed is observed.
    pub obs_time: i64,
    /// What is to be predicted.
    pub target: Cell,
    /// The target's column in the seed row; none when it is a cell of the task's own.
    pub target_column: Option<u32>,
    /// The rows in the order of the walk, the seed first.
    pub rows: Vec<Visit>,
    /// How many rows the walk came upon and did not see, because they came to exist later.
    pub hidden_count: u64,
    /// How many cells the rows have, of which a sequence may have fewer.
    pub cell_count: usize,
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
        let mut scratch = engine.take_scratch();
        let seed = engine.collect(task, Subject::Seed { index, epoch: 0 }, &mut scratch)?;
        let walker = &scratch.walker;
        Ok(Context {
            task: task.name.clone(),
            database: task.database,
            obs_time: seed.obs_time,
            target: seed.target,
            target_column: match task.stored(&engine.databases).metadata().target {
                TargetMetadata::Cell { column } => Some(column),
                TargetMetadata::Derived { .. } => None,
            },
            rows: walker.visits().to_vec(),
            hidden_count: walker.hidden(),
            cell_count: walker.cells(),
        })
    }
}
