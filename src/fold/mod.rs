//! Deterministic folds: statistics over rows, merged along a tree that the number of chunks
//! determines.
//!
//! A user needs a [`Statistic`] ([`Gram`], [`Cross`] or one of [`columns`]) and a [`Tree`] of its
//! partials. The submodules hold the rest: the chunks, the partials and the traits behind them.
//!
#![doc = include_str!("FORMAT.md")]

mod blocks;
pub mod columns;
pub mod gram;
mod moments;
mod node;
mod rows;
pub mod statistic;
pub mod sums;
pub mod tree;

/// The version of the rules in `FORMAT.md`; every job and partial carries it.
pub const FORMAT_VERSION: u64 = 1;

pub use columns::{
    ColumnMoments, Distinct, End, Exact, ExponentHistogram, Fraction, Histogram, Quantiles, TopRows,
};
pub use gram::{Cross, Gram};
pub use moments::{Moments, ZScore, rounded_to_width};
pub use node::Node;
pub use rows::{Rows, Values};
pub use statistic::{Partial, Statistic};
pub use sums::ArraySums;
pub use tree::Tree;
