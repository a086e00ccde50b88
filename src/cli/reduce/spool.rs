//! A job in a folder that all machines see, for fleets without MPI: one command lays it down, many
//! fold blocks of it, in any order and at any time, and one folds their portions.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use std::{fs, io};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::place::{check_out, json_of};
use super::run::{Done, RunArgs, pool, tell};
use super::{
    CrossArgs, DistinctArgs, ExponentsArgs, Folded, GramArgs, HistogramArgs, MomentsArgs, TopArgs,
};
use crate::cli::output::Output;
use crate::cli::progress::Bars;
use crate::cli::{Interrupted, cpu_time};
use crate::durable::{Claim, Disk, Series, write_file};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::fold::{Node, Statistic};
use crate::plan::{Assignment, Cursor, CursorKind, Position};
use crate::progress::Progress;
use crate::reducer::{Arrived, Blocks, Job, Portion, Reduction, Source, fold_portion, is_damage};
use crate::view::words::count;

const JOB: &str = "job.json";
const CURSOR: &str = "job.cursor";
const LEVEL: &str = "block_level";

/// A block has this many chunks where nothing else is said.
const BLOCK_CHUNKS: u64 = 64;

/// Fold the blocks of one rank of a job that was laid down with --spool.
///
/// Blocks that are there already are left alone, so it can be stopped at any time and run again,
/// with another --of as well.
#[derive(Args)]
pub(super) struct WorkArgs {
    /// The folder of the job.
    #[arg(long, value_name = "FOLDER")]
    spool: PathBuf,
    /// Which of the ranks this one is, from 0 on.
    #[arg(long, value_name = "R")]
    rank: u64,
    /// How many ranks there are.
    #[arg(long, value_name = "W", value_parser = clap::value_parser!(u64).range(1..))]
    of: u64,
    /// How many threads work; one for each core that it may use where it is not said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// Fold what all ranks have put into a spool, and write the result.
#[derive(Args)]
pub(super) struct FoldArgs {
    /// The folder of the job.
    #[arg(long, value_name = "FOLDER")]
    spool: PathBuf,
}

/// What is to be folded, and where the result goes.
#[derive(Serialize, Deserialize)]
struct Plan {
    statistic: Planned,
    out: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Planned {
    Gram(GramArgs),
    Cross(CrossArgs),
    Moments(MomentsArgs),
    Histogram(HistogramArgs),
    Exponents(ExponentsArgs),
    Distinct(DistinctArgs),
    Top(TopArgs),
}

macro_rules! plans {
    ($($variant:ident of $args:ty),*) => {$(
        impl From<$args> for Planned {
            fn from(args: $args) -> Self {
                Self::$variant(args)
            }
        }
    )*};
}

plans!(
    Gram of GramArgs, Cross of CrossArgs, Moments of MomentsArgs, Histogram of HistogramArgs,
    Exponents of ExponentsArgs,     Distinct of DistinctArgs, Top of TopArgs
);

/// Does the same with each statistic.
macro_rules! with_planned {
    ($planned:expr, $wanted:ident => $work:expr) => {
        match $planned {
            Planned::Gram($wanted) => $work,
            Planned::Cross($wanted) => $work,
            Planned::Moments($wanted) => $work,
            Planned::Histogram($wanted) => $work,
            Planned::Exponents($wanted) => $work,
            Planned::Distinct($wanted) => $work,
            Planned::Top($wanted) => $work,
        }
    };
}

/// What `work` has to tell.
#[derive(Serialize)]
struct Worked {
    rank: u64,
    of: u64,
    blocks: u64,
    resumed_blocks: u64,
    threads: usize,
    seconds: f64,
    cpu_seconds: f64,
}

/// Lays a job down in a folder.
pub(super) fn plan<F: Folded>(folder: &Path, wanted: F, run: &RunArgs) -> Result<()>
where
    Planned: From<F>,
{
    let wanted = wanted.absolute()?;
    check_out(&run.out, wanted.inputs(), F::KIND)?;
    let (job, _) = wanted.open(pool(Some(1))?)?;
    let blocks = Blocks::new(job.chunk_count(), run.block_chunks.unwrap_or(BLOCK_CHUNKS).ilog2())?;
    fs::create_dir_all(folder).map_err(|e| Error::io(folder, "making", e))?;
    check_beside_spool(&run.out, folder)?;
    let _claim = Claim::of(folder)?;
    let path = folder.join(JOB);
    if path.exists() {
        return Err(Error::invalid(format!(
            "{} is there: go on with work and fold, or choose another folder",
            path.display()
        )));
    }
    let mut position = Position::new();
    position.set(LEVEL, u64::from(blocks.chunks_each().ilog2()));
    let cursor = Cursor::new(CursorKind::Reducer, job.plan().clone(), position);
    cursor.write(&Disk, &folder.join(CURSOR))?;
    let out = std::path::absolute(&run.out).map_err(|e| Error::io(&run.out, "looking for", e))?;
    let plan = serde_json::to_vec_pretty(&Plan { statistic: wanted.into(), out });
    let plan = plan.map_err(|e| Error::invalid(format!("writing JSON: {e}")))?;
    write_file(&Disk, &path, &plan)?;
    let shown = folder.display();
    Output::new().line(&format!(
        "{shown}: {} blocks; next, for each R below any W, in any order\n  headwater-reduce work \
         --spool {shown} --rank R --of W\nand then\n  headwater-reduce fold --spool {shown}",
        count(blocks.count())
    ))
}

/// Refuses a place for a result, or for the .json beside it, that is a file of the spool's own.
fn check_beside_spool(out: &Path, folder: &Path) -> Result<()> {
    let same_place = |path: &Path| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs::canonicalize(parent.unwrap_or(Path::new("."))).ok() == fs::canonicalize(folder).ok()
    };
    for path in [out, &json_of(out)] {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let is_own = [JOB, CURSOR, Claim::FILE].contains(&name)
            || blocks_on_disk().number_of(name).is_some();
        if is_own && same_place(path) {
            return Err(Error::invalid(format!(
                "--out {}: the result would be written over {}, which is the spool's own; choose \
                 another name, or another folder",
                out.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

/// The files of the blocks.
fn blocks_on_disk() -> Series {
    Series { prefix: "block".to_owned(), suffix: ".portion".to_owned() }
}

/// A folder with its job.
struct Spool {
    folder: PathBuf,
    plan: Plan,
    cursor: Cursor,
    series: Series,
}

impl Spool {
    fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(JOB);
        let text = fs::read(&path).map_err(|e| {
            Error::io(&path, "reading", e).context("lay the job down first, with --spool")
        })?;
        let plan = serde_json::from_slice(&text).map_err(|e| {
            Error::corrupt(format!("{}: {e}; lay the job down anew", path.display()))
        })?;
        let cursor = Cursor::read(&folder.join(CURSOR))
            .context(|| "what the spool says of its job; lay the job down anew")?;
        Ok(Self { folder: folder.to_owned(), plan, cursor, series: blocks_on_disk() })
    }

    /// Refuses rows that are not those of the job that was laid down; yields its blocks.
    fn blocks_of(&self, job: &Job) -> Result<Blocks> {
        (job.plan().compare(self.cursor.plan())).context(|| {
            format!("{}: another job was laid down", self.folder.join(CURSOR).display())
        })?;
        let level = self.cursor.position().get(LEVEL).and_then(|level| u32::try_from(level).ok());
        Blocks::new(job.chunk_count(), level.unwrap_or(u32::MAX))
    }

    fn path_of(&self, block: u64) -> PathBuf {
        self.folder.join(self.series.file_name(block))
    }
}

impl WorkArgs {
    pub(super) fn run(&self, interrupted: Option<&Interrupted<'_>>) -> Result<()> {
        let spool = Spool::open(&self.spool)?;
        let planned = &spool.plan.statistic;
        let worked = with_planned!(planned, wanted => self.work(wanted, &spool, interrupted))?;
        Output::new().json(&worked)
    }

    fn work<F: Folded>(
        &self,
        wanted: &F,
        spool: &Spool,
        interrupted: Option<&Interrupted<'_>>,
    ) -> Result<Worked> {
        let started = Instant::now();
        let assignment = Assignment::new(self.rank, self.of)?;
        let threads = pool(self.threads)?;
        let thread_count = threads.current_num_threads();
        let (job, source) = wanted.open(threads)?;
        let blocks = spool.blocks_of(&job)?;
        let own = assignment.owned_count(blocks.count());
        let bars = Bars::new(None);
        bars.begin("folding blocks", Some(own));
        let mut found = 0;
        for ordinal in 0..own {
            let block = assignment.owned(ordinal)?;
            let path = spool.path_of(block);
            let chunks = blocks.chunks(block);
            if is_whole(&path, chunks.clone(), &job, &source)? {
                found += 1;
            } else {
                let stop = || interrupted.is_some_and(|stopped| stopped());
                let folded = fold_portion(&job, &source, chunks, &stop);
                let portion = folded.map_err(|error| match error.kind() {
                    ErrorKind::Interrupted => Error::interrupted(format!(
                        "interrupted after {} of {} blocks, which are kept; run the same again",
                        count(ordinal),
                        count(own)
                    )),
                    _ => error,
                })?;
                write_file(&Disk, &path, &portion)?;
            }
            bars.advance(1)?;
        }
        Ok(Worked {
            rank: self.rank,
            of: self.of,
            blocks: own,
            resumed_blocks: found,
            threads: thread_count,
            seconds: started.elapsed().as_secs_f64(),
            cpu_seconds: cpu_time().as_secs_f64(),
        })
    }
}

/// Whether a block was folded before; a damaged file is told of, and folded again.
fn is_whole<S: Source>(path: &Path, chunks: Range<u64>, job: &Job, source: &S) -> Result<bool> {
    let portion = Portion::of(job, &**source.statistic());
    let looked = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => Err(Error::io(path, "reading", e)),
        Ok(bytes) => read_block(&portion, &bytes, chunks).map(drop).context(|| path.display()),
    };
    match looked {
        Err(error) if is_damage(&error) => {
            eprintln!("headwater-reduce: {error}; folding it again");
            Ok(false)
        }
        looked => looked.map(|()| true),
    }
}

/// The nodes in the file of a block, which are those of its chunks.
fn read_block<'b, S: Statistic>(
    portion: &Portion<'_, S>,
    bytes: &'b [u8],
    chunks: Range<u64>,
) -> Result<Vec<Arrived<'b, S>>> {
    let nodes = portion.read(bytes)?;
    if nodes.iter().map(|(node, _)| *node).eq(Node::within(chunks.clone())) {
        return Ok(nodes);
    }
    let found: Vec<String> = nodes.iter().map(|(node, _)| node.to_string()).collect();
    Err(Error::corrupt(format!(
        "expected the sums of chunks {} to {}, found those of {}; it is the file of another block",
        chunks.start,
        chunks.end.saturating_sub(1),
        if found.is_empty() { "none".to_owned() } else { found.join(", ") }
    )))
}

impl FoldArgs {
    pub(super) fn run(
        &self,
        arguments: &[OsString],
        interrupted: Option<&Interrupted<'_>>,
    ) -> Result<()> {
        let spool = Spool::open(&self.spool)?;
        with_planned!(&spool.plan.statistic, wanted => fold(wanted, &spool, arguments, interrupted))
    }
}

fn fold<F: Folded>(
    wanted: &F,
    spool: &Spool,
    arguments: &[OsString],
    interrupted: Option<&Interrupted<'_>>,
) -> Result<()> {
    let started = Instant::now();
    // Since the job was laid down, something else may have come to where the result goes.
    check_out(&spool.plan.out, wanted.inputs(), F::KIND)?;
    let (job, source) = wanted.open(pool(Some(1))?)?;
    let blocks = spool.blocks_of(&job)?;
    let mut reduction = Reduction::new(job.clone(), Arc::clone(source.statistic()));
    let bars = Bars::new(interrupted);
    bars.begin("folding portions", Some(blocks.count()));
    bars.advance(0)?;
    let mut nodes = 0;
    for block in spool.series.numbers(&Disk, &spool.folder)? {
        let path = spool.path_of(block);
        if block >= blocks.count() {
            return Err(Error::invalid(format!(
                "{}: the job has {} blocks, from 0 on; remove it",
                path.display(),
                count(blocks.count())
            )));
        }
        let bytes = fs::read(&path).map_err(|e| Error::io(&path, "reading", e));
        let taken = bytes.and_then(|bytes| {
            let portion = Portion::of(&job, &**source.statistic());
            reduction.insert_all(read_block(&portion, &bytes, blocks.chunks(block))?)
        });
        nodes +=
            taken.context(|| format!("{}; run work again for block {block}", path.display()))?;
        bars.advance(1)?;
    }
    check_all_there(&reduction, &blocks)?;
    let whole = reduction.finish()?;
    bars.advance(0)?;
    drop(bars);
    let written = wanted.write(&spool.plan.out, &source, &whole)?;
    let done = Done {
        digest: written.digest,
        rows: job.rows(),
        columns: written.columns,
        ranks: 1,
        threads: 1,
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: cpu_time().as_secs_f64(),
        gflops: None,
        resumed_nodes: nodes,
        more: written.more,
        result: written.result,
    };
    tell(&done, &job, arguments, &spool.plan.out)
}

fn check_all_there<S: Statistic>(reduction: &Reduction<S>, blocks: &Blocks) -> Result<()> {
    let missing: Vec<u64> = (0..blocks.count())
        .filter(|&block| {
            reduction.missing().iter().any(|gap| gap.contains(&blocks.chunks(block).start))
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let some: Vec<String> = missing.iter().take(8).map(u64::to_string).collect();
    Err(Error::invalid(format!(
        "{} of {} blocks are missing: {}{}; block B is the matter of rank B mod W of work --of W",
        count(missing.len() as u64),
        count(blocks.count()),
        some.join(", "),
        if missing.len() > some.len() { " and more" } else { "" }
    )))
}
