//! The values of categories in some rows, and a sum over all rows that tells two reads of a source apart.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use arrow_array::{Array, StringViewArray};

use crate::error::{Error, Result};
use crate::prepare::build::keys::{KeyDigest, identity};
use crate::prepare::names::counted;

/// The number of a value that is NULL.
const NULL: u32 = u32::MAX;

/// The values of one category in some rows, each once.
pub(super) struct Category {
    texts: StringViewArray,
    /// The number of each row's value among the different ones.
    numbers: Vec<u32>,
    /// The first row of each value, and its hash.
    values: Vec<(u32, u64)>,
}

impl Category {
    pub(super) fn new(texts: StringViewArray) -> Self {
        let mut known: HashMap<&str, u32> = HashMap::new();
        let mut values = Vec::new();
        let mut numbers = Vec::with_capacity(texts.len());
        for (row, text) in (0..).zip(texts.iter()) {
            numbers.push(text.map_or(NULL, |text| {
                *known.entry(text).or_insert_with(|| {
                    values.push((row, hash(text)));
                    values.len() as u32 - 1
                })
            }));
        }
        drop(known);
        Self { texts, numbers, values }
    }

    /// Returns the number of the value in `row`; none if it is NULL.
    pub(super) fn number(&self, row: usize) -> Option<usize> {
        let number = self.numbers[row];
        (number != NULL).then_some(number as usize)
    }

    /// Returns the different values by their numbers.
    pub(super) fn values(&self) -> impl ExactSizeIterator<Item = &str> {
        self.values.iter().map(|&(row, _)| self.texts.value(row as usize))
    }

    /// Returns the value of a row that is not NULL.
    pub(super) fn text(&self, row: usize) -> &str {
        self.texts.value(row)
    }

    /// Returns a hash of the value in `row`.
    fn hash(&self, row: usize) -> u64 {
        self.number(row).map_or(0, |number| self.values[number].1)
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// What one read of a source found: the number of rows, and a sum over entities and categories, which is
/// the same in every order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadSum {
    rows: u64,
    sum: u64,
}

impl ReadSum {
    /// Adds the categories of an event of some entity.
    pub(super) fn add<'a>(
        &mut self,
        entity: KeyDigest,
        categories: impl IntoIterator<Item = &'a Category>,
        row: usize,
    ) {
        let mix = |sum: u64, category: &Category| sum.rotate_left(7) ^ category.hash(row);
        let mixed = categories.into_iter().fold(1, mix);
        self.rows += 1;
        self.sum = self.sum.wrapping_add(mixed.wrapping_mul(identity(entity) | 1));
    }

    /// Adds the sum of other rows.
    pub(super) fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Rejects a second read that found other events than this first one.
    pub(super) fn check(self, second: Self) -> Result<()> {
        if self == second {
            return Ok(());
        }
        let rows = |read: Self| counted(read.rows, "event");
        let found = match self.rows == second.rows {
            true => "other entities or categories".to_owned(),
            false => rows(second),
        };
        Err(Error::data(format!(
            "expected the {} that were read to count the categories, found {found} when they were read \
             again: the source changed meanwhile, or is a query with another result each time; prepare \
             from a copy that does not change",
            rows(self)
        )))
    }
}
