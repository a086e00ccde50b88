//! Reads whose event each row is, and when it was; spills what the codec's reader makes of the rest.

use arrow_array::{Array, Int64Array, StringViewArray};

use super::categories::Category;
use super::columns::{Columns, Rows};
use super::dropped::{Notes, Reason};
use super::layout::Layout;
use super::seen::{FieldsSeen, Seen};
use crate::days::time_text;
use crate::error::Result;
use crate::events::TIME_END_SECONDS;
use crate::prepare::build::keys::{KeyDigest, digest, write_key};
use crate::prepare::schema::{Column, Events};

/// The end of the times that are stored.
const TIME_END_US: i64 = TIME_END_SECONDS.cast_signed() * 1_000_000;

/// Why an event cannot be stored, and the value that is at fault; empty where there is none.
pub(super) type Refused = (Reason, String);

/// Reads the values of events, for one codec.
pub(super) trait ValueReader: Send + Sync {
    /// Reads the columns of some rows.
    fn read<'a>(&'a self, rows: &Rows<'_>) -> Result<Box<dyn RowValues + 'a>>;
}

/// The values of the events in some rows.
pub(super) trait RowValues {
    /// Appends value and head of the event in `row` to `record`, as they are stored; returns the form.
    ///
    /// The event's time is `time`. `record` is of no use when the event is refused.
    fn append(
        &self,
        row: usize,
        time: i64,
        record: &mut Vec<u8>,
        notes: &mut Notes<'_>,
    ) -> std::result::Result<u16, Refused>;

    /// Returns the categories, which another read of the source has counted before.
    fn categories(&self) -> Vec<&Category>;

    /// Returns what was seen in the fields of the events that were appended.
    fn seen(&self) -> FieldsSeen;
}

/// The columns that every log of events has: whose event it is, and when it was.
pub(super) struct KeyColumns {
    entity: Vec<usize>,
    time: (usize, Column),
}

impl KeyColumns {
    pub(super) fn new(events: &Events, columns: &mut Columns) -> Self {
        Self {
            entity: events.entity.iter().map(|name| columns.place(name)).collect(),
            time: (columns.place(&events.time.column), events.time.as_column()),
        }
    }

    /// Reads entities and times.
    pub(super) fn read(&self, rows: &Rows<'_>) -> Result<Keys> {
        let (place, column) = &self.time;
        Ok(Keys {
            names: self.entity.iter().map(|&place| rows.texts(place)).collect::<Result<_>>()?,
            times: rows.times(*place, column)?,
            are_integers: rows.are_integers(*place),
        })
    }
}

/// The entities and times of some rows.
pub(super) struct Keys {
    names: Vec<StringViewArray>,
    times: Int64Array,
    /// Whether the times are integers, which have the unit of the schema.
    are_integers: bool,
}

impl Keys {
    /// Calls `take` for each row, with the name of its entity, and with the entity's digest and the
    /// event's time, or why it is refused.
    pub(super) fn for_each(
        &self,
        mut take: impl FnMut(usize, &str, std::result::Result<(KeyDigest, i64), Refused>),
    ) {
        let columns: Vec<&StringViewArray> = self.names.iter().collect();
        let mut name = String::new();
        for row in 0..self.times.len() {
            let has_name = write_key(&columns, row, &mut name) && !name.trim().is_empty();
            let time = match has_name {
                true => self.time(row),
                false => Err((Reason::NoEntity, String::new())),
            };
            take(row, &name, time.map(|time| (digest(name.as_bytes()), time)));
        }
    }

    fn time(&self, row: usize) -> std::result::Result<i64, Refused> {
        if self.times.is_null(row) {
            return Err((Reason::NoTime, String::new()));
        }
        let time = self.times.value(row);
        match (0..TIME_END_US).contains(&time) {
            true => Ok(time),
            false => Err((Reason::TimeOutOfRange, time_text(time))),
        }
    }

    /// Returns the names of the entities by row.
    fn into_names(self, joined: Vec<String>) -> Names {
        match <[StringViewArray; 1]>::try_from(self.names) {
            Ok([names]) => Names::Column(names),
            Err(_) => Names::Joined(joined),
        }
    }
}

/// The events of some rows.
pub(super) struct Parsed {
    /// The spilled bytes of the events of each form.
    pub records: Vec<Vec<u8>>,
    /// The events in the order of their rows.
    pub events: Vec<ParsedEvent>,
    /// What was seen in the rows.
    pub seen: Seen,
    names: Names,
}

/// The names of entities by row.
enum Names {
    Column(StringViewArray),
    Joined(Vec<String>),
}

/// The place of one event.
pub(super) struct ParsedEvent {
    pub partition: u32,
    pub row: u32,
    /// The place of the form in the layout.
    pub form: u8,
}

impl Parsed {
    /// Returns the name of the entity in a row of the batch.
    pub(super) fn name(&self, row: u32) -> &str {
        match &self.names {
            Names::Column(names) => names.value(row as usize),
            Names::Joined(names) => &names[row as usize],
        }
    }
}

/// Reads the events of some rows.
pub(super) fn parse(
    keys: &KeyColumns,
    values: &dyn ValueReader,
    rows: &Rows<'_>,
    layout: &Layout,
) -> Result<Parsed> {
    let keys = keys.read(rows)?;
    let values = values.read(rows)?;
    let count = rows.batch.num_rows();
    let mut seen = Seen::default();
    seen.dropped.see(count as u64);
    let categories = values.categories();
    let mut records = vec![Vec::new(); layout.forms.len()];
    let mut events = Vec::with_capacity(count);
    let mut joined = Vec::new();
    let mut record = Vec::new();
    keys.for_each(|row, name, key| {
        if keys.are_integers && keys.times.is_valid(row) {
            seen.times.see(keys.times.value(row));
        }
        let mut notes = Notes { dropped: &mut seen.dropped, row: rows.first + row as u64 };
        let stored = key.and_then(|(digest, time)| {
            record.clear();
            let form = values.append(row, time, &mut record, &mut notes)?;
            Ok((digest, time, layout.place_of(form)))
        });
        match stored {
            Ok((digest, time, place)) => {
                let of_form = &mut records[place];
                of_form.extend_from_slice(&digest.to_le_bytes());
                of_form.extend_from_slice(&time.to_le_bytes());
                of_form.extend_from_slice(&record);
                let partition = layout.partition_of(digest);
                events.push(ParsedEvent { partition, row: row as u32, form: place as u8 });
                seen.read.add(digest, categories.iter().copied(), row);
            }
            Err((reason, value)) => notes.note(reason, || value),
        }
        if keys.names.len() > 1 {
            joined.push(name.to_owned());
        }
    });
    seen.fields = values.seen();
    Ok(Parsed { records, events, seen, names: keys.into_names(joined) })
}
