//! `Batch`: named tensors in aligned buffers.

use std::sync::Arc;

use bytemuck::Pod;

use super::tensors::Tensors;
use crate::handoff::Slab;
use crate::store::{TextEncoding, TextVectors};
use crate::tensor::{Dtype, Tensor, elements};

const TEXT_VECTORS: &str = "text_batch_embeddings";
const TEXT_SCALES: &str = "text_batch_scales";

/// The sequences of one step on one rank, as named tensors in one aligned buffer (and the vectors of
/// the texts, and the scales of these, in others).
///
/// `sampler/FORMAT.md` describes each tensor. A dropped batch returns its buffers to the sampler.
pub struct Batch {
    pub(super) slab: Slab,
    pub(super) tensors: Arc<Tensors>,
    /// The vectors of the texts and their scales, with their shapes.
    pub(super) texts: Vec<(Slab, Tensor)>,
}

impl Batch {
    pub(super) fn text_tensor(count: u32, dimension: u32, encoding: TextEncoding) -> Tensor {
        let dtype = match encoding {
            TextEncoding::F16 => Dtype::Float16,
            TextEncoding::Int8 => Dtype::Int8,
        };
        let shape = vec![count as usize, dimension as usize];
        Tensor { name: TEXT_VECTORS, dtype, shape, offset: 0 }
    }

    pub(super) fn scale_tensor(count: u32) -> Tensor {
        let shape = vec![count as usize];
        Tensor { name: TEXT_SCALES, dtype: Dtype::Float32, shape, offset: 0 }
    }

    /// Returns every tensor with its bytes, which start at a multiple of 64.
    pub fn tensors(&self) -> impl Iterator<Item = (&Tensor, &[u8])> {
        let fixed = self.tensors.all.iter().map(|tensor| (tensor, self.slab.bytes()));
        let texts = self.texts.iter().map(|(slab, tensor)| (tensor, slab.bytes()));
        fixed
            .chain(texts)
            .map(|(tensor, bytes)| (tensor, &bytes[tensor.offset..][..tensor.bytes()]))
    }

    /// Returns the elements of the tensor `name`; none when the batch has no such tensor.
    ///
    /// # Panics
    /// When `T` and the tensor's elements differ in size.
    #[must_use]
    pub fn get<T: Pod>(&self, name: &str) -> Option<&[T]> {
        elements(self.tensors(), name)
    }

    /// Returns the vectors of the texts; none when the batch leaves them to the store.
    #[must_use]
    pub fn text_vectors(&self) -> Option<TextVectors<'_>> {
        match self.get(TEXT_SCALES) {
            None => self.get(TEXT_VECTORS).map(TextVectors::F16),
            Some(scales) => {
                self.get(TEXT_VECTORS).map(|values| TextVectors::Int8 { values, scales })
            }
        }
    }

    /// Returns the total number of bytes of the tensors.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tensors().map(|(_, bytes)| bytes.len()).sum()
    }
}

impl crate::tensor::Tensors for Batch {
    fn all(&self) -> Box<dyn Iterator<Item = (&Tensor, &[u8])> + '_> {
        Box::new(self.tensors())
    }
}
