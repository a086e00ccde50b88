//! Floating point in integers: sums of products without any rounding, and with one.

/// The value of bit 0 is 2^-2148, which is the least product of two numbers.
const LEAST: i32 = -2148;
/// Bits for the greatest product, for many of them, and for a sign.
const WORDS: usize = 68;

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
        f64::from_bits(self.rounded_bits(52, 1023))
    }

    /// The same of 32 bits.
    pub(crate) fn rounded_to_f32(&self) -> f32 {
        f32::from_bits(self.rounded_bits(23, 127) as u32)
    }

    /// The bits of the nearest number of a format with so many bits of fraction, and an exponent of so much
    /// for 1.
    fn rounded_bits(&self, fraction: usize, bias: i32) -> u64 {
        // Where the least number that is not zero has its bit.
        let least_bit = (1 - bias - fraction as i32 - LEAST) as usize;
        let sign = u64::from(bias as u32 + 1) << (fraction + 1);
        let infinity = u64::from(2 * bias as u32 + 1) << fraction;
        let negative = self.0[WORDS - 1] >> 63 == 1;
        let mut bits = self.0;
        if negative {
            let mut carry = true;
            for word in &mut bits {
                (*word, carry) = (!*word).carrying_add(0, carry);
            }
        }
        let Some(top_word) = bits.iter().rposition(|&word| word != 0) else { return 0 };
        let top = top_word * 64 + bits[top_word].ilog2() as usize;
        let bit = |at: usize| bits[at / 64] >> (at % 64) & 1;
        let last = top.saturating_sub(fraction).max(least_bit);
        let mut number = (last..=top).rev().fold(0, |number, at| number << 1 | bit(at));
        let half = bit(last - 1) == 1;
        let below = (0..last - 1).any(|at| bit(at) == 1);
        if half && (below || number % 2 == 1) {
            number += 1;
        }
        // What rounds up to the next power of two carries into the exponent by itself.
        let magnitude = if number < 1 << fraction {
            number
        } else {
            (((last - least_bit) as u64) << fraction) + number
        };
        magnitude.min(infinity) + if negative { sign } else { 0 }
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
    exact_sum(a, b, c).map_or(-0.0, |sum| sum.rounded())
}

/// The same of 32 bits.
pub(crate) fn fused_multiply_add_f32(a: f32, b: f32, c: f32) -> f32 {
    let [wide_a, wide_b, wide_c] = [a, b, c].map(f64::from);
    if !(a.is_finite() && b.is_finite() && c.is_finite()) {
        return fused_multiply_add(wide_a, wide_b, wide_c) as f32;
    }
    exact_sum(wide_a, wide_b, wide_c).map_or(-0.0, |sum| sum.rounded_to_f32())
}

/// `a * b + c` of finite numbers; none if it is -0.
fn exact_sum(a: f64, b: f64, c: f64) -> Option<Exact> {
    let mut sum = Exact::zero();
    sum.add_product(a, b);
    sum.add(c);
    let is_zero = sum.0.iter().all(|&word| word == 0);
    let negative_product = a.is_sign_negative() != b.is_sign_negative();
    let minus = is_zero && (a == 0.0 || b == 0.0) && negative_product && c.is_sign_negative();
    (!minus).then_some(sum)
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

#[test]
fn the_twin_of_fma_of_32_bits_matches_the_processor() {
    use crate::numbers::{Dtype, Kind, Numbers};
    for kind in Kind::ALL {
        let numbers = Numbers::new(Dtype::F32, kind, 9, 6000);
        for (at, three) in numbers.wide.chunks_exact(3).enumerate() {
            let (a, b, c) = (three[0] as f32, three[1] as f32, three[2] as f32);
            for c in [c, -a * b, -(a * b) * (1.0 + f32::EPSILON), a * b * f32::EPSILON / 2.0] {
                let (soft, hard) = (fused_multiply_add_f32(a, b, c), a.mul_add(b, c));
                let same = soft.to_bits() == hard.to_bits() || soft.is_nan() && hard.is_nan();
                assert!(same, "{kind:?} {at}: {a:e} * {b:e} + {c:e}: {soft:e}, {hard:e}");
            }
        }
    }
}
