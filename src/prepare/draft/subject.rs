//! A table that the draft examines, and the notes about the guesses.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::name_tokens::{key_rank, names_rows};
use super::profile::Profile;
use super::time_names::{Fit, Gaps};
use crate::prepare::source::SourceTable;

/// The reasons for the guesses, by table and place.
pub(super) type Notes = BTreeMap<(String, Place), String>;

/// The part of a table that a note is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Table,
    Key,
    Time,
    Column(String),
    Reference(String),
    Task(String),
    /// By its reference.
    Aggregate(String),
}

/// A table that the draft examines.
pub(super) struct Subject {
    pub(super) source: SourceTable,
    /// The name of the table in the schema, a valid file name.
    pub(super) name: String,
    /// The tokens of the table's name.
    pub(super) tokens: Vec<String>,
    /// The tokens of each column's name, without a prefix that all columns share.
    pub(super) column_tokens: Vec<Vec<String>>,
    pub(super) profiles: Vec<Profile>,
    pub(super) key: Vec<usize>,
    pub(super) references: Vec<FoundReference>,
    /// References that a person must judge, with the reasons.
    pub(super) doubtful: Vec<(FoundReference, String)>,
    pub(super) time: Option<ChosenTime>,
}

impl Subject {
    /// Returns the number of rows.
    pub(super) fn rows(&self) -> u64 {
        self.profiles.iter().map(|profile| profile.rows).max().unwrap_or(0)
    }

    /// Whether a reference has this column.
    pub(super) fn refers_by(&self, column: usize) -> bool {
        self.references.iter().any(|reference| reference.columns.contains(&column))
    }
}

/// Whether any column is named like a key, so that other names say that they are none.
pub(super) fn names_speak(subjects: &[Subject]) -> bool {
    subjects.iter().flat_map(|subject| &subject.column_tokens).any(|tokens| names_rows(tokens))
}

/// Returns the place of each table in the order in which they describe the same things: of tables that
/// share their keys, the others add to the rows of the first.
///
/// The table with the most rows is first, then the one with the earliest times, then the one with the
/// most columns.
pub(super) fn ranks(subjects: &[Subject]) -> Vec<usize> {
    let time = |subject: &Subject| {
        let times = subject.profiles.iter().filter(|p| p.all(p.times));
        times.map(Profile::mean).min().unwrap_or(i128::MAX)
    };
    let mut order: Vec<_> = (0..subjects.len()).collect();
    order.sort_by_cached_key(|&index| {
        let subject = &subjects[index];
        (Reverse(subject.rows()), time(subject), Reverse(subject.profiles.len()), index)
    });
    let mut ranks = vec![0; order.len()];
    order.iter().enumerate().for_each(|(rank, &index)| ranks[index] = rank);
    ranks
}

/// Whether a column has the name of its own table's key: `id`, or `user_id` in `users`.
pub(super) fn names_own_rows(subject: &Subject, column: usize) -> bool {
    key_rank(&subject.column_tokens[column], &subject.tokens).is_some_and(|rank| rank <= 1)
}

/// A reference that the draft found.
pub(super) struct FoundReference {
    pub(super) columns: Vec<usize>,
    pub(super) to: usize,
    pub(super) to_columns: Vec<String>,
    /// How many rows have another value than NULL that is not a key; `None` if not counted.
    pub(super) unresolved: Option<u64>,
}

/// The time that the draft chose for a table.
pub(super) struct ChosenTime {
    pub(super) from: Origin,
    /// How many rows have no time.
    pub(super) gaps: Gaps,
    /// The mean of the times, in microseconds, by which tables are compared.
    pub(super) mean_us: i128,
    /// The earliest of the times, in microseconds.
    pub(super) first_us: i128,
    /// The time from the earliest to the latest, in microseconds.
    pub(super) span_us: i128,
    /// The mean time from one distinct time to the next, in microseconds; 0 if not counted.
    pub(super) gap_us: i128,
}

/// The origin of the time of a table.
pub(super) enum Origin {
    /// A column of the table, and how well its name fits.
    Column(usize, Fit),
    /// A reference, by its position: the parent's time.
    Reference(usize),
}

/// Formats a count and its total, for notes.
pub(super) fn share(count: u64, of: u64) -> String {
    format!("{count} of {of}")
}
