//! A position in a plan, and its bytes.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use bincode::{Decode, Encode};

use super::fingerprint::{Fields, Fingerprint, Value};
use crate::durable::{self, Storage};
use crate::{Context, Error, Result};

const MAGIC: [u8; 8] = *b"HWCURSOR";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;
const HASH_BYTES: usize = 32;
/// The longest payload that is written or read.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(HEADER_BYTES == MAGIC.len() + 4 + 4 + 8);

/// What a cursor is a position in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u32)]
pub enum CursorKind {
    /// The sequence of batches of a sampler.
    Sampler = 1,
    /// The chunks of a fold.
    Reducer = 2,
}

impl CursorKind {
    const ALL: [Self; 2] = [Self::Sampler, Self::Reducer];

    /// The name in messages and listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sampler => "sampler",
            Self::Reducer => "reducer",
        }
    }
}

/// Where in the sequence a run stands: counters by name, such as `train/step`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position(BTreeMap<String, u64>);

impl Position {
    /// The beginning: no counter yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a counter.
    pub fn set(&mut self, name: impl Into<String>, count: u64) {
        self.0.insert(name.into(), count);
    }

    /// A counter, when it is there.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// All counters in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }
}

/// A position in the sequence of a plan, with what is needed to refuse it under any other plan.
///
/// No rank is in it: it belongs to the run, and may be resumed on any number of ranks.
/// `plan/FORMAT.md` describes its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    kind: CursorKind,
    fields: Fields,
    position: Position,
}

/// The payload as bincode sees it; the order of the fields is the order of the bytes.
#[derive(Encode, Decode)]
struct Payload {
    fingerprint: Fingerprint,
    fields: BTreeMap<String, Value>,
    position: BTreeMap<String, u64>,
}

impl Cursor {
    /// A cursor at `position` in the plan of these fields.
    #[must_use]
    pub fn new(kind: CursorKind, fields: Fields, position: Position) -> Self {
        Self { kind, fields, position }
    }

    /// What it is a position in.
    #[must_use]
    pub fn kind(&self) -> CursorKind {
        self.kind
    }

    /// The fields of the plan that it belongs to.
    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The position.
    #[must_use]
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Checks that the cursor belongs to the plan of `expected`.
    ///
    /// # Errors
    /// `PlanMismatch`, naming every field that differs, with both values.
    pub fn check(&self, expected: &Fields) -> Result<()> {
        expected.compare(&self.fields).context(|| "the cursor does not belong to this plan")
    }

    /// Returns the bytes of the cursor.
    ///
    /// # Determinism
    /// Equal cursors have equal bytes.
    ///
    /// # Errors
    /// `LimitExceeded` when the payload would pass 1 MiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let payload = bincode::encode_to_vec(
            Payload {
                fingerprint: self.fields.fingerprint(),
                fields: self.fields.as_map().clone(),
                position: self.position.0.clone(),
            },
            bincode_configuration(),
        )
        .map_err(|e| Error::limit(format!("the cursor cannot be encoded: {e}")))?;
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Error::limit(format!(
                "expected a cursor of at most {PAYLOAD_BYTES_MAX} bytes, found {}; put the hash of \
                 a long setting in the plan in place of the setting",
                payload.len()
            )));
        }
        let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len() + HASH_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(self.kind as u32).to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&payload);
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        Ok(bytes)
    }

    /// Reads a cursor from its bytes.
    ///
    /// # Errors
    /// `NotOurs` when the bytes do not begin like a cursor, `Version` for a format version or a
    /// kind that this build does not know, `LimitExceeded` past 1 MiB, `Corrupt` for every other
    /// difference from what `encode` writes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (kind, payload) = open_envelope(bytes)?;
        let configuration = bincode_configuration();
        let (decoded, read_bytes): (Payload, usize) =
            bincode::decode_from_slice(payload, configuration)
                .map_err(|e| damaged(&format!("its payload does not decode ({e})")))?;
        if read_bytes != payload.len() {
            let rest_bytes = payload.len() - read_bytes;
            return Err(damaged(&format!("{rest_bytes} bytes follow the end of its payload")));
        }
        let fingerprint = decoded.fingerprint;
        let cursor = Self {
            kind,
            fields: Fields::from_map(decoded.fields),
            position: Position(decoded.position),
        };
        let expected = cursor.fields.fingerprint();
        if fingerprint != expected {
            return Err(damaged(&format!(
                "its fingerprint is {fingerprint} where its fields have {expected}"
            )));
        }
        // One cursor has one encoding: names in order, each once.
        if cursor.encode()? != bytes {
            return Err(damaged("its names are not in order, or not unique"));
        }
        Ok(cursor)
    }

    /// Writes the cursor to a file, wholly or not at all.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode) and of [`durable::write_file`].
    pub fn write(&self, storage: &dyn Storage, path: &Path) -> Result<()> {
        durable::write_file(storage, path, &self.encode()?)
    }

    /// Reads a cursor from a file.
    ///
    /// # Errors
    /// `Io` when the file cannot be read, else those of [`decode`](Self::decode), with the path.
    pub fn read(path: &Path) -> Result<Self> {
        let file = std::fs::File::open(path).map_err(|e| Error::io(path, "open", e))?;
        let length_max = (HEADER_BYTES + PAYLOAD_BYTES_MAX + HASH_BYTES) as u64;
        let mut bytes = Vec::new();
        file.take(length_max + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| Error::io(path, "read", e))?;
        Self::decode(&bytes).context(|| path.display())
    }
}

fn bincode_configuration() -> impl bincode::config::Config {
    bincode::config::standard()
        .with_little_endian()
        .with_fixed_int_encoding()
        .with_limit::<PAYLOAD_BYTES_MAX>()
}

fn damaged(what: &str) -> Error {
    Error::corrupt(format!(
        "the cursor is damaged: {what}; go on from an earlier checkpoint, or from another copy of \
         this one"
    ))
}

/// Checks everything around the payload, and returns the payload.
fn open_envelope(bytes: &[u8]) -> Result<(CursorKind, &[u8])> {
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    if !MAGIC.starts_with(magic) {
        return Err(Error::not_ours(format!(
            "expected a headwater cursor, which begins with {}, found {}; this is another kind of \
             file",
            MAGIC.escape_ascii(),
            magic.escape_ascii()
        )));
    }
    let too_short = || {
        let least_bytes = HEADER_BYTES + HASH_BYTES;
        damaged(&format!("it has {} bytes where the least is {least_bytes}", bytes.len()))
    };
    let (body, hash) = bytes.split_last_chunk::<HASH_BYTES>().ok_or_else(too_short)?;
    let (header, payload) = body.split_first_chunk::<HEADER_BYTES>().ok_or_else(too_short)?;
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(Error::limit(format!(
            "expected a cursor with a payload of at most {PAYLOAD_BYTES_MAX} bytes, found more; no \
             build writes such a one"
        )));
    }
    if blake3::hash(body) != *hash {
        return Err(damaged("its bytes do not have the hash that it ends with"));
    }
    let [version, kind] = [8, 12].map(|at| {
        let mut word = [0; 4];
        word.copy_from_slice(&header[at..at + 4]);
        u32::from_le_bytes(word)
    });
    if version != VERSION {
        return Err(Error::version(format!(
            "expected a cursor of format version {VERSION}, which is all that this build reads, \
             found version {version}; read it with the headwater that wrote it, or a newer one"
        )));
    }
    let Some(kind) = CursorKind::ALL.into_iter().find(|k| *k as u32 == kind) else {
        let known = CursorKind::ALL.map(|k| format!("{} ({})", k as u32, k.name())).join(", ");
        return Err(Error::version(format!(
            "expected a cursor of a kind that this build knows, {known}, found kind {kind}; read \
             it with the headwater that wrote it, or a newer one"
        )));
    };
    let mut length = [0; 8];
    length.copy_from_slice(&header[16..]);
    let length = u64::from_le_bytes(length);
    if length != payload.len() as u64 {
        return Err(damaged(&format!(
            "its header says {length} bytes of payload, and there are {}",
            payload.len()
        )));
    }
    Ok((kind, payload))
}
