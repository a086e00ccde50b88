//! How far a sum is from the true one.

use headwater::fold::gram::{Chunk, Order, Speed};
use headwater::fold::{Gram, Rows, Statistic};
use proptest::prelude::*;

use crate::exact::Exact;
use crate::kernels::{any_order, speeds};
use crate::numbers::{Dtype, Kind, Numbers};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Within rows * 2^-53 of the sum of the products' magnitudes, of which short chains lose 128 * 2^-24.
    #[test]
    fn sums_are_as_near_to_the_true_ones_as_theory_says(
        columns in 1_usize..10, rows in 1_usize..400, (order, dtype) in any_order(), seed: u64,
        whole in any::<bool>(),
    ) {
        let kind = if whole { Kind::Whole } else { Kind::Ordinary };
        let numbers = Numbers::new(dtype, kind, seed, rows * columns);
        let speed = speeds().next().unwrap();
        let gram = Gram::with_order(columns, order, &speed).unwrap();
        let found = gram.leaf(&Chunk::of(numbers.rows(rows, columns, columns))).unwrap();
        let mut sums = found.values().iter();
        for i in 0..columns {
            for j in i..columns {
                let (mut error, mut magnitude) = (Exact::zero(), Exact::zero());
                for row in numbers.wide.chunks_exact(columns) {
                    error.add_product(row[i], row[j]);
                    magnitude.add_product(row[i].abs(), row[j].abs());
                }
                error.add(-sums.next().unwrap());
                let of_chains =
                    if order == Order::F64 { 0.0 } else { 128.0 * f64::from(f32::EPSILON) / 2.0 };
                let bound = (rows as f64 * f64::EPSILON / 2.0 + of_chains) * magnitude.rounded();
                prop_assert!(error.rounded().abs() <= bound, "({}, {})", i, j);
                // Whole numbers as small as these have no rounding.
                prop_assert!(!whole || error.rounded() == 0.0);
            }
        }
    }
}

/// Sums of f32x128 beside those of 64 bits: an error of 1e-7 of the product of the columns' lengths. Squares of
/// 16-bit numbers have so few bits that they often lie between two sums, and then round down more often than up.
#[test]
fn sums_of_short_chains_are_near_those_of_64_bits() {
    let (columns, rows) = (40, 16_384);
    for (dtype, most) in [(Dtype::F32, 1e-7), (Dtype::F16, 2e-7), (Dtype::Bf16, 2e-7)] {
        let numbers = Numbers::new(dtype, Kind::Ordinary, 3, rows * columns);
        let chunk = Chunk::of(numbers.rows(rows, columns, columns));
        let [exact, short] = Order::ALL.map(|order| {
            let gram = Gram::with_order(columns, order, &Speed::default()).unwrap();
            gram.leaf(&chunk).unwrap()
        });
        let lengths: Vec<f64> = exact.diagonal().map(f64::sqrt).collect();
        let mut pairs = exact.values().iter().zip(short.values());
        let mut greatest: f64 = 0.0;
        for i in 0..columns {
            for j in i..columns {
                let (exact, short) = pairs.next().unwrap();
                greatest = greatest.max((exact - short).abs() / (lengths[i] * lengths[j]));
            }
        }
        assert!(0.0 < greatest && greatest <= most, "{dtype:?}: {greatest:e}");
    }
}

/// The greatest errors: of a column of one number, whose roundings all go one way.
#[test]
fn sums_of_short_chains_of_one_number_are_within_their_bound() {
    let mut greatest: f64 = 0.0;
    for number in (0_u8..100).map(|n| 1.0 + f32::from(n) / 99.0) {
        let rows = vec![number; 4096];
        let chunk = Chunk::of(Rows::new(&rows[..], 4096, 1, 1).unwrap());
        let [exact, short] = Order::ALL.map(|order| {
            let gram = Gram::with_order(1, order, &Speed::default()).unwrap();
            gram.leaf(&chunk).unwrap().values()[0]
        });
        greatest = greatest.max((exact - short).abs() / exact);
    }
    assert!(1e-6 < greatest && greatest <= 128.0 / f64::from(1 << 24), "{greatest:e}");
}
