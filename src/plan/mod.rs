#![doc = include_str!("FORMAT.md")]

mod assignment;
mod cursor;
mod fingerprint;
mod permutation;
mod schedule;
mod split;

pub use assignment::Assignment;
pub use cursor::{Cursor, CursorKind, Position};
pub use fingerprint::{Fields, Fingerprint, Value};
pub use permutation::Permutation;
pub use schedule::Schedule;
pub use split::{Split, SplitRatios, SplitRule};
