//! The promises of headwater-burn, on the stores of the demo shop.

mod bad_input;
mod batches;
mod example;
#[cfg(feature = "train")]
mod learner;
mod learning;
mod masked_cells;
mod ranks;
mod resume;
mod shop;
mod workers;

#[allow(dead_code, reason = "the example evaluates, the tests do not")]
#[path = "../../examples/relational_transformer/model.rs"]
mod model;
#[path = "../../examples/relational_transformer/training.rs"]
mod training;
