//! ArrayRecord files: records with random access, as Google's `array_record` has them.
#![doc = include_str!("FORMAT.md")]

mod chunks;
mod messages;
mod reader;
mod records;
mod writer;

pub(super) use reader::Reader;
pub(super) use writer::Writer;
