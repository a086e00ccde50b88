//! `headwater schema`: drafts a schema for a source.

use std::path::PathBuf;

use clap::Args;

use super::prepare::Hooks;
use crate::cli::output::Output;
use crate::cli::progress::Bars;
use crate::durable::{Disk, write_file};
use crate::error::{Error, Result};
use crate::files::found_at;
use crate::prepare::draft;
use crate::prepare::source;
use crate::progress::Progress;
use crate::view::words::plural;

/// Drafts a schema file from the names, types and values of a source; correct it by hand.
#[derive(Args)]
pub(super) struct SchemaArgs {
    /// Folder of table files, one such file, a SQLite or DuckDB file, or postgresql://USER@HOST/DB.
    source: PathBuf,
    /// File to write the schema to (default: standard output).
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Name of the database (default: the name of the source).
    #[arg(long)]
    name: Option<String>,
    /// Draft a task for each cell that is worth predicting, too.
    #[arg(long)]
    cell_tasks: bool,
    /// Draft these tables alone, with commas between their names; a view that is named is drafted,
    /// too (default: all tables, no view).
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tables: Option<Vec<String>>,
}

pub(super) fn run(args: &SchemaArgs, hooks: &Hooks<'_>) -> Result<()> {
    if let Some(path) = &args.out
        && found_at(path)?.is_some()
    {
        return Err(Error::invalid(format!(
            "{} is there already and may contain corrections; remove it, or choose another file",
            path.display()
        )));
    }
    let mut source = source::open_with(&args.source, hooks.connect)?;
    if let Some(tables) = &args.tables {
        source = source::select(source, tables)?;
    }
    let name = match &args.name {
        Some(name) => name.clone(),
        None => source::database_name(&args.source),
    };
    let bars = Bars::new(hooks.interrupted);
    bars.begin("reading tables", None);
    let draft = draft::draft(&*source, &name, &|_table| bars.advance(1))?;
    drop(bars);
    let draft = if args.cell_tasks { draft } else { draft.without_cell_tasks() };
    let text = draft.render();
    let mut output = Output::new();
    match &args.out {
        None => output.line(text.trim_end()),
        Some(path) => {
            let references: usize = draft.schema.tables.iter().map(|t| t.references.len()).sum();
            write_file(&Disk, path, text.as_bytes())?;
            output.line(&format!(
                "{}: {}, {}, {}; read and correct it, then\n  headwater prepare {} --schema {} \
                 --out DB",
                path.display(),
                plural(draft.schema.tables.len() as u64, "table"),
                plural(references as u64, "reference"),
                plural(draft.schema.tasks.len() as u64, "task"),
                source::shown(&args.source),
                path.display(),
            ))
        }
    }
}
