//! `headwater prepare`: makes a store from a source and its schema.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;

use super::inspect_events::least_length;
use crate::cli::Interrupted;
use crate::cli::output::Output;
use crate::cli::progress::Bars;
use crate::error::{Error, Result};
use crate::prepare::embed::{Embedder, EndpointEmbedder, HashingEmbedder};
use crate::prepare::schema::Schema;
use crate::prepare::source::{Connect, Source, open_with};
use crate::prepare::{
    EventOptions, Options, SqlEngine, memory_size, prepare, prepare_events, replace,
};
use crate::progress::Progress;
use crate::view::time_text;
use crate::view::words::{bytes, entities, plural};

/// Makes the engine for the SQL of a source's tasks.
pub type SqlHook<'a> = dyn Fn(&Arc<dyn Source>, &Schema) -> Box<dyn SqlEngine + 'a> + 'a;

/// Functions that the binary or the Python package gives to the command.
#[derive(Default)]
pub struct Hooks<'a> {
    /// Runs the SQL of tasks over the tables of a source.
    pub sql: Option<&'a SqlHook<'a>>,
    /// Opens the databases that the Python package reads.
    pub connect: Option<&'a Connect<'a>>,
    /// Returns whether the user has interrupted the command. Called repeatedly, and once before the
    /// command writes anything, so that it can install its handler then; a command that never calls
    /// it is ended by the signal.
    pub interrupted: Option<&'a Interrupted<'a>>,
}

/// Makes a store from a source and its schema.
#[derive(Args)]
pub(super) struct PrepareArgs {
    /// Folder of table files, one such file, a SQLite or DuckDB file, or postgresql://USER@HOST/DB.
    source: PathBuf,
    /// Schema file; `headwater schema` drafts one.
    #[arg(long, value_name = "FILE")]
    schema: PathBuf,
    /// Folder to write the store to; it must not exist, unless --force is set.
    #[arg(long, value_name = "DB")]
    out: PathBuf,
    /// Replace the store at --out, and nothing but a store. The old store stays there until the new
    /// one is complete; then the two folders trade names in one step. So a killed command leaves a
    /// whole store, old or new. Needs space for both, and a file system that can trade names.
    #[arg(long)]
    force: bool,
    /// Embedder of names, categories and texts: `hashing` (built in: words and letter triples, no
    /// model, no network), or the URL of a server with OpenAI's embeddings protocol, such as
    /// http://localhost:8000/v1. The key of the server is HEADWATER_EMBEDDING_KEY or
    /// OPENAI_API_KEY.
    #[arg(long, value_name = "hashing|URL", default_value = "hashing")]
    embedder: String,
    /// Model to request from the server.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// File that caches the server's vectors, so that none is requested twice, even after a crash
    /// (default: DB.embeddings).
    #[arg(long, value_name = "FILE", requires = "model")]
    embedding_cache: Option<PathBuf>,
    /// Length of a vector.
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(8..=8192))]
    dimension: u32,
    /// Do not embed texts (names and categories are always embedded).
    #[arg(long)]
    no_text_vectors: bool,
    /// Number of threads (default: all cores); the bytes of the store do not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Memory to aim at, such as 2GB (default: half of what this process can have). Keys, links and
    /// texts that do not fit go to temporary files beside DB. The bytes of the store do not depend on
    /// it. DuckDB, which runs the SQL of tasks, has memory of its own.
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    memory: Option<u64>,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &PrepareArgs, hooks: &Hooks<'_>) -> Result<()> {
    let started = Instant::now();
    let schema = Schema::read(&args.schema)?;
    let source: Arc<dyn Source> = Arc::from(open_with(&args.source, hooks.connect)?);
    if schema.events.is_some() {
        return run_events(args, hooks, &*source, &schema, started);
    }
    let embedder = embedder(args, hooks.interrupted.unwrap_or(&|| false))?;
    let sql = hooks.sql.map(|engine| engine(&source, &schema));
    let bars = Bars::new(hooks.interrupted);
    let options = Options {
        embedder: &*embedder,
        text_vectors: !args.no_text_vectors,
        threads: args.threads.map(usize::from),
        memory: args.memory,
        sql: sql.as_deref(),
        progress: &bars,
    };
    bars.advance(0)?;
    let run = if args.force { replace } else { prepare };
    let report = run(&*source, &schema, &args.out, &options)?;
    drop(bars);
    let mut output = Output::new();
    if args.json {
        return output.json(&report);
    }
    output.line(&format!(
        "{}: {}, {}, {}; {} in {:.1} s",
        args.out.display(),
        plural(report.row_count, "row"),
        plural(report.link_count, "link"),
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

/// Makes an event store.
fn run_events(
    args: &PrepareArgs,
    hooks: &Hooks<'_>,
    source: &dyn Source,
    schema: &Schema,
    started: Instant,
) -> Result<()> {
    if args.embedder != "hashing" || args.model.is_some() || args.no_text_vectors {
        return Err(Error::invalid(
            "expected no option for embedding, because events have no texts; leave out --embedder, \
             --model and --no-text-vectors",
        ));
    }
    if args.memory.is_some() {
        return Err(Error::invalid(
            "expected no --memory, because a log of events takes the same memory whatever its size; leave \
             it out",
        ));
    }
    let bars = Bars::new(hooks.interrupted);
    let threads = args.threads.map(usize::from);
    let options = EventOptions { replace: args.force, threads, progress: &bars };
    bars.advance(0)?;
    let report = prepare_events(source, schema, &args.out, &options)?;
    drop(bars);
    let mut output = Output::new();
    if args.json {
        return output.json(&report);
    }
    output.line(&format!(
        "{}: {} of {} in {}; {} in {:.1} s",
        args.out.display(),
        plural(report.event_count, "event"),
        entities(u64::from(report.entity_count)),
        plural(report.row_count, "row"),
        bytes(report.store_bytes),
        started.elapsed().as_secs_f64(),
    ))?;
    let (first, last) = (time_text(report.first_us), time_text(report.last_us));
    output.line(&format!("times {first} to {last}"))?;
    output.line(&format!("root {}", report.root))?;
    if let Some(words) = least_length(report.room) {
        output.line(&words)?;
    }
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
            Err(Error::invalid("expected the URL of a server with --model; set --embedder URL"))
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
            "expected --embedder hashing, or --embedder URL with --model; found --embedder {other} \
             alone"
        ))),
    }
}
