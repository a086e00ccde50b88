//! The quotes of a CSV file, checked before the parser sees them.
//!
//! The parser takes whatever comes: text after a closing quote is joined to the field, and a quote
//! that never closes swallows the rest of the file. Here each is an error. A quote within a field
//! that does not begin with one (`5" pipe`) stays as it stands, as many writers leave it.

use std::fmt;
use std::io::{self, Read};

use memchr::memchr;

pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What is wrong with a file's quotes; the numbers count bytes from the file's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadQuotes {
    /// Where the field's opening quote is.
    pub opened: u64,
    /// What follows its closing quote though it should not; none when nothing closes it.
    pub stray: Option<u64>,
}

impl fmt::Display for BadQuotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the quotes of the field at byte {} are wrong", self.opened)
    }
}

impl std::error::Error for BadQuotes {}

/// Hands on what it reads, once the quotes in it are found to be right.
pub(super) struct CheckedQuotes<R> {
    inner: R,
    quotes: Quotes,
}

impl<R> CheckedQuotes<R> {
    pub(super) fn new(inner: R, delimiter: u8) -> Self {
        Self { inner, quotes: Quotes::new(delimiter) }
    }
}

impl<R: Read> Read for CheckedQuotes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let checked = match count {
            0 if !buffer.is_empty() => self.quotes.check_end(),
            _ => self.quotes.check(&buffer[..count]),
        };
        match checked {
            Ok(()) => Ok(count),
            Err(bad) => Err(io::Error::new(io::ErrorKind::InvalidData, bad)),
        }
    }
}

/// Where the bytes seen so far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Outside quotes.
    Outside,
    /// Between a field's quotes.
    Inside,
    /// After a quote that closes the field, unless it is the first of two.
    Closing,
}

struct Quotes {
    delimiter: u8,
    place: Place,
    /// The latest byte seen.
    last: u8,
    /// How many bytes were seen.
    offset: u64,
    /// Where the latest field in quotes opened.
    opened: u64,
}

impl Quotes {
    fn new(delimiter: u8) -> Self {
        // A file begins as a line does.
        Self { delimiter, place: Place::Outside, last: b'\n', offset: 0, opened: 0 }
    }

    /// Checks the next bytes of the file. Bytes without a quote cost a search for one.
    fn check(&mut self, bytes: &[u8]) -> Result<(), BadQuotes> {
        // The parser skips the mark too.
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

    /// Judges a quote within quotes by what stands at `at`, behind it; returns where to go on.
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

    /// Refuses a file that ends inside quotes.
    fn check_end(&self) -> Result<(), BadQuotes> {
        match self.place {
            Place::Inside => Err(BadQuotes { opened: self.opened, stray: None }),
            Place::Outside | Place::Closing => Ok(()),
        }
    }
}

/// Where the next quote is, from `at` on.
fn next_quote(bytes: &[u8], at: usize, delimiter: u8) -> Option<usize> {
    match bytes.get(at..at + 2) {
        // Quoted fields that follow each other need no search.
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

    /// The rules once more, a byte at a time.
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
    fn each_verdict_at_every_size_of_buffer() {
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
    fn a_field_may_begin_behind_a_byte_order_mark() {
        let text = "\u{feff}\"a\"b".as_bytes();
        assert_eq!(read(text, b',', 16), Err(BadQuotes { opened: 3, stray: Some(6) }));
        // Anywhere else it is a character as any.
        assert!(read("a,\u{feff}\"a\"b".as_bytes(), b',', 16).is_ok());
    }

    proptest! {
        #[test]
        fn the_plain_twin_agrees(
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
