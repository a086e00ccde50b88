//! The codec `latency-v1`: measurements of round trips between two addresses, in 267 tokens.

use super::codec::{Codec, Seconds};
use super::row::{Event, Form, Row};
use crate::error::Result;
use crate::random::Stream;

/// The codec's name.
pub(crate) const NAME: &str = "latency-v1";

// The tokens: the beginning of a measurement, the roles of the fields, and the bytes. Token 9 is reserved.
pub(super) const START: u16 = 0;
pub(super) const SOURCE_V4: u16 = 1;
pub(super) const DESTINATION_V4: u16 = 3;
pub(super) const TIME_ABSOLUTE: u16 = 5;
pub(super) const TIME_DELTA_1: u16 = 6;
pub(super) const TIME_DELTA_4: u16 = 7;
pub(super) const RESULT: u16 = 8;
pub(super) const FAILED: u16 = 10;
pub(super) const BYTE: u16 = 11;
const VOCABULARY: u16 = BYTE + 256;

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

/// Returns the time in milliseconds in the middle of those that have a code, so that it has this code again
/// when it is rounded; -1 for a failed measurement. None for a number that no time has as its code.
#[cfg(feature = "arrayrecord")]
pub(crate) fn middle_of(code: u16) -> Option<f32> {
    let half_step = f64::from(1_u32 << (code >> MANTISSA_BITS)) / 2000.0;
    let middle = match code {
        FAILED_CODE => -1.0,
        _ => (rtt_of(code) + half_step) as f32,
    };
    (code_of(f64::from(middle)) == Some(code)).then_some(middle)
}

/// The forms of the records, by the bytes of their addresses.
pub(crate) const V4: u16 = 4;
pub(crate) const V6: u16 = 6;

/// Returns the bytes of an address of form `form`.
pub(crate) fn address_bytes(form: u16) -> usize {
    if form == V4 { 4 } else { 16 }
}

pub(crate) struct Latency;

/// Returns the destination's address and the code of the round trip, which the value of an event holds; the
/// source's address is its head.
pub(crate) fn destination_and_code(value: &[u8]) -> (&[u8], u16) {
    let (destination, code) = value.split_at(value.len() - CODE_BYTES);
    (destination, code.first_chunk().map_or(FAILED_CODE, |bytes| u16::from_le_bytes(*bytes)))
}

const CODE_BYTES: usize = 2;

/// All orders of the blocks without and with a time, in the order of the alphabet.
const ORDERS_3: [[u8; 3]; 6] = orders();
const ORDERS_4: [[u8; 4]; 24] = orders();

/// Returns the `COUNT` orders of `N` blocks, in the order of the alphabet.
const fn orders<const N: usize, const COUNT: usize>() -> [[u8; N]; COUNT] {
    let mut all = [[0; N]; COUNT];
    let mut number = 0;
    while number < COUNT {
        let mut left = [0, 1, 2, 3];
        let (mut rest, mut group, mut place) = (number, COUNT, 0);
        while place < N {
            group /= N - place;
            let mut at = rest / group;
            rest %= group;
            all[number][place] = left[at];
            while at + 1 < N {
                left[at] = left[at + 1];
                at += 1;
            }
            place += 1;
        }
        number += 1;
    }
    all
}

/// Tokens being written.
struct Writer<'a> {
    tokens: &'a mut [u16],
    count: usize,
}

impl Writer<'_> {
    fn token(&mut self, token: u16) {
        self.tokens[self.count] = token;
        self.count += 1;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let room = &mut self.tokens[self.count..][..bytes.len()];
        room.iter_mut().zip(bytes).for_each(|(token, &byte)| *token = BYTE + u16::from(byte));
        self.count += bytes.len();
    }
}

impl Codec for Latency {
    fn vocabulary(&self) -> u16 {
        VOCABULARY
    }

    #[cfg(feature = "prepare")]
    fn forms(&self) -> &'static [u16] {
        &[V4, V6]
    }

    fn form(&self, form: u16) -> Option<Form> {
        matches!(form, V4 | V6).then(|| {
            let address = address_bytes(form);
            Form { head_bytes: address, value_bytes: address + CODE_BYTES }
        })
    }

    fn bound(&self, row: &Row<'_>, event: &Event<'_>, is_timed: bool) -> usize {
        let (_, code) = destination_and_code(event.value);
        let result = if code == FAILED_CODE { 1 } else { 3 };
        1 + 2 * (1 + address_bytes(row.form())) + result + if is_timed { 5 } else { 0 }
    }

    fn encode(
        &self,
        row: &Row<'_>,
        event: &Event<'_>,
        time: Option<Seconds>,
        random: &mut Stream,
        tokens: &mut [u16],
    ) -> Result<usize> {
        let (destination, code) = destination_and_code(event.value);
        let source = row.head(event.head)?;
        let is_v6 = u16::from(row.form() == V6);
        let mut writer = Writer { tokens, count: 0 };
        writer.token(START);
        let order: &[u8] = match time {
            None => &ORDERS_3[random.below(6) as usize],
            Some(_) => &ORDERS_4[random.below(24) as usize],
        };
        for block in order {
            match (block, time) {
                (0, _) => {
                    writer.token(SOURCE_V4 + is_v6);
                    writer.bytes(source);
                }
                (1, _) => {
                    writer.token(DESTINATION_V4 + is_v6);
                    writer.bytes(destination);
                }
                (2, _) if code == FAILED_CODE => writer.token(FAILED),
                (2, _) => {
                    writer.token(RESULT);
                    let [low, high] = code.to_le_bytes();
                    writer.bytes(&[high, low]);
                }
                (_, Some(Seconds::Since(seconds))) if seconds < 256 => {
                    writer.token(TIME_DELTA_1);
                    writer.bytes(&[seconds as u8]);
                }
                (_, Some(Seconds::Since(seconds))) => {
                    writer.token(TIME_DELTA_4);
                    writer.bytes(&network_order(u64::from(seconds))[4..]);
                }
                (_, Some(Seconds::Absolute(seconds))) => {
                    writer.token(TIME_ABSOLUTE);
                    writer.bytes(&network_order(seconds));
                }
                (_, None) => {}
            }
        }
        Ok(writer.count)
    }
}

/// Returns the bytes of a number, the most significant first.
fn network_order(number: u64) -> [u8; 8] {
    let mut bytes = number.to_le_bytes();
    bytes.reverse();
    bytes
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
        }
    }
}
