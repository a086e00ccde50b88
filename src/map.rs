//! The memory map: the one place that hands out bytes which another process could change.
#![expect(unsafe_code, reason = "maps a file, and asks for its lines ahead; see the reasons there")]

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};

/// A whole file, mapped read-only.
pub(crate) struct Map(memmap2::Mmap);

impl Map {
    /// Maps the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, "opening", e))?;
        // SAFETY: The map is read-only and the store's files are never edited: they are written
        // under another name, then renamed (`durable`). A process that truncates one in place
        // nevertheless ends its readers with a signal, as with every map; that is documented in
        // `FORMAT.md`. Any bytes are valid `u8`, and nothing is decoded before its digest holds.
        let map = unsafe { memmap2::Mmap::map(&file) };
        map.map(Self).map_err(|e| Error::io(path, "mapping", e))
    }

    /// The file's bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Asks for the cache line at `at`, so that a later read need not wait for memory.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(byte) = self.0.get(at) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: A prefetch has no effect that a program could see, whatever the address is;
            // this one lies inside the map. Every x86_64 has the instruction.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}
