//! The rows of a context as boxes, and the references among them as arrows.

use std::fmt::Write;

use super::boxes::{HEAD, LINE, RowBox, neighbour_counts};
use super::layout::{BOX_WIDTH, Brood, GUTTER, HEADING, Layout};
use super::markup::escape;
use crate::sampler::{Context, Link};
use crate::store::Store;
use crate::view::context::ContextView;

/// How far below the top of a box the lines to and from it are.
const PORT: u32 = 14;
/// How far an arrow between boxes above each other bulges.
const BULGE: u32 = 34;

/// The whole picture.
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

/// The references that are not the walk's own, each with its row and its number there.
fn far_links<'a>(boxes: &'a [RowBox<'_>]) -> impl Iterator<Item = (usize, usize, &'a Link)> {
    let of_row = |(row, own): (usize, &'a RowBox<'_>)| {
        own.far_links.iter().enumerate().map(move |(number, link)| (row, number, link))
    };
    boxes.iter().enumerate().flat_map(of_row)
}

/// The heads of the arrows.
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

/// The lines from a row to what it brought in through one relation. The arrow is where the
/// reference points: at the parents that were brought in, or at the row that its children refer to.
fn tree_lines(layout: &Layout, brood: &Brood, store: &Store) -> String {
    let from = layout.boxes[brood.from];
    let (right, port) = (from.x + BOX_WIDTH, from.y + PORT);
    let (class, bus, ends) = match brood.is_parent {
        true => ("parent", 0, ["", " marker-end=\"url(#parent-head)\""]),
        false => ("child", 2, [" marker-start=\"url(#child-head)\"", ""]),
    };
    // Neighbours above each other take turns, lest their lines become one.
    let bus = right + 11 + (bus + 5 * (brood.from as u32 % 5)) % 27;
    // A row's parents leave it below its children's arrow, so that the two can be told apart.
    let port = if brood.is_parent { port + 12 } else { port };
    let spine = brood.x - 10;
    let title = escape(&store.relation_name(brood.relation as usize));
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
        // Those abreast stand together behind the first of them.
        if place.x == brood.x {
            let at = place.y + PORT;
            let _ = write!(svg, "<path d=\"M{spine} {middle}V{at}H{}\"{}/>", place.x, ends[1]);
        }
    }
    svg + "</g>"
}

/// The arrow of a reference that brought in neither of its rows, from its line in the child's box.
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
        escape(&store.relation_name(link.relation as usize)),
    )
}

/// The name of what a row brought in through one relation, and how many there are.
fn heading(brood: &Brood, view: &ContextView, store: &Store) -> String {
    let near = view.rows[brood.from]
        .neighbours
        .iter()
        .find(|near| (near.relation_number, near.is_parent) == (brood.relation, brood.is_parent));
    let counts = near.filter(|_| !brood.is_parent).map_or_else(String::new, neighbour_counts);
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
        escape(&store.relation_name(brood.relation as usize)),
    )
}
