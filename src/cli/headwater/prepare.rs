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
    EventOptions, Merge, Options, Part, PartOptions, SqlEngine, memory_size, merge, prepare,
    prepare_events, prepare_part, replace,
};
use crate::progress::Progress;
use crate::store::TextEncoding;
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

/// The length of a vector, unless another is asked for.
const DIMENSION: u32 = 256;

/// Makes a store from a source and its schema.
///
/// The processes of a cluster can share the reading: N of them each run `prepare .. --part I/N --out FOLDER`,
/// with I from 1 to N, then one runs `prepare .. --merge FOLDER --out DB`. The store is the same, byte for
/// byte.
#[derive(Args)]
pub(super) struct PrepareArgs {
    /// Folder of table files, one such file, a SQLite or DuckDB file, or postgresql://USER@HOST/DB.
    source: PathBuf,
    /// Schema file; `headwater schema` drafts one.
    #[arg(long, value_name = "FILE")]
    schema: PathBuf,
    /// Folder to write the store to; it must not exist, unless --force is set. With --part, the folder of
    /// the parts.
    #[arg(long, value_name = "DB")]
    out: PathBuf,
    /// Read part I of N, I from 1 to N, and write it to --out as the file I-of-N.part, in place of a store.
    /// The parts can be made in any order, on any machines that see the same files, or copies with the
    /// same times (cp -p, rsync -t). Whole files and row groups of Parquet and ranges of rows of SQLite
    /// files are divided, so one large CSV file goes to one part. A part made again replaces itself.
    #[arg(long, value_name = "I/N", conflicts_with = "merge")]
    part: Option<Part>,
    /// Make the store of the parts in this folder. SOURCE and --schema are those of the parts: a file that
    /// has changed since is an error, and the rows of tasks are read from SOURCE. Texts are embedded here.
    #[arg(long, value_name = "FOLDER")]
    merge: Option<PathBuf>,
    /// Replace the store at --out, and nothing but a store. The old store stays there until the new
    /// one is complete; then the two folders trade names in one step. So a killed command leaves a
    /// whole store, old or new. Needs space for both, and a file system that can trade names.
    #[arg(long)]
    force: bool,
    /// Embedder of names, categories and texts: `hashing` (built in: words and letter triples, no
    /// model, no network), or the URL of a server with OpenAI's embeddings protocol, such as
    /// http://localhost:8000/v1. The key of the server is HEADWATER_EMBEDDING_KEY or
    /// OPENAI_API_KEY. (default: hashing)
    #[arg(long, value_name = "hashing|URL")]
    embedder: Option<String>,
    /// Model to request from the server.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// File that caches the server's vectors, so that none is requested twice, even after a crash
    /// (default: DB.embeddings).
    #[arg(long, value_name = "FILE", requires = "model")]
    embedding_cache: Option<PathBuf>,
    /// Length of a vector (default: 256).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(8..=8192))]
    dimension: Option<u32>,
    /// How to store the vectors of texts: `f16`, 16-bit floats, or `int8`, 8-bit integers with a scale for each
    /// text, which take half the bytes on disk, in batches and on devices, and are off by at most 1/254 of a
    /// vector's greatest magnitude. (default: f16)
    #[arg(long, value_name = "f16|int8", value_parser = text_encoding)]
    text_vectors: Option<TextEncoding>,
    /// Do not embed texts (names and categories are always embedded).
    #[arg(long, conflicts_with = "text_vectors")]
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

fn text_encoding(name: &str) -> Result<TextEncoding> {
    let expected = TextEncoding::NAMES.join(" or ");
    let found = TextEncoding::named(name);
    found.ok_or_else(|| Error::invalid(format!("expected {expected}, found {name:?}")))
}

pub(super) fn run(args: &PrepareArgs, hooks: &Hooks<'_>) -> Result<()> {
    let started = Instant::now();
    let schema = Schema::read(&args.schema)?;
    let source: Arc<dyn Source> = Arc::from(open_with(&args.source, hooks.connect)?);
    if let Some(part) = args.part {
        return run_part(args, part, hooks, &*source, &schema, started);
    }
    if schema.events.is_some() {
        return run_events(args, hooks, &*source, &schema, started);
    }
    let embedder = embedder(args, hooks.interrupted.unwrap_or(&|| false))?;
    let sql = hooks.sql.map(|engine| engine(&source, &schema));
    let bars = Bars::new(hooks.interrupted);
    let options = Options {
        embedder: &*embedder,
        text_vectors: (!args.no_text_vectors).then(|| args.text_vectors.unwrap_or_default()),
        threads: args.threads.map(usize::from),
        memory: args.memory,
        sql: sql.as_deref(),
        progress: &bars,
    };
    bars.advance(0)?;
    let report = match &args.merge {
        Some(parts) => {
            let to = Merge { parts, out: &args.out, replace: args.force };
            merge(&*source, &schema, &to, &options)?
        }
        None if args.force => replace(&*source, &schema, &args.out, &options)?,
        None => prepare(&*source, &schema, &args.out, &options)?,
    };
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

/// Makes one part of a store.
fn run_part(
    args: &PrepareArgs,
    part: Part,
    hooks: &Hooks<'_>,
    source: &dyn Source,
    schema: &Schema,
    started: Instant,
) -> Result<()> {
    if schema.events.is_some() {
        return Err(no_parts_of_events());
    }
    let embeds = args.embedder.is_some()
        || args.model.is_some()
        || args.dimension.is_some()
        || args.text_vectors.is_some()
        || args.no_text_vectors;
    if embeds {
        return Err(Error::invalid(
            "expected no option for embedding with --part, because --merge embeds the texts; give \
             --embedder, --model, --dimension, --text-vectors and --no-text-vectors with --merge",
        ));
    }
    if args.memory.is_some() {
        return Err(Error::invalid(
            "expected no --memory with --part, because a part takes the memory of some batches whatever its \
             size; give it with --merge",
        ));
    }
    if args.force {
        return Err(Error::invalid(
            "expected no --force with --part, because a part made again replaces itself; leave it out",
        ));
    }
    let bars = Bars::new(hooks.interrupted);
    let options = PartOptions { threads: args.threads.map(usize::from), progress: &bars };
    bars.advance(0)?;
    let report = prepare_part(source, schema, &args.out, part, &options)?;
    drop(bars);
    let mut output = Output::new();
    if args.json {
        return output.json(&report);
    }
    output.line(&format!(
        "{}: part {part}: {} in {}; {} in {:.1} s",
        args.out.display(),
        plural(report.row_count, "row"),
        plural(report.block_count, "block"),
        bytes(report.part_bytes),
        started.elapsed().as_secs_f64(),
    ))
}

fn no_parts_of_events() -> Error {
    Error::invalid(
        "expected tables, found [events]: one process prepares a log of events; leave out --part and --merge",
    )
}

/// Makes an event store.
fn run_events(
    args: &PrepareArgs,
    hooks: &Hooks<'_>,
    source: &dyn Source,
    schema: &Schema,
    started: Instant,
) -> Result<()> {
    if args.merge.is_some() {
        return Err(no_parts_of_events());
    }
    let embeds = args.embedder.as_ref().is_some_and(|embedder| embedder != "hashing");
    let of_texts = args.text_vectors.is_some() || args.no_text_vectors;
    if embeds || args.model.is_some() || of_texts {
        return Err(Error::invalid(
            "expected no option for embedding, because events have no texts; leave out --embedder, \
             --model, --text-vectors and --no-text-vectors",
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
    let dimension = args.dimension.unwrap_or(DIMENSION) as usize;
    match (args.embedder.as_deref().unwrap_or("hashing"), &args.model) {
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
