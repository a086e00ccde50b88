//! A deterministic, resumable sampler and reducer for relational data.

mod error;

pub mod store;

pub mod plan;

#[cfg(feature = "prepare")]
pub mod prepare;

pub use error::{Context, Error, ErrorKind, Result};
