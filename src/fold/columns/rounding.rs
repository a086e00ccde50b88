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
    let more = (bits + divisor.bits()).saturating_sub(numerator.bits());
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
    // The places that are cut off, below the last bit of the result; any number of them of 0.
    let cut = (whole.bits() as i64 - BITS).max(LEAST_EXPONENT - exponent).max(1) as u64;
    let kept = u64::try_from(whole >> cut).unwrap_or(u64::MAX);
    let is_half = whole.bit(cut - 1);
    let is_more = has_rest || whole.trailing_zeros().is_some_and(|zeros| zeros + 1 < cut);
    let significand = kept + u64::from(is_half && (is_more || kept % 2 == 1));
    composed(significand, exponent + cut as i64)
}

/// Returns significand * 2^exponent, or infinity if that is beyond the floats: by its bits, since the
/// caller's floating-point settings may not keep subnormal numbers.
///
/// The significand is at most 2^53, and below 2^52 only with the least exponent.
fn composed(significand: u64, exponent: i64) -> f64 {
    // It has no bit but the one that is left out below.
    let exponent = exponent + i64::from(significand == TWICE_A_SIGNIFICAND);
    if significand < TWICE_A_SIGNIFICAND / 2 {
        return f64::from_bits(significand);
    }
    match u64::try_from(exponent - LEAST_EXPONENT + 1) {
        Ok(field @ 1..0x7ff) => f64::from_bits(field << 52 | significand & ((1 << 52) - 1)),
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BigUint, quotient, root_of_quotient};

    /// The integer and the power of two that a number is.
    fn parts(value: f64) -> (u64, i64) {
        let (field, fraction) = (value.to_bits() >> 52, value.to_bits() & ((1 << 52) - 1));
        match field {
            0 => (fraction, -1074),
            _ => (fraction | 1 << 52, field as i64 - 1075),
        }
    }

    /// A number that is not negative: of any size, or near the least ones.
    fn any_number() -> impl Strategy<Value = f64> {
        let any_bits = any::<u64>().prop_map(|bits| f64::from_bits(bits >> 1));
        let least = (0_u64..1 << 56).prop_map(f64::from_bits);
        prop_oneof![any_bits, least].prop_filter("finite", |value| value.is_finite())
    }

    /// An integer whose last digits are often a half, or nearly one.
    fn any_integer() -> impl Strategy<Value = u128> {
        let places = prop_oneof![Just(1), 0_u32..70];
        let near_half = (1_u128 << 53..1 << 54, places, -1_i128..=1);
        let near_half = near_half
            .prop_map(|(twice, places, more)| ((twice | 1) << places).wrapping_add_signed(more));
        prop_oneof![any::<u128>(), near_half]
    }

    proptest! {
        #[test]
        fn p1_quotients_are_those_of_the_processor(
            a in any_number(), b in any_number(), integer in any_integer(), factor in 1_u128..,
        ) {
            let ((n, n_exponent), (d, d_exponent)) = (parts(a), parts(b));
            let (n, d) = (BigUint::from(n) * factor, BigUint::from(d) * factor);
            if b > 0.0 {
                let found = quotient(&n, &d, n_exponent - d_exponent);
                prop_assert_eq!(found.to_bits(), (a / b).to_bits());
            }
            let found = quotient(&(BigUint::from(integer) * factor), &factor.into(), 0);
            prop_assert_eq!(found.to_bits(), (integer as f64).to_bits());
        }

        /// In units of the least number: less than a half goes, more counts as one, a half is made even.
        #[test]
        fn p1_quotients_near_the_least_number_are_rounded_once(
            integer in any_integer(), divisor in 1_u64..1000, places in 0_u32..100,
        ) {
            let unit = u128::from(divisor) << places;
            let (whole, twice_rest) = (integer / unit, 2 * (integer % unit));
            let up = twice_rest > unit || twice_rest == unit && whole % 2 == 1;
            let found = quotient(&integer.into(), &divisor.into(), -1074 - i64::from(places));
            if whole < 1 << 53 {
                let expected = (whole + u128::from(up)) as f64 * f64::from_bits(1);
                prop_assert_eq!(found.to_bits(), expected.to_bits());
            }
        }

        #[test]
        fn p1_roots_are_those_of_the_processor(
            a in any_number(), factor in 1_u128.., places in 0_u32..100,
        ) {
            let (n, exponent) = parts(a);
            let (n, exponent) = (BigUint::from(n) << places, exponent - i64::from(places));
            let found = root_of_quotient(&(n * factor), &factor.into(), exponent);
            prop_assert_eq!(found.to_bits(), a.sqrt().to_bits());
        }

        /// Of the square of a half, and of what is a little more or less.
        #[test]
        fn p1_roots_near_a_half_are_rounded_once(twice in 1_u64 << 53..1 << 54) {
            let root = twice | 1;
            let (square, far) = (BigUint::from(root) * root, BigUint::from(1_u8) << 400);
            let (less, more) = (&square * &far - 1_u8, &square * &far + 1_u8);
            prop_assert_eq!(root_of_quotient(&square, &1_u8.into(), 0), root as f64);
            prop_assert_eq!(root_of_quotient(&less, &far, 0), (root - 1) as f64);
            prop_assert_eq!(root_of_quotient(&more, &far, 0), (root + 1) as f64);
        }
    }

    #[test]
    fn quotients_at_both_ends_of_the_numbers_are_rounded_once() {
        let (one, greatest) = (BigUint::from(1_u8), BigUint::from((1_u64 << 53) - 1));
        for exponent in [-3000, 0, 3000] {
            let zero = BigUint::from(0_u8);
            assert_eq!(quotient(&zero, &one, exponent).to_bits(), 0);
            assert_eq!(root_of_quotient(&zero, &one, exponent).to_bits(), 0);
        }
        assert_eq!(quotient(&greatest, &one, 971), f64::MAX);
        // Half a place more would round to the next power of two.
        let half_more = &greatest * 2_u8 + 1_u8;
        assert_eq!(quotient(&half_more, &one, 0), f64::powi(2.0, 54));
        assert_eq!(quotient(&half_more, &one, 970), f64::INFINITY);
        assert_eq!(quotient(&(half_more * 2_u8 - 1_u8), &one, 969), f64::MAX);
        assert_eq!(quotient(&one, &one, 1024), f64::INFINITY);
        assert_eq!(quotient(&one, &one, i64::from(i32::MAX)), f64::INFINITY);
        // Up to twice the least number with all digits, the bits are the number of the least ones.
        for bits in [1, (1 << 52) - 1, 1 << 52, (1 << 53) - 1] {
            assert_eq!(quotient(&BigUint::from(bits), &one, -1074).to_bits(), bits);
        }
        assert_eq!(quotient(&one, &one, -1075).to_bits(), 0);
        assert_eq!(quotient(&one, &one, i64::from(i32::MIN)).to_bits(), 0);
    }
}
