//! Statistics of single columns: moments, exact sums, histograms, distinct counts and top rows.

mod column_moments;
mod counts;
mod distinct;
mod exact;
mod exponents;
mod histogram;
mod rounding;
mod top;
mod words;

pub use column_moments::{ColumnMoments, ColumnSummary, ColumnSums, MomentSums};
pub use counts::Counts;
pub use distinct::{Distinct, Registers};
pub use exact::{Exact, ExactSummary, ExactSums};
pub use exponents::{ColumnExponents, ExponentHistogram, SignExponents};
pub use histogram::{ColumnCounts, Histogram};
pub use top::{End, NumberedRows, RankedRow, Ranking, TopRows};
