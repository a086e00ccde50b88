//! Files that memory does not hold: what is asked for before it is read.
//!
//! The system reads megabytes around a page that is missing, which here would displace what is needed.
//! So it is told that reads are scattered, and each block is asked for when it is known that it will be
//! read, which is where the walk prefetches cache lines otherwise. An ask does not wait; many asks
//! keep the disk busy.
//!
//! A block that was checked may be in memory still, or not. Asking costs a microsecond, as much as the rest
//! of a read, so checked blocks are asked for only while this process reads from the disk: what a store
//! is read for may fit although the whole does not, above all without the vectors of texts.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::memory::bytes_read;

/// The number of looks without a read from the disk after which checked blocks count as in memory.
const QUIET: u32 = 8;

/// Whether the files of one store, opened together, are asked for again.
pub(super) struct Asking {
    asks_again: AtomicBool,
    bytes_read: AtomicU64,
    quiet: AtomicU32,
}

impl Asking {
    pub(super) fn new() -> Self {
        Self {
            asks_again: AtomicBool::new(true),
            bytes_read: AtomicU64::new(0),
            quiet: AtomicU32::new(0),
        }
    }

    /// Whether blocks are asked for that were checked already.
    pub(super) fn asks_again(&self) -> bool {
        // Relaxed, here and below: whatever is read, only the speed depends on it.
        self.asks_again.load(Ordering::Relaxed)
    }

    /// Looks whether this process read from the disk since the last look.
    pub(super) fn look(&self) {
        self.looked(bytes_read());
    }

    /// Decides by the number of bytes that this process has read from the disk, where it is known.
    fn looked(&self, bytes_read: Option<u64>) {
        let is_quiet =
            bytes_read.is_some_and(|bytes| self.bytes_read.swap(bytes, Ordering::Relaxed) == bytes);
        // Batches begin two at a time, so a look may come right after another.
        let quiet = if is_quiet { self.quiet.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.quiet.store(quiet, Ordering::Relaxed);
        self.asks_again.store(quiet < QUIET, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_blocks_are_asked_for_only_while_the_disk_is_read() {
        let asking = Asking::new();
        assert!(asking.asks_again());
        asking.looked(Some(4096));
        (0..QUIET - 1).for_each(|_| asking.looked(Some(4096)));
        assert!(asking.asks_again());
        asking.looked(Some(4096));
        assert!(!asking.asks_again());
        asking.looked(Some(8192));
        assert!(asking.asks_again());
        // Where the system does not tell, nothing is known to be in memory.
        (0..2 * QUIET).for_each(|_| asking.looked(None));
        assert!(asking.asks_again());
    }
}
