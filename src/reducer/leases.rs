//! Work on a spool without ranks: a process folds the blocks whose leases it gets, and begins the next pass if
//! it gets the lease of that.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use super::job::{Blocks, Job};
use super::source::{Source, fold_portion};
use super::spool::{FoldedBlocks, Spool, WorkHooks, leases, series};
use crate::durable::{Disk, Lease, write_file};
use crate::error::{Error, ErrorKind, Result};
use crate::files::found_at;

/// The time between two looks at the blocks of other processes.
const PAUSE: Duration = Duration::from_millis(200);
/// The looks after which it is told that other processes have not ended their blocks: a minute.
const PATIENCE: u32 = 300;

/// What is wrong with the file of a block that is to be folded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Missing,
    Damaged,
}

/// Who has folded a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folded {
    Here,
    Elsewhere,
    /// Another process has the lease, and has not ended.
    NotYet,
}

impl Spool {
    /// Folds the blocks that are missing or damaged and that no other process folds; then waits for the
    /// others, and folds the blocks of those that end without them.
    ///
    /// Any number of processes may call this for one spool, and begin and end at any time. A process takes a
    /// block by a lease, which ends with it.
    ///
    /// # Errors
    /// As [`Spool::work`].
    pub fn share<S: Source>(
        &self,
        (job, source): (&Job, &S),
        hooks: &WorkHooks<'_>,
    ) -> Result<FoldedBlocks> {
        let blocks = self.blocks(job)?;
        hooks.progress.begin("folding blocks", Some(blocks.count()));
        let present: BTreeSet<u64> = series().numbers(&Disk, self.folder())?.into_iter().collect();
        let missing = (0..blocks.count()).filter(|block| !present.contains(block)).collect();
        let mut here = 0;
        self.fold_all((job, source), &blocks, (missing, Fault::Missing), &mut here, hooks)?;
        // Files that were there are checked last, so that missing blocks are folded at once.
        let mut damaged = BTreeSet::new();
        for block in present.into_iter().filter(|&block| block < blocks.count()) {
            if (hooks.stop)() {
                return Err(interrupted(here));
            }
            let path = self.path_of(block);
            if self.is_folded(&path, blocks.chunks(block), (job, source), hooks.notice)? {
                hooks.progress.advance(1)?;
            } else {
                damaged.insert(block);
            }
        }
        self.fold_all((job, source), &blocks, (damaged, Fault::Damaged), &mut here, hooks)?;
        self.remove_abandoned_leases();
        Ok(FoldedBlocks { blocks: blocks.count(), resumed: blocks.count() - here })
    }

    /// Folds blocks until none of them is left, and counts those that were folded here.
    fn fold_all<S: Source>(
        &self,
        job_and_source: (&Job, &S),
        blocks: &Blocks,
        (mut remaining, fault): (BTreeSet<u64>, Fault),
        here: &mut u64,
        hooks: &WorkHooks<'_>,
    ) -> Result<()> {
        let mut idle_looks = 0;
        while !remaining.is_empty() {
            for block in remaining.clone() {
                let folded = match (hooks.stop)() {
                    true => Err(interrupted(*here)),
                    false => self.fold_one(job_and_source, blocks, (block, fault), hooks),
                };
                let folded = folded.map_err(|error| match error.kind() {
                    ErrorKind::Interrupted => interrupted(*here),
                    _ => error,
                })?;
                if folded != Folded::NotYet {
                    *here += u64::from(folded == Folded::Here);
                    remaining.remove(&block);
                    idle_looks = 0;
                    hooks.progress.advance(1)?;
                }
            }
            if !remaining.is_empty() {
                idle_looks += 1;
                if idle_looks % PATIENCE == 0 {
                    (hooks.notice)(&waiting_for(&remaining));
                }
                sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Begins the next pass in `folder`: calls `begin`, which writes its spool there, or waits until another
    /// process has done so.
    ///
    /// # Errors
    /// `Io`, `Interrupted`, and those of `begin`.
    pub fn begin_pass(
        &self,
        folder: &Path,
        hooks: &WorkHooks<'_>,
        begin: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut looks = 0;
        while !Self::is_in(folder)? {
            if (hooks.stop)() {
                return Err(Error::interrupted("interrupted; run the same command again"));
            }
            if let Some(_lease) = Lease::of(&self.next_pass_lease_path())? {
                // Another process may have begun it, and ended, since the look.
                return if Self::is_in(folder)? { Ok(()) } else { begin() };
            }
            looks += 1;
            if looks % PATIENCE == 0 {
                (hooks.notice)(&Error::invalid(format!(
                    "waiting for another process, which adds up the blocks of this pass before the next begins \
                     and has locked {}; kill it if it makes no progress",
                    self.next_pass_lease_path().display()
                )));
            }
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Removes the leases of processes that were killed after their work was written. A disk that refuses
    /// keeps them.
    pub(super) fn remove_abandoned_leases(&self) {
        let blocks = leases().numbers(&Disk, self.folder()).unwrap_or_default();
        let next_pass = self.next_pass_lease_path();
        let next_pass =
            found_at(&next_pass).is_ok_and(|found| found.is_some()).then_some(next_pass);
        let paths = blocks.into_iter().map(|block| self.lease_path(block)).chain(next_pass);
        paths.for_each(|path| drop(Lease::of(&path)));
    }

    /// Folds a block unless another process does, or has by now.
    fn fold_one<S: Source>(
        &self,
        (job, source): (&Job, &S),
        blocks: &Blocks,
        (block, fault): (u64, Fault),
        hooks: &WorkHooks<'_>,
    ) -> Result<Folded> {
        let path = self.path_of(block);
        // What others write is whole; only a file that was damaged must be read to know.
        let is_present = || Ok::<_, Error>(fault == Fault::Missing && found_at(&path)?.is_some());
        if is_present()? {
            return Ok(Folded::Elsewhere);
        }
        let Some(_lease) = Lease::of(&self.lease_path(block))? else {
            return Ok(Folded::NotYet);
        };
        let chunks = blocks.chunks(block);
        if is_present()?
            || fault == Fault::Damaged
                && self.is_folded(&path, chunks.clone(), (job, source), &|_| {})?
        {
            return Ok(Folded::Elsewhere);
        }
        write_file(&Disk, &path, &fold_portion(job, source, chunks, hooks.stop)?)?;
        Ok(Folded::Here)
    }
}

fn interrupted(here: u64) -> Error {
    Error::interrupted(format!(
        "interrupted after {here} blocks of this process, which are kept; run the same command again"
    ))
}

/// The notice about blocks that other processes have had for long.
fn waiting_for(blocks: &BTreeSet<u64>) -> Error {
    let some: Vec<String> = blocks.iter().take(8).map(u64::to_string).collect();
    Error::invalid(format!(
        "waiting for blocks that other processes fold ({}{}); this process folds a block when the other \
         process ends; kill a process that makes no progress",
        some.join(", "),
        if blocks.len() > some.len() { " and more" } else { "" },
    ))
}
