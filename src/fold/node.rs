//! The nodes of the tree over the chunks: aligned ranges whose length is a power of two.

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
    /// The node of one chunk.
    ///
    /// # Errors
    /// `LimitExceeded` for the last of 2^64 chunks, whose end is no number.
    pub fn leaf(chunk: u64) -> Result<Self> {
        Self::new(0, chunk)
    }

    /// The node `index` of `level`.
    ///
    /// # Errors
    /// `LimitExceeded` when its chunks have numbers past 2^64 - 1.
    pub fn new(level: u32, index: u64) -> Result<Self> {
        let end = index.checked_add(1).filter(|&end| level < 64 && end <= u64::MAX >> level);
        end.map(|_| Self { level, index }).ok_or_else(|| {
            Error::limit(format!(
                "expected the level and index of a node, found \
                                                 level {level} and index {index}"
            ))
        })
    }

    /// The nodes that `chunks` consists of, in order, each as big as can be.
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

    /// How often the tree merged to come from chunks to this node.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Which of its level it is.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The chunks that it covers.
    #[must_use]
    pub fn chunks(&self) -> Range<u64> {
        self.index << self.level..(self.index + 1) << self.level
    }

    /// The node that it is merged with.
    pub(super) fn sibling(self) -> Self {
        Self { index: self.index ^ 1, ..self }
    }

    /// The node that it and its sibling make.
    pub(super) fn parent(self) -> Self {
        Self { level: self.level + 1, index: self.index / 2 }
    }

    /// Whether it is merged from the left.
    pub(super) fn is_left(self) -> bool {
        self.index.is_multiple_of(2)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.chunks();
        let Self { level, index } = self;
        match end - start {
            1 => write!(f, "node {index} of level {level} (chunk {start})"),
            _ => write!(f, "node {index} of level {level} (chunks {start} to {})", end - 1),
        }
    }
}
