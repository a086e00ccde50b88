//! Prepares a store in parts: processes share the reading of the source, and one makes the store.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::build::{Origin, Part, write_part};
use super::options::{Merge, Options, PartOptions, PartReport, Report};
use super::partial::refuse_within_store;
use super::replaced::Replaced;
use super::schema::Schema;
use super::source::Source;
use super::{build, refuse_existing, whole_schema};
use crate::durable::{Disk, Lease, Storage};
use crate::error::{Error, Result};
use crate::process::pool;
use crate::progress::Progress;

/// Reads one part of the tables that `schema` describes, and writes it to a file in the folder `parts`;
/// [`merge`] makes the store of all parts.
///
/// The parts of a preparation can be made at any time, in any order, by any processes that see the same files, or
/// copies with the same times. A part that is there already is replaced when the new one is complete.
///
/// # Determinism
/// The store of a merge has the bytes that [`prepare`](super::prepare) gives it, whatever the number of parts.
///
/// # Errors
/// Those of reading in [`prepare`](super::prepare); `InvalidArgument` for a source that is a database server, or
/// tables in memory, and when another process makes the same part.
///
/// # Example
/// ```
/// use headwater::prepare::{Merge, Options, Part, PartOptions, embed::HashingEmbedder};
/// use headwater::prepare::{merge, prepare_part, schema::Schema, source};
/// use headwater::progress::Silent;
/// use headwater::store::{Store, TextEncoding};
///
/// let folder = tempfile::tempdir()?;
/// let (data, parts) = (folder.path().join("users.csv"), folder.path().join("parts"));
/// std::fs::write(&data, "id,age\n1,30\n2,41\n")?;
/// let columns = "columns = { id = \"identifier\", age = \"numerical\" }";
/// let text = format!("database = \"shop\"\n[[table]]\nname = \"users\"\nkey = \"id\"\n{columns}");
/// let (schema, progress, threads) = (Schema::parse(&text)?, &Silent, None);
/// for number in 1..=2 {
///     let options = PartOptions { threads, progress };
///     prepare_part(&*source::open(&data)?, &schema, &parts, Part::new(number, 2)?, &options)?;
/// }
/// let (embedder, text_vectors) = (&HashingEmbedder::new(16), Some(TextEncoding::F16));
/// let options = Options { embedder, text_vectors, threads, memory: None, sql: None, progress };
/// let to = Merge { parts: &parts, out: &folder.path().join("shop.db"), replace: false };
/// let report = merge(&*source::open(&data)?, &schema, &to, &options)?;
/// assert_eq!((report.row_count, Store::open(to.out)?.tables().len()), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn prepare_part(
    source: &dyn Source,
    schema: &Schema,
    parts: &Path,
    part: Part,
    options: &PartOptions<'_>,
) -> Result<PartReport> {
    let whole = whole_schema(schema)?;
    let origin = Origin::new(source, &whole)?;
    refuse_within_store(&parts.join(part.file_name()))?;
    let is_new = fs::symlink_metadata(parts).is_err();
    let made = pool(options.threads)?
        .install(|| make_part(source, &whole, parts, (part, origin), options.progress));
    if made.is_err() && is_new {
        // Unless other parts are in it.
        let _ = fs::remove_dir(parts);
    }
    made
}

fn make_part(
    source: &dyn Source,
    schema: &Schema,
    parts: &Path,
    (part, origin): (Part, Origin),
    progress: &dyn Progress,
) -> Result<PartReport> {
    let name = part.file_name();
    let path = &parts.join(&name);
    fs::create_dir_all(parts).map_err(|e| Error::io(parts, "creating", e))?;
    let Some(_lease) = Lease::of(&parts.join(format!(".{name}.lock")))? else {
        return Err(Error::invalid(format!(
            "another process is making {}; wait until it ends, or make another part",
            path.display()
        )));
    };
    // A hidden name: a merge does not take it for a part.
    let temporary = format!(".{name}.partial");
    let unfinished = parts.join(&temporary);
    match fs::remove_file(&unfinished) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            return Err(Error::io(&unfinished, "removing", e));
        }
        _ => {}
    }
    let written = write_part(source, schema, (part, origin), (parts, &temporary), progress);
    let written = written.and_then(|report| {
        let fail = |action| move |e| Error::io(path, action, e);
        Disk.sync_file(&unfinished).map_err(fail("writing"))?;
        Disk.rename(&unfinished, path).map_err(fail("renaming a file to"))?;
        Disk.sync_folder(parts).map_err(fail("writing the name of"))?;
        Ok(report)
    });
    if written.is_err() {
        // The first error is returned; the next process that makes the part removes a leftover.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// Prepares a store of the parts that [`prepare_part`] wrote.
///
/// Texts are embedded here, and the rows of tasks are read from `source`, which must have the same files.
///
/// # Determinism
/// As [`prepare`](super::prepare): the store has the same bytes.
///
/// # Errors
/// Those of [`prepare`](super::prepare) and, with `replace`, of [`replace`](super::replace); `Data` when parts
/// are missing, doubled, or of other files, of another schema or another number of parts, `Version` when another
/// version of headwater made them, `Corrupt` when one is damaged.
pub fn merge(
    source: &dyn Source,
    schema: &Schema,
    to: &Merge<'_>,
    options: &Options<'_>,
) -> Result<Report> {
    let replaced = if to.replace { Replaced::find(to.out)? } else { refuse_existing(to.out)? };
    build(source, Some(to.parts), schema, (to.out, replaced), options)
}
