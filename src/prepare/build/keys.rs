//! Keys of any type and any number of columns, and which row has which.

use std::fmt::Write;

use arrow::array::{Array, StringViewArray};

use crate::error::{Error, Result};

/// The first 16 bytes of a key's BLAKE3 digest, by which keys are compared.
///
/// Its first 8 bytes are the identity that the store keeps.
pub(in crate::prepare) type KeyDigest = u128;

/// The digest of a key's text.
pub(in crate::prepare) fn digest(bytes: &[u8]) -> KeyDigest {
    let digest = blake3::hash(bytes);
    digest.as_bytes().first_chunk().map_or(0, |first| u128::from_le_bytes(*first))
}

/// Stands for a key that is NULL.
pub(in crate::prepare) const NULL_KEY: KeyDigest = 0;

/// Stands for a key of several columns of which some are NULL and others are not.
pub(in crate::prepare) const PARTIAL_KEY: KeyDigest = 1;

/// Whether a key is NULL, wholly or in part: it names no row.
pub(in crate::prepare) fn is_null(digest: KeyDigest) -> bool {
    digest <= PARTIAL_KEY
}

/// The identity that belongs to a digest.
pub(in crate::prepare) fn identity(digest: KeyDigest) -> u64 {
    digest as u64
}

/// Writes the text of the key that stands in row `row` of `columns`; false where a part is NULL.
///
/// The parts of a composite key are joined by `|`; a `|` or `\` inside a part has a `\` before it.
pub(in crate::prepare) fn write_key(
    columns: &[&StringViewArray],
    row: usize,
    text: &mut String,
) -> bool {
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
///
/// A slot holds 32 bits of the digest and the row, so that a search leaves the table only to
/// confirm what it found.
pub(in crate::prepare) struct KeyIndex {
    digests: Vec<KeyDigest>,
    slots: Vec<u64>,
}

const EMPTY: u64 = u64::MAX;

/// The most entries: a row number of all ones would make an empty slot.
const ENTRY_LIMIT: usize = u32::MAX as usize - 1;

impl KeyIndex {
    pub(in crate::prepare) fn new() -> Self {
        Self { digests: Vec::new(), slots: vec![EMPTY; 16] }
    }

    /// How many entries there are.
    pub(in crate::prepare) fn len(&self) -> usize {
        self.digests.len()
    }

    /// The first row that has the key.
    pub(in crate::prepare) fn find(&self, digest: KeyDigest) -> Option<u32> {
        row_of(self.slots[self.slot(digest)])
    }

    /// Brings the slots of `digests` into the cache, many at a time: a search alone would wait for
    /// each of them in turn.
    pub(in crate::prepare) fn warm(&self, digests: &[KeyDigest]) {
        let mask = self.slots.len() - 1;
        let touch = |touched, &digest| touched ^ self.slots[first_slot(digest, mask)];
        std::hint::black_box(digests.iter().fold(0, touch));
    }

    /// Adds the next row; tells the earlier row that has the same key, which then remains the one
    /// that is found.
    pub(in crate::prepare) fn push(&mut self, digest: KeyDigest) -> Result<Option<u32>> {
        let row = self.next_row()?;
        let slot = self.slot(digest);
        let found = row_of(self.slots[slot]);
        self.digests.push(digest);
        if found.is_none() {
            self.slots[slot] = slot_of(digest, row);
            if self.digests.len() * 3 > self.slots.len() * 2 {
                self.grow();
            }
        }
        Ok(found)
    }

    /// Adds a row that has no key.
    pub(in crate::prepare) fn push_null(&mut self) -> Result<()> {
        self.next_row()?;
        self.digests.push(NULL_KEY);
        Ok(())
    }

    /// The entry of `digest`, which is added when it is not there, and whether it was added.
    pub(in crate::prepare) fn intern(&mut self, digest: KeyDigest) -> Result<(u32, bool)> {
        if let Some(entry) = self.find(digest) {
            return Ok((entry, false));
        }
        let entry = self.next_row()?;
        self.push(digest)?;
        Ok((entry, true))
    }

    fn next_row(&self) -> Result<u32> {
        match self.digests.len() {
            row if row < ENTRY_LIMIT => Ok(row as u32),
            _ => Err(Error::limit(format!(
                "expected at most {ENTRY_LIMIT} keys or texts, found more"
            ))),
        }
    }

    /// The slot that holds `digest`, or the empty one where it would go.
    fn slot(&self, digest: KeyDigest) -> usize {
        let mask = self.slots.len() - 1;
        let tag = slot_of(digest, 0) >> 32;
        let mut place = first_slot(digest, mask);
        loop {
            let slot = self.slots[place];
            let is_same = || self.digests[slot as u32 as usize] == digest;
            if slot == EMPTY || (slot >> 32 == tag && is_same()) {
                return place;
            }
            place = (place + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![EMPTY; old.len() * 2];
        let mask = self.slots.len() - 1;
        for slot in old.into_iter().filter(|&slot| slot != EMPTY) {
            let mut place = first_slot(self.digests[slot as u32 as usize], mask);
            while self.slots[place] != EMPTY {
                place = (place + 1) & mask;
            }
            self.slots[place] = slot;
        }
    }
}

fn first_slot(digest: KeyDigest, mask: usize) -> usize {
    (digest >> 64) as usize & mask
}

fn slot_of(digest: KeyDigest, row: u32) -> u64 {
    // Other bits than those that choose the slot.
    u64::from((digest >> 32) as u32) << 32 | u64::from(row)
}

fn row_of(slot: u64) -> Option<u32> {
    (slot != EMPTY).then_some(slot as u32)
}

/// Keys that should not be, and how many of them.
#[derive(Default)]
pub(in crate::prepare) struct KeyTrouble {
    /// How many there are.
    pub count: u64,
    /// The first, in words.
    pub first: String,
}

impl KeyTrouble {
    /// Counts one more, and remembers it when it is the first.
    pub(in crate::prepare) fn add(&mut self, describe: impl FnOnce(&mut String)) {
        if self.count == 0 {
            describe(&mut self.first);
        }
        self.count += 1;
    }

    /// Counts a key that row `row` shares with row `earlier`.
    pub(in crate::prepare) fn add_duplicate(&mut self, key: &str, row: usize, earlier: u32) {
        self.add(|first| {
            // Writing to a string cannot fail.
            let _ = write!(first, "{key:?} in row {} and row {}", u64::from(earlier) + 1, row + 1);
        });
    }
}
