//! Standard output: text for people, JSON for programs.

use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};

/// The standard output, whose errors are returned and do not panic.
pub(super) struct Output(std::io::StdoutLock<'static>);

impl Output {
    pub(super) fn new() -> Self {
        Self(std::io::stdout().lock())
    }

    /// Prints `text` and a line end.
    pub(super) fn line(&mut self, text: &str) -> Result<()> {
        writeln!(self.0, "{text}").and_then(|()| self.0.flush()).map_err(output_error)
    }

    /// Prints bytes as they are.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).and_then(|()| self.0.flush()).map_err(output_error)
    }

    /// Prints `value` as one line of JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value)
            .map_err(|e| Error::invalid(format!("writing JSON: {e}")))?;
        self.line(&text)
    }

    /// Prints rows of cells as aligned columns, indented.
    #[cfg(feature = "cli")]
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

/// Whether the reader of the output has closed it, as `head` does; this is not reported.
pub(super) fn is_closed_pipe(error: &Error) -> bool {
    error.os_error().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}

/// Returns an error of the standard output.
fn output_error(error: std::io::Error) -> Error {
    Error::io(Path::new("standard output"), "writing to", error)
}
