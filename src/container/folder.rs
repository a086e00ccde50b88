//! The folder of a store: `metadata.json` with the root digest, and the files that it lists.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::FileMetadata;
use super::file::{COPY_AGAIN, Container, check_is_file};
use super::read_ahead::ReadAhead;
use crate::bytes::Digest;
use crate::environment::in_default_environment;
use crate::error::{Context, Error, Result};
use crate::files::{found_at, read_file};

/// The file that describes all others.
pub const METADATA_FILE: &str = "metadata.json";

/// The content of a `metadata.json`: canonical JSON that holds its own digest, the root.
pub(crate) trait Root: Clone + Serialize + DeserializeOwned {
    /// The kind of store that the file describes.
    const KIND: Kind;
    /// The version of the format that this build reads and writes.
    const FORMAT_VERSION: u32;

    /// Returns the root.
    #[cfg(feature = "prepare")]
    fn root(&self) -> Digest;

    /// Returns the place of the root.
    fn root_mut(&mut self) -> &mut Digest;

    /// Returns the files of the store.
    fn files(&self) -> &[FileMetadata];

    /// Computes the root, the digest of the text with zeros in its place, and returns the text.
    fn encode(&mut self) -> Result<String> {
        *self.root_mut() = Digest([0; 32]);
        *self.root_mut() = Digest::of(canonical(self)?.as_bytes());
        canonical(self)
    }

    /// Reads the text and checks that no bit of it changed.
    ///
    /// # Errors
    /// `NotOurs`, `Version` or `Corrupt`.
    fn decode(text: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            format_version: u32,
            #[serde(default)]
            kind: Kind,
        }
        let broken = |e: &dyn std::fmt::Display| {
            Error::corrupt(format!("not the metadata of a headwater store: {e}{COPY_AGAIN}"))
        };
        let head: Head = serde_json::from_slice(text).map_err(|e| broken(&e))?;
        head.kind.check(Self::KIND)?;
        if head.format_version != Self::FORMAT_VERSION {
            return Err(Error::version(format!(
                "expected store format version {}, found version {}; prepare the store with this \
                 version of headwater, or read it with the version that wrote it",
                Self::FORMAT_VERSION,
                head.format_version
            )));
        }
        let metadata: Self = serde_json::from_slice(text).map_err(|e| broken(&e))?;
        if metadata.clone().encode()?.as_bytes() != text {
            return Err(Error::corrupt(
                "the metadata do not match their digest: the file was edited or damaged; copy the \
                 store again from an intact copy, or prepare it again",
            ));
        }
        let inside = |part: &str| !matches!(part, "" | "." | "..");
        for FileMetadata { path, .. } in metadata.files() {
            if path.contains(['\\', '\0']) || !path.split('/').all(inside) {
                return Err(Error::corrupt(format!(
                    "the metadata are wrong: the file {path:?} lies outside the store; prepare \
                     the store again"
                )));
            }
        }
        Ok(metadata)
    }
}

fn canonical(metadata: &impl Serialize) -> Result<String> {
    let mut text = serde_json::to_string_pretty(metadata)
        .map_err(|e| Error::invalid(format!("writing the metadata as JSON: {e}")))?;
    text.push('\n');
    Ok(text)
}

/// The kind of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Tables with references: [`Store`](crate::store::Store). Its metadata name no kind.
    #[default]
    Tables,
    /// Events in the order of time: [`EventStore`](crate::events::EventStore).
    Events,
}

impl Kind {
    fn check(self, expected: Self) -> Result<()> {
        if self == expected {
            return Ok(());
        }
        let name = |kind| match kind {
            Self::Tables => "a store of tables",
            Self::Events => "a store of events",
        };
        let remedy = match self {
            Self::Tables => "open it with headwater.Sampler or headwater.Store",
            Self::Events => "open it with headwater.Events",
        };
        let (expected, found) = (name(expected), name(self));
        Err(Error::not_ours(format!("expected {expected}, found {found}; {remedy}")))
    }

    /// Returns the kind of the store in the folder `path`, by its metadata, which are not checked.
    ///
    /// # Errors
    /// `Io` or `NotOurs` when the folder is no store.
    pub fn of(path: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(default)]
            kind: Kind,
        }
        let text = read_metadata(path)?;
        // Damaged metadata are reported by the reader of the usual kind.
        Ok(serde_json::from_slice(&text).map_or(Self::Tables, |head: Head| head.kind))
    }

    /// Whether a store of events lies in the folder `path`. A folder that is no store is none of events:
    /// its reader reports it.
    ///
    /// # Errors
    /// `Io` when the folder cannot be read.
    pub fn is_events(path: &Path) -> Result<bool> {
        match Self::of(path) {
            Ok(kind) => Ok(kind == Self::Events),
            Err(error) if error.os_error().is_none_or(|e| e.kind() == ErrorKind::NotFound) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads the bytes of the metadata of the store in the folder `path`.
///
/// # Errors
/// `Io` when they cannot be read, `NotOurs` when the folder has none.
pub(crate) fn read_metadata(path: &Path) -> Result<Vec<u8>> {
    let found = std::fs::metadata(path).map_err(|e| {
        Error::io(path, "opening the store", e)
            .followed_if_not_found("; name a store, or make one with `headwater prepare`")
    })?;
    if !found.is_dir() {
        return Err(Error::not_ours(format!(
            "{}: not a store: expected a folder made by `headwater prepare`, found a file",
            path.display()
        )));
    }
    let file = path.join(METADATA_FILE);
    if found_at(&file)?.is_none() {
        return Err(Error::not_ours(format!(
            "{}: not a store: expected a {METADATA_FILE} in the folder, found none; make a store \
             with `headwater prepare`",
            path.display()
        )));
    }
    check_is_file(&file)?;
    read_file(&file)
}

/// Reads the metadata of the store in the folder `path` and checks them: returns them and their text.
///
/// # Errors
/// As those of [`read_metadata`] and [`Root::decode`].
pub(crate) fn read_root<M: Root>(path: &Path) -> Result<(M, Vec<u8>)> {
    let text = read_metadata(path)?;
    let place = || format!("{}", path.join(METADATA_FILE).display());
    // Numbers are read as they were written, whatever the caller's rounding is.
    let metadata = in_default_environment(|| M::decode(&text)).context(place)?;
    Ok((metadata, text))
}

/// The part of memory that the files may fill. The rest is for the process itself: reading ahead what is in
/// memory after all costs little, and not doing so where it is not costs seconds a batch.
const QUARTERS_OF_MEMORY: u64 = 3;

/// Opens the store in the folder `path`: returns its metadata, their length, and its files in the order of
/// the metadata, each with a header that matches them.
///
/// Files that do not fit into three quarters of `memory`, in bytes, are read block by block, ahead of their use.
/// Where it is not known how much memory there is, the system reads around what is read.
pub(crate) fn open_folder<M: Root>(
    path: &Path,
    memory: Option<u64>,
) -> Result<(M, u64, Vec<Container>)> {
    let (metadata, text) = read_root::<M>(path)?;
    let open = |file| open_file(path, file);
    let containers = metadata.files().iter().map(open).collect::<Result<Vec<_>>>()?;
    let bytes = containers.iter().map(Container::file_bytes).sum();
    read_ahead_if_larger(memory, bytes, &containers);
    Ok((metadata, text.len() as u64, containers))
}

/// Reads files ahead from now on if `bytes`, their size, is more than `memory` holds, where that is known.
pub(crate) fn read_ahead_if_larger<'a>(
    memory: Option<u64>,
    bytes: u64,
    files: impl IntoIterator<Item = &'a Container>,
) {
    if memory.is_some_and(|memory| bytes > memory / 4 * QUARTERS_OF_MEMORY) {
        let read_ahead = Arc::new(ReadAhead::new());
        files.into_iter().for_each(|file| file.start_reading_ahead(Arc::clone(&read_ahead)));
    }
}

fn open_file(folder: &Path, file: &FileMetadata) -> Result<Container> {
    let path = folder.join(&file.path);
    let is_missing = |e: &Error| e.os_error().is_some_and(|e| e.kind() == ErrorKind::NotFound);
    let container = Container::open(&path).map_err(|e| match is_missing(&e) {
        true => Error::corrupt(format!(
            "{} is missing: it is part of the store; copy the whole folder again",
            path.display()
        )),
        false => e,
    })?;
    if container.file_bytes() != file.length || container.digest() != file.digest {
        return Err(Error::corrupt(format!(
            "{}: expected {} bytes with digest {} by the metadata, found {} bytes with digest {}; \
             the file belongs to another store: copy the whole folder again",
            path.display(),
            file.length,
            file.digest,
            container.file_bytes(),
            container.digest()
        )));
    }
    Ok(container)
}

/// Returns the file `name` among those that [`open_folder`] opened.
pub(crate) fn file_of<'a>(
    path: &Path,
    files: &[FileMetadata],
    containers: &'a [Container],
    name: &str,
) -> Result<&'a Container> {
    let found = files.iter().position(|file| file.path == name);
    found.and_then(|place| containers.get(place)).ok_or_else(|| {
        Error::corrupt(format!(
            "{}: expected {name} among the files of the metadata, found none",
            path.display()
        ))
    })
}

/// Reads the files of the store in the folder `path` into memory, one after the other, if `memory` holds
/// them: so many bytes, where that is known. Returns the number of bytes that were read.
///
/// # Errors
/// `LimitExceeded` when memory does not hold them; `Io` when a file cannot be read; that of `progress`,
/// which is called with the number of bytes read since its last call.
pub(crate) fn warm(
    path: &Path,
    containers: &[Container],
    memory: Option<u64>,
    progress: &dyn Fn(u64) -> Result<()>,
) -> Result<u64> {
    let bytes = containers.iter().map(Container::file_bytes).sum::<u64>();
    if let Some(memory) = memory.filter(|&memory| bytes > memory) {
        return Err(Error::limit(format!(
            "{}: expected a store of at most {memory} bytes, the memory that this process can have, found \
             {bytes} bytes; use the store without warming it, or give the process more memory",
            path.display()
        )));
    }
    containers.iter().try_for_each(|container| container.warm(progress))?;
    Ok(bytes)
}

/// Checks that the folder of a store, and the folders in it, hold no other files than the metadata list.
pub(crate) fn check_no_other_files(
    path: &Path,
    folders: &[&str],
    files: &[FileMetadata],
) -> Result<()> {
    for folder in [""].iter().chain(folders) {
        let listed = path.join(folder);
        let entries = match std::fs::read_dir(&listed) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(Error::io(&listed, "listing", e)),
        };
        for entry in entries {
            let entry = entry.map_err(|e| Error::io(&listed, "listing", e))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let known = name == METADATA_FILE || folders.contains(&name.as_str());
            if !known && !files.iter().any(|file| file.path == name) {
                return Err(Error::corrupt(format!(
                    "{}: the file {name} does not belong to this store; remove it",
                    path.display()
                )));
            }
        }
    }
    Ok(())
}
