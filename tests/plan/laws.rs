//! Laws of assignment, split and schedule, and their golden values.
//!
//! The golden values come from a program in another language, written from `src/plan/FORMAT.md`
//! alone.

use headwater::plan::{Assignment, Schedule, Split, SplitRatios, SplitRule};
use headwater::random::name_identity;
use proptest::prelude::*;

fn rank(rank: u64, world: u64) -> Assignment {
    Assignment::new(rank, world).unwrap()
}

proptest! {
    #[test]
    fn p5_exactly_once_every_element_has_one_rank(count in 0_u64..500, world in 1_u64..40) {
        let mut owners = vec![0; count as usize];
        for r in 0..world {
            let part = rank(r, world);
            let owned: Vec<u64> =
                (0..part.owned_count(count)).map(|k| part.owned(k).unwrap()).collect();
            let expected: Vec<u64> = (0..count).filter(|&i| part.owns(i)).collect();
            prop_assert_eq!(&owned, &expected);
            owned.iter().for_each(|&i| owners[i as usize] += 1);
        }
        prop_assert!(owners.iter().all(|&n| n == 1));
    }

    #[test]
    fn p5_ranks_differ_by_at_most_one(count: u64, world in 1_u64..2000) {
        let counts: Vec<u64> = (0..world).map(|r| rank(r, world).owned_count(count)).collect();
        prop_assert_eq!(counts.iter().sum::<u64>(), count);
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
    }

    /// Any number of ranks has the same global batches.
    #[test]
    fn p4_elastic_a_global_batch_is_its_range(
        step in 0_u64..1 << 40, world in 1_u64..9, batch_size in 1_u64..9,
    ) {
        let mut batch: Vec<u64> = (0..world)
            .flat_map(|r| (0..batch_size).map(move |b| (r, b)))
            .map(|(r, b)| rank(r, world).position(step, batch_size, b).unwrap())
            .collect();
        batch.sort_unstable();
        let global = batch_size * world;
        prop_assert_eq!(batch, (step * global..(step + 1) * global).collect::<Vec<_>>());
    }

    #[test]
    fn ratios_take_every_bucket_once(train in 0_u32..=1000, val in 0_u32..=1000) {
        let val = val.min(1000 - train);
        let ratio = |part: u32| f64::from(part) / 1000.0;
        let ratios = SplitRatios::new(ratio(train), ratio(val), ratio(1000 - train - val)).unwrap();
        let counts = Split::ALL.map(|s| ratios.bucket_count(s));
        prop_assert_eq!(counts, [train, val, 1000 - train - val].map(u64::from));
    }

    /// Compares with a plain twin that lists the blocks and counts.
    #[test]
    fn p3_counts_before_a_step_are_those_of_a_replay(
        seed: u64, weights in prop::collection::vec(0_u32..9, 1..7), steps in 1_u64..300,
    ) {
        prop_assume!(weights.iter().any(|&w| w > 0));
        let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        let schedule = Schedule::new(seed, Split::Train, &weights).unwrap();
        let mut counts = vec![0; weights.len()];
        for step in 0..steps {
            for (task, &count) in counts.iter().enumerate() {
                prop_assert_eq!(schedule.count_before(task, step), count);
            }
            counts[schedule.task_at(step)] += 1;
        }
    }

    #[test]
    fn every_block_holds_each_task_exactly_in_its_share(
        seed: u64, weights in prop::collection::vec(0_u32..9, 1..7), block in 0_u64..1 << 32,
    ) {
        prop_assume!(weights.iter().any(|&w| w > 0));
        let total: u32 = weights.iter().sum();
        let floats: Vec<f64> = weights.iter().copied().map(f64::from).collect();
        let schedule = Schedule::new(seed, Split::Val, &floats).unwrap();
        let length = schedule.block_length();
        let mut counts = vec![0; weights.len()];
        (block * length..(block + 1) * length).for_each(|t| counts[schedule.task_at(t)] += 1);
        for (task, &weight) in weights.iter().enumerate() {
            prop_assert_eq!(counts[task], schedule.share(task));
            // Small whole weights get exact shares.
            prop_assert_eq!(counts[task] * u64::from(total), u64::from(weight) * length);
        }
    }

    #[test]
    fn any_weights_are_met_within_their_block(
        weights in prop::collection::vec(prop_oneof![Just(0.0), 1e-3_f64..1e3], 1..40),
    ) {
        let sum: f64 = weights.iter().sum();
        prop_assume!(sum > 0.0);
        let schedule = Schedule::new(0, Split::Train, &weights).unwrap();
        let length = schedule.block_length();
        prop_assert!((1..=1024).contains(&length));
        prop_assert_eq!((0..weights.len()).map(|t| schedule.share(t)).sum::<u64>(), length);
        for (task, &weight) in weights.iter().enumerate() {
            let share = schedule.share(task);
            prop_assert_eq!(share == 0, weight == 0.0);
            // Each of the others may lose a slot to a task that is raised to its minimum.
            let quota = weight / sum * length as f64;
            prop_assert!((share as f64 - quota).abs() < 1.0 + weights.len() as f64);
        }
    }
}

fn splits(rule: SplitRule, task: &str, rows: impl Iterator<Item = u64>) -> Vec<(u64, Split)> {
    let task = name_identity(task);
    rows.map(|i| (i, rule.split_of(task, name_identity(&format!("order {i}"))))).collect()
}

#[test]
fn a_split_stays_when_tasks_or_rows_are_added_or_reordered() {
    let rule = SplitRule { seed: 42, ratios: SplitRatios::default() };
    let before = splits(rule, "orders.status", 0..1000);
    let mut after = splits(rule, "orders.status", (0..5000).rev());
    after.reverse();
    assert_eq!(after[..1000], before);
    let other = splits(rule, "orders.total", 0..1000);
    assert_ne!(other, before, "each task has a division of its own");
    let reseeded = SplitRule { seed: 43, ..rule };
    assert_ne!(splits(reseeded, "orders.status", 0..1000), before);
}

#[test]
fn a_split_has_about_its_ratio_of_the_rows() {
    let rule = SplitRule { seed: 1, ratios: SplitRatios::new(0.7, 0.2, 0.1).unwrap() };
    let rows = splits(rule, "orders.status", 0..100_000);
    for (split, expected) in Split::ALL.into_iter().zip([70_000, 20_000, 10_000_usize]) {
        let count = rows.iter().filter(|(_, s)| *s == split).count();
        assert!(count.abs_diff(expected) < 600, "{split:?} has {count}");
    }
}

#[test]
fn a_ratio_of_zero_gets_no_row_and_a_ratio_of_one_gets_all() {
    for whole in Split::ALL {
        let ratio = |split| if split == whole { 1.0 } else { 0.0 };
        let [train, val, test] = Split::ALL.map(ratio);
        let rule = SplitRule { seed: 1, ratios: SplitRatios::new(train, val, test).unwrap() };
        let rows = splits(rule, "orders.status", 0..20_000);
        assert!(rows.iter().all(|(_, split)| *split == whole), "all to {whole:?}");
    }
}

#[test]
fn p1_golden_values_of_the_split() {
    let letters = |rule, rows| -> String {
        let rows = splits(rule, "orders.status", 0..rows);
        rows.iter().map(|(_, split)| &split.name()[..2]).collect()
    };
    let rule = SplitRule { seed: 42, ratios: SplitRatios::default() };
    assert_eq!(letters(rule, 24), "trtrtetrtetrtrtrtrtrtrtrtrtrvatrtrtrtetrtrtrtetr");
    let third = 1.0 / 3.0;
    let rule = SplitRule { seed: 7, ratios: SplitRatios::new(third, third, third).unwrap() };
    assert_eq!(letters(rule, 12), "tetetetetrtrvatetevatete");
}

#[test]
fn p1_golden_values_of_the_schedule() {
    let tasks = |seed, split, weights: &[f64], steps: &mut dyn Iterator<Item = u64>| {
        let schedule = Schedule::new(seed, split, weights).unwrap();
        steps.map(|t| schedule.task_at(t).to_string()).collect::<String>()
    };
    assert_eq!(tasks(42, Split::Train, &[0.2; 5], &mut (0..20)), "03124304120341201324");
    let weights = [0.5, 0.3, 0.2];
    assert_eq!(tasks(42, Split::Test, &weights, &mut (0..20)), "10110020200201011200");
    let far = 1_000_000_000_000_000;
    assert_eq!(tasks(42, Split::Test, &weights, &mut (far..far + 10)), "2020011010");
    let rounded = [std::f64::consts::PI, 1.0, 1e-9];
    let last = u64::MAX - 9..=u64::MAX;
    assert_eq!(tasks(u64::MAX, Split::Val, &rounded, &mut last.into_iter()), "0111100000");
}

/// The expected shares come from a program in another language, too.
#[test]
fn p1_golden_shares_of_rounded_weights() {
    let golden: [(&[f64], &[u64]); 6] = [
        (&[1.1, 1022.9], &[1, 1023]),
        (&[3.7003, 2.3001, 1.9, 0.7701, 1.1307], &[387, 240, 199, 80, 118]),
        // Slots are added to the first of equals,
        (&[1.0, 1.0, 1.0, 1.0, 0.010_001], &[256, 255, 255, 255, 3]),
        // and taken from it.
        (&[1.413, 1.0, 1.0, 1.0, 1.0, 1e-6, 1e-6, 1e-6], &[267, 188, 188, 189, 189, 1, 1, 1]),
        (&[300.0, 200.0, 1e-3, 1e-3, 1e-3, 3.7], &[609, 406, 1, 1, 1, 6]),
        (&[1017.6, 2.05, 2.55, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3], &[1016, 1, 1, 1, 1, 1, 1, 1, 1]),
    ];
    for (weights, expected) in golden {
        let schedule = Schedule::new(1, Split::Train, weights).unwrap();
        let shares: Vec<_> = (0..weights.len()).map(|task| schedule.share(task)).collect();
        assert_eq!(shares, expected, "{weights:?}");
    }
}

#[test]
fn tasks_of_weight_zero_do_not_lengthen_a_block() {
    let length = |weights: &[f64]| Schedule::new(1, Split::Train, weights).unwrap().block_length();
    assert_eq!(length(&[2.0, 0.0, 0.0, 1.0, 0.0]), 3);
    let mut full = vec![1.0; 1024];
    full[0] = 2.0;
    assert_eq!(length(&full), 1024, "as many unequal tasks as a block has slots");
}

#[test]
fn p3_counts_before_the_steps_of_two_blocks_are_those_of_a_replay() {
    let schedule = Schedule::new(42, Split::Train, &[0.5, 0.3, 0.2]).unwrap();
    let mut counts = [0; 3];
    for step in 0..25 {
        assert_eq!([0, 1, 2].map(|task| schedule.count_before(task, step)), counts);
        counts[schedule.task_at(step)] += 1;
    }
}
