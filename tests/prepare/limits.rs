//! Sources with texts, rows and headers of any length, in little memory: an error, and no abort.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use crate::Workshop;

/// Runs the command in 1 GB of address space.
fn in_little_memory(arguments: &[&str]) -> Output {
    let command = "ulimit -v 1000000; exec \"$0\" \"$@\"";
    let shell = ["-c", command, env!("CARGO_BIN_EXE_headwater")];
    Command::new("sh").args(shell).args(arguments).output().unwrap()
}

fn refused(source: &Path, expected: &str) {
    let output = in_little_memory(&["schema", source.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(expected), "{message}");
}

/// Makes a file that begins with `start` and goes on with `megabytes` of zeros, which are text.
fn endless(path: &Path, start: &str, megabytes: u64) {
    let mut file = File::create(path).unwrap();
    file.write_all(start.as_bytes()).unwrap();
    file.set_len(megabytes * 1_000_000).unwrap();
}

#[test]
fn what_has_no_end_is_refused_in_little_memory() {
    let workshop = Workshop::new(&[]);
    let path = workshop.path("data").join("t.csv");
    endless(&path, "a,b\n1,\"x", 600);
    refused(&path, "t.csv: line 2: column \"b\": expected a closing quote (\") within 16 MiB");
    endless(&path, "a,b", 300);
    refused(&path, "t.csv: line 1: expected a header of at most 8 MiB");
    endless(&path, "a,b\n1,2\n", 600);
    refused(&path, "t.csv: line 3: expected a row of at most 32 MiB");
    std::fs::write(&path, ",".repeat(50_000_000)).unwrap();
    refused(&path, "t.csv: line 1: expected a header of at most 8 MiB");
    std::fs::write(&path, format!("a,b\n{}\n", ",".repeat(50_000_000))).unwrap();
    refused(&path, "t.csv: line 2: expected a row of at most 32 MiB");
    std::fs::write(&path, ",".repeat(8_000_000)).unwrap();
    refused(&path, "t.csv: line 1: expected at most 65536 columns, found 8000001");
}

/// Eight columns of 1 MiB in each of 100 rows: no column is too long, and all are 800 MB.
#[test]
fn many_long_texts_are_prepared_in_little_memory() {
    let workshop = Workshop::new(&[]);
    let (csv, sqlite) = (workshop.path("data").join("t.csv"), workshop.path("t.db"));
    let connection = rusqlite::Connection::open(&sqlite).unwrap();
    let columns = ["a", "b", "c", "d", "e", "f", "g", "h"];
    connection.execute_batch(&format!("CREATE TABLE t ({})", columns.join(", "))).unwrap();
    let mut file = std::io::BufWriter::new(File::create(&csv).unwrap());
    writeln!(file, "{}", columns.join(",")).unwrap();
    for row in 0..100 {
        let cell = char::from(b'a' + row % 26).to_string().repeat(1 << 20);
        writeln!(file, "{}", [&*cell; 8].join(",")).unwrap();
        connection
            .execute("INSERT INTO t VALUES (?1, ?1, ?1, ?1, ?1, ?1, ?1, ?1)", [&cell])
            .unwrap();
    }
    drop(file);
    let columns = columns.map(|column| format!("{column} = \"text\"")).join(", ");
    let schema = format!("database = \"t\"\n[[table]]\nname = \"t\"\ncolumns = {{ {columns} }}\n");
    std::fs::write(workshop.path("schema.toml"), schema).unwrap();
    for (number, source) in [csv, sqlite].iter().enumerate() {
        let (schema, out) = (workshop.text("schema.toml"), workshop.text(&number.to_string()));
        let source = source.to_str().unwrap();
        let words = ["prepare", source, "--schema", &schema, "--out", &out, "--no-text-vectors"];
        let output = in_little_memory(&[&words[..], &["--threads", "2"]].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{source}: {message}");
    }
    crate::assert_same_folders(&workshop.path("0"), &workshop.path("1"));
}
