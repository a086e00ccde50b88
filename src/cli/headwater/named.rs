//! What arguments name: stores, tables and tasks, with the nearest name in the message for a wrong one.

use std::path::Path;

use crate::error::{Error, Result};
use crate::prepare::names::{did_you_mean, suggest};
use crate::store::{METADATA_FILE, Store, Table};

/// Opens a store; where there is none, the message names the store beside it with the nearest name.
pub(super) fn open_store(path: &Path) -> Result<Store> {
    let near = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
        let stores = entries.flatten().filter(|entry| entry.path().join(METADATA_FILE).is_file());
        let mut names: Vec<_> =
            stores.filter_map(|store| store.file_name().into_string().ok()).collect();
        names.sort();
        let near = suggest(path.file_name()?.to_str()?, names.iter().map(String::as_str))?;
        Some(path.with_file_name(near).display().to_string())
    };
    let is_store = path.join(METADATA_FILE).exists();
    Store::open(path).map_err(|error| match near().filter(|_| !is_store) {
        Some(near) => error.followed_by(&format!("; did you mean {near}?")),
        None => error,
    })
}

/// Returns a table of a store; where there is none, the message names the nearest.
pub(super) fn find_table<'a>(store: &'a Store, name: &str) -> Result<&'a Table> {
    let names = store.tables().iter().map(|table| table.metadata().name.as_str());
    store.tables().iter().find(|table| table.metadata().name == name).ok_or_else(|| {
        Error::invalid(format!("no table is called {name:?}; {}", did_you_mean(name, names)))
    })
}

/// Checks that a store has a task, named as `task` or `database/task`; where there is none, the message
/// names the nearest.
pub(super) fn check_task(store: &Store, name: &str) -> Result<()> {
    let names = || store.tasks().iter().map(|task| task.metadata().name.as_str());
    let database = format!("{}/", store.metadata().database);
    let short = name.strip_prefix(&database).unwrap_or(name);
    match names().any(|task| task == name || task == short) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "no task is called {name:?}; {}",
            did_you_mean(short, names().collect::<Vec<_>>())
        ))),
    }
}
