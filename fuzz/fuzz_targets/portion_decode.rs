//! Whatever the bytes, decoding a portion ends in an error or in the nodes that have these bytes.

#![no_main]

use headwater::fold::{ColumnMoments, Distinct, End, Gram, Histogram, Statistic, TopRows};
use headwater::plan::Plan;
use headwater::reducer::{Job, Portion};
use libfuzzer_sys::fuzz_target;

const CHUNKS: u64 = 100;

fn job() -> Job {
    let mut what = Plan::new();
    what.add("statistic", "fuzzed").expect("a field");
    Job::new(what, CHUNKS * 3, 3).expect("a job")
}

fn check<S: Statistic>(job: &Job, statistic: &S, bytes: &[u8]) {
    let portion = Portion::of(job, statistic);
    let Ok((versions, nodes)) = portion.decode(bytes) else { return };
    let nodes = nodes.iter().map(|(node, partial)| (*node, partial));
    assert_eq!(portion.encode(nodes, &versions).expect("it was decoded"), bytes);
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
    bytes
}

/// A portion of the job without files whose nodes are `bytes`: no search finds a digest, let alone two.
fn framed(job: &Job, partial_bytes: usize, bytes: &[u8]) -> Vec<u8> {
    let plan = job.plan().encode().expect("a plan");
    let nodes = (bytes.len() / (48 + partial_bytes)) as u64;
    let mut portion = b"HWFOLD\0\0\x03\0\0\0\0\0\0\0".to_vec();
    portion.extend((plan.len() as u64 + 24 + bytes.len() as u64).to_le_bytes());
    portion.extend(plan);
    portion.extend(nodes.to_le_bytes());
    portion.extend((partial_bytes as u64).to_le_bytes());
    portion.extend(0_u64.to_le_bytes());
    portion.extend(bytes);
    sealed(portion)
}

fn of<S: Statistic>(job: &Job, statistic: &S, partial_bytes: usize, bytes: &[u8]) {
    check(job, statistic, bytes);
    check(job, statistic, &sealed(bytes.to_vec()));
    check(job, statistic, &framed(job, partial_bytes, bytes));
}

fuzz_target!(|bytes: &[u8]| {
    let job = job();
    of(&job, &Gram::new(2).expect("two columns"), 24, bytes);
    of(&job, &ColumnMoments::new(vec![0.0]).expect("a column"), 88, bytes);
    of(&job, &Histogram::new(vec![vec![0.0]]).expect("a column"), 32, bytes);
    of(&job, &Distinct::new(1, 4).expect("a column"), 16, bytes);
    of(&job, &TopRows::new(1, 0, 2, End::Largest).expect("a column"), 40, bytes);
});
