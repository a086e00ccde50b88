//! Many short strings in two sections: their bytes, and the offset of every sixteenth string.
//!
//! The length of each string comes before it, as a LEB128 number. Sixteen strings share one offset,
//! because an offset for each would take as much space as the keys and short texts themselves.

use super::file::{Container, Section};
use crate::error::Result;

/// The number of strings that share one recorded offset.
pub(super) const GROUP: usize = 16;

/// Strings of a store, by index.
pub(crate) struct Strings {
    count: usize,
    offsets: Section,
    bytes: Section,
}

impl Strings {
    /// Opens the `count` strings in the sections `{prefix}.offsets` and `{prefix}.bytes`.
    pub(crate) fn open(container: &Container, prefix: &str, count: usize) -> Result<Self> {
        let offsets = (count.div_ceil(GROUP) * size_of::<u64>()) as u64;
        Ok(Self {
            count,
            offsets: container.section(&format!("{prefix}.offsets"), offsets)?,
            bytes: container.any_section(&format!("{prefix}.bytes"))?,
        })
    }

    /// Returns the string at `index`.
    ///
    /// # Cost
    /// Skips at most fifteen strings before it.
    pub(crate) fn get(&self, index: usize) -> Result<&str> {
        if index >= self.count {
            let count = self.count;
            return Err(self
                .bytes
                .corrupt(format!("expected a string below {count}, found {index}")));
        }
        let mut at = self.offsets.value::<u64>(index / GROUP)? as usize;
        for _ in 0..index % GROUP {
            let (start, length) = self.length_at(at)?;
            at = start + length;
        }
        let (start, length) = self.length_at(at)?;
        std::str::from_utf8(self.bytes.get(start, length)?)
            .map_err(|e| self.bytes.corrupt(format!("string {index} is not UTF-8: {e}")))
    }

    /// Returns the start and the length of the string whose length is at `at`.
    fn length_at(&self, at: usize) -> Result<(usize, usize)> {
        let mut length = 0_usize;
        for (i, shift) in (0..35).step_by(7).enumerate() {
            let byte = self.bytes.get(at.saturating_add(i), 1)?[0];
            length |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((at + i + 1, length));
            }
        }
        Err(self.bytes.corrupt(format!("expected a length of at most 5 bytes at {at}, found more")))
    }
}
