//! Parses values of a schema file: delays and lists of names; explains errors of TOML.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::prepare::names::suggest;

/// A delay in microseconds; in a schema file a whole number and a unit: `1 day`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delay(pub i64);

/// The units of a delay: their names, the first ones for output, and their microseconds.
const UNITS: [(&[&str], i64); 7] = [
    (&["week", "weeks", "w"], 7 * 86_400_000_000),
    (&["day", "days", "d"], 86_400_000_000),
    (&["hour", "hours", "h"], 3_600_000_000),
    (&["minute", "minutes", "min"], 60_000_000),
    (&["second", "seconds", "s"], 1_000_000),
    (&["ms", "millisecond", "milliseconds"], 1_000),
    (&["us", "microsecond", "microseconds"], 1),
];

/// A description of delays for messages.
const DELAYS: &str =
    "a time such as \"30 days\", \"12 hours\", \"30 minutes\", \"90 s\" or \"5 ms\"";

/// The longest delay: 100 years. A longer one is a slip.
const LONGEST: Delay = Delay(36_525 * 86_400_000_000);

impl Delay {
    /// Whether the delay is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// Parses the text form; `expected` describes it in the message of an error.
    pub(super) fn parse(text: &str, expected: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let unit = unit.trim().to_ascii_lowercase();
        let size = UNITS.iter().find(|(names, _)| names.contains(&unit.as_str()));
        let (Ok(number), Some(&(_, size))) = (number.parse::<i64>(), size) else {
            let hint = match unit.trim_end_matches('s') {
                "month" => "; a month has no fixed length, write days: \"30 days\"",
                "year" => "; a year has no fixed length, write days: \"365 days\"",
                _ => "",
            };
            return Err(format!("expected {expected}, found {text:?}{hint}"));
        };
        let total = number.checked_mul(size).map(Self).filter(|total| *total <= LONGEST);
        total.ok_or_else(|| {
            format!("expected at most 100 years (\"36525 days\"), found {text:?}; correct it")
        })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |size: i64| self.0 % size == 0;
        // Every unit divides zero; it is written in the smallest one.
        let found = UNITS.iter().find(|&&(_, size)| fits(size) && !self.is_zero());
        let Some(&(names, size)) = found else { return write!(f, "0 us") };
        let number = self.0 / size;
        let plural = number != 1 && !matches!(names[0], "ms" | "us");
        write!(f, "{number} {}", names[usize::from(plural)])
    }
}

impl Serialize for Delay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Delay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DelayVisitor)
    }
}

struct DelayVisitor;

impl de::Visitor<'_> for DelayVisitor {
    type Value = Delay;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DELAYS)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Delay, E> {
        Delay::parse(text, DELAYS).map_err(E::custom)
    }
}

/// A list of names; a list of one may be written as a string.
pub(super) mod one_or_many {
    use std::fmt;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub(in super::super) fn serialize<S: Serializer>(
        names: &[String],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match names {
            [name] => name.serialize(serializer),
            names => names.serialize(serializer),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<String>, D::Error> {
        deserializer.deserialize_any(Names)
    }

    struct Names;

    impl<'de> de::Visitor<'de> for Names {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a column name or a list of column names")
        }

        fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
            Ok(vec![name.to_owned()])
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(de::value::SeqAccessDeserializer::new(seq))
        }
    }
}

/// Whether a flag has its default value and need not be written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Returns the message about an error of TOML in `text`: its place, its table or task, its field, and the
/// nearest known name.
pub(super) fn explain(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim_end().replace('\n', "; ");
    let Some(span) = error.span() else { return in_plain_words(&message, &Place::default()) };
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    // Under a wrong header, the fields of one section meet those of the section before it.
    if message == "duplicate key"
        && let Some((line, message)) = wrong_header(text)
    {
        return format!("line {line}, column 1: {message}");
    }
    let own = before.rsplit('\n').next().unwrap_or_default();
    let column = own.chars().count() + 1;
    let place = Place {
        line: text.lines().nth(line - 1).unwrap_or_default().trim(),
        field: own.trim_end().strip_suffix('=').map_or("", last_word),
        found: text.get(span).unwrap_or_default(),
    };
    let section = section(text, line).map_or_else(String::new, |section| format!("{section}: "));
    format!("line {line}, column {column}: {section}{}", in_plain_words(&message, &place))
}

/// The place of an error in a schema file.
#[derive(Default)]
pub(super) struct Place<'a> {
    /// The line, without the spaces around it.
    pub line: &'a str,
    /// The field whose value is wrong; empty if the error is not about a value.
    pub field: &'a str,
    /// The part of the text that is wrong.
    pub found: &'a str,
}

/// Returns the last word of a text: `time` of `{ name = "a", time`.
fn last_word(text: &str) -> &str {
    let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    text.trim_end().rsplit(|c| !is_of_word(c)).next().unwrap_or_default()
}

/// Returns the table, task, aggregate or summary in which a line lies: `table "orders"`.
pub(super) fn section(text: &str, line: usize) -> Option<String> {
    let is_header = |line: &&str| line.trim_start().starts_with('[') && !line.contains('.');
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.get(..line)?.iter().rposition(is_header)?;
    let header = lines[start].trim().strip_prefix("[[")?.split(']').next()?;
    let kind = MANY.into_iter().find(|kind| *kind == header)?;
    let name_field = if matches!(kind, "table" | "task") { "name" } else { "table" };
    let mut own = lines[start + 1..].iter().take_while(|line| !is_header(line));
    let name = own.find_map(|line| {
        let (field, value) = line.split_once('=')?;
        let value = value.trim().strip_prefix(['"', '\''])?;
        (field.trim() == name_field).then(|| value.split(['"', '\'']).next())?
    })?;
    let of = if matches!(kind, "table" | "task") { "" } else { " of" };
    Some(format!("{kind}{of} {name:?}"))
}

/// Returns a message of serde in the words of a schema file, with a remedy where there is one.
pub(super) fn in_plain_words(message: &str, place: &Place<'_>) -> String {
    if let Some(message) = wrong_brackets(message, place.line) {
        return message;
    }
    // unknown field `colums`, expected one of `name`, `columns`
    if message.starts_with("unknown ") {
        return unknown_name(message, place);
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        return format!("the field {field} is missing; add {} = ...", field.trim_matches('`'));
    }
    let of_field = match place.field {
        "" => String::new(),
        field => format!("{field}: "),
    };
    match message {
        "duplicate key" => {
            let name = place.found.trim_matches(['"', '\'']);
            return format!("expected each name once, found a second {name:?}; remove one");
        }
        "invalid mantissa, expected digits" => {
            return format!(
                "{of_field}expected digits before and after the point; write 0.9, not .9"
            );
        }
        "wanted string or table" => {
            return format!("{of_field}expected a word in quotes, found another value; correct it");
        }
        _ if message.starts_with("wanted exactly 1 element") => {
            return format!(
                "{of_field}expected one of {{ delay = \"...\" }} and {{ at = \"...\" }}, found {}; give one",
                if message.contains("found 0") { "neither" } else { "both" }
            );
        }
        _ => {}
    }
    // invalid type: string "30 days", expected a sequence
    let found_and_expected = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))
        .and_then(|rest| rest.split_once(", expected "));
    let Some((found, expected)) = found_and_expected else { return message.to_owned() };
    let found = named(found);
    // A date without quotes is a table to serde.
    if expected == "a string" && found == "table in braces" {
        return format!(
            "{of_field}expected a string in quotes, such as \"2020-01-31\", found a date or a table"
        );
    }
    let (expected, remedy) = expected_and_remedy(expected, &found, place);
    format!("{of_field}expected {expected}, found {found}{remedy}")
}

/// Returns a name of serde for a kind of value in the words of a schema file.
fn named(word: &str) -> String {
    let names = [
        ("sequence", "list in square brackets"),
        ("map", "table in braces"),
        ("floating point ", "number "),
    ];
    names.iter().fold(word.to_owned(), |word, (from, to)| word.replace(from, to))
}

/// Returns what serde expected and what to do, in the words of a schema file.
fn expected_and_remedy(expected: &str, found: &str, place: &Place<'_>) -> (String, String) {
    const WRITTEN: [(&str, &str); 4] = [
        ("struct Predict", "[task.predict]"),
        ("struct DerivedTask", "[task.derived]"),
        ("struct Limits", "[limits]"),
        ("struct Events", "[events]"),
    ];
    if let Some((_, section)) = WRITTEN.iter().find(|(name, _)| *name == expected) {
        let remedy = format!("; write {section} and its fields below it");
        return (format!("the section {section}"), remedy);
    }
    let given = found.strip_prefix("string ").unwrap_or("\"...\"");
    match expected {
        "struct Time" => (
            "{ column = \"...\" } or { through = \"...\" }".to_owned(),
            format!("; write {{ column = {given} }}"),
        ),
        "struct Reference" => (
            "{ columns = \"...\", to = \"...\" }".to_owned(),
            format!(
                "; write {{ columns = {given}, to = \"...\" }} with the table that it refers to"
            ),
        ),
        "struct CellTask" => (
            "{ table = \"...\", column = \"...\" }".to_owned(),
            format!("; write {{ table = \"...\", column = {given} }}"),
        ),
        "u32" | "u64" | "usize" => {
            let most = if expected == "u32" { u64::from(u32::MAX) } else { u64::MAX };
            let remedy = match found.starts_with("integer") {
                true => "; choose one of these",
                false => "; write it without quotes and without a point",
            };
            (format!("a whole number from 0 to {most}"), remedy.to_owned())
        }
        "i64" | "i32" => (
            "a whole number".to_owned(),
            "; write it without quotes and without a point".to_owned(),
        ),
        "f64" | "f32" => ("a number".to_owned(), "; write it without quotes".to_owned()),
        "a boolean" => ("true or false".to_owned(), "; write it without quotes".to_owned()),
        "a sequence" if place.field == "references" => (
            "a list in square brackets".to_owned(),
            "; write references = [{ columns = \"...\", to = \"...\" }]".to_owned(),
        ),
        "a map" if place.field == "columns" => (
            "the types of the columns in braces".to_owned(),
            "; write columns = { id = \"identifier\" } with a type for each column".to_owned(),
        ),
        other => match other.strip_prefix("struct ") {
            Some(_) => ("a table in braces, { field = ... }".to_owned(), String::new()),
            None => (named(other), String::new()),
        },
    }
}

/// Returns the message about brackets of a section: some may be there several times, others once.
fn wrong_brackets(message: &str, line: &str) -> Option<String> {
    const ONE: [&str; 10] = [
        "limits",
        "events",
        "events.columns",
        "events.fields",
        "events.split",
        "table.columns",
        "table.time",
        "task.cell",
        "task.derived",
        "task.predict",
    ];
    let header = line.strip_prefix('[')?;
    let (name, is_double) = match header.strip_prefix('[') {
        Some(rest) => (rest.split(']').next()?, true),
        None => (header.split(']').next()?, false),
    };
    // The other errors of a section are about its fields.
    let is_of_type = message.starts_with("invalid type");
    if is_double && ONE.contains(&name) && is_of_type {
        return Some(format!(
            "expected [{name}] in single brackets, because there is one, found [[{name}]]; write [{name}]"
        ));
    }
    let is_list = message.ends_with("expected a sequence");
    (!is_double && MANY.contains(&name) && is_list).then(|| single_brackets(name))
}

/// The sections of a schema that there may be several of, in double brackets.
const MANY: [&str; 4] = ["table", "task", "aggregate", "summary"];
/// The sections of a schema, as they are written.
const HEADERS: [&str; 6] =
    ["[[table]]", "[[task]]", "[[aggregate]]", "[[summary]]", "[limits]", "[events]"];

fn single_brackets(name: &str) -> String {
    format!(
        "expected [[{name}]] in double brackets, because there may be several, found [{name}]; write \
         [[{name}]]"
    )
}

/// Returns the number of the first header that names no section or has the wrong brackets, and what is
/// wrong with it.
fn wrong_header(text: &str) -> Option<(usize, String)> {
    let names = HEADERS.map(|header| header.trim_matches(['[', ']']));
    text.lines().zip(1..).find_map(|(line, number)| {
        let line = line.trim();
        let header = line.strip_prefix('[')?;
        let inner = header.trim_start_matches('[').split(']').next()?.trim();
        let section = inner.split('.').next()?.trim();
        let message = if !names.contains(&section) {
            unknown_section(line, suggest(section, names))
        } else if MANY.contains(&inner) && !header.starts_with('[') {
            single_brackets(inner)
        } else {
            return None;
        };
        Some((number, message))
    })
}

/// Returns the message about a header of no section, with the section that is meant.
fn unknown_section(line: &str, near: Option<&str>) -> String {
    let is_near = |header: &&&str| Some(header.trim_matches(['[', ']'])) == near;
    let remedy = HEADERS
        .iter()
        .find(is_near)
        .map_or_else(|| "remove it".to_owned(), |header| format!("write {header}"));
    format!("expected one of the sections {}, found {line}; {remedy}", HEADERS.join(", "))
}

/// Returns the message about a name that serde does not know, with the nearest that it knows.
fn unknown_name(message: &str, place: &Place<'_>) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.collect();
    let near = suggest(unknown, known.iter().copied());
    if known == ["delay", "at"] && place.field == "known" {
        return match unknown.starts_with(|c: char| c.is_ascii_digit()) {
            true => format!(
                "known: expected {{ delay = \"...\" }} or {{ at = \"...\" }}, found {unknown:?}; write {{ delay = \
                 {unknown:?} }}"
            ),
            false if !place.line.contains(&format!("{unknown} =")) => format!(
                "known: expected {{ delay = \"...\" }} or {{ at = \"...\" }}, found {unknown:?}; write {{ at = \
                 {unknown:?} }}"
            ),
            false => with_nearest(message, place, near),
        };
    }
    if place.line.starts_with('[') && place.line.contains(unknown) {
        if known.contains(&"database") {
            return unknown_section(place.line, near);
        }
        let remedy = near.map_or("remove it".to_owned(), |near| format!("did you mean {near:?}?"));
        let known: Vec<_> = known.iter().map(|name| format!("{name:?}")).collect();
        return format!(
            "expected a section with one of the names {}, found {}; {remedy}",
            known.join(", "),
            place.line
        );
    }
    if near.is_some() {
        return with_nearest(message, place, near);
    }
    let section = SECTIONS.iter().find(|(name, _)| known.contains(name));
    match section.filter(|(_, fields)| fields.contains(&unknown)) {
        Some((name, _)) => {
            format!("`{unknown}` belongs into `{name}`: {name} = {{ {unknown} = ... }}")
        }
        None => with_nearest(message, place, None),
    }
}

/// Returns a message about an unknown name in our words, with the one that is meant.
fn with_nearest(message: &str, place: &Place<'_>, near: Option<&str>) -> String {
    let remedy = near.map_or("correct it".to_owned(), |near| format!("did you mean `{near}`?"));
    let Some((found, expected)) = message.split_once(", expected ") else {
        return format!("{message}; {remedy}");
    };
    let unknown = found.split('`').nth(1).unwrap_or_default();
    match (found.starts_with("unknown field"), place.field) {
        (true, _) => {
            let expected = expected.replacen("one of", "one of the fields", 1);
            format!("expected {expected}, found `{unknown}`; {remedy}")
        }
        (false, "") => format!("expected {expected}, found `{unknown}`; {remedy}"),
        (false, field) => format!("{field}: expected {expected}, found `{unknown}`; {remedy}"),
    }
}

/// Fields that are written into a section of a task or table, not beside it.
const SECTIONS: [(&str, &[&str]); 3] = [
    (
        "derived",
        &["anchor", "source", "sql", "key", "time", "target", "type", "scale", "split", "horizon"],
    ),
    ("predict", &["what", "of", "where", "every", "active_within", "train_until", "val_until"]),
    ("time", &["column", "through", "delay"]),
];
