//! The section `[events]` of a schema file: a log of events in place of tables.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::event_fields::EventField;
use super::text::one_or_many;
use super::{ObservationTime, Schema};
use crate::error::{Context, Error, Result};
use crate::events::fields::{FIELDS_MAX, NAME as FIELDS};
use crate::events::latency::NAME as LATENCY;
use crate::plan::{SplitRatios, SplitRule};
use crate::prepare::names::{did_you_mean, listed};

/// A log of events: a table with a row for each event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// The table of the source.
    pub source: String,
    /// The codec, which turns events into tokens.
    pub codec: String,
    /// The columns that name the entity that an event is of.
    #[serde(with = "one_or_many")]
    pub entity: Vec<String>,
    /// The column of the events' times.
    pub time: ObservationTime,
    /// The column for each field of the codec `latency-v1`.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub columns: IndexMap<String, String>,
    /// The columns that the codec `fields-v1` turns into tokens.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub fields: IndexMap<String, EventField>,
    /// The most bytes of a row, as stored; a longer history is several rows.
    #[serde(default = "row_bytes")]
    pub row_bytes: u64,
    /// The shares of the splits, by entity.
    #[serde(default)]
    pub split: EventSplit,
    /// The largest share of the events that may be dropped because a value is missing or wrong.
    #[serde(default = "dropped_share")]
    pub dropped_share: f64,
}

/// The least `row_bytes`: room for events of any codec.
const ROW_BYTES_MIN: u64 = 1024;

fn row_bytes() -> u64 {
    8 << 20
}

fn dropped_share() -> f64 {
    0.01
}

/// How the entities are divided among train, val and test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventSplit {
    /// The share of train.
    pub train: f64,
    /// The share of val.
    pub val: f64,
    /// The share of test.
    pub test: f64,
    /// The seed of the split.
    pub seed: u64,
}

impl Default for EventSplit {
    fn default() -> Self {
        Self { train: 0.9, val: 0.0, test: 0.1, seed: 123 }
    }
}

impl EventSplit {
    /// Returns the rule of the split.
    ///
    /// # Errors
    /// `Schema` when the shares do not add up to 1.
    pub(in crate::prepare) fn rule(&self) -> Result<SplitRule> {
        let ratios = SplitRatios::new(self.train, self.val, self.test)
            .map_err(|e| Error::schema(e.to_string()))?;
        Ok(SplitRule { seed: self.seed, ratios })
    }
}

/// The fields of the codec `latency-v1`: name, and whether it needs a column.
const LATENCY_FIELDS: [(&str, bool); 4] =
    [("dst", true), ("rtt", true), ("family", false), ("src", false)];

impl Events {
    /// Returns the column of a field of the codec, if the schema names one.
    #[must_use]
    pub fn column(&self, field: &str) -> Option<&str> {
        self.columns.get(field).map(String::as_str)
    }

    fn check(&self) -> Result<()> {
        let fail = |message: String| Err(Error::schema(message));
        if self.entity.is_empty() {
            return fail("entity: expected a column, or a list of columns, found none".to_owned());
        }
        let mut named = self.entity.iter().enumerate();
        if let Some((_, twice)) = named.find(|(place, name)| self.entity[..*place].contains(name)) {
            return fail(format!("entity: column {twice:?} is named twice; remove one"));
        }
        match self.codec.as_str() {
            LATENCY => self.check_columns()?,
            FIELDS => self.check_fields()?,
            other => {
                return fail(format!(
                    "codec: expected {LATENCY:?} or {FIELDS:?}, found {other:?}; {}",
                    did_you_mean(other, [LATENCY, FIELDS])
                ));
            }
        }
        if !(ROW_BYTES_MIN..=1 << 40).contains(&self.row_bytes) {
            return fail(format!(
                "row_bytes: expected 1,024 to 2^40 bytes, found {}; leave it out for the default of 8 MiB",
                self.row_bytes
            ));
        }
        if !(0.0..=1.0).contains(&self.dropped_share) {
            return fail(format!(
                "dropped_share: expected a share from 0 to 1, found {}",
                self.dropped_share
            ));
        }
        self.split.rule().map(|_| ()).context(|| "split")
    }

    /// Checks the columns of `latency-v1`.
    fn check_columns(&self) -> Result<()> {
        let fail = |message: String| Err(Error::schema(message));
        if !self.fields.is_empty() {
            return fail(format!(
                "fields: the codec {LATENCY:?} has its own fields; name their columns as columns = {{ \
                 dst = \"..\", rtt = \"..\" }}, or take the codec {FIELDS:?}"
            ));
        }
        let names = LATENCY_FIELDS.map(|(name, _)| name);
        if let Some(unknown) = self.columns.keys().find(|name| !names.contains(&name.as_str())) {
            return fail(format!(
                "columns: the codec {:?} has no field {unknown:?}; {}",
                self.codec,
                did_you_mean(unknown, names)
            ));
        }
        let is_missing =
            |(name, needed): &(&str, bool)| *needed && !self.columns.contains_key(*name);
        if let Some((name, _)) = LATENCY_FIELDS.iter().find(|field| is_missing(field)) {
            return fail(format!(
                "columns: expected a column for each of {}, found none for {name:?}; add {name} = \
                 \"its column\"",
                listed(LATENCY_FIELDS.iter().filter(|(_, needed)| *needed).map(|(name, _)| *name))
            ));
        }
        if self.entity.len() > 1 && !self.columns.contains_key("src") {
            return fail(
                "columns: expected the column of the source's address as src, because the entity has \
                 several columns, found none; add src = \"its column\""
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Checks the fields of `fields-v1`.
    fn check_fields(&self) -> Result<()> {
        let fail = |message: String| Err(Error::schema(message));
        if !self.columns.is_empty() {
            return fail(format!(
                "columns: the codec {FIELDS:?} has no fields of its own; name the columns as fields = \
                 {{ channel = \"category\", amount = \"number\" }}"
            ));
        }
        if self.fields.is_empty() || self.fields.len() > FIELDS_MAX {
            return fail(format!(
                "fields: expected 1 to {FIELDS_MAX} columns, each with its type, found {}; name them \
                 as fields = {{ channel = \"category\", amount = \"number\" }}",
                self.fields.len()
            ));
        }
        if self.fields.contains_key("time") {
            return fail(
                "fields: expected another name than \"time\", which is that of the event's own time; \
                 rename the column, or leave it out of the fields"
                    .to_owned(),
            );
        }
        let checked = self.fields.iter().map(|(name, field)| field.check(name));
        checked.collect::<Result<()>>().context(|| "fields")
    }
}

impl Schema {
    /// Checks a schema of events, which has no tables.
    pub(super) fn check_events(&self, events: &Events) -> Result<()> {
        let sections = [
            ("[[table]]", self.tables.is_empty()),
            ("[[aggregate]]", self.aggregates.is_empty()),
            ("[[summary]]", self.summaries.is_empty()),
            ("[[task]]", self.tasks.is_empty()),
            ("statistics_until", self.statistics_until.is_none()),
        ];
        if let Some((section, _)) = sections.iter().find(|(_, is_empty)| !is_empty) {
            return Err(Error::schema(format!(
                "expected [events] alone, found {section}, too; prepare the tables by a schema of \
                 their own"
            )));
        }
        events.check().context(|| "events")
    }
}
