//! The cells of a row as lines of its box, each as the model sees it.

use super::markup::{escape, shortened};
use super::sequence::Sequence;
use crate::view::cell::CellView;

/// How many characters of names stand in a line.
const LINE_CHARACTERS: usize = 33;

/// A cell, and what the model sees of it.
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
    /// It has a value that was not known yet.
    Later,
    Target,
    /// It is past the end of the sequence.
    Cut,
}

impl DrawnCell {
    pub(super) fn of(at: usize, view: CellView, sequence: &Sequence<'_>) -> Self {
        let state = match &view.value {
            _ if at >= sequence.length => State::Cut,
            _ if at == sequence.target => State::Target,
            None => State::Null,
            Some(_) if sequence.is_null[at] == 1 => State::Later,
            Some(_) => State::Seen,
        };
        Self { at, view, state }
    }

    pub(super) fn is_in_sequence(&self) -> bool {
        self.state != State::Cut
    }

    /// All that there is to say of it beside its name: that it is there, or that it is not.
    fn only_says(&self) -> Option<&'static str> {
        match self.state {
            State::Seen if self.view.semantic == "identifier" => Some("id"),
            State::Null => Some("NULL"),
            _ => None,
        }
    }

    /// The attributes that all drawn cells have: where it is in the sequence, and all about it.
    fn attributes(&self) -> String {
        let CellView { column, semantic, value } = &self.view;
        let value = value.as_deref().unwrap_or("NULL");
        let at = self.at;
        let remark = match self.state {
            State::Seen | State::Null => format!("{value}\ncell {at}"),
            State::Later => {
                format!("{value}\ncell {at}; the model sees NULL, as this was not known yet")
            }
            State::Target => format!("the target\ncell {at}; the model sees a mask in its place"),
            State::Cut => format!("{value}\nnot in the sequence, which ends before it"),
        };
        let title = escape(&format!("{column} ({semantic}): {remark}"));
        // What is not in the sequence has no place that the masks could name.
        match self.state {
            State::Cut => format!("title=\"{title}\""),
            _ => format!("id=\"c{at}\" title=\"{title}\""),
        }
    }

    /// A line of its own.
    fn line(&self) -> String {
        let value = shortened(self.view.value.as_deref().unwrap_or("NULL"));
        let (class, shown) = match self.state {
            State::Seen | State::Null => ("", value),
            State::Later => (" later", "NULL, known later".to_owned()),
            State::Target => (" target", "hidden".to_owned()),
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

/// The cells of a row by the lines of its box. The names of identifiers share lines, as the model
/// learns no more of them than that they are there; so do, at the end, those of cells without a value.
pub(super) fn lines(cells: &[DrawnCell]) -> Vec<Vec<usize>> {
    let that_say = |what| (0..cells.len()).filter(move |&cell| cells[cell].only_says() == what);
    let mut lines = shared_lines(cells, that_say(Some("id")));
    lines.extend(that_say(None).map(|cell| vec![cell]));
    lines.extend(shared_lines(cells, that_say(Some("NULL"))));
    lines
}

/// As many names in each line as fit.
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

/// One of these lines.
pub(super) fn line(cells: &[DrawnCell], line: &[usize]) -> String {
    let Some(says) = cells[line[0]].only_says() else { return cells[line[0]].line() };
    let name = |&cell: &usize| {
        format!("<b {}>{}</b>", cells[cell].attributes(), escape(&cells[cell].view.column))
    };
    let names: String = line.iter().map(name).collect();
    format!("<div class=\"cell names {}\"><i>{says}</i>{names}</div>", says.to_lowercase())
}

/// A semantic type in a narrow column.
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
