//! The box of a row: its key, its time, its cells, and the links that the layout does not show.

use std::fmt::Write;

use super::cells::{self, DrawnCell};
use super::layout::Place;
use super::markup::{escape, hue};
use super::sequence::Sequence;
use crate::error::Result;
use crate::sampler::{Context, Link, Visit, WhyUnseen};
use crate::store::Store;
use crate::view::cell::CellView;
use crate::view::context::{ContextRow, ContextView, NO_TIME, NeighbourCounts, target_column};
use crate::view::relation::{relation_name, short_relation_name};
use crate::view::words::count;

/// The heights of a box's parts.
pub(super) const HEAD: u32 = 40;
pub(super) const LINE: u32 = 17;
const FOOT: u32 = 5;

/// A row with the content of its box.
pub(super) struct RowBox<'a> {
    view: &'a ContextRow,
    table: u32,
    cells: Vec<DrawnCell>,
    /// The cells of each line, by number.
    lines: Vec<Vec<usize>>,
    /// Links to parents in the context that another row brought in.
    pub far_links: Vec<Link>,
    /// Neighbours outside the context: a line for each relation with hidden rows, and one line for
    /// children that were not drawn.
    absent: Vec<Vec<&'a NeighbourCounts>>,
}

/// The boxes of all rows of a context.
pub(super) fn boxes<'a>(
    store: &Store,
    context: &Context,
    view: &'a ContextView,
    sequence: &Sequence<'_>,
) -> Result<Vec<RowBox<'a>>> {
    let mut at = 0;
    let rows = context.rows.iter().zip(&view.rows);
    rows.map(|(visit, row)| {
        let table = &store.tables()[visit.table as usize];
        let record = table.row(visit.row)?;
        let columns = table.metadata().columns.iter().enumerate();
        let mut views = columns
            .map(|(column, metadata)| CellView::of(store, metadata, record.cell(column)))
            .collect::<Result<Vec<_>>>()?;
        if row.place == 0 {
            views.extend(own_target(store, context)?);
        }
        views.extend(row.aggregates.iter().cloned());
        let first = at;
        let own = (context.unseen.iter()).filter(|unseen| unseen.place as usize == row.place);
        let hidden: Vec<usize> = own
            .filter(|unseen| unseen.why == WhyUnseen::HiddenByTask)
            .map(|unseen| unseen.column as usize)
            .collect();
        let cells = views.into_iter().zip(at..);
        let is_hidden = |at: usize| hidden.contains(&(at - first));
        let cells: Vec<_> =
            cells.map(|(view, at)| DrawnCell::of(at, view, sequence, is_hidden(at))).collect();
        at += cells.len();
        let own = context.links.iter().filter(|link| link.child as usize == row.place);
        Ok(RowBox {
            view: row,
            table: visit.table,
            lines: cells::lines(&cells),
            cells,
            far_links: own.filter(|link| !is_of_the_walk(context, link)).copied().collect(),
            absent: absent(context, row),
        })
    })
    .collect()
}

/// Returns the target of a derived task as a cell of the seed row.
fn own_target(store: &Store, context: &Context) -> Result<Option<CellView>> {
    let column = target_column(store, context).filter(|_| context.target_column.is_none());
    column.map(|column| CellView::of(store, column, context.target)).transpose()
}

/// Returns the neighbours of a row that the layout does not show beside it.
fn absent<'a>(context: &Context, row: &'a ContextRow) -> Vec<Vec<&'a NeighbourCounts>> {
    let absent =
        row.neighbours.iter().filter(|neighbours| !is_beside(context, row.place, neighbours));
    let (not_drawn, others): (Vec<_>, Vec<_>) =
        absent.partition(|neighbours| !neighbours.is_parent && neighbours.hidden == 0);
    let lines = others.into_iter().map(|neighbours| vec![neighbours]);
    lines.chain((!not_drawn.is_empty()).then_some(not_drawn)).collect()
}

/// Whether the layout shows these neighbours of the row at `place`: a parent by a line, children by
/// the heading of those that it brought in or, if all are in the context, by their own lines.
fn is_beside(context: &Context, place: usize, neighbours: &NeighbourCounts) -> bool {
    let is_brought_in = |row: &Visit| {
        (row.from as usize, row.relation, row.is_parent)
            == (place, neighbours.relation_number, false)
    };
    match neighbours.is_parent {
        true => neighbours.in_context > 0,
        false => {
            let all_are_there =
                neighbours.hidden == 0 && neighbours.in_context == neighbours.visible;
            all_are_there || context.rows.iter().skip(1).any(is_brought_in)
        }
    }
}

/// Whether a link is the one by which one of its rows came into the context.
fn is_of_the_walk(context: &Context, link: &Link) -> bool {
    let brought = |place: u32, by: u32, is_parent: bool| {
        let visit = &context.rows[place as usize];
        let way = (visit.from, visit.relation, visit.is_parent);
        place > 0 && way == (by, link.relation, is_parent)
    };
    brought(link.parent, link.child, true) || brought(link.child, link.parent, false)
}

impl RowBox<'_> {
    /// Returns the height of the box.
    pub(super) fn height(&self) -> u32 {
        let lines = self.lines.len() + self.far_links.len() + self.absent.len();
        HEAD + lines as u32 * LINE + FOOT
    }

    /// Returns the offset of the line of far link `number` from the top of the box.
    pub(super) fn link_line(&self, number: usize) -> u32 {
        HEAD + (self.lines.len() + number) as u32 * LINE + LINE / 2
    }

    /// Returns the names, in the masks, of the row's cells in the sequence.
    pub(super) fn cell_names(&self) -> impl Iterator<Item = String> {
        let name = |cell: &DrawnCell| format!("{}\t{}", self.view.name(), cell.view.column);
        self.cells.iter().filter(|cell| cell.is_in_sequence()).map(name)
    }

    /// Returns the HTML of the box.
    pub(super) fn html(&self, place: Place, boxes: &[RowBox<'_>], store: &Store) -> String {
        let ContextRow { place: number, hop, table, row, .. } = self.view;
        let kind = self.view.kind();
        let (time, before) = (self.view.time.as_deref(), self.view.before.as_deref());
        let without_time = if self.view.lacks_time { NO_TIME } else { "always visible" };
        let when = match (time, before) {
            (None, _) => format!("<span>{without_time}</span>"),
            (Some(time), None) => format!("<span>{}</span>", escape(time)),
            (Some(time), Some(before)) => {
                // The box shows the day; the tooltip has the full time.
                let day = time.split(' ').next().unwrap_or(time);
                format!("<span>{}</span> <small>{}</small>", escape(before), escape(day))
            }
        };
        let mut html = format!(
            "<article class=\"row {kind}\" id=\"r{number}\" \
             style=\"--h:{};left:{}px;top:{}px;height:{}px\">\
             <header title=\"{kind}, row {number} of the context, hop {hop}\n{}\n{}\">\
             <b>{}</b> <code>{}</code><em>{number}</em><p>{when}</p></header>",
            hue(self.table),
            place.x,
            place.y,
            place.height,
            escape(&self.view.name()),
            escape(time.unwrap_or(without_time)),
            escape(table),
            escape(row),
        );
        self.lines.iter().for_each(|line| html.push_str(&cells::line(&self.cells, line)));
        for link in &self.far_links {
            let parent = boxes[link.parent as usize].view;
            let relation = escape(&relation_name(store, link.relation));
            let _ = write!(
                html,
                "<a class=\"link\" href=\"#r{}\" title=\"{relation} refers to {}, row {} of the context\">\
                 ⤳ {} → {}</a>",
                parent.place,
                escape(&parent.name()),
                parent.place,
                escape(&short_relation_name(store, link.relation)),
                escape(&parent.name()),
            );
        }
        self.absent.iter().for_each(|neighbours| html.push_str(&absent_line(neighbours)));
        html + "</article>"
    }
}

/// Returns a line for neighbours that the layout does not show beside the row.
fn absent_line(all: &[&NeighbourCounts]) -> String {
    let long = |neighbours: &&NeighbourCounts| match (neighbours.is_parent, neighbours.hidden) {
        (true, 0) => format!("{}: the row that it refers to was left out", neighbours.relation),
        (true, _) => {
            format!("{}: the row that it refers to came to exist later", neighbours.relation)
        }
        (false, _) => format!(
            "{}: of {} visible rows that refer to this one, {} are in the context; {} came to exist \
             later",
            neighbours.relation,
            count(neighbours.visible),
            count(neighbours.in_context),
            count(neighbours.hidden)
        ),
    };
    let (name, text) = match all {
        [neighbours] if neighbours.is_parent => {
            let text = if neighbours.hidden > 0 { "<mark>exists later</mark>" } else { "left out" };
            (format!("→ {}", neighbours.relation), text.to_owned())
        }
        [neighbours] => (format!("← {}", neighbours.relation), neighbour_counts(neighbours)),
        _ => {
            let sum = |part: fn(&NeighbourCounts) -> u64| {
                count(all.iter().map(|neighbours| part(neighbours)).sum())
            };
            let counts = format!(
                "{} of {}",
                sum(|neighbours| neighbours.in_context),
                sum(|neighbours| neighbours.visible)
            );
            (format!("← {} more relations", all.len()), counts)
        }
    };
    let long: Vec<String> = all.iter().map(long).collect();
    format!(
        "<div class=\"absent\" title=\"{}\"><b>{}</b><span>{text}</span></div>",
        escape(&long.join("\n")),
        escape(&name)
    )
}

/// Returns the numbers of a row's children through a relation: in the context, visible, hidden.
pub(super) fn neighbour_counts(neighbours: &NeighbourCounts) -> String {
    let seen = format!("{} of {}", count(neighbours.in_context), count(neighbours.visible));
    match neighbours.hidden {
        0 => seen,
        hidden => format!("{seen}, <mark>{} later</mark>", count(hidden)),
    }
}
