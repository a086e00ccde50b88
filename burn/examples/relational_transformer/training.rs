//! An optimiser step of several micro-batches, on any number of threads with the same bits.

use std::thread;

use burn::module::{Module, ParamGroup};
use burn::optim::{
    AdamWConfig, AdjustLrFn, GradientsAccumulator, GradientsParams, ModuleOptimizer, MuonConfig,
};
use burn::tensor::Device;
use headwater_burn::{GraphBatch, Tables};

use crate::model::Model;

/// The micro-batches of a step.
pub(crate) const MICRO_BATCHES: usize = 4;

/// The rate of learning, and the steps in which it rises.
const RATE: f64 = 8e-3;
const WARMUP_STEPS: f64 = 40.0;

/// The loss and the gradients of a micro-batch.
type Answer = (f32, GradientsParams);

/// Returns the optimiser: Muon for the matrices of the blocks, AdamW for all other parameters.
pub(crate) fn optimizer() -> ModuleOptimizer {
    let matrices = ParamGroup::from_predicates(vec!["blocks", "weight"]);
    // At the rate of AdamW.
    let muon = MuonConfig::new().with_adjust_lr_fn(AdjustLrFn::MatchRmsAdamW);
    let adam = AdamWConfig::new().with_beta_2(0.95).with_weight_decay(0.01).init();
    adam.with_group(matrices, muon.build(), None)
}

/// Returns the rate of learning of a step: it rises, stays until half of the steps are taken, and falls to 0.
pub(crate) fn rate(step: u64, steps: u64) -> f64 {
    let (step, steps) = (step as f64, steps as f64);
    let left = (steps - step) / (steps / 2.0);
    RATE * (step / WARMUP_STEPS).min(left).min(1.0)
}

/// Takes a step; returns the model after it and the mean loss before it.
///
/// Each thread takes every `workers`-th micro-batch. The gradients are added in the order of the micro-batches,
/// not in that of the answers, because a sum of floating-point numbers depends on its order.
pub(crate) fn step(
    model: Model,
    optimizer: &mut ModuleOptimizer,
    batches: &[GraphBatch],
    tables: &Tables,
    (workers, rate): (usize, f64),
) -> (Model, f32) {
    let device = tables.columns.device();
    let answers = thread::scope(|scope| {
        let work = |worker: usize| {
            let (model, device) = (model.clone(), device.clone());
            scope.spawn(move || {
                let own = batches.iter().skip(worker).step_by(workers);
                own.map(|batch| gradients(&model, batch, tables, &device)).collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = (0..workers).map(work).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(answers) => answers.into_iter(),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        in_turn(joined.collect())
    });
    let mut accumulator = GradientsAccumulator::new();
    let mut loss = 0.0;
    for (own, gradients) in answers {
        loss += own / MICRO_BATCHES as f32;
        accumulator.accumulate(&model, gradients);
    }
    let model = optimizer.step(rate, model, accumulator.grads());
    (model, loss)
}

fn gradients(model: &Model, batch: &GraphBatch, tables: &Tables, device: &Device) -> Answer {
    // A fork has leaves of its own. Two backward passes over shared leaves wait for each other for good.
    let model = model.clone().fork(device);
    let loss = model.losses(batch, tables, &batch.targets(tables)).sum();
    let gradients = (loss.clone() / MICRO_BATCHES as f32).backward();
    (loss.into_scalar::<f32>(), GradientsParams::from_grads(gradients, &model))
}

/// Takes one answer of each thread in turn: the order of the micro-batches.
fn in_turn(mut threads: Vec<impl Iterator<Item = Answer>>) -> Vec<Answer> {
    let mut answers = Vec::new();
    loop {
        let before = answers.len();
        answers.extend(threads.iter_mut().filter_map(Iterator::next));
        if answers.len() == before {
            return answers;
        }
    }
}
