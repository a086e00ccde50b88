//! A small relational transformer: reads the cells of a context, predicts the values of some of them.

use burn::module::Module;
use burn::nn::{
    Embedding, EmbeddingConfig, Initializer, Linear, LinearConfig, RmsNorm, RmsNormConfig,
};
use burn::tensor::activation::gelu;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, Device, Int, Tensor};
use headwater::store::SemanticType;
use headwater_burn::{GraphBatch, MaskedTargets, Tables};

const WIDTH: usize = 64;
const HEADS: usize = 4;
const BLOCKS: usize = 2;

/// The features of a timestamp.
const TIMES: usize = 15;

/// What a cell shows beside its value: its type, or that it is NULL, or hidden.
const NULL: i32 = 6;
const HIDDEN: i32 = 7;
const KINDS: usize = 8;

/// The predictions of a cell: a number, the logit of true, a timestamp, and the vector of a category or text.
const HEAD: usize = 2 + TIMES;

/// The losses of a batch, one for each type.
pub(crate) struct Losses {
    pub(crate) numerical: Tensor<1>,
    pub(crate) timestamp: Tensor<1>,
    pub(crate) boolean: Tensor<1>,
    pub(crate) categorical: Tensor<1>,
    pub(crate) text: Tensor<1>,
}

impl Losses {
    pub(crate) fn sum(self) -> Tensor<1> {
        self.numerical + self.timestamp + self.boolean + self.categorical + self.text
    }
}

#[derive(Module, Debug)]
pub(crate) struct Model {
    column: Linear,
    kind: Embedding,
    /// Numbers, booleans and timestamps, whose cells are 0 in each other's tensors.
    number: Linear,
    category: Linear,
    text: Linear,
    first: RmsNorm,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Linear,
}

impl Model {
    /// Returns a model for vectors of `width` numbers.
    pub(crate) fn new(width: usize, device: &Device) -> Self {
        let linear = |input| LinearConfig::new(input, WIDTH).with_bias(false).init(device);
        let model = Self {
            column: linear(width),
            // As small as the vectors that are added to it.
            kind: EmbeddingConfig::new(KINDS, WIDTH)
                .with_initializer(Initializer::Normal { mean: 0.0, std: 0.1 })
                .init(device),
            number: linear(HEAD),
            category: linear(width),
            text: linear(width),
            first: RmsNormConfig::new(WIDTH).init(device),
            blocks: (0..BLOCKS).map(|_| Block::new(device)).collect(),
            norm: RmsNormConfig::new(WIDTH).init(device),
            head: LinearConfig::new(WIDTH, HEAD + width).init(device),
        };
        // Burn draws a parameter where it is first used. Drawn here, in the order of the fields, they are
        // the same for any number of workers.
        let _ = model.clone().into_record();
        model
    }

    /// Returns the losses of the cells `targets`, which the model does not see, nor any other target.
    pub(crate) fn losses(
        &self,
        batch: &GraphBatch,
        tables: &Tables,
        targets: &MaskedTargets,
    ) -> Losses {
        let predicted = self.predict(batch, tables, targets.indices.clone());
        let [b, m, wide] = predicted.dims();
        let part = |first, length| predicted.clone().narrow(2, first, length);
        let squares = |difference: Tensor<3>| difference.square().sum_dim(2).reshape([b, m]);
        let mean = |errors: Tensor<2>, weights: &Tensor<2>| {
            (errors * weights.clone()).sum() / weights.clone().sum().clamp_min(1.0)
        };
        let numbers = part(0, 1).reshape([b, m]) - targets.numerical_values.clone();
        let times = part(2, TIMES) - targets.timestamp_values.clone();
        let vectors = |values: &Tensor<3>| squares(part(HEAD, wide - HEAD) - values.clone());
        let categories = vectors(&targets.categorical_embeddings);
        // A store without texts has no text to weigh.
        let texts =
            targets.text_embeddings.as_ref().map_or_else(|| categories.zeros_like(), vectors);
        let logits = part(1, 1).reshape([b, m]);
        Losses {
            numerical: mean(numbers.square(), &targets.numerical_weights),
            timestamp: mean(squares(times) / TIMES as f32, &targets.timestamp_weights),
            boolean: mean(
                cross_entropy(logits, targets.boolean_values.clone()),
                &targets.boolean_weights,
            ),
            categorical: mean(categories, &targets.categorical_weights),
            text: mean(texts, &targets.text_weights),
        }
    }

    /// Returns the logit of each sequence's target.
    pub(crate) fn logits(&self, batch: &GraphBatch, tables: &Tables) -> Tensor<1> {
        let [b] = batch.target_pos.dims();
        let predicted = self.predict(batch, tables, batch.target_pos.clone().unsqueeze_dim(1));
        predicted.narrow(2, 1, 1).reshape([b])
    }

    /// Returns the predictions of the cells at `indices`, B M.
    fn predict(&self, batch: &GraphBatch, tables: &Tables, indices: Tensor<2, Int>) -> Tensor<3> {
        let [b, m] = indices.dims();
        let masks = batch.masks();
        // Two references in each block: the reviews of a product are three away from whoever ordered it.
        let linked = masks.neighbor.bool_and(masks.feature);
        let ways = [linked.clone(), linked, masks.column].map(|mask| mask.unsqueeze_dim::<4>(1));
        let cells =
            self.blocks.iter().fold(self.encode(batch, tables), |x, block| block.of(x, &ways));
        let at = indices.unsqueeze_dim::<3>(2).expand([b, m, WIDTH]);
        self.head.forward(self.norm.forward(cells.gather(1, at)))
    }

    /// Returns the vector of each cell: its column, its kind and its value, added. B S W.
    fn encode(&self, batch: &GraphBatch, tables: &Tables) -> Tensor<3> {
        let [b, s] = batch.semantic_types.dims();
        let hidden = match &batch.masked {
            Some(masked) => batch.is_target.clone().bool_or(masked.is_masked.clone()),
            None => batch.is_target.clone(),
        };
        let kinds = (batch.semantic_types.clone())
            .mask_fill(batch.is_null.clone(), NULL)
            .mask_fill(hidden, HIDDEN);
        let of_kind = |kind: SemanticType| {
            kinds.clone().equal_scalar(kind as i32).float().unsqueeze_dim::<3>(2)
        };
        let is_shown = kinds.clone().lower_scalar(NULL).float().unsqueeze_dim::<3>(2);
        let rows = |vectors: Tensor<2>, ids: &Tensor<2, Int>| {
            vectors.select(0, ids.clone().reshape([b * s])).reshape([b, s, WIDTH])
        };
        let numbers = Tensor::cat(
            vec![
                batch.numeric_values.clone().unsqueeze_dim::<3>(2),
                batch.bool_values.clone().unsqueeze_dim::<3>(2),
                batch.timestamp_values.clone(),
            ],
            2,
        );
        let categories = self.category.forward(tables.categories.clone());
        let mut cells = rows(self.column.forward(tables.columns.clone()), &batch.column_ids)
            + self.kind.forward(kinds.clone())
            + self.number.forward(numbers * is_shown)
            + rows(categories, &batch.categorical_embed_ids) * of_kind(SemanticType::Categorical);
        if let Some(texts) = &batch.text_batch_embeddings {
            let texts = self.text.forward(texts.clone());
            cells = cells + rows(texts, &batch.text_embed_ids) * of_kind(SemanticType::Text);
        }
        self.first.forward(cells)
    }
}

/// Three attentions, two to the cells of the same and of linked rows, one to those of the column, and a layer that
/// looks at each cell alone.
#[derive(Module, Debug)]
struct Block {
    attentions: Vec<Attention>,
    norm: RmsNorm,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(device: &Device) -> Self {
        Self {
            attentions: (0..3).map(|_| Attention::new(device)).collect(),
            norm: RmsNormConfig::new(WIDTH).init(device),
            up: LinearConfig::new(WIDTH, 2 * WIDTH).init(device),
            down: LinearConfig::new(2 * WIDTH, WIDTH).init(device),
        }
    }

    fn of(&self, cells: Tensor<3>, ways: &[Tensor<4, Bool>; 3]) -> Tensor<3> {
        let attended = (self.attentions.iter().zip(ways))
            .fold(cells, |cells, (attention, mask)| attention.of(cells, mask));
        let inner = gelu(self.up.forward(self.norm.forward(attended.clone())));
        attended + self.down.forward(inner)
    }
}

/// One masked attention over the cells of a sequence.
#[derive(Module, Debug)]
struct Attention {
    norm: RmsNorm,
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    /// Queries and keys of one length: their products stay small, whatever the rate of learning.
    query_norm: RmsNorm,
    key_norm: RmsNorm,
}

impl Attention {
    fn new(device: &Device) -> Self {
        let linear = || LinearConfig::new(WIDTH, WIDTH).with_bias(false).init(device);
        let norm = |width| RmsNormConfig::new(width).init(device);
        Self {
            norm: norm(WIDTH),
            query: linear(),
            key: linear(),
            value: linear(),
            out: linear(),
            query_norm: norm(WIDTH / HEADS),
            key_norm: norm(WIDTH / HEADS),
        }
    }

    fn of(&self, cells: Tensor<3>, mask: &Tensor<4, Bool>) -> Tensor<3> {
        let [b, s, _] = cells.dims();
        let x = self.norm.forward(cells.clone());
        let heads = |layer: &Linear| {
            layer.forward(x.clone()).reshape([b, s, HEADS, WIDTH / HEADS]).swap_dims(1, 2)
        };
        let mask = mask.clone().expand([b, HEADS, s, s]);
        let options = AttentionModuleOptions::default();
        let query = self.query_norm.forward(heads(&self.query));
        let key = self.key_norm.forward(heads(&self.key));
        let attended = attention(query, key, heads(&self.value), Some(mask), None, options);
        cells + self.out.forward(attended.swap_dims(1, 2).reshape([b, s, WIDTH]))
    }
}

/// Returns the cross entropy of truths and the logits of true.
fn cross_entropy(logits: Tensor<2>, truths: Tensor<2>) -> Tensor<2> {
    // In this form no exponential is greater than 1.
    logits.clone().clamp_min(0.0) - logits.clone() * truths + logits.abs().neg().exp().log1p()
}
