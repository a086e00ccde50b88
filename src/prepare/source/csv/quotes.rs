//! Checks the quotes of a CSV file before the parser reads them.
//!
//! The parser is lenient: it appends text after a closing quote to the field, and reads an unclosed
//! field to the end of the file. Both are errors here. A quote within a field that does not begin
//! with one (`5" pipe`) is a plain character, because many writers leave it unquoted.

use std::fmt;
use std::io::{self, Read};

use memchr::memchr;

use crate::prepare::source::CELL_BYTES_MAX;

/// The most bytes of a row. Without a limit, a file whose lines do not end would be read as one row.
pub(super) const ROW_BYTES_MAX: u64 = 32 << 20;

/// The most bytes of the header, whose columns take memory of their own.
pub(super) const HEADER_BYTES_MAX: u64 = 8 << 20;

pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A field with wrong quotes; the numbers are byte offsets in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadQuotes {
    /// The offset of the field's opening quote.
    pub opened: u64,
    /// The offset of the text after its closing quote; `None` if the field is not closed.
    pub stray: Option<u64>,
}

impl fmt::Display for BadQuotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the quotes of the field at byte {} are wrong", self.opened)
    }
}

impl std::error::Error for BadQuotes {}

/// A part of the file that is too long to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooLong {
    /// The row at this byte, and the limit.
    Row(u64, u64),
    /// The quoted field whose opening quote is this byte.
    Field(u64),
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Row(at, _) | Self::Field(at)) = self;
        write!(f, "the text at byte {at} is too long")
    }
}

impl std::error::Error for TooLong {}

/// A reader that checks the quotes in the bytes it reads, and the lengths of rows and fields.
pub(super) struct CheckedQuotes<R> {
    inner: R,
    quotes: Quotes,
    /// Where the row begins that the parser reads, and the most bytes of it.
    row: (u64, u64),
}

impl<R> CheckedQuotes<R> {
    pub(super) fn new(inner: R, delimiter: u8) -> Self {
        Self { inner, quotes: Quotes::new(delimiter), row: (0, HEADER_BYTES_MAX) }
    }

    /// Tells that the parser begins to read the row at this byte, after the header.
    pub(super) fn begin_row(&mut self, at: u64) {
        self.row = (at, ROW_BYTES_MAX);
    }

    /// Checks that the parser need not hold too long a text to go on.
    fn check_lengths(&self) -> Result<(), TooLong> {
        let (read, (row, limit)) = (self.quotes.offset, self.row);
        match self.quotes.place {
            Place::Inside if read - self.quotes.opened > CELL_BYTES_MAX as u64 => {
                Err(TooLong::Field(self.quotes.opened))
            }
            _ if read - row > limit => Err(TooLong::Row(row, limit)),
            _ => Ok(()),
        }
    }
}

impl<R: Read> Read for CheckedQuotes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let checked = match count {
            0 if !buffer.is_empty() => self.quotes.check_end(),
            _ => self.quotes.check(&buffer[..count]),
        };
        checked.map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad))?;
        self.check_lengths().map_err(|long| io::Error::new(io::ErrorKind::InvalidData, long))?;
        Ok(count)
    }
}

/// The position of the latest byte relative to quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Outside quotes.
    Outside,
    /// Between a field's quotes.
    Inside,
    /// After a quote that closes the field or is the first of two.
    Closing,
}

struct Quotes {
    delimiter: u8,
    place: Place,
    /// The latest byte.
    last: u8,
    /// The number of bytes read.
    offset: u64,
    /// The offset of the latest opening quote.
    opened: u64,
}

impl Quotes {
    fn new(delimiter: u8) -> Self {
        // The file begins like a line.
        Self { delimiter, place: Place::Outside, last: b'\n', offset: 0, opened: 0 }
    }

    /// Checks the next bytes of the file; searches only for quotes.
    fn check(&mut self, bytes: &[u8]) -> Result<(), BadQuotes> {
        // The parser skips the byte order mark, too.
        let is_marked = self.offset == 0 && bytes.starts_with(BYTE_ORDER_MARK);
        let bytes = if is_marked { &bytes[BYTE_ORDER_MARK.len()..] } else { bytes };
        self.offset += if is_marked { BYTE_ORDER_MARK.len() as u64 } else { 0 };

        let mut at = if self.place == Place::Closing { self.close(bytes, 0)? } else { 0 };
        while let Some(quote) = next_quote(bytes, at, self.delimiter) {
            at = quote + 1;
            let before = quote.checked_sub(1).map_or(self.last, |before| bytes[before]);
            if self.place == Place::Inside {
                at = self.close(bytes, at)?;
            } else if ends_field(before, self.delimiter) {
                (self.place, self.opened) = (Place::Inside, self.offset + quote as u64);
            }
        }
        self.last = bytes.last().copied().unwrap_or(self.last);
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Checks the byte at `at`, after a quote within quotes; returns the offset to continue from.
    fn close(&mut self, bytes: &[u8], at: usize) -> Result<usize, BadQuotes> {
        let (place, next) = match bytes.get(at) {
            None => (Place::Closing, at),
            Some(b'"') => (Place::Inside, at + 1),
            Some(&byte) if ends_field(byte, self.delimiter) => (Place::Outside, at),
            Some(_) => {
                let stray = Some(self.offset + at as u64);
                return Err(BadQuotes { opened: self.opened, stray });
            }
        };
        self.place = place;
        Ok(next)
    }

    /// Checks that the file does not end inside quotes.
    fn check_end(&self) -> Result<(), BadQuotes> {
        match self.place {
            Place::Inside => Err(BadQuotes { opened: self.opened, stray: None }),
            Place::Outside | Place::Closing => Ok(()),
        }
    }
}

/// Finds the next quote from `at` on.
fn next_quote(bytes: &[u8], at: usize, delimiter: u8) -> Option<usize> {
    match bytes.get(at..at + 2) {
        // Adjacent quoted fields need no search.
        Some(&[before, b'"']) if before == delimiter || before == b'\n' => Some(at + 1),
        _ => memchr(b'"', &bytes[at..]).map(|found| at + found),
    }
}

/// Whether a field ends before this byte, outside quotes.
pub(super) fn ends_field(byte: u8, delimiter: u8) -> bool {
    byte == delimiter || matches!(byte, b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads `bytes`, at most `size` of them at a time.
    fn read(bytes: &[u8], delimiter: u8, size: usize) -> Result<Vec<u8>, BadQuotes> {
        let mut reader = CheckedQuotes::new(bytes, delimiter);
        let (mut found, mut buffer) = (Vec::new(), vec![0; size]);
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(found),
                Ok(count) => found.extend_from_slice(&buffer[..count]),
                Err(e) => return Err(*e.get_ref().unwrap().downcast_ref().unwrap()),
            }
        }
    }

    /// A second implementation of the rules, one byte at a time.
    fn plain(bytes: &[u8], delimiter: u8) -> Result<(), BadQuotes> {
        let ends = |byte: &u8| *byte == delimiter || b"\n\r".contains(byte);
        let mut at = 0;
        while at < bytes.len() {
            if bytes[at] == b'"' {
                let opened = at;
                at += 1;
                loop {
                    match (bytes.get(at), bytes.get(at + 1)) {
                        (None, _) => {
                            return Err(BadQuotes { opened: opened as u64, stray: None });
                        }
                        (Some(b'"'), Some(b'"')) => at += 2,
                        (Some(b'"'), _) => break,
                        _ => at += 1,
                    }
                }
                at += 1;
                if bytes.get(at).is_some_and(|byte| !ends(byte)) {
                    return Err(BadQuotes { opened: opened as u64, stray: Some(at as u64) });
                }
            }
            while bytes.get(at).is_some_and(|byte| !ends(byte)) {
                at += 1;
            }
            at += 1;
        }
        Ok(())
    }

    #[test]
    fn quotes_are_checked_alike_in_buffers_of_any_size() {
        let bad = |opened, stray| Err(BadQuotes { opened, stray });
        let cases: [(&str, Result<(), BadQuotes>); 13] = [
            ("a,b\n\"x\",\"y\"\n", Ok(())),
            ("\"a\"\r\n\"x\ny\r\nz\"\r\n", Ok(())),
            ("\"say \"\"hi\"\"\",\"\"\"\"", Ok(())),
            ("\"\"", Ok(())),
            ("", Ok(())),
            ("5\" pipe,a\"\"b\n", Ok(())),
            ("\"ab\"cd", bad(0, Some(4))),
            ("a\n\"b\" ,c", bad(2, Some(5))),
            ("a,\"b\n1,\"x\"\n", bad(2, Some(8))),
            ("a,\"b", bad(2, None)),
            ("a,\"", bad(2, None)),
            ("a,\"b\"\"", bad(2, None)),
            ("a;\"b\"c\t\"d", Ok(())),
        ];
        for (text, expected) in cases {
            assert_eq!(plain(text.as_bytes(), b','), expected, "{text:?}");
            for size in 1..=text.len() + 1 {
                let found = read(text.as_bytes(), b',', size);
                assert_eq!(found, expected.map(|()| text.as_bytes().to_vec()), "{text:?}, {size}");
            }
        }
    }

    #[test]
    fn a_quoted_field_may_follow_a_byte_order_mark() {
        let text = "\u{feff}\"a\"b".as_bytes();
        assert_eq!(read(text, b',', 16), Err(BadQuotes { opened: 3, stray: Some(6) }));
        // Elsewhere the mark is a plain character.
        assert!(read("a,\u{feff}\"a\"b".as_bytes(), b',', 16).is_ok());
    }

    proptest! {
        #[test]
        fn both_implementations_of_the_rules_agree(
            picks in prop::collection::vec(0_usize..7, 0..40),
            delimiter in prop::sample::select(b",;".to_vec()),
            size in 1_usize..10,
        ) {
            let bytes: Vec<u8> = picks.iter().map(|&pick| b"\"\",;\n\ra"[pick]).collect();
            let expected = plain(&bytes, delimiter).map(|()| bytes.clone());
            prop_assert_eq!(read(&bytes, delimiter, size), expected);
        }
    }
}
