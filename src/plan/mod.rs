//! The plan, its sequence by arithmetic, and the cursor: a position in a plan.
#![doc = include_str!("FORMAT.md")]

mod assignment;
mod cursor;
mod permutation;
mod schedule;
mod settings;
mod split;

pub use assignment::Assignment;
pub use cursor::{Cursor, CursorKind, Position};
pub use permutation::Permutation;
pub use schedule::Schedule;
pub use settings::{Fingerprint, Plan, Setting};
#[cfg(feature = "prepare")]
pub(crate) use split::bucket_of;
pub use split::{Split, SplitRatios, SplitRule};
