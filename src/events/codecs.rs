//! The codecs by their names.

use super::codec::Codec;
use super::fields::{self, FieldMetadata, FieldsCodec};
use super::latency::{self, Latency};
use crate::error::{Error, Result};

/// Returns the codec of this name; `fields` is its vocabulary, if it has one.
///
/// # Errors
/// `InvalidArgument` when there is none; `Corrupt` when the fields are none that it has.
pub(crate) fn codec(name: &str, fields: &[FieldMetadata]) -> Result<Box<dyn Codec>> {
    match name {
        latency::NAME if fields.is_empty() => Ok(Box::new(Latency)),
        latency::NAME => Err(Error::corrupt(format!(
            "expected no fields for the codec {name:?}, found {}",
            fields.len()
        ))),
        fields::NAME => Ok(Box::new(FieldsCodec::new(fields)?)),
        _ => Err(Error::invalid(format!(
            "expected the codec {:?} or {:?}, found {name:?}; name a codec of this version of headwater",
            latency::NAME,
            fields::NAME
        ))),
    }
}
