//! Runs long work without the interpreter's lock, and stops it at Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use headwater::{Error, Result};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::errors::PyResult;

/// The interval at which the waiting thread checks for Ctrl-C.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The state that the work and the interpreter share.
#[derive(Default)]
pub(super) struct Calls {
    stop: AtomicBool,
    /// The first exception of a Python function, and its message.
    raised: Mutex<Option<(PyErr, String)>>,
    on_stop: Mutex<Vec<Py<PyAny>>>,
}

impl Calls {
    /// Whether the work must stop.
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns an error when the work must stop.
    pub(super) fn check(&self) -> Result<()> {
        match self.stopped() {
            true => Err(Error::interrupted("interrupted; nothing was written")),
            false => Ok(()),
        }
    }

    /// Registers `function`, which is called at Ctrl-C.
    pub(super) fn on_stop(&self, function: Py<PyAny>) {
        self.on_stop.lock().unwrap_or_else(PoisonError::into_inner).push(function);
    }

    /// Stores the first exception of a Python function for the caller, and stops the work; returns an
    /// error with the same message.
    pub(super) fn raise(&self, py: Python<'_>, error: impl Into<PyErr>) -> Error {
        let error: PyErr = error.into();
        let is_interrupt = error.is_instance_of::<PyKeyboardInterrupt>(py);
        let words = format!("{}: {}", super::type_name(error.value(py)), error.value(py));
        let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        raised.get_or_insert((error, words.clone()));
        self.stop.store(true, Ordering::Relaxed);
        match is_interrupt {
            true => Error::interrupted("interrupted; nothing was written"),
            false => Error::data(words),
        }
    }

    fn interrupt(&self, py: Python<'_>, error: PyErr) {
        self.raise(py, error);
        for function in self.on_stop.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // The work stops in any case; without the call it only takes longer.
            let _ = function.call0(py);
        }
    }

    /// Converts the result of the work for Python. An exception of a Python function replaces the error
    /// that it caused, and the place of that error becomes a note of the exception.
    pub(super) fn settle<T>(&self, py: Python<'_>, result: Result<T>) -> PyResult<T> {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (result, raised) {
            (Ok(value), _) => Ok(value),
            (Err(error), None) => Err(error.into()),
            (Err(error), Some((raised, words))) => {
                let message = error.to_string();
                // The place, without the message of the exception.
                if let Some(place) = message.strip_suffix(&format!(": {words}")) {
                    raised.value(py).call_method1("add_note", (place,))?;
                }
                Err(raised.into())
            }
        }
    }
}

/// Runs `work` on its own thread, without the interpreter's lock, while this thread checks for Ctrl-C:
/// Python handles signals only on its main thread.
///
/// # Errors
/// `LimitExceeded` when there is no memory for a thread; then `work` has not run.
pub(super) fn run<T: Send>(
    py: Python<'_>,
    calls: &Calls,
    work: impl FnOnce() -> T + Send,
) -> Result<T> {
    let result = py.detach(|| {
        thread::scope(|scope| {
            let (sender, ended) = channel::<()>();
            let worker = thread::Builder::new().spawn_scoped(scope, move || {
                // Dropped when the work ends, even by a panic.
                let _sender = sender;
                work()
            });
            let worker = worker.map_err(|e| {
                Error::limit(format!("cannot start a thread: {e}; free some memory"))
            })?;
            while ended.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                Python::attach(|py| {
                    if let Err(error) = py.check_signals() {
                        calls.interrupt(py, error);
                    }
                });
            }
            Ok(worker.join())
        })
    });
    Ok(result?.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
