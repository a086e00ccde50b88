//! The tokens of the codec `latency-v1`, and the codes of round trips.

use crate::events::tokens::TimeTokens;

/// The codec's name.
pub(crate) const NAME: &str = "latency-v1";

// The tokens: the beginning of a measurement, the roles of the fields, and the bytes. Token 9 is reserved.
pub(super) const START: u16 = 0;
pub(super) const SOURCE_V4: u16 = 1;
pub(super) const SOURCE_V6: u16 = 2;
pub(super) const DESTINATION_V4: u16 = 3;
pub(super) const DESTINATION_V6: u16 = 4;
pub(super) const TIMES: TimeTokens = TimeTokens { absolute: 5, since_1: 6, since_4: 7 };
pub(super) const RESULT: u16 = 8;
pub(super) const FAILED: u16 = 10;
pub(super) const BYTE: u16 = 11;

/// The code of a measurement that failed, which no round trip has.
pub(crate) const FAILED_CODE: u16 = 0xffff;

/// The bits of a code below the exponent.
const MANTISSA_BITS: u32 = 11;
const MANTISSA_END: f64 = (1 << MANTISSA_BITS) as f64;
const EXPONENT_MAX: u16 = 31;

/// Returns the code of a round trip in milliseconds: eleven bits and an exponent of two, truncated. A
/// negative time is a failed measurement. None when the time is longer than 50 days or not a number.
#[must_use]
pub fn rtt_code(rtt_ms: f64) -> Option<u16> {
    if rtt_ms < 0.0 {
        return Some(FAILED_CODE);
    }
    let mut microseconds = (rtt_ms * 1000.0).max(1.0);
    let mut exponent = 0;
    while microseconds >= MANTISSA_END && exponent < EXPONENT_MAX {
        microseconds /= 2.0;
        exponent += 1;
    }
    let fits = !rtt_ms.is_nan() && microseconds < MANTISSA_END;
    let code = exponent << MANTISSA_BITS | microseconds as u16;
    (fits && code != FAILED_CODE).then_some(code)
}

/// Whether a round trip has this code: with an exponent, its upper binary digit is 1.
pub(super) fn is_code(code: u16) -> bool {
    match code >> MANTISSA_BITS {
        0 => code > 0,
        _ => code & 1 << (MANTISSA_BITS - 1) != 0 && code != FAILED_CODE,
    }
}

/// Returns the time of a code in milliseconds; -1 for a failed measurement.
#[must_use]
pub fn rtt_of(code: u16) -> f64 {
    match code {
        FAILED_CODE => -1.0,
        _ => {
            let mantissa = f64::from(code & ((1 << MANTISSA_BITS) - 1));
            mantissa * f64::from(1_u32 << (code >> MANTISSA_BITS)) / 1000.0
        }
    }
}

/// Returns the time in milliseconds in the middle of those that have a code, so that it has this code again
/// when it is rounded; -1 for a failed measurement. None for a number that no time has as its code.
#[cfg(feature = "arrayrecord")]
pub(crate) fn middle_of(code: u16) -> Option<f32> {
    let half_step = f64::from(1_u32 << (code >> MANTISSA_BITS)) / 2000.0;
    let middle = match code {
        FAILED_CODE => -1.0,
        _ => (rtt_of(code) + half_step) as f32,
    };
    (rtt_code(f64::from(middle)) == Some(code)).then_some(middle)
}

#[cfg(all(test, feature = "arrayrecord"))]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_code_has_the_code() {
        // Those of 1 and 2 microseconds, and of the first and the last exponent.
        assert_eq!(middle_of(1), Some(0.0015));
        assert_eq!(middle_of(2), Some(0.0025));
        assert_eq!(middle_of(FAILED_CODE), Some(-1.0));
        // With an exponent, a code has its upper bit set: smaller ones have a smaller exponent.
        let exists = |code: u16| match code >> MANTISSA_BITS {
            0 => code > 0,
            _ => code & 1 << (MANTISSA_BITS - 1) != 0,
        };
        for code in 0..=u16::MAX {
            assert_eq!(middle_of(code).is_some(), exists(code), "{code}");
            assert_eq!(is_code(code), exists(code) && code != FAILED_CODE, "{code}");
        }
    }
}
