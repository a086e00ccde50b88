//! Texts -> vectors.

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
/// The vector of a text depends on the text alone, not on its neighbours in a call, else the store
/// is not reproducible.
pub trait Embedder: Sync {
    /// What the store records as the vectors' origin.
    fn name(&self) -> String;

    /// How long a vector is.
    fn dimension(&self) -> usize;

    /// Writes the vectors of `texts` one after the other into `vectors`.
    ///
    /// # Errors
    /// Whatever stands in the way; the preparation then ends with it.
    fn embed(&self, texts: &[&str], vectors: &mut [f16]) -> Result<()>;
}
