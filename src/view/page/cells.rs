//! The cells of a row as lines of its box, with the values that the model sees.

use super::markup::{escape, shortened};
use super::sequence::Sequence;
use crate::view::cell::CellView;
use crate::view::context::{HIDDEN_BY_TASK, KNOWN_LATER};

/// The most characters of names in a line.
const LINE_CHARACTERS: usize = 33;

/// A cell, and its state for the model.
pub(super) struct DrawnCell {
    /// Its place in the sequence.
    at: usize,
    pub view: CellView,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Seen,
    Null,
    /// The value was not known yet at the observation time.
    Later,
    /// The task hides the value in the seed row.
    Hidden,
    Target,
    /// The sampler masks the cell, for pretraining.
    Masked,
    /// The cell is past the end of the sequence.
    Cut,
}

impl DrawnCell {
    pub(super) fn of(at: usize, view: CellView, sequence: &Sequence<'_>, is_hidden: bool) -> Self {
        let state = match &view.value {
            _ if at >= sequence.length => State::Cut,
            _ if Some(at) == sequence.target => State::Target,
            _ if sequence.is_masked(at) => State::Masked,
            None => State::Null,
            Some(_) if sequence.is_null[at] == 1 && is_hidden => State::Hidden,
            Some(_) if sequence.is_null[at] == 1 => State::Later,
            Some(_) => State::Seen,
        };
        Self { at, view, state }
    }

    pub(super) fn is_in_sequence(&self) -> bool {
        self.state != State::Cut
    }

    /// Returns the one word for a cell without a value of its own: `id` or `NULL`.
    fn only_says(&self) -> Option<&'static str> {
        match self.state {
            State::Seen if self.view.semantic == "identifier" => Some("id"),
            State::Null => Some("NULL"),
            _ => None,
        }
    }

    /// Returns the attributes of a drawn cell: its place in the sequence, and its tooltip.
    fn attributes(&self) -> String {
        let CellView { column, semantic, value } = &self.view;
        let value = value.as_deref().unwrap_or("NULL");
        let at = self.at;
        let remark = match self.state {
            State::Seen | State::Null => format!("{value}\ncell {at}"),
            State::Later => {
                format!("{value}\ncell {at}; the model sees NULL: this was not known yet")
            }
            State::Hidden => {
                format!(
                    "{value}\ncell {at}; the model sees NULL: the task hides it in the seed row"
                )
            }
            State::Target => format!("the target\ncell {at}; the model sees a mask in its place"),
            State::Masked => {
                format!("{value}\ncell {at}; masked in the first epoch: the model sees a mask")
            }
            State::Cut => format!("{value}\nnot in the sequence, which ends before it"),
        };
        let title = escape(&format!("{column} ({semantic}): {remark}"));
        // A cell outside the sequence has no place in the masks.
        match self.state {
            State::Cut => format!("title=\"{title}\""),
            _ => format!("id=\"c{at}\" title=\"{title}\""),
        }
    }

    /// Returns the cell as a line of its own.
    fn line(&self) -> String {
        let value = shortened(self.view.value.as_deref().unwrap_or("NULL"));
        let (class, shown) = match self.state {
            State::Seen | State::Null => ("", value),
            State::Later => (" later", format!("NULL, {KNOWN_LATER}")),
            State::Hidden => (" later", format!("NULL, {HIDDEN_BY_TASK}")),
            State::Target => (" target", "hidden".to_owned()),
            State::Masked => (" masked", value),
            State::Cut => (" cut", value),
        };
        format!(
            "<div class=\"cell{class}\" {}><i>{}</i><b>{}</b><span>{shown}</span></div>",
            self.attributes(),
            short_name(&self.view.semantic),
            escape(&self.view.column),
        )
    }
}

/// Returns the cells of each line of a row's box. Identifiers share lines, because the model sees
/// only that they are present; so do, at the end, cells without a value.
pub(super) fn lines(cells: &[DrawnCell]) -> Vec<Vec<usize>> {
    let that_say = |what| (0..cells.len()).filter(move |&cell| cells[cell].only_says() == what);
    let mut lines = shared_lines(cells, that_say(Some("id")));
    lines.extend(that_say(None).map(|cell| vec![cell]));
    lines.extend(shared_lines(cells, that_say(Some("NULL"))));
    lines
}

/// Puts as many names in each line as fit.
fn shared_lines(cells: &[DrawnCell], names: impl Iterator<Item = usize>) -> Vec<Vec<usize>> {
    let mut lines: Vec<Vec<usize>> = Vec::new();
    let mut characters = 0;
    for cell in names {
        let own = cells[cell].view.column.chars().count() + 1;
        characters += own;
        match lines.last_mut().filter(|_| characters <= LINE_CHARACTERS) {
            Some(line) => line.push(cell),
            None => {
                characters = own;
                lines.push(vec![cell]);
            }
        }
    }
    lines
}

/// Returns the HTML of a line.
pub(super) fn line(cells: &[DrawnCell], line: &[usize]) -> String {
    let Some(says) = cells[line[0]].only_says() else { return cells[line[0]].line() };
    let name = |&cell: &usize| {
        format!("<b {}>{}</b>", cells[cell].attributes(), escape(&cells[cell].view.column))
    };
    let names: String = line.iter().map(name).collect();
    format!("<div class=\"cell names {}\"><i>{says}</i>{names}</div>", says.to_lowercase())
}

/// Returns the short name of a semantic type.
fn short_name(semantic: &str) -> &str {
    match semantic {
        "identifier" => "id",
        "numerical" => "num",
        "timestamp" => "time",
        "boolean" => "bool",
        "categorical" => "cat",
        other => other,
    }
}
