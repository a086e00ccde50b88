//! Damage of every kind is reported or never read; it causes no panic and no wrong row.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use headwater::events::{EventSettings, EventStore, EventsMetadata, SplitCounts};
use headwater::plan::Split;
use headwater::{Digest, Error, ErrorKind};

use crate::edits;
use crate::pings::pings;
use crate::{files, rows_of, sampler, store_of};

/// The rows of a store's streams, or the errors of reading them.
fn everything(store: &Arc<EventStore>) -> Vec<Result<Vec<u8>, Error>> {
    let settings = EventSettings { batch_size: 1, sequence_length: 96, ..EventSettings::default() };
    let one = sampler(store, &settings, 0, 1);
    let row = |split, index| one.rows(split, &[index]).map(|batch| rows_of(&batch).concat());
    let splits = [Split::Train, Split::Test];
    splits
        .into_iter()
        .flat_map(|split| (0..12).map(move |at| (split, at)))
        .map(|(split, at)| row(split, at))
        .collect()
}

fn assert_known(error: &Error, what: &str) {
    let known = [ErrorKind::NotOurs, ErrorKind::Version, ErrorKind::Corrupt, ErrorKind::Io];
    assert!(known.contains(&error.kind()), "{what}: {:?}: {error}", error.kind());
}

/// Opens the damaged store and reads rows of it; whatever is read is right, and `verify` finds the damage.
fn examine(path: &Path, whole: &[Vec<u8>], what: &str) {
    let store = match EventStore::open(path) {
        Ok(store) => Arc::new(store),
        Err(error) => return assert_known(&error, what),
    };
    for (read, whole) in everything(&store).into_iter().zip(whole) {
        match read {
            Ok(row) => assert_eq!(row, *whole, "{what}: read wrongly"),
            Err(error) => assert_known(&error, what),
        }
    }
    assert_known(&store.verify(&|_| Ok(())).expect_err(what), what);
}

#[test]
fn p5_a_pass_ends_at_a_batch_that_cannot_be_made() {
    let (_folder, store) =
        store_of(&pings(12, 8), "split = { train = 0.6, val = 0.1, test = 0.3 }");
    let settings = EventSettings { batch_size: 1, sequence_length: 96, ..EventSettings::default() };
    let path = store.path().to_owned();
    let count = sampler(&store, &settings, 0, 1).evaluate(Split::Train).unwrap().count();
    drop(store);
    let (mut ended, mut unharmed) = (0, 0);
    for (name, bytes) in files(&path) {
        let mut damaged = bytes.clone();
        let last = damaged.len() - 1;
        damaged[last / 2] ^= 1;
        fs::write(path.join(&name), &damaged).unwrap();
        if let Ok(store) = EventStore::open(&path) {
            let one = sampler(&Arc::new(store), &settings, 0, 1);
            let mut pass = one.evaluate(Split::Train).unwrap();
            let good = pass.by_ref().take(count).take_while(Result::is_ok).count();
            if good < count {
                ended += 1;
                for _ in 0..3 {
                    let error = pass.next().expect("no end without a word").err().unwrap();
                    assert!(error.to_string().contains("begin another pass"), "{name}: {error}");
                }
            } else {
                unharmed += 1;
            }
        }
        fs::write(path.join(&name), &bytes).unwrap();
    }
    assert!(ended > 0, "no damage was read, {unharmed} stores are as good as whole");
}

#[test]
fn p6_no_silent_change_of_an_event_store() {
    let (_folder, store) =
        store_of(&pings(12, 8), "split = { train = 0.6, val = 0.1, test = 0.3 }");
    let whole: Vec<_> = everything(&store).into_iter().map(Result::unwrap).collect();
    let path = store.path().to_owned();
    drop(store);
    for (name, bytes) in files(&path) {
        let file = path.join(&name);
        let with = |changed: &[u8], what: String| {
            fs::write(&file, changed).unwrap();
            examine(&path, &whole, &format!("{name}: {what}"));
        };
        for at in (0..bytes.len()).filter(|at| *at < 64 || name == "metadata.json" || at % 7 == 0) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            with(&changed, format!("byte {at}"));
        }
        for length in (0..bytes.len()).step_by(37) {
            with(&bytes[..length], format!("the first {length} bytes"));
        }
        with(&[&bytes[..], b"\0"].concat(), "one more byte".into());
        fs::write(&file, &bytes).unwrap();
    }
    fs::write(path.join("more"), "").unwrap();
    let store = EventStore::open(&path).unwrap();
    let error = store.verify(&|_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("the file more does not belong to this store"), "{error}");
}

#[test]
fn a_store_of_another_kind_is_rejected() {
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("checkpoints/store-v4-small");
    let error = EventStore::open(&tables).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotOurs);
    assert!(error.to_string().ends_with(
        "expected a store of events, found a store of tables; open it with headwater.Sampler or \
         headwater.Store"
    ));
    let (_folder, store) = store_of(&pings(3, 8), "");
    let error = headwater::store::Store::open(store.path()).err().unwrap();
    assert!(error.to_string().ends_with(
        "expected a store of tables, found a store of events; open it with headwater.Events"
    ));
}

type Edit = fn(&mut EventsMetadata);

/// Metadata with false counts, and a root that matches them.
#[test]
fn p6_verify_finds_false_counts() {
    let (_folder, store) =
        store_of(&pings(40, 40), "split = { train = 0.6, val = 0.1, test = 0.3 }");
    let path = store.path().to_owned();
    let whole = store.metadata().clone();
    drop(store);
    let edits: [(&str, Edit); 7] = [
        ("fewer items", |m| m.splits[0].items -= 1),
        ("more events", |m| m.splits[2].events += 1),
        ("test rows in train", |m| {
            let [train, val, test] = m.splits;
            m.splits[0] = SplitCounts {
                rows: train.rows + val.rows + test.rows,
                events: train.events + val.events + test.events,
                items: train.items + val.items + test.items,
            };
            m.splits[1] = SplitCounts::default();
            m.splits[2] = SplitCounts::default();
        }),
        ("another split", |m| m.split.seed += 1),
        ("no split", |m| m.split.per_mille = [7, 7, 7]),
        ("later first time", |m| m.first_us += 1),
        ("earlier last time", |m| m.last_us -= 1),
    ];
    for (what, edit) in edits {
        let mut metadata = whole.clone();
        edit(&mut metadata);
        fs::write(path.join("metadata.json"), metadata.encode().unwrap()).unwrap();
        let error = EventStore::open(&path).unwrap().verify(&|_| Ok(())).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
    }
}

/// Changes a file of a store, and makes the digests match it.
fn forge(path: &Path, name: &str, change: impl FnOnce(&mut [u8]), metadata: &mut EventsMetadata) {
    let mut bytes = fs::read(path.join(name)).unwrap();
    change(&mut bytes);
    edits::repair(&mut bytes).unwrap();
    fs::write(path.join(name), &bytes).unwrap();
    let file = metadata.files.iter_mut().find(|file| file.path == name).unwrap();
    file.digest = Digest(bytes[32..64].try_into().unwrap());
    fs::write(path.join("metadata.json"), metadata.encode().unwrap()).unwrap();
}

fn verified(path: &Path) -> String {
    let error = EventStore::open(path).unwrap().verify(&|_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    error.to_string()
}

/// The bytes of the first section of a file.
fn section(bytes: &[u8]) -> std::ops::Range<usize> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let table = number(16);
    let start = number(table + 24);
    start..start + number(table + 32)
}

const ALL_TRAIN: &str = "split = { train = 1.0, val = 0.0, test = 0.0 }";

/// Names that lie in another order, and digests that match them.
#[test]
fn p6_verify_finds_entities_in_another_order() {
    let (_folder, store) = store_of(&pings(40, 8), ALL_TRAIN);
    let path = store.path().to_owned();
    let names: Vec<String> =
        (0..40).map(|entity| store.entity(entity).unwrap().to_owned()).collect();
    let second = (1..40).find(|at| names[*at].len() == names[0].len()).unwrap();
    let mut metadata = store.metadata().clone();
    drop(store);
    let change = |bytes: &mut [u8]| {
        let place =
            |name: &str| bytes.windows(name.len()).position(|at| at == name.as_bytes()).unwrap();
        let places = [place(&names[0]), place(&names[second])];
        for (place, name) in places.into_iter().zip([&names[second], &names[0]]) {
            bytes[place..place + name.len()].copy_from_slice(name.as_bytes());
        }
    };
    forge(&path, "entities.bin", change, &mut metadata);
    let message = verified(&path);
    assert!(message.contains("not in the order of digests"), "{message}");
}

/// Rows and events that no log gives, and digests that match them.
#[test]
fn p6_verify_finds_forged_rows_and_events() {
    let (_folder, store) = store_of(&pings(6, 120), &format!("{ALL_TRAIN}\nrow_bytes = 1024"));
    let path = store.path().to_owned();
    let whole = store.metadata().clone();
    drop(store);
    let files = files(&path);
    let records = &files["rows.bin"][section(&files["rows.bin"])];
    let field = |row: usize, at: usize| {
        u32::from_le_bytes(records[32 * row + at..][..4].try_into().unwrap()) as usize
    };
    assert_eq!([field(0, 20), field(1, 20)], [0, 1], "the first entity has two rows");
    let count = field(0, 24);
    let is_v4 = records[30] == 4;
    let (head, event) = if is_v4 { (4, 16) } else { (16, 28) };
    let event_at = |index: usize| section(&files["events.bin"]).start + head + event * index;
    let later = whole.last_us + (1 << 32) * 1_000_000;
    let part = section(&files["rows.bin"]).start + 32 + 20;
    let code = event_at(1) - 2;
    let time = event_at(count - 1);
    let cases: [(&str, &str, usize, Vec<u8>); 4] = [
        ("its part of it, does not follow", "rows.bin", part, vec![2, 0, 0, 0]),
        ("its part of it, does not follow", "rows.bin", part, vec![0, 0, 0, 0]),
        ("a value that the codec does not write", "events.bin", code, vec![0, 8]),
        ("not in the order of time", "events.bin", time, later.to_le_bytes().to_vec()),
    ];
    for (expected, name, at, new) in cases {
        let mut metadata = whole.clone();
        // So that only the span of the row is wrong.
        metadata.last_us = metadata.last_us.max(later);
        let change = |bytes: &mut [u8]| bytes[at..at + new.len()].copy_from_slice(&new);
        forge(&path, name, change, &mut metadata);
        let message = verified(&path);
        assert!(message.contains(expected), "{expected}: {message}");
        fs::write(path.join(name), &files[name]).unwrap();
    }
}
