use super::*;

/// Returns the rows of one CSV file, or the error message.
fn read(bytes: &[u8], columns: &[&str]) -> std::result::Result<Vec<String>, String> {
    let folder = folder(&[("t.csv", bytes)]);
    let found = rows(&*opened(folder.path()), "t", columns);
    match found {
        Ok(rows) => Ok(rows),
        error => Err(message(error, ErrorKind::Data, folder.path())),
    }
}

#[test]
fn fields_are_read_unchanged_and_empty_ones_are_null() {
    let text =
        "\u{feff}a,b,\"c d\"\r\n1,,x\r\n\r\n\" 2 \",\"\",\"say \"\"hi\"\"\nthere\"\n3,-0.50,é";
    assert_eq!(
        read(text.as_bytes(), &["c d", "a"]).unwrap(),
        ["x|1", "say \"hi\"\nthere| 2 ", "é|3"]
    );
    assert_eq!(read(text.as_bytes(), &["b"]).unwrap(), ["-", "-", "-0.50"]);
}

#[test]
fn the_delimiter_is_found_in_the_header() {
    let all = ["a,1", "b"];
    let expected = ["x|1,5", "y;z|-2"];
    for (text, delimiter) in [
        ("\"a,1\";b\nx;1,5\n\"y;z\";-2\n", ';'),
        ("\u{feff}\"a,1\"\tb\r\nx\t1,5\r\ny;z\t-2\r\n", '\t'),
        ("\"a,1\"|b\nx|1,5\ny;z|\"-2\"", '|'),
        ("\"a,1\",b\nx,\"1,5\"\ny;z,-2\n", ','),
    ] {
        assert_eq!(read(text.as_bytes(), &all).unwrap(), expected, "{delimiter:?}");
    }
}

#[test]
fn errors_name_a_delimiter_other_than_the_comma() {
    let refused = |text: &str| read(text.as_bytes(), &["a", "b"]).unwrap_err();
    assert_eq!(
        refused("a;b\n1;2\n3,4\n"),
        "DIR/t.csv: line 3: expected 2 fields as in the header, found 1; the delimiter is ';', as \
         in the header"
    );
    let stray = refused("a\tb\n1\t\"x\"y\tz\n");
    let expected = "DIR/t.csv: line 2: column \"b\": expected '\\t' or the end of the line after a \
                    closing quote, found \"y\";";
    assert!(stray.starts_with(expected), "{stray}");
    assert_eq!(
        refused(",a,b\n0,1,2\n"),
        "DIR/t.csv: line 1: column 1 has no name; found the names \"\", \"a\", \"b\"; if pandas \
         wrote its index, write the file with index=False; otherwise name the column"
    );
}

#[test]
fn many_rows_come_in_order_in_batches() {
    let body: String = (0..20_000).map(|i| format!("{i},{}\n", i % 7)).collect();
    let folder = folder(&[("t.csv", format!("a,b\n{body}").as_bytes())]);
    let source = opened(folder.path());
    let expected: Vec<_> = (0..20_000).map(|i| format!("{}|{i}", i % 7)).collect();
    assert_eq!(rows(&*source, "t", &["b", "a"]).unwrap(), expected);
    let sizes = |columns: &[&str]| {
        let batches = batches(&*source, "t", columns).unwrap();
        batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&["a"]), [8192, 8192, 3616]);
    assert_eq!(sizes(&[]), [8192, 8192, 3616]);
}

#[test]
fn a_header_alone_is_an_empty_table() {
    assert_eq!(read(b"a,b\n", &["a", "b"]).unwrap(), [""; 0]);
    assert_eq!(read(b"a,b", &["a"]).unwrap(), [""; 0]);
}

#[test]
fn each_malformed_file_has_its_message() {
    let long: String = (0..9000).map(|i| format!("{i},x\n")).collect();
    let bad_text = [b"a,b\n1,x\n2,\xff\xfe\n".as_slice(), b"3,y"].concat();
    let cases: &[(&[u8], &str)] = &[
        (b"", "DIR/t.csv: expected a header line with the column names, found an empty file"),
        (
            b"a,,c\n1,2,3\n",
            "DIR/t.csv: line 1: column 2 has no name; found the names \"a\", \"\", \"c\"; name the \
             column",
        ),
        (
            b"a,b,a\n1,2,3\n",
            "DIR/t.csv: line 1: columns 1 and 3 are both named \"a\"; rename one of them",
        ),
        (
            b"a,\xff\n1,2\n",
            "DIR/t.csv: line 1: expected UTF-8, found \"\u{fffd}\"; convert the file to UTF-8",
        ),
        (b"a,b\n1,2\n3\n", "DIR/t.csv: line 3: expected 2 fields as in the header, found 1"),
        (
            b"a,b\r\n1,2\r\n3,4,5\r\n",
            "DIR/t.csv: line 3: expected 2 fields as in the header, found 3",
        ),
        (b"a,b\n\"x\ny\",2\n3\n", "DIR/t.csv: line 4: expected 2 fields as in the header, found 1"),
        (
            b"a,b\n1,2\n3,\"x\n4,5\n",
            "DIR/t.csv: line 3: column \"b\": expected a closing quote (\") before the end of the \
             file, found none; close the quote",
        ),
        (
            b"a,b\r\n1,2\r\n\"3,x\r\n4,5\r\n",
            "DIR/t.csv: line 3: column \"a\": expected a closing quote (\") before the end of the \
             file, found none; close the quote",
        ),
        (
            b"\n\"x\n\",\"b\n1,2\n",
            "DIR/t.csv: line 3: column 2: expected a closing quote (\") before the end of the \
             file, found none; close the quote",
        ),
        (
            b"a,b\n5\" disk,\"x\ny\"\n1,\"ab\"cd,e\n",
            "DIR/t.csv: line 4: column \"b\": expected a comma or the end of the line after a \
             closing quote, found \"cd\"; the field opens on line 4: double each quote inside it \
             (\"\"), or remove the wrong quote",
        ),
        (
            b"a,b\r\n1,\"x\r\n2,y\r\n3,\"z\"\r\n",
            "DIR/t.csv: line 4: column \"b\": expected a comma or the end of the line after a \
             closing quote, found \"z\\\"\"; the field opens on line 2: double each quote inside \
             it (\"\"), or remove the wrong quote",
        ),
        (
            &bad_text,
            "DIR/t.csv: line 3: column \"b\": expected UTF-8, found \"\u{fffd}\u{fffd}\"; convert \
             the file to UTF-8",
        ),
        (
            &[b"a,b\n", long.as_bytes(), b"7,\xe9t\xe9\n"].concat(),
            "DIR/t.csv: line 9002: column \"b\": expected UTF-8, found \"\u{fffd}t\u{fffd}\"; \
             convert the file to UTF-8",
        ),
    ];
    for (bytes, expected) in cases {
        let folder = folder(&[("t.csv", bytes)]);
        let source = opened(folder.path());
        let found = rows(&*source, "t", &["a", "b"]);
        assert_eq!(message(found, ErrorKind::Data, folder.path()), *expected);
    }
}

#[test]
fn a_character_split_between_two_fields_is_rejected() {
    let found = read(b"a,b\n\xc3,\xa9\n", &["a", "b"]).unwrap_err();
    assert!(found.starts_with("DIR/t.csv: line 2: column \"a\": expected UTF-8"), "{found}");
}

#[test]
fn quotes_may_close_at_the_end_of_the_file() {
    assert_eq!(read(b"a,b\n1,\"x\"", &["b"]).unwrap(), ["x"]);
    assert_eq!(read(b"a,b\n1,\"x \"\"y\"\"\"", &["b"]).unwrap(), ["x \"y\""]);
    assert_eq!(read(b"a,b\n1,5\" disk", &["b"]).unwrap(), ["5\" disk"]);
    assert_eq!(read(b"a,b\n1, \"x\"y", &["b"]).unwrap(), [" \"x\"y"]);
}

#[test]
fn an_error_ends_the_stream() {
    let folder = folder(&[("t.csv", b"a,b\n1\n2,3\n")]);
    let mut stream = opened(folder.path()).read("t", &["a".into()]).unwrap();
    assert!(stream.next().unwrap().is_err());
    assert!(stream.next().is_none());
}

/// The state of the quotes is kept between reads of the file.
#[test]
fn quotes_are_checked_far_into_a_file() {
    let row = "\"a \"\"word\"\" and,\na line\",x\n";
    let body = row.repeat(40_000);
    let whole = format!("a,b\n{body}");
    assert!(whole.len() > 1 << 20);
    let found = read(whole.as_bytes(), &["a"]).unwrap();
    assert_eq!(found, vec!["a \"word\" and,\na line"; 40_000]);
    let broken = format!("{whole}\"b\" c,x\n");
    let found = read(broken.as_bytes(), &["a"]).unwrap_err();
    assert!(found.starts_with("DIR/t.csv: line 80002: column \"a\": expected a comma"), "{found}");
    let open = format!("{whole}\"b,x\n");
    let found = read(open.as_bytes(), &["a"]).unwrap_err();
    assert!(
        found.starts_with("DIR/t.csv: line 80002: column \"a\": expected a closing quote"),
        "{found}"
    );
}

/// Files whose rows, fields or header have no end within the limits.
#[test]
fn what_is_too_long_is_told_by_its_line() {
    let long = |count: usize| "x".repeat(count);
    let mebibytes = 1 << 20;
    for (text, expected) in [
        (
            format!("a,b\n1,2\n3,\"{}\n4,5\n", long(17 * mebibytes)),
            "line 3: column \"b\": expected a closing quote (\") within 16 MiB, found none; close \
             the quote, or shorten the cell",
        ),
        (
            format!("a,\"b\n{}", long(17 * mebibytes)),
            "line 1: expected a header of at most 8 MiB, found a longer one; end each row with a \
             line end, or shorten its cells",
        ),
        (
            format!("a,b\n1,2\n\n3,{}", long(40 * mebibytes)),
            "line 4: expected a row of at most 32 MiB, found a longer one; end each row with a line \
             end, or shorten its cells",
        ),
        (
            format!("a,b\n1,2\n3,{}\n4,5\n", long(17 * mebibytes)),
            "line 3: column \"b\": expected a cell of at most 16 MiB, found one of 17 MiB; shorten it",
        ),
        (
            "a".to_owned() + &",a".repeat(70_000),
            "line 1: expected at most 65536 columns, found 70001; split the table",
        ),
    ] {
        let folder = folder(&[("t.csv", text.as_bytes())]);
        let found = open(folder.path()).and_then(|source| rows(&*source, "t", &["a", "b"]));
        let found = message(found, ErrorKind::LimitExceeded, folder.path());
        assert_eq!(found, format!("DIR/t.csv: {expected}"));
    }
}

#[test]
fn a_batch_ends_when_all_its_columns_are_large() {
    let cell = "x".repeat(1 << 20);
    let row = [&*cell; 8].join(",");
    let text = ["a,b,c,d,e,f,g,h", &*vec![&*row; 20].join("\n")].join("\n");
    let folder = folder(&[("t.csv", text.as_bytes())]);
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let found = batches(&*opened(folder.path()), "t", &names).unwrap();
    let sizes: Vec<_> = found.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(sizes, [8, 8, 4]);
}
