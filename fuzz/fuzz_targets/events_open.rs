//! Whatever was done to an event store's files, opening it, making rows of it and verifying it end in
//! errors or rows.
//!
//! The input is a list of edits to a small store. No search finds a BLAKE3, so half of the inputs have all
//! digests made to fit again: then only the checks behind them are left.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use headwater::Digest;
use headwater::events::{EventSampler, EventSettings, EventStore, EventsMetadata, Speed};
use headwater::plan::{Assignment, Split};
use libfuzzer_sys::fuzz_target;

mod edits;

use edits::{Input, edit, repair};

macro_rules! golden {
    ($store:literal) => {
        [
            include_bytes!(concat!("../../checkpoints/", $store, "/metadata.json")),
            include_bytes!(concat!("../../checkpoints/", $store, "/entities.bin")),
            include_bytes!(concat!("../../checkpoints/", $store, "/events.bin")),
            include_bytes!(concat!("../../checkpoints/", $store, "/rows.bin")),
        ]
    };
}

const NAMES: [&str; 4] = ["metadata.json", "entities.bin", "events.bin", "rows.bin"];

/// A store of each codec.
const STORES: [[&[u8]; 4]; 2] = [golden!("events-v1-small"), golden!("events-v1-fields")];

/// Makes the metadata fit the other files.
fn seal(files: &mut [Vec<u8>]) {
    for file in &mut files[1..] {
        // What cannot be found cannot be repaired, and is refused as it is.
        let _ = repair(file);
    }
    let Ok(mut metadata) = serde_json::from_slice::<EventsMetadata>(&files[0]) else { return };
    for file in &mut metadata.files {
        let Some(place) = NAMES.iter().position(|name| *name == file.path) else { continue };
        file.length = files[place].len() as u64;
        if let Some(digest) = files[place].get(32..64) {
            file.digest = Digest(digest.try_into().expect("it has 32 bytes"));
        }
    }
    if let Ok(text) = metadata.encode() {
        files[0] = text.into_bytes();
    }
}

fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = parent.join(format!("headwater-fuzz-events-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the store");
        folder
    })
}

/// Makes rows; of a store that passed its verification, each one.
fn read_all(store: EventStore, is_verified: bool) {
    let settings =
        EventSettings { batch_size: 1, sequence_length: 128, ..EventSettings::default() };
    let rank = Assignment::new(0, 1).expect("one rank");
    let speed = Speed { threads: Some(1), prefetch: 0 };
    let store = Arc::new(store);
    let Ok(sampler) = EventSampler::new(Arc::clone(&store), settings, rank, speed) else {
        return;
    };
    for split in Split::ALL {
        for index in (0..24).chain([u64::MAX]) {
            let row = sampler.token_row(split, index);
            if is_verified && sampler.count(split) > 0 {
                for tokens in row.expect("a verified store has its rows").segments {
                    store.decode(&tokens).expect("tokens that were written are read");
                }
            }
            let _ = sampler.rows(split, &[index]);
        }
    }
    for entity in (0..64).chain([u32::MAX]) {
        let Ok(name) = store.entity(entity) else { continue };
        let tokens = sampler.latest(name, None, None);
        assert!(!is_verified || tokens.is_ok_and(|tokens| !tokens.is_empty()), "{name}");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mode = input.byte();
    let whole = STORES[usize::from(mode / 2 % 2)];
    let mut files: Vec<Vec<u8>> = whole.iter().map(|bytes| bytes.to_vec()).collect();
    let mut edits = 0;
    while !input.0.is_empty() && edits < 8 {
        edit(&mut input, &mut files);
        edits += 1;
    }
    if mode % 2 == 0 {
        seal(&mut files);
    }
    for (name, bytes) in NAMES.iter().zip(&files) {
        fs::write(folder().join(name), bytes).expect("the file can be written");
    }
    let changed = whole.iter().zip(&files).any(|(whole, bytes)| **whole != **bytes);
    match EventStore::open(folder()) {
        Err(_) => assert!(changed, "a whole store does not open"),
        Ok(store) => {
            let tokens: Vec<u16> = bytes
                .chunks_exact(2)
                .map(|b| u16::from(b[0]) | u16::from(b[1]) << 8 & 0x1ff)
                .collect();
            let _ = store.decode(&tokens);
            let verified = store.verify(&|_| Ok(()));
            // Without digests that fit, nothing that was changed may pass.
            assert!(mode % 2 == 0 || verified.is_err() == changed, "{verified:?}");
            read_all(store, verified.is_ok());
        }
    }
});
