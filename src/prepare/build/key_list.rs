//! The keys of a table's rows by one list of columns, parted by digest.
//!
//! Parts of all keys are worked off beside each other, so memory holds as many parts as there are threads.

use super::chain::{Chain, SpillWriter, replaced};
use super::in_order::in_order;
use super::keys::{KeyDigest, KeyIndex, PARTS, identity, is_null, part_of};
use crate::bytes::reserve;
use crate::error::Result;

/// A digest and its row.
const ENTRY_BYTES: usize = size_of::<KeyDigest>() + size_of::<u32>();

/// What is found for a key that no row has.
pub(super) const NO_ROW: u32 = u32::MAX;

/// The keys of rows by some columns. Rows without such a key are not among them.
pub(super) struct KeyList {
    parts: Vec<Chain>,
    /// The number of rows without a key, and the first of them.
    pub nulls: (u64, Option<u64>),
}

/// Rows whose key an earlier row has.
#[derive(Default)]
pub(super) struct Repeated {
    pub count: u64,
    /// The first of them, and the first row that has its key.
    pub first: Option<(u32, u32)>,
}

impl KeyList {
    pub(super) fn new() -> Self {
        Self { parts: vec![Chain::default(); PARTS], nulls: (0, None) }
    }

    /// Adds the keys of rows, the first of which is `first_row`.
    pub(super) fn add(
        &mut self,
        spill: &SpillWriter,
        first_row: u64,
        digests: &[KeyDigest],
    ) -> Result<()> {
        for (row, &digest) in (first_row..).zip(digests) {
            if is_null(digest) {
                self.nulls.0 += 1;
                self.nulls.1.get_or_insert(row);
                continue;
            }
            let entry = [&digest.to_le_bytes()[..], &(row as u32).to_le_bytes()];
            spill.append(&mut self.parts[part_of(digest)], entry)?;
        }
        Ok(())
    }

    /// Ends the list.
    pub(super) fn close(&mut self, spill: &SpillWriter) -> Result<()> {
        self.parts.iter_mut().try_for_each(|part| spill.close(part))
    }

    /// Calls `take` with all rows in the order of their identities, many at a time. Returns those that
    /// repeat a key.
    pub(super) fn sorted(
        &self,
        mut take: impl FnMut(&[u32]) -> Result<()> + Send,
    ) -> Result<Repeated> {
        let mut all = Repeated::default();
        let mut parts = self.parts.iter();
        in_order(
            |_| parts.next(),
            |part: &Chain| {
                let part = part.load()?;
                let mut keys = reserve(part.len() / ENTRY_BYTES)?;
                keys.extend(entries(&part).map(|(key, row)| (identity(key), row, key)));
                keys.sort_unstable_by_key(|&(identity, row, _)| (identity, row));
                let mut rows = reserve(keys.len())?;
                rows.extend(keys.iter().map(|&(_, row, _)| row));
                Ok((rows, Repeated::among(&keys)))
            },
            |(rows, repeated)| {
                all.add(repeated);
                take(&rows)
            },
        )?;
        Ok(all)
    }

    /// Returns the rows that repeat a key.
    pub(super) fn repeated(&self) -> Result<Repeated> {
        self.sorted(|_| Ok(()))
    }

    /// Returns the first row of each of the wanted keys, which are parted as these are; [`NO_ROW`] for those
    /// that no row has.
    pub(super) fn rows_of(&self, wanted: &[Chain], spill: &SpillWriter) -> Result<Vec<Chain>> {
        replaced(wanted, spill, |place, wanted| {
            let mut rows = reserve(wanted.len() / size_of::<KeyDigest>() * size_of::<u32>())?;
            if wanted.len() == 0 {
                return Ok(rows);
            }
            let part = self.parts[place].load()?;
            let mut index = KeyIndex::with_room(part.len() / ENTRY_BYTES)?;
            let mut row_of = reserve(part.len() / ENTRY_BYTES)?;
            for (key, row) in entries(&part) {
                // The first row with a key stays.
                if index.intern(key)?.1 {
                    row_of.push(row);
                }
            }
            wanted.for_each(|keys| {
                let keys = keys.as_chunks().0.iter().map(|&key| KeyDigest::from_le_bytes(key));
                let found =
                    keys.map(|key| index.find(key).map_or(NO_ROW, |at| row_of[at as usize]));
                rows.extend(found.flat_map(u32::to_le_bytes));
                Ok(())
            })?;
            Ok(rows)
        })
    }
}

impl Repeated {
    /// Finds them among the keys of a part, which are sorted by identity and row.
    fn among(keys: &[(u64, u32, KeyDigest)]) -> Self {
        let mut all = Self::default();
        for same in keys.chunk_by(|one, next| one.0 == next.0).filter(|same| same.len() > 1) {
            for (at, &(_, row, key)) in same.iter().enumerate().skip(1) {
                // Different keys may have one identity.
                let earlier = same[..at].iter().find(|earlier| earlier.2 == key);
                if let Some(&(_, earlier, _)) = earlier {
                    all.add(Self { count: 1, first: Some((row, earlier)) });
                }
            }
        }
        all
    }

    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.into_iter().chain(other.first).min();
    }
}

/// Returns the keys of a part with their rows.
fn entries(part: &[u8]) -> impl Iterator<Item = (KeyDigest, u32)> {
    let entries = part.as_chunks::<ENTRY_BYTES>().0.iter();
    entries.map(|&[ref key @ .., r0, r1, r2, r3]| {
        (KeyDigest::from_le_bytes(*key), u32::from_le_bytes([r0, r1, r2, r3]))
    })
}

#[cfg(test)]
mod tests {
    use super::{KeyDigest, KeyList, NO_ROW, Repeated};
    use crate::prepare::build::chain::{Chain, SpillWriter};
    use crate::prepare::build::keys::{NULL_KEY, PARTS, part_of};
    use crate::prepare::build::scratch::Scratch;

    fn list(spill: &SpillWriter, keys: &[KeyDigest]) -> KeyList {
        let mut list = KeyList::new();
        for (at, some) in keys.chunks(2).enumerate() {
            list.add(spill, 2 * at as u64, some).unwrap();
        }
        list.close(spill).unwrap();
        list
    }

    #[test]
    fn repeated_keys_are_told_from_keys_of_one_identity() {
        let folder = tempfile::tempdir().unwrap();
        let spill = SpillWriter::new(&Scratch::new(folder.path().to_owned(), 100));
        let repeated = |keys: &[KeyDigest]| {
            let Repeated { count, first } = list(&spill, keys).repeated().unwrap();
            (count, first)
        };
        let high = 1 << 64;
        // Rows 1 and 4 have the key of row 0; row 3 that of row 2, which has their identity alone.
        assert_eq!(repeated(&[7, 7, high + 7, high + 7, 7, 9]), (3, Some((1, 0))));
        assert_eq!(repeated(&[9, high + 7, 7, high + 7]), (1, Some((3, 1))));
        assert_eq!(repeated(&[2, 3]), (0, None));
        assert_eq!(repeated(&[NULL_KEY, 3, NULL_KEY]), (0, None));
        // The first of all parts, whichever comes first.
        let (low, great) = (1 << 8, u128::from(u64::MAX));
        assert_eq!(repeated(&[great, great, low, low]), (2, Some((1, 0))));
    }

    #[test]
    fn rows_come_in_the_order_of_identities_and_are_found_by_their_first_key() {
        let folder = tempfile::tempdir().unwrap();
        let spill = SpillWriter::new(&Scratch::new(folder.path().to_owned(), 100));
        let high = 1 << 64;
        let keys = [u128::from(u64::MAX), 5, NULL_KEY, high + 5, 5, 1 << 62, 1 << 62];
        let keys = list(&spill, &keys);
        let mut rows = Vec::<u32>::new();
        let add = |some: &[u32]| {
            rows.extend(some);
            Ok(())
        };
        keys.sorted(add).unwrap();
        assert_eq!(rows, [1, 3, 4, 5, 6, 0]);
        assert_eq!(keys.nulls, (1, Some(2)));

        let mut wanted = vec![Chain::default(); PARTS];
        for key in [5_u128, 6, high + 5, 1 << 62] {
            spill.append(&mut wanted[part_of(key)], [&key.to_le_bytes()]).unwrap();
        }
        let found = keys.rows_of(&wanted, &spill).unwrap();
        let rows = |part: usize| found[part].load().unwrap();
        let numbers =
            |rows: &[u32]| rows.iter().flat_map(|row| row.to_le_bytes()).collect::<Vec<_>>();
        assert_eq!(rows(0), numbers(&[1, NO_ROW, 3]));
        assert_eq!(rows(1 << 6), numbers(&[5]));
        assert_eq!(rows(255), numbers(&[]));
    }
}
