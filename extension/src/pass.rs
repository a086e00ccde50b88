//! A finite pass of a sampler, for the process that began it.

use std::sync::{Mutex, PoisonError};

use headwater::Result;
use headwater::internal::check_owner;
use pyo3::prelude::*;

use crate::errors::PyResult;

/// A pass of type `P`, an iterator of batches.
pub(super) struct OwnedPass<P> {
    /// Outside the lock, because a forked child may find the lock held for ever.
    process: u32,
    pass: Mutex<P>,
}

impl<P: Send> OwnedPass<P> {
    /// Returns the pass of a process.
    pub(super) fn new(process: u32, pass: P) -> Self {
        Self { process, pass: Mutex::new(pass) }
    }

    /// Does something with the pass, without the GIL.
    pub(super) fn with<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut P) -> Result<T> + Send,
    ) -> PyResult<T> {
        Ok(py.detach(|| {
            check_owner(self.process)?;
            f(&mut self.pass.lock().unwrap_or_else(PoisonError::into_inner))
        })?)
    }

    /// Returns the next batch, after `wait` has waited for it. Ctrl-C during the wait raises, and the batch
    /// stays the next one.
    pub(super) fn next<B: Send>(
        &self,
        py: Python<'_>,
        wait: impl FnOnce(&mut P) -> Result<()> + Send,
    ) -> PyResult<Option<B>>
    where
        P: Iterator<Item = Result<B>>,
    {
        self.with(py, wait)?;
        py.check_signals()?;
        self.with(py, |pass| pass.next().transpose())
    }
}
