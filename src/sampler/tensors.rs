//! The tensors of a batch: their names, types, shapes and offsets in the buffer.

use std::slice::ChunksExactMut;

use bytemuck::Pod;

use super::calendar::FEATURES;
use super::masks::Masks;
use super::settings::Shape;
use crate::bytes::ALIGNMENT;
use crate::tensor::{Dtype, Tensor};

/// The orders of the cells of a sequence: by column, by outgoing and by incoming links.
pub(super) const PERMUTATIONS: [&str; 3] = ["col_perm", "out_perm", "in_perm"];

/// The layout of all tensors but the texts' vectors, for sequences padded to one length.
#[derive(Clone, Debug)]
pub(super) struct Tensors {
    pub all: Vec<Tensor>,
    /// The length of the buffer in bytes.
    pub bytes: usize,
}

impl Tensors {
    /// Returns the tensors of batches of a shape whose sequences are padded to `length` cells, for
    /// databases whose tables have at most `references_max` references.
    pub(super) fn new(
        shape: &Shape,
        length: u32,
        masks: Option<Masks>,
        references_max: usize,
    ) -> Self {
        let [b, s, r] = [shape.batch_size, length, shape.max_rows].map(|n| n as usize);
        let mut tensors = Self { all: Vec::new(), bytes: 0 };
        tensors.add("semantic_types", Dtype::Int8, vec![b, s]);
        tensors.add("column_ids", Dtype::Int32, vec![b, s]);
        tensors.add("seq_row_ids", Dtype::UInt16, vec![b, s]);
        tensors.add("numeric_values", Dtype::Float32, vec![b, s]);
        if shape.compact {
            tensors.add("timestamp_us", Dtype::Int64, vec![b, s]);
        } else {
            tensors.add("timestamp_values", Dtype::Float32, vec![b, s, FEATURES]);
        }
        tensors.add("bool_values", Dtype::UInt8, vec![b, s]);
        tensors.add("categorical_embed_ids", Dtype::UInt32, vec![b, s]);
        tensors.add("text_embed_ids", Dtype::UInt32, vec![b, s]);
        tensors.add("is_null", Dtype::UInt8, vec![b, s]);
        tensors.add("is_target", Dtype::UInt8, vec![b, s]);
        tensors.add("is_padding", Dtype::UInt8, vec![b, s]);
        if !shape.compact {
            tensors.add("fk_adj", Dtype::UInt8, vec![b, r, r]);
        }
        let edges = (r * references_max).max(1);
        tensors.add("fk_edges", Dtype::UInt16, vec![b, edges, 2]);
        tensors.add("fk_relations", Dtype::Int32, vec![b, edges]);
        tensors.add("row_time", Dtype::Int64, vec![b, r]);
        tensors.add("row_hop", Dtype::UInt16, vec![b, r]);
        tensors.add("row_relation", Dtype::Int32, vec![b, r]);
        tensors.add("row_direction", Dtype::UInt8, vec![b, r]);
        if shape.permutations {
            for name in PERMUTATIONS {
                tensors.add(name, Dtype::UInt16, vec![b, s]);
            }
        }
        if let Some(masks) = masks {
            tensors.add("is_masked", Dtype::UInt8, vec![b, s]);
            tensors.add("masked_pos", Dtype::UInt16, vec![b, usize::from(masks.most)]);
        }
        tensors.add("target_pos", Dtype::Int32, vec![b]);
        tensors.add("seq_weight", Dtype::Float32, vec![b]);
        tensors.add("obs_time", Dtype::Int64, vec![b]);
        tensors.add("seed_row", Dtype::UInt32, vec![b]);
        tensors.add("num_rows", Dtype::Int32, vec![b]);
        tensors.add("target_stype", Dtype::UInt8, vec![1]);
        tensors.add("task_idx", Dtype::UInt32, vec![1]);
        tensors.add("cat_emb_start", Dtype::UInt32, vec![1]);
        tensors.add("cat_emb_count", Dtype::UInt32, vec![1]);
        tensors
    }

    fn add(&mut self, name: &'static str, dtype: Dtype, shape: Vec<usize>) {
        let tensor = Tensor { name, dtype, shape, offset: self.bytes };
        self.bytes += tensor.bytes().next_multiple_of(ALIGNMENT);
        self.all.push(tensor);
    }

    /// Moves the tensors of a batch in `buffer` to the places of `shorter`, whose sequences have fewer
    /// cells of padding.
    pub(super) fn shorten(&self, shorter: &Self, buffer: &mut [u8]) {
        // Nothing moves up, so that what is moved in order never covers what is not yet moved.
        for (from, to) in self.all.iter().zip(&shorter.all) {
            let count = from.shape[0];
            let [old, new] = [from, to].map(|tensor| tensor.bytes() / count);
            for sequence in 0..count {
                let start = from.offset + sequence * old;
                buffer.copy_within(start..start + new, to.offset + sequence * new);
            }
        }
    }

    /// Returns the tensors of a batch in `buffer`, to be taken in order.
    pub(super) fn carve<'a>(&'a self, buffer: &'a mut [u8]) -> Carver<'a> {
        Carver { tensors: self.all.iter(), rest: buffer }
    }
}

/// Cuts a buffer into its tensors, in order.
pub(super) struct Carver<'a> {
    tensors: std::slice::Iter<'a, Tensor>,
    rest: &'a mut [u8],
}

impl<'a> Carver<'a> {
    /// Takes the next tensor, which must be called `name`, as a whole.
    pub(super) fn whole<T: Pod>(&mut self, name: &str) -> &'a mut [T] {
        let tensor = self.tensors.next().filter(|tensor| tensor.name == name);
        let tensor = tensor.unwrap_or_else(|| panic!("{name} is not the next tensor"));
        debug_assert_eq!(tensor.dtype.bytes(), size_of::<T>());
        let bytes = tensor.bytes();
        let rest = std::mem::take(&mut self.rest);
        let (own, rest) = rest.split_at_mut(bytes.next_multiple_of(ALIGNMENT));
        self.rest = rest;
        bytemuck::cast_slice_mut(&mut own[..bytes])
    }

    /// Takes the next tensor, which must be called `name`, sequence by sequence.
    pub(super) fn rows<T: Pod>(&mut self, name: &str) -> ChunksExactMut<'a, T> {
        let count = self.tensors.as_slice().first().map_or(1, |tensor| tensor.shape[0]);
        let whole = self.whole(name);
        let each = whole.len() / count;
        whole.chunks_exact_mut(each)
    }
}
