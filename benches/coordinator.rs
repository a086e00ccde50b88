//! What a coordinator spends on what it receives: Gram matrices of 1,023 columns, 4 MiB each.
//!
//! ```text
//! cargo bench --bench coordinator
//! ```
//!
//! Prints one JSON line: milliseconds of CPU time a node, and what parts of it take by themselves; then
//! milliseconds a chunk when ranks ship blocks of so many; then microseconds an order of one column while
//! many wait, all of them in a row, or each other one of a resumed fold.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;

use headwater::Digest;
use headwater::fold::gram::Chunk;
use headwater::fold::{Gram, Node, Partial, Rows, Statistic};
use headwater::plan::Plan;
use headwater::reducer::wire::{Coordinator, Report, Worker};
use headwater::reducer::{Blocks, Job, Policy, Portion, Reduction, Sourced};
use rustix::time::{ClockId, clock_gettime};

const COLUMNS: usize = 1023;
const CHUNKS: u64 = 256;
/// The orders that wait, and those that are folded while the others do.
const WAITING: u64 = 84_000;
const ORDERS: u64 = 1_000;

fn main() {
    let gram = Gram::new(COLUMNS).expect("a statistic");
    let row: Vec<f64> = (0..COLUMNS).map(|column| 0.1 + column as f64).collect();
    let rows = Rows::new(row.as_slice(), 1, COLUMNS, COLUMNS).expect("a row");
    let leaf = gram.leaf(&Chunk::of(rows)).expect("a leaf");
    let sourced = Sourced { partial: leaf.clone(), rows: Digest::of(b"rows") };
    let job = Job::new(Plan::new(), CHUNKS, 1).expect("a job");
    let portion = |level, index| {
        let node = Node::new(level, index).expect("a node");
        Portion::of(&job, &gram).encode([(node, &sourced)].into_iter(), &[]).expect("a portion")
    };
    let (bytes, mut sum) = (gram.encode(&leaf), leaf.clone());

    let node = |level: u32| {
        let gram = Arc::new(Gram::new(COLUMNS).expect("a statistic"));
        let mut reduction = Reduction::new(job.clone(), gram);
        let of_all = (0..CHUNKS >> level).map(|index| {
            // As it has just come.
            let portion = portion(level, index);
            timed(|| reduction.receive(black_box(&portion)).expect("a portion of the job"))
        });
        of_all.sum::<f64>() * 1e3
    };
    let levels = [0, 2, 4, 6].map(|level| {
        format!("{{\"chunks\": {}, \"ms\": {:.4}}}", 1 << level, node(level) / CHUNKS as f64)
    });
    let node = node(0) / CHUNKS as f64;
    let portion = portion(0, 0);
    let digest = mean_ms(|| timed(|| blake3::hash(black_box(&portion))));
    let check = mean_ms(|| timed(|| gram.read(black_box(&bytes)).expect("a partial")));
    let merge = mean_ms(|| timed(|| black_box(&mut sum).merge(black_box(&leaf))));
    println!(
        "{{\"bench\": \"coordinator\", \"columns\": {COLUMNS}, \"node_bytes\": {}, \
         \"node_ms\": {node:.3}, \"digest_ms\": {digest:.3}, \"check_ms\": {check:.3}, \
         \"merge_ms\": {merge:.3}, \"chunk_ms_by_block\": [{}], \"waiting_orders\": {WAITING}, \
         \"order_us\": {:.2}, \"order_us_with_holes\": {:.2}}}",
        bytes.len(),
        levels.join(", "),
        order_us(1),
        order_us(2),
    );
}

/// Microseconds that rank 0 spends on an order, with what it looks at after each event, while
/// [`WAITING`] orders wait: one in `every` chunks, the others are folded.
fn order_us(every: u64) -> f64 {
    let gram = Arc::new(Gram::new(1).expect("a statistic"));
    let leaf = Gram::leaf(&gram, &Chunk::of(Rows::new(&[2.0][..], 1, 1, 1).expect("a row")));
    let sourced = Sourced { partial: leaf.expect("a leaf"), rows: Digest::of(b"rows") };
    let chunks = every * WAITING;
    let job = Job::new(Plan::new(), chunks, 1).expect("a job");
    let portion = |chunks: Box<dyn Iterator<Item = u64>>| {
        let nodes = chunks.map(|chunk| (Node::leaf(chunk).expect("a chunk"), &sourced));
        Portion::of(&job, &*gram).encode(nodes, &[]).expect("a portion")
    };
    let mut reduction = Reduction::new(job.clone(), Arc::clone(&gram));
    let folded = (0..chunks).filter(move |chunk| chunk % every != 0);
    reduction.receive(&portion(Box::new(folded))).expect("a portion of the job");
    let blocks = Blocks::new(chunks, 0).expect("blocks");
    let cuts = BTreeSet::new();
    let policy = Policy { blocks, ranks: 1, cuts, audited_per_mille: 0, patience: 60_000 };
    let mut coordinator = Coordinator::new(reduction, &policy).expect("a coordinator");
    let mut worker = Worker::new(&job, vec![0..chunks], 1_000).expect("a worker");
    let mut outbox = coordinator.hear(0, 0, &worker.begin(0)).expect("orders");
    let reports = (0..ORDERS).map(|now| {
        outbox.drain(..).for_each(|(_, order)| worker.hear(&order.encode()).expect("an order"));
        let chunks = worker.next_order().expect("an order");
        let cursor = worker.folded(now).expect("a cursor");
        let portion = portion(Box::new(chunks));
        let report = Report::folded(portion, &cursor, 0);
        timed(|| {
            outbox = coordinator.hear(now, 0, &report).expect("orders");
            coordinator.check_readable(1, |_| String::new()).expect("a reader");
            black_box((coordinator.is_complete(), coordinator.reduction().covered_rows()))
        })
    });
    reports.sum::<f64>() * 1e6 / ORDERS as f64
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

/// The CPU time of this thread.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
