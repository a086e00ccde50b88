//! Regression tests: one for each defect that an earlier implementation of the fold had.

use std::ops::Range;
use std::sync::Arc;

use headwater::fold::columns::KeyWidth;
use headwater::fold::gram::Triangle;
use headwater::fold::{
    ColumnMoments, Exact, ExponentHistogram, Gram, Histogram, Node, Partial, Quantiles, Rows,
    Statistic, Values,
};
use headwater::matrix::{Element, Matrix, MatrixFormat};
use headwater::reducer::{
    Arrays, Job, OfMatrix, Portion, Reduction, Source, Sourced, Stream, fold_portion,
};
use headwater::{Digest, ErrorKind};

use crate::matrix::{Folder, npy};
use crate::team::{CHUNKS, Team};
use crate::{COLUMNS, bits, job, leaf, plainly, portion, reduction, rows};

/// Folds what is missing with so many ranks; yields the bits of the whole.
fn folded_by(ranks: u32, done: Reduction<Gram>, data: &[f64]) -> Vec<u64> {
    let mut team = Team::going_on(done, ranks, 0);
    while !team.coordinator.is_complete() {
        (0..ranks).for_each(|rank| team.step(rank, data).unwrap());
    }
    bits(&team.coordinator.into_reduction().finish().unwrap())
}

/// A resume was stuck on a chunk that waited behind the frontier and was the next one.
#[test]
fn a_fold_resumes_from_a_checkpoint_with_unmerged_chunks() {
    let (job, data) = (job(CHUNKS, 1), rows(CHUNKS));
    let gram = Gram::new(COLUMNS).unwrap();
    // Chunks 0 and 1 are siblings, and so are 2 and 3, and what becomes of these.
    let leaves: Vec<(Node, Sourced<Triangle>)> = [0, 1, 2, 3, 5, 6, 63]
        .map(|chunk| (Node::leaf(chunk).unwrap(), leaf(&job, &data, chunk)))
        .to_vec();
    let nodes = leaves.iter().map(|(node, partial)| (*node, partial));
    let checkpoint = Portion::of(&job, &gram).encode(nodes, &[]).unwrap();
    let mut done = reduction(&job);
    assert_eq!(done.receive(&checkpoint).unwrap(), 7);
    assert_eq!(done.missing(), [4..5, 7..63]);
    let own = done.checkpoint().unwrap();
    let (_, held) = Portion::of(&job, &gram).decode(&own).unwrap();
    let nodes: Vec<Range<u64>> = held.iter().map(|(node, _)| node.chunks()).collect();
    assert_eq!(nodes, [0..4, 5..6, 6..7, 63..64]);
    assert_eq!(folded_by(2, done, &data), bits(&plainly(&job, &data)));
}

/// The seal is right, and what was folded is not of the rows that it says.
#[track_caller]
fn refused_for_other_rows<S: Statistic>(statistic: &S, leaf: impl Fn(&Rows<'_>) -> S::Partial) {
    let (job, data) = (job(10, 3), rows(10));
    let first = |rows: usize| leaf(&Rows::new(&data[..], rows, COLUMNS, COLUMNS).unwrap());
    let portion = Portion::of(&job, statistic);
    for (chunk, rows, other) in [(0, 3, 2), (2, 3, 4), (3, 1, 3)] {
        let node = Node::leaf(chunk).unwrap();
        let sourced = |partial| Sourced { partial, rows: Digest([7; 32]) };
        let encode =
            |partial| portion.encode([(node, &sourced(partial))].into_iter(), &[]).unwrap();
        let right = encode(first(rows));
        assert_eq!(portion.decode(&right).unwrap().1.len(), 1);
        let wrong = encode(first(other));
        let error = portion.decode(&wrong).err().expect("the weight of other rows was taken");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(&format!("to have {rows} rows")), "{error}");
    }
}

#[test]
fn p6_partials_that_count_other_rows_are_rejected() {
    let moments = ColumnMoments::new(vec![0.0; COLUMNS]).unwrap();
    refused_for_other_rows(&moments, |rows| moments.leaf(rows).unwrap());
    let histogram = Histogram::new(vec![vec![0.0], vec![-1.0, 1.0], vec![2.0]]).unwrap();
    refused_for_other_rows(&histogram, |rows| histogram.leaf(rows).unwrap());
    let exact = Exact::new(COLUMNS).unwrap();
    refused_for_other_rows(&exact, |rows| exact.leaf(rows).unwrap());
    let at = vec!["0.5".parse().unwrap()];
    let quantiles = Quantiles::new(COLUMNS, KeyWidth::Wide, at).unwrap();
    refused_for_other_rows(&quantiles, |rows| quantiles.leaf(rows).unwrap());
    let exponents = ExponentHistogram::new(COLUMNS).unwrap();
    refused_for_other_rows(&exponents, |rows| exponents.leaf(rows).unwrap());
}

#[test]
fn p6_every_flipped_bit_is_rejected() {
    let (job, data) = (job(10, 3), rows(10));
    let good = portion(&job, &data, 0..3);
    for bit in 0..good.len() * 8 {
        let mut damaged = good.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let error = reduction(&job).receive(&damaged).unwrap_err();
        let expected = match bit / 8 {
            0..8 => ErrorKind::NotOurs,
            _ => ErrorKind::Corrupt,
        };
        assert_eq!(error.kind(), expected, "bit {bit}: {error}");
    }
    for length in 0..good.len() {
        reduction(&job).receive(&good[..length]).unwrap_err();
    }
}

#[test]
fn a_node_with_other_bits_is_rejected_and_changes_nothing() {
    let (job, data) = (job(10, 3), rows(10));
    let mut other = data.clone();
    other[0] += 1.0;
    let mut whole = reduction(&job);
    assert_eq!(whole.receive(&portion(&job, &data, 0..1)).unwrap(), 1);
    assert_eq!(whole.receive(&portion(&job, &data, 0..1)).unwrap(), 0);
    let error = whole.receive(&portion(&job, &other, 0..1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("chunk 0"), "{error}");
    whole.receive(&portion(&job, &data, 1..4)).unwrap();
    assert_eq!(bits(&whole.finish().unwrap()), bits(&plainly(&job, &data)));
}

#[test]
fn a_job_without_folded_chunks_is_incomplete() {
    let team = Team::new(2, 0);
    assert!(!team.coordinator.is_complete());
    let error = team.coordinator.into_reduction().finish().unwrap_err();
    assert!(error.to_string().contains("chunks 0 to 63 are missing"), "{error}");
}

#[test]
fn a_fold_with_chunks_missing_or_without_rows_has_no_result() {
    let (job_here, data) = (job(10, 3), rows(10));
    let mut whole = reduction(&job_here);
    whole.receive(&portion(&job_here, &data, 0..2)).unwrap();
    assert!(whole.finish().unwrap_err().to_string().contains("chunks 2 to 3 are missing"));
    let none = reduction(&job(0, 3)).finish().unwrap_err();
    assert!(none.to_string().contains("expected at least one row, found none"), "{none}");
}

/// NaN and infinities are carried and counted, whichever way the rows come in.
#[test]
fn nonfinite_rows_have_the_same_bits_from_ranks_streams_and_files() {
    let job = job(10, 3);
    let mut data = rows(10);
    // With a sign, a payload and without the bit that makes them quiet.
    for (place, bits) in
        [(1, 0xfff8_0000_0000_0000), (8, 0x7ff8_dead_beef_0001), (12, 1 | 0x7ff0 << 48)]
    {
        data[place] = f64::from_bits(bits);
    }
    (data[17], data[24]) = (f64::INFINITY, f64::NEG_INFINITY);
    let expected = bits(&plainly(&job, &data));
    assert!(expected.iter().any(|&sum| f64::from_bits(sum).is_nan()));
    let threads = || rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let whole = |portions: &[Vec<u8>]| {
        let mut whole = reduction(&job);
        portions.iter().for_each(|portion| _ = whole.receive(portion).unwrap());
        let mut again = reduction(&job);
        again.receive(&whole.checkpoint().unwrap()).unwrap();
        bits(&again.finish().unwrap())
    };
    // From one rank to another, and by a checkpoint.
    assert_eq!(whole(&[portion(&job, &data, 2..4), portion(&job, &data, 0..2)]), expected);
    // Pushed, as activations are.
    let gram = Arc::new(Gram::new(COLUMNS).unwrap());
    let form = Arrays::of_x(COLUMNS, Element::F64);
    let mut stream = Stream::new(job.clone(), form, gram, 0, Some(2)).unwrap();
    stream.push(&[(Values::F64(&data), COLUMNS)], &|| false).unwrap();
    assert_eq!(whole(&[stream.portion().unwrap()]), expected);
    // Read from a file.
    let folder = Folder::new("not-finite");
    let path = folder.file("x.npy", &npy("<f8", (10, 3), bytemuck::cast_slice(&data), 64));
    let matrix = Matrix::open(&[path], &MatrixFormat::ByName).unwrap();
    let source = OfMatrix::new(Gram::new(COLUMNS).unwrap(), matrix, job.clone(), threads());
    assert_eq!(whole(&[fold_portion(&job, &source, 0..4, &|| false).unwrap()]), expected);
    // Chunks 1 and 2 are no siblings, and each is shipped as itself.
    let middle = fold_portion(&job, &source, 1..3, &|| false).unwrap();
    let held = |bytes: &[u8]| Portion::of(&job, &**source.statistic()).decode(bytes).unwrap().1;
    let (middle, pushed) = (held(&middle), held(&portion(&job, &data, 1..3)));
    assert_eq!(middle.len(), 2);
    for (found, expected) in middle.iter().zip(&pushed) {
        assert!(found.0 == expected.0 && found.1.same_bits(&expected.1));
    }
    // Refused where that is asked for, by every kind of number that is not finite.
    let source = source.finite_only();
    for (chunk, place) in [(0, "row 0, column 1"), (1, "row 4, column 0"), (2, "row 8, column 0")] {
        let error = source.leaves(chunk..chunk + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains(place), "{error}");
    }
}

/// What was folded is known by its chunks: no rank, and no number of ranks, is in it.
#[test]
fn p4_any_number_of_ranks_resumes_the_fold_of_three() {
    let (job, data) = (job(CHUNKS, 1), rows(CHUNKS));
    let expected = bits(&plainly(&job, &data));
    for ranks in [1, 2, 5] {
        let mut team = Team::new(3, 0);
        for rank in [2, 0, 1, 2] {
            team.step(rank, &data).unwrap();
        }
        let checkpoint = team.coordinator.reduction().checkpoint().unwrap();
        let mut done = reduction(&job);
        assert_eq!(done.receive(&checkpoint).unwrap(), 3);
        assert_eq!(done.covered_count(), 16);
        assert_eq!(folded_by(ranks, done, &data), expected);
    }
    let named = |job: &Job| job.plan().iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(named(&job), ["chunk_rows", "fold", "rows", "statistic"]);
}

/// Nobody says that rank 2 is dead. Others go on, what waits to be merged stays little, and after a
/// while they fold what it was given, too.
#[test]
fn a_silent_rank_stalls_nothing_and_few_nodes_wait() {
    let data = rows(CHUNKS);
    let mut team = Team::new(3, 0);
    while !team.coordinator.is_complete() {
        for rank in 0..2 {
            team.step(rank, &data).unwrap();
        }
        let covered = team.coordinator.reduction().checkpoint().unwrap();
        let gram = Gram::new(COLUMNS).unwrap();
        let (_, held) =
            Portion::of(team.coordinator.reduction().job(), &gram).decode(&covered).unwrap();
        assert!(held.len() <= 2 * 3 + CHUNKS.ilog2() as usize, "{} nodes", held.len());
    }
    assert!(team.now > 1000, "its orders were given away before they were late");
    let whole = team.coordinator.into_reduction().finish().unwrap();
    assert_eq!(bits(&whole), bits(&plainly(&job(CHUNKS, 1), &data)));
}

/// A triangle of 8 bytes a number, not the whole square, and not as text.
#[test]
fn portions_are_little_longer_than_their_sums() {
    let (job, data) = (job(CHUNKS, 1), rows(CHUNKS));
    let sums = COLUMNS * (COLUMNS + 1) / 2 * 8;
    let one = portion(&job, &data, 0..1).len();
    assert!(one - sums < 400, "{one} bytes for {sums}");
    let mut four = reduction(&job);
    four.receive(&portion(&job, &data, 0..4)).unwrap();
    assert_eq!(four.checkpoint().unwrap().len(), one, "four chunks are one node");
}
