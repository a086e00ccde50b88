//! One token row of an event store: its segments and measurements, as text and as a page.

use std::fmt::Write;

use serde::Serialize;

use super::cell::time_text;
use super::page::MARK;
use super::page::markup::escape;
use super::words::{count, plural};
use crate::error::Result;
use crate::events::{EventSampler, Field, Measurement, TokenTime, decode};
use crate::plan::Split;

/// One token row, decoded.
#[derive(Serialize)]
pub(crate) struct TokenPicture {
    database: String,
    root: String,
    split: &'static str,
    index: u64,
    epoch: u64,
    item: u64,
    items: u64,
    entity: String,
    sequence_length: u32,
    segments: Vec<Segment>,
}

/// One context.
#[derive(Serialize)]
struct Segment {
    /// Which measurements have a time: `full`, `partial` or `none`.
    times: &'static str,
    tokens: Vec<u16>,
    measurements: Vec<Measurement>,
}

impl Segment {
    fn of(tokens: Vec<u16>) -> Result<Self> {
        let measurements = decode(&tokens)?;
        let timed = measurements.iter().filter(|one| one.time.is_some()).count();
        let times = match timed {
            0 => "none",
            _ if timed == measurements.len() => "full",
            _ => "partial",
        };
        Ok(Self { times, tokens, measurements })
    }

    fn times_in_words(&self) -> &'static str {
        match self.times {
            "full" => "every time given",
            "partial" => "some times given",
            _ => "no time given",
        }
    }
}

impl TokenPicture {
    /// Returns the row at `index` of a split's stream.
    ///
    /// # Errors
    /// `InvalidArgument` when the split has no events; `Data` when the tokens are no measurements.
    pub(crate) fn new(sampler: &EventSampler, split: Split, index: u64) -> Result<Self> {
        let row = sampler.token_row(split, index)?;
        let store = sampler.store();
        Ok(Self {
            database: store.metadata().database.clone(),
            root: store.root().to_string(),
            split: split.name(),
            index,
            epoch: row.epoch,
            item: row.item,
            items: sampler.count(split),
            entity: row.entity,
            sequence_length: sampler.settings().sequence_length,
            segments: row.segments.into_iter().map(Segment::of).collect::<Result<_>>()?,
        })
    }

    fn token_count(&self) -> u64 {
        self.segments.iter().map(|segment| segment.tokens.len() as u64).sum()
    }

    /// Returns the row's name.
    pub(crate) fn title(&self) -> String {
        format!("{}: {} row {}", self.database, self.split, count(self.index))
    }

    fn place(&self) -> String {
        format!(
            "Epoch {}, item {} of {}, of {}",
            count(self.epoch),
            count(self.item),
            count(self.items),
            printable(&self.entity)
        )
    }

    /// Returns the row as text: a line for each measurement.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{}; {}: {}, {} of {} tokens\n",
            self.title(),
            self.place(),
            plural(self.segments.len() as u64, "segment"),
            count(self.token_count()),
            count(self.sequence_length.into())
        );
        for (number, segment) in (1..).zip(&self.segments) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "segment {number}: {}, {}, {}",
                plural(segment.tokens.len() as u64, "token"),
                plural(segment.measurements.len() as u64, "measurement"),
                segment.times_in_words()
            );
            for one in &segment.measurements {
                let _ = writeln!(
                    text,
                    "  {:>19}  {} -> {}  {}  ({})",
                    one.time.map_or_else(|| "-".to_owned(), time_of),
                    one.source,
                    one.destination,
                    result_of(one),
                    one.order.iter().map(|&field| name_of(field)).collect::<Vec<_>>().join(", ")
                );
            }
        }
        text
    }

    /// Returns the row as an HTML page that loads nothing else.
    pub(crate) fn page(&self) -> String {
        let free = u64::from(self.sequence_length) - self.token_count();
        let measurements: usize = self.segments.iter().map(|one| one.measurements.len()).sum();
        let numbers = [
            (self.segments.len() as u64, "segments"),
            (measurements as u64, "measurements"),
            (self.token_count(), "tokens"),
            (free, "padding"),
        ];
        let numbers: String = (numbers.iter())
            .map(|(number, what)| format!("<li><b>{}</b> {what}</li>", count(*number)))
            .collect();
        let page = format!(
            include_str!("tokens.html"),
            style = include_str!("page/style.css"),
            title = escape(&self.title()),
            place = escape(&self.place()),
            root = escape(&self.root),
            numbers = numbers,
            bar = self.bar(),
            segments = (1..).zip(&self.segments).map(segment_markup).collect::<String>(),
        );
        MARK.to_owned() + &page
    }

    /// Returns the segments as parts of a bar, each as wide as its tokens.
    fn bar(&self) -> String {
        let part = |(number, segment): (usize, &Segment)| {
            let width = segment.tokens.len() as f64 / f64::from(self.sequence_length) * 100.0;
            format!(
                "<i style=\"width:{width:.3}%;--h:{}\" title=\"segment {number}: {} tokens\"></i>",
                number * 47 % 360,
                segment.tokens.len()
            )
        };
        (1..).zip(&self.segments).map(part).collect()
    }
}

/// Returns a name as it is, or quoted where it has characters that a terminal would obey.
fn printable(name: &str) -> String {
    if name.contains(char::is_control) { format!("{name:?}") } else { name.to_owned() }
}

fn segment_markup((number, segment): (usize, &Segment)) -> String {
    let mut rows = String::new();
    let mut places = segment_starts(&segment.tokens);
    for one in &segment.measurements {
        let (start, end) = places.next().unwrap_or_default();
        let fields: String = one.order.iter().map(|&field| field_markup(one, field)).collect();
        let tokens: Vec<_> = segment.tokens[start..end].iter().map(u16::to_string).collect();
        let tokens = tokens.join(" ");
        let _ = write!(rows, "<tr><td>{fields}</td><td class=\"tokens\">{tokens}</td></tr>");
    }
    format!(
        "<h2>Segment {number}: {}, {}</h2><div class=\"scroll\"><table><tr><th>fields</th>\
         <th>tokens</th></tr>{rows}</table></div>",
        plural(segment.measurements.len() as u64, "measurement"),
        segment.times_in_words()
    )
}

/// Returns the range of the tokens of each measurement: it begins with the token 0, which no byte has.
fn segment_starts(tokens: &[u16]) -> impl Iterator<Item = (usize, usize)> {
    let starts: Vec<usize> =
        tokens.iter().enumerate().filter(|(_, token)| **token == 0).map(|(at, _)| at).collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([tokens.len()]).collect();
    starts.into_iter().zip(ends)
}

fn field_markup(one: &Measurement, field: Field) -> String {
    let (class, text) = match field {
        Field::Source => ("source", one.source.to_string()),
        Field::Destination => ("destination", one.destination.to_string()),
        Field::Result if one.rtt_ms.is_none() => ("failed", result_of(one)),
        Field::Result => ("result", result_of(one)),
        Field::Time => ("time", one.time.map_or_else(String::new, time_of)),
    };
    format!("<span class=\"field {class}\">{}</span>", escape(&text))
}

fn name_of(field: Field) -> &'static str {
    match field {
        Field::Source => "source",
        Field::Destination => "destination",
        Field::Result => "result",
        Field::Time => "time",
    }
}

fn result_of(one: &Measurement) -> String {
    one.rtt_ms.map_or_else(|| "failed".to_owned(), |rtt| format!("{rtt} ms"))
}

fn time_of(time: TokenTime) -> String {
    match time {
        TokenTime::Absolute(seconds) => {
            let micros = i64::try_from(seconds).ok().and_then(|s| s.checked_mul(1_000_000));
            micros.map_or_else(|| format!("{seconds} s"), time_text)
        }
        TokenTime::Since(seconds) => format!("+{} s", count(seconds.into())),
    }
}
