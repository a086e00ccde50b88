//! Preparations in parts: the bytes of one process, and a refusal of everything that does not belong together.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use headwater::random::{Purpose, Stream};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use crate::{Workshop, assert_same_folders, headwater, run, succeed};

/// A shop whose texts repeat, with NULLs, a composite key, and a reference to other columns than the key.
const SCHEMA: &str = r#"
database = "shop"

[[table]]
name = "users"
key = "id"
time = { column = "joined" }
columns = { id = "identifier", code = "ignored", age = "numerical", joined = "timestamp", kind = "categorical", about = "text" }

[[table]]
name = "orders"
key = ["user", "number"]
time = { through = "code" }
columns = { user = "categorical", code = "ignored", number = "ignored", price = "numerical", gift = "boolean", note = "text" }
references = [{ columns = "code", to = "users", to_columns = "code" }]

[[table]]
name = "visits"
columns = { user = "ignored", at = "timestamp", note = "text" }
references = [{ columns = "user", to = "users" }]

[[task]]
name = "users.age"
sees_everything = true
cell = { table = "users", column = "age" }
"#;

/// The rows of a table: its name, its columns, and a row for each number.
type Table = (&'static str, &'static str, usize, fn(usize) -> String);

const TABLES: [Table; 3] = [
    ("users", "id,code,age,joined,kind,about", 60, |row| {
        let age = if row % 7 == 0 { String::new() } else { (20 + row % 40).to_string() };
        let about = ["likes tea", "", "a text that is longer than twelve bytes"][row % 3];
        format!("u{row},c{row},{age},2024-01-{:02},kind {},{about}", 1 + row % 28, row % 4)
    }),
    ("orders", "user,code,number,price,gift,note", 500, |row| {
        let code = if row % 11 == 0 { String::new() } else { format!("c{}", row % 60) };
        let gift = ["true", "false", ""][row % 3];
        format!("u{},{code},{row},{}.5,{gift},note {}", row % 60, row * 3, row % 9)
    }),
    ("visits", "user,at,note", 200, |row| {
        format!("u{},2024-02-{:02},note {}", row % 60, 1 + row % 28, row % 5)
    }),
];

/// Returns the rows of a table from `from` to `to`, as CSV.
fn csv((_, header, _, row): &Table, from: usize, to: usize) -> String {
    let rows: Vec<String> = (from..to).map(row).collect();
    format!("{header}\n{}\n", rows.join("\n"))
}

/// Writes each table as a folder of files with so many rows each.
fn write_files(folder: &Path, rows: usize) {
    for table in &TABLES {
        let folder = folder.join(table.0);
        fs::create_dir_all(&folder).unwrap();
        for from in (0..table.2).step_by(rows) {
            let text = csv(table, from, table.2.min(from + rows));
            fs::write(folder.join(format!("part-{from:05}.csv")), text).unwrap();
        }
    }
}

/// Writes the tables to a SQLite file, with gaps between the numbers of rows.
fn write_sqlite(path: &Path, gap: i64) {
    let connection = rusqlite::Connection::open(path).unwrap();
    for table in &TABLES {
        connection.execute_batch(&format!("CREATE TABLE {} ({})", table.0, table.1)).unwrap();
        for row in 0..table.2 {
            let values: Vec<_> = table.3(row)
                .split(',')
                .map(|value| if value.is_empty() { "NULL".into() } else { format!("'{value}'") })
                .collect();
            let sql = format!(
                "INSERT INTO {} (rowid, {}) VALUES ({}, {})",
                table.0,
                table.1,
                row as i64 * gap - 1_000_000,
                values.join(",")
            );
            connection.execute_batch(&sql).unwrap();
        }
    }
}

/// A source with its schema, and the folder of parts.
struct Shop {
    workshop: Workshop,
    source: String,
}

impl Shop {
    /// A shop of CSV files with so many rows each.
    fn new(rows: usize) -> Self {
        let workshop = Workshop::new(&[]);
        write_files(&workshop.path("data"), rows);
        Self::of(workshop, "data")
    }

    fn of(workshop: Workshop, source: &str) -> Self {
        fs::write(workshop.path("schema.toml"), SCHEMA).unwrap();
        let source = workshop.text(source);
        Self { workshop, source }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.workshop.path(name)
    }

    /// Returns the arguments of a preparation to the folder `out`.
    fn arguments(&self, out: &str, options: &[&str]) -> Vec<String> {
        let (schema, out) = (self.workshop.text("schema.toml"), self.workshop.text(out));
        let mut all = ["prepare", &self.source, "--schema", &schema, "--out", &out].to_vec();
        all.extend(options);
        all.into_iter().map(str::to_owned).collect()
    }

    fn prepare(&self, out: &str, options: &[&str]) {
        let arguments = self.arguments(out, options);
        succeed(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Prepares, which must fail and write no store; returns its message.
    fn refused(&self, out: &str, options: &[&str]) -> String {
        let arguments = self.arguments(out, options);
        let output = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{arguments:?} succeeds");
        assert_ne!(output.status.code(), Some(101), "{message}");
        for left in [format!("{out}.partial"), format!("{out}/metadata.json")] {
            assert!(!self.path(&left).exists(), "{left}: {message}");
        }
        let folder = self.workshop.folder.path().to_str().unwrap();
        message.replace(folder, "DIR").trim_start_matches("headwater: ").trim_end().to_owned()
    }

    fn part(&self, part: &str, parts: &str, options: &[&str]) {
        self.prepare(parts, &[&["--part", part], options].concat());
    }

    /// Makes all parts, the last one first.
    fn parts(&self, count: u32, parts: &str, options: &[&str]) {
        for number in (1..=count).rev() {
            self.part(&format!("{number}/{count}"), parts, options);
        }
    }

    /// Merges all parts; returns the message of the refusal.
    fn refused_merge(&self, parts: &str) -> String {
        let parts = self.workshop.text(parts);
        self.refused("refused.db", &["--merge", &parts, "--dimension", "8"])
    }

    /// Asserts that parts make the store of one process, in any number.
    fn assert_same_bits(&self) {
        self.prepare("whole.db", &["--dimension", "8"]);
        for (count, threads, memory) in
            [(1, "1", "1GB"), (2, "2", "0.001MB"), (7, "1", "2MB"), (90, "2", "1GB")]
        {
            let (parts, out) = (format!("{count} parts"), format!("{count}.db"));
            self.parts(count, &parts, &["--threads", threads]);
            let parts = self.workshop.text(&parts);
            let how = ["--dimension", "8", "--threads", threads, "--memory", memory];
            self.prepare(&out, &[&["--merge", &parts], &how[..]].concat());
            assert_same_folders(&self.path("whole.db"), &self.path(&out));
        }
    }
}

#[test]
fn p1_parts_of_csv_files_make_the_store_of_one_process() {
    Shop::new(40).assert_same_bits();
}

#[test]
fn p1_parts_of_one_csv_file_for_each_table_make_the_store_of_one_process() {
    let workshop = Workshop::new(&[]);
    for table in &TABLES {
        let path = workshop.path("data").join(format!("{}.csv", table.0));
        fs::write(path, csv(table, 0, table.2)).unwrap();
    }
    Shop::of(workshop, "data").assert_same_bits();
}

#[test]
fn p1_parts_of_sqlite_make_the_store_of_one_process() {
    let workshop = Workshop::new(&[]);
    // So many numbers apart that each table has several blocks, with a row at the start of each.
    write_sqlite(&workshop.path("shop.sqlite"), 8_192);
    Shop::of(workshop, "shop.sqlite").assert_same_bits();
}

/// Writes a table as a Parquet file with row groups of so many rows.
fn write_parquet(path: &Path, (_, header, count, row): &Table, group_rows: usize) {
    let texts: Vec<String> = (0..*count).map(row).collect();
    let columns = header.split(',').enumerate().map(|(place, name)| {
        let values = texts.iter().map(|text| text.split(',').nth(place).filter(|v| !v.is_empty()));
        let array: ArrayRef = match name {
            "price" => Arc::new(
                values.map(|v| v.map(|v| v.parse::<f64>().unwrap())).collect::<Float64Array>(),
            ),
            _ => Arc::new(values.collect::<StringArray>()),
        };
        (name, array)
    });
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(n, a)| (n, a, true))).unwrap();
    let properties =
        WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn p1_parts_of_row_groups_of_parquet_make_the_store_of_one_process() {
    let workshop = Workshop::new(&[]);
    let [users, orders, visits] = TABLES;
    let orders = (orders.0, orders.1, 150_000, orders.3);
    for (table, group_rows) in [(&users, 1000), (&orders, 40_000), (&visits, 7)] {
        let path = workshop.path("data").join(format!("{}.parquet", table.0));
        write_parquet(&path, table, group_rows);
    }
    let shop = Shop::of(workshop, "data");
    // The four row groups of the orders are two blocks.
    let printed = succeed(
        &shop
            .arguments("one part", &["--part", "1/1", "--json"])
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
    assert!(printed.contains("\"block_count\":4"), "{printed}");
    shop.assert_same_bits();
}

#[test]
fn p6_a_file_that_changed_after_its_part_was_read_is_refused() {
    let shop = Shop::new(40);
    let changed = shop.path("data/orders/part-00040.csv");
    let before = fs::read(&changed).unwrap();
    let time = fs::metadata(&changed).unwrap().modified().unwrap();
    let set_time =
        |time| fs::File::options().write(true).open(&changed).unwrap().set_modified(time);
    shop.part("1/2", "parts", &[]);
    // Other bytes of the same length, at another time.
    fs::write(&changed, String::from_utf8(before.clone()).unwrap().replace("note 1", "note 2"))
        .unwrap();
    shop.part("2/2", "parts", &[]);
    let message = shop.refused_merge("parts");
    assert!(
        message.starts_with(
            "DIR/parts/1-of-2.part: expected a part of the source as it is now, with "
        ),
        "{message}"
    );
    assert!(message.contains("orders/part-00040.csv of "), "{message}");
    assert!(message.ends_with("copy the files with their times (cp -p, rsync -t)"), "{message}");
    // So are other bytes of the same length and the same time, at an end of the file.
    set_time(time).unwrap();
    let message = shop.refused_merge("parts");
    assert!(message.contains("1-of-2.part: expected a part of the source"), "{message}");
    // The old bytes with another time are not known to be the old ones; with their time they are.
    fs::write(&changed, &before).unwrap();
    assert!(shop.refused_merge("parts").contains("1-of-2.part: expected a part of the source"));
    set_time(time).unwrap();
    let message = shop.refused_merge("parts");
    assert!(message.contains("2-of-2.part: expected a part of the source"), "{message}");
    shop.part("2/2", "parts", &[]);
    shop.prepare("a.db", &["--merge", &shop.workshop.text("parts")]);
    // A file that came later.
    fs::write(shop.path("data/orders/part-99999.csv"), csv(&TABLES[1], 500, 510)).unwrap();
    let message = shop.refused_merge("parts");
    let then = "when the part was read there was no file \"orders/part-99999.csv\"";
    assert!(message.contains(then), "{message}");
}

#[test]
fn p6_a_changed_sqlite_file_or_wal_is_refused() {
    let workshop = Workshop::new(&[]);
    let path = workshop.path("shop.sqlite");
    write_sqlite(&path, 1);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
    connection.execute_batch("UPDATE users SET age = 30 WHERE id = 'u3'").unwrap();
    let shop = Shop::of(workshop, "shop.sqlite");
    shop.parts(2, "parts", &[]);
    shop.prepare("a.db", &["--merge", &shop.workshop.text("parts")]);
    connection.execute_batch("UPDATE users SET age = 31 WHERE id = 'u3'").unwrap();
    let message = shop.refused_merge("parts");
    assert!(message.contains("shop.sqlite-wal of "), "{message}");
}

#[test]
fn p6_a_part_is_refused_when_a_file_changes_between_its_copies() {
    // A copy that keeps the times counts as the same source; one that does not is refused.
    let shop = Shop::new(40);
    shop.part("1/2", "parts", &[]);
    let copy = |to: &str, options: &[&str]| {
        let (from, to) = (shop.workshop.text("data"), shop.workshop.text(to));
        let mut copy = std::process::Command::new("cp");
        assert!(copy.arg("-r").args(options).args([&from, &to]).status().unwrap().success());
    };
    copy("with times", &["-p"]);
    copy("without", &[]);
    let elsewhere = |source: &str, options: &[&str], out: &str| {
        let (source, schema) = (shop.workshop.text(source), shop.workshop.text("schema.toml"));
        let out = shop.workshop.text(out);
        let all = ["prepare", &source, "--schema", &schema, "--out", &out];
        run(&[&all[..], options].concat())
    };
    assert!(elsewhere("with times", &["--part", "2/2"], "parts").status.success());
    let parts = shop.workshop.text("parts");
    assert!(elsewhere("with times", &["--merge", &parts], "copy.db").status.success());
    shop.prepare("whole.db", &[]);
    assert_same_folders(&shop.path("whole.db"), &shop.path("copy.db"));
    assert!(elsewhere("without", &["--part", "2/2"], "parts").status.success());
    let message = shop.refused_merge("parts");
    assert!(
        message.contains("2-of-2.part: expected a part of the source as it is now"),
        "{message}"
    );
}

#[test]
fn p6_missing_doubled_and_foreign_parts_are_refused() {
    let shop = Shop::new(40);
    fs::create_dir(shop.path("parts")).unwrap();
    assert_eq!(
        shop.refused_merge("parts"),
        "DIR/parts: expected parts, such as 1-of-8.part, found none; make them with headwater prepare \
         --part I/N --out DIR/parts"
    );
    shop.part("2/3", "parts", &[]);
    assert_eq!(
        shop.refused_merge("parts"),
        "DIR/parts: expected 3 parts, found 1; make the others with headwater prepare --part: \"1/3\", \"3/3\""
    );
    shop.parts(3, "parts", &[]);
    let part = |name: &str| shop.path("parts").join(name);
    fs::copy(part("2-of-3.part"), part("again.part")).unwrap();
    assert_eq!(
        shop.refused_merge("parts"),
        "DIR/parts: expected each part once, found part 2/3 in DIR/parts/2-of-3.part and \
         DIR/parts/again.part; move one of them away"
    );
    fs::remove_file(part("again.part")).unwrap();
    shop.part("2/2", "parts", &[]);
    let message = shop.refused_merge("parts");
    assert!(message.starts_with("DIR/parts: expected the parts of one preparation, found part "));
    assert!(message.contains("part 2/2 (DIR/parts/2-of-2.part)"), "{message}");
    fs::remove_file(part("2-of-2.part")).unwrap();
    // Of another schema.
    let visits = SCHEMA.find("[[table]]\nname = \"visits\"").unwrap();
    let task = SCHEMA.find("[[task]]").unwrap();
    for (schema, difference) in [
        (
            SCHEMA.replace("gift = \"boolean\"", "gift = \"text\""),
            "table \"orders\", columns, gift: then \"boolean\", now \"text\"",
        ),
        (
            SCHEMA.replace(
                "user = \"ignored\", at = \"timestamp\"",
                "at = \"timestamp\", user = \"ignored\"",
            ),
            "table \"visits\", order of columns: then [\"user\",\"at\",\"note\"], now [\"at\",\"user\",\"note\"]",
        ),
        (
            SCHEMA.replace("key = [\"user\", \"number\"]\n", ""),
            "table \"orders\", key: then [\"user\",\"number\"], now null",
        ),
        (
            SCHEMA[..visits].to_owned() + &SCHEMA[task..],
            "its tables are \"users\", \"orders\", \"visits\", and now \"users\", \"orders\"",
        ),
    ] {
        fs::write(shop.path("schema.toml"), schema).unwrap();
        assert_eq!(
            shop.refused_merge("parts"),
            format!(
                "DIR/parts/1-of-3.part: expected a part that was read by this schema, found one that was read by \
                 another: {difference}; make all parts again with this schema, or merge with that of the parts"
            )
        );
    }
    fs::write(shop.path("schema.toml"), SCHEMA).unwrap();
    shop.prepare("a.db", &["--merge", &shop.workshop.text("parts")]);
}

/// No part was read by them.
#[test]
fn tasks_and_limits_may_differ_from_those_of_the_parts() {
    let shop = Shop::new(40);
    shop.parts(3, "parts", &[]);
    let schema = SCHEMA
        .replace("database = \"shop\"", "database = \"shop\"\nlimits = { duplicate_keys = 3 }")
        + "\n[[task]]\nname = \"orders.price\"\nsees_everything = true\n"
        + "cell = { table = \"orders\", column = \"price\" }\n";
    fs::write(shop.path("schema.toml"), schema).unwrap();
    shop.prepare("whole.db", &[]);
    shop.prepare("merged.db", &["--merge", &shop.workshop.text("parts")]);
    assert_same_folders(&shop.path("whole.db"), &shop.path("merged.db"));
}

#[test]
fn another_spelling_of_a_pattern_names_the_same_files() {
    let shop = Shop::new(40);
    let users = SCHEMA.find("[[table]]\nname = \"orders\"").unwrap();
    fs::write(shop.path("schema.toml"), &SCHEMA[..users]).unwrap();
    let data = shop.path("data/users");
    let absolute = data.join("part-*.csv").display().to_string();
    let run = |source: &str, rest: &[&str]| {
        let mut command = headwater();
        command.current_dir(&data).args(["prepare", source, "--schema"]);
        command.arg(shop.path("schema.toml")).args(rest);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run("part-*.csv", &["--part", "1/2", "--out", "../parts"]);
    run("./part-*.csv", &["--part", "2/2", "--out", "../parts"]);
    run(&absolute, &["--merge", "../parts", "--out", "../merged.db"]);
    run("part-*.csv", &["--out", "../whole.db"]);
    assert_same_folders(&shop.path("data/whole.db"), &shop.path("data/merged.db"));
}

#[test]
fn a_part_that_fails_leaves_no_folder() {
    let shop = Shop::new(40);
    fs::write(
        shop.path("schema.toml"),
        SCHEMA.replace("age = ", "aged = ").replace("\"age\"", "\"aged\""),
    )
    .unwrap();
    assert!(shop.refused("parts", &["--part", "1/2"]).contains("aged"));
    assert!(!shop.path("parts").exists());
}

#[test]
fn p6_no_damage_of_a_part_is_merged() {
    let shop = Shop::new(100);
    shop.parts(2, "parts", &[]);
    let path = shop.path("parts/1-of-2.part");
    let whole = fs::read(&path).unwrap();
    let mut random = Stream::new(3, Purpose::Split, [0xda, 0, 0]);
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&path, bytes).unwrap();
        let message = shop.refused_merge("parts");
        assert!(message.contains("parts/1-of-2.part"), "{what}: {message}");
        let is_part = bytes.starts_with(b"HWSTORE\0");
        let remedy = if is_part { " again" } else { "found a file of another kind; move it away" };
        assert!(message.ends_with(remedy), "{what}: {message}");
        assert!(!message.contains("store"), "{what}: {message}");
    };
    for _ in 0..30 {
        // Padding after the last section is not read.
        let at = random.below(whole.len() as u64) as usize;
        let mut changed = whole.clone();
        changed[at] ^= 1 << random.below(8);
        if whole[at] != 0 {
            refused(&changed, &format!("a bit of byte {at}"));
        }
    }
    for length in [0, 1, 63, 64, whole.len() / 2, whole.len() - 1] {
        refused(&whole[..length], &format!("the first {length} bytes"));
    }
    refused(b"a text", "another file");
    fs::write(&path, &whole).unwrap();
    shop.prepare("a.db", &["--merge", &shop.workshop.text("parts")]);
}

#[test]
fn a_bad_value_in_a_part_is_the_error_of_one_process() {
    for (table, header) in [("orders", TABLES[1].1), ("visits", TABLES[2].1)] {
        let shop = Shop::new(40);
        let rows = match table {
            "orders" => "u1,c1,900,1.5,true,a\nu1,c1,901,dear,true,b",
            _ => "u1,2024-02-01,a\nu2,someday,b",
        };
        let path = shop.path(&format!("data/{table}/part-00080.csv"));
        fs::write(path, format!("{header}\n{rows}\n")).unwrap();
        let whole = shop.refused("whole.db", &[]);
        assert!(whole.contains("in row 82;"), "{whole}");
        let of_parts: Vec<_> = (1..=7)
            .filter_map(|number| {
                let part = format!("{number}/7");
                let arguments = shop.arguments("parts", &["--part", &part]);
                let output = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
                let message = String::from_utf8(output.stderr).unwrap();
                (!output.status.success()).then_some(message)
            })
            .collect();
        assert_eq!(of_parts.len(), 1);
        assert_eq!(of_parts[0], format!("headwater: {whole}\n"));
        assert!(shop.refused_merge("parts").contains("expected 7 parts, found 6"));
    }
}

#[test]
fn an_unreadable_cell_of_sqlite_has_its_row_in_the_table() {
    let workshop = Workshop::new(&[]);
    let path = workshop.path("shop.sqlite");
    write_sqlite(&path, 5_000);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("UPDATE orders SET note = x'00ff' WHERE number = '450'").unwrap();
    drop(connection);
    let shop = Shop::of(workshop, "shop.sqlite");
    let whole = shop.refused("whole.db", &[]);
    assert!(whole.contains("column \"note\": row 451: expected text or a number"), "{whole}");
    let messages: Vec<_> = (1..=7)
        .filter_map(|number| {
            let arguments = shop.arguments("parts", &["--part", &format!("{number}/7")]);
            let output = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
            (!output.status.success()).then(|| String::from_utf8(output.stderr).unwrap())
        })
        .collect();
    let folder = shop.workshop.folder.path().to_str().unwrap();
    assert_eq!(messages, [format!("headwater: {}\n", whole.replace("DIR", folder))]);
}

#[test]
fn options_of_one_half_are_refused_by_the_other() {
    let shop = Shop::new(100);
    for (option, words) in [
        (&["--dimension", "8"][..], "expected no option for embedding with --part"),
        (&["--no-text-vectors"], "because --merge embeds the texts"),
        (&["--text-vectors", "int8"], "give --embedder, --model, --dimension, --text-vectors and"),
        (&["--memory", "1GB"], "expected no --memory with --part"),
        (&["--force"], "expected no --force with --part"),
        (&["--merge", "x"], "cannot be used with"),
    ] {
        let message = shop.refused("parts", &[&["--part", "1/2"], option].concat());
        assert!(message.contains(words), "{message}");
    }
    for part in ["0/2", "3/2", "1", "a/b"] {
        assert!(shop.refused("parts", &["--part", part]).contains("expected a part "));
    }
    let events = "database = \"pings\"\n[events]\nsource = \"users\"\ncodec = \"latency-v1\"\n\
                  entity = \"id\"\ntime = { column = \"joined\" }\ncolumns = { dst = \"id\", rtt = \"age\" }\n\
                  split = { train = 1.0, val = 0.0, test = 0.0 }\n";
    fs::write(shop.path("schema.toml"), events).unwrap();
    for options in [["--part", "1/2"], ["--merge", "parts"]] {
        let message = shop.refused("events.db", &options);
        assert!(message.contains("one process prepares a log of events"), "{message}");
    }
    assert!(!shop.path("parts").exists());
}

#[test]
fn two_processes_do_not_make_one_part_at_a_time() {
    let shop = Shop::new(100);
    fs::create_dir(shop.path("parts")).unwrap();
    let lock = fs::File::create(shop.path("parts/.1-of-2.part.lock")).unwrap();
    lock.lock().unwrap();
    let message = shop.refused("parts", &["--part", "1/2"]);
    assert_eq!(
        message,
        "another process is making DIR/parts/1-of-2.part; wait until it ends, or make another part"
    );
    shop.part("2/2", "parts", &[]);
    drop(lock);
    shop.part("1/2", "parts", &[]);
    assert!(!shop.path("parts/.1-of-2.part.lock").exists());
}

#[test]
fn a_part_made_again_replaces_itself() {
    let shop = Shop::new(40);
    shop.parts(2, "parts", &[]);
    let before = fs::read(shop.path("parts/1-of-2.part")).unwrap();
    // The rest of a killed process is no part.
    fs::write(shop.path("parts/.1-of-2.part.partial"), "half").unwrap();
    shop.prepare("a.db", &["--merge", &shop.workshop.text("parts")]);
    shop.part("1/2", "parts", &["--threads", "2"]);
    assert_eq!(fs::read(shop.path("parts/1-of-2.part")).unwrap(), before);
    let mut names: Vec<_> = fs::read_dir(shop.path("parts"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["1-of-2.part", "2-of-2.part"]);
}

#[test]
fn p6_parts_and_merges_that_are_killed_leave_nothing_half() {
    let workshop = Workshop::new(&[]);
    fs::remove_dir(workshop.path("data")).unwrap();
    succeed(&["demo-data", &workshop.text("data")]);
    fs::copy(workshop.path("data/schema.toml"), workshop.path("schema.toml")).unwrap();
    let source = workshop.text("data");
    let shop = Shop { workshop, source };
    let spawn = |out: &str, options: &[&str]| {
        let mut command = headwater();
        let command = command.args(shop.arguments(out, options));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let duration = |out: &str, options: &[&str]| {
        let started = Instant::now();
        assert!(spawn(out, options).wait().unwrap().success());
        started.elapsed()
    };
    shop.prepare("whole.db", &[]);
    let mut random = Stream::new(2, Purpose::Split, [0xbad, 0, 0]);
    let mut killed_at = |duration: Duration, number: u64, out: &str, options: &[&str]| {
        let mut child = spawn(out, options);
        let thousandths = number % 8 * 125 + random.below(125);
        sleep(duration.mul_f64(thousandths as f64 / 1000.0));
        child.kill().unwrap();
        child.wait().unwrap();
    };
    let parts = shop.workshop.text("parts");
    let time = duration("parts", &["--part", "1/2"]);
    let part = fs::read(shop.path("parts/1-of-2.part")).unwrap();
    fs::remove_file(shop.path("parts/1-of-2.part")).unwrap();
    let (mut missing, mut complete) = (0, 0);
    for number in 0..16 {
        killed_at(time, number, "parts", &["--part", "1/2"]);
        match fs::read(shop.path("parts/1-of-2.part")) {
            Ok(found) => {
                assert!(found == part, "a part that is not complete");
                complete += 1;
                fs::remove_file(shop.path("parts/1-of-2.part")).unwrap();
            }
            Err(_) => missing += 1,
        }
    }
    assert!(missing > 3, "only {missing} were killed before their end, {complete} after it");
    shop.part("2/2", "parts", &[]);
    assert!(shop.refused_merge("parts").contains("expected 2 parts, found 1"));
    shop.part("1/2", "parts", &[]);
    let merge = ["--merge", &*parts];
    let time = duration("merged.db", &merge);
    fs::remove_dir_all(shop.path("merged.db")).unwrap();
    let mut missing = 0;
    for number in 0..8 {
        killed_at(time, number, "merged.db", &merge);
        if shop.path("merged.db").exists() {
            assert_same_folders(&shop.path("whole.db"), &shop.path("merged.db"));
            fs::remove_dir_all(shop.path("merged.db")).unwrap();
        } else {
            missing += 1;
        }
    }
    assert!(missing > 1, "only {missing} were killed before their end");
    shop.prepare("merged.db", &merge);
    assert_same_folders(&shop.path("whole.db"), &shop.path("merged.db"));
}
