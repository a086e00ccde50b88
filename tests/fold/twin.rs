//! What `src/fold/FORMAT.md` says, written down as plainly as can be.

use headwater::fold::gram::Order;

use crate::exact::{fused_multiply_add, fused_multiply_add_f32};
use crate::numbers::Numbers;

/// Columns in 64 bits, row by row.
#[derive(Clone)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    pub(crate) fn new(numbers: &Numbers, rows: usize, columns: usize, stride: usize) -> Self {
        let values =
            (0..rows).flat_map(|n| &numbers.wide[n * stride..][..columns]).copied().collect();
        Self { rows, columns, values }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.columns + column]
    }

    /// Both matrices side by side, with a column of ones between them.
    pub(crate) fn ones_between(&self, other: &Self) -> Self {
        let columns = self.columns + 1 + other.columns;
        let mut values = Vec::new();
        for n in 0..self.rows {
            values.extend((0..self.columns).map(|i| self.at(n, i)));
            values.push(1.0);
            values.extend((0..other.columns).map(|i| other.at(n, i)));
        }
        Self { rows: self.rows, columns, values }
    }

    /// Some of the rows.
    pub(crate) fn part(&self, rows: std::ops::Range<usize>) -> Self {
        let values = self.values[rows.start * self.columns..rows.end * self.columns].to_vec();
        Self { rows: rows.len(), values, ..*self }
    }
}

/// The bits of a sum, of all NaN the same.
pub(crate) fn bits(value: f64) -> u64 {
    if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() }
}

fn chain(rows: usize, a: impl Fn(usize) -> f64, b: impl Fn(usize) -> f64) -> u64 {
    bits((0..rows).fold(0.0, |sum, n| fused_multiply_add(a(n), b(n), sum)))
}

/// Chains of 32 bits over 128 rows each, whose sum has 64 bits.
fn short_chains(rows: usize, a: impl Fn(usize) -> f64, b: impl Fn(usize) -> f64) -> u64 {
    let runs = (0..rows).step_by(128).map(|first| {
        let run = first..rows.min(first + 128);
        run.fold(0.0, |sum, n| fused_multiply_add_f32(a(n) as f32, b(n) as f32, sum))
    });
    bits(runs.fold(0.0, |sum, chain| sum + f64::from(chain)))
}

/// The sum of products in an order.
fn sum(order: Order, rows: usize, a: impl Fn(usize) -> f64, b: impl Fn(usize) -> f64) -> u64 {
    match order {
        Order::F64 => chain(rows, a, b),
        Order::F32x128 => short_chains(rows, a, b),
    }
}

/// Element (i, j) of a Gram matrix.
pub(crate) fn gram_at(x: &Matrix, order: Order, i: usize, j: usize) -> u64 {
    sum(order, x.rows, |n| x.at(n, i), |n| x.at(n, j))
}

/// The triangle of a Gram matrix.
pub(crate) fn gram(x: &Matrix, order: Order) -> Vec<u64> {
    let pairs = (0..x.columns).flat_map(|i| (i..x.columns).map(move |j| (i, j)));
    pairs.map(|(i, j)| gram_at(x, order, i, j)).collect()
}

/// The triangle of a weighted Gram matrix.
pub(crate) fn weighted_gram(x: &Matrix, weights: &[f64]) -> Vec<u64> {
    let pairs = (0..x.columns).flat_map(|i| (i..x.columns).map(move |j| (i, j)));
    let element = |(i, j)| {
        let weigh = |n| fused_multiply_add(weights[n], x.at(n, i), -0.0);
        chain(x.rows, weigh, |n| x.at(n, j))
    };
    pairs.map(element).collect()
}

/// The products of two matrices' columns.
pub(crate) fn cross(x: &Matrix, y: &Matrix, order: Order) -> Vec<u64> {
    let pairs = (0..x.columns).flat_map(|i| (0..y.columns).map(move |j| (i, j)));
    pairs.map(|(i, j)| sum(order, x.rows, |n| x.at(n, i), |n| y.at(n, j))).collect()
}

/// The Gram matrix of all rows, by the tree over chunks of `chunk_rows`.
pub(crate) fn whole_gram(x: &Matrix, order: Order, chunk_rows: usize) -> Vec<u64> {
    let chunks = x.rows.div_ceil(chunk_rows);
    let part = |i: usize| x.part(i * chunk_rows..((i + 1) * chunk_rows).min(x.rows));
    let leaf = |i: usize| gram(&part(i), order);
    fold(0, chunks, &leaf, &|left: Vec<u64>, right: Vec<u64>| {
        let sum = |(a, b): (u64, u64)| bits(f64::from_bits(a) + f64::from_bits(b));
        left.into_iter().zip(right).map(sum).collect()
    })
}

/// Splits `count` things at the greatest power of two below their number, again and again.
pub(crate) fn fold<T>(
    first: usize,
    count: usize,
    leaf: &impl Fn(usize) -> T,
    merge: &impl Fn(T, T) -> T,
) -> T {
    if count == 1 {
        return leaf(first);
    }
    let left = count.next_power_of_two() / 2;
    merge(fold(first, left, leaf, merge), fold(first + left, count - left, leaf, merge))
}
