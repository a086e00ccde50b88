//! A folder through which processes share a job without MPI: one writes the job, many fold its blocks
//! in any order and at any time, and one folds the portions.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use super::cursor::WorkerCursor;
use super::job::{Blocks, Job};
use super::portion::{Arrived, Portion};
use super::reduction::Reduction;
use super::source::{Source, fold_portion};
use crate::bytes::{Digest, Envelope, u32_at};
use crate::durable::{Claim, Disk, Series, remove_temporaries, write_file};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::files::{found_at, read_file, try_read};
use crate::fold::{Node, Statistic};
use crate::plan::{Assignment, Plan};
use crate::progress::{Progress, Silent};

const DESCRIPTION: &str = "job.json";
const PLAN: &str = "job.plan";
/// Where the plan begins in the payload of `job.plan`: after the block level and a digest.
const PLAN_OFFSET: usize = 4 + 32;
/// The names of the cursors: `rank-1-of-3.cursor`.
const CURSOR_PREFIX: &str = "rank-";
const CURSOR_SUFFIX: &str = ".cursor";
/// The ends of the names of leases: `block-000000000001.lease`.
const LEASE_SUFFIX: &str = ".lease";
/// The lease of the process that begins the next pass.
const NEXT_PASS_LEASE: &str = "next-pass.lease";

const ENVELOPE: Envelope = Envelope {
    name: "spool's plan",
    magic: *b"HWSPOOL\0",
    version: 2,
    payload_max: 1 << 21,
    remedy: "write the job again with --spool, to another folder",
};

/// A folder with a job, and the portions of the blocks that are folded.
///
/// The folder also has the caller's description of the job, by which each process opens the rows.
///
/// # Example
/// Three workers, which may be three processes on three machines, and then the fold:
///
/// ```
/// use headwater::fold::Gram;
/// use headwater::plan::Assignment;
/// use headwater::progress::Silent;
/// use headwater::reducer::{Blocks, Job, OfMatrix, Spool, WorkHooks};
/// # use headwater::matrix::{Element, Matrix, MatrixFormat};
/// # let file = tempfile::NamedTempFile::new()?;
/// # std::fs::write(&file, (0..400).flat_map(|n| f64::from(n).sin().to_le_bytes()).collect::<Vec<u8>>())?;
/// # let format = MatrixFormat::Raw { element: Element::F64, columns: 4 };
/// # let matrix = Matrix::open(&[file.path().to_owned()], &format)?;
/// // `matrix` has 100 rows of 4 numbers.
/// let job = Job::of_matrix("gram", (4, Element::F64), "sines", (100, 8), &[])?;
/// let threads = rayon::ThreadPoolBuilder::new().build()?;
/// let source = OfMatrix::new(Gram::new(4)?, matrix, job.clone(), threads);
///
/// let folder = tempfile::tempdir()?;
/// let blocks = Blocks::for_ranks(job.chunk_count(), 3, 1 << 20);
/// let spool = Spool::create(folder.path(), &job, &blocks, b"sines.f64")?;
/// let hooks = WorkHooks { progress: &Silent, stop: &|| false, notice: &|error| eprintln!("{error}") };
/// for rank in 0..3 {
///     spool.work((&job, &source), Assignment::new(rank, 3)?, &hooks)?;
/// }
/// let (reduction, _) = spool.fold((&job, &source), &Silent)?;
/// assert!(reduction.is_complete());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Spool {
    folder: PathBuf,
    description: Vec<u8>,
    plan: Plan,
    block_level: u32,
    same_data: bool,
}

/// The callbacks of [`Spool::work`] and [`Spool::share`].
pub struct WorkHooks<'a> {
    /// Receives the progress of each block.
    pub progress: &'a dyn Progress,
    /// Returns whether to stop before the next block.
    pub stop: &'a dyn Fn() -> bool,
    /// Receives the error of each damaged file, and what is done without it.
    pub notice: &'a dyn Fn(&Error),
}

/// The outcome of [`Spool::work`] and [`Spool::share`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldedBlocks {
    /// The number of blocks of this rank; without ranks, of the job.
    pub blocks: u64,
    /// The number of them that this process has not folded.
    pub resumed: u64,
}

impl Spool {
    /// Writes `job` to `folder`, which is created if needed.
    ///
    /// # Errors
    /// `InvalidArgument` when the folder has a job already, or another process has locked it; `Io`.
    pub fn create(folder: &Path, job: &Job, blocks: &Blocks, description: &[u8]) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|e| Error::io(folder, "creating", e))?;
        let _claim = Claim::of(folder)?;
        let path = folder.join(DESCRIPTION);
        if Self::is_in(folder)? {
            return Err(Error::invalid(format!(
                "{} exists: the folder has a job already; run work and fold, or choose another folder",
                path.display()
            )));
        }
        let block_level = blocks.chunks_each().ilog2();
        let plan = job.plan().encode()?;
        let mut bytes = ENVELOPE.begin(0, PLAN_OFFSET + plan.len())?;
        bytes.extend(block_level.to_le_bytes());
        bytes.extend(Digest::of(description).0);
        bytes.extend(plan);
        write_file(&Disk, &folder.join(PLAN), &Envelope::seal(bytes))?;
        // Written last, because this file makes the folder a spool.
        write_file(&Disk, &path, description)?;
        Ok(Self {
            folder: folder.to_owned(),
            description: description.to_vec(),
            plan: job.plan().clone(),
            block_level,
            same_data: false,
        })
    }

    /// Opens the spool in `folder`.
    ///
    /// # Errors
    /// `Io`, `NotOurs`, `Version` or `Corrupt` when the folder has no complete job, or its description is
    /// not the one that was written.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(DESCRIPTION);
        let description = try_read(&path).map_err(|e| {
            Error::io(&path, "reading", e).context("write the job first, with --spool")
        })?;
        let plan_path = folder.join(PLAN);
        let bytes = read_file(&plan_path)?;
        let (block_level, digest, plan) = decode_plan(&bytes).context(|| plan_path.display())?;
        let found = Digest::of(&description);
        if found != digest {
            return Err(Error::corrupt(format!(
                "{}: expected the description that {PLAN} was written with, of digest {digest}, found \
                 {found}: it is damaged, or was changed later; {}",
                path.display(),
                ENVELOPE.remedy
            )));
        }
        Ok(Self { folder: folder.to_owned(), description, plan, block_level, same_data: false })
    }

    /// Accepts blocks of other versions of the files if their rows are the same, which are read again
    /// to compare them; otherwise such blocks are refused.
    #[must_use]
    pub fn same_data(self, same_data: bool) -> Self {
        Self { same_data, ..self }
    }

    /// Whether `folder` has a spool.
    ///
    /// # Errors
    /// `Io`.
    pub fn is_in(folder: &Path) -> Result<bool> {
        Ok(found_at(&folder.join(DESCRIPTION))?.is_some())
    }

    /// The folder of the spool of pass `number` of a job of several passes, if `self` is of the pass before.
    #[must_use]
    pub fn folder_of_pass(&self, number: u32) -> PathBuf {
        self.folder.join(format!("pass-{number}"))
    }

    /// The description of the job, as [`Spool::create`] received it.
    #[must_use]
    pub fn description(&self) -> &[u8] {
        &self.description
    }

    /// Whether `name` is the name of a file of a spool.
    #[must_use]
    pub fn is_own(name: &str) -> bool {
        [DESCRIPTION, PLAN, Claim::FILE, NEXT_PASS_LEASE].contains(&name)
            || series().number_of(name).is_some()
            || leases().number_of(name).is_some()
            || (name.starts_with(CURSOR_PREFIX) && name.ends_with(CURSOR_SUFFIX))
    }

    /// The blocks of the job.
    ///
    /// # Errors
    /// `PlanMismatch`, with each setting that differs, when the spool is of another job than `job`.
    pub fn blocks(&self, job: &Job) -> Result<Blocks> {
        job.plan().compare(&self.plan).context(|| {
            format!("{}: the spool is of another job", self.folder.join(PLAN).display())
        })?;
        Blocks::new(job.chunk_count(), self.block_level)
    }

    /// Folds the blocks of one rank whose files are missing or damaged.
    ///
    /// Begins at the cursor that the rank wrote with its last block, so that a restarted rank folds new
    /// blocks at once, and checks the blocks before the cursor afterwards.
    ///
    /// # Errors
    /// Those of [`Spool::blocks`] and of the source; `Io`; `Interrupted` when `stop` returns true, which
    /// keeps the blocks that are folded.
    pub fn work<S: Source>(
        &self,
        (job, source): (&Job, &S),
        assignment: Assignment,
        hooks: &WorkHooks<'_>,
    ) -> Result<FoldedBlocks> {
        let WorkHooks { progress, stop, notice } = hooks;
        let blocks = self.blocks(job)?;
        let count = assignment.owned_count(blocks.count());
        progress.begin("folding blocks", Some(count));
        let cursor_path = self.cursor_path(assignment);
        // A rank that finds its blocks folded writes no cursor, which would remove them as well.
        remove_temporaries(&Disk, &cursor_path, 0);
        let cursor = read_cursor(&cursor_path, job, &blocks, assignment).unwrap_or_else(|error| {
            notice(&error.followed_by("; beginning with the first block of this rank"));
            WorkerCursor::new(assignment, &blocks)
        });
        let (mut resumed, mut done) = (0, 0);
        for ordinal in (cursor.ordinal()..count).chain(0..cursor.ordinal()) {
            let block = assignment.owned(ordinal)?;
            let (path, chunks) = (self.path_of(block), blocks.chunks(block));
            if self.is_folded(&path, chunks.clone(), (job, source), notice)? {
                resumed += 1;
            } else {
                let portion = fold_portion(job, source, chunks, stop);
                let portion = portion.map_err(|error| match error.kind() {
                    ErrorKind::Interrupted => Error::interrupted(format!(
                        "interrupted after {done} of {count} blocks, which are kept; run the same \
                         command again"
                    )),
                    _ => error,
                })?;
                write_file(&Disk, &path, &portion)?;
                if ordinal >= cursor.ordinal() {
                    let cursor = cursor.after(ordinal + 1).encode(job)?;
                    write_file(&Disk, &cursor_path, &cursor)?;
                }
            }
            done += 1;
            progress.advance(1)?;
        }
        Ok(FoldedBlocks { blocks: count, resumed })
    }

    /// Folds the portions of all blocks; returns the fold and the number of nodes.
    ///
    /// # Errors
    /// Those of [`Spool::blocks`]; `Io`, `Corrupt` or `PlanMismatch` of a portion; `InvalidArgument` with
    /// the missing blocks.
    pub fn fold<S: Source>(
        &self,
        (job, source): (&Job, &S),
        progress: &dyn Progress,
    ) -> Result<(Reduction<S::Statistic>, usize)> {
        let blocks = self.blocks(job)?;
        let mut reduction = self.reduction(job, source);
        progress.begin("folding portions", Some(blocks.count()));
        progress.advance(0)?;
        let mut nodes = 0;
        for block in series().numbers(&Disk, &self.folder)? {
            let path = self.path_of(block);
            if block >= blocks.count() {
                return Err(Error::invalid(format!(
                    "{}: expected a block below {}, found block {block}; remove the file",
                    path.display(),
                    blocks.count()
                )));
            }
            let again = || format!("{}; run work again for block {block}", path.display());
            let bytes = read_file(&path).context(again)?;
            let portion = Portion::of(job, &**source.statistic());
            let sums = read_block(&portion, &bytes, blocks.chunks(block)).context(again)?;
            // Of another version of a file, `work` would keep it as it is.
            nodes += reduction.insert_all(sums).context(|| path.display())?;
            progress.advance(1)?;
        }
        check_complete(&reduction, &blocks, &self.folder)?;
        self.remove_abandoned_leases();
        reduction.verify_same_data(source, progress)?;
        Ok((reduction, nodes))
    }

    fn reduction<S: Source>(&self, job: &Job, source: &S) -> Reduction<S::Statistic> {
        Reduction::new(job.clone(), Arc::clone(source.statistic()))
            .of_files(source.opened_versions(), self.same_data)
    }

    /// Whether the file of a block is present and undamaged.
    pub(super) fn is_folded<S: Source>(
        &self,
        path: &Path,
        chunks: Range<u64>,
        (job, source): (&Job, &S),
        notice: &dyn Fn(&Error),
    ) -> Result<bool> {
        let portion = Portion::of(job, &**source.statistic());
        let read = match try_read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => Err(Error::io(path, "reading", e)),
            Ok(bytes) => read_block(&portion, &bytes, chunks)
                .and_then(|arrived| {
                    let mut block = self.reduction(job, source);
                    block.insert_all(arrived)?;
                    block.verify_same_data(source, &Silent).map(drop)
                })
                .context(|| path.display()),
        };
        match read {
            Err(error) if error.is_unreadable() => {
                notice(&error.followed_by("; folding it again"));
                Ok(false)
            }
            read => read.map(|()| true),
        }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn path_of(&self, block: u64) -> PathBuf {
        self.folder.join(series().file_name(block))
    }

    /// The file of the lease of a block.
    pub(super) fn lease_path(&self, block: u64) -> PathBuf {
        self.folder.join(leases().file_name(block))
    }

    /// The file of the lease of the process that begins the next pass.
    pub(super) fn next_pass_lease_path(&self) -> PathBuf {
        self.folder.join(NEXT_PASS_LEASE)
    }

    fn cursor_path(&self, assignment: Assignment) -> PathBuf {
        let (rank, world) = (assignment.rank(), assignment.world());
        self.folder.join(format!("{CURSOR_PREFIX}{rank}-of-{world}{CURSOR_SUFFIX}"))
    }
}

/// Reads the cursor that a rank wrote with its last block; without one, the rank begins.
fn read_cursor(
    path: &Path,
    job: &Job,
    blocks: &Blocks,
    assignment: Assignment,
) -> Result<WorkerCursor> {
    let beginning = WorkerCursor::new(assignment, blocks);
    match try_read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(beginning),
        Err(e) => Err(Error::io(path, "reading", e)),
        Ok(bytes) => beginning.resume(job, blocks, &bytes).context(|| path.display()),
    }
}

/// The block level, the digest of the description and the plan in the bytes of `job.plan`.
fn decode_plan(bytes: &[u8]) -> Result<(u32, Digest, Plan)> {
    let (_, payload) = ENVELOPE.open(bytes)?;
    let damaged = |what: &str| ENVELOPE.damaged(what.to_owned());
    let digest = payload.get(4..PLAN_OFFSET).and_then(|digest| digest.try_into().ok());
    let (level, digest) = u32_at(payload, 0).zip(digest).ok_or_else(|| {
        damaged("expected the block level and a digest, found the end of the payload")
    })?;
    let (plan, rest) =
        Plan::decode_first(&payload[PLAN_OFFSET..]).map_err(|what| damaged(&what))?;
    match rest {
        [] => Ok((level, Digest(digest), plan)),
        _ => Err(damaged("bytes follow the plan")),
    }
}

/// The series of block files.
pub(super) fn series() -> Series {
    Series { prefix: "block".to_owned(), suffix: ".portion".to_owned() }
}

/// The series of the leases of blocks.
pub(super) fn leases() -> Series {
    Series { suffix: LEASE_SUFFIX.to_owned(), ..series() }
}

/// Reads the nodes in the file of a block, and checks that they cover its chunks.
fn read_block<'b, S: Statistic>(
    portion: &Portion<'_, S>,
    bytes: &'b [u8],
    chunks: Range<u64>,
) -> Result<Arrived<'b, S>> {
    let arrived = portion.read(bytes)?;
    if arrived.nodes.iter().map(|(node, _)| *node).eq(Node::within(chunks.clone())) {
        return Ok(arrived);
    }
    let found: Vec<String> = arrived.nodes.iter().map(|(node, _)| node.to_string()).collect();
    Err(Error::corrupt(format!(
        "expected the sums of chunks {} to {}, found those of {}; the file is of another block",
        chunks.start,
        chunks.end.saturating_sub(1),
        if found.is_empty() { "none".to_owned() } else { found.join(", ") }
    )))
}

/// Returns a path as a shell's command takes it.
pub(crate) fn shell_quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@".contains(c);
    match text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

fn check_complete<S: Statistic>(
    reduction: &Reduction<S>,
    blocks: &Blocks,
    folder: &Path,
) -> Result<()> {
    let gaps = reduction.missing();
    // Each file has all chunks of its block, so a gap is of whole blocks.
    let of_gap =
        |gap: &Range<u64>| blocks.block_with(gap.start)..blocks.block_with(gap.end - 1) + 1;
    let missing: u64 = gaps.iter().map(of_gap).map(|blocks| blocks.end - blocks.start).sum();
    if missing == 0 {
        return Ok(());
    }
    let some: Vec<String> = gaps.iter().flat_map(of_gap).take(8).map(|b| b.to_string()).collect();
    Err(Error::invalid(format!(
        "{} of {} blocks are missing: {}{}; `headwater-reduce work --spool {}` folds them, in any number of \
         processes",
        missing,
        blocks.count(),
        some.join(", "),
        if missing > some.len() as u64 { " and more" } else { "" },
        shell_quoted(folder)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::Gram;
    use crate::fold::Rows;
    use crate::fold::gram::Chunk;
    use crate::reducer::Sourced;

    /// With one look at all gaps for each block, this would take hours.
    #[test]
    fn missing_blocks_are_counted_in_one_pass() {
        let count = 200_000;
        let job = Job::new(Plan::new(), count, 1).unwrap();
        let gram = Gram::new(1).unwrap();
        let rows = Rows::new([1.0].as_slice(), 1, 1, 1).unwrap();
        let partial = gram.leaf(&Chunk::of(rows)).unwrap();
        let leaf = Sourced { partial, rows: Digest([0; 32]) };
        let mut reduction = Reduction::new(job, Arc::new(gram));
        for chunk in (0..count).step_by(2) {
            reduction.insert(Node::leaf(chunk).unwrap(), leaf.clone()).unwrap();
        }
        let blocks = Blocks::new(count, 0).unwrap();
        let error = check_complete(&reduction, &blocks, Path::new("S")).unwrap_err().to_string();
        let words = "100000 of 200000 blocks are missing: 1, 3, 5, 7, 9, 11, 13, 15 and more";
        assert!(error.starts_with(words), "{error}");
    }

    #[test]
    fn a_path_is_quoted_where_a_shell_would_cut_it() {
        for (path, quoted) in
            [("r/spool-1", "r/spool-1"), ("my spool", "'my spool'"), ("it's", r"'it'\''s'")]
        {
            assert_eq!(shell_quoted(Path::new(path)), quoted);
        }
    }
}
