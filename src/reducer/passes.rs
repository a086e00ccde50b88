//! Jobs of several passes over the rows, each of which begins with what the passes before have found.
//!
//! A pass is a job of its own. Rank 0 sends its beginning to the others when the pass before is complete;
//! they may still fold for that one, or have slept through it.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::plan::Plan;

use super::drive::{Event, Wire};
use super::message::{Order, Report};

/// The wire of rank 0 in one of several passes.
///
/// It drops the messages of ranks that are still in an earlier pass, and sends them the beginning of this one
/// again when they wait there for orders.
pub struct PassWire<'a> {
    wire: &'a mut dyn Wire,
    /// The plans of the passes before.
    earlier: &'a [Plan],
    known: Vec<u8>,
    /// The ranks that have not joined this pass.
    behind: BTreeSet<u32>,
}

impl<'a> PassWire<'a> {
    /// Begins a pass: tells all ranks but the `lost` ones what it begins with. `earlier` are the plans of the
    /// passes before; without any, the pass is the first, which the ranks begin by themselves.
    ///
    /// # Errors
    /// Those of the wire.
    pub fn begin(
        wire: &'a mut dyn Wire,
        earlier: &'a [Plan],
        known: Vec<u8>,
        lost: &BTreeSet<u32>,
    ) -> Result<Self> {
        let others = (1..wire.size()).filter(|rank| !lost.contains(rank));
        let behind = if earlier.is_empty() { BTreeSet::new() } else { others.collect() };
        let mut own = Self { wire, earlier, known, behind: BTreeSet::new() };
        behind.iter().try_for_each(|rank| own.send_beginning(*rank))?;
        own.behind = behind;
        Ok(own)
    }

    fn send_beginning(&mut self, rank: u32) -> Result<()> {
        self.wire.send(rank, Order::Next(self.known.clone()).encode())
    }

    /// Whether a rank that has not joined this pass sent a message of an earlier one.
    fn is_late(&mut self, rank: u32, message: &[u8]) -> Result<bool> {
        match Report::decode(message) {
            Ok(Report::Ready { job, .. }) => {
                let plan = Plan::decode_first(job).map(|(plan, _)| plan);
                let is_earlier = plan.is_ok_and(|plan| self.earlier.contains(&plan));
                if is_earlier {
                    self.send_beginning(rank)?;
                } else {
                    // Of this pass, or of no pass of this job, which the coordinator refuses.
                    self.behind.remove(&rank);
                }
                Ok(is_earlier)
            }
            // Its portions are of an earlier pass. When damaged, that rank repeats that it is ready.
            Ok(Report::Folded { .. }) | Err(_) => Ok(true),
            Ok(Report::Failed(_) | Report::Leaving) => Ok(false),
        }
    }
}

impl Wire for PassWire<'_> {
    fn size(&self) -> u32 {
        self.wire.size()
    }

    fn send(&mut self, rank: u32, message: Vec<u8>) -> Result<()> {
        self.wire.send(rank, message)
    }

    fn poll(&mut self) -> Result<Option<Event>> {
        let event = self.wire.poll()?;
        match &event {
            Some(Event::Message(rank, message)) if self.behind.contains(rank) => {
                let (rank, message) = (*rank, message.as_slice());
                Ok(if self.is_late(rank, message)? { None } else { event })
            }
            Some(Event::Lost(rank)) => {
                self.behind.remove(rank);
                Ok(event)
            }
            _ => Ok(event),
        }
    }

    fn is_busy(&self) -> bool {
        self.wire.is_busy()
    }
}
