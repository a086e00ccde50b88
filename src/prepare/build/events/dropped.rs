//! Events that cannot be stored, counted by the reason.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::events::{number_code, number_of};
use crate::prepare::names::counted;

/// Why an event is dropped, or what was put in place of a value. Fields are told by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    NoEntity,
    NoTime,
    TimeOutOfRange,
    NoResult,
    ResultIsNan,
    ResultTooLong,
    Address,
    Family,
    /// The event is kept, with the unspecified address.
    BlankAddress,
    /// The event is kept, and the field has no value.
    FieldIsNan(usize),
    /// The event is kept, with the largest number that has a code.
    FieldTooLarge(usize),
    /// The event is kept, with the number 0.
    FieldTooSmall(usize),
    /// The event is kept, with the beginning of the text.
    FieldCut(usize, u8),
    /// The event is kept, with the first bytes of the value in place of a token.
    FieldRare(usize, u8),
}

impl Reason {
    fn keeps(self) -> bool {
        self >= Self::BlankAddress
    }

    /// Returns the reason in words that follow a number of events.
    fn words(self, fields: &[String]) -> String {
        let words = match self {
            Self::NoEntity => "without an entity (NULL or blank)",
            Self::NoTime => "without a time",
            Self::TimeOutOfRange => "with a time outside of 1970 to 2200",
            Self::NoResult => "with an rtt of NULL (a failed measurement has a negative rtt)",
            Self::ResultIsNan => "with an rtt of NaN (a failed measurement has a negative rtt)",
            Self::ResultTooLong => "with an rtt above 50 days (expected milliseconds)",
            Self::Address => "with a text that is no IPv4 or IPv6 address",
            Self::Family => "whose two addresses, or address and family, do not fit each other",
            Self::BlankAddress => "without an address; they have 0.0.0.0 or ::",
            Self::FieldIsNan(field) => {
                return format!("whose {:?} is NaN, stored as NULL", fields[field]);
            }
            Self::FieldTooLarge(field) => {
                let largest = number_of(number_code(f64::MAX));
                return format!(
                    "whose {:?} is beyond {largest:e}, stored as that number",
                    fields[field]
                );
            }
            Self::FieldTooSmall(field) => {
                return format!(
                    "whose {:?} is nearer to 0 than a millionth, stored as 0",
                    fields[field]
                );
            }
            Self::FieldRare(field, bytes) => {
                let stored = match bytes {
                    0 => "an empty text".to_owned(),
                    _ => format!("its first {}", counted(bytes.into(), "byte")),
                };
                return format!(
                    "whose {:?} is not among the values that have a token (the most frequent of train), \
                     stored as {stored} (max_bytes)",
                    fields[field]
                );
            }
            Self::FieldCut(field, bytes) => {
                return format!("whose {:?} is cut to its max_bytes of {bytes}", fields[field]);
            }
        };
        words.to_owned()
    }
}

/// The events of one reason.
#[derive(Clone, Debug, Default)]
struct Found {
    count: u64,
    /// The least row, counted from 1, and its value.
    first: Option<(u64, String)>,
}

/// The numbers of events by reason.
#[derive(Clone, Debug, Default)]
pub(super) struct Dropped {
    found: BTreeMap<Reason, Found>,
    /// The number of events that were read.
    seen: u64,
}

impl Dropped {
    /// Counts the events of a batch.
    pub(super) fn see(&mut self, count: u64) {
        self.seen += count;
    }

    /// Adds the events of later rows.
    pub(super) fn add(&mut self, later: Self) {
        self.seen += later.seen;
        for (reason, more) in later.found {
            let found = self.found.entry(reason).or_default();
            found.count += more.count;
            found.first = found.first.take().or(more.first);
        }
    }

    /// Returns the number of events that were read.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns the number of events that were dropped.
    pub(super) fn count(&self) -> u64 {
        let drops = self.found.iter().filter(|(reason, _)| !reason.keeps());
        drops.map(|(_, found)| found.count).sum()
    }

    /// Returns the number of events that are stored.
    pub(super) fn kept(&self) -> u64 {
        self.seen - self.count()
    }

    /// Rejects a source with no event to store, or with more dropped than the limit.
    pub(super) fn check(&self, dropped_share: f64, fields: &[String]) -> Result<()> {
        let count = self.count();
        let remarks = || self.drops(fields).join("; ");
        if self.seen == 0 {
            return Err(Error::data("expected at least one event, found no rows"));
        }
        if self.kept() == 0 {
            return Err(Error::data(format!(
                "expected at least one event to store, found none among {}: {}; correct the columns \
                 of [events]",
                counted(self.seen, "row"),
                remarks()
            )));
        }
        if count as f64 > dropped_share * self.seen as f64 {
            return Err(Error::data(format!(
                "expected at most {dropped_share} of the events to be dropped, found {count} of {}: {}; \
                 correct the data, or raise events.dropped_share",
                self.seen,
                remarks()
            )));
        }
        Ok(())
    }

    /// Returns a line for each reason; `fields` are the names of the fields.
    pub(super) fn remarks(&self, fields: &[String]) -> Vec<String> {
        self.lines(fields, |_| true)
    }

    /// Returns a line for each reason why events were dropped.
    fn drops(&self, fields: &[String]) -> Vec<String> {
        self.lines(fields, |reason| !reason.keeps())
    }

    fn lines(&self, fields: &[String], is_told: impl Fn(Reason) -> bool) -> Vec<String> {
        let told = self.found.iter().filter(|(reason, _)| is_told(**reason));
        let line = |(reason, Found { count, first }): (&Reason, &Found)| {
            let (row, value) = first.as_ref()?;
            let verb = if reason.keeps() { "" } else { "dropped " };
            let found = if value.is_empty() { String::new() } else { format!(", {value}") };
            Some(format!(
                "{verb}{} {}; the first is in row {row}{found}",
                counted(*count, "event"),
                reason.words(fields)
            ))
        };
        told.filter_map(line).collect()
    }
}

/// Counts what is found in one row.
pub(super) struct Notes<'a> {
    pub dropped: &'a mut Dropped,
    /// The row, counted from 0.
    pub row: u64,
}

impl Notes<'_> {
    /// Counts the event for a reason, with the value that is at fault.
    pub(super) fn note(&mut self, reason: Reason, value: impl FnOnce() -> String) {
        let found = self.dropped.found.entry(reason).or_default();
        found.count += 1;
        if found.first.is_none() {
            found.first = Some((self.row + 1, value()));
        }
    }
}
