//! The files that the commands are given.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;

use crate::entrances::{EVENTS, GRAM, PREPARE};

pub(crate) const HEADWATER: &str = env!("CARGO_BIN_EXE_headwater");
pub(crate) const REDUCE: &str = env!("CARGO_BIN_EXE_headwater-reduce");

fn succeed(folder: &Path, program: &str, words: &str) {
    let output = Command::new(program).args(words.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn empty(_: &Path) {}

const SCHEMA: &str = r#"
database = "shop"
[[table]]
name = "customers"
key = "id"
columns = { id = "identifier", city = "categorical", note = "text" }
[[table]]
name = "orders"
key = "id"
time = { column = "at" }
columns = { id = "identifier", customer = "identifier", price = "numerical", at = "timestamp" }
references = [{ columns = "customer", to = "customers" }]
[[task]]
name = "price"
cell = { table = "orders", column = "price" }
"#;

type Customer = (u32, &'static str, String);
type Order = (u32, u32, f64, String);

fn customers(count: u32) -> impl Iterator<Item = Customer> {
    (1..=count).map(|id| (id, ["Oslo", "Lima", "Kyoto"][id as usize % 3], format!("note {id}")))
}

fn orders(count: u32) -> impl Iterator<Item = Order> {
    (1..=count).map(|id| {
        let at = format!("2023-0{}-{:02} 10:00:00", 1 + id % 9, 1 + id % 28);
        (id, 1 + id % 12, f64::from(id) / 4.0, at)
    })
}

pub(crate) fn csv(folder: &Path) {
    write_csv(folder, 12, 40);
}

/// As [`csv`], with one file compressed by gzip and one by zstd.
pub(crate) fn compressed_csv(folder: &Path) {
    csv(folder);
    let [orders, customers] = ["orders", "customers"].map(|name| {
        let path = folder.join(format!("data/{name}.csv"));
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        bytes
    });
    let file = File::create(folder.join("data/orders.csv.gz")).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::default());
    encoder.write_all(&orders).unwrap();
    encoder.finish().unwrap();
    let compressed = zstd::encode_all(&*customers, 0).unwrap();
    fs::write(folder.join("data/customers.csv.zst"), compressed).unwrap();
}

pub(crate) fn large_csv(folder: &Path) {
    write_csv(folder, 12, 200_000);
}

fn write_csv(folder: &Path, customer_count: u32, order_count: u32) {
    fs::create_dir(folder.join("data")).unwrap();
    let mut text = "id,city,note\n".to_owned();
    let customers = customers(customer_count);
    customers.for_each(|(id, city, note)| writeln!(text, "{id},{city},{note}").unwrap());
    fs::write(folder.join("data/customers.csv"), text).unwrap();
    let mut text = "id,customer,price,at\n".to_owned();
    let orders = orders(order_count);
    orders.for_each(|(id, of, price, at)| writeln!(text, "{id},{of},{price},{at}").unwrap());
    fs::write(folder.join("data/orders.csv"), text).unwrap();
    fs::write(folder.join("schema.toml"), SCHEMA).unwrap();
}

/// As [`csv`], with a store that is to be replaced.
pub(crate) fn old_store(folder: &Path) {
    csv(folder);
    succeed(folder, HEADWATER, &PREPARE.replace("--dimension 8", "--dimension 16"));
}

pub(crate) fn sqlite(folder: &Path) {
    write_sqlite(folder, 40);
}

pub(crate) fn large_sqlite(folder: &Path) {
    write_sqlite(folder, 200_000);
}

fn write_sqlite(folder: &Path, order_count: u32) {
    let shop = rusqlite::Connection::open(folder.join("shop.sqlite")).unwrap();
    let tables = "CREATE TABLE customers (id INTEGER PRIMARY KEY, city TEXT, note TEXT);
        CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, price REAL, at TEXT)";
    shop.execute_batch(tables).unwrap();
    shop.execute_batch("BEGIN").unwrap();
    for row in customers(12) {
        shop.execute("INSERT INTO customers VALUES (?1, ?2, ?3)", row).unwrap();
    }
    for row in orders(order_count) {
        shop.execute("INSERT INTO orders VALUES (?1, ?2, ?3, ?4)", row).unwrap();
    }
    shop.execute_batch("COMMIT").unwrap();
    fs::write(folder.join("schema.toml"), SCHEMA).unwrap();
}

pub(crate) fn parquet(folder: &Path) {
    write_parquet(folder, 60);
}

pub(crate) fn large_parquet(folder: &Path) {
    write_parquet(folder, 300_000);
}

fn write_parquet(folder: &Path, rows: i32) {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..i64::from(rows)));
    let [a, b] = [3, 7].map(|step| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values((0..rows).map(|n| f64::from(n) * f64::from(step))))
    });
    let batch = RecordBatch::try_from_iter([("id", ids), ("a", a), ("b", b)]).unwrap();
    let file = File::create(folder.join("x.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let columns = "columns = { id = \"identifier\", a = \"numerical\", b = \"numerical\" }";
    let schema = format!("database = \"x\"\n[[table]]\nname = \"x\"\nkey = \"id\"\n{columns}\n");
    fs::write(folder.join("x.toml"), schema).unwrap();
}

pub(crate) fn pings(folder: &Path) {
    write_pings(folder, 60);
}

pub(crate) fn large_pings(folder: &Path) {
    write_pings(folder, 200_000);
}

fn write_pings(folder: &Path, count: u32) {
    let mut text = "src,dst,at,rtt\n".to_owned();
    for ping in 0..count {
        let (at, rtt) = (1_751_328_000 + u64::from(ping) * 7, f64::from(ping % 999) / 8.0);
        writeln!(text, "10.0.0.{},10.0.1.{},{at},{rtt}", ping % 7, ping % 5).unwrap();
    }
    fs::write(folder.join("pings.csv"), text).unwrap();
    let schema = "database = \"pings\"\n[events]\nsource = \"pings\"\ncodec = \"latency-v1\"\n\
        entity = \"src\"\ntime = { column = \"at\", unit = \"s\" }\n\
        columns = { dst = \"dst\", rtt = \"rtt\" }\n";
    fs::write(folder.join("events.toml"), schema).unwrap();
}

fn copied(from: &str, to: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("checkpoints").join(from);
    assert!(Command::new("cp").arg("-r").args([&from, to]).status().unwrap().success());
}

pub(crate) fn store(folder: &Path) {
    copied("store-v4-small", &folder.join("store"));
}

/// As [`store`], with a page that is to be replaced.
pub(crate) fn page(folder: &Path) {
    store(folder);
    succeed(folder, HEADWATER, "inspect store --task churn --seed-index 1 --html page.html");
}

pub(crate) fn event_store(folder: &Path) {
    pings(folder);
    succeed(folder, HEADWATER, &EVENTS.replace("pings.db", "store"));
}

pub(crate) fn cursor(folder: &Path) {
    copied("cursor-v1-typical.cursor", &folder.join("a.cursor"));
}

pub(crate) fn matrix(folder: &Path) {
    write_matrix(folder, 100, 3);
}

pub(crate) fn large_matrix(folder: &Path) {
    write_matrix(folder, 600, 500);
}

fn write_matrix(folder: &Path, rows: i32, columns: i32) {
    let shape =
        format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let header = format!("{shape:<117}\n");
    let numbers = (0..rows * columns).flat_map(|n| (f64::from(n * 7 % 31) / 8.0).to_le_bytes());
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes().chain(numbers));
    fs::write(folder.join("x.npy"), bytes).unwrap();
}

/// As [`matrix`], with a checkpoint of all rows.
pub(crate) fn folded(folder: &Path) {
    matrix(folder);
    succeed(folder, REDUCE, GRAM);
    fs::remove_file(folder.join("g.npy")).unwrap();
    fs::remove_file(folder.join("g.json")).unwrap();
}

pub(crate) fn spool(folder: &Path) {
    matrix(folder);
    succeed(folder, REDUCE, "gram --input x.npy --chunk-rows 8 --spool S");
}

pub(crate) fn worked(folder: &Path) {
    spool(folder);
    succeed(folder, REDUCE, "work --spool S --rank 0 --of 1 --threads 1");
}

/// A table in one file, and one in parts.
pub(crate) fn parts(folder: &Path) {
    csv(folder);
    fs::create_dir(folder.join("data/visits")).unwrap();
    for part in 0..2 {
        let path = folder.join(format!("data/visits/{part}.csv"));
        fs::write(path, format!("visit,customer\n{part}1,1\n{part}2,2\n")).unwrap();
    }
}

/// As [`csv`], with a draft that the user has corrected.
pub(crate) fn draft(folder: &Path) {
    csv(folder);
    fs::write(folder.join("draft.toml"), SCHEMA).unwrap();
}

/// As [`matrix`], with a file of the user's where a summary would be.
pub(crate) fn summary(folder: &Path) {
    matrix(folder);
    fs::write(folder.join("g.json"), "{\"mine\": 1}").unwrap();
}

/// As [`csv`], with a store.
pub(crate) fn prepared(folder: &Path) {
    csv(folder);
    succeed(folder, HEADWATER, &PREPARE.replace("--out db", "--out old"));
}
