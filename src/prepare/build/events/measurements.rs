//! Reads measurements of round trips from the columns of a source, for the codec `latency-v1`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrow_array::{Array, Float64Array, Int64Array, RecordBatch, StringViewArray};

use super::dropped::{Dropped, Reason};
use super::layout::Layout;
use crate::error::{Context, Error, Result};
use crate::events::latency::{V4, V6, code_of};
use crate::prepare::build::keys::{digest, write_key};
use crate::prepare::schema::{Column, Events};
use crate::prepare::values::{BadValues, Normalised, Values, any_numbers, to_texts};

/// The end of the times that are stored: 2200-01-01. They begin with 1970.
const TIME_END_US: i64 = 7_258_118_400 * 1_000_000;

/// Reads the events of batches.
pub(super) struct Reader {
    columns: Vec<String>,
    entity: Vec<usize>,
    time: (usize, Column),
    destination: usize,
    source: usize,
    family: Option<usize>,
    result: usize,
}

/// The events of one batch.
pub(super) struct Parsed {
    /// The spilled bytes of the events of each form.
    pub records: Vec<Vec<u8>>,
    /// The events in the order of their rows.
    pub events: Vec<ParsedEvent>,
    /// Those that were dropped.
    pub dropped: Dropped,
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

/// The values of a batch.
struct Fields {
    times: Int64Array,
    destinations: StringViewArray,
    sources: StringViewArray,
    families: Option<Float64Array>,
    results: Float64Array,
}

impl Reader {
    pub(super) fn new(events: &Events) -> Self {
        let mut columns: Vec<String> = Vec::new();
        let mut place = |name: &str| {
            columns.iter().position(|known| known == name).unwrap_or_else(|| {
                columns.push(name.to_owned());
                columns.len() - 1
            })
        };
        let field = |name| events.column(name).unwrap_or_default();
        let entity: Vec<usize> = events.entity.iter().map(|name| place(name)).collect();
        Self {
            time: (place(&events.time.column), events.time.as_column()),
            destination: place(field("dst")),
            source: events.column("src").map_or(entity[0], &mut place),
            family: events.column("family").map(&mut place),
            result: place(field("rtt")),
            entity,
            columns,
        }
    }

    /// Returns the columns that are read.
    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Reads the events of a batch whose first row is `first_row` of the source.
    pub(super) fn parse(
        &self,
        batch: &RecordBatch,
        first_row: u64,
        layout: &Layout,
    ) -> Result<Parsed> {
        let texts = |place: usize| {
            to_texts(batch.column(place)).context(|| format!("column {:?}", self.columns[place]))
        };
        let keys = self.entity.iter().map(|&place| texts(place)).collect::<Result<Vec<_>>>()?;
        let values = Fields {
            times: self.times(batch, first_row)?,
            destinations: texts(self.destination)?,
            sources: texts(self.source)?,
            families: match self.family {
                Some(place) => Some(self.numbers(batch, place, first_row, "4 or 6")?),
                None => None,
            },
            results: self.numbers(batch, self.result, first_row, "a number of milliseconds")?,
        };
        let rows = batch.num_rows();
        let mut dropped = Dropped::default();
        dropped.see(rows as u64);
        let mut parsed = Parsed {
            records: vec![Vec::new(); layout.forms.len()],
            events: Vec::with_capacity(rows),
            dropped,
            names: Names::Joined(Vec::new()),
        };
        let columns: Vec<&StringViewArray> = keys.iter().collect();
        let mut joined = Vec::new();
        let mut key = String::new();
        for row in 0..rows {
            let has_key = write_key(&columns, row, &mut key) && !key.trim().is_empty();
            let read = match has_key {
                true => values.event(row),
                false => Err((Reason::NoEntity, String::new())),
            };
            match read {
                Ok(event) => {
                    if event.is_blank {
                        parsed.dropped.note(
                            Reason::BlankAddress,
                            first_row + row as u64,
                            String::new,
                        );
                    }
                    event.push(digest(key.as_bytes()), row, layout, &mut parsed);
                }
                Err((reason, value)) => {
                    parsed.dropped.note(reason, first_row + row as u64, || value);
                }
            }
            if columns.len() > 1 {
                joined.push(key.clone());
            }
        }
        parsed.names = match <[StringViewArray; 1]>::try_from(keys) {
            Ok([names]) => Names::Column(names),
            Err(_) => Names::Joined(joined),
        };
        Ok(parsed)
    }

    fn times(&self, batch: &RecordBatch, first_row: u64) -> Result<Int64Array> {
        let (place, column) = &self.time;
        let read = Values::read(batch.column(*place), column);
        match self.checked(read, *place, first_row)? {
            Values::Times(times) => Ok(times),
            _ => Err(Error::schema("expected times")),
        }
    }

    fn numbers(
        &self,
        batch: &RecordBatch,
        place: usize,
        first_row: u64,
        expected: &'static str,
    ) -> Result<Float64Array> {
        self.checked(any_numbers(batch.column(place), expected), place, first_row)
    }

    /// Rejects a column with values of another kind, which no share of dropped events excuses.
    fn checked<T>(&self, read: Normalised<T>, place: usize, first_row: u64) -> Result<T> {
        let column = || format!("column {:?}", self.columns[place]);
        let bad: BadValues = match read.context(column)? {
            Ok(values) => return Ok(values),
            Err(bad) => bad,
        };
        let message = format!(
            "expected {}, found {:?} in row {}; correct the data, or name another column",
            bad.expected,
            bad.value,
            first_row + bad.row + 1
        );
        Err(Error::data(message)).context(column)
    }
}

/// An event that can be stored.
struct Measured {
    time: i64,
    source: IpAddr,
    destination: IpAddr,
    code: u16,
    is_blank: bool,
}

impl Fields {
    /// Returns the event in `row`, or the reason why it is dropped, with the value.
    fn event(&self, row: usize) -> std::result::Result<Measured, (Reason, String)> {
        let because = |reason| (reason, String::new());
        if self.times.is_null(row) {
            return Err(because(Reason::NoTime));
        }
        let time = self.times.value(row);
        if !(0..TIME_END_US).contains(&time) {
            return Err((Reason::TimeOutOfRange, format!("{time} microseconds since 1970")));
        }
        if self.results.is_null(row) {
            return Err(because(Reason::NoResult));
        }
        // The precision in which such logs are kept; more would never be seen in a code.
        let result = f64::from(self.results.value(row) as f32);
        if result.is_nan() {
            return Err(because(Reason::ResultIsNan));
        }
        let code = code_of(result);
        let code = code.ok_or_else(|| (Reason::ResultTooLong, format!("{result}")))?;
        let source = address(&self.sources, row)?;
        let destination = address(&self.destinations, row)?;
        let family = self.families.as_ref().filter(|families| families.is_valid(row));
        let family = match family.map(|families| families.value(row)) {
            None => destination.or(source).map(|known| known.is_ipv4()),
            Some(4.0) => Some(true),
            Some(6.0) => Some(false),
            Some(other) => return Err((Reason::Family, format!("family {other}"))),
        };
        let Some(is_v4) = family else {
            return Err((Reason::Family, "two blank addresses without a family".to_owned()));
        };
        let unspecified = match is_v4 {
            true => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            false => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let is_blank = source.is_none() || destination.is_none();
        let (source, destination) =
            (source.unwrap_or(unspecified), destination.unwrap_or(unspecified));
        if source.is_ipv4() != is_v4 || destination.is_ipv4() != is_v4 {
            return Err((Reason::Family, format!("{source} and {destination}")));
        }
        Ok(Measured { time, source, destination, code, is_blank })
    }
}

/// Returns the address in `row`; none where it is NULL or blank.
fn address(
    texts: &StringViewArray,
    row: usize,
) -> std::result::Result<Option<IpAddr>, (Reason, String)> {
    if texts.is_null(row) {
        return Ok(None);
    }
    let text = texts.value(row).trim();
    if text.is_empty() {
        return Ok(None);
    }
    // The parser of either family would try IPv4 first.
    let parsed = match text.as_bytes().contains(&b':') {
        true => text.parse().map(IpAddr::V6),
        false => text.parse().map(IpAddr::V4),
    };
    parsed.map(Some).map_err(|_| (Reason::Address, format!("{text:?}")))
}

impl Measured {
    /// Appends the event to those of its form: digest, time, value and head.
    fn push(&self, digest: u128, row: usize, layout: &Layout, parsed: &mut Parsed) {
        let form = if self.destination.is_ipv4() { V4 } else { V6 };
        let place = layout.forms.iter().position(|(known, ..)| *known == form).unwrap_or_default();
        let record = &mut parsed.records[place];
        record.extend_from_slice(&digest.to_le_bytes());
        record.extend_from_slice(&self.time.to_le_bytes());
        append_address(self.destination, record);
        record.extend_from_slice(&self.code.to_le_bytes());
        append_address(self.source, record);
        parsed.events.push(ParsedEvent {
            partition: layout.partition_of(digest),
            row: row as u32,
            form: place as u8,
        });
    }
}

/// Appends the bytes of an address, in network order.
fn append_address(address: IpAddr, bytes: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => bytes.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes.extend_from_slice(&address.octets()),
    }
}
