//! Writes the rows of an event store, in their order.

use std::collections::HashMap;
use std::path::Path;

use super::partition::{Sorted, SortedEvent};
use crate::bytes::{append, make_room};
use crate::container::{ContainerWriter, FileMetadata, StringsWriter};
use crate::error::{Error, Result};
use crate::events::{
    ENTITIES_MAX, ENTITY_FILE, EVENT_FILE, FRONT_BYTES, ROW_FILE, RowRecord, SplitCounts, items_of,
    whole_seconds,
};
use crate::plan::Split;
use crate::prepare::build::keys::KeyDigest;

/// The whole seconds that a row may span, so that every difference of times fits into 32 bits.
const SPAN_SECONDS: i64 = 1 << 32;

/// The totals of a store.
pub(super) struct Totals {
    pub splits: [SplitCounts; 3],
    pub entities: u32,
    pub first_us: i64,
    pub last_us: i64,
}

/// The row that is being collected.
struct Open {
    digest: KeyDigest,
    split: Split,
    entity: u32,
    part: u32,
    form: u16,
    first_us: i64,
    count: u32,
    heads: Vec<u8>,
    head_count: u16,
    /// The head of the last event, and the numbers of all heads.
    last_head: Option<(u16, Vec<u8>)>,
    numbers: HashMap<Vec<u8>, u16>,
    events: Vec<u8>,
}

/// Writes rows, one after another.
pub(super) struct RowWriter {
    row_bytes: u64,
    events: ContainerWriter,
    rows: ContainerWriter,
    entities: ContainerWriter,
    names: StringsWriter,
    open: Option<Open>,
    /// The number of bytes in the section of events.
    position: u64,
    /// The number of items of all rows.
    items: u64,
    totals: Totals,
}

impl RowWriter {
    pub(super) fn create(folder: &Path, row_bytes: u64) -> Result<Self> {
        let mut events = ContainerWriter::create(folder, EVENT_FILE)?;
        events.begin("events")?;
        let mut rows = ContainerWriter::create(folder, ROW_FILE)?;
        rows.begin("rows")?;
        let mut entities = ContainerWriter::create(folder, ENTITY_FILE)?;
        let names = StringsWriter::begin(&mut entities, "entities")?;
        let totals = Totals {
            splits: Default::default(),
            entities: 0,
            first_us: i64::MAX,
            last_us: i64::MIN,
        };
        let (open, position, items) = (None, 0, 0);
        Ok(Self { row_bytes, events, rows, entities, names, open, position, items, totals })
    }

    /// Writes the events of a partition, which follow those before.
    pub(super) fn write(&mut self, partition: &Sorted) -> Result<()> {
        for event in partition.events() {
            self.totals.first_us = self.totals.first_us.min(event.time);
            self.totals.last_us = self.totals.last_us.max(event.time);
            let open = match self.open.take() {
                Some(open) if open.digest == event.digest => {
                    match open.has_room(&event, self.row_bytes) {
                        true => open,
                        false => self.next_row(open, &event)?,
                    }
                }
                earlier => {
                    self.end_row(earlier)?;
                    self.first_row(partition, &event)?
                }
            };
            self.open.insert(open).push(&event)?;
        }
        Ok(())
    }

    /// Begins the first row of an entity.
    fn first_row(&mut self, partition: &Sorted, event: &SortedEvent<'_>) -> Result<Open> {
        let entity = self.totals.entities;
        if entity == ENTITIES_MAX {
            return Err(Error::limit(format!(
                "expected at most {ENTITIES_MAX} entities, found more; divide the source"
            )));
        }
        self.totals.entities = entity + 1;
        self.names.push(&mut self.entities, partition.name(event.digest)?)?;
        let split = partition.layout().split_of(event.digest);
        Ok(Open::new(event, split, entity, 0))
    }

    /// Ends a row and begins the next one of its entity.
    fn next_row(&mut self, open: Open, event: &SortedEvent<'_>) -> Result<Open> {
        let Open { split, entity, part, .. } = open;
        self.end_row(Some(open))?;
        Ok(Open::new(event, split, entity, part + 1))
    }

    fn end_row(&mut self, open: Option<Open>) -> Result<()> {
        let Some(open) = open else { return Ok(()) };
        let record = RowRecord {
            at: self.position,
            items_before: self.items,
            entity: open.entity,
            part: open.part,
            event_count: open.count,
            head_count: open.head_count,
            form: open.form,
        };
        self.rows.write(bytemuck::bytes_of(&record))?;
        self.events.write(&open.heads)?;
        self.events.write(&open.events)?;
        self.position += (open.heads.len() + open.events.len()) as u64;
        let items = u64::from(items_of(open.count));
        self.items += items;
        let counts = &mut self.totals.splits[open.split as usize];
        counts.rows = counts.rows.checked_add(1).ok_or_else(|| {
            Error::limit(
                "expected at most 2^32 - 1 rows in a split, found more; raise events.row_bytes",
            )
        })?;
        counts.events += u64::from(open.count);
        counts.items += items;
        Ok(())
    }

    /// Writes the last row; returns the totals and the files.
    pub(super) fn finish(mut self) -> Result<(Totals, Vec<FileMetadata>)> {
        let open = self.open.take();
        self.end_row(open)?;
        self.names.finish(&mut self.entities, "entities")?;
        let mut files = vec![self.entities.finish()?, self.events.finish()?, self.rows.finish()?];
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((self.totals, files))
    }
}

impl Open {
    fn new(event: &SortedEvent<'_>, split: Split, entity: u32, part: u32) -> Self {
        Self {
            digest: event.digest,
            split,
            entity,
            part,
            form: event.form,
            first_us: event.time,
            count: 0,
            heads: Vec::new(),
            head_count: 0,
            last_head: None,
            numbers: HashMap::new(),
            events: Vec::new(),
        }
    }

    /// Returns the number of the event's head, if the row has it, or events have none.
    fn head(&self, event: &SortedEvent<'_>) -> Option<u16> {
        match &self.last_head {
            _ if event.head.is_empty() => Some(0),
            // Most rows have one head.
            Some((number, head)) if head == event.head => Some(*number),
            _ => self.numbers.get(event.head).copied(),
        }
    }

    /// Whether the event can be added to the row.
    fn has_room(&self, event: &SortedEvent<'_>, row_bytes: u64) -> bool {
        let new_head = self.head(event).is_none();
        let more = FRONT_BYTES + event.value.len() + if new_head { event.head.len() } else { 0 };
        let bytes = (self.heads.len() + self.events.len() + more) as u64;
        self.form == event.form
            && bytes <= row_bytes
            && self.count < u32::MAX
            && whole_seconds(event.time) - whole_seconds(self.first_us) < SPAN_SECONDS
            && !(new_head && self.head_count == u16::MAX)
    }

    fn push(&mut self, event: &SortedEvent<'_>) -> Result<()> {
        let head = match self.head(event) {
            Some(head) => head,
            None => {
                append(&mut self.heads, event.head)?;
                self.numbers.insert(event.head.to_vec(), self.head_count);
                self.head_count += 1;
                self.head_count - 1
            }
        };
        if self.last_head.as_ref().is_none_or(|(last, _)| *last != head) {
            self.last_head = Some((head, event.head.to_vec()));
        }
        make_room(&mut self.events, FRONT_BYTES + event.value.len())?;
        self.events.extend_from_slice(&event.time.to_le_bytes());
        self.events.extend_from_slice(&head.to_le_bytes());
        self.events.extend_from_slice(event.value);
        self.count += 1;
        Ok(())
    }
}
