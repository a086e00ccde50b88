//! What a coordinator spends on what it receives: Gram matrices of 1,023 columns, 4 MiB each.
//!
//! ```text
//! cargo bench --bench coordinator
//! ```
//!
//! Prints one JSON line: milliseconds of CPU time a node, and what parts of it take by themselves; then
//! milliseconds a chunk when ranks ship blocks of so many.

use std::hint::black_box;
use std::sync::Arc;

use headwater::Digest;
use headwater::fold::gram::Chunk;
use headwater::fold::{Gram, Node, Partial, Rows, Statistic};
use headwater::plan::Plan;
use headwater::reducer::{Job, Portion, Reduction, Sourced};
use rustix::time::{ClockId, clock_gettime};

const COLUMNS: usize = 1023;
const CHUNKS: u64 = 256;

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
         \"merge_ms\": {merge:.3}, \"chunk_ms_by_block\": [{}]}}",
        bytes.len(),
        levels.join(", "),
    );
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
