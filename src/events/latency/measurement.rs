//! Reads tokens of the codec `latency-v1` back: the measurements of a context.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use super::alphabet::{
    BYTE, DESTINATION_V4, DESTINATION_V6, FAILED, RESULT, SOURCE_V4, SOURCE_V6, START, TIMES,
    is_code, rtt_of,
};
use crate::error::{Error, Result};
use crate::events::tokens::{TokenReader, TokenTime};

/// A measurement, as its tokens give it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// The address of the source.
    pub source: IpAddr,
    /// The address of the destination.
    pub destination: IpAddr,
    /// The round trip in milliseconds; none for a failed measurement.
    pub rtt_ms: Option<f64>,
    /// The time; none where the context does not tell it.
    pub time: Option<TokenTime>,
    /// The fields in the order of the tokens.
    pub order: Vec<MeasurementField>,
}

/// A field of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasurementField {
    /// The address of the source.
    Source,
    /// The address of the destination.
    Destination,
    /// The round trip, or its failure.
    Result,
    /// The time.
    Time,
}

/// Returns the measurements of a context.
///
/// # Errors
/// `Data` when the tokens are no context, with the place of the first that does not fit.
pub fn decode_measurements(tokens: &[u16]) -> Result<Vec<Measurement>> {
    let mut reader = TokenReader::new(tokens);
    let mut measurements = Vec::new();
    while reader.peek().is_some() {
        measurements.push(measurement(&mut reader)?);
    }
    Ok(measurements)
}

type Reader<'a> = TokenReader<'a, BYTE>;

fn measurement(reader: &mut Reader<'_>) -> Result<Measurement> {
    if reader.peek() != Some(START) {
        return Err(reader.wrong("the token 0, which begins a measurement"));
    }
    reader.take();
    let (mut source, mut destination, mut result, mut time) = (None, None, None, None);
    let mut order = Vec::new();
    while reader.peek().is_some_and(|token| token != START)
        && let Some(role) = reader.take()
    {
        let field = match role {
            SOURCE_V4 | SOURCE_V6 => MeasurementField::Source,
            DESTINATION_V4 | DESTINATION_V6 => MeasurementField::Destination,
            RESULT | FAILED => MeasurementField::Result,
            _ if TIMES.has(role) => MeasurementField::Time,
            _ => return Err(reader.was_wrong("the token of a field (1 to 8, or 10)")),
        };
        if order.contains(&field) {
            return Err(reader.was_wrong("a field that the measurement does not have yet"));
        }
        match field {
            MeasurementField::Source => source = Some(address(reader, role == SOURCE_V4)?),
            MeasurementField::Destination => {
                destination = Some(address(reader, role == DESTINATION_V4)?);
            }
            MeasurementField::Result if role == FAILED => result = Some(None),
            MeasurementField::Result => result = Some(Some(rtt_of(reader.code(is_code)?))),
            MeasurementField::Time => time = Some(reader.time(&TIMES, role)?),
        }
        order.push(field);
    }
    match (source, destination, result) {
        (Some(source), Some(destination), Some(_)) if source.is_ipv4() != destination.is_ipv4() => {
            Err(Error::data(format!(
                "expected two addresses of one family, found {source} and {destination}"
            )))
        }
        (Some(source), Some(destination), Some(rtt_ms)) => {
            Ok(Measurement { source, destination, rtt_ms, time, order })
        }
        _ => Err(reader.wrong("two addresses and a result before the end of the measurement")),
    }
}

fn address(reader: &mut Reader<'_>, is_v4: bool) -> Result<IpAddr> {
    Ok(match is_v4 {
        true => IpAddr::V4(Ipv4Addr::from_bits(reader.number(4)? as u32)),
        false => {
            let high = u128::from(reader.number(8)?);
            IpAddr::V6(Ipv6Addr::from_bits(high << 64 | u128::from(reader.number(8)?)))
        }
    })
}
