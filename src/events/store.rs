//! `EventStore`: the events of many entities on disk, memory-mapped.

use std::cmp::Ordering;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::codec::Codec;
use super::codecs::codec;
use super::decoded::DecodedEvent;
use super::metadata::{EventsMetadata, SplitCounts, SplitMetadata};
use super::row::{Row, RowRecord, items_of};
use super::tokens::TIME_END_SECONDS;
use crate::bytes::{Digest, identity_of, key_digest};
use crate::container::{
    Container, METADATA_FILE, Section, Strings, check_no_other_files, file_of, open_folder, warm,
};
use crate::error::{Context, Error, Result};
use crate::memory::memory_available;
use crate::plan::{Split, SplitRatios, SplitRule};
use crate::random::name_identity;

/// The names of the files.
pub(crate) const EVENT_FILE: &str = "events.bin";
pub(crate) const ROW_FILE: &str = "rows.bin";
pub(crate) const ENTITY_FILE: &str = "entities.bin";

/// The events of many entities on disk, memory-mapped and read-only.
///
/// # Example
/// ```
/// use headwater::events::EventStore;
/// use headwater::plan::Split;
///
/// let store = EventStore::open("checkpoints/events-v1-small".as_ref())?;
/// store.verify(&|_bytes_read| Ok(()))?;
/// assert_eq!(store.metadata().codec, "latency-v1");
/// assert!(store.metadata().counts(Split::Train).events > 0);
/// # Ok::<(), headwater::Error>(())
/// ```
pub struct EventStore {
    path: PathBuf,
    metadata: EventsMetadata,
    metadata_bytes: u64,
    containers: Vec<Container>,
    codec: Box<dyn Codec>,
    events: Section,
    rows: Section,
    entities: Strings,
}

impl EventStore {
    /// Opens the store in the folder `path`.
    ///
    /// Checks the metadata, each file's length and section table. The contents are checked block by
    /// block on first read, or all at once by [`EventStore::verify`].
    ///
    /// # Cost
    /// Milliseconds. Reads 32 bytes for each block of data.
    ///
    /// A store that does not fit into three quarters of the memory that this process can have is read
    /// block by block, and many rows at a time.
    ///
    /// # Errors
    /// `Io` when a file cannot be read; `NotOurs`, `Version` or `Corrupt` when the folder is not an
    /// intact event store of this format.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_within(path, memory_available())
    }

    /// Opens the store with so many bytes of memory, if that is known.
    pub(crate) fn open_within(path: &Path, memory: Option<u64>) -> Result<Self> {
        let (metadata, metadata_bytes, containers) = open_folder::<EventsMetadata>(path, memory)?;
        check_ranges(&metadata).context(|| format!("{}", path.join(METADATA_FILE).display()))?;
        let file = |name: &str| file_of(path, &metadata.files, &containers, name);
        let row_bytes = metadata.row_count() * size_of::<RowRecord>() as u64;
        Ok(Self {
            codec: codec(&metadata.codec, &metadata.fields)
                .context(|| format!("{}", path.join(METADATA_FILE).display()))?,
            events: file(EVENT_FILE)?.any_section("events")?,
            rows: file(ROW_FILE)?.section("rows", row_bytes)?,
            entities: Strings::open(
                file(ENTITY_FILE)?,
                "entities",
                metadata.entity_count as usize,
            )?,
            path: path.to_path_buf(),
            metadata,
            metadata_bytes,
            containers,
        })
    }

    /// Reads every byte of the store and checks it against its digest.
    ///
    /// Calls `progress` with the number of bytes read since its last call; its error stops the check.
    ///
    /// # Errors
    /// `Corrupt`, naming the file and the place, when any bit of any file changed, or when the folder
    /// holds a file that is not part of the store.
    pub fn verify(&self, progress: &dyn Fn(u64) -> Result<()>) -> Result<()> {
        for container in &self.containers {
            container.verify(progress)?;
        }
        self.verify_rows()?;
        check_no_other_files(&self.path, &[], &self.metadata.files)
    }

    /// Whether memory did not hold the files when they were opened.
    pub(super) fn is_larger_than_memory(&self) -> bool {
        self.containers.iter().any(Container::reads_ahead)
    }

    /// Begins a batch, which decides what is read ahead.
    pub(super) fn begin_batch(&self) {
        // All files share the decision.
        if let Some(container) = self.containers.first() {
            container.begin_batch();
        }
    }

    /// Reads the whole store into memory, in sequence, so that the first batches wait for no disk.
    /// Returns the number of bytes that were read.
    ///
    /// Calls `progress` with the number of bytes read since its last call; its error stops the reading.
    ///
    /// # Errors
    /// `LimitExceeded` when the store is larger than the memory that this process can have; `Io` when a
    /// file cannot be read.
    pub fn warm(&self, progress: &dyn Fn(u64) -> Result<()>) -> Result<u64> {
        warm(&self.path, &self.containers, memory_available(), progress)
    }

    /// Checks that the rows are what the metadata say of them, and that their events are in order.
    fn verify_rows(&self) -> Result<()> {
        let wrong = |row: usize, what: &str| Err(self.rows.corrupt(format!("row {row}: {what}")));
        let rule = self.split_rule()?;
        let (mut row, mut items, mut at, mut next_entity) = (0, 0, 0, 0);
        for split in Split::ALL {
            let mut found =
                SplitCounts { rows: self.metadata.counts(split).rows, ..<_>::default() };
            let mut last_digest = None;
            let mut last_part: Option<(u32, u16, i64)> = None;
            for _ in 0..found.rows {
                let record = self.record(row)?;
                let read = self.row(record)?;
                let [start, end] = [0, record.event_count - 1].map(|event| read.event(event));
                let (start, end) = (start?.time, end?.time);
                if (record.items_before, record.at) != (items, at) {
                    return wrong(row, "its place does not follow the row before");
                }
                let is_first = record.entity == next_entity && record.part == 0;
                let is_next = record.entity.checked_add(1) == Some(next_entity)
                    && last_part.is_some_and(|(part, form, time)| {
                        part.checked_add(1) == Some(record.part)
                            && (form, time) <= (record.form, start)
                    });
                if !is_first && !is_next {
                    return wrong(
                        row,
                        "its entity, or its part of it, does not follow the row before",
                    );
                }
                last_part = Some((record.part, record.form, end));
                if is_first {
                    let name = self.entity(record.entity)?;
                    let identity = identity_of(name.as_bytes());
                    if rule.split_of(name_identity("events"), identity) != split {
                        return wrong(row, "its entity belongs to another split");
                    }
                    let digest = Some(key_digest(name.as_bytes()));
                    if digest <= last_digest {
                        return wrong(row, "its entity is not in the order of digests");
                    }
                    last_digest = digest;
                    next_entity += 1;
                }
                let is_value = |value: &[u8]| self.codec.is_value(record.form, value);
                let (first, last) = (self.metadata.first_us, self.metadata.last_us);
                if let Some(fault) = read.fault(first, last, is_value)? {
                    return wrong(row, fault);
                }
                at += read.length() as u64;
                items += u64::from(items_of(record.event_count));
                found.items += u64::from(items_of(record.event_count));
                found.events += u64::from(record.event_count);
                row += 1;
            }
            if found != *self.metadata.counts(split) {
                let what = format!("the {} split ends with other counts", split.name());
                return wrong(row, &what);
            }
        }
        if next_entity != self.metadata.entity_count || at != self.events.len() as u64 {
            return wrong(row, "the rows end before the entities or the events");
        }
        Ok(())
    }

    fn split_rule(&self) -> Result<SplitRule> {
        let SplitMetadata { seed, per_mille } = self.metadata.split;
        let [train, val, test] = per_mille.map(|share| share as f64 / 1000.0);
        let ratios = SplitRatios::new(train, val, test)
            .map_err(|e| Error::corrupt(format!("{METADATA_FILE}: {e}")))?;
        Ok(SplitRule { seed, ratios })
    }

    /// Returns the folder of the store.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the metadata.
    #[must_use]
    pub fn metadata(&self) -> &EventsMetadata {
        &self.metadata
    }

    /// Returns the identity of the data.
    #[must_use]
    pub fn root(&self) -> Digest {
        self.metadata.root
    }

    /// Returns the total length of the store's files.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.metadata_bytes + self.metadata.files.iter().map(|file| file.length).sum::<u64>()
    }

    /// Returns the text that names an entity.
    ///
    /// # Errors
    /// `Corrupt` when there is no such entity, or its bytes are damaged.
    pub fn entity(&self, entity: u32) -> Result<&str> {
        self.entities.get(entity as usize)
    }

    /// Returns the number of different tokens.
    #[must_use]
    pub fn vocabulary(&self) -> u16 {
        self.codec.vocabulary()
    }

    /// Returns the shortest `sequence_length` of a sampler: any event fits, with its time.
    #[must_use]
    pub fn room(&self) -> usize {
        self.codec.room()
    }

    /// Returns the events of the tokens of a context.
    ///
    /// # Errors
    /// `Data` when the tokens are no context of the store's codec.
    pub fn decode(&self, tokens: &[u16]) -> Result<Vec<DecodedEvent>> {
        self.codec.decode(tokens)
    }

    pub(super) fn codec(&self) -> &dyn Codec {
        &*self.codec
    }

    /// Returns the row that an item of a split is a context of, and the entity.
    ///
    /// # Cost
    /// A binary search over the rows of the split.
    pub(crate) fn row_of_item(&self, split: Split, item: u64) -> Result<(Row<'_>, u32)> {
        let (mut low, items_before) = self.start(split);
        let wanted = items_before.saturating_add(item);
        let mut high = low + self.metadata.counts(split).rows as usize;
        // The last row with at most `wanted` items before it.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.record(middle)?.items_before <= wanted {
                true => low = middle,
                false => high = middle,
            }
        }
        let record = self.record(low)?;
        let is_its = record.items_before <= wanted
            && wanted - record.items_before < u64::from(items_of(record.event_count));
        if record.event_count == 0 || !is_its {
            return Err(self.rows.corrupt(format!("row {low} does not have the item {wanted}")));
        }
        if let Some(form) = self.codec.form(record.form) {
            record.read_ahead(&self.events, &form);
        }
        Ok((self.row(record)?, record.entity))
    }

    /// Returns the number of the entity with this name; none if there is none.
    ///
    /// # Cost
    /// A binary search: the entities of a split are in the order of the digests of their names.
    pub(super) fn find_entity(&self, name: &str) -> Result<Option<u32>> {
        let digest = |name: &str| key_digest(name.as_bytes());
        let wanted = digest(name);
        let split =
            self.split_rule()?.split_of(name_identity("events"), identity_of(name.as_bytes()));
        let rows = self.rows_of(split);
        let first_entity = |row: usize| match row < self.metadata.row_count() as usize {
            true => Ok(self.record(row)?.entity),
            false => Ok(self.metadata.entity_count),
        };
        let (mut low, mut high) = (first_entity(rows.start)?, first_entity(rows.end)?);
        while low < high {
            let middle = low + (high - low) / 2;
            match digest(self.entity(middle)?).cmp(&wanted) {
                Ordering::Equal => return Ok(Some(middle)),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// Returns the numbers of the rows of an entity, for each form that it has.
    pub(super) fn rows_by_form(&self, entity: u32) -> Result<Vec<Range<usize>>> {
        let end = self.metadata.row_count() as usize;
        let of_entity = self.first_row(0..end, |record| record.entity >= entity)?
            ..self.first_row(0..end, |record| record.entity > entity)?;
        let mut ranges = Vec::new();
        let mut start = of_entity.start;
        while start < of_entity.end {
            let form = self.record(start)?.form;
            let next = self.first_row(start..of_entity.end, |record| record.form > form)?;
            // In a damaged store the forms may be in another order.
            ranges.push(start..next.max(start + 1));
            start = next.max(start + 1);
        }
        Ok(ranges)
    }

    /// Returns the first row that `is_behind`, or the end; all rows after it are, too.
    fn first_row(
        &self,
        rows: Range<usize>,
        is_behind: impl Fn(&RowRecord) -> bool,
    ) -> Result<usize> {
        let Range { start: mut low, end: mut high } = rows;
        while low < high {
            let middle = low + (high - low) / 2;
            match is_behind(&self.record(middle)?) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Ok(low)
    }

    /// Returns the numbers of the rows of a split.
    pub(crate) fn rows_of(&self, split: Split) -> Range<usize> {
        let (first, _) = self.start(split);
        first..first + self.metadata.counts(split).rows as usize
    }

    /// Returns the row of this number, and its entity.
    pub(crate) fn numbered_row(&self, number: usize) -> Result<(Row<'_>, u32)> {
        let record = self.record(number)?;
        Ok((self.row(record)?, record.entity))
    }

    /// Returns the number of rows, and of items, before a split.
    fn start(&self, split: Split) -> (usize, u64) {
        let before = &self.metadata.splits[..split as usize];
        let add = |(rows, items): (usize, u64), counts: &SplitCounts| {
            (rows + counts.rows as usize, items.saturating_add(counts.items))
        };
        before.iter().fold((0, 0), add)
    }

    fn record(&self, row: usize) -> Result<RowRecord> {
        self.rows.value(row)
    }

    fn row(&self, record: RowRecord) -> Result<Row<'_>> {
        let form = self.codec.form(record.form).ok_or_else(|| {
            self.rows.corrupt(format!("the codec has no records of form {}", record.form))
        })?;
        Row::new(&self.events, record, &form)?
            .ok_or_else(|| self.rows.corrupt("a row has no events, or lies outside of them"))
    }
}

/// Rejects times that are not stored, and counts that no rows have.
fn check_ranges(metadata: &EventsMetadata) -> Result<()> {
    let (first, last) = (metadata.first_us, metadata.last_us);
    if first < 0 || last < first || last >= TIME_END_SECONDS.cast_signed() * 1_000_000 {
        return Err(Error::corrupt(format!(
            "expected times from 1970 to 2200, found {first} to {last} microseconds"
        )));
    }
    for split in Split::ALL {
        let SplitCounts { rows, events, items } = *metadata.counts(split);
        let (least, most) = (u64::from(rows), u64::from(rows) * u64::from(items_of(u32::MAX)));
        if !(least..=most).contains(&items) || events < least || (rows == 0 && events > 0) {
            return Err(Error::corrupt(format!(
                "the {} split: {rows} rows cannot have {events} events and {items} items",
                split.name()
            )));
        }
    }
    Ok(())
}
