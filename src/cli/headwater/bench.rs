//! `headwater bench`: measures the cost of a batch.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::prepare::Hooks;
use crate::Digest;
use crate::cli::cpu_time;
use crate::cli::output::Output;
use crate::error::{Error, Result};
use crate::plan::{Assignment, Split};
use crate::sampler::{Batch, Children, RowOrder, Sampler, Settings, Shape, Speed, Texts, Walk};
use crate::store::Store;

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
    /// Sequences in a batch.
    #[arg(long, value_name = "B", default_value_t = Settings::default().shape.batch_size)]
    batch_size: u32,
    /// Cells in a sequence.
    #[arg(long, value_name = "S", default_value_t = Settings::default().shape.sequence_length)]
    sequence_length: u32,
    /// The most rows of a context.
    #[arg(long, value_name = "R", default_value_t = Settings::default().shape.max_rows)]
    max_rows: u32,
    /// The most children that a row brings in through one relation.
    #[arg(long, value_name = "N", default_value_t = default_child_width())]
    child_width: u32,
    /// Make times and links in the compact form.
    #[arg(long)]
    compact: bool,
    /// The place of the texts' vectors: in the batch, or global (the batch has indexes).
    #[arg(long, value_enum, default_value_t = TextVectors::Batch)]
    texts: TextVectors,
    /// The order of out_perm and in_perm.
    #[arg(long, value_enum, default_value_t = Order::Walk)]
    row_order: Order,
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

impl BenchArgs {
    pub(super) fn run(self, hooks: &Hooks<'_>) -> Result<()> {
        let started = Instant::now();
        let store = Arc::new(Store::open(&self.store)?);
        let assignment = Assignment::new(0, 1)?;
        let speed = Speed { threads: self.threads.map(usize::from), ..Speed::default() };
        let sampler = Sampler::new(vec![store], self.settings(), assignment, speed)?;
        let open_ms = started.elapsed().as_secs_f64() * 1000.0;
        let mut output = Output::new();
        for (number, task) in sampler.tasks().enumerate() {
            output.line(&match sampler.seed_count(number, Split::Train) {
                0 => format!("note: task {task} has no train seed and is skipped"),
                _ => format!("task {task}"),
            })?;
        }
        let mut hasher = blake3::Hasher::new();
        for _ in 0..WARM_UP {
            let (batch, _) = sampler.next(Split::Train)?;
            batch.tensors().for_each(|(_, bytes)| _ = hasher.update(bytes));
        }
        let digest = Digest(*hasher.finalize().as_bytes());
        let measured = self.measure(&sampler, open_ms, digest, hooks)?;
        output.json(&measured)
    }

    fn settings(&self) -> Settings {
        Settings {
            tasks: Some(self.tasks.clone()).filter(|tasks| !tasks.is_empty()),
            walk: Walk::Priority { child_width: self.child_width, children: Children::Uniform },
            row_order: match self.row_order {
                Order::Walk => RowOrder::Walk,
                Order::CuthillMckee => RowOrder::CuthillMckee,
            },
            shape: Shape {
                batch_size: self.batch_size,
                sequence_length: self.sequence_length,
                max_rows: self.max_rows,
                compact: self.compact,
                texts: match self.texts {
                    TextVectors::Batch => Texts::Batch(Vec::new()),
                    TextVectors::Global => Texts::Global,
                },
            },
            ..Settings::default()
        }
    }

    fn measure(
        &self,
        sampler: &Sampler,
        open_ms: f64,
        digest: Digest,
        hooks: &Hooks<'_>,
    ) -> Result<Measured> {
        let (mut bytes, mut rows, mut padding) = (0, 0, 0);
        // The same number of batches is ahead when the clock starts and when it stops.
        let (cpu_before, wall_before) = (cpu_time(), Instant::now());
        for made in 0..self.batches {
            if hooks.interrupted.is_some_and(|interrupted| interrupted()) {
                return Err(Error::interrupted(format!(
                    "interrupted after {made} of {} batches",
                    self.batches
                )));
            }
            let (batch, _) = sampler.next(Split::Train)?;
            bytes += batch.bytes() as u64;
            rows += sum(&batch, "num_rows", |&n: &i32| n as u64);
            padding += sum(&batch, "is_padding", |&n: &u8| u64::from(n));
        }
        let (cpu, wall) = (cpu_time().saturating_sub(cpu_before), wall_before.elapsed());
        let batches = self.batches as f64;
        let sequences = batches * f64::from(self.batch_size);
        let per_s = batches / wall.as_secs_f64();
        Ok(Measured {
            batches: self.batches,
            threads: self.threads,
            compact: self.compact,
            open_ms,
            cpu_ms_per_batch: cpu.as_secs_f64() * 1000.0 / batches,
            batches_per_s: per_s,
            sequences_per_s: per_s * f64::from(self.batch_size),
            bytes_per_batch: bytes / self.batches,
            rows_per_sequence: rows as f64 / sequences,
            padding_share: padding as f64 / (sequences * f64::from(self.sequence_length)),
            digest,
        })
    }
}

fn default_child_width() -> u32 {
    match Settings::default().walk {
        Walk::Priority { child_width, .. } => child_width,
        Walk::Breadth { .. } => unreachable!("the default walk is by priority"),
    }
}

fn sum<T: bytemuck::Pod>(batch: &Batch, name: &str, of: impl Fn(&T) -> u64) -> u64 {
    batch.get::<T>(name).map_or(0, |values| values.iter().map(of).sum())
}
