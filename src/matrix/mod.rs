//! Matrices on disk, mapped or decoded, and read row by row.

mod format;
mod kind;
mod manifest;
mod names;
mod npy;
mod numbers;
#[cfg(feature = "parquet")]
mod parquet;
mod part;
mod safetensors;

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::bytes::Digest;
use crate::error::{Context, Error, Result};

pub use format::{Element, MatrixFormat};
pub use manifest::Manifest;
use names::{learn_names, listed, quoted};
pub use npy::header as npy_header;
pub use numbers::Numbers;
use part::Part;

/// The rows of one or several files, one after the other.
pub struct Matrix {
    parts: Vec<Placed>,
    element: Element,
    columns: usize,
    /// Of its columns, where a file has them.
    names: Option<Vec<String>>,
}

/// One of the files.
struct Placed {
    path: PathBuf,
    /// Its rows among those of the matrix.
    rows: Range<u64>,
    digest: Digest,
    /// `None` of a file that is listed, and not on this machine.
    file: Option<Part>,
}

impl Matrix {
    /// The matrix of these files, in their order; or of one manifest, which names them.
    ///
    /// # Errors
    /// `Io`; `NotOurs`, `Corrupt`, `LimitExceeded` or `InvalidArgument` when a file is no matrix of its
    /// format, or not of the same columns and element as the first; `PlanMismatch` when one is not what
    /// the manifest says.
    pub fn open(paths: &[PathBuf], format: &MatrixFormat) -> Result<Self> {
        match paths {
            [] => Err(Error::invalid("expected at least one file of rows, found none")),
            [path] if *format == MatrixFormat::ByName && is_manifest(path) => Self::listed(path),
            [first, others @ ..] => {
                let first = Part::open(first, format)?;
                let mut matrix = Self::of(first.form.element, first.form.columns);
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

    /// The matrix that a manifest describes, of which some files may not be here.
    fn listed(path: &Path) -> Result<Self> {
        let manifest = Manifest::read(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut matrix = Self::of(manifest.element(), manifest.columns());
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

    fn of(element: Element, columns: usize) -> Self {
        Self { parts: Vec::new(), element, columns, names: None }
    }

    fn push(&mut self, part: Part) -> Result<()> {
        self.place(part.path.clone(), part.form.rows, part.digest(), Some(part))
    }

    fn place(
        &mut self,
        path: PathBuf,
        rows: u64,
        digest: Digest,
        file: Option<Part>,
    ) -> Result<()> {
        if let Some(names) = file.as_ref().and_then(Part::names) {
            learn_names(&mut self.names, names).context(|| path.display().to_string())?;
        }
        let start = self.rows();
        let end = start.checked_add(rows);
        let end = end.ok_or_else(|| {
            Error::limit(format!(
                "{}: expected at most 2^64 rows in all, found more with its {rows}",
                path.display()
            ))
        })?;
        self.parts.push(Placed { path, rows: start..end, digest, file });
        Ok(())
    }

    fn check_form(&self, part: &Part, first: &Path) -> Result<()> {
        let found = part.form;
        if (found.columns, found.element) == (self.columns, self.element) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{}: expected {} columns of {} as in {}, found {} of {}; use files with the same \
             columns and type",
            part.path.display(),
            self.columns,
            self.element.name(),
            first.display(),
            found.columns,
            found.element.name()
        )))
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

    /// The names of its columns, where the files have some.
    #[must_use]
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// The number of the column of a name.
    ///
    /// # Errors
    /// `InvalidArgument` when there is none.
    pub fn column_of(&self, name: &str) -> Result<usize> {
        let Some(names) = &self.names else {
            return Err(Error::invalid(format!(
                "expected the number of a column, from 0 to {}, found {name:?}; these files have \
                 no column names",
                self.columns.saturating_sub(1)
            )));
        };
        names.iter().position(|known| known == name).ok_or_else(|| {
            Error::invalid(format!("expected one of the columns {}, found {name:?}", quoted(names)))
        })
    }

    /// The first rows of its files.
    pub fn file_starts(&self) -> impl Iterator<Item = u64> {
        self.parts.iter().map(|part| part.rows.start)
    }

    /// The rows that are on this machine, as ranges with something missing between them.
    #[must_use]
    pub fn readable(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for part in self.parts.iter().filter(|part| part.file.is_some() && !part.rows.is_empty()) {
            match ranges.last_mut().filter(|last| last.end == part.rows.start) {
                Some(last) => last.end = part.rows.end,
                None => ranges.push(part.rows.clone()),
            }
        }
        ranges
    }

    /// The numbers of some of the rows. They lie in the file where they can be used as they are;
    /// rows of two files, or at odd addresses, are copied, those of Parquet decoded.
    ///
    /// # Errors
    /// `InvalidArgument` when there are not so many rows, or some are not on this machine; `Corrupt`
    /// when a Parquet file does not hold what it promises.
    pub fn read(&self, rows: Range<u64>) -> Result<Numbers<'_>> {
        if rows.end > self.rows() || rows.start > rows.end {
            return Err(Error::invalid(format!(
                "expected rows below {}, found {rows:?}",
                self.rows()
            )));
        }
        let mut pieces = Vec::new();
        // The files come in the order of their rows.
        let first = self.parts.partition_point(|part| part.rows.end <= rows.start);
        for part in &self.parts[first..] {
            let wanted = rows.start.max(part.rows.start)..rows.end.min(part.rows.end);
            if part.rows.start >= rows.end {
                break;
            }
            if wanted.is_empty() {
                continue;
            }
            let Some(file) = &part.file else {
                return Err(Error::invalid(format!(
                    "rows {wanted:?} lie in {}, which is not on this machine; fold them where the \
                     file is, or copy it here",
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

    /// The file in which a row lies, and its number there.
    #[must_use]
    pub fn place_of(&self, row: u64) -> Option<(&Path, u64)> {
        let part = self.parts.iter().find(|part| part.rows.contains(&row))?;
        Some((&part.path, row - part.rows.start))
    }

    /// Names the files that some rows lie in, those that are not here as such; a few of many.
    #[must_use]
    pub fn files_of(&self, rows: Range<u64>) -> String {
        let lie_in = |part: &&Placed| part.rows.start < rows.end && rows.start < part.rows.end;
        listed(self.parts.iter().filter(lie_in).map(|part| {
            let absent = if part.file.is_some() { "" } else { " (not here)" };
            format!("{}{absent}", part.path.display())
        }))
    }

    /// What tells these rows from others, by samples of them.
    #[must_use]
    pub fn identity(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        for part in &self.parts {
            hasher.update(&part.digest.0);
        }
        Digest(*hasher.finalize().as_bytes())
    }
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "json")
}

/// Puts files into the order of their names, byte by byte, and of their whole paths where names are the
/// same: `part-10` before `part-9`.
pub fn sort_by_name(paths: &mut [PathBuf]) {
    paths.sort_by(|a, b| a.file_name().cmp(&b.file_name()).then_with(|| a.cmp(b)));
}
