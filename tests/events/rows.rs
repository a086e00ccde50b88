//! Token rows: how full they are, and that every token is of an event of the data.

use std::collections::BTreeSet;
use std::net::IpAddr;

use headwater::events::{
    EventSettings, TokenTime, TokenType, decode_measurements, rtt_code, rtt_of,
};
use headwater::plan::Split;

use crate::pings::{Ping, pings};
use crate::{contexts_of, sampler, store_of};

const ALL_TRAIN: &str = "split = { train = 1.0, val = 0.0, test = 0.0 }";

/// The greatest and the mean padding of 640 rows, in tokens.
fn padding(all: &[Ping], length: u32) -> (usize, f64) {
    let (_folder, store) = store_of(all, ALL_TRAIN);
    let settings =
        EventSettings { batch_size: 64, sequence_length: length, ..EventSettings::default() };
    let one = sampler(&store, &settings, 0, 1);
    let mut free = Vec::new();
    for _ in 0..10 {
        for row in contexts_of(&one.next(Split::Train).unwrap().0, length as usize) {
            free.push(length as usize - row.iter().map(Vec::len).sum::<usize>());
        }
    }
    (*free.iter().max().unwrap(), free.iter().sum::<usize>() as f64 / free.len() as f64)
}

#[test]
fn padding_is_bounded_for_any_probes() {
    let one: Vec<Ping> = vec![("10.0.0.1".into(), "10.0.0.2".into(), 1_751_000_000_000_000, -1.0)];
    for (what, all) in [("many", pings(400, 30)), ("heavy", pings(20, 2000)), ("one", one)] {
        let (most, mean) = padding(&all, 1024);
        // A lone event of 12 tokens is repeated up to the bound, which most of its rows are near.
        let mean_limit = if what == "one" { 47.0 } else { 0.03 * 1024.0 };
        assert!(most <= 47 && mean < mean_limit, "{what}: {most}, {mean}");
    }
    assert!(padding(&pings(40, 30), 48).0 <= 47);
}

/// What a token row can tell of a measurement.
type Told = (IpAddr, IpAddr, Option<u64>);

#[test]
fn every_measurement_of_a_row_is_one_of_the_data() {
    let all = pings(50, 60);
    let told: BTreeSet<(Told, i64)> = (all.iter())
        .map(|(source, destination, time, rtt)| {
            let result = Some(rtt_of(rtt_code(f64::from(*rtt as f32)).unwrap()));
            let result = result.filter(|rtt| *rtt >= 0.0).map(f64::to_bits);
            let ends = (source.parse().unwrap(), destination.parse().unwrap());
            ((ends.0, ends.1, result), time.div_euclid(1_000_000))
        })
        .collect();
    let untimed: BTreeSet<&Told> = told.iter().map(|(told, _)| told).collect();
    let (_folder, store) = store_of(&all, ALL_TRAIN);
    let one = sampler(&store, &EventSettings { batch_size: 32, ..EventSettings::default() }, 0, 1);
    let mut timed_count = 0;
    for _ in 0..20 {
        for context in contexts_of(&one.next(Split::Train).unwrap().0, 1024).concat() {
            let mut seconds = None;
            for event in decode_measurements(&context).unwrap() {
                let found = (event.source, event.destination, event.rtt_ms.map(f64::to_bits));
                assert!(untimed.contains(&found), "{event:?}");
                let now: i64 = match event.time {
                    None => continue,
                    Some(TokenTime::Absolute(absolute)) => {
                        assert!(seconds.is_none(), "a second absolute time");
                        absolute.cast_signed()
                    }
                    Some(TokenTime::Since(since)) => seconds.unwrap() + i64::from(since),
                };
                seconds = Some(now);
                timed_count += 1;
                // Differences telescope: the time is that of the measurement to the second.
                assert!(told.contains(&(found, now)), "{event:?} at {now}");
            }
        }
    }
    assert!(timed_count > 10_000);
}

#[test]
fn targets_are_the_next_tokens_of_their_segment() {
    let (_folder, store) = store_of(&pings(50, 30), "");
    let settings = EventSettings { batch_size: 16, ..EventSettings::default() };
    let (batch, _) = sampler(&store, &settings, 0, 1).next(Split::Train).unwrap();
    let part = |name| batch.get::<i32>(name).unwrap();
    let (inputs, targets) = (part("inputs"), part("targets"));
    let (segments, target_segments) = (part("inputs_segmentation"), part("targets_segmentation"));
    let (places, target_places) = (part("inputs_position"), part("targets_position"));
    for row in 0..16 {
        for at in row * 1024..(row + 1) * 1024 {
            let is_last = at % 1024 == 1023 || segments[at + 1] != segments[at];
            if segments[at] == 0 {
                assert_eq!(
                    (inputs[at], targets[at], target_segments[at], places[at]),
                    (0, 0, 0, 0)
                );
            } else if is_last {
                assert_eq!((targets[at], target_segments[at], target_places[at]), (0, 0, 0));
            } else {
                assert_eq!((targets[at], target_segments[at]), (inputs[at + 1], segments[at]));
                assert_eq!(target_places[at], places[at + 1]);
            }
            if at % 1024 == 0 || segments[at - 1] != segments[at] {
                assert_eq!(places[at], 0);
            }
        }
    }
    let of_16_bits = EventSettings { token_type: TokenType::UInt16, ..settings };
    let (narrow, _) = sampler(&store, &of_16_bits, 0, 1).next(Split::Train).unwrap();
    for (tensor, _) in narrow.tensors().filter(|(tensor, _)| tensor.shape.len() == 2) {
        let same = narrow.get::<u16>(tensor.name).unwrap().iter().map(|&value| i32::from(value));
        assert!(same.eq(part(tensor.name).iter().copied()), "{}", tensor.name);
    }
}

#[test]
fn a_token_row_has_the_lengths_of_its_measurements() {
    for (source, destination, lengths) in [
        ("10.0.0.1", "10.0.0.2", [14, 16, 19, 23]),
        ("2001:db8::1", "2001:db8::2", [38, 40, 43, 47]),
    ] {
        for (rtt, fewer) in [(15.5, 0), (-1.0, 2)] {
            let start = 1_751_371_200_000_000;
            let all: Vec<Ping> = [0, 255_000_000, 600_000_000]
                .map(|after| (source.to_owned(), destination.to_owned(), start + after, rtt))
                .into();
            let (_folder, store) = store_of(&all, ALL_TRAIN);
            let settings =
                EventSettings { packing: false, batch_size: 1, ..EventSettings::default() };
            let one = sampler(&store, &settings, 0, 1);
            let mut seen = BTreeSet::new();
            for index in 0..200 {
                let row = one.token_row(Split::Train, index).unwrap();
                for event in row.segments[0].split(|&token| token == 0).skip(1) {
                    seen.insert(event.len() + 1 + fewer);
                }
            }
            assert_eq!(seen, BTreeSet::from(lengths));
        }
    }
}
