//! The built-in embedder: no model, no network, the same bits on every machine.
//!
//! Letters and their lower case come from the Unicode tables of Rust's standard library. A build by
//! another version of Rust may differ for characters that these tables have gained.

use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;

use super::Embedder;
use crate::error::Result;

/// Hashes a text's words and their letter triples into a vector of unit length.
///
/// Texts with common words, or common parts of words, have similar vectors; nothing else of
/// language is modelled. Each feature adds a positive or negative integer to one place, so the sums
/// are exact and independent of their order.
#[derive(Clone, Copy, Debug)]
pub struct HashingEmbedder {
    dimension: usize,
}

/// Words weigh more than their parts.
const WORD_WEIGHT: i32 = 3;

impl HashingEmbedder {
    /// Returns an embedder of vectors of `dimension` numbers.
    #[must_use]
    pub fn new(dimension: usize) -> Self {
        Self { dimension }
    }

    fn embed_one(&self, text: &str, sums: &mut [i32], floats: &mut [f32], vector: &mut [f16]) {
        sums.fill(0);
        let mut lower = [0_u8; 4];
        // The triples of " word " include its beginning and its end.
        let mut word = FNV_START;
        let mut triple = [u32::from(b' '); 3];
        for character in text.chars().chain([' ']) {
            if character.is_alphanumeric() {
                for small in character.to_lowercase() {
                    for &byte in small.encode_utf8(&mut lower).as_bytes() {
                        word = (word ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
                    }
                    triple = [triple[1], triple[2], small as u32];
                    self.add(sums, spread_triple(triple), 1);
                }
            } else if word != FNV_START {
                self.add(sums, spread(word), WORD_WEIGHT);
                self.add(sums, spread_triple([triple[1], triple[2], u32::from(b' ')]), 1);
                word = FNV_START;
                triple = [u32::from(b' '); 3];
            }
        }
        let length: i64 = sums.iter().map(|&sum| i64::from(sum) * i64::from(sum)).sum();
        let scale = if length == 0 { 0.0 } else { (length as f32).sqrt().recip() };
        for (float, &sum) in floats.iter_mut().zip(&*sums) {
            *float = sum as f32 * scale;
        }
        vector.convert_from_f32_slice(floats);
    }

    #[inline]
    fn add(&self, sums: &mut [i32], feature: u64, weight: i32) {
        // The high bits choose the place, the lowest one the sign.
        let place = ((feature >> 32) * self.dimension as u64) >> 32;
        sums[place as usize] += if feature & 1 == 0 { weight } else { -weight };
    }
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Spreads a hash over all 64 bits (the finaliser of MurmurHash3).
#[inline]
fn spread(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[inline]
fn spread_triple([a, b, c]: [u32; 3]) -> u64 {
    spread(u64::from(a) | u64::from(b) << 21 | u64::from(c) << 42 | 1 << 63)
}

impl Embedder for HashingEmbedder {
    fn name(&self) -> String {
        "hashing-1".to_owned()
    }

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn embed(&self, texts: &[&str], vectors: &mut [f16]) -> Result<()> {
        let chunk = 256;
        let rows = vectors.par_chunks_mut(chunk * self.dimension);
        rows.zip(texts.par_chunks(chunk)).for_each(|(vectors, texts)| {
            let mut sums = vec![0; self.dimension];
            let mut floats = vec![0.0; self.dimension];
            for (vector, text) in vectors.chunks_exact_mut(self.dimension).zip(texts) {
                self.embed_one(text, &mut sums, &mut floats, vector);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(text: &str) -> Vec<f16> {
        let mut vector = vec![f16::ZERO; 64];
        HashingEmbedder::new(64).embed(&[text], &mut vector).unwrap();
        vector
    }

    fn similarity(a: &str, b: &str) -> f32 {
        vector(a).iter().zip(vector(b)).map(|(a, b)| a.to_f32() * b.to_f32()).sum()
    }

    #[test]
    fn similar_texts_have_similar_vectors() {
        assert!(similarity("Red cotton shirt", "red COTTON shirts!") > 0.7);
        assert!(similarity("Red cotton shirt", "hydraulic pump") < 0.4);
        assert!((similarity("x", "x") - 1.0).abs() < 1e-2);
    }

    #[test]
    fn long_texts_have_vectors_and_empty_ones_have_zeros() {
        let long = "headwater ".repeat(100_000);
        assert!((similarity(&long, &long) - 1.0).abs() < 1e-2);
        assert!(vector("").iter().all(|&x| x == f16::ZERO));
        assert!(vector(" ,;- ").iter().all(|&x| x == f16::ZERO));
    }

    #[test]
    fn value_stability() {
        let bits: Vec<u16> = vector("orders of customer").iter().map(|x| x.to_bits()).collect();
        let digest = crate::bytes::Digest::of(bytemuck::cast_slice(&bits)).to_string();
        assert_eq!(&digest[..16], "ee4a062510e82a6e");
    }

    #[test]
    fn vectors_do_not_depend_on_threads() {
        let texts: Vec<String> = (0..2000).map(|i| format!("text number {i}")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let embed = |threads| {
            let mut vectors = vec![f16::ZERO; 2000 * 64];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| HashingEmbedder::new(64).embed(&texts, &mut vectors)).unwrap();
            vectors
        };
        assert_eq!(embed(1), embed(3));
    }
}
