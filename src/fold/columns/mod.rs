//! Statistics of single columns: moments, exact sums, histograms, quantiles, distinct counts and top
//! rows.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod column_moments;
mod column_sums;
mod counts;
mod digits;
mod distinct;
mod exact;
mod exponents;
mod fraction;
mod histogram;
mod quantiles;
mod rounding;
mod top;
mod words;

pub use column_moments::{ColumnMoments, ColumnSummary, MomentSums};
pub use column_sums::ColumnSums;
pub use counts::Counts;
pub use digits::DigitCounts;
pub use distinct::{Distinct, Registers};
pub use exact::{Exact, ExactSummary, ExactSums};
pub use exponents::{ColumnExponents, ExponentHistogram, SignExponents};
pub use fraction::Fraction;
pub use histogram::{ColumnCounts, Histogram};
pub use quantiles::{ColumnQuantiles, KeyWidth, Quantiles, Refined};
pub use top::{End, NumberedRows, RankedRow, Ranking, TopRows};
