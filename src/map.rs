//! Memory maps: files, whose bytes another process could change, and memory in large pages; words that processes
//! share.
#![expect(unsafe_code, reason = "maps files and prefetches their lines; the reasons stand there")]

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::{Error, Result};
use crate::files::open_file;

/// No system has smaller pages.
const PAGE_BYTES: usize = 4096;

/// A whole file, mapped read-only.
pub(crate) struct Map(memmap2::Mmap);

impl Map {
    /// Maps the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::of(&open_file(path)?, path)
    }

    /// Maps an open file; `path` is its name.
    pub(crate) fn of(file: &File, path: &Path) -> Result<Self> {
        // SAFETY: The map is read-only and the store's files are never edited: they are written
        // under another name, then renamed (`durable`). A process that truncates one in place
        // nevertheless ends its readers with a signal, as with every map; that is documented in
        // `FORMAT.md`. Any bytes are valid `u8`, and nothing is decoded before its digest holds.
        let map = unsafe { memmap2::Mmap::map(file) };
        map.map(Self).map_err(|e| Error::io(path, "mapping", e))
    }

    /// Maps a file without a name, which is no longer written to; `path` was its name.
    #[cfg(feature = "prepare")]
    pub(crate) fn of_unnamed(file: &File, path: &Path) -> Result<Self> {
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
    pub(crate) fn populate(&self, bytes: Range<usize>) {
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
    pub(crate) fn load(&self, bytes: Range<usize>) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        match self.0.advise_range(memmap2::Advice::PopulateRead, bytes.start, bytes.len()) {
            // Linux before 5.14 does not know the request.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
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
    pub(crate) fn read_ahead(&self, bytes: Range<usize>) {
        #[cfg(unix)]
        // If the system cannot do so, each page is loaded on its first read.
        let _ = self.0.advise_range(memmap2::Advice::WillNeed, bytes.start, bytes.len());
        #[cfg(not(unix))]
        let _ = bytes;
    }

    /// Gives back the memory of bytes that are read no more; a later read has the system read them again.
    #[cfg(feature = "prepare")]
    pub(crate) fn release(&self, bytes: std::ops::Range<usize>) {
        #[cfg(unix)]
        {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: The map is read-only and of a file, so its pages have the same bytes when the system has
            // read them again. If the system cannot do so, they stay in memory.
            let _ = unsafe { self.0.unchecked_advise_range(advice, bytes.start, bytes.len()) };
        }
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

/// Words that any thread changes at any time, and any process that maps the same file: some of them, and a share
/// of their memory.
pub(crate) struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
    memory: Arc<dyn Send + Sync>,
}

impl Words {
    /// Returns `count` words of this process.
    pub(crate) fn new(count: usize, value: u64) -> Self {
        let words: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(value)).collect();
        let words: Arc<Vec<AtomicU64>> = Arc::new(words);
        let start = NonNull::new(words.as_ptr().cast_mut()).unwrap_or(NonNull::dangling());
        Self { start, count, memory: words }
    }

    /// Maps `count` words from the beginning of a file. Nobody may shorten the file while it is mapped.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file is shorter; else those of the operating system.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_file(file: &File, count: usize) -> io::Result<Self> {
        let bytes = count.saturating_mul(size_of::<AtomicU64>());
        if file.metadata()?.len() < bytes as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let map = memmap2::MmapOptions::new().len(bytes).map_raw(file)?;
        let start = NonNull::new(map.as_mut_ptr().cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, count, memory: Arc::new(map) })
    }

    /// Returns some of these words.
    pub(crate) fn part(&self, words: Range<usize>) -> Self {
        let part = &self[words];
        let memory = Arc::clone(&self.memory);
        Self { start: NonNull::from(part).cast(), count: part.len(), memory }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `start` is that of `count` words which `memory` keeps, at the same place however `Self` moves.
        // They are aligned, in a map of a file because it starts at a page, and any bytes are a valid word.
        // Other threads and processes change them only as atomic words, which have no reference that excludes
        // others. A file that is shortened nevertheless ends the process with a signal, as with every map.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

// SAFETY: It is a share of a slice of atomic words, which every thread may use, and drop last.
unsafe impl Send for Words {}
// SAFETY: A reference to it gives no more than one to the slice.
unsafe impl Sync for Words {}
