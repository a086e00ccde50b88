//! Builds an event store, with memory for a part of the events.
//!
//! The first pass spills each event to the partition of its entity; where fields are categories, a pass
//! before it counts their values. The last one sorts the partitions, one after another, and writes rows.
//! The order of the store is total (split, entity, form, time, value), so the order of the source changes
//! no byte.

mod categories;
mod columns;
mod dropped;
mod fields;
mod layout;
mod log;
mod measurements;
mod partition;
mod rows;
mod seen;
mod spill;
mod units;
mod vocabulary;

use std::fs;
use std::path::Path;

use arrow_array::RecordBatch;
use rayon::prelude::*;

use self::categories::ReadSum;
use self::columns::{Columns, Rows};
use self::fields::Fields;
use self::layout::Layout;
use self::log::{KeyColumns, ValueReader, parse};
use self::measurements::Measurements;
use self::partition::{Partition, divide, sorted};
use self::rows::{RowWriter, Totals};
use self::seen::Seen;
use self::spill::Spill;
use self::vocabulary::{Counter, vocabulary};
use super::read_ahead::read_ahead;
use crate::bytes::Digest;
use crate::container::{FileMetadata, Kind, METADATA_FILE};
use crate::error::{Context, Error, Result};
use crate::events::{EventsMetadata, FORMAT_VERSION, FieldMetadata, SplitMetadata, codec};
use crate::plan::Split;
use crate::prepare::options::EventsReport;
use crate::prepare::schema::{Events, Schema};
use crate::prepare::source::Source;
use crate::progress::Progress;

/// The bytes of spilled events that are sorted at a time, over all threads.
const SORTED_BYTES: usize = 96 << 20;

/// Reads the events of `source`, and writes the store's files to `folder`.
pub(in crate::prepare) fn build_events(
    source: &dyn Source,
    schema: &Schema,
    events: &Events,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<EventsReport> {
    let (fields, counted) = vocabulary_of(source, events, progress)?;
    let layout = Layout::new(&*codec(&events.codec, &fields)?, events.split.rule()?);
    let staging = folder.join("staging");
    let mut spill = Spill::new(&staging, layout);
    let seen = read(source, events, &fields, &mut spill, progress)?;
    seen.check(events, &fields, counted).context(|| format!("table {:?}", events.source))?;

    let mut writer = RowWriter::create(folder, events.row_bytes)?;
    let limit = SORTED_BYTES / rayon::current_num_threads().max(1);
    let partitions = spill.into_partitions();
    progress.begin("writing rows", Some(seen.dropped.kept()));
    // The next partitions, the first one last.
    let mut waiting: Vec<Partition> = partitions.into_iter().rev().collect();
    while !waiting.is_empty() {
        let mut taken = Vec::new();
        while taken.len() < rayon::current_num_threads()
            && let Some(partition) = waiting.pop()
        {
            match partition.bytes() > limit && partition.is_divisible() {
                true => waiting.extend(divide(&partition, limit, &staging)?.into_iter().rev()),
                false => taken.push(partition),
            }
        }
        let sorted: Vec<_> = taken.into_par_iter().map(|partition| sorted(&partition)).collect();
        for partition in sorted {
            let partition = partition?;
            writer.write(&partition)?;
            progress.advance(partition.event_count())?;
        }
    }
    let (totals, files) = writer.finish()?;
    write_metadata(schema, events, fields, folder, (totals, files), &seen)
}

/// Returns the vocabulary of the fields, and what was read to count the categories, if there are any.
fn vocabulary_of(
    source: &dyn Source,
    events: &Events,
    progress: &dyn Progress,
) -> Result<(Vec<FieldMetadata>, Option<ReadSum>)> {
    if events.fields.is_empty() {
        return Ok((Vec::new(), None));
    }
    let mut columns = Columns::default();
    let counter = Counter::new(events, &mut columns)?;
    let mut counts = counter.no_counts();
    if counter.has_categories() {
        progress.begin(&format!("counting the categories of {}", events.source), None);
        let count = |rows: &Rows<'_>| Ok((rows.batch.num_rows() as u64, counter.count(rows)?));
        for_each_batch(source, events, &columns, count, |(rows, more)| {
            counter.add(&mut counts, more)?;
            progress.advance(rows)
        })?;
    }
    let read = counter.has_categories().then_some(counts.read);
    Ok((vocabulary(events, counts)?, read))
}

/// Reads every event, and spills those that can be stored.
fn read(
    source: &dyn Source,
    events: &Events,
    fields: &[FieldMetadata],
    spill: &mut Spill,
    progress: &dyn Progress,
) -> Result<Seen> {
    progress.begin(&format!("reading {}", events.source), None);
    let mut columns = Columns::default();
    let keys = KeyColumns::new(events, &mut columns);
    let values: Box<dyn ValueReader> = match fields {
        [] => Box::new(Measurements::new(events, &mut columns)),
        _ => Box::new(Fields::new(events, fields, &mut columns)),
    };
    let mut seen = Seen::default();
    let layout = spill.layout().clone();
    let parse = |rows: &Rows<'_>| parse(&keys, &*values, rows, &layout);
    for_each_batch(source, events, &columns, parse, |part| {
        spill.append(&part)?;
        let rows = part.seen.dropped.seen();
        seen.merge(part.seen);
        progress.advance(rows)
    })?;
    Ok(seen)
}

/// Makes a part of each batch of the source, several at a time, and takes the parts in their order.
fn for_each_batch<T: Send>(
    source: &dyn Source,
    events: &Events,
    columns: &Columns,
    make: impl Fn(&Rows<'_>) -> Result<T> + Sync,
    take: impl FnMut(T) -> Result<()> + Send,
) -> Result<()> {
    let make = |first, batch: RecordBatch| {
        let part = make(&Rows { columns, batch: &batch, first });
        part.context(|| format!("table {:?}", events.source))
    };
    read_ahead(source.read(&events.source, columns.names())?, make, take)
}

fn write_metadata(
    schema: &Schema,
    events: &Events,
    fields: Vec<FieldMetadata>,
    folder: &Path,
    (totals, files): (Totals, Vec<FileMetadata>),
    seen: &Seen,
) -> Result<EventsReport> {
    let rule = events.split.rule()?;
    let mut metadata = EventsMetadata {
        kind: Kind::Events,
        format_version: FORMAT_VERSION,
        root: Digest([0; 32]),
        database: schema.database.clone(),
        codec: events.codec.clone(),
        fields,
        entity: events.entity.clone(),
        entity_count: totals.entities,
        split: SplitMetadata {
            seed: rule.seed,
            per_mille: Split::ALL.map(|split| rule.ratios.bucket_count(split)),
        },
        splits: totals.splits,
        first_us: totals.first_us,
        last_us: totals.last_us,
        files,
    };
    let text = metadata.encode()?;
    let path = folder.join(METADATA_FILE);
    fs::write(&path, &text).map_err(|e| Error::io(&path, "writing", e))?;
    let file_bytes: u64 = metadata.files.iter().map(|file| file.length).sum();
    Ok(EventsReport {
        root: metadata.root,
        event_count: metadata.event_count(),
        entity_count: metadata.entity_count,
        row_count: metadata.row_count(),
        dropped_count: seen.dropped.count(),
        first_us: metadata.first_us,
        last_us: metadata.last_us,
        room: codec(&metadata.codec, &metadata.fields)?.room(),
        store_bytes: file_bytes + text.len() as u64,
        remarks: seen.remarks(events, &metadata),
    })
}
