//! Acceptance test 6: a model learns from the batches.

use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Device;
use headwater::plan::Split;
use headwater::sampler::{Settings, Shape};
use headwater::store::Store;
use headwater_burn::{GraphBatch, Tables};

use crate::model::Model;
use crate::own_process::{run_in_own_process, store_of_own_process};
use crate::resume::example;
use crate::shop::{churn_path, loader_of, shop_path, with_masks};
use crate::training::{optimizer, rate};

const STEPS: u64 = 200;
const HELD_OUT: usize = 40;
/// The types, and what may be left of the loss of each. Most numbers of the shop follow from nothing else
/// in their contexts: their loss falls to about that of their mean.
const TYPES: [(&str, f32); 4] =
    [("numerical", 0.99), ("boolean", 0.75), ("categorical", 0.25), ("text", 0.25)];

/// Returns the mean losses of masked cells: of numbers, truths, categories and texts.
fn held_out(model: &Model, batches: &[GraphBatch], tables: &Tables) -> [f32; 4] {
    let mut sums = [0.0; 4];
    for batch in batches {
        let losses = model.losses(batch, tables, &batch.masked_targets(tables).unwrap());
        let own = [losses.numerical, losses.boolean, losses.categorical, losses.text];
        for (sum, loss) in sums.iter_mut().zip(own) {
            *sum += loss.into_scalar::<f32>() / batches.len() as f32;
        }
    }
    sums
}

/// Test 6: learning to predict masked cells lowers the loss of each of 4 types on other seeds. How far it falls
/// depends on where it begins, which in a process of its own is always the same.
#[test]
fn pretraining_lowers_the_loss_of_each_type() {
    let Some(store) = store_of_own_process() else {
        let name = "learning::pretraining_lowers_the_loss_of_each_type";
        print!("{}", run_in_own_process(name, &shop_path(), &[]));
        return;
    };
    let store = Arc::new(Store::open(&store).unwrap());
    let device = Device::flex().autodiff();
    device.seed(3);
    let tables = Tables::new(&store, &device).unwrap();
    let mut model = Model::new(24, &device);
    let mut optimizer = optimizer();
    let masked = with_masks(0.2);
    let shape = Shape { batch_size: 8, ..masked.shape };
    let settings = Settings { shape, ..masked };
    let loader = loader_of(Arc::clone(&store), &settings, (0, 1)).device(device.clone());
    let others = loader.clone().split(Split::Val).device(device.inner());
    let others: Vec<_> = others.iter().take(HELD_OUT).map(Result::unwrap).collect();
    let fixed = Tables::new(&store, &Device::flex()).unwrap();
    let before = held_out(&model.valid(), &others, &fixed);
    for (step, batch) in (1..=STEPS).zip(loader.iter()) {
        let batch = batch.unwrap();
        let losses = model.losses(&batch, &tables, &batch.masked_targets(&tables).unwrap());
        let gradients = GradientsParams::from_grads(losses.sum().backward(), &model);
        model = optimizer.step(rate(step, STEPS), model, gradients);
    }
    let after = held_out(&model.valid(), &others, &fixed);
    for ((name, left), (before, after)) in TYPES.into_iter().zip(before.into_iter().zip(after)) {
        println!("{name}: {before:.4} to {after:.4}");
        assert!(after < left * before, "{name}: {before} to {after}");
    }
}

/// Test 6: the example tells who stays away.
#[test]
fn the_example_reaches_its_auroc() {
    let folder = tempfile::tempdir().unwrap();
    let run = example().arg(churn_path()).arg("--out").arg(folder.path().join("run")).output();
    let run = run.unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let text = String::from_utf8(run.stdout).unwrap();
    let last = text.lines().last().unwrap();
    println!("{last}");
    let auroc = last.strip_prefix("test AUROC ").and_then(|rest| rest.split(' ').next());
    assert!(auroc.unwrap().parse::<f64>().unwrap() >= 0.8, "{last}");
}
