//! Proposes aggregates: counts and means of the children of rows that have many.

use std::cmp::Reverse;

use super::subject::{Notes, Origin, Place, Subject};
use crate::prepare::schema::{Aggregate, Delay, Table, Window};
use crate::store::SemanticType;

/// The most cells that the aggregates of a table's children add to one of its rows.
const CELLS_MAX: usize = 32;
/// The most references that share these cells: those with the most children.
const REFERENCES_MAX: usize = 4;
/// The fewest children that the rows with children have on average.
const CHILDREN_MIN: u64 = 2;

const HOUR: i64 = 3_600_000_000;
const DAY: i64 = 24 * HOUR;
/// The shortest windows to choose from; the next are 4 and 16 times as long.
const PERIODS: [i64; 6] = [HOUR, DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY];
/// Longer windows only come where the times themselves are further apart.
const USUAL_MAX: i64 = 30 * DAY;

/// A reference by which rows have many children.
pub(super) struct Candidate {
    /// The places of the child table and of its reference.
    pub(super) child: usize,
    pub(super) reference: usize,
    pub(super) parent: usize,
    pub(super) children: u64,
    /// The rows of the parent that have children; all of them if the draft did not count.
    pub(super) parents: u64,
}

/// Proposes aggregates by the references of the tables in the schema; `tables` are those of `kept`.
pub(super) fn find(
    subjects: &[Subject],
    kept: &[usize],
    tables: &[Table],
    notes: &mut Notes,
) -> Vec<Aggregate> {
    let mut candidates = candidates(subjects, kept);
    candidates.sort_by_key(|candidate| (candidate.parent, Reverse(candidate.children)));
    let mut found = Vec::new();
    for of_parent in candidates.chunk_by(|one, other| one.parent == other.parent) {
        let chosen = &of_parent[..of_parent.len().min(REFERENCES_MAX)];
        for &Candidate { child, reference, parent, children, parents } in chosen {
            let table = kept.iter().position(|&index| index == child).map(|place| &tables[place]);
            let Some(table) = table else { continue };
            let (subject, parent) = (&subjects[child], &subjects[parent]);
            let name = subject.references[reference].name(subject);
            let each = children as f64 / parents.max(1) as f64;
            let rows = match parents < row_count(parent) {
                true => format!("each of the {parents} rows of {:?} that have any", parent.name),
                false => format!("each row of {:?}", parent.name),
            };
            let note = format!("{each:.1} of them for {rows}, on average");
            notes.insert((subject.name.clone(), Place::Aggregate(name.clone())), note);
            found.push((child, reference, largest(subject, name, table, CELLS_MAX / chosen.len())));
        }
    }
    found.sort_by_key(|&(child, reference, _)| (child, reference));
    found.into_iter().map(|(.., aggregate)| aggregate).collect()
}

/// Returns the references by which rows have many children that came to exist one after the other.
pub(super) fn candidates(subjects: &[Subject], kept: &[usize]) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for &child in kept {
        let subject = &subjects[child];
        for (reference, found) in subject.references.iter().enumerate() {
            let children = row_count(subject).saturating_sub(found.missing_rows(subject));
            let rows = row_count(&subjects[found.to]);
            let parents = match found.columns[..] {
                [column] => subject.profiles[column].values.count().map_or(rows, |n| n.min(rows)),
                _ => rows,
            };
            let is_many = children >= CHILDREN_MIN * parents;
            if is_many && has_times(subject, reference) {
                candidates.push(Candidate {
                    child,
                    reference,
                    parent: found.to,
                    children,
                    parents,
                });
            }
        }
    }
    candidates
}

fn row_count(subject: &Subject) -> u64 {
    subject.profiles.iter().map(|profile| profile.rows).max().unwrap_or(0)
}

/// Whether the children of one row by a reference have times, and not all the same one, which they
/// inherit from that row.
fn has_times(subject: &Subject, reference: usize) -> bool {
    match subject.time.as_ref().map(|time| &time.from) {
        None => false,
        Some(Origin::Reference(own)) => *own != reference,
        Some(Origin::Column(..)) => true,
    }
}

/// Returns the largest aggregate that adds at most `room` cells.
fn largest(subject: &Subject, reference: String, table: &Table, room: usize) -> Aggregate {
    let is_number = |semantic| matches!(semantic, SemanticType::Numerical | SemanticType::Boolean);
    let numbers = (table.columns.iter().enumerate())
        .filter(|(place, (_, column))| is_number(column.semantic) && varies(subject, *place));
    let mut columns: Vec<_> = numbers.map(|(_, (name, _))| name.clone()).collect();
    let all = windows(subject);
    // Each window has a count and the means; the time since the last comes once.
    let cells = |windows: usize, columns: usize| windows * (1 + columns) + 1;
    // A second column tells more than a third window.
    let sizes = [(4, 3), (4, 2), (3, 2), (2, 2), (2, 1), (1, 1)];
    let fits = |&(windows, most): &(usize, usize)| cells(windows, columns.len().min(most)) <= room;
    let (window_count, column_count) = sizes.into_iter().find(fits).unwrap_or((1, 0));
    columns.truncate(column_count);
    // The last windows are the longest.
    let windows = all[all.len().saturating_sub(window_count)..].to_vec();
    Aggregate { table: table.name.clone(), reference, columns, windows }
}

/// Whether a column has two values or more, as far as the draft counted.
fn varies(subject: &Subject, column: usize) -> bool {
    subject.profiles[column].values.count().is_none_or(|count| count > 1)
}

/// Returns windows of which the longest is a small part of the table's times, and `ever`; the
/// shortest holds more than one of the times.
fn windows(subject: &Subject) -> Vec<Window> {
    let Some(time) = &subject.time else { return vec![Window::Ever] };
    let fits = |period: &&i64| i128::from(16 * **period) <= time.span_us && **period <= USUAL_MAX;
    let usual = PERIODS.iter().rev().find(fits).unwrap_or(&HOUR);
    // Years are 365 or 366 days apart.
    let holds = |period: &&i64| i128::from(**period) * 102 / 100 >= time.gap_us;
    let least = PERIODS.iter().find(holds).unwrap_or(&PERIODS[PERIODS.len() - 1]);
    let period = usual.max(least);
    let lengths = [1, 4, 16].map(|times| Window::Last(Delay(times * period)));
    lengths.into_iter().chain([Window::Ever]).collect()
}
