use super::*;

#[test]
fn a_folder_has_a_table_for_each_csv_and_parquet_file() {
    let folder = folder(&[
        ("b.csv", b"x,y\n1,2\n"),
        ("a.CSV", b"x\n1\n"),
        ("notes.txt", b"?"),
        (".hidden.csv", b""),
        ("sub/deep/deeper.csv", b"x\n1\n"),
        ("README", b"?"),
    ]);
    let source = opened(folder.path());
    assert_eq!(source.describe(), format!("folder {}", folder.path().display()));
    let tables = source.tables().unwrap();
    let shape: Vec<_> = tables
        .iter()
        .map(|t| (t.name.as_str(), t.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>()))
        .collect();
    assert_eq!(shape, [("a", vec!["x"]), ("b", vec!["x", "y"])]);
    assert!(tables.iter().all(|t| t.key.is_empty() && t.references.is_empty()));
}

#[test]
fn one_file_is_a_source() {
    let folder = folder(&[("only.csv", b"x\n1\n"), ("other.csv", b"x\n1\n")]);
    let source = opened(&folder.path().join("only.csv"));
    assert_eq!(source.tables().unwrap().len(), 1);
    assert_eq!(rows(&*source, "only", &["x"]).unwrap(), ["1"]);
}

#[test]
fn a_path_without_tables_is_rejected() {
    let dir = folder(&[("t.txt", b"?"), ("empty/x.txt", b"?"), (".h/x", b"")]);
    let path = dir.path();
    let refused = |path: &Path, kind| message(open(path), kind, dir.path());
    assert_eq!(
        refused(&path.join("t.txt"), ErrorKind::Data),
        "expected a folder of table files, a .csv, .csv.gz, .csv.zst, .parquet or .arrayrecord \
         file, or a SQLite or DuckDB file, found DIR/t.txt"
    );
    assert_eq!(
        refused(path, ErrorKind::Data),
        "folder DIR holds no table; expected NAME.csv, NAME.csv.gz, NAME.csv.zst, NAME.parquet, \
         NAME.arrayrecord, or a sub-folder of such files"
    );
    assert!(
        refused(&path.join("nowhere"), ErrorKind::Io).starts_with("opening DIR/nowhere: No such")
    );
}

#[test]
fn a_store_and_a_workbook_in_place_of_tables_are_named() {
    let dir = folder(&[
        ("db/metadata.json", b"{}"),
        ("office/sales.xlsx", b"PK"),
        ("bare/a.csv", b"id,name\n"),
        ("bare/b.csv", b"id\n"),
    ]);
    let refused = |name: &str| {
        let found = open(&dir.path().join(name))
            .and_then(|source| headwater::prepare::draft::draft(&*source, "x", &|_| Ok(())));
        message(found, ErrorKind::Data, dir.path())
    };
    assert_eq!(
        refused("db"),
        "expected a source, found the store DIR/db; name what the store was prepared from, or look at \
         the store with headwater inspect DIR/db"
    );
    let sheets = "found DIR/office/sales.xlsx: save each of its sheets as NAME.csv";
    assert!(refused("office").ends_with(sheets), "{}", refused("office"));
    assert_eq!(
        refused("bare"),
        "folder DIR/bare has no table with rows and a usable column: \"a\": it has no rows, \"b\": it \
         has no rows"
    );
}

#[test]
fn two_files_of_one_name_are_rejected() {
    let folder = folder(&[("t.csv", b"x\n1\n"), ("t.parquet", b"")]);
    assert_eq!(
        message(open(folder.path()), ErrorKind::Data, folder.path()),
        "DIR/t.csv and DIR/t.parquet both hold table \"t\"; remove or rename one of them"
    );
}

#[test]
fn missing_tables_and_columns_suggest_the_nearest_name() {
    let folder = folder(&[("drivers.csv", b"id,fullName\n1,x\n"), ("races.csv", b"id\n1\n")]);
    let source = opened(folder.path());
    let refused = |table, column: &str| {
        message(rows(&*source, table, &[column]), ErrorKind::Schema, folder.path())
    };
    assert_eq!(
        refused("driver", "id"),
        "folder DIR has no table \"driver\"; did you mean \"drivers\"?"
    );
    assert_eq!(
        refused("unlike", "id"),
        "folder DIR has no table \"unlike\"; expected one of: \"drivers\", \"races\""
    );
    assert_eq!(
        refused("drivers", "full_name"),
        "table \"drivers\" of folder DIR: there is no column \"full_name\"; did you mean \
         \"fullName\"?"
    );
}

#[test]
fn a_database_of_the_python_package_is_named() {
    let magic: &[u8] = b"\x01\x02\x03\x04\x05\x06\x07\x08DUCK and more";
    let dir = folder(&[("shop.duckdb", magic)]);
    assert_eq!(
        message(open(&dir.path().join("shop.duckdb")), ErrorKind::InvalidArgument, dir.path()),
        "DIR/shop.duckdb is a DuckDB file, which the command of the Python package reads; install it \
         (pip install headwater) and run its headwater"
    );
    let address = Path::new("postgresql://ann:secret@host/shop?password=secret");
    let found = message(open(address), ErrorKind::InvalidArgument, dir.path());
    assert!(found.starts_with("postgresql://ann@host/shop is a Postgres database, "), "{found}");
    assert!(!found.contains("secret"), "{found}");
}

#[cfg(not(feature = "arrayrecord"))]
#[test]
fn a_build_without_arrayrecord_says_how_to_build_it() {
    let dir = folder(&[("pings.arrayrecord", b"?")]);
    for path in [dir.path(), &dir.path().join("pings.arrayrecord"), &dir.path().join("p*")] {
        assert_eq!(
            message(opened(path).tables(), ErrorKind::InvalidArgument, dir.path()),
            "DIR/pings.arrayrecord: expected a build with ArrayRecord, found one without; build \
             headwater with the feature arrayrecord (cargo build --release --features arrayrecord)"
        );
    }
}

/// A source is read more than once; a file that another program writes meanwhile would be a mixture.
#[test]
fn a_file_that_changes_while_it_is_read_is_refused_by_name() {
    let text = |row: &str| format!("a,b\n{}", format!("{row}\n").repeat(20_000));
    let read = |source: &dyn Source| batches(source, "t", &["a"]);
    let changed = |what: &str| {
        format!(
            "DIR/t.csv: expected a file that nobody changes while it is read, found {what}; wait until \
             its writer has ended, or read a copy"
        )
    };
    let folder = folder(&[("t.csv", text("1,2").as_bytes()), ("other.csv", b"a,b\n3,4\n")]);
    let path = folder.path().join("t.csv");
    let told = |found: Result<Vec<RecordBatch>>| message(found, ErrorKind::Data, folder.path());

    // Between two reads: longer, as long, replaced, and with a fault that the change brought.
    let source = opened(folder.path());
    assert!(read(&*source).is_ok());
    std::fs::write(&path, text("1,2") + "1").unwrap();
    assert_eq!(told(read(&*source)), changed("80005 bytes, and 80004 before"));
    assert_eq!(message(source.tables(), ErrorKind::Data, folder.path()), told(read(&*source)));

    std::fs::write(&path, text("1,2")).unwrap();
    let source = opened(folder.path());
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(later).unwrap();
    assert_eq!(told(read(&*source)), changed("a later time of change"));

    let source = opened(folder.path());
    std::fs::rename(folder.path().join("other.csv"), &path).unwrap();
    assert_eq!(told(read(&*source)), changed("another file in its place"));

    // While the rows are read.
    for end in ["", "1,2,3\n"] {
        std::fs::write(&path, text("1,2")).unwrap();
        let source = opened(folder.path());
        let mut rows = source.read("t", &["a".into()]).unwrap();
        assert_eq!(rows.next().unwrap().unwrap().num_rows(), 8192);
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, whole + "7,8\n" + end).unwrap();
        let found = told(rows.collect());
        assert!(found.starts_with("DIR/t.csv: expected a file that nobody changes"), "{found}");
    }
}
