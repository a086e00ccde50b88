//! Reads a source's tables with the types of the schema, for SQL.
//!
//! Values are converted as for the store, so that a query and the store agree on every value.

use std::sync::Arc;

use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef, TimeUnit};

use super::{Batches, Source};
use crate::error::{Context, Result};
use crate::prepare::build::columns::ColumnSummary;
use crate::prepare::schema::prepared::{ROW, key_column};
use crate::prepare::schema::{Column, Schema, Table};
use crate::prepare::values::{Values, arrow_error, convert};
use crate::store::SemanticType;

/// The rows of a table, with their types.
pub struct TypedRows {
    batches: Batches,
    table: String,
    schema: SchemaRef,
    columns: Vec<TypedColumn>,
    /// Whether the last column has the numbers of the rows.
    is_numbered: bool,
    row: u64,
}

/// A column of the rows.
struct TypedColumn {
    /// The place in a batch of the source.
    place: usize,
    /// `None` if the column keeps the source's type.
    conversion: Option<ColumnSummary>,
}

impl TypedRows {
    /// Reads all columns of `table`; converts texts that are numerical, timestamp or boolean in
    /// `schema`.
    ///
    /// # Errors
    /// As [`Source::read`]; at the end of the rows also `Data`, when values cannot be converted.
    pub fn open(source: &dyn Source, schema: &Schema, table: &str) -> Result<Self> {
        let place = || format!("table {table:?}");
        let (mut names, mut fields, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for column in source.columns(table).context(place)? {
            let described = column_of(schema, table, &column.name);
            // The reader rejects blobs, so it leaves out columns of blobs that have no type.
            let is_blob = |declared: &String| declared.to_ascii_uppercase().contains("BLOB");
            if described.is_none() && column.declared.as_ref().is_some_and(is_blob) {
                continue;
            }
            let target = described.filter(|_| is_text(&column.data_type)).and_then(|column| {
                let data_type = arrow_type(column.semantic)?;
                Some((column, data_type))
            });
            let (conversion, data_type) = match target {
                Some((described, data_type)) => {
                    (Some(ColumnSummary::new(&column.name, described)), data_type)
                }
                None => (None, column.data_type),
            };
            fields.push(Field::new(&column.name, data_type, true));
            columns.push(TypedColumn { place: names.len(), conversion });
            names.push(column.name);
        }
        let batches = source.read(table, &names).context(place)?;
        let schema = Arc::new(ArrowSchema::new(fields));
        Ok(Self { batches, table: table.to_owned(), schema, columns, is_numbered: false, row: 0 })
    }

    /// Reads the columns of a table of the schema as `prepare` does, whatever their types in the
    /// source; beside them the texts of keys and references, and the numbers of the rows.
    ///
    /// # Errors
    /// As [`TypedRows::open`].
    pub fn open_prepared(source: &dyn Source, table: &Table) -> Result<Self> {
        let place = || format!("table {:?}", table.name);
        let keys: Vec<_> =
            table.key.iter().chain(table.references.iter().flat_map(|r| &r.columns)).collect();
        let (mut names, mut fields, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for (name, column) in &table.columns {
            let mut add = |field: String, column: Column| {
                let data_type = arrow_type(column.semantic).unwrap_or(DataType::Utf8View);
                fields.push(Field::new(field, data_type, true));
                let conversion = Some(ColumnSummary::new(name, column));
                columns.push(TypedColumn { place: names.len(), conversion });
            };
            match column.semantic {
                SemanticType::Ignored if table.is_read_as_time(name) => {
                    let column = column.clone();
                    add(name.clone(), Column { semantic: SemanticType::Timestamp, ..column });
                }
                SemanticType::Ignored => {}
                _ => add(name.clone(), column.clone()),
            }
            if keys.contains(&name) {
                add(key_column(name), SemanticType::Identifier.into());
            }
            names.push(name.clone());
        }
        fields.push(Field::new(ROW, DataType::Int64, false));
        let batches = source.read(table.source_name(), &names).context(place)?;
        let schema = Arc::new(ArrowSchema::new(fields));
        Ok(Self { batches, table: table.name.clone(), schema, columns, is_numbered: true, row: 0 })
    }

    /// The columns and their types.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    fn typed(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let row = self.row;
        self.row += batch.num_rows() as u64;
        let mut columns = Vec::with_capacity(self.columns.len() + 1);
        for TypedColumn { place, conversion } in &mut self.columns {
            let array = batch.column(*place);
            columns.push(match conversion {
                Some(conversion) => as_array(&conversion.read(array, row)?),
                // Parquet gives texts as views.
                None => convert(array, self.schema.field(columns.len()).data_type())?,
            });
        }
        if self.is_numbered {
            let numbers = (row..self.row).map(|row| row as i64);
            columns.push(Arc::new(numbers.collect::<Int64Array>()));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema(), columns, &options).map_err(arrow_error)
    }

    fn check(&mut self) -> Result<()> {
        // Reports an error once, even if the stream is polled again.
        let columns = std::mem::take(&mut self.columns);
        let mut conversions = columns.iter().filter_map(|column| column.conversion.as_ref());
        conversions.try_for_each(ColumnSummary::check)
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

/// Returns the type of a source's column: that of the first table in the schema that has one.
fn column_of(schema: &Schema, table: &str, column: &str) -> Option<Column> {
    (schema.tables.iter())
        .filter(|described| described.source_name() == table)
        .filter_map(|described| described.columns.get(column).cloned())
        .find(|column| column.semantic != SemanticType::Ignored)
}

/// Whether arrays of this type are text, also in dictionaries and runs.
fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        DataType::RunEndEncoded(_, values) => is_text(values.data_type()),
        _ => false,
    }
}

/// Returns the type to which text is converted; `None` if it stays text.
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
        Values::Booleans(booleans) => Arc::new(booleans.clone()),
        Values::Texts(texts) => Arc::new(texts.clone()),
    }
}
