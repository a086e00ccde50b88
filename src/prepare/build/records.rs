//! The second pass over cells: writes the staged values as records.

use std::io::BufReader;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ipc::reader::StreamReader;
use bytemuck::NoUninit;

use super::columns::{ColumnSummary, Summary};
use super::layout::Layout;
use super::links::Parents;
use super::read_ahead::read_ahead;
use super::row_numbers::{RowNumbers, RowNumbersWriter};
use super::scratch::Scratch;
use super::texts::TableNumbers;
use crate::bytes::filled;
use crate::container::ContainerWriter;
use crate::error::{Context, Error, Result};
use crate::files::open_file;
use crate::prepare::schema::Table;
use crate::prepare::values::arrow_error;
use crate::store::{Cell, ColumnStats, Scorer};

/// A table whose rows are staged, with what tells their times and parents.
pub(super) struct StagedTable<'a> {
    pub table: &'a Table,
    pub columns: &'a [ColumnSummary],
    pub staged: &'a Path,
    /// When each row came to be known; none for a table without times.
    pub times: Option<&'a [i64]>,
    /// The parents of each reference.
    pub parents: &'a [Parents],
    pub scratch: &'a Scratch,
}

/// Streams the batches of a staging file in order.
pub(super) fn staged(
    path: &Path,
) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
    let reader = BufReader::with_capacity(1 << 20, open_file(path)?);
    let reader = StreamReader::try_new(reader, None).map_err(arrow_error)?;
    Ok(reader.map(|batch| batch.map_err(arrow_error)))
}

/// Returns what `convert` makes of the cell of each row in some columns that have means, with their places;
/// `None` is NULL.
///
/// # Cost
/// Reads the staging file once more if there are any.
pub(super) fn numbers_of<T: NoUninit>(
    path: &Path,
    columns: &[(usize, &ColumnSummary)],
    convert: impl Fn(Option<Cell>) -> T,
    scratch: &Scratch,
) -> Result<Vec<RowNumbers<T>>> {
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    let reader = |&(place, column): &(usize, &ColumnSummary)| {
        Ok((place, MeanReader::new(column)?, RowNumbersWriter::new(scratch)))
    };
    let mut readers = columns.iter().map(reader).collect::<Result<Vec<_>>>()?;
    for batch in staged(path)? {
        let batch = batch?;
        for (place, reader, numbers) in &mut readers {
            numbers.extend(&reader.read(batch.column(*place), &convert))?;
        }
    }
    readers.into_iter().map(|(_, _, numbers)| numbers.finish()).collect()
}

/// Reads the staged values of a column that has a mean.
enum MeanReader {
    Numerical(Scorer),
    Boolean,
}

impl MeanReader {
    fn new(column: &ColumnSummary) -> Result<Self> {
        match &column.summary {
            Summary::Numerical(numbers) => Ok(Self::Numerical(numbers.scorer())),
            Summary::Boolean { .. } => Ok(Self::Boolean),
            _ => Err(Error::schema(format!("column {:?} has no mean", column.name))),
        }
    }

    /// Returns what `convert` makes of the cell of each row of a staged batch; `None` is NULL.
    fn read<T>(&self, array: &ArrayRef, convert: impl Fn(Option<Cell>) -> T) -> Vec<T> {
        match self {
            Self::Numerical(scorer) => {
                let cell = |number| Cell::Numerical(scorer.score(number));
                let numbers = array.as_primitive::<Float64Type>().iter();
                numbers.map(|number| convert(number.map(cell))).collect()
            }
            Self::Boolean => {
                let truths = array.as_boolean().iter();
                truths.map(|truth| convert(truth.map(Cell::Boolean))).collect()
            }
        }
    }
}

/// Writes the records of a table from its staging file and the numbers of its texts.
pub(super) fn write_records(
    file: &mut ContainerWriter,
    table: &StagedTable<'_>,
    mut texts: TableNumbers,
    layout: &Layout,
    recorded_times: Option<&[i64]>,
    known_times: &[RowNumbers<i64>],
) -> Result<()> {
    let encoders: Vec<Encoder> = table.columns.iter().map(Encoder::new).collect();
    let records_of = |first_row: u64, batch: RecordBatch| {
        let rows = first_row as usize..first_row as usize + batch.num_rows();
        let mut records = filled(0, batch.num_rows() * layout.stride as usize)?;
        let mut target = Records { bytes: &mut records, layout };
        let recorded = recorded_times.map(|times| (layout.time_offset, times));
        let known =
            layout.known_offsets.iter().copied().zip(known_times.iter().map(|times| &**times));
        for (offset, times) in recorded.into_iter().chain(known) {
            target.put(offset, times[rows.clone()].iter().map(|time| time.to_le_bytes()));
        }
        for (&offset, parents) in layout.parent_offsets.iter().zip(table.parents) {
            target.put(offset, parents.stored(rows.clone()).map(u32::to_le_bytes));
        }
        for (place, (array, encoder)) in batch.columns().iter().zip(&encoders).enumerate() {
            encoder.write(&mut target, place, array);
        }
        Ok(records)
    };
    file.begin("rows")?;
    let batches = staged(table.staged)?.map(move |batch| texts.number(&batch?));
    read_ahead(Box::new(batches), records_of, |records| file.write(&records))
}

/// Writes the records of a summary: the time of each row, its parent, and its numbers.
pub(super) fn write_numbers(
    file: &mut ContainerWriter,
    layout: &Layout,
    times: &[i64],
    parents: Option<&[u32]>,
    columns: &[&[Option<f32>]],
) -> Result<()> {
    let mut bytes = vec![0; times.len() * layout.stride as usize];
    let mut records = Records { bytes: &mut bytes, layout };
    records.put(layout.time_offset, times.iter().map(|time| time.to_le_bytes()));
    for (&offset, parents) in layout.parent_offsets.iter().zip(parents) {
        records.put(offset, parents.iter().map(|parent| parent.to_le_bytes()));
    }
    for (place, (column, cells)) in layout.columns.iter().zip(columns).enumerate() {
        records.set_bits(place, cells.iter().map(Option::is_none));
        records.put(column.offset, cells.iter().map(|cell| cell.unwrap_or(0.0).to_le_bytes()));
    }
    file.section("rows", &bytes)
}

/// The records of one batch.
struct Records<'a> {
    bytes: &'a mut [u8],
    layout: &'a Layout,
}

impl Records<'_> {
    fn put<const N: usize>(&mut self, offset: u32, values: impl Iterator<Item = [u8; N]>) {
        let offset = offset as usize;
        let records = self.bytes.chunks_exact_mut(self.layout.stride as usize);
        for (record, value) in records.zip(values) {
            record[offset..offset + N].copy_from_slice(&value);
        }
    }

    fn set_bits(&mut self, bit: usize, rows: impl Iterator<Item = bool>) {
        let byte = self.layout.null_offset as usize + bit / 8;
        let records = self.bytes.chunks_exact_mut(self.layout.stride as usize);
        for (record, set) in records.zip(rows) {
            record[byte] |= u8::from(set) << (bit % 8);
        }
    }
}

/// Encodes the cells of one column.
enum Encoder {
    Identifier,
    Numerical(Scorer),
    Timestamp,
    Boolean,
    Categorical(Vec<u32>),
    Text,
}

impl Encoder {
    fn new(summary: &ColumnSummary) -> Self {
        match &summary.summary {
            Summary::Identifier => Self::Identifier,
            Summary::Numerical(numbers) => Self::Numerical(numbers.scorer()),
            Summary::Timestamp { .. } => Self::Timestamp,
            Summary::Boolean { .. } => Self::Boolean,
            Summary::Categorical(dictionary) => Self::Categorical(dictionary.sorted().1),
            Summary::Text => Self::Text,
        }
    }

    /// Writes a batch of column `place`. A NULL sets its bit and has the value zero.
    fn write(&self, records: &mut Records<'_>, place: usize, array: &ArrayRef) {
        let column = &records.layout.columns[place];
        let (offset, stats) = (column.offset, &column.stats);
        if array.null_count() > 0 {
            records.set_bits(place, (0..array.len()).map(|row| array.is_null(row)));
        }
        match self {
            Self::Identifier => {}
            Self::Numerical(scorer) => {
                let numbers = array.as_primitive::<Float64Type>().iter();
                let scores = numbers.map(|number| number.map_or(0.0, |n| scorer.score(n)));
                records.put(offset, scores.map(f32::to_le_bytes));
            }
            Self::Timestamp => {
                let times = array.as_primitive::<Int64Type>().iter();
                records.put(offset, times.map(|time| time.unwrap_or(0).to_le_bytes()));
            }
            Self::Boolean => {
                let booleans = array.as_boolean().iter();
                records.set_bits(offset as usize, booleans.map(|boolean| boolean == Some(true)));
            }
            Self::Categorical(places) => {
                let codes = array.as_primitive::<UInt32Type>().iter();
                let categories = codes.map(|code| code.map_or(0, |code| places[code as usize]));
                match stats.value_bytes() {
                    1 => records.put(offset, categories.map(|c| [c as u8])),
                    2 => records.put(offset, categories.map(|c| (c as u16).to_le_bytes())),
                    _ => records.put(offset, categories.map(u32::to_le_bytes)),
                }
            }
            Self::Text => {
                let texts = array.as_primitive::<UInt32Type>().iter();
                records.put(offset, texts.map(|text| text.unwrap_or(0).to_le_bytes()));
            }
        }
    }
}

/// Encodes the targets of a derived task, one after the other.
pub(super) fn encode_target(
    summary: &ColumnSummary,
    stats: &ColumnStats,
    array: &ArrayRef,
) -> Result<Vec<u8>> {
    let row_bytes = crate::store::target_bytes(stats);
    let mut bytes = Vec::with_capacity(array.len() * row_bytes as usize);
    match Encoder::new(summary) {
        Encoder::Numerical(scorer) => {
            for (row, number) in array.as_primitive::<Float64Type>().iter().enumerate() {
                let value = number.map_or(0.0, |n| scorer.score(n));
                // The ends of 32 bits stand for all that lies beyond, and a label must be right.
                if value.abs() == f32::MAX {
                    return Err(Error::data(format!(
                        "column {:?}: the z-score of {:e} in row {} does not fit 32 bits (standard \
                         deviation of the train split: {:e}); correct the value, or scale the \
                         targets",
                        summary.name,
                        number.unwrap_or_default(),
                        row + 1,
                        scorer.z_score.std
                    )));
                }
                bytes.extend(value.to_le_bytes());
            }
        }
        Encoder::Timestamp => {
            for time in array.as_primitive::<Int64Type>() {
                bytes.extend(time.unwrap_or(0).to_le_bytes());
            }
        }
        Encoder::Boolean => {
            bytes.extend(array.as_boolean().iter().map(|boolean| u8::from(boolean == Some(true))));
        }
        Encoder::Categorical(places) => {
            for code in array.as_primitive::<UInt32Type>() {
                bytes.extend(code.map_or(0, |code| places[code as usize]).to_le_bytes());
            }
        }
        Encoder::Identifier | Encoder::Text => {
            return Err(Error::schema(
                "expected a numerical, boolean, categorical or timestamp target",
            ))
            .context(|| format!("column {:?}", summary.name));
        }
    }
    Ok(bytes)
}
