//! The three attention masks of a sequence, as pictures.

use std::fmt::Write;

use super::markup::{escape, hue};
use super::png;
use super::sequence::Sequence;
use crate::view::words::count;

/// An attention mask: a model's COL, OUT and IN.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mask {
    /// Cells of the same column.
    Column,
    /// Cells of the same row, and of the rows that it refers to.
    Outgoing,
    /// Cells of the rows that refer to its row.
    Incoming,
}

/// The reason that a cell attends to another; the number is the pixel's colour.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Reason {
    /// It does not attend.
    None = 0,
    /// The cells are in one row or one column, or are the same.
    Same = 1,
    /// A link connects the two cells' rows.
    Reference = 2,
}

/// The colours of the last two reasons; the third is not used.
const COLOURS: [[u8; 3]; 3] = [[59, 130, 246], [234, 120, 20], [0, 0, 0]];

/// The width of a mask in pixels, and the most pixels of a cell.
const WIDTH: usize = 560;
const SCALE_MAX: usize = 18;
/// The space for the axes, above and on the left, and for the target's marks on the other sides.
const AXIS: usize = 46;
const MARK: usize = 12;
const STRIP: usize = 10;

impl Mask {
    pub(super) const ALL: [Self; 3] = [Self::Column, Self::Outgoing, Self::Incoming];

    fn title(self) -> &'static str {
        match self {
            Self::Column => "Column mask",
            Self::Outgoing => "Outgoing references",
            Self::Incoming => "Incoming references",
        }
    }

    fn rule(self) -> &'static str {
        match self {
            Self::Column => "A cell attends to all cells of its column, and to no others.",
            Self::Outgoing => {
                "A cell attends to the cells of its own row, and of the rows that its row refers to."
            }
            Self::Incoming => {
                "A cell attends to the cells of the rows that refer to its row, and to itself."
            }
        }
    }

    /// Returns the reason that the cell at `from` attends to the cell at `to`; neither is padding.
    fn reason(self, sequence: &Sequence<'_>, from: usize, to: usize) -> Reason {
        let (from_row, to_row) = (sequence.row(from), sequence.row(to));
        let is_same = match self {
            Self::Column => sequence.column_ids[from] == sequence.column_ids[to],
            Self::Outgoing => from_row == to_row,
            Self::Incoming => from == to,
        };
        let is_linked = match self {
            Self::Column => false,
            Self::Outgoing => sequence.refers(from_row, to_row),
            Self::Incoming => sequence.refers(to_row, from_row),
        };
        match (is_same, is_linked) {
            (true, _) => Reason::Same,
            (false, true) => Reason::Reference,
            (false, false) => Reason::None,
        }
    }

    /// Returns the mask's order of the cells, without the padding at its end.
    fn order<'a>(self, sequence: &Sequence<'a>) -> &'a [u16] {
        let order = match self {
            Self::Column => sequence.col_perm,
            Self::Outgoing => sequence.out_perm,
            Self::Incoming => sequence.in_perm,
        };
        &order[..sequence.length]
    }

    /// Returns the pixels, line by line: one line for each attending cell, in the mask's order.
    fn pixels(self, sequence: &Sequence<'_>) -> Vec<u8> {
        let order = self.order(sequence);
        let pairs = order.iter().flat_map(|&from| order.iter().map(move |&to| (from, to)));
        pairs.map(|(from, to)| self.reason(sequence, from.into(), to.into()) as u8).collect()
    }

    /// Returns the mask as an HTML figure; `names` are the cells' names.
    pub(super) fn figure(self, sequence: &Sequence<'_>, names: &[String]) -> String {
        let pixels = self.pixels(sequence);
        let length = sequence.length;
        let lines = || pixels.chunks(length);
        let attended = |line: &[u8]| line.iter().filter(|&&pixel| pixel != 0).count();
        let total: usize = lines().map(attended).sum();
        let least = lines().map(attended).min().unwrap_or(0);
        let most = lines().map(attended).max().unwrap_or(0);
        let by_row = self != Self::Column;
        format!(
            "<figure class=\"mask\"><div class=\"scroll\">{picture}</div>\
             <figcaption><h3>{title}</h3><p>{rule}</p>\
             <p class=\"share\"><b>{share:.2} %</b> of the {length} × {length} pairs of cells: {total}</p>\
             <p>A cell attends to {mean:.1} cells on average, {least} to {most}.</p>\
             <p class=\"key\"><i class=\"same\"></i>{same}{reference}</p>\
             <p class=\"muted\">Lines attend, columns are attended to. Both are in the order \
             <code>{order_name}</code>; the strips show {strips} in the colours of their tables, \
             ◂ the target.{padding}</p>\
             <output>Point at the picture to read a pair.</output></figcaption></figure>",
            picture = self.picture(sequence, &pixels, names),
            title = self.title(),
            rule = self.rule(),
            share = 100.0 * total as f64 / (length * length) as f64,
            total = count(total as u64),
            mean = total as f64 / length as f64,
            same = match self {
                Self::Column => "same column",
                Self::Outgoing => "same row",
                Self::Incoming => "itself",
            },
            reference = if by_row { " <i class=\"reference\"></i>by a reference" } else { "" },
            order_name = match self {
                Self::Column => "col_perm",
                Self::Outgoing => "out_perm",
                Self::Incoming => "in_perm",
            },
            strips = if by_row { "the rows" } else { "the columns" },
            padding = match sequence.padding() {
                0 => String::new(),
                n => format!(
                    " The {} cells of padding, each to itself alone, are left out.",
                    count(n)
                ),
            },
        )
    }

    fn picture(self, sequence: &Sequence<'_>, pixels: &[u8], names: &[String]) -> String {
        let length = sequence.length;
        let scale = (WIDTH / length).clamp(1, SCALE_MAX);
        let size = length * scale;
        let whole = AXIS + size + MARK;
        let order = self.order(sequence);
        let mut svg = format!(
            "<svg width=\"{whole}\" height=\"{whole}\" viewBox=\"0 0 {whole} {whole}\" \
             data-order=\"{order:?}\" data-axis=\"{AXIS}\" data-scale=\"{scale}\">\
             <rect class=\"paper\" x=\"{AXIS}\" y=\"{AXIS}\" width=\"{size}\" height=\"{size}\"/>\
             <image x=\"{AXIS}\" y=\"{AXIS}\" width=\"{size}\" height=\"{size}\" href=\"{}\"/>",
            png::data_url(length, pixels, COLOURS)
        );
        let strip = AXIS - STRIP - 2;
        for run in self.runs(sequence, order) {
            let (at, long) = (AXIS + run.start * scale, run.cells * scale);
            let title = escape(&run.title(names, order, self == Self::Column));
            let _ = write!(
                svg,
                "<g class=\"run\" style=\"--h:{}\"><title>{title}</title>\
                 <rect x=\"{at}\" y=\"{strip}\" width=\"{long}\" height=\"{STRIP}\"/>\
                 <rect x=\"{strip}\" y=\"{at}\" width=\"{STRIP}\" height=\"{long}\"/></g>",
                hue(run.table),
            );
        }
        svg.push_str(&axes(length, scale));
        let target = order.iter().position(|&cell| Some(usize::from(cell)) == sequence.target);
        if let Some(target) = target {
            let at = AXIS + target * scale + scale / 2;
            let (tip, end) = (whole - MARK + 1, whole - 1);
            let (before, after) = (at - 5, at + 5);
            let _ = write!(
                svg,
                "<g class=\"target\"><title>the target</title><path d=\"M{tip} {at}L{end} {before}\
                 V{after}ZM{at} {tip}L{before} {end}H{after}Z\"/></g>"
            );
        }
        svg + "</svg>"
    }

    /// Returns the stretches of one row, or of one column, in an order.
    fn runs(self, sequence: &Sequence<'_>, order: &[u16]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (place, &cell) in order.iter().enumerate() {
            let cell = usize::from(cell);
            let of = match self {
                Self::Column => sequence.column_ids[cell] as usize,
                _ => sequence.row(cell),
            };
            match runs.last_mut().filter(|run| run.of == of) {
                Some(run) => run.cells += 1,
                None => runs.push(Run { of, start: place, cells: 1, table: sequence.table(cell) }),
            }
        }
        runs
    }
}

/// Consecutive cells of one row or one column in a mask's order.
struct Run {
    of: usize,
    start: usize,
    cells: usize,
    table: u32,
}

impl Run {
    fn title(&self, names: &[String], order: &[u16], by_column: bool) -> String {
        let name = &names[usize::from(order[self.start])];
        // A cell's name is its row, a tab and its column.
        let (row, column) = name.split_once('\t').unwrap_or((name, ""));
        let last = self.start + self.cells - 1;
        let places = format!("{} to {last}", self.start);
        match by_column {
            true => format!("{column} of {}: {places}", row.split(' ').next().unwrap_or(row)),
            false => format!("{row}: {places}"),
        }
    }
}

/// Returns the numbers along both axes.
fn axes(length: usize, scale: usize) -> String {
    // Labels need about 60 pixels each.
    let steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000];
    let step = steps.into_iter().find(|step| step * scale >= 60).unwrap_or(20_000);
    let mut svg = String::new();
    let (above, left) = (AXIS - STRIP - 14, AXIS - STRIP - 6);
    for place in (0..length).step_by(step) {
        let at = AXIS + place * scale;
        let _ = write!(
            svg,
            "<text x=\"{at}\" y=\"{above}\">{place}</text>\
             <text x=\"{left}\" y=\"{}\" class=\"left\">{place}</text>",
            at + 9
        );
    }
    svg
}

/// Returns the sequence as one bar, its rows in the colours of their tables.
pub(super) fn bar(sequence: &Sequence<'_>, names: &[String]) -> String {
    let order: Vec<u16> = (0..sequence.length as u16).collect();
    let whole = sequence.column_ids.len();
    let mut svg =
        format!("<svg class=\"bar\" viewBox=\"0 0 {whole} 20\" preserveAspectRatio=\"none\">");
    for run in Mask::Outgoing.runs(sequence, &order) {
        let title = escape(&run.title(names, &order, false));
        let _ = write!(
            svg,
            "<rect class=\"run\" style=\"--h:{}\" x=\"{}\" y=\"0\" width=\"{}\" height=\"20\">\
             <title>{title}</title></rect>",
            hue(run.table),
            run.start,
            run.cells
        );
    }
    if let Some(at) = sequence.target {
        let _ = write!(
            svg,
            "<rect class=\"target\" x=\"{at}\" y=\"0\" width=\"1\" height=\"20\"><title>the target\
             </title></rect>"
        );
    }
    svg + "</svg>"
}
