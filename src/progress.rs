//! The progress of long work, and how its user stops it.

use crate::error::Result;

/// Hears of the progress of long work, and may stop it.
pub trait Progress: Sync {
    /// A new stage begins, of `total` units of work where that is known.
    fn begin(&self, stage: &str, total: Option<u64>);

    /// `count` more units are done.
    ///
    /// # Errors
    /// `Interrupted` when the user wants the work to stop; nothing is left behind then.
    fn advance(&self, count: u64) -> Result<()>;
}

/// Says nothing and never stops.
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _stage: &str, _total: Option<u64>) {}

    fn advance(&self, _count: u64) -> Result<()> {
        Ok(())
    }
}
