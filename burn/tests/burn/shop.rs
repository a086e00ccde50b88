//! The stores of the demo shop, made once for all tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use burn::tensor::{Device, Int, Tensor};
use headwater::plan::Assignment;
use headwater::prepare::demo::demo_data;
use headwater::prepare::embed::HashingEmbedder;
use headwater::prepare::schema::Schema;
use headwater::prepare::{Options, prepare, source};
use headwater::progress::Silent;
use headwater::sampler::{Masks, Settings, Shape, Speed, Texts};
use headwater::store::{Store, TextEncoding};
use headwater_burn::Loader;

/// The whole shop: five types of cells, texts among them, and several tasks.
pub(crate) fn shop() -> Arc<Store> {
    Arc::new(Store::open(&shop_path()).unwrap())
}

pub(crate) fn shop_path() -> PathBuf {
    folder().join("shop")
}

/// What tells of churn, for the example; earlier labels of churn are rows of a table.
pub(crate) fn churn_path() -> PathBuf {
    folder().join("churn")
}

/// That of [`churn_path`] with shorter vectors, so that a model of the one has another shape than one of the other.
pub(crate) fn narrow_path() -> PathBuf {
    folder().join("narrow")
}

/// The whole shop with text vectors of 8-bit integers.
pub(crate) fn int8_path() -> PathBuf {
    folder().join("int8")
}

fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo");
        let _ = fs::remove_dir_all(&folder);
        let data = folder.join("data");
        demo_data(&data).unwrap();
        let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/demo-shop/schema.toml");
        let whole = data.join("schema.toml");
        for (name, schema, width, encoding) in [
            ("shop", &whole, 24, TextEncoding::F16),
            ("int8", &whole, 24, TextEncoding::Int8),
            ("churn", &small, 24, TextEncoding::F16),
            ("narrow", &small, 16, TextEncoding::F16),
        ] {
            let schema = Schema::parse(&fs::read_to_string(schema).unwrap()).unwrap();
            let options = Options {
                embedder: &HashingEmbedder::new(width),
                text_vectors: Some(encoding),
                threads: None,
                memory: None,
                sql: None,
                progress: &Silent,
            };
            prepare(&*source::open(&data).unwrap(), &schema, &folder.join(name), &options).unwrap();
        }
        folder
    })
}

/// Dense batches of B 4, S 64 of the task of churn, without masked cells.
pub(crate) fn settings() -> Settings {
    Settings {
        tasks: Some(vec!["churn".to_owned()]),
        shape: Shape {
            batch_size: 4,
            sequence_length: 64,
            sequence_buckets: Vec::new(),
            max_rows: 24,
            compact: false,
            permutations: false,
            texts: Texts::Batch(Vec::new()),
        },
        ..Settings::default()
    }
}

pub(crate) fn with_masks(share: f64) -> Settings {
    Settings { masks: Some(Masks::new(share, Some(64), 64).unwrap()), ..settings() }
}

pub(crate) fn loader(settings: &Settings, rank: (u64, u64)) -> Loader {
    loader_of(shop(), settings, rank)
}

pub(crate) fn loader_of(
    store: Arc<Store>,
    settings: &Settings,
    (rank, world): (u64, u64),
) -> Loader {
    let assignment = Assignment::new(rank, world).unwrap();
    let loader = Loader::new(vec![store], settings.clone(), assignment, Speed::default());
    loader.unwrap().device(Device::flex())
}

pub(crate) fn ints<const D: usize>(tensor: &Tensor<D, Int>) -> Vec<i32> {
    tensor.try_to_vec_as().unwrap()
}

pub(crate) fn floats<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.try_to_vec_as().unwrap()
}

/// The bits of numbers, which are equal where `==` would pass over signs and NaN.
pub(crate) fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}
