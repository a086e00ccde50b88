//! The codecs by their names.

use super::codec::Codec;
use super::latency::{self, Latency};
use crate::error::{Error, Result};

/// Returns the codec of this name.
///
/// # Errors
/// `InvalidArgument` when there is none.
pub(crate) fn codec(name: &str) -> Result<&'static dyn Codec> {
    match name {
        latency::NAME => Ok(&Latency),
        _ => Err(Error::invalid(format!(
            "expected the codec {:?}, found {name:?}; name a codec of this version of headwater",
            latency::NAME
        ))),
    }
}
