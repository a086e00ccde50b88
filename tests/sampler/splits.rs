//! The splits of a store larger than one run of groups, against the rule itself.

use std::sync::Arc;

use headwater::ErrorKind;
use headwater::plan::{Split, SplitRatios, SplitRule};
use headwater::random::name_identity;
use headwater::sampler::{Sampler, Settings, Shape, Speed};
use headwater::store::{Cell, Store};

use crate::database::{Database, Value};
use crate::{PLAIN, sampler, small, stores};

/// More than two runs of 8,192 seeds.
const ROWS: u32 = 20_000;

const SCHEMA: &str = r#"
database = "large"

[[table]]
name = "t"
key = "id"
columns = { id = "identifier", size = "numerical" }

[[task]]
name = "size"
cell = { table = "t", column = "size" }
sees_everything = true

[[task]]
name = "hashed"
derived = { anchor = "t", source = "later", key = "id", time = "at", target = "is_large", type = "boolean" }

[[task]]
name = "recorded"
derived = { anchor = "t", source = "later", key = "id", time = "at", target = "is_large", type = "boolean", split = "split" }
"#;

/// A seed and row in eleven has no target; each row but a few has two seeds.
fn store() -> (tempfile::TempDir, Arc<Store>) {
    let or_null = |row: u32, value| if row % 11 == 3 { Value::Null } else { value };
    let size = |row| or_null(row, Value::Number(f64::from(row % 1000)));
    let truth = |seed| or_null(seed, Value::Truth(seed % 3 == 0));
    let split = |seed| Split::ALL[(seed as usize / 7) % 3].name().to_owned();
    let rows = vec![
        ("id", (0..ROWS).map(|row| Value::Integer(row.into())).collect()),
        ("size", (0..ROWS).map(size).collect()),
    ];
    let seeds = || 0..2 * ROWS - 500;
    let later = vec![
        ("id", seeds().map(|seed| Value::Integer((seed % ROWS).into())).collect()),
        ("at", seeds().map(|seed| Value::Time(seed.into())).collect()),
        ("is_large", seeds().map(truth).collect()),
        ("split", seeds().map(|seed| Value::Word(split(seed))).collect()),
    ];
    let database = Database::new(SCHEMA, [("t", rows), ("later", later)]);
    let (folder, store) = stores::store_of(&database, &[usize::MAX]);
    (folder, Arc::new(store))
}

/// The rows and times of the seeds of a split, in the order of a pass.
fn served(sampler: &Sampler, split: Split) -> Vec<(u32, i64)> {
    let mut seeds = Vec::new();
    for batch in sampler.evaluate(split, None).unwrap() {
        let batch = batch.unwrap();
        let rows = batch.get::<u32>("seed_row").unwrap().iter();
        let of_sequences = rows.zip(batch.get::<i64>("obs_time").unwrap());
        let weights = batch.get::<f32>("seq_weight").unwrap();
        let real = of_sequences.zip(weights).filter(|(_, weight)| **weight > 0.0);
        seeds.extend(real.map(|((row, time), _)| (*row, *time)));
    }
    seeds
}

#[test]
fn p5_recorded_groups_give_the_splits_of_the_rule_in_the_order_of_the_seeds() {
    let (_folder, store) = store();
    // By the groups of the store, by a hash of each seed, and with splits of few buckets.
    for (seed, [train, val, test], require_label) in [
        (123, [0.8, 0.1, 0.1], false),
        (123, [0.8, 0.1, 0.1], true),
        (123, [0.001, 0.0, 0.999], true),
        (4, [0.8, 0.1, 0.1], true),
        (4, [0.3, 0.7, 0.0], false),
    ] {
        for task in store.tasks() {
            let name = &task.metadata().name;
            let rule = SplitRule { seed, ratios: SplitRatios::new(train, val, test).unwrap() };
            let shape = Shape { batch_size: 1000, max_rows: 1, ..small(1).shape };
            let tasks = Some(vec![name.clone()]);
            let settings =
                Settings { tasks, split: rule, require_label, shape, ..Settings::default() };
            let sampler = sampler(&store, &settings, (0, 1), PLAIN).unwrap();
            let anchor = &store.tables()[0];
            let split_of = |row| rule.split_of(name_identity(name), anchor.identity(row).unwrap());
            let seeds: Vec<_> = (0..task.metadata().seed_count)
                .map(|seed_index| task.seed(anchor, seed_index).unwrap())
                .filter(|seed| !require_label || seed.target != Cell::Null)
                .collect();
            for split in Split::ALL {
                let is_in = |seed: &&headwater::store::Seed| {
                    seed.split.unwrap_or_else(|| split_of(seed.row)) == split
                };
                let expected = seeds.iter().filter(is_in).map(|seed| (seed.row, seed.obs_time));
                let found = served(&sampler, split);
                assert!(found.iter().copied().eq(expected), "{name} {split:?} of {rule:?}");
                assert_eq!(sampler.seed_count(0, split), found.len() as u64);
            }
        }
    }
}

/// The start of the groups in the file of a task, which `container/FORMAT.md` describes.
fn start_of_groups(bytes: &[u8]) -> usize {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (count, table) = (number(12) & 0xffff_ffff, number(16));
    let mut entries = (0..count).map(|entry| table + 64 * entry);
    let entry = entries.find(|&at| bytes[at..].starts_with(b"groups\0")).unwrap();
    number(entry + 24)
}

#[test]
fn p5_p6_a_pass_over_damaged_groups_ends_in_an_error_and_loses_no_batch() {
    let (folder, store) = store();
    let file = folder.path().join("store/tasks/hashed.bin");
    let intact = std::fs::read(&file).unwrap();
    let first = start_of_groups(&intact);
    let shape = Shape { batch_size: 700, max_rows: 1, ..small(1).shape };
    let settings = Settings { tasks: Some(vec!["hashed".into()]), shape, ..Settings::default() };
    drop(store);
    // One bit of the block of each run, and of none.
    let runs = (2 * ROWS as usize - 500).div_ceil(8192);
    for damaged in (0..runs).map(Some).chain([None]) {
        let mut bytes = intact.clone();
        if let Some(run) = damaged {
            bytes[first + run * 16_384 + 100] ^= 1;
        }
        // A new file, since the old one is mapped.
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, bytes).unwrap();
        for prefetch in [0, 1, 3] {
            let store = Arc::new(Store::open(&folder.path().join("store")).unwrap());
            let speed = Speed { threads: Some(2), prefetch };
            let sampler = sampler(&store, &settings, (0, 1), speed).unwrap();
            let (mut seeds, mut failed) = (0, false);
            for batch in sampler.evaluate(Split::Train, None).unwrap() {
                match batch {
                    Ok(batch) => {
                        assert!(!failed);
                        let weights = batch.get::<f32>("seq_weight").unwrap();
                        seeds += weights.iter().filter(|&&weight| weight > 0.0).count() as u64;
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt);
                        failed = true;
                        break;
                    }
                }
            }
            assert_eq!(failed, damaged.is_some(), "{damaged:?}, prefetch {prefetch}");
            assert!(failed || seeds == sampler.seed_count(0, Split::Train));
        }
    }
}
