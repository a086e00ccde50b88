//! The bytes of a CSV file: as they are, or packed with gzip or Zstandard.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use zstd::stream::read::Decoder;

use crate::error::{Error, Result};
use crate::files::open_file;

/// An open CSV file, which gives the bytes of the text.
pub(super) struct Input {
    packing: Option<Packing>,
    bytes: Bytes,
}

enum Bytes {
    Plain(File),
    Gzip(MultiGzDecoder<BufReader<File>>),
    Zstandard(Decoder<'static, BufReader<File>>),
}

/// How the text is packed.
#[derive(Clone, Copy, Debug)]
enum Packing {
    Gzip,
    Zstandard,
}

/// The error of an archive that cannot be unpacked.
#[derive(Debug)]
struct Damaged {
    packing: Packing,
    cause: String,
}

impl Input {
    /// Opens a file; the ending of its name says how it is packed.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let fail = |e| Error::io(path, "opening", e);
        let file = open_file(path)?;
        let packing = Packing::of(path);
        let bytes = match packing {
            None => Bytes::Plain(file),
            Some(Packing::Gzip) => Bytes::Gzip(MultiGzDecoder::new(BufReader::new(file))),
            Some(Packing::Zstandard) => Bytes::Zstandard(Decoder::new(file).map_err(fail)?),
        };
        Ok(Self { packing, bytes })
    }

    /// Skips the first `count` bytes of a file that was just opened.
    pub(super) fn skip(&mut self, count: u64) -> io::Result<()> {
        if let Bytes::Plain(file) = &mut self.bytes {
            return file.seek(SeekFrom::Start(count)).map(drop);
        }
        io::copy(&mut self.by_ref().take(count), &mut io::sink()).map(drop)
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match &mut self.bytes {
            Bytes::Plain(file) => return file.read(buffer),
            Bytes::Gzip(decoder) => decoder.read(buffer),
            Bytes::Zstandard(decoder) => decoder.read(buffer),
        };
        count.map_err(|error| match self.packing {
            // An error of the disk has a number of the operating system.
            Some(packing) if error.raw_os_error().is_none() => {
                let damaged = Damaged { packing, cause: error.to_string() };
                io::Error::new(io::ErrorKind::InvalidData, damaged)
            }
            _ => error,
        })
    }
}

impl Packing {
    fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?;
        match extension.to_ascii_lowercase().as_str() {
            "gz" => Some(Self::Gzip),
            "zst" => Some(Self::Zstandard),
            _ => None,
        }
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = match self.packing {
            Packing::Gzip => "gzip",
            Packing::Zstandard => "Zstandard",
        };
        write!(
            f,
            "not a complete {format} file: {}; it may be truncated or damaged, write it again",
            self.cause
        )
    }
}

impl std::error::Error for Damaged {}

/// Returns the error about bytes that could not be read.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Damaged>()) {
        Some(damaged) => Error::data(damaged.to_string()).context(path.display()),
        None => {
            // Keeps the number of the operating system, by which callers tell errors apart.
            let copy = error.raw_os_error().map(io::Error::from_raw_os_error);
            let copy = copy.unwrap_or_else(|| io::Error::new(error.kind(), error.to_string()));
            Error::io(path, "reading", copy)
        }
    }
}

/// Returns the error to report when a text has a fault: that of its archive, if that is damaged.
///
/// A damaged archive may give wrong text, which is at fault before the checksum at the end is read.
pub(super) fn blamed(path: &Path, fault: Error) -> Error {
    let check = || {
        let mut input = Input::open(path)?;
        if input.packing.is_some() {
            io::copy(&mut input, &mut io::sink()).map_err(|e| unreadable(path, &e))?;
        }
        Ok(())
    };
    check().err().unwrap_or(fault)
}
