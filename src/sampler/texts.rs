//! The distinct texts of a batch, and their vectors.

use std::sync::Arc;

use rayon::prelude::*;

use super::batch::Batch;
use super::database::Database;
use crate::error::{Error, Result};
use crate::handoff::{Pool, Slab, room_for_batch};
use crate::store::{Store, TextEncoding};
use crate::tensor::Tensor;

/// The least of the default counts that a batch's texts are padded to. Each other is twice the one before:
/// there are few shapes, and of more texts than the least count, less than half is padding.
const DEFAULT_BUCKET_MIN: u32 = 256;

/// The number of vectors that a thread copies at a time.
const PIECE: usize = 256;

/// The number of vectors that are prefetched while one is copied: from memory, and from the disk, which
/// answers many reads at a time.
const AHEAD: usize = 4;
const AHEAD_ON_DISK: usize = 64;

/// Returns the counts that the vectors of a batch of `cell_count` cells are padded to.
pub(super) fn buckets(given: &[u32], cell_count: u32) -> Result<Vec<u32>> {
    let mut buckets = given.to_vec();
    if given.is_empty() {
        let counts = std::iter::successors(Some(DEFAULT_BUCKET_MIN), |count| count.checked_mul(2));
        buckets.extend(counts.take_while(|count| *count < cell_count));
        buckets.push(cell_count);
    }
    buckets.sort_unstable();
    buckets.dedup();
    if buckets.first() == Some(&0) {
        return Err(Error::invalid("expected text_buckets of at least 1, found 0; remove it"));
    }
    Ok(buckets)
}

/// Returns the encoding of the vectors in the batches of all databases, so that these have the same tensors.
///
/// # Errors
/// `InvalidArgument` for texts without vectors, and for vectors of two encodings.
pub(super) fn encoding(databases: &[Database]) -> Result<TextEncoding> {
    let all = databases.iter().map(|of| (&of.name, &of.store.metadata().embedding));
    if let Some((name, _)) = all.clone().find(|(_, of)| !of.text_vectors && of.text_count > 0) {
        return Err(no_vectors(name));
    }
    let mut encodings =
        all.filter(|(_, of)| of.text_vectors).map(|(name, of)| (name, of.text_encoding));
    let Some((first, encoding)) = encodings.next() else { return Ok(TextEncoding::default()) };
    match encodings.find(|(_, other)| *other != encoding) {
        None => Ok(encoding),
        Some((name, other)) => Err(Error::invalid(format!(
            "expected text vectors of one encoding in a batch, found {0} in {first:?} and {1} in {name:?}; \
             prepare {name:?} again with --text-vectors {0}, or take the indexes alone with texts=\"global\"",
            encoding.name(),
            other.name(),
        ))),
    }
}

/// The error of a store whose texts have no vectors.
fn no_vectors(database: &str) -> Error {
    Error::invalid(format!(
        "expected stores with text vectors, found {database:?} without; prepare it without \
         --no-text-vectors (in Python text_vectors=False), or take the indexes alone with texts=\"global\""
    ))
}

/// Numbers the texts of a batch; keeps its buffers.
#[derive(Default)]
pub(super) struct TextTable {
    /// A hash table: a text's number plus `base`. Smaller values are of earlier batches. So few bytes
    /// stay in the cache of a core.
    slots: Vec<u32>,
    base: u32,
    texts: Vec<u32>,
}

impl TextTable {
    /// Replaces each text (plus one; 0 is none) by its number in the batch, in order of occurrence.
    ///
    /// # Errors
    /// `LimitExceeded` when memory runs out.
    pub(super) fn number(&mut self, cells: &mut [u32]) -> Result<()> {
        let slots = (cells.len() * 2).next_power_of_two();
        // The numbers of earlier batches, and empty slots, are below this batch's base.
        self.base += self.texts.len() as u32;
        if self.slots.len() != slots || self.base as usize + cells.len() > u32::MAX as usize {
            let mut empty = room_for_batch(slots)?;
            empty.resize(slots, 0);
            (self.slots, self.base) = (empty, 1);
        }
        self.texts.clear();
        if self.texts.capacity() < cells.len() {
            self.texts = room_for_batch(cells.len())?;
        }
        for cell in cells.iter_mut().filter(|cell| **cell != 0) {
            *cell = self.number_of(*cell - 1);
        }
        Ok(())
    }

    fn number_of(&mut self, text: u32) -> u32 {
        let mask = self.slots.len() - 1;
        let hash = u64::from(text).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut at = (hash >> 32) as usize & mask;
        loop {
            let Some(number) = self.slots[at].checked_sub(self.base) else {
                let number = self.texts.len() as u32;
                self.slots[at] = self.base + number;
                self.texts.push(text);
                return number;
            };
            if self.texts[number as usize] == text {
                return number;
            }
            at = (at + 1) & mask;
        }
    }

    /// Returns the vectors of the texts that were numbered last, padded with zeros to one of
    /// `buckets`; and their scales, where the encoding has some.
    pub(super) fn gather(
        &self,
        store: &Store,
        encoding: TextEncoding,
        buckets: &[u32],
        pool: &Arc<Pool>,
    ) -> Result<Vec<(Slab, Tensor)>> {
        let count = self.texts.len();
        let fits = buckets.iter().find(|&&bucket| bucket as usize >= count);
        let Some(&bucket) = fits else {
            return Err(Error::limit(format!(
                "expected at most {} distinct texts in a batch (the largest of text_buckets), found \
                 {count}; add a larger bucket, up to batch size x sequence length",
                buckets.last().copied().unwrap_or_default()
            )));
        };
        let dimension = store.metadata().embedding.dimension;
        let take = |tensor: Tensor| -> Result<(Slab, Tensor)> {
            let bytes = tensor.bytes();
            let slab = pool.take(bytes, bytes / bucket as usize * count);
            Ok((slab.map_err(|error| error.followed_by(", or smaller text_buckets"))?, tensor))
        };
        let mut vectors = take(Batch::text_tensor(bucket, dimension, encoding))?;
        let scales = (encoding == TextEncoding::Int8).then(|| take(Batch::scale_tensor(bucket)));
        let mut scales = scales.transpose()?;
        let piece = PIECE * dimension as usize * encoding.bytes();
        let pieces = vectors.0.used_mut().par_chunks_mut(piece).zip(self.texts.par_chunks(PIECE));
        match &mut scales {
            None => pieces
                .try_for_each(|(vectors, texts)| copy_vectors(store, texts, vectors, &mut []))?,
            Some((slab, _)) => {
                let scales: &mut [f32] = bytemuck::cast_slice_mut(slab.used_mut());
                pieces.zip(scales.par_chunks_mut(PIECE)).try_for_each(
                    |((vectors, texts), scales)| copy_vectors(store, texts, vectors, scales),
                )?;
            }
        }
        Ok(std::iter::once(vectors).chain(scales).collect())
    }
}

/// Copies the vectors of `texts`, in order, and the scales that they have.
fn copy_vectors(
    store: &Store,
    texts: &[u32],
    vectors: &mut [u8],
    scales: &mut [f32],
) -> Result<()> {
    let slots = vectors.chunks_exact_mut(vectors.len() / texts.len());
    let ahead = if store.is_larger_than_memory() { AHEAD_ON_DISK } else { AHEAD };
    texts.iter().take(ahead).for_each(|&text| store.prefetch_text_embedding(text));
    for ((place, &text), slot) in texts.iter().enumerate().zip(slots) {
        if let Some(&later) = texts.get(place + ahead) {
            store.prefetch_text_embedding(later);
        }
        let vector = store.text_embedding(text)?;
        let vector = vector.ok_or_else(|| no_vectors(&store.metadata().database))?;
        slot.copy_from_slice(vector.bytes());
        if let (Some(slot), [scale]) = (scales.get_mut(place), vector.scales()) {
            *slot = *scale;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn less_than_half_of_a_default_bucket_is_padding(
            cells in 1_u32..=u32::MAX,
            share in 0.0..=1.0_f64,
        ) {
            let count = (f64::from(cells) * share) as u32;
            let buckets = buckets(&[], cells).unwrap();
            let bucket = *buckets.iter().find(|&&bucket| bucket >= count).unwrap();
            prop_assert!(bucket <= cells);
            prop_assert!(bucket == DEFAULT_BUCKET_MIN.min(cells) || bucket / 2 < count);
        }
    }
}
