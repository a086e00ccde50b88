//! What `src/fold/FORMAT.md` says of the statistics of columns, written down as plainly as can be,
//! to the bytes of their partials.

use headwater::fold::End;
use num_bigint::BigInt;

use crate::twin::{bits, fold};

type Column = Vec<Option<f64>>;

/// The place of a number in the total order.
fn place(value: f64) -> u64 {
    let bits = value.to_bits();
    if value.is_sign_negative() { !bits } else { bits | 1 << 63 }
}

fn bytes(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn count(column: &[Option<f64>], is_counted: impl Fn(f64) -> bool) -> u64 {
    column.iter().flatten().filter(|value| is_counted(**value)).count() as u64
}

fn nulls(column: &[Option<f64>]) -> u64 {
    column.iter().filter(|cell| cell.is_none()).count() as u64
}

/// The sums of powers over all chunks of a column, by the tree.
fn powers(column: &[Option<f64>], shift: f64, chunk_rows: usize) -> [u64; 4] {
    let leaf = |chunk: usize| {
        let mut sums = [0.0; 4];
        for value in column.iter().skip(chunk * chunk_rows).take(chunk_rows).flatten() {
            if value.is_finite() {
                let d = value - shift;
                let q = d * d;
                sums = [sums[0] + d, sums[1] + q, sums[2] + q * d, sums[3] + q * q];
            }
        }
        sums.map(bits)
    };
    fold(0, column.len().div_ceil(chunk_rows), &leaf, &|left: [u64; 4], right: [u64; 4]| {
        std::array::from_fn(|at| bits(f64::from_bits(left[at]) + f64::from_bits(right[at])))
    })
}

/// The key of a number, of 32 or of 64 bits.
fn key(value: f64, is_wide: bool) -> u64 {
    let bits = (value as f32).to_bits();
    let narrow = if value.is_sign_negative() { !bits } else { bits | 1 << 31 };
    if is_wide { place(value) } else { u64::from(narrow) }
}

/// A pass of quantiles: for each column its open prefixes, in order.
pub(crate) fn quantiles(
    columns: &[Column],
    is_wide: bool,
    (pass, prefixes): (u32, &[Vec<u64>]),
) -> Vec<u8> {
    let below = (if is_wide { 64 } else { 32 }) - 16 * pass;
    let mut words = Vec::new();
    for (column, prefixes) in columns.iter().zip(prefixes) {
        let keys: Vec<u64> = column
            .iter()
            .flatten()
            .filter(|value| !value.is_nan())
            .map(|value| key(*value, is_wide) >> below)
            .collect();
        let is_open = |key: &&u64| prefixes.contains(&(**key >> 16));
        let outside = keys.iter().filter(|key| !is_open(key)).count() as u64;
        words.extend([nulls(column), count(column, f64::is_nan), outside]);
        for prefix in prefixes {
            let mut counts = vec![0; 1 << 16];
            for key in keys.iter().filter(|key| **key >> 16 == *prefix) {
                counts[(key % (1 << 16)) as usize] += 1;
            }
            words.extend(counts);
        }
    }
    bytes(words)
}

/// The number of a rank, counted from 1 in the total order; none beyond the last.
pub(crate) fn of_rank(column: &[Option<f64>], rank: u64) -> Option<f64> {
    let mut numbers: Vec<f64> = column.iter().flatten().copied().filter(|v| !v.is_nan()).collect();
    numbers.sort_by_key(|value| place(*value));
    numbers.get(usize::try_from(rank.checked_sub(1)?).ok()?).copied()
}

/// The first `digits` times 16 bits of the key of a number.
pub(crate) fn prefix(value: f64, is_wide: bool, digits: u32) -> u64 {
    key(value, is_wide) >> ((if is_wide { 64 } else { 32 }) - 16 * digits)
}

pub(crate) fn moments(columns: &[Column], shifts: &[f64], chunk_rows: usize) -> Vec<u8> {
    let words = columns.iter().zip(shifts).flat_map(|(column, &shift)| {
        let numbers = || column.iter().flatten().filter(|value| !value.is_nan());
        let min = numbers().min_by_key(|value| place(**value)).map_or(f64::INFINITY, |v| *v);
        let max = numbers().max_by_key(|value| place(**value)).map_or(-f64::INFINITY, |v| *v);
        let counts = [
            nulls(column),
            count(column, f64::is_nan),
            count(column, |value| value == f64::NEG_INFINITY),
            count(column, |value| value == f64::INFINITY),
        ];
        let range = [min.to_bits(), max.to_bits()];
        [&counts[..], &range, &powers(column, shift, chunk_rows)].concat()
    });
    bytes(std::iter::once(columns[0].len() as u64).chain(words))
}

/// A number is n * 2^place with a whole n: here n, and the place above that of the least number.
fn whole(value: f64) -> (BigInt, u64) {
    let field = value.to_bits() >> 52 & 2047;
    let fraction = value.to_bits() & ((1 << 52) - 1);
    let size = BigInt::from(if field == 0 { fraction } else { fraction + (1 << 52) });
    (if value.is_sign_negative() { -size } else { size }, field.max(1) - 1)
}

pub(crate) fn exact(columns: &[Column]) -> Vec<u8> {
    let padded = |number: &BigInt, bytes: usize| {
        let mut of = number.to_signed_bytes_le();
        of.resize(bytes, if *number < BigInt::ZERO { 255 } else { 0 });
        of
    };
    let of_column = |column: &Column| {
        let finite = || column.iter().flatten().filter(|value| value.is_finite());
        let sum: BigInt = finite().map(|x| whole(*x)).map(|(n, place)| n << place).sum();
        let squares = finite().map(|x| whole(*x)).map(|(n, place)| (&n * &n) << (2 * place)).sum();
        let counts = [
            nulls(column),
            count(column, f64::is_nan),
            count(column, |value| value == f64::NEG_INFINITY),
            count(column, |value| value == f64::INFINITY),
            count(column, f64::is_finite),
        ];
        [bytes(counts), padded(&sum, 272), padded(&squares, 536)].concat()
    };
    columns.iter().flat_map(of_column).collect()
}

pub(crate) fn histogram(columns: &[Column], edges: &[Vec<f64>]) -> Vec<u8> {
    bytes(columns.iter().zip(edges).flat_map(|(column, edges)| {
        let (first, last) = (edges[0], edges[edges.len() - 1]);
        let mut counts = vec![count(column, |x| x < first)];
        counts.extend(edges.windows(2).map(|e| count(column, |x| e[0] <= x && x < e[1])));
        counts.extend([count(column, |x| last <= x), count(column, f64::is_nan), nulls(column)]);
        counts
    }))
}

pub(crate) fn exponents(columns: &[Column]) -> Vec<u8> {
    let of_sign = |column: &Column, negative: bool| {
        let of_field = |field: u64, is_zero: bool| {
            count(column, |x| {
                x.is_sign_negative() == negative
                    && !x.is_nan()
                    && x.to_bits() >> 52 & 2047 == field
                    && (field > 0 || (x == 0.0) == is_zero)
            })
        };
        let mut counts = vec![of_field(0, true)];
        // Most of the fields have nothing, and are quickly seen not to.
        let mut fields = vec![0; 2048];
        column.iter().flatten().for_each(|x| fields[(x.to_bits() >> 52 & 2047) as usize] += 1);
        let exact =
            |field: u64| if fields[field as usize] == 0 { 0 } else { of_field(field, false) };
        counts.extend((0..=2047).map(exact));
        counts
    };
    bytes(columns.iter().flat_map(|column| {
        let apart = [nulls(column), count(column, f64::is_nan)];
        [&apart[..], &of_sign(column, false), &of_sign(column, true)].concat()
    }))
}

pub(crate) fn distinct(columns: &[Column], precision: u32) -> Vec<u8> {
    let of_column = |column: &Column| {
        let mut registers = vec![0_u8; 1 << precision];
        for value in column.iter().flatten() {
            let word = if *value == 0.0 { 0 } else { bits(*value) };
            let product = |a: u64, b: u64| (u128::from(a) * u128::from(b)) as u64;
            let mut h = (u128::from(word) + 0x9e37_79b9_7f4a_7c15) as u64;
            h = product(h ^ (h >> 30), 0xbf58_476d_1ce4_e5b9);
            h = product(h ^ (h >> 27), 0x94d0_49bb_1331_11eb);
            h ^= h >> 31;
            let digits = format!("{h:064b}");
            let (number, rest) = digits.split_at(precision as usize);
            let rank = rest.find('1').unwrap_or(rest.len()) as u8 + 1;
            let register = &mut registers[usize::from_str_radix(number, 2).unwrap()];
            *register = rank.max(*register);
        }
        registers
    };
    columns.iter().flat_map(of_column).collect()
}

pub(crate) fn top(column: &Column, kept: usize, end: End) -> Vec<u8> {
    let cells = column.iter().enumerate();
    let numbers = cells.filter_map(|(row, cell)| Some((cell.filter(|x| !x.is_nan())?, row as u64)));
    let mut rows: Vec<(f64, u64)> = numbers.collect();
    rows.sort_by_key(|&(x, row)| (if end == End::Largest { !place(x) } else { place(x) }, row));
    rows.truncate(kept);
    let mut words = vec![rows.len() as u64];
    words.extend(rows.iter().flat_map(|(x, row)| [x.to_bits(), *row]));
    words.resize(1 + 2 * kept, 0);
    bytes(words)
}
