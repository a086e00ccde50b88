//! Parts of a length that is not known before: each a fold of its own under a tree of parts.

use std::sync::Arc;

use headwater::ErrorKind;
use headwater::fold::{Gram, Statistic, TopRows, Values, columns::End};
use headwater::matrix::Element;
use headwater::plan::Plan;
use headwater::reducer::{Arrays, Job, OfArrays, Reduction, Stream};
use proptest::prelude::*;

use super::{COLUMNS, bits, job, plainly, reduction, rows};

fn job_of_parts(parts: u64, chunk_rows: u64) -> Job {
    Job::of_parts(Plan::new(), parts, chunk_rows).unwrap()
}

/// The portion of a part whose rows are pushed in pieces.
fn portion<S: OfArrays>(
    job: &Job,
    statistic: &Arc<S>,
    part: u64,
    rows: &[f64],
    piece: usize,
) -> Vec<u8> {
    let form = Arrays::of_x(COLUMNS, Element::F64);
    let mut stream = Stream::of_part(job, form, Arc::clone(statistic), part, Some(1)).unwrap();
    for some in rows.chunks(piece * COLUMNS) {
        stream.push(&[(Values::F64(some), COLUMNS)], &|| false).unwrap();
    }
    stream.portion().unwrap()
}

proptest! {
    /// The whole of a part is that of a fold of its rows alone.
    #[test]
    fn p1_a_part_is_a_fold_of_its_own(count in 1_u64..200, chunk_rows in 1_u64..12, piece in 1_usize..50) {
        let of = job_of_parts(1, chunk_rows);
        let gram = Arc::new(Gram::new(COLUMNS).unwrap());
        let mut whole = Reduction::new(of.clone(), Arc::clone(&gram));
        whole.receive(&portion(&of, &gram, 0, &rows(count), piece)).unwrap();
        let expected = plainly(&job(count, chunk_rows), &rows(count));
        prop_assert_eq!(bits(&whole.finish().unwrap()), bits(&expected));
    }
}

/// Whether its last chunk is full, or has a row or more.
#[test]
fn a_part_has_the_digest_of_its_rows() {
    for count in [1, 7, 8, 14, 20] {
        let (of, job, data) = (job_of_parts(1, 7), job(count, 7), rows(count));
        let gram = Arc::new(Gram::new(COLUMNS).unwrap());
        let mut whole = Reduction::new(of.clone(), Arc::clone(&gram));
        whole.receive(&portion(&of, &gram, 0, &data, 5)).unwrap();
        let mut alone = reduction(&job);
        alone.receive(&crate::portion(&job, &data, 0..job.chunk_count())).unwrap();
        assert_eq!(whole.rows_digest(), alone.rows_digest());
        assert_eq!(bits(&whole.finish().unwrap()), bits(&plainly(&job, &data)));
    }
}

#[test]
fn parts_merge_as_chunks_do_and_may_be_empty() {
    let (of, data) = (job_of_parts(3, 7), rows(30));
    let gram = Arc::new(Gram::new(COLUMNS).unwrap());
    let part = |part, rows| portion(&of, &gram, part, rows, 5);
    let mut whole = Reduction::new(of.clone(), Arc::clone(&gram));
    for portion in [part(2, &data), part(0, &data[..33]), part(1, &[])] {
        assert_eq!(whole.receive(&portion).unwrap(), 1);
        assert_eq!(whole.receive(&portion).unwrap(), 0);
    }
    let first = plainly(&job(11, 7), &data[..33]);
    let second = plainly(&job(30, 7), &data);
    let sums = first.values().iter().zip(second.values()).map(|(a, b)| ((a + 0.0) + b).to_bits());
    let whole = whole.finish().unwrap();
    assert_eq!(bits(&whole), sums.collect::<Vec<_>>());

    let mut other = Reduction::new(of.clone(), Arc::clone(&gram));
    other.receive(&part(1, &data)).unwrap();
    let error = other.receive(&part(1, &data[..33])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("the sum of part 1 arrived twice"), "{error}");
    let error = other.finish().unwrap_err();
    assert!(error.to_string().contains("part 0 is missing"), "{error}");
}

#[test]
fn rows_are_numbered_by_part() {
    let of = job_of_parts(2, 4);
    let top = Arc::new(TopRows::new(COLUMNS, 0, 3, End::Largest).unwrap());
    let mut whole = Reduction::new(of.clone(), Arc::clone(&top));
    let equal = [1.0; 5 * COLUMNS];
    whole.receive(&portion(&of, &top, 1, &equal, 2)).unwrap();
    whole.receive(&portion(&of, &top, 0, &equal[..COLUMNS], 2)).unwrap();
    let found: Vec<u64> = whole.finish().unwrap().rows().iter().map(|ranked| ranked.row).collect();
    assert_eq!(found, [0, 1 << 38, (1 << 38) + 1]);
    assert_eq!(top.partial_bytes(), 56);
}

#[test]
fn parts_that_a_job_does_not_have_are_refused() {
    let gram = || Arc::new(Gram::new(COLUMNS).unwrap());
    let form = Arrays::of_x(COLUMNS, Element::F64);
    let refused = |of: &Job, part| {
        let stream = Stream::of_part(of, form, gram(), part, Some(1));
        stream.err().expect("the part was taken").to_string()
    };
    assert!(refused(&job_of_parts(3, 4), 3).contains("expected a part below 3, found 3"));
    assert!(refused(&job(10, 4), 0).contains("expected a job of parts"));
    let error = Job::of_parts(Plan::new(), (1 << 24) + 1, 4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert!(Job::of_parts(Plan::new(), 1 << 24, 4).is_ok());
    let (rows, first) = job_of_parts(3, 4).part(2).unwrap();
    assert_eq!((rows.rows(), rows.chunk_rows(), first), (1 << 38, 4, 2 << 38));
    let error = Job::of_parts(Plan::new(), 4, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}
