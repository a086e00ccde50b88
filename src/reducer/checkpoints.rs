//! The checkpoints of a fold in a folder: the last two, each complete or absent.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::durable::{Claim, Disk, Series, Storage, write_file};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::files::found_at;
use crate::fold::Statistic;
use crate::panics::panic_message;

use super::reduction::Reduction;

/// The fold can continue from one checkpoint when a disk has damaged the other.
const KEPT: usize = 2;

/// A folder of checkpoints, numbered by the chunks that they cover.
pub struct Checkpoints {
    storage: Box<dyn Storage>,
    folder: PathBuf,
    series: Series,
    /// The checkpoints that could not be read. Unlike damage, an error of the disk may pass.
    unread: Mutex<Vec<u64>>,
    _claim: Option<Claim>,
}

/// The outcome of [`Checkpoints::resume`].
#[derive(Debug, Default)]
pub struct Resumed {
    /// The number of nodes that were read.
    pub nodes: usize,
    /// The errors of the newer checkpoints that were skipped.
    pub damaged: Vec<Error>,
}

impl Checkpoints {
    /// Opens the checkpoints in `folder`, creates it if needed, and locks it for this process.
    ///
    /// # Errors
    /// `InvalidArgument` when another process has locked the folder, `Io` when the folder cannot be
    /// created.
    pub fn new(folder: &Path) -> Result<Self> {
        if found_at(folder)?.is_some_and(|found| !found.is_dir()) {
            return Err(Error::invalid(format!(
                "expected a folder for checkpoints, found a file: {}; name another place",
                folder.display()
            )));
        }
        std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, "making", e))?;
        let own = Self { _claim: Some(Claim::of(folder)?), ..Self::on(Box::new(Disk), folder) };
        own.remove_abandoned()?;
        Ok(own)
    }

    /// Opens the checkpoints in an existing folder, without a lock, on a storage of the caller's
    /// choice.
    #[must_use]
    pub fn on(storage: Box<dyn Storage>, folder: &Path) -> Self {
        let series = Series { prefix: "fold".to_owned(), suffix: ".portion".to_owned() };
        let unread = Mutex::default();
        Self { storage, folder: folder.to_owned(), series, unread, _claim: None }
    }

    /// Removes what killed writers have left in the folder.
    ///
    /// # Errors
    /// `Io` when the disk reports an error.
    pub fn remove_abandoned(&self) -> Result<()> {
        self.series.remove_abandoned(&*self.storage, &self.folder)
    }

    /// Checks that the folder has no checkpoints, for a fold that starts from the first row.
    ///
    /// # Errors
    /// `InvalidArgument` when it has checkpoints, `Io` when the folder cannot be listed.
    pub fn check_empty(&self) -> Result<()> {
        match self.series.numbers(&*self.storage, &self.folder)?.last() {
            None => Ok(()),
            Some(&newest) => Err(Error::invalid(format!(
                "{} exists: continue from it with --resume, or remove the checkpoints",
                self.path(newest).display()
            ))),
        }
    }

    /// Reads the newest undamaged checkpoint into `reduction`.
    ///
    /// # Errors
    /// `PlanMismatch` or `Version` when the checkpoint is of another job or format; `LimitExceeded` when
    /// there is no memory for it; `Io` when it cannot be opened. When every checkpoint is damaged, the
    /// error of the newest.
    pub fn resume<S: Statistic>(&self, reduction: &mut Reduction<S>) -> Result<Resumed> {
        let mut resumed = Resumed::default();
        for &number in self.series.numbers(&*self.storage, &self.folder)?.iter().rev() {
            match self.read(number, reduction) {
                Ok(nodes) => {
                    resumed.nodes = nodes;
                    return Ok(resumed);
                }
                Err(error) if error.is_unreadable() => {
                    if error.kind() == ErrorKind::Io {
                        self.unread().push(number);
                    }
                    resumed.damaged.push(error);
                }
                Err(error) => return Err(error),
            }
        }
        match resumed.damaged.first() {
            None => Ok(resumed),
            Some(newest) => Err(Error::new(
                newest.kind(),
                format!(
                    "every checkpoint is damaged; {newest}; if it is an error of the disk, which may \
                     pass, run it again; without an undamaged copy, remove the checkpoints to start from \
                     the first row"
                ),
            )),
        }
    }

    fn read<S: Statistic>(&self, number: u64, reduction: &mut Reduction<S>) -> Result<usize> {
        let path = self.path(number);
        let bytes = self.storage.read(&path).map_err(|e| Error::io(&path, "reading", e))?;
        reduction.receive(&bytes).context(|| format!("checkpoint {}", path.display()))
    }

    /// Writes a checkpoint of a fold, and removes all but the last two; also damaged ones that
    /// [`Checkpoints::resume`] has skipped. One that could not be read stays until two are newer.
    ///
    /// # Errors
    /// `Io` when the disk reports an error; the earlier checkpoints stay.
    pub fn write<S: Statistic>(&self, reduction: &Reduction<S>) -> Result<()> {
        self.store(reduction.covered_count(), &reduction.checkpoint()?)
    }

    /// Writes the checkpoint `number`, and removes older ones as [`Checkpoints::write`] does.
    fn store(&self, number: u64, bytes: &[u8]) -> Result<()> {
        write_file(&*self.storage, &self.path(number), bytes)?;
        self.series.keep_last(&*self.storage, &self.folder, (number, KEPT), &self.unread())
    }

    fn unread(&self) -> MutexGuard<'_, Vec<u64>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes all checkpoints, because they may hold wrong sums.
    ///
    /// # Errors
    /// `Io` when the disk reports an error.
    pub fn discard(&self) -> Result<()> {
        for number in self.series.numbers(&*self.storage, &self.folder)? {
            let path = self.path(number);
            self.storage.remove_file(&path).map_err(|e| Error::io(&path, "removing", e))?;
        }
        Ok(())
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(self.series.file_name(number))
    }
}

/// Writes checkpoints on a thread beside the fold, one at a time: a slow disk does not keep ranks waiting.
///
/// # Cost
/// The bytes of the checkpoint that is being written, in memory.
pub struct CheckpointWriter<'scope, 'env> {
    checkpoints: &'env Checkpoints,
    scope: &'scope Scope<'scope, 'env>,
    writing: Option<ScopedJoinHandle<'scope, Result<()>>>,
}

impl<'scope, 'env> CheckpointWriter<'scope, 'env> {
    /// Returns a writer whose threads end within `scope`.
    #[must_use]
    pub fn new(checkpoints: &'env Checkpoints, scope: &'scope Scope<'scope, 'env>) -> Self {
        Self { checkpoints, scope, writing: None }
    }

    /// Whether a checkpoint is being written. The error of one that has failed is returned here.
    ///
    /// # Errors
    /// Those of [`Checkpoints::write`].
    pub fn is_busy(&mut self) -> Result<bool> {
        match &self.writing {
            Some(writing) if !writing.is_finished() => Ok(true),
            _ => self.finish().map(|()| false),
        }
    }

    /// Begins to write a checkpoint, after the one before.
    ///
    /// # Errors
    /// Those of [`Checkpoints::write`], of the checkpoint before as well.
    pub fn begin<S: Statistic>(&mut self, reduction: &Reduction<S>) -> Result<()> {
        self.finish()?;
        let (checkpoints, number) = (self.checkpoints, reduction.covered_count());
        let bytes = reduction.checkpoint()?;
        let write = move || checkpoints.store(number, &bytes);
        match Builder::new().spawn_scoped(self.scope, write) {
            Ok(writing) => self.writing = Some(writing),
            // The system has no thread left.
            Err(_) => checkpoints.write(reduction)?,
        }
        Ok(())
    }

    /// Waits until the checkpoint is written.
    ///
    /// # Errors
    /// Those of [`Checkpoints::write`].
    pub fn finish(&mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        writing.join().unwrap_or_else(|panic| {
            let message = panic_message(&*panic);
            Err(Error::new(ErrorKind::Shutdown, format!("writing a checkpoint ended: {message}")))
        })
    }
}
