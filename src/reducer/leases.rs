//! Work on a spool without ranks: a process folds the blocks whose leases it gets.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use super::job::{Blocks, Job};
use super::source::{Source, fold_portion};
use super::spool::{FoldedBlocks, Spool, WorkHooks};
use crate::durable::{Disk, Lease, write_file};
use crate::error::{Error, ErrorKind, Result};
use crate::files::found_at;

/// The time between two looks at the blocks of other processes.
const PAUSE: Duration = Duration::from_millis(200);
/// The looks after which it is told that other processes have not ended their blocks: a minute.
const PATIENCE: u32 = 300;

/// Why a block is to be folded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lack {
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
        let mut lacking = self.lacking((job, source), &blocks, hooks)?;
        hooks.progress.advance(blocks.count() - lacking.len() as u64)?;
        let (mut here, mut idle_looks) = (0, 0);
        loop {
            for (block, lack) in lacking.clone() {
                let folded = match (hooks.stop)() {
                    true => Err(Error::interrupted("stopped")),
                    false => self.take((job, source), &blocks, (block, lack), hooks),
                };
                let folded = folded.map_err(|error| match error.kind() {
                    ErrorKind::Interrupted => Error::interrupted(format!(
                        "interrupted after {here} blocks of this process, which are kept; run the same \
                         command again"
                    )),
                    _ => error,
                })?;
                if folded != Folded::NotYet {
                    here += u64::from(folded == Folded::Here);
                    lacking.remove(&block);
                    idle_looks = 0;
                    hooks.progress.advance(1)?;
                }
            }
            if lacking.is_empty() {
                return Ok(FoldedBlocks { blocks: blocks.count(), resumed: blocks.count() - here });
            }
            idle_looks += 1;
            if idle_looks % PATIENCE == 0 {
                (hooks.notice)(&waiting_for(&lacking));
            }
            sleep(PAUSE);
        }
    }

    /// Returns the blocks that are to be folded; reads those that are there.
    fn lacking<S: Source>(
        &self,
        of: (&Job, &S),
        blocks: &Blocks,
        hooks: &WorkHooks<'_>,
    ) -> Result<BTreeMap<u64, Lack>> {
        let mut lacking = BTreeMap::new();
        for block in 0..blocks.count() {
            if (hooks.stop)() {
                return Err(Error::interrupted("interrupted before the first block"));
            }
            let path = self.path_of(block);
            if found_at(&path)?.is_none() {
                lacking.insert(block, Lack::Missing);
            } else if !self.is_folded(&path, blocks.chunks(block), of, hooks.notice)? {
                lacking.insert(block, Lack::Damaged);
            }
        }
        Ok(lacking)
    }

    /// Folds a block unless another process does, or has by now.
    fn take<S: Source>(
        &self,
        (job, source): (&Job, &S),
        blocks: &Blocks,
        (block, lack): (u64, Lack),
        hooks: &WorkHooks<'_>,
    ) -> Result<Folded> {
        let path = self.path_of(block);
        // What others write is whole; only a file that was damaged must be read to know.
        let is_there = || Ok::<_, Error>(lack == Lack::Missing && found_at(&path)?.is_some());
        if is_there()? {
            return Ok(Folded::Elsewhere);
        }
        let Some(_lease) = Lease::of(&self.lease_path(block))? else {
            return Ok(Folded::NotYet);
        };
        let chunks = blocks.chunks(block);
        if is_there()?
            || lack == Lack::Damaged
                && self.is_folded(&path, chunks.clone(), (job, source), &|_| {})?
        {
            return Ok(Folded::Elsewhere);
        }
        write_file(&Disk, &path, &fold_portion(job, source, chunks, hooks.stop)?)?;
        Ok(Folded::Here)
    }
}

/// The notice about blocks that other processes have had for long.
fn waiting_for(blocks: &BTreeMap<u64, Lack>) -> Error {
    let some: Vec<String> = blocks.keys().take(8).map(u64::to_string).collect();
    Error::invalid(format!(
        "waiting for {} blocks that other processes fold: {}{}; when such a process ends, also by a kill, \
         this one folds its block",
        blocks.len(),
        some.join(", "),
        if blocks.len() > some.len() { " and more" } else { "" },
    ))
}
