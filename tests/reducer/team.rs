//! A coordinator and its workers, of which one is dead, wrong, or of another job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater::fold::Gram;
use headwater::reducer::{
    Blocks, Coordinator, Job, Letters, Policy, Portion, Reduction, Report, Worker,
};
use headwater::{Error, ErrorKind, Result};

use crate::{COLUMNS, bits, job, plainly, portion, reduction, rows};

const CHUNKS: u64 = 64;
const BLOCK_CHUNKS: u64 = 4;

struct Team {
    coordinator: Coordinator<Gram>,
    workers: BTreeMap<u32, Worker>,
    now: u64,
}

impl Team {
    /// Workers that have all said that they are ready.
    fn new(ranks: u32, audited_per_mille: u64) -> Self {
        let job = job(CHUNKS, 1);
        let blocks = Blocks::new(CHUNKS, BLOCK_CHUNKS.ilog2()).unwrap();
        let policy = Policy { blocks, cuts: BTreeSet::new(), audited_per_mille, patience: 1000 };
        let gram = Arc::new(Gram::new(COLUMNS).unwrap());
        let coordinator = Coordinator::new(Reduction::new(job.clone(), gram), &policy).unwrap();
        let mut team = Self { coordinator, workers: BTreeMap::new(), now: 0 };
        for rank in 0..ranks {
            team.join(rank, &job).unwrap();
        }
        team
    }

    fn join(&mut self, rank: u32, job: &Job) -> Result<()> {
        let mut worker = Worker::new(job, vec![0..job.chunk_count()], 100)?;
        let ready = worker.begin(self.now);
        self.workers.insert(rank, worker);
        let letters = self.coordinator.hear(self.now, rank, &ready)?;
        self.deliver(letters);
        Ok(())
    }

    fn deliver(&mut self, letters: Letters) {
        for (rank, order) in letters {
            self.workers.get_mut(&rank).unwrap().hear(&order.encode()).unwrap();
        }
    }

    /// Lets one rank fold one order, of these rows, if it has one.
    fn step(&mut self, rank: u32, data: &[f64]) -> Result<()> {
        self.now += 1;
        let Some(chunks) = self.workers.get_mut(&rank).unwrap().next_order() else {
            let letters = self.coordinator.tick(self.now);
            self.deliver(letters);
            return Ok(());
        };
        let portion = portion(self.coordinator.reduction().job(), data, chunks);
        self.workers.get_mut(&rank).unwrap().folded(self.now);
        let report = Report::Folded { cpu_microseconds: 0, portion: &portion }.encode();
        let letters = self.coordinator.hear(self.now, rank, &report)?;
        self.deliver(letters);
        Ok(())
    }
}

/// Nobody says that rank 2 is dead. Others go on, what waits to be merged stays little, and after a
/// while they fold what it was given, too.
#[test]
fn a_dead_rank_stalls_nothing_and_nothing_grows_without_bound() {
    let data = rows(CHUNKS);
    let mut team = Team::new(3, 0);
    while !team.coordinator.is_complete() {
        for rank in 0..2 {
            team.step(rank, &data).unwrap();
        }
        let covered = team.coordinator.reduction().checkpoint().unwrap();
        let gram = Gram::new(COLUMNS).unwrap();
        let held = Portion::of(team.coordinator.reduction().job(), &gram).decode(&covered).unwrap();
        assert!(held.len() <= 2 * 3 + CHUNKS.ilog2() as usize, "{} nodes", held.len());
        assert!(team.now < 10_000, "the dead rank is waited for");
    }
    assert!(team.now > 1000, "its orders were given away before they were late");
    let whole = team.coordinator.into_reduction().finish().unwrap();
    assert_eq!(bits(&whole), bits(&plainly(&job(CHUNKS, 1), &data)));
}

#[test]
fn a_death_that_is_noticed_costs_no_waiting() {
    let data = rows(CHUNKS);
    let mut team = Team::new(3, 0);
    let letters = team.coordinator.lose(0, 2);
    team.deliver(letters);
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
}

#[test]
fn ranks_that_agree_confirm_each_other() {
    let data = rows(CHUNKS);
    let mut team = Team::new(2, 250);
    while !team.coordinator.is_complete() {
        (0..2).for_each(|rank| team.step(rank, &data).unwrap());
    }
    assert_eq!(team.coordinator.audited_count() as u64, CHUNKS / BLOCK_CHUNKS / 4);
}

#[test]
fn a_rank_with_another_job_is_refused_by_the_field() {
    let mut team = Team::new(1, 0);
    let error = team.join(1, &job(CHUNKS + 1, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlanMismatch);
    assert!(error.to_string().contains("rank 1: "), "{error}");
    assert!(error.to_string().contains("\"rows\" was 65 and is now 64"), "{error}");
}

#[test]
fn nothing_folded_is_not_complete() {
    let team = Team::new(2, 0);
    assert!(!team.coordinator.is_complete());
    let error = team.coordinator.into_reduction().finish().unwrap_err();
    assert!(error.to_string().contains("chunks 0 to 63 are missing"), "{error}");
}

/// A triangle of 8 bytes a number, not the whole square, and not as text.
#[test]
fn what_travels_is_little_more_than_the_sums() {
    let (job, data) = (job(CHUNKS, 1), rows(CHUNKS));
    let sums = COLUMNS * (COLUMNS + 1) / 2 * 8;
    let one = portion(&job, &data, 0..1).len();
    assert!(one - sums < 400, "{one} bytes for {sums}");
    let mut four = reduction(&job);
    four.receive(&portion(&job, &data, 0..4)).unwrap();
    assert_eq!(four.checkpoint().unwrap().len(), one, "four chunks are one node");
}
