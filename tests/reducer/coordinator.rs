//! The state machines of the coordinator and of a worker, message by message and millisecond by
//! millisecond.

use std::collections::BTreeSet;
use std::ops::Range;

use headwater::ErrorKind;
use headwater::fold::Gram;
use headwater::plan::Assignment;
use headwater::reducer::wire::{Coordinator, JobEnd, Order, Outbox, Report, Worker};
use headwater::reducer::{Blocks, Job, Policy, WorkerCursor};

use crate::{job, portion, reduction, rows};

const PATIENCE: u64 = 1000;

/// A coordinator, and the messages that its ranks send, one by one.
struct Script {
    job: Job,
    data: Vec<f64>,
    blocks: Blocks,
    ranks: u32,
    of: Coordinator<Gram>,
}

impl Script {
    /// Of chunks in blocks of `2^level`, of which `audited` in 1,000 are folded twice, with cuts.
    fn new((chunks, level): (u64, u32), ranks: u32, audited: u64, cuts: &[u64]) -> Self {
        let (job, data) = (job(chunks, 1), rows(chunks));
        let blocks = Blocks::new(chunks, level).unwrap();
        let cuts = cuts.iter().copied().collect::<BTreeSet<_>>();
        let policy = Policy { blocks, ranks, cuts, audited_per_mille: audited, patience: PATIENCE };
        let of = Coordinator::new(reduction(&job), &policy).unwrap();
        Self { job, data, blocks, ranks, of }
    }

    /// A rank says that it is ready.
    fn ready(&mut self, now: u64, rank: u32, readable: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut worker = Worker::new(&self.job, readable.to_vec(), 100).unwrap();
        chunks_of(&self.of.hear(now, rank, &worker.begin(now)).unwrap(), rank)
    }

    fn ready_for_all(&mut self, now: u64, rank: u32) -> Vec<Range<u64>> {
        let all = 0..self.job.chunk_count();
        self.ready(now, rank, &[all])
    }

    fn report(&self, rank: u32, portion: &[u8], cpu_microseconds: u64) -> Vec<u8> {
        let assignment = Assignment::new(u64::from(rank), u64::from(self.ranks)).unwrap();
        let cursor = WorkerCursor::new(assignment, &self.blocks);
        Report::Folded { cursor, cpu_microseconds, portion }.encode()
    }

    /// A rank has folded these chunks; yields its next orders.
    fn folded(&mut self, now: u64, rank: u32, chunks: Range<u64>) -> Vec<Range<u64>> {
        let portion = portion(&self.job, &self.data, chunks);
        chunks_of(&self.of.hear(now, rank, &self.report(rank, &portion, 0)).unwrap(), rank)
    }

    /// A rank has folded these chunks of rows that are a little different.
    fn folded_wrong(&mut self, now: u64, rank: u32, chunks: Range<u64>) -> headwater::Error {
        let wrong: Vec<f64> = self.data.iter().map(|value| value + 1.0).collect();
        let portion = portion(&self.job, &wrong, chunks);
        self.of.hear(now, rank, &self.report(rank, &portion, 0)).unwrap_err()
    }

    fn tick(&mut self, now: u64, rank: u32) -> Vec<Range<u64>> {
        let outbox = self.of.tick(now);
        assert!(outbox.iter().all(|(other, _)| *other == rank), "{outbox:?}");
        chunks_of(&outbox, rank)
    }
}

/// The chunks of the orders of one rank.
fn chunks_of(outbox: &Outbox, rank: u32) -> Vec<Range<u64>> {
    let orders = outbox.iter().map(|(other, order)| {
        assert_eq!(*other, rank);
        match order {
            Order::Fold { chunks, .. } => chunks.clone(),
            Order::Next(known) => panic!("{known:?}"),
            Order::End(end) => panic!("{end:?}"),
        }
    });
    orders.collect()
}

#[test]
fn a_worker_says_again_that_it_is_ready_when_its_patience_is_over() {
    let mut worker = Worker::new(&job(8, 1), vec![0..8], 100).unwrap();
    let ready = worker.begin(1000);
    assert_eq!([1000, 1001, 1100].map(|now| worker.tick(now)), [None, None, None]);
    assert_eq!(worker.tick(1101), Some(ready.clone()));
    assert_eq!([1102, 1201].map(|now| worker.tick(now)), [None, None]);
    assert_eq!(worker.tick(1202), Some(ready.clone()));

    // It waits for nothing while it has an order, or folds one.
    let cursor = WorkerCursor::new(Assignment::new(0, 1).unwrap(), &Blocks::new(8, 1).unwrap());
    worker.hear(&Order::Fold { chunks: 0..2, cursor }.encode()).unwrap();
    assert_eq!(worker.tick(5000), None);
    assert_eq!(worker.next_order(), Some(0..2));
    assert_eq!(worker.tick(5000), None);
    assert_eq!(worker.folded(6000), Some(cursor));
    assert_eq!([6000, 6100].map(|now| worker.tick(now)), [None, None]);
    assert_eq!(worker.tick(6101), Some(ready));
}

#[test]
fn a_worker_folds_nothing_after_the_end_and_no_chunks_that_there_are_not() {
    let mut worker = Worker::new(&job(8, 1), vec![0..8], 100).unwrap();
    worker.begin(0);
    let cursor = WorkerCursor::new(Assignment::new(0, 1).unwrap(), &Blocks::new(8, 1).unwrap());
    let error = worker.hear(&Order::Fold { chunks: 8..9, cursor }.encode()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("for chunks below 8, found 8..9"), "{error}");
    worker.hear(&Order::Fold { chunks: 6..8, cursor }.encode()).unwrap();
    assert_eq!(worker.end(), None);
    worker.hear(&Order::End(JobEnd::Done).encode()).unwrap();
    assert_eq!((worker.end(), worker.next_order()), (Some(JobEnd::Done), None));
    assert_eq!(worker.tick(100_000), None);
}

#[test]
fn an_order_is_late_when_the_patience_is_over_since_it_was_last_given() {
    let mut script = Script::new((1, 0), 3, 0, &[]);
    assert!(script.of.tick(10_000).is_empty());
    assert_eq!(script.ready_for_all(10_400, 0), [0..1]);
    assert!(script.ready_for_all(11_100, 1).is_empty());
    assert!(script.tick(11_400, 1).is_empty());
    assert_eq!(script.tick(11_401, 1), [0..1]);
    // Rank 1 has it since then; another one waits for it as long as rank 1 did.
    assert!(script.ready_for_all(12_401, 2).is_empty());
    assert_eq!(script.tick(12_402, 2), [0..1]);
    let late: Vec<_> =
        script.of.passed_over().map(|(rank, late)| (rank, late.milliseconds)).collect();
    assert_eq!(late, [(0, 1001), (1, 1001)]);
    // A rank that died is no longer waited for.
    script.of.lose(12_500, 0);
    assert_eq!(script.of.passed_over().map(|(rank, _)| rank).collect::<Vec<_>>(), [1]);
}

/// The slowest order so far took 2 s, so 8 s are not too long.
#[test]
fn orders_of_a_slow_job_are_late_later() {
    let mut script = Script::new((4, 0), 2, 0, &[]);
    assert_eq!(script.ready_for_all(0, 0), [0..1, 2..3]);
    assert_eq!(script.folded(2000, 0, 0..1), Vec::<Range<u64>>::new());
    assert_eq!(script.folded(2001, 0, 2..3), [1..2]);
    assert_eq!(script.folded(2002, 0, 1..2), [3..4]);
    // Four times the 2001 milliseconds of the slowest.
    assert!(script.ready_for_all(10_006, 1).is_empty());
    assert_eq!(script.tick(10_007, 1), [3..4]);
}

/// One more rank folds it, not every rank that is idle.
#[test]
fn a_block_that_two_of_three_ranks_folded_is_confirmed() {
    let mut script = Script::new((1, 0), 3, 1000, &[]);
    assert_eq!(script.ready_for_all(0, 0), [0..1]);
    for rank in [1, 2] {
        assert!(script.ready_for_all(0, rank).is_empty());
    }
    assert!(script.folded(1, 0, 0..1).is_empty());
    assert!(!script.of.is_complete());
    assert_eq!(script.tick(2, 1), [0..1]);
    assert!(script.folded(3, 1, 0..1).is_empty());
    assert!(script.of.is_complete());
    assert!(script.of.tick(4).is_empty());
    assert_eq!(script.of.audited_count(), 1);
}

/// The last block has five chunks less than the others, so three nodes.
#[test]
fn a_portion_of_several_nodes_is_recorded_as_one_order() {
    let mut script = Script::new((15, 3), 2, 1000, &[]);
    assert_eq!(script.ready_for_all(0, 0), [0..8]);
    assert_eq!(script.ready_for_all(0, 1), [8..15]);
    assert_eq!(script.folded(1, 1, 8..15), Vec::<Range<u64>>::new());
    assert_eq!(script.folded(1, 0, 0..8), [8..15]);
    assert_eq!(script.folded(2, 0, 8..15), Vec::<Range<u64>>::new());
    assert_eq!(script.of.audited_count(), 1);
}

/// A rank is live as long as it has sent anything of late; nobody waits for another one to confirm.
#[test]
fn a_silent_rank_is_not_waited_for_to_confirm_a_block() {
    let mut script = Script::new((2, 0), 2, 1000, &[]);
    assert_eq!(script.ready_for_all(0, 0), [0..1]);
    assert_eq!(script.ready_for_all(0, 1), [1..2]);
    assert_eq!(script.folded(1, 0, 0..1), Vec::<Range<u64>>::new());
    assert_eq!(script.folded(1, 1, 1..2), [0..1]);
    assert_eq!(script.tick(1, 0), [1..2]);
    assert_eq!(script.folded(2, 0, 1..2), Vec::<Range<u64>>::new());
    // The message of rank 1 arrives again.
    assert_eq!(script.folded(5000, 1, 1..2), Vec::<Range<u64>>::new());
    for (now, is_complete) in [(5500, false), (6000, false), (6001, true)] {
        script.of.tick(now);
        assert_eq!(script.of.is_complete(), is_complete, "at {now}");
    }
}

/// Rank 1 folds the block to confirm it, and dies.
#[test]
fn a_block_to_confirm_does_not_go_to_the_rank_that_folded_it() {
    let mut script = Script::new((1, 0), 2, 1000, &[]);
    assert_eq!(script.ready_for_all(0, 0), [0..1]);
    assert!(script.folded(1, 0, 0..1).is_empty());
    assert_eq!(script.ready_for_all(2, 1), [0..1]);
    assert!(script.of.lose(3, 1).is_empty());
    assert!(script.of.tick(4).is_empty());
    assert!(script.of.is_complete());
}

/// Two ranks fold the same order, because it is late; one of them dies.
#[test]
fn an_order_that_another_rank_folds_is_not_given_again_when_one_dies() {
    let mut script = Script::new((1, 0), 3, 0, &[]);
    assert_eq!(script.ready_for_all(0, 0), [0..1]);
    assert_eq!(script.ready_for_all(2000, 1), [0..1]);
    assert!(script.of.lose(2001, 0).is_empty());
    assert!(script.ready_for_all(2002, 2).is_empty());
}

/// As after a restart of the coordinator, which hears of what its ranks folded before.
#[test]
fn a_block_that_arrives_unasked_is_not_folded_again() {
    let mut script = Script::new((2, 0), 1, 0, &[]);
    assert!(script.folded(0, 0, 0..1).is_empty());
    assert_eq!(script.ready_for_all(1, 0), [1..2]);
    assert!(script.folded(2, 0, 1..2).is_empty());
    assert!(script.of.is_complete());
}

#[test]
fn a_rank_gets_its_next_order_with_the_answer_to_a_portion() {
    let mut script = Script::new((3, 0), 1, 0, &[]);
    assert_eq!(script.ready_for_all(0, 0), [0..1, 1..2]);
    assert_eq!(script.folded(1, 0, 0..1), [2..3]);
}

#[test]
fn a_rank_folds_the_lowest_block_of_all_that_it_can_read() {
    let mut script = Script::new((16, 2), 1, 0, &[]);
    assert_eq!(script.ready(0, 0, &[8..12, 0..4]), [0..4, 8..12]);
}

#[test]
fn a_block_ends_at_each_cut_and_counts_for_the_cursor_when_it_is_whole() {
    let mut script = Script::new((8, 2), 1, 0, &[1, 6]);
    let all = 0..8;
    let mut worker = Worker::new(&script.job, vec![all], 100).unwrap();
    let mut outbox = script.of.hear(0, 0, &worker.begin(0)).unwrap();
    let mut found = Vec::new();
    while let Some((_, order)) = outbox.pop() {
        worker.hear(&order.encode()).unwrap();
        let Some(chunks) = worker.next_order() else { continue };
        let cursor = worker.folded(1).unwrap();
        let portion = portion(&script.job, &script.data, chunks.clone());
        found.push((chunks, cursor.ordinal()));
        let report = Report::Folded { cursor, cpu_microseconds: 0, portion: &portion }.encode();
        outbox.splice(0..0, script.of.hear(1, 0, &report).unwrap());
    }
    found.sort_by_key(|(chunks, _)| chunks.start);
    let chunks: Vec<_> = found.iter().map(|(chunks, _)| chunks.clone()).collect();
    assert_eq!(chunks, [0..1, 1..4, 4..6, 6..8]);
    let ordinals: Vec<_> = found.iter().map(|(_, ordinal)| *ordinal).collect();
    assert_eq!(ordinals[0], 0, "the first block is not whole");
    assert_eq!(ordinals.iter().max(), Some(&2));
}

/// The other rank's blocks do not set back its own cursor.
#[test]
fn the_cursor_of_a_rank_that_helps_another_stays() {
    let mut script = Script::new((3, 0), 2, 0, &[]);
    assert_eq!(script.ready_for_all(0, 0), [0..1, 2..3]);
    assert!(script.folded(1, 0, 0..1).is_empty());
    let portion = portion(&script.job, &script.data, 2..3);
    let outbox = script.of.hear(2, 0, &script.report(0, &portion, 0)).unwrap();
    let [(0, Order::Fold { chunks, cursor })] = &outbox[..] else { panic!("{outbox:?}") };
    assert_eq!((chunks.clone(), cursor.ordinal()), (1..2, 2));
}

#[test]
fn a_rank_that_joins_again_is_not_lost() {
    let mut script = Script::new((4, 0), 2, 0, &[]);
    script.ready_for_all(0, 0);
    script.of.lose(1, 1);
    assert_eq!(script.of.lost().collect::<Vec<_>>(), [1]);
    script.ready_for_all(2, 1);
    assert_eq!(script.of.lost().count(), 0);
}

#[test]
fn chunks_that_nobody_can_read_are_named_once_all_ranks_are_there() {
    let mut script = Script::new((64, 2), 2, 0, &[]);
    let files = |rows: Range<u64>| format!("the file of rows {rows:?}");
    script.ready(0, 0, &[0..4, 8..12]);
    script.of.check_readable(2, files).unwrap();
    script.ready(0, 1, &[4..8, 12..64]);
    script.of.check_readable(2, files).unwrap();
    // Its disk has lost a file.
    script.ready(1, 1, &[4..8, 12..20, 24..64]);
    let error = script.of.check_readable(2, files).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let said = error.to_string();
    assert!(said.contains("rows 20 to 23 (chunks 20 to 23)"), "{said}");
    assert!(said.contains("the file of rows 20..24"), "{said}");
}

#[test]
fn the_cpu_time_elsewhere_is_the_last_one_of_each_other_rank() {
    let mut script = Script::new((8, 0), 3, 0, &[]);
    assert_eq!(script.of.cpu_microseconds_elsewhere(), 0);
    for (rank, chunk, cpu) in [(0, 0, 1000), (1, 1, 20), (2, 2, 7), (1, 4, 50)] {
        let portion = portion(&script.job, &script.data, chunk..chunk + 1);
        script.of.hear(1, rank, &script.report(rank, &portion, cpu)).unwrap();
    }
    assert_eq!(script.of.cpu_microseconds_elsewhere(), 57);
}

#[test]
fn p6_a_portion_of_another_job_ends_the_job_and_noise_does_not() {
    let mut script = Script::new((8, 0), 1, 0, &[]);
    assert_eq!(script.ready_for_all(0, 0), [0..1, 1..2]);
    let noise = script.report(0, b"noise", 0);
    assert_eq!(chunks_of(&script.of.hear(1, 0, &noise).unwrap(), 0), [0..1, 1..2]);
    assert_eq!(script.of.damaged_count(), 1);
    let other = portion(&job(9, 1), &rows(9), 0..1);
    let error = script.of.hear(2, 0, &script.report(0, &other, 0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlanMismatch);
    assert!(error.to_string().starts_with("rank 0: "), "{error}");
    assert!(!script.of.is_doubtful());
}

/// Twice, so that the second one takes nothing back.
#[test]
fn two_bits_for_the_same_chunks_make_the_sums_doubtful() {
    let mut script = Script::new((8, 2), 2, 0, &[]);
    script.ready_for_all(0, 0);
    script.folded(1, 0, 0..4);
    for now in [2, 3] {
        let error = script.folded_wrong(now, 1, 0..4);
        assert!(error.to_string().contains("ranks 0 and 1 folded chunks 0 to 3"), "{error}");
        assert!(script.of.is_doubtful());
    }
}

/// They are no order, but part of one.
#[test]
fn two_bits_for_some_chunks_of_a_block_make_the_sums_doubtful() {
    let mut script = Script::new((8, 2), 2, 0, &[]);
    script.ready_for_all(0, 0);
    script.folded(1, 0, 0..1);
    for now in [2, 3] {
        let error = script.folded_wrong(now, 1, 0..1);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(script.of.is_doubtful());
    }
}

/// Whether one rank joins or several.
#[test]
fn chunks_that_nobody_can_read_are_named_for_any_number_of_ranks() {
    for ranks in 1..5 {
        let mut script = Script::new((64, 2), ranks, 0, &[]);
        for rank in 0..ranks {
            script.ready(0, rank, &[0..4, 8..64]);
        }
        let error = script.of.check_readable(ranks, |_| String::new()).unwrap_err();
        assert!(error.to_string().contains("no rank can read rows 4 to 7"), "{error}");
    }
}
