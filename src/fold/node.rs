//! The nodes of the tree over the chunks: aligned ranges of a power of two of chunks.

use std::fmt;
use std::ops::Range;

use crate::error::{Error, Result};

/// The chunks from `index * 2^level` to `(index + 1) * 2^level`, the end not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    level: u32,
    index: u64,
}

impl Node {
    /// Returns the node of one chunk.
    ///
    /// # Errors
    /// `LimitExceeded` for chunk 2^64 - 1, whose end exceeds 64 bits.
    pub fn leaf(chunk: u64) -> Result<Self> {
        Self::new(0, chunk)
    }

    /// Returns the node `index` of `level`.
    ///
    /// # Errors
    /// `LimitExceeded` when its end exceeds 2^64 - 1.
    pub fn new(level: u32, index: u64) -> Result<Self> {
        let end = index.checked_add(1).filter(|&end| level < 64 && end <= u64::MAX >> level);
        end.map(|_| Self { level, index }).ok_or_else(|| {
            Error::limit(format!(
                "expected a node within 2^64 - 1 chunks, found level {level}, index {index}"
            ))
        })
    }

    /// Splits `chunks` into the largest possible nodes, in order.
    pub fn within(chunks: Range<u64>) -> impl Iterator<Item = Self> {
        let mut start = chunks.start;
        std::iter::from_fn(move || {
            let length = chunks.end.checked_sub(start).filter(|&length| length > 0)?;
            let level = start.trailing_zeros().min(length.ilog2());
            let node = Self { level, index: start >> level };
            start = node.chunks().end;
            Some(node)
        })
    }

    /// Returns the level: the node covers `2^level` chunks.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Returns the index among the nodes of its level.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns the chunks that it covers.
    #[must_use]
    pub fn chunks(&self) -> Range<u64> {
        self.index << self.level..(self.index + 1) << self.level
    }

    /// Returns the number of chunks that it covers.
    pub(super) fn chunk_count(self) -> u64 {
        1 << self.level
    }

    /// Returns the node with which it is merged.
    pub(super) fn sibling(self) -> Self {
        Self { index: self.index ^ 1, ..self }
    }

    /// Returns the node that covers it and its sibling.
    pub(super) fn parent(self) -> Self {
        Self { level: self.level + 1, index: self.index / 2 }
    }

    /// Whether it is the left one of two siblings.
    pub(crate) fn is_left(self) -> bool {
        self.index.is_multiple_of(2)
    }
}

/// The chunks that it covers: no two nodes of a fold cover the same.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.chunks();
        match end - start {
            1 => write!(f, "chunk {start}"),
            _ => write!(f, "chunks {start} to {}", end - 1),
        }
    }
}
