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
