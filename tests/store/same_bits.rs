//! The bytes of a store depend on the rows and the schema, on nothing else.

use std::collections::BTreeMap;
use std::path::Path;

use headwater::prepare::source;

use crate::database::Database;
use crate::{folder, prepared, random};

/// Every file of a store.
pub(crate) fn files(store: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for part in ["", "tables", "tasks"] {
        for entry in std::fs::read_dir(store.join(part)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.strip_prefix(store).unwrap().to_str().unwrap().to_owned();
                files.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    files
}

/// Returns the files of the store of rows in memory, in batches of these sizes.
fn from_memory(
    database: &Database,
    cuts: &[usize],
    threads: usize,
    memory: Option<u64>,
) -> BTreeMap<String, Vec<u8>> {
    let folder = folder();
    let out = folder.path().join("store");
    let report = prepared(&database.memory(cuts), database, &out, threads, memory);
    report.unwrap_or_else(|e| panic!("{e}"));
    files(&out)
}

fn assert_same(a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>, what: &str) {
    assert!(a.keys().eq(b.keys()), "{what}");
    for (name, bytes) in a {
        assert!(*bytes == b[name], "{what}: {name}");
    }
}

#[test]
fn p1_same_bits_for_any_threads_memory_and_source_batches() {
    for seed in 0..25 {
        let database = random::database(seed, 4, 60);
        let expected = from_memory(&database, &[usize::MAX], 1, None);
        for (threads, memory) in [(2, None), (7, None), (1, Some(0)), (3, Some(1000))] {
            let found = from_memory(&database, &[usize::MAX], threads, memory);
            let what = format!("database {seed}, {threads} threads, memory {memory:?}");
            assert_same(&expected, &found, &what);
        }
        for cuts in [&[1][..], &[3, 0, 5, 11], &[16]] {
            let found = from_memory(&database, cuts, 2, None);
            assert_same(&expected, &found, &format!("database {seed}, batches {cuts:?}"));
        }
    }
}

#[test]
fn p1_same_bits_from_csv_parquet_and_memory() {
    for seed in 100..115 {
        let database = random::database(seed, 4, 60);
        let expected = from_memory(&database, &[usize::MAX], 1, None);
        for (what, write) in [
            ("CSV", Database::write_csv as fn(&Database, &Path)),
            ("Parquet", Database::write_parquet),
        ] {
            let folder = folder();
            let files_at = folder.path().join("source");
            std::fs::create_dir(&files_at).unwrap();
            write(&database, &files_at);
            let out = folder.path().join("store");
            let source = source::open(&files_at).unwrap();
            prepared(&*source, &database, &out, 2, None).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_same(&expected, &files(&out), &format!("database {seed} from {what}"));
        }
    }
}
