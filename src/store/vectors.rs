//! The vectors of texts: 16-bit floats, or 8-bit integers with a scale for each text.

use half::f16;
use half::slice::HalfFloatSliceExt;
use serde::{Deserialize, Serialize};

use crate::container::{Container, Section};
use crate::error::Result;

/// The greatest integer of a vector; the least is its negative.
#[cfg(feature = "prepare")]
const MOST: f32 = 127.0;

/// How a store has the numbers of its texts' vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextEncoding {
    /// As 16-bit floats, as the embedder gives them.
    #[default]
    F16,
    /// As 8-bit integers, with a scale for each text: half the bytes.
    Int8,
}

impl TextEncoding {
    /// The names of all encodings, as metadata and options have them.
    pub const NAMES: [&str; 2] = ["f16", "int8"];

    /// Returns the encoding called `name`; none when no encoding has that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::F16, Self::Int8].into_iter().find(|encoding| encoding.name() == name)
    }

    /// Returns the name, as metadata and options have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the number of bytes of a number of a vector.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 => size_of::<f16>(),
            Self::Int8 => size_of::<i8>(),
        }
    }

    /// Whether vectors are 16-bit floats, which the metadata do not mention.
    pub(super) fn is_f16(&self) -> bool {
        *self == Self::F16
    }
}

/// Vectors of texts, one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TextVectors<'a> {
    /// As 16-bit floats.
    F16(&'a [f16]),
    /// As 8-bit integers.
    Int8 {
        /// The integers of all vectors.
        values: &'a [i8],
        /// For each vector what its integers are multiplied by.
        scales: &'a [f32],
    },
}

impl<'a> TextVectors<'a> {
    /// Returns the numbers of all vectors.
    #[must_use]
    pub fn to_f32_vec(self) -> Vec<f32> {
        match self {
            Self::F16(values) => values.to_f32_vec(),
            Self::Int8 { values, scales } => {
                let dimension = values.len().checked_div(scales.len()).unwrap_or_default().max(1);
                let vectors = values.chunks(dimension).zip(scales);
                vectors
                    .flat_map(|(vector, scale)| vector.iter().map(move |&x| f32::from(x) * scale))
                    .collect()
            }
        }
    }

    /// Returns the bytes of the vectors, without the scales.
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Self::F16(values) => bytemuck::cast_slice(values),
            Self::Int8 { values, .. } => bytemuck::cast_slice(values),
        }
    }

    /// Returns the scale of each vector; none of 16-bit floats.
    #[must_use]
    pub fn scales(self) -> &'a [f32] {
        match self {
            Self::F16(_) => &[],
            Self::Int8 { scales, .. } => scales,
        }
    }
}

/// The sections of a file with the vectors of texts.
pub(super) struct TextSections {
    vectors: Section,
    /// Of 8-bit integers.
    scales: Option<Section>,
    count: usize,
    dimension: usize,
}

impl TextSections {
    /// Opens the sections of the vectors of `count` texts.
    pub(super) fn open(
        file: &Container,
        encoding: TextEncoding,
        count: u32,
        dimension: u32,
    ) -> Result<Self> {
        // Such counts multiplied can pass even 64 bits; no section is that long.
        let numbers = u64::from(count).saturating_mul(u64::from(dimension));
        let vectors = file.section("vectors", numbers.saturating_mul(encoding.bytes() as u64))?;
        let scales = match encoding {
            TextEncoding::F16 => None,
            TextEncoding::Int8 => {
                Some(file.section("scales", u64::from(count) * size_of::<f32>() as u64)?)
            }
        };
        Ok(Self { vectors, scales, count: count as usize, dimension: dimension as usize })
    }

    /// Returns the vectors of `count` texts from `first` on.
    fn of(&self, first: usize, count: usize) -> Result<TextVectors<'_>> {
        let (at, length) =
            (first.saturating_mul(self.dimension), count.saturating_mul(self.dimension));
        Ok(match &self.scales {
            None => TextVectors::F16(self.vectors.slice(at, length)?),
            Some(scales) => TextVectors::Int8 {
                values: self.vectors.slice(at, length)?,
                scales: scales.slice(first, count)?,
            },
        })
    }

    pub(super) fn all(&self) -> Result<TextVectors<'_>> {
        self.of(0, self.count)
    }

    pub(super) fn one(&self, index: u32) -> Result<TextVectors<'_>> {
        self.of(index as usize, 1)
    }

    /// Prefetches what [`TextSections::one`] reads.
    #[inline]
    pub(super) fn prefetch(&self, index: u32) {
        let index = index as usize;
        let bytes = match &self.scales {
            None => self.dimension * size_of::<f16>(),
            Some(scales) => {
                scales.prefetch(index.saturating_mul(size_of::<f32>()), size_of::<f32>());
                self.dimension
            }
        };
        self.vectors.prefetch(index.saturating_mul(bytes), bytes);
    }
}

/// Writes a vector as integers to `values`; returns its scale, or its first number that is not finite.
///
/// Every operation is one of IEEE 754 on 32-bit floats, so the result has the same bits everywhere.
#[cfg(feature = "prepare")]
pub(crate) fn quantise(vector: &[f16], values: &mut [i8]) -> std::result::Result<f32, f16> {
    /// Numbers that are widened at a time.
    const TOGETHER: usize = 256;
    /// 1.5 times 2^23: a sum with it has no room for a fraction, so it is rounded, to even, and its lowest byte
    /// is the integer.
    const NO_FRACTION: f32 = 12_582_912.0;
    // Magnitudes are in the order of their bits.
    let greatest = vector.iter().fold(0, |most, x| (x.to_bits() & 0x7fff).max(most));
    let greatest = f16::from_bits(greatest);
    if let Some(&bad) = vector.iter().find(|x| !greatest.is_finite() && !x.is_finite()) {
        return Err(bad);
    }
    if greatest == f16::ZERO {
        values.fill(0);
        return Ok(0.0);
    }
    let scale = greatest.to_f32() / MOST;
    let mut wide = [0.0; TOGETHER];
    for (values, vector) in values.chunks_mut(TOGETHER).zip(vector.chunks(TOGETHER)) {
        let wide = &mut wide[..vector.len()];
        vector.convert_to_f32_slice(wide);
        for (value, x) in values.iter_mut().zip(wide) {
            *value = (*x / scale + NO_FRACTION).to_bits() as i8;
        }
    }
    Ok(scale)
}

#[cfg(all(test, feature = "prepare"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quantised(vector: &[f16]) -> (Vec<i8>, f32) {
        let mut values = vec![1; vector.len()];
        let scale = quantise(vector, &mut values).unwrap();
        (values, scale)
    }

    fn floats(vector: &[f32]) -> Vec<f16> {
        vector.iter().copied().map(f16::from_f32).collect()
    }

    #[test]
    fn p1_same_bits_of_int8_vectors() {
        let golden = [
            (vec![1.0, -1.0, 0.5, 0.25, -0.0, 0.1], vec![127, -127, 64, 32, 0, 13], 0x3c01_0204),
            // 0.5 of a step is rounded to even: 0, 2 and 2.
            (vec![254.0, 1.0, 3.0, 5.0, -1.0, -3.0], vec![127, 0, 2, 2, 0, -2], 0x4000_0000),
            // The greatest and the least magnitudes of f16.
            (vec![65504.0, -65504.0, 258.0, 257.75], vec![127, -127, 1, 0], 0x4400_f1e4),
            (vec![5.960_464_5e-8, 0.0, -5.960_464_5e-8], vec![127, 0, -127], 0x3001_0204),
            (vec![0.0, -0.0], vec![0, 0], 0),
            (vec![], vec![], 0),
        ];
        for (vector, values, scale) in golden {
            let (found, found_scale) = quantised(&floats(&vector));
            assert_eq!((found, found_scale.to_bits()), (values, scale), "{vector:?}");
        }
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused() {
        for bad in [f16::NAN, f16::INFINITY, f16::NEG_INFINITY] {
            let vector = [f16::ONE, bad, f16::NAN];
            let found = quantise(&vector, &mut [0; 3]).unwrap_err();
            assert_eq!(found.to_bits(), bad.to_bits());
        }
    }

    #[test]
    fn encodings_have_the_names_of_the_metadata() {
        for name in TextEncoding::NAMES {
            let encoding = TextEncoding::named(name).unwrap();
            assert_eq!(serde_json::to_string(&encoding).unwrap(), format!("{name:?}"));
        }
        assert_eq!(TextEncoding::named("int4"), None);
    }

    /// Any finite 16-bit float.
    fn finite() -> impl Strategy<Value = f16> {
        any::<u16>().prop_map(f16::from_bits).prop_filter("finite", |x| x.is_finite())
    }

    proptest! {
        #[test]
        fn a_number_is_off_by_half_a_step_at_most(vector in prop::collection::vec(finite(), 0..300)) {
            let (values, scale) = quantised(&vector);
            let whole = TextVectors::Int8 { values: &values, scales: &[scale] };
            let near = whole.to_f32_vec();
            prop_assert_eq!(near.len(), vector.len());
            for (x, near) in vector.iter().zip(near) {
                let error = (f64::from(x.to_f32()) - f64::from(near)).abs();
                // Half a step, and what is rounded of the scale and of the quotient.
                prop_assert!(error <= f64::from(scale) * 0.500_03, "{x} {near} {scale}");
            }
            let greatest = values.iter().map(|value| value.unsigned_abs()).max().unwrap_or(0);
            prop_assert_eq!(greatest, if scale == 0.0 { 0 } else { 127 });
        }

        #[test]
        fn a_vector_of_integers_is_read_back_as_it_was(vector in prop::collection::vec(-126_i8..=126, 1..50)) {
            let whole: Vec<i8> = vector.into_iter().chain([127]).collect();
            let numbers: Vec<f16> = whole.iter().map(|&x| f16::from_f32(f32::from(x) * 0.25)).collect();
            prop_assert_eq!(quantised(&numbers), (whole, 0.25));
        }
    }
}
