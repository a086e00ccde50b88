//! Small databases as plain values, and their sources.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_array::temporal_conversions::timestamp_us_to_datetime;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow_schema::{Field, Schema as ArrowSchema};
use headwater::prepare::schema::{Schema, Table};
use headwater::prepare::source::{
    Batches, Blocks, FileVersion, InBlocks, Source, SourceColumn, SourceTable,
};
use headwater::{Error, Result};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Number(f64),
    Integer(i64),
    Time(i64),
    Truth(bool),
    Word(String),
}

impl Value {
    /// Returns the text by which keys are compared; `None` for NULL.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Number(number) => Some(number.to_string()),
            Self::Integer(integer) => Some(integer.to_string()),
            Self::Truth(truth) => Some(truth.to_string()),
            Self::Word(word) => Some(word.clone()),
            Self::Time(time) => Some(timestamp_us_to_datetime(*time).unwrap().to_string()),
        }
    }
}

/// The columns of one source table.
pub(crate) type Data = Vec<(String, Vec<Value>)>;

/// A schema and its rows, by the tables' names in the source.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) schema: Schema,
    pub(crate) data: BTreeMap<String, Data>,
}

impl Database {
    /// Returns the database of a schema's text and of the columns of each source table.
    pub(crate) fn new<'a>(
        schema: &str,
        tables: impl IntoIterator<Item = (&'a str, Vec<(&'a str, Vec<Value>)>)>,
    ) -> Self {
        let owned = |(name, values): (&str, Vec<Value>)| (name.to_owned(), values);
        let tables = tables.into_iter();
        Self {
            schema: Schema::parse(schema).unwrap_or_else(|e| panic!("{e}")),
            data: tables
                .map(|(n, columns)| (n.to_owned(), columns.into_iter().map(owned).collect()))
                .collect(),
        }
    }

    pub(crate) fn column(&self, table: &str, column: &str) -> &[Value] {
        let found = self.data[table].iter().find(|(name, _)| name == column);
        &found.unwrap_or_else(|| panic!("{table}.{column}")).1
    }

    pub(crate) fn table(&self, name: &str) -> &Table {
        &self.schema.tables[self.schema.table(name).unwrap()]
    }

    pub(crate) fn row_count(&self, table: &str) -> usize {
        self.data[table][0].1.len()
    }

    /// Returns a source of Arrow batches with the lengths `cuts`, repeated.
    pub(crate) fn memory(&self, cuts: &[usize]) -> Memory {
        let tables = self.data.iter().map(|(name, data)| (name.clone(), batch(data))).collect();
        Memory { tables, cuts: cuts.to_vec() }
    }

    /// Writes a CSV file for each table.
    pub(crate) fn write_csv(&self, folder: &Path) {
        for (name, data) in &self.data {
            let mut text = data.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>().join(",");
            text.push('\n');
            for row in 0..data[0].1.len() {
                let fields = data.iter().map(|(_, values)| match values[row].text() {
                    None => String::new(),
                    Some(field) => format!("\"{}\"", field.replace('"', "\"\"")),
                });
                writeln!(text, "{}", fields.collect::<Vec<_>>().join(",")).unwrap();
            }
            std::fs::write(folder.join(format!("{name}.csv")), text).unwrap();
        }
    }

    /// Writes a Parquet file for each table.
    pub(crate) fn write_parquet(&self, folder: &Path) {
        for (name, data) in &self.data {
            let batch = batch(data);
            let file = std::fs::File::create(folder.join(format!("{name}.parquet"))).unwrap();
            let mut writer =
                parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
        }
    }
}

fn batch(data: &Data) -> RecordBatch {
    let arrays: Vec<ArrayRef> = data.iter().map(|(_, values)| array(values)).collect();
    let fields = data
        .iter()
        .zip(&arrays)
        .map(|((name, _), array)| Field::new(name, array.data_type().clone(), true));
    let schema = ArrowSchema::new(fields.collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), arrays).unwrap()
}

/// Returns the values as an array of the type of the first value that is not NULL.
fn array(values: &[Value]) -> ArrayRef {
    macro_rules! collect {
        ($variant:ident, $array:ty) => {
            Arc::new(
                values
                    .iter()
                    .map(|value| match value {
                        Value::$variant(value) => Some(value.clone()),
                        Value::Null => None,
                        other => panic!("{other:?} among others"),
                    })
                    .collect::<$array>(),
            )
        };
    }
    match values.iter().find(|value| **value != Value::Null) {
        Some(Value::Number(_)) => collect!(Number, Float64Array),
        Some(Value::Integer(_)) => collect!(Integer, Int64Array),
        Some(Value::Time(_)) => collect!(Time, TimestampMicrosecondArray),
        Some(Value::Truth(_)) => collect!(Truth, BooleanArray),
        Some(Value::Word(_)) | None => collect!(Word, StringArray),
        Some(Value::Null) => unreachable!("it is not NULL"),
    }
}

/// A source of tables in memory, in slices.
pub(crate) struct Memory {
    tables: BTreeMap<String, RecordBatch>,
    cuts: Vec<usize>,
}

impl Source for Memory {
    fn describe(&self) -> String {
        "memory".into()
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(self.tables.keys().cloned().collect())
    }

    fn columns(&self, table: &str) -> Result<Vec<SourceColumn>> {
        let table = self.tables()?.into_iter().find(|listed| listed.name == table);
        table.map(|table| table.columns).ok_or_else(|| Error::schema("memory has no such table"))
    }

    fn tables(&self) -> Result<Vec<SourceTable>> {
        let column = |field: &Arc<Field>| SourceColumn {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            declared: None,
        };
        let table = |(name, batch): (&String, &RecordBatch)| SourceTable {
            name: name.clone(),
            columns: batch.schema().fields().iter().map(column).collect(),
            key: vec![],
            references: vec![],
        };
        Ok(self.tables.iter().map(table).collect())
    }

    fn read(&self, table: &str, columns: &[String]) -> Result<Batches> {
        let missing = |what: &str| Error::schema(format!("memory has no {what:?}"));
        let batch = self.tables.get(table).ok_or_else(|| missing(table))?;
        let place = |name: &String| batch.schema().index_of(name).map_err(|_| missing(name));
        let places = columns.iter().map(place).collect::<Result<Vec<_>>>()?;
        let batch = batch.project(&places).unwrap();
        let (mut at, mut slices) = (0, Vec::new());
        for &cut in self.cuts.iter().cycle() {
            let length = cut.min(batch.num_rows() - at);
            slices.push(Ok(batch.slice(at, length)));
            at += length;
            if at == batch.num_rows() {
                break;
            }
        }
        Ok(Box::new(slices.into_iter()))
    }

    fn in_blocks(&self) -> Option<&dyn InBlocks> {
        Some(self)
    }
}

impl InBlocks for Memory {
    fn files(&self, _: &[&str]) -> Result<Vec<FileVersion>> {
        Ok(vec![])
    }

    fn blocks(&self, table: &str) -> Result<Box<dyn Blocks + '_>> {
        let count = self.read(table, &[])?.count();
        Ok(Box::new(Slices { memory: self, table: table.to_owned(), count }))
    }
}

/// The slices of a table in memory, as its blocks.
struct Slices<'a> {
    memory: &'a Memory,
    table: String,
    count: usize,
}

impl Blocks for Slices<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn read(&self, block: usize, columns: &[String], _: u64) -> Result<Batches> {
        let slices = self.memory.read(&self.table, columns)?;
        Ok(Box::new(slices.skip(block).take(1)))
    }

    fn rows_before(&self, block: usize) -> Result<u64> {
        let slices = self.memory.read(&self.table, &[])?.take(block);
        slices.map(|slice| slice.map(|slice| slice.num_rows() as u64)).sum()
    }
}
