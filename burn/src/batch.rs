//! `GraphBatch`: the tensors of a batch on a device.

use std::ops::Range;

use burn::tensor::{Bool, BoolStore, DType, Device, Int, Tensor, TensorData};
use bytemuck::Pod;
use headwater::sampler::Batch;
use headwater::store::SemanticType;
use headwater::{Error, Result};

use crate::compact::{self, TimeScales};

/// The tensors of one step on a device.
///
/// Names and meanings are those of [`headwater::sampler`]. Whole numbers are I32, flags are booleans, and
/// every other number is F32.
///
/// B is the number of sequences, S the cells of each, R the most rows of a context, M the most masked cells, and
/// D the width of the text vectors.
#[derive(Clone, Debug)]
pub struct GraphBatch {
    /// B S: the semantic type of each cell.
    pub semantic_types: Tensor<2, Int>,
    /// B S: the column of each cell, a row of [`Tables::columns`](crate::Tables::columns).
    pub column_ids: Tensor<2, Int>,
    /// B S: the row of each cell within its context.
    pub seq_row_ids: Tensor<2, Int>,
    /// B S: z-scores.
    pub numeric_values: Tensor<2>,
    /// B S 15: the features of timestamps.
    pub timestamp_values: Tensor<3>,
    /// B S: 1 for true, 0 for false.
    pub bool_values: Tensor<2>,
    /// B S: rows of [`Tables::categories`](crate::Tables::categories).
    pub categorical_embed_ids: Tensor<2, Int>,
    /// B S: rows of `text_batch_embeddings`, or of all texts of the store where there are none.
    pub text_embed_ids: Tensor<2, Int>,
    /// B S: cells without a value.
    pub is_null: Tensor<2, Bool>,
    /// B S: the target cells.
    pub is_target: Tensor<2, Bool>,
    /// B S: places after the last cell.
    pub is_padding: Tensor<2, Bool>,
    /// B R R: whether row i refers to row j.
    pub fk_adj: Tensor<3, Bool>,
    /// B: the place of the target; -1 in a pool.
    pub target_pos: Tensor<1, Int>,
    /// B: 0 for a sequence that pads the batch, else 1.
    pub seq_weight: Tensor<1>,
    /// U D: the vectors of the batch's texts; none where the sampler leaves them to the store.
    pub text_batch_embeddings: Option<Tensor<2>>,
    /// The masked cells; none where the sampler masks none.
    pub masked: Option<MaskedCells>,
    /// The number of the task, in the order of [`Loader::tasks`](crate::Loader::tasks).
    pub task: usize,
    /// The semantic type of the target; none in a pool.
    pub target_stype: Option<SemanticType>,
    /// The target's categories that were known in training, as rows of the categories' table.
    pub categories: Range<u32>,
    /// The row of each seed in its table.
    pub seed_rows: Vec<u32>,
}

/// The cells that are masked beside the target.
#[derive(Clone, Debug)]
pub struct MaskedCells {
    /// B S: whether the cell is masked.
    pub is_masked: Tensor<2, Bool>,
    /// B M: the places of the masked cells; 65535 after the last.
    pub masked_pos: Tensor<2, Int>,
}

impl GraphBatch {
    /// Returns the tensors of a dense batch on a device.
    ///
    /// # Cost
    /// One copy of each tensor, widened on the way; Burn's tensors own their bytes, so none is shared.
    ///
    /// # Errors
    /// `InvalidArgument` for a batch in the compact form.
    pub fn new(batch: &Batch, device: &Device) -> Result<Self> {
        let host = Host { batch, device };
        let Some(features) = batch.get::<f32>("timestamp_values") else {
            return Err(Error::invalid(
                "expected a dense batch, found one in the compact form, whose times need the scales of a \
                 store; use GraphBatch::from_compact",
            ));
        };
        let times = host.floats(host.shape("timestamp_values")?, features.to_vec());
        Self::with(&host, times, host.flags("fk_adj")?)
    }

    /// Returns the tensors of a compact batch, expanded on the device. `scales` are those of the batch's
    /// store.
    ///
    /// # Determinism
    /// The same bits as the dense form.
    ///
    /// # Errors
    /// `InvalidArgument` for a dense batch.
    pub fn from_compact(batch: &Batch, scales: &TimeScales, device: &Device) -> Result<Self> {
        let host = Host { batch, device };
        let times = compact::timestamp_values(&host, scales)?;
        Self::with(&host, times, compact::fk_adj(&host)?)
    }

    fn with(host: &Host<'_>, times: Tensor<3>, fk_adj: Tensor<3, Bool>) -> Result<Self> {
        let one = |name| Ok::<u32, Error>(host.elements::<u32>(name)?[0]);
        let categories = one("cat_emb_start")?;
        let target = usize::from(host.elements::<u8>("target_stype")?[0]);
        let masked = match host.batch.get::<u8>("is_masked") {
            None => None,
            Some(_) => Some(MaskedCells {
                is_masked: host.flags("is_masked")?,
                masked_pos: host.ints::<2, u16>("masked_pos", i32::from)?,
            }),
        };
        Ok(Self {
            semantic_types: host.ints::<2, i8>("semantic_types", i32::from)?,
            column_ids: host.ints::<2, i32>("column_ids", |id| id)?,
            seq_row_ids: host.ints::<2, u16>("seq_row_ids", i32::from)?,
            numeric_values: host.widened::<2, f32>("numeric_values", |value| value)?,
            timestamp_values: times,
            bool_values: host.widened::<2, u8>("bool_values", f32::from)?,
            categorical_embed_ids: host.ints::<2, u32>("categorical_embed_ids", |id| id as i32)?,
            text_embed_ids: host.ints::<2, u32>("text_embed_ids", |id| id as i32)?,
            is_null: host.flags("is_null")?,
            is_target: host.flags("is_target")?,
            is_padding: host.flags("is_padding")?,
            fk_adj,
            target_pos: host.ints::<1, i32>("target_pos", |place| place)?,
            seq_weight: host.widened::<1, f32>("seq_weight", |weight| weight)?,
            text_batch_embeddings: match host.batch.text_vectors() {
                None => None,
                Some(vectors) => {
                    Some(host.floats(host.shape("text_batch_embeddings")?, vectors.to_f32_vec()))
                }
            },
            masked,
            task: one("task_idx")? as usize,
            target_stype: SemanticType::ALL.get(target).copied(),
            categories: categories..categories + one("cat_emb_count")?,
            seed_rows: host.elements::<u32>("seed_row")?.to_vec(),
        })
    }
}

/// A batch in the memory of the host, and where its tensors go.
pub(crate) struct Host<'a> {
    pub batch: &'a Batch,
    pub device: &'a Device,
}

impl<'a> Host<'a> {
    /// Returns the elements of a tensor.
    pub(crate) fn elements<T: Pod>(&self, name: &str) -> Result<&'a [T]> {
        self.batch.get(name).ok_or_else(|| missing(name))
    }

    /// Returns the shape of a tensor.
    pub(crate) fn shape<const D: usize>(&self, name: &str) -> Result<[usize; D]> {
        let found = self.batch.tensors().find(|(tensor, _)| tensor.name == name);
        let shape = found.and_then(|(tensor, _)| tensor.shape.as_slice().try_into().ok());
        shape.ok_or_else(|| missing(name))
    }

    /// Returns whole numbers on the device. They are widened here, because Burn converts one element at a
    /// time.
    pub(crate) fn ints<const D: usize, T: Pod>(
        &self,
        name: &str,
        widen: impl Fn(T) -> i32,
    ) -> Result<Tensor<D, Int>> {
        let values = self.elements::<T>(name)?.iter().map(|&value| widen(value)).collect();
        Ok(self.ints_of(self.shape(name)?, values))
    }

    fn widened<const D: usize, T: Pod>(
        &self,
        name: &str,
        widen: impl Fn(T) -> f32,
    ) -> Result<Tensor<D>> {
        let values = self.elements::<T>(name)?.iter().map(|&value| widen(value)).collect();
        Ok(self.floats(self.shape(name)?, values))
    }

    fn flags<const D: usize>(&self, name: &str) -> Result<Tensor<D, Bool>> {
        let flags = self.elements::<u8>(name)?.to_vec();
        let native = DType::Bool(BoolStore::Native);
        let data = TensorData::from_bytes_vec(flags, self.shape::<D>(name)?, native);
        Ok(Tensor::from_data(data, self.device))
    }

    pub(crate) fn ints_of<const D: usize>(
        &self,
        shape: [usize; D],
        values: Vec<i32>,
    ) -> Tensor<D, Int> {
        Tensor::from_data(TensorData::new(values, shape), (self.device, DType::I32))
    }

    pub(crate) fn floats<const D: usize>(&self, shape: [usize; D], values: Vec<f32>) -> Tensor<D> {
        Tensor::from_data(TensorData::new(values, shape), (self.device, DType::F32))
    }
}

fn missing(name: &str) -> Error {
    Error::invalid(format!(
        "expected the tensor {name:?} in the batch, found none; a sampler makes it in the other form, dense \
         or compact"
    ))
}
