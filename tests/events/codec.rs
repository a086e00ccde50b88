//! The codec `latency-v1`.

use headwater::events::{code_of, rtt_of};
use headwater::random::{Purpose, Stream};

/// The tokens of the two bytes of a code.
fn tokens(rtt_ms: f64) -> [u16; 2] {
    let code = code_of(rtt_ms).unwrap();
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
    assert_eq!((code_of(-1.0), code_of(-0.001)), (Some(0xffff), Some(0xffff)));
    assert_eq!((code_of(f64::NAN), code_of(f64::INFINITY), code_of(4.4e9)), (None, None, None));
    assert_eq!(rtt_of(0xffff), -1.0);
}

#[test]
fn a_code_is_at_most_a_1024th_too_small() {
    let mut random = Stream::new(1, Purpose::Demo, [0; 3]);
    for _ in 0..1_000_000 {
        let exponent = random.below(40) as i32 - 9;
        let rtt = 2_f64.powi(exponent) * (1.0 + random.below(1 << 30) as f64 / 2_f64.powi(30));
        let error = (rtt - rtt_of(code_of(rtt).unwrap())) / rtt;
        assert!((0.0..1.0 / 1024.0).contains(&error) || rtt < 1.024, "{rtt}: {error}");
    }
}
