//! The first step over a batch: what depends on its rows alone, so that threads can take several batches
//! at once.

use arrow_array::{Array, RecordBatch, StringViewArray};
use rayon::prelude::*;

use super::columns::ReadColumn;
use super::keys::{KeyDigest, NULL_KEY, PARTIAL_KEY, digest, write_key};
use crate::bytes::reserve;
use crate::error::Result;
use crate::prepare::schema::Column;
use crate::prepare::values::{Values, to_texts};
use crate::store::identity_of;

/// What to read of each batch of a table.
pub(super) struct BatchReading {
    /// The columns, with their names.
    pub columns: Vec<(String, Column)>,
    /// The places of each list of columns by which rows are looked up.
    pub keys: Vec<Vec<usize>>,
    /// The places of the columns of each reference.
    pub references: Vec<Vec<usize>>,
    /// The places of the columns whose texts the store keeps.
    pub texts: Vec<usize>,
    /// Whether rows have a key; the others are known by all of their values.
    pub has_key: bool,
}

/// A batch that has been read.
pub(super) struct ReadBatch {
    pub row_count: usize,
    pub columns: Vec<ReadColumn>,
    /// The texts of the columns of keys and references. Keys are compared as text, whatever the type of
    /// their columns.
    pub key_texts: Vec<Option<StringViewArray>>,
    /// The digests of each list of columns by which rows are looked up.
    pub keys: Vec<Vec<KeyDigest>>,
    /// The digests of the keys of each reference.
    pub references: Vec<Vec<KeyDigest>>,
    /// The columns whose texts the store keeps.
    pub texts: Vec<TextColumn>,
    /// The identities of rows without a key.
    pub identities: Vec<u64>,
}

/// The texts of a column of a batch.
pub(super) struct TextColumn {
    pub place: usize,
    pub texts: StringViewArray,
    pub digests: Vec<KeyDigest>,
}

impl BatchReading {
    /// Reads a batch.
    pub(super) fn read(&self, batch: &RecordBatch) -> Result<ReadBatch> {
        let row_count = batch.num_rows();
        let read = (self.columns.par_iter())
            .zip(batch.columns())
            .map(|((name, column), array)| ReadColumn::read(name, column, array))
            .collect::<Vec<_>>();
        // The error of the first column, whichever thread was first.
        let columns = read.into_iter().collect::<Result<Vec<_>>>()?;
        let mut key_texts: Vec<Option<StringViewArray>> = vec![None; columns.len()];
        for &place in self.keys.iter().chain(&self.references).flatten() {
            key_texts[place] = Some(match &columns[place].values {
                Values::Texts(texts) => texts.clone(),
                _ => to_texts(batch.column(place))?,
            });
        }
        let digests =
            |places: &Vec<usize>| key_digests(&key_columns(places, &key_texts), row_count);
        let ((keys, references), texts) = rayon::join(
            || {
                (
                    self.keys.iter().map(digests).collect(),
                    self.references.iter().map(digests).collect(),
                )
            },
            || {
                (self.texts.par_iter())
                    .filter_map(|&place| TextColumn::of(&columns, place))
                    .collect()
            },
        );
        let identities = if self.has_key { Vec::new() } else { identities(&columns, row_count)? };
        Ok(ReadBatch { row_count, columns, key_texts, keys, references, texts, identities })
    }
}

impl ReadBatch {
    /// Returns the texts of some columns of keys.
    pub(super) fn key_columns(&self, places: &[usize]) -> Vec<&StringViewArray> {
        key_columns(places, &self.key_texts)
    }

    /// Returns the values of a column.
    pub(super) fn values(&self, place: usize) -> &Values {
        &self.columns[place].values
    }
}

impl TextColumn {
    fn of(columns: &[ReadColumn], place: usize) -> Option<Self> {
        let Values::Texts(texts) = &columns[place].values else { return None };
        let digest_of = |text: Option<&str>| text.map_or(NULL_KEY, |text| digest(text.as_bytes()));
        Some(Self { place, digests: texts.iter().map(digest_of).collect(), texts: texts.clone() })
    }
}

fn key_columns<'a>(
    places: &[usize],
    key_texts: &'a [Option<StringViewArray>],
) -> Vec<&'a StringViewArray> {
    places.iter().filter_map(|&place| key_texts[place].as_ref()).collect()
}

/// Returns the digest of the key in each row, [`NULL_KEY`] or [`PARTIAL_KEY`] if a part is NULL.
fn key_digests(columns: &[&StringViewArray], rows: usize) -> Vec<KeyDigest> {
    let (mut text, mut last) = (String::new(), String::new());
    let mut last_digest = digest(last.as_bytes());
    let digest_of = |row| {
        if !write_key(columns, row, &mut text) {
            let is_whole = columns.iter().all(|column| column.is_null(row));
            return if is_whole { NULL_KEY } else { PARTIAL_KEY };
        }
        // Rows with the same parent are often adjacent.
        if text != last {
            last_digest = digest(text.as_bytes());
            std::mem::swap(&mut text, &mut last);
        }
        last_digest
    };
    (0..rows).map(digest_of).collect()
}

/// Returns the identity of each row, by all of its values.
fn identities(columns: &[ReadColumn], rows: usize) -> Result<Vec<u64>> {
    let mut bytes = Vec::new();
    let identity = |row| {
        bytes.clear();
        columns.iter().for_each(|column| column.values.append_identity(row, &mut bytes));
        identity_of(&bytes)
    };
    let mut identities = reserve(rows)?;
    identities.extend((0..rows).map(identity));
    Ok(identities)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch};

    use super::BatchReading;
    use crate::store::SemanticType;

    #[test]
    fn of_two_unreadable_columns_the_error_names_the_first() {
        let lists: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<arrow_array::types::Int64Type, _, _>([
                Some([Some(1)]),
            ]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let batch =
            RecordBatch::try_from_iter([("a", numbers), ("b", lists.clone()), ("c", lists)])
                .unwrap();
        let columns = ["a", "b", "c"].map(|name| (name.to_owned(), SemanticType::Numerical.into()));
        let reading = BatchReading {
            columns: columns.to_vec(),
            keys: Vec::new(),
            references: Vec::new(),
            texts: Vec::new(),
            has_key: true,
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
        for _ in 0..200 {
            let error = pool.install(|| reading.read(&batch)).err().expect("lists are no numbers");
            assert!(error.to_string().starts_with("column \"b\": "), "{error}");
        }
    }
}
