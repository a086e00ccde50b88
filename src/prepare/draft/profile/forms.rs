//! Recognises the forms of texts: numbers, times and words for NULL.

use arrow_array::timezone::Tz;
use arrow_cast::parse::string_to_datetime;

use super::distinct::canonical_integer;

/// The texts that some writers use for NULL.
pub(super) const MARKERS: [&str; 14] = [
    "NA", "N/A", "n/a", "NaN", "nan", "NULL", "Null", "null", "None", "none", "NaT", "#N/A", "-",
    "?",
];

/// Returns the integer of a text such as `7.0`.
pub(in crate::prepare::draft) fn without_point(text: &str) -> Option<&str> {
    text.strip_suffix(".0").filter(|integer| canonical_integer(integer).is_some())
}

pub(super) fn number(text: &str) -> Option<f64> {
    // Rust also parses texts such as "inf" as numbers.
    let begins = |b: &u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.');
    text.as_bytes().first().filter(|b| begins(b))?;
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Whether a text is a number with a decimal comma, with or without points between thousands.
pub(super) fn has_decimal_comma(text: &str) -> bool {
    text.split_once(',').is_some_and(|(whole, fraction)| {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        digits(fraction) && whole.trim_start_matches(['-', '+']).split('.').all(digits)
    })
}

/// Whether a number's text begins with a zero or a plus sign that a number would lose.
pub(super) fn is_coded(text: &str) -> bool {
    matches!(text.as_bytes(), [b'+', ..] | [b'0', b'0'..=b'9', ..])
}

pub(super) fn is_boolean_text(text: &str) -> bool {
    ["true", "false", "t", "f", "yes", "no"].iter().any(|known| text.eq_ignore_ascii_case(known))
}

/// Returns the point in time of a text, in microseconds.
pub(super) fn time(text: &str, zone: &Tz) -> Option<i64> {
    let shaped = text.len() >= 10
        && text.bytes().enumerate().take(10).all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    let time = shaped.then(|| string_to_datetime(zone, text).ok()).flatten()?;
    Some(time.timestamp_micros())
}

/// Whether a text looks like a date in an unsupported format: 1/5/2021, 5.1.2021, 2021/05/01.
pub(super) fn is_odd_date(text: &str) -> bool {
    let date = text.split([' ', 'T']).next().unwrap_or_default();
    let Some(separator) = date.chars().find(|c| matches!(c, '/' | '.' | '-')) else { return false };
    let parts: Vec<_> = date.split(separator).collect();
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_year = |part: &str| digits(part) && part.len() == 4;
    let is_part = |part: &str, most: u32| {
        digits(part) && part.len() <= 2 && (1..=most).contains(&part.parse().unwrap_or(0))
    };
    let are_day_and_month = |one: &str, other: &str| {
        (is_part(one, 31) && is_part(other, 12)) || (is_part(one, 12) && is_part(other, 31))
    };
    match parts[..] {
        [year, one, other] if is_year(year) => are_day_and_month(one, other),
        [one, other, year] => {
            // A year of two digits counts only after a slash: 1.2.3 may be a version number.
            let short = separator == '/' && digits(year) && year.len() == 2;
            (short || is_year(year)) && are_day_and_month(one, other)
        }
        _ => false,
    }
}
