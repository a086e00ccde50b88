//! `Row`: the events of one entity, as they lie in the store.

use bytemuck::{Pod, Zeroable};

use crate::container::Section;
use crate::error::{Error, Result};

/// The most contexts that an epoch draws from one row, and the number of events for each.
const ITEMS_MAX: u32 = 16;
const EVENTS_PER_ITEM: u32 = 30;

/// Returns the number of contexts that an epoch draws from a row of `event_count` events.
pub(crate) fn items_of(event_count: u32) -> u32 {
    event_count.div_ceil(EVENTS_PER_ITEM).clamp(1, ITEMS_MAX)
}

/// The place of a row in the store's files, as they hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct RowRecord {
    /// The offset of its first byte in the section `events`.
    pub at: u64,
    /// The number of items of all rows before it.
    pub items_before: u64,
    /// The entity whose events they are.
    pub entity: u32,
    /// The number of rows of this entity before it.
    pub part: u32,
    /// The number of events.
    pub event_count: u32,
    /// The number of heads: values that events share.
    pub head_count: u16,
    /// The form of its records, a number that the codec gives.
    pub form: u16,
}

impl RowRecord {
    /// Returns the bytes of all heads, and of an event.
    fn sizes(&self, form: &Form) -> (usize, usize) {
        (form.head_bytes * usize::from(self.head_count), FRONT_BYTES + form.value_bytes)
    }

    /// Returns the bytes of the row.
    fn length(&self, form: &Form) -> usize {
        let (heads, event_bytes) = self.sizes(form);
        heads + event_bytes * self.event_count as usize
    }

    /// Reads the row ahead, if memory does not hold the section, and the row is read as a whole.
    pub(super) fn read_ahead(&self, section: &Section, form: &Form) {
        let length = self.length(form);
        if length <= SHORT_BYTES {
            section.read_ahead(usize::try_from(self.at).unwrap_or(usize::MAX), length);
        }
    }
}

/// The sizes of the records of one form.
pub(crate) struct Form {
    /// The bytes of a value that the events of a row share.
    pub head_bytes: usize,
    /// The bytes of an event's own value.
    pub value_bytes: usize,
}

/// A row: events of one entity in the order of time.
pub(crate) struct Row<'a> {
    section: &'a Section,
    /// All bytes of a short row, which are checked once.
    whole: Option<&'a [u8]>,
    /// The offset of the first head, and the bytes of all heads.
    at: usize,
    heads: usize,
    head_bytes: usize,
    event_bytes: usize,
    record: RowRecord,
}

impl<'a> Row<'a> {
    /// Returns the row at `record` in the section of events, whose records have these sizes; none if it
    /// lies outside, or has no events.
    pub(super) fn new(
        section: &'a Section,
        record: RowRecord,
        form: &Form,
    ) -> Result<Option<Self>> {
        let (heads, event_bytes) = record.sizes(form);
        let length = record.length(form);
        let at = usize::try_from(record.at).unwrap_or(usize::MAX);
        let is_outside = at.checked_add(length).is_none_or(|end| end > section.len());
        if record.event_count == 0 || is_outside {
            return Ok(None);
        }
        let is_short = length <= SHORT_BYTES;
        Ok(Some(Self {
            section,
            whole: if is_short { Some(section.get(at, length)?) } else { None },
            at,
            heads,
            head_bytes: form.head_bytes,
            event_bytes,
            record,
        }))
    }

    /// Returns the bytes `[at, at + count)` of the row.
    fn bytes(&self, at: usize, count: usize) -> Result<&'a [u8]> {
        match self.whole {
            Some(bytes) => Ok(&bytes[at..at + count]),
            None => self.section.get(self.at + at, count),
        }
    }

    pub(crate) fn event_count(&self) -> u32 {
        self.record.event_count
    }

    pub(crate) fn form(&self) -> u16 {
        self.record.form
    }

    /// Returns the number of bytes of heads and events.
    pub(super) fn length(&self) -> usize {
        self.heads + self.event_bytes * self.record.event_count as usize
    }

    /// Returns what is wrong with an event: each must have a head and a value that `is_value` takes, and
    /// their times ascend from `first_us` to `last_us`, within the span of a difference.
    pub(super) fn fault(
        &self,
        first_us: i64,
        last_us: i64,
        is_value: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<&'static str>> {
        let mut before = first_us;
        let start = whole_seconds(self.event(0)?.time);
        for index in 0..self.record.event_count {
            let Event { time, head, value } = self.event(index)?;
            let has_head = match self.head_bytes {
                0 => head == 0,
                _ => head < self.record.head_count,
            };
            let span = whole_seconds(time).saturating_sub(start);
            if time < before || time > last_us || span > i64::from(u32::MAX) {
                return Ok(Some("its events are not in the order of time"));
            }
            if !has_head {
                return Ok(Some("an event names no head"));
            }
            if !is_value(value) {
                return Ok(Some("an event has a value that the codec does not write"));
            }
            before = time;
        }
        Ok(None)
    }

    /// Returns an error about the row.
    pub(crate) fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        self.section.corrupt(format!("row of entity {}: {what}", self.record.entity))
    }

    /// Returns the event at `index`.
    pub(crate) fn event(&self, index: u32) -> Result<Event<'a>> {
        let at = self.heads + index as usize * self.event_bytes;
        let (front, value) = self.bytes(at, self.event_bytes)?.split_at(FRONT_BYTES);
        let (time, head) = front.split_at(8);
        Ok(Event {
            time: time.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes)),
            head: head.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes)),
            value,
        })
    }

    /// Returns the head at `index`.
    pub(crate) fn head(&self, index: u16) -> Result<&'a [u8]> {
        if index >= self.record.head_count {
            return Err(self.section.corrupt(format!(
                "expected a head below {}, found {index}",
                self.record.head_count
            )));
        }
        self.bytes(usize::from(index) * self.head_bytes, self.head_bytes)
    }
}

/// The most entities: a batch has their numbers as int32.
#[cfg(feature = "prepare")]
pub(crate) const ENTITIES_MAX: u32 = i32::MAX as u32;

/// Returns a time in whole seconds since 1970, rounded down.
pub(crate) fn whole_seconds(time_us: i64) -> i64 {
    time_us.div_euclid(1_000_000)
}

/// The longest row that is read as a whole.
const SHORT_BYTES: usize = 64 << 10;

/// The bytes before an event's value: its time, and the number of its head.
pub(crate) const FRONT_BYTES: usize = 10;

/// One event.
#[derive(Clone, Copy)]
pub(crate) struct Event<'a> {
    /// Its time in microseconds since 1970.
    pub time: i64,
    /// The number of the value that it shares with other events of its row.
    pub head: u16,
    /// Its own value, in the codec's form.
    pub value: &'a [u8],
}
