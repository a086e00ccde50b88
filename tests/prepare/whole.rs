//! From data to a verified store with the command only.

use crate::{Workshop, assert_same_folders, headwater, succeed};

#[test]
fn p1_the_demo_has_the_same_bits_with_any_number_of_threads_and_any_memory() {
    let workshop = Workshop::new(&[]);
    let data = workshop.text("demo");
    succeed(&["demo-data", &data]);
    let schema = format!("{data}/schema.toml");
    for (out, threads, memory) in [
        ("1", "1", "1TB"),
        ("2", "2", "1TB"),
        ("8", "8", "1TB"),
        ("in files", "2", "0.001MB"),
        ("in part in files", "3", "2MB"),
    ] {
        let out = workshop.text(out);
        let how = ["--threads", threads, "--memory", memory, "--dimension", "32"];
        let what = ["prepare", &data, "--schema", &schema, "--out", &out];
        succeed(&[&what[..], &how].concat());
        let printed = succeed(&["verify", &out]);
        assert!(printed.starts_with(&format!("{out}: OK, ")), "{printed}");
    }
    assert_same_folders(&workshop.path("1"), &workshop.path("2"));
    assert_same_folders(&workshop.path("1"), &workshop.path("8"));
    assert_same_folders(&workshop.path("1"), &workshop.path("in files"));
    assert_same_folders(&workshop.path("1"), &workshop.path("in part in files"));
}

/// A typical SQLite file: composite keys, references to other columns than the key, NULLs, tables
/// without rows, a table that refers to itself, bytes.
const SHOP: &str = "
PRAGMA foreign_keys = off;
CREATE TABLE country (code TEXT PRIMARY KEY, name TEXT NOT NULL, iso TEXT UNIQUE);
INSERT INTO country VALUES ('de', 'Germany', 'DEU'), ('fr', 'France', 'FRA'), ('xx', 'Nowhere', NULL);
CREATE TABLE staff (id INTEGER PRIMARY KEY, boss INTEGER REFERENCES staff (id), hired DATE, photo BLOB);
INSERT INTO staff VALUES (1, NULL, '2019-01-01', x'00ff'), (2, 1, '2019-05-01', NULL), (3, 2, '2020-01-01', NULL);
CREATE TABLE visit (id INTEGER PRIMARY KEY, iso TEXT REFERENCES country (iso), at TIMESTAMP, staff INTEGER REFERENCES staff);
INSERT INTO visit VALUES (1, 'DEU', '2020-01-01 10:00:00', 1), (2, 'FRA', '2020-01-02 10:00:00', 2), (3, NULL, '2020-01-03 11:30:00', NULL);
CREATE TABLE line (visit INTEGER REFERENCES visit, number INTEGER, price REAL, PRIMARY KEY (visit, number));
INSERT INTO line VALUES (1, 1, 2.5), (1, 2, 3), (2, 1, 1e3), (3, 1, -1);
CREATE TABLE refund (visit INTEGER, number INTEGER, why TEXT, FOREIGN KEY (visit, number) REFERENCES line (visit, number));
INSERT INTO refund VALUES (1, 2, 'torn, and \"wet\"'), (2, 1, NULL);
CREATE TABLE archive (id INTEGER PRIMARY KEY, visit INTEGER REFERENCES visit);
CREATE TABLE \"odd / name\" (id INTEGER PRIMARY KEY, archive INTEGER REFERENCES archive, x INTEGER);
INSERT INTO \"odd / name\" VALUES (1, NULL, 4), (2, NULL, 5);
CREATE TABLE bytes (a BLOB);
INSERT INTO bytes VALUES (x'01');
";

#[test]
fn a_sqlite_file_is_prepared_unedited() {
    let workshop = Workshop::new(&[]);
    let path = workshop.path("shop.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch(SHOP).unwrap();
    let store = workshop.unedited(&path);
    let tables: Vec<_> = store
        .metadata()
        .tables
        .iter()
        .map(|table| format!("{} {}: {}", table.name, table.row_count, table.key.join("+")))
        .collect();
    assert_eq!(
        tables,
        [
            "country 3: code",
            "line 4: visit+number",
            "odd _ name 2: id",
            "refund 2: ",
            "staff 3: id",
            "visit 3: id"
        ]
    );
    let name = |place: u32| store.metadata().tables[place as usize].name.as_str();
    let relations: Vec<_> = store
        .metadata()
        .relations
        .iter()
        .map(|r| format!("{}.{} -> {}: {}", name(r.child), r.name, name(r.parent), r.edge_count))
        .collect();
    assert_eq!(
        relations,
        [
            "line.visit -> visit: 4",
            "refund.visit+number -> line: 2",
            "staff.boss -> staff: 2",
            "visit.iso -> country: 2",
            "visit.staff -> staff: 2"
        ]
    );
    let text = std::fs::read_to_string(workshop.path("drafted.toml")).unwrap();
    assert!(text.contains("# Table \"archive\" is left out: it has no rows.\n"), "{text}");
    assert!(text.contains("# Table \"bytes\" is left out: each column is always NULL"), "{text}");
}

#[test]
fn a_folder_of_csv_files_is_prepared_unedited() {
    let workshop = Workshop::new(&[
        ("authors.csv", "author_id,name,born\n1,Ann,1960-01-01\n2,Bob,1971-05-05\n3,Cy,\n"),
        (
            "books.csv",
            "book_id,author_id,title,published\n10,1,First,2001-01-01\n11,1,Next,2002-02-02\n12,3,Other,2003-03-03\n",
        ),
        (
            "loans.csv",
            "loan_id,book_id,loaned_at,days\n1,10,2010-01-01 10:00:00,3\n2,12,2010-01-02 11:00:00,5\n",
        ),
        ("wishes.csv", "book_id,wish\n"),
    ]);
    let store = workshop.unedited(&workshop.path("data"));
    let relations: Vec<_> =
        store.metadata().relations.iter().map(|r| (r.name.as_str(), r.edge_count)).collect();
    assert_eq!(relations, [("author_id", 3), ("book_id", 2)]);
    let books = store.table("books").unwrap();
    let author = store.table("authors").unwrap().find("1").unwrap().unwrap();
    let children = store.relations()[0].children(author).unwrap().rows().unwrap();
    assert_eq!(children, [books.find("10").unwrap().unwrap(), books.find("11").unwrap().unwrap()]);
}

#[test]
fn the_current_folder_names_the_database() {
    let workshop = Workshop::new(&[]);
    // A folder called data has the name of the folder around it.
    for folder in ["shop", "shop/data"] {
        std::fs::create_dir(workshop.path(folder)).unwrap();
        std::fs::write(workshop.path(folder).join("users.csv"), "id,name\n1,Ada\n2,Bo\n").unwrap();
        let named = |source: &str| {
            let mut command = headwater();
            let run = command.args(["schema", source]).current_dir(workshop.path(folder)).output();
            String::from_utf8(run.unwrap().stdout).unwrap()
        };
        for source in [".".to_owned(), "./".to_owned(), workshop.text(folder)] {
            assert!(named(&source).contains("\ndatabase = \"shop\"\n"), "{}", named(&source));
        }
    }
}
