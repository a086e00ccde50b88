//! A table in one file, or in several files of one format, which are its parts in order.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;

#[cfg(feature = "arrayrecord")]
use super::arrayrecord;
use super::blocks::FileVersion;
use super::{Batches, SourceColumn, csv, parquet};
use crate::error::{Error, Result};
#[cfg(not(feature = "arrayrecord"))]
use crate::prepare::without_arrayrecord as arrayrecord;
use crate::stamp::Stamp;

/// The format of a table's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Csv,
    Parquet,
    ArrayRecord,
}

/// The endings of the names of table files.
const ENDINGS: [(&str, Format); 5] = [
    (".csv", Format::Csv),
    (".csv.gz", Format::Csv),
    (".csv.zst", Format::Csv),
    (".parquet", Format::Parquet),
    (".arrayrecord", Format::ArrayRecord),
];

impl Format {
    /// Returns the format of a file of this name, and the name without its ending.
    pub(super) fn of(name: &[u8]) -> Option<(Self, &[u8])> {
        ENDINGS.iter().find_map(|&(ending, format)| {
            let (stem, end) = name.split_at_checked(name.len().checked_sub(ending.len())?)?;
            let fits = !stem.is_empty() && end.eq_ignore_ascii_case(ending.as_bytes());
            fits.then_some((format, stem))
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Csv => "CSV",
            Self::Parquet => "Parquet",
            Self::ArrayRecord => "ArrayRecord",
        })
    }
}

/// The files of one table, at least one, in the order of their rows.
///
/// They are read more than once, so each must stay as it was when the source was opened.
pub(super) struct TableFiles {
    format: Format,
    files: Vec<(PathBuf, Stamp)>,
}

/// A block of the rows of a table.
pub(super) struct FileBlock {
    /// The place of the file.
    file: usize,
    /// The row groups of a Parquet file; files of other formats are read whole.
    groups: Range<usize>,
    /// The number of its rows, if the file tells.
    rows: Option<u64>,
}

impl TableFiles {
    /// Returns the table in one file.
    ///
    /// # Errors
    /// `Io` when the file cannot be examined.
    pub(super) fn one(format: Format, file: PathBuf) -> Result<Self> {
        let version = Stamp::before_reading(&file)?;
        Ok(Self { format, files: vec![(file, version)] })
    }

    /// Returns the table in `files`, in their order; `None` if there is no file.
    ///
    /// # Errors
    /// `Data` when the files are not of one format; `Io` when one cannot be examined.
    pub(super) fn new(files: Vec<(Format, PathBuf)>) -> Result<Option<Self>> {
        let Some((format, first)) = files.first().cloned() else { return Ok(None) };
        if let Some((other, file)) = files.iter().find(|(other, _)| *other != format) {
            return Err(Error::data(format!(
                "{}: expected a {format} file as {} is, found a {other} file; give all parts of a \
                 table one format",
                file.display(),
                first.display()
            )));
        }
        let with_version = |(_, file): (Format, PathBuf)| {
            Stamp::before_reading(&file).map(|version| (file, version))
        };
        let files = files.into_iter().map(with_version).collect::<Result<_>>()?;
        Ok(Some(Self { format, files }))
    }

    /// Returns the columns, which all parts must share.
    pub(super) fn columns(&self) -> Result<Vec<SourceColumn>> {
        let columns = |(file, version): &(PathBuf, Stamp)| {
            unchanged(file, *version, || match self.format {
                Format::Csv => csv::columns(file),
                Format::Parquet => parquet::columns(file),
                Format::ArrayRecord => arrayrecord::columns(file),
            })
        };
        let shared = columns(&self.files[0])?;
        for file in &self.files[1..] {
            check_same(&self.files[0].0, &shared, &file.0, &columns(file)?)?;
        }
        Ok(shared)
    }

    /// Returns the versions of the files, which are named from the folder `root` on.
    pub(super) fn versions(&self, root: &Path) -> Result<Vec<FileVersion>> {
        let version = |(file, stamp): &(PathBuf, Stamp)| {
            let version = FileVersion::of(file, root)?;
            // So the version is that of the file that was opened.
            stamp.check(file)?;
            Ok(version)
        };
        self.files.iter().map(version).collect()
    }

    /// Cuts the rows into blocks: whole files, or row groups of Parquet.
    pub(super) fn blocks(&self) -> Result<Vec<FileBlock>> {
        let mut blocks = Vec::new();
        for (place, (file, version)) in self.files.iter().enumerate() {
            if self.format == Format::Parquet {
                let groups = unchanged(file, *version, || parquet::blocks(file))?;
                let block = |(groups, rows)| FileBlock { file: place, groups, rows: Some(rows) };
                blocks.extend(groups.into_iter().map(block));
            } else {
                blocks.push(FileBlock { file: place, groups: 0..0, rows: None });
            }
        }
        Ok(blocks)
    }

    /// Streams the columns at `indices` of a block.
    pub(super) fn read_block(&self, block: &FileBlock, indices: Vec<usize>) -> Result<Batches> {
        match self.format {
            Format::Parquet => {
                let (file, version) = &self.files[block.file];
                let groups = block.groups.clone().collect();
                read_unchanged(file, *version, || parquet::read(file, indices, Some(groups)))
            }
            format => read_file(format, &self.files[block.file], &indices),
        }
    }

    /// Counts the rows of a block.
    pub(super) fn count_rows(&self, block: &FileBlock) -> Result<u64> {
        if let Some(rows) = block.rows {
            return Ok(rows);
        }
        let batches = self.read_block(block, vec![0])?;
        batches.map(|batch| batch.map(|batch| batch.num_rows() as u64)).sum()
    }

    /// Streams the columns at `indices`, all parts in order.
    pub(super) fn read(&self, indices: Vec<usize>) -> Result<Batches> {
        let format = self.format;
        let open =
            move |file: &(PathBuf, Stamp), indices: &[usize]| read_file(format, file, indices);
        let first = open(&self.files[0], &indices)?;
        let others: Vec<_> = self.files[1..].to_vec();
        // A file is opened when its rows are wanted: there may be more parts than open files.
        let others = others.into_iter().flat_map(move |file| match open(&file, &indices) {
            Ok(batches) => batches,
            Err(error) => Box::new(std::iter::once(Err(error))),
        });
        let mut ended = false;
        Ok(Box::new(first.chain(others).map_while(move |batch| {
            let rest = !ended;
            ended |= batch.is_err();
            rest.then_some(batch)
        })))
    }
}

/// Streams the columns at `indices` of a file.
fn read_file(
    format: Format,
    (file, version): &(PathBuf, Stamp),
    indices: &[usize],
) -> Result<Batches> {
    read_unchanged(file, *version, || match format {
        Format::Csv => csv::read(file, indices.to_vec()),
        Format::Parquet => parquet::read(file, indices.to_vec(), None),
        Format::ArrayRecord => arrayrecord::read(file, indices.to_vec()),
    })
}

/// Streams the rows of a file, which fail if the file has changed.
fn read_unchanged(
    file: &Path,
    version: Stamp,
    read: impl FnOnce() -> Result<Batches>,
) -> Result<Batches> {
    let batches = Some(unchanged(file, version, read)?);
    Ok(Box::new(Unchanged { batches, file: file.to_owned(), version }))
}

/// Returns what `read` returns of a file; fails when the file has changed, also if `read` fails, because
/// then the change is the reason.
fn unchanged<T>(file: &Path, version: Stamp, read: impl FnOnce() -> Result<T>) -> Result<T> {
    version.check(file)?;
    let found = read();
    if found.is_err() {
        version.check(file)?;
    }
    found
}

/// The rows of a file, which fail at their end if the file has changed meanwhile.
struct Unchanged {
    batches: Option<Batches>,
    file: PathBuf,
    version: Stamp,
}

impl Iterator for Unchanged {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.as_mut()?.next();
        if matches!(batch, Some(Ok(_))) {
            return batch;
        }
        self.batches = None;
        self.version.check(&self.file).err().map(Err).or(batch)
    }
}

/// Checks that a part has the columns of the first one; names the first column that differs.
fn check_same(
    first: &Path,
    expected: &[SourceColumn],
    file: &Path,
    found: &[SourceColumn],
) -> Result<()> {
    let count = expected.len().max(found.len());
    let Some(index) = (0..count).find(|&index| expected.get(index) != found.get(index)) else {
        return Ok(());
    };
    let (a, b) = (expected.get(index), found.get(index));
    let has_same_name = a.map(|c| &c.name) == b.map(|c| &c.name);
    let shown = |column: Option<&SourceColumn>| match column {
        None => "no column".to_owned(),
        Some(column) if has_same_name => format!("{:?} {}", column.name, column.data_type),
        Some(column) => format!("{:?}", column.name),
    };
    Err(Error::data(format!(
        "{}: column {}: expected {} as in {}, found {}; give all parts of a table the same columns \
         in the same order",
        file.display(),
        index + 1,
        shown(a),
        first.display(),
        shown(b)
    )))
}
