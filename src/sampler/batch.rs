//! `Batch`: named tensors in aligned buffers.

use std::sync::Arc;

use bytemuck::Pod;

use super::tensors::Tensors;
use crate::handoff::Slab;
use crate::tensor::{Dtype, Tensor, elements};

/// The sequences of one step on one rank, as named tensors in one aligned buffer (and the vectors of
/// the texts in another).
///
/// `sampler/FORMAT.md` describes each tensor. A dropped batch returns its buffers to the sampler.
pub struct Batch {
    pub(super) slab: Slab,
    pub(super) tensors: Arc<Tensors>,
    /// The vectors of the texts, and their shape.
    pub(super) texts: Option<(Slab, Tensor)>,
}

impl Batch {
    pub(super) fn text_tensor(count: u32, dimension: u32) -> Tensor {
        Tensor {
            name: "text_batch_embeddings",
            dtype: Dtype::Float16,
            shape: vec![count as usize, dimension as usize],
            offset: 0,
        }
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
