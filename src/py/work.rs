//! Long work beside the interpreter: without its lock, and ended by Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::error::{Error, Result};

/// How often the waiting thread looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// What work and the interpreter tell each other.
#[derive(Default)]
pub(super) struct Calls {
    stop: AtomicBool,
    /// What a Python function raised, and the same in words.
    raised: Mutex<Option<(PyErr, String)>>,
    on_stop: Mutex<Vec<Py<PyAny>>>,
}

impl Calls {
    /// Whether the work is to end.
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the work when it is to end.
    pub(super) fn check(&self) -> Result<()> {
        match self.stopped() {
            true => Err(Error::interrupted("interrupted; nothing was written")),
            false => Ok(()),
        }
    }

    /// Has `function` called when the user wants the work to end.
    pub(super) fn on_stop(&self, function: Py<PyAny>) {
        self.on_stop.lock().unwrap_or_else(PoisonError::into_inner).push(function);
    }

    /// Keeps the first exception of a Python function, for the caller to see as it is, and ends
    /// the work; yields an error that says the same in words.
    pub(super) fn raise(&self, py: Python<'_>, error: PyErr) -> Error {
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
            // The work is over either way; it only takes longer to notice.
            let _ = function.call0(py);
        }
    }

    /// The result of work for Python: an exception of a Python function goes before the error
    /// that it led to, whose place becomes its note.
    pub(super) fn settle<T>(self, py: Python<'_>, result: Result<T>) -> PyResult<T> {
        let raised = self.raised.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (result, raised) {
            (Ok(value), _) => Ok(value),
            (Err(error), None) => Err(error.into()),
            (Err(error), Some((raised, words))) => {
                let message = error.to_string();
                // The place, without the words that the exception says itself.
                if let Some(place) = message.strip_suffix(&format!(": {words}")) {
                    raised.value(py).call_method1("add_note", (place,))?;
                }
                Err(raised)
            }
        }
    }
}

/// Runs `work` on a thread of its own, without the interpreter's lock, while this one looks for
/// Ctrl-C: Python handles signals on its main thread alone.
///
/// # Errors
/// `LimitExceeded` when there is no memory for a thread; nothing was done then.
pub(super) fn run<T: Send>(
    py: Python<'_>,
    calls: &Calls,
    work: impl FnOnce() -> T + Send,
) -> Result<T> {
    let result = py.detach(|| {
        thread::scope(|scope| {
            let (sender, ended) = channel::<()>();
            let worker = thread::Builder::new().spawn_scoped(scope, move || {
                // Dropped when the work ends, however it does.
                let _sender = sender;
                work()
            });
            let worker = worker.map_err(|e| Error::limit(format!("starting a thread: {e}")))?;
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
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
