//! A deterministic, resumable sampler and reducer for relational data.

mod bytes;
mod error;

pub mod durable;
pub mod random;

pub mod fold;
pub mod store;

pub mod plan;

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "prepare")]
pub mod prepare;
#[cfg(feature = "python")]
mod py;

pub use error::{Context, Error, ErrorKind, Result};
