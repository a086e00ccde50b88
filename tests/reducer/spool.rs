//! A spool: what is damaged is refused, and a restarted rank goes on.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headwater::plan::Assignment;
use headwater::progress::Silent;
use headwater::reducer::{Blocks, FoldedBlocks, Spool, WorkHooks, WorkerCursor};
use headwater::{Error, ErrorKind, Result};
use tempfile::TempDir;

use crate::in_memory::InMemory;
use crate::manifest_of_goldens::{self as manifest, Golden, folder, is_asked_to_regenerate};
use crate::{Counting, bits, job, plainly};

const CHUNKS: u64 = 30;
const DESCRIPTION: &[u8] = b"{\"gram\": {\"input\": [\"/data/x.npy\"]}}";

struct Folder {
    folder: TempDir,
    source: InMemory<'static>,
}

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = InMemory::new(CHUNKS, &|_| Ok(()));
        let blocks = Blocks::new(CHUNKS, 0).unwrap();
        Spool::create(folder.path(), &source.job, &blocks, DESCRIPTION).unwrap();
        Self { folder, source }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Cuts the last byte off a block that is folded; returns the block as it was.
    fn damage(&self, number: u64) -> Vec<u8> {
        let whole = fs::read(self.path(&block(number))).unwrap();
        fs::write(self.path(&block(number)), &whole[..whole.len() - 1]).unwrap();
        whole
    }

    /// Lets a rank work until it has folded `most` chunks; returns the notices.
    fn work(&self, rank: u64, world: u64, most: u64) -> (Result<FoldedBlocks>, Vec<String>) {
        let (notices, started) = (RefCell::new(Vec::new()), Cell::new(0));
        let stop = || {
            started.set(started.get() + 1);
            started.get() > most
        };
        let notice = |error: &Error| notices.borrow_mut().push(error.to_string());
        let hooks = WorkHooks { progress: &Silent, stop: &stop, notice: &notice };
        let spool = Spool::open(self.folder.path()).unwrap();
        let of = Assignment::new(rank, world).unwrap();
        let worked = spool.work((&self.source.job, &self.source), of, &hooks);
        (worked, notices.into_inner())
    }

    /// The blocks that the cursor of a rank counts.
    fn ordinal(&self, rank: u64, world: u64) -> u64 {
        let bytes = fs::read(self.path(&format!("rank-{rank}-of-{world}.cursor"))).unwrap();
        let blocks = Blocks::new(CHUNKS, 0).unwrap();
        let begin = WorkerCursor::new(Assignment::new(rank, world).unwrap(), &blocks);
        begin.resume(&self.source.job, &blocks, &bytes).unwrap().ordinal()
    }

    fn assert_right(&self) {
        let spool = Spool::open(self.folder.path()).unwrap();
        let (whole, _) = spool.fold((&self.source.job, &self.source), &Silent).unwrap();
        let expected = plainly(&self.source.job, &self.source.data);
        assert_eq!(bits(&whole.finish().unwrap()), bits(&expected));
    }
}

#[track_caller]
fn assert_interrupted(error: &Error, words: &str) {
    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

fn block(number: u64) -> String {
    format!("block-{number:012}.portion")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn p6_every_flipped_bit_and_cut_of_a_spools_job_is_refused() {
    let of = Folder::new();
    let before = files(of.folder.path());
    for name in ["job.json", "job.plan"] {
        let path = of.path(name);
        let whole = fs::read(&path).unwrap();
        let flips = (0..whole.len() * 8).map(|at| {
            let mut flipped = whole.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            (format!("bit {at}"), flipped)
        });
        let cuts =
            (0..whole.len()).map(|length| (format!("{length} bytes"), whole[..length].to_vec()));
        let longer = [whole.as_slice(), b" "].concat();
        for (what, bytes) in flips.chain(cuts).chain([("a blank more".to_owned(), longer)]) {
            fs::write(&path, bytes).unwrap();
            let Err(error) = Spool::open(of.folder.path()) else { panic!("{name}: {what}") };
            assert!(error.is_foreign(), "{name}: {what}: {error}");
            assert!(error.to_string().contains(name), "{name}: {what}: {error}");
        }
        fs::write(&path, whole).unwrap();
        Spool::open(of.folder.path()).unwrap();
    }
    assert_eq!(files(of.folder.path()), before);
}

#[test]
fn a_description_of_another_job_is_refused_with_what_to_do() {
    let of = Folder::new();
    fs::write(of.path("job.json"), "{}").unwrap();
    let error = Spool::open(of.folder.path()).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let text = error.to_string();
    assert!(text.contains("expected the description that job.plan was written with"), "{text}");
    assert!(text.contains("write the job again with --spool, to another folder"), "{text}");
}

#[test]
fn p2_a_rank_goes_on_at_its_cursor_and_checks_earlier_blocks_last() {
    let of = Folder::new();
    let (stopped, _) = of.work(1, 3, 1);
    assert_interrupted(&stopped.unwrap_err(), "after 1 of 10 blocks");
    assert_eq!(of.ordinal(1, 3), 1);
    let (stopped, _) = of.work(1, 3, 3);
    assert_interrupted(&stopped.unwrap_err(), "after 3 of 10 blocks");
    assert_eq!(of.ordinal(1, 3), 4);
    // The second own block is damaged; the fifth is new.
    let damaged = of.path(&block(4));
    fs::write(&damaged, "damage").unwrap();
    let (stopped, notices) = of.work(1, 3, 1);
    assert_interrupted(&stopped.unwrap_err(), "after 1 of 10 blocks");
    assert!(of.path(&block(13)).exists(), "the first new block is folded at once");
    assert_eq!(notices, [""; 0]);
    let (worked, notices) = of.work(1, 3, u64::MAX);
    assert_eq!(worked.unwrap(), FoldedBlocks { blocks: 10, resumed: 4 });
    assert_eq!(notices.len(), 1);
    assert!(notices[0].contains(&block(4)) && notices[0].ends_with("; folding it again"));
    for rank in [0, 2] {
        of.work(rank, 3, u64::MAX).0.unwrap();
    }
    of.assert_right();
}

#[test]
fn a_rank_removes_the_temporaries_of_its_cursor_though_it_writes_none() {
    let of = Folder::new();
    of.work(0, 1, u64::MAX).0.unwrap();
    let (own, others) = (".rank-0-of-1.cursor.0.partial", ".rank-0-of-2.cursor.0.partial");
    for name in [own, ".rank-0-of-1.cursor.1.partial", others] {
        fs::write(of.path(name), "half of a cursor").unwrap();
    }
    of.work(0, 1, u64::MAX).0.unwrap();
    assert!(!of.path(own).exists() && !of.path(".rank-0-of-1.cursor.1.partial").exists());
    assert!(of.path(others).exists(), "of a rank that may be at work");
}

#[test]
fn p4_p6_a_lost_or_foreign_cursor_is_named_and_changes_no_bit() {
    let of = Folder::new();
    of.work(1, 3, 4).0.unwrap_err();
    let cursor = fs::read(of.path("rank-1-of-3.cursor")).unwrap();
    // The cursor of another number of ranks, a damaged one, and none.
    fs::write(of.path("rank-1-of-2.cursor"), &cursor).unwrap();
    let (worked, notices) = of.work(1, 2, u64::MAX);
    assert_eq!(worked.unwrap(), FoldedBlocks { blocks: 15, resumed: 2 });
    assert!(notices[0].contains("\"world\" was 3 and is now 2"), "{notices:?}");
    assert!(notices[0].ends_with("; beginning with the first block of this rank"), "{notices:?}");
    fs::write(of.path("rank-0-of-2.cursor"), &cursor[..40]).unwrap();
    let (worked, notices) = of.work(0, 2, u64::MAX);
    assert_eq!(worked.unwrap(), FoldedBlocks { blocks: 15, resumed: 2 });
    assert!(notices[0].contains("rank-0-of-2.cursor"), "{notices:?}");
    of.assert_right();
    fs::remove_file(of.path("rank-0-of-2.cursor")).unwrap();
    let (worked, notices) = of.work(0, 2, u64::MAX);
    assert_eq!((worked.unwrap().resumed, notices.len()), (15, 0));
    of.assert_right();
}

/// The words of the error of opening a spool whose plan is `bytes`, without the path.
fn refusal(bytes: &[u8]) -> String {
    let of = Folder::new();
    let path = of.path("job.plan");
    fs::write(&path, bytes).unwrap();
    let Err(error) = Spool::open(of.folder.path()) else { panic!("it opens") };
    error.to_string().strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
}

#[test]
fn p6_golden_spools_and_worker_cursors_have_their_bytes() {
    let of = Folder::new();
    let plan = fs::read(of.path("job.plan")).unwrap();
    let blocks = Blocks::new(CHUNKS, 0).unwrap();
    let begin = WorkerCursor::new(Assignment::new(1, 3).unwrap(), &blocks);
    let cursor = begin.after(4).encode(&of.source.job).unwrap();
    // Version 1 had no digest of the description.
    let mut first = [&plan[..28], &plan[60..plan.len() - 32]].concat();
    first[8] = 1;
    let length = first.len() as u64 - 24;
    first[16..24].copy_from_slice(&length.to_le_bytes());
    let digest = *blake3::hash(&first).as_bytes();
    first.extend(digest);
    let goldens = [
        ("spool-v2-gram.plan", "the job of a spool of 30 blocks", &plan),
        ("cursor-v1-worker.cursor", "rank 1 of 3 after four blocks of a fold", &cursor),
        ("bad/spool-version-1.plan", "the job of a spool of format version 1", &first),
    ];
    if is_asked_to_regenerate() {
        let golden = |(name, what, bytes): (&str, &str, _)| {
            let message = name.starts_with("bad/").then(|| refusal(bytes));
            Golden { name: name.to_owned(), what: what.to_owned(), bytes, message }
        };
        let all: Vec<_> =
            goldens.iter().map(|(name, what, bytes)| golden((*name, *what, bytes))).collect();
        manifest::regenerate("tests/reducer/spool.rs", &all);
    }
    for (name, _, bytes) in goldens {
        assert_eq!(fs::read(folder().join(name)).unwrap(), *bytes, "{name}");
    }
    let expected = &manifest::manifest()["bad/spool-version-1.plan"]["message"];
    assert_eq!(Some(&*refusal(&first)), expected.as_str());
}

#[test]
fn a_spool_tells_its_description_and_its_progress_and_knows_its_files() {
    let of = Folder::new();
    let spool = Spool::open(of.folder.path()).unwrap();
    assert_eq!(spool.description(), DESCRIPTION);
    let progress = Counting::default();
    let hooks = WorkHooks { progress: &progress, stop: &|| false, notice: &|_: &Error| {} };
    let job = (&of.source.job, &of.source);
    for rank in 0..2 {
        let folded = spool.work(job, Assignment::new(rank, 2).unwrap(), &hooks).unwrap();
        assert_eq!((folded.blocks, folded.resumed), (CHUNKS / 2, 0));
    }
    let (_, nodes) = spool.fold(job, &progress).unwrap();
    assert_eq!(nodes as u64, CHUNKS);
    let begun = |what: &str, count| (what.to_owned(), Some(count), count);
    let told = progress.told();
    let half = begun("folding blocks", CHUNKS / 2);
    assert_eq!(told[..3], [half.clone(), half, begun("folding portions", CHUNKS)]);
    for path in files(of.folder.path()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(Spool::is_own(name), "{name}");
    }
    for name in ["job.txt", "block-1.txt", "x.cursor", "rank-0-of-2", "gram.npy", ""] {
        assert!(!Spool::is_own(name), "{name}");
    }
}

/// Lets a process without a rank work; `stop` is asked before each block and before each chunk.
fn share(of: &Folder, stop: &dyn Fn() -> bool) -> Result<FoldedBlocks> {
    let hooks = WorkHooks { progress: &Silent, stop, notice: &|_| {} };
    let spool = Spool::open(of.folder.path()).unwrap();
    spool.share((&of.source.job, &of.source), &hooks)
}

fn leases(of: &Folder) -> usize {
    files(of.folder.path()).iter().filter(|p| p.extension().is_some_and(|e| e == "lease")).count()
}

#[test]
fn processes_without_ranks_fold_each_block_once() {
    let of = Folder::new();
    let here: u64 = std::thread::scope(|scope| {
        let each: Vec<_> = (0..4).map(|_| scope.spawn(|| share(&of, &|| false).unwrap())).collect();
        let folded = each.into_iter().map(|one| one.join().unwrap());
        folded.map(|of| of.blocks - of.resumed).sum()
    });
    assert_eq!(here, CHUNKS);
    assert_eq!(leases(&of), 0);
    of.assert_right();
}

#[test]
fn p2_without_ranks_the_block_of_a_killed_process_is_folded_by_another() {
    let of = Folder::new();
    // Killed ones leave the files of their leases.
    for number in [0, 7] {
        fs::write(of.path(&format!("block-{number:012}.lease")), "").unwrap();
    }
    // One that was killed after it had written its block.
    of.work(5, CHUNKS, CHUNKS).0.unwrap();
    fs::write(of.path("block-000000000005.lease"), "").unwrap();
    // Another one, which lives, has block 3.
    let path = of.path("block-000000000003.lease");
    let lease = fs::File::create(path).unwrap();
    lease.lock().unwrap();
    std::thread::scope(|scope| {
        let working = scope.spawn(|| share(&of, &|| false).unwrap());
        let folded = || (0..CHUNKS).filter(|&n| of.path(&block(n)).exists()).count() as u64;
        while folded() < CHUNKS - 1 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!working.is_finished());
        assert!(!of.path(&block(3)).exists());
        drop(lease);
        assert_eq!(working.join().unwrap(), FoldedBlocks { blocks: CHUNKS, resumed: 1 });
    });
    assert_eq!(leases(&of), 0);
    of.assert_right();
}

#[test]
fn p6_without_ranks_a_damaged_block_is_folded_again() {
    let of = Folder::new();
    share(&of, &|| false).unwrap();
    let whole = of.damage(5);
    assert_eq!(share(&of, &|| false).unwrap().resumed, CHUNKS - 1);
    assert!(fs::read(of.path(&block(5))).unwrap() == whole);
}

#[test]
fn a_process_without_a_rank_stops_between_blocks_and_goes_on() {
    let of = Folder::new();
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        // Twice for each block that is folded.
        asked.get() > 10
    };
    let error = share(&of, &stop).unwrap_err();
    assert_interrupted(&error, "interrupted after 5 blocks of this process, which are kept");
    assert_eq!(share(&of, &|| false).unwrap().resumed, 5);
    of.assert_right();
}

/// A third process holds the lease of the damaged block, and mends it.
#[test]
fn without_ranks_a_damaged_block_that_another_process_mends_is_left_to_it() {
    let of = Folder::new();
    share(&of, &|| false).unwrap();
    let whole = of.damage(5);
    let lease = fs::File::create(of.path("block-000000000005.lease")).unwrap();
    lease.lock().unwrap();
    let (notices, asked, start) = (Mutex::new(Vec::new()), AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            let notice = |error: &Error| notices.lock().unwrap().push(error.to_string());
            let stop = || asked.fetch_add(1, Ordering::SeqCst) == u64::MAX;
            let hooks = WorkHooks { progress: &Silent, stop: &stop, notice: &notice };
            let spool = Spool::open(of.folder.path()).unwrap();
            spool.share((&of.source.job, &of.source), &hooks).unwrap()
        });
        while notices.lock().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // So long that the other one looks again.
        std::thread::sleep(Duration::from_millis(500));
        fs::write(of.path(&block(5)), &whole).unwrap();
        drop(lease);
        assert_eq!(working.join().unwrap(), FoldedBlocks { blocks: CHUNKS, resumed: CHUNKS });
    });
    // Once for each block that is checked, then for each look, five in a second.
    let looks = asked.into_inner() - CHUNKS;
    assert!(u128::from(looks) <= 2 + start.elapsed().as_millis() / 200, "{looks}");
    let notices = notices.into_inner().unwrap();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains(&block(5)) && notices[0].ends_with("; folding it again"));
    of.assert_right();
}

#[test]
fn a_process_without_a_rank_tells_its_progress_and_looks_at_blocks_of_the_job_alone() {
    let of = Folder::new();
    of.work(0, 2, u64::MAX).0.unwrap();
    fs::write(of.path(&block(CHUNKS)), "of no job").unwrap();
    let (progress, notices) = (Counting::default(), Cell::new(0));
    let notice = |_: &Error| notices.set(notices.get() + 1);
    let hooks = WorkHooks { progress: &progress, stop: &|| false, notice: &notice };
    let spool = Spool::open(of.folder.path()).unwrap();
    let folded = spool.share((&of.source.job, &of.source), &hooks).unwrap();
    assert_eq!(folded, FoldedBlocks { blocks: CHUNKS, resumed: CHUNKS / 2 });
    assert_eq!(progress.told(), [("folding blocks".to_owned(), Some(CHUNKS), CHUNKS)]);
    assert_eq!(notices.get(), 0);
}

#[test]
fn a_process_without_a_rank_stops_amid_a_block() {
    let (of, asked) = (Folder::new(), Cell::new(0));
    let stop = || {
        asked.set(asked.get() + 1);
        // Before the sixth block, and not before its chunk.
        asked.get() > 11
    };
    assert_interrupted(
        &share(&of, &stop).unwrap_err(),
        "interrupted after 5 blocks of this process",
    );
    assert_eq!(share(&of, &|| false).unwrap().resumed, 5);
}

#[test]
fn a_process_without_a_rank_stops_between_blocks_that_it_checks() {
    let of = Folder::new();
    share(&of, &|| false).unwrap();
    fs::write(of.path(&block(5)), "damage").unwrap();
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    assert_interrupted(&share(&of, &stop).unwrap_err(), "interrupted after 0 blocks");
    assert_eq!(asked.get(), 4);
}

#[test]
fn p6_a_spool_of_another_job_is_refused() {
    let of = Folder::new();
    let spool = Spool::open(of.folder.path()).unwrap();
    let error = spool.blocks(&job(CHUNKS, 2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlanMismatch);
    assert!(error.to_string().contains("the spool is of another job"), "{error}");
    let hooks = WorkHooks { progress: &Silent, stop: &|| false, notice: &|_: &Error| {} };
    let other = InMemory { job: job(CHUNKS, 2), ..InMemory::new(CHUNKS, &|_| Ok(())) };
    let whole = Assignment::new(0, 1).unwrap();
    assert!(spool.work((&other.job, &other), whole, &hooks).is_err());
    assert!(spool.fold((&other.job, &other), &Silent).is_err());
}

#[test]
fn p6_a_fold_without_all_blocks_or_with_one_too_many_is_refused() {
    let of = Folder::new();
    of.work(0, 2, u64::MAX).0.unwrap();
    let spool = Spool::open(of.folder.path()).unwrap();
    let folded = || spool.fold((&of.source.job, &of.source), &Silent).map(drop).unwrap_err();
    assert!(folded().to_string().contains("15 of 30 blocks are missing: 1, 3, 5"), "{}", folded());
    of.work(1, 2, u64::MAX).0.unwrap();
    of.assert_right();
    fs::copy(of.path(&block(29)), of.path(&block(30))).unwrap();
    assert_eq!(folded().kind(), ErrorKind::InvalidArgument);
    assert!(folded().to_string().contains("expected a block below 30, found block 30"));
}

/// Reading them fails, which is not the same as that they are not there.
#[cfg(target_os = "linux")]
#[test]
fn p6_a_block_or_a_cursor_that_cannot_be_read_is_told() {
    let of = Folder::new();
    of.work(0, 1, 3).0.unwrap_err();
    for name in ["rank-0-of-1.cursor".to_owned(), block(1)] {
        fs::remove_file(of.path(&name)).unwrap();
        std::os::unix::fs::symlink("/proc/self/mem", of.path(&name)).unwrap();
    }
    let (worked, notices) = of.work(0, 1, u64::MAX);
    assert_eq!(worked.unwrap(), FoldedBlocks { blocks: 30, resumed: 2 });
    assert_eq!(notices.len(), 2, "{notices:?}");
    assert!(notices[0].ends_with("; beginning with the first block of this rank"), "{notices:?}");
    assert!(notices[1].contains(&block(1)) && notices[1].ends_with("; folding it again"));
    of.assert_right();
}

#[test]
fn a_spool_makes_the_folders_above_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("of/this/week");
    let blocks = Blocks::new(CHUNKS, 0).unwrap();
    Spool::create(&path, &job(CHUNKS, 1), &blocks, DESCRIPTION).unwrap();
    assert_eq!(Spool::open(&path).unwrap().description(), DESCRIPTION);
}
