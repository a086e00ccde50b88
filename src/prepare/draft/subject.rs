//! A table under examination, and the notes on what was chosen for it.

use std::collections::BTreeMap;

use super::profile::Profile;
use super::time_names::Fit;
use crate::prepare::source::SourceTable;

/// The reasons, by table and place.
pub(super) type Notes = BTreeMap<(String, Place), String>;

/// What a note is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Table,
    Key,
    Time,
    Column(String),
    Reference(String),
    Task(String),
}

/// A table under examination.
pub(super) struct Subject {
    pub(super) source: SourceTable,
    /// Its name in the schema, which must be fit for a file.
    pub(super) name: String,
    pub(super) words: Vec<String>,
    /// The words of each column's name, without a prefix that all columns share.
    pub(super) column_words: Vec<Vec<String>>,
    pub(super) profiles: Vec<Profile>,
    pub(super) key: Vec<usize>,
    pub(super) links: Vec<Link>,
    pub(super) time: Option<Chosen>,
}

/// A reference that was found.
pub(super) struct Link {
    pub(super) columns: Vec<usize>,
    pub(super) to: usize,
    pub(super) to_columns: Vec<String>,
    /// How many rows have a value that is no key there, NULL apart; none where that was not counted.
    pub(super) unresolved: Option<u64>,
}

/// A time that was chosen.
pub(super) struct Chosen {
    pub(super) from: Origin,
    /// How many rows have none.
    pub(super) gaps: Gaps,
    /// The mean of the times, in microseconds, by which tables are compared.
    pub(super) mean_us: i128,
}

/// How many of a table's rows lack a time, the best last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gaps {
    /// More than half.
    Most,
    Many,
    /// One in twenty, or fewer.
    Few,
    None,
}

impl Gaps {
    pub(super) fn of(rows: u64, all: u64) -> Self {
        match rows {
            0 => Self::None,
            _ if rows * 20 <= all => Self::Few,
            _ if rows * 2 <= all => Self::Many,
            _ => Self::Most,
        }
    }
}

/// Where a time comes from.
pub(super) enum Origin {
    /// A column of the table's own, and how well its name fits.
    Column(usize, Fit),
    Link(usize),
}

/// A count with its share, for notes.
pub(super) fn share(count: u64, of: u64) -> String {
    format!("{count} of {of}")
}

/// A number of things, for notes.
pub(super) fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
