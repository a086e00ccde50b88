//! `Cursor`: a position in a plan, and its bytes.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use super::settings::{PLAN_BYTES_MAX, Plan, bincode_configuration};
use crate::bytes::Envelope;
use crate::durable::{self, Storage};
use crate::files::{open_file, try_read_beginning};
use crate::{Context, Error, Result};

const ENVELOPE: Envelope = Envelope {
    name: "cursor",
    magic: *b"HWCURSOR",
    version: 1,
    payload_max: PLAN_BYTES_MAX,
    remedy: "use an earlier checkpoint, or another copy of this one",
};

/// The kind of sequence that a cursor is a position in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u32)]
pub enum CursorKind {
    /// The sequence of batches of a sampler.
    Sampler = 1,
    /// The chunks of a fold.
    Reducer = 2,
    /// The token rows of an event sampler.
    Events = 3,
    /// The batches of a finite pass of a sampler.
    Evaluation = 4,
}

impl CursorKind {
    const ALL: [Self; 4] = [Self::Sampler, Self::Reducer, Self::Events, Self::Evaluation];

    /// Returns the name in messages and listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sampler => "sampler",
            Self::Reducer => "reducer",
            Self::Events => "events",
            Self::Evaluation => "evaluation",
        }
    }
}

/// The place of a run in its sequence: counters by name, such as `train/step`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position(BTreeMap<String, u64>);

impl Position {
    /// Returns the beginning: no counter yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a counter.
    pub fn set(&mut self, name: impl Into<String>, count: u64) {
        self.0.insert(name.into(), count);
    }

    /// Returns a counter, if it is set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Returns all counters in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }
}

/// A position in the sequence of a plan, with the plan, so that any other plan is rejected.
///
/// A cursor names no rank: it belongs to the run, and any number of ranks may resume from it.
/// `plan/FORMAT.md` describes its bytes.
///
/// # Example
/// ```
/// use headwater::plan::{Cursor, CursorKind, Plan, Position};
///
/// let mut plan = Plan::new();
/// plan.add("seed", 42)?;
/// let mut position = Position::new();
/// position.set("train/step", 1200);
/// let cursor = Cursor::new(CursorKind::Sampler, plan.clone(), position);
///
/// let read = Cursor::decode(&cursor.encode()?)?;
/// read.check(CursorKind::Sampler, &plan)?;
/// assert_eq!(read.position().get("train/step"), Some(1200));
/// # Ok::<(), headwater::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    kind: CursorKind,
    plan: Plan,
    position: Position,
}

impl Cursor {
    /// Returns a cursor at `position` of `plan`.
    #[must_use]
    pub fn new(kind: CursorKind, plan: Plan, position: Position) -> Self {
        Self { kind, plan, position }
    }

    /// Returns the kind of its sequence.
    #[must_use]
    pub fn kind(&self) -> CursorKind {
        self.kind
    }

    /// Returns its plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the position.
    #[must_use]
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Checks that the cursor belongs to the plan `expected`.
    ///
    /// # Errors
    /// `PlanMismatch`, naming every setting that differs, with both values.
    pub fn check(&self, kind: CursorKind, expected: &Plan) -> Result<()> {
        if self.kind != kind {
            return Err(Error::mismatch(format!(
                "expected a cursor of kind {}, found one of kind {}; use a cursor that was saved by \
                 the same kind of run",
                kind.name(),
                self.kind.name()
            )));
        }
        expected.compare(&self.plan).context(|| "the cursor does not belong to this plan")
    }

    /// Returns the bytes of the cursor.
    ///
    /// # Determinism
    /// Equal cursors have equal bytes.
    ///
    /// # Errors
    /// `LimitExceeded` when the payload would pass 1 MiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let position = bincode::encode_to_vec(&self.position.0, bincode_configuration())
            .map_err(|e| Error::limit(format!("the cursor cannot be encoded: {e}")))?;
        let payload = [self.plan.encode()?, position].concat();
        if payload.len() > PLAN_BYTES_MAX {
            return Err(Error::limit(format!(
                "expected a cursor of at most {PLAN_BYTES_MAX} bytes, found {}; put the digest of a \
                 long setting in the plan in place of the setting",
                payload.len()
            )));
        }
        let mut bytes = ENVELOPE.begin(self.kind as u32, payload.len())?;
        bytes.extend_from_slice(&payload);
        Ok(Envelope::seal(bytes))
    }

    /// Reads a cursor from its bytes.
    ///
    /// # Errors
    /// `NotOurs` when the bytes do not begin like a cursor, `Version` for a format version or a
    /// kind that this build does not know, `LimitExceeded` past 1 MiB, `Corrupt` for every other
    /// difference from what `encode` writes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (kind, payload) = ENVELOPE.open(bytes)?;
        let Some(kind) = CursorKind::ALL.into_iter().find(|k| *k as u32 == kind) else {
            let known = CursorKind::ALL.map(|k| format!("{} ({})", k as u32, k.name())).join(", ");
            return Err(Error::version(format!(
                "expected a cursor of a kind that this build knows, {known}, found kind {kind}; read \
                 it with the headwater version that wrote it, or a newer one"
            )));
        };
        let damaged = |what: String| ENVELOPE.damaged(what);
        let (plan, rest) = Plan::decode_first(payload).map_err(damaged)?;
        let (position, length): (BTreeMap<String, u64>, usize) =
            bincode::decode_from_slice(rest, bincode_configuration())
                .map_err(|e| damaged(format!("its position cannot be decoded ({e})")))?;
        if length != rest.len() {
            let rest_bytes = rest.len() - length;
            return Err(damaged(format!("{rest_bytes} bytes follow the end of its payload")));
        }
        let cursor = Self { kind, plan, position: Position(position) };
        // One cursor has one encoding: names in order, each once.
        if cursor.encode()? != bytes {
            return Err(damaged("its counters are not in order, or not unique".to_owned()));
        }
        Ok(cursor)
    }

    /// Writes the cursor to a file, completely or not at all.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode) and of [`durable::write_file`], and `InvalidArgument` when the place
    /// has a file that is no cursor.
    pub fn write(&self, storage: &dyn Storage, path: &Path) -> Result<()> {
        check_replaceable(path)?;
        durable::write_file(storage, path, &self.encode()?)
    }

    /// Reads a cursor from a file.
    ///
    /// # Errors
    /// `Io` when the file cannot be read, else those of [`decode`](Self::decode), with the path.
    pub fn read(path: &Path) -> Result<Self> {
        let file = open_file(path)?;
        let length_max = ENVELOPE.length_max() as u64;
        let mut bytes = Vec::new();
        file.take(length_max + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| Error::io(path, "read", e))?;
        Self::decode(&bytes).context(|| path.display())
    }
}

/// Rejects a path with a file that is no cursor, which the write would replace.
fn check_replaceable(path: &Path) -> Result<()> {
    // The write itself rejects a folder or a device.
    if !path.is_file() {
        return Ok(());
    }
    let beginning = try_read_beginning(path, ENVELOPE.magic.len())
        .map_err(|e| Error::io(path, "reading the file that is there already", e))?;
    if beginning.is_empty() || beginning == ENVELOPE.magic {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{} is there already and is no cursor; choose another name, or remove that file",
        path.display()
    )))
}
