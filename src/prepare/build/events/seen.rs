//! What was seen in the rows of a log, and what of it is refused or told.

use super::categories::ReadSum;
use super::dropped::Dropped;
use super::units::UnitCheck;
use crate::error::{Context, Result};
use crate::events::{EventsMetadata, FieldKind, FieldMetadata};
use crate::plan::Split;
use crate::prepare::schema::{EventField, Events};

/// What was seen in some rows.
#[derive(Default)]
pub(super) struct Seen {
    /// The events that were dropped.
    pub dropped: Dropped,
    /// The sum over the others.
    pub read: ReadSum,
    /// The times, if they are integers.
    pub times: UnitCheck,
    pub fields: FieldsSeen,
}

/// What was seen in the fields of events that were not dropped.
#[derive(Clone, Default)]
pub(super) struct FieldsSeen {
    /// A bit for each field that has a value.
    pub filled: u64,
    /// The times of each field, if it has some and they are integers.
    pub times: Vec<UnitCheck>,
}

impl Seen {
    /// Adds what was seen in later rows.
    pub(super) fn merge(&mut self, later: Self) {
        self.dropped.add(later.dropped);
        self.read.merge(later.read);
        self.times.merge(&later.times);
        self.fields.filled |= later.fields.filled;
        self.fields.times.resize_with(later.fields.times.len(), UnitCheck::default);
        for (times, more) in self.fields.times.iter_mut().zip(&later.fields.times) {
            times.merge(more);
        }
    }

    /// Rejects a source with too few events that can be stored, or with other events than were `counted`,
    /// or with times in another unit than the schema says.
    pub(super) fn check(
        &self,
        events: &Events,
        fields: &[FieldMetadata],
        counted: Option<ReadSum>,
    ) -> Result<()> {
        counted.map_or(Ok(()), |counted| counted.check(self.read))?;
        let column = |name: &str| format!("column {name:?}");
        let time = &events.time;
        self.times.check(time.unit, "events.time").context(|| column(&time.column))?;
        for ((name, field), times) in events.fields.iter().zip(&self.fields.times) {
            if let EventField::Time { unit } = field {
                times.check(*unit, "the field").context(|| column(name))?;
            }
        }
        self.dropped.check(events.dropped_share, &names(fields))
    }

    /// Returns what is kept but may not be what the reader meant.
    pub(super) fn remarks(&self, events: &Events, metadata: &EventsMetadata) -> Vec<String> {
        let mut remarks = self.dropped.remarks(&names(&metadata.fields));
        for (place, FieldMetadata { name, kind, .. }) in metadata.fields.iter().enumerate() {
            if self.fields.filled & 1 << place == 0 {
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
            // Without train there is nothing to learn from, even if it was meant.
            if (share > 0.0 || split == Split::Train) && metadata.counts(split).rows == 0 {
                let name = split.name();
                remarks.push(format!(
                    "the {name} split is empty: none of {entities} fell into its share of {share}; \
                     change events.split"
                ));
            }
        }
        if metadata.entity_count > 1 && u64::from(metadata.entity_count) == metadata.event_count() {
            remarks.push(format!(
                "each entity has one event, so there is no history to learn from; is {} the right \
                 events.entity?",
                metadata.entity.join(", ")
            ));
        }
        remarks
    }
}

fn names(fields: &[FieldMetadata]) -> Vec<String> {
    fields.iter().map(|field| field.name.clone()).collect()
}
