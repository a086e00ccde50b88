//! Real data: seventy years of Formula One, as its files have them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The data, where this machine has them.
pub(crate) fn data() -> Option<PathBuf> {
    let shared = match std::env::var_os("HEADWATER_SHARED") {
        Some(shared) => PathBuf::from(shared),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"),
    };
    let data = shared.join("data/f1db");
    if data.is_dir() {
        return Some(data);
    }
    eprintln!("SKIPPED: {} is not there; say where with HEADWATER_SHARED", data.display());
    None
}

/// The schema that a person wrote for them.
pub(crate) fn schema() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/prepare/f1db.toml")
}

/// The rows of a CSV file, by the names of its columns.
pub(crate) fn rows(data: &Path, name: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(data.join(format!("{name}.csv"))).unwrap();
    reader.deserialize().map(Result::unwrap).collect()
}
