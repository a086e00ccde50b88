//! Integers, their quotients and roots as 64-bit floats, rounded once, to nearest with ties to even.

use num_bigint::BigUint;

/// The exponent of the least 64-bit float, 2^-1074.
const LEAST_EXPONENT: i64 = -1074;
/// The bits of a significand.
const BITS: i64 = 53;
/// More bits than a significand has: what is cut off then has one place at least.
const ENOUGH_BITS: u64 = 64;
const TWICE_A_SIGNIFICAND: u64 = 1 << BITS;

/// Returns numerator / divisor * 2^exponent.
///
/// # Panics
/// For a divisor of 0.
pub(super) fn quotient(numerator: &BigUint, divisor: &BigUint, exponent: i64) -> f64 {
    let (whole, has_rest, exponent) = divided(numerator, divisor, exponent, ENOUGH_BITS);
    rounded(&whole, exponent, has_rest)
}

/// Returns the square root of numerator / divisor * 2^exponent.
///
/// # Panics
/// For a divisor of 0.
pub(super) fn root_of_quotient(numerator: &BigUint, divisor: &BigUint, exponent: i64) -> f64 {
    let (whole, has_rest, exponent) = divided(numerator, divisor, exponent, 2 * ENOUGH_BITS);
    let root = whole.sqrt();
    let has_rest = has_rest || &root * &root != whole;
    rounded(&root, exponent / 2, has_rest)
}

/// Returns the quotient as an integer of at least `bits` bits times 2 to an even exponent, and whether
/// it is more than that.
fn divided(
    numerator: &BigUint,
    divisor: &BigUint,
    exponent: i64,
    bits: u64,
) -> (BigUint, bool, i64) {
    let more = (bits + 1 + divisor.bits()).saturating_sub(numerator.bits());
    // Of an odd exponent one more is taken, so that its half is whole.
    let more = more + u64::from(exponent.rem_euclid(2) as u64 != more % 2);
    let shifted = numerator << more;
    let whole = &shifted / divisor;
    let has_rest = &whole * divisor != shifted;
    (whole, has_rest, exponent - more as i64)
}

/// Returns `whole` * 2^exponent, or a little more if it `has_rest`; `whole` is 0 or has more bits than a
/// significand.
fn rounded(whole: &BigUint, exponent: i64, has_rest: bool) -> f64 {
    // The places that are cut off, below the last bit of the result.
    let cut = (whole.bits() as i64 - BITS).max(LEAST_EXPONENT - exponent).max(0) as u64;
    let kept = u64::try_from(whole >> cut).unwrap_or(u64::MAX);
    let is_half = cut > 0 && whole.bit(cut - 1);
    let is_more = has_rest || whole.trailing_zeros().is_some_and(|zeros| zeros + 1 < cut);
    let significand = kept + u64::from(is_half && (is_more || kept % 2 == 1));
    composed(significand, exponent + cut as i64)
}

/// Returns significand * 2^exponent, or infinity if that is beyond the floats: by its bits, since the
/// caller's floating-point settings may not keep subnormal numbers.
///
/// The significand is at most 2^53, and below 2^52 only with the least exponent.
fn composed(significand: u64, exponent: i64) -> f64 {
    let (significand, exponent) = match significand {
        TWICE_A_SIGNIFICAND => (significand / 2, exponent + 1),
        _ => (significand, exponent),
    };
    if significand < TWICE_A_SIGNIFICAND / 2 {
        return f64::from_bits(significand);
    }
    match u64::try_from(exponent - LEAST_EXPONENT + 1) {
        Ok(field @ 1..0x7ff) => f64::from_bits(field << 52 | significand & ((1 << 52) - 1)),
        _ => f64::INFINITY,
    }
}
