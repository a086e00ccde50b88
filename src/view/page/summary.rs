//! The summary above the picture: the task, the settings, the tables and the hidden rows.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::markup::{escape, hue, shortened};
use super::sequence::Sequence;
use crate::sampler::{Aggregates, Children, Context, Settings, Walk};
use crate::store::Store;
use crate::view::cell::time_text;
use crate::view::context::{ContextView, target_column};
use crate::view::words::{count, plural};

/// Returns the label, which the model does not see.
pub(super) fn target(store: &Store, context: &Context, view: &ContextView) -> String {
    let Some(column) = target_column(store, context) else {
        return "<b>none</b><span>a row of a pool</span>".to_owned();
    };
    let value = view.value.as_deref().unwrap_or("NULL");
    format!(
        "<b>{}</b> <small>{}</small><span title=\"{}\">{}</span>",
        escape(&column.name),
        column.semantic(),
        escape(value),
        shortened(value)
    )
}

/// Returns the sizes of the context, as tiles.
pub(super) fn numbers(view: &ContextView, sequence: &Sequence<'_>) -> String {
    let links: u64 = view
        .rows
        .iter()
        .flat_map(|row| &row.neighbours)
        .map(|neighbours| neighbours.in_context)
        .sum();
    let cut = (view.cell_count - sequence.length) as u64;
    let (in_sequence, whole) = (sequence.length as u64, sequence.column_ids.len() as u64);
    let mut tiles = vec![
        (view.rows.len() as u64, "row", String::new()),
        // Each link counts once for its child and once for its parent.
        (links / 2, "link", " among them".to_owned()),
        (in_sequence, "cell", format!(" in a sequence of {}", count(whole))),
    ];
    if cut > 0 {
        tiles.push((cut, "cell", " cut off at its end".to_owned()));
    }
    if let Some(masked) = view.masked_count {
        tiles.push((masked, "cell", " masked beside the target, in the first epoch".to_owned()));
    }
    tiles.push((hidden_total(view), "link", " to rows that came to exist later".to_owned()));
    let tile = |(number, what, more): &(u64, &str, String)| {
        let text = plural(*number, what);
        let (number, what) = text.split_once(' ').unwrap_or((&text, ""));
        format!("<li><b>{number}</b> {what}{more}</li>")
    };
    tiles.iter().map(tile).collect()
}

/// Returns all settings that determine the context.
pub(super) fn settings(store: &Store, settings: &Settings, view: &ContextView) -> String {
    let (walk, width) = match settings.walk {
        Walk::Priority { child_width, children } => {
            let order = match children {
                Children::Uniform => "uniformly at random",
                Children::Latest => "the latest",
            };
            let mut width = format!("at most {} a relation, {order}", plural_children(child_width));
            for (relation, own) in &settings.child_widths {
                let _ = write!(width, "; {own} of {relation}");
            }
            ("by priority: parents first".to_owned(), width)
        }
        Walk::Breadth { max_hops, budget } => (
            format!("breadth first, {}", plural(max_hops.into(), "hop")),
            plural(budget.into(), "row"),
        ),
    };
    let aggregates = match settings.aggregates {
        Aggregates::None => "of no row",
        Aggregates::Near => "of the seed and its parents",
        Aggregates::All => "of the seed and of every row reached as a parent",
    };
    let future = if settings.keep_future_cells { "kept" } else { "NULL" };
    let root = store.root().to_string();
    let all = [
        ("walk", walk),
        ("width", width),
        ("S", plural(settings.shape.sequence_length.into(), "cell")),
        ("rows at most", count(settings.shape.max_rows.into())),
        ("observed at the latest", settings.visible_until.map_or("any time".to_owned(), time_text)),
        ("aggregates", aggregates.to_owned()),
        ("times after the observation", future.to_owned()),
        ("seed", settings.seed.to_string()),
        ("split", view.split.to_owned()),
        ("epoch", "0".to_owned()),
        ("database", store.metadata().database.clone()),
        ("root", root),
    ];
    let item = |(name, value): &(&str, String)| {
        format!("<div><dt>{name}</dt><dd>{}</dd></div>", escape(value))
    };
    all.iter().map(item).collect()
}

fn plural_children(number: u32) -> String {
    match number {
        1 => "1 child".to_owned(),
        _ => format!("{} children", count(number.into())),
    }
}

/// Returns the tables of the rows, in their colours.
pub(super) fn tables(store: &Store, context: &Context) -> String {
    let mut counts = vec![0_u64; store.tables().len()];
    context.rows.iter().for_each(|row| counts[row.table as usize] += 1);
    let present = (0..).zip(&counts).filter(|(_, rows)| **rows > 0);
    let chip = |(table, rows): (u32, &u64)| {
        let name = escape(&store.tables()[table as usize].metadata().name);
        format!("<li style=\"--h:{}\"><b>{name}</b> {}</li>", hue(table), plural(*rows, "row"))
    };
    present.map(chip).collect()
}

/// Returns the rows hop by hop, each as a spot that links to its box.
pub(super) fn hops(context: &Context, view: &ContextView) -> String {
    let last = view.rows.iter().map(|row| row.hop).max().unwrap_or(0);
    let line = |hop| {
        let rows = view.rows.iter().zip(&context.rows).filter(|(row, _)| row.hop == hop);
        let mut line = format!("<div><dt>hop {hop}</dt><dd>");
        for (row, visit) in rows {
            let _ = write!(
                line,
                "<a class=\"{}\" style=\"--h:{}\" href=\"#r{}\" title=\"{}\"></a>",
                row.kind(),
                hue(visit.table),
                row.place,
                escape(&row.name()),
            );
        }
        line + "</dd></div>"
    };
    (0..=last).map(line).collect()
}

fn hidden_total(view: &ContextView) -> u64 {
    view.rows.iter().flat_map(|row| &row.neighbours).map(|neighbours| neighbours.hidden).sum()
}

/// Returns a table of all relations: the neighbours of the context's rows that are in the context,
/// visible and hidden, children and parents.
pub(super) fn hidden(view: &ContextView) -> String {
    let mut sums: BTreeMap<&str, [u64; 6]> = BTreeMap::new();
    for neighbours in view.rows.iter().flat_map(|row| &row.neighbours) {
        let sums = sums.entry(&neighbours.relation).or_default();
        let sums = if neighbours.is_parent { &mut sums[3..] } else { &mut sums[..3] };
        let counts = [neighbours.in_context, neighbours.visible, neighbours.hidden];
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let mut html = String::from(
        "<table><thead><tr><th></th><th colspan=\"3\">← children that refer to the rows</th>\
         <th colspan=\"3\">→ parents that the rows refer to</th></tr><tr><th>reference</th>",
    );
    html.push_str(&"<th>in the context</th><th>visible</th><th>later</th>".repeat(2));
    html.push_str("</tr></thead><tbody>");
    for (relation, counts) in sums {
        let _ = write!(html, "<tr><td>{}</td>", escape(relation));
        for (place, number) in counts.into_iter().enumerate() {
            let is_later = place % 3 == 2 && number > 0;
            let class = if is_later { " class=\"later\"" } else { "" };
            let _ = write!(html, "<td{class}>{}</td>", count(number));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table>");
    let (total, met) = (hidden_total(view), view.hidden_count);
    let agreement = match (total, total - met) {
        (0, _) => "No row of the context has a link to a row that came to exist later.".to_owned(),
        (_, 0) => "The walk reached all of them.".to_owned(),
        (_, rest) => format!(
            "The walk reached {} of these {}; it did not follow the links to the other {}, because \
             the context was full or a relation's child width is 0.",
            count(met),
            count(total),
            count(rest)
        ),
    };
    let _ = write!(html, "<p class=\"muted\">{agreement}</p>");
    html
}
