//! P1 and P5: ranks, threads and prefetching change no bit; every seed goes to one rank, once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use headwater::plan::Split;
use headwater::sampler::{Aggregates, Batch, Masks, Pool, Sampler, Settings, Speed};
use headwater::store::Store;
use proptest::prelude::*;

use crate::cases::{Case, case, cases};
use crate::{PLAIN, digests, random_stores, sampler, small, twin, world};

/// A global batch that 1, 2, 3, 4 and 8 ranks divide evenly.
const GLOBAL_BATCH: u32 = 24;

/// A seed, by task, row and observation time.
type SeedName = (u32, u32, i64);

/// Returns the seeds of a batch, without fillers.
fn seeds(batch: &Batch) -> Vec<SeedName> {
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

/// Counts each seed: several seeds of a task may have the same row and time.
fn counted(seeds: impl IntoIterator<Item = SeedName>) -> BTreeMap<SeedName, u64> {
    let mut counts = BTreeMap::new();
    seeds.into_iter().for_each(|seed| *counts.entry(seed).or_default() += 1);
    counts
}

/// Returns the seeds of a task in a split, each read by itself.
fn expected_seeds(case: &Case, task: usize, split: Split) -> BTreeMap<SeedName, u64> {
    let (store, served) = case.tasks()[task];
    let seeds = twin::seeds_of(store, &case.settings, served, split);
    counted(seeds.into_iter().map(|(_, seed)| (task as u32, seed.row, seed.obs_time)))
}

fn differ_by_one_at_most(counts: &[usize]) -> bool {
    counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn p1_one_stream_for_any_ranks_threads_and_prefetch(
        case in case(Just(GLOBAL_BATCH)),
        steps in 1_usize..6,
    ) {
        let expected = digests(&[case.plain()], Split::Train, steps);
        for ranks in [1, 2, 3, 4, 8] {
            for threads in [1, 2, 7] {
                for prefetch in [0, 1, 8] {
                    let speed = Speed { threads: Some(threads), prefetch };
                    let found = digests(&case.ranks(ranks, speed), Split::Train, steps);
                    prop_assert_eq!(&found, &expected, "{} ranks, {:?}", ranks, speed);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn p5_every_seed_of_a_pass_goes_to_exactly_one_rank(
        case in case(1_u32..=5),
        ranks in 1_u64..=8,
    ) {
        let ranks = world(&case.stores, &case.settings, ranks, PLAIN);
        for split in Split::ALL {
            for (task, name) in ranks[0].tasks().enumerate() {
                let pass = |rank: &Sampler| {
                    let batches = rank.evaluate(split, Some(&[name.to_owned()])).unwrap();
                    batches.map(|batch| seeds(&batch.unwrap())).collect::<Vec<_>>()
                };
                let passes: Vec<_> = ranks.iter().map(pass).collect();
                prop_assert!(passes.iter().all(|pass| pass.len() == passes[0].len()));
                let passes: Vec<_> = passes.iter().map(|pass| pass.concat()).collect();
                let counts: Vec<_> = passes.iter().map(Vec::len).collect();
                prop_assert!(differ_by_one_at_most(&counts), "{:?}", counts);
                prop_assert_eq!(counted(passes.concat()), expected_seeds(&case, task, split));
            }
        }
    }

    #[test]
    fn p5_an_epoch_has_every_seed_once_and_the_next_in_another_order(
        case in case(1_u32..=5),
        ranks in 1_u64..=8,
    ) {
        let first_task = |sampler: &Sampler| {
            let mut tasks = sampler.tasks().enumerate();
            let found = tasks.find(|&(task, _)| sampler.seed_count(task, Split::Train) > 0);
            found.map(|(task, name)| (task, name.to_owned())).unwrap()
        };
        let (task, name) = first_task(&case.plain());
        let settings = case.settings_of(&name);
        let ranks = world(&case.stores, &settings, ranks, PLAIN);
        let count = ranks[0].seed_count(0, Split::Train) as usize;
        let global = settings.shape.batch_size as usize * ranks.len();
        // Each draw with its rank, in the order of the stream.
        let mut stream = Vec::new();
        while stream.len() < 2 * count {
            let parts: Vec<_> =
                ranks.iter().map(|rank| seeds(&rank.next(Split::Train).unwrap().0)).collect();
            let place = |at: usize| (at % ranks.len(), at / ranks.len());
            let draws = (0..global).map(place).map(|(rank, row)| (rank, parts[rank][row]));
            // In a sampler of its own, the task has another number.
            stream.extend(draws.map(|(rank, (_, row, time))| (rank, (task as u32, row, time))));
        }
        let expected = expected_seeds(&case, task, Split::Train);
        let epochs = [&stream[..count], &stream[count..2 * count]];
        for epoch in epochs {
            prop_assert_eq!(&counted(epoch.iter().map(|draw| draw.1)), &expected);
            let of_rank = |rank| epoch.iter().filter(|draw| draw.0 == rank).count();
            let counts: Vec<_> = (0..ranks.len()).map(of_rank).collect();
            prop_assert!(differ_by_one_at_most(&counts), "{:?}", counts);
        }
        // Ten different seeds have the same order again once in three million.
        let orders = epochs.map(|epoch| epoch.iter().map(|draw| draw.1).collect::<Vec<_>>());
        prop_assert!(expected.len() < 10 || orders[0] != orders[1]);
    }
}

/// The digests are the same for every build and machine.
#[test]
fn p1_golden_digests_of_streams() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("checkpoints/store-v4-small");
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
    let without =
        |seed| Settings { aggregates: Aggregates::None, visible_until: None, ..small(seed) };
    let digests = [1, 2, 3, 4, 5].map(|seed| digest(&without(seed)));
    let expected = [
        "3bda75d92a086f11",
        "98da43fc5e3e8dee",
        "106cac642a5b25c3",
        "bfd390c1241ca76f",
        "4ff601b24a5450b3",
    ];
    assert_eq!(digests, expected);
    assert_eq!(digest(&compact(without(1))), "c1b618d497f2de82");
    let with = |seed| Settings { aggregates: Aggregates::Near, visible_until: None, ..small(seed) };
    let digests = [1, 2, 3, 4, 5].map(|seed| digest(&with(seed)));
    let expected = [
        "e73f1924b279ab66",
        "b944efcb661ed716",
        "9562275337779db1",
        "34fd51d100673ae3",
        "c8a7e0f104314ba3",
    ];
    assert_eq!(digests, expected);
    let masked = |seed| {
        let settings = with(seed);
        let masks = Masks::new(0.3, None, settings.shape.sequence_length).unwrap();
        Settings { masks: Some(masks), ..settings }
    };
    let expected = ["3059a2423159f929", "7b2d90747ee15c7b"];
    assert_eq!([1, 2].map(|seed| digest(&masked(seed))), expected);
    let pooled = |seed| Settings {
        tasks: Some(vec![store.tasks()[0].metadata().name.clone()]),
        pools: vec![
            Pool { table: "orders".into(), obs_time: None },
            Pool { table: "remarks".into(), obs_time: Some(3_000_000_000_000) },
        ],
        require_label: true,
        ..masked(seed)
    };
    let expected = ["cbd3228bf2c28a2c", "a2e44332c264c7bc"];
    assert_eq!([1, 2].map(|seed| digest(&pooled(seed))), expected);
}

#[test]
fn another_random_seed_gives_another_stream_and_the_same_splits() {
    for (_folder, store) in &random_stores(5) {
        let settings = Settings { seed: 1, ..small(1) };
        let other = Settings { seed: 2, ..settings.clone() };
        let [one, two] =
            [&settings, &other].map(|settings| [sampler(store, settings, (0, 1), PLAIN).unwrap()]);
        assert_eq!(one[0].seed_count(0, Split::Train), two[0].seed_count(0, Split::Train));
        assert_ne!(digests(&one, Split::Train, 10), digests(&two, Split::Train, 10));
    }
}
