//! The `.bin` files of a store: named sections, a digest for every block.
#![doc = include_str!("FORMAT.md")]

mod checks;
#[cfg(feature = "prepare")]
mod copy;
mod file;
mod folder;
#[cfg(not(target_os = "linux"))]
mod no_shared_bits;
mod read_ahead;
#[cfg(target_os = "linux")]
mod shared_bits;
mod strings;
#[cfg(all(test, feature = "prepare"))]
mod tests;
#[cfg(feature = "prepare")]
mod writer;

use serde::{Deserialize, Serialize};

use crate::bytes::Digest;

#[cfg(feature = "prepare")]
pub(crate) use file::BlockSize;
#[cfg(feature = "prepare")]
pub(crate) use file::COPY_AGAIN;
pub(crate) use file::{Container, Section};
pub use folder::{Kind, METADATA_FILE};
pub(crate) use folder::{
    Root, check_no_other_files, file_of, open_folder, read_ahead_if_larger, warm,
};
pub(crate) use strings::Strings;
#[cfg(feature = "prepare")]
pub(crate) use writer::{ContainerWriter, EncodedStrings, StringsWriter, read_next};
#[cfg(feature = "prepare")]
pub(crate) use {file::is_container, folder::read_root};

/// A file of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileMetadata {
    /// Its path in the store's folder, with `/` between parts.
    pub path: String,
    /// Its length in bytes.
    pub length: u64,
    /// The digest in its header, which covers the rest of it.
    pub digest: Digest,
}
