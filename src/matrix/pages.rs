//! A Parquet file whose page headers are checked before the library believes them.
//!
//! The library makes room for as many values as the header of a dictionary claims, and a damaged header
//! claims billions: no error, but the end of the process. A header is a struct in Thrift's compact protocol;
//! the numbers that matter stand in its first bytes.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use parquet::errors::{ParquetError, Result as Read};
use parquet::file::reader::{ChunkReader, Length};

use crate::error::{Error, Result};
use crate::files::open_file;

/// The bytes of a header that are looked at. Statistics may make it longer, and come last.
const LOOKED_AT: usize = 64;

/// The numbers of fields of a header.
const PAGE_BYTES: i16 = 2;
const DICTIONARY: i16 = 7;
/// Within the header of a dictionary.
const VALUES: i16 = 1;

/// An open Parquet file.
#[derive(Clone)]
pub(crate) struct PageFile {
    file: Arc<File>,
    bytes: u64,
}

impl PageFile {
    /// Opens the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = open_file(path)?;
        let bytes = file.metadata().map_err(|e| Error::io(path, "opening", e))?.len();
        Ok(Self { file: Arc::new(file), bytes })
    }
}

impl Length for PageFile {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for PageFile {
    type T = BufReader<File>;

    /// Reads the header of a page, or something else.
    fn get_read(&self, start: u64) -> Read<Self::T> {
        let mut bytes = [0; LOOKED_AT];
        let count = self.file.read_at(&mut bytes, start).map_err(io_error)?;
        let mut found = Header::default();
        // What cannot be read as a header is left to the library.
        let _ = found.read(&mut &bytes[..count], None);
        found.check()?;
        self.file.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Read<bytes::Bytes> {
        let end = start.checked_add(length as u64);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(ParquetError::EOF(format!(
                "expected {length} bytes from byte {start} on, found a file of {} bytes",
                self.bytes
            )));
        }
        self.file.get_bytes(start, length)
    }
}

fn io_error(error: io::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

/// What the header of a page claims.
#[derive(Debug, Default, PartialEq)]
struct Header {
    page_bytes: i64,
    /// The number of values of a dictionary.
    values: Option<i64>,
}

impl Header {
    /// Checks that a dictionary has place in its page: a value takes a byte or more.
    fn check(&self) -> Read<()> {
        match self.values {
            Some(values) if values > self.page_bytes => Err(ParquetError::General(format!(
                "a dictionary claims {values} values in {} bytes",
                self.page_bytes
            ))),
            _ => Ok(()),
        }
    }

    /// Reads the fields of a struct, which is the field `parent` of the header; `None` when the bytes
    /// end before it, or are none.
    fn read(&mut self, bytes: &mut &[u8], parent: Option<i16>) -> Option<()> {
        let mut field = 0_i16;
        loop {
            let (step, kind) = match next(bytes)? {
                0 => return Some(()),
                byte => (byte >> 4, byte & 15),
            };
            field = match step {
                0 => i16::try_from(signed(bytes)?).ok()?,
                step => field.checked_add(i16::from(step))?,
            };
            match kind {
                // Truth values stand in the kind.
                1 | 2 => {}
                4..=6 => self.note(parent, field, signed(bytes)?),
                12 if parent.is_none() => self.read(bytes, Some(field))?,
                _ => return None,
            }
        }
    }

    fn note(&mut self, parent: Option<i16>, field: i16, number: i64) {
        match (parent, field) {
            (None, PAGE_BYTES) => self.page_bytes = number,
            (Some(DICTIONARY), VALUES) => self.values = Some(number),
            _ => {}
        }
    }
}

fn next(bytes: &mut &[u8]) -> Option<u8> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(first)
}

/// Reads a number whose lowest bit is its sign, in groups of seven bits.
fn signed(bytes: &mut &[u8]) -> Option<i64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = next(bytes)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((number >> 1) as i64 ^ -((number & 1) as i64));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(bytes: &[u8]) -> Header {
        let mut found = Header::default();
        let _ = found.read(&mut &bytes[..], None);
        found
    }

    #[test]
    fn the_numbers_of_a_header_are_read_in_any_field() {
        // A dictionary page: its kind, 20 bytes packed to 300, and 5 values.
        let whole = [0x15, 4, 0x15, 40, 0x15, 0xd8, 4, 0x4c, 0x15, 10, 0x15, 0, 0, 0];
        assert_eq!(header(&whole), Header { page_bytes: 20, values: Some(5) });
        // A field with its number beside it, and a number that ends too early.
        assert_eq!(header(&[0x05, 4, 40, 0]).page_bytes, 20);
        assert_eq!(header(&whole[..6]), Header { page_bytes: 20, values: None });
        assert_eq!(header(&[0x25, 0xff]), Header::default());
    }

    #[test]
    fn a_dictionary_that_has_no_place_in_its_page_is_refused() {
        for (page_bytes, values, is_right) in [
            (20, None, true),
            (0, None, true),
            (20, Some(20), true),
            (20, Some(21), false),
            (-1, Some(0), false),
        ] {
            assert_eq!(Header { page_bytes, values }.check().is_ok(), is_right, "{values:?}");
        }
    }
}
