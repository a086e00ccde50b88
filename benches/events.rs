//! Event stores and token rows: what a CPU second makes.
//!
//! `cargo bench --bench events` prints, for each codec, the rate of the builder (Parquet to store, one thread)
//! and that of one thread that makes packed rows of 1,024 tokens; and the time of a resume at row 10^12. With
//! `-- --keep FOLDER` the Parquet file and the stores stay there, for `benches/events.py`.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Float64Array, Int8Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use headwater::events::{EventSampler, EventSettings, EventStore, Speed};
use headwater::plan::{Assignment, Cursor, Split};
use headwater::prepare::schema::Schema;
use headwater::prepare::{EventOptions, prepare_events, source};
use headwater::progress::Silent;
use headwater::random::{Purpose, Stream};
use parquet::arrow::ArrowWriter;
use rustix::time::{ClockId, clock_gettime};

const EVENTS: u64 = 3_000_000;
const PROBES: u64 = 100_000;
const LATENCY: &str = r#"
database = "pings"
[events]
source = "pings"
codec = "latency-v1"
entity = "src_addr"
time = "event_time"
columns = { dst = "dst_addr", rtt = "rtt", family = "ip_version" }
"#;
/// The same log, of which half of the 1,000 hosts have a token.
const FIELDS: &str = r#"
database = "pings"
[events]
source = "pings"
codec = "fields-v1"
entity = "src_addr"
time = "event_time"
[events.fields]
dst_addr = { type = "category", max_tokens = 500, max_bytes = 24 }
ip_version = "category"
rtt = "number"
"#;

/// The CPU seconds of all threads of this process.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Writes the measurements of random probes at random times, as a hub of them would log.
fn write_parquet(path: &Path) {
    let mut random = Stream::new(1, Purpose::Demo, [0; 3]);
    let mut writer: Option<ArrowWriter<File>> = None;
    for first in (0..EVENTS).step_by(1 << 16) {
        let rows = (EVENTS - first).min(1 << 16);
        let (mut sources, mut targets, mut times, mut families, mut results) =
            (vec![], vec![], vec![], vec![], vec![]);
        for row in 0..rows {
            let probe = random.below(PROBES);
            let target = random.below(500);
            let is_v6 = probe % 100 < 42;
            families.push(if is_v6 { 6_i8 } else { 4 });
            let address = |number: u64| match is_v6 {
                true => format!("2001:db8:{:x}::{:x}", number >> 16, number & 0xffff),
                false => format!("{}.{}.{}.9", number >> 16 & 255, number >> 8 & 255, number & 255),
            };
            sources.push(address(probe));
            targets.push(address(1 << 20 | target));
            times.push((1_751_000_000_000_000 + (first + row) * 800_000) as i64);
            results.push(match random.below(20) {
                0 => -1.0,
                _ => random.below(400_000) as f64 / 1000.0,
            });
        }
        let batch = RecordBatch::try_from_iter([
            ("src_addr", Arc::new(StringArray::from(sources)) as _),
            ("dst_addr", Arc::new(StringArray::from(targets)) as _),
            ("event_time", Arc::new(TimestampMicrosecondArray::from(times)) as _),
            ("ip_version", Arc::new(Int8Array::from(families)) as _),
            ("rtt", Arc::new(Float64Array::from(results)) as _),
        ])
        .unwrap();
        let writer = writer.get_or_insert_with(|| {
            ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), None).unwrap()
        });
        writer.write(&batch).unwrap();
    }
    writer.unwrap().close().unwrap();
}

/// Prepares the log three times, and prints the rate; returns the first store.
fn builder(codec: &str, data: &Path, schema: &str, folder: &Path) -> Arc<EventStore> {
    let schema = Schema::parse(schema).unwrap();
    let source = source::open(data).unwrap();
    let out = |run| folder.join(format!("{codec}-{run}.db"));
    for run in 0..3 {
        let options = EventOptions { replace: false, threads: Some(1), progress: &Silent };
        let before = cpu_seconds();
        let report = prepare_events(&*source, &schema, &out(run), &options).unwrap();
        let seconds = cpu_seconds() - before;
        println!(
            "{codec} builder: {:.2} M events per CPU second, {:.1} bytes an event",
            report.event_count as f64 / seconds / 1e6,
            report.store_bytes as f64 / report.event_count as f64
        );
    }
    let store = EventStore::open(&out(0)).unwrap();
    store.verify(&|_| Ok(())).unwrap();
    Arc::new(store)
}

/// Makes rows, and prints the rates.
fn rows(codec: &str, store: &Arc<EventStore>) {
    for run in 0..4 {
        let sampler = sampler(store, run);
        sampler.next(Split::Train).unwrap();
        let before = cpu_seconds();
        let (mut rows, mut contexts, mut tokens) = (0, 0, 0);
        for _ in 0..40 {
            let (batch, _) = sampler.next(Split::Train).unwrap();
            let segments = batch.get::<i32>("inputs_segmentation").unwrap();
            for row in segments.chunks(1024) {
                rows += 1;
                let real = row.iter().filter(|&&segment| segment > 0).count();
                tokens += real;
                contexts += row[real - 1];
            }
        }
        let seconds = cpu_seconds() - before;
        println!(
            "{codec} sampler: {:.0} contexts, {:.0} rows, {:.1} M tokens per CPU second; padding {:.2} %",
            f64::from(contexts) / seconds,
            f64::from(rows) / seconds,
            tokens as f64 / seconds / 1e6,
            100.0 - tokens as f64 / f64::from(rows) / 10.24
        );
    }
}

/// A sampler with one thread, which makes nothing ahead.
fn sampler(store: &Arc<EventStore>, seed: u64) -> EventSampler {
    let rank = Assignment::new(0, 1).unwrap();
    let speed = Speed { threads: Some(1), prefetch: 0 };
    let settings = EventSettings { seed, ..EventSettings::default() };
    EventSampler::new(Arc::clone(store), settings, rank, speed).unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let kept =
        arguments.iter().position(|word| word == "--keep").map(|at| arguments[at + 1].clone());
    let temporary = tempfile::tempdir().unwrap();
    let folder = kept.map_or_else(|| temporary.path().to_owned(), Into::into);
    std::fs::create_dir_all(&folder).unwrap();
    let data = folder.join("pings.parquet");
    write_parquet(&data);
    let store = builder("latency-v1", &data, LATENCY, &folder);
    let far = sampler(&store, 0);
    far.seek(Split::Train, 1_000_000_000_000).unwrap();
    let cursor = far.cursor().encode().unwrap();
    let resumed = sampler(&store, 0);
    let before = std::time::Instant::now();
    resumed.resume(&Cursor::decode(&cursor).unwrap()).unwrap();
    println!("resume at row 10^12: {:.3} ms", before.elapsed().as_secs_f64() * 1e3);
    rows("latency-v1", &store);
    rows("fields-v1", &builder("fields-v1", &data, FIELDS, &folder));
}
