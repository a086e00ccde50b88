//! Estimates of the distinct numbers of each column, by HyperLogLog.

use crate::bytes::{copied, filled, reserve};
use crate::error::{Error, Result};

use super::words::check_length;
use crate::environment::in_default_environment;
use crate::fold::rows::Rows;
use crate::fold::statistic::{Partial, Statistic, TryClone, canonical, same_count};

/// The most registers of all columns: 256 MiB.
const REGISTERS_MAX: usize = 1 << 28;

/// An estimate of the distinct numbers in each column, with a relative error of about
/// `1.04 / sqrt(2^precision)`.
///
/// Equal numbers count once, and so do -0 and +0; all NaNs together count as one; NULL is not
/// counted.
///
/// # Determinism
/// Merging commutes and is idempotent: the registers depend on the set of the numbers alone. The
/// promise of the same bits does not cover [`Distinct::estimates`].
pub struct Distinct {
    columns: usize,
    precision: u32,
}

/// The registers of all columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers(Vec<u8>);

impl Distinct {
    /// The default precision: 16 KiB per column, and an error of about 0.8 %.
    pub const PRECISION: u32 = 14;

    /// Returns the statistic of `columns` columns with `2^precision` registers each.
    ///
    /// # Errors
    /// `InvalidArgument` for 0 columns and for a precision outside 4 to 18,
    /// `LimitExceeded` for too many registers.
    pub fn new(columns: usize, precision: u32) -> Result<Self> {
        if columns == 0 {
            return Err(Error::invalid("expected at least 1 column, found 0"));
        }
        if !(4..=18).contains(&precision) {
            return Err(Error::invalid(format!(
                "expected a precision from 4 to 18, found {precision}"
            )));
        }
        let registers = columns.saturating_mul(1 << precision);
        if registers > REGISTERS_MAX {
            return Err(Error::limit(format!(
                "expected at most {REGISTERS_MAX} registers, found {registers}; take fewer \
                columns or a lower precision"
            )));
        }
        Ok(Self { columns, precision })
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn column_count(&self) -> usize {
        self.columns
    }

    /// Returns p: a column has `2^p` registers.
    #[must_use]
    pub fn precision(&self) -> u32 {
        self.precision
    }

    /// Estimates the number of distinct numbers in each column.
    #[must_use]
    pub fn estimates(&self, partial: &Registers) -> Vec<f64> {
        let columns = partial.0.chunks_exact(1 << self.precision);
        columns.map(|registers| self.estimate(registers)).collect()
    }

    /// Ertl's improved raw estimator ("New cardinality estimation algorithms for HyperLogLog
    /// sketches", 2017), which needs no tables and holds from 0 to 2^64 distinct numbers.
    fn estimate(&self, registers: &[u8]) -> f64 {
        let greatest = self.greatest();
        let mut counts = vec![0_u32; usize::from(greatest) + 1];
        registers.iter().for_each(|&register| counts[usize::from(register)] += 1);
        let size = registers.len() as f64;
        let share = |register: u8| f64::from(counts[usize::from(register)]) / size;
        let full = size * tau(1.0 - share(greatest));
        let middle =
            (1..greatest).rev().fold(full, |z, register| 0.5 * (z + share(register) * size));
        let z = middle + size * sigma(share(0));
        size * size / (2.0 * std::f64::consts::LN_2 * z)
    }

    /// Returns the greatest value of a register: all bits of the hash after its index are zero.
    fn greatest(&self) -> u8 {
        (64 - self.precision + 1) as u8
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// Adds hashes to the registers of a column. Nothing here overflows, and checks would take time.
#[derive(Clone, Copy)]
struct RegisterUpdate {
    precision: u32,
    /// The bits after those that number the register.
    rest_bits: u32,
    /// A one after the rest, so that a rest of zeros ends.
    end: u64,
}

impl RegisterUpdate {
    fn new(precision: u32) -> Self {
        Self { precision, rest_bits: 64 - precision, end: 1 << (precision - 1) }
    }

    #[inline]
    fn apply(self, hash: u64, registers: &mut [u8]) {
        let register = &mut registers[hash.wrapping_shr(self.rest_bits) as usize];
        let rest = hash.wrapping_shl(self.precision) | self.end;
        *register = (*register).max(rest.leading_zeros().wrapping_add(1) as u8);
    }
}

/// Hashes a number with a bijection of 64 bits (the finalizer of SplitMix64): different numbers
/// never collide.
fn hash(value: f64) -> u64 {
    // Adding +0 turns -0 into +0.
    let mut word = canonical(value + 0.0).to_bits().wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

impl Partial for Registers {
    fn merge(&mut self, right: &Self) {
        assert_eq!(self.0.len(), right.0.len(), "partials of one statistic have one size");
        for (left, right) in self.0.iter_mut().zip(&right.0) {
            *left = (*left).max(*right);
        }
    }

    fn same_bits(&self, other: &Self) -> bool {
        self == other
    }
}

impl TryClone for Registers {
    fn try_clone(&self) -> Result<Self> {
        copied(&self.0).map(Self)
    }
}

impl Statistic for Distinct {
    type Chunk<'a> = Rows<'a>;
    type Partial = Registers;
    type Incoming<'a> = Registers;

    fn leaf(&self, rows: &Rows<'_>) -> Result<Registers> {
        same_count("columns", self.columns, rows.columns())?;
        let mut registers = filled(0, self.columns << self.precision)?;
        let mut nans = filled(0_u64, self.columns)?;
        let update = RegisterUpdate::new(self.precision);
        in_default_environment(|| {
            rows.blocks(|block| {
                let of_columns = registers.chunks_exact_mut(1 << self.precision).zip(&mut nans);
                for (column, (registers, nans)) in of_columns.enumerate() {
                    for value in block.column(column) {
                        // A NULL is none of the numbers, and a block has NaN in place of it.
                        if value.is_nan() {
                            *nans += 1;
                        } else {
                            update.apply(hash(value), registers);
                        }
                    }
                }
            })
        })?;
        let nulls = rows.null_counts()?;
        for (column, registers) in registers.chunks_exact_mut(1 << self.precision).enumerate() {
            if nans[column] > nulls.get(column).copied().unwrap_or(0) {
                update.apply(hash(f64::NAN), registers);
            }
        }
        Ok(Registers(registers))
    }

    fn partial_bytes(&self) -> usize {
        self.columns << self.precision
    }

    fn write(&self, partial: &Registers, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&partial.0);
    }

    fn read(&self, bytes: &[u8]) -> Result<Registers> {
        check_length(bytes, self.columns << self.precision, "registers")?;
        let greatest = self.greatest();
        match bytes.iter().position(|&register| register > greatest) {
            None => {
                let mut registers = reserve(bytes.len())?;
                registers.extend(bytes);
                Ok(Registers(registers))
            }
            Some(at) => Err(Error::corrupt(format!(
                "expected registers of at most {greatest}, found {} in register {at}",
                bytes[at]
            ))),
        }
    }
}
