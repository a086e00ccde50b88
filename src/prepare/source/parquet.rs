//! Reads tables in Parquet files, with their Arrow types.
//!
//! Texts come as views into the pages: a dictionary of long texts is not written out for each row.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::ColumnChunkMetaData;

use super::{BATCH_BYTES, BATCH_ROWS, Batches, SourceColumn, check_names};
use crate::error::{Context, Error, Result};
use crate::matrix::PageFile;
use crate::panics::caught;

/// The rows, or the bytes before compression, that are enough for a block of row groups.
const BLOCK_ROWS: i64 = 1 << 16;
const BLOCK_BYTES: i64 = 64 << 20;

/// Returns the columns of a file.
pub(super) fn columns(path: &Path) -> Result<Vec<SourceColumn>> {
    let file = PageFile::open(path)?;
    let metadata = readable(path, || ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()))?;
    let column = |field: &FieldRef| SourceColumn {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        declared: None,
    };
    let columns: Vec<_> = metadata.schema().fields().iter().map(column).collect();
    check_names(&columns).context(|| path.display().to_string())?;
    Ok(columns)
}

/// Cuts the row groups of a file into blocks: each is the shortest run of them that has enough rows or bytes.
pub(super) fn blocks(path: &Path) -> Result<Vec<(Range<usize>, u64)>> {
    let file = PageFile::open(path)?;
    let metadata = readable(path, || ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()))?;
    let groups = metadata.metadata().row_groups();
    let (mut blocks, mut start, mut rows, mut bytes) = (Vec::new(), 0, 0_i64, 0_i64);
    for (place, group) in groups.iter().enumerate() {
        rows = rows.saturating_add(group.num_rows());
        bytes = bytes.saturating_add(group.total_byte_size());
        if rows >= BLOCK_ROWS || bytes >= BLOCK_BYTES || place + 1 == groups.len() {
            blocks.push((start..place + 1, u64::try_from(rows).unwrap_or(0)));
            (start, rows, bytes) = (place + 1, 0, 0);
        }
    }
    Ok(blocks)
}

/// Streams the columns at `indices`, of some row groups or of all.
pub(super) fn read(
    path: &Path,
    indices: Vec<usize>,
    groups: Option<Vec<usize>>,
) -> Result<Batches> {
    let file = PageFile::open(path)?;
    let reader = readable(path, || {
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())?;
        let metadata = with_views(&metadata).unwrap_or(metadata);
        let mask = ProjectionMask::roots(metadata.parquet_schema(), indices.iter().copied());
        let rows = batch_rows(&metadata, &mask);
        let file = file.held_to(metadata.metadata());
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_projection(mask)
            .with_batch_size(rows);
        match groups {
            Some(groups) => reader.with_row_groups(groups),
            None => reader,
        }
        .build()
    })?;
    let (path, mut reader) = (path.to_owned(), Some(reader));
    Ok(Box::new(std::iter::from_fn(move || {
        let rows = reader.as_mut()?;
        let batch = readable(&path, || {
            rows.next().map(|batch| batch.and_then(|batch| arrange(&batch, &indices))).transpose()
        });
        // After a panic the reader is of no use.
        if !matches!(batch, Ok(Some(_))) {
            reader = None;
        }
        batch.transpose()
    })))
}

/// Returns the metadata of a reader that gives texts as views; `None` when there are no texts.
fn with_views(metadata: &ArrowReaderMetadata) -> Option<ArrowReaderMetadata> {
    let is_text =
        |field: &FieldRef| matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8);
    let fields = metadata.schema().fields();
    if !fields.iter().any(is_text) {
        return None;
    }
    let as_view = |field: &FieldRef| match is_text(field) {
        true => Arc::new(Field::clone(field).with_data_type(DataType::Utf8View)),
        false => Arc::clone(field),
    };
    let fields: Vec<_> = fields.iter().map(as_view).collect();
    let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields)));
    // A type that the library does not take back as it gave it is read as it is.
    ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options).ok()
}

/// Returns the number of rows of a batch that does not exceed its bytes, by the row group with the
/// longest rows.
fn batch_rows(metadata: &ArrowReaderMetadata, mask: &ProjectionMask) -> usize {
    let bytes = |column: &ColumnChunkMetaData| column.uncompressed_size().max(0) as u64;
    let groups = metadata.metadata().row_groups().iter().filter(|group| group.num_rows() > 0);
    let row_bytes = groups.map(|group| {
        let columns = group.columns().iter().enumerate();
        let read = columns.filter(|&(leaf, _)| mask.leaf_included(leaf));
        let total = read.fold(0_u64, |total, (_, column)| total.saturating_add(bytes(column)));
        total / group.num_rows() as u64
    });
    let rows = BATCH_BYTES as u64 / row_bytes.max().unwrap_or(0).max(1);
    rows.clamp(1, BATCH_ROWS as u64) as usize
}

/// Puts the columns from the file's order into the order of `indices`.
fn arrange(batch: &RecordBatch, indices: &[usize]) -> Result<RecordBatch, ArrowError> {
    let mut sorted = indices.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let order: Vec<_> = indices.iter().map(|index| sorted.partition_point(|i| i < index)).collect();
    let schema = batch.schema().project(&order)?;
    let arrays = order.iter().map(|&index| batch.column(index).clone()).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.into(), arrays, &options)
}

/// Runs a read of the library, and turns its errors, and its panics on damaged bytes, into errors.
fn readable<T, E: Display>(path: &Path, read: impl FnOnce() -> Result<T, E>) -> Result<T> {
    match caught(read) {
        Ok(read) => read.map_err(|e| unreadable(path, &e)),
        Err(panic) => Err(unreadable(path, &panic)),
    }
}

fn unreadable(path: &Path, error: &dyn Display) -> Error {
    Error::data(format!(
        "{}: not a complete Parquet file: {error}; it may be truncated, write it again",
        path.display()
    ))
}
