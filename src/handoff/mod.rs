//! Work made ahead of its consumer: aligned buffers, and an ordered, bounded hand-off.

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
