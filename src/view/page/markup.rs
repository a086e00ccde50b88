//! Escaped text for HTML.

use crate::view::words;

/// The most characters of a value that are shown; the tooltip has the whole value.
const SHOWN_CHARACTERS: usize = 80;

/// Returns `text` escaped for an element or an attribute.
pub(in crate::view) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // A page may hold no other control characters.
            c if c.is_control() && !c.is_ascii_whitespace() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns the start of a value, escaped.
pub(super) fn shortened(text: &str) -> String {
    escape(&words::shortened(text, SHOWN_CHARACTERS))
}

/// Returns the hue of a table, far from those of the tables before it.
pub(super) fn hue(table: u32) -> u32 {
    // The golden angle, from a calm blue on.
    (215 + u64::from(table) * 1375 / 10).rem_euclid(360) as u32
}

#[cfg(test)]
mod tests {
    use super::{escape, shortened};

    #[test]
    fn nothing_in_a_value_is_markup() {
        let escaped = escape("<b title=\"x\" lang='y'>a & b</b>\u{0}");
        assert_eq!(
            escaped,
            "&lt;b title=&quot;x&quot; lang=&#39;y&#39;&gt;a &amp; b&lt;/b&gt;\u{fffd}"
        );
        assert_eq!(shortened(&"é".repeat(80)), "é".repeat(80));
        assert_eq!(shortened(&"<".repeat(81)), "&lt;".repeat(80) + "…");
    }
}
