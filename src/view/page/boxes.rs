//! What a row's box says: its key, its time, its cells, and the links that no neighbour shows.

use std::fmt::Write;

use super::cells::{self, DrawnCell};
use super::layout::Place;
use super::markup::{escape, hue};
use super::sequence::Sequence;
use crate::error::Result;
use crate::sampler::{Context, Link, Visit};
use crate::store::Store;
use crate::view::cell::CellView;
use crate::view::context::{ContextRow, ContextView, NeighbourCounts, target_column};
use crate::view::words::count;

/// The heights of a box's parts.
pub(super) const HEAD: u32 = 40;
pub(super) const LINE: u32 = 17;
const FOOT: u32 = 5;

/// A row as its box shows it.
pub(super) struct RowBox<'a> {
    view: &'a ContextRow,
    table: u32,
    cells: Vec<DrawnCell>,
    /// The lines that show the cells, each by their numbers.
    lines: Vec<Vec<usize>>,
    /// References to rows of the context that another row brought in.
    pub far_links: Vec<Link>,
    /// What else it is linked with: a line for each relation that time hides something of, and one
    /// for the children that were merely not drawn.
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
        let cells = views.into_iter().zip(at..);
        let cells: Vec<_> = cells.map(|(view, at)| DrawnCell::of(at, view, sequence)).collect();
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

/// The target of a task that has its own, as a cell of the seed row.
fn own_target(store: &Store, context: &Context) -> Result<Option<CellView>> {
    let column = target_column(store, context).filter(|_| context.target_column.is_none());
    column.map(|column| CellView::of(store, column, context.target)).transpose()
}

/// What is shown beside a row is left out.
fn absent<'a>(context: &Context, row: &'a ContextRow) -> Vec<Vec<&'a NeighbourCounts>> {
    let absent = row.neighbours.iter().filter(|near| !is_beside(context, row.place, near));
    let (not_drawn, others): (Vec<_>, Vec<_>) =
        absent.partition(|near| !near.is_parent && near.hidden == 0);
    let lines = others.into_iter().map(|near| vec![near]);
    lines.chain((!not_drawn.is_empty()).then_some(not_drawn)).collect()
}

/// Whether it is shown elsewhere what the row at `place` is linked with: a parent by a line, children
/// in the heading of those that it brought in or, where all are there, by their own lines.
fn is_beside(context: &Context, place: usize, near: &NeighbourCounts) -> bool {
    let is_brought_in = |row: &Visit| {
        (row.from as usize, row.relation, row.is_parent) == (place, near.relation_number, false)
    };
    match near.is_parent {
        true => near.in_context > 0,
        false => {
            let all_are_there = near.hidden == 0 && near.in_context == near.visible;
            all_are_there || context.rows.iter().skip(1).any(is_brought_in)
        }
    }
}

/// Whether a reference is the one by which one of its rows came into the context.
fn is_of_the_walk(context: &Context, link: &Link) -> bool {
    let brought = |place: u32, by: u32, is_parent: bool| {
        let visit = &context.rows[place as usize];
        let way = (visit.from, visit.relation, visit.is_parent);
        place > 0 && way == (by, link.relation, is_parent)
    };
    brought(link.parent, link.child, true) || brought(link.child, link.parent, false)
}

impl RowBox<'_> {
    /// How high the box is drawn.
    pub(super) fn height(&self) -> u32 {
        let lines = self.lines.len() + self.far_links.len() + self.absent.len();
        HEAD + lines as u32 * LINE + FOOT
    }

    /// Where the line of far link `number` is, below the top of the box.
    pub(super) fn link_line(&self, number: usize) -> u32 {
        HEAD + (self.lines.len() + number) as u32 * LINE + LINE / 2
    }

    /// What the masks call each of the row's cells that are in the sequence.
    pub(super) fn cell_names(&self) -> impl Iterator<Item = String> {
        let name = |cell: &DrawnCell| format!("{}\t{}", self.view.name(), cell.view.column);
        self.cells.iter().filter(|cell| cell.is_in_sequence()).map(name)
    }

    /// The box at its place.
    pub(super) fn html(&self, place: Place, boxes: &[RowBox<'_>], store: &Store) -> String {
        let ContextRow { place: number, hop, table, row, .. } = self.view;
        let kind = self.view.kind();
        let (time, before) = (self.view.time.as_deref(), self.view.before.as_deref());
        let when = match (time, before) {
            (None, _) => "<span>always visible</span>".to_owned(),
            (Some(time), None) => format!("<span>{}</span>", escape(time)),
            (Some(time), Some(before)) => {
                // The day is enough beside it; the tooltip has the rest.
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
            escape(time.unwrap_or("always visible")),
            escape(table),
            escape(row),
        );
        self.lines.iter().for_each(|line| html.push_str(&cells::line(&self.cells, line)));
        for link in &self.far_links {
            let parent = boxes[link.parent as usize].view;
            let relation = escape(&store.relation_name(link.relation as usize));
            let _ = write!(
                html,
                "<a class=\"link\" href=\"#r{}\" title=\"{relation} refers to {}, row {} of the context\">\
                 ⤳ {} → {}</a>",
                parent.place,
                escape(&parent.name()),
                parent.place,
                escape(&store.relations()[link.relation as usize].metadata().name),
                escape(&parent.name()),
            );
        }
        self.absent.iter().for_each(|near| html.push_str(&absent_line(near)));
        html + "</article>"
    }
}

/// A line of what a row is linked with that is not beside it.
fn absent_line(all: &[&NeighbourCounts]) -> String {
    let long = |near: &&NeighbourCounts| match (near.is_parent, near.hidden) {
        (true, 0) => format!("{}: the row that it refers to was left out", near.relation),
        (true, _) => format!("{}: the row that it refers to came to exist later", near.relation),
        (false, _) => format!(
            "{}: of {} visible rows that refer to this one, {} are in the context; {} came to exist \
             later",
            near.relation,
            count(near.visible),
            count(near.in_context),
            count(near.hidden)
        ),
    };
    let (name, text) = match all {
        [near] if near.is_parent => {
            let text = if near.hidden > 0 { "<mark>exists later</mark>" } else { "left out" };
            (format!("→ {}", near.relation), text.to_owned())
        }
        [near] => (format!("← {}", near.relation), neighbour_counts(near)),
        _ => {
            let sum =
                |part: fn(&NeighbourCounts) -> u64| count(all.iter().map(|near| part(near)).sum());
            let counts = format!("{} of {}", sum(|near| near.in_context), sum(|near| near.visible));
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

/// How many of a row's children through a relation are in the context, and how many are hidden.
pub(super) fn neighbour_counts(near: &NeighbourCounts) -> String {
    let seen = format!("{} of {}", count(near.in_context), count(near.visible));
    match near.hidden {
        0 => seen,
        hidden => format!("{seen}, <mark>{} later</mark>", count(hidden)),
    }
}
