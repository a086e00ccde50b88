//! Reads tables in Parquet files of one or several parts, with their Arrow types.

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow_array::{RecordBatch, RecordBatchOptions};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use super::{BATCH_ROWS, Batches, SourceColumn, check_names};
use crate::error::{Context, Error, Result};

type Builder = ParquetRecordBatchReaderBuilder<File>;

/// Returns the columns of a table, which all parts must share.
pub(super) fn columns(parts: &[PathBuf]) -> Result<Vec<SourceColumn>> {
    let mut shared: Option<(&PathBuf, Vec<SourceColumn>)> = None;
    for part in parts {
        let columns = part_columns(part, &open(part)?)?;
        match &shared {
            Some((first, expected)) if *expected != columns => {
                return Err(Error::data(format!(
                    "{}: expected the columns {} as in {}, found {}; give all parts of a table the \
                     same columns",
                    part.display(),
                    describe(expected),
                    first.display(),
                    describe(&columns)
                )));
            }
            Some(_) => {}
            None => shared = Some((part, columns)),
        }
    }
    Ok(shared.map(|(_, columns)| columns).unwrap_or_default())
}

/// Streams the columns at `indices`, all parts in order.
pub(super) fn read(parts: Vec<PathBuf>, indices: Vec<usize>) -> Result<Batches> {
    let reader = parts.first().map(|part| part_reader(part, &indices)).transpose()?;
    Ok(Box::new(Rows { parts, current: 0, reader, indices }))
}

/// The rows of all parts.
struct Rows {
    parts: Vec<PathBuf>,
    current: usize,
    /// `None` at the end and after an error.
    reader: Option<ParquetRecordBatchReader>,
    indices: Vec<usize>,
}

impl Iterator for Rows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batch();
        if batch.is_err() {
            self.reader = None;
        }
        batch.transpose()
    }
}

impl Rows {
    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(reader) = &mut self.reader {
            let part = &self.parts[self.current];
            if let Some(batch) = reader.next() {
                let batch = batch.map_err(|e| unreadable(part, &e))?;
                return arrange(&batch, &self.indices).map(Some).map_err(|e| unreadable(part, &e));
            }
            self.current += 1;
            let next = self.parts.get(self.current);
            self.reader = next.map(|part| part_reader(part, &self.indices)).transpose()?;
        }
        Ok(None)
    }
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

fn part_reader(part: &Path, indices: &[usize]) -> Result<ParquetRecordBatchReader> {
    let builder = open(part)?;
    let mask = ProjectionMask::roots(builder.parquet_schema(), indices.iter().copied());
    let builder = builder.with_projection(mask).with_batch_size(BATCH_ROWS);
    builder.build().map_err(|e| unreadable(part, &e))
}

fn open(part: &Path) -> Result<Builder> {
    let file = File::open(part).map_err(|e| Error::io(part, "opening", e))?;
    Builder::try_new(file).map_err(|e| unreadable(part, &e))
}

fn part_columns(part: &Path, builder: &Builder) -> Result<Vec<SourceColumn>> {
    let fields = builder.schema().fields();
    let column =
        |name: &String, data_type| SourceColumn { name: name.clone(), data_type, declared: None };
    let columns: Vec<_> =
        fields.iter().map(|field| column(field.name(), field.data_type().clone())).collect();
    check_names(&columns).context(|| part.display().to_string())?;
    Ok(columns)
}

fn describe(columns: &[SourceColumn]) -> String {
    let columns = columns.iter().map(|c| format!("{} {}", c.name, c.data_type));
    format!("({})", columns.collect::<Vec<_>>().join(", "))
}

fn unreadable(part: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::data(format!(
        "{}: not a complete Parquet file: {error}; it may be truncated, write it again",
        part.display()
    ))
}
