//! `EventBatch`: the tensors of token rows, as MaxText takes them.

use std::sync::Arc;

use super::settings::{EventSettings, TokenType};
use crate::bytes::ALIGNMENT;
use crate::handoff::Slab;
use crate::tensor::{Dtype, Tensor, elements};

/// The tensors with a number for each token, in the order of [`Place::write`].
const TOKEN_TENSORS: [&str; 6] = [
    "inputs",
    "targets",
    "inputs_position",
    "targets_position",
    "inputs_segmentation",
    "targets_segmentation",
];

/// The entity of a row that pads the batch.
const NO_ENTITY: i32 = -1;

/// The contexts of one row.
#[derive(Default)]
pub(super) struct Segments {
    /// The tokens, one context after another.
    pub tokens: Vec<u16>,
    /// The end of each context in them.
    pub ends: Vec<usize>,
}

/// The places of the tensors in the buffer of a batch.
pub(super) struct Tensors {
    all: Vec<Tensor>,
    pub bytes: usize,
    length: usize,
    rows: usize,
    token_type: TokenType,
}

impl Tensors {
    pub(super) fn new(settings: &EventSettings) -> Self {
        let (rows, length) = (settings.batch_size as usize, settings.sequence_length as usize);
        let tokens = match settings.token_type {
            TokenType::Int32 => Dtype::Int32,
            TokenType::UInt16 => Dtype::UInt16,
        };
        let mut all = Vec::new();
        let mut bytes = 0;
        let mut add = |name, dtype, shape| {
            let tensor = Tensor { name, dtype, shape, offset: bytes };
            bytes = (bytes + tensor.bytes()).next_multiple_of(ALIGNMENT);
            all.push(tensor);
        };
        for name in TOKEN_TENSORS {
            add(name, tokens, vec![rows, length]);
        }
        add("entity", Dtype::Int32, vec![rows]);
        add("weight", Dtype::Float32, vec![rows]);
        Self { all, bytes, length, rows, token_type: settings.token_type }
    }

    /// Returns the places of the rows in the buffer of a batch.
    pub(super) fn places<'a>(&self, bytes: &'a mut [u8]) -> Vec<Place<'a>> {
        let mut rest = bytes;
        let mut at = 0;
        let mut parts = self.all.iter().map(|tensor| {
            let (_, tail) = std::mem::take(&mut rest).split_at_mut(tensor.offset - at);
            let (part, tail) = tail.split_at_mut(tensor.bytes());
            (rest, at) = (tail, tensor.offset + tensor.bytes());
            part
        });
        let row_bytes = self.length
            * match self.token_type {
                TokenType::Int32 => 4,
                TokenType::UInt16 => 2,
            };
        let mut tokens: [_; 6] =
            std::array::from_fn(|_| parts.next().unwrap_or_default().chunks_exact_mut(row_bytes));
        let mut entities = parts.next().unwrap_or_default().chunks_exact_mut(4);
        let mut weights = parts.next().unwrap_or_default().chunks_exact_mut(4);
        let place = |_| Place {
            tokens: tokens.each_mut().map(|rows| rows.next().unwrap_or_default()),
            entity: entities.next().unwrap_or_default(),
            weight: weights.next().unwrap_or_default(),
            token_type: self.token_type,
        };
        (0..self.rows).map(place).collect()
    }
}

/// The places of one row in the tensors of a batch.
pub(super) struct Place<'a> {
    tokens: [&'a mut [u8]; 6],
    entity: &'a mut [u8],
    weight: &'a mut [u8],
    token_type: TokenType,
}

impl Place<'_> {
    /// Writes the contexts in `segments`, and the entity of the first; none pads the batch.
    pub(super) fn write(self, segments: &Segments, entity: Option<u32>) {
        match self.token_type {
            TokenType::Int32 => {
                write_tokens(self.tokens.map(bytemuck::cast_slice_mut::<_, i32>), segments);
            }
            TokenType::UInt16 => {
                write_tokens(self.tokens.map(bytemuck::cast_slice_mut::<_, u16>), segments);
            }
        }
        let number = entity.map_or(NO_ENTITY, u32::cast_signed);
        self.entity.copy_from_slice(&number.to_le_bytes());
        let weight = if entity.is_some() { 1_f32 } else { 0.0 };
        self.weight.copy_from_slice(&weight.to_le_bytes());
    }
}

/// Writes each context as a segment, numbered from 1. The target of a token is the next one of its segment;
/// the last token has none, which segmentation 0 tells.
fn write_tokens<T: From<u16> + Copy>(tensors: [&mut [T]; 6], segments: &Segments) {
    let [inputs, targets, input_places, target_places, input_segments, target_segments] = tensors;
    let mut start = 0;
    let zero = T::from(0);
    for (number, &end) in (1..).zip(&segments.ends) {
        let segment = T::from(number);
        let tokens = &segments.tokens[start..end];
        for (input, &token) in inputs[start..end].iter_mut().zip(tokens) {
            *input = T::from(token);
        }
        for (target, &token) in targets[start..end - 1].iter_mut().zip(&tokens[1..]) {
            *target = T::from(token);
        }
        for (place, position) in input_places[start..end].iter_mut().enumerate() {
            *position = T::from(place as u16);
        }
        for (place, position) in target_places[start..end - 1].iter_mut().enumerate() {
            *position = T::from(place as u16 + 1);
        }
        input_segments[start..end].fill(segment);
        target_segments[start..end - 1].fill(segment);
        (targets[end - 1], target_places[end - 1], target_segments[end - 1]) = (zero, zero, zero);
        start = end;
    }
    for tensor in [inputs, targets, input_places, target_places, input_segments, target_segments] {
        tensor[start..].fill(zero);
    }
}

/// The token rows of one step on one rank, as named tensors in one aligned buffer.
///
/// `events/FORMAT.md` describes each tensor. A dropped batch returns its buffer to the sampler.
pub struct EventBatch {
    slab: Slab,
    tensors: Arc<Tensors>,
}

impl EventBatch {
    pub(super) fn new(slab: Slab, tensors: Arc<Tensors>) -> Self {
        Self { slab, tensors }
    }

    /// Returns every tensor with its bytes, which start at a multiple of 64.
    pub fn tensors(&self) -> impl Iterator<Item = (&Tensor, &[u8])> {
        let bytes = self.slab.bytes();
        self.tensors
            .all
            .iter()
            .map(move |tensor| (tensor, &bytes[tensor.offset..][..tensor.bytes()]))
    }

    /// Returns the elements of the tensor `name`; none when the batch has no such tensor.
    ///
    /// # Panics
    /// When `T` and the tensor's elements differ in size.
    #[must_use]
    pub fn get<T: bytemuck::Pod>(&self, name: &str) -> Option<&[T]> {
        elements(self.tensors(), name)
    }
}

impl crate::tensor::Tensors for EventBatch {
    fn all(&self) -> Box<dyn Iterator<Item = (&Tensor, &[u8])> + '_> {
        Box::new(self.tensors())
    }
}
