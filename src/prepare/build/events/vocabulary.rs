//! The vocabulary of the codec `fields-v1`: which values of a category have a token.
//!
//! The values are counted in a pass of its own, over the events of train alone.

use std::collections::HashMap;

use super::categories::{Category, ReadSum};
use super::columns::{Columns, Rows};
use super::log::KeyColumns;
use crate::error::{Error, Result};
use crate::events::fields::{TEXT_BYTES_MAX, field_tokens};
use crate::events::{FieldKind, FieldMetadata};
use crate::plan::{Split, SplitRule};
use crate::prepare::build::keys::identity;
use crate::prepare::schema::{DEFAULT_MAX_BYTES, EventField, Events};
use crate::random::name_identity;

/// The most different values of a category, which are counted in memory.
const VALUES_MAX: usize = 1 << 20;

/// The values of categories in the events of train, and a sum over all events.
pub(super) struct Counts {
    categories: Vec<CategoryCounts>,
    /// What was read, to be compared with the next read.
    pub read: ReadSum,
}

/// The values of one category in train.
#[derive(Clone, Default)]
struct CategoryCounts {
    counts: HashMap<String, u64>,
    /// Whether there is a value that is too long for a token.
    has_longer: bool,
}

/// The values of each category in some rows, each once, with their counts in train.
pub(super) struct Found {
    categories: Vec<Vec<(String, u64)>>,
    read: ReadSum,
}

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
        let categories = vec![CategoryCounts::default(); self.categories.len()];
        Counts { categories, read: ReadSum::default() }
    }

    /// Counts the values in some rows.
    pub(super) fn count(&self, rows: &Rows<'_>) -> Result<Found> {
        let keys = self.keys.read(rows)?;
        let columns = self.categories.iter().map(|&place| Ok(Category::new(rows.texts(place)?)));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let mut counts: Vec<_> = columns.iter().map(|one| vec![0; one.values().len()]).collect();
        let mut read = ReadSum::default();
        let events = name_identity("events");
        keys.for_each(|row, _, key| {
            let Ok((digest, _)) = key else { return };
            read.add(digest, &columns, row);
            if self.rule.split_of(events, identity(digest)) == Split::Train {
                for (column, counts) in columns.iter().zip(&mut counts) {
                    column.number(row).into_iter().for_each(|number| counts[number] += 1);
                }
            }
        });
        let in_train = |(column, counts): (&Category, Vec<u64>)| {
            let counted = column.values().zip(counts).filter(|(_, count)| *count > 0);
            counted.map(|(value, count)| (value.to_owned(), count)).collect()
        };
        Ok(Found { categories: columns.iter().zip(counts).map(in_train).collect(), read })
    }

    /// Adds the counts of other rows.
    pub(super) fn add(&self, counts: &mut Counts, more: Found) -> Result<()> {
        counts.read.merge(more.read);
        for ((all, more), place) in counts.categories.iter_mut().zip(more.categories).zip(0..) {
            for (value, count) in more {
                match value.len() <= usize::from(TEXT_BYTES_MAX) {
                    true => *all.counts.entry(value).or_default() += count,
                    false => all.has_longer = true,
                }
            }
            if all.counts.len() > VALUES_MAX {
                let name = categories(self.events).nth(place).unwrap_or_default();
                return Err(Error::limit(format!(
                    "expected at most {VALUES_MAX} different values of the category {name:?} in train, \
                     found more; make the field \"bytes\""
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
    let mut counts = counts.categories.into_iter();
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

fn category(all: CategoryCounts, max_tokens: u32, max_bytes: Option<u32>) -> FieldKind {
    let mut values: Vec<(u64, String)> =
        all.counts.into_iter().map(|(value, count)| (count, value)).collect();
    values.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let rare = values.split_off(values.len().min(max_tokens as usize));
    // No more room than the rare values of train need: those of val and test must not change a row of it.
    let longest = || match all.has_longer {
        true => DEFAULT_MAX_BYTES,
        false => rare.iter().map(|(_, value)| value.len() as u32).max().unwrap_or_default(),
    };
    FieldKind::Category {
        first: 0,
        values: values.into_iter().map(|(_, value)| value).collect(),
        max_bytes: max_bytes.unwrap_or_else(|| longest().min(DEFAULT_MAX_BYTES)) as u8,
    }
}
