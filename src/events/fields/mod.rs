//! The codec `fields-v1`: events of any fields, with a vocabulary of their own.

mod codec;
mod metadata;
mod number;
mod value;

pub(super) use codec::FieldsCodec;
pub(crate) use codec::NAME;
pub use metadata::{FieldKind, FieldMetadata};
pub use number::{number_code, number_of};
#[cfg(feature = "prepare")]
pub(crate) use {
    metadata::{FIELDS_MAX, TEXT_BYTES_MAX, field_tokens},
    number::is_too_large,
    value::{Layout as FieldLayout, Value as StoredValue},
};
