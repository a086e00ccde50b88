//! `Batches`: from the steps of the streams to batches.

use super::batch::Batch;
use super::engine::{Engine, SequenceSource};
use super::stream::{Place, Steps};
use crate::error::{Error, Result};
use crate::handoff::Maker;
use crate::plan::Split;

/// Makes the batches of the streams.
pub(super) struct Batches {
    pub engine: Engine,
    /// The steps of each split; none where no task has a seed.
    pub steps: [Option<Steps>; 3],
}

impl Batches {
    pub(super) fn steps(&self, stream: usize) -> Result<&Steps> {
        self.steps[stream].as_ref().ok_or_else(|| {
            Error::invalid(format!(
                "no task with a weight above 0 has a seed in the {} split; change the split ratios or the \
                 task weights, or name other tasks",
                Split::ALL[stream].name()
            ))
        })
    }
}

impl Maker for Batches {
    type Place = Place;
    type Work = (usize, Vec<SequenceSource>);
    type Item = Batch;

    fn check(&self, stream: usize) -> Result<()> {
        self.steps(stream).map(|_| ())
    }

    fn advance(&self, stream: usize, place: &mut Place) -> Result<Self::Work> {
        self.steps(stream)?.advance(place, &self.engine.tasks)
    }

    fn make(&self, (task, sources): &Self::Work) -> Result<Batch> {
        self.engine.make(*task, sources)
    }

    fn threads(&self) -> &rayon::ThreadPool {
        &self.engine.threads
    }
}
