//! What batches cost: to make tensors of one, to make its masks, to wait for it, and to resume.
//!
//! ```text
//! cargo bench --bench batches -- STORE
//! ```
//!
//! Prints medians in milliseconds as JSON.

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
    let device = Device::default();
    let alone = Assignment::new(0, 1)?;
    let with = |compact| {
        let settings = Settings::default();
        Settings { shape: Shape { compact, permutations: false, ..settings.shape }, ..settings }
    };
    let batch = |compact| {
        let stores = vec![Arc::clone(&store)];
        Sampler::new(stores, with(compact), alone, Speed::default())?.next(Split::Train)
    };
    let (dense, compact) = (batch(false)?.0, batch(true)?.0);
    let scales = TimeScales::new(&store);
    let tensors = GraphBatch::new(&dense, &device)?;
    let ids = dense.get::<u16>("seq_row_ids").unwrap_or_default();
    let loader = Loader::new(vec![Arc::clone(&store)], with(false), alone, Speed::default())?;
    loader.iter().take(3).try_for_each(|batch| batch.map(drop))?;
    let cursor = loader.cursor();

    let shape = [ids.len()];
    let figures = [
        ("dense batch to tensors", median(|| drop(black_box(GraphBatch::new(&dense, &device))))),
        (
            "compact batch to tensors",
            median(|| drop(black_box(GraphBatch::from_compact(&compact, &scales, &device)))),
        ),
        ("masks", median(|| drop(black_box(tensors.masks())))),
        (
            "B S uint16 widened by this crate",
            median(|| {
                let wide: Vec<i32> = ids.iter().map(|&id| i32::from(id)).collect();
                let data = TensorData::new(wide, shape);
                black_box(Tensor::<1, Int>::from_data(data, (&device, DType::I32)));
            }),
        ),
        (
            "B S uint16 widened by Tensor::from_data",
            median(|| {
                let data = TensorData::new(ids.to_vec(), shape);
                black_box(Tensor::<1, Int>::from_data(data, (&device, DType::I32)));
            }),
        ),
        (
            "resume and the next batch",
            median(|| {
                loader
                    .resume(&cursor)
                    .and_then(|()| {
                        loader.iter().next().map(drop);
                        Ok(())
                    })
                    .expect("the cursor is the loader's own");
            }),
        ),
    ];
    for (name, milliseconds) in figures {
        println!("{{\"what\": \"{name}\", \"ms\": {milliseconds:.3}}}");
    }
    Ok(())
}

/// Returns the median duration in milliseconds.
fn median(mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            work();
            begin.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times[ROUNDS / 2]
}
