//! Logs that are larger than what is sorted at a time, in bounded memory; kills of a preparation.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use arrow_array::{Float32Array, Int64Array, RecordBatch, StringArray};
use headwater::events::EventStore;
use headwater::plan::Split;
use headwater::random::{Purpose, Stream};
use parquet::arrow::ArrowWriter;

const SCHEMA: &str = r#"
database = "pings"
[events]
source = "log"
codec = "latency-v1"
entity = "probe"
time = { column = "at", unit = "us" }
columns = { src = "from", dst = "to", rtt = "rtt" }
split = { train = 1.0, val = 0.0, test = 0.0 }
"#;

/// Writes `count` measurements as Parquet, two in three of one heavy probe; returns the folder.
fn log(count: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("events.toml"), SCHEMA).unwrap();
    let mut random = Stream::new(3, Purpose::Demo, [count, 0, 0]);
    let mut writer: Option<ArrowWriter<File>> = None;
    for first in (0..count).step_by(1 << 16) {
        let rows = (count - first).min(1 << 16) as usize;
        let mut words = || random.next_u64();
        let draws: Vec<u64> = (0..rows).map(|_| words()).collect();
        let probe = |word: &u64| if word.is_multiple_of(3) { word >> 8 & 0xffff } else { 0 };
        let probes: Vec<String> = draws.iter().map(|word| format!("p{}", probe(word))).collect();
        // The heavy probe moved once: its rows have two source addresses.
        let source = |word: &u64| format!("10.0.0.{}", word >> 24 & 1);
        let sources: Vec<String> = draws.iter().map(source).collect();
        let targets: Vec<String> =
            draws.iter().map(|word| format!("10.9.{}.1", word >> 25 & 31)).collect();
        let times: Vec<i64> = draws
            .iter()
            .map(|word| 1_751_000_000_000_000 + (word >> 16) as i64 % (1 << 41))
            .collect();
        let results: Vec<f32> = draws.iter().map(|word| (word >> 40 & 0xff) as f32).collect();
        let batch = RecordBatch::try_from_iter([
            ("probe", Arc::new(StringArray::from(probes)) as _),
            ("from", Arc::new(StringArray::from(sources)) as _),
            ("to", Arc::new(StringArray::from(targets)) as _),
            ("at", Arc::new(Int64Array::from(times)) as _),
            ("rtt", Arc::new(Float32Array::from(results)) as _),
        ])
        .unwrap();
        let path = folder.path().join("log.parquet");
        let writer = writer.get_or_insert_with(|| {
            ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), None).unwrap()
        });
        writer.write(&batch).unwrap();
    }
    writer.unwrap().close().unwrap();
    folder
}

fn arguments(folder: &Path, out: &str) -> Vec<PathBuf> {
    let (data, schema) = (folder.join("log.parquet"), folder.join("events.toml"));
    let words =
        ["prepare".into(), data, "--schema".into(), schema, "--out".into(), folder.join(out)];
    words.into()
}

/// Prepares the log in at most `limit_kb` kB of address space.
fn prepare(folder: &Path, out: &str, threads: &str, limit_kb: u64) -> EventStore {
    let command = format!("ulimit -v {limit_kb}; exec \"$0\" \"$@\" --threads {threads}");
    let status = Command::new("sh")
        .args(["-c", &command, env!("CARGO_BIN_EXE_headwater")])
        .args(arguments(folder, out))
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success(), "{threads} threads in {limit_kb} kB");
    EventStore::open(&folder.join(out)).unwrap()
}

/// 5 million events; the heavy probe alone has more than is sorted at a time.
#[test]
fn a_log_larger_than_what_is_sorted_at_a_time_needs_bounded_memory() {
    const COUNT: u64 = 5_000_000;
    let folder = log(COUNT);
    let one = prepare(folder.path(), "one.db", "1", 1 << 20);
    let three = prepare(folder.path(), "three.db", "3", 1 << 20);
    assert_eq!(one.root(), three.root());
    one.verify(&|_| Ok(())).unwrap();
    let counts = one.metadata().counts(Split::Train);
    assert_eq!(counts.events, COUNT);
    // 16 bytes each in rows of at most 8 MiB.
    let heavy = COUNT * 2 / 3 * 16 / (8 << 20);
    let rows = u64::from(counts.rows) - u64::from(one.metadata().entity_count);
    assert!((heavy..=heavy + 1).contains(&rows), "{rows} further rows, {heavy} expected");
}

fn spawn(folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(arguments(folder, "killed.db"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn p6_killed_at_any_moment_leaves_no_event_store_or_a_complete_one() {
    let folder = log(300_000);
    let out = folder.path().join("killed.db");
    let started = Instant::now();
    assert!(spawn(folder.path()).wait().unwrap().success());
    let duration = started.elapsed();
    let root = EventStore::open(&out).unwrap().root();
    let mut random = Stream::new(2, Purpose::Demo, [0xdead, 0, 0]);
    let mut killed = 0;
    for number in 0..20 {
        let _ = std::fs::remove_dir_all(&out);
        let mut child = spawn(folder.path());
        let share = number % 10 * 105 + random.below(105);
        sleep(Duration::from_secs_f64(duration.as_secs_f64() * share as f64 / 1000.0));
        child.kill().unwrap();
        child.wait().unwrap();
        match std::fs::symlink_metadata(&out) {
            Ok(_) => EventStore::open(&out).unwrap().verify(&|_| Ok(())).unwrap(),
            Err(_) => killed += 1,
        }
    }
    assert!(killed > 5, "only {killed} were killed before their end");
    let _ = std::fs::remove_dir_all(&out);
    assert!(spawn(folder.path()).wait().unwrap().success());
    assert_eq!(EventStore::open(&out).unwrap().root(), root);
    assert!(!folder.path().join("killed.db.partial").exists());
}
