//! The distributions of contexts, by chi-square at one in a million.

use std::collections::BTreeMap;

use headwater::events::{EventSettings, Measurement, MeasurementField, decode_measurements};
use headwater::plan::Split;

use crate::pings::Ping;
use crate::{sampler, store_of};

/// Whether the counts fit equal (or given) shares: chi-square by Wilson and Hilferty's approximation.
fn fits(counts: &[u64], shares: Option<&[f64]>) -> bool {
    let total: u64 = counts.iter().sum();
    let equal = vec![1.0 / counts.len() as f64; counts.len()];
    let shares = shares.unwrap_or(&equal);
    let chi: f64 = (counts.iter().zip(shares))
        .map(|(&count, share)| {
            let expected = total as f64 * share;
            (count as f64 - expected).powi(2) / expected
        })
        .sum();
    let freedom = counts.len() as f64 - 1.0;
    let spread = 2.0 / (9.0 * freedom);
    ((chi / freedom).cbrt() - (1.0 - spread)) / spread.sqrt() < 4.75
}

/// Contexts of a row of 32 measurements, one a minute, whose destination tells its place.
fn contexts(count: u64) -> Vec<Vec<Measurement>> {
    let start = 1_751_371_200_000_000;
    let all: Vec<Ping> = (0..32)
        .map(|at| ("10.0.0.1".into(), format!("10.9.0.{at}"), start + at * 60_000_000, 15.5))
        .collect();
    let (_folder, store) = store_of(&all, "split = { train = 1.0, val = 0.0, test = 0.0 }");
    let settings = EventSettings { packing: false, batch_size: 1, ..EventSettings::default() };
    let one = sampler(&store, &settings, 0, 1);
    (0..count)
        .map(|index| {
            decode_measurements(&one.token_row(Split::Train, index).unwrap().segments[0]).unwrap()
        })
        .collect()
}

fn place(event: &Measurement) -> usize {
    let text = event.destination.to_string();
    text.rsplit('.').next().unwrap().parse().unwrap()
}

#[test]
fn contexts_have_the_distributions_of_the_format() {
    let contexts = contexts(100_000);
    let timed = |events: &[Measurement]| events.iter().filter(|one| one.time.is_some()).count();

    // Of contexts with two or more events the mode is known: 40, 30 and 30 %.
    let long: Vec<_> = contexts.iter().filter(|events| events.len() > 1).collect();
    let mut modes = [0; 3];
    for events in &long {
        let timed = timed(events);
        modes[if timed == events.len() { 0 } else { 1 + usize::from(timed == 0) }] += 1;
    }
    assert!(fits(&modes, Some(&[0.4, 0.3, 0.3])), "{modes:?}");

    // The logarithm of the window is uniform: each number of events has its share.
    let mut lengths = [0; 32];
    contexts.iter().for_each(|events| lengths[events.len() - 1] += 1);
    let share = |length: usize| ((length + 1) as f64 / length as f64).ln() / 33_f64.ln();
    let shares: Vec<f64> = (1..=32).map(share).collect();
    assert!(fits(&lengths, Some(&shares)), "{lengths:?}");

    // The order of the fields is uniform, with and without a time.
    let mut orders: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for event in contexts.iter().flatten() {
        let number = |field: &MeasurementField| match field {
            MeasurementField::Source => 0,
            MeasurementField::Destination => 1,
            MeasurementField::Result => 2,
            MeasurementField::Time => 3,
        };
        *orders.entry(event.order.iter().map(number).collect()).or_default() += 1;
    }
    for (length, expected) in [(3, 6), (4, 24)] {
        let counts: Vec<u64> =
            orders.iter().filter(|(order, _)| order.len() == length).map(|(_, &n)| n).collect();
        assert!(counts.len() == expected && fits(&counts, None), "{orders:?}");
    }

    // Where some events have times, the place of a lone untimed event among three is uniform.
    let mut places = [0; 3];
    for events in long.iter().filter(|events| events.len() == 3 && timed(events) == 2) {
        places[events.iter().position(|one| one.time.is_none()).unwrap()] += 1;
    }
    assert!(fits(&places, None), "{places:?}");

    // The share without times is 10 to 90 %, each equally likely: of ten events 1 to 9.
    let mut untimed = [0; 9];
    for events in long.iter().filter(|events| events.len() == 10) {
        let count = 10 - timed(events);
        if (1..10).contains(&count) {
            untimed[count - 1] += 1;
        }
    }
    // floor(10 p / 100): ten values of p for 1 to 8, and 90 alone for 9.
    let shares: Vec<f64> = (0..9).map(|at| if at < 8 { 10.0 / 81.0 } else { 1.0 / 81.0 }).collect();
    assert!(fits(&untimed, Some(&shares)), "{untimed:?}");

    // Timed events are in the order of time; untimed ones in any order.
    let mut ascending = [0; 2];
    for events in &long {
        let timed: Vec<_> = events.iter().filter(|one| one.time.is_some()).map(place).collect();
        assert!(timed.is_sorted());
        let untimed: Vec<_> = events.iter().filter(|one| one.time.is_none()).map(place).collect();
        untimed.chunks_exact(2).for_each(|pair| ascending[usize::from(pair[0] < pair[1])] += 1);
    }
    assert!(fits(&ascending, None), "{ascending:?}");
}
