//! The fold through the public API: kernels against a twin in integers, the tree against recursion.

mod accuracy;
mod bad_input;
mod cells;
mod column_twin;
mod columns;
mod environment;
mod exact;
mod forms;
mod kernels;
mod numbers;
mod quantiles;
mod sums;
mod tree;
mod twin;
