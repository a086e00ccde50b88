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
pub fn code_of(rtt_ms: f64) -> Option<u16> {
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
