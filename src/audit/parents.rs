//! Tables whose rows know of later children: columns that are totals of them, and tables whose time is
//! missing or that of an earlier parent.

use std::cmp::Reverse;

use super::score::rank_correlation;
use super::{Finding, Kind};
use crate::days::DAY_US;
use crate::error::Result;
use crate::store::{
    ALWAYS_VISIBLE, Cell, NEVER_VISIBLE, Relation, SemanticType, Store, Table, TimeMetadata,
};

/// The correlation from which a column is a total of the children, or runs in the order of their times.
const THRESHOLD: f64 = 0.95;
/// The fewest rows from which anything is concluded.
const ROWS_MIN: usize = 50;
/// The share of days that are those of the last children.
const SAME_DAYS: f64 = 0.8;

/// Totals of the children of some rows, through one relation.
struct ChildTotals {
    rows: Vec<u32>,
    first: Vec<i64>,
    last: Vec<i64>,
    /// The totals.
    totals: Vec<Total>,
}

/// A total of the children of each row.
struct Total {
    name: String,
    values: Vec<f64>,
    /// The value of the first child that has one. A column with that value is no total: the children
    /// have copies of it.
    of_first: Option<Vec<f64>>,
}

/// Looks at the parents of every relation whose children have times.
pub(super) fn findings(
    store: &Store,
    row_limit: u32,
    advance: &dyn Fn(u64) -> Result<()>,
) -> Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = Vec::new();
    for relation in 0..store.relations().len() {
        let metadata = store.relations()[relation].metadata();
        let parents = &store.tables()[metadata.parent as usize];
        let children = &store.tables()[metadata.child as usize];
        let is_summary =
            (store.metadata().summaries.iter()).any(|summary| summary.table == metadata.child);
        if children.metadata().time.is_some() && !is_summary {
            let totals = ChildTotals::of(store, relation, row_limit)?;
            let name = &children.metadata().name;
            let by = &store.relations()[relation];
            let mut found = totals_of_children(parents, (name, by), &totals)?;
            if parents.metadata().time.is_none() {
                found.extend(order_of_time(parents, name, &totals)?);
            }
            // One relation of several is enough to name a column.
            for finding in found {
                let is_new = |other: &Finding| {
                    (other.kind, &other.subject) != (finding.kind, &finding.subject)
                };
                if findings.iter().all(is_new) {
                    findings.push(finding);
                }
            }
        }
        findings.extend(before_parent(store, relation, row_limit)?);
        advance(1)?;
    }
    Ok(findings)
}

/// Finds a table with times of one parent that are earlier than those of another: a row is never earlier
/// than any of its parents, so the times are of the wrong one.
fn before_parent(store: &Store, relation: usize, row_limit: u32) -> Result<Option<Finding>> {
    let relation = &store.relations()[relation];
    let [parents, children] = [relation.metadata().parent, relation.metadata().child]
        .map(|table| &store.tables()[table as usize]);
    let Some(TimeMetadata::Inherited { relation: through, .. }) = children.metadata().time else {
        return Ok(None);
    };
    let through = store.short_relation_name(through as usize);
    if parents.metadata().time.is_none() || through == relation.metadata().name {
        return Ok(None);
    }
    let is_time = |time: i64| time != ALWAYS_VISIBLE && time < NEVER_VISIBLE;
    let (mut earlier, mut all) = (0, 0);
    let step = children.row_count().div_ceil(row_limit).max(1);
    for row in (0..children.row_count()).step_by(step as usize) {
        let record = children.row(row)?;
        if let Some(parent) = relation.parent(&record)? {
            let (own, of_parent) = (record.time(), parents.row(parent)?.time());
            if is_time(own) && is_time(of_parent) {
                all += 1;
                earlier += usize::from(own < of_parent);
            }
        }
    }
    let is_most = all >= ROWS_MIN && earlier * 2 > all;
    let (name, by) = (&children.metadata().name, &relation.metadata().name);
    Ok(is_most.then(|| Finding {
        kind: Kind::BeforeParent,
        task: None,
        subject: name.clone(),
        evidence: format!(
            "{name}: its time is that of the parent by {through}, but {earlier} of {all} rows have a later \
             parent by {by}: they are visible before they existed"
        ),
        remedy: format!("let the table inherit the time of the later parent: through = {by:?}"),
    }))
}

impl ChildTotals {
    /// Returns the totals of up to `row_limit` parents of which at least two children, and at least half
    /// of all, came to be known after the parent.
    fn of(store: &Store, relation: usize, row_limit: u32) -> Result<Self> {
        let relation = &store.relations()[relation];
        let parents = &store.tables()[relation.metadata().parent as usize];
        let table = &store.tables()[relation.metadata().child as usize];
        let summed: Vec<(usize, String)> = (table.metadata().columns.iter().enumerate())
            .filter(|(_, column)| column.semantic() == SemanticType::Numerical)
            .map(|(place, column)| (place, column.name.clone()))
            .collect();
        let (mut rows, mut first, mut last, mut counts) = (vec![], vec![], vec![], vec![]);
        let mut of_columns = vec![[const { Vec::new() }; 3]; summed.len()];
        let step = parents.row_count().div_ceil(row_limit).max(1);
        for row in (0..parents.row_count()).step_by(step as usize) {
            let children = relation.children(row)?;
            let Some(times) = children.times()? else { continue };
            let known = with_time(times);
            let (Some(&earliest), Some(&latest)) = (known.first(), known.last()) else { continue };
            if !is_mostly_before(times, parents.row(row)?.time()) {
                continue;
            }
            rows.push(row);
            first.push(earliest);
            last.push(latest);
            counts.push(times.len() as f64);
            for (&(column, _), [sums, means, firsts]) in summed.iter().zip(&mut of_columns) {
                let (mut sum, mut count, mut of_first) = (0.0, 0, f64::NAN);
                for &child in children.rows()? {
                    if let Some(value) = number(table, column, table.row(child)?.cell(column)) {
                        of_first = if count == 0 { value } else { of_first };
                        sum += value;
                        count += 1;
                    }
                }
                sums.push(sum);
                means.push(if count == 0 { f64::NAN } else { sum / f64::from(count) });
                firsts.push(of_first);
            }
        }
        let name = &table.metadata().name;
        let total = |name, values, of_first| Total { name, values, of_first };
        let mut totals = vec![total(format!("the number of {name}"), counts, None)];
        for ((_, column), [sums, means, firsts]) in summed.iter().zip(of_columns) {
            totals.push(total(format!("the sum of {name}.{column}"), sums, Some(firsts.clone())));
            totals.push(total(format!("the mean of {name}.{column}"), means, Some(firsts)));
        }
        Ok(Self { rows, first, last, totals })
    }
}

/// Returns the times of the children that have one.
fn with_time(times: &[i64]) -> &[i64] {
    &times[times.partition_point(|&time| time == ALWAYS_VISIBLE)
        ..times.partition_point(|&time| time < NEVER_VISIBLE)]
}

/// Whether at least two of the children, and at least half of all, came to be known after a time.
fn is_mostly_before(times: &[i64], time: i64) -> bool {
    let known = with_time(times);
    let later = known.len() - known.partition_point(|&child| child <= time);
    later >= 2 && later * 2 >= times.len()
}

impl Total {
    /// Returns the correlation with the values of a column, if the column is such a total.
    fn correlation_with(&self, values: &[f64]) -> Option<f64> {
        let is_copy = |of_first| correlation(values, of_first).is_some_and(|c| c >= THRESHOLD);
        let correlation = correlation(values, &self.values).filter(|&c| c >= THRESHOLD)?;
        (!self.of_first.as_deref().is_some_and(is_copy)).then_some(correlation)
    }
}

/// Returns the number of a cell as in the source, as far as 32 bits tell.
fn number(table: &Table, column: usize, cell: Cell) -> Option<f64> {
    match cell {
        Cell::Numerical(score) => table.metadata().columns[column].stats.number(score),
        _ => None,
    }
}

/// Finds columns of the parents that are totals of later children.
///
/// A value that is known later than its row is lawful from that time on, and so is what it tells by not being
/// NULL any more: that the life of the row has ended is then a fact of the past. So such a column is a
/// finding only if the schema names a time at which nobody could know the value: one before most of the
/// children, or that of the last child, of which only the time after it tells that it was the last.
fn totals_of_children(
    parents: &Table,
    (children, by): (&str, &Relation),
    totals: &ChildTotals,
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (place, column) in parents.metadata().columns.iter().enumerate() {
        let found = match (column.semantic(), &column.known) {
            (SemanticType::Numerical, None) => {
                let values = numbers_of(parents, place, &totals.rows)?;
                best_total(&values, totals).map(|total| (total, totals.rows.len(), When::Row))
            }
            (SemanticType::Numerical, Some(_)) => known_too_early(parents, place, by, totals)?,
            (SemanticType::Timestamp, None) => last_days(parents, place, children, totals)?
                .map(|words| (words, totals.rows.len(), When::Row)),
            _ => None,
        };
        if let Some((words, rows, when)) = found {
            let table = &parents.metadata().name;
            let seen = match (when, &parents.metadata().time) {
                (When::Row, None) => "its rows are always visible",
                (When::Row, Some(_)) => "its rows are visible before",
                (When::Early, _) => "it is known before most of them",
                (When::Last, _) => {
                    "it is known from the day of the last of them on: that it is not NULL tells that \
                     no more come"
                }
            };
            let remedy = match when {
                When::Row => "ignore the column: the children that exist are in the context",
                When::Early => {
                    "set its known = { at = ... } to the time at which the total was made, or ignore \
                     the column: the children that exist are in the context"
                }
                When::Last => {
                    "ignore the column, or set its known = { at = ... } to the time at which the end \
                     was known; if it was known on that day, accept the column"
                }
            };
            findings.push(Finding {
                kind: Kind::TotalsChildren,
                task: None,
                subject: format!("{table}.{}", column.name),
                evidence: format!(
                    "{table}.{}: it is a total of the {children} of a row, and {seen}: {words} over {rows} \
                     rows",
                    column.name,
                ),
                remedy: remedy.to_owned(),
            });
        }
    }
    Ok(findings)
}

/// When a total of children is visible.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// With its row.
    Row,
    /// From a time on that is before most of the children.
    Early,
    /// From the day of the last child on.
    Last,
}

/// Returns the numbers of a column in some rows; NaN for NULL.
fn numbers_of(table: &Table, column: usize, rows: &[u32]) -> Result<Vec<f64>> {
    let value = |&row: &u32| {
        let cell = table.row(row)?.cell(column);
        Ok(number(table, column, cell).unwrap_or(f64::NAN))
    };
    rows.iter().map(value).collect()
}

/// Returns the total with which values correlate most, in words, if they are a total.
fn best_total(values: &[f64], totals: &ChildTotals) -> Option<String> {
    let all = totals.totals.iter();
    let correlated = all.filter_map(|total| Some((total.correlation_with(values)?, total)));
    let (correlation, total) = correlated.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!("rank correlation {correlation:.3} with {}", total.name))
}

/// Finds a column that is a total of children and known, as the schema has it, before most of them or from
/// the day of the last on.
fn known_too_early(
    parents: &Table,
    place: usize,
    by: &Relation,
    totals: &ChildTotals,
) -> Result<Option<(String, usize, When)>> {
    let values = numbers_of(parents, place, &totals.rows)?;
    let (mut early, mut last) = (values.clone(), values);
    let (mut same, mut all) = (0, 0);
    for (number, &row) in totals.rows.iter().enumerate() {
        let known = parents.row(row)?.known_time(place);
        let is_known = !early[number].is_nan() && known < NEVER_VISIBLE;
        let times = by.children(row)?.times()?.unwrap_or(&[]);
        if !is_known || !is_mostly_before(times, known) {
            early[number] = f64::NAN;
        }
        // Of one day, the last child is the first, and tells nothing.
        let days = totals.last[number].abs_diff(totals.first[number]) / DAY_US.unsigned_abs();
        if !is_known || days == 0 {
            last[number] = f64::NAN;
            continue;
        }
        all += 1;
        same += usize::from(known.abs_diff(totals.last[number]) <= DAY_US.unsigned_abs());
    }
    let count = |values: &[f64]| values.iter().filter(|value| !value.is_nan()).count();
    if let Some(total) = best_total(&early, totals) {
        return Ok(Some((total, count(&early), When::Early)));
    }
    let is_last = all >= ROWS_MIN && same as f64 >= SAME_DAYS * f64::from(all as u32);
    let total = is_last.then(|| best_total(&last, totals)).flatten();
    Ok(total.map(|total| (total, count(&last), When::Last)))
}

/// Whether the times of a column are, most of them, of the days of the last children.
fn last_days(
    parents: &Table,
    place: usize,
    children: &str,
    totals: &ChildTotals,
) -> Result<Option<String>> {
    let (mut same, mut all) = (0, 0);
    for ((&row, &first), &last) in totals.rows.iter().zip(&totals.first).zip(&totals.last) {
        // Of one day, the last is the first, and tells nothing.
        if last.abs_diff(first) < DAY_US.unsigned_abs() {
            continue;
        }
        if let Cell::Timestamp(time) = parents.row(row)?.cell(place) {
            all += 1;
            same += usize::from(time.abs_diff(last) <= DAY_US.unsigned_abs());
        }
    }
    let share = same as f64 / f64::from(all.max(1) as u32);
    Ok((all >= ROWS_MIN && share >= SAME_DAYS)
        .then(|| format!("{:.0} % of its days are those of the last of {children}", share * 100.0)))
}

/// Finds a key or a number by which rows without a time run in the order of their first children.
fn order_of_time(parents: &Table, children: &str, totals: &ChildTotals) -> Result<Vec<Finding>> {
    let first: Vec<f64> = totals.first.iter().map(|&time| time as f64).collect();
    let metadata = parents.metadata();
    let mut orders = key_orders(parents, &totals.rows)?;
    for (place, column) in metadata.columns.iter().enumerate() {
        let is_number = column.semantic() == SemanticType::Numerical;
        if is_number && !metadata.key.contains(&column.name) && column.known.is_none() {
            let value = |&row: &u32| {
                let cell = parents.row(row)?.cell(place);
                Ok(number(parents, place, cell).unwrap_or(f64::NAN))
            };
            let values = totals.rows.iter().map(value).collect::<Result<Vec<_>>>()?;
            orders.push((column.name.clone(), values));
        }
    }
    let found = orders.into_iter().filter_map(|(name, values)| {
        let correlation = correlation(&values, &first)?;
        (correlation.abs() >= THRESHOLD).then(|| Finding {
            kind: Kind::OrderOfTime,
            task: None,
            subject: format!("{}.{name}", metadata.name),
            evidence: format!(
                "{}.{name}: it runs in the order of the first {children} of each row, rank \
                 correlation {correlation:.3} over {} rows, but the rows have no time and are always \
                 visible, also before they existed",
                metadata.name,
                totals.rows.len()
            ),
            remedy: "give the table the time at which its rows came to exist".to_owned(),
        })
    });
    Ok(found.collect())
}

/// Returns for each part of the key the places of some rows in its order.
fn key_orders(table: &Table, rows: &[u32]) -> Result<Vec<(String, Vec<f64>)>> {
    let names = &table.metadata().key;
    let mut parts = vec![Vec::with_capacity(rows.len()); names.len()];
    if names.is_empty() {
        return Ok(Vec::new());
    }
    for &row in rows {
        let key = table.key(row)?;
        // The parts of a composite key are joined by |. A \| inside of one makes it unlike the others.
        let of_row: Vec<&str> =
            if names.len() == 1 { vec![key] } else { key.splitn(names.len(), '|').collect() };
        for (place, part) in parts.iter_mut().enumerate() {
            part.push(natural_order(of_row.get(place).copied().unwrap_or_default()));
        }
    }
    let places = |part: Vec<Vec<Piece>>| {
        let mut order: Vec<&Vec<Piece>> = part.iter().collect();
        order.sort_unstable();
        order.dedup();
        part.iter().map(|key| order.partition_point(|other| *other < key) as f64).collect()
    };
    Ok(names.iter().cloned().zip(parts.into_iter().map(places)).collect())
}

/// A piece of a key: digits count as a number, by their length and then their order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    /// Negative numbers come first, the one with the most digits before the others.
    Minus(Reverse<(usize, String)>),
    Digits(usize, String),
    Letters(String),
}

/// Returns the pieces of a key, in whose order `P9` comes before `P10`.
fn natural_order(key: &str) -> Vec<Piece> {
    let is_digit = |c: char| c.is_ascii_digit();
    if let Some(digits) = key.strip_prefix('-').filter(|rest| rest.chars().all(is_digit)) {
        let digits = digits.trim_start_matches('0');
        return vec![Piece::Minus(Reverse((digits.len(), digits.to_owned())))];
    }
    let mut pieces = Vec::new();
    let mut rest = key;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_digit(c) != is_digit(first)).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        pieces.push(match is_digit(first) {
            true => {
                let digits = piece.trim_start_matches('0');
                Piece::Digits(digits.len(), digits.to_owned())
            }
            false => Piece::Letters(piece.to_owned()),
        });
    }
    pieces
}

/// Returns the rank correlation of the pairs without NULL; none of few of them.
fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let pairs = a.iter().zip(b).filter(|(a, b)| !a.is_nan() && !b.is_nan());
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.unzip();
    if a.len() < ROWS_MIN { None } else { rank_correlation(&a, &b) }
}

#[cfg(test)]
mod tests {
    use super::natural_order;

    #[test]
    fn keys_are_in_the_order_in_which_they_are_counted() {
        let sorted = ["-10", "-9", "0", "7", "0010", "11.5", "P9", "P10", "P10a", "Q1"];
        assert!(sorted.is_sorted_by_key(|key| natural_order(key)));
        assert!(natural_order("007") == natural_order("7"));
    }
}
