//! Real data: seventy years of Formula One, read from its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Returns the folder of the data, if it exists.
pub(crate) fn data() -> Option<PathBuf> {
    let shared = match std::env::var_os("HEADWATER_SHARED") {
        Some(shared) => PathBuf::from(shared),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"),
    };
    let data = shared.join("data/f1db");
    if data.is_dir() {
        return Some(data);
    }
    eprintln!("SKIPPED: {} does not exist; set HEADWATER_SHARED", data.display());
    None
}

/// Returns the path of the schema, which is corrected by hand.
pub(crate) fn schema() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/prepare/f1db.toml")
}

/// Returns the rows of a CSV file, by the names of its columns.
pub(crate) fn rows(data: &Path, name: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(data.join(format!("{name}.csv"))).unwrap();
    reader.deserialize().map(Result::unwrap).collect()
}
