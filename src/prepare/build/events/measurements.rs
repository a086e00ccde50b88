//! Reads measurements of round trips from the columns of a source, for the codec `latency-v1`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrow_array::{Array, Float64Array, StringViewArray};

use super::categories::Category;
use super::columns::{Columns, Rows};
use super::dropped::{Notes, Reason};
use super::log::{Refused, RowValues, ValueReader};
use super::seen::FieldsSeen;
use crate::error::Result;
use crate::events::latency::{V4, V6, rtt_code};
use crate::prepare::schema::Events;

/// The columns of measurements.
pub(super) struct Measurements {
    destination: usize,
    source: usize,
    family: Option<usize>,
    result: usize,
}

impl Measurements {
    pub(super) fn new(events: &Events, columns: &mut Columns) -> Self {
        let field = |name| events.column(name).unwrap_or_default();
        Self {
            destination: columns.place(field("dst")),
            // Of several columns of an entity, the schema's check wants a source.
            source: columns.place(events.column("src").unwrap_or(&events.entity[0])),
            family: events.column("family").map(|name| columns.place(name)),
            result: columns.place(field("rtt")),
        }
    }
}

impl ValueReader for Measurements {
    fn read<'a>(&'a self, rows: &Rows<'_>) -> Result<Box<dyn RowValues + 'a>> {
        Ok(Box::new(Values {
            destinations: rows.texts(self.destination)?,
            sources: rows.texts(self.source)?,
            families: match self.family {
                Some(place) => Some(rows.numbers(place, "4 or 6")?),
                None => None,
            },
            results: rows.numbers(self.result, "a number of milliseconds")?,
        }))
    }
}

/// The values of measurements.
struct Values {
    destinations: StringViewArray,
    sources: StringViewArray,
    families: Option<Float64Array>,
    results: Float64Array,
}

impl RowValues for Values {
    fn append(
        &self,
        row: usize,
        _: i64,
        record: &mut Vec<u8>,
        notes: &mut Notes<'_>,
    ) -> std::result::Result<u16, Refused> {
        let Measured { source, destination, code, is_blank } = self.measured(row)?;
        if is_blank {
            notes.note(Reason::BlankAddress, String::new);
        }
        append_address(destination, record);
        record.extend_from_slice(&code.to_le_bytes());
        append_address(source, record);
        Ok(if destination.is_ipv4() { V4 } else { V6 })
    }

    fn categories(&self) -> Vec<&Category> {
        Vec::new()
    }

    fn seen(&self) -> FieldsSeen {
        FieldsSeen::default()
    }
}

/// An event that can be stored.
struct Measured {
    source: IpAddr,
    destination: IpAddr,
    code: u16,
    is_blank: bool,
}

impl Values {
    /// Returns the event in `row`, or the reason why it is dropped, with the value.
    fn measured(&self, row: usize) -> std::result::Result<Measured, Refused> {
        let because = |reason| (reason, String::new());
        if self.results.is_null(row) {
            return Err(because(Reason::NoResult));
        }
        // The precision in which such logs are kept; more would never be seen in a code.
        let result = f64::from(self.results.value(row) as f32);
        if result.is_nan() {
            return Err(because(Reason::ResultIsNan));
        }
        let code = rtt_code(result);
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
        Ok(Measured { source, destination, code, is_blank })
    }
}

/// Returns the address in `row`; none where it is NULL or blank.
fn address(texts: &StringViewArray, row: usize) -> std::result::Result<Option<IpAddr>, Refused> {
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

/// Appends the bytes of an address, in network order.
fn append_address(address: IpAddr, bytes: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => bytes.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes.extend_from_slice(&address.octets()),
    }
}
