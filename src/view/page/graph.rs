//! The rows of a context as boxes, and the links among them as arrows.

use std::fmt::Write;

use super::boxes::{HEAD, LINE, RowBox, neighbour_counts};
use super::layout::{BOX_WIDTH, Brood, GUTTER, HEADING, Layout};
use super::markup::escape;
use crate::sampler::{Context, Link};
use crate::store::Store;
use crate::view::context::ContextView;
use crate::view::relation::relation_name;

/// The offset of a box's lines from its top.
const PORT: u32 = 14;
/// The bulge of an arrow between boxes in one column.
const BULGE: u32 = 34;

/// Returns the whole picture.
pub(super) fn graph(
    store: &Store,
    context: &Context,
    view: &ContextView,
    boxes: &[RowBox<'_>],
) -> String {
    let heights: Vec<u32> = boxes.iter().map(RowBox::height).collect();
    let layout = Layout::of(&context.rows, &heights);
    let Layout { width, height, .. } = layout;
    let mut html = format!(
        "<div class=\"graph\" style=\"width:{width}px;height:{height}px;--box:{BOX_WIDTH}px;\
         --head:{HEAD}px;--line:{LINE}px;--heading:{HEADING}px\">\
         <svg class=\"arrows\" width=\"{width}\" height=\"{height}\">{}",
        heads()
    );
    for brood in &layout.broods {
        html.push_str(&tree_lines(&layout, brood, store));
    }
    for (row, number, link) in far_links(boxes) {
        let from = layout.boxes[row].y + boxes[row].link_line(number);
        html.push_str(&far_arrow(&layout, link, from, store));
    }
    html.push_str("</svg>");
    for brood in &layout.broods {
        html.push_str(&heading(brood, view, store));
    }
    for (row, place) in boxes.iter().zip(&layout.boxes) {
        html.push_str(&row.html(*place, boxes, store));
    }
    html + "</div>"
}

/// Returns the links that the walk did not follow, each with its row and its number there.
fn far_links<'a>(boxes: &'a [RowBox<'_>]) -> impl Iterator<Item = (usize, usize, &'a Link)> {
    let of_row = |(row, own): (usize, &'a RowBox<'_>)| {
        own.far_links.iter().enumerate().map(move |(number, link)| (row, number, link))
    };
    boxes.iter().enumerate().flat_map(of_row)
}

/// Returns the arrow heads.
fn heads() -> String {
    let head = |id: &str| {
        format!(
            "<marker id=\"{id}-head\" class=\"{id}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" \
             markerWidth=\"7\" markerHeight=\"7\" orient=\"auto-start-reverse\" \
             markerUnits=\"userSpaceOnUse\"><path d=\"M0 0L8 4L0 8Z\"/></marker>"
        )
    };
    format!("<defs>{}</defs>", ["parent", "child", "far"].map(head).concat())
}

/// Returns the lines from a row to the rows that it brought in through one relation. Arrows point at
/// parents: at those that it brought in, or at the row itself from its children.
fn tree_lines(layout: &Layout, brood: &Brood, store: &Store) -> String {
    let from = layout.boxes[brood.from];
    let (right, port) = (from.x + BOX_WIDTH, from.y + PORT);
    let (class, bus, ends) = match brood.is_parent {
        true => ("parent", 0, ["", " marker-end=\"url(#parent-head)\""]),
        false => ("child", 2, [" marker-start=\"url(#child-head)\"", ""]),
    };
    // Lines of boxes in one column have different offsets, so that they do not overlap.
    let bus = right + 11 + (bus + 5 * (brood.from as u32 % 5)) % 27;
    // Lines to parents leave below the children's arrow, so that the two differ.
    let port = if brood.is_parent { port + 12 } else { port };
    let spine = brood.x - 10;
    let title = escape(&relation_name(store, brood.relation));
    let middle = brood.y + HEADING / 2;
    let mut svg = format!(
        "<g class=\"{class}\" data-ends=\"{} {}\"><title>{title}</title>\
         <path d=\"M{right} {port}H{bus}V{middle}H{}\"{}/>",
        brood.from,
        brood.members.iter().map(usize::to_string).collect::<Vec<_>>().join(" "),
        brood.x - 3,
        ends[0],
    );
    for &member in &brood.members {
        let place = layout.boxes[member];
        // Boxes side by side share the line of the first one.
        if place.x == brood.x {
            let at = place.y + PORT;
            let _ = write!(svg, "<path d=\"M{spine} {middle}V{at}H{}\"{}/>", place.x, ends[1]);
        }
    }
    svg + "</g>"
}

/// Returns the arrow of a link that brought in neither of its rows, from its line in the child's box.
fn far_arrow(layout: &Layout, link: &Link, from: u32, store: &Store) -> String {
    let (child, parent) = (layout.boxes[link.child as usize], layout.boxes[link.parent as usize]);
    let to = parent.y + PORT;
    let (start, end, first, second) = if child.x + BOX_WIDTH < parent.x {
        let (start, end) = (child.x + BOX_WIDTH, parent.x);
        (start, end, start + GUTTER, end - GUTTER)
    } else if parent.x + BOX_WIDTH < child.x {
        let (start, end) = (child.x, parent.x + BOX_WIDTH);
        (start, end, start - GUTTER, end + GUTTER)
    } else {
        let (start, end) = (child.x + BOX_WIDTH, parent.x + BOX_WIDTH);
        (start, end, start + BULGE, end + BULGE)
    };
    format!(
        "<g class=\"far\" data-ends=\"{} {}\"><title>{}</title>\
         <path d=\"M{start} {from}C{first} {from} {second} {to} {end} {to}\" \
         marker-end=\"url(#far-head)\"/></g>",
        link.child,
        link.parent,
        escape(&relation_name(store, link.relation)),
    )
}

/// Returns the heading of the rows that a row brought in through one relation, with their number.
fn heading(brood: &Brood, view: &ContextView, store: &Store) -> String {
    let neighbours = view.rows[brood.from].neighbours.iter().find(|neighbours| {
        (neighbours.relation_number, neighbours.is_parent) == (brood.relation, brood.is_parent)
    });
    let counts = neighbours.filter(|_| !brood.is_parent).map_or_else(String::new, neighbour_counts);
    let (class, sign) = if brood.is_parent { ("parent", "→") } else { ("child", "←") };
    let long = match brood.is_parent {
        true => "the row that it refers to",
        false => "rows that refer to it: in the context, of how many visible",
    };
    format!(
        "<div class=\"brood {class}\" style=\"left:{}px;top:{}px\" title=\"{long}\">\
         {sign} {} <small>{counts}</small></div>",
        brood.x,
        brood.y,
        escape(&relation_name(store, brood.relation)),
    )
}
