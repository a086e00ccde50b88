//! The arguments of `headwater inspect`.

use std::path::PathBuf;

use clap::Args;

use super::walk::{child_width_help, max_rows_help};

/// Shows the tables, relations and tasks of a store; or one table's columns, one row, or one context.
#[derive(Args)]
pub(super) struct InspectArgs {
    /// The store's folder.
    pub(super) store: PathBuf,
    /// Show this table's columns, with their statistics.
    #[arg(long, value_name = "NAME")]
    pub(super) table: Option<String>,
    /// Show the row of that table with this key (a composite key as 1|2) or this number (as #5).
    #[arg(long, value_name = "KEY", requires = "table", allow_negative_numbers = true)]
    pub(super) row: Option<String>,
    /// Show the context of one seed of this task, with the sampler's default settings but for --max-rows
    /// and --child-width.
    #[arg(long, value_name = "TASK", conflicts_with = "table", group = "drawn")]
    pub(super) task: Option<String>,
    /// The number of the seed in the task, counted from 0 (default: 0).
    #[arg(
        long,
        alias = "item",
        value_name = "N",
        requires = "task",
        allow_negative_numbers = true
    )]
    pub(super) seed_index: Option<u32>,
    #[arg(long, value_name = "R", requires = "task", help = max_rows_help())]
    pub(super) max_rows: Option<u32>,
    #[arg(long, value_name = "N", requires = "task", help = child_width_help())]
    pub(super) child_width: Option<u32>,
    /// Of a store of events: show this token row of the stream of a split, counted from 0, with the
    /// sampler's default settings.
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "table",
        group = "drawn",
        allow_negative_numbers = true
    )]
    pub(super) token_row: Option<u64>,
    /// The tokens of the token row (default: 1024, or as many as the store's longest event needs).
    #[arg(long, value_name = "N", requires = "token_row")]
    pub(super) sequence_length: Option<u32>,
    /// The split of the token row.
    #[arg(long, value_name = "SPLIT", requires = "token_row", default_value = "train",
          value_parser = ["train", "val", "test"])]
    pub(super) split: String,
    /// Write the context or the token row to an HTML page instead: rows, cells, links, hidden rows and
    /// attention masks, or tokens and what they mean. An existing page is replaced.
    #[arg(long, value_name = "FILE", requires = "drawn", conflicts_with = "json")]
    pub(super) html: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(super) json: bool,
}
