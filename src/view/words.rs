//! Counts, sizes and rates as text.

/// Returns a count with thousands separators: 12,345.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a count with its noun in the singular or plural.
#[cfg(feature = "reduce")]
pub(crate) fn plural(number: u64, what: &str) -> String {
    match (number, what) {
        (1, _) => format!("1 {what}"),
        (_, "category") => format!("{} categories", count(number)),
        _ => format!("{} {what}s", count(number)),
    }
}

/// Returns a number of entities with the noun.
#[cfg(feature = "cli")]
pub(crate) fn entities(number: u64) -> String {
    if number == 1 { "1 entity".to_owned() } else { format!("{} entities", count(number)) }
}

/// Returns a name as it is, or quoted where it has characters that a terminal would obey.
#[cfg(feature = "cli")]
pub(crate) fn printable(name: &str) -> String {
    if name.contains(is_obeyed) { format!("{name:?}") } else { name.to_owned() }
}

/// Whether a terminal obeys a character: a control character, or one that turns the direction of text.
#[cfg(feature = "cli")]
fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns a value as it is, or quoted where it could not be told from what is around it.
#[cfg(feature = "cli")]
pub(crate) fn quoted_if_unclear(value: &str) -> String {
    let is_unclear = |c: char| is_obeyed(c) || matches!(c, ',' | '"');
    match value.is_empty() || value.trim() != value || value.contains(is_unclear) {
        true => format!("{value:?}"),
        false => value.to_owned(),
    }
}

/// Returns the first characters of a text; … stands for the rest.
#[cfg(feature = "cli")]
#[must_use]
pub fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns a number with at most six digits, or with all those before its point: 23.9286, 1234568.
#[cfg(feature = "cli")]
pub(crate) fn significant(value: f64) -> String {
    let rounded: f64 = match value.abs() < 1e6 {
        true => format!("{value:.5e}").parse().unwrap_or(value),
        false => value.round(),
    };
    // Turns minus zero, the mean of values that cancel, into zero.
    (rounded + 0.0).to_string()
}

/// Returns a number of bytes with a unit: 1.4 GB.
#[cfg(feature = "cli")]
pub(crate) fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{number} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// Returns a rate per second with a unit: 1.2 M.
pub(crate) fn rate(mut value: f64) -> String {
    // Blocks may take seconds each.
    if value < 10.0 {
        return format!("{value:.1}");
    }
    if value < 1000.0 {
        return format!("{value:.0}");
    }
    for unit in ["k", "M"] {
        value /= 1000.0;
        if value < 1000.0 {
            return format!("{value:.1} {unit}");
        }
    }
    format!("{:.1} G", value / 1000.0)
}

#[cfg(all(test, feature = "cli"))]
mod tests {
    use super::{bytes, count, plural, quoted_if_unclear, rate, significant};

    #[test]
    fn values_that_could_be_misread_are_quoted() {
        for clear in ["shop 7", "Gruß", "a\\b", "it's"] {
            assert_eq!(quoted_if_unclear(clear), clear);
        }
        for (unclear, shown) in [
            ("", "\"\""),
            ("  ", "\"  \""),
            (" x", "\" x\""),
            ("a, b", "\"a, b\""),
            ("say \"x\"", "\"say \\\"x\\\"\""),
            ("\u{1b}[2J", "\"\\u{1b}[2J\""),
        ] {
            assert_eq!(quoted_if_unclear(unclear), shown);
        }
    }

    #[test]
    fn numbers_have_six_digits_and_all_before_the_point() {
        for (number, shown) in [
            (23.928_571_3, "23.9286"),
            (24.999_999, "25"),
            (24.000_000_1, "24"),
            (-0.000_123_456_78, "-0.000123457"),
            (999_999.7, "1000000"),
            (1_234_567.8, "1234568"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (-0.0, "0"),
        ] {
            assert_eq!(significant(number), shown);
        }
    }

    #[test]
    fn numbers_read_well() {
        let counts: Vec<_> = [0, 12, 999, 1000, 1_234_567].map(count).into();
        assert_eq!(counts, ["0", "12", "999", "1,000", "1,234,567"]);
        let rows: Vec<_> = [0, 1, 2000].map(|number| plural(number, "row")).into();
        assert_eq!(rows, ["0 rows", "1 row", "2,000 rows"]);
        assert_eq!(plural(2, "category"), "2 categories");
        let sizes: Vec<_> = [0, 999, 1000, 1_460_000_000, 2_000_000_000_000].map(bytes).into();
        assert_eq!(sizes, ["0 B", "999 B", "1.0 kB", "1.5 GB", "2.0 TB"]);
        let rates: Vec<_> = [0.0, 0.234, 12.34, 999.4, 34_567.8, 1_234_567.0, 2e9].map(rate).into();
        assert_eq!(rates, ["0.0", "0.2", "12", "999", "34.6 k", "1.2 M", "2.0 G"]);
    }
}
