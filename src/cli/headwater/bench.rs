//! `headwater bench`: measures the cost of a batch.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::prepare::Hooks;
use super::walk::{child_width_help, max_rows_help, walk};
use crate::Digest;
use crate::cli::cpu_time;
use crate::cli::output::Output;
use crate::error::{Error, Result};
use crate::events::{EventSampler, EventSettings, EventStore};
use crate::plan::{Assignment, Split};
use crate::sampler::{Batch, RowOrder, Sampler, Settings, Shape, Speed, Texts};
use crate::store::{Kind, Store};

/// The batches before the clock starts, which warm the buffers. They are hashed, because their time
/// is not measured.
const WARM_UP: u64 = 20;

/// Makes batches as in training, and prints the cost of one.
#[derive(Args)]
pub(super) struct BenchArgs {
    /// The store's folder.
    store: PathBuf,
    /// The number of batches to measure, after 20 for warm-up.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    batches: u64,
    /// The number of threads that make batches [default: all cores].
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Only these tasks.
    #[arg(long, value_name = "TASK")]
    tasks: Vec<String>,
    #[arg(long, value_name = "B", help = format!(
        "Sequences in a batch [default: {}; of events {}]",
        Settings::default().shape.batch_size,
        EventSettings::default().batch_size
    ))]
    batch_size: Option<u32>,
    #[arg(long, value_name = "S", help = format!(
        "Cells in a sequence; of events, tokens [default: {}; of events {}]",
        Settings::default().shape.sequence_length,
        EventSettings::default().sequence_length
    ))]
    sequence_length: Option<u32>,
    /// Lengths below S: a batch is padded to the least of them, or S, that holds its longest sequence.
    #[arg(long, value_name = "S,..", value_delimiter = ',')]
    sequence_buckets: Vec<u32>,
    #[arg(long, value_name = "R", help = max_rows_help())]
    max_rows: Option<u32>,
    #[arg(long, value_name = "N", help = child_width_help())]
    child_width: Option<u32>,
    /// Make times and links in the compact form.
    #[arg(long)]
    compact: bool,
    /// The place of the texts' vectors: in the batch, or global (the batch has indexes)
    /// [default: batch].
    #[arg(long, value_enum)]
    texts: Option<TextVectors>,
    /// Add the permutations to a batch, out_perm and in_perm in this order of rows [default: none].
    #[arg(long, value_enum)]
    row_order: Option<Order>,
}

#[derive(Clone, Copy, ValueEnum)]
enum TextVectors {
    Batch,
    Global,
}

#[derive(Clone, Copy, ValueEnum)]
enum Order {
    Walk,
    CuthillMckee,
}

/// The measurements, printed as the last line.
#[derive(Serialize)]
struct Measured {
    batches: u64,
    threads: Option<u16>,
    compact: bool,
    open_ms: f64,
    cpu_ms_per_batch: f64,
    batches_per_s: f64,
    sequences_per_s: f64,
    bytes_per_batch: u64,
    rows_per_sequence: f64,
    padding_share: f64,
    /// The digest of all bytes of the warm-up batches, in order.
    digest: Digest,
}

/// What the batches of events cost, printed as the last line.
#[derive(Serialize)]
struct EventsMeasured {
    batches: u64,
    threads: Option<u16>,
    open_ms: f64,
    cpu_ms_per_batch: f64,
    batches_per_s: f64,
    rows_per_s: f64,
    tokens_per_s: f64,
    contexts_per_row: f64,
    padding_share: f64,
    /// The digest of all bytes of the warm-up batches, in order.
    digest: Digest,
}

impl BenchArgs {
    pub(super) fn run(self, hooks: &Hooks<'_>) -> Result<()> {
        let started = Instant::now();
        if Kind::is_events(&self.store)? {
            return self.run_events(started, hooks);
        }
        let store = Arc::new(Store::open(&self.store)?);
        let settings = self.settings();
        let shape = settings.shape.clone();
        let sampler = Sampler::new(vec![store], settings, Assignment::new(0, 1)?, self.speed())?;
        let open_ms = started.elapsed().as_secs_f64() * 1000.0;
        let mut output = Output::new();
        for (number, task) in sampler.tasks().enumerate() {
            output.line(&match sampler.seed_count(number, Split::Train) {
                0 => format!("note: task {task} has no train seed and is skipped"),
                _ => format!("task {task}"),
            })?;
        }
        let digest = warmed_up(|hasher| {
            let (batch, _) = sampler.next(Split::Train)?;
            batch.tensors().for_each(|(_, bytes)| _ = hasher.update(bytes));
            Ok(())
        })?;
        let (mut bytes, mut rows, mut cells, mut padding) = (0, 0, 0, 0);
        let cost = self.measured(hooks, || {
            let (batch, _) = sampler.next(Split::Train)?;
            bytes += batch.bytes() as u64;
            rows += sum(&batch, "num_rows", |&n: &i32| n as u64);
            cells += batch.get::<u8>("is_padding").map_or(0, <[u8]>::len);
            padding += sum(&batch, "is_padding", |&n: &u8| u64::from(n));
            Ok(())
        })?;
        let sequences = self.batches as f64 * f64::from(shape.batch_size);
        output.json(&Measured {
            batches: self.batches,
            threads: self.threads,
            compact: self.compact,
            open_ms,
            cpu_ms_per_batch: cost.cpu_ms_per_batch,
            batches_per_s: cost.batches_per_s,
            sequences_per_s: cost.batches_per_s * f64::from(shape.batch_size),
            bytes_per_batch: bytes / self.batches,
            rows_per_sequence: rows as f64 / sequences,
            padding_share: padding as f64 / cells as f64,
            digest,
        })
    }

    fn run_events(&self, started: Instant, hooks: &Hooks<'_>) -> Result<()> {
        self.check_options_of_events()?;
        let store = Arc::new(EventStore::open(&self.store)?);
        let default = EventSettings::for_store(&store);
        let settings = EventSettings {
            batch_size: self.batch_size.unwrap_or(default.batch_size),
            sequence_length: self.sequence_length.unwrap_or(default.sequence_length),
            ..default
        };
        let (rows, length) = (settings.batch_size, settings.sequence_length);
        let sampler = EventSampler::new(store, settings, Assignment::new(0, 1)?, self.speed())?;
        let open_ms = started.elapsed().as_secs_f64() * 1000.0;
        let digest = warmed_up(|hasher| {
            let (batch, _) = sampler.next(Split::Train)?;
            batch.tensors().for_each(|(_, bytes)| _ = hasher.update(bytes));
            Ok(())
        })?;
        let (mut tokens, mut contexts) = (0, 0);
        let cost = self.measured(hooks, || {
            let (batch, _) = sampler.next(Split::Train)?;
            let segments = batch.get::<i32>("inputs_segmentation").unwrap_or_default();
            for row in segments.chunks(length as usize) {
                let real = row.partition_point(|segment| *segment > 0);
                tokens += real as u64;
                contexts +=
                    real.checked_sub(1).map_or(0, |last| u64::from(row[last].cast_unsigned()));
            }
            Ok(())
        })?;
        let all_rows = self.batches as f64 * f64::from(rows);
        let per_row = tokens as f64 / all_rows;
        Output::new().json(&EventsMeasured {
            batches: self.batches,
            threads: self.threads,
            open_ms,
            cpu_ms_per_batch: cost.cpu_ms_per_batch,
            batches_per_s: cost.batches_per_s,
            rows_per_s: cost.batches_per_s * f64::from(rows),
            tokens_per_s: cost.batches_per_s * f64::from(rows) * per_row,
            contexts_per_row: contexts as f64 / all_rows,
            padding_share: 1.0 - per_row / f64::from(length),
            digest,
        })
    }

    /// Rejects options that a store of events has no use for.
    fn check_options_of_events(&self) -> Result<()> {
        let given = [
            ("--tasks", !self.tasks.is_empty()),
            ("--sequence-buckets", !self.sequence_buckets.is_empty()),
            ("--max-rows", self.max_rows.is_some()),
            ("--child-width", self.child_width.is_some()),
            ("--compact", self.compact),
            ("--texts", self.texts.is_some()),
            ("--row-order", self.row_order.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(Error::invalid(format!(
                "expected a store of tables for {option}, found a store of events; leave it out"
            ))),
            None => Ok(()),
        }
    }

    fn speed(&self) -> Speed {
        Speed { threads: self.threads.map(usize::from), ..Speed::default() }
    }

    fn settings(&self) -> Settings {
        let default = Settings::default();
        Settings {
            tasks: Some(self.tasks.clone()).filter(|tasks| !tasks.is_empty()),
            walk: walk(self.child_width),
            row_order: match self.row_order {
                None | Some(Order::Walk) => RowOrder::Walk,
                Some(Order::CuthillMckee) => RowOrder::CuthillMckee,
            },
            shape: Shape {
                batch_size: self.batch_size.unwrap_or(default.shape.batch_size),
                sequence_length: self.sequence_length.unwrap_or(default.shape.sequence_length),
                sequence_buckets: self.sequence_buckets.clone(),
                max_rows: self.max_rows.unwrap_or(default.shape.max_rows),
                compact: self.compact,
                permutations: self.row_order.is_some(),
                texts: match self.texts {
                    None | Some(TextVectors::Batch) => Texts::Batch(Vec::new()),
                    Some(TextVectors::Global) => Texts::Global,
                },
            },
            ..default
        }
    }

    /// Takes the batches with `take`; returns what one costs.
    fn measured(&self, hooks: &Hooks<'_>, mut take: impl FnMut() -> Result<()>) -> Result<Cost> {
        // The same number of batches is ahead when the clock starts and when it stops.
        let (cpu_before, wall_before) = (cpu_time(), Instant::now());
        for made in 0..self.batches {
            if hooks.interrupted.is_some_and(|interrupted| interrupted()) {
                return Err(Error::interrupted(format!(
                    "interrupted after {made} of {} batches",
                    self.batches
                )));
            }
            take()?;
        }
        let (cpu, wall) = (cpu_time().saturating_sub(cpu_before), wall_before.elapsed());
        Ok(Cost {
            cpu_ms_per_batch: cpu.as_secs_f64() * 1000.0 / self.batches as f64,
            batches_per_s: self.batches as f64 / wall.as_secs_f64(),
        })
    }
}

/// Takes the batches before the clock starts with `take`, which hashes them; returns their digest.
fn warmed_up(mut take: impl FnMut(&mut blake3::Hasher) -> Result<()>) -> Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    (0..WARM_UP).try_for_each(|_| take(&mut hasher))?;
    Ok(Digest(*hasher.finalize().as_bytes()))
}

/// What a batch costs.
struct Cost {
    cpu_ms_per_batch: f64,
    batches_per_s: f64,
}

fn sum<T: bytemuck::Pod>(batch: &Batch, name: &str, of: impl Fn(&T) -> u64) -> u64 {
    batch.get::<T>(name).map_or(0, |values| values.iter().map(of).sum())
}
