//! Histograms of the columns with given edges.

use std::ops::Range;

use crate::error::{Context, Error, Result};

use super::counts::{Counts, add_one, check_counts};
use crate::environment::in_default_environment;
use crate::fold::rows::Rows;
use crate::fold::statistic::{Statistic, same_count};

/// The bins of a column that are not between its edges: below, above, NaN, NULL.
const OUTSIDE: usize = 4;

/// A histogram of each column with given edges.
///
/// With edges e0 < e1 < .. a number x, finite or infinite, is below (x < e0), between two edges (e0
/// <= x < e1), or above (the last edge <= x). NaN and NULL have counts of their own.
///
/// # Determinism
/// Merging commutes: the counts depend on the set of rows alone, not on their order or the chunk
/// size.
pub struct Histogram {
    /// The edges of each column.
    edges: Vec<Vec<f64>>,
    /// The first bin of each column.
    starts: Vec<usize>,
    count: usize,
}

/// The counts of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnCounts<'a> {
    /// Numbers below the first edge.
    pub below: u64,
    /// Numbers from each edge to the next, exclusive.
    pub between: &'a [u64],
    /// Numbers from the last edge on.
    pub above: u64,
    /// NaNs.
    pub nans: u64,
    /// NULLs.
    pub nulls: u64,
}

impl Histogram {
    /// Returns the statistic with these edges for each column, in increasing order.
    ///
    /// # Errors
    /// `InvalidArgument` when a column has no edges, or edges that are not finite or do not
    /// increase; `LimitExceeded` for too many edges.
    pub fn new(edges: Vec<Vec<f64>>) -> Result<Self> {
        for (column, edges) in edges.iter().enumerate() {
            check_edges(edges).context(|| format!("the edges of column {column}"))?;
        }
        let bins = |edges: &Vec<f64>| edges.len() - 1 + OUTSIDE;
        let count = check_counts(edges.iter().map(bins))?;
        let starts = edges.iter().scan(0, |next, edges| {
            let start = *next;
            *next += bins(edges);
            Some(start)
        });
        Ok(Self { starts: starts.collect(), edges, count })
    }

    /// Returns the statistic with the same edges for all of `columns` columns.
    ///
    /// # Errors
    /// As [`Histogram::new`].
    pub fn of_all(columns: usize, edges: &[f64]) -> Result<Self> {
        // Before room is made for them.
        check_counts([columns.saturating_mul(edges.len() + OUTSIDE - 1)].into_iter())?;
        Self::new(vec![edges.to_vec(); columns])
    }

    /// Returns the edges of each column.
    #[must_use]
    pub fn edges(&self) -> &[Vec<f64>] {
        &self.edges
    }

    /// Returns the counts of each column.
    pub fn columns<'a>(&self, counts: &'a Counts) -> impl Iterator<Item = ColumnCounts<'a>> {
        self.starts.iter().zip(&self.edges).map(|(&start, edges)| {
            let (below, rest) = (counts.values()[start], &counts.values()[start + 1..]);
            let (between, rest) = rest.split_at(edges.len() - 1);
            ColumnCounts { below, between, above: rest[0], nans: rest[1], nulls: rest[2] }
        })
    }

    /// Returns the bins of each column.
    fn bins(&self) -> impl Iterator<Item = Range<usize>> {
        let ends = self.starts[1..].iter().chain([&self.count]);
        self.starts.iter().zip(ends).map(|(start, end)| *start..*end)
    }
}

/// Returns the place of a number, or of NaN, among the bins of its column.
#[inline]
fn place(edges: &[f64], value: f64) -> usize {
    if value.is_nan() {
        return edges.len() + 1;
    }
    edges.partition_point(|edge| *edge <= value)
}

fn check_edges(edges: &[f64]) -> Result<()> {
    if edges.is_empty() {
        return Err(Error::invalid("expected at least one edge, found none"));
    }
    if let Some(edge) = edges.iter().find(|edge| !edge.is_finite()) {
        return Err(Error::invalid(format!("expected finite edges, found {edge}")));
    }
    let pairs = edges.windows(2).find(|pair| pair[0] >= pair[1]);
    match pairs {
        None => Ok(()),
        Some(pair) => Err(Error::invalid(format!(
            "expected increasing edges, found {} after {}",
            pair[1], pair[0]
        ))),
    }
}

impl Statistic for Histogram {
    type Chunk<'a> = Rows<'a>;
    type Partial = Counts;
    type Incoming<'a> = Counts;

    fn leaf(&self, rows: &Rows<'_>) -> Result<Counts> {
        same_count("columns", self.edges.len(), rows.columns())?;
        let mut counts = Counts::zeros(self.count)?;
        in_default_environment(|| {
            rows.blocks(|block| {
                for (column, (edges, bins)) in self.edges.iter().zip(self.bins()).enumerate() {
                    let bins = &mut counts.values_mut()[bins];
                    for value in block.column(column) {
                        add_one(&mut bins[place(edges, value)]);
                    }
                }
            })
        })?;
        // A block has NaN in place of NULL.
        let nulls = rows.null_counts()?;
        for ((edges, bins), nulls) in self.edges.iter().zip(self.bins()).zip(nulls) {
            let bins = &mut counts.values_mut()[bins];
            bins[edges.len() + 2] = nulls;
            bins[edges.len() + 1] -= nulls;
        }
        Ok(counts)
    }

    fn partial_bytes(&self) -> usize {
        self.count * size_of::<u64>()
    }

    fn write(&self, partial: &Counts, bytes: &mut Vec<u8>) {
        partial.write(bytes);
    }

    fn fits_rows(&self, partial: &Counts, rows: u64) -> bool {
        self.bins().all(|bins| partial.of_bins(bins) == rows)
    }

    fn read(&self, bytes: &[u8]) -> Result<Counts> {
        Counts::decode(bytes, self.count)
    }
}
