//! A deterministic, resumable sampler and reducer for relational data.
//!
//! A run is a sequence. A **plan** (what to read, how to walk it, one seed number) determines the
//! whole sequence, and every element of it alone. A **rank** takes the elements that are its by
//! arithmetic on the index; a **cursor** is a position in the sequence plus the plan's
//! fingerprint. Nothing else is state. From this follow the promises:
//!
//! | promise | meaning |
//! |---|---|
//! | P1 same bits | ranks, threads, prefetch, arrival order and instruction set are speed settings |
//! | P2 resume is a law | stop anywhere, restore, go on: the tail is that of the uninterrupted run |
//! | P3 resume costs nothing | O(1) in the items already consumed: a seek, never a replay |
//! | P4 elastic | a run of W ranks goes on with W' ranks |
//! | P5 exactly once | every item of an epoch goes to exactly one rank |
//! | P6 no silent change | a foreign cursor is refused by name; corruption is never decoded |
//! | P7 no leak | what did not exist at the observation time is never seen |
//! | P8 a reader's cursor | a cursor tells what the caller consumed, not what was prefetched |
//!
//! What is here so far: the plan with its cursor, the store, the way from somebody's data to a store,
//! the sampler, statistics that fold to the same bits everywhere ([`fold`]), and the reducer, which
//! spreads a fold over ranks.
//!
//! # Map
//!
//! Dependencies run downward; `tests/tidy.rs` fails on an edge that runs up.
//!
//! | floor | rooms |
//! |---|---|
//! | the command | `bin`, [`cli`], `py` |
//! | a wire for the reducer | `mpi` |
//! | parts that know nothing of each other | [`prepare`], [`sampler`], [`reducer`] |
//! | what they share | [`plan`], [`store`], [`fold`] |
//! | the ground | [`durable`], [`random`], `error`, `bytes`, `map`, `panics` |

mod bytes;
mod container;
mod error;
mod handoff;
mod map;
mod panics;
mod process;

#[cfg(feature = "reduce")]
pub mod cli;
pub mod durable;
pub mod fold;
pub mod matrix;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod plan;
#[cfg(feature = "prepare")]
pub mod prepare;
pub mod progress;
#[cfg(feature = "python")]
mod py;
pub mod random;
pub mod reducer;
pub mod sampler;
pub mod store;
#[cfg(feature = "reduce")]
mod view;

pub use bytes::Digest;
pub use error::{Context, Error, ErrorKind, Result};
