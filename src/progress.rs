//! Progress reports of long work, and its interruption.

use crate::error::Result;

/// Receives the progress of long work, and may stop it.
pub trait Progress: Sync {
    /// Begins a new stage, of `total` units of work if known.
    fn begin(&self, stage: &str, total: Option<u64>);

    /// Adds `count` finished units.
    ///
    /// # Errors
    /// `Interrupted` when the user stops the work, which then leaves nothing behind.
    fn advance(&self, count: u64) -> Result<()>;
}

/// Ignores progress and never stops the work.
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _stage: &str, _total: Option<u64>) {}

    fn advance(&self, _count: u64) -> Result<()> {
        Ok(())
    }
}
