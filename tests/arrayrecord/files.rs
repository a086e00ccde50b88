//! The files of an export, and files as a source.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater::events::EventStore;
use headwater::prepare::source::{self, Source};
use headwater::prepare::{ExportedFile, export_events};
use headwater::progress::{Progress, Silent};
use headwater::{Error, ErrorKind, Result};

use crate::{contents, exported, exported_pings, pings, prepared};

const SPLIT: &str = "split = { train = 0.6, val = 0.2, test = 0.2 }";

/// The numbers of rows of the batches of a table.
fn batch_rows(source: &dyn Source, table: &str, columns: &[&str]) -> Vec<usize> {
    let columns: Vec<_> = columns.iter().map(|&name| name.to_owned()).collect();
    let batches = source.read(table, &columns).unwrap();
    batches.map(|batch| batch.unwrap().num_rows()).collect()
}

#[test]
fn the_same_store_gives_the_same_bytes() {
    let (folder, first) = exported_pings(30, 20, SPLIT);
    let second = folder.path().join("second");
    let store = EventStore::open(&folder.path().join("pings.db")).unwrap();
    let report = export_events(&store, &second, &Silent).unwrap();
    let files = contents(&first);
    assert_eq!(files, contents(&second));
    assert_eq!(
        files.keys().collect::<Vec<_>>(),
        ["test.arrayrecord", "train.arrayrecord", "val.arrayrecord"]
    );
    let counts = |(file, split): (&ExportedFile, _)| {
        let counts = store.metadata().counts(split);
        assert_eq!((file.record_count, file.event_count), (counts.rows.into(), counts.events));
        assert_eq!(file.bytes, files[&file.name].len() as u64);
        assert_eq!(file.name, format!("{}.arrayrecord", split.name()));
    };
    report.files.iter().zip(headwater::plan::Split::ALL).for_each(counts);
}

/// Of small records, many are in a chunk: the padding is that of the end of a file alone.
#[test]
fn small_records_are_not_padded() {
    let (_folder, files) =
        exported_pings(400, 10, "split = { train = 1.0, val = 0.0, test = 0.0 }");
    let files = contents(&files);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["train.arrayrecord"]);
    let length = files["train.arrayrecord"].len();
    assert!(length < 400 * 1500, "{length} bytes");
}

#[test]
fn files_are_tables_parts_and_batches_as_other_sources_have_them() {
    let (folder, files) = exported_pings(40, 900, SPLIT);
    let parts = source::open(&files.join("*.arrayrecord")).unwrap();
    assert_eq!(parts.names().unwrap(), ["pings"]);
    let whole = batch_rows(&*parts, "pings", &["rtt"]);
    let tables = source::open(&files).unwrap();
    assert_eq!(tables.names().unwrap(), ["test", "train", "val"]);
    let mut rows = 0;
    for table in ["test", "train", "val"] {
        let batches = batch_rows(&*tables, table, &["dst_addr", "event_time"]);
        let (last, full) = batches.split_last().unwrap();
        assert!(*last > 0 && full.iter().all(|&count| count == 8192), "{table}: {batches:?}");
        rows += batches.iter().sum::<usize>();
    }
    assert_eq!(whole.iter().sum::<usize>(), rows);
    // A folder that has the folder has one table, too.
    fs::remove_dir_all(folder.path().join("pings.db")).unwrap();
    fs::remove_file(folder.path().join("pings.csv")).unwrap();
    assert_eq!(source::open(folder.path()).unwrap().names().unwrap(), ["pings"]);
    let described = tables.tables().unwrap().remove(0).columns;
    let columns: Vec<_> =
        described.iter().map(|column| format!("{} {}", column.name, column.data_type)).collect();
    assert_eq!(
        columns.join(", "),
        "event_time Timestamp(µs), src_addr Utf8, dst_addr Utf8, ip_version Int8, rtt Float32"
    );
    // Columns come in the order that is asked for.
    let wanted = ["rtt", "event_time"].map(str::to_owned);
    let batch = tables.read("train", &wanted).unwrap().next().unwrap().unwrap();
    assert_eq!(
        batch.schema().fields().iter().map(|f| f.name()).collect::<Vec<_>>(),
        wanted.each_ref()
    );
}

#[test]
fn a_file_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pings.arrayrecord");
    for bytes in [&b""[..], b"src_addr,dst_addr\n", &vec![0; 200_000]] {
        fs::write(&path, bytes).unwrap();
        let error = source::open(&path).unwrap().tables().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        let expected = "pings.arrayrecord: expected an ArrayRecord file, which begins with Riegeli's \
                        signature, found other bytes; write the file with ArrayRecordWriter";
        assert!(error.to_string().ends_with(expected), "{error}");
    }
}

#[test]
fn a_folder_that_exists_is_refused_and_one_of_a_killed_export_is_replaced() {
    let (folder, files) = exported_pings(10, 5, "");
    let store = EventStore::open(&folder.path().join("pings.db")).unwrap();
    let before = contents(&files);
    let error = export_events(&store, &files, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error.to_string().contains("pings is there already; choose another folder, or move it")
    );
    assert_eq!(contents(&files), before);
    let partial = folder.path().join("second.partial");
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("val.arrayrecord"), "half").unwrap();
    export_events(&store, &folder.path().join("second"), &Silent).unwrap();
    assert_eq!(contents(&folder.path().join("second")), before);
    assert!(!partial.exists());
}

/// Interrupts the work at the third event or later.
struct Impatient(AtomicU64);

impl Progress for Impatient {
    fn begin(&self, _stage: &str, _total: Option<u64>) {}

    fn advance(&self, count: u64) -> Result<()> {
        match self.0.fetch_add(count, Ordering::Relaxed) < 3 {
            true => Ok(()),
            false => Err(Error::interrupted("enough")),
        }
    }
}

#[test]
fn an_interrupted_export_leaves_nothing() {
    let (folder, files) = exported_pings(10, 5, "");
    let store = EventStore::open(&folder.path().join("pings.db")).unwrap();
    fs::remove_dir_all(&files).unwrap();
    let error = export_events(&store, &files, &Impatient(AtomicU64::new(0))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(!files.exists() && !files.with_extension("partial").exists());
}

/// An entity that is no address is exported as the address of its source.
#[test]
fn a_store_of_numbered_probes_is_exported_with_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("pings.csv");
    fs::write(
        &data,
        "probe,src_addr,dst_addr,event_time,rtt\n7,192.0.2.1,192.0.2.9,1,1\n7,192.0.2.2,,2,1\n",
    )
    .unwrap();
    let mut schema = pings::schema("split = { train = 1.0, val = 0.0, test = 0.0 }");
    let events = schema.events.as_mut().unwrap();
    let by_address = events.clone();
    events.entity = vec!["probe".into()];
    events.columns.insert("src".into(), "src_addr".into());
    let store = folder.path().join("pings.db");
    prepared(&data, &schema, &store).unwrap();
    let files = exported(&store);
    schema.events = Some(by_address);
    let again = folder.path().join("again.db");
    let report = prepared(&files.join("*"), &schema, &again).unwrap();
    assert_eq!((report.entity_count, report.event_count), (2, 2));
    let again = EventStore::open(&again).unwrap();
    let mut names = [again.entity(0).unwrap(), again.entity(1).unwrap()];
    names.sort_unstable();
    assert_eq!(names, ["192.0.2.1", "192.0.2.2"]);
}
