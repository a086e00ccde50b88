//! One file of a matrix.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::bytes::Digest;
use crate::error::{Context, Error, Result};
use crate::files::not_a_file;
use crate::map::Map;
use crate::stamp::Stamp;

use super::numbers::Piece;
#[cfg(feature = "parquet")]
use super::parquet::Table;
use super::{Element, MatrixFormat, kind, npy, safetensors};

/// The most columns: sums of that many take some gigabytes.
const COLUMNS_MAX: usize = 1 << 24;

/// The type and shape of a file's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) element: Element,
    pub(super) rows: u64,
    pub(super) columns: usize,
}

/// An open file.
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) form: Form,
    /// From before the first byte was read.
    pub(super) stamp: Stamp,
    map: Map,
    source: Source,
}

enum Source {
    /// Numbers in the file itself, from byte `offset` on.
    Plain { offset: usize },
    #[cfg(feature = "parquet")]
    Parquet(Box<Table>),
}

impl Part {
    /// Opens a file.
    ///
    /// # Errors
    /// `Io`; `NotOurs`, `Corrupt`, `LimitExceeded` or `InvalidArgument` when the file is not a
    /// matrix of its format.
    pub(super) fn open(path: &Path, format: &MatrixFormat) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|e| Error::io(path, "opening", e))?;
        let place = || path.display().to_string();
        if !metadata.is_file() {
            return Err(Error::invalid(not_a_file(&metadata).to_string())).context(place);
        }
        let stamp = Stamp::before_reading(path)?;
        let map = Map::open(path)?;
        let (form, source) = read_form(path, map.bytes(), format).context(place)?;
        check_columns(form.columns).context(place)?;
        Ok(Self { path: path.to_owned(), form, stamp, map, source })
    }

    /// Reads some of the rows.
    ///
    /// # Errors
    /// `Corrupt` when a decoded file does not hold them.
    #[cfg_attr(
        not(feature = "parquet"),
        expect(clippy::unnecessary_wraps, reason = "only what is decoded can be damaged")
    )]
    pub(super) fn read(&self, rows: Range<u64>) -> Result<Piece<'_>> {
        match &self.source {
            Source::Plain { offset } => {
                let row_bytes = self.form.columns * self.form.element.bytes();
                let at = |row: u64| offset + row as usize * row_bytes;
                let bytes = at(rows.start)..at(rows.end);
                self.map.populate(bytes.clone());
                Ok(Piece::Bytes(&self.map.bytes()[bytes]))
            }
            #[cfg(feature = "parquet")]
            Source::Parquet(table) => {
                table.read(rows).map(Piece::Cells).context(|| self.path.display().to_string())
            }
        }
    }

    /// Returns the names of the columns, if the file has them.
    pub(super) fn names(&self) -> Option<&[String]> {
        match &self.source {
            Source::Plain { .. } => None,
            #[cfg(feature = "parquet")]
            Source::Parquet(table) => Some(table.names()),
        }
    }

    /// Returns a digest of the file's form and of samples of its rows.
    pub(super) fn digest(&self) -> Digest {
        const PIECE: usize = 4096;
        const PIECES: usize = 66;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.form.rows.to_le_bytes());
        hasher.update(&(self.form.columns as u64).to_le_bytes());
        hasher.update(self.form.element.name().as_bytes());
        let bytes = match &self.source {
            Source::Plain { offset } => {
                let row_bytes = self.form.columns * self.form.element.bytes();
                &self.map.bytes()[*offset..offset + self.form.rows as usize * row_bytes]
            }
            #[cfg(feature = "parquet")]
            Source::Parquet(table) => {
                for name in table.names() {
                    hasher.update(&(name.len() as u64).to_le_bytes());
                    hasher.update(name.as_bytes());
                }
                self.map.bytes()
            }
        };
        let piece = PIECE.min(bytes.len());
        for place in 0..PIECES {
            // In 128 bits: the product of a file's length and a place may exceed 64 bits.
            let from = place as u128 * (bytes.len() - piece) as u128 / (PIECES as u128 - 1);
            hasher.update(&bytes[from as usize..][..piece]);
        }
        Digest(*hasher.finalize().as_bytes())
    }
}

/// Reads the form of the rows of the file at `path` with these bytes, and where they lie.
fn read_form(path: &Path, bytes: &[u8], format: &MatrixFormat) -> Result<(Form, Source)> {
    kind::check(bytes, format)?;
    match format {
        MatrixFormat::Npy(given) => {
            let header = npy::parse(bytes)?;
            let element = element_of_npy(header.element, *given)?;
            let form = Form { element, rows: header.rows, columns: columns(header.columns)? };
            check_length(form, bytes.len(), header.offset)?;
            Ok((form, Source::Plain { offset: header.offset }))
        }
        MatrixFormat::Raw { element, columns } => {
            let row_bytes = columns.saturating_mul(element.bytes()).max(1);
            let rows = (bytes.len() / row_bytes) as u64;
            let form = Form { element: *element, rows, columns: *columns };
            check_length(form, bytes.len(), 0)?;
            Ok((form, Source::Plain { offset: 0 }))
        }
        MatrixFormat::Safetensors(tensor) => {
            let header = safetensors::parse(bytes, tensor.as_deref())?;
            let form = Form {
                element: header.element,
                rows: header.rows,
                columns: columns(header.columns)?,
            };
            Ok((form, Source::Plain { offset: header.offset }))
        }
        #[cfg(feature = "parquet")]
        MatrixFormat::Parquet(names) => {
            let table = Table::open(path, names.as_deref())?;
            let (rows, columns) = (table.rows(), table.names().len());
            Ok((Form { element: Element::F64, rows, columns }, Source::Parquet(Box::new(table))))
        }
        #[cfg(not(feature = "parquet"))]
        MatrixFormat::Parquet(_) => Err(Error::invalid(format!(
            "{}: this build cannot read Parquet; build it with the feature \"parquet\"",
            path.display()
        ))),
        MatrixFormat::ByName => read_form(path, bytes, &MatrixFormat::of_name(path)?),
    }
}

/// Rejects 0 columns and more than a matrix can have: a header may claim any number.
///
/// # Errors
/// `InvalidArgument` or `LimitExceeded` for such a number.
pub fn check_columns(columns: usize) -> Result<()> {
    match columns {
        0 => Err(Error::invalid("expected at least 1 column, found 0")),
        1..=COLUMNS_MAX => Ok(()),
        _ => Err(Error::limit(format!("expected at most {COLUMNS_MAX} columns, found {columns}"))),
    }
}

fn columns(found: u64) -> Result<usize> {
    usize::try_from(found)
        .map_err(|_| Error::limit(format!("expected at most {COLUMNS_MAX} columns, found {found}")))
}

/// Rejects a file that is shorter or longer than its rows.
fn check_length(form: Form, length: usize, offset: usize) -> Result<()> {
    let Form { element, rows, columns } = form;
    let row_bytes = (columns as u64).saturating_mul(element.bytes() as u64);
    let expected = rows.checked_mul(row_bytes).and_then(|all| all.checked_add(offset as u64));
    // Rows without columns are rejected later, with a better message.
    if expected == Some(length as u64) || columns == 0 {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "expected {rows} rows of {columns} numbers of {}, found {} bytes from byte {offset} on; \
        the file is cut off, or has another shape",
        element.name(),
        length.saturating_sub(offset)
    )))
}

fn element_of_npy(found: Option<Element>, given: Option<Element>) -> Result<Element> {
    match (found, given) {
        (Some(found), Some(given)) if found != given => Err(Error::invalid(format!(
            "expected numbers of {}, found {}; leave out --dtype",
            given.name(),
            found.name()
        ))),
        (Some(found), _) => Ok(found),
        (None, Some(Element::Bf16)) => Ok(Element::Bf16),
        (None, _) => Err(Error::invalid(
            "expected numbers of a type that NumPy names, found 2-byte values without a type; give \
             --dtype bf16 if they are bfloat16",
        )),
    }
}
