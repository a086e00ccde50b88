//! The codec `latency-v1`.

use std::net::IpAddr;

use headwater::events::{
    EventSettings, Measurement, TokenTime, decode_measurements, rtt_code, rtt_of,
};
use headwater::plan::Split;
use headwater::random::{Purpose, Stream};
use proptest::prelude::*;

use crate::pings::Ping;
use crate::{sampler, store_of};

const ALL_TRAIN: &str = "split = { train = 1.0, val = 0.0, test = 0.0 }";

/// 2025-07-01T12:00:00Z.
const NOON_US: i64 = 1_751_371_200_000_000;

/// The contexts of the first rows of a store of these measurements, one in each row.
fn contexts(all: &[Ping], rows: u64) -> Vec<Vec<u16>> {
    let (_folder, store) = store_of(all, ALL_TRAIN);
    let settings = EventSettings { packing: false, batch_size: 1, ..EventSettings::default() };
    let one = sampler(&store, &settings, 0, 1);
    (0..rows).map(|row| one.token_row(Split::Train, row).unwrap().segments.remove(0)).collect()
}

#[test]
fn golden_tokens_of_times() {
    for (after_us, block) in [
        (0, vec![6, 11]),
        (900_000, vec![6, 11]),
        (255_999_000, vec![6, 266]),
        (256_000_000, vec![7, 11, 11, 12, 11]),
        (65_536_000_000, vec![7, 11, 12, 11, 11]),
    ] {
        let one = |time| ("10.0.0.1".to_owned(), "10.0.0.2".to_owned(), time, 15.5);
        let rows = contexts(&[one(NOON_US), one(NOON_US + after_us)], 60);
        let holds =
            |tokens: &[u16], block: &[u16]| tokens.windows(block.len()).any(|part| part == block);
        let absolute = [5, 11, 11, 11, 11, 115, 110, 216, 203];
        let both = |tokens: &&Vec<u16>| holds(tokens, &absolute) && holds(tokens, &block);
        assert!(rows.iter().filter(both).count() > 5, "{after_us}: {rows:?}");
    }
}

/// Earlier times could be milliseconds that are read as microseconds, and are refused.
const SINCE_1970_03: i64 = 5_100_000_000_000;

/// A measurement of one of two families.
fn ping() -> impl Strategy<Value = Ping> {
    let ends = prop_oneof![
        any::<[u8; 4]>().prop_map(|to| (IpAddr::from([192, 0, 2, 1]), IpAddr::from(to))),
        any::<[u8; 16]>().prop_map(|to| (IpAddr::from([0x20; 16]), IpAddr::from(to))),
    ];
    let rtt = prop_oneof![Just(-1.0), 0.0..1e9_f64];
    (ends, SINCE_1970_03..7_258_118_400_000_000_i64, rtt)
        .prop_map(|((from, to), time, rtt)| (from.to_string(), to.to_string(), time, rtt))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn decoded_tokens_are_the_measurement(one in ping()) {
        let (from, to, time, rtt) = one.clone();
        for tokens in contexts(&[one], 8) {
            let measurements = decode_measurements(&tokens).unwrap();
            let [Measurement { source, destination, rtt_ms, time: told, .. }] = &measurements[..]
            else {
                panic!("{measurements:?}");
            };
            prop_assert_eq!((source.to_string(), destination.to_string()), (from.clone(), to.clone()));
            let coded = rtt_of(rtt_code(f64::from(rtt as f32)).unwrap());
            prop_assert_eq!(*rtt_ms, Some(coded).filter(|rtt| *rtt >= 0.0));
            let absolute = TokenTime::Absolute((time / 1_000_000).cast_unsigned());
            prop_assert!(told.is_none() || *told == Some(absolute));
        }
    }
}

/// The tokens of the two bytes of a code.
fn tokens(rtt_ms: f64) -> [u16; 2] {
    let code = rtt_code(rtt_ms).unwrap();
    [code >> 8, code & 255].map(|byte| 11 + byte)
}

#[test]
fn golden_codes_of_round_trips() {
    for (rtt, expected) in [
        (0.0, [11, 12]),
        (-0.0, [11, 12]),
        (1.0, [14, 243]),
        (2.047, [18, 266]),
        (2.048, [23, 11]),
        (15.5, [42, 156]),
        (50.0, [57, 37]),
        (100.0, [65, 37]),
        (302_281.66, [159, 140]),
    ] {
        assert_eq!(tokens(rtt), expected, "{rtt}");
    }
    assert_eq!((rtt_code(-1.0), rtt_code(-0.001)), (Some(0xffff), Some(0xffff)));
    assert_eq!((rtt_code(f64::NAN), rtt_code(f64::INFINITY), rtt_code(4.4e9)), (None, None, None));
    assert_eq!(rtt_of(0xffff), -1.0);
}

#[test]
fn a_code_is_at_most_a_1024th_too_small() {
    let mut random = Stream::new(1, Purpose::Demo, [0; 3]);
    for _ in 0..1_000_000 {
        let exponent = random.below(40) as i32 - 9;
        let rtt = 2_f64.powi(exponent) * (1.0 + random.below(1 << 30) as f64 / 2_f64.powi(30));
        let error = (rtt - rtt_of(rtt_code(rtt).unwrap())) / rtt;
        assert!((0.0..1.0 / 1024.0).contains(&error) || rtt < 1.024, "{rtt}: {error}");
    }
}

#[test]
fn only_measurements_that_the_codec_writes_are_decoded() {
    let address = |role: u16| [role, 11, 11, 11, 12];
    let whole = [&[0][..], &address(1), &address(3), &[10]].concat();
    assert_eq!(decode_measurements(&whole).unwrap().len(), 1);
    let with = |more: &[u16]| [&whole[..], more].concat();
    let v6 = [&[0, 2][..], &[11; 16], &address(3), &[10]].concat();
    for (tokens, expected) in [
        (with(&[10]), "token 12: expected a field that the measurement does not have yet"),
        (with(&address(1)), "token 12: expected a field that the measurement does not have yet"),
        (
            with(&[6, 11, 6, 12]),
            "token 14: expected a field that the measurement does not have yet",
        ),
        (with(&[7, 11, 11, 11, 12]), "token 13: expected the bytes of 256 seconds or more"),
        (
            with(&[5, 266, 11, 11, 11, 11, 11, 11, 11]),
            "token 13: expected the bytes of a time before",
        ),
        (v6, "expected two addresses of one family"),
        ([&whole[..11], &[8, 19, 11]].concat(), "token 12: expected the two bytes of a code"),
        (whole[..11].to_vec(), "two addresses and a result before the end of the measurement"),
    ] {
        let message = decode_measurements(&tokens).unwrap_err().to_string();
        assert!(message.contains(expected), "{tokens:?}: {message}");
    }
}
