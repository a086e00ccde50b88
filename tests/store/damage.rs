//! Damage of every kind is reported or never read; it causes no panic and no wrong value.

use std::fs;
use std::path::Path;

use headwater::plan::SplitRatios;
use headwater::store::{METADATA_FILE, Store, TextEncoding};
use headwater::{Error, ErrorKind};

use crate::same_bits::files;
use crate::{encoded_store_of, folder, random, store_of, tiny};

/// Returns the results of all reads of a store, in a fixed order.
fn everything(store: &Store) -> Vec<Result<String, Error>> {
    let mut reads = Vec::new();
    let mut read = |value: Result<String, Error>| reads.push(value);
    for table in store.tables() {
        for row in 0..table.row_count() {
            let columns = table.metadata().columns.len();
            read(table.row(row).map(|record| {
                let cells: Vec<_> = (0..columns).map(|column| record.cell(column)).collect();
                let parents = store.relations().iter().filter(|relation| {
                    std::ptr::eq(
                        &raw const store.tables()[relation.metadata().child as usize],
                        table,
                    )
                });
                let parents: Vec<_> =
                    parents.map(|relation| relation.parent(&record).unwrap()).collect();
                format!("{} {cells:?} {parents:?}", record.time())
            }));
            read(table.identity(row).map(|identity| identity.to_string()));
            if !table.metadata().key.is_empty() {
                read(table.key(row).map(str::to_owned));
                read(table.key(row).and_then(|key| table.find(key)).map(|row| format!("{row:?}")));
            }
        }
    }
    for relation in store.relations() {
        let parents = store.tables()[relation.metadata().parent as usize].row_count();
        for parent in 0..parents {
            read(relation.children(parent).and_then(|children| {
                Ok(format!("{:?} {:?}", children.rows()?, children.times()?))
            }));
            for column in
                0..store.tables()[relation.metadata().child as usize].metadata().columns.len()
            {
                read(relation.children(parent).and_then(|children| {
                    Ok(format!("{:?}", children.total(column as u32, 0, children.count())?))
                }));
            }
        }
    }
    for task in store.tasks() {
        let anchor = &store.tables()[task.metadata().anchor as usize];
        for seed in 0..task.metadata().seed_count {
            read(task.seed(anchor, seed).map(|seed| format!("{seed:?}")));
        }
        read(task.split_sizes(SplitRatios::default()).map(|sizes| format!("{sizes:?}")));
    }
    let embedding = &store.metadata().embedding;
    for index in 0..embedding.text_count {
        read(store.text(index).map(str::to_owned));
        read(store.text_embedding(index).map(|vector| format!("{vector:?}")));
    }
    read(store.text_embeddings().map(|vectors| format!("{vectors:?}")));
    for index in 0..embedding.category_count {
        read(store.category(index).map(str::to_owned));
    }
    read(store.column_embeddings().map(|vectors| format!("{vectors:?}")));
    read(store.relation_embeddings().map(|vectors| format!("{vectors:?}")));
    read(store.categorical_embeddings().map(|vectors| format!("{vectors:?}")));
    reads
}

/// An intact store, the results of its reads, and methods that damage it.
struct DamagedStore {
    folder: tempfile::TempDir,
    whole: Vec<String>,
}

impl DamagedStore {
    fn new() -> Self {
        Self::of(TextEncoding::F16)
    }

    fn of(encoding: TextEncoding) -> Self {
        let (folder, store) = encoded_store_of(&tiny::database(), &[5], Some(encoding));
        store.verify(&|_| Ok(())).unwrap();
        let whole = everything(&store).into_iter().map(Result::unwrap).collect();
        Self { folder, whole }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("store")
    }

    /// Opens the damaged store and reads all of it; returns the error of `open` or of `verify`.
    fn examine(&self, what: &str) -> Error {
        let store = match Store::open(&self.path()) {
            Ok(store) => store,
            Err(error) => {
                assert_known(&error, what);
                return error;
            }
        };
        let reads = everything(&store);
        assert_eq!(reads.len(), self.whole.len(), "{what}");
        for (read, whole) in reads.into_iter().zip(&self.whole) {
            match read {
                Ok(value) => assert_eq!(value, *whole, "{what}: read wrongly"),
                Err(error) => assert_known(&error, what),
            }
        }
        let error = store.verify(&|_| Ok(())).expect_err(what);
        assert_known(&error, what);
        error
    }

    /// Replaces the file `name` by `bytes`, examines the store, and restores the file.
    fn with_file(&self, name: &str, bytes: &[u8], what: &str) -> Error {
        let path = self.path().join(name);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        let error = self.examine(what);
        fs::write(&path, whole).unwrap();
        error
    }
}

fn assert_known(error: &Error, what: &str) {
    let known = [ErrorKind::NotOurs, ErrorKind::Version, ErrorKind::Corrupt, ErrorKind::Io];
    assert!(known.contains(&error.kind()), "{what}: {:?}: {error}", error.kind());
}

/// The first byte of a container's section table.
fn table_at(bytes: &[u8]) -> usize {
    u64::from_le_bytes(bytes[16..24].try_into().unwrap()) as usize
}

#[test]
fn p6_no_silent_change_by_a_flipped_bit() {
    let damaged = DamagedStore::new();
    for (name, whole) in files(&damaged.path()) {
        for at in 0..whole.len() {
            // Every bit of a header; elsewhere a bit of every byte, and every bit in turn.
            let bits = match name != METADATA_FILE && at < 64 {
                true => 0..8,
                false => at % 8..at % 8 + 1,
            };
            // Digests cover whole blocks: a sample of their bytes is enough.
            let in_block = name != METADATA_FILE && (64..table_at(&whole)).contains(&at);
            if in_block && at % 7 != 0 {
                continue;
            }
            for bit in bits {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                damaged.with_file(&name, &bytes, &format!("{name}: byte {at}, bit {bit}"));
            }
        }
    }
}

#[test]
fn p6_no_silent_change_of_int8_vectors_by_a_flipped_bit() {
    let damaged = DamagedStore::of(TextEncoding::Int8);
    let name = "text_embeddings.bin";
    let whole = fs::read(damaged.path().join(name)).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        damaged.with_file(name, &bytes, &format!("{name}: byte {at}"));
    }
}

#[test]
fn p6_no_silent_change_by_lost_or_added_bytes() {
    let damaged = DamagedStore::new();
    for (name, whole) in files(&damaged.path()) {
        let near = [0, 1, 8, 31, 32, 63, 64, 65].into_iter();
        let ends = (whole.len() - 70..whole.len()).step_by(3);
        for length in near.chain((66..whole.len() - 70).step_by(41)).chain(ends) {
            let what = format!("{name}: the first {length} bytes");
            damaged.with_file(&name, &whole[..length], &what);
        }
        for tail in [&b"\0"[..], b"\n", &[0; 64], b"}"] {
            let bytes = [&whole[..], tail].concat();
            damaged.with_file(&name, &bytes, &format!("{name}: with {tail:?} at the end"));
        }
    }
}

#[test]
fn p6_no_silent_change_by_foreign_missing_or_extra_files() {
    let damaged = DamagedStore::new();
    let mut other = tiny::database();
    other.schema.database = "another".into();
    for (_, values) in other.data.get_mut("orders").unwrap() {
        values.swap(0, 1);
    }
    let (other, _) = store_of(&other, &[5]);
    let others = files(&other.path().join("store"));
    let own = files(&damaged.path());
    for (name, whole) in &own {
        let path = damaged.path().join(name);
        // A file that is the same in both, such as the table that was not touched, does no harm.
        if others[name] != *whole {
            damaged.with_file(name, &others[name], &format!("{name} of another store"));
        }
        for (another, bytes) in &own {
            if another != name {
                damaged.with_file(name, bytes, &format!("{another} in place of {name}"));
            }
        }
        fs::remove_file(&path).unwrap();
        let error = damaged.examine(&format!("{name} is lost"));
        if name == "metadata.json" {
            assert_eq!(error.kind(), ErrorKind::NotOurs, "{error}");
        } else {
            let what =
                format!("{name} is missing: it is part of the store; copy the whole folder again");
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().ends_with(&what), "{error}");
        }
        fs::write(&path, whole).unwrap();
        for extra in [format!("{name}.copy"), format!("{name}.partial")] {
            fs::write(damaged.path().join(&extra), whole).unwrap();
            let error = damaged.examine(&extra);
            assert_eq!(
                error.to_string(),
                format!(
                    "{}: the file {extra} does not belong to this store; remove it",
                    damaged.path().display()
                )
            );
            fs::remove_file(damaged.path().join(&extra)).unwrap();
        }
    }
    fs::create_dir(damaged.path().join("tables/more")).unwrap();
    let error = damaged.examine("a folder");
    assert!(error.to_string().contains("the file tables/more does not belong"), "{error}");
}

/// Returns the error message of a damaged store, with its path replaced by DB.
fn message(damaged: &DamagedStore, name: &str, edit: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = fs::read(damaged.path().join(name)).unwrap();
    edit(&mut bytes);
    let error = damaged.with_file(name, &bytes, name);
    error.to_string().replace(&damaged.path().display().to_string(), "DB")
}

#[test]
fn p6_messages_name_the_damage_and_the_remedy() {
    let damaged = DamagedStore::new();
    let orders = "tables/orders.bin";
    let again = "; copy the store again from an intact copy, or prepare it again";
    assert_eq!(
        message(&damaged, orders, |bytes| bytes[70] ^= 4).split_once("section").unwrap().1,
        format!(" \"keys.bytes\": the bytes 64..89 of the file do not match their digest{again}")
    );
    assert_eq!(
        message(&damaged, orders, |bytes| bytes[0] = b'x'),
        "DB/tables/orders.bin: expected a file of a headwater store, which begins with HWSTORE, \
         found another kind of file"
    );
    assert_eq!(
        message(&damaged, orders, |bytes| bytes[8] = 3),
        "DB/tables/orders.bin: expected a file of format version 1 or 2, found version 3; prepare the \
         store with this version of headwater, or read it with the version that wrote it"
    );
    assert_eq!(
        message(&damaged, orders, |bytes| bytes[40] ^= 1),
        format!(
            "DB/tables/orders.bin: the section table does not match the header's digest{again}"
        )
    );
    assert_eq!(
        message(&damaged, orders, |bytes| bytes.truncate(40)),
        format!("DB/tables/orders.bin: the file ends inside its header{again}")
    );
    let length = fs::metadata(damaged.path().join(orders)).unwrap().len();
    assert_eq!(
        message(&damaged, orders, |bytes| bytes.truncate(bytes.len() - 1)),
        format!(
            "DB/tables/orders.bin: expected a file of {length} bytes by its header, found {}{again}",
            length - 1
        )
    );
    assert_eq!(
        message(&damaged, "metadata.json", |bytes| bytes.push(b' ')),
        format!(
            "DB/metadata.json: the metadata do not match their digest: the file was edited or \
             damaged{again}"
        )
    );
    let edited = message(&damaged, "metadata.json", |bytes| {
        let text = String::from_utf8(std::mem::take(bytes)).unwrap();
        *bytes = text.replacen("\"format_version\": 4", "\"format_version\": 9", 1).into_bytes();
    });
    assert_eq!(
        edited,
        "DB/metadata.json: expected store format version 4, found version 9; prepare the store \
         with this version of headwater, or read it with the version that wrote it"
    );
    assert!(
        message(&damaged, "metadata.json", |bytes| bytes.truncate(9))
            .starts_with("DB/metadata.json: not the metadata of a headwater store: ")
    );
}

#[test]
fn a_path_that_is_not_a_store_is_rejected() {
    let folder = folder();
    let refused = |path: &Path| {
        let error = Store::open(path).err().unwrap();
        (error.kind(), error.to_string().replace(&folder.path().display().to_string(), "DIR"))
    };
    let (kind, message) = refused(folder.path());
    assert_eq!(kind, ErrorKind::NotOurs);
    assert_eq!(
        message,
        "DIR: not a store: expected a metadata.json in the folder, found none; make a store with \
         `headwater prepare`"
    );
    let (kind, message) = refused(&folder.path().join("nowhere"));
    assert_eq!(kind, ErrorKind::Io);
    assert!(message.starts_with("opening the store DIR/nowhere: No such file"), "{message}");
}

/// In a section of several blocks, each block is checked on first read.
#[test]
fn p6_no_silent_change_in_the_second_block() {
    let mut database = random::database(3, 1, 1);
    let table = &mut database.schema.tables[0];
    table.columns.clear();
    table.columns.insert("note".into(), headwater::store::SemanticType::Text.into());
    (table.key, table.time, table.references) = (vec![], None, vec![]);
    database.schema.tasks.clear();
    database.schema.aggregates.clear();
    database.schema.summaries.clear();
    let note = |row| crate::database::Value::Word(format!("{row} {}", "x".repeat(100)));
    let data = vec![("note".to_owned(), (0..2000).map(note).collect())];
    let source = database.schema.tables[0].source_name().to_owned();
    database.data = [(source, data)].into();
    let (folder, store) = store_of(&database, &[100]);
    drop(store);
    let path = folder.path().join("store/text_embeddings.bin");
    let mut bytes = fs::read(&path).unwrap();
    bytes[64 + 20_000] ^= 1;
    fs::write(&path, bytes).unwrap();
    let store = Store::open(&folder.path().join("store")).unwrap();
    assert!(store.text(0).is_ok());
    let broken = (0..2000).filter(|&text| store.text(text).is_err()).count();
    assert!((140..180).contains(&broken), "{broken}");
    let error = store.verify(&|_| Ok(())).unwrap_err();
    assert_eq!(
        error.to_string().split_once("section").unwrap().1,
        " \"texts.bytes\": the bytes 16448..32832 of the file do not match their digest; copy the \
         store again from an intact copy, or prepare it again"
    );
}

#[test]
fn a_folder_or_a_pipe_in_place_of_a_file_is_rejected() {
    let damaged = DamagedStore::new();
    for (name, whole) in files(&damaged.path()) {
        let path = damaged.path().join(&name);
        let refused = |what: &str| {
            let error = Store::open(&damaged.path()).err().expect(what);
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
            let expected = format!("{}: expected a file, found {what}; copy", path.display());
            assert!(error.to_string().starts_with(&expected), "{error}");
        };
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused("a folder");
        fs::remove_dir(&path).unwrap();
        if cfg!(unix) {
            let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
            assert!(made.success());
            refused("a pipe or a device");
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, whole).unwrap();
    }
    Store::open(&damaged.path()).unwrap();
    let error = Store::open(&damaged.path().join(METADATA_FILE)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotOurs);
    assert!(error.to_string().contains("expected a folder made by `headwater prepare`"), "{error}");
}
