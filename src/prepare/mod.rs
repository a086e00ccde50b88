//! Sources -> store: schema, readers, keys and links, tasks, text embedding.
//!
//! A preparation goes over the data twice. The first pass (`ingest`) reads each table once from its
//! source and stages its cells beside the store; the second (`rows`, `links`) turns them into
//! records and lists of children, once all statistics, categories and keys are known. Memory holds
//! keys, links and the digests of texts, never the cells.

mod columns;
mod csv;
pub mod demo;
pub mod draft;
pub mod embed;
mod ingest;
mod keys;
mod layout;
mod leaks;
mod links;
pub(crate) mod names;
mod parquet;
mod pipeline;
mod profile;
mod references;
mod rows;
pub mod schema;
mod second_pass;
pub mod source;
mod sqlite;
mod tasks;
mod texts;
#[cfg(feature = "python")]
pub(crate) mod typed;
mod values;
mod words;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::bytes::Digest;
use crate::durable::{Disk, commit_folder, try_lock};
use crate::error::{Error, Result};
use crate::store::METADATA_FILE;
use embed::Embedder;
use pipeline::Preparation;
use schema::Schema;
use source::{Batches, Source};

/// What a preparation tells of itself while it works, and how it is stopped.
pub trait Progress: Sync {
    /// A new stage begins, of `total` units of work where that is known.
    fn begin(&self, stage: &str, total: Option<u64>);

    /// `count` more units are done.
    ///
    /// # Errors
    /// `Interrupted` when the user wants the work to stop; nothing is left behind then.
    fn advance(&self, count: u64) -> Result<()>;
}

/// Says nothing and never stops.
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _stage: &str, _total: Option<u64>) {}

    fn advance(&self, _count: u64) -> Result<()> {
        Ok(())
    }
}

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

/// Prepares a store in the folder `out`, which must not be there yet, from what `schema` says of
/// `source`.
///
/// All work is done in `out` with `.partial` added, and renamed at the end: a preparation that was
/// cut off never leaves a store behind, and the next one clears up after it.
///
/// # Determinism
/// The same values in the same order, schema and embedder make the same bytes, whatever the number
/// of threads, the batches or the machine. Formats that carry the values alike make them too; keys,
/// categories and texts are what they are as text there.
///
/// # Errors
/// One that names the table, column, row or key at fault, and how many there are of the kind.
pub fn prepare(
    source: &dyn Source,
    schema: &Schema,
    out: &Path,
    options: &Options<'_>,
) -> Result<Report> {
    schema.check()?;
    if fs::symlink_metadata(out).is_ok() {
        return Err(taken(out));
    }
    let mut pool = rayon::ThreadPoolBuilder::new();
    if let Some(threads) = options.threads {
        pool = pool.num_threads(threads);
    }
    let pool = pool.build().map_err(|e| Error::invalid(format!("starting threads: {e}")))?;
    let partial = Partial::create(out)?;
    let report = pool.install(|| Preparation::new(source, schema, options, &partial.path).run())?;
    partial.commit(out)?;
    Ok(report)
}

/// The folder in which a store grows; removed again unless it is committed.
struct Partial {
    path: PathBuf,
    /// The folder itself, locked for as long as somebody works there: a lock beside it would have
    /// to be let go before the folder gets its name.
    _locked: File,
}

impl Partial {
    fn create(out: &Path) -> Result<Self> {
        let mut name = out.file_name().map(ToOwned::to_owned).ok_or_else(|| {
            Error::invalid(format!("{} does not name a folder to create", out.display()))
        })?;
        name.push(".partial");
        let path = out.with_file_name(name);
        let io = |action, path: &Path| {
            let path = path.to_path_buf();
            move |e| Error::io(&path, action, e)
        };
        if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_dir()) {
            return Err(Error::invalid(format!(
                "{} is in the way: the store grows in a folder of that name; move it away",
                path.display()
            )));
        }
        fs::create_dir_all(&path).map_err(io("creating", &path))?;
        let locked = File::open(&path).map_err(io("opening", &path))?;
        if !try_lock(&locked).map_err(io("locking", &path))? {
            return Err(at_work(&path));
        }
        // Whoever worked here until now may have finished, and the folder have got its name.
        if fs::symlink_metadata(out).is_ok() {
            return Err(taken(out));
        }
        if !is_still_at(&locked, &path).map_err(io("examining", &path))? {
            return Err(at_work(&path));
        }
        let listed = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let left = listed.map_err(io("listing", &path))?;
        // What an earlier preparation left may go, what somebody else put there may not.
        if let Some(strange) = left.iter().find(|entry| !is_ours(entry)) {
            return Err(Error::invalid(format!(
                "{} holds {:?}, which no preparation left there; move it away",
                path.display(),
                strange.file_name().to_string_lossy()
            )));
        }
        let partial = Self { path, _locked: locked };
        for entry in left {
            let entry = entry.path();
            let is_folder = entry.is_dir() && !entry.is_symlink();
            let removed =
                if is_folder { fs::remove_dir_all(&entry) } else { fs::remove_file(&entry) };
            removed.map_err(io("removing", &entry))?;
        }
        for folder in ["tables", "tasks", "staging"] {
            let folder = partial.path.join(folder);
            fs::create_dir(&folder).map_err(io("creating", &folder))?;
        }
        Ok(partial)
    }

    /// Makes the store durable and gives it its name.
    fn commit(self, out: &Path) -> Result<()> {
        let staging = self.path.join("staging");
        fs::remove_dir_all(&staging).map_err(|e| Error::io(&staging, "removing", e))?;
        commit_folder(&Disk, &self.path, out)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // The store has gone or will never be; that this fails is no error worth telling.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Whether a preparation makes something of that name.
fn is_ours(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    let folders = ["tables", "tasks", "staging"];
    folders.contains(&&*name) || *name == *METADATA_FILE || name.ends_with(".bin")
}

/// Whether what was opened at `path` is what lies there now, and not a folder that was moved away
/// between opening and locking.
fn is_still_at(opened: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(identity(found) == identity(opened.metadata()?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

fn at_work(path: &Path) -> Error {
    Error::invalid(format!(
        "another preparation is at work in {}; wait for it, or choose another place",
        path.display()
    ))
}

fn taken(out: &Path) -> Error {
    Error::invalid(format!(
        "{} is there already; remove it, or choose another place",
        out.display()
    ))
}
