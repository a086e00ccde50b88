//! The aggregates of a row's children as cells: numbers of children and means of their columns over
//! windows that end at the observation time.
//!
//! A relation's children are sorted by time, so a window is a range of places, found by two binary
//! searches; the store's running totals give the sum of a range from its two ends.
//!
//! The seed row is no part of any aggregate, because its cells may be the target. And where a mean is one
//! of targets, or of another column that the seed hides, it is one of earlier siblings alone: a mean over
//! all others tells, beside those of the others, what the seed's own value is.
//!
//! A mean of values that are known a fixed time after their rows is one of the children of a range that
//! ends so much earlier.

use super::database::{AggregateShape, Database, TableRelation};
use super::walk::Visit;
use crate::error::{Error, Result};
use crate::store::{
    ALWAYS_VISIBLE, AggregateValue, Cell, Children, NEVER_VISIBLE, Row, SEES_EVERYTHING, Total,
    counts, fixed_point, is_visible,
};

/// The seed of a context, as its aggregates need it.
pub(super) struct SeedRow<'a> {
    table: u32,
    row: u32,
    record: Row<'a>,
    obs_time: i64,
    /// The columns of its table that it hides.
    hidden: &'a [u32],
}

/// The children in one window.
struct Scope<'a> {
    relation: u32,
    window_us: Option<i64>,
    children: Children<'a>,
    from: usize,
    to: usize,
    /// Whether the seed row is a child of the same row, and whether it is in the window.
    is_of_siblings: bool,
    has_seed: bool,
}

/// Calls `put` with the cell of each aggregate of a row, in the order of the store; NULL for a seed that
/// is not known yet.
pub(super) fn write_aggregates(
    database: &Database,
    visit: Visit,
    seed: &SeedRow<'_>,
    mut put: impl FnMut(&AggregateShape, Cell),
) -> Result<()> {
    let is_known = visit.hop > 0 || is_visible(seed.record.time(), seed.obs_time);
    let mut last: Option<Scope<'_>> = None;
    for aggregate in &database.tables[visit.table as usize].aggregates {
        if !is_known {
            put(aggregate, Cell::Null);
            continue;
        }
        let is_same = |scope: &Scope<'_>| scope.relation == aggregate.relation.index;
        let mut scope = match last.take().filter(is_same) {
            Some(scope) => scope,
            None => Scope::of(database, visit.row, aggregate.relation, seed)?,
        };
        scope.move_to(aggregate.window_us, seed)?;
        put(aggregate, scope.cell(aggregate, seed)?);
        last = Some(scope);
    }
    Ok(())
}

impl<'a> Scope<'a> {
    /// Returns the children of row `parent` that are visible, at any time before.
    fn of(
        database: &'a Database,
        parent: u32,
        relation: TableRelation,
        seed: &SeedRow<'_>,
    ) -> Result<Self> {
        let children = database.relation(relation).children(parent)?;
        let to = children.visible_count(seed.obs_time)?;
        let is_of_siblings = seed.is_child_of(database, relation, parent)?;
        let has_seed = is_of_siblings && is_visible(seed.record.time(), seed.obs_time);
        let (relation, window_us, from) = (relation.index, None, 0);
        Ok(Self { relation, window_us, children, from, to, is_of_siblings, has_seed })
    }

    /// Moves the beginning to that of a window.
    fn move_to(&mut self, window_us: Option<i64>, seed: &SeedRow<'_>) -> Result<()> {
        if self.window_us == window_us {
            return Ok(());
        }
        let after = window_us.map(|length| seed.obs_time.saturating_sub(length));
        self.from = match after {
            // A child of an unknown time counts in no window.
            Some(after) => self.children.visible_count(after)?.min(self.to),
            None => 0,
        };
        let time = seed.record.time();
        let is_in_window = after.is_none_or(|after| !is_visible(time, after));
        self.has_seed = self.is_of_siblings && is_visible(time, seed.obs_time) && is_in_window;
        self.window_us = window_us;
        Ok(())
    }

    fn cell(&self, aggregate: &AggregateShape, seed: &SeedRow<'_>) -> Result<Cell> {
        let value = aggregate.value;
        // Without an observation time no window has an end.
        if seed.obs_time == SEES_EVERYTHING
            && (self.window_us.is_some() || value == AggregateValue::SinceLast)
        {
            return Ok(Cell::Null);
        }
        let number = match value {
            AggregateValue::Count => {
                let others = (self.to - self.from).saturating_sub(usize::from(self.has_seed));
                Some(counts::of_count(others as u64))
            }
            AggregateValue::Mean { column } => {
                self.total(column, aggregate.known_delay_us, seed)?.mean()
            }
            AggregateValue::SinceLast => {
                let time = self.last_time(seed)?.filter(|&time| time != ALWAYS_VISIBLE);
                let seconds = |time| seed.obs_time.abs_diff(time) / 1_000_000;
                time.map(|time| counts::of_seconds(seconds(time)))
            }
        };
        Ok(number.map_or(Cell::Null, Cell::Numerical))
    }

    /// Returns the total of a column, without the seed's own value; of a column that the seed hides, that
    /// of the siblings before the seed, and none if nobody knows which these are.
    fn total(&self, column: u32, known_delay_us: i64, seed: &SeedRow<'_>) -> Result<Total> {
        let (mut to, mut own) = (self.to, None);
        if known_delay_us > 0 && seed.obs_time < NEVER_VISIBLE {
            let known = seed.obs_time.saturating_sub(known_delay_us);
            to = to.min(self.children.visible_count(known)?);
        }
        if self.is_of_siblings && seed.hidden.contains(&column) {
            match seed.record.time() {
                ALWAYS_VISIBLE => return Ok(Total::default()),
                time => to = to.min(self.children.visible_count(time.saturating_sub(1))?),
            }
        } else if self.has_seed {
            own = fixed_point(seed.record.cell_known_at(column as usize, seed.obs_time));
        }
        let total = self.children.total(column, self.from.min(to), to)?;
        let total = total.ok_or_else(|| {
            Error::corrupt(format!("the store has no totals of column {column}; prepare it again"))
        })?;
        Ok(own.map_or(total, |own| Total {
            sum: total.sum.wrapping_sub(i64::from(own)),
            count: total.count.saturating_sub(1),
        }))
    }

    /// Returns the time of the last child but the seed row.
    fn last_time(&self, seed: &SeedRow<'_>) -> Result<Option<i64>> {
        for place in (self.from..self.to).rev() {
            if !self.has_seed || self.children.row(place)? != seed.row {
                return self.children.time(place);
            }
        }
        Ok(None)
    }
}

impl<'a> SeedRow<'a> {
    pub(super) fn of(
        database: &'a Database,
        seed: Visit,
        obs_time: i64,
        hidden: &'a [u32],
    ) -> Result<Self> {
        let record = database.store.tables()[seed.table as usize].row(seed.row)?;
        Ok(Self { table: seed.table, row: seed.row, record, obs_time, hidden })
    }

    fn is_child_of(
        &self,
        database: &Database,
        relation: TableRelation,
        parent: u32,
    ) -> Result<bool> {
        Ok(relation.table == self.table
            && database.relation(relation).parent(&self.record)? == Some(parent))
    }
}
