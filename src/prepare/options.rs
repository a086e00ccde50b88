//! How a store is prepared, and the report of a preparation.

use std::path::Path;

use serde::Serialize;

use super::embed::Embedder;
use super::source::Batches;
use crate::bytes::Digest;
use crate::error::Result;
use crate::progress::Progress;

/// Runs the SQL of tasks; the Python package has one on top of DuckDB.
pub trait SqlEngine: Sync {
    /// The rows of `query` over the source's tables, with `columns` in that order. What does not
    /// fit into memory may lie in a new folder `scratch`, until the preparation ends.
    ///
    /// # Errors
    /// Whatever the engine says.
    fn query(&self, query: &str, columns: &[String], scratch: &Path) -> Result<Batches>;
}

/// How a store is to be prepared. Only `embedder` and `text_vectors` change its bytes.
pub struct Options<'a> {
    /// Embeds names, categories and texts.
    pub embedder: &'a dyn Embedder,
    /// Whether the texts are embedded too.
    pub text_vectors: bool,
    /// How many threads work; all cores where it is not said.
    pub threads: Option<usize>,
    /// Runs SQL tasks, where the schema has any.
    pub sql: Option<&'a dyn SqlEngine>,
    /// Hears of the progress.
    pub progress: &'a dyn Progress,
}

/// What a preparation found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The identity of the store.
    pub root: Digest,
    /// How many rows the tables have together.
    pub row_count: u64,
    /// How many links there are.
    pub edge_count: u64,
    /// How many distinct texts there are.
    pub text_count: u32,
    /// How many bytes the store takes.
    pub store_bytes: u64,
    /// What is not as it should be, yet within the limits.
    pub remarks: Vec<String>,
}
