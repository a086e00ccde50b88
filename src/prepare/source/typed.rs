//! A source's tables with the types that the schema gives them, as SQL sees them.
//!
//! The values are read as they are for the store, so that a query and the store never disagree on
//! what a value is.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatchOptions};
use arrow::datatypes::{
    DataType, Field, Schema as ArrowSchema, SchemaRef, TimeUnit, TimestampMicrosecondType,
};
use arrow::record_batch::RecordBatch;

use super::{Batches, Source};
use crate::error::{Context, Result};
use crate::prepare::build::columns::ColumnSummary;
use crate::prepare::schema::{Column, Schema};
use crate::prepare::values::{Values, arrow_error};
use crate::store::SemanticType;

/// The rows of a table, with their types.
pub(crate) struct TypedRows {
    batches: Batches,
    table: String,
    schema: SchemaRef,
    /// For each column, what it is read as; none where it stays as the source yields it.
    readings: Vec<Option<ColumnSummary>>,
    row: u64,
}

impl TypedRows {
    /// Reads all columns of `table`; one that arrives as text and that `schema` calls a number, a
    /// time or a truth becomes one.
    ///
    /// # Errors
    /// As [`Source::read`]; at the end of the rows also `Data`, when values cannot be read as what
    /// the schema says.
    pub(crate) fn open(source: &dyn Source, schema: &Schema, table: &str) -> Result<Self> {
        let place = || format!("table {table:?}");
        let (mut names, mut fields, mut readings) = (Vec::new(), Vec::new(), Vec::new());
        for column in source.columns(table).context(place)? {
            let said = column_of(schema, table, &column.name);
            // Its reader refuses blobs, and nobody said that these columns hold anything else.
            let is_blob = |declared: &String| declared.to_ascii_uppercase().contains("BLOB");
            if said.is_none() && column.declared.as_ref().is_some_and(is_blob) {
                continue;
            }
            let read_as = said
                .filter(|_| is_text(&column.data_type))
                .and_then(|said| Some((said, arrow_type(said.semantic)?)));
            let (reading, data_type) = match read_as {
                Some((said, data_type)) => {
                    (Some(ColumnSummary::new(&column.name, said)), data_type)
                }
                None => (None, column.data_type),
            };
            fields.push(Field::new(&column.name, data_type, true));
            names.push(column.name);
            readings.push(reading);
        }
        let batches = source.read(table, &names).context(place)?;
        let schema = Arc::new(ArrowSchema::new(fields));
        Ok(Self { batches, table: table.to_owned(), schema, readings, row: 0 })
    }

    /// The columns and their types.
    pub(crate) fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    fn typed(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let row = self.row;
        self.row += batch.num_rows() as u64;
        let columns = (batch.columns().iter().zip(&mut self.readings))
            .map(|(array, reading)| match reading {
                Some(reading) => Ok(as_array(&reading.read(array, row)?)),
                None => Ok(ArrayRef::clone(array)),
            })
            .collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema(), columns, &options).map_err(arrow_error)
    }

    fn check(&mut self) -> Result<()> {
        // Told once, though the stream may be asked again.
        let readings = std::mem::take(&mut self.readings);
        readings.iter().flatten().try_for_each(ColumnSummary::check)
    }

    fn step(&mut self) -> Option<Result<RecordBatch>> {
        match self.batches.next() {
            Some(Ok(batch)) => Some(self.typed(&batch)),
            Some(Err(error)) => Some(Err(error)),
            None => self.check().err().map(Err),
        }
    }
}

impl Iterator for TypedRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step()?;
        Some(step.context(|| format!("table {:?}", self.table)))
    }
}

/// What the schema says of a source's column; the first of its tables that types it counts.
fn column_of(schema: &Schema, table: &str, column: &str) -> Option<Column> {
    (schema.tables.iter())
        .filter(|described| described.source_name() == table)
        .filter_map(|described| described.columns.get(column).copied())
        .find(|said| said.semantic != SemanticType::Ignored)
}

/// Whether arrays of this type are text, in whatever wrapping.
fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        DataType::RunEndEncoded(_, values) => is_text(values.data_type()),
        _ => false,
    }
}

/// The type that text becomes; none where it stays text.
fn arrow_type(semantic: SemanticType) -> Option<DataType> {
    match semantic {
        SemanticType::Numerical => Some(DataType::Float64),
        SemanticType::Timestamp => Some(DataType::Timestamp(TimeUnit::Microsecond, None)),
        SemanticType::Boolean => Some(DataType::Boolean),
        SemanticType::Identifier
        | SemanticType::Categorical
        | SemanticType::Text
        | SemanticType::Ignored => None,
    }
}

fn as_array(values: &Values) -> ArrayRef {
    match values {
        Values::Numbers(numbers) => Arc::new(numbers.clone()),
        Values::Times(times) => Arc::new(times.reinterpret_cast::<TimestampMicrosecondType>()),
        Values::Booleans(truths) => Arc::new(truths.clone()),
        Values::Texts(words) => Arc::new(words.clone()),
    }
}
