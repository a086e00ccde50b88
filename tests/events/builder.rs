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
    let (out, report) = prepared(folder.path(), &all, "row_bytes = 1000");
    assert!(report.row_count > all.len() as u64 * 16 / 1000);
    assert_eq!(report.event_count, all.len() as u64);
    EventStore::open(&out).unwrap().verify(&|_| Ok(())).unwrap();
}
