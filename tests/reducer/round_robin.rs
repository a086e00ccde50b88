//! Blocks go to the ranks in turn, and a cursor tells how far each rank is in its own.

use std::collections::{BTreeMap, BTreeSet};

use headwater::ErrorKind;
use headwater::fold::Gram;
use headwater::plan::Assignment;
use headwater::reducer::wire::{Coordinator, Outbox, Report, Worker};
use headwater::reducer::{Blocks, Job, OwnRows, Policy, Portion, WorkerCursor};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::{COLUMNS, bits, job, plainly, portion, reduction, rows};

/// The rounds by which a rank may be ahead of the lowest block that waits, and those of the orders that
/// each rank has.
const ROUNDS_AHEAD: u64 = 2;
const ORDERS_PER_RANK: u64 = 2;

/// A coordinator and its workers, and the blocks that each has folded.
struct Ranks {
    job: Job,
    data: Vec<f64>,
    blocks: Blocks,
    coordinator: Coordinator<Gram>,
    workers: Vec<Worker>,
    folded: Vec<Vec<u64>>,
    now: u64,
}

impl Ranks {
    fn new(chunks: u64, level: u32, ranks: u32) -> Self {
        let job = job(chunks, 1);
        let blocks = Blocks::new(chunks, level).unwrap();
        let cuts = BTreeSet::new();
        let policy = Policy { blocks, ranks, cuts, audited_per_mille: 0, patience: 1000 };
        let coordinator = Coordinator::new(reduction(&job), &policy).unwrap();
        let worker = |_| Worker::new(&job, vec![0..chunks], 100).unwrap();
        let workers = (0..ranks).map(worker).collect();
        let folded = vec![Vec::new(); ranks as usize];
        let mut of = Self { data: rows(chunks), job, blocks, coordinator, workers, folded, now: 0 };
        for rank in 0..ranks {
            let ready = of.workers[rank as usize].begin(0);
            let outbox = of.coordinator.hear(0, rank, &ready).unwrap();
            of.deliver(outbox);
        }
        of
    }

    fn deliver(&mut self, outbox: Outbox) {
        for (rank, order) in outbox {
            self.workers[rank as usize].hear(&order.encode()).unwrap();
        }
    }

    /// Lets a rank fold one order, if it has one.
    fn step(&mut self, rank: u32) {
        self.now += 1;
        let worker = &mut self.workers[rank as usize];
        let Some(chunks) = worker.next_order() else {
            let outbox = self.coordinator.tick(self.now);
            return self.deliver(outbox);
        };
        self.folded[rank as usize].push(chunks.start / self.blocks.chunks_each());
        let cursor = worker.folded(self.now).unwrap();
        let portion = portion(&self.job, &self.data, chunks);
        let report = Report::Folded { cursor, cpu_microseconds: 0, portion: &portion }.encode();
        let outbox = self.coordinator.hear(self.now, rank, &report).unwrap();
        self.deliver(outbox);
    }

    /// The number of partials at rank 0 that cannot be merged yet.
    fn waiting_partials(&self) -> u64 {
        let checkpoint = self.coordinator.reduction().checkpoint().unwrap();
        let gram = Gram::new(COLUMNS).unwrap();
        Portion::of(&self.job, &gram).decode(&checkpoint).unwrap().1.len() as u64
    }

    fn assert_right(self) {
        let expected = bits(&plainly(&self.job, &self.data));
        assert_eq!(bits(&self.coordinator.into_reduction().finish().unwrap()), expected);
    }
}

fn own_blocks(rank: u64, ranks: u32, blocks: &Blocks) -> Vec<u64> {
    let of = Assignment::new(rank, u64::from(ranks)).unwrap();
    (0..of.owned_count(blocks.count())).map(|ordinal| of.owned(ordinal).unwrap()).collect()
}

proptest! {
    #[test]
    fn p5_without_faults_each_rank_folds_its_own_blocks_in_order(
        chunks in 1_u64..200,
        level in 0_u32..4,
        ranks in 1_u32..8,
    ) {
        let mut of = Ranks::new(chunks, level, ranks);
        while !of.coordinator.is_complete() {
            (0..ranks).for_each(|rank| of.step(rank));
        }
        for (rank, folded) in (0..).zip(&of.folded) {
            prop_assert_eq!(folded, &own_blocks(rank, ranks, &of.blocks));
        }
        let ordinals = of.coordinator.cursors().map(WorkerCursor::ordinal).collect::<Vec<_>>();
        let owned = of.folded.iter().map(|own| own.len() as u64).filter(|count| *count > 0);
        prop_assert_eq!(ordinals, owned.collect::<Vec<_>>());
        of.assert_right();
    }

    /// Ranks of any speed: one of another rank's blocks is folded only when that rank is behind, and
    /// whoever folds what, each folds its own blocks in their order.
    #[test]
    fn p1_slow_ranks_leave_blocks_to_others_and_the_bits_are_the_same(
        chunks in 1_u64..200,
        level in 0_u32..3,
        ranks in 1_u32..6,
        turns in prop::collection::vec(any::<Index>(), 1..40),
    ) {
        let mut of = Ranks::new(chunks, level, ranks);
        let mut turns = turns.iter().cycle();
        let mut steps = 0;
        while !of.coordinator.is_complete() {
            // Each rank gets a turn at times, so that no order is late.
            steps += 1;
            let turn = turns.next().unwrap().index(ranks as usize);
            let rank = if steps % 50 == 0 { steps / 50 % ranks as usize } else { turn };
            of.step(rank as u32);
            let most = (ROUNDS_AHEAD + ORDERS_PER_RANK) * u64::from(ranks) + 64;
            prop_assert!(of.waiting_partials() <= most);
        }
        for (rank, folded) in (0..).zip(&of.folded) {
            let own: Vec<u64> =
                folded.iter().copied().filter(|block| block % u64::from(ranks) == rank).collect();
            prop_assert!(own.is_sorted(), "{own:?}");
        }
        of.assert_right();
    }

    #[test]
    fn own_rows_are_those_of_every_world_th_block(
        count in 1_u64..300,
        chunk_rows in 1_u64..9,
        level in 0_u32..3,
        world in 1_u64..6,
        turn in any::<Index>(),
    ) {
        let rank = turn.index(world as usize) as u64;
        let job = job(count, chunk_rows);
        let blocks = Blocks::new(job.chunk_count(), level).unwrap();
        let of = OwnRows::new(&job, blocks, Assignment::new(rank, world).unwrap());
        let block = |row: u64| row / chunk_rows / blocks.chunks_each();
        let own: Vec<u64> = (0..count).filter(|&row| block(row) % world == rank).collect();
        prop_assert_eq!(of.count(), own.len() as u64);
        prop_assert_eq!(of.first(), own.first().copied().unwrap_or(count));
        for row in 0..=count {
            let later = own.iter().copied().filter(|&other| other >= row);
            prop_assert_eq!(of.left(row), later.clone().count() as u64);
            prop_assert_eq!(of.next_own(row), later.clone().next().unwrap_or(count));
            let here = later.zip(row..).take_while(|(other, row)| other == row).filter(|(other, _)| {
                row < count && (world == 1 || block(*other) == block(row))
            });
            prop_assert_eq!(of.left_of_run(row), here.count() as u64);
            // A cursor leads to the own block that contains the row, or to the next one.
            let resumed = of.resume(&of.cursor_at(row).encode(&job).unwrap()).unwrap();
            let begins = |other: &u64| row < count && block(*other) >= block(row);
            prop_assert_eq!(resumed, own.iter().copied().find(begins).unwrap_or(count));
        }
    }
}

/// A rank that keeps two orders holds up two blocks, not the memory of rank 0.
#[test]
fn the_blocks_of_a_rank_that_stands_still_do_not_pile_up_at_rank_0() {
    let (chunks, ranks) = (4096, 4);
    let mut of = Ranks::new(chunks, 0, ranks);
    let mut most = 0;
    for _ in 0..chunks {
        (0..3).for_each(|rank| of.step(rank));
        // No order is ever late.
        of.now = 0;
        most = most.max(of.waiting_partials());
    }
    assert_eq!(of.coordinator.reduction().covered_count(), chunks - ORDERS_PER_RANK);
    assert!(most <= (ROUNDS_AHEAD + ORDERS_PER_RANK) * u64::from(ranks) + 64, "{most} partials");
}

#[test]
fn a_rank_that_stands_still_is_named_until_it_sends_again() {
    let mut of = Ranks::new(64, 2, 3);
    let is_named = |of: &Ranks| of.coordinator.passed_over().map(|(rank, _)| rank).next();
    while !of.coordinator.is_complete() {
        assert!(of.now < 10_000, "the others wait for ever");
        (0..2).for_each(|rank| of.step(rank));
    }
    let late: BTreeMap<_, _> = of.coordinator.passed_over().collect();
    let (rank, order) = late.first_key_value().unwrap();
    assert_eq!((late.len(), *rank, order.chunks.clone()), (1, 2, 8..12));
    assert!(order.milliseconds > 1000);
    of.step(2);
    assert_eq!(is_named(&of), None);
    of.assert_right();
}

#[test]
fn a_rank_that_has_not_joined_is_named() {
    let mut of = Ranks::new(64, 2, 2);
    assert_eq!(of.coordinator.absent(4).collect::<Vec<_>>(), [2, 3]);
    of.coordinator.lose(0, 3);
    assert_eq!(of.coordinator.absent(4).collect::<Vec<_>>(), [2]);
}

#[test]
fn p6_a_report_with_the_cursor_of_another_worker_is_asked_for_again() {
    let mut of = Ranks::new(64, 2, 2);
    let chunks = of.workers[1].next_order().unwrap();
    let portion = portion(&of.job, &of.data, chunks.clone());
    let other = WorkerCursor::new(Assignment::new(0, 2).unwrap(), &of.blocks);
    let past = WorkerCursor::new(Assignment::new(1, 2).unwrap(), &of.blocks).after(9);
    for (damaged, cursor) in (1..).zip([other, past]) {
        let report = Report::Folded { cursor, cpu_microseconds: 0, portion: &portion }.encode();
        let again = of.coordinator.hear(1, 1, &report).unwrap();
        assert_eq!(again.len() as u64, ORDERS_PER_RANK);
        assert_eq!(of.coordinator.damaged_count(), damaged);
    }
    assert_eq!(of.coordinator.reduction().covered_count(), 0);
}

#[test]
fn p6_a_cursor_of_another_worker_or_job_is_refused_by_field() {
    let (of, data) = (job(1000, 10), Blocks::new(100, 2).unwrap());
    let begin = |rank, world| WorkerCursor::new(Assignment::new(rank, world).unwrap(), &data);
    let bytes = begin(1, 3).after(5).encode(&of).unwrap();
    assert_eq!(begin(1, 3).resume(&of, &data, &bytes).unwrap(), begin(1, 3).after(5));
    let larger = Blocks::new(100, 3).unwrap();
    let of_larger = WorkerCursor::new(Assignment::new(1, 3).unwrap(), &larger);
    for (refused, words) in [
        (begin(2, 3).resume(&of, &data, &bytes), "\"rank\" was 1 and is now 2"),
        (begin(1, 4).resume(&of, &data, &bytes), "\"world\" was 3 and is now 4"),
        (of_larger.resume(&of, &larger, &bytes), "\"block_chunks\" was 4 and is now 8"),
        (begin(1, 3).resume(&job(1001, 10), &data, &bytes), "\"rows\" was 1000 and is now 1001"),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PlanMismatch, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let past = begin(1, 3).after(9).encode(&of).unwrap();
    let error = begin(1, 3).resume(&of, &data, &past).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("at most the 8 blocks of rank 1, found 9"), "{error}");
    for at in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        assert!(begin(1, 3).resume(&of, &data, &flipped).is_err(), "bit {at}");
    }
}

#[test]
fn more_rows_than_a_rank_owns_are_refused_with_those_that_are_left() {
    let job = job(10, 3);
    let of = |rank, world| {
        let blocks = Blocks::new(job.chunk_count(), 0).unwrap();
        OwnRows::new(&job, blocks, Assignment::new(rank, world).unwrap())
    };
    of(0, 1).check_count(4, 6).unwrap();
    // Rank 1 of 2 has chunks 1 and 3: rows 3 to 5, and 9.
    of(1, 2).check_count(4, 3).unwrap();
    for (rank, world, count, words) in [
        (0, 1, 7, "at most 6 more of the 10 rows of the job, found 7"),
        (1, 2, 4, "at most 3 more of the 4 rows of rank 1 of 2, found 4"),
    ] {
        let error = of(rank, world).check_count(4, count).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn the_ranks_of_the_largest_world_have_a_block_each() {
    let job = job(10, 3);
    let blocks = Blocks::new(job.chunk_count(), 0).unwrap();
    for (rank, first) in [(0, 0), (3, 9), (u64::MAX - 1, 10)] {
        let own = OwnRows::new(&job, blocks, Assignment::new(rank, u64::MAX).unwrap());
        assert_eq!(own.next_own(1), if rank == 0 { 1 } else { first });
        assert_eq!(own.first(), first);
        // No block after the last is a rank's.
        assert_eq!(own.next_own(10), 10);
    }
}
