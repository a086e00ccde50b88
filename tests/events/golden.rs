//! The golden event stores in `checkpoints/`: this build prepares and reads them.
//!
//! `HEADWATER_REGENERATE=1 cargo test --release --test events golden` writes them again.

use std::path::Path;
use std::sync::Arc;

use headwater::events::{EventSettings, EventStore, FORMAT_VERSION};
use headwater::plan::Split;

use crate::manifest::{Golden, folder, is_asked_to_regenerate, manifest, regenerate};
use crate::payments::{FIELDS, payments, prepared};
use crate::pings::pings;
use crate::{files, rows_of, sampler, store_of};

const SPLIT: &str = "split = { train = 0.7, val = 0.1, test = 0.2 }";

/// The golden store `name`, of which `prepared` is made today.
fn check_golden(name: &str, what: &str, prepared: &Path) {
    let files_of_today = files(prepared);
    if is_asked_to_regenerate() {
        let goldens: Vec<_> = files_of_today
            .iter()
            .map(|(file, bytes)| Golden {
                name: format!("{name}/{file}"),
                what: what.into(),
                bytes,
                message: None,
            })
            .collect();
        regenerate("tests/events/golden.rs", &goldens);
    }
    EventStore::open(&folder().join(name)).unwrap().verify(&|_| Ok(())).unwrap();
    let golden = files(&folder().join(name));
    assert!(golden.keys().eq(files_of_today.keys()));
    for (file, bytes) in &golden {
        assert!(*bytes == files_of_today[file], "{file} is prepared otherwise than before");
        let entry = &manifest()[&format!("{name}/{file}")];
        assert_eq!(entry["digest"].as_str(), Some(crate::manifest::digest(bytes).as_str()));
    }
}

#[test]
fn p6_golden_event_store_is_read_and_prepared_with_the_same_bytes() {
    let (_folder, store) = store_of(&pings(30, 20), SPLIT);
    let name = format!("events-v{FORMAT_VERSION}-small");
    check_golden(&name, "30 probes of tests/shared/pings.rs", store.path());
}

#[test]
fn p6_golden_store_of_fields_is_read_and_prepared_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = prepared(folder.path(), &payments(30, 20), (FIELDS, SPLIT), None).unwrap();
    let name = format!("events-v{FORMAT_VERSION}-fields");
    check_golden(&name, "30 cards of tests/shared/payments.rs", &out);
}

/// The digest of the first rows of each stream; another program can make it by `events/FORMAT.md`.
fn digest_of_rows(name: &str) -> String {
    let store = Arc::new(EventStore::open(&folder().join(name)).unwrap());
    let mut hasher = blake3::Hasher::new();
    for packing in [true, false] {
        let settings = EventSettings { batch_size: 16, packing, ..EventSettings::default() };
        let one = sampler(&store, &settings, 0, 1);
        for split in [Split::Train, Split::Test] {
            for _ in 0..4 {
                rows_of(&one.next(split).unwrap().0).iter().for_each(|row| {
                    hasher.update(row);
                });
            }
        }
    }
    hasher.finalize().to_hex().to_string()
}

#[test]
fn p1_golden_rows_are_the_same_on_every_machine() {
    assert_eq!(
        digest_of_rows("events-v1-small"),
        "1fb51d786c4d4a14924886bd70e70f11ef8645c94b2374ec7ccd2a28804354ac"
    );
    assert_eq!(
        digest_of_rows("events-v1-fields"),
        "4cec397568230bef9adea30b6204c89954935cf013acfed90067d3eb65908a74"
    );
}
