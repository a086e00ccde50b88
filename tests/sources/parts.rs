//! Tables of several files: a sub-folder, or a pattern.

use super::*;

#[test]
fn a_sub_folder_of_csv_files_is_one_table_in_order_of_names() {
    let folder = folder(&[
        ("orders/part-1.csv", b"a,b\n3,z\n"),
        ("orders/part-0.csv", b"b;a\n"),
        ("orders/_SUCCESS", b""),
        ("orders/.part-0.csv.crc", b"?"),
        ("orders/_other.csv", b"c\n1\n"),
        ("orders/notes.txt", b"?"),
        ("users.csv", b"id\n1\n"),
    ]);
    // The first part says the columns; the delimiter is each part's own.
    std::fs::write(folder.path().join("orders/part-0.csv"), b"a;b\n1;x\n2;y\n").unwrap();
    let source = opened(folder.path());
    assert_eq!(source.names().unwrap(), ["orders", "users"]);
    assert_eq!(rows(&*source, "orders", &["b", "a"]).unwrap(), ["x|1", "y|2", "z|3"]);
}

#[test]
fn a_pattern_names_the_parts_of_one_table() {
    let folder = folder(&[
        ("data/part-1.csv", b"a\n2\n"),
        ("data/part-0.csv", b"a\n1\n"),
        ("data/orders-2024.csv", b"a\n4\n"),
        ("data/orders-2023.csv", b"a\n3\n"),
        ("data/.part-9.csv", b"a\n9\n"),
        ("data/part-2.txt", b"?"),
    ]);
    for (pattern, table, expected) in [
        ("data/part-?.csv", "data", vec!["1", "2"]),
        ("data/orders-*.csv", "orders", vec!["3", "4"]),
        ("data/*", "data", vec!["3", "4", "1", "2"]),
    ] {
        let source = opened(&folder.path().join(pattern));
        assert_eq!(source.names().unwrap(), [table], "{pattern}");
        assert_eq!(rows(&*source, table, &["a"]).unwrap(), expected, "{pattern}");
    }
    let refused =
        |pattern: &str| message(open(&folder.path().join(pattern)), ErrorKind::Data, folder.path());
    assert_eq!(
        refused("data/none-*"),
        "no .csv, .csv.gz, .csv.zst, .parquet or .arrayrecord file has a name like DIR/data/none-*; \
         correct the pattern"
    );
    assert_eq!(
        refused("d*/part-0.csv"),
        "DIR/d*/part-0.csv: expected * and ? in the name of the files alone, found them in the name \
         of a folder; give one folder"
    );
}

#[test]
fn a_file_whose_name_has_a_star_is_itself() {
    let folder = folder(&[("a*.csv", b"x\n1\n"), ("ab.csv", b"x\n2\n")]);
    let source = opened(&folder.path().join("a*.csv"));
    assert_eq!(rows(&*source, "a*", &["x"]).unwrap(), ["1"]);
}

#[test]
fn a_part_that_differs_is_named_with_its_column() {
    let refused = |second: &[u8]| {
        let folder = folder(&[("t/0.csv", b"a,b\n1,2\n"), ("t/1.csv", second)]);
        message(opened(folder.path()).tables(), ErrorKind::Data, folder.path())
    };
    let end = "; give all parts of a table the same columns in the same order";
    assert_eq!(
        refused(b"a,c\n1,2\n"),
        format!("DIR/t/1.csv: column 2: expected \"b\" as in DIR/t/0.csv, found \"c\"{end}")
    );
    assert_eq!(
        refused(b"a\n1\n"),
        format!("DIR/t/1.csv: column 2: expected \"b\" as in DIR/t/0.csv, found no column{end}")
    );
    assert_eq!(
        refused(b"a,b,c\n1,2,3\n"),
        format!("DIR/t/1.csv: column 3: expected no column as in DIR/t/0.csv, found \"c\"{end}")
    );
}

#[test]
fn an_error_in_a_part_ends_the_stream() {
    let folder =
        folder(&[("t/0.csv", b"a,b\n1,2\n"), ("t/1.csv", b"a,b\n3\n"), ("t/2.csv", b"a,b\n5,6\n")]);
    let mut batches = opened(folder.path()).read("t", &["a".to_owned()]).unwrap();
    assert_eq!(batches.next().unwrap().unwrap().num_rows(), 1);
    let error = message(batches.next().unwrap(), ErrorKind::Data, folder.path());
    assert!(error.starts_with("DIR/t/1.csv: line 2: expected 2 fields"), "{error}");
    assert!(batches.next().is_none());
}

#[test]
fn folders_whose_rows_would_be_lost_are_rejected() {
    let refused = |files: &[&str]| {
        let files: Vec<_> = files.iter().map(|&name| (name, &b"a\n1\n"[..])).collect();
        let folder = folder(&files);
        message(open(folder.path()), ErrorKind::Data, folder.path())
    };
    let partitioned = refused(&["t/year=2024/0.csv"]);
    assert!(
        partitioned.starts_with(
            "DIR/t/year=2024: expected files, found a folder that gives a column of its files by \
             its name; write the table again"
        ),
        "{partitioned}"
    );
    assert_eq!(
        refused(&["t/0.csv", "t/more/1.csv"]),
        "DIR/t/more: expected the parts of a table in one folder, found more files in a folder \
         within; move them to DIR/t, or away"
    );
    assert_eq!(
        refused(&["t/0.csv", "t/1.parquet"]),
        "DIR/t/1.parquet: expected a CSV file as DIR/t/0.csv is, found a Parquet file; give all \
         parts of a table one format"
    );
    let delta = refused(&["t/0.parquet", "t/_delta_log/0.json"]);
    assert!(delta.starts_with("DIR/t/_delta_log: expected a folder of table files"), "{delta}");
}
