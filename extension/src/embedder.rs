//! Uses a Python callable as an embedder.

use half::f16;
use headwater::prepare::embed::Embedder;
use headwater::{Error, Result};
use numpy::{PyReadonlyArray2, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::errors::PyResult;
use crate::objects::to_text;
use crate::work::Calls;

/// The most texts of a call: enough for a model, few enough to check for Ctrl-C between calls.
const TEXTS_PER_CALL: usize = 1024;

/// An embedder that calls a Python function.
pub(super) struct CallableEmbedder<'a> {
    function: Py<PyAny>,
    name: String,
    dimension: usize,
    calls: &'a Calls,
}

impl<'a> CallableEmbedder<'a> {
    pub(super) fn new(
        function: &Bound<'_, PyAny>,
        dimension: usize,
        calls: &'a Calls,
    ) -> PyResult<Self> {
        if !function.is_callable() {
            let text = function.extract::<String>().map(|text| format!("{text:?}"));
            return Err(Error::invalid(format!(
                "embedder: expected \"hashing\", an Endpoint (a server with OpenAI's protocol), or a \
                 function from a list of texts to an array (such as a model's encode), found {}",
                text.unwrap_or_else(|_| super::type_name(function))
            ))
            .into());
        }
        Ok(Self { name: name_of(function), function: function.clone().unbind(), dimension, calls })
    }

    fn call(&self, py: Python<'_>, texts: &[&str], vectors: &mut [f16]) -> PyResult<()> {
        let given = texts.iter().map(|text| to_text(py, text)).collect::<PyResult<Vec<_>>>()?;
        let found = self.function.call1(py, (PyList::new(py, given)?,))?;
        let options = PyDict::new(py);
        options.set_item("dtype", "float16")?;
        let found = py.import("numpy")?.call_method("asarray", (found,), Some(&options))?;
        let array = found.cast::<PyUntypedArray>()?;
        let expected = [texts.len(), self.dimension];
        if array.shape() != expected {
            return Err(Error::invalid(format!(
                "expected an array of shape {expected:?} from the embedder {}, found {:?} for {} \
                 texts; set the length of its vectors with dimension=...",
                self.name,
                array.shape(),
                texts.len(),
            ))
            .into());
        }
        let array: PyReadonlyArray2<'_, f16> = found.extract()?;
        for (vector, value) in vectors.iter_mut().zip(array.as_array()) {
            *vector = *value;
        }
        if let Some(bad) = vectors.iter().position(|value| !value.is_finite()) {
            return Err(Error::data(format!(
                "expected numbers that float16 can hold from the embedder {}, found {} for {:?}",
                self.name,
                vectors[bad],
                texts.get(bad / self.dimension).unwrap_or(&""),
            ))
            .into());
        }
        Ok(())
    }
}

/// Returns the name for the store: the function's `name`, otherwise its name in Python.
fn name_of(function: &Bound<'_, PyAny>) -> String {
    for attribute in ["name", "__qualname__"] {
        let name = function.getattr(attribute).and_then(|name| name.extract::<String>());
        if let Ok(name) = name {
            return format!("python:{name}");
        }
    }
    format!("python:{}", super::type_name(function))
}

impl Embedder for CallableEmbedder<'_> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn embed(&self, texts: &[&str], vectors: &mut [f16]) -> Result<()> {
        let vectors = vectors.chunks_mut(TEXTS_PER_CALL * self.dimension);
        for (texts, vectors) in texts.chunks(TEXTS_PER_CALL).zip(vectors) {
            self.calls.check()?;
            Python::attach(|py| {
                self.call(py, texts, vectors).map_err(|error| self.calls.raise(py, error))
            })?;
        }
        Ok(())
    }
}
