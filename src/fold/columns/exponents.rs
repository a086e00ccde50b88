//! Histograms of the columns by sign and binary exponent.

use crate::error::Result;

use super::counts::{Counts, add_one, check_counts};
use crate::environment::in_default_environment;
use crate::fold::rows::Rows;
use crate::fold::statistic::{Statistic, same_count};

/// The bit of a number's sign.
const SIGN: u64 = 1 << 63;
/// The bins without a sign, which come first: NULL and NaN.
const NULL_BIN: usize = 0;
const NAN_BIN: usize = 1;
const UNSIGNED_BINS: usize = 2;
/// The bins of one sign: zero, subnormal numbers, exponent fields 1 to 2,046, infinity.
const SIGN_BINS: usize = 2 + 2046 + 1;
/// The bins of a column.
const BINS: usize = UNSIGNED_BINS + 2 * SIGN_BINS;

/// A histogram of each column by sign and binary exponent. It needs no edges, and covers all 64-bit
/// floats.
///
/// # Determinism
/// Merging commutes: the counts depend on the set of rows alone, not on their order or the chunk
/// size.
pub struct ExponentHistogram {
    columns: usize,
}

/// The counts of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnExponents<'a> {
    /// NULLs.
    pub nulls: u64,
    /// NaNs.
    pub nans: u64,
    /// Numbers without a minus sign.
    pub positive: SignExponents<'a>,
    /// Numbers with a minus sign.
    pub negative: SignExponents<'a>,
}

/// The counts of the numbers of one sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignExponents<'a> {
    /// Zeros of this sign.
    pub zeros: u64,
    /// Numbers below 2^-1022, without the zeros.
    pub subnormals: u64,
    /// Numbers from 2^(e - 1022) to 2^(e - 1021), exclusive, for e from 0 to 2,045.
    pub normal: &'a [u64],
    /// Infinities of this sign.
    pub infinities: u64,
}

impl ExponentHistogram {
    /// Returns the statistic of `columns` columns.
    ///
    /// # Errors
    /// `InvalidArgument` for 0 columns, `LimitExceeded` for too many.
    pub fn new(columns: usize) -> Result<Self> {
        check_counts([columns.saturating_mul(BINS)].into_iter())?;
        Ok(Self { columns })
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn column_count(&self) -> usize {
        self.columns
    }

    /// Returns the counts of each column.
    pub fn columns<'a>(&self, counts: &'a Counts) -> impl Iterator<Item = ColumnExponents<'a>> {
        counts.values().chunks_exact(BINS).map(|bins| {
            let (positive, negative) = bins[UNSIGNED_BINS..].split_at(SIGN_BINS);
            let (positive, negative) = (of_sign(positive), of_sign(negative));
            ColumnExponents { nulls: bins[NULL_BIN], nans: bins[NAN_BIN], positive, negative }
        })
    }
}

fn of_sign(bins: &[u64]) -> SignExponents<'_> {
    let normal = &bins[2..SIGN_BINS - 1];
    SignExponents { zeros: bins[0], subnormals: bins[1], normal, infinities: bins[SIGN_BINS - 1] }
}

/// Returns the bin of a number, or of NaN, within its column: without branches, which a processor would
/// often predict wrongly.
#[inline]
fn bin(value: f64) -> usize {
    let bits = value.to_bits();
    let magnitude = bits & !SIGN;
    // Field 0 is a zero or subnormal, field 2,047 an infinity.
    let place = (magnitude >> 52) as usize + usize::from(magnitude != 0);
    let of_sign = if bits & SIGN == 0 { UNSIGNED_BINS } else { UNSIGNED_BINS + SIGN_BINS };
    if magnitude > f64::INFINITY.to_bits() { NAN_BIN } else { of_sign + place }
}

impl Statistic for ExponentHistogram {
    type Chunk<'a> = Rows<'a>;
    type Partial = Counts;
    type Incoming<'a> = Counts;

    fn leaf(&self, rows: &Rows<'_>) -> Result<Counts> {
        same_count("columns", self.columns, rows.columns())?;
        let mut counts = Counts::zeros(self.columns * BINS)?;
        in_default_environment(|| {
            rows.blocks(|block| {
                let of_columns = counts.values_mut().as_chunks_mut::<BINS>().0;
                for (column, bins) in of_columns.iter_mut().enumerate() {
                    for value in block.column(column) {
                        add_one(&mut bins[bin(value)]);
                    }
                }
            })
        })?;
        // A block has NaN in place of NULL.
        let nulls = rows.null_counts()?;
        for (bins, nulls) in counts.values_mut().chunks_exact_mut(BINS).zip(nulls) {
            bins[NULL_BIN] = nulls;
            bins[NAN_BIN] -= nulls;
        }
        Ok(counts)
    }

    fn partial_bytes(&self) -> usize {
        self.columns * BINS * size_of::<u64>()
    }

    fn write(&self, partial: &Counts, bytes: &mut Vec<u8>) {
        partial.write(bytes);
    }

    fn fits_rows(&self, partial: &Counts, rows: u64) -> bool {
        let mut columns = (0..self.columns).map(|column| column * BINS..(column + 1) * BINS);
        columns.all(|bins| partial.of_bins(bins) == rows)
    }

    fn read(&self, bytes: &[u8]) -> Result<Counts> {
        Counts::decode(bytes, self.columns * BINS)
    }
}
