//! `headwater.Endpoint`.

use std::path::PathBuf;

use headwater::Result;
use headwater::prepare::embed::EndpointEmbedder;
use pyo3::prelude::*;

/// A server with OpenAI's embeddings protocol, as an embedder for `prepare`.
#[pyclass(frozen, module = "headwater")]
pub(super) struct Endpoint {
    url: String,
    model: String,
    cache: PathBuf,
    key: Option<String>,
}

#[pymethods]
impl Endpoint {
    #[new]
    #[pyo3(signature = (url, model, cache, *, key = None))]
    fn new(url: String, model: String, cache: PathBuf, key: Option<String>) -> Self {
        Self { url, model, cache, key }
    }
}

impl Endpoint {
    /// Opens the cache, and returns the embedder.
    pub(super) fn connect(&self, dimension: usize) -> Result<EndpointEmbedder<'static>> {
        let key = self.key.clone();
        EndpointEmbedder::new(&self.url, &self.model, key, dimension, &self.cache)
    }
}
