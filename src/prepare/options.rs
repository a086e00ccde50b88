//! The options of a preparation, and its report.

use std::path::Path;

use serde::Serialize;

use super::build::Part;
use super::embed::Embedder;
use super::source::Batches;
use crate::bytes::Digest;
#[cfg(feature = "cli")]
use crate::error::Error;
use crate::error::Result;
use crate::progress::Progress;
use crate::store::TextEncoding;

/// Runs the SQL of tasks; the Python package implements it with DuckDB.
pub trait SqlEngine: Sync {
    /// Returns the rows of `query` over the source's tables, with `columns` in that order. The
    /// engine may spill to the new folder `scratch` until the preparation ends.
    ///
    /// # Errors
    /// The errors of the engine.
    fn query(&self, query: &str, columns: &[String], scratch: &Path) -> Result<Batches>;
}

/// The options of a preparation. Only `embedder` and `text_vectors` change the bytes of the store.
pub struct Options<'a> {
    /// Embeds names, categories and texts.
    pub embedder: &'a dyn Embedder,
    /// How to store the vectors of the texts; none leaves the texts without vectors.
    pub text_vectors: Option<TextEncoding>,
    /// The number of threads (default: all cores).
    pub threads: Option<usize>,
    /// The bytes of memory to aim at (default: half of what this process can have). Half of them hold keys,
    /// links and the like; what they have no room for goes to files beside the store, until it is complete.
    pub memory: Option<u64>,
    /// Runs the SQL of tasks, if the schema has any.
    pub sql: Option<&'a dyn SqlEngine>,
    /// Receives the progress.
    pub progress: &'a dyn Progress,
}

/// The options of reading a part. They change nothing that a merge makes of it.
pub struct PartOptions<'a> {
    /// The number of threads (default: all cores).
    pub threads: Option<usize>,
    /// Receives the progress.
    pub progress: &'a dyn Progress,
}

/// The report of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartReport {
    /// The part.
    pub part: Part,
    /// The number of rows that it has.
    pub row_count: u64,
    /// The number of blocks of rows.
    pub block_count: u64,
    /// The size of its file in bytes.
    pub part_bytes: u64,
}

/// Which parts to merge, and where to.
#[derive(Clone, Copy, Debug)]
pub struct Merge<'a> {
    /// The folder of the parts.
    pub parts: &'a Path,
    /// The folder to write the store to.
    pub out: &'a Path,
    /// Whether to replace the store there.
    pub replace: bool,
}

/// The report of a preparation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The root digest of the store.
    pub root: Digest,
    /// The number of rows of all tables.
    pub row_count: u64,
    /// The number of links of all relations.
    pub link_count: u64,
    /// The number of distinct texts.
    pub text_count: u32,
    /// The size of the store in bytes.
    pub store_bytes: u64,
    /// Flaws of the data that are within the limits.
    pub remarks: Vec<String>,
}

/// The options of a preparation of events. They change no byte of the store.
pub struct EventOptions<'a> {
    /// Whether to replace the store at the same path.
    pub replace: bool,
    /// The number of threads (default: all cores).
    pub threads: Option<usize>,
    /// Receives the progress.
    pub progress: &'a dyn Progress,
}

/// The report of a preparation of events.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventsReport {
    /// The root digest of the store.
    pub root: Digest,
    /// The number of events in the store.
    pub event_count: u64,
    /// The number of their entities.
    pub entity_count: u32,
    /// The number of rows: parts of the history of an entity.
    pub row_count: u64,
    /// The number of events that were dropped.
    pub dropped_count: u64,
    /// The earliest time, in microseconds since 1970.
    pub first_us: i64,
    /// The latest time.
    pub last_us: i64,
    /// The shortest token row: the most tokens of an event, with its time.
    pub room: usize,
    /// The size of the store in bytes.
    pub store_bytes: u64,
    /// Flaws of the data that are within the limits.
    pub remarks: Vec<String>,
}

/// Reads a size such as 512MB, 2GB or 1.5GiB.
///
/// # Errors
/// `InvalidArgument` for another text.
#[cfg(feature = "cli")]
pub fn memory_size(text: &str) -> Result<u64> {
    const UNITS: [(&str, u64); 6] = [
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ];
    let size = UNITS.iter().find_map(|(unit, bytes)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        let is_size = number.is_finite() && number > 0.0 && number < 1e9;
        is_size.then_some((number * *bytes as f64) as u64)
    });
    size.ok_or_else(|| {
        Error::invalid(format!(
            "expected a size with its unit, such as 512MB, 2GB or 1.5GiB, found {text:?}"
        ))
    })
}

#[cfg(all(test, feature = "cli"))]
mod tests {
    use super::memory_size;

    #[test]
    fn sizes_have_units() {
        let sizes = ["512MB", "2GB", "1.5 GiB", "1MiB", ".5TiB", "3TB"]
            .map(|text| memory_size(text).unwrap());
        let expected = [512_000_000, 2_000_000_000, 3 << 29, 1 << 20, 1 << 39, 3_000_000_000_000];
        assert_eq!(sizes, expected);
        for text in ["", "2", "GB", "-1GB", "0MB", "2gb", "2 kB", "infGB", "NaNGB", "1e30GB"] {
            let error = memory_size(text).unwrap_err().to_string();
            assert!(
                error.contains(&format!("such as 512MB, 2GB or 1.5GiB, found {text:?}")),
                "{error}"
            );
        }
    }
}
