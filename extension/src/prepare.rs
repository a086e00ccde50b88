//! `headwater.prepare`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use headwater::internal::memory_size;
use headwater::prepare::embed::{Embedder, HashingEmbedder};
use headwater::prepare::schema::Schema;
use headwater::prepare::source::{self, Source};
use headwater::prepare::{
    EventOptions, Merge, Options, Part, PartOptions, merge as run_merge, prepare as run_prepare,
    prepare_events, prepare_part as run_part, replace,
};
use headwater::progress::Progress;
use headwater::store::TextEncoding;
use headwater::{Context, Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::{Argument, thread_count, within};
use crate::arrow_source::ArrowSource;
use crate::database::connect;
use crate::embedder::CallableEmbedder;
use crate::endpoint::Endpoint;
use crate::errors::{PyResult, Raised};
use crate::sql::DuckDb;
use crate::work::{self, Calls};
use crate::{Whole, path_of, to_json, to_python, type_name};

/// An optional argument for which `None` is a value of its own.
pub(super) enum Choice<'py> {
    Default,
    Given(Bound<'py, PyAny>),
}

impl<'py> FromPyObject<'_, 'py> for Choice<'py> {
    type Error = Raised;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self::Given(object.to_owned()))
    }
}

/// How texts have vectors: True, False, or the name of an encoding.
pub(super) struct TextChoice(Option<TextEncoding>);

impl FromPyObject<'_, '_> for TextChoice {
    type Error = Raised;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(has_vectors) = object.extract::<bool>() {
            return Ok(Self(has_vectors.then_some(TextEncoding::F16)));
        }
        let name = object.extract::<String>().ok();
        match name.as_deref().and_then(TextEncoding::named) {
            Some(encoding) => Ok(Self(Some(encoding))),
            None => Err(Error::invalid(format!(
                "text_vectors: expected True, False, \"{}\", found {}",
                TextEncoding::NAMES.join("\" or \""),
                name.map_or_else(|| type_name(&object), |name| format!("{name:?}"))
            ))
            .into()),
        }
    }
}

/// The length of a text's vector where none is given, as the signature below says.
const DIMENSION: usize = 256;

/// Writes a store from a source and its schema.
#[pyfunction]
#[pyo3(signature = (
    source, schema, out, *, embedder = Choice::Default, dimension = Whole(256),
    text_vectors = TextChoice(Some(TextEncoding::F16)),
    threads = None, memory = None, progress = None, force = false, merge = None
))]
#[pyo3(text_signature = "(source, schema, out, *, embedder='hashing', dimension=256, \
                         text_vectors=True, threads=None, memory=None, progress=None, force=False, \
                         merge=None)")]
#[expect(clippy::too_many_arguments, reason = "Python's are named")]
pub(super) fn prepare<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    schema: &Bound<'py, PyAny>,
    out: PathBuf,
    embedder: Choice<'py>,
    dimension: Whole,
    text_vectors: TextChoice,
    threads: Option<Whole>,
    memory: Option<&Bound<'py, PyAny>>,
    progress: Option<Py<PyAny>>,
    force: bool,
    merge: Option<PathBuf>,
) -> PyResult<Bound<'py, PyAny>> {
    let dimension = within("dimension", dimension, 8..=8192, "")?;
    let threads = thread_count("threads", threads)?;
    let memory = memory.map(|size| -> PyResult<u64> {
        let size: String = Argument("memory", size).get_as("a size such as \"2GB\"")?;
        Ok(memory_size(&size).context(|| "memory")?)
    });
    let memory = memory.transpose()?;
    let calls = Calls::default();
    let schema = read_schema(schema)?;
    let opened: Arc<dyn Source> = Arc::from(open_source(source, &calls)?);
    if schema.events.is_some() {
        if text_vectors.0 != Some(TextEncoding::F16)
            || dimension != DIMENSION
            || matches!(&embedder, Choice::Given(name) if !is_hashing(name))
        {
            return Err(Error::invalid(
                "expected no embedder, because events have no texts; leave out embedder, \
                 dimension and text_vectors",
            )
            .into());
        }
        if memory.is_some() {
            return Err(Error::invalid(
                "expected no memory, because a log of events takes the same memory whatever its size; leave \
                 it out",
            )
            .into());
        }
        if merge.is_some() {
            return Err(Error::invalid(
                "expected no merge, because one process prepares a log of events; leave it out",
            )
            .into());
        }
        let reporter = Reporter::new(progress, &calls);
        let report = work::run(py, &calls, || {
            let options = EventOptions { replace: force, threads, progress: &reporter };
            prepare_events(&*opened, &schema, &out, &options)
        })?;
        return to_python(py, &calls.settle(py, report)?);
    }
    let is_stopped = || calls.stopped();
    let embedder: Box<dyn Embedder + Send> = match embedder {
        Choice::Default => Box::new(HashingEmbedder::new(dimension)),
        Choice::Given(name) if is_hashing(&name) => Box::new(HashingEmbedder::new(dimension)),
        Choice::Given(endpoint) if endpoint.is_instance_of::<Endpoint>() => {
            let endpoint = endpoint.cast::<Endpoint>()?.get().connect(dimension)?;
            Box::new(endpoint.stop_when(&is_stopped))
        }
        Choice::Given(function) => Box::new(CallableEmbedder::new(&function, dimension, &calls)?),
    };
    let sql = DuckDb::new(Arc::clone(&opened), schema.clone(), &calls);
    let reporter = Reporter::new(progress, &calls);
    let report = work::run(py, &calls, || {
        let options = Options {
            embedder: &*embedder,
            text_vectors: text_vectors.0,
            threads,
            memory,
            sql: Some(&sql),
            progress: &reporter,
        };
        if let Some(parts) = &merge {
            let to = Merge { parts, out: &out, replace: force };
            return run_merge(&*opened, &schema, &to, &options);
        }
        let run = if force { replace } else { run_prepare };
        run(&*opened, &schema, &out, &options)
    })?;
    drop(embedder);
    let report = calls.settle(py, report)?;
    to_python(py, &report)
}

/// Reads one part of the tables of a source.
#[pyfunction]
#[pyo3(signature = (source, schema, parts, number, count, *, threads = None, progress = None))]
#[expect(clippy::too_many_arguments, reason = "Python's are named")]
pub(super) fn prepare_part<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    schema: &Bound<'py, PyAny>,
    parts: PathBuf,
    number: Whole,
    count: Whole,
    threads: Option<Whole>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let count = within("count", count, 1..=Part::COUNT_MAX as usize, "")?;
    let number = within("number", number, 1..=count, "; parts are counted from 1 to count")?;
    let part = Part::new(number as u32, count as u32)?;
    let threads = thread_count("threads", threads)?;
    let calls = Calls::default();
    let schema = read_schema(schema)?;
    let opened: Arc<dyn Source> = Arc::from(open_source(source, &calls)?);
    let reporter = Reporter::new(progress, &calls);
    let report = work::run(py, &calls, || {
        let options = PartOptions { threads, progress: &reporter };
        run_part(&*opened, &schema, &parts, part, &options)
    })?;
    to_python(py, &calls.settle(py, report)?)
}

/// Whether an embedder is the name of the built-in one.
fn is_hashing(embedder: &Bound<'_, PyAny>) -> bool {
    embedder.extract::<&str>().is_ok_and(|name| name == "hashing")
}

/// Reads the schema at a path, or in a dictionary as `tomllib` reads it.
fn read_schema(schema: &Bound<'_, PyAny>) -> PyResult<Schema> {
    if let Ok(mapping) = schema.cast::<PyDict>() {
        return Ok(Schema::from_json(&to_json(mapping)?)?);
    }
    let expected = "schema: expected a path, or a dictionary as tomllib reads it";
    Ok(Schema::read(&path_of(schema, expected)?)?)
}

/// Opens the source at a path, or of the tables in a dictionary.
pub(super) fn open_source(source: &Bound<'_, PyAny>, calls: &Calls) -> PyResult<Box<dyn Source>> {
    if let Ok(tables) = source.cast::<PyDict>() {
        return Ok(Box::new(ArrowSource::new(tables)?));
    }
    if source.hasattr("__arrow_c_stream__")? || source.hasattr("collect")? {
        return Err(Error::invalid(format!(
            "source: expected a path or a dictionary of tables, found {}; name the table, as in \
             {{\"name\": frame}}",
            type_name(source)
        ))
        .into());
    }
    let path = path_of(source, "source: expected a path or a dictionary of tables by name")?;
    let py = source.py();
    let connect = |database, address: &str| connect(database, address, calls);
    // A server may take long to answer.
    let opened = work::run(py, calls, || source::open_with(&path, Some(&connect)))?;
    calls.settle(py, opened)
}

/// Reports the progress to a Python function, if there is one, and checks for Ctrl-C.
pub(super) struct Reporter<'a> {
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

impl<'a> Reporter<'a> {
    pub(super) fn new(function: Option<Py<PyAny>>, calls: &'a Calls) -> Self {
        Self { function, stage: Mutex::default(), calls }
    }

    fn report(&self, change: impl FnOnce(&mut Stage)) -> Result<()> {
        self.calls.check()?;
        let Some(function) = &self.function else { return Ok(()) };
        let Stage { name, done, total } = {
            let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut stage);
            stage.clone()
        };
        Python::attach(|py| {
            let result = function.call1(py, (name, done, total));
            result.map(drop).map_err(|error| self.calls.raise(py, error))
        })
    }
}

impl Progress for Reporter<'_> {
    fn begin(&self, stage: &str, total: Option<u64>) {
        let first = Stage { name: stage.to_owned(), done: 0, total };
        // An exception of the function is kept, and ends the work at the next `advance`.
        let _ = self.report(|stage| *stage = first);
    }

    fn advance(&self, count: u64) -> Result<()> {
        self.report(|stage| stage.done += count)
    }
}
