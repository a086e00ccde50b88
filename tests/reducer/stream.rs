//! Rows that come in pieces: the bits of those that lie in one place.

use std::sync::Arc;

use half::{bf16, f16};
use headwater::ErrorKind;
use headwater::fold::{Gram, Values};
use headwater::matrix::Element;
use headwater::reducer::{Arrays, Begun, Job, Stream};
use proptest::prelude::*;

use super::{COLUMNS, bits, job, plainly, portion, reduction, rows};

fn stream_of(
    job: &Job,
    element: Element,
    first_row: u64,
    threads: usize,
) -> headwater::Result<Stream<Gram>> {
    let gram = Arc::new(Gram::new(COLUMNS).unwrap());
    let form = Arrays::of_x(COLUMNS, element);
    Stream::new(job.clone(), form, gram, first_row, Some(threads))
}

fn stream(job: &Job, first_row: u64, threads: usize) -> headwater::Result<Stream<Gram>> {
    stream_of(job, Element::F64, first_row, threads)
}

fn push(stream: &mut Stream<Gram>, rows: &[f64]) -> headwater::Result<()> {
    stream.push(&[(Values::F64(rows), COLUMNS)], &|| false)
}

/// What is wrong with a call.
fn refused<T>(call: headwater::Result<T>, words: &str) {
    let Err(error) = call else { panic!("expected an error with {words:?}") };
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains(words), "{error}");
}

proptest! {
    /// Some workers, each with rows of its own, push them in pieces of any size, and ship now and
    /// then what they have finished.
    #[test]
    fn p1_bits_do_not_depend_on_the_pieces_of_a_stream(
        count in 1_u64..300,
        chunk_rows in 1_u64..12,
        workers in 1_u64..5,
        thread_count in prop::sample::select(vec![1_usize, 2, 7]),
        pieces in prop::collection::vec((1_usize..40, any::<bool>()), 1..60),
    ) {
        let (job, data) = (job(count, chunk_rows), rows(count));
        let each = job.chunk_count().div_ceil(workers) * chunk_rows;
        let mut whole = reduction(&job);
        let mut portions = Vec::new();
        for first_row in (0..count).step_by(each as usize) {
            let end = count.min(first_row + each);
            let mut stream = stream(&job, first_row, thread_count).unwrap();
            let mut pieces = pieces.iter().cycle();
            while stream.next_row() < end {
                let (length, ship) = pieces.next().unwrap();
                let start = stream.next_row() as usize;
                let stop = (start + length).min(end as usize);
                push(&mut stream, &[]).unwrap();
                push(&mut stream, &data[start * COLUMNS..stop * COLUMNS]).unwrap();
                prop_assert_eq!(stream.next_row(), stop as u64);
                if *ship {
                    portions.push(stream.portion().unwrap());
                }
            }
            portions.push(stream.portion().unwrap());
        }
        for portion in portions.iter().rev() {
            whole.receive(portion).unwrap();
        }
        prop_assert_eq!(bits(&whole.whole().unwrap()), bits(&plainly(&job, &data)));
        prop_assert_eq!(bits(&whole.finish().unwrap()), bits(&plainly(&job, &data)));
    }
}

#[test]
fn a_stream_and_a_rank_make_the_same_portion() {
    let (job, data) = (job(100, 7), rows(100));
    let mut stream = stream(&job, 14, 2).unwrap();
    push(&mut stream, &data[14 * COLUMNS..80 * COLUMNS]).unwrap();
    assert_eq!(stream.portion().unwrap(), portion(&job, &data, 2..11));
    assert_eq!(stream.portion().unwrap(), portion(&job, &data, 0..0));
    push(&mut stream, &data[80 * COLUMNS..]).unwrap();
    assert_eq!(stream.portion().unwrap(), portion(&job, &data, 11..15));
}

#[test]
fn narrow_rows_widen_exactly() {
    let numbers: Vec<f32> = (0..60).map(|n| (n % 13) as f32 / 4.0 - 1.0).collect();
    let wide: Vec<f64> = numbers.iter().map(|&n| n.into()).collect();
    let half: Vec<f16> = numbers.iter().map(|&n| f16::from_f32(n)).collect();
    let brain: Vec<bf16> = numbers.iter().map(|&n| bf16::from_f32(n)).collect();
    let job = job(20, 6);
    for (element, values) in [
        (Element::F64, Values::F64(&wide)),
        (Element::F32, Values::F32(&numbers)),
        (Element::F16, Values::F16(&half)),
        (Element::Bf16, Values::Bf16(&brain)),
    ] {
        let mut stream = stream_of(&job, element, 0, 1).unwrap();
        stream.push(&[(values, COLUMNS)], &|| false).unwrap();
        let mut whole = reduction(&job);
        whole.receive(&stream.portion().unwrap()).unwrap();
        assert_eq!(bits(&whole.finish().unwrap()), bits(&plainly(&job, &wide)), "{element:?}");
    }
}

#[test]
fn rows_that_do_not_fit_the_job_are_rejected_and_change_nothing() {
    let (job, data) = (job(100, 7), rows(101));
    refused(stream(&job, 15, 1), "a multiple of 7 below 100, found 15");
    refused(stream(&job, 105, 1), "a multiple of 7 below 100, found 105");
    refused(stream(&job, 0, 0), "expected 1 to 1024 threads, found 0");
    refused(stream(&job, 0, 1025), "expected 1 to 1024 threads, found 1025");
    let mut stream = stream(&job, 0, 1).unwrap();
    push(&mut stream, &data[..10 * COLUMNS]).unwrap();
    let narrow = [0.0_f32; COLUMNS];
    let none = || false;
    refused(
        stream.push(&[(Values::F32(&narrow), COLUMNS)], &none),
        "expected rows of 3 columns of f64 as in the job, found 3 of f32",
    );
    refused(stream.push(&[(Values::F64(&[0.0; 4]), 4)], &none), "found 4 of f64");
    refused(push(&mut stream, &[0.0; COLUMNS + 1]), "found 1 numbers after row 1");
    refused(
        push(&mut stream, &data[10 * COLUMNS..]),
        "at most 90 more of the 100 rows of the job, found 91",
    );
    assert_eq!(stream.next_row(), 10);
    push(&mut stream, &data[10 * COLUMNS..100 * COLUMNS]).unwrap();
    assert_eq!(stream.portion().unwrap(), portion(&job, &data, 0..15));
    refused(push(&mut stream, &data[..COLUMNS]), "at most 0 more");
}

#[test]
fn a_stopped_stream_reports_its_next_row() {
    let (job, data) = (job(1000, 7), rows(1000));
    let mut stream = stream(&job, 0, 1).unwrap();
    let asked = std::cell::Cell::new(0);
    let stop = || asked.replace(asked.get() + 1) == 2;
    let error = stream.push(&[(Values::F64(&data), COLUMNS)], &stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    let next = stream.next_row() as usize;
    assert!(0 < next && next < 1000, "{next}");
    push(&mut stream, &data[next * COLUMNS..]).unwrap();
    assert_eq!(stream.portion().unwrap(), portion(&job, &data, 0..143));
}

#[test]
fn a_stream_goes_on_at_the_first_row_of_a_later_chunk_alone() {
    let (job, data) = (job(100, 7), rows(100));
    let mut stream = stream(&job, 14, 1).unwrap();
    let words = "expected to continue at the first row of a later chunk, found row";
    for row in [13, 7, 15, 101, 105] {
        refused(stream.skip_to(row), words);
    }
    push(&mut stream, &data[14 * COLUMNS..17 * COLUMNS]).unwrap();
    // Amid a chunk.
    refused(stream.skip_to(21), words);
    push(&mut stream, &data[17 * COLUMNS..21 * COLUMNS]).unwrap();
    stream.skip_to(21).unwrap();
    stream.skip_to(42).unwrap();
    assert_eq!(stream.next_row(), 42);
    push(&mut stream, &data[42 * COLUMNS..49 * COLUMNS]).unwrap();
    let mut parts = reduction(&job);
    assert_eq!(parts.receive(&stream.portion().unwrap()).unwrap(), 2);
    assert_eq!(parts.missing(), [0..2, 3..6, 7..15]);
    // The end begins no chunk, and is one.
    stream.skip_to(100).unwrap();
    refused(stream.skip_to(98), words);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Workers take over from each other at any row, amid chunks, too.
    #[test]
    fn p4_a_stream_goes_on_in_another_process(
        count in 1_u64..200,
        chunk_rows in 1_u64..12,
        pieces in prop::collection::vec((1_usize..30, any::<bool>(), any::<bool>()), 1..30),
    ) {
        let (job, data) = (job(count, chunk_rows), rows(count));
        let mut whole = reduction(&job);
        let mut of = stream(&job, 0, 1).unwrap();
        let mut pieces = pieces.iter().cycle();
        while of.next_row() < count {
            let (length, ship, is_moved) = *pieces.next().unwrap();
            let start = of.next_row() as usize;
            push(&mut of, &data[start * COLUMNS..(start + length).min(count as usize) * COLUMNS]).unwrap();
            if ship {
                whole.receive(&of.portion().unwrap()).unwrap();
            }
            if is_moved {
                let begun = of.begun().unwrap();
                prop_assert_eq!(begun.next_row, of.next_row());
                let mut next = stream(&job, 0, 1).unwrap();
                // What the other did before is of no account.
                push(&mut next, &data[..COLUMNS]).unwrap();
                next.go_on(begun).unwrap();
                prop_assert_eq!(next.next_row(), of.next_row());
                of = next;
            }
        }
        whole.receive(&of.portion().unwrap()).unwrap();
        prop_assert_eq!(bits(&whole.finish().unwrap()), bits(&plainly(&job, &data)));
    }
}

#[test]
fn p6_a_stream_goes_on_with_the_rows_of_an_unfinished_chunk_alone() {
    let (job, data) = (job(100, 7), rows(100));
    let mut of = stream(&job, 0, 1).unwrap();
    push(&mut of, &data[..16 * COLUMNS]).unwrap();
    let begun = || of.begun().unwrap();
    let row = COLUMNS * 8;
    let cases = [
        Begun { next_row: 17, ..begun() },
        Begun { next_row: 14, ..begun() },
        Begun { rows: Vec::new(), ..begun() },
        Begun { rows: vec![vec![0; 2 * row - 1]], ..begun() },
        Begun { rows: vec![vec![0; 2 * row]; 2], ..begun() },
        Begun { next_row: 100, ..begun() },
        Begun { next_row: 101, rows: vec![vec![0; 3 * row]], ..begun() },
        Begun { next_row: u64::MAX, ..begun() },
    ];
    let mut other = stream(&job, 0, 1).unwrap();
    push(&mut other, &data[..9 * COLUMNS]).unwrap();
    for wrong in cases {
        let words = format!("before row {}, found other bytes", wrong.next_row);
        let error = other.go_on(wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(&words), "{error}");
    }
    let damaged = Begun { portion: begun().portion[1..].to_vec(), ..begun() };
    assert!(other.go_on(damaged).is_err());
    push(&mut other, &data[9 * COLUMNS..]).unwrap();
    assert_eq!(other.portion().unwrap(), portion(&job, &data, 0..15));
    // The end begins no chunk, and is none.
    other.go_on(Begun { next_row: 100, rows: vec![Vec::new()], ..begun() }).unwrap();
    assert_eq!(other.next_row(), 100);
    assert_eq!(other.portion().unwrap(), portion(&job, &data, 0..2));
}

/// A caller computes in the foreground what takes few operations.
#[test]
fn only_rows_that_finish_a_chunk_take_operations() {
    let (job, data) = (job(100, 7), rows(100));
    let mut of = stream(&job, 0, 1).unwrap();
    // A triangle of six sums, two operations for each and row.
    assert_eq!([0, 1, 6, 7, 20].map(|count| of.operations(count)), [0, 0, 0, 84, 240]);
    push(&mut of, &data[..12 * COLUMNS]).unwrap();
    assert_eq!([0, 1, 2, 3].map(|count| of.operations(count)), [0, 0, 84, 96]);
    push(&mut of, &data[12 * COLUMNS..98 * COLUMNS]).unwrap();
    assert_eq!([1, 2].map(|count| of.operations(count)), [0, 24]);
    push(&mut of, &data[98 * COLUMNS..]).unwrap();
    assert_eq!(of.operations(0), 0);
}
