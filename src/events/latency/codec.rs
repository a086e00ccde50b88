//! How a measurement becomes tokens.

use super::alphabet::{
    BYTE, DESTINATION_V4, FAILED, FAILED_CODE, RESULT, SOURCE_V4, START, TIMES, is_code,
};
use super::measurement::{Measurement, MeasurementField, decode_measurements};
use crate::error::Result;
use crate::events::codec::Codec;
use crate::events::decoded::{DecodedEvent, DecodedField, FieldValue};
use crate::events::row::{Event, Form, Row};
use crate::events::tokens::{TokenTime, TokenWriter};
use crate::random::Stream;

/// The forms of the records, by the bytes of their addresses.
pub(crate) const V4: u16 = 4;
pub(crate) const V6: u16 = 6;

/// Returns the bytes of an address of form `form`.
pub(crate) fn address_bytes(form: u16) -> usize {
    if form == V4 { 4 } else { 16 }
}

const VOCABULARY: u16 = BYTE + 256;

/// One token more than a measurement of IPv6 with an absolute time.
const ROOM: usize = 48;

pub(in crate::events) struct Latency;

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

impl Codec for Latency {
    fn vocabulary(&self) -> u16 {
        VOCABULARY
    }

    fn room(&self) -> usize {
        ROOM
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

    fn is_value(&self, _: u16, value: &[u8]) -> bool {
        let (_, code) = destination_and_code(value);
        code == FAILED_CODE || is_code(code)
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
        time: Option<TokenTime>,
        random: &mut Stream,
        tokens: &mut [u16],
    ) -> Result<usize> {
        let (destination, code) = destination_and_code(event.value);
        let source = row.head(event.head)?;
        let is_v6 = u16::from(row.form() == V6);
        let mut writer = TokenWriter::<BYTE> { tokens, count: 0 };
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
                    writer.code(code);
                }
                (_, Some(time)) => writer.time(&TIMES, time),
                (_, None) => {}
            }
        }
        Ok(writer.count)
    }

    fn decode(&self, tokens: &[u16]) -> Result<Vec<DecodedEvent>> {
        Ok(decode_measurements(tokens)?.iter().map(as_event).collect())
    }
}

fn as_event(one: &Measurement) -> DecodedEvent {
    let field = |&field: &MeasurementField| {
        let (name, value) = match (field, one.rtt_ms, one.time) {
            (MeasurementField::Source, ..) => ("source", FieldValue::Text(one.source.to_string())),
            (MeasurementField::Destination, ..) => {
                ("destination", FieldValue::Text(one.destination.to_string()))
            }
            (MeasurementField::Result, Some(rtt), _) => ("rtt_ms", FieldValue::Number(rtt)),
            (MeasurementField::Time, _, Some(time)) => ("time", FieldValue::Time(time)),
            _ => ("rtt_ms", FieldValue::Failed),
        };
        DecodedField { name: name.to_owned(), value }
    };
    DecodedEvent { fields: one.order.iter().map(field).collect() }
}
