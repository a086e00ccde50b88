//! Rejected arguments and damaged partials, and their messages.

use headwater::ErrorKind;
use headwater::fold::columns::NumberedRows;
use headwater::fold::gram::{COLUMNS_MAX, Chunk, Kernel, Order, Speed};
use headwater::fold::{
    ColumnMoments, Cross, Distinct, End, Exact, ExponentHistogram, Gram, Histogram, Node, Rows,
    Statistic, TopRows, Tree,
};

#[track_caller]
fn refused<T>(result: headwater::Result<T>, kind: ErrorKind, message: &str) {
    let error = result.err().expect("an error");
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
}

#[test]
fn rows_longer_than_their_values_are_refused() {
    let values = [0.0; 10];
    let rows = |count, columns, stride| Rows::new(values.as_slice(), count, columns, stride);
    assert!(rows(2, 5, 5).is_ok() && rows(2, 3, 7).is_ok() && rows(0, 99, 99).is_ok());
    let words = "expected values for 3 rows of 4 columns with a stride of 4, found only 10";
    refused(rows(3, 4, 4), ErrorKind::InvalidArgument, words);
    assert!(rows(2, 3, 8).is_err() && rows(usize::MAX, 1, usize::MAX).is_err());
}

#[test]
fn a_product_of_no_or_too_many_columns_is_refused() {
    let none = "expected at least 1 column, found 0";
    refused(Gram::new(0), ErrorKind::InvalidArgument, none);
    refused(Cross::new(3, 0), ErrorKind::InvalidArgument, none);
    let many = "expected at most 65536 columns, found 65537";
    refused(Gram::new(COLUMNS_MAX + 1), ErrorKind::LimitExceeded, many);
    refused(Cross::new(COLUMNS_MAX + 1, 1), ErrorKind::LimitExceeded, many);
}

#[test]
fn a_chunk_of_another_shape_is_refused() {
    let values = [1.0; 12];
    let rows = |count, columns| Rows::new(values.as_slice(), count, columns, columns).unwrap();
    let invalid = ErrorKind::InvalidArgument;
    let gram = Gram::new(3).unwrap();
    refused(gram.leaf(&Chunk::of(rows(3, 4))), invalid, "expected 3 columns, found 4");
    let heavy = Chunk::of(rows(4, 3)).weighted(&values[..4]).unwrap();
    let words = "expected a chunk without weights, found weights; make the statistic with \
                 Gram::weighted";
    refused(gram.leaf(&heavy), invalid, words);
    let gram = gram.weighted();
    let words = "expected a weight for each row, found none; add them with Chunk::weighted";
    refused(gram.leaf(&Chunk::of(rows(4, 3))), invalid, words);
    assert!(gram.leaf(&heavy).is_ok());
    let few = Chunk::of(rows(4, 3)).weighted(&values[..3]);
    refused(few, invalid, "expected 4 weights, found 3");
    let beside = Chunk::of(rows(4, 3)).and(rows(3, 4));
    refused(beside, invalid, "expected 4 rows, as in the first matrix, found 3");
    let cross = Cross::new(3, 4).unwrap();
    let sides = (Chunk::of(rows(4, 3)), Chunk::of(rows(3, 4)));
    refused(cross.leaf(&sides), invalid, "expected 4 rows on the right, as on the left, found 3");
    let sides = (heavy, Chunk::of(rows(3, 4)));
    refused(cross.leaf(&sides), invalid, "expected 4 rows on the right, as on the left, found 3");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let chunks = [Chunk::of(rows(4, 3)), Chunk::of(rows(3, 4))];
    let words = "chunks[1]: expected 3 columns, found 4";
    refused(Gram::new(3).unwrap().leaves(&chunks, &pool), invalid, words);
}

#[test]
fn rows_that_short_chains_do_not_take_are_refused() {
    let (wide, narrow, invalid) = ([1.0; 12], [1_f32; 12], ErrorKind::InvalidArgument);
    let wide = Chunk::of(Rows::new(wide.as_slice(), 4, 3, 3).unwrap());
    let narrow = || Chunk::of(Rows::new(narrow.as_slice(), 4, 3, 3).unwrap());
    let new = || Gram::with_order(3, Order::F32x128, &Speed::default()).unwrap();
    let words = "expected rows of f32, f16 or bf16 for sums of f32x128, found f64; convert the rows, or \
                 choose sums of f64";
    refused(new().leaf(&wide), invalid, words);
    let Ok(beside) = narrow().and(Rows::new([1.0; 12].as_slice(), 4, 3, 3).unwrap()) else {
        panic!("as many rows")
    };
    let gram = Gram::with_order(6, Order::F32x128, &Speed::default()).unwrap();
    refused(gram.leaf(&beside), invalid, words);
    let cross = Cross::with_order(3, 3, Order::F32x128, &Speed::default()).unwrap();
    refused(cross.leaf(&(narrow(), wide)), invalid, words);
    let words = "expected rows without weights for sums of f32x128, found weights; leave them out, or \
                 choose sums of f64";
    let heavy = narrow().weighted(&[1.0; 4]).unwrap();
    refused(new().weighted().leaf(&heavy), invalid, words);
    let words = "expected sums of \"f64\" or \"f32x128\", found \"f16\"";
    refused("f16".parse::<Order>(), invalid, words);
}

/// Chains of 32 bits overflow where sums of 64 bits do not, and lose what is too small for them.
#[test]
fn products_beyond_32_bits_are_infinite_and_those_below_are_zero() {
    let values = [1e20_f32, 1e-30];
    let chunk = Chunk::of(Rows::new(values.as_slice(), 1, 2, 2).unwrap());
    let [exact, short] = Order::ALL
        .map(|order| Gram::with_order(2, order, &Speed::default()).unwrap().leaf(&chunk).unwrap());
    assert!(exact.values().iter().all(|sum| sum.is_normal()));
    assert_eq!(short.values(), [f64::INFINITY, f64::from(1e20_f32 * 1e-30), 0.0]);
}

#[test]
fn p6_impossible_bytes_of_a_product_are_refused() {
    let gram = Gram::new(2).unwrap();
    let corrupt = ErrorKind::Corrupt;
    refused(gram.decode(&[0; 23]), corrupt, "expected 24 bytes of sums, found 23");
    refused(gram.decode(&[0; 32]), corrupt, "expected 24 bytes of sums, found 32");
    let sums = [1.0, -f64::NAN, 2.0];
    let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    refused(gram.decode(&bytes), corrupt, "sum 1 is a NaN with bits that no fold writes");
    let sums = [-0.0, f64::NAN, f64::NEG_INFINITY];
    let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    let partial = gram.decode(&bytes).unwrap();
    assert_eq!(gram.encode(&partial), bytes);
}

#[test]
fn a_product_with_nulls_is_refused() {
    let values = [1.0; 12];
    let mut nulls = [false; 12];
    nulls[7] = true;
    let whole = Chunk::of(Rows::new(values.as_slice(), 4, 3, 3).unwrap());
    let rows = Rows::new(values.as_slice(), 4, 3, 3).unwrap();
    let words = "expected one NULL mark for each cell of 4 rows of 3 columns, found 11 marks";
    refused(rows.with_nulls(&nulls[1..]), ErrorKind::InvalidArgument, words);
    let holed = rows.with_nulls(&nulls).unwrap();
    let words = "expected a number in every cell, found NULL in row 2 of the chunk, column 1; fill \
                 it in, or leave out the column";
    let invalid = ErrorKind::InvalidArgument;
    refused(Gram::new(3).unwrap().leaf(&Chunk::of(holed)), invalid, words);
    let beside = whole.clone().and_ones().and(holed).unwrap();
    let words = words.replace("column 1", "column 5");
    refused(Gram::new(7).unwrap().leaf(&beside), invalid, &words);
    let cross = Cross::new(3, 3).unwrap();
    let words = format!("on the right: {}", words.replace("column 5", "column 1"));
    let sides = (whole.clone(), Chunk::of(holed));
    refused(cross.leaf(&sides), invalid, &words);
    let sides = (Chunk::of(holed), whole.clone());
    refused(cross.leaf(&sides), invalid, &words.replace("right", "left"));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let words = format!("chunks[1]: {}", words.replace("right", "left"));
    refused(cross.leaves(&[(whole.clone(), whole), sides], &pool), invalid, &words);
}

#[test]
fn a_cross_product_of_other_columns_is_refused_and_its_bytes_have_one_length() {
    let values = [1.0; 30];
    let rows = |columns| Chunk::of(Rows::new(values.as_slice(), 4, columns, columns).unwrap());
    let cross = Cross::new(3, 5).unwrap();
    let leaf = cross.leaf(&(rows(3), rows(5))).unwrap();
    assert_eq!((cross.partial_bytes(), cross.encode(&leaf).len()), (15 * 8, 15 * 8));
    assert!(cross.decode(&cross.encode(&leaf)).is_ok());
    let words = "expected 120 bytes of sums, found 64";
    refused(cross.decode(&[0; 64]).map(|_| ()), ErrorKind::Corrupt, words);
    let invalid = ErrorKind::InvalidArgument;
    let words = "expected 3 columns on the left, found 5";
    refused(cross.leaf(&(rows(5), rows(5))), invalid, words);
    let words = "expected 5 columns on the right, found 3";
    refused(cross.leaf(&(rows(3), rows(3))), invalid, words);
}

#[test]
fn the_whole_of_a_fold_that_is_not_complete_is_refused() {
    let gram = Gram::new(2).unwrap();
    let rows = Rows::new([1.0, 2.0].as_slice(), 1, 2, 2).unwrap();
    let mut tree = Tree::new(2);
    tree.insert(Node::leaf(1).unwrap(), gram.leaf(&Chunk::of(rows)).unwrap()).unwrap();
    let words = "the fold is not complete: chunk 0 is missing";
    refused(tree.whole().map(|_| ()), ErrorKind::InvalidArgument, words);
    tree.insert(Node::leaf(0).unwrap(), gram.leaf(&Chunk::of(rows)).unwrap()).unwrap();
    assert_eq!(tree.whole().unwrap().unwrap().values(), [2.0, 4.0, 8.0]);
}

#[test]
fn p6_any_number_of_foreign_nans_is_found_in_sums() {
    let gram = Gram::new(3).unwrap();
    let foreign = (f64::NAN.to_bits() | 1).to_le_bytes();
    for count in 1..=6 {
        let sums = (0..6).map(|at| if at < count { foreign } else { [0; 8] });
        let found = gram.decode(&sums.collect::<Vec<_>>().concat()).map(|_| ());
        let words = "sum 0 is a NaN with bits that no fold writes";
        refused(found, ErrorKind::Corrupt, words);
    }
}

#[test]
fn invalid_arguments_of_column_statistics_are_refused() {
    let (invalid, limit) = (ErrorKind::InvalidArgument, ErrorKind::LimitExceeded);
    let none = "expected at least 1 column, found 0";
    refused(ColumnMoments::new(vec![]), invalid, none);
    refused(Exact::new(0), invalid, none);
    refused(Histogram::new(vec![]), invalid, none);
    refused(ExponentHistogram::new(0), invalid, none);
    refused(Distinct::new(0, 14), invalid, none);
    let words = "expected a finite shift for column 1, found NaN";
    refused(ColumnMoments::new(vec![0.0, f64::NAN]), invalid, words);
    let edges = |second: &[f64]| Histogram::new(vec![vec![0.0], second.to_vec()]);
    let words = "the edges of column 1: expected at least one edge, found none";
    refused(edges(&[]), invalid, words);
    let words = "the edges of column 1: expected finite edges, found inf";
    refused(edges(&[0.0, f64::INFINITY]), invalid, words);
    let words = "the edges of column 1: expected increasing edges, found 0 after -0";
    refused(edges(&[-1.0, -0.0, 0.0]), invalid, words);
    let words = "expected at most 67108864 counts, found 67109890; take fewer columns or bins";
    refused(ExponentHistogram::new(16_369).map(|_| ()), limit, &words.replace("09890", "12900"));
    assert!(ExponentHistogram::new(usize::MAX).is_err());
    assert!(Histogram::of_all(usize::MAX, &[0.0]).is_err());
    for precision in [3, 19, u32::MAX] {
        let words = format!("expected a precision from 4 to 18, found {precision}");
        refused(Distinct::new(1, precision), invalid, &words);
    }
    assert!(Distinct::new(usize::MAX, 14).is_err() && Distinct::new(1024, 18).is_ok());
    let words = "expected at most 268435456 registers, found 268697600; take fewer columns or a lower \
                 precision";
    refused(Distinct::new(1025, 18), limit, words);
    let words = "expected a column number below 2, found 2; columns count from 0";
    refused(TopRows::new(2, 2, 1, End::Largest), invalid, words);
    let words = "expected at least one row to keep, found 0";
    refused(TopRows::new(2, 1, 0, End::Largest), invalid, words);
    let words = "expected at most 1048576 rows to keep, found 1048577";
    refused(TopRows::new(2, 1, (1 << 20) + 1, End::Largest), limit, words);
}

#[test]
fn rows_of_another_shape_are_refused_by_column_statistics() {
    let values = [1.0; 12];
    let rows = Rows::new(values.as_slice(), 4, 3, 3).unwrap();
    let (invalid, words) = (ErrorKind::InvalidArgument, "expected 2 columns, found 3");
    refused(ColumnMoments::new(vec![0.0; 2]).unwrap().leaf(&rows), invalid, words);
    refused(Exact::new(2).unwrap().leaf(&rows), invalid, words);
    refused(Histogram::new(vec![vec![0.0]; 2]).unwrap().leaf(&rows), invalid, words);
    refused(ExponentHistogram::new(2).unwrap().leaf(&rows), invalid, words);
    refused(Distinct::new(2, 4).unwrap().leaf(&rows), invalid, words);
    let top = TopRows::new(2, 0, 3, End::Largest).unwrap();
    refused(top.leaf(&NumberedRows { first: 0, rows }), invalid, words);
    let top = TopRows::new(3, 0, 3, End::Largest).unwrap();
    let last = NumberedRows { first: u64::MAX - 3, rows };
    let words = "expected row numbers of at most 2^64 - 1, found a chunk that ends after them";
    refused(top.leaf(&last), ErrorKind::LimitExceeded, words);
}

/// Partials of the right length that no rows have.
#[test]
fn p6_impossible_bytes_of_column_statistics_are_refused() {
    let corrupt = ErrorKind::Corrupt;
    let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let moments = ColumnMoments::new(vec![0.0]).unwrap();
    refused(moments.decode(&[0; 87]), corrupt, "expected 88 bytes of moments, found 87");
    let (one, two, inf) = (1.0_f64.to_bits(), 2.0_f64.to_bits(), f64::INFINITY.to_bits());
    let none = [2, 1, 1, 0, 0, inf, inf | 1 << 63, 0, 0, 0, 0];
    let good = [2, 0, 0, 0, 0, one, two, one, one, one, one];
    assert!(moments.decode(&bytes(&good)).is_ok() && moments.decode(&bytes(&none)).is_ok());
    for (at, word) in [
        (1, 3),
        (2, u64::MAX),
        (3, 3),
        (5, two + 1),
        (6, inf + 1),
        (5, u64::MAX),
        (7, inf + 1),
        (10, u64::MAX),
    ] {
        let mut bad = good;
        bad[at] = word;
        let words = "the moments of column 0 are impossible for 2 rows";
        refused(moments.decode(&bytes(&bad)), corrupt, words);
        let mut bad = none;
        bad[5] = one;
        refused(moments.decode(&bytes(&bad)), corrupt, words);
    }
    let histogram = Histogram::new(vec![vec![0.0]]).unwrap();
    refused(histogram.decode(&[0; 33]), corrupt, "expected 32 bytes of counts, found 33");
    let distinct = Distinct::new(1, 4).unwrap();
    refused(distinct.decode(&[0; 15]), corrupt, "expected 16 bytes of registers, found 15");
    let mut registers = [61; 16];
    assert!(distinct.decode(&registers).is_ok());
    registers[3] = 62;
    let words = "expected registers of at most 61, found 62 in register 3";
    refused(distinct.decode(&registers), corrupt, words);
    let top = TopRows::new(1, 0, 2, End::Largest).unwrap();
    refused(top.decode(&[]), corrupt, "expected 40 bytes of ranked rows, found 0");
    let words = "expected at most 2 ranked rows, found 3";
    refused(top.decode(&bytes(&[3, 0, 0, 0, 0])), corrupt, words);
    assert!(top.decode(&bytes(&[2, one, 4, one, 5])).is_ok());
    let words = "expected ranked rows in order, without NaN and padded with zeros";
    let nan = u64::MAX >> 1;
    for bad in [[2, one, 5, one, 4], [2, one, 5, one, 5], [2, one, 0, two, 1], [1, one, 0, 0, 1]] {
        refused(top.decode(&bytes(&bad)), corrupt, words);
    }
    refused(top.decode(&bytes(&[1, nan, 0, 0, 0])), corrupt, words);
}

#[test]
fn a_node_past_the_last_possible_chunk_is_refused() {
    assert!(Node::new(63, 0).is_ok() && Node::leaf(u64::MAX - 1).is_ok());
    let limit = ErrorKind::LimitExceeded;
    let words =
        |place: &str| format!("expected a node within 2^64 - 1 chunks, found level {place}");
    refused(Node::new(63, 1), limit, &words("63, index 1"));
    refused(Node::new(64, 0), limit, &words("64, index 0"));
    refused(Node::leaf(u64::MAX), limit, &words("0, index 18446744073709551615"));
}

#[test]
fn every_processor_has_the_scalar_kernel() {
    let kernels: Vec<Kernel> = Kernel::available().collect();
    assert_eq!(kernels.last(), Some(&Kernel::Scalar));
    assert_eq!(Gram::new(3).unwrap().kernel(), kernels[0]);
}

#[test]
fn the_first_number_that_is_not_finite_is_found_beside_nulls() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let values = [1.0, nan, 2.0, 3.0, nan, -inf, 4.0, 5.0, inf];
    let found = |nulls: [usize; 3]| {
        let nulls: Vec<bool> = (0..9).map(|at| nulls.contains(&at)).collect();
        let rows = Rows::new(values.as_slice(), 3, 3, 3).unwrap().with_nulls(&nulls).unwrap();
        rows.first_nonfinite().map(|(row, column, value)| (row, column, value.to_string()))
    };
    let at = |row, column, value: &str| Some((row, column, value.to_owned()));
    assert_eq!(found([1, 4, 5]), at(2, 2, "inf"));
    assert_eq!(found([1, 4, 8]), at(1, 2, "-inf"));
    assert_eq!(found([4, 5, 8]), at(0, 1, "NaN"));
    let rows = Rows::new([0.0; 0].as_slice(), 0, 3, 3).unwrap();
    assert_eq!(rows.first_nonfinite(), None);
}
