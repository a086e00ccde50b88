//! P1 of the kernels: the instruction set, blocks and threads change no bit.

use headwater::fold::gram::{Chunk, Kernel, Order, Speed, Triangle};
use headwater::fold::{Gram, Rows, Statistic, Values};
use proptest::prelude::*;
use rayon::ThreadPoolBuilder;

use crate::numbers::{Dtype, Kind, Numbers};
use crate::twin::{self, Matrix};

/// Rows in a block, columns in a block of the left.
const BLOCKINGS: [(usize, usize); 6] = [(1, 1), (2, 40), (3, 8), (7, 24), (64, 16), (192, 480)];

pub(crate) fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

pub(crate) fn speeds() -> impl Iterator<Item = Speed> {
    let with = |kernel| {
        BLOCKINGS.map(|(block_rows, block_columns)| Speed {
            kernel: Some(kernel),
            block_rows,
            block_columns,
        })
    };
    Kernel::available().flat_map(with)
}

pub(crate) fn any_kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::ALL.to_vec())
}

pub(crate) fn any_dtype() -> impl Strategy<Value = Dtype> {
    prop::sample::select(Dtype::ALL.to_vec())
}

/// An order, and a type that it takes.
pub(crate) fn any_order() -> impl Strategy<Value = (Order, Dtype)> {
    let narrow = prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::Bf16]);
    prop_oneof![
        any_dtype().prop_map(|dtype| (Order::F64, dtype)),
        narrow.prop_map(|dtype| (Order::F32x128, dtype)),
    ]
}

fn leaf(columns: usize, order: Order, speed: &Speed, rows: Rows<'_>) -> Triangle {
    Gram::with_order(columns, order, speed).unwrap().leaf(&Chunk::of(rows)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn p1_every_kernel_and_blocking_has_the_bits_of_the_twin(
        columns in 1_usize..=70, rows in 0_usize..40, gap in 0_usize..6,
        kind in any_kind(), (order, dtype) in any_order(), seed: u64,
    ) {
        let stride = columns + gap;
        let numbers = Numbers::new(dtype, kind, seed, rows * stride);
        let expected = twin::gram(&Matrix::new(&numbers, rows, columns, stride), order);
        for speed in speeds() {
            let found = leaf(columns, order, &speed, numbers.rows(rows, columns, stride));
            prop_assert_eq!(&bits(found.values()), &expected, "{:?}", speed);
        }
    }

    /// Enough rows for several chains, which begin with every 128th row of the chunk.
    #[test]
    fn p1_short_chains_have_the_bits_of_the_twin(
        columns in 1_usize..=30, rows in 100_usize..400, kind in any_kind(),
        dtype in prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::Bf16]), seed: u64,
    ) {
        let numbers = Numbers::new(dtype, kind, seed, rows * columns);
        let order = Order::F32x128;
        let expected = twin::gram(&Matrix::new(&numbers, rows, columns, columns), order);
        for speed in speeds() {
            let found = leaf(columns, order, &speed, numbers.rows(rows, columns, columns));
            prop_assert_eq!(&bits(found.values()), &expected, "{:?}", speed);
        }
    }
}

/// Every number of columns, since each has other tiles at its end.
#[test]
fn p1_every_width_has_the_bits_of_the_twin() {
    for columns in 1..=70 {
        for (order, dtype) in [(Order::F64, Dtype::F64), (Order::F32x128, Dtype::F32)] {
            let numbers = Numbers::new(dtype, Kind::HugeRange, columns as u64, 9 * columns);
            let expected = twin::gram(&Matrix::new(&numbers, 9, columns, columns), order);
            for speed in speeds() {
                let found = leaf(columns, order, &speed, numbers.rows(9, columns, columns));
                assert_eq!(bits(found.values()), expected, "{columns} columns, {order} {speed:?}");
            }
        }
    }
}

/// Rows that overlap, and rows that are all the same.
#[test]
fn p1_every_stride_has_the_bits_of_the_twin() {
    let numbers = Numbers::new(Dtype::F32, Kind::Ordinary, 3, 400);
    for (columns, stride) in [(30, 0), (30, 1), (30, 7), (30, 29), (1, 0), (5, 64)] {
        let count = 6;
        for order in Order::ALL {
            let expected = twin::gram(&Matrix::new(&numbers, count, columns, stride), order);
            for speed in speeds() {
                let found = leaf(columns, order, &speed, numbers.rows(count, columns, stride));
                assert_eq!(bits(found.values()), expected, "stride {stride}, {order} {speed:?}");
            }
        }
    }
}

/// Several blocks of rows; the values end with the last row, before its stride does.
#[test]
fn p1_a_stride_needs_no_values_after_the_last_row() {
    let (count, columns, stride) = (700, 3, 7);
    let numbers = Numbers::new(Dtype::F64, Kind::Ordinary, 3, (count - 1) * stride + columns);
    let expected = twin::gram(&Matrix::new(&numbers, count, columns, stride), Order::F64);
    for speed in speeds() {
        let found = leaf(columns, Order::F64, &speed, numbers.rows(count, columns, stride));
        assert_eq!(bits(found.values()), expected, "{speed:?}");
    }
}

/// Some large ones, of which the twin makes some elements.
#[test]
fn p1_large_widths_have_the_same_bits_everywhere() {
    for (columns, rows, dtype, order) in [
        (200, 700, Dtype::F64, Order::F64),
        (333, 300, Dtype::Bf16, Order::F64),
        (1030, 70, Dtype::F16, Order::F64),
        (2051, 30, Dtype::F32, Order::F64),
        (200, 700, Dtype::F32, Order::F32x128),
        (1030, 150, Dtype::F16, Order::F32x128),
    ] {
        let numbers = Numbers::new(dtype, Kind::Ordinary, 5, rows * columns);
        let view = numbers.rows(rows, columns, columns);
        let scalar = Speed { kernel: Some(Kernel::Scalar), ..Speed::default() };
        let expected = bits(leaf(columns, order, &scalar, view).values());
        for kernel in Kernel::available() {
            for (block_rows, block_columns) in [(192, 480), (50, 56), (1000, 5000)] {
                let speed = Speed { kernel: Some(kernel), block_rows, block_columns };
                let found = leaf(columns, order, &speed, view);
                assert!(bits(found.values()) == expected, "{order} {speed:?}");
            }
        }
        let matrix = Matrix::new(&numbers, rows, columns, columns);
        for at in 0..500 {
            let (i, j) = (at * 31 % columns, at * 47 % columns);
            let (i, j) = (i.min(j), i.max(j));
            let place = i * columns - i * (i + 1) / 2 + j;
            let of_twin = twin::gram_at(&matrix, order, i, j);
            assert_eq!(expected[place], of_twin, "{order}, element ({i}, {j})");
        }
    }
}

/// Below 1,024 columns each thread has its own chunks; from there on they share each chunk.
#[test]
fn p1_the_number_of_threads_changes_no_bit() {
    for (columns, rows, chunk_rows, kind, order) in [
        (33, 1000, 64, Kind::HugeRange, Order::F64),
        (1, 100, 9, Kind::Ordinary, Order::F64),
        (1100, 500, 210, Kind::Ordinary, Order::F64),
        (33, 1000, 200, Kind::HugeRange, Order::F32x128),
        (1100, 500, 210, Kind::Ordinary, Order::F32x128),
    ] {
        let numbers = Numbers::new(Dtype::F32, kind, 8, rows * columns);
        let Values::F32(values) = numbers.values() else { panic!("not of 32 bits") };
        let chunks: Vec<Chunk<'_>> = values
            .chunks(chunk_rows * columns)
            .map(|values| Rows::new(values, values.len() / columns, columns, columns).unwrap())
            .map(Chunk::of)
            .collect();
        let gram = Gram::with_order(columns, order, &Speed::default()).unwrap();
        let alone: Vec<_> =
            chunks.iter().map(|chunk| bits(gram.leaf(chunk).unwrap().values())).collect();
        for threads in 1..=3 {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let leaves = gram.leaves(&chunks, &pool).unwrap();
            let found: Vec<_> = leaves.iter().map(|leaf| bits(leaf.values())).collect();
            assert!(found == alone, "{columns} columns, {threads} threads, {order}");
        }
    }
}

/// A workspace that held NaN and infinities is used again.
#[test]
fn p1_a_used_workspace_changes_no_bit() {
    for (order, dtype) in [(Order::F64, Dtype::F64), (Order::F32x128, Dtype::F32)] {
        let new = || Gram::with_order(21, order, &Speed::default()).unwrap();
        let gram = new();
        let special = Numbers::new(dtype, Kind::AnyBits, 1, 300 * 21);
        let ordinary = Numbers::new(dtype, Kind::Ordinary, 2, 200 * 21);
        let leaf_of = |gram: &Gram, numbers: &Numbers, rows| {
            bits(gram.leaf(&Chunk::of(numbers.rows(rows, 21, 21))).unwrap().values())
        };
        let fresh = leaf_of(&new(), &ordinary, 200);
        leaf_of(&gram, &special, 300);
        assert_eq!(leaf_of(&gram, &ordinary, 200), fresh);
        leaf_of(&gram, &special, 300);
        assert!(leaf_of(&gram, &ordinary, 0).iter().all(|&sum| sum == 0));
    }
}

/// Every number of columns, since lines and bands end elsewhere; and any rows, a few at a time.
#[test]
fn a_triangle_unfolds_to_both_halves() {
    for columns in (1..=70).chain([127, 128, 129, 200]) {
        let numbers = Numbers::new(Dtype::F64, Kind::Ordinary, columns as u64, 2 * columns);
        let speed = Speed::default();
        let gram = leaf(columns, Order::F64, &speed, numbers.rows(2, columns, columns));
        assert_eq!(gram.columns(), columns);
        let mut whole = vec![f64::NAN; columns * columns];
        gram.unfold(0, &mut whole);
        let mut sums = gram.values().iter();
        for row in 0..columns {
            for column in row..columns {
                let sum = sums.next().unwrap().to_bits();
                let found = [whole[row * columns + column], whole[column * columns + row]];
                assert_eq!(found.map(f64::to_bits), [sum; 2], "{columns}: {row}, {column}");
            }
        }
        let diagonal: Vec<f64> = gram.diagonal().collect();
        assert!((0..columns).all(|column| diagonal[column] == whole[column * columns + column]));
        for (first, count) in [(columns / 3, columns - columns / 3), (columns / 2, 1), (columns, 0)]
        {
            let mut some = vec![f64::NAN; count * columns];
            gram.unfold(first, &mut some);
            assert_eq!(
                bits(&some),
                bits(&whole[first * columns..][..count * columns]),
                "{columns}"
            );
        }
    }
}
