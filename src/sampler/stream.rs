//! Where a stream of batches stands, and which seeds its next batch has.

use super::engine::Subject;
use super::tasks::Task;
use crate::error::{Error, Result};
use crate::plan::{Assignment, Permutation, Position, Schedule, Split};

/// A place between two steps of one split's stream.
///
/// The number of draws is counted and not computed from the step, so that the size of the global
/// batch may change on the way and no seed is lost or drawn twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The global steps that are done.
    pub step: u64,
    /// How often each task was drawn from.
    pub draws: Vec<u64>,
}

impl Place {
    pub(super) fn start(task_count: usize) -> Self {
        Self { step: 0, draws: vec![0; task_count] }
    }

    /// Adds the place to a cursor's position.
    pub(super) fn record(&self, split: Split, tasks: &[Task], position: &mut Position) {
        position.set(format!("{}/step", split.name()), self.step);
        for (task, &draws) in tasks.iter().zip(&self.draws) {
            position.set(draws_of(split, task), draws);
        }
    }

    /// Reads the place from a cursor's position.
    pub(super) fn recorded(split: Split, tasks: &[Task], position: &Position) -> Result<Self> {
        let counter = |name: String| {
            position.get(&name).ok_or_else(|| {
                Error::corrupt(format!("the cursor's position has no counter {name:?}"))
            })
        };
        Ok(Self {
            step: counter(format!("{}/step", split.name()))?,
            draws: (tasks.iter())
                .map(|task| counter(draws_of(split, task)))
                .collect::<Result<_>>()?,
        })
    }
}

fn draws_of(split: Split, task: &Task) -> String {
    format!("{}/draws/{}", split.name(), task.name)
}

/// The steps of one split: which task each serves, and which seeds.
pub(super) struct Steps {
    pub split: Split,
    schedule: Schedule,
    seed: u64,
    batch_size: u64,
    assignment: Assignment,
}

impl Steps {
    /// None when no task has a seed in the split.
    pub(super) fn new(
        split: Split,
        tasks: &[Task],
        seed: u64,
        batch_size: u32,
        assignment: Assignment,
    ) -> Result<Option<Self>> {
        // A task without seeds here is passed over.
        let weight = |task: &Task| if task.count(split) == 0 { 0.0 } else { task.weight };
        let weights: Vec<f64> = tasks.iter().map(weight).collect();
        if weights.iter().all(|&weight| weight == 0.0) {
            return Ok(None);
        }
        let schedule = Schedule::new(seed, split, &weights)?;
        Ok(Some(Self { split, schedule, seed, batch_size: u64::from(batch_size), assignment }))
    }

    /// The task of the step at `place` and this rank's seeds of it; moves on to the next step.
    pub(super) fn advance(
        &self,
        place: &mut Place,
        tasks: &[Task],
    ) -> Result<(usize, Vec<Subject>)> {
        let number = self.schedule.task_at(place.step);
        let task = &tasks[number];
        let count = task.count(self.split);
        let base = place.draws[number];
        let mut shuffle: Option<(u64, Permutation)> = None;
        let mut subjects = Vec::with_capacity(self.batch_size as usize);
        for row in 0..self.batch_size {
            let draw = base.checked_add(self.assignment.position(0, self.batch_size, row)?);
            let draw = draw.ok_or_else(past_the_end)?;
            let (epoch, position) = (draw / count, draw % count);
            if shuffle.as_ref().is_none_or(|(of, _)| *of != epoch) {
                shuffle = Some((epoch, task.shuffle(self.seed, self.split, epoch)?));
            }
            let ordinal = shuffle.as_ref().map_or(0, |(_, shuffle)| shuffle.at(position));
            subjects.push(Subject::Seed { index: task.seed(self.split, ordinal), epoch });
        }
        let global = self.batch_size.checked_mul(self.assignment.world());
        let draws = global.and_then(|global| base.checked_add(global));
        place.draws[number] = draws.ok_or_else(past_the_end)?;
        place.step = place.step.checked_add(1).ok_or_else(past_the_end)?;
        Ok((number, subjects))
    }
}

fn past_the_end() -> Error {
    Error::limit("the stream ends at draw 2^64 - 1; start afresh with another seed")
}

/// A finite pass over the seeds of one split, task after task.
pub(super) struct Pass {
    pub split: Split,
    /// The tasks that are still to be passed over, the next one last.
    pub tasks: Vec<usize>,
    /// How many of the current task's seeds were taken by all ranks together.
    pub taken: u64,
    pub batch_size: u64,
    pub assignment: Assignment,
}

impl Pass {
    /// The next step's task and this rank's seeds of it, filled up at the end of a task.
    pub(super) fn advance(&mut self, tasks: &[Task]) -> Result<Option<(usize, Vec<Subject>)>> {
        let Some(&number) = self.tasks.last() else { return Ok(None) };
        let task = &tasks[number];
        let count = task.count(self.split);
        let subjects = (0..self.batch_size)
            .map(|row| {
                let ordinal = self.taken + self.assignment.position(0, self.batch_size, row)?;
                Ok(match ordinal < count {
                    true => Subject::Seed { index: task.seed(self.split, ordinal), epoch: 0 },
                    false => Subject::Filler,
                })
            })
            .collect::<Result<_>>()?;
        // What is past all seeds is the end, however far.
        let global = self.batch_size.saturating_mul(self.assignment.world());
        self.taken = self.taken.saturating_add(global);
        if self.taken >= count {
            self.tasks.pop();
            self.taken = 0;
        }
        Ok(Some((number, subjects)))
    }
}
