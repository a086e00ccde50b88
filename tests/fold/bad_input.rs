//! What is refused, and what the message says.

use headwater::ErrorKind;
use headwater::fold::gram::{COLUMNS_MAX, Chunk, Kernel};
use headwater::fold::{Cross, Gram, Node, Rows, Statistic};

#[track_caller]
fn refused<T>(result: headwater::Result<T>, kind: ErrorKind, message: &str) {
    let error = result.err().expect("an error");
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
}

#[test]
fn rows_that_are_not_there_are_refused() {
    let values = [0.0; 10];
    let rows = |count, columns, stride| Rows::new(values.as_slice(), count, columns, stride);
    assert!(rows(2, 5, 5).is_ok() && rows(2, 3, 7).is_ok() && rows(0, 99, 99).is_ok());
    let words = "3 rows of 4 columns, one every 4 values, are not in 10 values";
    refused(rows(3, 4, 4), ErrorKind::InvalidArgument, words);
    assert!(rows(2, 3, 8).is_err() && rows(usize::MAX, 1, usize::MAX).is_err());
}

#[test]
fn a_statistic_of_no_or_too_many_columns_is_refused() {
    let none = "a statistic of columns needs at least one";
    refused(Gram::new(0), ErrorKind::InvalidArgument, none);
    refused(Cross::new(3, 0), ErrorKind::InvalidArgument, none);
    let many = "65537 columns are more than 65536";
    refused(Gram::new(COLUMNS_MAX + 1), ErrorKind::LimitExceeded, many);
    refused(Cross::new(COLUMNS_MAX + 1, 1), ErrorKind::LimitExceeded, many);
}

#[test]
fn a_chunk_of_another_form_is_refused() {
    let values = [1.0; 12];
    let rows = |count, columns| Rows::new(values.as_slice(), count, columns, columns).unwrap();
    let invalid = ErrorKind::InvalidArgument;
    let gram = Gram::new(3).unwrap();
    refused(gram.leaf(&Chunk::of(rows(3, 4))), invalid, "expected 3 columns, found 4");
    let heavy = Chunk::of(rows(4, 3)).weighted(&values[..4]).unwrap();
    refused(gram.leaf(&heavy), invalid, "weights for a fold without weights");
    let gram = gram.weighted();
    refused(gram.leaf(&Chunk::of(rows(4, 3))), invalid, "no weights for a weighted fold");
    assert!(gram.leaf(&heavy).is_ok());
    let few = Chunk::of(rows(4, 3)).weighted(&values[..3]);
    refused(few, invalid, "expected 4 weights, found 3");
    let beside = Chunk::of(rows(4, 3)).and(rows(3, 4));
    refused(beside, invalid, "expected 4 rows of columns side by side, found 3");
    let cross = Cross::new(3, 4).unwrap();
    let sides = (Chunk::of(rows(4, 3)), Chunk::of(rows(3, 4)));
    refused(cross.leaf(&sides), invalid, "expected 4 rows on both sides, found 3");
    let sides = (heavy, Chunk::of(rows(3, 4)));
    refused(cross.leaf(&sides), invalid, "expected 4 rows on both sides, found 3");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let chunks = [Chunk::of(rows(4, 3)), Chunk::of(rows(3, 4))];
    let words = "chunk 1 of those given: expected 3 columns, found 4";
    refused(Gram::new(3).unwrap().leaves(&chunks, &pool), invalid, words);
}

#[test]
fn p6_bytes_that_no_fold_has_written_are_refused() {
    let gram = Gram::new(2).unwrap();
    let corrupt = ErrorKind::Corrupt;
    refused(gram.decode(&[0; 23]), corrupt, "expected 24 bytes of sums, found 23");
    refused(gram.decode(&[0; 32]), corrupt, "expected 24 bytes of sums, found 32");
    let sums = [1.0, -f64::NAN, 2.0];
    let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    refused(gram.decode(&bytes), corrupt, "sum 1 is a NaN that no sum becomes");
    let sums = [-0.0, f64::NAN, f64::NEG_INFINITY];
    let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    let partial = gram.decode(&bytes).unwrap();
    assert_eq!(gram.encode(&partial), bytes);
}

#[test]
fn a_node_past_the_last_chunk_of_all_is_refused() {
    assert!(Node::new(63, 0).is_ok() && Node::leaf(u64::MAX - 1).is_ok());
    let limit = ErrorKind::LimitExceeded;
    refused(Node::new(63, 1), limit, "no node has level 63 and index 1");
    refused(Node::new(64, 0), limit, "no node has level 64 and index 0");
    refused(Node::leaf(u64::MAX), limit, "no node has level 0 and index 18446744073709551615");
}

#[test]
fn the_scalar_kernel_is_everywhere() {
    let kernels: Vec<Kernel> = Kernel::available().collect();
    assert_eq!(kernels.last(), Some(&Kernel::Scalar));
    assert_eq!(Gram::new(3).unwrap().kernel(), kernels[0]);
}
