//! P1 and P5: ranks, threads and prefetching change no bit; every seed goes to one rank, once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use headwater::plan::Split;
use headwater::sampler::{Settings, Speed};
use headwater::store::Store;

use crate::{PLAIN, global, random_stores, sampler, small, world};

#[test]
fn p1_same_bits_whatever_the_threads_and_the_prefetch() {
    for (number, (_folder, store)) in random_stores(12).iter().enumerate() {
        let settings = small(number as u64);
        let expected = global(&world(store, &settings, 1, PLAIN), 20);
        for (threads, prefetch) in [(1, 1), (2, 1), (2, 8), (7, 3), (7, 0)] {
            let speed = Speed { threads: Some(threads), prefetch };
            let found = global(&world(store, &settings, 1, speed), 20);
            assert!(found == expected, "database {number}, {speed:?}");
        }
    }
}

#[test]
fn p4_same_global_batches_for_any_number_of_ranks() {
    for (number, (_folder, store)) in random_stores(12).iter().enumerate() {
        let mut settings = small(number as u64);
        settings.shape.batch_size = 24;
        let expected = global(&world(store, &settings, 1, PLAIN), 12);
        for ranks in [2, 3, 4, 8] {
            settings.shape.batch_size = 24 / ranks as u32;
            let found = global(&world(store, &settings, ranks, PLAIN), 12);
            assert!(found == expected, "database {number}, {ranks} ranks");
        }
    }
}

#[test]
fn p1_the_compact_form_says_the_same() {
    for (number, (_folder, store)) in random_stores(8).iter().enumerate() {
        let mut settings = small(number as u64);
        let full = sampler(store, &settings, (0, 1), PLAIN).unwrap();
        settings.shape.compact = true;
        let compact = sampler(store, &settings, (0, 1), PLAIN).unwrap();
        assert_eq!(full.fields(), compact.fields());
        let rows = settings.shape.max_rows as usize;
        for _ in 0..10 {
            let (full, compact) =
                (full.next(Split::Train).unwrap().0, compact.next(Split::Train).unwrap().0);
            for (tensor, bytes) in full.tensors() {
                if let Some((_, other)) = compact.tensors().find(|(t, _)| t.name == tensor.name) {
                    assert!(bytes == other, "{}", tensor.name);
                }
            }
            let adjacency = full.get::<u8>("fk_adj").unwrap();
            let mut expanded = vec![0; adjacency.len()];
            let edges = compact.get::<u16>("fk_edges").unwrap();
            let each = edges.len() / (adjacency.len() / (rows * rows));
            for (place, edge) in edges.chunks_exact(2).enumerate() {
                if edge[0] != u16::MAX {
                    let sequence = place * 2 / each;
                    let at = (sequence * rows + usize::from(edge[0])) * rows + usize::from(edge[1]);
                    expanded[at] = 1;
                }
            }
            assert_eq!(adjacency, expanded);
        }
    }
}

/// The seeds of a batch, by task, row and time; fillers left out.
fn seeds(batch: &headwater::sampler::Batch) -> Vec<(u32, u32, i64)> {
    let task = batch.get::<u32>("task_idx").unwrap()[0];
    let rows = batch.get::<u32>("seed_row").unwrap().iter();
    let times = batch.get::<i64>("obs_time").unwrap();
    let weights = batch.get::<f32>("seq_weight").unwrap();
    rows.zip(times)
        .zip(weights)
        .filter(|(_, weight)| **weight == 1.0)
        .map(|((row, time), _)| (task, *row, *time))
        .collect()
}

fn counted(seeds: impl IntoIterator<Item = (u32, u32, i64)>) -> BTreeMap<(u32, u32, i64), u64> {
    let mut counts = BTreeMap::new();
    seeds.into_iter().for_each(|seed| *counts.entry(seed).or_default() += 1);
    counts
}

#[test]
fn p5_every_seed_of_a_pass_goes_to_exactly_one_rank() {
    for (number, (_folder, store)) in random_stores(12).iter().enumerate() {
        let settings = small(number as u64);
        for split in Split::ALL {
            let mut expected = None;
            for ranks in [1, 2, 3, 7] {
                let samplers = world(store, &settings, ranks, PLAIN);
                let lengths: Vec<usize> =
                    samplers.iter().map(|s| s.evaluate(split, None).unwrap().count()).collect();
                assert!(lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
                let found = counted(samplers.iter().flat_map(|sampler| {
                    let batches = sampler.evaluate(split, None).unwrap();
                    batches.flat_map(|batch| seeds(&batch.unwrap())).collect::<Vec<_>>()
                }));
                let tasks = 0..samplers[0].tasks().count();
                let total: u64 = tasks.map(|task| samplers[0].seed_count(task, split)).sum();
                assert_eq!(found.values().sum::<u64>(), total);
                assert_eq!(*expected.get_or_insert_with(|| found.clone()), found);
            }
        }
    }
}

#[test]
fn p5_an_epoch_has_every_seed_once_and_the_next_in_another_order() {
    for (number, (_folder, store)) in random_stores(12).iter().enumerate() {
        let mut settings = small(number as u64);
        settings.tasks = Some(vec![store.tasks()[0].metadata().name.clone()]);
        let samplers = world(store, &settings, 3, PLAIN);
        let count = samplers[0].seed_count(0, Split::Train) as usize;
        let global = settings.shape.batch_size as usize * 3;
        let stream: Vec<_> = (0..(2 * count).div_ceil(global))
            .flat_map(|_| {
                let ranks: Vec<_> =
                    samplers.iter().map(|s| seeds(&s.next(Split::Train).unwrap().0)).collect();
                (0..ranks[0].len())
                    .flat_map(|row| ranks.iter().map(move |rank| rank[row]).collect::<Vec<_>>())
                    .collect::<Vec<_>>()
            })
            .collect();
        let (first, second) = (&stream[..count], &stream[count..2 * count]);
        assert_eq!(counted(first.to_vec()), counted(second.to_vec()));
        assert!(count < 6 || first != second, "database {number}");
    }
}

/// The bits of one build are those of another, on another day and another machine.
#[test]
fn p1_golden_digests_of_streams() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("checkpoints/store-v1-small");
    let store = Arc::new(Store::open(&path).unwrap());
    let digest = |settings: &Settings| {
        let sampler = sampler(&store, settings, (0, 1), PLAIN).unwrap();
        let mut hasher = blake3::Hasher::new();
        for _ in 0..30 {
            let (batch, _) = sampler.next(Split::Train).unwrap();
            for (tensor, bytes) in batch.tensors() {
                hasher.update(tensor.name.as_bytes()).update(bytes);
            }
        }
        hasher.finalize().to_hex()[..16].to_owned()
    };
    let compact = |mut settings: Settings| {
        settings.shape.compact = true;
        settings
    };
    let digests = [1, 2, 3, 4, 5].map(|seed| digest(&small(seed)));
    let expected = [
        "d82741ef1ac15390",
        "88de63309c3ac96c",
        "380b29fd621515cc",
        "8a343377b348bd22",
        "669fe6804a41ad50",
    ];
    assert_eq!(digests, expected);
    assert_eq!(digest(&compact(small(1))), "bf4140487e59e6ce");
}

#[test]
fn another_seed_is_another_stream_with_the_same_splits() {
    for (_folder, store) in &random_stores(5) {
        let settings = Settings { seed: 1, ..small(1) };
        let other = Settings { seed: 2, ..settings.clone() };
        let [one, two] = [&settings, &other].map(|settings| world(store, settings, 1, PLAIN));
        assert_eq!(one[0].seed_count(0, Split::Train), two[0].seed_count(0, Split::Train));
        assert!(global(&one, 10) != global(&two, 10));
    }
}
