//! The worker's state machine: takes orders, and names the chunks to be folded next.

use std::collections::VecDeque;
use std::ops::Range;

use crate::error::{Error, Result};

use super::job::Job;
use super::message::{JobEnd, Order, Report};

/// A worker of a job. A state machine without input, output and clock, as the coordinator is.
///
/// All that it knows are the orders that it has; when it dies, another takes its place with none.
pub struct Worker {
    job: Job,
    ready: Vec<u8>,
    waiting: VecDeque<Range<u64>>,
    folding: Option<Range<u64>>,
    /// When it last said, or did, something.
    silent_since: u64,
    patience: u64,
    end: Option<JobEnd>,
}

impl Worker {
    /// A worker that can read the chunks `readable`. It says that it is ready again when it has had
    /// nothing to do for longer than `patience`.
    ///
    /// # Errors
    /// Those of [`Plan::encode`](crate::plan::Plan::encode).
    pub fn new(job: &Job, readable: Vec<Range<u64>>, patience: u64) -> Result<Self> {
        Ok(Self {
            job: job.clone(),
            ready: Report::Ready { job: &job.plan().encode()?, readable }.encode(),
            waiting: VecDeque::new(),
            folding: None,
            silent_since: 0,
            patience,
            end: None,
        })
    }

    /// What a worker says that has just begun.
    pub fn begin(&mut self, now: u64) -> Vec<u8> {
        self.silent_since = now;
        self.ready.clone()
    }

    /// Takes in an order. One that it has already changes nothing.
    ///
    /// # Errors
    /// `Corrupt` when it is none, or none of this job.
    pub fn hear(&mut self, message: &[u8]) -> Result<()> {
        match Order::decode(message)? {
            Order::End(end) => {
                self.end = Some(end);
                self.waiting.clear();
            }
            Order::Fold(chunks) if chunks.end > self.job.chunk_count() => {
                return Err(Error::corrupt(format!(
                    "expected an order for chunks below {}, found {chunks:?}",
                    self.job.chunk_count()
                )));
            }
            Order::Fold(chunks) => {
                if self.folding.as_ref() != Some(&chunks) && !self.waiting.contains(&chunks) {
                    self.waiting.push_back(chunks);
                }
            }
        }
        Ok(())
    }

    /// What to fold next, where nothing is being folded.
    pub fn next_order(&mut self) -> Option<Range<u64>> {
        if self.folding.is_none() {
            self.folding = self.waiting.pop_front();
            return self.folding.clone();
        }
        None
    }

    /// Notes that what was being folded is on its way.
    pub fn folded(&mut self, now: u64) {
        self.folding = None;
        self.silent_since = now;
    }

    /// What to say when there has been nothing to do for too long: the last order may be lost.
    pub fn tick(&mut self, now: u64) -> Option<Vec<u8>> {
        let is_idle = self.folding.is_none() && self.waiting.is_empty() && self.end.is_none();
        (is_idle && now.saturating_sub(self.silent_since) > self.patience).then(|| self.begin(now))
    }

    /// How the job ended, when it has.
    #[must_use]
    pub fn end(&self) -> Option<JobEnd> {
        self.end
    }
}
