//! `headwater.Store`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::f16;
use headwater::store::{
    ALWAYS_VISIBLE, Cell, ColumnMetadata, NEVER_VISIBLE, Row, Store as DiskStore, Table,
    TextVectors,
};
use headwater::{Error, Result};
use numpy::{Element, PyArray1, PyArrayDyn};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::errors::PyResult;
use crate::objects::{lent, to_array, to_text};
use crate::work::{self, Calls};
use crate::{Whole, to_python, type_name};

/// A database on disk, memory-mapped and read-only.
#[pyclass(frozen, module = "headwater")]
pub(super) struct Store(pub(super) Arc<DiskStore>);

impl From<Arc<DiskStore>> for Store {
    fn from(store: Arc<DiskStore>) -> Self {
        Self(store)
    }
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (path, *, populate = false))]
    fn new(py: Python<'_>, path: PathBuf, populate: bool) -> PyResult<Self> {
        let store = Self(Arc::new(DiskStore::open(&path)?));
        if populate {
            store.warm(py)?;
        }
        Ok(store)
    }

    /// The folder that the store was opened from.
    #[getter]
    fn path(&self) -> &Path {
        self.0.path()
    }

    /// The identity of the data, in hexadecimal digits.
    #[getter]
    fn root(&self) -> String {
        self.0.root().to_string()
    }

    /// Returns what the store holds: the contents of metadata.json.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self.0.metadata())
    }

    /// Returns what `metadata` returns.
    fn database_metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.metadata(py)
    }

    /// Returns the vectors of the column names, float16 [C, D_t].
    fn column_embeddings<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArrayDyn<f16>>> {
        vectors(slf, DiskStore::column_embeddings)
    }

    /// Returns the vectors of the relations' names, and then of the summaries without parents, float16
    /// [relations, D_t].
    fn relation_embeddings<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArrayDyn<f16>>> {
        vectors(slf, DiskStore::relation_embeddings)
    }

    /// Returns the vectors of the categories, float16 [Vc, D_t].
    fn categorical_embeddings<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<Bound<'py, PyArrayDyn<f16>>> {
        vectors(slf, DiskStore::categorical_embeddings)
    }

    /// Returns the vectors of all texts, float16 [V, D_t], or int8 with `text_scales`; None if texts have
    /// no vectors.
    fn text_embeddings<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(match all_texts(slf)? {
            None => None,
            Some(TextVectors::F16(_)) => Some(vectors(slf, halves)?.into_any()),
            Some(TextVectors::Int8 { .. }) => Some(vectors(slf, integers)?.into_any()),
        })
    }

    /// Returns what the int8 vectors of all texts are multiplied by, float32 [V]; None if they are float16.
    fn text_scales<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyArrayDyn<f32>>>> {
        match all_texts(slf)? {
            Some(TextVectors::Int8 { scales: all, .. }) => {
                Ok(Some(lent(slf, &[all.len()], |store| scales(&store.0))?))
            }
            _ => Ok(None),
        }
    }

    /// Returns the vector of a text as `text_embeddings` has it; None if texts have no vectors.
    fn text_embedding<'py>(
        &self,
        py: Python<'py>,
        index: Whole,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let index = check_index(&index, self.0.metadata().embedding.text_count, "text")?;
        Ok(match self.0.text_embedding(index)? {
            None => None,
            Some(TextVectors::F16(vector)) => Some(to_array(py, vector)?.into_any()),
            Some(TextVectors::Int8 { values, .. }) => Some(to_array(py, values)?.into_any()),
        })
    }

    /// Returns the characters of a text.
    fn text<'py>(&self, py: Python<'py>, index: Whole) -> PyResult<Bound<'py, PyString>> {
        let index = check_index(&index, self.0.metadata().embedding.text_count, "text")?;
        to_text(py, self.0.text(index)?)
    }

    /// Returns the name of a category.
    fn category<'py>(&self, py: Python<'py>, index: Whole) -> PyResult<Bound<'py, PyString>> {
        let count = self.0.metadata().embedding.category_count;
        let index = check_index(&index, count, "category")?;
        to_text(py, self.0.category(index)?)
    }

    /// Returns the pairs of a task with what = "link", in the order of its seeds, which are the rows of
    /// its table: for each the anchor's row, the candidate's row, the observation time, the number of
    /// links of the candidate that were known then, and the time of the last of the two.
    #[pyo3(signature = (task, until = None))]
    fn pairs<'py>(
        &self,
        py: Python<'py>,
        task: &str,
        until: Option<i64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (pairs, history) = py.detach(|| {
            let task = self.0.task(task)?;
            let pairs = self.0.pairs(task)?;
            let history = self.0.pair_history(task, &pairs, until.unwrap_or(i64::MAX))?;
            Ok::<_, Error>((pairs, history))
        })?;
        let found = PyDict::new(py);
        found.set_item("anchor", PyArray1::from_vec(py, pairs.anchors))?;
        found.set_item("candidate", PyArray1::from_vec(py, pairs.candidates))?;
        found.set_item("observed", PyArray1::from_vec(py, pairs.observed))?;
        found.set_item("popularity", PyArray1::from_vec(py, history.popularity))?;
        found.set_item("last", PyArray1::from_vec(py, history.last))?;
        Ok(found)
    }

    /// Reads every byte of the store and checks it against its digest.
    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        let calls = Calls::default();
        let result = work::run(py, &calls, || self.0.verify(&|_| calls.check()))?;
        calls.settle(py, result)
    }

    /// Reads the whole store into memory; returns the number of bytes.
    fn warm(&self, py: Python<'_>) -> PyResult<u64> {
        let calls = Calls::default();
        let result = work::run(py, &calls, || self.0.warm(&|_| calls.check()))?;
        calls.settle(py, result)
    }

    /// Returns a row with its cells and neighbours.
    #[pyo3(signature = (table, key = None, *, index = None))]
    fn row<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        key: Option<&Bound<'py, PyAny>>,
        index: Option<Whole>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let table = self.0.table(table)?;
        let row = match (key, index) {
            (Some(_), None) if table.metadata().key.is_empty() => {
                return Err(Error::invalid(format!(
                    "row: expected index=..., because table {:?} has no key, found a key; give the number \
                     of the row, counted from 0, such as index=0",
                    table.metadata().name
                ))
                .into());
            }
            (Some(key), None) => find(table, key)?,
            (None, Some(index)) => check_index(&index, table.row_count(), "row")?,
            _ => {
                return Err(Error::invalid(
                    "row: expected a key or index=..., found both or neither",
                )
                .into());
            }
        };
        self.view(py, table, row)
    }

    /// The tables by name.
    #[getter]
    fn tables<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Ok(views(slf.py())?.call_method1("tables", (slf,))?)
    }

    /// The tasks by name.
    #[getter]
    fn tasks<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Ok(views(slf.py())?.call_method1("tasks", (slf,))?)
    }

    /// Returns a table.
    fn table<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        Ok(Self::tables(slf)?.get_item(name)?)
    }

    /// Returns a task.
    fn task<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        Ok(Self::tasks(slf)?.get_item(name)?)
    }

    /// Returns the path, so that a store stands for its folder.
    fn __fspath__(&self) -> PyResult<&str> {
        let path = self.0.path();
        path.to_str().ok_or_else(|| {
            let path = path.display();
            Error::invalid(format!("expected a path in UTF-8, found {path}; rename it")).into()
        })
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Ok(views(slf.py())?.call_method1("store_html", (slf,))?)
    }

    fn __repr__(&self) -> String {
        format!("<store {} at {}>", self.0.metadata().database, self.0.path().display())
    }
}

impl Store {
    fn view<'py>(&self, py: Python<'py>, table: &Table, row: u32) -> PyResult<Bound<'py, PyDict>> {
        let record = table.row(row)?;
        let cells = PyDict::new(py);
        for (place, column) in table.metadata().columns.iter().enumerate() {
            cells.set_item(&column.name, self.cell(py, column, record.cell(place))?)?;
        }
        let view = PyDict::new(py);
        view.set_item("table", &table.metadata().name)?;
        view.set_item("row", row)?;
        let has_key = !table.metadata().key.is_empty();
        view.set_item("key", if has_key { Some(table.key(row)?) } else { None })?;
        let time = match record.time() {
            ALWAYS_VISIBLE => None,
            // NumPy's NaT: the row has a time, but it is unknown.
            NEVER_VISIBLE => Some(timestamp(py, i64::MIN)?),
            time => Some(timestamp(py, time)?),
        };
        view.set_item("time", time)?;
        view.set_item("cells", cells)?;
        let (parents, children) = self.neighbours(py, table, row, &record)?;
        view.set_item("parents", parents)?;
        view.set_item("children", children)?;
        Ok(view)
    }

    fn neighbours<'py>(
        &self,
        py: Python<'py>,
        table: &Table,
        row: u32,
        record: &Row<'_>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        let (parents, children) = (PyDict::new(py), PyDict::new(py));
        for relation in self.0.relations() {
            let metadata = relation.metadata();
            let child = &self.0.tables()[metadata.child as usize];
            let parent = &self.0.tables()[metadata.parent as usize];
            let name = format!("{}.{}", child.metadata().name, metadata.name);
            if std::ptr::eq(child, table) {
                parents.set_item(&name, relation.parent(record)?)?;
            }
            if std::ptr::eq(parent, table) {
                let rows = relation.children(row)?.rows()?;
                children.set_item(&name, to_array(py, rows)?)?;
            }
        }
        Ok((parents, children))
    }

    /// Returns the value of a cell as in the source, as precisely as the store has it.
    fn cell<'py>(
        &self,
        py: Python<'py>,
        column: &ColumnMetadata,
        cell: Cell,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(Some(match cell {
            Cell::Null => return Ok(None),
            Cell::Identifier => true.into_pyobject(py)?.to_owned().into_any(),
            Cell::Boolean(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
            Cell::Timestamp(time) => timestamp(py, time)?,
            Cell::Categorical(index) => to_text(py, self.0.category(index)?)?.into_any(),
            Cell::Text(index) => to_text(py, self.0.text(index)?)?.into_any(),
            Cell::Numerical(score) => {
                let value = column.stats.number(score).unwrap_or(f64::from(score));
                value.into_pyobject(py)?.into_any()
            }
        }))
    }
}

/// Returns the vectors of all texts, verified without the lock of the interpreter, for it takes seconds for
/// gigabytes.
fn all_texts<'a>(store: &'a Bound<'_, Store>) -> Result<Option<TextVectors<'a>>> {
    let of = &store.get().0;
    store.py().detach(|| of.text_embeddings())
}

fn halves(store: &DiskStore) -> Result<&[f16]> {
    match store.text_embeddings()? {
        Some(TextVectors::F16(values)) => Ok(values),
        _ => Ok(&[]),
    }
}

fn integers(store: &DiskStore) -> Result<&[i8]> {
    match store.text_embeddings()? {
        Some(TextVectors::Int8 { values, .. }) => Ok(values),
        _ => Ok(&[]),
    }
}

fn scales(store: &DiskStore) -> Result<&[f32]> {
    Ok(store.text_embeddings()?.map_or(&[], TextVectors::scales))
}

/// Returns vectors of a store, which the array shares.
fn vectors<'py, T: Element>(
    store: &Bound<'py, Store>,
    of: impl for<'a> Fn(&'a DiskStore) -> Result<&'a [T]>,
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    let dimension = store.get().0.metadata().embedding.dimension as usize;
    let rows = of(&store.get().0)?.len().checked_div(dimension).unwrap_or_default();
    Ok(lent(store, &[rows, dimension], |store| of(&store.0))?)
}

/// Returns the Python module of tables and tasks.
fn views(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    Ok(py.import("headwater.tables")?)
}

/// Returns the number of the row with `key`, a str or an int.
fn find(table: &Table, key: &Bound<'_, PyAny>) -> PyResult<u32> {
    let text = match key.extract::<String>() {
        Ok(text) => text,
        Err(_) => match key.extract::<Whole>() {
            Ok(number) => number.0.to_string(),
            Err(error) if !error.is_instance_of::<PyTypeError>(key.py()) => return Err(error),
            Err(_) => {
                return Err(Error::invalid(format!(
                    "key: expected a str or an int, found {}; join a composite key by |",
                    type_name(key)
                ))
                .into());
            }
        },
    };
    Ok(table.require(&text)?)
}

fn check_index(index: &Whole, count: u32, what: &str) -> Result<u32> {
    u32::try_from(index.0).ok().filter(|&index| index < count).ok_or_else(|| {
        let index = index.0;
        Error::invalid(format!("there is no {what} {index}; there are {count}, counted from 0"))
    })
}

/// Returns a `numpy.datetime64` of microseconds, which has the range of the store's times.
fn timestamp(py: Python<'_>, time_us: i64) -> PyResult<Bound<'_, PyAny>> {
    Ok(py.import("numpy")?.call_method1("datetime64", (time_us, "us"))?)
}
