//! Bytes from and for disk: little-endian views, digests, alignment.
//!
//! The formats are little-endian and their readers hand out slices of the mapped file as they
//! are, so a big-endian machine is refused when the crate is compiled.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

#[cfg(target_endian = "big")]
compile_error!(
    "headwater maps little-endian files; a big-endian machine cannot read them in place"
);

/// Every section of a store's files, and every array in a batch, starts at a multiple of this.
pub(crate) const ALIGNMENT: usize = 64;

/// Room for `count` things, or an error where an allocation would end the process.
pub(crate) fn reserve<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| no_memory(count.saturating_mul(size_of::<T>())))?;
    Ok(room)
}

/// Appends `more`, or says that there is no memory for it; then nothing was appended.
pub(crate) fn append<T: Copy>(values: &mut Vec<T>, more: &[T]) -> Result<()> {
    values.try_reserve(more.len()).map_err(|_| no_memory(size_of_val(more)))?;
    values.extend_from_slice(more);
    Ok(())
}

/// `count` times `value`, or an error where an allocation would end the process.
pub(crate) fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>> {
    let mut values = reserve(count)?;
    values.resize(count, value);
    Ok(values)
}

/// Says that there are not so many bytes.
pub(crate) fn no_memory(bytes: usize) -> Error {
    Error::limit(format!(
        "there is no memory for {bytes} bytes more; take fewer columns or threads, smaller \
         chunks, or a greater machine"
    ))
}

/// A BLAKE3 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Reads 64 hexadecimal digits.
    ///
    /// # Errors
    /// `Corrupt` when `text` is anything else.
    pub fn parse(text: &str) -> Result<Self> {
        blake3::Hash::from_hex(text).map(|hash| Self(*hash.as_bytes())).map_err(|_| {
            Error::corrupt(format!("expected a digest of 64 hexadecimal digits, found {text:?}"))
        })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

/// The little-endian `u32` at `offset` of `bytes`.
#[must_use]
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// The little-endian `u64` at `offset` of `bytes`.
#[must_use]
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// The identity of something that has a name or a key: the first 8 bytes of its BLAKE3 digest.
#[must_use]
pub fn identity_of(bytes: &[u8]) -> u64 {
    u64_at(blake3::hash(bytes).as_bytes(), 0).unwrap_or_default()
}
