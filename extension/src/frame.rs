//! The rows of a table, and the seeds of a task, as Arrow streams with the values of the source.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray, UInt32Array,
};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use headwater::internal::{
    BATCH_ROWS, Splits, TaskView, did_you_mean, key_part, shortened, time_words,
};
use headwater::store::{
    ALWAYS_VISIBLE, Cell, ColumnStats, NEVER_VISIBLE, SEES_EVERYTHING, Seed, Store, Table, Task,
    TimeMetadata,
};
use headwater::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::arrow_stream::{FirstError, Stream, take_error};
use crate::errors::PyResult;
use crate::labels::label_summary;
use crate::store::Store as PyStore;
use crate::to_python;

/// The rows that a table shows of itself.
const SHOWN_ROWS: u32 = 6;
/// The most characters of a value that are shown.
const SHOWN_CHARACTERS: usize = 60;

/// Where the values of a column come from.
#[derive(Clone, Copy)]
enum Origin {
    /// The part of the row's key with this number, of so many.
    Key {
        part: usize,
        of: usize,
    },
    /// A part of the key of the parent through this relation.
    Parent {
        relation: usize,
        part: usize,
        of: usize,
    },
    /// The cell of the column at this place.
    Cell(usize),
    /// The time of the row, less a delay in microseconds.
    Time {
        delay_us: i64,
    },
    /// The number of the row.
    Number,
    /// Of a seed: the observation time, the target, the split.
    ObservationTime,
    Target,
    Split,
}

/// A column of a frame.
struct FrameColumn {
    name: String,
    /// What the values are: the semantic type, the key, or the table that is referred to.
    about: String,
    origin: Origin,
    data_type: DataType,
}

impl FrameColumn {
    fn new(name: &str, about: impl Into<String>, origin: Origin, data_type: DataType) -> Self {
        Self { name: name.to_owned(), about: about.into(), origin, data_type }
    }
}

const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Rows of a table, or the seeds of a task, which lie beside a row of the anchor each.
struct Rows {
    store: Arc<Store>,
    table: usize,
    task: Option<usize>,
    columns: Vec<FrameColumn>,
    schema: SchemaRef,
    count: u32,
}

impl Rows {
    fn of_table(store: Arc<Store>, name: &str) -> Result<Self> {
        let names = store.tables().iter().map(|table| table.metadata().name.as_str());
        let place = names.clone().position(|known| known == name).ok_or_else(|| {
            Error::invalid(format!("no table is called {name:?}; {}", did_you_mean(name, names)))
        })?;
        let (columns, count) = (table_columns(&store, place), store.tables()[place].row_count());
        Ok(Self::new(store, place, None, columns, count))
    }

    fn of_task(store: Arc<Store>, name: &str) -> Result<Self> {
        let names = store.tasks().iter().map(|task| task.metadata().name.as_str());
        let place = names.clone().position(|known| known == name).ok_or_else(|| {
            Error::invalid(format!("no task is called {name:?}; {}", did_you_mean(name, names)))
        })?;
        let task = &store.tasks()[place];
        let (anchor, count) = (task.metadata().anchor as usize, task.metadata().seed_count);
        let mut columns = key_columns(&store, anchor);
        if columns.is_empty() {
            columns.push(FrameColumn::new("row", "row number", Origin::Number, DataType::UInt32));
        }
        let target = store.metadata().target_column(task.metadata());
        let target_type = data_type(&target.stats);
        columns.extend([
            FrameColumn::new("obs_time", "observation time", Origin::ObservationTime, TIMESTAMP),
            FrameColumn::new("target", task.semantic().to_string(), Origin::Target, target_type),
            FrameColumn::new("split", "split", Origin::Split, DataType::Utf8),
        ]);
        Ok(Self::new(store, anchor, Some(place), columns, count))
    }

    fn new(
        store: Arc<Store>,
        table: usize,
        task: Option<usize>,
        columns: Vec<FrameColumn>,
        count: u32,
    ) -> Self {
        let fields = columns.iter().map(|c| Field::new(&c.name, c.data_type.clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Self { store, table, task, columns, schema, count }
    }

    fn table(&self) -> &Table {
        &self.store.tables()[self.table]
    }

    fn task(&self) -> Option<&Task> {
        self.task.map(|task| &self.store.tasks()[task])
    }

    /// Returns the batch of rows, or seeds, with these numbers.
    fn batch(&self, numbers: Range<u32>) -> Result<RecordBatch> {
        let seeds = match self.task() {
            None => None,
            Some(task) => {
                let seeds = numbers.clone().map(|number| task.seed(self.table(), number));
                Some(seeds.collect::<Result<Vec<_>>>()?)
            }
        };
        let rows: Vec<u32> = match &seeds {
            None => numbers.collect(),
            Some(seeds) => seeds.iter().map(|seed| seed.row).collect(),
        };
        let seeds = seeds.unwrap_or_default();
        let arrays = self.columns.iter().map(|column| self.array(column, &rows, &seeds));
        RecordBatch::try_new(SchemaRef::clone(&self.schema), arrays.collect::<Result<_>>()?)
            .map_err(|error| Error::data(error.to_string()))
    }

    fn array(&self, column: &FrameColumn, rows: &[u32], seeds: &[Seed]) -> Result<ArrayRef> {
        let (store, table) = (&*self.store, self.table());
        match column.origin {
            Origin::Key { part, of } => {
                texts(rows.iter().map(|&row| Ok(Some(key_part(table.key(row)?, part, of)))))
            }
            Origin::Parent { relation, part, of } => {
                let relation = &store.relations()[relation];
                let parents = &store.tables()[relation.metadata().parent as usize];
                texts(rows.iter().map(|&row| {
                    let parent = relation.parent(&table.row(row)?)?;
                    let key = parent.map(|parent| parents.key(parent)).transpose()?;
                    Ok(key.map(|key| key_part(key, part, of)))
                }))
            }
            Origin::Cell(place) => {
                let cells = rows.iter().map(|&row| Ok(table.row(row)?.cell(place)));
                values(store, &table.metadata().columns[place].stats, cells)
            }
            Origin::Time { delay_us } => {
                let times = rows.iter().map(|&row| {
                    Ok(match table.row(row)?.time() {
                        ALWAYS_VISIBLE | NEVER_VISIBLE => None,
                        time => time.checked_sub(delay_us),
                    })
                });
                Ok(Arc::new(times.collect::<Result<TimestampMicrosecondArray>>()?))
            }
            Origin::Number => Ok(Arc::new(UInt32Array::from(rows.to_vec()))),
            Origin::ObservationTime => {
                let times = seeds.iter().map(|seed| seed.obs_time);
                let times = times.map(|time| (time != SEES_EVERYTHING).then_some(time));
                Ok(Arc::new(times.collect::<TimestampMicrosecondArray>()))
            }
            Origin::Target => {
                let task = self.task().expect("seeds have a task").metadata();
                let stats = &store.metadata().target_column(task).stats;
                values(store, stats, seeds.iter().map(|seed| Ok(seed.target)))
            }
            Origin::Split => {
                let splits = Splits::of(self.task().expect("seeds have a task"));
                let split = |seed| Ok(Some(splits.split_of(table, seed)?.name()));
                texts(seeds.iter().map(split))
            }
        }
    }

    /// Returns the first rows as text, None for NULL.
    fn first_rows(&self) -> Result<Vec<Vec<Option<String>>>> {
        let batch = self.batch(0..self.count.min(SHOWN_ROWS))?;
        let wrong = |error: arrow_schema::ArrowError| Error::data(error.to_string());
        let options = FormatOptions::default();
        let columns = batch.columns().iter();
        let columns = columns.map(|array| ArrayFormatter::try_new(array, &options));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>().map_err(wrong)?;
        let row = |row: usize| {
            let cell = |(place, column): (usize, &ArrayFormatter<'_>)| {
                let is_null = arrow_array::Array::is_null(batch.column(place), row);
                (!is_null).then(|| shortened(&column.value(row).to_string(), SHOWN_CHARACTERS))
            };
            columns.iter().enumerate().map(cell).collect()
        };
        Ok((0..batch.num_rows()).map(row).collect())
    }

    /// Returns the names of the columns, each with what its values are.
    fn names(&self) -> Vec<(&str, &str)> {
        self.columns.iter().map(|column| (&*column.name, &*column.about)).collect()
    }
}

/// Returns the columns of a table: the key, the references, the cells, a time that is no cell.
///
/// An identifier that is neither is left out: a store has no value of it.
fn table_columns(store: &Store, table: usize) -> Vec<FrameColumn> {
    let metadata = store.tables()[table].metadata();
    let mut found = key_columns(store, table);
    for (place, relation) in store.relations().iter().enumerate() {
        let relation = relation.metadata();
        if relation.child as usize != table {
            continue;
        }
        let parent = store.tables()[relation.parent as usize].metadata();
        let of = parent.key.len();
        let names: Vec<_> = match of {
            1 => vec![&*relation.name],
            _ => relation.name.split('+').collect(),
        };
        // A name with a + of its own cannot be told from two names.
        for (part, name) in names.iter().enumerate().filter(|_| names.len() == of) {
            if value_column(store, table, name).is_none() && !is_named(&found, name) {
                let origin = Origin::Parent { relation: place, part, of };
                let about = format!("-> {}", parent.name);
                found.push(FrameColumn::new(name, about, origin, DataType::Utf8));
            }
        }
    }
    for (place, column) in metadata.columns.iter().enumerate() {
        if !matches!(column.stats, ColumnStats::Identifier) && !is_named(&found, &column.name) {
            let (about, data_type) = (column.semantic().to_string(), data_type(&column.stats));
            found.push(FrameColumn::new(&column.name, about, Origin::Cell(place), data_type));
        }
    }
    let (name, delay_us) = match &metadata.time {
        Some(TimeMetadata::Ignored { column, delay_us, .. }) => (&**column, *delay_us),
        Some(TimeMetadata::Period { .. }) => ("period_end", 0),
        _ => return found,
    };
    if !is_named(&found, name) {
        let origin = Origin::Time { delay_us };
        found.push(FrameColumn::new(name, "time", origin, TIMESTAMP));
    }
    found
}

/// Returns the columns of a table's key: as cells where they have values, as text of the key elsewhere.
fn key_columns(store: &Store, table: usize) -> Vec<FrameColumn> {
    let key = &store.tables()[table].metadata().key;
    let columns = key.iter().enumerate();
    let column = |(part, name): (usize, &String)| match value_column(store, table, name) {
        Some((place, stats)) => {
            FrameColumn::new(name, "key", Origin::Cell(place), data_type(stats))
        }
        None => {
            let origin = Origin::Key { part, of: key.len() };
            FrameColumn::new(name, "key", origin, DataType::Utf8)
        }
    };
    columns.map(column).collect()
}

/// Returns the place of the column of this name whose cells have values.
fn value_column<'a>(
    store: &'a Store,
    table: usize,
    name: &str,
) -> Option<(usize, &'a ColumnStats)> {
    let columns = store.tables()[table].metadata().columns.iter().enumerate();
    let mut own = columns.filter(|(_, column)| column.name == name);
    own.find(|(_, column)| !matches!(column.stats, ColumnStats::Identifier))
        .map(|(place, column)| (place, &column.stats))
}

fn is_named(columns: &[FrameColumn], name: &str) -> bool {
    columns.iter().any(|column| column.name == name)
}

/// Returns the Arrow type of values with these statistics.
fn data_type(stats: &ColumnStats) -> DataType {
    match stats {
        ColumnStats::Numerical { .. } => DataType::Float64,
        ColumnStats::Count { .. } => DataType::Int64,
        ColumnStats::Timestamp { .. } => TIMESTAMP,
        ColumnStats::Boolean { .. } => DataType::Boolean,
        ColumnStats::Categorical { .. } | ColumnStats::Text | ColumnStats::Identifier => {
            DataType::Utf8
        }
    }
}

/// Returns cells as an array of the values of the source, as precisely as the store has them.
fn values(
    store: &Store,
    stats: &ColumnStats,
    cells: impl Iterator<Item = Result<Cell>>,
) -> Result<ArrayRef> {
    let number = |cell| match cell {
        Cell::Numerical(score) => stats.number(score),
        _ => None,
    };
    Ok(match stats {
        ColumnStats::Numerical { .. } => {
            Arc::new(cells.map(|cell| Ok(number(cell?))).collect::<Result<Float64Array>>()?)
        }
        ColumnStats::Count { .. } => {
            let counts = cells.map(|cell| Ok(number(cell?).map(|count| count as i64)));
            Arc::new(counts.collect::<Result<Int64Array>>()?)
        }
        ColumnStats::Timestamp { .. } => {
            let times = cells.map(|cell| match cell? {
                Cell::Timestamp(time) => Ok(Some(time)),
                _ => Ok(None),
            });
            Arc::new(times.collect::<Result<TimestampMicrosecondArray>>()?)
        }
        ColumnStats::Boolean { .. } => {
            let truths = cells.map(|cell| match cell? {
                Cell::Boolean(truth) => Ok(Some(truth)),
                _ => Ok(None),
            });
            Arc::new(truths.collect::<Result<BooleanArray>>()?)
        }
        ColumnStats::Categorical { .. } | ColumnStats::Text | ColumnStats::Identifier => {
            return texts(cells.map(|cell| match cell? {
                Cell::Categorical(index) => store.category(index).map(Some),
                Cell::Text(index) => store.text(index).map(Some),
                _ => Ok(None),
            }));
        }
    })
}

fn texts<T: AsRef<str>>(texts: impl Iterator<Item = Result<Option<T>>>) -> Result<ArrayRef> {
    Ok(Arc::new(texts.collect::<Result<StringArray>>()?))
}

/// Rows as an Arrow stream, which can be read again and again.
#[pyclass(frozen, module = "headwater")]
pub(super) struct RowStream {
    rows: Arc<Rows>,
    first_error: FirstError,
}

#[pymethods]
impl RowStream {
    /// Returns the rows as an Arrow stream of limited batches.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows a producer to ignore the request.
        drop(requested_schema);
        let rows = Arc::clone(&self.rows);
        let starts = (0..rows.count).step_by(BATCH_ROWS);
        let schema = SchemaRef::clone(&rows.schema);
        let batches = starts.map(move |start| {
            rows.batch(start..start.saturating_add(BATCH_ROWS as u32).min(rows.count))
        });
        let first_error = Arc::clone(&self.first_error);
        Stream { batches, schema, first_error }.into_capsule(py)
    }

    /// Raises the error that ended a read, whose reader has only the message.
    fn raise_error(&self) -> PyResult<()> {
        take_error(&self.first_error).map_or(Ok(()), |error| Err(error.into()))
    }
}

impl RowStream {
    fn new(rows: Rows) -> Self {
        Self { rows: Arc::new(rows), first_error: FirstError::default() }
    }
}

/// Returns the rows of a table.
#[pyfunction]
pub(super) fn table_rows(store: &PyStore, table: &str) -> PyResult<RowStream> {
    Ok(RowStream::new(Rows::of_table(Arc::clone(&store.0), table)?))
}

/// Returns the seeds of a task.
#[pyfunction]
pub(super) fn seed_rows(store: &PyStore, task: &str) -> PyResult<RowStream> {
    Ok(RowStream::new(Rows::of_task(Arc::clone(&store.0), task)?))
}

/// Returns the columns, the first rows and the time of a table.
#[pyfunction]
pub(super) fn describe_table<'py>(
    py: Python<'py>,
    store: &PyStore,
    table: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let rows = Rows::of_table(Arc::clone(&store.0), table)?;
    let found = PyDict::new(py);
    found.set_item("columns", rows.names())?;
    found.set_item("rows", rows.first_rows()?)?;
    found.set_item("time", time_words(&store.0, rows.table().metadata()))?;
    Ok(found)
}

/// Returns the splits, the labels, the columns and the first seeds of a task; reads all seeds.
#[pyfunction]
pub(super) fn describe_task<'py>(
    py: Python<'py>,
    store: &PyStore,
    task: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let rows = Rows::of_task(Arc::clone(&store.0), task)?;
    let task = rows.task().expect("seeds have a task");
    let (view, labels) = py.detach(|| {
        Ok::<_, Error>((TaskView::of(&store.0, task)?, label_summary(&store.0, task)?))
    })?;
    let found = PyDict::new(py);
    found.set_item("columns", rows.names())?;
    found.set_item("rows", rows.first_rows()?)?;
    found.set_item("task", to_python(py, &view)?)?;
    found.set_item("labels", to_python(py, &labels)?)?;
    Ok(found)
}
