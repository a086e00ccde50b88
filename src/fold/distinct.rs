//! How many different numbers each column has, nearly: HyperLogLog.

use crate::bytes::{filled, reserve};
use crate::error::{Error, Result};

use super::control::in_default_environment;
use super::rows::Rows;
use super::statistic::{Partial, Statistic, canonical, same_count};
use super::words::check_length;

/// The most registers of all columns: 256 MiB.
const REGISTERS_MAX: usize = 1 << 28;

/// The number of different numbers in each column, within some `1.04 / sqrt(2^precision)` of it.
///
/// Numbers that are equal are one, so that -0 is +0; all NaN are one more; NULL is none.
///
/// # Determinism
/// Merging commutes, and takes in the same rows twice without a change: the registers depend on the
/// set of the numbers alone. [`Distinct::estimates`] is outside the promise.
pub struct Distinct {
    columns: usize,
    precision: u32,
}

/// The registers of all columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers(Vec<u8>);

impl Distinct {
    /// The precision where none is chosen: 16 KiB a column, and an error of some 0.8 %.
    pub const PRECISION: u32 = 14;

    /// Of `columns` columns, each with `2^precision` registers.
    ///
    /// # Errors
    /// `InvalidArgument` for no columns and for a precision that is not from 4 to 18,
    /// `LimitExceeded` for too many registers.
    pub fn new(columns: usize, precision: u32) -> Result<Self> {
        if columns == 0 {
            return Err(Error::invalid("expected at least one column, found none"));
        }
        if !(4..=18).contains(&precision) {
            return Err(Error::invalid(format!(
                "expected a precision from 4 to 18, found {precision}"
            )));
        }
        let registers = columns.saturating_mul(1 << precision);
        if registers > REGISTERS_MAX {
            return Err(Error::limit(format!(
                "expected at most {REGISTERS_MAX} registers, found {registers}; use fewer columns \
                 or a lower precision"
            )));
        }
        Ok(Self { columns, precision })
    }

    /// How many columns there are.
    #[must_use]
    pub fn column_count(&self) -> usize {
        self.columns
    }

    /// About how many different numbers each column has.
    #[must_use]
    pub fn estimates(&self, partial: &Registers) -> Vec<f64> {
        let columns = partial.0.chunks_exact(1 << self.precision);
        columns.map(|registers| self.estimate(registers)).collect()
    }

    /// Ertl's improved raw estimator ("New cardinality estimation algorithms for HyperLogLog
    /// sketches", 2017), which needs no tables and is right from none to 2^64.
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

    /// The greatest value of a register: all bits of the hash behind its number are zero.
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

/// The hash of a number: a bijection of 64 bits (the finalizer of SplitMix64), so that different
/// numbers never share one.
fn hash(value: f64) -> u64 {
    // Of zeros, the sum with +0 is +0.
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

impl Statistic for Distinct {
    type Chunk<'a> = Rows<'a>;
    type Partial = Registers;
    type Arrived<'a> = Registers;

    fn leaf(&self, rows: &Rows<'_>) -> Result<Registers> {
        same_count("columns", self.columns, rows.columns())?;
        let mut registers = filled(0, self.columns << self.precision)?;
        in_default_environment(|| {
            rows.each(0..self.columns, |_, column, value| {
                let Some(hash) = value.map(hash) else { return };
                let number = (hash >> (64 - self.precision)) as usize;
                // The bits behind it, with a one after the last.
                let rest = hash << self.precision | 1 << (self.precision - 1);
                let register: &mut u8 = &mut registers[(column << self.precision) + number];
                *register = (*register).max(rest.leading_zeros() as u8 + 1);
            });
        });
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
