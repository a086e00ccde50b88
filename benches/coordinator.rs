//! What a coordinator spends on what it receives: Gram matrices of 1,023 columns, 4 MiB each.
//!
//! ```text
//! cargo bench --bench coordinator
//! ```
//!
//! Prints one JSON line: milliseconds of CPU time a node, and what parts of it take by themselves; then
//! milliseconds a chunk when ranks ship blocks of so many; then microseconds an order of one column while
//! many wait, all of them in a row, or each other one of a resumed fold.

mod shared;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;

use headwater::Digest;
use headwater::fold::gram::{Chunk, Triangle};
use headwater::fold::{Gram, Node, Partial, Rows, Statistic};
use headwater::plan::Plan;
use headwater::reducer::wire::{Coordinator, Outbox, Report, Worker};
use headwater::reducer::{Blocks, Job, Policy, Portion, Reduction, Sourced};

use shared::cpu_seconds;

const COLUMNS: usize = 1023;
const CHUNKS: u64 = 256;
/// The orders that wait, and those that are folded while the others do.
const WAITING: u64 = 84_000;
const ORDERS: u64 = 1_000;

fn main() {
    let levels = [0, 2, 4, 6].map(|level| {
        let mut rank = RankZero::new(COLUMNS, CHUNKS, level, 1);
        let ms = (0..CHUNKS >> level).map(|_| rank.order() * 1e3).sum::<f64>() / CHUNKS as f64;
        format!("{{\"chunks\": {}, \"ms\": {ms:.4}}}", 1 << level)
    });
    let mut rank = RankZero::new(COLUMNS, CHUNKS, 0, 1);
    let node = mean_ms(|| rank.order());
    let RankZero { gram, sourced, .. } = &rank;
    let (bytes, leaf) = (gram.encode(&sourced.partial), &sourced.partial);
    let mut sum = leaf.clone();
    let blake3 = mean_ms(|| timed(|| blake3::hash(black_box(&bytes))));
    let check = mean_ms(|| timed(|| gram.read(black_box(&bytes)).expect("a partial")));
    let merge = mean_ms(|| timed(|| black_box(&mut sum).merge(black_box(leaf))));
    let order_us = |every| {
        let mut rank = RankZero::new(1, every * WAITING, 0, every);
        (0..ORDERS).map(|_| rank.order() * 1e6).sum::<f64>() / ORDERS as f64
    };
    println!(
        "{{\"bench\": \"coordinator\", \"columns\": {COLUMNS}, \"node_bytes\": {}, \
         \"node_ms\": {node:.3}, \"blake3_ms\": {blake3:.3}, \"check_ms\": {check:.3}, \
         \"merge_ms\": {merge:.3}, \"chunk_ms_by_block\": [{}], \"waiting_orders\": {WAITING}, \
         \"order_us\": {:.2}, \"order_us_with_holes\": {:.2}}}",
        bytes.len(),
        levels.join(", "),
        order_us(1),
        order_us(2),
    );
}

/// The only rank of a job: its coordinator, and the worker for which the bench makes portions.
struct RankZero {
    job: Job,
    gram: Arc<Gram>,
    sourced: Sourced<Triangle>,
    coordinator: Coordinator<Gram>,
    worker: Worker,
    outbox: Outbox,
}

impl RankZero {
    /// Returns a job of Gram matrices in blocks of `2^level` chunks, of which one in `every` chunks is
    /// not folded yet.
    fn new(columns: usize, chunks: u64, level: u32, every: u64) -> Self {
        let gram = Arc::new(Gram::new(columns).expect("a statistic"));
        let row: Vec<f64> = (0..columns).map(|column| 0.1 + column as f64).collect();
        let row = Rows::new(row.as_slice(), 1, columns, columns).expect("a row");
        let partial = gram.leaf(&Chunk::of(row)).expect("a leaf");
        let sourced = Sourced { partial, rows: Digest::of(b"rows") };
        let job = Job::new(Plan::new(), chunks, 1).expect("a job");
        let mut reduction = Reduction::new(job.clone(), Arc::clone(&gram));
        let folded = (0..chunks).filter(|chunk| chunk % every != 0);
        let folded = folded.map(|chunk| (Node::leaf(chunk).expect("a chunk"), &sourced));
        let resumed = Portion::of(&job, &*gram).encode(folded, &[]).expect("a portion");
        reduction.receive(&resumed).expect("a portion of the job");
        let blocks = Blocks::new(chunks, level).expect("blocks");
        let cuts = BTreeSet::new();
        let policy = Policy { blocks, ranks: 1, cuts, audited_per_mille: 0, patience: 60_000 };
        let mut coordinator = Coordinator::new(reduction, &policy).expect("a coordinator");
        let mut worker = Worker::new(&job, vec![0..chunks], 1_000).expect("a worker");
        let outbox = coordinator.hear(0, 0, &worker.begin(0)).expect("orders");
        Self { job, gram, sourced, coordinator, worker, outbox }
    }

    /// The seconds that rank 0 spends on the portion of its next order, which has just come, with what
    /// it looks at after each event.
    fn order(&mut self) -> f64 {
        let orders = self.outbox.drain(..);
        orders.for_each(|(_, order)| self.worker.hear(&order.encode()).expect("an order"));
        let chunks = self.worker.next_order().expect("an order");
        let cursor = self.worker.folded(0).expect("a cursor");
        let nodes = Node::within(chunks).map(|node| (node, &self.sourced));
        let portion = Portion::of(&self.job, &*self.gram).encode(nodes, &[]).expect("a portion");
        let report = Report::folded(portion, &cursor, 0);
        let coordinator = &mut self.coordinator;
        timed(|| {
            self.outbox = coordinator.hear(0, 0, black_box(&report)).expect("orders");
            coordinator.check_readable(1, |_| String::new()).expect("a reader");
            black_box((coordinator.is_complete(), coordinator.reduction().covered_rows()))
        })
    }
}

/// The mean of as many turns as there are chunks.
fn mean_ms(mut turn: impl FnMut() -> f64) -> f64 {
    (0..CHUNKS).map(|_| turn()).sum::<f64>() * 1e3 / CHUNKS as f64
}

/// The seconds that `work` takes.
fn timed<R>(work: impl FnOnce() -> R) -> f64 {
    let start = cpu_seconds();
    let result = work();
    let took = cpu_seconds() - start;
    black_box(result);
    took
}
