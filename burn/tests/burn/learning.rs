//! Acceptance test 6: a model learns from the batches.

use burn::data::dataloader::DataLoader;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::Device;
use headwater::sampler::{Settings, Shape};
use headwater_burn::Tables;

use crate::model::Model;
use crate::resume::example;
use crate::shop::{churn_path, loader, shop, with_masks};

const STEPS: usize = 200;
const WINDOW: usize = 40;

/// Test 6: learning to predict masked cells lowers the loss of each of 4 types.
#[test]
fn pretraining_lowers_the_loss_of_each_type() {
    let device = Device::flex().autodiff();
    let tables = Tables::new(&shop(), &device).unwrap();
    let mut model = Model::new(24, &device);
    let mut optimizer = AdamWConfig::new().init();
    let masked = with_masks(0.2);
    let shape = Shape { batch_size: 8, ..masked.shape };
    let loader = loader(&Settings { shape, ..masked }, (0, 1)).device(device);
    let mut losses = Vec::new();
    for batch in loader.iter().take(STEPS) {
        let batch = batch.unwrap();
        let found = model.losses(&batch, &tables, &batch.masked_targets(&tables).unwrap());
        let scalar = |loss: &burn::tensor::Tensor<1>| loss.clone().into_scalar::<f32>();
        losses
            .push([&found.numerical, &found.boolean, &found.categorical, &found.text].map(scalar));
        let gradients = GradientsParams::from_grads(found.sum().backward(), &model);
        model = optimizer.step(2e-3, model, gradients);
    }
    for (of, name) in ["numerical", "boolean", "categorical", "text"].iter().enumerate() {
        let mean = |steps: &[[f32; 4]]| {
            steps.iter().map(|losses| losses[of]).sum::<f32>() / steps.len() as f32
        };
        let (first, last) = (mean(&losses[..WINDOW]), mean(&losses[STEPS - WINDOW..]));
        println!("{name}: {first:.4} to {last:.4}");
        assert!(last < 0.95 * first, "{name}: {first} to {last}");
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
    assert!(auroc.unwrap().parse::<f64>().unwrap() >= 0.75, "{last}");
}
