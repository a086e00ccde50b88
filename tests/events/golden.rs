//! The golden event store in `checkpoints/`: this build prepares and reads it.
//!
//! `HEADWATER_REGENERATE=1 cargo test --release --test events golden` writes it again.

use headwater::events::{EventSettings, EventStore, FORMAT_VERSION};
use headwater::plan::Split;

use crate::manifest::{Golden, folder, is_asked_to_regenerate, manifest, regenerate};
use crate::pings::pings;
use crate::{files, rows_of, sampler, store_of};

#[test]
fn p6_golden_event_store_is_read_and_prepared_with_the_same_bytes() {
    let (_folder, prepared) =
        store_of(&pings(30, 20), "split = { train = 0.7, val = 0.1, test = 0.2 }");
    let files_of_today = files(prepared.path());
    let name = format!("events-v{FORMAT_VERSION}-small");
    if is_asked_to_regenerate() {
        let goldens: Vec<_> = files_of_today
            .iter()
            .map(|(file, bytes)| Golden {
                name: format!("{name}/{file}"),
                what: "30 probes of tests/shared/pings.rs".into(),
                bytes,
                message: None,
            })
            .collect();
        regenerate("tests/events/golden.rs", &goldens);
    }
    EventStore::open(&folder().join(&name)).unwrap().verify(&|_| Ok(())).unwrap();
    let golden = files(&folder().join(&name));
    assert!(golden.keys().eq(files_of_today.keys()));
    for (file, bytes) in &golden {
        assert!(*bytes == files_of_today[file], "{file} is prepared otherwise than before");
        let entry = &manifest()[&format!("{name}/{file}")];
        assert_eq!(entry["digest"].as_str(), Some(crate::manifest::digest(bytes).as_str()));
    }
}

/// The digest of the first rows of each stream; another program can make it by `events/FORMAT.md`.
#[test]
fn p1_golden_rows_are_the_same_on_every_machine() {
    let store = EventStore::open(&folder().join("events-v1-small")).unwrap();
    let store = std::sync::Arc::new(store);
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
    assert_eq!(
        hasher.finalize().to_hex().as_str(),
        "1fb51d786c4d4a14924886bd70e70f11ef8645c94b2374ec7ccd2a28804354ac"
    );
}
