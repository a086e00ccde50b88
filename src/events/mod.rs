//! Token rows from the events of many entities: windows, times, a codec, and streams.
#![doc = include_str!("FORMAT.md")]

mod batch;
mod codec;
mod codecs;
mod context;
mod decoded;
pub(crate) mod fields;
pub(crate) mod latency;
mod latest;
mod metadata;
mod row;
mod rows;
mod sampler;
mod settings;
mod store;
#[cfg(test)]
mod tests;
mod tokens;

pub use crate::handoff::Speed;
pub use crate::tensor::{Dtype, Tensor};
pub use batch::EventBatch;
pub use decoded::{DecodedEvent, DecodedField, FieldValue};
pub use fields::{FieldKind, FieldMetadata, number_code, number_of};
pub use latency::{Measurement, MeasurementField, decode_measurements, rtt_code, rtt_of};
pub use metadata::{EventsMetadata, FORMAT_VERSION, SplitCounts, SplitMetadata};
#[cfg(feature = "arrayrecord")]
pub(crate) use row::Row;
pub use sampler::{EventEvaluation, EventSampler, TokenRow};
pub use settings::{EventSettings, TokenType};
pub use store::EventStore;
pub use tokens::TokenTime;
#[cfg(feature = "prepare")]
pub(crate) use {
    codec::Codec,
    codecs::codec,
    row::{ENTITIES_MAX, FRONT_BYTES, RowRecord, items_of, whole_seconds},
    store::{ENTITY_FILE, EVENT_FILE, ROW_FILE},
    tokens::TIME_END_SECONDS,
};
