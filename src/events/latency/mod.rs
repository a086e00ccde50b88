//! The codec `latency-v1`: measurements of round trips between two addresses, in 267 tokens.

mod alphabet;
mod codec;
mod measurement;

pub(crate) use alphabet::NAME;
#[cfg(feature = "arrayrecord")]
pub(crate) use alphabet::middle_of;
pub use alphabet::{rtt_code, rtt_of};
pub(super) use codec::Latency;
#[cfg(feature = "arrayrecord")]
pub(crate) use codec::destination_and_code;
#[cfg(feature = "prepare")]
pub(crate) use codec::{V4, V6};
pub use measurement::{Measurement, MeasurementField, decode_measurements};
