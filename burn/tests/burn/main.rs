//! The promises of headwater-burn, on the stores of the demo shop.
//!
//! | acceptance test | where |
//! |---|---|
//! | 1, tensors, masks and targets | `batches` |
//! | 2, resume | `resume`, `kills`; `learner` under Burn's Learner |
//! | 3, ranks and slices | `ranks` |
//! | 4, workers and threads | `workers` |
//! | 5, masked cells | `masked_cells` |
//! | 6, learning | `learning` |
//! | 7, bad input | `bad_input`; `learner` under Burn's Learner |
//! | 8, the library alone | `alone`; `make test-burn` compiles it |

mod alone;
mod bad_input;
mod batches;
mod example;
mod kills;
#[cfg(feature = "train")]
mod learner;
mod learning;
mod masked_cells;
mod own_process;
mod ranks;
mod resume;
mod shop;
mod workers;

#[allow(dead_code, reason = "the example evaluates, the tests do not")]
#[path = "../../examples/relational_transformer/model.rs"]
mod model;
#[path = "../../examples/relational_transformer/saves.rs"]
mod saves;
#[path = "../../examples/relational_transformer/training.rs"]
mod training;
