//! One exception class for each kind of error.

use std::convert::Infallible;
use std::ops::Deref;

use headwater::{Error, ErrorKind};
use numpy::AsSliceError;
use pyo3::CastError;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

/// The exception classes: the base, then one for each kind.
struct Classes {
    base: Py<PyType>,
    kinds: Vec<(ErrorKind, Py<PyType>)>,
}

/// Each kind, the name of its class, and the docstring of the class.
const KINDS: [(ErrorKind, &str, &str); 10] = [
    (ErrorKind::Io, "IoError", "The operating system reported an error; also an OSError."),
    (ErrorKind::NotOurs, "NotOurs", "The bytes are not a headwater file of the expected kind."),
    (
        ErrorKind::Version,
        "VersionMismatch",
        "The file has a format version that this build cannot read.",
    ),
    (ErrorKind::Corrupt, "Corrupt", "A headwater file is damaged."),
    (ErrorKind::LimitExceeded, "LimitExceeded", "A limit of a format or a setting was exceeded."),
    (ErrorKind::InvalidArgument, "InvalidArgument", "An argument is not valid; also a ValueError."),
    (
        ErrorKind::Schema,
        "SchemaError",
        "The schema does not describe the data, or contradicts itself.",
    ),
    (ErrorKind::Data, "DataError", "The source data break a promise that the schema makes."),
    (
        ErrorKind::PlanMismatch,
        "PlanMismatch",
        "A cursor or checkpoint belongs to another plan, data or format.",
    ),
    (ErrorKind::Shutdown, "SamplerShutdown", "A sampler was used after it was shut down."),
];

static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();

fn classes(py: Python<'_>) -> pyo3::PyResult<&Classes> {
    CLASSES.get_or_try_init(py, || {
        let exception = py.get_type::<PyException>();
        let about =
            "The base class of all errors of headwater; KeyboardInterrupt is not one of them.";
        let base = new_class(py, "HeadwaterError", about, &[exception])?;
        let mut kinds = Vec::new();
        for (kind, name, about) in KINDS {
            let mut bases = vec![base.clone()];
            match kind {
                ErrorKind::Io => bases.push(py.get_type::<PyOSError>()),
                ErrorKind::InvalidArgument => bases.push(py.get_type::<PyValueError>()),
                _ => {}
            }
            kinds.push((kind, new_class(py, name, about, &bases)?.unbind()));
        }
        Ok(Classes { base: base.unbind(), kinds })
    })
}

fn new_class<'py>(
    py: Python<'py>,
    name: &str,
    about: &str,
    bases: &[Bound<'py, PyType>],
) -> pyo3::PyResult<Bound<'py, PyType>> {
    let members = PyDict::new(py);
    members.set_item("__module__", "headwater")?;
    members.set_item("__doc__", about)?;
    let bases = PyTuple::new(py, bases)?;
    Ok(py.get_type::<PyType>().call1((name, bases, members))?.cast_into()?)
}

/// Adds the classes to the module.
pub(super) fn add_to(module: &Bound<'_, PyModule>) -> pyo3::PyResult<()> {
    let py = module.py();
    let classes = classes(py)?;
    let all = std::iter::once(&classes.base).chain(classes.kinds.iter().map(|(_, class)| class));
    for class in all {
        let class = class.bind(py);
        module.add(class.name()?, class)?;
    }
    Ok(())
}

/// Returns the error of an exception of one of these classes.
pub(super) fn ours(py: Python<'_>, exception: &PyErr) -> Option<Error> {
    let class = exception.get_type(py);
    let (kind, _) = classes(py).ok()?.kinds.iter().find(|(_, ours)| ours.is(&class))?;
    Some(Error::new(*kind, exception.value(py).to_string()))
}

/// An exception on its way to Python.
pub(super) struct Raised(PyErr);

/// The result of what Python calls: both our errors and its own exceptions become exceptions.
pub(super) type PyResult<T> = Result<T, Raised>;

impl Deref for Raised {
    type Target = PyErr;

    fn deref(&self) -> &PyErr {
        &self.0
    }
}

impl From<Raised> for PyErr {
    fn from(raised: Raised) -> Self {
        raised.0
    }
}

impl From<PyErr> for Raised {
    fn from(exception: PyErr) -> Self {
        Self(exception)
    }
}

impl From<CastError<'_, '_>> for Raised {
    fn from(error: CastError<'_, '_>) -> Self {
        Self(error.into())
    }
}

impl From<Infallible> for Raised {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<AsSliceError> for Raised {
    fn from(error: AsSliceError) -> Self {
        Self(error.into())
    }
}

impl From<Error> for Raised {
    fn from(error: Error) -> Self {
        Self(exception_of(&error))
    }
}

/// Returns the exception of an error.
fn exception_of(error: &Error) -> PyErr {
    let message = error.to_string();
    if error.kind() == ErrorKind::Interrupted {
        return PyKeyboardInterrupt::new_err(message);
    }
    Python::attach(|py| {
        let classes = match classes(py) {
            Ok(classes) => classes,
            Err(raised) => return raised,
        };
        let found = classes.kinds.iter().find(|(kind, _)| *kind == error.kind());
        let class = found.map_or(&classes.base, |(_, class)| class).bind(py).clone();
        match error.os_error().and_then(std::io::Error::raw_os_error) {
            Some(number) => PyErr::from_type(class, (number, message)),
            None => PyErr::from_type(class, (message,)),
        }
    })
}
