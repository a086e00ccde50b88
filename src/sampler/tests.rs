//! P1: memory is a speed setting, too.

use std::path::Path;
use std::sync::Arc;

use super::{Sampler, Settings, Speed, Texts};
use crate::plan::{Assignment, Split};
use crate::store::Store;

/// Returns the bytes of the first train batches of a golden store with so much memory.
fn batches(name: &str, memory: Option<u64>, texts: &Texts) -> Vec<Vec<u8>> {
    let store = Store::open_within(&Path::new("checkpoints").join(name), memory).unwrap();
    assert_eq!(store.is_larger_than_memory(), memory.is_some());
    let mut settings = Settings::default();
    let shape = &mut settings.shape;
    (shape.batch_size, shape.sequence_length, shape.texts) = (8, 64, texts.clone());
    let speed = Speed { threads: Some(1), prefetch: 1 };
    let rank = Assignment::new(0, 1).unwrap();
    let sampler = Sampler::new(vec![Arc::new(store)], settings, rank, speed).unwrap();
    let bytes = |_| {
        let (batch, _) = sampler.next(Split::Train).unwrap();
        batch.tensors().flat_map(|(_, bytes)| bytes.to_vec()).collect()
    };
    (0..20).map(bytes).collect()
}

#[test]
fn p1_a_store_larger_than_memory_gives_the_same_batches() {
    for name in ["store-v4-small", "store-v4-int8"] {
        for texts in [Texts::Batch(Vec::new()), Texts::Global] {
            assert_eq!(batches(name, Some(0), &texts), batches(name, None, &texts));
        }
    }
}

#[test]
fn p1_stores_that_are_larger_than_memory_together_give_the_same_batches() {
    let batches = |of_one: f64| {
        let path = Path::new("checkpoints/store-v4-small");
        let store = || Arc::new(Store::open_within(path, None).unwrap());
        let stores = vec![store(), store()];
        let memory = (stores[0].file_bytes() as f64 * of_one) as u64;
        let settings =
            Settings { aliases: Some(vec!["a".into(), "b".into()]), ..Settings::default() };
        let speed = Speed { threads: Some(1), prefetch: 1 };
        let rank = Assignment::new(0, 1).unwrap();
        let sampler =
            Sampler::new_within(stores.clone(), settings, rank, speed, Some(memory)).unwrap();
        let bytes = |_| {
            let (batch, _) = sampler.next(Split::Train).unwrap();
            batch.tensors().flat_map(|(_, bytes)| bytes.to_vec()).collect::<Vec<_>>()
        };
        let are_larger = stores.iter().map(|store| store.is_larger_than_memory());
        (are_larger.collect::<Vec<_>>(), (0..6).map(bytes).collect::<Vec<_>>())
    };
    // Opened twice, a store needs the memory of one.
    let (fit, expected) = batches(1.5);
    assert_eq!(fit, [false; 2]);
    assert_eq!(batches(0.5), (vec![true; 2], expected));
}

#[test]
fn more_threads_wait_for_the_disk_than_were_asked_for() {
    let threads = |memories: &[Option<u64>]| {
        let path = Path::new("checkpoints/store-v4-small");
        let store = |&memory: &_| Arc::new(Store::open_within(path, memory).unwrap());
        let stores = memories.iter().map(store).collect();
        let aliases = (0..memories.len()).map(|place| place.to_string()).collect();
        let settings = Settings { aliases: Some(aliases), ..Settings::default() };
        let speed = Speed { threads: Some(2), prefetch: 0 };
        let sampler = Sampler::new(stores, settings, Assignment::new(0, 1).unwrap(), speed);
        sampler.unwrap().engine().threads.current_num_threads()
    };
    assert_eq!(threads(&[None]), 2);
    assert!(threads(&[Some(0)]) > 2);
    // One such store among others is enough.
    assert!(threads(&[None, Some(0)]) > 2);
}
