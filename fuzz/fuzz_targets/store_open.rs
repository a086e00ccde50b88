//! Whatever was done to a store's files, opening, reading and verifying it end in errors or values.
//!
//! The input is a list of edits to a small store. No search finds a BLAKE3, so half of the inputs
//! have all digests made to fit again: then only the checks behind them are left.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use headwater::Digest;
use headwater::plan::SplitRatios;
use headwater::store::{Metadata, Store, Table};
use libfuzzer_sys::fuzz_target;

mod edits;

use edits::{Input, edit, repair};

macro_rules! golden {
    ($store:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../checkpoints/", $store, "/", $name)))),*]
    };
}

macro_rules! store {
    ($store:literal) => {
        golden![
            $store:
            "metadata.json",
            "graph.bin",
            "tables/customers.bin",
            "tables/orders.bin",
            "tables/remarks.bin",
            "tasks/churn.bin",
            "tasks/next order.bin",
            "tasks/vip.bin",
            "column_embeddings.bin",
            "categorical_embeddings.bin",
            "text_embeddings.bin",
        ]
    };
}

/// The files of a store of each encoding of text vectors, by the same names.
const STORES: [&[(&str, &[u8])]; 2] = [store!("store-v4-small"), store!("store-v4-int8")];

/// More rows than the store has; counts that lie are not followed to their end.
const READS: u32 = 64;

/// Makes the metadata fit the other files.
fn seal(files: &mut [Vec<u8>]) {
    for file in &mut files[1..] {
        // What cannot be found cannot be repaired, and is refused as it is.
        let _ = repair(file);
    }
    let Ok(mut metadata) = serde_json::from_slice::<Metadata>(&files[0]) else { return };
    for file in &mut metadata.files {
        let Some(place) = STORES[0].iter().position(|(name, _)| *name == file.path) else { continue };
        file.length = files[place].len() as u64;
        if let Some(digest) = files[place].get(32..64) {
            file.digest = Digest(digest.try_into().expect("it has 32 bytes"));
        }
    }
    if let Ok(text) = metadata.encode() {
        files[0] = text.into_bytes();
    }
}

fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = parent.join(format!("headwater-fuzz-{}", std::process::id()));
        for part in ["tables", "tasks"] {
            fs::create_dir_all(folder.join(part)).expect("a folder for the store");
        }
        folder
    })
}

fn read_table(store: &Store, table: &Table) {
    for row in 0..=table.row_count().min(READS) {
        let Ok(record) = table.row(row) else { continue };
        let _ = (record.time(), table.identity(row));
        for column in 0..table.metadata().columns.len() {
            assert_eq!(record.is_null(column), record.cell(column) == headwater::store::Cell::Null);
        }
        if let Ok(key) = table.key(row) {
            let _ = table.find(key);
        }
        for relation in store.relations() {
            let child = &store.tables()[relation.metadata().child as usize];
            if std::ptr::eq(child, table) {
                let _ = relation.parent(&record);
            }
        }
    }
    let _ = (table.row(u32::MAX), table.identity(u32::MAX), table.key(u32::MAX), table.find("bob"));
}

fn read_all(store: &Store) {
    store.tables().iter().for_each(|table| read_table(store, table));
    for relation in store.relations() {
        let metadata = relation.metadata();
        let parents = store.tables()[metadata.parent as usize].row_count();
        for parent in 0..=parents.min(READS) {
            let Ok(children) = relation.children(parent) else { continue };
            let _ = children.visible_count(0);
            let Ok(rows) = children.rows() else { continue };
            for &child in rows.iter().take(64) {
                let _ = store.tables()[metadata.child as usize].row(child);
            }
        }
        let _ = relation.children(u32::MAX);
    }
    for task in store.tasks() {
        let anchor = &store.tables()[task.metadata().anchor as usize];
        for index in 0..=task.metadata().seed_count.min(READS) {
            if let Ok(seed) = task.seed(anchor, index) {
                assert!(seed.row < anchor.row_count());
            }
        }
        let _ = store.metadata().target_column(task.metadata()).semantic();
        let _ = task.split_sizes(SplitRatios::default());
    }
    let embedding = &store.metadata().embedding;
    for index in (0..=embedding.text_count.min(READS)).chain([u32::MAX]) {
        let _ = (store.text(index), store.text_embedding(index));
    }
    for index in (0..=embedding.category_count.min(READS)).chain([u32::MAX]) {
        let _ = store.category(index);
    }
    let columns = store.tables().iter().flat_map(|table| &table.metadata().columns);
    if let Ok(vectors) = store.column_embeddings() {
        for column in columns {
            let first = column.index as usize * embedding.dimension as usize;
            assert!(first + embedding.dimension as usize <= vectors.len());
        }
    }
    let _ = store.categorical_embeddings();
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mode = input.byte();
    let whole = STORES[usize::from(mode / 2 % 2)];
    let mut files: Vec<Vec<u8>> = whole.iter().map(|(_, bytes)| bytes.to_vec()).collect();
    let mut edits = 0;
    while !input.0.is_empty() && edits < 8 {
        edit(&mut input, &mut files);
        edits += 1;
    }
    if mode % 2 == 0 {
        seal(&mut files);
    }
    for ((name, _), bytes) in whole.iter().zip(&files) {
        fs::write(folder().join(name), bytes).expect("the file can be written");
    }
    let changed = whole.iter().zip(&files).any(|((_, whole), bytes)| **whole != **bytes);
    match Store::open(folder()) {
        Err(_) => assert!(changed, "a whole store does not open"),
        Ok(store) => {
            read_all(&store);
            let verified = store.verify(&|_| Ok(()));
            // Without digests that fit, nothing that was changed may pass.
            assert!(mode % 2 == 0 || verified.is_err() == changed, "{verified:?}");
        }
    }
});
