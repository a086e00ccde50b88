//! Reading ahead in files that memory does not hold.
//!
//! The system reads megabytes around a page that is missing, which here would displace what is needed.
//! So it is told that reads are scattered, and a block is read ahead when it is known that it will be
//! needed: where the walk prefetches cache lines of files that memory holds. Reading ahead does not wait,
//! and many reads at a time keep the disk busy.
//!
//! A block that was checked may be in memory still, or not. Reading it ahead costs a microsecond, as much as
//! the rest of a read, so checked blocks are read ahead only while this process reads from the disk: memory
//! may hold all that the batches need although it does not hold the store, above all without the vectors
//! of texts.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::memory::bytes_read;

/// The number of batches without a read from the disk after which checked blocks count as in memory.
const QUIET_BATCHES: u32 = 8;

/// Whether blocks that were checked are read ahead again; one for the files of a store, or of
/// the stores that are sampled together.
pub(super) struct ReadAhead {
    includes_checked: AtomicBool,
    bytes_read: AtomicU64,
    quiet_batches: AtomicU32,
}

impl ReadAhead {
    pub(super) fn new() -> Self {
        Self {
            includes_checked: AtomicBool::new(true),
            bytes_read: AtomicU64::new(0),
            quiet_batches: AtomicU32::new(0),
        }
    }

    /// Whether blocks are read ahead that were checked already.
    pub(super) fn includes_checked(&self) -> bool {
        // Relaxed, here and below: whatever is read, only the speed depends on it.
        self.includes_checked.load(Ordering::Relaxed)
    }

    /// Begins a batch: finds whether this process read from the disk since the last one began.
    pub(super) fn begin_batch(&self) {
        self.begin_batch_after(bytes_read());
    }

    /// Begins a batch after this process has read so many bytes from the disk, where that is known.
    fn begin_batch_after(&self, bytes_read: Option<u64>) {
        let is_quiet =
            bytes_read.is_some_and(|bytes| self.bytes_read.swap(bytes, Ordering::Relaxed) == bytes);
        // Several batches may begin right after each other.
        let quiet_batches = match is_quiet {
            true => self.quiet_batches.load(Ordering::Relaxed).saturating_add(1),
            false => 0,
        };
        self.quiet_batches.store(quiet_batches, Ordering::Relaxed);
        self.includes_checked.store(quiet_batches < QUIET_BATCHES, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_blocks_are_read_ahead_only_while_the_process_reads_from_the_disk() {
        let read_ahead = ReadAhead::new();
        assert!(read_ahead.includes_checked());
        read_ahead.begin_batch_after(Some(4096));
        (0..QUIET_BATCHES - 1).for_each(|_| read_ahead.begin_batch_after(Some(4096)));
        assert!(read_ahead.includes_checked());
        read_ahead.begin_batch_after(Some(4096));
        assert!(!read_ahead.includes_checked());
        read_ahead.begin_batch_after(Some(8192));
        assert!(read_ahead.includes_checked());
        // Where the system does not tell, nothing is known to be in memory.
        (0..2 * QUIET_BATCHES).for_each(|_| read_ahead.begin_batch_after(None));
        assert!(read_ahead.includes_checked());
    }
}
