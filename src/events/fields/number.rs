//! A number in sixteen bits.
//!
//! The code of zero is 0. Else the upper bit is the sign, 6 bits are the exponent of two plus 20, and 9
//! bits are the binary places: `(1 + places / 512) 2^(exponent - 20)`, rounded to the nearest, of two to
//! the even one.

/// The code of NULL, which no number has.
pub(super) const NULL: u16 = 0xffff;

const PLACES: u32 = 9;
const SIGN: u16 = 1 << 15;
const LARGEST: u16 = 0x7ffe;
/// The places that a 64-bit float has more.
const DROPPED: u32 = f64::MANTISSA_DIGITS - 1 - PLACES;
/// What the exponent of a 64-bit float is greater by than that of a code.
const BIAS: i64 = 1023 - 20;

/// Returns the code of a number, at most a 1024th of it away. Numbers below a millionth have the code of
/// zero, and those above the largest its code; it is 1.756e13, 2^44 less a 512th.
#[must_use]
pub fn number_code(number: f64) -> u16 {
    let bits = number.abs().to_bits();
    let half = (1 << (DROPPED - 1)) - 1 + (bits >> DROPPED & 1);
    let rounded = (bits + half) >> DROPPED;
    match rounded as i64 - (BIAS << PLACES) {
        ..1 => 0,
        code => (code.min(LARGEST.into()) as u16) | if number < 0.0 { SIGN } else { 0 },
    }
}

/// Whether a number is greater, with either sign, than the largest that has a code.
#[cfg(feature = "prepare")]
pub(crate) fn is_too_large(number: f64) -> bool {
    number.abs() > number_of(LARGEST)
}

/// Whether a number has this code: none has the upper bit of zero, or more than the largest.
pub(super) fn is_code(code: u16) -> bool {
    code != SIGN && code & !SIGN <= LARGEST
}

/// Returns the number of a code.
#[must_use]
pub fn number_of(code: u16) -> f64 {
    let magnitude = i64::from(code & !SIGN);
    if magnitude == 0 {
        return 0.0;
    }
    let number = f64::from_bits(((magnitude + (BIAS << PLACES)) as u64) << DROPPED);
    if code & SIGN == 0 { number } else { -number }
}
