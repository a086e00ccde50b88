//! The exact sum and the exact sum of squares of each column, as integers.

use num_bigint::{BigInt, BigUint, Sign};

use crate::bytes::{copied, filled, reserve};
use crate::error::{Error, Result};

use super::rounding::{quotient, root_of_quotient};
use super::words;
use crate::environment::in_default_environment;
use crate::fold::rows::Rows;
use crate::fold::statistic::{Partial, Statistic, TryClone, same_count};

/// The counts of a column: NULL, NaN, minus infinity, infinity, finite numbers.
const COUNTS: usize = 5;
/// A sum is a number of 2^-1074, the least binary64. 2^62 numbers below 2^1024 need 2,161 bits.
const SUM_EXPONENT: i64 = -1074;
const SUM_WORDS: usize = 34;
/// A sum of squares is a number of 2^-2148; it needs 4,258 bits.
const SQUARE_EXPONENT: i64 = 2 * SUM_EXPONENT;
const SQUARE_WORDS: usize = 67;
/// The words of a column in a partial.
const COLUMN_WORDS: usize = COUNTS + SUM_WORDS + SQUARE_WORDS;

/// The bits of the greatest number, in units of the least.
const NUMBER_BITS: usize = 2098;

/// The bits of a significand.
const SIGNIFICAND_BITS: usize = 53;
/// The numbers of a column after which carries are passed on: each adds less than 2^117 to a place of
/// 2^127.
const CARRY_AFTER: u32 = 512;

/// The sum and the sum of squares of each column, without any rounding.
///
/// # Determinism
/// Merging adds integers: a partial depends on the set of rows alone, not on their order or the chunk
/// size.
pub struct Exact {
    columns: usize,
}

/// The exact sums of all columns over the rows of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactSums(Vec<[u64; COLUMN_WORDS]>);

/// What the exact sums of a column say, each number rounded once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExactSummary {
    /// NULLs.
    pub nulls: u64,
    /// NaNs.
    pub nans: u64,
    /// Infinities with a minus sign.
    pub negative_infinities: u64,
    /// Infinities without a minus sign.
    pub positive_infinities: u64,
    /// The number of finite numbers, of which the other values are.
    pub finite: u64,
    /// The sum; infinite if it is beyond all 64-bit floats.
    pub sum: f64,
    /// The mean; NaN without finite numbers.
    pub mean: f64,
    /// The sum of the squares.
    pub sum_of_squares: f64,
    /// The variance of the population; NaN without finite numbers.
    pub variance: f64,
    /// The standard deviation of the population; NaN without finite numbers.
    pub std: f64,
}

impl Exact {
    /// Returns the statistic of `columns` columns.
    ///
    /// # Errors
    /// `InvalidArgument` for 0 columns.
    pub fn new(columns: usize) -> Result<Self> {
        match columns {
            0 => Err(Error::invalid("expected at least 1 column, found 0")),
            _ => Ok(Self { columns }),
        }
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn column_count(&self) -> usize {
        self.columns
    }

    /// Returns what the sums of each column say.
    #[must_use]
    pub fn summaries(&self, sums: &ExactSums) -> Vec<ExactSummary> {
        sums.0.iter().map(summary).collect()
    }
}

fn summary(column: &[u64; COLUMN_WORDS]) -> ExactSummary {
    let [nulls, nans, negative_infinities, positive_infinities, finite] = counts_of(column);
    let sum = BigInt::from_signed_bytes_le(&bytes_of(sum_of(column)));
    let squares = BigUint::from_bytes_le(&bytes_of(squares_of(column)));
    let (one, count) = (BigUint::from(1_u8), BigUint::from(finite));
    let signed = |divisor: &BigUint| {
        let size = quotient(sum.magnitude(), divisor, SUM_EXPONENT);
        if sum.sign() == Sign::Minus { -size } else { size }
    };
    // By the inequality of Cauchy and Schwarz, the difference is not negative.
    let (of_all, square) = (&count * &squares, sum.magnitude() * sum.magnitude());
    let spread = of_all.max(square.clone()) - square;
    let square_of_count = &count * &count;
    let of_numbers = |value: &dyn Fn() -> f64| if finite == 0 { f64::NAN } else { value() };
    ExactSummary {
        nulls,
        nans,
        negative_infinities,
        positive_infinities,
        finite,
        sum: signed(&one),
        mean: of_numbers(&|| signed(&count)),
        sum_of_squares: quotient(&squares, &one, SQUARE_EXPONENT),
        variance: of_numbers(&|| quotient(&spread, &square_of_count, SQUARE_EXPONENT)),
        std: of_numbers(&|| root_of_quotient(&spread, &square_of_count, SQUARE_EXPONENT)),
    }
}

fn counts_of(column: &[u64; COLUMN_WORDS]) -> [u64; COUNTS] {
    std::array::from_fn(|at| column[at])
}

fn sum_of(column: &[u64; COLUMN_WORDS]) -> &[u64] {
    &column[COUNTS..COUNTS + SUM_WORDS]
}

fn squares_of(column: &[u64; COLUMN_WORDS]) -> &[u64] {
    &column[COUNTS + SUM_WORDS..]
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().copied().flat_map(u64::to_le_bytes).collect()
}

/// An integer while numbers are added to it: place i counts 2^(64 i), and holds more than 64 bits until
/// carries are passed on.
#[derive(Clone)]
struct Places<const WORDS: usize>([i128; WORDS]);

impl<const WORDS: usize> Places<WORDS> {
    const ZERO: Self = Self([0; WORDS]);

    /// Adds `significand`, of at most 53 bits and with the sign of `sign` (0 or -1), times 2^`at`.
    #[inline]
    fn add(&mut self, significand: u64, at: usize, sign: i128) {
        let shifted = (i128::from(significand) << (at % 64) ^ sign) - sign;
        self.0[at / 64] += shifted;
    }

    /// Passes on the carries, so that each place but the last is from 0 to 2^64 - 1.
    fn carry(&mut self) {
        let mut carry = 0;
        let (last, places) = self.0.split_last_mut().expect("an integer has places");
        for place in places {
            let whole = *place + carry;
            (*place, carry) = (i128::from(whole as u64), whole >> 64);
        }
        *last += carry;
    }

    /// Returns the words of the integer, in two's complement.
    fn words(&self) -> impl Iterator<Item = u64> {
        let mut carried = self.clone();
        carried.carry();
        carried.0.into_iter().map(|place| place as u64)
    }
}

/// The sums of a column while the rows of a chunk are added to them.
#[derive(Clone)]
struct Adding {
    counts: [u64; COUNTS],
    sum: Places<SUM_WORDS>,
    squares: Places<SQUARE_WORDS>,
    since_carry: u32,
}

impl Adding {
    const ZERO: Self =
        Self { counts: [0; COUNTS], sum: Places::ZERO, squares: Places::ZERO, since_carry: 0 };

    #[inline]
    fn push(&mut self, value: Option<f64>) {
        let Some(value) = value else {
            self.counts[0] += 1;
            return;
        };
        let bits = value.to_bits();
        let (field, fraction) = ((bits >> 52) as usize & 0x7ff, bits & ((1 << 52) - 1));
        if field == 0x7ff {
            let place = if fraction != 0 { 1 } else { 3 - (bits >> 63) as usize };
            self.counts[place] += 1;
            return;
        }
        self.counts[4] += 1;
        // The number is significand times 2^at, of 2^-1074; subnormal ones have no bit of their own.
        let significand = fraction | u64::from(field > 0) << 52;
        let at = field.saturating_sub(1);
        self.sum.add(significand, at, -i128::from(bits >> 63));
        let square = u128::from(significand) * u128::from(significand);
        let (low, high) =
            (square as u64 & ((1 << SIGNIFICAND_BITS) - 1), square >> SIGNIFICAND_BITS);
        self.squares.add(low, 2 * at, 0);
        self.squares.add(high as u64, 2 * at + SIGNIFICAND_BITS, 0);
        self.since_carry += 1;
        if self.since_carry == CARRY_AFTER {
            self.sum.carry();
            self.squares.carry();
            self.since_carry = 0;
        }
    }

    fn words(&self) -> [u64; COLUMN_WORDS] {
        let sums = self.sum.words().chain(self.squares.words());
        let mut words = self.counts.into_iter().chain(sums);
        std::array::from_fn(|_| words.next().unwrap_or_default())
    }
}

/// Adds an integer of words to another.
fn add(left: &mut [u64], right: &[u64]) {
    let mut carry = false;
    for (left, right) in left.iter_mut().zip(right) {
        (*left, carry) = left.carrying_add(*right, carry);
    }
}

/// Returns the number of bits of the magnitude of an integer in two's complement.
fn bits_of_size(words: &[u64]) -> usize {
    let sign = if words.last().is_some_and(|last| last >> 63 == 1) { u64::MAX } else { 0 };
    let last = words.iter().rposition(|word| *word != sign);
    last.map_or(0, |at| 64 * (at + 1) - (words[at] ^ sign).leading_zeros() as usize)
}

/// Whether numbers can have these counts and sums.
fn is_possible(column: &[u64; COLUMN_WORDS]) -> bool {
    let finite = counts_of(column)[4];
    let (sum, squares) = (sum_of(column), squares_of(column));
    let is_zero = |words: &[u64]| words.iter().all(|word| *word == 0);
    // A sum of n numbers has at most as many bits as the greatest of them and n together.
    let more = 64 - finite.leading_zeros() as usize;
    let fits = bits_of_size(sum) <= NUMBER_BITS + more
        && squares[SQUARE_WORDS - 1] >> 63 == 0
        && bits_of_size(squares) <= 2 * NUMBER_BITS + more;
    fits && (finite > 0 || is_zero(squares)) && (!is_zero(squares) || is_zero(sum))
}

impl Partial for ExactSums {
    fn merge(&mut self, right: &Self) {
        assert_eq!(self.0.len(), right.0.len(), "partials of one statistic have one size");
        for (left, right) in self.0.iter_mut().zip(&right.0) {
            for (left, right) in left[..COUNTS].iter_mut().zip(right) {
                *left = left.saturating_add(*right);
            }
            add(&mut left[COUNTS..COUNTS + SUM_WORDS], sum_of(right));
            add(&mut left[COUNTS + SUM_WORDS..], squares_of(right));
        }
    }

    fn same_bits(&self, other: &Self) -> bool {
        self == other
    }
}

impl TryClone for ExactSums {
    fn try_clone(&self) -> Result<Self> {
        copied(&self.0).map(Self)
    }
}

impl Statistic for Exact {
    type Chunk<'a> = Rows<'a>;
    type Partial = ExactSums;
    type Incoming<'a> = ExactSums;

    fn leaf(&self, rows: &Rows<'_>) -> Result<ExactSums> {
        same_count("columns", self.columns, rows.columns())?;
        let mut columns = filled(Adding::ZERO, self.columns)?;
        in_default_environment(|| {
            rows.each(0..self.columns, |_, column, value| columns[column].push(value));
        });
        let mut sums = reserve(self.columns)?;
        sums.extend(columns.iter().map(Adding::words));
        Ok(ExactSums(sums))
    }

    fn partial_bytes(&self) -> usize {
        self.columns.saturating_mul(COLUMN_WORDS * size_of::<u64>())
    }

    fn write(&self, partial: &ExactSums, bytes: &mut Vec<u8>) {
        words::write(partial.0.iter().flatten().copied(), bytes);
    }

    fn fits_rows(&self, partial: &ExactSums, rows: u64) -> bool {
        let count = |column| counts_of(column).into_iter().fold(0, u64::saturating_add);
        partial.0.iter().all(|column| count(column) == rows)
    }

    fn read(&self, bytes: &[u8]) -> Result<ExactSums> {
        let count = self.columns.saturating_mul(COLUMN_WORDS);
        let mut words = words::decode(bytes, count, "exact sums")?;
        let mut columns = reserve(self.columns)?;
        columns.extend((0..self.columns).map(|_| {
            std::array::from_fn::<_, COLUMN_WORDS, _>(|_| words.next().unwrap_or_default())
        }));
        match columns.iter().position(|column| !is_possible(column)) {
            None => Ok(ExactSums(columns)),
            Some(column) => Err(Error::corrupt(format!(
                "the exact sums of column {column} are impossible for {} finite numbers",
                columns[column][4]
            ))),
        }
    }
}
