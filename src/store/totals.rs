//! Running totals of columns over the children of a relation, for means over windows.

use super::metadata::{AggregateMetadata, AggregateValue, ColumnMetadata};
use super::table::Cell;
use crate::container::{Container, Section};
use crate::error::Result;

/// The running totals of one column over all children of a relation, in the relation's order.
pub(super) struct Totals {
    /// The column's place in the child table.
    pub column: u32,
    sums: Section,
    /// The numbers of values that are not NULL; none if no value of the column is.
    counts: Option<Section>,
}

/// The sum of some children's values of one column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// The sum of [`fixed_point`] of the values.
    pub sum: i64,
    /// The number of values that are not NULL.
    pub count: u32,
}

/// The denominator of [`fixed_point`].
const ONE: f64 = (1 << 20) as f64;
/// The largest magnitude of a value in a sum: then 2^32 of them stay below 2^63.
const LARGEST: f64 = 1000.0;

/// Returns a cell's value in units of 2^-20: the z-score of a number, at most 1000 either way, or 0
/// or 1 for a boolean. Sums of these are exact in any order. `None` for NULL and for other cells.
#[must_use]
pub fn fixed_point(cell: Cell) -> Option<i32> {
    match cell {
        Cell::Numerical(score) => {
            let score = f64::from(score).clamp(-LARGEST, LARGEST);
            Some((score * ONE).round_ties_even() as i32)
        }
        Cell::Boolean(truth) => Some(if truth { ONE as i32 } else { 0 }),
        _ => None,
    }
}

impl Total {
    /// Returns the mean; none without values.
    #[must_use]
    pub fn mean(self) -> Option<f32> {
        (self.count > 0).then(|| (self.sum as f64 / (f64::from(self.count) * ONE)) as f32)
    }
}

/// Returns the columns whose means are aggregates of `relation`, in ascending order.
pub(super) fn summed_columns(aggregates: &[AggregateMetadata], relation: usize) -> Vec<u32> {
    let of_relation = aggregates.iter().filter(|a| a.relation as usize == relation);
    let mut columns: Vec<u32> = of_relation
        .filter_map(|aggregate| match aggregate.value {
            AggregateValue::Mean { column } => Some(column),
            AggregateValue::Count | AggregateValue::SinceLast => None,
        })
        .collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// Returns the names of the sections with the sums and counts of a column.
pub(crate) fn section_names(relation: usize, column: u32) -> (String, String) {
    (format!("{relation}.sums.{column}"), format!("{relation}.counts.{column}"))
}

impl Totals {
    /// Opens the totals of a column of the child table of relation `relation`, with `edges` children.
    pub(super) fn open(
        container: &Container,
        (relation, edges): (usize, u32),
        (column, metadata): (u32, &ColumnMetadata),
    ) -> Result<Self> {
        let entries = u64::from(edges) + 1;
        let (sums, counts) = section_names(relation, column);
        Ok(Self {
            column,
            sums: container.section(&sums, entries * 8)?,
            counts: match metadata.null_count {
                0 => None,
                _ => Some(container.section(&counts, entries * 4)?),
            },
        })
    }

    /// Returns the total of the children from place `from` to before `to`, among those of all parents.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub(super) fn between(&self, from: usize, to: usize) -> Result<Total> {
        let sum = |place| self.sums.value::<i64>(place);
        let count = match &self.counts {
            None => to.saturating_sub(from) as u32,
            Some(counts) => {
                let (first, last): (u32, u32) = (counts.value(from)?, counts.value(to)?);
                last.checked_sub(first).ok_or_else(|| {
                    counts.corrupt("expected running counts that never fall, found one that does")
                })?
            }
        };
        let sum = sum(to)?.checked_sub(sum(from)?).ok_or_else(|| {
            self.sums.corrupt(
                "expected running sums that differ by less than 2^63, found two that do not",
            )
        })?;
        Ok(Total { sum, count })
    }
}

#[cfg(test)]
mod tests {
    use super::{Total, fixed_point};
    use crate::store::Cell;

    #[test]
    fn values_are_in_units_of_2_to_the_minus_20() {
        let of = |score| fixed_point(Cell::Numerical(score));
        assert_eq!(of(1.0), Some(1 << 20));
        assert_eq!(of(-0.5), Some(-(1 << 19)));
        assert_eq!(of(f32::MIN), Some(-1000 * (1 << 20)));
        assert_eq!(of(1e-9), Some(0));
        assert_eq!(fixed_point(Cell::Boolean(true)), Some(1 << 20));
        assert_eq!((fixed_point(Cell::Null), fixed_point(Cell::Text(1))), (None, None));
    }

    #[test]
    fn means_are_those_of_the_values() {
        assert_eq!(Total { sum: 3 << 20, count: 2 }.mean(), Some(1.5));
        assert_eq!(Total::default().mean(), None);
    }
}
