//! Batches made ahead of their consumer: aligned buffers, and an ordered, bounded queue.
//!
//! `README.md` explains the gate, the protocol, and why it does not deadlock.

mod in_flight;
mod producer;
mod slab;
mod streams;

#[cfg(all(test, shuttle))]
mod model;
#[cfg(all(test, shuttle))]
mod tests;

pub(crate) use slab::{Pool, Slab, room_for_batch};
pub use streams::Speed;
pub use streams::check_owner;
pub(crate) use streams::{Maker, Pass, Streams};
