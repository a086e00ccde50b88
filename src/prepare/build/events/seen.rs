//! What was seen in the rows of a log, and what of it is refused or told.

use std::ops::RangeInclusive;

use super::categories::ReadSum;
use super::dropped::Dropped;
use crate::error::{Error, Result};
use crate::events::{EventsMetadata, FieldKind, FieldMetadata};
use crate::plan::Split;
use crate::prepare::schema::{Events, ObservationTime, TimeUnit};

/// What was seen in some rows.
pub(super) struct Seen {
    /// The events that were dropped.
    pub dropped: Dropped,
    /// The sum over those that were not.
    pub read: ReadSum,
    /// A bit for each field that has a value.
    pub filled: u64,
    /// The first and the last time.
    pub first_us: i64,
    pub last_us: i64,
}

impl Seen {
    /// Returns what is seen in no rows.
    pub(super) fn nothing() -> Self {
        let (dropped, read) = (Dropped::default(), ReadSum::default());
        Self { dropped, read, filled: 0, first_us: i64::MAX, last_us: i64::MIN }
    }

    /// Adds what was seen in later rows.
    pub(super) fn merge(&mut self, later: Self) {
        self.dropped.add(later.dropped);
        self.read.merge(later.read);
        self.filled |= later.filled;
        self.first_us = self.first_us.min(later.first_us);
        self.last_us = self.last_us.max(later.last_us);
    }

    /// Rejects a source with too few events that can be stored, or with other events than were `counted`,
    /// or with times in a wrong unit.
    pub(super) fn check(
        &self,
        events: &Events,
        fields: &[FieldMetadata],
        counted: Option<ReadSum>,
    ) -> Result<()> {
        counted.map_or(Ok(()), |counted| counted.check(self.read))?;
        self.dropped.check(events.dropped_share, &names(fields))?;
        check_unit(&events.time, self.first_us, self.last_us)
    }

    /// Returns what somebody should know who expects nothing of it.
    pub(super) fn remarks(&self, events: &Events, metadata: &EventsMetadata) -> Vec<String> {
        let mut remarks = self.dropped.remarks(&names(&metadata.fields));
        for (place, FieldMetadata { name, kind, .. }) in metadata.fields.iter().enumerate() {
            if self.filled & 1 << place == 0 {
                remarks.push(format!("the field {name:?} is NULL in every event"));
            } else if matches!(kind, FieldKind::Category { values, .. } if values.is_empty()) {
                remarks.push(format!(
                    "no value of {name:?} has a token: it has none in train, or max_tokens is 0"
                ));
            }
        }
        let entities = match metadata.entity_count {
            1 => "1 entity".to_owned(),
            count => format!("{count} entities"),
        };
        let shares = [events.split.train, events.split.val, events.split.test];
        for (split, share) in Split::ALL.into_iter().zip(shares) {
            if share > 0.0 && metadata.counts(split).rows == 0 {
                let name = split.name();
                remarks.push(format!(
                    "the {name} split is empty: none of {entities} fell into its share of {share}; \
                     change events.split"
                ));
            }
        }
        remarks
    }
}

/// Rejects integers of a smaller unit than their own: all times are then at the beginning of 1970.
fn check_unit(time: &ObservationTime, first_us: i64, last_us: i64) -> Result<()> {
    /// The years 1980 to 2100, in seconds.
    const USUAL: RangeInclusive<i64> = 315_532_800..=4_102_444_800;
    let Some((unit, step)) = time.unit.and_then(|unit| Some((unit, unit.microseconds()?))) else {
        return Ok(());
    };
    let are_usual = |steps_a_second: i64| {
        [first_us, last_us].iter().all(|time| USUAL.contains(&(time / step / steps_a_second)))
    };
    let other = match unit {
        TimeUnit::Millisecond | TimeUnit::Microsecond if are_usual(1) => TimeUnit::Second,
        TimeUnit::Microsecond if are_usual(1000) => TimeUnit::Millisecond,
        _ => return Ok(()),
    };
    Err(Error::data(format!(
        "column {:?}: expected {}, found {} to {}, which are {} of the years 1980 to 2100; write unit = \
         {:?} in events.time",
        time.column,
        unit.values(),
        first_us / step,
        last_us / step,
        other.values(),
        other.name(),
    )))
}

fn names(fields: &[FieldMetadata]) -> Vec<String> {
    fields.iter().map(|field| field.name.clone()).collect()
}
