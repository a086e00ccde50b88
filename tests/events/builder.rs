//! The row builder: any source, one order.

use headwater::events::EventStore;
use headwater::prepare::{EventOptions, prepare_events, source};
use headwater::progress::Silent;

use crate::pings::{pings, prepared, schema, write_csv};

#[test]
fn p1_the_order_of_rows_and_the_threads_change_no_byte() {
    let mut all = pings(60, 30);
    let folder = tempfile::tempdir().unwrap();
    let (out, report) = prepared(folder.path(), &all, "");
    let store = EventStore::open(&out).unwrap();
    store.verify(&|_| Ok(())).unwrap();
    assert_eq!(report.event_count, all.len() as u64);
    assert_eq!(report.entity_count, 60);
    for threads in [1, 2, 7] {
        all.reverse();
        let middle = all.len() / threads;
        all.rotate_left(middle);
        let folder = tempfile::tempdir().unwrap();
        let data = write_csv(folder.path(), "pings.csv", &all);
        let options = EventOptions { replace: false, threads: Some(threads), progress: &Silent };
        let out = folder.path().join("again.db");
        let source = source::open(&data).unwrap();
        let again = prepare_events(&*source, &schema(""), &out, &options).unwrap();
        assert_eq!(again.root, report.root, "{threads} threads");
    }
}

#[test]
fn a_long_history_is_divided_at_the_limit() {
    let all = pings(3, 2000);
    let folder = tempfile::tempdir().unwrap();
    let (out, report) = prepared(folder.path(), &all, "row_bytes = 1024");
    assert!(report.row_count > all.len() as u64 * 16 / 1024);
    assert_eq!(report.event_count, all.len() as u64);
    EventStore::open(&out).unwrap().verify(&|_| Ok(())).unwrap();
}

/// Two times whose whole seconds differ by 2^32, though they differ by less.
#[test]
fn a_row_spans_less_than_two_to_the_32_seconds() {
    let ping = |time| ("10.0.0.1".to_owned(), "10.0.0.2".to_owned(), time, 1.0);
    for (later, rows) in [((1_i64 << 32) * 1_000_000 + 999_998, 2), ((1 << 32) * 1_000_000 - 1, 1)]
    {
        let folder = tempfile::tempdir().unwrap();
        let (out, report) = prepared(folder.path(), &[ping(999_999), ping(later)], "");
        assert_eq!(report.row_count, rows, "{later}");
        EventStore::open(&out).unwrap().verify(&|_| Ok(())).unwrap();
    }
}
