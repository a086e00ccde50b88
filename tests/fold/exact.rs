//! Floating point in integers: sums of products without any rounding, and with one.

/// The value of bit 0 is 2^-2148, which is the least product of two numbers.
const LEAST: i32 = -2148;
/// Bits for the greatest product, for many of them, and for a sign.
const WORDS: usize = 68;
/// Where the least number that is not zero, 2^-1074, has its bit.
const LEAST_BIT: usize = 1074;

/// A sum of numbers and products of numbers, exactly, in two's complement.
#[derive(Clone)]
pub(crate) struct Exact([u64; WORDS]);

impl Exact {
    pub(crate) fn zero() -> Self {
        Self([0; WORDS])
    }

    /// Adds a finite number.
    pub(crate) fn add(&mut self, a: f64) {
        self.add_product(a, 1.0);
    }

    /// Adds the product of two finite numbers.
    pub(crate) fn add_product(&mut self, a: f64, b: f64) {
        let ((a_bits, a_exponent), (b_bits, b_exponent)) = (parts(a), parts(b));
        let product = u128::from(a_bits) * u128::from(b_bits);
        let shift = (a_exponent + b_exponent - LEAST) as usize;
        let (word, bit) = (shift / 64, shift % 64);
        let (low, high) = (product as u64, (product >> 64) as u64);
        let carried = |value: u64| if bit == 0 { 0 } else { value >> (64 - bit) };
        let three = [low << bit, high << bit | carried(low), carried(high)];
        let negative = a.is_sign_negative() != b.is_sign_negative();
        let mut carry = false;
        for (place, target) in self.0[word..].iter_mut().enumerate() {
            let value = three.get(place).copied().unwrap_or_default();
            (*target, carry) = if negative {
                target.borrowing_sub(value, carry)
            } else {
                target.carrying_add(value, carry)
            };
        }
    }

    /// The nearest number, ties to even; +0 for zero itself.
    pub(crate) fn rounded(&self) -> f64 {
        let negative = self.0[WORDS - 1] >> 63 == 1;
        let mut bits = self.0;
        if negative {
            let mut carry = true;
            for word in &mut bits {
                (*word, carry) = (!*word).carrying_add(0, carry);
            }
        }
        let Some(top_word) = bits.iter().rposition(|&word| word != 0) else { return 0.0 };
        let top = top_word * 64 + bits[top_word].ilog2() as usize;
        let bit = |at: usize| bits[at / 64] >> (at % 64) & 1;
        let last = top.saturating_sub(52).max(LEAST_BIT);
        let mut number = (last..=top).rev().fold(0, |number, at| number << 1 | bit(at));
        let half = bit(last - 1) == 1;
        let below = (0..last - 1).any(|at| bit(at) == 1);
        if half && (below || number % 2 == 1) {
            number += 1;
        }
        // What rounds up to the next power of two carries into the exponent by itself.
        let magnitude =
            if number < 1 << 52 { number } else { (((last - LEAST_BIT) as u64) << 52) + number };
        let magnitude = f64::from_bits(magnitude.min(f64::INFINITY.to_bits()));
        if negative { -magnitude } else { magnitude }
    }
}

/// A finite number without its sign, as an integer and a power of two.
fn parts(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let (field, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    assert_ne!(field, 0x7ff, "{value} is not finite");
    if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) }
}

/// `a * b + c`, rounded once, without an instruction of floating point that rounds.
pub(crate) fn fused_multiply_add(a: f64, b: f64, c: f64) -> f64 {
    if !(a.is_finite() && b.is_finite() && c.is_finite()) {
        // Products of finite numbers may overflow here, beside an infinity that decides the sum.
        let sign = if a.is_sign_negative() == b.is_sign_negative() { 1.0 } else { -1.0 };
        let product = if a.is_finite() && b.is_finite() { 0.0 } else { a.abs() * b.abs() * sign };
        return product + c;
    }
    let mut sum = Exact::zero();
    sum.add_product(a, b);
    sum.add(c);
    let is_zero = sum.0.iter().all(|&word| word == 0);
    let negative_product = a.is_sign_negative() != b.is_sign_negative();
    if is_zero && (a == 0.0 || b == 0.0) && negative_product && c.is_sign_negative() {
        return -0.0;
    }
    sum.rounded()
}

#[test]
fn the_twin_of_fma_matches_the_processor() {
    use crate::numbers::{Kind, f64s};
    for kind in Kind::ALL {
        for (at, three) in f64s(kind, 9, 6000).chunks_exact(3).enumerate() {
            let (a, b, c) = (three[0], three[1], three[2]);
            // Sums that nearly cancel, and halves.
            for c in [c, -a * b, -(a * b) * (1.0 + f64::EPSILON), a * b * f64::EPSILON / 2.0] {
                let (soft, hard) = (fused_multiply_add(a, b, c), a.mul_add(b, c));
                let same = soft.to_bits() == hard.to_bits() || soft.is_nan() && hard.is_nan();
                assert!(same, "{kind:?} {at}: {a:e} * {b:e} + {c:e}: {soft:e}, {hard:e}");
            }
        }
    }
}
