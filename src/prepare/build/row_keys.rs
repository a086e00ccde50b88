//! The keys of a table's rows: written to its file, checked, and kept where other tables refer to them.

use std::collections::HashMap;
use std::path::Path;

use super::chain::{Chain, SpillWriter};
use super::key_list::{KeyList, Repeated};
use super::keys::{identity, write_key};
use super::read_batch::ReadBatch;
use crate::bytes::reserve;
use crate::container::{ContainerWriter, EncodedStrings, StringsWriter};
use crate::error::{Error, Result};
use crate::prepare::names::counted;
use crate::prepare::schema::Limits;

/// The keys of the rows, and what finds a row by them.
pub(super) struct RowKeys<'a> {
    /// The key of the table, if it has one, is the first.
    lists: Vec<KeyColumns>,
    /// The texts of the keys, in the table's file; none of rows without a key.
    strings: Option<StringsWriter>,
    file: ContainerWriter,
    identities: Chain,
    spill: &'a SpillWriter,
}

/// A list of columns by whose values rows are told apart, or are looked up.
pub(super) struct KeyColumns {
    columns: Vec<String>,
    places: Vec<usize>,
    /// Whether other tables or tasks look rows up by it.
    is_looked_up: bool,
    keys: KeyList,
}

/// The keys by which the rows of a table are looked up, by their columns.
pub(super) type KeyLists = HashMap<Vec<String>, KeyList>;

/// The keys when all rows were added.
pub(super) struct WrittenKeys {
    /// The number of rows that repeat a key.
    pub duplicates: u64,
    pub lists: KeyLists,
    /// The table's file, with the keys.
    pub file: ContainerWriter,
}

/// Reads the text of some columns of a row once more, for a message; none if that fails.
pub(super) type TextOf<'a> = dyn Fn(&[String], u64) -> Option<String> + 'a;

/// Describes a row for a message: by the text of some columns, if it can be read, and by its number.
pub(super) fn row_in_words(text_of: &TextOf<'_>, columns: &[String], row: u64) -> String {
    let text = text_of(columns, row).map_or_else(String::new, |text| format!("{text:?} in "));
    format!("{text}row {}", row + 1)
}

impl<'a> RowKeys<'a> {
    /// Creates the table's file in `folder`.
    pub(super) fn create(
        folder: &Path,
        name: &str,
        lists: Vec<KeyColumns>,
        has_key: bool,
        spill: &'a SpillWriter,
    ) -> Result<Self> {
        let mut file = ContainerWriter::create(folder, name)?;
        let begin = || StringsWriter::begin(&mut file, "keys");
        let strings = has_key.then(begin).transpose()?;
        Ok(Self { lists, strings, file, identities: Chain::default(), spill })
    }

    /// Adds the rows of a batch, the first of which is `first_row`.
    pub(super) fn add(&mut self, first_row: u64, batch: &ReadBatch) -> Result<()> {
        for (list, digests) in self.lists.iter_mut().zip(&batch.keys) {
            list.keys.add(self.spill, first_row, digests)?;
        }
        let mut identities = reserve(batch.row_count * size_of::<u64>())?;
        if let (Some(strings), Some(key)) = (&mut self.strings, self.lists.first()) {
            let of_keys = batch.keys[0].iter().copied().map(identity);
            identities.extend(of_keys.flat_map(u64::to_le_bytes));
            let (columns, mut text) = (batch.key_columns(&key.places), String::new());
            let mut texts = EncodedStrings::after(strings.count());
            for row in 0..batch.row_count {
                write_key(&columns, row, &mut text);
                texts.push(text.as_bytes());
            }
            strings.append(&mut self.file, &texts)?;
        } else {
            identities.extend(batch.identities.iter().flat_map(|identity| identity.to_le_bytes()));
        }
        self.spill.append_all(&mut self.identities, &identities)
    }

    /// Writes the identities, and checks the keys.
    pub(super) fn finish(mut self, limits: &Limits, text_of: &TextOf<'_>) -> Result<WrittenKeys> {
        self.lists.iter_mut().try_for_each(|list| list.keys.close(self.spill))?;
        let mut duplicates = 0;
        let mut others = &self.lists[..];
        if let (Some(strings), Some((key, rest))) = (self.strings.take(), self.lists.split_first())
        {
            key.check_nulls()?;
            strings.finish(&mut self.file, "keys")?;
            self.file.begin("by_identity")?;
            let repeated = key.keys.sorted(|rows| self.file.write(bytemuck::cast_slice(rows)))?;
            duplicates += key.check_repeated(repeated, limits, text_of)?;
            others = rest;
        }
        for list in others {
            duplicates += list.check_repeated(list.keys.repeated()?, limits, text_of)?;
        }
        self.file.begin("identities")?;
        self.identities.for_each(|identities| self.file.write(identities))?;
        let lists = self.lists.into_iter().filter(|list| list.is_looked_up);
        let lists = lists.map(|list| (list.columns, list.keys)).collect();
        Ok(WrittenKeys { duplicates, lists, file: self.file })
    }
}

impl KeyColumns {
    pub(super) fn new(columns: Vec<String>, places: Vec<usize>, is_looked_up: bool) -> Self {
        Self { columns, places, is_looked_up, keys: KeyList::new() }
    }

    /// Returns the places of the columns.
    pub(super) fn places(&self) -> &[usize] {
        &self.places
    }

    /// Checks that every row has a key. Other columns that tables refer to may be NULL: such a row has no
    /// children.
    fn check_nulls(&self) -> Result<()> {
        if let (count, Some(first)) = self.keys.nulls {
            return Err(Error::data(format!(
                "the key ({}) is NULL in {}, the first is row {}; every row needs a \
                 key: correct the data, or remove the key from the schema",
                self.columns.join(", "),
                counted(count, "row"),
                first + 1
            )));
        }
        Ok(())
    }

    /// Checks that repeated keys are within the limit; returns their number.
    fn check_repeated(
        &self,
        Repeated { count, first }: Repeated,
        limits: &Limits,
        text_of: &TextOf<'_>,
    ) -> Result<u64> {
        let (Some((row, earlier)), true) = (first, count > limits.duplicate_keys) else {
            return Ok(count);
        };
        Err(Error::data(format!(
            "expected at most {} that repeat a key ({}), found {count}, the first is {} and row {}; \
             correct the key or the data, or raise limits.duplicate_keys (references then link to \
             the first row)",
            counted(limits.duplicate_keys, "row"),
            self.columns.join(", "),
            row_in_words(text_of, &self.columns, earlier.into()),
            u64::from(row) + 1
        )))
    }
}
