//! Exact quantiles of the columns, by passes over the rows that each find 16 bits of them.

use std::ops::Range;

use crate::bytes::u64_at;
use crate::error::{Error, Result};

use super::digits::DigitCounts;
use super::fraction::Fraction;
use crate::environment::in_default_environment;
use crate::fold::rows::{Rows, Values};
use crate::fold::statistic::{Statistic, same_count};

/// The bits of a key that one pass finds.
const DIGIT_BITS: u32 = 16;
/// The counts of one open prefix.
const DIGITS: usize = 1 << DIGIT_BITS;
/// The bins of a column before those of its prefixes: NULL, NaN, numbers without an open prefix.
const OUTSIDE: usize = 3;
/// The most counts: 512 MiB.
const COUNTS_MAX: usize = 1 << 26;
/// The most quantiles of a column.
const QUANTILES_MAX: usize = 1 << 12;
/// The numbers after which those of a chunk are counted: their bins fit into a cache.
const HITS_MAX: usize = 1 << 16;

/// The width of the keys of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyWidth {
    /// 32 bits: numbers of 16 and 32 bits. There are two passes.
    Narrow,
    /// 64 bits: numbers of 64 bits. There are four passes.
    Wide,
}

impl KeyWidth {
    /// Returns the number of passes over the rows.
    #[must_use]
    pub fn passes(self) -> u32 {
        self.bits() / DIGIT_BITS
    }

    fn bits(self) -> u32 {
        match self {
            Self::Narrow => 32,
            Self::Wide => 64,
        }
    }

    /// Returns the key of a number, not NaN: keys are in the total order of numbers.
    #[inline]
    fn key_of(self, value: f64) -> u64 {
        let bits = match self {
            Self::Narrow => u64::from((value as f32).to_bits()),
            Self::Wide => value.to_bits(),
        };
        if value.is_sign_negative() { !bits & self.mask() } else { bits | self.sign() }
    }

    /// Returns the number of a key.
    fn number_of(self, key: u64) -> f64 {
        let is_negative = key & self.sign() == 0;
        let bits = if is_negative { !key & self.mask() } else { key ^ self.sign() };
        match self {
            Self::Narrow => in_default_environment(|| f64::from(f32::from_bits(bits as u32))),
            Self::Wide => f64::from_bits(bits),
        }
    }

    fn sign(self) -> u64 {
        1 << (self.bits() - 1)
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }
}

/// One pass towards the exact quantiles of each column.
///
/// The quantile q of n numbers is the least of them that at least `q * n` of them do not exceed: the number
/// of rank ceil(q * n), counted from 1, or the least number for q = 0. Numbers are in their total order: -0
/// below +0, infinities at the ends. NaN and NULL are counted, and are not among the n.
///
/// Each pass finds the next 16 bits of the keys of all quantiles: it counts the numbers of each column by
/// these bits, if the bits before are those of a quantile, its *prefix*. [`Quantiles::refine`] returns the
/// next pass or the quantiles.
///
/// # Example
///
/// ```
/// use headwater::fold::columns::{KeyWidth, Refined};
/// use headwater::fold::{Quantiles, Rows, Statistic};
///
/// let rows = Rows::new(&[3.0_f32, 1.0, 2.0, 5.0][..], 4, 1, 1)?;
/// let mut pass = Quantiles::new(1, KeyWidth::Narrow, vec!["0.5".parse()?])?;
/// let found = loop {
///     match pass.refine(&pass.leaf(&rows)?)? {
///         Refined::Next(next) => pass = next,
///         Refined::Found(columns) => break columns,
///     }
/// };
/// assert_eq!(found[0].values, [2.0]);
/// # Ok::<(), headwater::Error>(())
/// ```
///
/// # Determinism
/// Merging commutes: counts and quantiles depend on the set of rows alone, not on their order or the chunk
/// size.
#[derive(Clone, Debug)]
pub struct Quantiles {
    width: KeyWidth,
    at: Vec<Fraction>,
    /// The number of this pass, from 1.
    pass: u32,
    columns: Vec<Column>,
    /// The number of bins of all columns.
    bins: usize,
}

/// What a pass knows of a column.
#[derive(Clone, Debug)]
struct Column {
    /// Its first bin.
    start: usize,
    /// The prefixes whose numbers are counted, in order.
    prefixes: Vec<u64>,
    /// The numbers of the column, unknown in the first pass.
    numbers: u64,
    /// The place of each quantile; none in the first pass.
    wanted: Vec<Wanted>,
}

/// The place of a quantile as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    /// The bits of its key that are known.
    prefix: u64,
    /// Its rank among the numbers with this prefix, from 1; 0 for a column without numbers.
    rank: u64,
    /// How many numbers have this prefix.
    count: u64,
}

/// What follows a pass.
#[derive(Clone, Debug)]
pub enum Refined {
    /// The next pass.
    Next(Quantiles),
    /// The quantiles of each column.
    Found(Vec<ColumnQuantiles>),
}

/// The quantiles of one column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnQuantiles {
    /// NULLs.
    pub nulls: u64,
    /// NaNs.
    pub nans: u64,
    /// All other numbers, infinities included.
    pub numbers: u64,
    /// The quantiles, in the order of the fractions; NaN without numbers.
    pub values: Vec<f64>,
}

impl ColumnQuantiles {
    /// Returns the bytes of the quantiles of all columns, whose digest is that of the result.
    #[must_use]
    pub fn encode(columns: &[Self]) -> Vec<u8> {
        let words = columns.iter().flat_map(|of| {
            let values = of.values.iter().map(|value| value.to_bits());
            [of.nulls, of.nans, of.numbers].into_iter().chain(values)
        });
        words.flat_map(u64::to_le_bytes).collect()
    }
}

impl Quantiles {
    /// Returns the first pass towards these quantiles of each of `columns` columns.
    ///
    /// # Errors
    /// `InvalidArgument` for 0 columns or quantiles; `LimitExceeded` for too many.
    pub fn new(columns: usize, width: KeyWidth, at: Vec<Fraction>) -> Result<Self> {
        if columns == 0 {
            return Err(Error::invalid("expected at least 1 column, found 0"));
        }
        match at.len() {
            0 => return Err(Error::invalid("expected at least one quantile, found none")),
            1..=QUANTILES_MAX => {}
            count => {
                return Err(Error::limit(format!(
                    "expected at most {QUANTILES_MAX} quantiles, found {count}"
                )));
            }
        }
        check_counts(1, columns, columns)?;
        let column = Column { start: 0, prefixes: vec![0], numbers: 0, wanted: Vec::new() };
        Self { width, at, pass: 1, columns: vec![column; columns], bins: 0 }.placed()
    }

    /// Gives each column its bins.
    fn placed(mut self) -> Result<Self> {
        let prefixes = self.columns.iter().map(|column| column.prefixes.len()).sum();
        check_counts(self.pass, self.columns.len(), prefixes)?;
        self.bins = 0;
        for column in &mut self.columns {
            column.start = self.bins;
            self.bins += OUTSIDE + column.prefixes.len() * DIGITS;
        }
        Ok(self)
    }

    /// Returns the fractions of the quantiles.
    #[must_use]
    pub fn at(&self) -> &[Fraction] {
        &self.at
    }

    /// Returns the number of this pass, counted from 1.
    #[must_use]
    pub fn pass(&self) -> u32 {
        self.pass
    }

    /// Returns the number of passes.
    #[must_use]
    pub fn passes(&self) -> u32 {
        self.width.passes()
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn column_count(&self) -> usize {
        self.columns.len()
    }

    /// Returns the bytes from which [`Quantiles::after`] makes this pass; none for the first.
    #[must_use]
    pub fn known(&self) -> Vec<u8> {
        if self.pass == 1 {
            return Vec::new();
        }
        let of_column = |column: &Column| {
            let wanted = column.wanted.iter().flat_map(|of| [of.prefix, of.rank, of.count]);
            std::iter::once(column.numbers).chain(wanted).collect::<Vec<_>>()
        };
        let words = self.columns.iter().flat_map(of_column);
        std::iter::once(u64::from(self.pass)).chain(words).flat_map(u64::to_le_bytes).collect()
    }

    /// Returns the pass after this one whose [`Quantiles::known`] is `bytes`; `self` is the first, which
    /// no bytes mean.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not those of a later pass towards these quantiles, and `LimitExceeded`
    /// for too many counts.
    pub fn after(self, bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(self);
        }
        let each = 1 + 3 * self.at.len();
        let expected = self.columns.len().saturating_mul(each).saturating_add(1).saturating_mul(8);
        if bytes.len() != expected {
            return Err(not_known(&format!("{expected} bytes, found {}", bytes.len())));
        }
        let word = |place: usize| u64_at(bytes, place * 8).unwrap_or_default();
        let passes = self.passes();
        let pass = u32::try_from(word(0)).ok().filter(|pass| (2..=passes).contains(pass));
        let pass =
            pass.ok_or_else(|| not_known(&format!("a pass of 2 to {passes}, found {}", word(0))))?;
        let columns = (0..self.columns.len()).map(|column| {
            let first = 1 + column * each;
            let wanted = (0..self.at.len()).map(|at| {
                let place = first + 1 + 3 * at;
                Wanted { prefix: word(place), rank: word(place + 1), count: word(place + 2) }
            });
            Column::of(word(first), wanted.collect())
        });
        let columns: Vec<Column> = columns.collect();
        let known = 1_u64.checked_shl(DIGIT_BITS * (pass - 1)).unwrap_or(u64::MAX);
        let is_valid = |column: &Column| {
            column.wanted.iter().all(|of| {
                let ranks = of.rank <= of.count && of.count <= column.numbers;
                ranks && (of.rank == 0) == (column.numbers == 0) && of.prefix < known
            })
        };
        if let Some(column) = columns.iter().position(|column| !is_valid(column)) {
            let what = format!(
                "the place of each quantile of column {column}, found impossible ranks or counts"
            );
            return Err(not_known(&what));
        }
        Self { pass, columns, ..self }.placed()
    }

    /// Returns the next pass, or after the last the quantiles, from the counts of all rows.
    ///
    /// # Errors
    /// `Data` when the counts are not of the rows of the passes before; `LimitExceeded` when the next pass
    /// has too many counts.
    pub fn refine(&self, counts: &DigitCounts) -> Result<Refined> {
        let refined = (0..).zip(&self.columns).map(|(number, column)| {
            let numbers = counts.of_bins(column.start + 2..column.end());
            if self.pass > 1 && numbers != column.numbers {
                return Err(other_rows(number, self.pass, column.numbers, numbers));
            }
            let first =
                |at: &Fraction| Wanted { prefix: 0, rank: at.rank_of(numbers), count: numbers };
            let wanted = match self.pass {
                1 => self.at.iter().map(first).collect(),
                _ => column.wanted.clone(),
            };
            let wanted = wanted.into_iter().map(|of| match column.descend(of, counts) {
                Some(next) => Ok(next),
                None => {
                    let found = counts.of_bins(column.bins_of(of.prefix));
                    Err(other_rows(number, self.pass, of.count, found))
                }
            });
            Ok(Column::of(numbers, wanted.collect::<Result<_>>()?))
        });
        let refined: Vec<Column> = refined.collect::<Result<_>>()?;
        if self.pass < self.passes() {
            let next = Self { pass: self.pass + 1, columns: refined, ..self.clone() };
            return next.placed().map(Refined::Next);
        }
        let found = self.columns.iter().zip(refined).map(|(bins, of)| {
            let number = |wanted: &Wanted| match of.numbers {
                0 => f64::NAN,
                _ => self.width.number_of(wanted.prefix),
            };
            ColumnQuantiles {
                nulls: counts.of_bin(bins.start),
                nans: counts.of_bin(bins.start + 1),
                numbers: of.numbers,
                values: of.wanted.iter().map(number).collect(),
            }
        });
        Ok(Refined::Found(found.collect()))
    }

    /// Returns the [`Quantiles::known`] of the next pass; none after the last.
    ///
    /// # Errors
    /// Those of [`Quantiles::refine`].
    pub fn known_after(&self, counts: &DigitCounts) -> Result<Option<Vec<u8>>> {
        Ok(match self.refine(counts)? {
            Refined::Next(next) => Some(next.known()),
            Refined::Found(_) => None,
        })
    }

    /// Returns the quantiles.
    ///
    /// # Errors
    /// Those of [`Quantiles::refine`], and `InvalidArgument` when this is not the last pass.
    pub fn found(&self, counts: &DigitCounts) -> Result<Vec<ColumnQuantiles>> {
        match self.refine(counts)? {
            Refined::Found(columns) => Ok(columns),
            Refined::Next(_) => Err(Error::invalid(format!(
                "expected the last of {} passes over the rows, which has the quantiles, found pass {}; fold \
                 the rows again for the next pass",
                self.passes(),
                self.pass
            ))),
        }
    }

    /// Returns the key's digit of this pass, and the bits before.
    #[inline]
    fn split(&self, key: u64) -> (u64, usize) {
        let below = self.width.bits() - DIGIT_BITS * self.pass;
        let prefix = key.checked_shr(below + DIGIT_BITS).unwrap_or(0);
        (prefix, (key >> below) as usize % DIGITS)
    }
}

impl Column {
    /// Returns what a pass knows of a column, without its place.
    fn of(numbers: u64, wanted: Vec<Wanted>) -> Self {
        let open = wanted.iter().filter(|of| of.rank > 0);
        let mut prefixes: Vec<u64> = open.map(|of| of.prefix).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        Self { start: 0, prefixes, numbers, wanted }
    }

    fn end(&self) -> usize {
        self.start + OUTSIDE + self.prefixes.len() * DIGITS
    }

    /// Returns the bins of an open prefix; an empty range for another.
    fn bins_of(&self, prefix: u64) -> Range<usize> {
        match self.prefixes.binary_search(&prefix) {
            Ok(place) => {
                let start = self.start + OUTSIDE + place * DIGITS;
                start..start + DIGITS
            }
            Err(_) => 0..0,
        }
    }

    /// Returns the place of a quantile with one more digit; none when the counts are of other rows.
    fn descend(&self, wanted: Wanted, counts: &DigitCounts) -> Option<Wanted> {
        if wanted.rank == 0 {
            return Some(wanted);
        }
        let bins = self.bins_of(wanted.prefix);
        if counts.of_bins(bins.clone()) != wanted.count {
            return None;
        }
        let mut rank = wanted.rank;
        for (bin, count) in counts.used_of(bins.clone()) {
            if rank <= count {
                let prefix = wanted.prefix << DIGIT_BITS | (bin - bins.start) as u64;
                return Some(Wanted { prefix, rank, count });
            }
            rank -= count;
        }
        None
    }
}

/// Checks the number of counts of a pass.
fn check_counts(pass: u32, columns: usize, prefixes: usize) -> Result<()> {
    let counts = prefixes.saturating_mul(DIGITS).saturating_add(columns.saturating_mul(OUTSIDE));
    if counts <= COUNTS_MAX {
        return Ok(());
    }
    let bytes = counts.saturating_mul(size_of::<u64>());
    Err(Error::limit(format!(
        "expected at most {} bytes of counts in pass {pass}, found {bytes}: 512 KiB for each of {prefixes} \
         key prefixes in {columns} columns (at most one for each quantile of a column); take fewer columns \
         or quantiles at a time",
        COUNTS_MAX * size_of::<u64>()
    )))
}

fn not_known(expected: &str) -> Error {
    Error::corrupt(format!(
        "cannot continue after an earlier pass of quantiles: expected {expected}; run the same build of \
         headwater everywhere, or start from the first pass"
    ))
}

fn other_rows(column: usize, pass: u32, expected: u64, found: u64) -> Error {
    Error::data(format!(
        "column {column}: expected {expected} numbers in pass {pass}, as in the pass before, found {found}: \
         the rows have changed between the passes; fold rows that nobody writes to, from the first pass"
    ))
}

impl Statistic for Quantiles {
    type Chunk<'a> = Rows<'a>;
    type Partial = DigitCounts;
    type Incoming<'a> = DigitCounts;

    fn leaf(&self, rows: &Rows<'_>) -> Result<DigitCounts> {
        same_count("columns", self.columns.len(), rows.columns())?;
        if self.width == KeyWidth::Narrow && matches!(rows.values, Values::F64(_)) {
            return Err(Error::invalid(
                "expected numbers of 16 or 32 bits for keys of 32 bits, found numbers of 64",
            ));
        }
        let mut counts = DigitCounts::zeros(self.bins);
        let mut outside = vec![[0_u64; OUTSIDE]; self.columns.len()];
        let mut hits = Vec::with_capacity(HITS_MAX.min(rows.count() * rows.columns()));
        in_default_environment(|| {
            rows.each(0..self.columns.len(), |_, number, value| {
                let Some(value) = value else { return outside[number][0] += 1 };
                if value.is_nan() {
                    return outside[number][1] += 1;
                }
                let (prefix, digit) = self.split(self.width.key_of(value));
                let column = &self.columns[number];
                match column.prefixes.binary_search(&prefix) {
                    Ok(place) => {
                        if hits.len() == HITS_MAX {
                            counts.count_each(&mut hits);
                        }
                        hits.push((column.start + OUTSIDE + place * DIGITS + digit) as u32);
                    }
                    Err(_) => outside[number][2] += 1,
                }
            });
        });
        counts.count_each(&mut hits);
        let outside = self.columns.iter().zip(outside).flat_map(|(column, outside)| {
            (column.start as u32..).zip(outside).filter(|(_, count)| *count > 0)
        });
        counts.add(outside.collect());
        Ok(counts)
    }

    fn partial_bytes(&self) -> usize {
        self.bins * size_of::<u64>()
    }

    fn write(&self, partial: &DigitCounts, bytes: &mut Vec<u8>) {
        partial.write(bytes);
    }

    fn fits_rows(&self, partial: &DigitCounts, rows: u64) -> bool {
        self.columns.iter().all(|column| partial.of_bins(column.start..column.end()) == rows)
    }

    fn read(&self, bytes: &[u8]) -> Result<DigitCounts> {
        DigitCounts::decode(bytes, self.bins)
    }
}
