//! Reads tokens of the codec `latency-v1` back: the measurements of a context.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use super::latency::{
    BYTE, DESTINATION_V4, FAILED, RESULT, SOURCE_V4, START, TIME_ABSOLUTE, TIME_DELTA_1,
    TIME_DELTA_4, rtt_of,
};
use crate::error::{Error, Result};

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
    pub order: Vec<Field>,
}

/// The time of a measurement, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenTime {
    /// Since 1970.
    Absolute(u64),
    /// Since the timed measurement before it.
    Since(u32),
}

/// A field of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
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
pub fn decode(tokens: &[u16]) -> Result<Vec<Measurement>> {
    let mut reader = Reader { tokens, at: 0 };
    let mut measurements = Vec::new();
    while reader.at < tokens.len() {
        measurements.push(reader.measurement()?);
    }
    Ok(measurements)
}

struct Reader<'a> {
    tokens: &'a [u16],
    at: usize,
}

impl Reader<'_> {
    fn measurement(&mut self) -> Result<Measurement> {
        if self.tokens[self.at] != START {
            return Err(self.wrong("the token 0, which begins a measurement"));
        }
        self.at += 1;
        let (mut source, mut destination, mut result, mut time) = (None, None, None, None);
        let mut order = Vec::new();
        while let Some(&role) = self.tokens.get(self.at).filter(|&&token| token != START) {
            self.at += 1;
            order.push(match role {
                SOURCE_V4.. if role < DESTINATION_V4 => {
                    source = Some(self.address(role == SOURCE_V4)?);
                    Field::Source
                }
                DESTINATION_V4.. if role < TIME_ABSOLUTE => {
                    destination = Some(self.address(role == DESTINATION_V4)?);
                    Field::Destination
                }
                TIME_ABSOLUTE => {
                    time = Some(TokenTime::Absolute(self.number(8)?));
                    Field::Time
                }
                TIME_DELTA_1 => {
                    time = Some(TokenTime::Since(self.number(1)? as u32));
                    Field::Time
                }
                TIME_DELTA_4 => {
                    time = Some(TokenTime::Since(self.number(4)? as u32));
                    Field::Time
                }
                RESULT => {
                    result = Some(Some(rtt_of(self.number(2)? as u16)));
                    Field::Result
                }
                FAILED => {
                    result = Some(None);
                    Field::Result
                }
                _ => {
                    self.at -= 1;
                    return Err(self.wrong("the token of a field (1 to 8, or 10)"));
                }
            });
        }
        match (source, destination, result) {
            (Some(source), Some(destination), Some(rtt_ms)) => {
                Ok(Measurement { source, destination, rtt_ms, time, order })
            }
            _ => Err(self.wrong("two addresses and a result before the end of the measurement")),
        }
    }

    fn address(&mut self, is_v4: bool) -> Result<IpAddr> {
        Ok(match is_v4 {
            true => IpAddr::V4(Ipv4Addr::from_bits(self.number(4)? as u32)),
            false => {
                let high = u128::from(self.number(8)?);
                IpAddr::V6(Ipv6Addr::from_bits(high << 64 | u128::from(self.number(8)?)))
            }
        })
    }

    /// Reads a number of `count` bytes, the most significant first.
    fn number(&mut self, count: usize) -> Result<u64> {
        let mut number = 0;
        for _ in 0..count {
            let token = self.tokens.get(self.at).copied().unwrap_or(START);
            if !(BYTE..BYTE + 256).contains(&token) {
                return Err(self.wrong("the token of a byte (11 to 266)"));
            }
            number = number << 8 | u64::from(token - BYTE);
            self.at += 1;
        }
        Ok(number)
    }

    fn wrong(&self, expected: &str) -> Error {
        let found = match self.tokens.get(self.at) {
            Some(token) => format!("the token {token}"),
            None => "the end".to_owned(),
        };
        Error::data(format!("token {}: expected {expected}, found {found}", self.at))
    }
}
