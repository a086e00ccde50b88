//! Tells what lies at a source's address, and opens it.

use std::io::Read;
use std::path::Path;

use super::Source;
use super::files::{self, Files};
use super::sqlite::{self, Sqlite};
use crate::error::{Error, Result};
use crate::files::{found_at, open_file};

/// The first bytes of a DuckDB file are a checksum; its magic follows.
const DUCKDB_MAGIC: (usize, &[u8]) = (8, b"DUCK");

/// How the addresses of Postgres begin.
const POSTGRES: [&str; 2] = ["postgresql://", "postgres://"];

/// The name of a database that its address does not name.
const UNNAMED: &str = "database";

/// Names of folders that say nothing of what is in them; the folder around them has a better one.
const GENERAL: [&str; 6] = ["csv", "data", "database", "files", "parquet", "tables"];

/// A database that another library reads: one of the Python package's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// A DuckDB file.
    DuckDb,
    /// A Postgres server.
    Postgres,
}

/// Opens the database at an address.
pub type Connect<'a> = dyn Fn(Database, &str) -> Result<Box<dyn Source>> + 'a;

/// Opens the source at `path`: a folder of table files, one such file, a pattern that names the parts
/// of one table, or a SQLite file.
///
/// Table files end in `.csv`, `.csv.gz`, `.csv.zst`, `.parquet` or `.arrayrecord`. A table has the name
/// of its file without the ending. A sub-folder of files is one table, with its parts in the order of their names.
/// Ignores hidden files and files of other types.
///
/// # Errors
/// `Io` when the path cannot be read; `Data` when there is no table, or two have the same name;
/// `InvalidArgument` for a database that only the Python package reads.
pub fn open(path: &Path) -> Result<Box<dyn Source>> {
    open_with(path, None)
}

/// [`open`], with `connect` for the databases that another library reads.
///
/// # Errors
/// As [`open`], and those of `connect`.
pub fn open_with(path: &Path, connect: Option<&Connect<'_>>) -> Result<Box<dyn Source>> {
    if let Ok(metadata) = std::fs::metadata(path)
        && !metadata.is_dir()
        && !metadata.is_file()
    {
        return Err(Error::data(format!(
            "expected a file or a folder, found {}, which is a pipe or a device; a source is read more \
             than once: write it to a file",
            path.display()
        )));
    }
    if let Some(database) = database(path)? {
        let connect = connect.ok_or_else(|| {
            let what = match database {
                Database::DuckDb => format!("{} is a DuckDB file", path.display()),
                Database::Postgres => format!("{} is a Postgres database", shown(path)),
            };
            Error::invalid(format!(
                "{what}, which the command of the Python package reads; install it (pip install \
                 headwater) and run its headwater"
            ))
        })?;
        let address = path.to_str().ok_or_else(|| {
            Error::data(format!("{}: expected a path in UTF-8; rename the file", path.display()))
        })?;
        return connect(database, address);
    }
    let is_folder = match std::fs::metadata(path) {
        Ok(metadata) => metadata.is_dir(),
        Err(_) if files::is_pattern(path) => return Ok(Box::new(Files::pattern(path)?)),
        Err(e) => {
            return Err(Error::io(path, "opening", e).followed_if_not_found(
                "; name a folder of table files, a file of a table or a database, or its address",
            ));
        }
    };
    if is_folder {
        return Ok(Box::new(Files::folder(path)?));
    }
    if sqlite::is_sqlite(&start_of(path)?) {
        return Ok(Box::new(Sqlite::open(path)?));
    }
    match Files::file(path)? {
        Some(file) => Ok(Box::new(file)),
        None => Err(Error::data(format!(
            "expected a folder of table files, a .csv, .csv.gz, .csv.zst, .parquet or .arrayrecord \
             file, or a SQLite or DuckDB file, found {}",
            path.display()
        ))),
    }
}

/// Returns an address as messages show it: without the password of a database.
#[must_use]
pub fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    let Some((scheme, rest)) = postgres_parts(&text) else { return text };
    // A password may contain an unescaped @ or /, so the last @ ends it.
    let rest = match rest.rsplit_once('@') {
        Some((user, host)) => {
            format!("{}@{host}", user.split_once(':').map_or(user, |(name, _)| name))
        }
        None => rest.to_owned(),
    };
    // The settings after the question mark can hold a password, too.
    format!("{scheme}{}", rest.split('?').next().unwrap_or_default())
}

/// Returns the default name of a database: that of its source; `.` has the name of the folder, and a folder
/// of a general name, such as `data`, that of the folder around it.
#[must_use]
pub fn database_name(path: &Path) -> String {
    let address = shown(path);
    if let Some((_, rest)) = postgres_parts(&address) {
        let name = rest.split_once('/').map_or("", |(_, name)| name);
        return if name.is_empty() { UNNAMED.into() } else { name.into() };
    }
    let file = match files::is_pattern(path) && !path.exists() {
        // The folder of a pattern.
        true => path.parent().filter(|folder| !folder.as_os_str().is_empty()),
        false => Some(path),
    };
    let file = file.unwrap_or(Path::new("."));
    // Also where the disk does not tell what the links are.
    let absolute = std::fs::canonicalize(file).or_else(|_| std::path::absolute(file)).ok();
    let stem = file.file_stem().or_else(|| absolute.as_deref()?.file_stem());
    let is_general = |name: &str| GENERAL.iter().any(|general| general.eq_ignore_ascii_case(name));
    let around =
        || Some(absolute.as_deref()?.parent()?.file_name()?.to_string_lossy().into_owned());
    match stem.map(|stem| stem.to_string_lossy().into_owned()) {
        Some(name) if is_general(&name) => around().unwrap_or(name),
        name => name.unwrap_or_else(|| UNNAMED.to_owned()),
    }
}

/// Returns the database at an address; `None` if this library reads what is there.
fn database(path: &Path) -> Result<Option<Database>> {
    if path.to_str().is_some_and(|text| postgres_parts(text).is_some()) {
        return Ok(Some(Database::Postgres));
    }
    if !found_at(path)?.is_some_and(|found| found.is_file()) {
        return Ok(None);
    }
    let (offset, magic) = DUCKDB_MAGIC;
    let start = start_of(path)?;
    let is_duckdb = start.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    Ok(is_duckdb.then_some(Database::DuckDb))
}

fn postgres_parts(address: &str) -> Option<(&'static str, &str)> {
    POSTGRES.iter().find_map(|&scheme| Some((scheme, address.strip_prefix(scheme)?)))
}

/// Returns the first bytes of a file, by which its format is told.
fn start_of(path: &Path) -> Result<Vec<u8>> {
    let mut start = Vec::new();
    open_file(path)?.take(16).read_to_end(&mut start).map_err(|e| Error::io(path, "reading", e))?;
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (address, expected) in [
            ("postgresql://ann@host:5432/shop", "postgresql://ann@host:5432/shop"),
            ("postgresql://ann:se%40cret@host/shop", "postgresql://ann@host/shop"),
            ("postgres://ann:p@ss/w@rd@host/shop", "postgres://ann@host/shop"),
            ("postgresql://:pw@/shop?host=/run&password=pw", "postgresql://@/shop"),
            ("postgresql:///shop?password=pw", "postgresql:///shop"),
            ("shop?password=pw", "shop?password=pw"),
        ] {
            assert_eq!(shown(Path::new(address)), expected);
        }
    }

    #[test]
    fn a_database_has_the_name_of_its_source() {
        for (address, expected) in [
            ("postgresql://ann:pw@host/shop?sslmode=require", "shop"),
            ("postgresql://host", "database"),
            ("data/shop.duckdb", "shop"),
            ("shop/orders-*.csv", "shop"),
        ] {
            assert_eq!(database_name(Path::new(address)), expected);
        }
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("shop").join("Data");
        std::fs::create_dir_all(&data).unwrap();
        assert_eq!(database_name(&data), "shop");
    }
}
