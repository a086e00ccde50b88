//! `headwater-reduce quantiles`: exact quantiles of columns, by several passes over the rows.

use std::path::Path;

use clap::Args;
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::args::{RowsArgs, StatisticCommand, WrittenResult};
use super::columns::{OPERATIONS, known, open, output_of_columns};
use crate::Digest;
use crate::error::Result;
use crate::fold::columns::{ColumnQuantiles, DigitCounts};
use crate::fold::{Fraction, Quantiles};
use crate::reducer::{Job, OfMatrix, Source, quantile_width};

/// The arguments of `headwater-reduce quantiles` without those that all statistics share.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct QuantilesArgs {
    #[command(flatten)]
    rows: RowsArgs,
    /// The quantiles: decimal numbers from 0 to 1, taken exactly as they are written. 0 is the least number,
    /// 1 the greatest, 0.5 the lower median.
    #[arg(long, required = true, num_args = 1.., value_name = "Q", allow_negative_numbers = true)]
    at: Vec<Fraction>,
    /// What the passes before have found; none in the first.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "Known::is_empty")]
    known: Known,
    /// The number of passes before this one.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "is_zero")]
    passes_before: u32,
}

/// What the passes before have found: bytes, in JSON as hexadecimal digits.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
struct Known(Vec<u8>);

impl Known {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Known> for String {
    fn from(known: Known) -> Self {
        known.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for Known {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let digit = |of: &u8| char::from(*of).to_digit(16);
        let byte = |pair: &[u8; 2]| Some((digit(&pair[0])? << 4 | digit(&pair[1])?) as u8);
        let (pairs, rest) = text.as_bytes().as_chunks();
        let bytes = pairs.iter().map(byte).collect::<Option<Vec<u8>>>().filter(|_| rest.is_empty());
        bytes.map(Self).ok_or("expected hexadecimal digits in \"known\"")
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl StatisticCommand for QuantilesArgs {
    type Source = OfMatrix<Quantiles>;

    const PASSES: u32 = 4;

    fn pass(&self) -> u32 {
        self.passes_before + 1
    }

    fn passes(&self, source: &Self::Source) -> u32 {
        source.statistic().passes()
    }

    fn next(&self, source: &Self::Source, counts: &DigitCounts) -> Result<Option<Vec<u8>>> {
        source.statistic().known_after(counts)
    }

    fn beginning_with(&self, known: &[u8]) -> Self {
        let passes_before = self.passes_before + 1;
        Self { known: Known(known.to_vec()), passes_before, ..self.clone() }
    }

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()?, ..self })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs()
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)> {
        open(&self.rows, threads, |matrix| {
            let width = quantile_width(matrix.element());
            Quantiles::new(matrix.columns(), width, self.at.clone())?.after(&self.known.0)
        })
    }

    fn chunk_operations(&self, source: &Self::Source) -> f64 {
        self.rows.operations(source.statistic().column_count(), OPERATIONS)
    }

    fn write(
        &self,
        _: &Path,
        source: &Self::Source,
        counts: &DigitCounts,
    ) -> Result<WrittenResult> {
        let quantiles = source.statistic();
        let found = quantiles.found(counts)?;
        let at: Vec<String> = quantiles.at().iter().map(ToString::to_string).collect();
        let columns = found.iter().map(|of| {
            json!({
                "nulls": of.nulls,
                "nans": of.nans,
                "numbers": of.numbers,
                "at": at,
                "quantiles": of.values.iter().map(|value| known(*value)).collect::<Vec<_>>(),
            })
        });
        let mut written = output_of_columns(source, counts, columns.collect());
        // That of the quantiles, not of the counts of the last pass.
        written.digest = Digest::of(&ColumnQuantiles::encode(&found));
        written.more.insert("passes".to_owned(), quantiles.passes().into());
        Ok(written)
    }
}
