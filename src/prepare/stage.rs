//! Copies a store to a node's own disk, once for all processes of the node.

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::partial::Partial;
use crate::bytes::Digest;
use crate::container::{METADATA_FILE, Root, open_folder, read_root};
use crate::error::{Context, Error, Result};
use crate::events::EventsMetadata;
use crate::process::pool;
use crate::progress::Progress;
use crate::store::{Kind, Metadata};

/// The report of [`stage`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StageReport {
    /// The identity of the data.
    pub root: Digest,
    /// The total length of the files.
    pub bytes: u64,
    /// The number of the files.
    pub files: usize,
    /// Whether this call made the copy; else it was there, or another process made it meanwhile.
    pub copied: bool,
}

/// Copies the store in the folder `store` to the folder `out`, such as one on the node's own disk, unless
/// its copy is there already.
///
/// Of processes that call it at one time the first copies, and the others wait for it. Every block of
/// the copy is checked against its digest. Writes to a folder with the name of `out` and `.partial`, and
/// renames it at the end: an interrupted call leaves no store, and the next one removes its files.
///
/// Of a copy that is there are checked its root, and the length, the header and the section table of each
/// file. As in every store, a block is checked when it is first read.
///
/// # Determinism
/// The files of the copy have the bytes of the store's.
///
/// # Errors
/// `InvalidArgument` when something else is at `out`, or another process that copied has failed;
/// `Corrupt` when the store, or the copy that is there, is damaged; `Io`.
///
/// # Example
/// ```
/// use headwater::{prepare::stage, progress::Silent, store::Store};
///
/// let (node, store) = (tempfile::tempdir()?, "checkpoints/store-v4-small".as_ref());
/// let local = node.path().join("shop.db");
/// assert!(stage(store, &local, &Silent)?.copied);
/// assert!(!stage(store, &local, &Silent)?.copied);
/// assert_eq!(Store::open(&local)?.root(), Store::open(store)?.root());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn stage(store: &Path, out: &Path, progress: &dyn Progress) -> Result<StageReport> {
    match Kind::of(store)? {
        Kind::Tables => stage_kind::<Metadata>(store, out, progress),
        Kind::Events => stage_kind::<EventsMetadata>(store, out, progress),
    }
}

fn stage_kind<M: Root>(store: &Path, out: &Path, progress: &dyn Progress) -> Result<StageReport> {
    let (metadata, text) = read_root::<M>(store)?;
    let files = metadata.files();
    let report = StageReport {
        root: metadata.root(),
        bytes: files.iter().fold(text.len() as u64, |sum, file| sum.saturating_add(file.length)),
        files: files.len() + 1,
        copied: true,
    };
    if fs::symlink_metadata(out).is_err()
        && let Some(partial) = Partial::create_in_turn(out, progress)?
    {
        let copied = copy::<M>(store, &text, report.bytes, &partial.path, progress)
            .and_then(|()| partial.commit(out));
        return copied.map(|()| report.clone()).map_err(|e| full_disk(e, out, report.bytes));
    }
    check_copy::<M>(store, report.root, out)?;
    Ok(StageReport { copied: false, ..report })
}

/// Copies the store with these metadata to the folder `to`.
fn copy<M: Root>(
    store: &Path,
    metadata: &[u8],
    bytes: u64,
    to: &Path,
    progress: &dyn Progress,
) -> Result<()> {
    let (opened, _, containers) = open_folder::<M>(store, None)?;
    progress.begin("copying", Some(bytes));
    progress.advance(0)?;
    let files = opened.files();
    pool(None)?.install(|| {
        files.iter().zip(&containers).try_for_each(|(file, container)| {
            let path = to.join(&file.path);
            let folder = path.parent().unwrap_or(to);
            fs::create_dir_all(folder).map_err(|e| Error::io(folder, "creating", e))?;
            container.copy_to(&path, &|written| progress.advance(written))
        })
    })?;
    let path = to.join(METADATA_FILE);
    fs::write(&path, metadata).map_err(|e| Error::io(&path, "writing", e))?;
    progress.advance(metadata.len() as u64)?;
    // The headers and section tables of the copy, and that the store was not replaced meanwhile.
    open_folder::<M>(to, None).map(drop)
}

/// Checks that the folder `out` has the store of this root.
fn check_copy<M: Root>(store: &Path, root: Digest, out: &Path) -> Result<()> {
    let refused = |found: &str| {
        Error::invalid(format!(
            "{}: expected nothing, or a copy of the store {} with root {root}, found {found}; move it \
             away, or choose another folder",
            out.display(),
            store.display()
        ))
    };
    match open_folder::<M>(out, None) {
        Ok((found, ..)) if found.root() == root => Ok(()),
        Ok((found, ..)) => Err(refused(&format!("a store with root {}", found.root()))),
        Err(e) if e.kind() == crate::ErrorKind::NotOurs => Err(refused("something else")),
        Err(e) if e.kind() == crate::ErrorKind::Version => {
            Err(refused("a store of another version"))
        }
        Err(e) => Err(e).context(|| {
            format!("the copy in {} cannot be used; remove it, and copy again", out.display())
        }),
    }
}

/// Says what to do about a full disk.
fn full_disk(error: Error, out: &Path, bytes: u64) -> Error {
    match error.is_of_full_disk() {
        true => error.followed_by(&format!(
            "; the copy needs {bytes} bytes: free them there, or choose another disk than that of {}",
            out.display()
        )),
        false => error,
    }
}
