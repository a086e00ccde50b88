//! Readers, drafts and the demo: valid and malformed files.

mod csv;
mod demo;
mod draft;
mod draft_aggregates;
mod draft_keys;
mod draft_own_times;
mod draft_periods;
mod draft_questions;
mod draft_references;
mod draft_renamed;
mod draft_times;
mod draft_values;
mod folder;
mod packed;
mod parquet;
mod parts;
mod sqlite;
#[path = "../shared/tpch.rs"]
mod tpch;

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use headwater::prepare::source::{Source, open};
use headwater::{Error, ErrorKind, Result};

/// Makes a folder with these files.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    folder
}

fn opened(path: &Path) -> Box<dyn Source> {
    open(path).unwrap_or_else(|e| panic!("{e}"))
}

fn batches(source: &dyn Source, table: &str, columns: &[&str]) -> Result<Vec<RecordBatch>> {
    let columns: Vec<_> = columns.iter().map(|c| (*c).to_owned()).collect();
    source.read(table, &columns)?.collect()
}

/// Returns the rows of a table of texts, with `-` for NULL and `|` between fields.
fn rows(source: &dyn Source, table: &str, columns: &[&str]) -> Result<Vec<String>> {
    let mut rows = Vec::new();
    for batch in batches(source, table, columns)? {
        let arrays: Vec<_> = batch.columns().iter().map(AsArray::as_string::<i32>).collect();
        for row in 0..batch.num_rows() {
            let field = |a: &&arrow_array::StringArray| {
                if a.is_null(row) { "-".to_owned() } else { a.value(row).to_owned() }
            };
            rows.push(arrays.iter().map(field).collect::<Vec<_>>().join("|"));
        }
    }
    Ok(rows)
}

/// Returns the message of an error, with `DIR` for the folder's path.
fn message<T>(result: Result<T>, kind: ErrorKind, folder: &Path) -> String {
    let error: Error = result.err().expect("expected an error");
    assert_eq!(error.kind(), kind, "{error}");
    error.to_string().replace(&folder.display().to_string(), "DIR")
}
