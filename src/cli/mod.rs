//! The `headwater` command: one implementation for the Rust binary and the Python console script.

mod bench;
mod context;
mod inspect;
mod output;
mod page;
mod progress;
pub mod reduce;
pub mod signals;

#[cfg(feature = "python")]
pub(crate) use context::draw;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};

use crate::error::{Error, ErrorKind, Result};
use crate::plan::Cursor;
use crate::prepare::embed::{Embedder, EndpointEmbedder, HashingEmbedder};
use crate::prepare::schema::Schema;
use crate::prepare::source::{self, Source};
use crate::prepare::{Options, Progress, SqlEngine, draft, prepare};
use crate::store::Store;
use output::{Output, bytes, count, plural};
use progress::Bars;

/// Makes the engine for the SQL of a source's tasks.
pub type SqlHook<'a> = dyn Fn(&Arc<dyn Source>, &Schema) -> Box<dyn SqlEngine + 'a> + 'a;

/// What the binary or the Python package lends to the command.
#[derive(Default)]
pub struct Hooks<'a> {
    /// Runs the SQL of tasks over the tables of a source.
    pub sql: Option<&'a SqlHook<'a>>,
    /// Says whether the user wants the work to end. Asked again and again, and once before anything
    /// is written, so that it may begin to listen then: what never asks is ended by the signal.
    pub interrupted: Option<&'a (dyn Fn() -> bool + Sync)>,
}

const AFTER_HELP: &str = "\
From data to a store:
  headwater schema my-folder --out schema.toml     # then read and correct schema.toml
  headwater prepare my-folder --schema schema.toml --out my.db
  headwater verify my.db
  headwater inspect my.db --table orders --row 17
  headwater inspect my.db --task churn --item 5 --html context.html   # what a model sees

A source is a folder of .csv and .parquet files (a file a table), one such file, or a SQLite file.
Without data of your own: headwater demo-data demo.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 damaged or foreign file, 130 interrupted.";

/// Prepares relational data for deterministic sampling, and looks into what it prepared.
#[derive(Parser)]
#[command(name = "headwater", version, after_help = AFTER_HELP, max_term_width = 100)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Schema(SchemaArgs),
    Prepare(PrepareArgs),
    Verify(VerifyArgs),
    Inspect(inspect::InspectArgs),
    Bench(bench::BenchArgs),
    Cursor(CursorArgs),
    DemoData(DemoDataArgs),
}

/// Drafts a schema file from the names, types and values of a source, for you to correct.
#[derive(Args)]
struct SchemaArgs {
    /// A folder of .csv and .parquet files, one such file, or a SQLite file.
    source: PathBuf,
    /// Where to write the schema; standard output where it is not said.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The database's name; the source's where it is not said.
    #[arg(long)]
    name: Option<String>,
}

/// Makes a store from a source and its schema.
#[derive(Args)]
struct PrepareArgs {
    /// A folder of .csv and .parquet files, one such file, or a SQLite file.
    source: PathBuf,
    /// The schema file; `headwater schema` drafts one.
    #[arg(long, value_name = "FILE")]
    schema: PathBuf,
    /// The folder to make; it must not be there yet.
    #[arg(long, value_name = "DB")]
    out: PathBuf,
    /// How names, categories and texts become vectors: `hashing` (built in: words and letter
    /// triples, no model, no network), or the URL of a server with OpenAI's embeddings protocol,
    /// such as http://localhost:8000/v1; its key is taken from HEADWATER_EMBEDDING_KEY or
    /// OPENAI_API_KEY.
    #[arg(long, value_name = "hashing|URL", default_value = "hashing")]
    embedder: String,
    /// The model that the server is asked for.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Where the server's vectors are kept, so that none is asked for twice, not even after a crash;
    /// DB.embeddings where it is not said.
    #[arg(long, value_name = "FILE", requires = "model")]
    embedding_cache: Option<PathBuf>,
    /// How long a vector is.
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(8..=8192))]
    dimension: u32,
    /// Keep the texts without vectors (names and categories have theirs all the same).
    #[arg(long)]
    no_text_vectors: bool,
    /// How many threads work; all cores where it is not said. The bytes do not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print one JSON object instead of words.
    #[arg(long)]
    json: bool,
}

/// Reads every byte of a store and checks it against its digest.
#[derive(Args)]
struct VerifyArgs {
    /// The store's folder.
    store: PathBuf,
    /// Print one JSON object instead of words.
    #[arg(long)]
    json: bool,
}

/// Shows what a cursor says: its position, and the plan that it belongs to.
#[derive(Args)]
struct CursorArgs {
    /// The cursor's file.
    file: PathBuf,
    /// Print one JSON object instead of words.
    #[arg(long)]
    json: bool,
}

/// Writes a deterministic example: a relational shop with a planted signal, as CSV files.
#[derive(Args)]
struct DemoDataArgs {
    /// The folder to write them to: a new one, or an empty one.
    folder: PathBuf,
}

/// The CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Runs the command with `arguments`, the first of which is its own name.
///
/// Returns the exit status.
pub fn main(arguments: impl IntoIterator<Item = OsString>, hooks: &Hooks<'_>) -> u8 {
    let command = match Command::try_parse_from(arguments) {
        Ok(command) => command,
        Err(error) => return refused(&error),
    };
    let result = match command.verb {
        Verb::Schema(args) => schema(&args, hooks),
        Verb::Prepare(args) => run_prepare(&args, hooks),
        Verb::Verify(args) => verify(&args, hooks),
        Verb::Inspect(args) => inspect::run(&args),
        Verb::Bench(args) => args.run(hooks),
        Verb::Cursor(args) => cursor(&args),
        Verb::DemoData(args) => demo_data(&args),
    };
    exit_status("headwater", result)
}

/// Prints the help that was asked for, or what is wrong with the arguments; returns the exit status.
fn refused(error: &clap::Error) -> u8 {
    // Nobody can be told that telling failed.
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// Says what went wrong, if anything; returns the exit status.
fn exit_status(command: &str, result: Result<()>) -> u8 {
    told(command, result).map_or_else(status_of, |()| 0)
}

/// Says what went wrong, if anything, and keeps only its kind.
fn told(command: &str, result: Result<()>) -> Result<(), ErrorKind> {
    match result {
        Err(error) if !output::is_closed_pipe(&error) => {
            let _ = writeln!(std::io::stderr(), "{command}: {error}");
            Err(error.kind())
        }
        _ => Ok(()),
    }
}

fn status_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::NotOurs | ErrorKind::Version | ErrorKind::Corrupt => 3,
        ErrorKind::Interrupted => 130,
        _ => 1,
    }
}

/// What a database is called, by the name of its source; `.` is called as the folder is.
fn database_name(source: &Path) -> String {
    let whole = std::fs::canonicalize(source).ok();
    let stem = source.file_stem().or_else(|| whole.as_deref()?.file_stem());
    stem.map_or_else(|| "database".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

fn schema(args: &SchemaArgs, hooks: &Hooks<'_>) -> Result<()> {
    if let Some(path) = args.out.as_deref().filter(|path| path.exists()) {
        return Err(Error::invalid(format!(
            "{} is there already, and may hold corrections; remove it, or choose another place",
            path.display()
        )));
    }
    let source = source::open(&args.source)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => database_name(&args.source),
    };
    let bars = Bars::new(hooks.interrupted);
    bars.begin("reading tables", None);
    let draft = draft::draft(&*source, &name, &|_table| bars.advance(1))?;
    drop(bars);
    let text = draft.render();
    let mut output = Output::new();
    match &args.out {
        None => output.line(text.trim_end()),
        Some(path) => {
            let references: usize = draft.schema.tables.iter().map(|t| t.references.len()).sum();
            crate::durable::write_file(&crate::durable::Disk, path, text.as_bytes())?;
            output.line(&format!(
                "{}: {}, {}, {}; read and correct it, then\n  headwater prepare {} --schema {} \
                 --out DB",
                path.display(),
                plural(draft.schema.tables.len() as u64, "table"),
                plural(references as u64, "reference"),
                plural(draft.schema.tasks.len() as u64, "task"),
                args.source.display(),
                path.display(),
            ))
        }
    }
}

fn run_prepare(args: &PrepareArgs, hooks: &Hooks<'_>) -> Result<()> {
    let started = Instant::now();
    let schema = Schema::read(&args.schema)?;
    let source = Arc::from(source::open(&args.source)?);
    let embedder = embedder(args, hooks.interrupted.unwrap_or(&|| false))?;
    let sql = hooks.sql.map(|engine| engine(&source, &schema));
    let bars = Bars::new(hooks.interrupted);
    let options = Options {
        embedder: &*embedder,
        text_vectors: !args.no_text_vectors,
        threads: args.threads.map(usize::from),
        sql: sql.as_deref(),
        progress: &bars,
    };
    bars.advance(0)?;
    let report = prepare(&*source, &schema, &args.out, &options)?;
    drop(bars);
    let mut output = Output::new();
    if args.json {
        return output.json(&report);
    }
    output.line(&format!(
        "{}: {}, {}, {}; {} in {:.1} s",
        args.out.display(),
        plural(report.row_count, "row"),
        plural(report.edge_count, "link"),
        plural(u64::from(report.text_count), "text"),
        bytes(report.store_bytes),
        started.elapsed().as_secs_f64(),
    ))?;
    output.line(&format!("root {}", report.root))?;
    for remark in &report.remarks {
        output.line(&format!("note: {remark}"))?;
    }
    Ok(())
}

fn embedder<'a>(
    args: &PrepareArgs,
    stopped: &'a (dyn Fn() -> bool + Sync),
) -> Result<Box<dyn Embedder + 'a>> {
    let dimension = args.dimension as usize;
    match (args.embedder.as_str(), &args.model) {
        ("hashing", None) => Ok(Box::new(HashingEmbedder::new(dimension))),
        ("hashing", Some(_)) => {
            Err(Error::invalid("--model is for a server; give its URL with --embedder"))
        }
        (url, Some(model)) => {
            let key = ["HEADWATER_EMBEDDING_KEY", "OPENAI_API_KEY"];
            let key = key.iter().find_map(|name| std::env::var(name).ok());
            let cache = args.embedding_cache.clone().unwrap_or_else(|| {
                let mut name = args.out.clone().into_os_string();
                name.push(".embeddings");
                name.into()
            });
            let endpoint = EndpointEmbedder::new(url, model, key, dimension, &cache)?;
            Ok(Box::new(endpoint.stop_when(stopped)))
        }
        (other, None) => Err(Error::invalid(format!(
            "expected `--embedder hashing`, or a server's URL and the --model to ask it for; found \
             --embedder {other} alone"
        ))),
    }
}

fn verify(args: &VerifyArgs, hooks: &Hooks<'_>) -> Result<()> {
    let store = Store::open(&args.store)?;
    let bars = Bars::of_bytes(hooks.interrupted);
    bars.begin("verifying", Some(store.file_bytes()));
    bars.advance(0)?;
    store.verify(&|read| bars.advance(read))?;
    drop(bars);
    let mut output = Output::new();
    if args.json {
        return output.json(&serde_json::json!({
            "root": store.root(),
            "bytes": store.file_bytes(),
            "files": store.metadata().files.len() + 1,
        }));
    }
    output.line(&format!(
        "{}: whole; {} in {} files match root {}",
        args.store.display(),
        bytes(store.file_bytes()),
        store.metadata().files.len() + 1,
        store.root()
    ))
}

fn cursor(args: &CursorArgs) -> Result<()> {
    let cursor = Cursor::read(&args.file)?;
    let mut output = Output::new();
    let position = cursor.position().iter().map(|(name, value)| (name.to_owned(), value));
    if args.json {
        let position: serde_json::Map<_, _> = position.map(|(n, v)| (n, v.into())).collect();
        let fields: serde_json::Map<_, _> =
            cursor.fields().iter().map(|(n, v)| (n.to_owned(), v.to_string().into())).collect();
        return output.json(&serde_json::json!({
            "kind": cursor.kind().name(),
            "plan": cursor.fields().fingerprint().to_string(),
            "position": position,
            "fields": fields,
        }));
    }
    output.line(&format!(
        "{} cursor of plan {}",
        cursor.kind().name(),
        cursor.fields().fingerprint()
    ))?;
    output.line("position")?;
    output.columns(position.map(|(name, value)| [name, count(value)]))?;
    output.line("plan")?;
    output.columns(cursor.fields().iter().map(|(n, v)| [n.to_owned(), v.to_string()]))
}

fn demo_data(args: &DemoDataArgs) -> Result<()> {
    if std::fs::read_dir(&args.folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::invalid(format!(
            "{} is not empty; choose another folder",
            args.folder.display()
        )));
    }
    let made = crate::prepare::demo::demo_data(&args.folder)?;
    let mut output = Output::new();
    let folder = args.folder.display();
    output.line(&format!(
        "{folder}: {} in {}, with a schema; next\n  headwater prepare {folder} --schema \
         {folder}/schema.toml --out demo.db",
        plural(made.tables.iter().map(|(_, rows)| rows).sum(), "row"),
        plural(made.tables.len() as u64, "table"),
    ))
}

/// An error of the standard output.
fn output_error(error: std::io::Error) -> Error {
    Error::io(Path::new("standard output"), "writing to", error)
}
