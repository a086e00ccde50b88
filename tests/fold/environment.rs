//! P1 in a process that was told to be quick with small numbers, or to round otherwise.
#![cfg(target_arch = "x86_64")]
#![expect(
    unsafe_code,
    reason = "sets the processor's register for floating point, as a host might"
)]

use std::arch::asm;

use headwater::fold::columns::NumberedRows;
use headwater::fold::gram::{Chunk, Kernel, Speed};
use headwater::fold::{
    ColumnMoments, Cross, Distinct, End, Exact, ExponentHistogram, Gram, Histogram, Partial, Rows,
    Statistic, TopRows,
};
use rayon::ThreadPoolBuilder;

use crate::cells::Cells;
use crate::kernels::bits;
use crate::numbers::{Dtype, Kind, Numbers};

/// All exceptions masked, rounding to nearest.
const USUAL: u32 = 0x1f80;
/// Results that are subnormal become zero, and operands.
const NO_SUBNORMALS: u32 = USUAL | 0x8040;
const ROUNDING_UP: u32 = USUAL | 0x4000;
/// An exception for a NaN out of nothing, and for a number too great, is a signal.
const SIGNALS: u32 = USUAL & !0x0480 | 0x6000;

fn set(word: u32) {
    // SAFETY: The bits are such as the processor knows. Nothing but the library's own arithmetic is
    // done before the usual ones are back.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack)) };
}

fn get() -> u32 {
    let mut word = 0_u32;
    // SAFETY: Writes four bytes, where `word` is.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack)) };
    word
}

/// What `work` yields under a setting, which it must leave as it was.
fn under<T>(word: u32, work: impl FnOnce() -> T) -> T {
    set(word);
    let result = work();
    let after = get();
    set(USUAL);
    assert_eq!(after, word, "the caller's setting is not restored");
    result
}

#[test]
fn p1_the_callers_setting_changes_no_bit_and_is_restored() {
    let (rows, columns) = (50, 30);
    for kind in [Kind::Subnormal, Kind::Ordinary, Kind::HugeRange, Kind::Special] {
        for dtype in Dtype::ALL {
            let numbers = Numbers::new(dtype, kind, 4, rows * columns);
            let chunk = Chunk::of(numbers.rows(rows, columns, columns));
            // Small products, so that sums are subnormal.
            let weights = vec![1e-300; rows];
            let weighted = chunk.clone().weighted(&weights).unwrap();
            for kernel in Kernel::available() {
                let speed = Speed { kernel: Some(kernel), ..Speed::default() };
                let gram = Gram::with_speed(columns, &speed).unwrap();
                let heavy = Gram::with_speed(columns, &speed).unwrap().weighted();
                let cross = Cross::with_speed(columns, columns, &speed).unwrap();
                let sides = (chunk.clone(), chunk.clone());
                let all = || {
                    let mut merged = gram.leaf(&chunk).unwrap();
                    merged.merge(&heavy.leaf(&weighted).unwrap());
                    let crossed = cross.leaf(&sides).unwrap();
                    (merged, heavy.leaf(&weighted).unwrap(), crossed)
                };
                let flat = |(a, b, c): (
                    headwater::fold::gram::Triangle,
                    _,
                    headwater::fold::gram::Rectangle,
                )| {
                    let b: headwater::fold::gram::Triangle = b;
                    [bits(a.values()), bits(b.values()), bits(c.values())].concat()
                };
                let usual = flat(all());
                for word in [NO_SUBNORMALS, ROUNDING_UP, SIGNALS] {
                    let found = flat(under(word, all));
                    assert!(found == usual, "{kernel} {kind:?} {dtype:?} {word:x}");
                }
            }
        }
    }
}

#[test]
fn p1_merging_is_the_same_under_every_setting() {
    let gram = Gram::new(1).unwrap();
    let partial = |value: f64| gram.decode(&value.to_le_bytes()).unwrap();
    let tiny = f64::from_bits(3);
    for (left, right) in [(tiny, tiny), (1.0, 1e-20), (f64::MAX, f64::MAX), (-1.0, 1.0)] {
        for word in [NO_SUBNORMALS, ROUNDING_UP, SIGNALS] {
            let (mut merged, right_partial) = (partial(left), partial(right));
            under(word, || merged.merge(&right_partial));
            assert_eq!(merged.values()[0].to_bits(), (left + right).to_bits(), "{word:x}");
        }
    }
}

/// The bytes of two leaves and of what they merge to.
fn merged<S: Statistic>(statistic: &S, chunks: [&S::Chunk<'_>; 2]) -> Vec<u8> {
    let [left, right] = chunks.map(|chunk| statistic.leaf(chunk).unwrap());
    let mut both = statistic.decode(&statistic.encode(&left)).unwrap();
    both.merge(&right);
    [left, right, both].iter().flat_map(|partial| statistic.encode(partial)).collect()
}

#[test]
fn p1_the_callers_setting_changes_no_bit_of_column_statistics() {
    let tiny = f64::from_bits(3);
    let moments = ColumnMoments::new(vec![0.0, tiny, -1e-3]).unwrap();
    let histogram = Histogram::new(vec![vec![0.0, tiny, 1e-3]; 3]).unwrap();
    let (exact, exponents) = (Exact::new(3).unwrap(), ExponentHistogram::new(3).unwrap());
    let distinct = Distinct::new(3, 6).unwrap();
    let top = TopRows::new(3, 1, 9, End::Smallest).unwrap();
    for kind in [Kind::Subnormal, Kind::Ordinary, Kind::HugeRange, Kind::Special] {
        for dtype in Dtype::ALL {
            let cells = Cells::new((dtype, kind, 6), (80, 3), 9);
            let chunks: [Rows<'_>; 2] = [cells.part(0..50), cells.part(50..80)];
            let rows = [&chunks[0], &chunks[1]];
            let numbered = [
                NumberedRows { first: 0, rows: chunks[0] },
                NumberedRows { first: 50, rows: chunks[1] },
            ];
            let all = || {
                [
                    merged(&moments, rows),
                    merged(&exact, rows),
                    merged(&histogram, rows),
                    merged(&exponents, rows),
                    merged(&distinct, rows),
                    merged(&top, [&numbered[0], &numbered[1]]),
                ]
            };
            let usual = all();
            for word in [NO_SUBNORMALS, ROUNDING_UP, SIGNALS] {
                assert!(under(word, all) == usual, "{kind:?} {dtype:?} {word:x}");
            }
        }
    }
}

/// Threads that others have set.
#[test]
fn p1_the_setting_of_pool_threads_changes_no_bit_and_is_restored() {
    for (rows, columns) in [(40, 20), (40, 1030)] {
        let numbers = Numbers::new(Dtype::F32, Kind::Subnormal, 4, rows * columns);
        let chunks = [Chunk::of(numbers.rows(rows, columns, columns))];
        let gram = Gram::new(columns).unwrap();
        let usual = gram.leaf(&chunks[0]).unwrap();
        let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        pool.broadcast(|_| set(NO_SUBNORMALS));
        let found = gram.leaves(&chunks, &pool).unwrap();
        assert!(found[0].same_bits(&usual));
        assert_eq!(pool.broadcast(|_| get()), [NO_SUBNORMALS; 2]);
        assert!(usual.values().iter().any(|&sum| sum != 0.0), "the numbers are too small to tell");
    }
}
