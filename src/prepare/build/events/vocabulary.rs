//! The vocabulary of the codec `fields-v1`: which values of a category have a token.
//!
//! The values are counted in a pass of its own, over the events of train alone.

use std::collections::HashMap;

use arrow_array::{Array, StringViewArray};

use super::columns::{Columns, Rows};
use super::log::KeyColumns;
use crate::error::{Error, Result};
use crate::events::fields::field_tokens;
use crate::events::{FieldKind, FieldMetadata};
use crate::plan::{Split, SplitRule};
use crate::prepare::build::keys::identity;
use crate::prepare::schema::{EventField, Events};
use crate::random::name_identity;

/// The most different values of a category, which are counted in memory.
const VALUES_MAX: usize = 1 << 20;

/// How often each value of each category occurs in train; 0 where it is only in another split.
pub(super) struct Counts(Vec<HashMap<String, u64>>);

/// The values of each category in some rows, each once, with their counts.
type Found = Vec<Vec<(String, u64)>>;

/// Counts the values of categories.
pub(super) struct Counter<'a> {
    events: &'a Events,
    keys: KeyColumns,
    categories: Vec<usize>,
    rule: SplitRule,
}

impl<'a> Counter<'a> {
    pub(super) fn new(events: &'a Events, columns: &mut Columns) -> Result<Self> {
        let keys = KeyColumns::new(events, columns);
        let categories = categories(events).map(|name| columns.place(name)).collect();
        let rule = events.split.rule()?;
        Ok(Self { events, keys, categories, rule })
    }

    pub(super) fn has_categories(&self) -> bool {
        !self.categories.is_empty()
    }

    /// Returns the counts of no rows.
    pub(super) fn no_counts(&self) -> Counts {
        Counts(vec![HashMap::new(); self.categories.len()])
    }

    /// Counts the values in some rows.
    pub(super) fn count(&self, rows: &Rows<'_>) -> Result<Found> {
        let keys = self.keys.read(rows)?;
        let columns = self.categories.iter().map(|&place| rows.texts(place));
        let columns = columns.collect::<Result<Vec<StringViewArray>>>()?;
        let mut found: Vec<HashMap<&str, u64>> = vec![HashMap::new(); columns.len()];
        let events = name_identity("events");
        keys.for_each(|row, _, key| {
            let Ok((digest, _)) = key else { return };
            let is_train = self.rule.split_of(events, identity(digest)) == Split::Train;
            for (texts, found) in columns.iter().zip(&mut found) {
                if texts.is_valid(row) {
                    *found.entry(texts.value(row)).or_default() += u64::from(is_train);
                }
            }
        });
        let owned = |found: HashMap<&str, u64>| {
            found.into_iter().map(|(value, count)| (value.to_owned(), count)).collect()
        };
        Ok(found.into_iter().map(owned).collect())
    }

    /// Adds the counts of other rows.
    pub(super) fn add(&self, counts: &mut Counts, more: Found) -> Result<()> {
        for ((all, more), place) in counts.0.iter_mut().zip(more).zip(0..) {
            for (value, count) in more {
                *all.entry(value).or_default() += count;
            }
            if all.len() > VALUES_MAX {
                let name = categories(self.events).nth(place).unwrap_or_default();
                return Err(Error::limit(format!(
                    "expected at most {VALUES_MAX} different values of the category {name:?}, found more; \
                     make the field \"bytes\""
                )));
            }
        }
        Ok(())
    }
}

/// Returns the names of the fields that are categories.
fn categories(events: &Events) -> impl Iterator<Item = &str> {
    let is_category = |field: &EventField| matches!(field, EventField::Category { .. });
    let named = events.fields.iter().filter(move |(_, field)| is_category(field));
    named.map(|(name, _)| name.as_str())
}

/// Returns the fields with their tokens. A category's values are in the order of their counts in train,
/// the greatest first, and equal ones in the order of their bytes.
pub(super) fn vocabulary(events: &Events, counts: Counts) -> Result<Vec<FieldMetadata>> {
    let mut counts = counts.0.into_iter();
    let kind = |field: &EventField| match *field {
        EventField::Category { max_tokens, max_bytes } => {
            category(counts.next().unwrap_or_default(), max_tokens, max_bytes)
        }
        EventField::Number => FieldKind::Number,
        EventField::Bytes { max_bytes } => FieldKind::Bytes { max_bytes: max_bytes as u8 },
        EventField::Time { .. } => FieldKind::Time,
    };
    let kinds: Vec<FieldKind> = events.fields.values().map(kind).collect();
    field_tokens(events.fields.keys().cloned().zip(kinds).collect())
}

fn category(counts: HashMap<String, u64>, max_tokens: u32, max_bytes: u32) -> FieldKind {
    let mut values: Vec<(u64, String)> =
        counts.into_iter().map(|(value, count)| (count, value)).collect();
    values.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let in_train = values.partition_point(|(count, _)| *count > 0);
    let rare = values.split_off(in_train.min(max_tokens as usize));
    // No more room in the store than the rare values need.
    let longest = rare.iter().map(|(_, value)| value.len()).max().unwrap_or_default();
    FieldKind::Category {
        first: 0,
        values: values.into_iter().map(|(_, value)| value).collect(),
        max_bytes: longest.min(max_bytes as usize) as u8,
    }
}
