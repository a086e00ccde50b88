//! The splits of the seeds for which the store records none: those of pools, and those by another split
//! seed than the store's.
//!
//! A hash for each seed finds them. Of many seeds the result is kept in a file beside the store, so that the
//! next sampler reads it in a hundredth of the time. The file is speed alone: one that is missing, damaged or
//! of other settings is made again, and one that cannot be written is not. `FORMAT.md` has its bytes.

use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::subset::{Bits, Subset};
use crate::bytes::Digest;
use crate::durable::{Disk, Lease, write_file};
use crate::error::Result;
use crate::files::try_read;
use crate::plan::{Split, SplitRule};
use crate::store::Store;

/// The seeds whose splits are found together: those of a word of a set.
const TOGETHER: usize = 64;
/// How many words of a set one piece of parallel work fills.
const WORDS_AT_A_TIME: usize = 256;
/// The splits of fewer seeds are found in less time than a file takes.
const KEPT_SEEDS_MIN: u32 = 1 << 22;
/// The words of a kept division that are found again, spread over all, before it is used.
const WORDS_TRIED: usize = 64;

const MAGIC: [u8; 8] = *b"HWSPLIT\0";
const VERSION: u64 = 1;
const DIGEST_BYTES: usize = 32;
/// After the path of the store.
const FOLDER_END: &str = ".splits";
const FILE_END: &str = ".split";
/// So much of a digest is in a file's name.
const NAME_DIGITS: usize = 16;

/// For each split a bit of each of [`TOGETHER`] seeds that follow each other.
type Word = [u64; 3];

/// Finds the splits of seeds that follow each other, at most [`TOGETHER`]; those that it gives none are left
/// out.
pub(super) trait SplitsOf:
    Fn(Range<u32>, &mut [Option<Split>]) -> Result<()> + Sync
{
}

impl<F: Fn(Range<u32>, &mut [Option<Split>]) -> Result<()> + Sync> SplitsOf for F {}

/// Some seeds to divide, and all that decides their splits.
pub(super) struct Division<'a> {
    pub store: &'a Store,
    /// `task`, or `pool:table`.
    pub name: &'a str,
    pub seed_count: u32,
    pub rule: &'a SplitRule,
    /// The settings that leave seeds out.
    pub left_out: String,
}

impl Division<'_> {
    /// Divides the seeds into the three splits.
    ///
    /// # Cost
    /// A hash for each seed, in parallel, or the read of 3 bits for each.
    pub(super) fn subsets(&self, splits_of: impl SplitsOf) -> Result<[Subset; 3]> {
        self.subsets_kept_from(KEPT_SEEDS_MIN, splits_of)
    }

    /// Divides the seeds; keeps the splits of at least `kept_min`.
    fn subsets_kept_from(&self, kept_min: u32, splits_of: impl SplitsOf) -> Result<[Subset; 3]> {
        let file = (self.seed_count >= kept_min).then(|| self.file()).flatten();
        if let Some(words) = file.as_ref().and_then(|path| self.read(path))
            && self.are_right(&words, &splits_of)?
        {
            return Ok(subsets(&words));
        }
        let words = self.divided(&splits_of)?;
        if let Some(path) = file {
            self.keep(&path, &words);
        }
        Ok(subsets(&words))
    }

    fn divided(&self, splits_of: &impl SplitsOf) -> Result<Vec<Word>> {
        let mut words = vec![[0; 3]; self.word_count()];
        words.par_chunks_mut(WORDS_AT_A_TIME).enumerate().try_for_each(|(piece, words)| {
            let numbers = piece * WORDS_AT_A_TIME..;
            words.iter_mut().zip(numbers).try_for_each(|(word, number)| {
                *word = self.word(number, splits_of)?;
                Ok(())
            })
        })?;
        Ok(words)
    }

    fn word_count(&self) -> usize {
        (self.seed_count as usize).div_ceil(TOGETHER)
    }

    /// Finds the splits of the seeds of a word.
    fn word(&self, number: usize, splits_of: &impl SplitsOf) -> Result<Word> {
        let first = number * TOGETHER;
        let seeds = first as u32..(first + TOGETHER).min(self.seed_count as usize) as u32;
        let mut splits = [None; TOGETHER];
        splits_of(seeds.clone(), &mut splits[..seeds.len()])?;
        let bits_of = |of: Split| {
            let bits =
                (splits.iter().enumerate()).map(|(at, split)| u64::from(*split == Some(of)) << at);
            bits.fold(0, |word, bit| word | bit)
        };
        Ok(Split::ALL.map(bits_of))
    }

    /// Whether words that were read are those that would be found.
    fn are_right(&self, words: &[Word], splits_of: &impl SplitsOf) -> Result<bool> {
        let step = words.len().div_ceil(WORDS_TRIED).max(1);
        let last = words.len().checked_sub(1);
        for number in (0..words.len()).step_by(step).chain(last) {
            if self.word(number, splits_of)? != words[number] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns all that decides the splits, as a text.
    fn facts(&self) -> String {
        let Self { store, name, seed_count, rule, left_out } = self;
        let mut facts = format!("root {}\nof {name}\nseeds {seed_count}\n", store.root());
        let ratios = Split::ALL.map(|split| rule.ratios.bucket_count(split));
        // Writing to a string cannot fail.
        let _ = write!(facts, "split seed {}\nsplit ratios {ratios:?}\n{left_out}\n", rule.seed);
        facts
    }

    /// Returns the file of the division; none for a store that is a copy in memory.
    fn file(&self) -> Option<PathBuf> {
        if self.store.is_copy() {
            return None;
        }
        let store = fs::canonicalize(self.store.path()).ok()?;
        let mut folder = store.file_name()?.to_owned();
        folder.push(FOLDER_END);
        let own = Digest::of(self.facts().as_bytes()).to_string();
        let name = format!("{}-{}{FILE_END}", self.root_in_name(), &own[..NAME_DIGITS]);
        Some(store.with_file_name(folder).join(name))
    }

    fn root_in_name(&self) -> String {
        self.store.root().to_string()[..NAME_DIGITS].to_owned()
    }

    /// Returns the bytes before the words.
    fn heading(&self) -> Vec<u8> {
        let facts = self.facts();
        let mut bytes = MAGIC.to_vec();
        for number in [VERSION, facts.len() as u64] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(facts.as_bytes());
        bytes
    }

    /// Reads the words of a file; none if it is not intact, or of another division.
    fn read(&self, path: &Path) -> Option<Vec<Word>> {
        let bytes = try_read(path).ok()?;
        let (content, digest) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST_BYTES)?)?;
        let words = content.strip_prefix(&self.heading()[..])?;
        let fits = words.len() == self.word_count() * size_of::<Word>();
        let is_intact = fits && Digest::of(content).0 == digest;
        let words = words.chunks_exact(size_of::<Word>());
        is_intact.then(|| words.map(bytemuck::pod_read_unaligned).collect())
    }

    /// Writes the words beside the store, if this process can.
    fn keep(&self, path: &Path, words: &[Word]) {
        let Some(folder) = path.parent() else { return };
        let is_new = fs::create_dir(folder).is_ok();
        let mut bytes = self.heading();
        bytes.extend_from_slice(bytemuck::cast_slice(words));
        let digest = Digest::of(&bytes);
        bytes.extend(digest.0);
        // Of processes that start together one writes.
        let lease = Lease::of(&path.with_extension("lock"));
        if matches!(lease, Ok(Some(_))) {
            self.remove_others(folder);
            let _ = write_file(&Disk, path, &bytes);
        }
        drop(lease);
        if is_new {
            // Only if nothing could be written.
            let _ = fs::remove_dir(folder);
        }
    }

    /// Removes the divisions of the stores that were at this path before.
    fn remove_others(&self, folder: &Path) {
        let own = self.root_in_name();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let root = name.to_str().and_then(|name| name.strip_suffix(FILE_END)?.split_once('-'));
            if root.is_some_and(|(root, _)| root != own) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Returns the set of the seeds of each split.
fn subsets(words: &[Word]) -> [Subset; 3] {
    let of_split = |split| words.iter().map(|of| of[split as usize]).collect();
    Split::ALL.map(|split| Subset::Bits(Bits::new(of_split(split))))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tempfile::TempDir;

    use super::*;
    use crate::plan::SplitRatios;

    const SEEDS: u32 = 300;
    const LABELLED: &str = "label required false";

    /// A store in a folder of its own.
    fn store_in(folder: &TempDir) -> Store {
        let path = folder.path().join("shop.db");
        let from = Path::new("checkpoints/store-v4-small");
        for inner in ["", "tables", "tasks"] {
            fs::create_dir(path.join(inner)).unwrap();
            for entry in fs::read_dir(from.join(inner)).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_file() {
                    fs::copy(entry.path(), path.join(inner).join(entry.file_name())).unwrap();
                }
            }
        }
        Store::open(&path).unwrap()
    }

    fn division<'a>(store: &'a Store, rule: &'a SplitRule) -> Division<'a> {
        let left_out = LABELLED.to_owned();
        Division { store, name: "size", seed_count: SEEDS, rule, left_out }
    }

    /// Divides the seeds by the rule without every seventh; returns how many splits were found, and the seeds
    /// of each split.
    fn divide(division: &Division<'_>) -> (u32, [Vec<u32>; 3]) {
        let found = AtomicU32::new(0);
        let subsets = division.subsets_kept_from(1, |seeds, splits| {
            found.fetch_add(seeds.len() as u32, Ordering::Relaxed);
            for (seed, split) in seeds.zip(splits) {
                let of = division.rule.split_of(1, u64::from(seed));
                *split = (seed % 7 > 0).then_some(of);
            }
            Ok(())
        });
        let seeds =
            |subset: &Subset| (0..subset.count()).map(|at| subset.at(at).unwrap()).collect();
        (found.into_inner(), subsets.unwrap().each_ref().map(seeds))
    }

    fn kept(folder: &TempDir) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder.path().join("shop.db.splits")).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    #[test]
    fn p1_splits_that_were_kept_are_those_that_are_found() {
        let folder = TempDir::new().unwrap();
        let store = store_in(&folder);
        let rule = SplitRule { seed: 4, ..SplitRule::default() };
        let mut division = division(&store, &rule);
        // More words than are tried.
        division.seed_count = 100 * TOGETHER as u32 + 3;
        let (found, seeds) = divide(&division);
        assert_eq!(found, division.seed_count);
        assert_eq!(kept(&folder).len(), 1);
        let (tried, again) = divide(&division);
        assert_eq!(again, seeds);
        assert!(0 < tried && tried < found, "{tried} of {found}");
        store.verify(&|_| Ok(())).unwrap();
    }

    #[test]
    fn p6_splits_of_other_settings_are_not_used() {
        let folder = TempDir::new().unwrap();
        let store = store_in(&folder);
        let rule = SplitRule { seed: 4, ..SplitRule::default() };
        divide(&division(&store, &rule));
        let other_seed = SplitRule { seed: 5, ..rule };
        let ratios = SplitRatios::new(0.5, 0.25, 0.25).unwrap();
        let other_ratios = SplitRule { ratios, ..rule };
        let name = "pool:size";
        let left_out = "label required true".to_owned();
        let others = [
            division(&store, &other_seed),
            division(&store, &other_ratios),
            Division { name, ..division(&store, &rule) },
            Division { seed_count: SEEDS - 1, ..division(&store, &rule) },
            Division { left_out, ..division(&store, &rule) },
        ];
        for (number, other) in others.iter().enumerate() {
            assert_eq!(divide(other).0, other.seed_count, "{number}");
        }
        assert_eq!(kept(&folder).len(), 1 + others.len());
        // One that has the name of another.
        let [first, second] = [0, 1].map(|number| others[number].file().unwrap());
        fs::copy(second, first).unwrap();
        assert_eq!(divide(&others[0]).0, SEEDS);
    }

    #[test]
    fn p6_damaged_splits_are_found_anew() {
        let folder = TempDir::new().unwrap();
        let store = store_in(&folder);
        let rule = SplitRule { seed: 4, ..SplitRule::default() };
        let division = division(&store, &rule);
        let (_, seeds) = divide(&division);
        let path = &kept(&folder)[0];
        let intact = fs::read(path).unwrap();
        let check = |bytes: &[u8], tried: u32| {
            fs::write(path, bytes).unwrap();
            assert_eq!(divide(&division), (tried + SEEDS, seeds.clone()));
            assert_eq!(fs::read(path).unwrap(), intact);
        };
        for at in (0..intact.len()).step_by(3) {
            let mut damaged = intact.clone();
            damaged[at] ^= 1 << (at % 8);
            check(&damaged, 0);
        }
        (0..intact.len()).step_by(20).for_each(|length| check(&intact[..length], 0));
        // Under digests that fit: words that another rule gave, a word more, and one less.
        let (content, _) = intact.split_at(intact.len() - DIGEST_BYTES);
        let with_digest = |content: &[u8]| [content, &Digest::of(content).0].concat();
        let mut wrong = content.to_vec();
        *wrong.last_mut().unwrap() ^= 1;
        check(&with_digest(&wrong), SEEDS);
        check(&with_digest(&[content, &[0; size_of::<Word>()]].concat()), 0);
        check(&with_digest(&content[..content.len() - size_of::<Word>()]), 0);
    }

    #[test]
    fn splits_that_cannot_be_kept_are_found() {
        let folder = TempDir::new().unwrap();
        let store = store_in(&folder);
        let rule = SplitRule { seed: 4, ..SplitRule::default() };
        let division = division(&store, &rule);
        fs::write(folder.path().join("shop.db.splits"), "in the way").unwrap();
        assert_eq!(divide(&division).0, SEEDS);
        assert_eq!(divide(&division).0, SEEDS);
        fs::remove_file(folder.path().join("shop.db.splits")).unwrap();
        // Too few to keep.
        let found = division.subsets(|_, splits| {
            splits.fill(Some(Split::Val));
            Ok(())
        });
        assert_eq!(found.unwrap()[1].count(), u64::from(SEEDS));
        assert!(!folder.path().join("shop.db.splits").exists());
        // Another process writes them.
        fs::create_dir(folder.path().join("shop.db.splits")).unwrap();
        let lock = division.file().unwrap().with_extension("lock");
        let lease = Lease::of(&lock).unwrap().unwrap();
        assert_eq!(divide(&division).0, SEEDS);
        assert_eq!(kept(&folder), [lock]);
        drop(lease);
        assert_eq!(divide(&division).0, SEEDS);
        assert_eq!(kept(&folder), [division.file().unwrap()]);
    }

    #[test]
    fn splits_of_a_store_that_was_replaced_are_removed() {
        let folder = TempDir::new().unwrap();
        let store = store_in(&folder);
        let rule = SplitRule { seed: 4, ..SplitRule::default() };
        let division = division(&store, &rule);
        let path = division.file().unwrap();
        fs::create_dir(path.parent().unwrap()).unwrap();
        let of_another = path.with_file_name("0123456789abcdef-0123456789abcdef.split");
        let notes = path.with_file_name("notes.txt");
        fs::write(&of_another, "").unwrap();
        fs::write(&notes, "").unwrap();
        divide(&division);
        let mut expected = [path, notes];
        expected.sort();
        assert_eq!(kept(&folder), expected);
    }
}
