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
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("checkpoints/store-v3-small");
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

/// Names that lie in another order, and digests that match them.
#[test]
fn p6_verify_finds_entities_in_another_order() {
    let (_folder, store) =
        store_of(&pings(40, 8), "split = { train = 1.0, val = 0.0, test = 0.0 }");
    let path = store.path().to_owned();
    let names: Vec<String> =
        (0..40).map(|entity| store.entity(entity).unwrap().to_owned()).collect();
    let second = (1..40).find(|at| names[*at].len() == names[0].len()).unwrap();
    let mut metadata = store.metadata().clone();
    drop(store);
    let mut bytes = fs::read(path.join("entities.bin")).unwrap();
    let place =
        |name: &str| bytes.windows(name.len()).position(|at| at == name.as_bytes()).unwrap();
    let places = [place(&names[0]), place(&names[second])];
    for (place, name) in places.into_iter().zip([&names[second], &names[0]]) {
        bytes[place..place + name.len()].copy_from_slice(name.as_bytes());
    }
    edits::repair(&mut bytes).unwrap();
    fs::write(path.join("entities.bin"), &bytes).unwrap();
    let file = metadata.files.iter_mut().find(|file| file.path == "entities.bin").unwrap();
    file.digest = Digest(bytes[32..64].try_into().unwrap());
    fs::write(path.join("metadata.json"), metadata.encode().unwrap()).unwrap();
    let error = EventStore::open(&path).unwrap().verify(&|_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("not in the order of digests"), "{error}");
}
