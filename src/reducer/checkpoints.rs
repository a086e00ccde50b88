//! The checkpoints of a fold in a folder: the last two, each whole or not there.

use std::path::{Path, PathBuf};

use crate::durable::{Claim, Disk, Series, Storage, write_file};
use crate::error::{Context, Error, Result};
use crate::fold::Statistic;

use super::reduction::Reduction;

/// Two, so that there is one to go on from when a disk has damaged the other.
const KEPT: usize = 2;

/// A folder of checkpoints, numbered by how many chunks they cover.
pub struct Checkpoints {
    storage: Box<dyn Storage>,
    folder: PathBuf,
    series: Series,
    _claim: Option<Claim>,
}

/// What a fold went on from.
#[derive(Debug, Default)]
pub struct Resumed {
    /// How many nodes were taken over.
    pub nodes: usize,
    /// What is wrong with newer checkpoints, which were passed over.
    pub damaged: Vec<Error>,
}

impl Checkpoints {
    /// The checkpoints in `folder`, which is made if it is not there, and is nobody else's meanwhile.
    ///
    /// # Errors
    /// `InvalidArgument` when another process has it, `Io` when it cannot be made.
    pub fn new(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, "making", e))?;
        Ok(Self { _claim: Some(Claim::of(folder)?), ..Self::on(Box::new(Disk), folder) })
    }

    /// The checkpoints in a folder that is there, on a disk of the caller's choice.
    #[must_use]
    pub fn on(storage: Box<dyn Storage>, folder: &Path) -> Self {
        let series = Series { prefix: "fold".to_owned(), suffix: ".portion".to_owned() };
        Self { storage, folder: folder.to_owned(), series, _claim: None }
    }

    /// Refuses a folder that has checkpoints, for a fold that starts from the first row.
    ///
    /// # Errors
    /// `InvalidArgument` when there are some, `Io` when the folder cannot be listed.
    pub fn check_empty(&self) -> Result<()> {
        match self.series.numbers(&*self.storage, &self.folder)?.last() {
            None => Ok(()),
            Some(&newest) => Err(Error::invalid(format!(
                "{} exists: continue from it with --resume, or remove the checkpoints",
                self.path(newest).display()
            ))),
        }
    }

    /// Takes over the newest checkpoint that is whole and can be read.
    ///
    /// # Errors
    /// `PlanMismatch` or `Version` when it is of another job or format, `LimitExceeded` when there is no
    /// memory for it, `Io` when it cannot be opened; when there are checkpoints and none is whole, what
    /// the newest has.
    pub fn resume<S: Statistic>(&self, reduction: &mut Reduction<S>) -> Result<Resumed> {
        let mut resumed = Resumed::default();
        for &number in self.series.numbers(&*self.storage, &self.folder)?.iter().rev() {
            match self.take_over(number, reduction) {
                Ok(nodes) => {
                    resumed.nodes = nodes;
                    return Ok(resumed);
                }
                Err(error) if error.is_unreadable() => resumed.damaged.push(error),
                Err(error) => return Err(error),
            }
        }
        match resumed.damaged.first() {
            None => Ok(resumed),
            Some(newest) => Err(Error::new(
                newest.kind(),
                format!(
                    "every checkpoint is damaged; {newest}; remove them to start from the \
                         first row"
                ),
            )),
        }
    }

    fn take_over<S: Statistic>(&self, number: u64, reduction: &mut Reduction<S>) -> Result<usize> {
        let path = self.path(number);
        let bytes = self.storage.read(&path).map_err(|e| Error::io(&path, "reading", e))?;
        reduction.receive(&bytes).context(|| format!("checkpoint {}", path.display()))
    }

    /// Writes what a fold has, and removes what is older than the last two.
    ///
    /// # Errors
    /// `Io` when the disk refuses; the checkpoints before stay.
    pub fn write<S: Statistic>(&self, reduction: &Reduction<S>) -> Result<()> {
        let path = self.path(reduction.covered_count());
        write_file(&*self.storage, &path, &reduction.checkpoint()?)?;
        self.series.keep_last(&*self.storage, &self.folder, KEPT)
    }

    /// Removes all checkpoints: they may hold wrong sums.
    ///
    /// # Errors
    /// `Io` when the disk refuses.
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
