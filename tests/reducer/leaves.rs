//! Jobs of arrays: a leaf at a time, added by a tree, each at most once.

use std::sync::Arc;

use headwater::fold::sums::Width;
use headwater::fold::{ArraySums, Statistic};
use headwater::plan::Plan;
use headwater::reducer::{Job, Reduction, leaf_portion};
use headwater::{Digest, ErrorKind};
use twox_hash::XxHash3_128;

fn job(leaves: u64) -> Job {
    Job::of_arrays(Plan::new(), leaves).unwrap()
}

fn sums() -> ArraySums {
    ArraySums::new(vec![(2, Width::F64), (1, Width::F32)]).unwrap()
}

/// The bytes of the arrays of a leaf.
fn leaf(numbers: [f64; 2], narrow: f32) -> [Vec<u8>; 2] {
    [numbers.map(f64::to_le_bytes).concat(), narrow.to_le_bytes().to_vec()]
}

fn portion(leaf: u64, arrays: &[Vec<u8>; 2]) -> headwater::Result<Vec<u8>> {
    leaf_portion(&job(3), &sums(), leaf, &arrays.each_ref().map(Vec::as_slice))
}

#[test]
fn p5_a_leaf_is_added_once_and_other_sums_for_it_are_refused() {
    let leaves = [leaf([1.0, 0.1], 0.5), leaf([2.0, 0.2], 0.25), leaf([4.0, 0.3], -8.0)];
    let mut whole = Reduction::new(job(3), Arc::new(sums()));
    for at in [2, 0, 0, 1, 2] {
        let is_new = whole.missing().iter().any(|range| range.contains(&at));
        let found = whole.receive(&portion(at, &leaves[at as usize]).unwrap()).unwrap();
        assert_eq!(found, usize::from(is_new));
    }
    assert_eq!((whole.covered_count(), whole.covered_rows()), (3, 3));
    // The digest of a leaf is that of the bytes of its arrays, one after the other.
    let [first, second, third] = leaves
        .each_ref()
        .map(|leaf| Digest::of(&XxHash3_128::oneshot(&leaf.concat()).to_le_bytes()));
    let both = |one: Digest, other: Digest| Digest::of(&[one.0, other.0].concat());
    assert_eq!(whole.rows_digest(), Some(both(both(first, second), third)));
    let other = leaf([4.0, 0.3], 8.0);
    let mut alone = Reduction::new(job(3), Arc::new(sums()));
    alone.receive(&portion(2, &leaves[2]).unwrap()).unwrap();
    let error = alone.receive(&portion(2, &other).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("the sum of leaf 2 arrived twice"), "{error}");
    let error = alone.finish().unwrap_err();
    assert!(error.to_string().contains("leaves 0 to 1 are missing"), "{error}");
    let bytes = sums().encode(&whole.finish().unwrap());
    assert_eq!(bytes, leaf([7.0, (0.1 + 0.2) + 0.3], -7.25).concat());
}

#[test]
fn leaves_that_a_job_does_not_have_are_refused() {
    let error = portion(3, &leaf([1.0, 2.0], 3.0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("expected a leaf below 3, found 3"), "{error}");
    let error = Job::of_arrays(Plan::new(), (1 << 62) + 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert_eq!(Job::of_arrays(Plan::new(), 1 << 62).unwrap().chunk_count(), 1 << 62);
}
