//! Weighted Gram, [X | 1 | Y], cross products, and whole folds.

use headwater::fold::gram::{Chunk, Order};
use headwater::fold::{Cross, Gram, Node, Rows, Statistic, Tree};
use headwater::random::{Purpose, Stream};
use proptest::prelude::*;

use crate::kernels::{any_dtype, any_kind, any_order, bits, speeds};
use crate::numbers::{Dtype, Numbers, f64s};
use crate::twin::{self, Matrix};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn p1_a_weighted_gram_has_the_bits_of_the_twin(
        columns in 1_usize..=40, rows in 0_usize..30, kind in any_kind(), weights in any_kind(),
        dtype in any_dtype(), seed: u64,
    ) {
        let numbers = Numbers::new(dtype, kind, seed, rows * columns);
        let weights = f64s(weights, !seed, rows);
        let expected = twin::weighted_gram(&Matrix::new(&numbers, rows, columns, columns), &weights);
        for speed in speeds() {
            let gram = Gram::with_speed(columns, &speed).unwrap().weighted();
            let chunk = Chunk::of(numbers.rows(rows, columns, columns)).weighted(&weights).unwrap();
            let found = gram.leaf(&chunk).unwrap();
            prop_assert_eq!(&bits(found.values()), &expected, "{:?}", speed);
        }
    }

    #[test]
    fn p1_columns_side_by_side_have_the_bits_of_one_matrix(
        x_columns in 1_usize..=30, y_columns in 1_usize..=30, rows in 0_usize..20,
        kind in any_kind(), (order, x_dtype) in any_order(), (_, y_dtype) in any_order(), seed: u64,
    ) {
        prop_assume!(order == Order::F64 || !matches!(y_dtype, Dtype::F64));
        let x = Numbers::new(x_dtype, kind, seed, rows * x_columns);
        let y = Numbers::new(y_dtype, kind, !seed, rows * y_columns);
        let expected = twin::gram(
            &Matrix::new(&x, rows, x_columns, x_columns)
                .ones_between(&Matrix::new(&y, rows, y_columns, y_columns)),
            order,
        );
        for speed in speeds() {
            let gram = Gram::with_order(x_columns + 1 + y_columns, order, &speed).unwrap();
            let chunk = Chunk::of(x.rows(rows, x_columns, x_columns)).and_ones();
            let chunk = chunk.and(y.rows(rows, y_columns, y_columns)).unwrap();
            let found = gram.leaf(&chunk).unwrap();
            prop_assert_eq!(&bits(found.values()), &expected, "{:?}", speed);
        }
    }

    #[test]
    fn p1_cross_products_have_the_bits_of_the_twin(
        x_columns in 1_usize..=60, y_columns in 1_usize..=60, rows in 0_usize..20,
        kind in any_kind(), (order, x_dtype) in any_order(), (_, y_dtype) in any_order(), seed: u64,
    ) {
        prop_assume!(order == Order::F64 || !matches!(y_dtype, Dtype::F64));
        let x = Numbers::new(x_dtype, kind, seed, rows * x_columns);
        let y = Numbers::new(y_dtype, kind, !seed, rows * y_columns);
        let expected = twin::cross(
            &Matrix::new(&x, rows, x_columns, x_columns),
            &Matrix::new(&y, rows, y_columns, y_columns),
            order,
        );
        for speed in speeds() {
            let cross = Cross::with_order(x_columns, y_columns, order, &speed).unwrap();
            let sides = (
                Chunk::of(x.rows(rows, x_columns, x_columns)),
                Chunk::of(y.rows(rows, y_columns, y_columns)),
            );
            let found = cross.leaf(&sides).unwrap();
            prop_assert_eq!(&bits(found.values()), &expected, "{:?}", speed);
        }
    }

    /// Below some number of sums each thread has its own chunks; from there on they share each
    /// chunk.
    #[test]
    fn p1_threads_change_no_bit_of_cross_products(
        many in prop::bool::weighted(0.1), kind in any_kind(), dtype in any_dtype(), seed: u64,
        threads in 1_usize..=3,
    ) {
        let (x_columns, y_columns) = if many { (750, 710) } else { (5, 9) };
        let x = Numbers::new(dtype, kind, seed, 20 * x_columns);
        let y = Numbers::new(dtype, kind, !seed, 20 * y_columns);
        let chunks = [20, 7, 0].map(|rows| {
            let x = Chunk::of(x.rows(rows, x_columns, x_columns));
            (x, Chunk::of(y.rows(rows, y_columns, y_columns)))
        });
        let cross = Cross::new(x_columns, y_columns).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let found = cross.leaves(&chunks, &pool).unwrap();
        for (sides, found) in chunks.iter().zip(&found) {
            prop_assert!(bits(cross.leaf(sides).unwrap().values()) == bits(found.values()));
        }
    }

    /// From rows to the whole, with partials that were bytes for a while.
    #[test]
    fn p1_a_whole_fold_has_the_bits_of_the_twin(
        columns in 1_usize..=12, rows in 1_usize..90, chunk_rows in 1_usize..12,
        kind in any_kind(), seed: u64,
    ) {
        let values = f64s(kind, seed, rows * columns);
        let numbers = Numbers::from(values.clone());
        let whole = Matrix::new(&numbers, rows, columns, columns);
        let expected = twin::whole_gram(&whole, Order::F64, chunk_rows);
        let gram = Gram::new(columns).unwrap();
        let mut tree = Tree::new(rows.div_ceil(chunk_rows) as u64);
        let mut left: Vec<(usize, &[f64])> =
            values.chunks(chunk_rows * columns).enumerate().collect();
        let mut random = Stream::new(seed, Purpose::Demo, [1, 0, 0]);
        while !left.is_empty() {
            let (chunk, values) = left.swap_remove(random.below(left.len() as u64) as usize);
            let rows = Rows::new(values, values.len() / columns, columns, columns).unwrap();
            let bytes = gram.encode(&gram.leaf(&Chunk::of(rows)).unwrap());
            let partial = gram.decode(&bytes).unwrap();
            tree.insert(Node::leaf(chunk as u64).unwrap(), partial).unwrap();
        }
        let whole = tree.finish().unwrap().unwrap();
        prop_assert_eq!(bits(whole.values()), expected);
    }
}
