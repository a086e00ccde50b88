use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::*;

/// Makes a SQLite file with these statements.
pub(super) fn database(statements: &str) -> (tempfile::TempDir, Box<dyn Source>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    Connection::open(&path).unwrap().execute_batch(statements).unwrap();
    let source = opened(&path);
    (folder, source)
}

#[test]
fn values_are_exact_texts() {
    let (_folder, source) = database(
        "CREATE TABLE \"odd \"\" name\" (a, \"select\" TEXT);
         INSERT INTO \"odd \"\" name\" VALUES
           (9223372036854775807, 'x'), (-1, ''), (NULL, NULL), (0.1, 'é'), (1e20, 'a,\"b'),
           (3.0, 7), (-0.0, 'n'), (1e-7, 'z'), (1e999, 'i');",
    );
    assert_eq!(
        rows(&*source, "odd \" name", &["select", "a"]).unwrap(),
        [
            "x|9223372036854775807",
            "|-1",
            "-|-",
            "é|0.1",
            "a,\"b|100000000000000000000",
            "7|3",
            "n|0",
            "z|0.0000001",
            "i|inf"
        ]
    );
    let tables = source.tables().unwrap();
    let declared: Vec<_> = tables[0].columns.iter().map(|c| c.declared.as_deref()).collect();
    assert_eq!(declared, [None, Some("TEXT")]);
}

#[test]
fn declared_keys_and_references_are_listed() {
    let (_folder, source) = database(
        "CREATE TABLE Artist (ArtistId INTEGER PRIMARY KEY, Name);
         CREATE TABLE Part (b, a, PRIMARY KEY (a, b)) WITHOUT ROWID;
         CREATE TABLE Album (
           AlbumId INTEGER PRIMARY KEY, artistid REFERENCES artist, code UNIQUE, x, y,
           up REFERENCES Album(code), lost REFERENCES Nowhere,
           FOREIGN KEY (x, y) REFERENCES part(A, b), FOREIGN KEY (y, x) REFERENCES Part(b, a));
         CREATE VIEW Names AS SELECT Name FROM Artist;",
    );
    let tables = source.tables().unwrap();
    let names: Vec<_> = tables.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["Album", "Artist", "Names", "Part"]);
    assert_eq!(tables[0].key, ["AlbumId"]);
    assert_eq!(tables[3].key, ["a", "b"]);
    assert!(tables[2].key.is_empty());
    let references: Vec<_> = tables[0]
        .references
        .iter()
        .map(|r| format!("{} -> {}({})", r.columns.join("+"), r.to, r.to_columns.join("+")))
        .collect();
    assert_eq!(
        references,
        ["artistid -> Artist()", "up -> Album(code)", "x+y -> Part()", "y+x -> Part(b+a)"]
    );
}

#[test]
fn rows_keep_their_order_for_any_requested_columns() {
    let (_folder, source) = database(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER, w INTEGER);
         CREATE INDEX by_v ON t (v);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
           INSERT INTO t SELECT i, 20000 - i, i FROM n;
         CREATE TABLE k (v INTEGER, id INTEGER PRIMARY KEY) WITHOUT ROWID;
         CREATE INDEX k_by_v ON k (v);
         INSERT INTO k SELECT v, id FROM t;
         CREATE VIEW s AS SELECT v, w FROM t;",
    );
    let expected: Vec<_> = (1..=20_000).map(|i| (20_000 - i).to_string()).collect();
    for table in ["t", "k", "s"] {
        assert!(rows(&*source, table, &["v"]).unwrap() == expected, "{table} is out of order");
        let count: usize =
            batches(&*source, table, &[]).unwrap().iter().map(RecordBatch::num_rows).sum();
        assert_eq!(count, 20_000);
    }
    let sizes: Vec<_> =
        batches(&*source, "t", &["id"]).unwrap().iter().map(RecordBatch::num_rows).collect();
    assert_eq!(sizes, [8192, 8192, 3616]);
}

#[test]
fn a_reader_that_is_dropped_early_ends_its_thread() {
    let (_folder, source) = database(
        "CREATE TABLE t (v);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
           INSERT INTO t SELECT i FROM n;",
    );
    let mut stream = source.read("t", &["v".into()]).unwrap();
    assert_eq!(stream.next().unwrap().unwrap().num_rows(), 8192);
    drop(stream);
    assert_eq!(rows(&*source, "t", &["v"]).unwrap().len(), 100_000);
}

/// Another process can commit as soon as a source and its rows are dropped, and not before.
#[test]
fn a_dropped_source_has_closed_its_file() {
    let (folder, source) = database(BALANCED);
    let path = folder.path().join("shop.db");
    let commits = || {
        let writer = Connection::open(&path).unwrap();
        writer.busy_timeout(Duration::ZERO).unwrap();
        writer.execute_batch("UPDATE a SET x = x + 1").is_ok()
    };
    assert!(!commits());
    drop(source);
    assert!(commits());
    for _ in 0..30 {
        let source = opened(&path);
        let mut stream = source.read("a", &["x".into()]).unwrap();
        assert!(stream.next().unwrap().is_ok());
        drop(source);
        assert!(!commits(), "the read goes on");
        drop(stream);
        assert!(commits());
    }
}

#[test]
fn a_source_that_is_dropped_in_a_long_query_ends_at_once() {
    let (_folder, source) = database(
        "CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
           SELECT max(i) AS i FROM n;",
    );
    let stream = source.read("endless", &["i".into()]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let start = Instant::now();
    drop((source, stream));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn values_that_are_not_text_are_rejected_with_their_place() {
    let (folder, source) = database(
        "CREATE TABLE t (a, b);
         INSERT INTO t VALUES (1, 2), (x'0102', CAST(x'ff41' AS TEXT));",
    );
    let refused =
        |column: &str| message(rows(&*source, "t", &[column]), ErrorKind::Data, folder.path());
    assert_eq!(
        refused("a"),
        "DIR/shop.db: table \"t\": column \"a\": row 2: expected text or a number, found a blob of \
         2 bytes; leave the column out of the schema"
    );
    assert_eq!(
        refused("b"),
        "DIR/shop.db: table \"t\": column \"b\": row 2: expected text or a number, found \
         \"\u{fffd}A\", which is not UTF-8"
    );
}

#[test]
fn missing_tables_and_damaged_files_are_rejected() {
    let (folder, source) = database("CREATE TABLE orders (id); INSERT INTO orders VALUES (1);");
    let refused = |table: &str, column: &str| {
        message(rows(&*source, table, &[column]), ErrorKind::Schema, folder.path())
    };
    assert_eq!(
        refused("order", "id"),
        "SQLite file DIR/shop.db has no table \"order\"; did you mean \"orders\"?"
    );
    assert_eq!(
        refused("orders", "ids"),
        "table \"orders\" of SQLite file DIR/shop.db: there is no column \"ids\"; did you mean \
         \"id\"?"
    );
    let path = folder.path().join("shop.db");
    std::fs::write(&path, b"SQLite format 3\0 and nothing more").unwrap();
    assert_eq!(
        message(open(&path), ErrorKind::Data, folder.path()),
        "SQLite file DIR/shop.db: file is not a database"
    );
    Connection::open(folder.path().join("none.db"))
        .unwrap()
        .execute_batch("CREATE TABLE t (a); DROP TABLE t;")
        .unwrap();
    assert_eq!(
        message(open(&folder.path().join("none.db")), ErrorKind::Data, folder.path()),
        "SQLite file DIR/none.db holds no table"
    );
}

/// Two tables whose totals every transaction of a writer keeps equal.
const BALANCED: &str = "CREATE TABLE a (x INTEGER); CREATE TABLE b (y INTEGER);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
      INSERT INTO a SELECT 0 FROM n;
    INSERT INTO b SELECT * FROM a;";

fn total(source: &dyn Source, table: &str, column: &str) -> i64 {
    let rows = rows(source, table, &[column]).unwrap();
    rows.iter().map(|value| value.parse::<i64>().unwrap()).sum()
}

/// Whether a writer must end.
#[derive(Default)]
struct Done(AtomicBool);

/// Ends the writer, also when the test fails.
struct Ends<'a>(&'a Done);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn all_reads_see_one_state_beside_a_writer() {
    for journal in ["wal", "delete", "truncate", "persist"] {
        let (folder, _) = database(&format!("PRAGMA journal_mode = {journal}; {BALANCED}"));
        let path = folder.path().join("shop.db");
        let done = Done::default();
        std::thread::scope(|scope| {
            let done = &done;
            let writer = scope.spawn(|| {
                let writer = Connection::open(&path).unwrap();
                let mut count = 0;
                while !done.0.load(Ordering::Relaxed) {
                    // A reader waits for a lock by trying again, and needs a chance.
                    std::thread::sleep(Duration::from_millis(5));
                    // Fails while a reader has the lock of a rollback journal; then nothing changes.
                    let raise = "BEGIN IMMEDIATE; UPDATE a SET x = x + 1; UPDATE b SET y = y + 1;
                        COMMIT;";
                    match writer.execute_batch(raise) {
                        Ok(()) => count += 1,
                        Err(_) => writer.execute_batch("ROLLBACK").unwrap_or_default(),
                    }
                }
                count
            });
            let ends = Ends(done);
            for _ in 0..5 {
                let source = opened(&path);
                let first = total(&*source, "a", "x");
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!(total(&*source, "b", "y"), first, "{journal}");
                assert_eq!(total(&*source, "a", "x"), first, "{journal}");
                // The writer gets its turn.
                drop(source);
                std::thread::sleep(Duration::from_millis(50));
            }
            drop(ends);
            assert!(writer.join().unwrap() > 0, "{journal}: nothing was written");
        });
    }
}

#[test]
fn a_source_keeps_its_state_while_others_commit() {
    let (folder, _) = database(&format!("PRAGMA journal_mode = wal; {BALANCED}"));
    let path = folder.path().join("shop.db");
    let source = opened(&path);
    let writer = Connection::open(&path).unwrap();
    writer.execute_batch("DELETE FROM b; UPDATE a SET x = 7; CREATE TABLE c (z);").unwrap();
    // One read for each connection, and more.
    for _ in 0..8 {
        assert_eq!(total(&*source, "a", "x"), 0);
        assert_eq!(rows(&*source, "b", &["y"]).unwrap().len(), 20_000);
    }
    assert_eq!(source.names().unwrap(), ["a", "b"]);
    assert_eq!(total(&*opened(&path), "a", "x"), 7 * 20_000);
}

#[test]
fn p6_a_file_that_a_copy_overwrites_is_refused() {
    for journal in ["wal", "delete"] {
        let (folder, source) = database(&format!("PRAGMA journal_mode = {journal}; {BALANCED}"));
        drop(source);
        let path = folder.path().join("shop.db");
        // The last connection that closes leaves an empty WAL.
        drop(Connection::open(&path).unwrap());
        let source = opened(&path);
        assert_eq!(total(&*source, "a", "x"), 0);
        // In place, as `rsync --inplace` writes, without a word to SQLite.
        let bytes = std::fs::read(&path).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        let error = rows(&*source, "b", &["y"]).err().unwrap_or_else(|| panic!("{journal}"));
        assert!(error.to_string().contains("a later time of change"), "{journal}: {error}");
    }
}

#[test]
fn tables_are_read_by_turns() {
    let (_folder, source) = database(BALANCED);
    let read = |table: &str, column: &str| source.read(table, &[column.to_owned()]).unwrap();
    // More reads than connections, so that some share one.
    let mut reads: Vec<_> = (0..12).map(|_| read("a", "x")).collect();
    reads.push(read("b", "y"));
    drop(source);
    for expected in [8192, 8192, 3616] {
        for read in &mut reads {
            assert_eq!(read.next().unwrap().unwrap().num_rows(), expected);
        }
    }
    assert!(reads.iter_mut().all(|read| read.next().is_none()));
}

#[test]
fn a_file_that_another_process_has_locked_is_told() {
    let (folder, source) = database(BALANCED);
    drop(source);
    let path = folder.path().join("shop.db");
    let writer = Connection::open(&path).unwrap();
    writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert_eq!(
        message(open(&path), ErrorKind::Data, folder.path()),
        "SQLite file DIR/shop.db: expected to read it within 5 seconds, found it locked by another \
         process that writes; wait until that has committed, or end it, and run this again \
         (database is locked)"
    );
}

#[test]
fn a_view_whose_rows_change_from_read_to_read_is_refused() {
    for (call, found) in [
        ("random()", "random()"),
        ("hex(randomblob(4))", "randomblob()"),
        ("current_timestamp", "current_timestamp()"),
        ("date('now')", "date() of the present time"),
        ("datetime()", "datetime() of the present time"),
        ("unixepoch('SubSec')", "unixepoch() of the present time"),
        ("strftime('%Y')", "strftime() of the present time"),
        // The argument is a value of a row.
        ("julianday(word)", "julianday() of the present time"),
        ("time(t, 'localtime')", "time() in the time zone of the machine"),
        ("timediff(t, 'now')", "timediff() of the present time"),
        ("total_changes()", "total_changes()"),
    ] {
        let (folder, source) = database(&format!(
            "CREATE TABLE o (t, word); INSERT INTO o VALUES ('2024-05-01', 'Now');
             CREATE VIEW v AS SELECT {call} AS x FROM o; CREATE VIEW w AS SELECT x FROM v;"
        ));
        for view in ["v", "w"] {
            assert_eq!(
                message(rows(&*source, view, &["x"]), ErrorKind::Data, folder.path()),
                format!(
                    "SQLite file DIR/shop.db: view {view:?}: expected rows that depend on the data \
                     alone, found a call of {found}, whose result changes from read to read; leave \
                     the call out, or write the rows to a table"
                )
            );
        }
        assert_eq!(
            rows(&*source, "o", &["t"]).unwrap(),
            ["2024-05-01"],
            "the connection is spoilt"
        );
    }
}

#[test]
fn a_view_may_call_what_depends_on_the_data_alone() {
    for (call, expected) in [
        ("date(t, '+1 month', 'start of month')", "2024-06-01"),
        ("strftime('%Y', t)", "2024"),
        ("unixepoch(t, 'subsec')", "1714521600"),
        ("julianday(NULL)", "-"),
        ("date('soon')", "-"),
        ("timediff(t, '2024-04-30')", "+0000-00-01 00:00:00.000"),
        ("count(*) OVER (PARTITION BY t ORDER BY t)", "1"),
        ("group_concat(t)", "2024-05-01"),
        ("printf('%d-%s', 7, upper(word))", "7-A"),
        ("json_extract('[3]', '$[0]') + abs(-2)", "5"),
        ("coalesce(NULL, max(t, word))", "a"),
    ] {
        let (_folder, source) = database(&format!(
            "CREATE TABLE o (t, word, day AS (date(t))); CREATE INDEX i ON o (date(t));
             INSERT INTO o VALUES ('2024-05-01', 'a');
             CREATE VIEW v AS SELECT {call} AS x FROM o;"
        ));
        assert_eq!(rows(&*source, "v", &["x"]).unwrap(), [expected], "{call}");
        assert_eq!(rows(&*source, "o", &["day"]).unwrap(), ["2024-05-01"]);
    }
}

/// Closing the file elsewhere in the process gives up the locks, so that a writer may commit.
#[test]
fn a_file_whose_lock_was_lost_is_refused_when_it_has_changed() {
    let (folder, source) = database(BALANCED);
    assert_eq!(total(&*source, "a", "x"), 0);
    let path = folder.path().join("shop.db");
    drop(std::fs::File::open(&path).unwrap());
    // A process of its own, which has the locks of its own.
    let program = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\nc.execute('DELETE FROM b')\n\
        c.commit()";
    let writer = std::process::Command::new("python3").args(["-c", program]).arg(&path).status();
    assert!(writer.unwrap().success());
    let found = message(rows(&*source, "b", &["y"]), ErrorKind::Data, folder.path());
    assert!(found.starts_with("DIR/shop.db: expected a file that nobody changes"), "{found}");
}
