//! The bytes of a batch that has been read.
//!
//! A batch is a record batch of Arrow with these columns: the values of each column of the table, but of an
//! identifier only whether it is NULL, and nothing of a column that is ignored; the texts of the columns of the
//! table's key; the digests of each list of columns by which rows are looked up, of each reference and of each
//! column of texts; the identities of rows without a key.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeBinaryArray, RecordBatch, RecordBatchOptions,
    StringViewArray, UInt64Array,
};
use arrow_buffer::{BooleanBuffer, Buffer, ScalarBuffer};
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use bytes::Bytes;

use crate::bytes::ALIGNMENT;
use crate::error::{Error, Result};
use crate::panics::caught;
use crate::prepare::build::columns::ReadColumn;
use crate::prepare::build::keys::KeyDigest;
use crate::prepare::build::read_batch::{BatchReading, ReadBatch, TextColumn};
use crate::prepare::schema::Column;
use crate::prepare::values::{Values, arrow_error};
use crate::store::SemanticType;

/// The bytes of a digest.
const DIGEST_BYTES: i32 = size_of::<KeyDigest>() as i32;

/// What a part holds of the values of a column.
enum Held {
    Values(DataType),
    Nulls,
    Nothing,
}

fn held(column: &Column) -> Held {
    match column.semantic {
        SemanticType::Numerical => Held::Values(DataType::Float64),
        SemanticType::Timestamp => Held::Values(DataType::Int64),
        SemanticType::Boolean => Held::Values(DataType::Boolean),
        SemanticType::Categorical | SemanticType::Text => Held::Values(DataType::Utf8View),
        SemanticType::Identifier => Held::Nulls,
        SemanticType::Ignored => Held::Nothing,
    }
}

/// Whether the values of a column are texts, which a key then shares.
fn is_held_as_text(column: &Column) -> bool {
    matches!(held(column), Held::Values(DataType::Utf8View))
}

impl BatchReading {
    /// Returns the places of the columns whose texts the table's file has as keys.
    fn key_texts(&self) -> &[usize] {
        if self.has_key { self.keys.first().map_or(&[], Vec::as_slice) } else { &[] }
    }

    /// Returns the columns that a part has of each batch.
    fn schema(&self) -> SchemaRef {
        let mut types = Vec::new();
        for (_, column) in &self.columns {
            match held(column) {
                Held::Values(data_type) => types.push(data_type),
                Held::Nulls => types.push(DataType::Boolean),
                Held::Nothing => {}
            }
        }
        let of_keys =
            self.key_texts().iter().filter(|place| !is_held_as_text(&self.columns[**place].1));
        types.extend(of_keys.map(|_| DataType::Utf8View));
        let lists = self.keys.len() + self.references.len() + self.texts.len();
        types.extend((0..lists).map(|_| DataType::FixedSizeBinary(DIGEST_BYTES)));
        if !self.has_key {
            types.push(DataType::UInt64);
        }
        let field =
            |(place, data_type): (usize, DataType)| Field::new(place.to_string(), data_type, true);
        Arc::new(Schema::new(types.into_iter().enumerate().map(field).collect::<Vec<_>>()))
    }
}

/// Returns the bytes of a batch.
pub(super) fn encode(reading: &BatchReading, batch: &ReadBatch) -> Result<Vec<u8>> {
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for ((_, column), read) in reading.columns.iter().zip(&batch.columns) {
        match (held(column), &read.values) {
            (Held::Nothing, _) => {}
            (Held::Nulls, Values::Texts(texts)) => {
                let unset = BooleanBuffer::new_unset(texts.len());
                arrays.push(Arc::new(BooleanArray::new(unset, texts.logical_nulls())));
            }
            (_, Values::Texts(texts)) => arrays.push(Arc::new(texts.gc())),
            (_, Values::Numbers(numbers)) => arrays.push(Arc::new(numbers.clone())),
            (_, Values::Times(times)) => arrays.push(Arc::new(times.clone())),
            (_, Values::Booleans(booleans)) => arrays.push(Arc::new(booleans.clone())),
        }
    }
    for &place in reading.key_texts() {
        if !is_held_as_text(&reading.columns[place].1) {
            let texts = batch.key_columns(&[place]);
            arrays.extend(texts.into_iter().map(|texts| Arc::new(texts.gc()) as ArrayRef));
        }
    }
    let of_texts = batch.texts.iter().map(|column| &column.digests);
    for digests in batch.keys.iter().chain(&batch.references).chain(of_texts) {
        let bytes: Vec<u8> = digests.iter().flat_map(|digest| digest.to_le_bytes()).collect();
        let array = FixedSizeBinaryArray::try_new(DIGEST_BYTES, Buffer::from_vec(bytes), None);
        arrays.push(Arc::new(array.map_err(arrow_error)?));
    }
    if !reading.has_key {
        arrays.push(Arc::new(UInt64Array::from(batch.identities.clone())));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.row_count));
    let schema = reading.schema();
    let write = || {
        let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), arrays, &options)?;
        let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
        writer.write(&batch)?;
        let mut bytes = writer.into_inner()?;
        // The next batch is aligned, too, so that its arrays can lie in the map.
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        Ok(bytes)
    };
    write().map_err(arrow_error)
}

/// Reads the bytes of a batch of `row_count` rows. What they are is not trusted.
///
/// # Errors
/// `Corrupt`, with what is wrong with the bytes.
pub(super) fn decode(reading: &BatchReading, bytes: Bytes, row_count: usize) -> Result<ReadBatch> {
    let batch = record_batch(bytes).map_err(|e| Error::corrupt(format!("not a batch: {e}")))?;
    let types = |schema: &Schema| {
        let types = schema.fields().iter().map(|field| field.data_type().to_string());
        types.collect::<Vec<_>>().join(", ")
    };
    let (expected, found) = (types(&reading.schema()), types(&batch.schema()));
    if (&expected, row_count) != (&found, batch.num_rows()) {
        return Err(Error::corrupt(format!(
            "expected {row_count} rows with the columns {expected}, found {} with {found}",
            batch.num_rows()
        )));
    }
    // The types of the arrays are those of the schema, and so are their number and their lengths.
    let mut arrays = batch.columns().iter();
    let mut next = || arrays.next().ok_or_else(|| Error::corrupt("expected more columns"));
    let mut columns = Vec::with_capacity(reading.columns.len());
    for (_, column) in &reading.columns {
        let values = match held(column) {
            Held::Values(data_type) => values(&data_type, next()?)?,
            Held::Nulls => {
                let views = ScalarBuffer::from(vec![0_u128; row_count]);
                let texts = StringViewArray::try_new(views, vec![], next()?.logical_nulls());
                Values::Texts(texts.map_err(arrow_error)?)
            }
            Held::Nothing => Values::nulls(column, row_count),
        };
        columns.push(ReadColumn { values, bad: None });
    }
    let mut key_texts: Vec<Option<StringViewArray>> = vec![None; columns.len()];
    for &place in reading.key_texts() {
        key_texts[place] = match &columns[place].values {
            Values::Texts(texts) if is_held_as_text(&reading.columns[place].1) => {
                Some(texts.clone())
            }
            _ => Some(next()?.as_string_view().clone()),
        };
    }
    let mut digests = || next().map(digests_of);
    let keys = reading.keys.iter().map(|_| digests()).collect::<Result<_>>()?;
    let references = reading.references.iter().map(|_| digests()).collect::<Result<_>>()?;
    let mut texts = Vec::with_capacity(reading.texts.len());
    for &place in &reading.texts {
        if let Values::Texts(of_column) = &columns[place].values {
            texts.push(TextColumn { place, texts: of_column.clone(), digests: digests()? });
        }
    }
    let mut identities = Vec::new();
    if !reading.has_key {
        identities.extend(next()?.as_primitive::<UInt64Type>().values());
    }
    Ok(ReadBatch { row_count, columns, key_texts, keys, references, texts, identities })
}

/// Returns the values in an array of this type.
fn values(data_type: &DataType, array: &ArrayRef) -> Result<Values> {
    let values = match data_type {
        DataType::Float64 => Values::Numbers(array.as_primitive::<Float64Type>().clone()),
        DataType::Int64 => Values::Times(array.as_primitive::<Int64Type>().clone()),
        DataType::Boolean => Values::Booleans(array.as_boolean().clone()),
        _ => Values::Texts(array.as_string_view().clone()),
    };
    values.checked().map_err(|bad| {
        Error::corrupt(format!("expected {}, found {} in row {}", bad.expected, bad.value, bad.row))
    })
}

fn digests_of(array: &ArrayRef) -> Vec<KeyDigest> {
    let digest = |bytes: &[u8]| KeyDigest::from_le_bytes(bytes.try_into().unwrap_or_default());
    let digests = array.as_fixed_size_binary();
    (0..digests.len()).map(|row| digest(digests.value(row))).collect()
}

/// Reads the one record batch of an IPC stream; fails with what is wrong with it.
fn record_batch(bytes: Bytes) -> Result<RecordBatch, String> {
    let read = || {
        let (mut decoder, mut left) = (StreamDecoder::new(), Buffer::from(bytes));
        let batch = decoder.decode(&mut left)?;
        decoder.finish()?;
        batch.ok_or_else(|| ArrowError::IpcError("no rows".to_owned()))
    };
    // Arrow panics at some of the offsets that a stream should not have.
    caught(read)?.map_err(|e: ArrowError| e.to_string())
}
