//! Event stores and token rows, through the public API.

#[path = "../shared/allocations.rs"]
mod allocations;
#[path = "../../fuzz/fuzz_targets/edits.rs"]
#[allow(dead_code, reason = "the fuzz targets use all of it")]
mod edits;
#[path = "../shared/manifest.rs"]
mod manifest;
#[path = "../shared/payments.rs"]
mod payments;
#[path = "../shared/pings.rs"]
mod pings;
#[path = "../shared/resume_cost.rs"]
mod resume_cost;

mod builder;
mod codec;
mod damage;
mod fields;
mod golden;
mod large;
mod latest;
mod laws;
mod rows;
mod uniform;
mod vocabulary;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use headwater::events::{EventBatch, EventSampler, EventSettings, EventStore, Speed};
use headwater::plan::Assignment;

use pings::Ping;

/// The store of some measurements, in a folder that is removed when it is dropped.
fn store_of(pings: &[Ping], more: &str) -> (tempfile::TempDir, Arc<EventStore>) {
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = pings::prepared(folder.path(), pings, more);
    let store = Arc::new(EventStore::open(&out).unwrap());
    (folder, store)
}

/// A sampler of one rank.
fn sampler(
    store: &Arc<EventStore>,
    settings: &EventSettings,
    rank: u64,
    world: u64,
) -> EventSampler {
    let assignment = Assignment::new(rank, world).unwrap();
    let speed = Speed { threads: Some(2), prefetch: 2 };
    EventSampler::new(Arc::clone(store), settings.clone(), assignment, speed).unwrap()
}

/// The tensors of each row of a batch, as bytes.
fn rows_of(batch: &EventBatch) -> Vec<Vec<u8>> {
    let rows = batch.get::<f32>("weight").unwrap().len();
    let parts: Vec<_> =
        batch.tensors().map(|(_, bytes)| bytes.chunks(bytes.len() / rows)).collect();
    (0..rows)
        .map(|row| {
            parts.iter().flat_map(|chunks| chunks.clone().nth(row).unwrap().to_vec()).collect()
        })
        .collect()
}

/// The contexts of each row of a batch with sequences of `length` tokens.
fn contexts_of(batch: &EventBatch, length: usize) -> Vec<Vec<Vec<u16>>> {
    let inputs = batch.get::<i32>("inputs").unwrap().chunks(length);
    let segments = batch.get::<i32>("inputs_segmentation").unwrap().chunks(length);
    let contexts = |(inputs, segments): (&[i32], &[i32])| {
        let mut contexts: Vec<Vec<u16>> = Vec::new();
        for (&token, &segment) in inputs.iter().zip(segments).filter(|(_, segment)| **segment > 0) {
            if segment as usize > contexts.len() {
                contexts.push(Vec::new());
            }
            contexts.last_mut().unwrap().push(token as u16);
        }
        contexts
    };
    inputs.zip(segments).map(contexts).collect()
}

/// The bytes of every file of a folder, by name.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect()
}
