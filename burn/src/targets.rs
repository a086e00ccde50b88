//! `MaskedTargets`: what a model is to predict; `Tables`: the frozen vectors of a store.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use half::slice::HalfFloatSliceExt;
use headwater::Result;
use headwater::store::{SemanticType, Store};

use crate::batch::GraphBatch;

/// The place after the last masked cell.
const NO_PLACE: i32 = u16::MAX as i32;

/// The vectors of a store that no training changes, on a device: uploaded once, not with each batch.
#[derive(Clone, Debug)]
pub struct Tables {
    /// C D: the vectors of the columns' names.
    pub columns: Tensor<2>,
    /// K D: the vectors of the categories; one of zeros in a store without categories.
    pub categories: Tensor<2>,
    /// T D: the vectors of all texts, where [`Tables::with_texts`] has loaded them.
    pub texts: Option<Tensor<2>>,
}

impl Tables {
    /// Returns the tables of a store.
    ///
    /// # Errors
    /// `Corrupt` when the store is damaged.
    pub fn new(store: &Store, device: &Device) -> Result<Self> {
        let width = store.metadata().embedding.dimension as usize;
        Ok(Self {
            columns: table(store.column_embeddings()?.to_f32_vec(), width, device),
            categories: table(store.categorical_embeddings()?.to_f32_vec(), width, device),
            texts: None,
        })
    }

    /// Adds the vectors of all texts, for the batches of a sampler with `Texts::Global`.
    ///
    /// # Cost
    /// Reads all of them.
    ///
    /// # Errors
    /// `Corrupt` when the store is damaged.
    pub fn with_texts(mut self, store: &Store) -> Result<Self> {
        let width = store.metadata().embedding.dimension as usize;
        let device = self.columns.device();
        let vectors = store.text_embeddings()?;
        self.texts = vectors.map(|vectors| table(vectors.to_f32_vec(), width, &device));
        Ok(self)
    }
}

/// Returns vectors as a matrix of at least one row, because no index reaches into an empty one.
fn table(mut values: Vec<f32>, width: usize, device: &Device) -> Tensor<2> {
    values.resize(values.len().max(width), 0.0);
    let shape = [values.len() / width.max(1), width];
    Tensor::from_data(TensorData::new(values, shape), (device, DType::F32))
}

/// The cells that a model is to predict, with their values.
///
/// A cell has a value of one type. Its weight there is the sequence's weight, and 0 for the other four;
/// places that no cell takes, and cells that are NULL, have 0 everywhere. So the shapes are the same in
/// every batch, and a loss is a sum of errors times weights.
#[derive(Clone, Debug)]
pub struct MaskedTargets {
    /// B M: the places of the cells in their sequences; 0 where no cell takes the place.
    pub indices: Tensor<2, Int>,
    /// B M: z-scores.
    pub numerical_values: Tensor<2>,
    /// B M: the weights of numerical cells.
    pub numerical_weights: Tensor<2>,
    /// B M 15: the features of timestamps.
    pub timestamp_values: Tensor<3>,
    /// B M: the weights of timestamps.
    pub timestamp_weights: Tensor<2>,
    /// B M: 1 for true, 0 for false.
    pub boolean_values: Tensor<2>,
    /// B M: the weights of booleans.
    pub boolean_weights: Tensor<2>,
    /// B M D: the vectors of the categories.
    pub categorical_embeddings: Tensor<3>,
    /// B M: the weights of categories.
    pub categorical_weights: Tensor<2>,
    /// B M D: the vectors of the texts; none where neither batch nor tables have them.
    pub text_embeddings: Option<Tensor<3>>,
    /// B M: the weights of texts.
    pub text_weights: Tensor<2>,
}

impl GraphBatch {
    /// Returns the target cell of each sequence, as targets with M = 1. In a pool, every weight is 0.
    #[must_use]
    pub fn targets(&self, tables: &Tables) -> MaskedTargets {
        self.targets_at(self.target_pos.clone().unsqueeze_dim(1), -1, tables)
    }

    /// Returns the cells that the sampler masked beside the target; none where it masks none.
    #[must_use]
    pub fn masked_targets(&self, tables: &Tables) -> Option<MaskedTargets> {
        let masked = self.masked.as_ref()?;
        Some(self.targets_at(masked.masked_pos.clone(), NO_PLACE, tables))
    }

    /// Returns the cells at `places`, B M, of which `none` is no cell.
    fn targets_at(&self, places: Tensor<2, Int>, none: i32, tables: &Tables) -> MaskedTargets {
        let [b, m] = places.dims();
        let is_none = places.clone().equal_scalar(none);
        let indices = places.mask_fill(is_none.clone(), 0);
        let at = |cells: &Tensor<2, Int>| cells.clone().gather(1, indices.clone());
        let is_null = at(&self.is_null.clone().int()).equal_scalar(1);
        let weights = (self.seq_weight.clone().unsqueeze_dim::<2>(1).expand([b, m]))
            .mask_fill(is_none.bool_or(is_null), 0.0);
        let types = at(&self.semantic_types);
        let weights_of = |semantic: SemanticType| {
            weights.clone() * types.clone().equal_scalar(semantic as i32).float()
        };
        let values = |cells: &Tensor<2>| cells.clone().gather(1, indices.clone());
        let features = self.timestamp_values.dims()[2];
        let times = indices.clone().unsqueeze_dim::<3>(2).expand([b, m, features]);
        let vectors = |table: &Tensor<2>, ids: &Tensor<2, Int>| {
            let width = table.dims()[1];
            table.clone().select(0, at(ids).reshape([b * m])).reshape([b, m, width])
        };
        let texts = self.text_batch_embeddings.as_ref().or(tables.texts.as_ref());
        MaskedTargets {
            numerical_values: values(&self.numeric_values),
            numerical_weights: weights_of(SemanticType::Numerical),
            timestamp_values: self.timestamp_values.clone().gather(1, times),
            timestamp_weights: weights_of(SemanticType::Timestamp),
            boolean_values: values(&self.bool_values),
            boolean_weights: weights_of(SemanticType::Boolean),
            categorical_embeddings: vectors(&tables.categories, &self.categorical_embed_ids),
            categorical_weights: weights_of(SemanticType::Categorical),
            text_embeddings: texts.map(|texts| vectors(texts, &self.text_embed_ids)),
            text_weights: weights_of(SemanticType::Text),
            indices,
        }
    }
}
