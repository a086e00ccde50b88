//! Columns of a Parquet file as a matrix, decoded on demand.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, UInt8Type, UInt16Type,
    UInt32Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};

use super::listed;
use super::numbers::Cells;
use super::pages::PageFile;
use crate::bytes::reserve;
use crate::environment::in_default_environment;
use crate::error::{Context, Error, Result};
use crate::panics::caught;

/// The rows of one decoded batch.
const BATCH_ROWS: usize = 4096;

/// The chosen columns of a Parquet file.
pub(super) struct Table {
    file: PageFile,
    metadata: ArrowReaderMetadata,
    names: Vec<String>,
    mask: ProjectionMask,
    /// The place of each chosen column among the decoded ones, which are in the file's order.
    places: Vec<usize>,
    /// The first row of each row group, and the end of the last.
    group_starts: Vec<u64>,
    /// Where the last read ended: the next read usually starts there.
    stream: Mutex<Option<Stream>>,
}

/// A decoder of the rows from `next` to the end of the file.
struct Stream {
    rows: ParquetRecordBatchReader,
    /// The next row.
    next: u64,
    /// Rows from `next` on that are decoded already.
    rest: Option<RecordBatch>,
}

impl Table {
    /// Opens the columns with these names, in this order (default: all columns).
    pub(super) fn open(path: &Path, names: Option<&[String]>) -> Result<Self> {
        let file = PageFile::open(path)?;
        let metadata = readable(|| ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()))?;
        let file = file.held_to(metadata.metadata());
        let schema = metadata.schema();
        let names = match names {
            Some(names) => names.to_vec(),
            None => schema.fields().iter().map(|field| field.name().clone()).collect(),
        };
        let indices = names.iter().map(|name| index_of(schema, name));
        let indices = indices.collect::<Result<Vec<usize>>>()?;
        let mut sorted = indices.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let places = indices.iter().map(|index| sorted.partition_point(|i| i < index)).collect();
        let mask = ProjectionMask::roots(metadata.parquet_schema(), indices.iter().copied());
        let group_starts = group_starts(&metadata)?;
        Ok(Self { file, metadata, names, mask, places, group_starts, stream: Mutex::default() })
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn rows(&self) -> u64 {
        self.group_starts.last().copied().unwrap_or_default()
    }

    /// Decodes some of the rows. Continues where the last read ended, or starts at the row group of
    /// the first row: the cost of one read does not grow with the file.
    pub(super) fn read(&self, rows: Range<u64>) -> Result<Cells> {
        let mut last = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stream = match last.take() {
            Some(stream) if stream.next == rows.start => stream,
            _ => self.stream_from(rows.start)?,
        };
        let count = ((rows.end - rows.start) as usize).saturating_mul(self.places.len());
        let mut cells = Cells { values: reserve(count)?, nulls: None };
        while stream.next < rows.end {
            let batch = stream.batch()?;
            let wanted = batch.num_rows().min((rows.end - stream.next) as usize);
            in_default_environment(|| self.append(&batch.slice(0, wanted), &mut cells))?;
            stream.next += wanted as u64;
            let left = batch.num_rows() - wanted;
            stream.rest = (left > 0).then(|| batch.slice(wanted, left));
        }
        *last = Some(stream);
        Ok(cells)
    }

    fn stream_from(&self, row: u64) -> Result<Stream> {
        let groups = self.group_starts.len() - 1;
        let first = self.group_starts[..groups].partition_point(|&start| start <= row);
        let first = first.saturating_sub(1);
        let skipped = (row - self.group_starts[first]) as usize;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
            self.file.clone(),
            self.metadata.clone(),
        )
        .with_projection(self.mask.clone())
        .with_row_groups((first..groups).collect())
        .with_offset(skipped)
        .with_batch_size(BATCH_ROWS);
        Ok(Stream { rows: readable(|| builder.build())?, next: row, rest: None })
    }

    /// Appends the rows of a batch to `cells`, which have the capacity for them.
    fn append(&self, batch: &RecordBatch, cells: &mut Cells) -> Result<()> {
        let (first, columns) = (cells.values.len(), self.places.len());
        cells.values.resize(first + batch.num_rows() * columns, 0.0);
        for (column, &place) in self.places.iter().enumerate() {
            let array = batch.column(place);
            let values = &mut cells.values[first..];
            let values = values.iter_mut().skip(column).step_by(columns);
            widen(array, values).context(|| format!("column {:?}", self.names[column]))?;
            if array.null_count() > 0 {
                let nulls = match &mut cells.nulls {
                    Some(nulls) => nulls,
                    none => none.insert(reserve(cells.values.capacity())?),
                };
                nulls.resize(cells.values.len(), false);
                for row in (0..array.len()).filter(|&row| array.is_null(row)) {
                    nulls[first + row * columns + column] = true;
                }
            }
        }
        if let Some(nulls) = &mut cells.nulls {
            nulls.resize(cells.values.len(), false);
        }
        Ok(())
    }
}

impl Stream {
    fn batch(&mut self) -> Result<RecordBatch> {
        if let Some(batch) = self.rest.take() {
            return Ok(batch);
        }
        readable(|| self.rows.next().transpose())?.ok_or_else(|| {
            Error::corrupt(format!(
                "expected row {}, found the end of the rows; write the file again",
                self.next
            ))
        })
    }
}

/// The first row of each row group, and the end of the last.
fn group_starts(metadata: &ArrowReaderMetadata) -> Result<Vec<u64>> {
    let mut starts = vec![0_u64];
    let mut end = 0_u64;
    for group in metadata.metadata().row_groups() {
        let rows = u64::try_from(group.num_rows()).ok().and_then(|rows| end.checked_add(rows));
        end = rows.ok_or_else(|| {
            Error::corrupt("its row groups have invalid row counts; write the file again")
        })?;
        starts.push(end);
    }
    Ok(starts)
}

/// Whether 64-bit floats hold every number of a type exactly.
fn widens(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Float64
            | DataType::Float32
            | DataType::Float16
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
    )
}

/// Returns the index of the column `name`, whose numbers must widen to 64 bits exactly.
fn index_of(schema: &Schema, name: &str) -> Result<usize> {
    let mut found = schema.fields().iter().enumerate().filter(|(_, field)| field.name() == name);
    let Some((index, field)) = found.next() else {
        let names = listed(schema.fields().iter().map(|field| format!("{:?}", field.name())));
        return Err(Error::invalid(format!(
            "no column is named {name:?}; the columns are {names}"
        )));
    };
    if found.next().is_some() {
        return Err(Error::invalid(format!("several columns are named {name:?}; rename them")));
    }
    let found = match field.data_type() {
        of if widens(of) => return Ok(index),
        of @ (DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => format!("text ({of})"),
        of @ (DataType::Int64
        | DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..)) => {
            format!("{of}, which 64-bit floats do not hold exactly")
        }
        of => format!("{of}"),
    };
    let fields = schema.fields().iter().filter(|field| widens(field.data_type()));
    let remedy = match listed(fields.map(|field| format!("{:?}", field.name()))) {
        names if names.is_empty() => "cast it".to_owned(),
        names => format!("cast it, or choose columns with --select: {names}"),
    };
    Err(Error::invalid(format!(
        "column {name:?}: expected floats, or integers of up to 32 bits, found {found}; {remedy}"
    )))
}

/// Writes the numbers of an array to `values`; the value of a NULL cell stays.
fn widen<'a>(array: &dyn Array, values: impl Iterator<Item = &'a mut f64>) -> Result<()> {
    macro_rules! of {
        ($type:ty) => {{
            let numbers = array.as_primitive_opt::<$type>();
            let numbers = numbers.ok_or_else(|| {
                Error::corrupt(
                    "expected the type of the schema, found another type; write the file again",
                )
            })?;
            for (row, value) in values.enumerate() {
                if numbers.is_valid(row) {
                    *value = f64::from(numbers.value(row));
                }
            }
            Ok(())
        }};
    }
    match array.data_type() {
        DataType::Float64 => of!(Float64Type),
        DataType::Float32 => of!(Float32Type),
        DataType::Float16 => of!(Float16Type),
        DataType::Int8 => of!(Int8Type),
        DataType::Int16 => of!(Int16Type),
        DataType::Int32 => of!(Int32Type),
        DataType::UInt8 => of!(UInt8Type),
        DataType::UInt16 => of!(UInt16Type),
        _ => of!(UInt32Type),
    }
}

/// Runs a read of the library, and turns its errors and its panics on damaged pages into `Corrupt`.
fn readable<T, E: Display>(read: impl FnOnce() -> Result<T, E>) -> Result<T> {
    match caught(read) {
        Ok(read) => read.map_err(unreadable),
        Err(panic) => Err(unreadable(panic)),
    }
}

fn unreadable(error: impl Display) -> Error {
    Error::corrupt(format!(
        "expected a whole Parquet file: {error}; it may be cut short: write it again"
    ))
}
