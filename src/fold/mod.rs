#![doc = include_str!("FORMAT.md")]

mod column_moments;
mod control;
mod counts;
mod distinct;
mod exponents;
pub mod gram;
mod histogram;
mod moments;
mod node;
mod rows;
mod statistic;
mod top;
mod tree;
mod words;

/// The version of what `FORMAT.md` says; it is part of whatever is folded.
pub const FORMAT_VERSION: u64 = 1;

#[cfg(feature = "prepare")]
pub(crate) use control::in_default_environment;

pub use column_moments::{ColumnMoments, ColumnSummary, ColumnSums, MomentSums};
pub use counts::Counts;
pub use distinct::{Distinct, Registers};
pub use exponents::{ColumnExponents, ExponentHistogram, SignExponents};
pub use gram::{Cross, Gram, Rectangle, Triangle};
pub use histogram::{ColumnCounts, Histogram};
pub use moments::{Moments, ZScore};
pub use node::Node;
pub use rows::{Rows, Values};
pub use statistic::{Arrival, Copied, Partial, Statistic, leaves};
pub use top::{End, NumberedRows, RankedRow, Ranking, TopRows};
pub use tree::{Inserted, Tree};
