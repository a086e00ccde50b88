//! The moments of four columns at a time, for AVX2.
//!
//! It computes what [`ColumnSums::push`] defines, with these differences:
//!
//! - A lane belongs to one column, so every sum is its own chain over the rows.
//! - A block of finite numbers needs no test of each: if one is not finite, the second sum is not either,
//!   and the block is done again with tests. So is a block whose squares are too large. After a block with
//!   NULL, NaN or infinities the next one is tested at once.
//! - A number that is in no sum adds +0 to each. That changes no bit: a chain from +0 is never -0.
//! - Minimum and maximum take -0 and +0 for equal. The signs of all numbers tell which one a 0 is: without
//!   a number below 0, a minus sign is that of a -0.
#![expect(unsafe_code, reason = "calls what is compiled for AVX2")]

use std::arch::x86_64::{
    __m256d, __m256i, _CMP_EQ_OQ, _CMP_LT_OQ, _CMP_UNORD_Q, _mm256_add_pd, _mm256_and_pd,
    _mm256_andnot_pd, _mm256_castpd_si256, _mm256_cmp_pd, _mm256_max_pd, _mm256_min_pd,
    _mm256_movemask_pd, _mm256_mul_pd, _mm256_or_pd, _mm256_set1_pd, _mm256_sub_epi64,
    _mm256_sub_pd,
};

use bytemuck::cast;

use super::column_sums::ColumnSums;
use crate::bytes::reserve;
use crate::environment::in_default_environment;
use crate::error::Result;
use crate::fold::blocks::Block;
use crate::fold::rows::Rows;

/// A processor that has AVX2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

const LANES: usize = 4;

/// The sums of four columns, a lane for each.
#[derive(Clone, Copy)]
struct Group {
    shifts: [f64; LANES],
    powers: [[f64; LANES]; 4],
    min: [f64; LANES],
    max: [f64; LANES],
    /// A minus sign if any number has one.
    any_sign: [f64; LANES],
    /// A minus sign if all numbers have one.
    all_signs: [f64; LANES],
    nans: [u64; LANES],
    negative_infinities: [u64; LANES],
    positive_infinities: [u64; LANES],
    /// A bit for each lane that has a column.
    used: i32,
    /// Whether all numbers of the last block were finite: most likely, those of the next are too.
    was_finite: bool,
}

impl Group {
    /// Returns the sums of no rows, about at most four shifts.
    fn new(of: &[f64]) -> Self {
        let mut shifts = [0.0; LANES];
        shifts.iter_mut().zip(of).for_each(|(shift, of)| *shift = *of);
        Self {
            shifts,
            powers: [[0.0; LANES]; 4],
            min: [f64::INFINITY; LANES],
            max: [f64::NEG_INFINITY; LANES],
            any_sign: [0.0; LANES],
            all_signs: [-0.0; LANES],
            nans: [0; LANES],
            negative_infinities: [0; LANES],
            positive_infinities: [0; LANES],
            used: (1 << of.len().min(LANES)) - 1,
            was_finite: true,
        }
    }

    /// Returns the sums of one column, of which some cells were NULL.
    fn column(&self, lane: usize, nulls: u64) -> ColumnSums {
        let (min, max) = (self.min[lane], self.max[lane]);
        ColumnSums {
            nulls,
            nans: self.nans[lane] - nulls,
            negative_infinities: self.negative_infinities[lane],
            positive_infinities: self.positive_infinities[lane],
            min: if min == 0.0 { 0.0_f64.copysign(self.any_sign[lane]) } else { min },
            max: if max == 0.0 { 0.0_f64.copysign(self.all_signs[lane]) } else { max },
            powers: self.powers.map(|sums| sums[lane]),
        }
    }
}

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Returns the sums of each column of `rows`, in which NaN may have any bits.
    #[expect(clippy::unused_self, reason = "that there is one is the proof")]
    pub(super) fn sums(self, rows: &Rows<'_>, shifts: &[f64]) -> Result<Vec<ColumnSums>> {
        let mut groups = reserve(shifts.len().div_ceil(LANES))?;
        groups.extend(shifts.chunks(LANES).map(Group::new));
        in_default_environment(|| {
            rows.blocks(|block| {
                for (group, column) in groups.iter_mut().zip((0..).step_by(LANES)) {
                    // SAFETY: `self` is only made where the processor has the instructions.
                    unsafe { add(group, block, column) }
                }
            })
        })?;
        let mut columns = reserve(shifts.len())?;
        let nulls = rows.null_counts()?;
        columns.extend((0..shifts.len()).map(|column| {
            let nulls = nulls.get(column).copied().unwrap_or(0);
            groups[column / LANES].column(column % LANES, nulls)
        }));
        Ok(columns)
    }
}

/// Adds a block to the sums of the four columns from `column` on.
#[target_feature(enable = "avx2")]
fn add(group: &mut Group, block: &Block<'_>, column: usize) {
    if group.was_finite {
        let mut chains = Chains::of(group);
        for row in 0..block.rows() {
            chains.push(cast(block.four(row, column)));
        }
        if chains.are_finite(group.used) {
            return chains.write(group);
        }
    }
    let mut chains = Chains::of(group);
    // In two turns, since not all sums and counts fit into the registers.
    for row in 0..block.rows() {
        chains.add_if_finite(cast(block.four(row, column)));
    }
    for row in 0..block.rows() {
        chains.count(cast(block.four(row, column)));
    }
    let before = (group.nans, group.negative_infinities, group.positive_infinities);
    chains.write(group);
    group.was_finite = before == (group.nans, group.negative_infinities, group.positive_infinities);
}

/// The sums of a group in registers.
struct Chains {
    shifts: __m256d,
    powers: [__m256d; 4],
    min: __m256d,
    max: __m256d,
    any_sign: __m256d,
    all_signs: __m256d,
    nans: __m256i,
    negative_infinities: __m256i,
    positive_infinities: __m256i,
}

impl Chains {
    fn of(group: &Group) -> Self {
        Self {
            shifts: cast(group.shifts),
            powers: group.powers.map(cast),
            min: cast(group.min),
            max: cast(group.max),
            any_sign: cast(group.any_sign),
            all_signs: cast(group.all_signs),
            nans: cast(group.nans),
            negative_infinities: cast(group.negative_infinities),
            positive_infinities: cast(group.positive_infinities),
        }
    }

    fn write(self, group: &mut Group) {
        *group = Group {
            shifts: group.shifts,
            powers: self.powers.map(cast),
            min: cast(self.min),
            max: cast(self.max),
            any_sign: cast(self.any_sign),
            all_signs: cast(self.all_signs),
            nans: cast(self.nans),
            negative_infinities: cast(self.negative_infinities),
            positive_infinities: cast(self.positive_infinities),
            used: group.used,
            was_finite: true,
        };
    }

    /// Adds a finite number to each column.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn push(&mut self, x: __m256d) {
        self.add(_mm256_sub_pd(x, self.shifts));
        self.widen(x);
        self.any_sign = _mm256_or_pd(self.any_sign, x);
        self.all_signs = _mm256_and_pd(self.all_signs, x);
    }

    /// Adds the finite ones of any numbers.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_if_finite(&mut self, x: __m256d) {
        let magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
        let is_finite = _mm256_cmp_pd::<_CMP_LT_OQ>(magnitude, _mm256_set1_pd(f64::INFINITY));
        self.add(_mm256_and_pd(is_finite, _mm256_sub_pd(x, self.shifts)));
    }

    /// Counts any numbers that are not finite, and widens the ranges.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn count(&mut self, x: __m256d) {
        self.widen(x);
        let is_nan = _mm256_cmp_pd::<_CMP_UNORD_Q>(x, x);
        self.any_sign = _mm256_or_pd(self.any_sign, _mm256_andnot_pd(is_nan, x));
        self.all_signs = _mm256_and_pd(self.all_signs, _mm256_or_pd(is_nan, x));
        let is_positive = _mm256_cmp_pd::<_CMP_EQ_OQ>(x, _mm256_set1_pd(f64::INFINITY));
        let is_negative = _mm256_cmp_pd::<_CMP_EQ_OQ>(x, _mm256_set1_pd(f64::NEG_INFINITY));
        self.nans = plus_one(self.nans, is_nan);
        self.positive_infinities = plus_one(self.positive_infinities, is_positive);
        self.negative_infinities = plus_one(self.negative_infinities, is_negative);
    }

    /// Adds the powers of the distances from the shifts.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, distance: __m256d) {
        let square = _mm256_mul_pd(distance, distance);
        let terms =
            [distance, square, _mm256_mul_pd(square, distance), _mm256_mul_pd(square, square)];
        for (sum, term) in self.powers.iter_mut().zip(terms) {
            *sum = _mm256_add_pd(*sum, term);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn widen(&mut self, x: __m256d) {
        // In this order, a NaN changes neither.
        self.min = _mm256_min_pd(x, self.min);
        self.max = _mm256_max_pd(x, self.max);
    }

    /// Whether the sums of squares of all used lanes are finite.
    #[target_feature(enable = "avx2")]
    fn are_finite(&self, used: i32) -> bool {
        let is_less = _mm256_cmp_pd::<_CMP_LT_OQ>(self.powers[1], _mm256_set1_pd(f64::INFINITY));
        _mm256_movemask_pd(is_less) & used == used
    }
}

/// Counts the lanes of a mask, which is -1 as a whole number.
#[inline]
#[target_feature(enable = "avx2")]
fn plus_one(counts: __m256i, mask: __m256d) -> __m256i {
    _mm256_sub_epi64(counts, _mm256_castpd_si256(mask))
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;

    use super::Avx2;
    use crate::fold::columns::column_sums::{ColumnSums, plain};
    use crate::fold::rows::{Rows, Values};
    use crate::fold::statistic::canonical;

    /// Numbers of one kind, and here and there one of another.
    fn any_numbers(count: usize) -> impl Strategy<Value = Vec<f64>> {
        let special =
            [0.0, -0.0, 1e-310, -5e-324, f64::NAN, -f64::NAN, f64::INFINITY, -f64::INFINITY];
        let ordinary = || (-2.0..2.0_f64).boxed();
        let any_bits = || any::<u64>().prop_map(f64::from_bits).boxed();
        let rarely = move |usual: BoxedStrategy<f64>| {
            prop_oneof![60 => usual, 1 => prop::sample::select(special.to_vec())].boxed()
        };
        let zeros = prop_oneof![Just(0.0), Just(-0.0), Just(1.0), Just(-1.0)].boxed();
        let subnormal = (0_u64..3, any::<bool>());
        let subnormal =
            subnormal.prop_map(|(bits, sign)| f64::from_bits(bits | u64::from(sign) << 63));
        let number = prop_oneof![
            Just(ordinary()),
            Just(any_bits()),
            Just(rarely(ordinary())),
            Just(rarely(any_bits())),
            Just(zeros),
            Just(subnormal.boxed())
        ];
        number.prop_flat_map(move |number| prop::collection::vec(number, count))
    }

    fn words(sums: Vec<ColumnSums>) -> Vec<[u64; 10]> {
        let canonical =
            |sums: ColumnSums| ColumnSums { powers: sums.powers.map(canonical), ..sums };
        sums.into_iter().map(|sums| canonical(sums).words()).collect()
    }

    fn check(rows: &Rows<'_>, nulls: &[bool], shift: f64) -> Result<(), TestCaseError> {
        let shifts: Vec<f64> = (0..rows.columns()).map(|column| shift * column as f64).collect();
        let Some(avx2) = Avx2::detect() else { return Ok(()) };
        for rows in [*rows, rows.with_nulls(nulls).unwrap()] {
            let found = avx2.sums(&rows, &shifts).unwrap();
            prop_assert_eq!(words(found), words(plain(&rows, &shifts).unwrap()));
        }
        Ok(())
    }

    proptest! {
        /// Widths around one and two vectors, and blocks of few and of many rows.
        #[test]
        fn p1_four_columns_at_a_time_have_the_bits_of_the_plain_sums(
            (columns, rows, stride, numbers, nulls) in
                (1_usize..=13, 0_usize..700, 0_usize..3).prop_flat_map(|(columns, rows, gap)| {
                    let stride = columns + gap;
                    let nulls = prop_oneof![200 => Just(false), 1 => Just(true)];
                    let nulls = prop::collection::vec(nulls, rows * columns);
                    (Just(columns), Just(rows), Just(stride), any_numbers(rows * stride), nulls)
                }),
            shift in -2.0..2.0_f64,
        ) {
            let numbers32: Vec<f32> = numbers.iter().map(|&x| x as f32).collect();
            let numbers16: Vec<f16> = numbers.iter().map(|&x| f16::from_f64(x)).collect();
            let brain: Vec<bf16> = numbers.iter().map(|&x| bf16::from_f64(x)).collect();
            let all: [Values<'_>; 4] = [
                numbers.as_slice().into(),
                numbers32.as_slice().into(),
                numbers16.as_slice().into(),
                brain.as_slice().into(),
            ];
            for values in all {
                check(&Rows::new(values, rows, columns, stride).unwrap(), &nulls, shift)?;
            }
        }
    }

    /// Rows wider than a block, more rows than a block of one column has, rows that overlap, and equal ones.
    #[test]
    fn p1_wide_and_overlapping_rows_have_the_bits_of_the_plain_sums() {
        let numbers: Vec<f64> = (0..60_000_u32).map(|i| f64::from(i % 997) - 400.0).collect();
        for (rows, columns, stride) in
            [(11, 5001, 5001), (9, 4096, 4096), (5000, 1, 1), (50, 70, 7), (30, 9, 0)]
        {
            let rows = Rows::new(numbers.as_slice(), rows, columns, stride).unwrap();
            let nulls: Vec<bool> = (0..rows.count() * columns).map(|at| at % 83 == 0).collect();
            check(&rows, &nulls, 0.25).unwrap();
        }
    }
}
