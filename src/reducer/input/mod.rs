//! Matrices on disk, mapped and read row by row.

pub(super) mod npy;

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use half::{bf16, f16};

use crate::bytes::Digest;
use crate::error::{Context, Error, Result};
use crate::fold::{Rows, Values};
use crate::map::Map;

/// The type of a matrix's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Element {
    F64,
    F32,
    F16,
    Bf16,
}

impl Element {
    /// Its name, as it is given on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// How a file says what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixFormat {
    /// NumPy's. The element is for what NumPy has no name for: bfloat16, which it keeps as two bytes.
    Npy(Option<Element>),
    /// Nothing but the numbers, row by row, little endian.
    Raw {
        /// The type of the numbers.
        element: Element,
        /// How many a row has.
        columns: usize,
    },
}

/// The rows of one or several files, one after the other.
pub struct Matrix {
    parts: Vec<Part>,
    element: Element,
    columns: usize,
}

/// One file.
struct Part {
    map: Map,
    /// Where its numbers begin.
    offset: usize,
    /// Its first row among those of the matrix, and the first after it.
    rows: Range<u64>,
}

impl Matrix {
    /// The matrix of these files, in their order.
    ///
    /// # Errors
    /// `Io`; `NotOurs`, `Corrupt` or `InvalidArgument` when a file is no matrix of its format, or
    /// not of the same columns and element as the first.
    pub fn open(paths: &[PathBuf], format: MatrixFormat) -> Result<Self> {
        let Some((first, others)) = paths.split_first() else {
            return Err(Error::invalid("expected at least one file of rows, found none"));
        };
        let mut matrix = open_one(first, format)?;
        for path in others {
            let mut other = open_one(path, format)?;
            let form = |matrix: &Self| (matrix.columns, matrix.element);
            if form(&other) != form(&matrix) {
                return Err(Error::invalid(format!(
                    "{}: expected {} columns of {}, as in {}, found {} of {}; the files of one \
                     matrix have rows of one form",
                    path.display(),
                    matrix.columns,
                    matrix.element.name(),
                    first.display(),
                    other.columns,
                    other.element.name()
                )));
            }
            let before = matrix.rows();
            for part in &mut other.parts {
                part.rows = before..before + part.rows.end;
            }
            matrix.parts.append(&mut other.parts);
        }
        Ok(matrix)
    }

    /// How many rows it has.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.rows.end)
    }

    /// How many columns it has.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The type of its numbers.
    #[must_use]
    pub fn element(&self) -> Element {
        self.element
    }

    fn row_bytes(&self) -> usize {
        self.columns * self.element.bytes()
    }

    /// The numbers of some of the rows. They lie in the file where they can be used as they are;
    /// rows of two files, or at odd addresses, are copied.
    ///
    /// # Errors
    /// `InvalidArgument` when there are not so many rows.
    pub fn read(&self, rows: Range<u64>) -> Result<Numbers<'_>> {
        if rows.end > self.rows() || rows.start > rows.end {
            return Err(Error::invalid(format!(
                "rows {rows:?} of a matrix of {} rows were asked for",
                self.rows()
            )));
        }
        let pieces = self.parts.iter().filter_map(|part| {
            let wanted = rows.start.max(part.rows.start)..rows.end.min(part.rows.end);
            (!wanted.is_empty()).then(|| self.bytes_of(part, wanted))
        });
        let mut pieces = pieces.peekable();
        let first = pieces.next().unwrap_or_default();
        let bytes = match pieces.peek() {
            None => Cow::Borrowed(first),
            Some(_) => Cow::Owned([first].into_iter().chain(pieces).collect::<Vec<_>>().concat()),
        };
        Ok(Numbers {
            values: match self.element {
                Element::F64 => Held::F64(numbers(bytes)),
                Element::F32 => Held::F32(numbers(bytes)),
                Element::F16 => Held::F16(numbers(bytes)),
                Element::Bf16 => Held::Bf16(numbers(bytes)),
            },
            count: (rows.end - rows.start) as usize,
            columns: self.columns,
        })
    }

    fn bytes_of<'a>(&self, part: &'a Part, rows: Range<u64>) -> &'a [u8] {
        let at = |row: u64| part.offset + (row - part.rows.start) as usize * self.row_bytes();
        &part.map.bytes()[at(rows.start)..at(rows.end)]
    }

    /// What tells these rows from others, by samples of them.
    #[must_use]
    pub fn identity(&self) -> Digest {
        const PIECE: usize = 4096;
        const PIECES: usize = 66;
        let mut hasher = blake3::Hasher::new();
        for part in &self.parts {
            let rows = part.rows.end - part.rows.start;
            hasher.update(&rows.to_le_bytes());
            hasher.update(&(self.columns as u64).to_le_bytes());
            hasher.update(self.element.name().as_bytes());
            let bytes = self.bytes_of(part, part.rows.clone());
            let piece = PIECE.min(bytes.len());
            for place in 0..PIECES {
                // In 128 bits: the product of a file's length and a place may pass 64.
                let from = place as u128 * (bytes.len() - piece) as u128 / (PIECES as u128 - 1);
                hasher.update(&bytes[from as usize..][..piece]);
            }
        }
        Digest(*hasher.finalize().as_bytes())
    }
}

fn open_one(path: &Path, format: MatrixFormat) -> Result<Matrix> {
    let length = std::fs::metadata(path).map_err(|e| Error::io(path, "opening", e))?;
    if !length.is_file() {
        return Err(Error::invalid(format!("{}: expected a file of rows", path.display())));
    }
    let map = Map::open(path)?;
    let place = || format!("{}", path.display());
    let (element, rows, columns, offset) = match format {
        MatrixFormat::Npy(given) => of_npy(map.bytes(), given).context(place)?,
        MatrixFormat::Raw { element, columns } => {
            let row_bytes = columns.saturating_mul(element.bytes()).max(1);
            (element, (map.bytes().len() / row_bytes) as u64, columns, 0)
        }
    };
    if columns == 0 {
        return Err(Error::invalid("expected at least 1 column, found 0")).context(place);
    }
    let row_bytes = (columns as u64).saturating_mul(element.bytes() as u64);
    let expected = rows.checked_mul(row_bytes).and_then(|all| all.checked_add(offset as u64));
    if expected != Some(map.bytes().len() as u64) {
        return Err(Error::corrupt(format!(
            "expected {rows} rows of {columns} numbers of {}, found {} bytes from byte {offset} on; \
             the file was cut off, or is of another form",
            element.name(),
            map.bytes().len().saturating_sub(offset)
        )))
        .context(place);
    }
    Ok(Matrix { parts: vec![Part { map, offset, rows: 0..rows }], element, columns })
}

fn of_npy(bytes: &[u8], given: Option<Element>) -> Result<(Element, u64, usize, usize)> {
    let header = npy::parse(bytes)?;
    let element = match (header.element, given) {
        (Some(found), Some(given)) if found != given => {
            return Err(Error::invalid(format!(
                "expected numbers of {}, found {}; leave the type to the file",
                given.name(),
                found.name()
            )));
        }
        (Some(found), _) => found,
        (None, Some(Element::Bf16)) => Element::Bf16,
        (None, _) => {
            return Err(Error::invalid(
                "its numbers are two bytes of a type that NumPy has no name for; say bf16 if they \
                 are bfloat16",
            ));
        }
    };
    let columns = usize::try_from(header.columns);
    let columns = columns.map_err(|_| Error::limit(format!("{} columns", header.columns)))?;
    Ok((element, header.rows, columns, header.offset))
}

/// Some rows of a matrix.
pub struct Numbers<'a> {
    values: Held<'a>,
    count: usize,
    columns: usize,
}

enum Held<'a> {
    F64(Cow<'a, [f64]>),
    F32(Cow<'a, [f32]>),
    F16(Cow<'a, [f16]>),
    Bf16(Cow<'a, [bf16]>),
}

impl Numbers<'_> {
    /// The rows as a fold takes them.
    ///
    /// # Errors
    /// Those of [`Rows::new`].
    pub fn rows(&self) -> Result<Rows<'_>> {
        let values: Values<'_> = match &self.values {
            Held::F64(values) => Values::F64(values),
            Held::F32(values) => Values::F32(values),
            Held::F16(values) => Values::F16(values),
            Held::Bf16(values) => Values::Bf16(values),
        };
        Rows::new(values, self.count, self.columns, self.columns)
    }
}

/// Bytes as numbers: in place where their address allows it.
fn numbers<T: Pod>(bytes: Cow<'_, [u8]>) -> Cow<'_, [T]> {
    if let Cow::Borrowed(bytes) = bytes
        && let Ok(numbers) = bytemuck::try_cast_slice(bytes)
    {
        return Cow::Borrowed(numbers);
    }
    Cow::Owned(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
}
