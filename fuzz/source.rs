//! Opens bytes as a source of tables, and reads all their rows twice.

use std::fs;
use std::path::Path;

use headwater::prepare::source::{self, Source};

/// The most rows of a read: a small file may claim very many.
const ROWS_MAX: usize = 1 << 18;

pub fn check(end: &str, bytes: &[u8]) {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let path = folder.join(format!("headwater-fuzz-{}.{end}", std::process::id()));
    fs::write(&path, bytes).expect("the file can be written");
    let Ok(source) = source::open(&path) else { return };
    for table in source.names().expect("the tables of an open source") {
        assert_eq!(rows(&*source, &table), rows(&*source, &table), "two reads of {table:?} differ");
    }
    let _ = source.tables();
}

/// Returns the number of rows of a table, and whether all were read.
fn rows(source: &dyn Source, table: &str) -> (usize, bool) {
    let Ok(columns) = source.columns(table) else { return (0, false) };
    let columns: Vec<_> = columns.into_iter().map(|column| column.name).collect();
    let Ok(batches) = source.read(table, &columns) else { return (0, false) };
    let mut count = 0;
    for batch in batches {
        let Ok(batch) = batch else { return (count, false) };
        assert_eq!(batch.num_columns(), columns.len());
        count += batch.num_rows();
        if count > ROWS_MAX {
            break;
        }
    }
    (count, true)
}
