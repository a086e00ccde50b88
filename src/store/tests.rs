//! Stores that memory holds, and stores that it does not.

use std::cell::Cell as Counter;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::{METADATA_FILE, Metadata, Store};
use crate::container::{Container, open_folder, warm};
use crate::error::{Error, ErrorKind};

const SMALL: &str = "checkpoints/store-v4-small";

fn containers() -> (u64, Vec<Container>) {
    let (_, _, containers) = open_folder::<Metadata>(Path::new(SMALL), None).unwrap();
    (containers.iter().map(Container::file_bytes).sum(), containers)
}

#[test]
fn blocks_are_read_ahead_when_the_files_do_not_fit_into_memory() {
    let (bytes, _) = containers();
    let is_larger =
        |memory| Store::open_within(SMALL.as_ref(), memory).unwrap().is_larger_than_memory();
    assert!(!is_larger(None));
    // A quarter of memory is for the process.
    assert!(!is_larger(Some(bytes / 3 * 4 + 4)));
    assert!(is_larger(Some(bytes / 3 * 4 - 4)));
}

#[test]
fn stores_that_are_sampled_together_are_compared_with_memory_together() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["tables", "tasks"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let (metadata, _, _) = open_folder::<Metadata>(Path::new(SMALL), None).unwrap();
    for name in metadata.files.iter().map(|file| &*file.path).chain([METADATA_FILE]) {
        fs::copy(Path::new(SMALL).join(name), folder.path().join(name)).unwrap();
    }
    let open = |path: &Path| Arc::new(Store::open_within(path, None).unwrap());
    let are_larger = |stores: &[Arc<Store>], bytes: u64| {
        Store::expect_together(stores, Some(bytes / 3 * 4 + 4));
        stores.iter().map(|store| store.is_larger_than_memory()).collect::<Vec<_>>()
    };
    let (small, other) = (open(SMALL.as_ref()), open(folder.path()));
    let bytes = small.file_bytes();
    assert_eq!(are_larger(&[small.clone(), other.clone()], 2 * bytes), [false; 2]);
    assert_eq!(are_larger(&[small, other], 2 * bytes - 16), [true; 2]);
    // Opened twice, the files are in memory once.
    assert_eq!(are_larger(&[open(SMALL.as_ref()), open(SMALL.as_ref())], bytes), [false; 2]);
}

#[test]
fn a_store_larger_than_memory_is_verified_like_any_other() {
    let store = Store::open_within(SMALL.as_ref(), Some(0)).unwrap();
    store.verify(&|_| Ok(())).unwrap();
}

#[test]
fn warming_reads_every_byte_once() {
    let (bytes, containers) = containers();
    let read = Counter::new(0);
    let progress = |more| {
        read.set(read.get() + more);
        Ok(())
    };
    assert_eq!(warm(SMALL.as_ref(), &containers, Some(bytes), &progress).unwrap(), bytes);
    assert_eq!(read.get(), bytes);
    let store = Store::open(SMALL.as_ref()).unwrap();
    assert_eq!((store.warm(&progress).unwrap(), read.get()), (bytes, 2 * bytes));
    let stop = |_| Err(Error::interrupted("stopped"));
    let error = warm(SMALL.as_ref(), &containers, None, &stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
}

#[test]
fn warming_refuses_what_memory_does_not_hold() {
    let (bytes, containers) = containers();
    let never = |_| unreachable!("nothing is read");
    let error = warm(SMALL.as_ref(), &containers, Some(bytes - 1), &never).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert_eq!(
        error.to_string(),
        format!(
            "{SMALL}: expected a store of at most {} bytes, the memory that this process can have, found \
             {bytes} bytes; use the store without warming it, or give the process more memory",
            bytes - 1
        )
    );
}
