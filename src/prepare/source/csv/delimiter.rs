//! Finds the delimiter of a CSV file: a comma, a semicolon, a tab or a bar.
//!
//! The delimiter is the one that the header line contains most often outside quotes; among equally
//! frequent ones, the first of that list.

use std::io::{self, BufRead};

use super::quotes::BYTE_ORDER_MARK;

/// The delimiters, the likeliest first.
const DELIMITERS: [u8; 4] = *b",;\t|";

/// Finds the delimiter by the first line that is not blank.
pub(super) fn find(input: impl BufRead) -> io::Result<u8> {
    let mut header = Header::default();
    for byte in input.bytes() {
        if !header.read_byte(byte?) {
            break;
        }
    }
    let most = header.counts.iter().max().copied().unwrap_or(0);
    let first = header.counts.iter().position(|&count| count == most).unwrap_or(0);
    Ok(DELIMITERS[first])
}

/// The state while reading the header line.
struct Header {
    /// The number of occurrences of each delimiter.
    counts: [u64; 4],
    /// Whether the position is within quotes.
    inside: bool,
    /// Whether a quote here opens a field, or doubles the quote before it.
    at_start: bool,
    blank: bool,
    /// The number of bytes read of a byte order mark.
    mark: usize,
}

impl Default for Header {
    fn default() -> Self {
        Self { counts: [0; 4], inside: false, at_start: true, blank: true, mark: 0 }
    }
}

impl Header {
    /// Reads a byte; returns false at the end of the line.
    fn read_byte(&mut self, byte: u8) -> bool {
        if self.blank && BYTE_ORDER_MARK.get(self.mark) == Some(&byte) {
            self.mark += 1;
            return true;
        }
        let ends_line = matches!(byte, b'\n' | b'\r');
        if ends_line && !self.inside {
            return self.blank;
        }
        self.blank = false;
        let delimiter = DELIMITERS.iter().position(|&delimiter| delimiter == byte);
        match delimiter {
            // A doubled quote closes the field and opens it again.
            _ if byte == b'"' && self.inside => (self.inside, self.at_start) = (false, true),
            _ if self.inside => {}
            _ if byte == b'"' && self.at_start => self.inside = true,
            Some(place) => (self.counts[place], self.at_start) = (self.counts[place] + 1, true),
            None => self.at_start = false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_delimiter_outside_quotes_is_found() {
        for (text, expected) in [
            ("a,b;c,d\n", b','),
            ("a;b;c,d\n1,2,3,4", b';'),
            ("a\tb", b'\t'),
            ("a|b|c\r\n", b'|'),
            ("name\n1;2;3", b','),
            ("", b','),
            ("a,b;c\n", b','),
            ("a;b|c\n", b';'),
            ("\"x,y,z\";b\n", b';'),
            ("\"say \"\"a,b,c\"\"\";b\n", b';'),
            ("5\" a,b,c;\"x;y;z;u\"", b','),
            ("\"two\nlines, or, more\";b\n1,2,3,4", b';'),
            ("\u{feff}\"a,b,c\";b", b';'),
            ("\n\r\na;b\n", b';'),
        ] {
            assert_eq!(find(text.as_bytes()).unwrap(), expected, "{text:?}");
        }
    }
}
