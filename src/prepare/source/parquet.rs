//! Reads tables in Parquet files, with their Arrow types.

use std::fs::File;
use std::path::Path;

use arrow_array::{RecordBatch, RecordBatchOptions};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::{BATCH_ROWS, Batches, SourceColumn, check_names};
use crate::error::{Context, Error, Result};

type Builder = ParquetRecordBatchReaderBuilder<File>;

/// Returns the columns of a file.
pub(super) fn columns(path: &Path) -> Result<Vec<SourceColumn>> {
    let builder = open(path)?;
    let fields = builder.schema().fields();
    let column =
        |name: &String, data_type| SourceColumn { name: name.clone(), data_type, declared: None };
    let columns: Vec<_> =
        fields.iter().map(|field| column(field.name(), field.data_type().clone())).collect();
    check_names(&columns).context(|| path.display().to_string())?;
    Ok(columns)
}

/// Streams the columns at `indices`.
pub(super) fn read(path: &Path, indices: Vec<usize>) -> Result<Batches> {
    let builder = open(path)?;
    let mask = ProjectionMask::roots(builder.parquet_schema(), indices.iter().copied());
    let builder = builder.with_projection(mask).with_batch_size(BATCH_ROWS);
    let reader = builder.build().map_err(|e| unreadable(path, &e))?;
    let path = path.to_owned();
    Ok(Box::new(reader.map(move |batch| {
        let batch = batch.and_then(|batch| arrange(&batch, &indices));
        batch.map_err(|e| unreadable(&path, &e))
    })))
}

/// Puts the columns from the file's order into the order of `indices`.
fn arrange(
    batch: &RecordBatch,
    indices: &[usize],
) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let mut sorted = indices.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let order: Vec<_> = indices.iter().map(|index| sorted.partition_point(|i| i < index)).collect();
    let schema = batch.schema().project(&order)?;
    let arrays = order.iter().map(|&index| batch.column(index).clone()).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.into(), arrays, &options)
}

fn open(path: &Path) -> Result<Builder> {
    let file = File::open(path).map_err(|e| Error::io(path, "opening", e))?;
    Builder::try_new(file).map_err(|e| unreadable(path, &e))
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::data(format!(
        "{}: not a complete Parquet file: {error}; it may be truncated, write it again",
        path.display()
    ))
}
