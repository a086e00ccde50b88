//! The compiled classes of `headwater.Events`.

use std::path::PathBuf;
use std::sync::Arc;

use headwater::events::{
    EventBatch, EventEvaluation, EventSampler, EventSettings, EventStore, TokenType,
};
use headwater::internal::TokenPicture;
use headwater::plan::{Assignment, Split};
use headwater::{Error, Result};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::{Argument, in_range, speed_of, split_of};
use crate::batch::arrays;
use crate::cursor::Cursor;
use crate::errors::PyResult;
use crate::objects::{Drawn, drawn};
use crate::pass::OwnedPass;
use crate::{Whole, to_python};

/// The compiled class behind `headwater.Events`.
#[pyclass(frozen, module = "headwater")]
pub(super) struct EventsCore(EventSampler);

impl EventsCore {
    /// Returns the next batch of a split. Ctrl-C during the wait raises, and the batch stays the next one.
    fn take(&self, py: Python<'_>, split: Split) -> PyResult<(EventBatch, [u64; 3])> {
        py.detach(|| self.0.wait(split))?;
        py.check_signals()?;
        Ok(py.detach(|| self.0.next(split))?)
    }
}

impl Drop for EventsCore {
    fn drop(&mut self) {
        // Releases the interpreter's lock while the threads end; at exit there may be no interpreter.
        let _ = Python::try_attach(|py| py.detach(|| self.0.shutdown()));
    }
}

#[pymethods]
impl EventsCore {
    #[new]
    #[pyo3(signature = (path, *, rank, world_size, seed, batch_size, sequence_length, packing, dtype, num_prefetch, num_threads))]
    #[expect(clippy::too_many_arguments, reason = "each is an argument of headwater.Events")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        rank: &Bound<'_, PyAny>,
        world_size: &Bound<'_, PyAny>,
        seed: &Bound<'_, PyAny>,
        batch_size: &Bound<'_, PyAny>,
        sequence_length: &Bound<'_, PyAny>,
        packing: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyAny>,
        num_prefetch: &Bound<'_, PyAny>,
        num_threads: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let sequence_length = Argument("sequence_length", sequence_length).optional_number()?;
        let settings = EventSettings {
            seed: Argument("seed", seed).number()?,
            packing: Argument("packing", packing).get()?,
            batch_size: Argument("batch_size", batch_size).number()?,
            token_type: Argument("dtype", dtype)
                .one_of(&[("int32", TokenType::Int32), ("uint16", TokenType::UInt16)])?,
            ..EventSettings::default()
        };
        let rank = Argument("rank", rank).number()?;
        let assignment = Assignment::new(rank, Argument("world_size", world_size).number()?)?;
        let speed =
            speed_of(Argument("num_threads", num_threads), Argument("num_prefetch", num_prefetch))?;
        let sampler = py.detach(|| {
            let store = Arc::new(EventStore::open(&path)?);
            let default = EventSettings::for_store(&store).sequence_length;
            let sequence_length = sequence_length.unwrap_or(default);
            let settings = EventSettings { sequence_length, ..settings };
            EventSampler::new(store, settings, assignment, speed)
        })?;
        Ok(Self(sampler))
    }

    /// Returns the next batch of a split as arrays by name.
    fn next<'py>(&self, py: Python<'py>, split: &str) -> PyResult<Bound<'py, PyDict>> {
        let (batch, _) = self.take(py, split_of(split)?)?;
        arrays(py, batch)
    }

    /// Returns the next batch of a split as arrays by name, and the cursor after the batch.
    fn next_with_cursor<'py>(
        &self,
        py: Python<'py>,
        split: &str,
    ) -> PyResult<(Bound<'py, PyDict>, Cursor)> {
        let (batch, places) = self.take(py, split_of(split)?)?;
        Ok((arrays(py, batch)?, Cursor::from(self.0.cursor_at(places))))
    }

    /// Returns rows of a split's stream by their indices.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        split: &str,
        indices: Vec<Whole>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let split = split_of(split)?;
        let indices: Vec<u64> = indices
            .into_iter()
            .map(|Whole(index)| in_range("index", index))
            .collect::<Result<_>>()?;
        arrays(py, py.detach(|| self.0.rows(split, &indices))?)
    }

    /// Returns a finite pass over the items of a split.
    fn evaluate(slf: &Bound<'_, Self>, split: &str) -> PyResult<EventPass> {
        let pass = slf.get().0.evaluate(split_of(split)?)?;
        let events = slf.clone().unbind();
        Ok(EventPass { pass: OwnedPass::new(pass.process(), pass), _events: events })
    }

    /// Returns a token row as an HTML page and as text.
    fn draw<'py>(&self, py: Python<'py>, split: &str, index: Whole) -> PyResult<Drawn<'py>> {
        let (split, index) = (split_of(split)?, in_range("index", index.0)?);
        let (page, text) = py.detach(|| {
            let picture = TokenPicture::new(&self.0, split, index)?;
            Ok::<_, Error>((picture.page(), picture.text()))
        })?;
        drawn(py, &page, &text)
    }

    /// Moves the stream of a split to a row.
    fn seek(&self, py: Python<'_>, split: &str, row: &Bound<'_, PyAny>) -> PyResult<()> {
        let (split, row) = (split_of(split)?, Argument("row", row).number()?);
        Ok(py.detach(|| self.0.seek(split, row))?)
    }

    /// Returns the cursor after the last batch that was taken.
    fn cursor(&self) -> Cursor {
        Cursor::from(self.0.cursor())
    }

    /// Continues after the last batch of a cursor.
    fn resume(&self, py: Python<'_>, cursor: &Cursor) -> PyResult<()> {
        Ok(py.detach(|| self.0.resume(cursor.as_plan()))?)
    }

    /// Writes the cursor to a file, completely or not at all.
    fn save_cursor(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        Ok(py.detach(|| self.0.save_cursor(&path))?)
    }

    /// Ends the threads.
    fn shutdown(&self, py: Python<'_>) {
        py.detach(|| self.0.shutdown());
    }

    /// Returns the number of rows of an epoch of a split's stream.
    fn row_count(&self, split: &str) -> PyResult<u64> {
        Ok(self.0.count(split_of(split)?))
    }

    /// Returns the number of different tokens.
    fn vocabulary(&self) -> u16 {
        self.0.vocabulary()
    }

    /// Returns the number of tokens in a row.
    fn sequence_length(&self) -> u32 {
        self.0.settings().sequence_length
    }

    /// Returns the most tokens of an event, with its time.
    fn room(&self) -> usize {
        self.0.store().room()
    }

    /// Returns the events of a context's tokens.
    fn decode<'py>(&self, py: Python<'py>, tokens: Vec<Whole>) -> PyResult<Bound<'py, PyAny>> {
        let tokens: Vec<u16> = tokens
            .into_iter()
            .map(|Whole(token)| in_range("token", token))
            .collect::<Result<_>>()?;
        to_python(py, &self.0.store().decode(&tokens)?)
    }

    /// Returns the tokens of the latest events of an entity.
    #[pyo3(signature = (entity, *, before_us, length))]
    fn latest<'py>(
        &self,
        py: Python<'py>,
        entity: &Bound<'py, PyAny>,
        before_us: &Bound<'py, PyAny>,
        length: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<u16>>> {
        let entity: String = Argument("entity", entity).get()?;
        let before_us = Argument("before", before_us).optional_number()?;
        let length = Argument("length", length).optional_number()?;
        Ok(py.detach(|| self.0.latest(&entity, before_us, length))?.into_pyarray(py))
    }

    /// Returns the text that names an entity.
    fn entity(&self, number: Whole) -> PyResult<String> {
        let number = in_range("entity", number.0)?;
        let count = self.0.store().metadata().entity_count;
        if number >= count {
            return Err(Error::invalid(format!(
                "expected an entity from 0 to {}, found {number}",
                count.saturating_sub(1)
            ))
            .into());
        }
        Ok(self.0.store().entity(number)?.to_owned())
    }

    /// Returns the metadata of the store.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self.0.store().metadata())
    }
}

/// The batches of a finite pass over a split of an event store.
#[pyclass(frozen, module = "headwater")]
pub(super) struct EventPass {
    pass: OwnedPass<EventEvaluation>,
    /// Its end would end the pass.
    _events: Py<EventsCore>,
}

#[pymethods]
impl EventPass {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let batch = self.pass.next(py, EventEvaluation::wait)?;
        batch.map(|batch| arrays(py, batch)).transpose()
    }
}
