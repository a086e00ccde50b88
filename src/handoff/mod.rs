//! Batches made ahead of their consumer: aligned buffers, and an ordered, bounded queue.
//!
//! `README.md` explains the gate, the protocol, and why it does not deadlock.

mod in_flight;
mod producer;
mod slab;

#[cfg(all(test, shuttle))]
mod model;
#[cfg(all(test, shuttle))]
mod tests;

pub(crate) use in_flight::{Begun, InFlight, begin};
pub(crate) use producer::{Gate, Producer, shut_down_error};
pub(crate) use slab::{Pool, Slab};
