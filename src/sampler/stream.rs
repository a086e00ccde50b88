//! The place of a stream of batches, and the seeds of its next batch.

use super::engine::SequenceSource;
use super::tasks::Task;
use crate::error::{Error, Result};
use crate::handoff::room_for_batch;
use crate::plan::{Assignment, Permutation, Plan, Position, Schedule, Split};

/// A place between two steps of one split's stream.
///
/// The number of draws is counted and not computed from the step, so that the size of the global
/// batch may change on the way and no seed is lost or drawn twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of global steps that are done.
    pub step: u64,
    /// The number of draws of each task.
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
                Error::corrupt(format!("expected the counter {name:?} in the cursor's position, found none; use a cursor \
                     that a sampler saved"))
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

/// The steps of one split: the task and the seeds of each.
pub(super) struct Steps {
    pub split: Split,
    schedule: Schedule,
    seed: u64,
    batch_size: u64,
    assignment: Assignment,
}

impl Steps {
    /// Returns the steps of a split; none when no task has a seed in it.
    pub(super) fn new(
        split: Split,
        tasks: &[Task],
        seed: u64,
        batch_size: u32,
        assignment: Assignment,
    ) -> Result<Option<Self>> {
        // A task without seeds in the split takes no step.
        let weight = |task: &Task| if task.count(split) == 0 { 0.0 } else { task.weight };
        let weights: Vec<f64> = tasks.iter().map(weight).collect();
        if weights.iter().all(|&weight| weight == 0.0) {
            return Ok(None);
        }
        let schedule = Schedule::new(seed, split, &weights)?;
        Ok(Some(Self { split, schedule, seed, batch_size: u64::from(batch_size), assignment }))
    }

    /// Returns the place before step `step` of a stream that had this batch size and number of ranks from
    /// its beginning.
    pub(super) fn place_at(&self, step: u64, task_count: usize) -> Result<Place> {
        let global = self.batch_size.checked_mul(self.assignment.world());
        let draws_before = |task| {
            let draws = self.schedule.count_before(task, step).checked_mul(global?);
            draws.filter(|&draws| draws < u64::MAX)
        };
        let draws = (0..task_count).map(|task| draws_before(task).ok_or_else(past_the_end));
        Ok(Place { step, draws: draws.collect::<Result<_>>()? })
    }

    /// Returns the task of the step at `place` and this rank's seeds; moves `place` to the next step.
    pub(super) fn advance(
        &self,
        place: &mut Place,
        tasks: &[Task],
    ) -> Result<(usize, Vec<SequenceSource>)> {
        let number = self.schedule.task_at(place.step);
        let task = &tasks[number];
        let count = task.count(self.split);
        let base = place.draws[number];
        let mut shuffle: Option<(u64, Permutation)> = None;
        let mut drawn: Vec<(u64, u64)> = room_for_batch(self.batch_size as usize)?;
        for row in 0..self.batch_size {
            let draw = base.checked_add(self.assignment.position(0, self.batch_size, row)?);
            let draw = draw.ok_or_else(past_the_end)?;
            let (epoch, position) = (draw / count, draw % count);
            if shuffle.as_ref().is_none_or(|(of, _)| *of != epoch) {
                shuffle = Some((epoch, task.shuffle(self.seed, self.split, epoch)?));
            }
            let ordinal = shuffle.as_ref().map_or(0, |(_, shuffle)| shuffle.at(position));
            task.read_ahead_to_find(self.split, ordinal);
            drawn.push((epoch, ordinal));
        }
        let mut sources = room_for_batch(self.batch_size as usize)?;
        for (epoch, ordinal) in drawn {
            let seed_index = task.seed_index(self.split, ordinal)?;
            sources.push(match self.split {
                Split::Train => SequenceSource::TrainSeed { seed_index, epoch },
                _ => SequenceSource::Seed { seed_index, epoch },
            });
        }
        let global = self.batch_size.checked_mul(self.assignment.world());
        let draws = global.and_then(|global| base.checked_add(global));
        place.draws[number] = draws.ok_or_else(past_the_end)?;
        place.step = place.step.checked_add(1).ok_or_else(past_the_end)?;
        Ok((number, sources))
    }
}

fn past_the_end() -> Error {
    Error::limit("the stream ends at draw 2^64 - 1; start a new run with another random seed")
}

/// A place in a finite pass over the seeds of one split, task after task.
#[derive(Clone)]
pub(super) struct Pass {
    split: Split,
    /// The tasks in their order; each has seeds.
    tasks: Vec<usize>,
    /// The number of tasks that are done.
    done: usize,
    /// The number of the current task's seeds that all ranks together have taken.
    taken: u64,
    batch_size: u64,
    assignment: Assignment,
}

impl Pass {
    /// Returns the beginning of a pass over tasks that have seeds in the split.
    pub(super) fn new(
        split: Split,
        tasks: Vec<usize>,
        batch_size: u64,
        assignment: Assignment,
    ) -> Self {
        Self { split, tasks, done: 0, taken: 0, batch_size, assignment }
    }

    /// Returns the plan of the pass of a sampler that has the plan `of`.
    pub(super) fn plan(&self, of: &Plan, tasks: &[Task]) -> Result<Plan> {
        let mut plan = of.clone();
        plan.add("pass/split", self.split.name())?;
        for (place, &task) in self.tasks.iter().enumerate() {
            plan.add(format!("pass/task/{place}"), tasks[task].name.as_str())?;
        }
        Ok(plan)
    }

    /// Returns the counters of a cursor at this place.
    pub(super) fn position(&self) -> Position {
        let mut position = Position::new();
        position.set("tasks", self.done as u64);
        position.set("seeds", self.taken);
        position
    }

    /// Goes to the place of a cursor's counters.
    pub(super) fn move_to(&mut self, position: &Position, tasks: &[Task]) -> Result<()> {
        let counter = |name: &str| position.get(name);
        let (done, taken) = counter("tasks").zip(counter("seeds")).ok_or_else(|| {
            Error::corrupt(
                "expected the counters \"tasks\" and \"seeds\" in the cursor's position, found others; \
                 use a cursor that a pass saved",
            )
        })?;
        let current = usize::try_from(done).ok().and_then(|done| self.tasks.get(done));
        let seeds = current.map_or(0, |&task| tasks[task].count(self.split));
        if done > self.tasks.len() as u64 || taken >= seeds.max(1) {
            return Err(Error::corrupt(format!(
                "expected a place in {} tasks, found {done} tasks and {taken} of {seeds} seeds of the \
                 next; use a cursor that a pass saved",
                self.tasks.len()
            )));
        }
        (self.done, self.taken) = (done as usize, taken);
        Ok(())
    }

    /// The number of batches that are left.
    pub(super) fn remaining(&self, tasks: &[Task]) -> u64 {
        let left = |(place, &task): (usize, &usize)| {
            let taken = if place == 0 { self.taken } else { 0 };
            (tasks[task].count(self.split) - taken).div_ceil(self.global())
        };
        self.tasks[self.done..].iter().enumerate().map(left).sum()
    }

    /// Moves behind the next batch; returns its task and the number of the task's seeds before it.
    pub(super) fn step(&mut self, tasks: &[Task]) -> Option<(usize, u64)> {
        let &number = self.tasks.get(self.done)?;
        let first = self.taken;
        // Past the last seed is the end, however far.
        self.taken = self.taken.saturating_add(self.global());
        if self.taken >= tasks[number].count(self.split) {
            self.done += 1;
            self.taken = 0;
        }
        Some((number, first))
    }

    /// Returns the next step's task and this rank's seeds, padded at the end of a task; where that fails,
    /// the step is the next one still.
    pub(super) fn advance(
        &mut self,
        tasks: &[Task],
    ) -> Result<Option<(usize, Vec<SequenceSource>)>> {
        let before = (self.done, self.taken);
        let Some((number, first)) = self.step(tasks) else { return Ok(None) };
        match self.sources(&tasks[number], first) {
            Ok(sources) => Ok(Some((number, sources))),
            Err(error) => {
                (self.done, self.taken) = before;
                Err(error)
            }
        }
    }

    /// Returns this rank's seeds of the step before which all ranks have taken `first` seeds of a task.
    fn sources(&self, task: &Task, first: u64) -> Result<Vec<SequenceSource>> {
        let count = task.count(self.split);
        let ordinal_of = |row| {
            let ordinal = first + self.assignment.position(0, self.batch_size, row)?;
            Ok((ordinal < count).then_some(ordinal))
        };
        for row in 0..self.batch_size {
            if let Some(ordinal) = ordinal_of(row)? {
                task.read_ahead_to_find(self.split, ordinal);
            }
        }
        let mut sources = room_for_batch(self.batch_size as usize)?;
        for row in 0..self.batch_size {
            sources.push(match ordinal_of(row)? {
                Some(ordinal) => {
                    let seed_index = task.seed_index(self.split, ordinal)?;
                    SequenceSource::Seed { seed_index, epoch: 0 }
                }
                None => SequenceSource::Filler,
            });
        }
        Ok(sources)
    }

    /// The number of seeds of a step on all ranks.
    fn global(&self) -> u64 {
        self.batch_size.saturating_mul(self.assignment.world())
    }
}
