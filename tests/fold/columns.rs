//! The statistics of columns: the bytes of the twin whatever the chunks, the order and the threads.

use headwater::ErrorKind;
use headwater::fold::columns::{ColumnSummary, ExactSummary, KeyWidth, NumberedRows};
use headwater::fold::gram::Chunk;
use headwater::fold::statistic::leaves;
use headwater::fold::{
    ColumnMoments, Distinct, End, Exact, ExponentHistogram, Gram, Histogram, Node, Partial,
    Quantiles, Rows, Statistic, TopRows, Tree,
};
use headwater::random::{Purpose, Stream};
use proptest::prelude::*;
use rayon::ThreadPoolBuilder;

use crate::cells::{Cells, any_cells};
use crate::column_twin as twin;
use crate::numbers::{Dtype, Kind};

/// Any order of `count` things.
fn order(count: usize, seed: u64) -> Vec<usize> {
    let mut random = Stream::new(seed, Purpose::Demo, [8, 0, 0]);
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

/// The bytes of the whole, by the tree: the leaves were bytes for a while, and come in any order.
pub(crate) fn by_tree<S: Statistic>(statistic: &S, leaves: &[S::Partial], seed: u64) -> Vec<u8> {
    let mut tree = Tree::new(leaves.len() as u64);
    for chunk in order(leaves.len(), seed) {
        let leaf = statistic.decode(&statistic.encode(&leaves[chunk])).unwrap();
        assert!(leaf.same_bits(&leaves[chunk]));
        tree.insert(Node::leaf(chunk as u64).unwrap(), leaf).unwrap();
    }
    statistic.encode(&tree.finish().unwrap().unwrap())
}

/// The bytes of the whole, by no tree at all: any two of what is left are merged, either way round.
pub(crate) fn anyhow<S: Statistic>(statistic: &S, leaves: &[S::Partial], seed: u64) -> Vec<u8> {
    let decode = |leaf: &S::Partial| statistic.decode(&statistic.encode(leaf)).unwrap();
    let mut left: Vec<S::Partial> = leaves.iter().map(decode).collect();
    let mut random = Stream::new(seed, Purpose::Demo, [9, 0, 0]);
    while left.len() > 1 {
        let one = left.swap_remove(random.below(left.len() as u64) as usize);
        let at = random.below(left.len() as u64) as usize;
        left[at].merge(&one);
    }
    statistic.encode(&left[0])
}

pub(crate) fn columns(cells: &Cells) -> Vec<Vec<Option<f64>>> {
    (0..cells.columns).map(|column| cells.column(column)).collect()
}

/// A statistic that takes rows as they are, over the chunks of some cells, by two threads.
pub(crate) fn leaves_of<S>(statistic: &S, cells: &Cells, chunk_rows: usize) -> Vec<S::Partial>
where
    S: for<'a> Statistic<Chunk<'a> = Rows<'a>, Partial: Send> + Sync,
{
    let chunks: Vec<_> = cells.chunks(chunk_rows).map(|rows| cells.part(rows)).collect();
    let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let found = leaves(statistic, &chunks, &pool).unwrap();
    for (chunk, found) in chunks.iter().zip(&found) {
        assert!(statistic.leaf(chunk).unwrap().same_bits(found));
    }
    found
}

/// Edges that the numbers of a column often are.
fn edges_of(column: &[Option<f64>], count: usize) -> Vec<f64> {
    let finite = column.iter().flatten().copied().filter(|value| value.is_finite());
    let mut edges: Vec<f64> = finite.take(count).chain([0.5]).collect();
    edges.sort_by(f64::total_cmp);
    // -0 and +0 are one edge.
    edges.dedup_by(|a, b| a == b);
    edges
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn p1_moments_have_the_bytes_of_the_twin(
        cells in any_cells(), chunk_rows in 1_usize..20, seed: u64, shift in -2.0..2.0_f64,
    ) {
        let shifts: Vec<f64> = (0..cells.columns).map(|column| shift * column as f64).collect();
        let moments = ColumnMoments::new(shifts.clone()).unwrap();
        let leaves = leaves_of(&moments, &cells, chunk_rows);
        let expected = twin::moments(&columns(&cells), &shifts, chunk_rows);
        prop_assert_eq!(by_tree(&moments, &leaves, seed), expected);
    }

    #[test]
    fn p1_exact_sums_have_the_bytes_of_the_twin_in_any_order(
        cells in any_cells(), chunk_rows in 1_usize..20, seed: u64,
    ) {
        let exact = Exact::new(cells.columns).unwrap();
        let leaves = leaves_of(&exact, &cells, chunk_rows);
        let expected = twin::exact(&columns(&cells));
        prop_assert_eq!(&by_tree(&exact, &leaves, seed), &expected);
        prop_assert_eq!(&anyhow(&exact, &leaves, seed), &expected);
    }

    #[test]
    fn p1_histograms_have_the_bytes_of_the_twin_in_any_order(
        cells in any_cells(), chunk_rows in 1_usize..20, seed: u64, edges in 0_usize..9,
    ) {
        let all = columns(&cells);
        let edges: Vec<_> = all.iter().map(|column| edges_of(column, edges)).collect();
        let histogram = Histogram::new(edges.clone()).unwrap();
        let leaves = leaves_of(&histogram, &cells, chunk_rows);
        let expected = twin::histogram(&all, &edges);
        prop_assert_eq!(&by_tree(&histogram, &leaves, seed), &expected);
        prop_assert_eq!(&anyhow(&histogram, &leaves, seed), &expected);
        let exponents = ExponentHistogram::new(cells.columns).unwrap();
        let leaves = leaves_of(&exponents, &cells, chunk_rows);
        let expected = twin::exponents(&all);
        prop_assert_eq!(&by_tree(&exponents, &leaves, seed), &expected);
        prop_assert_eq!(&anyhow(&exponents, &leaves, seed), &expected);
    }

    #[test]
    fn p1_distinct_has_the_bytes_of_the_twin_in_any_order(
        cells in any_cells(), chunk_rows in 1_usize..20, seed: u64, precision in 4_u32..=10,
    ) {
        let distinct = Distinct::new(cells.columns, precision).unwrap();
        let leaves = leaves_of(&distinct, &cells, chunk_rows);
        let expected = twin::distinct(&columns(&cells), precision);
        prop_assert_eq!(&by_tree(&distinct, &leaves, seed), &expected);
        prop_assert_eq!(&anyhow(&distinct, &leaves, seed), &expected);
    }

    #[test]
    fn p1_top_rows_have_the_bytes_of_the_twin_in_any_order(
        cells in any_cells(), chunk_rows in 1_usize..40, seed: u64, kept in 1_usize..12,
        largest: bool,
    ) {
        let end = if largest { End::Largest } else { End::Smallest };
        let column = cells.columns - 1;
        let top = TopRows::new(cells.columns, column, kept, end).unwrap();
        let chunk = |rows: std::ops::Range<usize>| NumberedRows {
            first: rows.start as u64,
            rows: cells.part(rows),
        };
        let leaves: Vec<_> =
            cells.chunks(chunk_rows).map(|rows| top.leaf(&chunk(rows)).unwrap()).collect();
        let expected = twin::top(&cells.column(column), kept, end);
        prop_assert_eq!(&by_tree(&top, &leaves, seed), &expected);
        prop_assert_eq!(&anyhow(&top, &leaves, seed), &expected);
    }
}

/// What the views say, on numbers that can be counted on the fingers.
#[test]
fn named_counts_match_their_bins() {
    let tiny = f64::from_bits(1);
    let inf = f64::INFINITY;
    let values = [-inf, -1.5, -0.0, 0.0, tiny, 1.0, 1.5, 2.0, inf, f64::NAN, -f64::NAN, 7.0];
    let mut nulls = [false; 12];
    nulls[11] = true;
    let rows = Rows::new(values.as_slice(), 12, 1, 1).unwrap().with_nulls(&nulls).unwrap();

    let histogram = Histogram::new(vec![vec![0.0, 1.0, 2.0]]).unwrap();
    let counts = histogram.leaf(&rows).unwrap();
    let column = histogram.columns(&counts).next().unwrap();
    assert_eq!((column.below, column.between, column.above), (2, &[3, 2][..], 2));
    assert_eq!((column.nans, column.nulls), (2, 1));

    let exponents = ExponentHistogram::new(1).unwrap();
    let counts = exponents.leaf(&rows).unwrap();
    let column = exponents.columns(&counts).next().unwrap();
    assert_eq!((column.nulls, column.nans), (1, 2));
    let (plus, minus) = (column.positive, column.negative);
    assert_eq!((plus.zeros, plus.subnormals, plus.infinities), (1, 1, 1));
    assert_eq!((plus.normal[1022], plus.normal[1023]), (2, 1));
    assert_eq!((minus.zeros, minus.subnormals, minus.infinities), (1, 0, 1));
    assert_eq!((minus.normal.len(), minus.normal[1022]), (2046, 1));

    let moments = ColumnMoments::new(vec![0.0]).unwrap();
    let sums = moments.leaf(&rows).unwrap();
    let column = sums.columns()[0];
    assert_eq!((sums.rows(), column.nulls, column.nans), (12, 1, 2));
    assert_eq!((column.negative_infinities, column.positive_infinities), (1, 1));
    assert_eq!((column.min, column.max), (-inf, inf));
    assert_eq!(column.powers, [3.0, 9.5, 9.0 + 3.375 - 3.375, 1.0 + 16.0 + 2.0 * 5.0625]);

    let top = TopRows::new(1, 0, 3, End::Smallest).unwrap();
    let first = top.leaf(&NumberedRows { first: 100, rows }).unwrap();
    let found: Vec<_> = first.rows().iter().map(|row| (row.value, row.row)).collect();
    assert_eq!(found, [(-inf, 100), (-1.5, 101), (-0.0, 102)]);
}

#[test]
fn summaries_are_those_of_the_two_pass_formulas() {
    let cells = Cells::new((Dtype::F64, Kind::Ordinary, 3), (5000, 2), 10);
    let moments = ColumnMoments::new(vec![0.25, -3.0]).unwrap();
    let sums = moments.leaf(&cells.part(0..5000)).unwrap();
    for (column, found) in moments.summaries(&sums).iter().enumerate() {
        let values: Vec<f64> = cells.column(column).into_iter().flatten().collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let about_mean = |power| values.iter().map(|x| (x - mean).powi(power)).sum::<f64>() / count;
        let (variance, std) = (about_mean(2), about_mean(2).sqrt());
        assert_eq!(found.finite, values.len() as u64);
        for (found, expected) in [
            (found.mean, mean),
            (found.variance, variance),
            (found.std, std),
            (found.skewness, about_mean(3) / std.powi(3)),
            (found.kurtosis, about_mean(4) / variance.powi(2) - 3.0),
        ] {
            assert!((found - expected).abs() < 1e-10, "column {column}: {found} {expected}");
        }
    }
}

#[test]
fn summaries_of_no_numbers_and_of_constants_are_not_lost() {
    let moments = ColumnMoments::new(vec![0.0, 0.0]).unwrap();
    let values = [f64::NAN, 3.0, f64::INFINITY, 3.0];
    let sums = moments.leaf(&Rows::new(values.as_slice(), 2, 2, 2).unwrap()).unwrap();
    let [nothing, constant] = moments.summaries(&sums)[..] else { panic!("two columns") };
    assert_eq!(nothing.finite, 0);
    assert!(nothing.mean.is_nan() && nothing.variance.is_nan() && nothing.kurtosis.is_nan());
    assert_eq!((constant.mean, constant.variance, constant.std), (3.0, 0.0, 0.0));
    assert!(constant.skewness.is_nan() && constant.kurtosis.is_nan());
    assert!(!nothing.is_lost() && !constant.is_lost());
}

#[test]
fn shifts_are_lower_medians_and_far_shifts_give_nan() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let values = [1e9 + 2.0, nan, inf, 1e9, inf, 7.1, 1e9 + 8.0, -inf, 7.1, 1e9 - 4.0, nan, 7.1];
    let rows = Rows::new(values.as_slice(), 4, 3, 3).unwrap();
    let near = ColumnMoments::near(&rows).unwrap();
    assert_eq!(near.shifts(), [1e9, 0.0, 7.1]);
    let found = near.summaries(&near.leaf(&rows).unwrap());
    assert_eq!((found[0].mean, found[0].variance), (1e9 + 1.5, 18.75));
    assert!((found[0].skewness, found[0].kurtosis).0.is_finite() && !found[0].is_lost());
    assert_eq!((found[2].mean, found[2].variance, found[2].is_lost()), (7.1, 0.0, false));
    let far = ColumnMoments::new(vec![0.0; 3]).unwrap();
    let found = far.summaries(&far.leaf(&rows).unwrap());
    assert!(found[0].is_lost() && found[0].variance.is_nan() && found[0].kurtosis.is_nan());
    assert!((found[0].mean - 1e9 - 1.5).abs() < 1e-6);
    // Great numbers have no sums of squares.
    let great = Rows::new([1e200, -1e200].as_slice(), 2, 1, 1).unwrap();
    let found = ColumnMoments::new(vec![0.0]).unwrap();
    let found = found.summaries(&found.leaf(&great).unwrap())[0];
    assert!(found.is_lost() && found.mean == 0.0 && found.variance.is_nan());
    // Nor have small ones: at each scale it is told or rightly known.
    let of = |values: &[f64]| {
        let about_0 = ColumnMoments::new(vec![0.0]).unwrap();
        let rows = Rows::new(values, values.len(), 1, 1).unwrap();
        about_0.summaries(&about_0.leaf(&rows).unwrap())[0]
    };
    let shape = [-1.0, 0.5, 3.0, -2.0, 0.0, 1.0, 7.0];
    let right = of(&shape);
    let mut known = [0; 3];
    for scale in 0..=307 {
        let scale = 10.0_f64.powi(-scale);
        let found = of(&shape.map(|value| value * scale));
        let square = found.variance / scale / scale;
        for (at, found, right) in [
            (0, square, right.variance),
            (1, found.skewness, right.skewness),
            (2, found.kurtosis, right.kurtosis),
        ] {
            assert!(found.is_nan() || (found / right - 1.0).abs() < 1e-9, "{scale}: {at}, {found}");
            known[at] += i32::from(!found.is_nan());
        }
        assert_eq!(found.std.is_nan(), found.variance.is_nan());
        assert_eq!(found.is_lost(), found.kurtosis.is_nan());
    }
    assert_eq!(known, [148, 99, 75]);
    // Symmetric numbers have no third moment, which is no loss.
    assert_eq!(of(&[-1.0, 0.0, 1.0]).skewness, 0.0);
    let none = Rows::new([0.0; 0].as_slice(), 0, 2, 2).unwrap();
    assert_eq!(ColumnMoments::near(&none).unwrap().shifts(), [0.0, 0.0]);
}

/// Within four standard errors, from none to more than there are registers.
#[test]
fn distinct_estimates_are_within_the_theoretical_error() {
    for precision in [4, 9, Distinct::PRECISION] {
        let distinct = Distinct::new(1, precision).unwrap();
        let error = 1.04 / f64::powi(2.0, precision as i32).sqrt();
        for count in [0_u32, 1, 7, 100, 3000, 50_000, 400_000] {
            // Each of them twice.
            let values: Vec<f64> = (0..2 * count).map(|n| f64::from(n % count) * 0.1).collect();
            let rows = Rows::new(values.as_slice(), values.len(), 1, 1).unwrap();
            let found = distinct.estimates(&distinct.leaf(&rows).unwrap())[0];
            let expected = f64::from(count);
            let near = (found - expected).abs() <= 4.0 * error * expected;
            assert!(near, "precision {precision}: {found} for {count}");
        }
    }
}

/// One bin may hold another's count in an example where both are equal; here none are.
#[test]
fn every_count_of_a_column_is_its_own() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let values = [-1.0, 0.5, 0.5, 5.0, 5.0, inf, nan, nan, nan, nan, 0.0, 0.0, 0.0, 0.0, 0.0];
    let nulls: Vec<bool> = (0..values.len()).map(|row| row >= 10).collect();
    let rows =
        Rows::new(values.as_slice(), values.len(), 1, 1).unwrap().with_nulls(&nulls).unwrap();
    let histogram = Histogram::new(vec![vec![0.0, 1.0]]).unwrap();
    let counts = histogram.leaf(&rows).unwrap();
    let column = histogram.columns(&counts).next().unwrap();
    assert_eq!((column.below, column.between, column.above), (1, &[2][..], 3));
    assert_eq!((column.nans, column.nulls), (4, 5));
    assert_eq!(histogram.edges(), [[0.0, 1.0]]);
    assert_eq!(ExponentHistogram::new(7).unwrap().column_count(), 7);
    assert_eq!(Distinct::new(7, 4).unwrap().column_count(), 7);
    assert_eq!(TopRows::new(7, 5, 1, End::Largest).unwrap().column(), 5);
}

fn summary_of(shift: f64, values: &[f64]) -> ColumnSummary {
    let moments = ColumnMoments::new(vec![shift]).unwrap();
    let rows = Rows::new(values, values.len(), 1, 1).unwrap();
    moments.summaries(&moments.leaf(&rows).unwrap())[0]
}

#[test]
fn a_summary_of_one_number_or_of_equal_ones_is_known_beside_infinities() {
    let inf = f64::INFINITY;
    let one = summary_of(0.0, &[5.0]);
    assert_eq!((one.finite, one.mean, one.variance, one.is_lost()), (1, 5.0, 0.0, false));
    // Beside an infinity, one number far from the shift has no digits of its variance.
    let far = summary_of(0.0, &[1e9, inf]);
    assert_eq!((far.finite, far.mean), (1, 1e9));
    assert!(far.variance.is_nan() && far.is_lost());
    for values in [[-inf, 5.0, 5.0], [inf, 5.0, 5.0]] {
        let equal = summary_of(5.0, &values);
        assert_eq!((equal.mean, equal.variance, equal.is_lost()), (5.0, 0.0, false));
    }
    let spread = summary_of(2.0, &[inf, 1.0, 2.0, 3.0]);
    assert!((spread.variance - 2.0 / 3.0).abs() < 1e-12);
    // These differ, though their squares are too small for sums.
    let small = summary_of(0.0, &[-1e-200, 1e-200]);
    assert!(small.variance.is_nan() && small.is_lost());
    // The sums about a shift so far away keep the digits of the mean alone.
    let values: Vec<f64> = (0..1000).map(|n| 1e7 + f64::from(n % 5)).collect();
    let lost = summary_of(0.0, &values);
    assert!((lost.mean - 1e7 - 2.0).abs() < 1e-6);
    assert!(lost.skewness.is_nan() && lost.kurtosis.is_nan() && lost.is_lost());
}

#[test]
fn a_shift_is_the_lower_median_of_any_count_of_numbers() {
    for count in 1..=9_u32 {
        let values: Vec<f64> = (0..count).map(|n| f64::from(n * 4 % count.max(5))).collect();
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let rows = Rows::new(values.as_slice(), values.len(), 1, 1).unwrap();
        let median = sorted[(sorted.len() - 1) / 2];
        assert_eq!(ColumnMoments::near(&rows).unwrap().shifts(), [median], "{values:?}");
    }
}

/// The number whose hash is `word`: the hash is a bijection.
fn preimage(mut word: u64) -> f64 {
    // The inverses of SplitMix64's factors, and of its shifted exclusive ors.
    let unshifted = |word: u64, by: u32| word ^ word >> by ^ word >> (2 * by);
    word = unshifted(word, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
    word = unshifted(word, 27).wrapping_mul(0x96de_1b17_3f11_9089);
    f64::from_bits(unshifted(word, 30).wrapping_sub(0x9e37_79b9_7f4a_7c15))
}

/// A register is one more than the zeros between the index and the next one, up to all of them.
#[test]
fn a_register_counts_every_number_of_zeros() {
    for precision in [4, 14, 18] {
        let distinct = Distinct::new(1, precision).unwrap();
        let index = 5_u64;
        let mut seen = 0;
        for zeros in 0..=64 - precision {
            let rest = if zeros == 64 - precision { 0 } else { 1 << (63 - precision - zeros) };
            let value = preimage(index << (64 - precision) | rest);
            // -0 and the many NaNs have the hashes of others.
            if value.is_nan() || value == 0.0 {
                continue;
            }
            let leaf = distinct.leaf(&Rows::new([value].as_slice(), 1, 1, 1).unwrap()).unwrap();
            let mut expected = vec![0; 1 << precision];
            expected[index as usize] = zeros as u8 + 1;
            assert_eq!(distinct.encode(&leaf), expected, "{zeros} zeros");
            seen += 1;
        }
        assert!(seen > 40);
    }
}

/// Ertl's formula with its two series written out, for registers that rows hardly ever have.
#[test]
fn estimates_are_those_of_the_formula() {
    let distinct = Distinct::new(1, 4).unwrap();
    // tau(x) = (1 - x - sum over k of (1 - x^(1 / 2^k))^2 / 2^k) / 3
    let tau = |x: f64| {
        let term = |k: i32| (1.0 - x.powf(0.5_f64.powi(k))).powi(2) * 0.5_f64.powi(k);
        (1.0 - x - (1..100).map(term).sum::<f64>()) / 3.0
    };
    let mut random = Stream::new(3, Purpose::Demo, [10, 0, 0]);
    for saturated in 1..16 {
        let registers: Vec<u8> = (0..16)
            .map(|at| if at < saturated { 61 } else { 1 + random.below(60) as u8 })
            .collect();
        let is_it = |value: u8| registers.iter().map(move |&register| u8::from(register == value));
        let count = |value: u8| is_it(value).map(f64::from).sum::<f64>();
        let full = 16.0 * tau(1.0 - count(61) / 16.0);
        let terms = (1..=60).map(|value| count(value) * 0.5_f64.powi(i32::from(value)));
        let z = terms.sum::<f64>() + full * 0.5_f64.powi(60);
        let expected = 16.0 * 16.0 / (2.0 * std::f64::consts::LN_2 * z);
        let found = distinct.estimates(&distinct.decode(&registers).unwrap())[0];
        assert!((found / expected - 1.0).abs() < 1e-9, "{saturated}: {found} {expected}");
    }
}

#[test]
fn a_chunk_without_rows_has_nothing() {
    fn is_neutral<S: for<'a> Statistic<Chunk<'a> = Rows<'a>>>(statistic: &S) {
        let one = statistic.leaf(&Rows::new(&[1.0, 2.0][..], 1, 2, 2).unwrap()).unwrap();
        let mut none = statistic.leaf(&Rows::new(&[0.0; 0][..], 0, 2, 2).unwrap()).unwrap();
        none.merge(&one);
        assert!(none.same_bits(&one));
    }
    is_neutral(&ExponentHistogram::new(2).unwrap());
    is_neutral(&Histogram::of_all(2, &[1.5]).unwrap());
    is_neutral(&Distinct::new(2, 4).unwrap());
    is_neutral(&Exact::new(2).unwrap());
}

#[test]
fn partials_take_the_bytes_that_are_told() {
    fn is_told<S: for<'a> Statistic<Chunk<'a> = Rows<'a>>>(statistic: &S) {
        let one = statistic.leaf(&Rows::new(&[1.0, 2.0][..], 1, 2, 2).unwrap()).unwrap();
        assert_eq!(statistic.partial_bytes(), statistic.encode(&one).len());
    }
    is_told(&ExponentHistogram::new(2).unwrap());
    is_told(&Histogram::of_all(2, &[0.5, 1.5]).unwrap());
    let distinct = Distinct::new(2, 4).unwrap();
    assert_eq!(distinct.precision(), 4);
    is_told(&distinct);
    let at = vec!["0.5".parse().unwrap()];
    is_told(&Quantiles::new(2, KeyWidth::Wide, at).unwrap());
}

fn differ<S: Statistic>(statistic: &S, one: &S::Chunk<'_>, other: &S::Chunk<'_>) {
    let (one, other) = (statistic.leaf(one).unwrap(), statistic.leaf(other).unwrap());
    assert!(!one.same_bits(&other) && one.same_bits(&one));
}

#[test]
fn p6_partials_of_other_bits_are_told_apart() {
    let rows = |values: &'static [f64]| Rows::new(values, values.len(), 1, 1).unwrap();
    let (one, other) = (rows(&[1.0, 2.0]), rows(&[1.0, 3.0]));
    differ(&ColumnMoments::new(vec![0.0]).unwrap(), &one, &other);
    differ(&Exact::new(1).unwrap(), &one, &other);
    differ(&Histogram::new(vec![vec![2.5]]).unwrap(), &one, &other);
    differ(&ExponentHistogram::new(1).unwrap(), &one, &rows(&[1.0, 4.0]));
    differ(&Distinct::new(1, 14).unwrap(), &one, &other);
    let at = vec!["0.5".parse().unwrap()];
    differ(&Quantiles::new(1, KeyWidth::Wide, at).unwrap(), &one, &rows(&[1.0, 2.25]));
    let top = TopRows::new(1, 0, 2, End::Largest).unwrap();
    let numbered = |rows| NumberedRows { first: 0, rows };
    differ(&top, &numbered(one), &numbered(other));
    let sides = |values: &'static [f64]| Chunk::of(Rows::new(values, 1, 2, 2).unwrap());
    differ(&Gram::new(2).unwrap(), &sides(&[1.0, 2.0]), &sides(&[1.0, 3.0]));
    // The same sums of another number of rows.
    let moments = ColumnMoments::new(vec![0.0]).unwrap();
    let with_count = |count: u64| {
        let words = [count, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        moments.decode(&words.map(u64::to_le_bytes).concat()).unwrap()
    };
    assert!(!with_count(5).same_bits(&with_count(6)));
}

#[test]
fn p6_each_column_of_a_partial_has_the_counts_of_its_rows() {
    let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let histogram = Histogram::new(vec![vec![0.0]; 2]).unwrap();
    let exponents = ExponentHistogram::new(2).unwrap();
    let bins = exponents.partial_bytes() / 16;
    for [first, second] in [[3, 3], [3, 2], [2, 3]] {
        let counts = histogram.decode(&bytes(&[first, 0, 0, 0, second, 0, 0, 0])).unwrap();
        assert_eq!(histogram.fits_rows(&counts, 3), first == second);
        let mut words = vec![0; 2 * bins];
        (words[5], words[bins + 5]) = (first, second);
        let counts = exponents.decode(&bytes(&words)).unwrap();
        assert_eq!(exponents.fits_rows(&counts, 3), first == second);
    }
}

#[test]
fn exact_sums_of_the_greatest_and_the_least_numbers_keep_every_bit() {
    // The fourth has all bits, where a place of 64 bits holds the fewest such numbers between two carries.
    let all_bits = f64::from_bits(0x400f_ffff_ffff_ffff);
    // Of its square, the lower half has nearly all bits, where a place holds the fewest of those.
    let all_of_square = f64::from_bits(0x4004_bb63_9c98_c0b5);
    let cases = [
        (f64::MAX, 2000),
        (f64::from_bits(1), 3),
        (-1.5, 1025),
        (all_bits, 5000),
        (all_of_square, 5000),
    ];
    for (value, count) in cases.into_iter().flat_map(|(of, count)| [(of, count), (-of, count)]) {
        let values = vec![value; count];
        let exact = Exact::new(1).unwrap();
        let sums = exact.leaf(&Rows::new(values.as_slice(), count, 1, 1).unwrap()).unwrap();
        let expected = twin::exact(&[values.iter().map(|value| Some(*value)).collect()]);
        assert_eq!(exact.encode(&sums), expected, "{value:e}");
    }
}

#[test]
fn p6_impossible_exact_sums_are_rejected() {
    let exact = Exact::new(2).unwrap();
    let values = [f64::MAX, 1.0, -f64::MAX, 2.0, f64::MAX, f64::NAN];
    let good = exact.encode(&exact.leaf(&Rows::new(values.as_slice(), 3, 2, 2).unwrap()).unwrap());
    let (counts, sum) = (5 * 8, 272);
    let finite = 4 * 8;
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        exact.decode(&bytes).map(|sums| exact.fits_rows(&sums, 3))
    };
    assert!(changed(0, 0).unwrap(), "nothing is changed");
    let impossible = [
        // No finite number, but sums; a sum without squares is below.
        (finite, 0),
        // Greater than three of the greatest numbers, and less than minus three of them.
        (counts + sum - 9, 1),
        (counts + sum - 1, 128),
        (counts + sum + 536 - 1, 128),
        (counts + sum + 536 - 8, 1),
    ];
    for (at, byte) in impossible {
        let error = changed(at, byte).unwrap_err().to_string();
        assert!(error.contains("the exact sums of column 0 are impossible for"), "{at}: {error}");
    }
    // Three numbers have a sum of at most 2,100 bits, and squares of at most 4,198.
    assert!(changed(counts + 262, 0x0b).is_ok());
    assert!(changed(counts + 262, 0x13).is_err());
    assert!(changed(counts + sum + 524, 0x6f).is_err());
    let error = changed(good.len() / 2 + finite, 0).unwrap_err().to_string();
    assert!(error.contains("column 1 are impossible for 0 finite numbers"), "{error}");
    for (byte, why) in [(0, "a sum of numbers whose squares add up to 0"), (255, "squares of -1")] {
        let mut bytes = good.clone();
        bytes[counts + sum..counts + sum + 536].fill(byte);
        assert!(exact.decode(&bytes).is_err(), "{why}");
    }
    // Of the second column, a NaN less.
    assert!(!changed(good.len() / 2 + 8, 0).unwrap());
    assert!(exact.decode(&good[1..]).is_err());
}

proptest! {
    #[test]
    fn p1_exact_sums_are_rounded_once(cells in any_cells()) {
        let exact = Exact::new(cells.columns).unwrap();
        let summaries = exact.summaries(&exact.leaf(&cells.part(0..cells.rows)).unwrap());
        prop_assert_eq!(summaries.len(), cells.columns);
        for (column, found) in columns(&cells).iter().zip(summaries) {
            let count = |is: fn(f64) -> bool| column.iter().flatten().filter(|x| is(**x)).count() as u64;
            prop_assert_eq!(found.nulls, column.iter().filter(|x| x.is_none()).count() as u64);
            prop_assert_eq!(found.nans, count(f64::is_nan));
            prop_assert_eq!(found.negative_infinities, count(|x| x == f64::NEG_INFINITY));
            prop_assert_eq!(found.positive_infinities, count(|x| x == f64::INFINITY));
            prop_assert_eq!(found.finite, count(f64::is_finite));
            let (mut sum, mut squares) = (crate::exact::Exact::zero(), crate::exact::Exact::zero());
            for &x in column.iter().flatten().filter(|x| x.is_finite()) {
                sum.add(x);
                squares.add_product(x, x);
            }
            prop_assert_eq!(found.sum.to_bits(), sum.rounded().to_bits());
            prop_assert_eq!(found.sum_of_squares.to_bits(), squares.rounded().to_bits());
            prop_assert_eq!(found.mean.is_nan(), found.finite == 0);
        }
    }

    /// Of whole numbers, whose quotients the processor rounds once.
    #[test]
    fn p1_exact_means_and_variances_are_rounded_once(
        numbers in prop::collection::vec(-1000_i64..1000, 1..50),
    ) {
        let found = exact_summary(&numbers.iter().map(|x| *x as f64).collect::<Vec<_>>());
        let (count, sum) = (numbers.len() as i64, numbers.iter().sum::<i64>());
        let spread = count * numbers.iter().map(|x| x * x).sum::<i64>() - sum * sum;
        prop_assert_eq!(found.mean.to_bits(), (sum as f64 / count as f64).to_bits());
        let variance = spread as f64 / (count * count) as f64;
        prop_assert_eq!(found.variance.to_bits(), variance.to_bits());
        prop_assert!((found.std - variance.sqrt()).abs() <= f64::EPSILON * found.std);
    }
}

fn exact_summary(values: &[f64]) -> ExactSummary {
    let exact = Exact::new(1).unwrap();
    exact.summaries(&exact.leaf(&Rows::new(values, values.len(), 1, 1).unwrap()).unwrap())[0]
}

#[test]
fn exact_summaries_of_sums_beyond_all_floats_and_of_no_numbers() {
    let (max, inf) = (f64::MAX, f64::INFINITY);
    let equal = exact_summary(&[-max; 3]);
    assert_eq!((equal.sum, equal.mean, equal.sum_of_squares), (-inf, -max, inf));
    assert_eq!((equal.variance, equal.std), (0.0, 0.0));
    let far = exact_summary(&[max, -max]);
    assert_eq!((far.sum, far.mean, far.variance, far.std), (0.0, 0.0, inf, max));
    let none = exact_summary(&[inf, f64::NAN]);
    assert_eq!((none.finite, none.sum, none.sum_of_squares), (0, 0.0, 0.0));
    assert!(none.mean.is_nan() && none.variance.is_nan() && none.std.is_nan());
    assert_eq!(Exact::new(7).unwrap().column_count(), 7);
    assert_eq!(Exact::new(0).err().unwrap().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn one_shift_is_that_of_all_columns() {
    let about = |shifts: &[f64], columns| ColumnMoments::about(shifts, columns);
    assert_eq!(about(&[2.5], 3).unwrap().shifts(), [2.5; 3]);
    assert_eq!(about(&[2.5], 1).unwrap().shifts(), [2.5]);
    assert_eq!(about(&[1.0, 2.0], 2).unwrap().shifts(), [1.0, 2.0]);
    for (shifts, columns) in [(&[1.0, 2.0][..], 3), (&[], 3), (&[], 0)] {
        let error = about(shifts, columns).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    let error = about(&[1.0, 2.0], 3).err().unwrap().to_string();
    assert!(error.contains("one for each of 3 columns, found 2"), "{error}");
}
