//! The statistics of columns: the bytes of the twin whatever the chunks, the order and the threads.

use headwater::fold::columns::NumberedRows;
use headwater::fold::statistic::leaves;
use headwater::fold::{
    ColumnMoments, Distinct, End, ExponentHistogram, Histogram, Node, Partial, Rows, Statistic,
    TopRows, Tree,
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
fn by_tree<S: Statistic>(statistic: &S, leaves: &[S::Partial], seed: u64) -> Vec<u8> {
    let mut tree = Tree::new(leaves.len() as u64);
    for chunk in order(leaves.len(), seed) {
        let leaf = statistic.decode(&statistic.encode(&leaves[chunk])).unwrap();
        assert!(leaf.same_bits(&leaves[chunk]));
        tree.insert(Node::leaf(chunk as u64).unwrap(), leaf).unwrap();
    }
    statistic.encode(&tree.finish().unwrap().unwrap())
}

/// The bytes of the whole, by no tree at all: any two of what is left are merged, either way round.
fn anyhow<S: Statistic>(statistic: &S, leaves: &[S::Partial], seed: u64) -> Vec<u8> {
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

fn columns(cells: &Cells) -> Vec<Vec<Option<f64>>> {
    (0..cells.columns).map(|column| cells.column(column)).collect()
}

/// A statistic that takes rows as they are, over the chunks of some cells, by two threads.
fn leaves_of<S>(statistic: &S, cells: &Cells, chunk_rows: usize) -> Vec<S::Partial>
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
