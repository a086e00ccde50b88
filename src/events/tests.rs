//! P1: memory is a speed setting, too.

use std::path::Path;
use std::sync::Arc;

use super::rows::Rows;
use super::{EventSampler, EventSettings, EventStore, Speed};
use crate::plan::{Assignment, Split};

/// Opens a golden store with so much memory.
fn store(memory: Option<u64>) -> Arc<EventStore> {
    let store = EventStore::open_within(Path::new("checkpoints/events-v1-small"), memory).unwrap();
    assert_eq!(store.is_larger_than_memory(), memory.is_some());
    Arc::new(store)
}

#[test]
fn p1_an_event_store_larger_than_memory_gives_the_same_batches() {
    let batches = |memory| {
        let settings = EventSettings { batch_size: 16, ..EventSettings::default() };
        let speed = Speed { threads: Some(2), prefetch: 1 };
        let rank = Assignment::new(0, 1).unwrap();
        let sampler = EventSampler::new(store(memory), settings, rank, speed).unwrap();
        let bytes = |_| {
            let (batch, _) = sampler.next(Split::Train).unwrap();
            batch.tensors().flat_map(|(_, bytes)| bytes.to_vec()).collect::<Vec<_>>()
        };
        (0..20).map(bytes).collect::<Vec<_>>()
    };
    assert_eq!(batches(Some(0)), batches(None));
}

#[test]
fn more_threads_wait_for_the_disk_than_were_asked_for() {
    let threads = |memory| {
        let rows = Rows::new(store(memory), EventSettings::default(), Some(2)).unwrap();
        rows.threads.current_num_threads()
    };
    assert_eq!(threads(None), 2);
    assert!(threads(Some(0)) > 2);
}

#[test]
fn an_event_store_larger_than_memory_is_verified_like_any_other() {
    store(Some(0)).verify(&|_| Ok(())).unwrap();
}
