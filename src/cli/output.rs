//! What the command prints: words for a person, JSON for a machine.

use std::io::{ErrorKind, Write};

use serde::Serialize;

use super::output_error;
use crate::error::{Error, Result};

/// The standard output, whose errors are told and not panicked about.
pub(super) struct Output(std::io::StdoutLock<'static>);

impl Output {
    pub(super) fn new() -> Self {
        Self(std::io::stdout().lock())
    }

    /// Prints `text` and a line end.
    pub(super) fn line(&mut self, text: &str) -> Result<()> {
        writeln!(self.0, "{text}").and_then(|()| self.0.flush()).map_err(output_error)
    }

    /// Prints `value` as one line of JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value)
            .map_err(|e| Error::invalid(format!("writing JSON: {e}")))?;
        self.line(&text)
    }

    /// Prints rows of cells below each other, indented, each column as wide as it must be.
    pub(super) fn columns<const N: usize>(
        &mut self,
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Result<()> {
        let rows: Vec<[String; N]> = rows.into_iter().collect();
        let mut widths = [0; N];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in &rows {
            let mut line = String::from(" ");
            for (cell, width) in row.iter().zip(widths) {
                line.push(' ');
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 1));
            }
            self.line(line.trim_end())?;
        }
        Ok(())
    }
}

/// Whether the reader of the output has gone, as `head` does: no reason to complain.
pub(super) fn is_closed_pipe(error: &Error) -> bool {
    error.os_error().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}

/// A count with its thousands apart: 12,345.
pub(super) fn count(number: u64) -> String {
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

/// A count and what is counted.
pub(super) fn plural(number: u64, what: &str) -> String {
    match (number, what) {
        (1, _) => format!("1 {what}"),
        (_, "category") => format!("{} categories", count(number)),
        _ => format!("{} {what}s", count(number)),
    }
}

/// A number of bytes as a person says it: 1.4 GB.
pub(super) fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{number} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// How many a second there are, as a person says it: 1.2 M.
pub(super) fn rate(mut value: f64) -> String {
    // Of blocks there may be one in some seconds.
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

#[cfg(test)]
mod tests {
    use super::{bytes, count, plural, rate};

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
