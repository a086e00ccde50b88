//! The splits of seeds for which the store records none: those of pools, and those of tasks by another split
//! seed than the store's. A hash for each seed finds its split.

use std::ops::Range;

use rayon::prelude::*;

use super::kept_splits::{KeptSplits, Word};
use super::subset::{Bits, Subset};
use crate::error::Result;
use crate::plan::{Split, SplitRule};
use crate::store::Store;

/// The seeds whose splits are found together: those of a word of a set.
const TOGETHER: usize = 64;
/// How many words of a set one piece of parallel work fills.
const WORDS_AT_A_TIME: usize = 256;
/// The splits of fewer seeds take less time to find than to read.
const KEPT_SEEDS_MIN: u32 = 1 << 22;
/// The words of kept splits that are found again, spread over all, before these are used.
const WORDS_TRIED: usize = 64;
/// The version of the rule by which seeds get their splits and by which seeds are left out. Raise it when
/// `bucket_of`, `is_visible` or a setting gets another meaning, so that splits which were kept before are not
/// used.
const RULE: u32 = 1;

/// Writes the splits of seeds that follow each other, at most 64. Seeds that get none are left out.
pub(super) trait SplitsOf:
    Fn(Range<u32>, &mut [Option<Split>]) -> Result<()> + Sync
{
}

impl<F: Fn(Range<u32>, &mut [Option<Split>]) -> Result<()> + Sync> SplitsOf for F {}

/// The seeds of a task or a pool, and the settings that decide their splits.
pub(super) struct Division<'a> {
    pub store: &'a Store,
    /// `task`, or `pool:table`.
    pub name: &'a str,
    pub seed_count: u32,
    pub rule: &'a SplitRule,
    /// The settings that leave seeds out, as lines.
    pub left_out: String,
}

impl Division<'_> {
    /// Divides the seeds into the three splits.
    ///
    /// # Cost
    /// A hash for each seed, in parallel. Of many seeds the splits are kept in a file: then a read of 3 bits
    /// for each.
    pub(super) fn subsets(&self, splits_of: impl SplitsOf) -> Result<[Subset; 3]> {
        self.subsets_kept_from(KEPT_SEEDS_MIN, splits_of)
    }

    /// Divides the seeds; keeps the splits of at least `kept_min`.
    fn subsets_kept_from(&self, kept_min: u32, splits_of: impl SplitsOf) -> Result<[Subset; 3]> {
        let kept = match self.seed_count >= kept_min {
            true => KeptSplits::of(self.store, &self.facts(), self.word_count()),
            false => None,
        };
        if let Some(words) = kept.as_ref().and_then(KeptSplits::read)
            && self.are_right(&words, &splits_of)?
        {
            return Ok(subsets(&words));
        }
        let words = self.find(&splits_of)?;
        if let Some(kept) = kept {
            kept.write(&words);
        }
        Ok(subsets(&words))
    }

    /// Returns what decides the splits, a line for each fact.
    fn facts(&self) -> String {
        let Self { store, name, seed_count, rule: SplitRule { seed, ratios }, left_out } = self;
        let [train, val, test] = Split::ALL.map(|split| ratios.bucket_count(split));
        let root = store.root();
        format!(
            "rule {RULE}\nroot {root}\nof {name}\nseeds {seed_count}\nsplit seed {seed}\n\
             split buckets {train} {val} {test}\n{left_out}\n"
        )
    }

    fn word_count(&self) -> usize {
        (self.seed_count as usize).div_ceil(TOGETHER)
    }

    fn find(&self, splits_of: &impl SplitsOf) -> Result<Vec<Word>> {
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

    /// Finds the splits of the seeds of a word.
    fn word(&self, number: usize, splits_of: &impl SplitsOf) -> Result<Word> {
        let first = number * TOGETHER;
        let seeds = first as u32..(first + TOGETHER).min(self.seed_count as usize) as u32;
        let mut splits = [None; TOGETHER];
        splits_of(seeds.clone(), &mut splits[..seeds.len()])?;
        let mut word = [0; 3];
        for (place, split) in splits.iter().enumerate() {
            for (bits, of) in word.iter_mut().zip(Split::ALL) {
                *bits |= u64::from(*split == Some(of)) << place;
            }
        }
        Ok(word)
    }

    /// Whether some of the words are those that are found.
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
}

/// Returns the set of the seeds of each split.
fn subsets(words: &[Word]) -> [Subset; 3] {
    let of_split = |split| words.iter().map(|of| of[split as usize]).collect();
    Split::ALL.map(|split| Subset::Bits(Bits::new(of_split(split))))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    use tempfile::TempDir;

    use super::*;
    use crate::bytes::Digest;
    use crate::plan::SplitRatios;
    use crate::store::Change;

    const SEEDS: u32 = 300;

    /// A store in a folder of its own.
    struct Folder {
        folder: TempDir,
        store: Store,
    }

    impl Folder {
        fn new() -> Self {
            let folder = TempDir::new().unwrap();
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
            Self { store: Store::open(&path).unwrap(), folder }
        }

        fn splits(&self) -> PathBuf {
            self.folder.path().join("shop.db.splits")
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.splits()).unwrap();
            let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
            let mut names: Vec<_> = entries.map(|entry| name(entry.unwrap())).collect();
            names.sort();
            names
        }

        /// The path of the only file.
        fn file(&self) -> PathBuf {
            let names = self.names();
            assert_eq!(names.len(), 1, "{names:?}");
            self.splits().join(&names[0])
        }
    }

    fn rule(seed: u64) -> SplitRule {
        SplitRule { seed, ..SplitRule::default() }
    }

    fn division<'a>(store: &'a Store, rule: &'a SplitRule) -> Division<'a> {
        let left_out = "label required false".to_owned();
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

    #[test]
    fn p1_splits_that_were_kept_are_those_that_are_found() {
        let folder = Folder::new();
        let rule = rule(4);
        let mut division = division(&folder.store, &rule);
        // More words than are tried.
        division.seed_count = 100 * TOGETHER as u32 + 3;
        let (found, seeds) = divide(&division);
        assert_eq!(found, division.seed_count);
        let file = folder.file();
        let (tried, again) = divide(&division);
        assert_eq!(again, seeds);
        assert!(0 < tried && tried < found, "{tried} of {found}");
        assert_eq!(folder.file(), file);
        folder.store.verify(&|_| Ok(())).unwrap();
    }

    /// As `FORMAT.md` has them.
    #[test]
    fn kept_splits_have_the_bytes_of_the_format() {
        let folder = Folder::new();
        let rule = rule(4);
        let division = division(&folder.store, &rule);
        let (_, seeds) = divide(&division);
        let root = folder.store.root().to_string();
        let facts = format!(
            "rule 1\nroot {root}\nof size\nseeds 300\nsplit seed 4\nsplit buckets 800 100 100\n\
             label required false\n"
        );
        let mut expected = b"HWSPLIT\0".to_vec();
        expected.extend(1_u64.to_le_bytes());
        expected.extend((facts.len() as u64).to_le_bytes());
        expected.extend(facts.bytes());
        for group in 0..5 {
            for seeds in &seeds {
                let bits = seeds.iter().filter(|&&seed| seed / 64 == group);
                let bits = bits.fold(0_u64, |bits, seed| bits | 1 << (seed % 64));
                expected.extend(bits.to_le_bytes());
            }
        }
        expected.extend(blake3::hash(&expected).as_bytes());
        assert_eq!(fs::read(folder.file()).unwrap(), expected);
        let facts = Digest::of(facts.as_bytes()).to_string();
        assert_eq!(folder.names(), [format!("{}-{}.split", &root[..16], &facts[..16])]);
    }

    #[test]
    fn p6_splits_of_other_settings_are_not_used() {
        let folder = Folder::new();
        let (store, rule_4) = (&folder.store, rule(4));
        divide(&division(store, &rule_4));
        let first = folder.file();
        let other_seed = rule(5);
        let ratios = SplitRatios::new(0.5, 0.25, 0.25).unwrap();
        let other_ratios = SplitRule { ratios, ..rule(4) };
        let left_out = "label required true".to_owned();
        let others = [
            division(store, &other_seed),
            division(store, &other_ratios),
            Division { name: "pool:size", ..division(store, &rule_4) },
            Division { seed_count: SEEDS - 1, ..division(store, &rule_4) },
            Division { left_out, ..division(store, &rule_4) },
        ];
        for (number, other) in others.iter().enumerate() {
            assert_eq!(divide(other).0, other.seed_count, "{number}");
            assert_eq!(folder.names().len(), 2 + number);
        }
        // The file of another division by the name of this one.
        let other = folder.names().into_iter().map(|name| folder.splits().join(name));
        fs::copy(other.into_iter().find(|path| *path != first).unwrap(), first).unwrap();
        assert_eq!(divide(&division(store, &rule_4)).0, SEEDS);
    }

    #[test]
    fn p6_damaged_splits_are_found_anew() {
        let folder = Folder::new();
        let rule = rule(4);
        let division = division(&folder.store, &rule);
        let (_, seeds) = divide(&division);
        let path = folder.file();
        let intact = fs::read(&path).unwrap();
        let check = |bytes: &[u8], tried: u32| {
            fs::write(&path, bytes).unwrap();
            assert_eq!(divide(&division), (tried + SEEDS, seeds.clone()));
            assert_eq!(fs::read(&path).unwrap(), intact);
        };
        for at in (0..intact.len()).step_by(3) {
            let mut damaged = intact.clone();
            damaged[at] ^= 1 << (at % 8);
            check(&damaged, 0);
        }
        (0..intact.len()).step_by(20).for_each(|length| check(&intact[..length], 0));
        check(&[&intact[..], &[0]].concat(), 0);
        // Under digests that fit: words that another rule gave, a word more, and one less.
        let (content, _) = intact.split_at(intact.len() - 32);
        let with_digest = |content: &[u8]| [content, &Digest::of(content).0].concat();
        let mut wrong = content.to_vec();
        *wrong.last_mut().unwrap() ^= 1;
        check(&with_digest(&wrong), SEEDS);
        check(&with_digest(&[content, &[0; size_of::<Word>()]].concat()), 0);
        check(&with_digest(&content[..content.len() - size_of::<Word>()]), 0);
    }

    #[test]
    fn p6_a_changed_copy_of_a_store_keeps_no_splits() {
        let folder = Folder::new();
        let (changed, _) = folder.store.changed(&Change::Later { after: 0 }, 1).unwrap();
        assert_eq!(changed.root(), folder.store.root());
        assert_eq!(divide(&division(&changed, &rule(4))).0, SEEDS);
        assert!(!folder.splits().exists());
    }

    #[test]
    fn splits_that_cannot_be_kept_are_found() {
        let folder = Folder::new();
        let splits = folder.splits();
        let rule = rule(4);
        let division = division(&folder.store, &rule);
        // Too few to keep.
        let found = division.subsets(|_, splits| {
            splits.fill(Some(Split::Val));
            Ok(())
        });
        assert_eq!(found.unwrap()[1].count(), u64::from(SEEDS));
        assert!(!splits.exists());
        // A file is in the way, and a store.
        fs::write(&splits, "").unwrap();
        assert_eq!(divide(&division).0, SEEDS);
        fs::remove_file(&splits).unwrap();
        fs::create_dir(&splits).unwrap();
        fs::write(splits.join("metadata.json"), "").unwrap();
        assert_eq!(divide(&division).0, SEEDS);
        assert_eq!(folder.names(), ["metadata.json"]);
        fs::remove_file(splits.join("metadata.json")).unwrap();
        // Another process writes them.
        divide(&division);
        let file = folder.file();
        fs::remove_file(&file).unwrap();
        let lease = crate::durable::Lease::of(&file.with_extension("lock")).unwrap().unwrap();
        assert_eq!(divide(&division).0, SEEDS);
        assert!(!file.exists());
        drop(lease);
        assert_eq!(divide(&division).0, SEEDS);
        assert_eq!(folder.file(), file);
    }

    #[test]
    fn splits_of_a_store_that_was_replaced_are_removed_and_nothing_else() {
        let folder = Folder::new();
        let splits = folder.splits();
        fs::create_dir(&splits).unwrap();
        let another = "0123456789abcdef-0123456789abcdef";
        for end in ["split", "lock", "split.0.partial"] {
            let hidden = if end.ends_with("partial") { "." } else { "" };
            fs::write(splits.join(format!("{hidden}{another}.{end}")), "").unwrap();
        }
        let notes = [
            format!("{another}.txt"),
            format!("{another}0.split"),
            "0123456789abcdeg-0123456789abcdef.split".to_owned(),
            "fold-1.split".to_owned(),
            "notes.txt".to_owned(),
        ];
        notes.iter().for_each(|name| fs::write(splits.join(name), "").unwrap());
        divide(&division(&folder.store, &rule(4)));
        let names = folder.names();
        let (own, others): (Vec<_>, Vec<_>) = names
            .into_iter()
            .partition(|name| name.starts_with(&folder.store.root().to_string()[..16]));
        assert_eq!(own.len(), 1);
        assert_eq!(others, notes);
    }

    #[test]
    fn a_store_has_at_most_32_files_of_splits() {
        let folder = Folder::new();
        let mut first = None;
        for seed in 0..40 {
            divide(&division(&folder.store, &rule(seed)));
            first.get_or_insert_with(|| folder.file());
            assert_eq!(folder.names().len(), 32.min(seed as usize + 1));
        }
        assert!(!first.unwrap().exists());
    }

    /// As root, who alone may give files away.
    #[test]
    #[cfg(unix)]
    fn p6_splits_of_another_user_are_not_used() {
        use std::os::unix::fs::chown;
        let folder = Folder::new();
        let rule = rule(4);
        let division = division(&folder.store, &rule);
        divide(&division);
        let file = folder.file();
        let give = |path: &Path, user| chown(path, Some(user), None);
        if give(&file, 65_534).is_err() {
            eprintln!("skipped: only root may give files to another user");
            return;
        }
        // Written anew, with this user as owner.
        assert_eq!(divide(&division).0, SEEDS);
        fs::remove_file(&file).unwrap();
        give(&folder.splits(), 65_534).unwrap();
        assert_eq!(divide(&division).0, SEEDS);
        assert!(folder.names().is_empty());
        // The store is another user's.
        give(&folder.splits(), 0).unwrap();
        give(&folder.store.path().join("metadata.json"), 65_534).unwrap();
        assert_eq!(divide(&division).0, SEEDS);
        assert!(folder.names().is_empty());
    }
}
