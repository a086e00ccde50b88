//! Sources -> store: schema, readers, keys and links, tasks, text embedding.
//!
//! [`source`] reads tables, [`schema`] says what their columns mean, [`draft`] guesses a schema,
//! [`embed`] turns texts into vectors, and [`prepare`] builds the store (`build/`).

mod build;
pub mod demo;
pub mod draft;
pub mod embed;
#[cfg(feature = "python")]
mod key_text;
pub(crate) mod names;
mod options;
mod partial;
pub mod schema;
pub mod source;
mod values;

use std::fs;
use std::path::Path;

use crate::error::Result;
use crate::process::pool;
use build::Preparation;
use partial::{Partial, taken};
use schema::Schema;
use source::Source;

#[cfg(feature = "python")]
pub(crate) use key_text::key_text_of;
pub use options::{Options, Report, SqlEngine};

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
    let pool = pool(options.threads)?;
    let partial = Partial::create(out)?;
    let report = pool.install(|| Preparation::new(source, schema, options, &partial.path).run())?;
    partial.commit(out)?;
    Ok(report)
}
