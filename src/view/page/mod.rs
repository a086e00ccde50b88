//! `headwater inspect DB --task T --item I --html FILE`: one context as a page for any browser.
//!
//! The page is one file that asks for nothing else, and its own policy forbids it to.

mod boxes;
mod cells;
mod graph;
mod layout;
mod markup;
mod masks;
mod png;
mod sequence;
mod summary;

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::durable::{Disk, write_file};
use crate::error::{Error, Result};
use crate::sampler::{Context, Sampler};
use crate::store::{METADATA_FILE, Store};
use crate::view::context::ContextView;
use boxes::RowBox;
use masks::Mask;
use sequence::Sequence;

/// What every page begins with, and nothing else does.
const MARK: &str = "<!doctype html>\n<!-- A context, drawn by headwater. -->\n";

/// Refuses a place where there is something else than a page of ours.
pub(super) fn check_place(path: &Path) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            return Err(Error::invalid(format!(
                "{} is there already, and is no file; choose another place",
                path.display()
            )));
        }
        _ => {}
    }
    if path.with_file_name(METADATA_FILE).exists() {
        return Err(Error::invalid(format!(
            "{} would lie in a store, which has no place for other files; choose another place",
            path.display()
        )));
    }
    let mut start = Vec::new();
    let file = File::open(path);
    match file.and_then(|file| file.take(MARK.len() as u64).read_to_end(&mut start)) {
        Ok(_) if start == MARK.as_bytes() => Ok(()),
        Ok(_) => Err(Error::invalid(format!(
            "{} is there already, and is no page of this kind; remove it, or choose another place",
            path.display()
        ))),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io(path, "read", e)),
    }
}

/// Draws a context on a page, wholly or not at all.
pub(super) fn write(
    path: &Path,
    store: &Store,
    sampler: &Sampler,
    context: &Context,
    view: &ContextView,
) -> Result<()> {
    let batch = sampler.batch_of_seed(&context.task, view.item)?;
    let sequence = Sequence::of(&batch, &context.rows)?;
    let boxes = boxes::boxes(store, context, view, &sequence)?;
    let names: Vec<String> = boxes.iter().flat_map(RowBox::cell_names).collect();
    let title = markup::escape(&format!("{}, item {}", view.task, view.item));
    let page = format!(
        include_str!("page.html"),
        title = title,
        style = include_str!("style.css"),
        script = include_str!("script.js"),
        when = markup::escape(&view.when()),
        target = summary::target(store, context, view),
        numbers = summary::numbers(view, &sequence),
        settings = summary::settings(store, sampler.settings(), view),
        bar = masks::bar(&sequence, &names),
        tables = summary::tables(store, context),
        hops = summary::hops(context, view),
        hidden = summary::hidden(view),
        graph = graph::graph(store, context, view, &boxes),
        masks = Mask::ALL.map(|mask| mask.figure(&sequence, &names)).concat(),
    );
    write_file(&Disk, path, (MARK.to_owned() + &page).as_bytes())
}
