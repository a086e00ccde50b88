//! The statistics of the command, as its sub-commands and as the description of a job in a spool.

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use super::columns::{DistinctArgs, ExactArgs, ExponentsArgs, HistogramArgs, MomentsArgs, TopArgs};
use super::cross::CrossArgs;
use super::gram::GramArgs;
use super::quantiles::QuantilesArgs;
use super::run::RunArgs;

/// A statistic and how it is folded.
#[derive(Args, Serialize, Deserialize)]
pub(super) struct Invocation<S: Args> {
    #[command(flatten)]
    pub(super) statistic: S,
    /// The default in the description of a job.
    #[command(flatten)]
    #[serde(skip)]
    pub(super) run: RunArgs,
}

/// A statistic to fold.
#[derive(Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Statistics {
    /// Folds the Gram matrix: the sum over all rows of the products of each two columns.
    ///
    /// The result is a .npy of 64-bit numbers.
    Gram(Invocation<GramArgs>),
    /// Folds the cross products X^T Y: the sum over all rows of the products of each column of X with each of Y
    ///
    /// X is --input and Y --with; row n of one belongs to row n of the other. The
    /// result is a .npy of 64-bit numbers, a row for each column of X. Columns of one
    /// Parquet file with another:
    ///
    ///   headwater-reduce cross --input T.parquet --select a b \
    ///     --with T.parquet --with-select y --out c.npy
    #[command(verbatim_doc_comment)]
    Cross(Invocation<CrossArgs>),
    /// Finds the count, range, mean, deviation, skewness and kurtosis of each column.
    ///
    /// NULL, NaN and infinities are counted separately; the other statistics are of the finite numbers.
    /// Variance and deviation are those of a population (ddof 0). Kurtosis is excess kurtosis, which is 0
    /// for the normal distribution. A value that the sums do not determine is null, such as the skewness
    /// of a constant. The result is the .json: for each column its name, if the file has names, the sums,
    /// whose bits never differ, and the statistics.
    Moments(Invocation<MomentsArgs>),
    /// Finds the sum, mean and deviation of each column, without any error but one rounding at the end.
    ///
    /// The sums are integers as wide as they need to be, so they are the same for any order of the rows
    /// and any --chunk-rows: use them where files come in another order, and to check other sums. They take 848
    /// bytes for each column, and many times the CPU time of moments. NULL, NaN and infinities are counted
    /// separately. Variance and deviation are those of a population (ddof 0). The result is the .json.
    Exact(Invocation<ExactArgs>),
    /// Counts the numbers of each column that lie between given edges.
    ///
    /// A number on an edge counts as above it, and infinities count as numbers; NaN and NULL are counted
    /// separately.
    /// The counts are the same for any order of the rows. The result is the .json.
    Histogram(Invocation<HistogramArgs>),
    /// Counts the numbers of each column that have each sign and binary exponent.
    ///
    /// Exponent 3 counts the numbers from 8 to 16. It shows the range of the numbers before you choose the
    /// edges of a histogram. The counts are the same for any order of the rows. The result is the .json.
    Exponents(Invocation<ExponentsArgs>),
    /// Estimates how many different numbers each column has (HyperLogLog).
    ///
    /// -0 equals 0, all NaN are one number, and NULL is not counted. The result is the .json; the digest is that of the
    /// registers, which are the same for any order of the rows.
    Distinct(Invocation<DistinctArgs>),
    /// Finds the rows with the greatest numbers in one column, or the least.
    ///
    /// Equal numbers are in the order of their rows; NULL and NaN are left out. The result is
    /// the .json, whose rows count from 0.
    Top(Invocation<TopArgs>),
    /// Finds exact quantiles of each column, such as the median, by several passes over the rows.
    ///
    /// The quantile Q of n numbers is the least of them that at least Q times n of them do not exceed, as
    /// numpy.quantile has it with method="inverted_cdf"; Q is taken exactly as it is written, without rounding.
    /// Numbers are in their total order: -0 is below 0, infinities are at the ends. NULL and NaN are counted
    /// separately, and are not among the n; without numbers a quantile is null.
    ///
    /// Numbers of 64 bits are read four times, all others twice. Each pass counts numbers by 16 bits of
    /// them, so it needs 512 KiB for each column, and after the first pass for each quantile of a column;
    /// at most 512 MiB. With --checkpoint-dir each pass has a folder of its own there, and --resume goes on
    /// in the pass that was interrupted. A --spool has a folder in it for each pass after the first, which
    /// the processes that work begin when the one before is complete; each block there takes on the disk
    /// what a pass takes in memory, so choose large blocks with --block-chunks where there are many chunks.
    ///
    /// The result is the .json; it is the same for any order of the rows and any --chunk-rows.
    Quantiles(Invocation<QuantilesArgs>),
}

macro_rules! from_invocations {
    ($($variant:ident($args:ty)),*) => {$(
        impl From<Invocation<$args>> for Statistics {
            fn from(invocation: Invocation<$args>) -> Self {
                Self::$variant(invocation)
            }
        }
    )*};
}

from_invocations!(
    Gram(GramArgs),
    Cross(CrossArgs),
    Moments(MomentsArgs),
    Exact(ExactArgs),
    Histogram(HistogramArgs),
    Exponents(ExponentsArgs),
    Distinct(DistinctArgs),
    Top(TopArgs),
    Quantiles(QuantilesArgs)
);

/// Evaluates `$work` with the invocation of any statistic.
macro_rules! with_invocation {
    ($statistics:expr, $invocation:ident => $work:expr) => {
        match $statistics {
            Statistics::Gram($invocation) => $work,
            Statistics::Cross($invocation) => $work,
            Statistics::Moments($invocation) => $work,
            Statistics::Exact($invocation) => $work,
            Statistics::Histogram($invocation) => $work,
            Statistics::Exponents($invocation) => $work,
            Statistics::Distinct($invocation) => $work,
            Statistics::Top($invocation) => $work,
            Statistics::Quantiles($invocation) => $work,
        }
    };
}

pub(super) use with_invocation;
