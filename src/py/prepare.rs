//! `headwater.prepare`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrow_source::ArrowSource;
use super::embedder::CallableEmbedder;
use super::endpoint::Endpoint;
use super::sql::DuckDb;
use super::work::{self, Calls};
use super::{to_json, to_python};
use crate::error::{Error, Result};
use crate::prepare::embed::{Embedder, HashingEmbedder};
use crate::prepare::schema::Schema;
use crate::prepare::source::{self, Source};
use crate::prepare::{Options, Progress, prepare as run_prepare};

/// Makes a store from a source and its schema.
#[pyfunction]
#[pyo3(signature = (
    source, schema, out, *, embedder = None, dimension = 256, text_vectors = true, threads = None,
    progress = None
))]
#[pyo3(text_signature = "(source, schema, out, *, embedder='hashing', dimension=256, \
                         text_vectors=True, threads=None, progress=None)")]
#[expect(clippy::too_many_arguments, reason = "Python's are named")]
pub(super) fn prepare<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    schema: &Bound<'py, PyAny>,
    out: PathBuf,
    embedder: Option<&Bound<'py, PyAny>>,
    dimension: usize,
    text_vectors: bool,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    check_numbers(dimension, threads)?;
    let calls = Calls::default();
    let schema = read_schema(schema)?;
    let opened = open_source(source)?;
    let embedder: Box<dyn Embedder + Send> = match embedder {
        None => Box::new(HashingEmbedder::new(dimension)),
        Some(word) if word.extract::<&str>().is_ok_and(|word| word == "hashing") => {
            Box::new(HashingEmbedder::new(dimension))
        }
        Some(endpoint) if endpoint.is_instance_of::<Endpoint>() => {
            Box::new(endpoint.cast::<Endpoint>()?.get().connect(dimension)?)
        }
        Some(function) => Box::new(CallableEmbedder::new(function, dimension, &calls)?),
    };
    let sql = DuckDb::new(source.clone().unbind(), &calls);
    let listener = Listener { function: progress, stage: Mutex::default(), calls: &calls };
    let report = work::run(py, &calls, || {
        let options = Options {
            embedder: &*embedder,
            text_vectors,
            threads,
            sql: Some(&sql),
            progress: &listener,
        };
        run_prepare(&*opened, &schema, &out, &options)
    });
    drop(embedder);
    let report = calls.settle(py, report)?;
    to_python(py, &report)
}

/// The files of each table of a folder or file; None for a SQLite file.
#[pyfunction]
pub(super) fn table_files(path: PathBuf) -> PyResult<Option<BTreeMap<String, Vec<PathBuf>>>> {
    Ok(source::table_files(&path)?)
}

fn check_numbers(dimension: usize, threads: Option<usize>) -> Result<()> {
    if !(8..=8192).contains(&dimension) {
        return Err(Error::invalid(format!("dimension: expected 8 to 8192, found {dimension}")));
    }
    match threads {
        Some(threads) if !(1..=1024).contains(&threads) => Err(Error::invalid(format!(
            "threads: expected 1 to 1024, found {threads}; None is all cores"
        ))),
        _ => Ok(()),
    }
}

/// The schema at a path, or the one that a mapping holds as `tomllib` reads it.
fn read_schema(schema: &Bound<'_, PyAny>) -> PyResult<Schema> {
    if let Ok(mapping) = schema.cast::<PyDict>() {
        let read: Schema = serde_json::from_str(&to_json(mapping)?)
            .map_err(|error| Error::schema(format!("the schema's dictionary: {error}")))?;
        read.check()?;
        return Ok(read);
    }
    Ok(Schema::read(&schema.extract::<PathBuf>()?)?)
}

/// The source at a path, or the one of the tables that a dictionary holds.
pub(super) fn open_source(source: &Bound<'_, PyAny>) -> PyResult<Box<dyn Source>> {
    if let Ok(tables) = source.cast::<PyDict>() {
        return Ok(Box::new(ArrowSource::new(tables)?));
    }
    let path: PathBuf = source.extract()?;
    Ok(source::open(Path::new(&path))?)
}

/// Tells a Python function of the progress, and the work of Ctrl-C.
struct Listener<'a> {
    function: Option<Py<PyAny>>,
    stage: Mutex<Stage>,
    calls: &'a Calls,
}

#[derive(Clone, Default)]
struct Stage {
    name: String,
    done: u64,
    total: Option<u64>,
}

impl Listener<'_> {
    fn tell(&self, change: impl FnOnce(&mut Stage)) -> Result<()> {
        self.calls.check()?;
        let Some(function) = &self.function else { return Ok(()) };
        let Stage { name, done, total } = {
            let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut stage);
            stage.clone()
        };
        Python::attach(|py| {
            let told = function.call1(py, (name, done, total));
            told.map(drop).map_err(|error| self.calls.raise(py, error))
        })
    }
}

impl Progress for Listener<'_> {
    fn begin(&self, stage: &str, total: Option<u64>) {
        let begun = Stage { name: stage.to_owned(), done: 0, total };
        // What the function raised is kept, and ends the work when it next advances.
        let _ = self.tell(|stage| *stage = begun);
    }

    fn advance(&self, count: u64) -> Result<()> {
        self.tell(|stage| stage.done += count)
    }
}
