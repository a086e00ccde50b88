//! `headwater inspect DB --task T --seed-index I --html FILE`: one context as an HTML page.
//!
//! The page is one file that loads nothing else; its content security policy forbids it.

mod boxes;
mod cells;
mod graph;
mod layout;
pub(super) mod markup;
mod masks;
mod png;
mod sequence;
mod summary;

use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::durable::{Disk, write_file};
use crate::error::{Error, Result};
use crate::files::{found_at, try_open};
use crate::sampler::{Context, Sampler};
use crate::store::{METADATA_FILE, Store};
use crate::view::context::ContextView;
use boxes::RowBox;
use masks::Mask;
use sequence::Sequence;

/// The first bytes of every page, by which it is recognised.
pub(super) const MARK: &str = "<!doctype html>\n<!-- A context, drawn by headwater. -->\n";

/// Rejects a path with anything else than a page that shows a context.
pub(crate) fn check_place(path: &Path) -> Result<()> {
    check_page(path, MARK)
}

/// Rejects a path with anything else than a page that begins with `mark`.
pub(super) fn check_page(path: &Path, mark: &str) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            return Err(Error::invalid(format!(
                "{} exists already and is not a file; choose another path",
                path.display()
            )));
        }
        _ => {}
    }
    if found_at(&path.with_file_name(METADATA_FILE))?.is_some() {
        return Err(Error::invalid(format!(
            "{} lies in a store, which must hold no other files; choose another path",
            path.display()
        )));
    }
    let mut start = Vec::new();
    let file = try_open(path);
    match file.and_then(|file| file.take(mark.len() as u64).read_to_end(&mut start)) {
        Ok(_) if start == mark.as_bytes() => Ok(()),
        Ok(_) => Err(Error::invalid(format!(
            "{} exists already and is not a page of headwater; remove it, or choose another path",
            path.display()
        ))),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io(path, "read", e)),
    }
}

/// Writes a page to a file, completely or not at all; replaces an earlier page, and no other file.
///
/// # Errors
/// Those of [`check_place`]; `Io` when the disk fails.
pub fn save(path: &Path, page: &str) -> Result<()> {
    check_place(path)?;
    write_file(&Disk, path, page.as_bytes())
}

/// Draws a context as a page.
pub(super) fn draw(
    store: &Store,
    sampler: &Sampler,
    context: &Context,
    view: &ContextView,
) -> Result<String> {
    let batch = sampler.batch_of_seed(&context.task, view.seed_index)?;
    let sequence = Sequence::of(&batch, &context.rows)?;
    let boxes = boxes::boxes(store, context, view, &sequence)?;
    let names: Vec<String> = boxes.iter().flat_map(RowBox::cell_names).collect();
    let title = markup::escape(&format!("{}, seed_index {}", view.task, view.seed_index));
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
    Ok(MARK.to_owned() + &page)
}
