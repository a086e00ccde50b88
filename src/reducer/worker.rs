//! The worker's state machine: receives orders, and returns the chunks to fold next.

use std::collections::VecDeque;
use std::ops::Range;

use crate::error::{Error, Result};

use super::cursor::WorkerCursor;
use super::job::Job;
use super::message::{JobEnd, Order, Report};

/// A worker of a job. A state machine without input, output and clock, as the coordinator is.
///
/// Its whole state is its orders; when a worker dies, another one starts without any.
pub struct Worker {
    job: Job,
    ready: Vec<u8>,
    waiting: VecDeque<(Range<u64>, WorkerCursor)>,
    folding: Option<(Range<u64>, WorkerCursor)>,
    /// The time of the last report, in milliseconds.
    last_report_at: u64,
    patience: u64,
    /// What the next pass begins with.
    next: Option<Vec<u8>>,
    end: Option<JobEnd>,
}

impl Worker {
    /// Returns a worker that can read the chunks `readable`. The worker repeats that it is ready after
    /// `patience` milliseconds without an order.
    ///
    /// # Errors
    /// Those of [`Plan::encode`](crate::plan::Plan::encode).
    pub fn new(job: &Job, readable: Vec<Range<u64>>, patience: u64) -> Result<Self> {
        Ok(Self {
            job: job.clone(),
            ready: Report::Ready { job: &job.plan().encode()?, readable }.encode(),
            waiting: VecDeque::new(),
            folding: None,
            last_report_at: 0,
            patience,
            next: None,
            end: None,
        })
    }

    /// Starts the worker at the time `now`; returns the report that it is ready.
    pub fn begin(&mut self, now: u64) -> Vec<u8> {
        self.last_report_at = now;
        self.ready.clone()
    }

    /// Receives an order. A repeated order changes nothing.
    ///
    /// # Errors
    /// `Corrupt` when the message is not an order, or has chunks that the job does not have.
    pub fn hear(&mut self, message: &[u8]) -> Result<()> {
        match Order::decode(message)? {
            Order::Next(known) => {
                self.next = Some(known);
                self.waiting.clear();
            }
            Order::End(end) => {
                self.end = Some(end);
                self.waiting.clear();
            }
            Order::Fold { chunks, .. } if chunks.end > self.job.chunk_count() => {
                return Err(Error::corrupt(format!(
                    "expected an order for chunks below {}, found {chunks:?}",
                    self.job.chunk_count()
                )));
            }
            Order::Fold { chunks, cursor } => {
                let mut known = self.folding.iter().chain(&self.waiting);
                if known.all(|(other, _)| *other != chunks) {
                    self.waiting.push_back((chunks, cursor));
                }
            }
        }
        Ok(())
    }

    /// Starts the next order and returns its chunks; `None` while an order is being folded.
    pub fn next_order(&mut self) -> Option<Range<u64>> {
        if self.folding.is_none() {
            self.folding = self.waiting.pop_front();
            return self.folding.as_ref().map(|(chunks, _)| chunks.clone());
        }
        None
    }

    /// Records that the current order is folded; returns the cursor to send with its portion, `None`
    /// when there was no order.
    pub fn folded(&mut self, now: u64) -> Option<WorkerCursor> {
        self.last_report_at = now;
        self.folding.take().map(|(_, cursor)| cursor)
    }

    /// Returns the report that the worker is ready, again, after a long time without an order: the last
    /// order may be lost.
    pub fn tick(&mut self, now: u64) -> Option<Vec<u8>> {
        let is_idle = self.folding.is_none() && self.waiting.is_empty() && self.end.is_none();
        (is_idle && now.saturating_sub(self.last_report_at) > self.patience)
            .then(|| self.begin(now))
    }

    /// What the next pass begins with, when this pass has ended.
    pub fn take_next(&mut self) -> Option<Vec<u8>> {
        self.next.take()
    }

    /// How the job ended; `None` while it runs.
    #[must_use]
    pub fn end(&self) -> Option<JobEnd> {
        self.end
    }
}
