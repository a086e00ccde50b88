//! The promises of the reducer: the same bits whoever folds what, and nothing foreign or damaged.

mod arrays;
mod checkpoints;
mod coordinator;
mod drive;
mod golden;
mod holes;
mod in_memory;
mod leaves;
mod manifest;
#[path = "../shared/manifest.rs"]
mod manifest_of_goldens;
mod matrix;
mod messages;
#[cfg(feature = "prepare")]
mod parquet;
mod parts;
mod passes;
mod round_robin;
mod safetensors;
#[path = "../shared/simulated_disk.rs"]
mod simulated_disk;
mod simulation;
mod sources;
mod spool;
mod stream;
mod team;
mod versions;

use std::sync::{Arc, Mutex};

use headwater::fold::gram::{Chunk, Triangle};
use headwater::fold::{Gram, Node, Rows, Statistic, Tree};
use headwater::plan::Plan;
use headwater::progress::Progress;
use headwater::reducer::{Blocks, Job, Portion, Reduction, Sourced};
use headwater::{Digest, ErrorKind};
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};
use twox_hash::XxHash3_128;

const COLUMNS: usize = 3;

/// Rows whose sums depend on the order in which they are added.
fn rows(count: u64) -> Vec<f64> {
    let number = |place: u64| {
        let hash = place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let exponent = (hash >> 58) as i32 - 32;
        f64::from(hash as i32) * f64::powi(2.0, exponent)
    };
    (0..count * COLUMNS as u64).map(number).collect()
}

fn job(rows: u64, chunk_rows: u64) -> Job {
    let mut what = Plan::new();
    what.add("statistic", "gram").unwrap();
    Job::new(what, rows, chunk_rows).unwrap()
}

fn reduction(job: &Job) -> Reduction<Gram> {
    Reduction::new(job.clone(), Arc::new(Gram::new(COLUMNS).unwrap()))
}

fn leaf(job: &Job, data: &[f64], chunk: u64) -> Sourced<Triangle> {
    let range = job.rows_of(chunk);
    let values = &data[range.start as usize * COLUMNS..range.end as usize * COLUMNS];
    let rows = Rows::new(values, values.len() / COLUMNS, COLUMNS, COLUMNS).unwrap();
    let partial = Gram::new(COLUMNS).unwrap().leaf(&Chunk::of(rows)).unwrap();
    let hash = XxHash3_128::oneshot(bytemuck::cast_slice(values));
    Sourced { partial, rows: Digest::of(&hash.to_le_bytes()) }
}

/// What a rank ships for some chunks.
fn portion(job: &Job, data: &[f64], chunks: std::ops::Range<u64>) -> Vec<u8> {
    let mut tree = Tree::new(job.chunk_count());
    for chunk in chunks {
        tree.insert(Node::leaf(chunk).unwrap(), leaf(job, data, chunk)).unwrap();
    }
    Portion::of(job, &Gram::new(COLUMNS).unwrap()).encode(tree.nodes(), &[]).unwrap()
}

/// All leaves in a row, in one process.
fn plainly(job: &Job, data: &[f64]) -> Triangle {
    let mut whole = reduction(job);
    for chunk in 0..job.chunk_count() {
        whole.insert(Node::leaf(chunk).unwrap(), leaf(job, data, chunk)).unwrap();
    }
    whole.finish().unwrap()
}

fn bits(triangle: &Triangle) -> Vec<u64> {
    triangle.values().iter().map(|value| value.to_bits()).collect()
}

/// Counts what is begun and done.
#[derive(Default)]
struct Counting(Mutex<Vec<(String, Option<u64>, u64)>>);

impl Counting {
    /// What was begun, with its total and how much of it was done.
    fn told(self) -> Vec<(String, Option<u64>, u64)> {
        self.0.into_inner().unwrap()
    }
}

impl Progress for Counting {
    fn begin(&self, what: &str, total: Option<u64>) {
        self.0.lock().unwrap().push((what.to_owned(), total, 0));
    }

    fn advance(&self, count: u64) -> headwater::Result<()> {
        self.0.lock().unwrap().last_mut().expect("something was begun").2 += count;
        Ok(())
    }
}

proptest! {
    /// Ranks of any number ship their blocks in any order, some more than once; the fold stops, and
    /// goes on with other ranks and blocks of another size.
    #[test]
    fn p1_p2_p4_bits_do_not_depend_on_which_rank_folds_which_chunk(
        count in 1_u64..200,
        chunk_rows in 1_u64..9,
        levels in (0_u32..5, 0_u32..5),
        order in any::<Vec<Index>>(),
        stop in any::<Index>(),
    ) {
        let (job, data) = (job(count, chunk_rows), rows(count));
        let expected = bits(&plainly(&job, &data));
        let before = Blocks::new(job.chunk_count(), levels.0).unwrap();
        let mut first = reduction(&job);
        for pick in order.iter().take(stop.index(order.len() + 1)) {
            let block = pick.index(before.count() as usize) as u64;
            first.receive(&portion(&job, &data, before.chunks(block))).unwrap();
        }
        let mut second = reduction(&job);
        second.receive(&first.checkpoint().unwrap()).unwrap();
        prop_assert_eq!(first.missing(), second.missing());
        let after = Blocks::new(job.chunk_count(), levels.1).unwrap();
        let mut blocks: Vec<u64> = (0..after.count()).collect();
        for (place, pick) in order.iter().enumerate() {
            let other = pick.index(blocks.len());
            blocks.swap(place % after.count() as usize, other);
        }
        for block in blocks {
            second.receive(&portion(&job, &data, after.chunks(block))).unwrap();
        }
        prop_assert_eq!(second.covered_count(), job.chunk_count());
        prop_assert_eq!(bits(&second.finish().unwrap()), expected);
    }

    #[test]
    fn p5_every_chunk_is_in_one_block(count in 0_u64..5000, ranks in 1_u64..70, level in 0_u32..10) {
        for blocks in [Blocks::new(count, level).unwrap(), Blocks::for_ranks(count, ranks, u64::MAX)] {
            let chunks: Vec<u64> = (0..blocks.count()).flat_map(|b| blocks.chunks(b)).collect();
            prop_assert_eq!(chunks, (0..count).collect::<Vec<_>>());
            prop_assert!(blocks.chunks(blocks.count()).is_empty());
        }
        let blocks = Blocks::for_ranks(count, ranks, u64::MAX);
        prop_assert!(blocks.count() >= count.min(ranks * 16));
    }

    #[test]
    fn a_checkpoint_holds_any_set_of_chunks(present in subsequence((0_u64..40).collect::<Vec<_>>(), 0..40)) {
        let (job, data) = (job(40, 1), rows(40));
        let mut first = reduction(&job);
        for &chunk in &present {
            first.receive(&portion(&job, &data, chunk..chunk + 1)).unwrap();
        }
        let mut second = reduction(&job);
        second.receive(&first.checkpoint().unwrap()).unwrap();
        let missing: Vec<u64> = second.missing().into_iter().flatten().collect();
        let expected: Vec<u64> = (0..40).filter(|chunk| !present.contains(chunk)).collect();
        prop_assert_eq!(missing, expected);
    }
}

#[test]
fn p6_portions_of_another_job_are_rejected_with_the_setting() {
    let (job_here, data) = (job(10, 3), rows(10));
    let error = reduction(&job(10, 4)).receive(&portion(&job_here, &data, 0..2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlanMismatch);
    assert!(error.to_string().contains("\"chunk_rows\" was 3 and is now 4"), "{error}");
    assert!(!error.to_string().contains("\"rows\""), "{error}");
}

/// Sealed with a right digest, and wrong all the same.
#[test]
fn p6_invalid_portions_are_rejected_despite_a_valid_digest() {
    let (job, data) = (job(10, 3), rows(10));
    let good = portion(&job, &data, 0..4);
    let body = &good[..good.len() - 32];
    // Chunks 0 to 3 are one node: its level and index, the digest of its rows, six numbers.
    let node = body.len() - 16 - 32 - 48;
    for (at, value, words) in [
        (node, 3_u8, "expected nodes of the job in the order"),
        (node, 200, "expected nodes of the job in the order"),
        (node + 4, 1, "expected nodes of the job in the order"),
        (node + 8, 1, "expected nodes of the job in the order"),
        (12, 1, "expected kind 0, found 1"),
        (16, 255, "its header gives a payload"),
        (body.len() - 1, 0x7f, ""),
    ] {
        let mut wrong = body.to_vec();
        wrong[at] = value;
        if at == body.len() - 1 {
            // A NaN that no fold writes.
            wrong[at - 7..].copy_from_slice(&0x7ff8_0000_0000_0001_u64.to_le_bytes());
        }
        let hash = *blake3::hash(&wrong).as_bytes();
        wrong.extend(hash);
        let error = reduction(&job).receive(&wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{at}: {error}");
        assert!(error.to_string().contains(words), "{at}: {error}");
    }
}

#[test]
fn the_last_chunk_covers_its_few_rows_alone() {
    let (job, data) = (job(10, 3), rows(10));
    let mut done = reduction(&job);
    for (chunks, covered) in [(1..2, 3), (2..3, 6), (3..4, 7), (0..1, 10)] {
        done.receive(&portion(&job, &data, chunks)).unwrap();
        assert_eq!(done.covered_rows(), covered);
    }
}
