//! Tables in files: a folder of table files, one table file, or the files that a pattern names.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::blocks::{Blocks, FileVersion, InBlocks, folder_of};
use super::table_files::{FileBlock, Format, TableFiles};
use super::{Batches, Source, SourceColumn, SourceTable, positions};
use crate::error::{Context, Error, Result};
use crate::files::{found_at, is_folder};
use crate::prepare::names::did_you_mean;

/// A source whose tables are files.
pub(super) struct Files {
    description: String,
    /// The folder of the files.
    root: PathBuf,
    tables: BTreeMap<String, TableFiles>,
}

impl Files {
    /// Finds the table in one file; `None` if its name is not that of a table file.
    pub(super) fn file(path: &Path) -> Result<Option<Self>> {
        let description = format!("file {}", path.display());
        let tables = table_file(path)?.map(|table| BTreeMap::from([table]));
        Ok(tables.map(|tables| Self { description, root: folder_of(path), tables }))
    }

    /// Finds the tables of a folder.
    pub(super) fn folder(path: &Path) -> Result<Self> {
        let mut tables = BTreeMap::new();
        let mut places: BTreeMap<String, PathBuf> = BTreeMap::new();
        for entry in visible_entries(path)? {
            let found =
                if is_folder(&entry)? { table_folder(&entry)? } else { table_file(&entry)? };
            let Some((name, file)) = found else { continue };
            tables.insert(name.clone(), file);
            if let Some(earlier) = places.insert(name.clone(), entry.clone()) {
                return Err(Error::data(format!(
                    "{} and {} both hold table {name:?}; remove or rename one of them",
                    earlier.display(),
                    entry.display()
                )));
            }
        }
        if tables.is_empty() {
            return Err(no_table(path)?);
        }
        let description = format!("folder {}", path.display());
        Ok(Self { description, root: path.to_owned(), tables })
    }

    /// Finds the one table whose parts are the files that a pattern names: `orders/*.parquet`.
    pub(super) fn pattern(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if is_pattern(folder) {
            return Err(Error::data(format!(
                "{}: expected * and ? in the name of the files alone, found them in the name of a \
                 folder; give one folder",
                path.display()
            )));
        }
        let mut parts = table_files(&visible_entries(folder)?)?;
        parts.retain(|(_, part)| matches(name.as_bytes(), name_of(part)));
        let parts = TableFiles::new(parts)?.ok_or_else(|| {
            Error::data(format!(
                "no .csv, .csv.gz, .csv.zst, .parquet or .arrayrecord file has a name like {}; \
                 correct the pattern",
                path.display()
            ))
        })?;
        let table = table_of_pattern(&name, folder)?;
        let description = format!("files {}", path.display());
        let tables = BTreeMap::from([(table, parts)]);
        Ok(Self { description, root: folder.to_owned(), tables })
    }

    /// Returns the places of some columns of a table.
    fn indices(&self, table: &str, all: &[SourceColumn], columns: &[String]) -> Result<Vec<usize>> {
        positions(all, columns).context(|| format!("table {table:?} of {}", self.description))
    }

    fn find(&self, table: &str) -> Result<&TableFiles> {
        self.tables.get(table).ok_or_else(|| {
            let names = self.tables.keys().map(String::as_str);
            let hint = did_you_mean(table, names);
            Error::schema(format!("{} has no table {table:?}; {hint}", self.description))
        })
    }
}

impl Source for Files {
    fn describe(&self) -> String {
        self.description.clone()
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(self.tables.keys().cloned().collect())
    }

    fn columns(&self, table: &str) -> Result<Vec<SourceColumn>> {
        self.find(table)?.columns()
    }

    fn tables(&self) -> Result<Vec<SourceTable>> {
        let table = |(name, file): (&String, &TableFiles)| {
            let columns = file.columns()?;
            Ok(SourceTable { name: name.clone(), columns, key: vec![], references: vec![] })
        };
        self.tables.iter().map(table).collect()
    }

    fn read(&self, table: &str, columns: &[String]) -> Result<Batches> {
        let file = self.find(table)?;
        file.read(self.indices(table, &file.columns()?, columns)?)
    }

    fn in_blocks(&self) -> Option<&dyn InBlocks> {
        Some(self)
    }
}

impl InBlocks for Files {
    fn files(&self, tables: &[&str]) -> Result<Vec<FileVersion>> {
        let mut versions = BTreeSet::new();
        for table in tables {
            versions.extend(self.find(table)?.versions(&self.root)?);
        }
        Ok(versions.into_iter().collect())
    }

    fn blocks(&self, table: &str) -> Result<Box<dyn Blocks + '_>> {
        let table_files = self.find(table)?;
        let (columns, blocks) = (table_files.columns()?, table_files.blocks()?);
        Ok(Box::new(TableBlocks {
            files: self,
            table: table.to_owned(),
            table_files,
            columns,
            blocks,
        }))
    }
}

/// The blocks of a table in files.
struct TableBlocks<'a> {
    files: &'a Files,
    table: String,
    table_files: &'a TableFiles,
    columns: Vec<SourceColumn>,
    blocks: Vec<FileBlock>,
}

impl Blocks for TableBlocks<'_> {
    fn count(&self) -> usize {
        self.blocks.len()
    }

    fn read(&self, block: usize, columns: &[String], _: u64) -> Result<Batches> {
        let indices = self.files.indices(&self.table, &self.columns, columns)?;
        self.table_files.read_block(&self.blocks[block], indices)
    }

    fn rows_before(&self, block: usize) -> Result<u64> {
        self.blocks[..block].iter().map(|block| self.table_files.count_rows(block)).sum()
    }
}

/// Whether a path that does not exist names files by a pattern.
pub(super) fn is_pattern(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b'*' | b'?'))
}

/// Whether a name fits a pattern, in which `*` stands for any bytes and `?` for one.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|from| matches(rest, &name[from..])),
        Some((byte, rest)) => name.split_first().is_some_and(|(first, others)| {
            (*byte == b'?' || byte == first) && matches(rest, others)
        }),
    }
}

/// Returns the name of the table in the files of a pattern: the text before its first wildcard, or
/// the folder's name where that text names no table (`*.parquet`, `part-*.csv`).
fn table_of_pattern(pattern: &str, folder: &Path) -> Result<String> {
    let before = pattern.split(['*', '?']).next().unwrap_or_default();
    let before = before.trim_end_matches(['-', '_', '.']);
    if !before.is_empty() && before != "part" {
        return Ok(before.to_owned());
    }
    let absolute = std::fs::canonicalize(folder).map_err(|e| Error::io(folder, "opening", e))?;
    table_name(&absolute, name_of(&absolute))
}

/// Lists the entries of a folder that are not hidden, by name.
fn visible_entries(path: &Path) -> Result<Vec<PathBuf>> {
    let fail = |e| Error::io(path, "listing", e);
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            entries.push(entry.path());
        }
    }
    entries.sort();
    Ok(entries)
}

/// Returns the table files among the entries of a folder, each with its format.
fn table_files(entries: &[PathBuf]) -> Result<Vec<(Format, PathBuf)>> {
    let mut files = Vec::new();
    for path in entries {
        // A pipe, or a link to nothing, is told when it is opened.
        if let Some((format, _)) = Format::of(name_of(path))
            && !is_folder(path)?
        {
            files.push((format, path.clone()));
        }
    }
    Ok(files)
}

/// Returns the table in a file, by the file's ending.
fn table_file(path: &Path) -> Result<Option<(String, TableFiles)>> {
    let Some((format, stem)) = Format::of(name_of(path)) else { return Ok(None) };
    Ok(Some((table_name(path, stem)?, TableFiles::one(format, path.to_owned())?)))
}

/// Returns the error about a folder without a table file.
fn no_table(path: &Path) -> Result<Error> {
    let shown = path.display();
    if found_at(&path.join("metadata.json"))?.is_some() {
        return Ok(Error::data(format!(
            "expected a source, found the store {shown}; name what the store was prepared from, or look at \
             the store with headwater inspect {shown}"
        )));
    }
    let is_workbook = |entry: &PathBuf| {
        let known = ["xlsx", "xls", "ods"];
        entry.extension().is_some_and(|of| known.iter().any(|known| of.eq_ignore_ascii_case(known)))
    };
    let workbook = visible_entries(path)?.into_iter().find(is_workbook);
    let found = workbook.map_or_else(String::new, |of| {
        format!(", found {}: save each of its sheets as NAME.csv", of.display())
    });
    Ok(Error::data(format!(
        "folder {shown} holds no table; expected NAME.csv, NAME.csv.gz, NAME.csv.zst, NAME.parquet, \
         NAME.arrayrecord, or a sub-folder of such files{found}"
    )))
}

/// Returns the table whose parts lie in a folder; `None` if it has no table file.
///
/// Names that begin with `_` are those of the program that wrote the folder (`_SUCCESS`).
fn table_folder(path: &Path) -> Result<Option<(String, TableFiles)>> {
    let mut entries = visible_entries(path)?;
    if let Some(log) = entries.iter().find(|entry| name_of(entry) == b"_delta_log") {
        return Err(Error::data(format!(
            "{}: expected a folder of table files, found a Delta table, whose log says which files \
             count; write its rows to a folder of Parquet files",
            log.display()
        )));
    }
    entries.retain(|entry| !name_of(entry).starts_with(b"_"));
    let parts = table_files(&entries)?;
    for folder in &entries {
        if !is_folder(folder)? {
            continue;
        }
        if name_of(folder).contains(&b'=') {
            return Err(Error::data(format!(
                "{}: expected files, found a folder that gives a column of its files by its name; \
                 write the table again with the column in the files, as DuckDB does with COPY \
                 (FROM read_parquet('{}/**/*.parquet', hive_partitioning = true)) TO \
                 '{}.parquet'",
                folder.display(),
                path.display(),
                path.display()
            )));
        }
        if !parts.is_empty() && !table_files(&visible_entries(folder)?)?.is_empty() {
            return Err(Error::data(format!(
                "{}: expected the parts of a table in one folder, found more files in a folder \
                 within; move them to {}, or away",
                folder.display(),
                path.display()
            )));
        }
    }
    let Some(parts) = TableFiles::new(parts)? else { return Ok(None) };
    let name = name_of(path);
    let name = Format::of(name).map_or(name, |(_, stem)| stem);
    Ok(Some((table_name(path, name)?, parts)))
}

fn name_of(path: &Path) -> &[u8] {
    path.file_name().map_or(b"", OsStr::as_encoded_bytes)
}

fn table_name(path: &Path, name: &[u8]) -> Result<String> {
    std::str::from_utf8(name).map(str::to_owned).map_err(|_| {
        let message = "expected a file name in UTF-8, because it names the table; rename the file";
        Error::data(format!("{}: {message}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stand_for_any_bytes_and_question_marks_for_one() {
        for (pattern, fits, other) in [
            ("*.csv", "a.csv", "a.csv.gz"),
            ("part-?.csv", "part-1.csv", "part-10.csv"),
            ("a*b*", "a--b", "a--"),
            ("**", "", "-"),
        ] {
            assert!(matches(pattern.as_bytes(), fits.as_bytes()), "{pattern} {fits}");
            let expected = pattern == "**";
            assert_eq!(
                matches(pattern.as_bytes(), other.as_bytes()),
                expected,
                "{pattern} {other}"
            );
        }
    }
}
