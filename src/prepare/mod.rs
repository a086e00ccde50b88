//! Prepares a store from a source: schema, readers, keys and links, tasks, text embedding.
//!
//! [`source`] reads tables, [`schema`] describes their columns, [`draft`] guesses a schema,
//! [`embed`] turns texts into vectors, and [`prepare`] builds the store (`build/`): alone, or of parts that
//! other processes have read ([`prepare_part`], [`merge`]). [`prepare_events`] builds that of a log of
//! events, and `export_events` (feature `arrayrecord`) writes its events as ArrayRecord files. [`stage`]
//! copies a store to the disk of a node.

#[cfg(feature = "arrayrecord")]
mod arrayrecord;
mod build;
pub mod demo;
pub mod draft;
pub mod embed;
#[cfg(feature = "arrayrecord")]
mod export;
mod key_text;
pub(crate) mod names;
mod options;
mod partial;
mod parts;
mod replaced;
pub mod schema;
pub mod source;
mod stage;
mod values;
#[cfg(not(feature = "arrayrecord"))]
mod without_arrayrecord;

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::process::pool;
use build::{Origin, Parts, Preparation, build_events};
use partial::{Partial, exists, nothing_written};
use replaced::Replaced;
use schema::Schema;
use source::Source;

pub use build::Part;
#[cfg(feature = "arrayrecord")]
pub use export::{ExportReport, ExportedFile, export_events};
#[doc(hidden)]
pub use key_text::{key_part, key_text_of};
#[cfg(feature = "cli")]
#[doc(hidden)]
pub use options::memory_size;
pub use options::{
    EventOptions, EventsReport, Merge, Options, PartOptions, PartReport, Report, SqlEngine,
};
pub use parts::{merge, prepare_part};
pub use stage::{StageReport, stage};
#[cfg(all(feature = "cli", not(feature = "arrayrecord")))]
pub(crate) use without_arrayrecord::without_arrayrecord;

/// Prepares a store of the tables and tasks that `schema` describes in the new folder `out`.
///
/// Writes to a folder with the name of `out` and `.partial`, and renames it at the end: an
/// interrupted preparation leaves no store, and the next one removes its files.
///
/// # Determinism
/// The same values in the same order, the same schema and the same embedder give the same bytes, on
/// any number of threads, in any batches, on any machine and from any format. Keys, categories and
/// texts are compared by their text.
///
/// # Errors
/// `Schema`, `Data` or `LimitExceeded` with the first table, column, row or key at fault, and the
/// number of such rows; `InvalidArgument` if `out` exists or another process prepares it.
///
/// # Example
/// ```
/// use headwater::prepare::{Options, embed::HashingEmbedder, prepare, schema::Schema, source};
/// use headwater::progress::Silent;
/// use headwater::store::{Store, TextEncoding};
///
/// let folder = tempfile::tempdir()?;
/// let (data, out) = (folder.path().join("users.csv"), folder.path().join("shop.db"));
/// std::fs::write(&data, "id,age\n1,30\n2,41\n")?;
/// let columns = "columns = { id = \"identifier\", age = \"numerical\" }";
/// let text = format!("database = \"shop\"\n[[table]]\nname = \"users\"\nkey = \"id\"\n{columns}");
/// let (embedder, progress) = (&HashingEmbedder::new(16), &Silent);
/// let (text_vectors, threads, memory) = (Some(TextEncoding::F16), None, None);
/// let options = Options { embedder, text_vectors, threads, memory, sql: None, progress };
/// let report = prepare(&*source::open(&data)?, &Schema::parse(&text)?, &out, &options)?;
/// assert_eq!((report.row_count, Store::open(&out)?.tables().len()), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn prepare(
    source: &dyn Source,
    schema: &Schema,
    out: &Path,
    options: &Options<'_>,
) -> Result<Report> {
    build(source, None, schema, (out, refuse_existing(out)?), options)
}

/// [`prepare`] for a folder `out` that may be a store already: replaces it when the new one is
/// complete.
///
/// At every moment the old store or the new one is at `out`, and complete. The old store then has the
/// name of `out` and `.partial`, and is removed.
///
/// # Errors
/// As [`prepare`]; `InvalidArgument` if `out` is anything but a store, or lies on a file system that
/// cannot exchange two names.
pub fn replace(
    source: &dyn Source,
    schema: &Schema,
    out: &Path,
    options: &Options<'_>,
) -> Result<Report> {
    build(source, None, schema, (out, Replaced::find(out)?), options)
}

/// Prepares an event store of the log that the `[events]` of `schema` describe, in the folder `out`.
///
/// # Determinism
/// The same events give the same bytes, in any order, from any files, with any number of threads.
///
/// # Errors
/// As [`prepare`]; `Data` also when more events are dropped than the schema allows.
///
/// # Example
/// ```
/// use headwater::events::EventStore;
/// use headwater::prepare::{EventOptions, prepare_events, schema::Schema, source};
/// use headwater::progress::Silent;
///
/// let folder = tempfile::tempdir()?;
/// let (data, out) = (folder.path().join("pings.csv"), folder.path().join("pings.db"));
/// std::fs::write(&data, "at,from,to,rtt\n1751371200,192.0.2.1,198.51.100.7,15.5\n")?;
/// let schema = Schema::parse(
///     r#"
///     database = "pings"
///     [events]
///     source = "pings"
///     codec = "latency-v1"
///     entity = "from"
///     time = { column = "at", unit = "s" }
///     columns = { dst = "to", rtt = "rtt" }
///     split = { train = 1.0, val = 0.0, test = 0.0 }
///     "#,
/// )?;
/// let options = EventOptions { replace: false, threads: None, progress: &Silent };
/// let report = prepare_events(&*source::open(&data)?, &schema, &out, &options)?;
/// assert_eq!(report.event_count, EventStore::open(&out)?.metadata().event_count());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn prepare_events(
    source: &dyn Source,
    schema: &Schema,
    out: &Path,
    options: &EventOptions<'_>,
) -> Result<EventsReport> {
    schema.check()?;
    let Some(events) = &schema.events else {
        return Err(Error::schema("expected [events] in the schema, found tables; use `prepare`"));
    };
    let replaced = if options.replace { Replaced::find(out)? } else { refuse_existing(out)? };
    let pool = pool(options.threads)?;
    let partial = Partial::create(out, replaced, &[])?;
    let build = || build_events(source, schema, events, &partial.path, options.progress);
    let report = pool.install(build).map_err(|error| nothing_written(error, out))?;
    partial.commit(out)?;
    Ok(report)
}

/// Checks a schema of tables; returns it with the tables that its tasks add.
fn whole_schema(schema: &Schema) -> Result<Schema> {
    schema.check()?;
    if schema.events.is_some() {
        return Err(Error::schema(
            "expected tables in the schema, found [events]; use `prepare_events`",
        ));
    }
    Ok(schema.with_declared_tasks()?.with_label_tables())
}

fn refuse_existing(out: &Path) -> Result<Option<Replaced>> {
    if fs::symlink_metadata(out).is_ok() { Err(exists(out)) } else { Ok(None) }
}

fn build(
    source: &dyn Source,
    parts: Option<&Path>,
    schema: &Schema,
    (out, replaced): (&Path, Option<Replaced>),
    options: &Options<'_>,
) -> Result<Report> {
    let whole = &whole_schema(schema)?;
    let parts = match parts {
        Some(folder) => {
            let expected = Origin::new(source, whole)?;
            Some(Parts::open(folder, &expected, whole)?)
        }
        None => None,
    };
    let pool = pool(options.threads)?;
    let partial = Partial::create(out, replaced, &["tables", "tasks"])?;
    let build = || Preparation::new(source, parts.as_ref(), whole, options, &partial.path).run();
    let report = pool.install(build).map_err(|error| nothing_written(error, out))?;
    partial.commit(out)?;
    Ok(report)
}
