#![doc = include_str!("../README.md")]

mod batch;
mod compact;
mod feed;
mod loader;
mod masks;
mod slices;
mod targets;
#[cfg(feature = "train")]
mod train;

pub use batch::{GraphBatch, MaskedCells};
pub use compact::TimeScales;
pub use loader::{EvaluationLoader, Loader};
pub use masks::Masks;
pub use targets::{MaskedTargets, Tables};
#[cfg(feature = "train")]
pub use train::{Beside, CursorRecord};
