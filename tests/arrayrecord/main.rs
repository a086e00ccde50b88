//! ArrayRecord files: event stores go out and come back, and damage is found.
//!
//! tests/python/test_arrayrecord.py has the same with Google's own reader and writer.

#[path = "../shared/pings.rs"]
mod pings;

mod damage;
mod files;
mod parts;
mod round_trip;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use headwater::Result;
use headwater::events::EventStore;
use headwater::prepare::schema::Schema;
use headwater::prepare::{EventOptions, EventsReport, export_events, prepare_events, source};
use headwater::progress::Silent;

/// Prepares the event store at `out` of a source.
fn prepared(data: &Path, schema: &Schema, out: &Path) -> Result<EventsReport> {
    let options = EventOptions { replace: false, threads: None, progress: &Silent };
    prepare_events(&*source::open(data)?, schema, out, &options)
}

/// Exports the store at `store` to the folder `pings` beside it; returns the folder.
fn exported(store: &Path) -> PathBuf {
    let out = store.with_file_name("pings");
    export_events(&EventStore::open(store).unwrap(), &out, &Silent).unwrap();
    out
}

/// A folder with the exported files of some measurements, and the name of that within.
fn exported_pings(probes: u64, mean: u64, more: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = pings::prepared(folder.path(), &pings::pings(probes, mean), more);
    let files = exported(&store);
    (folder, files)
}

/// The bytes of every file of a folder, by name.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(std::result::Result::unwrap);
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect()
}
