#![doc = include_str!("FORMAT.md")]

mod control;
pub mod gram;
mod moments;
mod node;
mod rows;
mod statistic;
mod tree;

pub use gram::{Cross, Gram, Rectangle, Triangle};
pub use moments::{Moments, ZScore};
pub use node::Node;
pub use rows::{Rows, Values};
pub use statistic::{Partial, Statistic};
pub use tree::{Inserted, Tree};
