//! A Parquet file whose page headers are checked before the library believes them.
//!
//! The library makes room for as many values as the header of a dictionary claims, and for as many bytes as
//! that of a packed page claims. A damaged header claims billions: no error, but the end of the process. A
//! header is a struct in Thrift's compact protocol; the numbers that matter stand in its first bytes.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use parquet::errors::{ParquetError, Result as Read};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};

use crate::error::{Error, Result};
use crate::files::open_file;

/// The bytes of a header that are looked at. Statistics may make it longer, and come last.
const LOOKED_AT: usize = 64;

/// The bytes that any page may claim. A larger one claims no more than the footer gives its column in the
/// row group, and than there is memory for.
const PAGE_BYTES_MAX: u64 = 64 << 20;
/// The bytes of a page for which memory is looked for before the library asks for it.
const LARGE_PAGE_BYTES: u64 = 1 << 20;

/// The end of a file whose footer is encrypted.
const ENCRYPTED: [u8; 4] = *b"PARE";

/// The numbers of fields of a header.
const KIND: i16 = 1;
const PAGE_BYTES: i16 = 2;
const PACKED_BYTES: i16 = 3;
const DICTIONARY: i16 = 7;
/// Within the header of a dictionary.
const VALUES: i16 = 1;

/// An open Parquet file.
#[derive(Clone)]
pub(crate) struct PageFile {
    file: Arc<File>,
    bytes: u64,
    /// Where each column begins in each row group, in order, and its bytes without packing.
    columns: Arc<[(u64, u64)]>,
}

impl PageFile {
    /// Opens the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = open_file(path)?;
        let bytes = file.metadata().map_err(|e| Error::io(path, "opening", e))?.len();
        let mut end = [0; ENCRYPTED.len()];
        let at = bytes.saturating_sub(end.len() as u64);
        if file.read_exact_at(&mut end, at).is_ok() && end == ENCRYPTED {
            return Err(Error::data(format!(
                "{}: expected a plain Parquet file, found an encrypted one; write it again without \
                 encryption",
                path.display()
            )));
        }
        Ok(Self { file: Arc::new(file), bytes, columns: Arc::default() })
    }

    /// The same file, whose pages are held to what the footer says of them.
    pub(crate) fn held_to(&self, footer: &ParquetMetaData) -> Self {
        let columns = footer.row_groups().iter().flat_map(RowGroupMetaData::columns);
        let mut columns: Vec<_> = columns
            .map(|column| {
                let start = column.dictionary_page_offset().unwrap_or(i64::MAX);
                let start = start.min(column.data_page_offset());
                (start.max(0) as u64, column.uncompressed_size().max(0) as u64)
            })
            .collect();
        columns.sort_unstable();
        Self { columns: columns.into(), ..self.clone() }
    }

    /// The bytes that a page at `start` may claim.
    fn page_bytes_max(&self, start: u64) -> u64 {
        let column = self.columns.partition_point(|&(first, _)| first <= start);
        let bytes = column.checked_sub(1).map_or(0, |column| self.columns[column].1);
        bytes.max(PAGE_BYTES_MAX)
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
        let left = self.bytes.saturating_sub(start);
        found.check_room(left, self.page_bytes_max(start))?;
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
    kind: Option<i64>,
    page_bytes: i64,
    packed_bytes: Option<i64>,
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

    /// Checks that there is room for a page which takes at most `left` bytes of the file.
    fn check_room(&self, left: u64, page_bytes_max: u64) -> Read<()> {
        // Who has looked at a header before begins to read behind it, at bytes that mean something else.
        let is_kind = self.kind.is_some_and(|kind| (0..4).contains(&kind));
        let packed = self.packed_bytes.and_then(|bytes| u64::try_from(bytes).ok());
        let claimed = self.page_bytes.max(0) as u64;
        if !is_kind || packed.is_none_or(|bytes| bytes > left) || claimed <= LARGE_PAGE_BYTES {
            return Ok(());
        }
        if claimed > page_bytes_max {
            return Err(ParquetError::General(format!(
                "a page claims {claimed} bytes, and its column has at most {page_bytes_max}"
            )));
        }
        // The library ends the process when it finds none.
        Vec::<u8>::new().try_reserve_exact(claimed as usize).map_err(|_| {
            ParquetError::General(format!("cannot allocate the {claimed} bytes of a page"))
        })
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
            (None, KIND) => self.kind = Some(number),
            (None, PAGE_BYTES) => self.page_bytes = number,
            (None, PACKED_BYTES) => self.packed_bytes = Some(number),
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
        let expected =
            Header { kind: Some(2), page_bytes: 20, packed_bytes: Some(300), values: Some(5) };
        assert_eq!(header(&whole), expected);
        // A field with its number beside it, and a number that ends too early.
        assert_eq!(header(&[0x05, 4, 40, 0]).page_bytes, 20);
        assert_eq!(header(&whole[..6]), Header { packed_bytes: None, values: None, ..expected });
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
            let header = Header { page_bytes, values, ..Header::default() };
            assert_eq!(header.check().is_ok(), is_right, "{values:?}");
        }
    }

    #[test]
    fn a_page_that_claims_more_than_its_column_is_refused() {
        let header = |kind, page_bytes, packed_bytes| Header {
            kind: Some(kind),
            page_bytes,
            packed_bytes: Some(packed_bytes),
            values: None,
        };
        let large = i64::from(i32::MAX);
        for (header, is_right) in [
            (header(0, 1 << 21, 100), true),
            (header(0, (1 << 21) + 1, 100), false),
            (header(2, large, 100), false),
            // No headers: bytes of a page.
            (header(4, large, 100), true),
            (header(0, large, 101), true),
            (header(0, large, -1), true),
            (Header { page_bytes: large, ..Header::default() }, true),
        ] {
            assert_eq!(header.check_room(100, 1 << 21).is_ok(), is_right, "{header:?}");
        }
        let error = header(0, 1 << 62, 1).check_room(100, u64::MAX).unwrap_err();
        assert!(error.to_string().contains("cannot allocate"), "{error}");
    }
}
