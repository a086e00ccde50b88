//! Bytes on disk: little-endian numbers, digests, alignment, envelopes.
//!
//! The formats are little-endian, and their readers return slices of the mapped file in place. So
//! the crate does not compile for a big-endian machine.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

#[cfg(target_endian = "big")]
compile_error!(
    "headwater maps little-endian files; a big-endian machine cannot read them in place"
);

/// Every section of a store's files, and every array in a batch, starts at a multiple of this.
pub(crate) const ALIGNMENT: usize = 64;

/// Returns an empty vector with room for `count` values, or an error when the allocation fails.
///
/// # Errors
/// `LimitExceeded` when memory runs out.
pub fn reserve<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| no_memory(count.saturating_mul(size_of::<T>())))?;
    Ok(room)
}

/// Makes room for `count` more values, and for some that may follow; an error when the allocation fails.
pub(crate) fn make_room<T>(values: &mut Vec<T>, count: usize) -> Result<()> {
    values.try_reserve(count).map_err(|_| no_memory(count.saturating_mul(size_of::<T>())))
}

/// Appends `more`; on an error, nothing was appended.
pub(crate) fn append<T: Copy>(values: &mut Vec<T>, more: &[T]) -> Result<()> {
    make_room(values, more.len())?;
    values.extend_from_slice(more);
    Ok(())
}

/// Returns a copy of `values`, or an error when the allocation fails.
///
/// # Errors
/// `LimitExceeded` when memory runs out.
pub fn copied<T: Copy>(values: &[T]) -> Result<Vec<T>> {
    let mut copy = Vec::new();
    append(&mut copy, values)?;
    Ok(copy)
}

/// Returns `count` times `value`, or an error when the allocation fails.
///
/// # Errors
/// `LimitExceeded` when memory runs out.
pub fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>> {
    let mut values = reserve(count)?;
    values.resize(count, value);
    Ok(values)
}

/// Returns the error of an allocation of `bytes` bytes that failed.
pub(crate) fn no_memory(bytes: usize) -> Error {
    Error::limit(format!(
        "cannot allocate {bytes} more bytes; use fewer columns or threads, smaller chunks, or a \
         machine with more memory"
    ))
}

/// A BLAKE3 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Returns the digest of `bytes`.
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

/// Returns the little-endian `u32` at `offset` of `bytes`.
#[must_use]
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// Returns the little-endian `u64` at `offset` of `bytes`.
#[must_use]
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// The frame of a payload that is stored or sent: a header before it, and a digest of all bytes
/// after it.
///
/// ```text
///  8  magic
///  4  format version
///  4  kind, defined by the owner of the envelope; 0 if it has one kind
///  8  n, the length of the payload
///  n  payload
/// 32  BLAKE3 of all bytes before
/// ```
pub(crate) struct Envelope {
    /// The name of the bytes in messages.
    pub(crate) name: &'static str,
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    /// The longest payload that is read.
    pub(crate) payload_max: usize,
    /// The remedy for damaged bytes, for messages.
    pub(crate) remedy: &'static str,
}

impl Envelope {
    const HEADER_BYTES: usize = 24;
    const DIGEST_BYTES: usize = 32;
    /// The number of bytes around a payload.
    pub(crate) const BYTES: usize = Self::HEADER_BYTES + Self::DIGEST_BYTES;

    /// Returns the greatest length that [`open`](Self::open) accepts.
    pub(crate) fn length_max(&self) -> usize {
        Self::BYTES.saturating_add(self.payload_max)
    }

    /// Begins the bytes of a payload of about `length` bytes, which the caller appends.
    ///
    /// # Errors
    /// `LimitExceeded` when the allocation fails.
    pub(crate) fn begin(&self, kind: u32, length: usize) -> Result<Vec<u8>> {
        let mut bytes = reserve(Self::BYTES.saturating_add(length))?;
        bytes.extend_from_slice(&self.magic);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        Ok(bytes)
    }

    /// Ends the bytes of [`begin`](Self::begin): sets the payload's length, appends the digest.
    pub(crate) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
        let length = (bytes.len() - Self::HEADER_BYTES) as u64;
        bytes[16..24].copy_from_slice(&length.to_le_bytes());
        let digest = Digest::of(&bytes);
        bytes.extend_from_slice(&digest.0);
        bytes
    }

    /// Checks everything around the payload; returns the kind and the payload.
    ///
    /// The digest is checked before the version, because the version may be damaged, and every version
    /// ends with its digest.
    ///
    /// # Errors
    /// `NotOurs`, `LimitExceeded`, `Corrupt` or `Version`, in the order of the checks.
    pub(crate) fn open<'b>(&self, bytes: &'b [u8]) -> Result<(u32, &'b [u8])> {
        let (body, recorded) = self.split(bytes)?;
        if Digest::of(body).0 != *recorded {
            return Err(self.damaged("its bytes do not match its digest".to_owned()));
        }
        self.payload(body)
    }

    /// As [`open`](Self::open), for bytes that another digest has shown to be undamaged.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_undamaged<'b>(&self, bytes: &'b [u8]) -> Result<(u32, &'b [u8])> {
        self.payload(self.split(bytes)?.0)
    }

    /// Splits the bytes into those that have a digest, and the digest.
    fn split<'b>(&self, bytes: &'b [u8]) -> Result<(&'b [u8], &'b [u8])> {
        let magic = &bytes[..bytes.len().min(self.magic.len())];
        if !self.magic.starts_with(magic) {
            return Err(Error::not_ours(format!(
                "expected a headwater {}, which begins with {}, found {}; this is another kind of file",
                self.name,
                self.magic.escape_ascii(),
                magic.escape_ascii()
            )));
        }
        if bytes.len() < Self::BYTES {
            let (found, least) = (bytes.len(), Self::BYTES);
            return Err(self.damaged(format!("expected at least {least} bytes, found {found}")));
        }
        let (body, recorded) = bytes.split_at(bytes.len() - Self::DIGEST_BYTES);
        if body.len() - Self::HEADER_BYTES > self.payload_max {
            return Err(Error::limit(format!(
                "expected a {} of at most {} bytes, found more; no version of headwater writes one",
                self.name,
                self.length_max()
            )));
        }
        Ok((body, recorded))
    }

    /// Checks the version and the length in the header; returns the kind and the payload.
    fn payload<'b>(&self, body: &'b [u8]) -> Result<(u32, &'b [u8])> {
        let word = |at| u32_at(body, at).unwrap_or_default();
        let (version, kind) = (word(8), word(12));
        if version != self.version {
            return Err(Error::version(format!(
                "expected a {} of format version {}, found version {version}; read it with the \
                 headwater version that wrote it",
                self.name, self.version
            )));
        }
        let (length, payload) = (u64_at(body, 16).unwrap_or_default(), &body[Self::HEADER_BYTES..]);
        if length != payload.len() as u64 {
            return Err(self.damaged(format!(
                "its header gives a payload of {length} bytes, found {}",
                payload.len()
            )));
        }
        Ok((kind, payload))
    }

    /// Returns the error of damaged bytes.
    pub(crate) fn damaged(&self, what: String) -> Error {
        Error::corrupt(format!("the {} is damaged: {what}; {}", self.name, self.remedy))
    }
}

/// Returns the digest of a key: the first 16 bytes of its BLAKE3 digest.
pub(crate) fn key_digest(bytes: &[u8]) -> u128 {
    let digest = blake3::hash(bytes);
    digest.as_bytes().first_chunk().map_or(0, |first| u128::from_le_bytes(*first))
}

/// Returns the identity of a name or a key: the first 8 bytes of its BLAKE3 digest.
#[must_use]
pub fn identity_of(bytes: &[u8]) -> u64 {
    u64_at(blake3::hash(bytes).as_bytes(), 0).unwrap_or_default()
}
