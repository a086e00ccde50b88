//! The rows with the largest or smallest numbers in one column.

use std::cmp::Ordering;

use crate::bytes::copied;
use crate::error::{Error, Result};

use super::words;
use crate::environment::in_default_environment;
use crate::fold::rows::Rows;
use crate::fold::statistic::{Partial, Statistic, TryClone, same_count};

/// The most rows that a statistic keeps.
const KEPT_MAX: usize = 1 << 20;

/// The end of a column's order from which rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The smallest numbers.
    Smallest,
    /// The largest numbers.
    Largest,
}

/// The rows of a chunk, with the number of the first row in the whole matrix.
#[derive(Clone, Copy, Debug)]
pub struct NumberedRows<'a> {
    /// The number of the first row.
    pub first: u64,
    /// The rows.
    pub rows: Rows<'a>,
}

/// The rows with the largest or smallest numbers in one column.
///
/// Numbers are in their total order: -0 below +0, infinities at the ends. Of rows with equal
/// numbers, the row with the lower row number comes first. Rows with NaN or NULL are left out.
///
/// # Determinism
/// Merging commutes: the result depends on the set of rows alone, not on the chunk size.
pub struct TopRows {
    columns: usize,
    column: usize,
    kept: usize,
    end: End,
}

/// One row of a ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankedRow {
    /// Its number in the column.
    pub value: f64,
    /// Its row number in the whole matrix.
    pub row: u64,
}

/// The kept rows, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    rows: Vec<RankedRow>,
    kept: usize,
    end: End,
}

impl TopRows {
    /// Returns the statistic that keeps the first `kept` rows from one `end` of `column`, one of
    /// `columns`.
    ///
    /// # Errors
    /// `InvalidArgument` for a column outside the matrix or 0 rows to keep, `LimitExceeded` for too
    /// many rows to keep.
    pub fn new(columns: usize, column: usize, kept: usize, end: End) -> Result<Self> {
        if column >= columns {
            return Err(Error::invalid(format!(
                "expected a column number below {columns}, found {column}; columns count from 0"
            )));
        }
        match kept {
            0 => Err(Error::invalid("expected at least one row to keep, found 0")),
            1..=KEPT_MAX => Ok(Self { columns, column, kept, end }),
            _ => {
                Err(Error::limit(format!("expected at most {KEPT_MAX} rows to keep, found {kept}")))
            }
        }
    }

    /// Returns the column.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }

    /// Returns the number of rows that are kept.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Returns the end from which rows are kept.
    #[must_use]
    pub fn end(&self) -> End {
        self.end
    }

    fn ranking(&self, rows: Vec<RankedRow>) -> Ranking {
        Ranking { rows, kept: self.kept, end: self.end }
    }
}

impl Ranking {
    /// Returns the rows, in order.
    #[must_use]
    pub fn rows(&self) -> &[RankedRow] {
        &self.rows
    }

    /// Sorts the rows, and drops those after the last to keep.
    fn sort_and_truncate(&mut self) {
        let end = self.end;
        self.rows.sort_unstable_by(|a, b| order(end, a, b));
        self.rows.truncate(self.kept);
    }
}

/// Compares two rows by their rank.
fn order(end: End, a: &RankedRow, b: &RankedRow) -> Ordering {
    let by_value = a.value.total_cmp(&b.value);
    let by_value = if end == End::Largest { by_value.reverse() } else { by_value };
    by_value.then(a.row.cmp(&b.row))
}

impl Partial for Ranking {
    fn merge(&mut self, right: &Self) {
        let same = (self.kept, self.end) == (right.kept, right.end);
        assert!(same, "partials of one statistic keep the same rows");
        self.rows.extend(&right.rows);
        self.sort_and_truncate();
    }

    fn same_bits(&self, other: &Self) -> bool {
        let bits = |row: &RankedRow| (row.value.to_bits(), row.row);
        self.rows.iter().map(bits).eq(other.rows.iter().map(bits))
    }
}

impl TryClone for Ranking {
    fn try_clone(&self) -> Result<Self> {
        Ok(Self { rows: copied(&self.rows)?, ..*self })
    }
}

impl Statistic for TopRows {
    type Chunk<'a> = NumberedRows<'a>;
    type Partial = Ranking;
    type Incoming<'a> = Ranking;

    fn leaf(&self, chunk: &NumberedRows<'_>) -> Result<Ranking> {
        let NumberedRows { first, rows } = *chunk;
        same_count("columns", self.columns, rows.columns())?;
        if first.checked_add(rows.count() as u64).is_none() {
            return Err(Error::limit(
                "expected row numbers of at most 2^64 - 1, found a chunk that ends after them",
            ));
        }
        let mut ranking = self.ranking(Vec::new());
        in_default_environment(|| {
            rows.each(self.column..self.column + 1, |row, _, value| {
                let Some(value) = value.filter(|value| !value.is_nan()) else { return };
                // Sorting once per `kept` new rows makes the cost per row small.
                if ranking.rows.len() >= 2 * self.kept {
                    ranking.sort_and_truncate();
                }
                ranking.rows.push(RankedRow { value, row: first + row as u64 });
            });
        });
        ranking.sort_and_truncate();
        Ok(ranking)
    }

    fn partial_bytes(&self) -> usize {
        (1 + 2 * self.kept) * size_of::<u64>()
    }

    fn write(&self, partial: &Ranking, bytes: &mut Vec<u8>) {
        let rows = partial.rows.iter().flat_map(|row| [row.value.to_bits(), row.row]);
        let unused = std::iter::repeat_n(0, 2 * (self.kept - partial.rows.len()));
        let all = std::iter::once(partial.rows.len() as u64).chain(rows).chain(unused);
        words::write(all, bytes);
    }

    fn read(&self, bytes: &[u8]) -> Result<Ranking> {
        let mut words = words::decode(bytes, 1 + 2 * self.kept, "ranked rows")?;
        let count = words.next().unwrap_or_default();
        if count > self.kept as u64 {
            let kept = self.kept;
            return Err(Error::corrupt(format!(
                "expected at most {kept} ranked rows, found {count}"
            )));
        }
        let mut pair = || Some((f64::from_bits(words.next()?), words.next()?));
        let mut rows = Vec::with_capacity(count as usize);
        for _ in 0..count {
            rows.extend(pair().map(|(value, row)| RankedRow { value, row }));
        }
        let in_order = rows.windows(2).all(|two| order(self.end, &two[0], &two[1]).is_lt());
        if !in_order || rows.iter().any(|row| row.value.is_nan()) || words.any(|word| word != 0) {
            return Err(Error::corrupt(
                "expected ranked rows in order, without NaN and padded with zeros",
            ));
        }
        Ok(self.ranking(rows))
    }
}
