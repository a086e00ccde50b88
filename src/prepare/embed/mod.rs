//! Embedders: turn texts into vectors.

mod cache;
mod endpoint;
mod hashing;

use half::f16;

use crate::error::Result;

pub use endpoint::EndpointEmbedder;
pub use hashing::HashingEmbedder;

/// Turns texts into vectors of one length.
///
/// # Determinism
/// The vector of a text must depend on that text alone, not on the other texts of a call. Otherwise
/// the store is not reproducible.
pub trait Embedder: Sync {
    /// Returns the name that the store records.
    fn name(&self) -> String;

    /// Returns the length of a vector.
    fn dimension(&self) -> usize;

    /// Writes the vectors of `texts` to `vectors`, one after the other.
    ///
    /// # Errors
    /// The errors of the embedder; they end the preparation.
    fn embed(&self, texts: &[&str], vectors: &mut [f16]) -> Result<()>;
}
