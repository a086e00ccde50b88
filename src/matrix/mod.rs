//! Matrices on disk: `.npy`, `.safetensors`, Parquet and raw files, mapped or decoded, read by
//! rows.
//!
//! A [`Matrix`] is one file or many, or the files that a [`Manifest`] lists.

mod format;
mod kind;
mod manifest;
mod names;
mod npy;
mod numbers;
#[cfg(feature = "parquet")]
mod pages;
#[cfg(feature = "parquet")]
mod parquet;
mod part;
mod safetensors;

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::bytes::Digest;
use crate::error::{Context, Error, Result};
use crate::stamp::Stamp;

pub use format::{Element, MatrixFormat};
pub use manifest::Manifest;
use names::{learn_names, listed, quoted};
pub use npy::header as npy_header;
pub use numbers::Numbers;
pub(crate) use numbers::RowsHasher;
#[cfg(feature = "prepare")]
pub(crate) use pages::PageFile;
use part::Part;
#[doc(hidden)]
pub use part::check_columns;

/// The rows of one or several files, in the order of the files.
///
/// # Example
///
/// ```
/// use headwater::fold::Values;
/// use headwater::matrix::{Element, Matrix, MatrixFormat};
///
/// let file = tempfile::NamedTempFile::new()?;
/// std::fs::write(&file, [1.0_f64, 2.0, 3.0, 4.0].map(f64::to_le_bytes).concat())?;
/// let format = MatrixFormat::Raw { element: Element::F64, columns: 2 };
/// let matrix = Matrix::open(&[file.path().to_owned()], &format)?;
/// assert_eq!((matrix.rows(), matrix.columns()), (2, 2));
/// let last = matrix.read(1..2)?;
/// assert!(matches!(last.values(), Values::F64([3.0, 4.0])));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Matrix {
    files: Vec<MatrixFile>,
    element: Element,
    columns: usize,
    /// The names of the columns, if a file has them.
    names: Option<Vec<String>>,
}

/// One file of a matrix.
struct MatrixFile {
    path: PathBuf,
    /// The numbers of its rows in the matrix.
    rows: Range<u64>,
    digest: Digest,
    /// `None` if a manifest lists the file and it is not on this machine.
    open: Option<Part>,
}

impl Matrix {
    /// Opens these files as one matrix, in their order, or the files that one manifest lists.
    ///
    /// # Errors
    /// `Io`; `NotOurs`, `Corrupt`, `LimitExceeded` or `InvalidArgument` when a file is not a matrix
    /// of its format, or differs from the first in columns or element type; `PlanMismatch` when a
    /// file differs from what the manifest lists.
    pub fn open(paths: &[PathBuf], format: &MatrixFormat) -> Result<Self> {
        match paths {
            [] => Err(Error::invalid("expected at least one file of rows, found none")),
            [path] if *format == MatrixFormat::ByName && is_manifest(path) => Self::listed(path),
            [first, others @ ..] => {
                let first = Part::open(first, format)?;
                let mut matrix = Self::empty(first.form.element, first.form.columns);
                let named = first.path.clone();
                matrix.push(first)?;
                for path in others {
                    let part = Part::open(path, format)?;
                    matrix.check_form(&part, &named)?;
                    matrix.push(part)?;
                }
                Ok(matrix)
            }
        }
    }

    /// Opens the files that a manifest lists; some may be missing on this machine.
    fn listed(path: &Path) -> Result<Self> {
        let manifest = Manifest::read(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut matrix = Self::empty(manifest.element(), manifest.columns());
        if matrix.columns == 0 {
            let path = path.display();
            return Err(Error::invalid(format!("{path}: expected at least 1 column, found 0")));
        }
        matrix.names = manifest.names().map(<[String]>::to_vec);
        for listed in manifest.files() {
            let file = manifest.open(folder, listed)?;
            matrix.place(listed.path_in(folder), listed.rows(), listed.digest(), file)?;
        }
        Ok(matrix)
    }

    fn empty(element: Element, columns: usize) -> Self {
        Self { files: Vec::new(), element, columns, names: None }
    }

    fn push(&mut self, part: Part) -> Result<()> {
        self.place(part.path.clone(), part.form.rows, part.digest(), Some(part))
    }

    fn place(
        &mut self,
        path: PathBuf,
        rows: u64,
        digest: Digest,
        open: Option<Part>,
    ) -> Result<()> {
        if let Some(names) = open.as_ref().and_then(Part::names) {
            learn_names(&mut self.names, names).context(|| path.display().to_string())?;
        }
        let start = self.rows();
        let end = start.checked_add(rows);
        let end = end.ok_or_else(|| {
            Error::limit(format!(
                "{}: expected at most 2^64 - 1 rows in the matrix, and the \
            {rows} rows of this file exceed that",
                path.display()
            ))
        })?;
        self.files.push(MatrixFile { path, rows: start..end, digest, open });
        Ok(())
    }

    fn check_form(&self, part: &Part, first: &Path) -> Result<()> {
        let found = part.form;
        if (found.columns, found.element) == (self.columns, self.element) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{}: expected {} columns of {}, as in {}, found {} of {}; all files of a matrix have \
            the same columns and type",
            part.path.display(),
            self.columns,
            self.element.name(),
            first.display(),
            found.columns,
            found.element.name()
        )))
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.files.last().map_or(0, |part| part.rows.end)
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the type of the numbers.
    #[must_use]
    pub fn element(&self) -> Element {
        self.element
    }

    /// Returns the names of the columns, if the files have them.
    #[must_use]
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// Returns the number of the column `name`.
    ///
    /// # Errors
    /// `InvalidArgument` when no column has this name.
    pub fn column_of(&self, name: &str) -> Result<usize> {
        let Some(names) = &self.names else {
            return Err(Error::invalid(format!(
                "expected a column number from 0 to {}, found {name:?}; these files do not name \
                 their columns",
                self.columns.saturating_sub(1)
            )));
        };
        names.iter().position(|known| known == name).ok_or_else(|| {
            Error::invalid(format!(
                "no column is named {name:?}; the columns are {}",
                quoted(names)
            ))
        })
    }

    /// Returns the first row of each file.
    pub fn file_starts(&self) -> impl Iterator<Item = u64> {
        self.files.iter().map(|part| part.rows.start)
    }

    /// Returns the rows that are on this machine, as ranges that do not touch.
    #[must_use]
    pub fn readable(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for part in self.files.iter().filter(|part| part.open.is_some() && !part.rows.is_empty()) {
            match ranges.last_mut().filter(|last| last.end == part.rows.start) {
                Some(last) => last.end = part.rows.end,
                None => ranges.push(part.rows.clone()),
            }
        }
        ranges
    }

    /// Reads some of the rows. Numbers that are aligned in one file are borrowed from its map; rows
    /// of several files, or at unaligned addresses, are copied, and those of Parquet decoded.
    ///
    /// # Errors
    /// `InvalidArgument` when the range is outside the matrix, or some rows are not on this
    /// machine; `Corrupt` when a Parquet file does not hold the rows that its metadata lists.
    pub fn read(&self, rows: Range<u64>) -> Result<Numbers<'_>> {
        if rows.end > self.rows() || rows.start > rows.end {
            return Err(Error::invalid(format!(
                "expected rows within 0..{}, found {rows:?}",
                self.rows()
            )));
        }
        let mut pieces = Vec::new();
        // The files are sorted by their rows.
        let first = self.files.partition_point(|part| part.rows.end <= rows.start);
        for part in &self.files[first..] {
            let wanted = rows.start.max(part.rows.start)..rows.end.min(part.rows.end);
            if part.rows.start >= rows.end {
                break;
            }
            if wanted.is_empty() {
                continue;
            }
            let Some(file) = &part.open else {
                return Err(Error::invalid(format!(
                    "rows {wanted:?} lie in {}, which is not on this machine; fold them on a \
                    machine that has the file, or copy it here",
                    part.path.display()
                )));
            };
            pieces.push(file.read(wanted.start - part.rows.start..wanted.end - part.rows.start)?);
        }
        let form = ((rows.end - rows.start) as usize, self.columns);
        Numbers::of(pieces, self.element, form).context(|| {
            format!("rows {} to {} of {}", rows.start, rows.end - 1, self.files_of(rows.clone()))
        })
    }

    /// Returns the error about a cell that no statistic of products can take.
    #[must_use]
    pub fn null_at(&self, row: u64, column: usize) -> Error {
        let what = "expected a number, found NULL";
        self.bad_number((row, column), what, "fill it in, or leave out the column")
    }

    /// Returns the error about the number in a cell.
    pub(crate) fn bad_number(
        &self,
        (row, column): (u64, usize),
        what: &str,
        remedy: &str,
    ) -> Error {
        let place = match self.place_of(row) {
            Some((path, row)) => format!("{}: row {row}", path.display()),
            None => format!("row {row}"),
        };
        Error::data(format!(
            "{place}, column {column}: {what} (rows and columns count from 0); {remedy}"
        ))
    }

    /// Returns the file in which a row lies, and the number of the row in that file.
    #[must_use]
    pub fn place_of(&self, row: u64) -> Option<(&Path, u64)> {
        let part = self.files.iter().find(|part| part.rows.contains(&row))?;
        Some((&part.path, row - part.rows.start))
    }

    /// Lists the files in which `rows` lie, and marks those that are missing; at most 20 of them.
    #[must_use]
    pub fn files_of(&self, rows: Range<u64>) -> String {
        let lie_in = |part: &&MatrixFile| part.rows.start < rows.end && rows.start < part.rows.end;
        listed(self.files.iter().filter(lie_in).map(|part| {
            let absent = if part.open.is_some() { "" } else { " (not on this machine)" };
            format!("{}{absent}", part.path.display())
        }))
    }

    /// Returns the files of this machine: their places among all files, and their stamps when they
    /// were opened.
    pub fn opened(&self) -> impl Iterator<Item = (u64, &Path, Stamp)> {
        let placed = (0..).zip(&self.files);
        placed.filter_map(|(place, file)| Some((place, &*file.path, file.open.as_ref()?.stamp)))
    }

    /// Checks that the files that have `rows`, which were read, have not changed since they were
    /// opened; returns them as [`Matrix::opened`] does.
    ///
    /// # Errors
    /// `Data` for a file that was changed or replaced, `Io` for one that is gone.
    pub fn check_unchanged(&self, rows: Range<u64>) -> Result<Vec<(u64, &Path, Stamp)>> {
        let read = self.opened().filter(|(place, ..)| {
            let file = &self.files[*place as usize].rows;
            file.start < rows.end && rows.start < file.end
        });
        read.map(|file| file.2.check(file.1).map(|()| file)).collect()
    }

    /// Returns the number of files.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Returns a digest of the matrix: of its form and of samples of its rows.
    #[must_use]
    pub fn identity(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        for part in &self.files {
            hasher.update(&part.digest.0);
        }
        Digest(*hasher.finalize().as_bytes())
    }
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "json")
}

/// Sorts files by their names, byte by byte, and files of one name by their paths: `part-10` comes
/// before `part-9`.
pub fn sort_by_name(paths: &mut [PathBuf]) {
    paths.sort_by(|a, b| a.file_name().cmp(&b.file_name()).then_with(|| a.cmp(b)));
}
