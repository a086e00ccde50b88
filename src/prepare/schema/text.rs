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

/// Returns the message about an error of TOML in `text`: its place, and the nearest known name.
pub(super) fn explain(text: &str, error: &toml::de::Error) -> String {
    let message = in_plain_words(&error.message().trim_end().replace('\n', "; "));
    let Some(span) = error.span() else { return message };
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: {message}")
}

/// Returns a message of serde in the words of a schema file, with a remedy where there is one.
fn in_plain_words(message: &str) -> String {
    // unknown field `colums`, expected one of `name`, `columns`
    if message.starts_with("unknown ") {
        let mut quoted = message.split('`').skip(1).step_by(2);
        let unknown = quoted.next().unwrap_or_default();
        let known: Vec<&str> = quoted.collect();
        if let Some(near) = suggest(unknown, known.iter().copied()) {
            return format!("{message}; did you mean `{near}`?");
        }
        let section = SECTIONS.iter().find(|(name, _)| known.contains(name));
        return match section.filter(|(_, fields)| fields.contains(&unknown)) {
            Some((name, _)) => {
                format!("`{unknown}` belongs into `{name}`: {name} = {{ {unknown} = ... }}")
            }
            None => message.to_owned(),
        };
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        return format!("the field {field} is missing; add {} = ...", field.trim_matches('`'));
    }
    // invalid type: string "30 days", expected a sequence
    let found_and_expected = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))
        .and_then(|rest| rest.split_once(", expected "));
    let Some((found, expected)) = found_and_expected else { return message.to_owned() };
    let named = |word: &str| {
        let names = [
            ("sequence", "list in square brackets"),
            ("map", "table in braces"),
            ("floating point ", "number "),
        ];
        names.iter().fold(word.to_owned(), |word, (from, to)| word.replace(from, to))
    };
    let (expected, found) = (named(expected), named(found));
    // A date without quotes is a table to serde.
    if expected == "a string" && found == "table in braces" {
        return "expected a string in quotes, such as \"2020-01-31\", found a date or a table"
            .into();
    }
    format!("expected {expected}, found {found}")
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
