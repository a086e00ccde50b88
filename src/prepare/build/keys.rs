//! Keys of any type and any number of columns, and what numbers different ones.

use arrow_array::{Array, StringViewArray};

use crate::bytes::{append, filled, reserve};
use crate::error::{Error, Result};

/// The first 16 bytes of the BLAKE3 digest of a key's text. Equal digests mean equal keys.
///
/// The first 8 bytes are the identity that the store keeps.
pub(in crate::prepare) type KeyDigest = u128;

pub(in crate::prepare) use crate::bytes::key_digest as digest;

/// The digest of a NULL key.
pub(in crate::prepare) const NULL_KEY: KeyDigest = 0;

/// The digest of a composite key with some NULL parts.
pub(in crate::prepare) const PARTIAL_KEY: KeyDigest = 1;

/// Whether a key is NULL or has a NULL part; such a key identifies no row.
pub(in crate::prepare) fn is_null(digest: KeyDigest) -> bool {
    digest <= PARTIAL_KEY
}

/// Keys are parted by the highest byte of their identities, so that the parts are in the order of these.
pub(super) const PARTS: usize = 256;

/// Returns the part of a key.
pub(super) fn part_of(digest: KeyDigest) -> usize {
    (identity(digest) >> 56) as usize
}

/// Returns the identity of a digest.
pub(in crate::prepare) fn identity(digest: KeyDigest) -> u64 {
    digest as u64
}

/// Writes the text of the key in row `row` of `columns`; returns false if a part is NULL.
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

/// Numbers different keys, or texts, in the order in which they come: an open-addressing hash table of
/// digests.
///
/// A slot holds 32 bits of the digest and the entry, so a search reads the full digest only to
/// confirm a match.
pub(in crate::prepare) struct KeyIndex {
    digests: Vec<KeyDigest>,
    slots: Vec<u64>,
}

const EMPTY: u64 = u64::MAX;

/// The most entries: the greatest number is reserved for the empty slot.
const ENTRY_LIMIT: usize = u32::MAX as usize - 1;

impl KeyIndex {
    pub(in crate::prepare) fn new() -> Self {
        Self { digests: Vec::new(), slots: vec![EMPTY; 16] }
    }

    /// Returns an index with room for so many entries.
    pub(super) fn with_room(count: usize) -> Result<Self> {
        let slots = (count * 3 / 2 + 1).next_power_of_two().max(16);
        Ok(Self { digests: reserve(count)?, slots: filled(EMPTY, slots)? })
    }

    /// Returns the entry of `digest`, if it has one.
    pub(in crate::prepare) fn find(&self, digest: KeyDigest) -> Option<u32> {
        entry_of(self.slots[self.slot(digest)])
    }

    /// Returns the entry of `digest`, adding it if it is new, and whether it is new.
    pub(in crate::prepare) fn intern(&mut self, digest: KeyDigest) -> Result<(u32, bool)> {
        let slot = self.slot(digest);
        if let Some(entry) = entry_of(self.slots[slot]) {
            return Ok((entry, false));
        }
        let entry = self.digests.len();
        if entry >= ENTRY_LIMIT {
            return Err(Error::limit(format!(
                "expected at most {ENTRY_LIMIT} different keys or texts, found more"
            )));
        }
        append(&mut self.digests, &[digest])?;
        self.slots[slot] = slot_of(digest, entry as u32);
        if self.digests.len() * 3 > self.slots.len() * 2 {
            self.grow()?;
        }
        Ok((entry as u32, true))
    }

    /// Returns the slot of `digest`, or the empty slot for it.
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

    fn grow(&mut self) -> Result<()> {
        let slots = filled(EMPTY, self.slots.len() * 2)?;
        let old = std::mem::replace(&mut self.slots, slots);
        let mask = self.slots.len() - 1;
        for slot in old.into_iter().filter(|&slot| slot != EMPTY) {
            let mut place = first_slot(self.digests[slot as u32 as usize], mask);
            while self.slots[place] != EMPTY {
                place = (place + 1) & mask;
            }
            self.slots[place] = slot;
        }
        Ok(())
    }
}

fn first_slot(digest: KeyDigest, mask: usize) -> usize {
    (digest >> 64) as usize & mask
}

fn slot_of(digest: KeyDigest, entry: u32) -> u64 {
    // Not the bits that choose the slot.
    u64::from((digest >> 32) as u32) << 32 | u64::from(entry)
}

fn entry_of(slot: u64) -> Option<u32> {
    (slot != EMPTY).then_some(slot as u32)
}

/// The number of rows with a fault in the key, and the first of them.
#[derive(Default)]
pub(in crate::prepare) struct KeyFaults {
    /// The number of rows.
    pub count: u64,
    /// A description of the first row.
    pub first: String,
}

impl KeyFaults {
    /// Counts a row; describes it if it is the first.
    pub(in crate::prepare) fn add(&mut self, describe: impl FnOnce(&mut String)) {
        if self.count == 0 {
            describe(&mut self.first);
        }
        self.count += 1;
    }
}
