//! A coordinator and its workers, of which one is dead, wrong, or of another job.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use headwater::fold::gram::{Chunk, Triangle};
use headwater::fold::statistic::Incoming;
use headwater::fold::{Gram, Node, Statistic};
use headwater::reducer::wire::{Coordinator, Order, Outbox, Report, Worker};
use headwater::reducer::{Blocks, Job, Policy, Reduction};
use headwater::{Error, ErrorKind, Result};

use crate::{COLUMNS, bits, job, plainly, portion, reduction, rows};

pub(crate) const CHUNKS: u64 = 64;
const BLOCK_CHUNKS: u64 = 4;

pub(crate) struct Team {
    pub(crate) coordinator: Coordinator<Gram>,
    workers: BTreeMap<u32, Worker>,
    pub(crate) now: u64,
}

impl Team {
    /// Workers that have all said that they are ready.
    pub(crate) fn new(ranks: u32, audited_per_mille: u64) -> Self {
        Self::going_on(reduction(&job(CHUNKS, 1)), ranks, audited_per_mille)
    }

    /// The same, of whom some have folded something before.
    pub(crate) fn going_on(done: Reduction<Gram>, ranks: u32, audited_per_mille: u64) -> Self {
        let job = done.job().clone();
        let blocks = Blocks::new(CHUNKS, BLOCK_CHUNKS.ilog2()).unwrap();
        let cuts = BTreeSet::new();
        let policy = Policy { blocks, ranks, cuts, audited_per_mille, patience: 1000 };
        let coordinator = Coordinator::new(done, &policy).unwrap();
        let mut team = Self { coordinator, workers: BTreeMap::new(), now: 0 };
        for rank in 0..ranks {
            team.join(rank, &job).unwrap();
        }
        team
    }

    /// Workers that can each read some chunks, and have all said that they are ready.
    fn of_files(readable: &[Range<u64>]) -> Self {
        let job = job(CHUNKS, 1);
        let blocks = Blocks::new(CHUNKS, BLOCK_CHUNKS.ilog2()).unwrap();
        let (ranks, cuts) = (readable.len() as u32, BTreeSet::new());
        let policy = Policy { blocks, ranks, cuts, audited_per_mille: 0, patience: 1000 };
        let coordinator = Coordinator::new(reduction(&job), &policy).unwrap();
        let mut team = Self { coordinator, workers: BTreeMap::new(), now: 0 };
        for (rank, chunks) in (0..).zip(readable) {
            let mut worker = Worker::new(&job, vec![chunks.clone()], 100).unwrap();
            let outbox = team.coordinator.hear(0, rank, &worker.begin(0)).unwrap();
            team.workers.insert(rank, worker);
            team.deliver(outbox);
        }
        team
    }

    fn join(&mut self, rank: u32, job: &Job) -> Result<()> {
        let mut worker = Worker::new(job, vec![0..job.chunk_count()], 100)?;
        let ready = worker.begin(self.now);
        self.workers.insert(rank, worker);
        let outbox = self.coordinator.hear(self.now, rank, &ready)?;
        self.deliver(outbox);
        Ok(())
    }

    fn deliver(&mut self, outbox: Outbox) {
        for (rank, order) in outbox {
            self.workers.get_mut(&rank).unwrap().hear(&order.encode()).unwrap();
        }
    }

    /// Lets one rank fold one order, of these rows, if it has one.
    pub(crate) fn step(&mut self, rank: u32, data: &[f64]) -> Result<()> {
        self.now += 1;
        assert!(self.now < 10_000, "it goes on for ever");
        let Some(chunks) = self.workers.get_mut(&rank).unwrap().next_order() else {
            let outbox = self.coordinator.tick(self.now);
            self.deliver(outbox);
            return Ok(());
        };
        let portion = portion(self.coordinator.reduction().job(), data, chunks);
        let cursor = self.workers.get_mut(&rank).unwrap().folded(self.now).unwrap();
        let report = Report::Folded { cursor, cpu_microseconds: 0, portion: &portion }.encode();
        let outbox = self.coordinator.hear(self.now, rank, &report)?;
        self.deliver(outbox);
        Ok(())
    }
}

#[test]
fn a_reported_death_causes_no_delay() {
    let data = rows(CHUNKS);
    let mut team = Team::new(3, 0);
    let outbox = team.coordinator.lose(0, 2);
    team.deliver(outbox);
    while !team.coordinator.is_complete() {
        (0..2).for_each(|rank| team.step(rank, &data).unwrap());
    }
    assert!(team.now < 100, "the dead rank was waited for until {}", team.now);
    assert_eq!(team.coordinator.lost().collect::<Vec<_>>(), [2]);
}

#[test]
fn two_ranks_with_different_bits_are_reported_by_their_numbers() {
    let (right, mut wrong) = (rows(CHUNKS), rows(CHUNKS));
    wrong[17] += 1.0;
    let mut team = Team::new(2, 1000);
    let error: Error = loop {
        let (first, second) = (team.step(0, &right), team.step(1, &wrong));
        if let Err(error) = first.and(second) {
            break error;
        }
        assert!(!team.coordinator.is_complete(), "nobody noticed");
    };
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let text = error.to_string();
    assert!(text.contains("ranks 0 and 1") || text.contains("ranks 1 and 0"), "{text}");
    assert!(text.contains("chunks 4 to 7"), "{text}");
    assert!(team.coordinator.is_doubtful());
}

#[test]
fn equal_bits_of_two_ranks_confirm_a_block() {
    let data = rows(CHUNKS);
    let mut team = Team::new(2, 250);
    while !team.coordinator.is_complete() {
        (0..2).for_each(|rank| team.step(rank, &data).unwrap());
    }
    assert_eq!(team.coordinator.audited_count() as u64, CHUNKS / BLOCK_CHUNKS / 4);
    assert!(!team.coordinator.is_doubtful());
}

#[test]
fn a_rank_with_another_job_is_rejected_with_the_setting() {
    let mut team = Team::new(1, 0);
    let error = team.join(1, &job(CHUNKS + 1, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlanMismatch);
    assert!(error.to_string().contains("rank 1: "), "{error}");
    assert!(error.to_string().contains("\"rows\" is 64 on rank 0 and 65 on rank 1"), "{error}");
}

/// The files of one rank end amid a block, and at the end of a chunk that both can read.
#[test]
fn blocks_end_where_the_files_of_a_rank_end() {
    let (job, data) = (job(CHUNKS, 1), rows(CHUNKS));
    let blocks = Blocks::new(CHUNKS, BLOCK_CHUNKS.ilog2()).unwrap();
    let cuts = BTreeSet::from([6, 7]);
    let policy = Policy { blocks, ranks: 2, cuts, audited_per_mille: 0, patience: 1000 };
    let coordinator = Coordinator::new(reduction(&job), &policy).unwrap();
    let mut team = Team { coordinator, workers: BTreeMap::new(), now: 0 };
    for (rank, readable) in [(0, 0..7), (1, 6..CHUNKS)] {
        let mut worker = Worker::new(&job, vec![readable.clone()], 100).unwrap();
        let ready = worker.begin(0);
        team.workers.insert(rank, worker);
        let outbox = team.coordinator.hear(0, rank, &ready).unwrap();
        for (_, order) in &outbox {
            let Order::Fold { chunks, .. } = order else { panic!("an end") };
            assert!(readable.start <= chunks.start && chunks.end <= readable.end, "{chunks:?}");
        }
        team.deliver(outbox);
    }
    while !team.coordinator.is_complete() {
        (0..2).for_each(|rank| team.step(rank, &data).unwrap());
        team.coordinator.check_readable(2, |_| String::new()).unwrap();
    }
    let whole = team.coordinator.into_reduction().finish().unwrap();
    assert_eq!(bits(&whole), bits(&plainly(&job, &data)));
}

#[test]
fn chunks_that_only_a_dead_rank_could_read_are_named() {
    let mut team = Team::of_files(&[0..12, 12..CHUNKS]);
    team.coordinator.check_readable(2, |_| String::new()).unwrap();
    team.coordinator.lose(1, 1);
    let files = |rows: Range<u64>| format!("the file of row {}", rows.start);
    let error = team.coordinator.check_readable(2, files).unwrap_err().to_string();
    assert!(error.contains("no rank can read rows 12 to 15"), "{error}");
    assert!(error.contains("the file of row 12"), "{error}");
}

/// Of the second block it has the first half only.
#[test]
fn orders_go_to_ranks_that_can_read_all_their_chunks() {
    let job = job(CHUNKS, 1);
    let blocks = Blocks::new(CHUNKS, BLOCK_CHUNKS.ilog2()).unwrap();
    let cuts = BTreeSet::new();
    let policy = Policy { blocks, ranks: 1, cuts, audited_per_mille: 0, patience: 1000 };
    let mut coordinator = Coordinator::new(reduction(&job), &policy).unwrap();
    let readable = 0..BLOCK_CHUNKS + BLOCK_CHUNKS / 2;
    let ready = Worker::new(&job, vec![readable], 100).unwrap().begin(0);
    let outbox = coordinator.hear(0, 0, &ready).unwrap();
    assert!(
        matches!(&outbox[..], [(0, Order::Fold { chunks, .. })] if *chunks == (0..BLOCK_CHUNKS))
    );
}

/// Gram matrices on a machine that has no memory for a partial that arrives.
struct WithoutMemory(Gram);

/// A partial that arrived there.
struct NoMemory;

impl Incoming<Triangle> for NoMemory {
    fn has_bits_of(&self, _: &Triangle) -> bool {
        false
    }

    fn join(self, _: Vec<(Node, Triangle)>, _: &mut Vec<Triangle>) -> Result<Triangle> {
        Err(Error::limit("there is no memory"))
    }
}

impl Statistic for WithoutMemory {
    type Chunk<'a> = Chunk<'a>;
    type Partial = Triangle;
    type Incoming<'a> = NoMemory;

    fn leaf(&self, chunk: &Chunk<'_>) -> Result<Triangle> {
        self.0.leaf(chunk)
    }

    fn partial_bytes(&self) -> usize {
        self.0.partial_bytes()
    }

    fn write(&self, partial: &Triangle, bytes: &mut Vec<u8>) {
        self.0.write(partial, bytes);
    }

    fn read(&self, _: &[u8]) -> Result<NoMemory> {
        Ok(NoMemory)
    }
}

#[test]
fn out_of_memory_on_receive_fails_the_job_without_retrying() {
    let (job, data) = (job(4, 1), rows(4));
    let without_memory = Arc::new(WithoutMemory(Gram::new(COLUMNS).unwrap()));
    let blocks = Blocks::new(4, 0).unwrap();
    let cuts = BTreeSet::new();
    let policy = Policy { blocks, ranks: 1, cuts, audited_per_mille: 0, patience: 1000 };
    let mut coordinator =
        Coordinator::new(Reduction::new(job.clone(), without_memory), &policy).unwrap();
    let ready = Worker::new(&job, vec![0..4], 100).unwrap().begin(0);
    let outbox = coordinator.hear(0, 0, &ready).unwrap();
    let [(0, Order::Fold { cursor, .. }), _] = outbox[..] else { panic!("{outbox:?}") };
    let portion = portion(&job, &data, 0..1);
    let report = Report::Folded { cursor, cpu_microseconds: 0, portion: &portion }.encode();
    let error = coordinator.hear(1, 0, &report).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert!(error.to_string().contains("rank 0: there is no memory"), "{error}");
}

#[test]
fn ranks_that_neither_joined_nor_died_are_absent() {
    let mut team = Team::new(3, 0);
    let coordinator = &mut team.coordinator;
    coordinator.lose(0, 1);
    assert!(coordinator.has_heard_of(3) && !coordinator.has_heard_of(4));
    assert_eq!(coordinator.absent(5).collect::<Vec<_>>(), [3, 4]);
    let alone = Team::going_on(reduction(&job(CHUNKS, 1)), 0, 0).coordinator;
    assert!(alone.has_heard_of(0) && !alone.has_heard_of(1));
    assert_eq!(alone.absent(2).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_hundred_damaged_messages_are_asked_for_again_and_no_more() {
    let mut team = Team::new(1, 0);
    for _ in 0..100 {
        team.coordinator.hear(0, 0, b"noise").unwrap();
    }
    let error = team.coordinator.hear(0, 0, b"noise").unwrap_err();
    assert!(error.to_string().contains("100 messages arrived damaged"), "{error}");
}
