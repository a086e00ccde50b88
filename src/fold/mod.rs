#![doc = include_str!("FORMAT.md")]

mod control;
pub mod gram;
mod moments;
mod node;
mod rows;
mod statistic;
mod tree;

/// The version of what `FORMAT.md` says; it is part of whatever is folded.
pub const FORMAT_VERSION: u64 = 1;

pub use gram::{Cross, Gram, Rectangle, Triangle};
pub use moments::{Moments, ZScore};
pub use node::Node;
pub use rows::{Rows, Values};
pub use statistic::{Partial, Statistic};
pub use tree::{Inserted, Tree};
