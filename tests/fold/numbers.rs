//! Numbers of every kind and type.

use half::{bf16, f16};
use headwater::fold::{Rows, Values};
use headwater::random::{Purpose, Stream};

/// What numbers are like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Between -1 and 1.
    Ordinary,
    /// Small whole numbers, whose sums cancel.
    Whole,
    /// Of every exponent, finite.
    HugeRange,
    /// Too small for the usual form, or just not.
    Subnormal,
    /// Ordinary ones, and here and there a zero, an infinity or a NaN.
    Special,
    /// Any bits.
    AnyBits,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::Ordinary,
        Self::Whole,
        Self::HugeRange,
        Self::Subnormal,
        Self::Special,
        Self::AnyBits,
    ];
}

/// The types that rows may have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
}

impl Dtype {
    pub(crate) const ALL: [Self; 4] = [Self::F64, Self::F32, Self::F16, Self::Bf16];
}

/// A number from its bits, `exponent_bits` of which are exponent.
fn bits_of(kind: Kind, word: u64, exponent_bits: u32, fraction_bits: u32) -> u64 {
    let all = u64::MAX >> (63 - exponent_bits - fraction_bits);
    let top = (1 << exponent_bits) - 1;
    let any = word & all;
    let exponent = any >> fraction_bits & top;
    let with_exponent = |e: u64| any & !(top << fraction_bits) | e << fraction_bits;
    match kind {
        Kind::HugeRange if exponent == top => with_exponent(top - 1),
        Kind::Subnormal => with_exponent(word >> 60 & 1),
        Kind::Special => match word >> 56 & 15 {
            0 => with_exponent(0) >> fraction_bits << fraction_bits,
            1 => with_exponent(top) >> fraction_bits << fraction_bits,
            2 => with_exponent(top),
            _ => with_exponent((top >> 1) - (word >> 50 & 3)),
        },
        _ => any,
    }
}

fn make<T>(
    kind: Kind,
    seed: u64,
    count: usize,
    of: impl Fn(f64) -> T,
    of_bits: impl Fn(u64) -> T,
) -> Vec<T> {
    let mut random = Stream::new(seed, Purpose::Demo, [0xf01d, 0, 0]);
    let number = |_| {
        let word = random.next_u64();
        match kind {
            Kind::Ordinary => of((word >> 11) as f64 / (1_u64 << 52) as f64 - 1.0),
            Kind::Whole => of((word % 7) as f64 - 3.0),
            _ => of_bits(word),
        }
    };
    (0..count).map(number).collect()
}

pub(crate) fn f64s(kind: Kind, seed: u64, count: usize) -> Vec<f64> {
    make(kind, seed, count, |v| v, |word| f64::from_bits(bits_of(kind, word, 11, 52)))
}

/// Numbers of one type, and the same ones in 64 bits.
#[derive(Clone)]
pub(crate) struct Numbers {
    own: Own,
    pub(crate) wide: Vec<f64>,
}

#[derive(Clone)]
enum Own {
    F64(Vec<f64>),
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

impl Numbers {
    pub(crate) fn new(dtype: Dtype, kind: Kind, seed: u64, count: usize) -> Self {
        match dtype {
            Dtype::F64 => Self::from(f64s(kind, seed, count)),
            Dtype::F32 => {
                let bits = |word| f32::from_bits(bits_of(kind, word, 8, 23) as u32);
                let own = make(kind, seed, count, |v| v as f32, bits);
                Self { wide: own.iter().map(|&v| f64::from(v)).collect(), own: Own::F32(own) }
            }
            Dtype::F16 => {
                let bits = |word| f16::from_bits(bits_of(kind, word, 5, 10) as u16);
                let own = make(kind, seed, count, f16::from_f64, bits);
                Self { wide: own.iter().map(|v| v.to_f64()).collect(), own: Own::F16(own) }
            }
            Dtype::Bf16 => {
                let bits = |word| bf16::from_bits(bits_of(kind, word, 8, 7) as u16);
                let own = make(kind, seed, count, bf16::from_f64, bits);
                Self { wide: own.iter().map(|v| v.to_f64()).collect(), own: Own::Bf16(own) }
            }
        }
    }

    pub(crate) fn values(&self) -> Values<'_> {
        match &self.own {
            Own::F64(own) => own.as_slice().into(),
            Own::F32(own) => own.as_slice().into(),
            Own::F16(own) => own.as_slice().into(),
            Own::Bf16(own) => own.as_slice().into(),
        }
    }

    pub(crate) fn rows(&self, count: usize, columns: usize, stride: usize) -> Rows<'_> {
        Rows::new(self.values(), count, columns, stride).unwrap()
    }
}

impl From<Vec<f64>> for Numbers {
    fn from(own: Vec<f64>) -> Self {
        Self { wide: own.clone(), own: Own::F64(own) }
    }
}
