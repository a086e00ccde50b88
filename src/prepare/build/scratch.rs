//! Where goes what a preparation does not keep: memory, while some is left, then files without names.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// A folder, and the memory that is left.
#[derive(Clone)]
pub(super) struct Scratch {
    folder: PathBuf,
    left: Arc<AtomicU64>,
}

/// Memory that was taken; it is given back in the end.
pub(super) struct Taken {
    bytes: u64,
    left: Arc<AtomicU64>,
}

impl Scratch {
    /// Returns a scratch with so many bytes of memory.
    pub(super) fn new(folder: PathBuf, memory: u64) -> Self {
        Self { folder, left: Arc::new(AtomicU64::new(memory)) }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes memory; none if less is left.
    pub(super) fn take(&self, bytes: usize) -> Option<Taken> {
        let bytes = bytes as u64;
        let less = |left: u64| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        Some(Taken { bytes, left: Arc::clone(&self.left) })
    }

    /// Creates a file and takes its name away: whatever ends the process, the file ends with it. Returns
    /// what was its name.
    pub(super) fn unnamed_file(&self) -> Result<(PathBuf, File)> {
        // Threads create some at a time.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("{number}.spill"));
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|e| Error::io(&path, "creating", e))?;
        fs::remove_file(&path).map_err(|e| Error::io(&path, "removing", e))?;
        Ok((path, file))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Scratch;

    #[test]
    fn memory_is_taken_while_there_is_some_and_given_back() {
        let scratch = Scratch::new("nowhere".into(), 10);
        let some = scratch.take(7);
        assert!(some.is_some());
        assert!(scratch.clone().take(4).is_none());
        assert!(scratch.take(3).is_some());
        drop(some);
        assert!(scratch.take(10).is_some());
        assert!(scratch.take(11).is_none());
    }
}
