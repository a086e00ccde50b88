//! How far a sum is from the true one.

use headwater::fold::gram::Chunk;
use headwater::fold::{Gram, Statistic};
use proptest::prelude::*;

use crate::exact::Exact;
use crate::kernels::{any_dtype, speeds};
use crate::numbers::{Kind, Numbers};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Within rows * 2^-53 of the sum of the products' magnitudes.
    #[test]
    fn sums_are_as_near_to_the_true_ones_as_theory_says(
        columns in 1_usize..10, rows in 1_usize..400, dtype in any_dtype(), seed: u64,
        whole in any::<bool>(),
    ) {
        let kind = if whole { Kind::Whole } else { Kind::Ordinary };
        let numbers = Numbers::new(dtype, kind, seed, rows * columns);
        let speed = speeds().next().unwrap();
        let gram = Gram::with_speed(columns, &speed).unwrap();
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
                let bound = rows as f64 * f64::EPSILON / 2.0 * magnitude.rounded();
                prop_assert!(error.rounded().abs() <= bound, "({}, {})", i, j);
                // Whole numbers as small as these have no rounding.
                prop_assert!(!whole || error.rounded() == 0.0);
            }
        }
    }
}
