//! Memory maps: files, whose bytes another process could change, and memory in large pages.
#![expect(unsafe_code, reason = "maps files and prefetches their lines; the reasons stand there")]

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::open_file;

/// No system has smaller pages.
const PAGE_BYTES: usize = 4096;

/// A whole file, mapped read-only.
pub(crate) struct Map(memmap2::Mmap);

impl Map {
    /// Maps the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = open_file(path)?;
        // SAFETY: The map is read-only and the store's files are never edited: they are written
        // under another name, then renamed (`durable`). A process that truncates one in place
        // nevertheless ends its readers with a signal, as with every map; that is documented in
        // `FORMAT.md`. Any bytes are valid `u8`, and nothing is decoded before its digest holds.
        let map = unsafe { memmap2::Mmap::map(&file) };
        map.map(Self).map_err(|e| Error::io(path, "mapping", e))
    }

    /// Maps a file without a name, which is no longer written to; `path` was its name.
    #[cfg(feature = "prepare")]
    pub(crate) fn of_unnamed(file: &std::fs::File, path: &Path) -> Result<Self> {
        // SAFETY: No other process can open the file, and this one only reads it from now on.
        let map = unsafe { memmap2::Mmap::map(file) };
        map.map(Self).map_err(|e| Error::io(path, "mapping", e))
    }

    /// Returns the file's bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Loads bytes that will all be read into memory and into the map at once, not page by page.
    pub(crate) fn populate(&self, bytes: std::ops::Range<usize>) {
        #[cfg(target_os = "linux")]
        // If the system cannot do so, each page is loaded on its first read.
        let _ = self.0.advise_range(memmap2::Advice::PopulateRead, bytes.start, bytes.len());
        #[cfg(not(target_os = "linux"))]
        let _ = bytes;
    }

    /// Waits until bytes are in memory.
    ///
    /// # Errors
    /// When the disk fails, where the system tells; elsewhere it ends the process with a signal.
    pub(crate) fn load(&self, bytes: std::ops::Range<usize>) -> std::io::Result<()> {
        #[cfg(target_os = "linux")]
        match self.0.advise_range(memmap2::Advice::PopulateRead, bytes.start, bytes.len()) {
            // Linux before 5.14 does not know the request.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {}
            done => return done,
        }
        // One byte of a page brings in the page.
        let touched = self.0[bytes].iter().step_by(PAGE_BYTES).fold(0, |all, byte| all ^ byte);
        std::hint::black_box(touched);
        Ok(())
    }

    /// Says that bytes are read here and there: a page that is missing is then read alone, where the
    /// system otherwise reads up to megabytes around it.
    pub(crate) fn expect_scattered_reads(&self) {
        #[cfg(unix)]
        // Without it reads only take longer.
        let _ = self.0.advise(memmap2::Advice::Random);
    }

    /// Has the system read bytes that are not in memory, without waiting for them.
    pub(crate) fn read_ahead(&self, bytes: std::ops::Range<usize>) {
        #[cfg(unix)]
        // If the system cannot do so, each page is loaded on its first read.
        let _ = self.0.advise_range(memmap2::Advice::WillNeed, bytes.start, bytes.len());
        #[cfg(not(unix))]
        let _ = bytes;
    }

    /// Prefetches the cache line at `at`, so that a later read need not wait for memory.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(byte) = self.0.get(at) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: A prefetch has no visible effect for any address, and this one lies inside
            // the map. Every x86_64 has the instruction.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

/// Memory of at least this size uses large pages.
const LARGE_BYTES_MIN: usize = 1 << 19;
const LARGE_PAGE_BYTES: usize = 1 << 21;

/// Private memory that starts at a page. Large sizes use large pages if there are any, because a
/// pass over them touches more small pages than the processor's TLB holds.
pub(crate) struct Memory(memmap2::MmapMut);

impl Memory {
    /// Returns at least `count` zero bytes; `None` when the allocation fails.
    pub(crate) fn zeros(count: usize) -> Option<Self> {
        let large = count >= LARGE_BYTES_MIN;
        // Only whole large pages are aligned to large pages.
        let length = if large { count.checked_next_multiple_of(LARGE_PAGE_BYTES)? } else { count };
        let map = memmap2::MmapMut::map_anon(length).ok()?;
        #[cfg(target_os = "linux")]
        if large {
            // Without large pages, small ones are used.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Some(Self(map))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Returns the memory as a map, whose bytes no longer change.
    pub(crate) fn into_map(self) -> Result<Map> {
        let fail = |e| Error::io(Path::new("memory"), "protecting", e);
        self.0.make_read_only().map(Map).map_err(fail)
    }
}
