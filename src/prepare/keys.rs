//! Keys of any type and any number of columns, and which row has which.

use std::fmt::Write;

use arrow::array::{Array, StringViewArray};

use crate::error::{Error, Result};

/// The first 16 bytes of a key's BLAKE3 digest, by which keys are compared.
///
/// Its first 8 bytes are the identity that the store keeps.
pub(super) type KeyDigest = u128;

/// The digest of a key's text.
pub(super) fn digest(bytes: &[u8]) -> KeyDigest {
    let digest = blake3::hash(bytes);
    digest.as_bytes().first_chunk().map_or(0, |first| u128::from_le_bytes(*first))
}

/// The identity that belongs to a digest.
pub(super) fn identity(digest: KeyDigest) -> u64 {
    digest as u64
}

/// Writes the text of the key that stands in row `row` of `columns`; false where a part is NULL.
///
/// The parts of a composite key are joined by `|`; a `|` or `\` inside a part has a `\` before it.
pub(super) fn write_key(columns: &[&StringViewArray], row: usize, text: &mut String) -> bool {
    text.clear();
    for (place, column) in columns.iter().enumerate() {
        if column.is_null(row) {
            return false;
        }
        let part = column.value(row);
        if columns.len() == 1 {
            text.push_str(part);
            return true;
        }
        if place > 0 {
            text.push('|');
        }
        if part.contains(['|', '\\']) {
            for character in part.chars() {
                if matches!(character, '|' | '\\') {
                    text.push('\\');
                }
                text.push(character);
            }
        } else {
            text.push_str(part);
        }
    }
    true
}

/// Which row has which key: an open-addressing table over digests that are evenly spread already.
pub(super) struct KeyIndex {
    digests: Vec<KeyDigest>,
    slots: Vec<u32>,
}

const EMPTY: u32 = u32::MAX;

impl KeyIndex {
    pub(super) fn new() -> Self {
        Self { digests: Vec::new(), slots: vec![EMPTY; 16] }
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.digests.len()
    }

    /// The first row that has the key.
    pub(super) fn find(&self, digest: KeyDigest) -> Option<u32> {
        let row = self.slots[self.slot(digest)];
        (row != EMPTY).then_some(row)
    }

    /// Adds the next row; tells the earlier row that has the same key, which then remains the one
    /// that is found.
    pub(super) fn push(&mut self, digest: KeyDigest) -> Result<Option<u32>> {
        let slot = self.slot(digest);
        let found = self.slots[slot];
        if found == EMPTY {
            self.slots[slot] = self.next_row()?;
        } else {
            self.next_row()?;
        }
        self.digests.push(digest);
        if found == EMPTY && self.digests.len() * 4 > self.slots.len() * 3 {
            self.grow();
        }
        Ok((found != EMPTY).then_some(found))
    }

    /// The entry of `digest`, which is added when it is not there, and whether it was added.
    pub(super) fn intern(&mut self, digest: KeyDigest) -> Result<(u32, bool)> {
        if let Some(entry) = self.find(digest) {
            return Ok((entry, false));
        }
        let entry = self.next_row()?;
        self.push(digest)?;
        Ok((entry, true))
    }

    fn next_row(&self) -> Result<u32> {
        u32::try_from(self.digests.len()).ok().filter(|&row| row < EMPTY - 1).ok_or_else(|| {
            Error::limit(format!("more than {} entries; the format counts no further", EMPTY - 2))
        })
    }

    fn slot(&self, digest: KeyDigest) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = (digest >> 64) as usize & mask;
        while self.slots[slot] != EMPTY && self.digests[self.slots[slot] as usize] != digest {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.slots = vec![EMPTY; self.slots.len() * 2];
        for row in 0..self.digests.len() {
            let slot = self.slot(self.digests[row]);
            if self.slots[slot] == EMPTY {
                self.slots[slot] = row as u32;
            }
        }
    }
}

/// Keys that should not be, and how many of them.
#[derive(Default)]
pub(super) struct KeyTrouble {
    /// How many there are.
    pub count: u64,
    /// The first, in words.
    pub first: String,
}

impl KeyTrouble {
    /// Counts one more, and remembers it when it is the first.
    pub(super) fn add(&mut self, describe: impl FnOnce(&mut String)) {
        if self.count == 0 {
            describe(&mut self.first);
        }
        self.count += 1;
    }

    /// Counts a key that row `row` shares with row `earlier`.
    pub(super) fn add_duplicate(&mut self, key: &str, row: usize, earlier: u32) {
        self.add(|first| {
            // Writing to a string cannot fail.
            let _ = write!(first, "{key:?} in row {} and row {}", u64::from(earlier) + 1, row + 1);
        });
    }
}
