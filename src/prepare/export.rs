//! Writes the events of a store as ArrayRecord files, in the form that other pipelines read.
//!
//! A file for each split that has rows, a record for each row. A record is an IPC stream of Arrow with one
//! row, and its column `measurements` is the IPC stream of the events.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, Float32Array, Float64Array, Int8Array, Int32Array, Int64Array,
    RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow_ipc::writer::StreamWriter;
use serde::Serialize;

use super::arrayrecord::Writer;
use super::partial::{Partial, nothing_written};
use super::values::arrow_error;
use crate::error::{Context, Error, Result};
use crate::events::latency::{NAME, V4, destination_and_code, middle_of};
use crate::events::{EventStore, Row};
use crate::plan::Split;
use crate::progress::Progress;

/// The bytes of records that a chunk may have, if it has more than one. Who reads one record reads a chunk.
const CHUNK_BYTES: usize = 64 << 10;
const GROUP_SIZE_MAX: usize = 16;

/// The most bytes of an event in a record, and of what is beside the events.
const EVENT_BYTES_V4: usize = 52;
const EVENT_BYTES_V6: usize = 100;
const RECORD_BYTES: usize = 2500;

/// The report of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExportReport {
    /// The files, in the order of the splits.
    pub files: Vec<ExportedFile>,
}

/// A file of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExportedFile {
    /// Its name: that of the split, and `.arrayrecord`.
    pub name: String,
    /// The number of its records, each of which is a row of the store.
    pub record_count: u64,
    /// The number of events in them.
    pub event_count: u64,
    /// Its length.
    pub bytes: u64,
}

/// Writes the events of a store to the new folder `out`: `train.arrayrecord`, `val.arrayrecord` and
/// `test.arrayrecord`, without those of splits that have no rows.
///
/// Prepared again with the same schema, they give a store with the same root, if its entities are the
/// addresses of the sources.
///
/// # Determinism
/// The same store gives the same bytes.
///
/// # Errors
/// `InvalidArgument` when `out` exists, or the store is not of the codec `latency-v1`; `Corrupt` when the
/// store is damaged.
///
/// # Example
/// ```
/// use headwater::{events::EventStore, prepare::export_events, progress::Silent};
///
/// let store = EventStore::open("checkpoints/events-v1-small".as_ref())?;
/// let folder = tempfile::tempdir()?;
/// let report = export_events(&store, &folder.path().join("exported"), &Silent)?;
/// let exported: u64 = report.files.iter().map(|file| file.event_count).sum();
/// assert_eq!(exported, store.metadata().event_count());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn export_events(
    store: &EventStore,
    out: &Path,
    progress: &dyn Progress,
) -> Result<ExportReport> {
    let metadata = store.metadata();
    if metadata.codec != NAME {
        return Err(Error::invalid(format!(
            "{}: expected a store of the codec {NAME:?}, whose events have a form in ArrayRecord files, \
             found {:?}; prepare a store of {NAME:?}",
            store.path().display(),
            metadata.codec
        )));
    }
    if std::fs::symlink_metadata(out).is_ok() {
        return Err(Error::invalid(format!(
            "{} is there already; choose another folder, or move it away",
            out.display()
        )));
    }
    let partial = Partial::create(out, None, &[])?;
    progress.begin("exporting", Some(metadata.event_count()));
    let mut files = Vec::new();
    for split in Split::ALL.into_iter().filter(|&split| metadata.counts(split).rows > 0) {
        let name = format!("{}.arrayrecord", split.name());
        let file = export_split(store, split, &partial.path.join(&name), progress);
        let file = file.map_err(|error| nothing_written(error, out));
        let bytes = file.context(|| store.path().display().to_string())?;
        let counts = metadata.counts(split);
        files.push(ExportedFile {
            name,
            record_count: counts.rows.into(),
            event_count: counts.events,
            bytes,
        });
    }
    partial.commit(out)?;
    Ok(ExportReport { files })
}

/// Writes the rows of a split to a file; returns its length.
fn export_split(
    store: &EventStore,
    split: Split,
    path: &Path,
    progress: &dyn Progress,
) -> Result<u64> {
    let mut record_bytes = 0;
    for number in store.rows_of(split) {
        let (row, _) = store.numbered_row(number)?;
        let event_bytes = if row.form() == V4 { EVENT_BYTES_V4 } else { EVENT_BYTES_V6 };
        record_bytes = record_bytes.max(RECORD_BYTES + event_bytes * row.event_count() as usize);
    }
    // Each chunk has the same number of records, so the longest record decides.
    let group_size = (CHUNK_BYTES / record_bytes.max(1)).clamp(1, GROUP_SIZE_MAX);
    let mut writer = Writer::create(path, group_size)?;
    for number in store.rows_of(split) {
        let (row, entity) = store.numbered_row(number)?;
        writer.write(record(&row, store.entity(entity)?)?)?;
        progress.advance(row.event_count().into())?;
    }
    writer.finish()
}

/// The events of a row, as columns.
#[derive(Default)]
struct Columns {
    times: Vec<i64>,
    sources: Vec<String>,
    destinations: Vec<String>,
    results: Vec<f32>,
}

/// Returns the record of a row.
fn record(row: &Row<'_>, entity: &str) -> Result<Vec<u8>> {
    let columns = columns(row, entity)?;
    let (Some(&first), Some(&last), Some(source)) =
        (columns.times.first(), columns.times.last(), columns.sources.first())
    else {
        return Err(row.corrupt("it has no events"));
    };
    let source = source_id(source);
    let count = columns.times.len();
    let family = if row.form() == V4 { 4 } else { 6 };
    let time = |times: Vec<i64>| Arc::new(TimestampMicrosecondArray::from(times)) as ArrayRef;
    let measurements = stream([
        ("event_time", time(columns.times)),
        ("src_addr", Arc::new(StringArray::from(columns.sources))),
        ("dst_addr", Arc::new(StringArray::from(columns.destinations))),
        ("ip_version", Arc::new(Int8Array::from(vec![family; count]))),
        ("rtt", Arc::new(Float32Array::from(columns.results))),
    ])?;
    let span = (last - first) as f64 / 1e6;
    stream([
        ("src_id", Arc::new(Int64Array::from(vec![source]))),
        ("measurements", Arc::new(BinaryArray::from_vec(vec![&measurements]))),
        ("n_measurements", Arc::new(Int32Array::from(vec![count as i32]))),
        ("time_span_seconds", Arc::new(Float64Array::from(vec![span]))),
        ("first_timestamp", time(vec![first])),
        ("last_timestamp", time(vec![last])),
    ])
}

fn columns(row: &Row<'_>, entity: &str) -> Result<Columns> {
    let mut columns = Columns::default();
    // The text that names the entity keeps its name, and with it its split, where it is the address.
    let named: Option<IpAddr> = entity.trim().parse().ok();
    for index in 0..row.event_count() {
        let event = row.event(index)?;
        let (destination, code) = destination_and_code(event.value);
        let source = address(row, row.head(event.head)?)?;
        let result = middle_of(code)
            .ok_or_else(|| row.corrupt(format_args!("no time has the code {code}")))?;
        columns.times.push(event.time);
        columns.sources.push(match named == Some(source) {
            true => entity.to_owned(),
            false => source.to_string(),
        });
        columns.destinations.push(address(row, destination)?.to_string());
        columns.results.push(result);
    }
    Ok(columns)
}

fn address(row: &Row<'_>, bytes: &[u8]) -> Result<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(|bytes| Ipv4Addr::from(bytes).into());
    let v6 = || <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).into());
    v4().or_else(|_| v6()).map_err(|_| row.corrupt("an address has another length"))
}

/// Returns the number of a source: the first 15 hexadecimal digits of the MD5 of its text.
fn source_id(source: &str) -> i64 {
    let digest = md5::compute(source.as_bytes());
    let digits = digest.iter().take(8).fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
    (digits >> 4).cast_signed()
}

/// Returns the IPC stream of a batch.
fn stream<const N: usize>(columns: [(&str, ArrayRef); N]) -> Result<Vec<u8>> {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns);
    let write = |batch: RecordBatch| {
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
        writer.write(&batch)?;
        writer.into_inner()
    };
    batch.and_then(write).map_err(arrow_error)
}

#[cfg(test)]
mod tests {
    use super::source_id;

    #[test]
    fn the_number_of_a_source_is_the_begin_of_its_md5() {
        // echo -n 192.0.2.1 | md5sum
        assert_eq!(source_id("192.0.2.1"), 0x0d0f_88d6_c877_6726);
    }
}
