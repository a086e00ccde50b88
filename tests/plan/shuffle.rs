//! The permutation: a bijection, uniform by chi-squares, with golden values.

use headwater::plan::Permutation;
use headwater::random::{Purpose, name_identity};
use proptest::prelude::*;

const COUNT_MAX: u64 = 1 << 48;

fn shuffle(count: u64, seed: u64) -> Permutation {
    Permutation::new(count, seed, Purpose::Permutation, [0; 3]).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn p5_exactly_once_a_shuffle_is_a_bijection(count in 1_u64..20_000, seed: u64, epoch: u64) {
        let p = Permutation::new(count, seed, Purpose::Permutation, [epoch, 0, 0]).unwrap();
        let mut seen = vec![false; count as usize];
        for position in 0..count {
            let item = p.at(position);
            prop_assert!(!std::mem::replace(&mut seen[item as usize], true));
        }
    }

    #[test]
    fn long_shuffles_stay_in_range_and_do_not_collide(
        count in 1_u64 << 30..=COUNT_MAX, seed: u64, from: prop::sample::Index,
    ) {
        let p = shuffle(count, seed);
        prop_assert_eq!(p.count(), count);
        let from = from.index((count - 2000) as usize) as u64;
        let mut items: Vec<u64> = (from..from + 2000).map(|position| p.at(position)).collect();
        prop_assert!(items.iter().all(|&item| item < count));
        items.sort_unstable();
        items.dedup();
        prop_assert_eq!(items.len(), 2000);
    }
}

/// Converts a chi-square to standard deviations (Wilson and Hilferty), so that one bound fits few
/// and many degrees of freedom.
fn deviations(counts: &[u64], expected: f64, freedom: f64) -> f64 {
    let chi_square: f64 = counts.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum();
    let spread = 2.0 / (9.0 * freedom);
    ((chi_square / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

/// About 300 statistics are tested; by chance one in 300,000 exceeds this bound.
const DEVIATIONS_MAX: f64 = 4.5;

#[test]
fn short_shuffles_pass_chi_squares_over_many_keys() {
    for count in (2..=64).chain([100, 255, 1023, 1024, 1500]) {
        let n = count as usize;
        let key_count = (4_000_000 / (count * count)).clamp(50, 20_000);
        let mut places = vec![0_u64; n * n];
        let mut differences = vec![0_u64; n];
        for key in 0..key_count {
            let p = shuffle(count, key);
            let items: Vec<u64> = (0..count).map(|position| p.at(position)).collect();
            for (position, &item) in items.iter().enumerate() {
                places[position * n + item as usize] += 1;
            }
            for pair in items.windows(2) {
                differences[((pair[1] + count - pair[0]) % count) as usize] += 1;
            }
        }
        let (keys, freedom) = (key_count as f64, (count - 1) as f64);
        let z = deviations(&places, keys / count as f64, freedom * freedom);
        assert!(z < DEVIATIONS_MAX, "position against value, {count} items: {z}");
        if count > 2 {
            // Within one shuffle, differences are not independent: there are fewer degrees of freedom
            // than differences, so that the bound is on the safe side.
            let z = deviations(&differences[1..], keys, freedom - 1.0);
            assert!(z < DEVIATIONS_MAX, "adjacent differences, {count} items: {z}");
        }
    }
}

#[test]
fn every_order_of_four_and_five_is_equally_likely() {
    for (count, orders) in [(4_u64, 24_usize), (5, 120)] {
        let mut counts = std::collections::BTreeMap::new();
        let keys = 100_000;
        for key in 0..keys {
            let p = shuffle(count, key);
            let order = (0..count).fold(0, |code, position| code * count + p.at(position));
            *counts.entry(order).or_insert(0_u64) += 1;
        }
        let counts: Vec<u64> = counts.into_values().collect();
        assert_eq!(counts.len(), orders);
        let z = deviations(&counts, keys as f64 / orders as f64, orders as f64 - 1.0);
        assert!(z < DEVIATIONS_MAX, "orders of {count}: {z}");
    }
}

#[test]
fn long_shuffles_pass_chi_squares_over_many_keys() {
    const BUCKETS: u64 = 32;
    for count in [65_536, 1_000_003, 1_000_000_000, COUNT_MAX - 1, COUNT_MAX] {
        let bucket = |x: u64| (u128::from(x) * u128::from(BUCKETS) / u128::from(count)) as usize;
        let key_count = 300;
        let samples = 1024;
        let mut places = vec![0_u64; (BUCKETS * BUCKETS) as usize];
        let mut differences = vec![0_u64; BUCKETS as usize];
        for key in 0..key_count {
            let p = shuffle(count, key);
            for sample in 0..samples {
                let position = sample * (count / samples) + key % 64;
                let item = p.at(position);
                places[bucket(position) * BUCKETS as usize + bucket(item)] += 1;
                let next = p.at((position + 1) % count);
                differences[bucket((next + count - item) % count)] += 1;
            }
        }
        let total = (key_count * samples) as f64;
        let square = (BUCKETS * BUCKETS) as f64;
        let z = deviations(&places, total / square, square - 1.0);
        assert!(z < DEVIATIONS_MAX, "position against value, {count} items: {z}");
        let z = deviations(&differences, total / BUCKETS as f64, BUCKETS as f64 - 1.0);
        assert!(z < DEVIATIONS_MAX, "adjacent differences, {count} items: {z}");
    }
}

/// From a program in another language, written from `src/plan/FORMAT.md` alone.
#[test]
fn p1_golden_values_of_the_shuffle() {
    type Elements = &'static [(u64, u64)];
    let task = [name_identity("orders.status"), 3, 0];
    let golden: [(u64, u64, [u64; 3], Elements); 6] = [
        (1, 0, [0; 3], &[(0, 0)]),
        (10, 42, [7, 0, 0], &[(0, 9), (1, 0), (2, 7), (3, 6), (4, 5), (5, 3), (8, 4), (9, 2)]),
        (1000, 42, task, &[(0, 969), (1, 899), (2, 739), (3, 543), (4, 374), (7, 211)]),
        (1024, 42, [0; 3], &[(0, 887), (1, 402), (2, 622), (3, 855), (4, 723), (7, 939)]),
        (
            1_000_000_000,
            42,
            task,
            &[(0, 794_880_248), (499_999_999, 888_915_208), (999_999_999, 185_167_895)],
        ),
        (
            COUNT_MAX,
            u64::MAX,
            [1, 2, 3],
            &[
                (0, 255_067_255_995_858),
                (1, 98_450_916_975_905),
                (COUNT_MAX / 2, 79_766_656_880_473),
                (COUNT_MAX - 1, 268_943_929_375_584),
            ],
        ),
    ];
    for (count, seed, identity, elements) in golden {
        let p = Permutation::new(count, seed, Purpose::Permutation, identity).unwrap();
        for &(position, item) in elements {
            assert_eq!(p.at(position), item, "position {position} of {count}");
        }
    }
}
