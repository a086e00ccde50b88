//! The messages between the coordinator and the workers of a job, and their bytes.

use std::ops::Range;

use twox_hash::XxHash3_128;

use super::cursor::WorkerCursor;
use crate::bytes::u64_at;
use crate::error::{Error, ErrorKind, Result};

/// A message from a worker to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report<'a> {
    /// The worker has no orders.
    Ready {
        /// The bytes of its job's plan.
        job: &'a [u8],
        /// The chunks that it can read.
        readable: Vec<Range<u64>>,
    },
    /// The worker has folded the chunks of an order.
    Folded {
        /// How far the worker is in its own blocks, this order included.
        cursor: WorkerCursor,
        /// The CPU time that its process has taken so far.
        cpu_microseconds: u64,
        /// The bytes of the portion.
        portion: &'a [u8],
    },
    /// The worker failed.
    Failed(Failure),
    /// The worker received the end of the job, and leaves.
    Leaving,
}

/// A message from the coordinator to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Fold these chunks.
    Fold {
        /// The chunks.
        chunks: Range<u64>,
        /// The cursor of the worker when it has folded them.
        cursor: WorkerCursor,
    },
    /// The pass over the rows has ended; the next one is that of these bytes.
    Next(Vec<u8>),
    /// The job has ended.
    End(JobEnd),
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// All rows were folded.
    Done,
    /// An error of this kind ended it; rank 0 has reported it.
    Failed(ErrorKind),
}

/// How a pass ended for a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassEnd {
    /// The next pass begins with these bytes.
    Next(Vec<u8>),
    /// The job has ended.
    End(JobEnd),
}

/// The error of a worker, as a message carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The message of the error.
    pub message: String,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self { kind: error.kind(), message: error.to_string() }
    }
}

impl Failure {
    /// Returns the error of the worker.
    #[must_use]
    pub fn into_error(self) -> Error {
        Error::new(self.kind, self.message)
    }
}

const READY: u8 = 1;
const FOLDED: u8 = 2;
const FAILED: u8 = 3;
const LEAVING: u8 = 4;
const FOLD: u8 = 5;
const END: u8 = 6;
const NEXT: u8 = 7;

/// The length of the digest at the end of a report.
const DIGEST_BYTES: usize = 16;

impl<'a> Report<'a> {
    /// The bytes that [`Report::folded`] appends to a portion.
    pub(super) const TRAILER_BYTES: usize = WorkerCursor::BYTES + 8 + 1 + DIGEST_BYTES;

    /// Returns the bytes of the report.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ready { job, readable } => {
                let mut bytes = job.to_vec();
                readable.iter().for_each(|chunks| put_range(&mut bytes, chunks));
                bytes.extend((readable.len() as u64).to_le_bytes());
                sealed(bytes, READY)
            }
            Self::Folded { cursor, cpu_microseconds, portion } => {
                Self::folded(portion.to_vec(), cursor, *cpu_microseconds)
            }
            Self::Failed(Failure { kind, message }) => {
                sealed([message.as_bytes(), &[code_of(*kind)]].concat(), FAILED)
            }
            Self::Leaving => sealed(Vec::new(), LEAVING),
        }
    }

    /// Returns the bytes of [`Report::Folded`], in the buffer of the portion: a portion can be large.
    #[must_use]
    pub fn folded(mut portion: Vec<u8>, cursor: &WorkerCursor, cpu_microseconds: u64) -> Vec<u8> {
        cursor.put(&mut portion);
        portion.extend(cpu_microseconds.to_le_bytes());
        sealed(portion, FOLDED)
    }

    /// Decodes a report.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not a report, or do not match their digest.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let undamaged = bytes
            .split_last_chunk::<DIGEST_BYTES>()
            .filter(|(report, digest)| XxHash3_128::oneshot(report).to_le_bytes() == **digest);
        undamaged.and_then(|(report, _)| Self::read(report)).ok_or_else(|| damaged("a report"))
    }

    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_last()?;
        let number = |bytes: &'a [u8]| {
            let (before, number) = bytes.split_last_chunk()?;
            Some((before, u64::from_le_bytes(*number)))
        };
        Some(match kind {
            READY => {
                let (rest, count) = number(rest)?;
                let ranges = usize::try_from(count).ok()?.checked_mul(16)?;
                let (job, ranges) = rest.split_at(rest.len().checked_sub(ranges)?);
                let places = (0..ranges.len()).step_by(16);
                let readable = places.map(|at| range_at(ranges, at)).collect::<Option<_>>()?;
                Self::Ready { job, readable }
            }
            FOLDED => {
                let (rest, cpu_microseconds) = number(rest)?;
                let end = rest.len().checked_sub(WorkerCursor::BYTES)?;
                let (portion, cursor) = rest.split_at(end);
                Self::Folded { cursor: WorkerCursor::read(cursor)?, cpu_microseconds, portion }
            }
            FAILED => {
                let (&code, message) = rest.split_last()?;
                let message = String::from_utf8_lossy(message).into_owned();
                Self::Failed(Failure { kind: kind_of(code)?, message })
            }
            LEAVING if rest.is_empty() => Self::Leaving,
            _ => return None,
        })
    }
}

impl Order {
    /// Returns the bytes of the order.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Fold { chunks, cursor } => {
                let mut bytes = vec![FOLD];
                put_range(&mut bytes, chunks);
                cursor.put(&mut bytes);
                bytes
            }
            Self::Next(known) => [&[NEXT], &known[..]].concat(),
            Self::End(JobEnd::Done) => vec![END, 0],
            Self::End(JobEnd::Failed(kind)) => vec![END, code_of(*kind)],
        }
    }

    /// Decodes an order.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not an order.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let order = match bytes {
            [FOLD, fields @ ..] if fields.len() == 16 + WorkerCursor::BYTES => range_at(fields, 0)
                .zip(WorkerCursor::read(&fields[16..]))
                .map(|(chunks, cursor)| Self::Fold { chunks, cursor }),
            [NEXT, known @ ..] => Some(Self::Next(known.to_vec())),
            [END, 0] => Some(Self::End(JobEnd::Done)),
            &[END, code] => kind_of(code).map(|kind| Self::End(JobEnd::Failed(kind))),
            _ => None,
        };
        order.ok_or_else(|| damaged("an order"))
    }
}

fn damaged(what: &str) -> Error {
    Error::corrupt(format!(
        "cannot decode {what} of another rank; run the same build of headwater on every rank"
    ))
}

/// Ends a report: its kind, and the digest of all bytes before.
fn sealed(mut bytes: Vec<u8>, kind: u8) -> Vec<u8> {
    bytes.push(kind);
    let digest = XxHash3_128::oneshot(&bytes);
    bytes.extend(digest.to_le_bytes());
    bytes
}

fn put_range(bytes: &mut Vec<u8>, range: &Range<u64>) {
    bytes.extend(range.start.to_le_bytes());
    bytes.extend(range.end.to_le_bytes());
}

fn range_at(bytes: &[u8], at: usize) -> Option<Range<u64>> {
    Some(u64_at(bytes, at)?..u64_at(bytes, at + 8)?).filter(|range| !range.is_empty())
}

/// The kinds of errors, in the order of their codes, which count from 1; code 0 means no error.
const KINDS: [ErrorKind; 11] = [
    ErrorKind::Io,
    ErrorKind::NotOurs,
    ErrorKind::Version,
    ErrorKind::Corrupt,
    ErrorKind::LimitExceeded,
    ErrorKind::InvalidArgument,
    ErrorKind::Schema,
    ErrorKind::Data,
    ErrorKind::PlanMismatch,
    ErrorKind::Interrupted,
    ErrorKind::Shutdown,
];

fn code_of(kind: ErrorKind) -> u8 {
    KINDS.iter().position(|k| *k == kind).map_or(0, |place| place as u8 + 1)
}

fn kind_of(code: u8) -> Option<ErrorKind> {
    KINDS.get(usize::from(code).checked_sub(1)?).copied()
}
