//! What a coordinator's progress leads to: a bar, checkpoints, and warnings of ranks that stand still.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::cli::progress::Bars;
use crate::error::Result;
use crate::fold::Statistic;
use crate::progress::Progress;
use crate::reducer::wire::{Coordinator, LateOrder};
use crate::reducer::{CheckpointWriter, Reduction};

/// The time after which a rank that has not joined is named.
const JOIN_MAX: Duration = Duration::from_mins(1);

/// When the next checkpoint is due.
#[derive(Clone, Copy)]
pub(super) enum Every {
    Time(Duration),
    Blocks(u64),
}

impl Default for Every {
    fn default() -> Self {
        Self::Time(Duration::from_mins(1))
    }
}

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| format!("expected seconds (60s) or blocks (8b), found {text:?}");
        match text.strip_suffix('b') {
            Some(blocks) => blocks.parse().map(Self::Blocks).map_err(wrong),
            None => text
                .strip_suffix('s')
                .unwrap_or(text)
                .parse()
                .map_err(wrong)
                .map(|seconds| Self::Time(Duration::from_secs(seconds))),
        }
    }
}

/// Shows the progress of a fold, and writes checkpoints when they are due.
pub(super) struct Watch<'a> {
    every: Every,
    block_chunks: u64,
    ranks: u32,
    bars: Bars<'a>,
    began_at: Instant,
    shown_rows: u64,
    saved_chunks: u64,
    saved_at: Instant,
    /// The ranks of which a warning said that they are late.
    late: BTreeSet<u32>,
    /// Whether the ranks that have not joined were named.
    named_absent: bool,
}

impl<'a> Watch<'a> {
    /// Returns the watch of a fold by `ranks` ranks, in blocks of `block_chunks` chunks.
    pub(super) fn new(every: Every, (block_chunks, ranks): (u64, u32), bars: Bars<'a>) -> Self {
        let now = Instant::now();
        Self {
            every,
            block_chunks,
            ranks,
            bars,
            began_at: now,
            shown_rows: 0,
            saved_chunks: 0,
            saved_at: now,
            late: BTreeSet::new(),
            named_absent: false,
        }
    }

    /// Starts after the chunks that earlier runs folded.
    pub(super) fn begin<S: Statistic>(&mut self, reduction: &Reduction<S>) {
        self.shown_rows = reduction.covered_rows();
        self.saved_chunks = reduction.covered_count();
        self.bars.begin("folding rows", Some(reduction.job().rows()));
        self.bars.skip(self.shown_rows);
    }

    /// Shows the progress, warns of ranks, and begins to write a checkpoint when it is due and the one before
    /// is written.
    ///
    /// # Errors
    /// Those of the checkpoints.
    pub(super) fn update<S: Statistic>(
        &mut self,
        coordinator: &Coordinator<S>,
        writer: Option<&mut CheckpointWriter<'_, '_>>,
    ) -> Result<()> {
        self.warn(coordinator);
        let reduction = coordinator.reduction();
        let rows = reduction.covered_rows();
        self.bars.advance(rows.saturating_sub(self.shown_rows))?;
        self.shown_rows = rows;
        let Some(writer) = writer else { return Ok(()) };
        let chunks = reduction.covered_count();
        let new_chunks = chunks.saturating_sub(self.saved_chunks);
        let is_due = match self.every {
            Every::Time(time) => self.saved_at.elapsed() >= time,
            Every::Blocks(blocks) => new_chunks >= blocks.saturating_mul(self.block_chunks),
        };
        if !writer.is_busy()? && is_due && new_chunks > 0 {
            writer.begin(reduction)?;
            self.saved_at = Instant::now();
            self.saved_chunks = chunks;
        }
        Ok(())
    }

    /// Names the ranks that are late or have not joined, once each.
    fn warn<S: Statistic>(&mut self, coordinator: &Coordinator<S>) {
        for (rank, LateOrder { chunks, milliseconds }) in coordinator.passed_over() {
            if self.late.insert(rank) {
                warn(&format!(
                    "rank {rank} has not sent the block that begins with chunk {} within {} s; \
                     another rank folds it, too, and the result is the same",
                    chunks.start,
                    milliseconds / 1000
                ));
            }
        }
        let passed_over: BTreeSet<u32> = coordinator.passed_over().map(|(rank, _)| rank).collect();
        for rank in self.late.difference(&passed_over) {
            match coordinator.lost().any(|lost| lost == *rank) {
                true => warn(&format!("rank {rank} has died")),
                false => warn(&format!("rank {rank} sends again")),
            }
        }
        self.late.retain(|rank| passed_over.contains(rank));
        if !self.named_absent && self.began_at.elapsed() > JOIN_MAX {
            self.named_absent = true;
            for rank in coordinator.absent(self.ranks) {
                let seconds = JOIN_MAX.as_secs();
                warn(&format!("rank {rank} has not joined within {seconds} s"));
            }
        }
    }

    /// Writes a last checkpoint, unless `writer` has written all.
    ///
    /// # Errors
    /// Those of the checkpoint.
    pub(super) fn save<S: Statistic>(
        &self,
        reduction: &Reduction<S>,
        writer: &mut CheckpointWriter<'_, '_>,
    ) -> Result<()> {
        let written = writer.finish();
        if written.is_ok() && reduction.covered_count() == self.saved_chunks {
            return Ok(());
        }
        writer.begin(reduction)?;
        writer.finish()
    }
}

fn warn(words: &str) {
    eprintln!("headwater-reduce: warning: {words}");
}
