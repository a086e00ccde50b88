//! One token row of an event store: its segments and events, as text and as a page.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::Serialize;

use super::cell::time_text;
use super::page::MARK;
use super::page::markup::escape;
use super::words::{count, plural, printable, quoted_if_unclear};
use crate::error::Result;
use crate::events::{DecodedEvent, DecodedField, EventSampler, EventStore, FieldValue, TokenTime};
use crate::plan::Split;

/// One token row, decoded.
#[derive(Serialize)]
pub struct TokenPicture {
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
    /// Which events have a time: `full`, `partial` or `none`.
    times: &'static str,
    tokens: Vec<u16>,
    events: Vec<DecodedEvent>,
}

impl Segment {
    fn of(store: &EventStore, tokens: Vec<u16>) -> Result<Self> {
        let events = store.decode(&tokens)?;
        let timed = events.iter().filter(|event| event.time().is_some()).count();
        let times = match timed {
            0 => "none",
            _ if timed == events.len() => "full",
            _ => "partial",
        };
        Ok(Self { times, tokens, events })
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
    /// `InvalidArgument` when the split has no events; `Data` when the tokens are no events.
    pub fn new(sampler: &EventSampler, split: Split, index: u64) -> Result<Self> {
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
            segments: (row.segments.into_iter())
                .map(|tokens| Segment::of(store, tokens))
                .collect::<Result<_>>()?,
        })
    }

    fn token_count(&self) -> u64 {
        self.segments.iter().map(|segment| segment.tokens.len() as u64).sum()
    }

    /// Returns the row's name.
    pub(crate) fn title(&self) -> String {
        format!("{}: {} row {}", printable(&self.database), self.split, count(self.index))
    }

    fn place(&self) -> String {
        format!(
            "epoch {}, item {} of {}, of {}",
            count(self.epoch),
            count(self.item),
            count(self.items),
            quoted_if_unclear(&self.entity)
        )
    }

    /// Returns the row as text: a line for each event, its fields in the order of the tokens.
    pub fn text(&self) -> String {
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
                plural(segment.events.len() as u64, "event"),
                segment.times_in_words()
            );
            for event in &segment.events {
                let time = event.time().map_or_else(|| "-".to_owned(), time_of);
                let fields: Vec<_> = event.fields.iter().map(field_text).collect();
                let _ = writeln!(text, "  {time:>19}  {}", fields.join(", "));
            }
        }
        text
    }

    /// Returns the row as an HTML page that loads nothing else.
    #[must_use]
    pub fn page(&self) -> String {
        let free = u64::from(self.sequence_length) - self.token_count();
        let events: usize = self.segments.iter().map(|one| one.events.len()).sum();
        let names = self.field_names();
        let numbers = [
            (self.segments.len() as u64, "segments"),
            (events as u64, "events"),
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
            fields = names.iter().map(|name| mark(&names, name, name, "")).collect::<String>(),
            segments = (1..)
                .zip(&self.segments)
                .map(|segment| segment_markup(segment, &names))
                .collect::<String>(),
        );
        MARK.to_owned() + &page
    }

    /// Returns the names of the fields, each once.
    fn field_names(&self) -> BTreeSet<&str> {
        let events = self.segments.iter().flat_map(|segment| &segment.events);
        events.flat_map(|event| &event.fields).map(|field| field.name.as_str()).collect()
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

fn segment_markup((number, segment): (usize, &Segment), names: &BTreeSet<&str>) -> String {
    let mut rows = String::new();
    let mut places = event_places(&segment.tokens);
    for event in &segment.events {
        let (start, end) = places.next().unwrap_or_default();
        let fields: String = event.fields.iter().map(|field| field_markup(names, field)).collect();
        let tokens: Vec<_> = segment.tokens[start..end].iter().map(u16::to_string).collect();
        let tokens = tokens.join(" ");
        let _ = write!(rows, "<tr><td>{fields}</td><td class=\"tokens\">{tokens}</td></tr>");
    }
    format!(
        "<h2>Segment {number}: {}, {}</h2><div class=\"scroll\"><table><tr><th>fields</th>\
         <th>tokens</th></tr>{rows}</table></div>",
        plural(segment.events.len() as u64, "event"),
        segment.times_in_words()
    )
}

/// Returns the range of the tokens of each event: it begins with the token 0, which stands nowhere else.
fn event_places(tokens: &[u16]) -> impl Iterator<Item = (usize, usize)> {
    let starts: Vec<usize> =
        tokens.iter().enumerate().filter(|(_, token)| **token == 0).map(|(at, _)| at).collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([tokens.len()]).collect();
    starts.into_iter().zip(ends)
}

fn field_markup(names: &BTreeSet<&str>, field: &DecodedField) -> String {
    let kind = if field.value == FieldValue::Failed { " failed" } else { "" };
    mark(names, &field.name, &value_text(&field.value), kind)
}

/// Returns a value with the colour of its field.
fn mark(names: &BTreeSet<&str>, name: &str, value: &str, kind: &str) -> String {
    let place = names.iter().take_while(|known| **known != name).count();
    format!(
        "<span class=\"field{kind}\" style=\"--h:{}\" title=\"{}\">{}</span>",
        (place * 67 + 210) % 360,
        escape(name),
        escape(value)
    )
}

fn field_text(field: &DecodedField) -> String {
    match &field.value {
        FieldValue::Time(_) => printable(&field.name),
        value => format!("{} {}", printable(&field.name), value_text(value)),
    }
}

fn value_text(value: &FieldValue) -> String {
    match value {
        FieldValue::Text(text) => quoted_if_unclear(text),
        FieldValue::Time(time) => time_of(*time),
        FieldValue::SecondsLater(seconds) => seconds_later(*seconds),
        other => other.to_string(),
    }
}

fn seconds_later(seconds: f64) -> String {
    let (sign, digits) = (if seconds < 0.0 { '-' } else { '+' }, seconds.abs().to_string());
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    format!("{sign}{whole}{fraction} s")
}

fn time_of(time: TokenTime) -> String {
    match time {
        TokenTime::Absolute(seconds) => {
            let micros = i64::try_from(seconds).ok().and_then(|s| s.checked_mul(1_000_000));
            micros.map_or_else(|| format!("{} s", count(seconds)), time_text)
        }
        TokenTime::Since(seconds) => format!("+{} s", count(seconds.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_apart_and_obey_no_terminal() {
        let text = |name: &str, value| field_text(&DecodedField { name: name.to_owned(), value });
        let words = |words: &str| FieldValue::Text(words.to_owned());
        assert_eq!(text("shop", words("7 to 9")), "shop 7 to 9");
        assert_eq!(text("shop", words("a, note b")), "shop \"a, note b\"");
        assert_eq!(text("note", words(" ")), "note \" \"");
        assert_eq!(text("a\u{1b}[2J", FieldValue::Number(1.5)), "\"a\\u{1b}[2J\" 1.5");
        for (seconds, shown) in [
            (691_200.0, "+691,200 s"),
            (-1_234.5, "-1,234.5 s"),
            (0.0, "+0 s"),
            (1e13, "+10,000,000,000,000 s"),
        ] {
            let later = FieldValue::SecondsLater(seconds);
            assert_eq!(text("due", later), format!("due {shown}"));
        }
    }
}
