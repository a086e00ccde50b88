//! What batches cost: to make tensors of one, to make its masks, to wait for it, and to resume.
//!
//! ```text
//! cargo bench --bench batches -- STORE
//! ```
//!
//! Prints milliseconds as JSON: the least and the median.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use burn::data::dataloader::DataLoader;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use headwater::plan::{Assignment, Split};
use headwater::sampler::{Sampler, Settings, Shape, Speed};
use headwater::store::Store;
use headwater_burn::{GraphBatch, Loader, TimeScales};

const ROUNDS: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().skip(1).find(|word| !word.starts_with("--"));
    let store = Arc::new(Store::open(Path::new(&path.ok_or("name a store")?))?);
    // The sampler's own shape, and a micro-batch of the example.
    measure(&store, [32, 1024, 208])?;
    measure(&store, [4, 64, 24])
}

fn measure(
    store: &Arc<Store>,
    [batch_size, sequence_length, max_rows]: [u32; 3],
) -> Result<(), Box<dyn Error>> {
    let device = Device::default();
    let alone = Assignment::new(0, 1)?;
    let with = |compact| {
        let settings = Settings::default();
        let shape = Shape {
            batch_size,
            sequence_length,
            max_rows,
            compact,
            permutations: false,
            ..settings.shape
        };
        Settings { shape, ..settings }
    };
    let batch = |compact| {
        let stores = vec![Arc::clone(store)];
        Sampler::new(stores, with(compact), alone, Speed::default())?.next(Split::Train)
    };
    let (dense, compact) = (batch(false)?.0, batch(true)?.0);
    let scales = TimeScales::new(store);
    let tensors = GraphBatch::new(&dense, &device)?;
    let ids = dense.get::<u16>("seq_row_ids").unwrap_or_default();
    let own = || ids.iter().map(|&id| i32::from(id)).collect::<Vec<_>>();
    let numbers = |data| Tensor::<1, Int>::from_data(data, (&device, DType::I32));
    let loader = Loader::new(vec![Arc::clone(store)], with(false), alone, Speed::default())?;
    loader.iter().take(3).try_for_each(|batch| batch.map(drop))?;
    let cursor = loader.cursor()?;
    let figures = [
        ("dense batch to tensors", milliseconds(|| GraphBatch::new(&dense, &device))),
        ("compact batch to tensors", {
            milliseconds(|| GraphBatch::from_compact(&compact, &scales, &device))
        }),
        ("masks", milliseconds(|| tensors.masks())),
        (
            "seq_row_ids, widened here",
            milliseconds(|| numbers(TensorData::new(own(), [ids.len()]))),
        ),
        ("seq_row_ids, widened by from_data", {
            milliseconds(|| numbers(TensorData::new(ids.to_vec(), [ids.len()])))
        }),
        ("resume and the next batch", {
            milliseconds(|| loader.resume(&cursor).map(|()| loader.iter().next()))
        }),
    ];
    for (name, [least, median]) in figures {
        let shape = format!("\"b\": {batch_size}, \"s\": {sequence_length}");
        println!("{{{shape}, \"what\": \"{name}\", \"ms\": [{least:.3}, {median:.3}]}}");
    }
    Ok(())
}

/// Returns the least and the median duration in milliseconds.
fn milliseconds<T>(work: impl Fn() -> T) -> [f64; 2] {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            drop(black_box(work()));
            begin.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    [times[0], times[ROUNDS / 2]]
}
