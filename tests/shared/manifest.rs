//! The manifest of the golden files in `checkpoints/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const HEAD: &str = "\
# The golden files of this folder: the BLAKE3 of each, what it holds and what made it; of a bad one
# the exact message with which it is rejected. A test checks that folder and manifest agree.
# HEADWATER_REGENERATE=1 cargo test --release --test plan --test store --test events --test reducer golden
";

/// A golden file to write.
pub(crate) struct Golden<'a> {
    pub(crate) name: String,
    pub(crate) what: String,
    pub(crate) bytes: &'a [u8],
    pub(crate) message: Option<String>,
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("checkpoints")
}

pub(crate) fn manifest() -> toml::Table {
    fs::read_to_string(folder().join("MANIFEST.toml")).unwrap_or_default().parse().unwrap()
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Whether the golden files of the current format version must be written again.
pub(crate) fn is_asked_to_regenerate() -> bool {
    std::env::var("HEADWATER_REGENERATE").is_ok_and(|v| v == "1")
}

/// Writes `goldens` and their entries of the manifest, one test at a time.
pub(crate) fn regenerate(generator: &str, goldens: &[Golden<'_>]) {
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap();
    let mut entries: BTreeMap<String, toml::Value> = manifest().into_iter().collect();
    for golden in goldens {
        let path = folder().join(&golden.name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, golden.bytes).unwrap();
        let mut entry = toml::Table::new();
        entry.insert("digest".into(), digest(golden.bytes).into());
        entry.insert("what".into(), golden.what.clone().into());
        entry.insert("generator".into(), generator.into());
        golden.message.clone().map(|m| entry.insert("message".into(), m.into()));
        entries.insert(golden.name.clone(), entry.into());
    }
    let table: toml::Table = entries.into_iter().collect();
    let text = format!("{HEAD}\n{}", toml::to_string(&table).unwrap());
    fs::write(folder().join("MANIFEST.toml"), text).unwrap();
}
