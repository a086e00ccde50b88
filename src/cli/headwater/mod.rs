//! The `headwater` command: one implementation for the Rust binary and the Python console script.

mod audit;
mod bench;
mod cursor;
mod demo;
mod export;
mod inspect;
mod inspect_args;
mod inspect_events;
mod named;
mod prepare;
mod schema;
mod sql;
mod stage;
mod verify;
mod walk;
mod warm;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use super::manual::{CompletionsArgs, ManArgs, version};
use super::{exit_status, print_usage};

pub use prepare::{Hooks, SqlHook};

const AFTER_HELP: &str = "\
From data to a store:
  headwater schema my-folder --out schema.toml   # then read and correct it
  headwater prepare my-folder --schema schema.toml --out my.db
  headwater verify my.db
  headwater stage my.db /local/my.db   # copy it to this machine's disk, for all
                                       # ranks
  headwater warm my.db                 # read it into memory before a training
  headwater audit my.db                # does a column leak the label?
  headwater inspect my.db --table orders --row 17
  headwater inspect my.db --task churn --seed-index 5 --html context.html
                                       # what a model sees

From a log of events (a schema with [events]) to token rows:
  headwater prepare pings.parquet --schema events.toml --out pings.db
  headwater inspect pings.db --token-row 0 --html row.html
  headwater export pings.db --out pings            # as ArrayRecord files

A source is one of
  a folder of .csv, .csv.gz, .csv.zst, .parquet and .arrayrecord files: a file
    is a table, and so is a sub-folder of files, which are its parts
  one such file, or a pattern in quotes for the parts of one table:
    'orders/*.parquet'
  a SQLite file
  a DuckDB file, or postgresql://USER@HOST/DATABASE: with the command of the
    Python package
To try it without data: headwater demo-data demo.

Exit status: 0 success, 1 failure, 2 wrong usage, 3 damaged or foreign file,
4 the audit found a possible leak, 130 interrupted.";

/// Prepares relational data for deterministic sampling, and inspects the stores.
#[derive(Parser)]
#[command(name = "headwater", version = version(), after_help = AFTER_HELP, max_term_width = 100)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

/// Returns the declarations of the command's arguments.
#[cfg(test)]
pub(super) fn command() -> clap::Command {
    <Command as clap::CommandFactory>::command()
}

#[derive(Subcommand)]
enum Verb {
    Schema(schema::SchemaArgs),
    Sql(sql::SqlArgs),
    Prepare(prepare::PrepareArgs),
    Verify(verify::VerifyArgs),
    Stage(stage::StageArgs),
    Warm(warm::WarmArgs),
    Audit(audit::AuditArgs),
    Inspect(inspect_args::InspectArgs),
    Export(export::ExportArgs),
    Bench(bench::BenchArgs),
    Cursor(cursor::CursorArgs),
    DemoData(demo::DemoDataArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Runs the command with `arguments`, the first of which is its own name.
///
/// Returns the exit status.
pub fn main(arguments: impl IntoIterator<Item = OsString>, hooks: &Hooks<'_>) -> u8 {
    let command = match Command::try_parse_from(arguments) {
        Ok(command) => command,
        Err(error) => return print_usage(&error),
    };
    let result = match command.verb {
        Verb::Audit(args) => match audit::run(&args, hooks) {
            Ok(status) => return status,
            Err(error) => Err(error),
        },
        Verb::Schema(args) => schema::run(&args, hooks),
        Verb::Sql(args) => sql::run(&args),
        Verb::Prepare(args) => prepare::run(&args, hooks),
        Verb::Verify(args) => verify::run(&args, hooks),
        Verb::Stage(args) => stage::run(&args, hooks),
        Verb::Warm(args) => warm::run(&args, hooks),
        Verb::Inspect(args) => inspect::run(&args),
        Verb::Export(args) => export::run(&args, hooks),
        Verb::Bench(args) => args.run(hooks),
        Verb::Cursor(args) => cursor::run(&args),
        Verb::DemoData(args) => demo::run(&args),
        Verb::Completions(args) => args.run::<Command>(),
        Verb::Man(args) => args.run::<Command>(),
    };
    exit_status("headwater", result)
}
