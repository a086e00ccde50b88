//! A cursor beside each checkpoint of Burn's Learner.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use burn::lr_scheduler::LrSchedulerRecord;
use burn::store::RecordError;
use burn::tensor::Bytes;
use burn::train::checkpoint::{Checkpoint, Checkpointer, CheckpointerError};
use headwater::durable::Disk;
use headwater::plan::Cursor;
use headwater::{Error, ErrorKind};

use crate::Loader;

/// The ends of epochs that are kept. Burn saves a checkpoint on a thread of its own, at most one epoch late.
const ENDS_KEPT: usize = 4;

/// A cursor as a checkpoint of Burn.
pub struct CursorRecord(pub Cursor);

impl Checkpoint for CursorRecord {
    fn save(self, path: PathBuf) -> Result<(), CheckpointerError> {
        self.0.write(&Disk, &path).map_err(refusal)
    }

    fn load(path: PathBuf) -> Result<Self, CheckpointerError> {
        Cursor::read(&path).map(Self).map_err(refusal)
    }

    fn checkpoint_from_bytes(bytes: Bytes) -> Result<Self, RecordError> {
        Cursor::decode(&bytes).map(Self).map_err(|error| RecordError::Io(error.to_string()))
    }

    fn checkpoint_into_bytes(self) -> Result<Bytes, RecordError> {
        let bytes = self.0.encode().map_err(|error| RecordError::Io(error.to_string()))?;
        Ok(Bytes::from_bytes_vec(bytes))
    }
}

/// A checkpointer of the learning rate that saves, restores and deletes a loader's cursor, too.
///
/// With it, a Learner that begins at the checkpoint of an epoch goes on with the batches that follow this epoch.
/// The cursor of epoch 3 is the file `cursor-3.cursor`.
///
/// It works with `ExecutionStrategy::SingleDevice` and with `MultiDevice`. There each device has a slice of the
/// loader, which moves by itself; all slices end an epoch at one cursor, which is saved, and a Learner that resumes
/// cuts new slices there. The loader that was given stays behind its slices: its own cursor is an error. The bits of
/// the *model* under more than two devices change from run to run, because Burn adds gradients as they come.
///
/// # Errors
/// A checkpoint that cannot be restored ends the process: Burn unwraps the error of this checkpointer as of its
/// own.
pub struct Beside<C> {
    inner: C,
    folder: PathBuf,
    loader: Loader,
}

impl<C> Beside<C> {
    /// Returns a checkpointer that keeps the cursors of `loader` in `folder`, beside what `inner` keeps. Epochs
    /// count from here on: the next one of the loader is the first.
    #[must_use]
    pub fn new(inner: C, folder: impl Into<PathBuf>, loader: &Loader) -> Self {
        loader.ends().begin_after(0, None);
        Self { inner, folder: folder.into(), loader: loader.clone() }
    }

    fn path(&self, epoch: usize) -> PathBuf {
        self.folder.join(format!("cursor-{epoch}.cursor"))
    }
}

impl<C: Checkpointer<LrSchedulerRecord>> Checkpointer<LrSchedulerRecord> for Beside<C> {
    fn save(&self, epoch: usize, record: LrSchedulerRecord) -> Result<(), CheckpointerError> {
        fs::create_dir_all(&self.folder).map_err(CheckpointerError::IOError)?;
        let end = self.loader.ends().of(epoch as u64).map_err(refusal)?;
        CursorRecord(end).save(self.path(epoch))?;
        self.inner.save(epoch, record)
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        match fs::remove_file(self.path(epoch)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(CheckpointerError::IOError(error))
            }
            _ => self.inner.delete(epoch),
        }
    }

    fn restore(&self, epoch: usize) -> Result<LrSchedulerRecord, CheckpointerError> {
        let CursorRecord(cursor) = CursorRecord::load(self.path(epoch))?;
        self.loader.resume(&cursor).map_err(refusal)?;
        self.loader.ends().begin_after(epoch as u64, Some(cursor));
        self.inner.restore(epoch)
    }
}

fn refusal(error: Error) -> CheckpointerError {
    CheckpointerError::Unknown(error.to_string())
}

/// The cursors at the ends of the last epochs: when Burn saves, the next epoch has begun already.
#[derive(Default)]
pub(crate) struct Ends(Mutex<VecDeque<(u64, Option<Cursor>)>>);

impl Ends {
    /// Notes the end of the next epoch. Epochs count from 1.
    pub(crate) fn note(&self, cursor: Cursor) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = ends.back().map_or(0, |&(epoch, _)| epoch);
        ends.push_back((last + 1, Some(cursor)));
        let surplus = ends.len().saturating_sub(ENDS_KEPT);
        ends.drain(..surplus);
    }

    /// Counts from here on: the next epoch comes after `epoch`, whose end is known or is none of a checkpoint.
    fn begin_after(&self, epoch: u64, end: Option<Cursor>) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *ends = VecDeque::from([(epoch, end)]);
    }

    /// Returns the cursor at the end of an epoch.
    fn of(&self, epoch: u64) -> headwater::Result<Cursor> {
        let ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = ends.iter().find(|(of, _)| *of == epoch);
        found.and_then(|(_, cursor)| cursor.clone()).ok_or_else(|| {
            let known: Vec<_> = ends.iter().map(|(epoch, _)| epoch.to_string()).collect();
            Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "expected the loader at the end of epoch {epoch}, found the ends of epochs [{}]; give the \
                     training the loader that this checkpointer was made with",
                    known.join(", ")
                ),
            )
        })
    }
}
