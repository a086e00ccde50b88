//! A made log of pings: probes with few or many measurements, over IPv4 and IPv6.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use headwater::prepare::schema::Schema;
use headwater::prepare::{EventOptions, EventsReport, prepare_events, source};
use headwater::progress::Silent;
use headwater::random::{Purpose, Stream};

/// One measurement: source, destination, microseconds since 1970, and milliseconds.
pub(crate) type Ping = (String, String, i64, f64);

/// Returns the measurements of `probes` probes, each with a number of them around `mean`.
pub(crate) fn pings(probes: u64, mean: u64) -> Vec<Ping> {
    let mut pings = Vec::new();
    for probe in 0..probes {
        let mut random = Stream::new(7, Purpose::Demo, [1, probe, 0]);
        let is_v6 = random.below(100) < 42;
        let address = |number: u64| match is_v6 {
            true => format!("2001:db8::{:x}:{:x}", number >> 16, number & 0xffff),
            false => format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255),
        };
        let mut time = 1_751_000_000_000_000 + random.below(86_400_000_000).cast_signed();
        for _ in 0..=random.below(2 * mean) {
            time += random.below(300_000_000).cast_signed();
            let rtt = match random.below(20) {
                0 => -1.0,
                _ => random.below(400_000) as f64 / 1000.0,
            };
            pings.push((address(probe), address(1 << 20 | random.below(50)), time, rtt));
        }
    }
    pings
}

/// Writes measurements as a CSV file in `folder`; returns its path.
pub(crate) fn write_csv(folder: &Path, name: &str, pings: &[Ping]) -> PathBuf {
    let mut text = "src_addr,dst_addr,event_time,rtt\n".to_owned();
    for (source, destination, time, rtt) in pings {
        writeln!(text, "{source},{destination},{time},{rtt}").unwrap();
    }
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// The schema of such a file, with further lines in `[events]`.
pub(crate) fn schema(more: &str) -> Schema {
    let text = format!(
        r#"
        database = "pings"
        [events]
        source = "pings"
        codec = "latency-v1"
        entity = "src_addr"
        time = {{ column = "event_time", unit = "us" }}
        columns = {{ dst = "dst_addr", rtt = "rtt" }}
        {more}
        "#
    );
    Schema::parse(&text).unwrap()
}

/// Prepares the event store of measurements in `folder`; returns its path and the report.
pub(crate) fn prepared(folder: &Path, pings: &[Ping], more: &str) -> (PathBuf, EventsReport) {
    let data = write_csv(folder, "pings.csv", pings);
    let out = folder.join("pings.db");
    let options = EventOptions { replace: false, threads: None, progress: &Silent };
    let source = source::open(&data).unwrap();
    let report = prepare_events(&*source, &schema(more), &out, &options).unwrap();
    (out, report)
}
