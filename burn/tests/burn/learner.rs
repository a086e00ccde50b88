//! Acceptance tests 2 and 7 under Burn's Learner.

use std::path::Path;
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::lr_scheduler::LrSchedulerRecord;
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::store::ModuleRecord;
use burn::tensor::{Device, Tensor};
use burn::train::checkpoint::{Checkpoint, Checkpointer, FileCheckpointer, KeepLastNCheckpoints};
use burn::train::{
    ExecutionStrategy, InferenceStep, Learner, LearningResult, MultiDeviceOptim, RegressionOutput,
    SupervisedTraining, TrainOutput, TrainStep,
};
use headwater::plan::{Assignment, Split};
use headwater::sampler::{Settings, Shape, Speed};
use headwater_burn::{Beside, CursorRecord, GraphBatch, Loader};

use crate::bad_input::damaged_store;
use crate::shop::{bits, floats, loader, settings};

/// A model that needs no tables: the mean number, truth and timestamp of a context.
#[derive(Module, Debug)]
struct Tiny {
    layer: Linear,
}

impl Tiny {
    fn of(&self, batch: &GraphBatch) -> RegressionOutput {
        let numbers = batch.numeric_values.clone().mean_dim(1);
        let times: Tensor<2> = batch.timestamp_values.clone().mean_dim(1).squeeze_dim(1);
        let output = self.layer.forward(Tensor::cat(vec![numbers, times], 1));
        let at = batch.target_pos.clone().unsqueeze_dim(1);
        let targets = batch.bool_values.clone().gather(1, at);
        let loss = (output.clone() - targets.clone()).square().mean();
        RegressionOutput::new(loss, output, targets)
    }
}

impl TrainStep for Tiny {
    type Input = GraphBatch;
    type Output = RegressionOutput;

    fn step(&self, batch: GraphBatch) -> TrainOutput<RegressionOutput> {
        let output = self.of(&batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Tiny {
    type Input = GraphBatch;
    type Output = RegressionOutput;

    fn step(&self, batch: GraphBatch) -> RegressionOutput {
        self.of(&batch)
    }
}

fn of_size(batch_size: u32) -> Settings {
    Settings { shape: Shape { batch_size, ..settings().shape }, ..settings() }
}

/// Trains to an epoch, from the checkpoint of an earlier one if it is given.
fn train(
    folder: &Path,
    first: &ModuleRecord,
    epochs: (Option<usize>, usize),
    loader: &Loader,
) -> LearningResult<Tiny> {
    train_with(folder, first, epochs, (loader, Arc::new(loader.evaluation(Split::Val))))
}

fn train_with(
    folder: &Path,
    first: &ModuleRecord,
    epochs: (Option<usize>, usize),
    loaders: (&Loader, Arc<dyn DataLoader<GraphBatch>>),
) -> LearningResult<Tiny> {
    train_on(1, folder, first, epochs, loaders)
}

fn train_on(
    devices: usize,
    folder: &Path,
    first: &ModuleRecord,
    (from, to): (Option<usize>, usize),
    (loader, valid): (&Loader, Arc<dyn DataLoader<GraphBatch>>),
) -> LearningResult<Tiny> {
    let checkpoints = folder.join("checkpoint");
    let files = |name| FileCheckpointer::new(&checkpoints, name);
    let device = Device::flex().autodiff();
    let training = SupervisedTraining::new(folder, Arc::new(loader.clone()), valid)
        .with_custom_checkpointers(
            files("model"),
            files("optim"),
            Beside::new(files("scheduler"), &checkpoints, loader),
        )
        .with_checkpointing_strategy(KeepLastNCheckpoints::new(2))
        .with_application_logger(None)
        .with_training_strategy(
            ExecutionStrategy::multi(
                vec![device.clone(); devices],
                MultiDeviceOptim::OptimMainDevice,
            )
            .into(),
        )
        .num_epochs(to);
    let training = match from {
        Some(epoch) => training.checkpoint(epoch),
        None => training,
    };
    let model = Tiny { layer: LinearConfig::new(16, 1).init(&device) }.load_record(first.clone());
    training.launch(Learner::new(model, AdamWConfig::new().init(), 1e-2))
}

struct Bits(Vec<u32>);

impl ModuleVisitor for Bits {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend(bits(&floats(&param.val())));
    }
}

fn parameters(model: &Tiny) -> Vec<u32> {
    let mut found = Bits(Vec::new());
    model.visit(&mut found);
    found.0
}

fn first() -> ModuleRecord {
    Tiny { layer: LinearConfig::new(16, 1).init(&Device::flex()) }.into_record()
}

/// Test 2: two epochs, and two more from the checkpoint in a new Learner, against four.
#[test]
fn p2_a_learner_resumed_at_an_epoch_has_the_model_of_a_whole_run() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, parts] = ["whole", "parts"].map(|name| folder.path().join(name));
    let (first, new) = (first(), || loader(&of_size(32), (0, 1)).steps_per_epoch(20));
    let expected = train(&whole, &first, (None, 4), &new());
    assert!(expected.error.is_none(), "{:?}", expected.error);
    train(&parts, &first, (None, 2), &new());
    let resumed = new();
    let found = train(&parts, &first, (Some(2), 4), &resumed);
    assert_eq!(parameters(&found.model), parameters(&expected.model));
    // The cursors are those of the epochs, and the old ones are deleted.
    for epoch in 1..=4 {
        let cursor = |run: &Path| run.join(format!("checkpoint/cursor-{epoch}.cursor"));
        assert_eq!(cursor(&whole).exists(), epoch > 2, "epoch {epoch}");
        if epoch > 2 {
            let [one, other] =
                [&whole, &parts].map(|run| CursorRecord::load(cursor(run)).unwrap().0);
            assert_eq!(one, other);
            assert_eq!(one.position().get("train/step"), Some(20 * epoch));
        }
    }
    assert_eq!(resumed.cursor().unwrap().position().get("train/step"), Some(80));
}

/// Test 2: on two devices, whose slices move by themselves, the cursor of an epoch is that of both, and the resumed
/// Learner cuts new slices there. Of two gradients the sum is the same in either order.
#[test]
fn p2_a_learner_on_two_devices_resumes_with_the_cursor_of_its_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, parts] = ["whole", "parts"].map(|name| folder.path().join(name));
    let (first, new) = (first(), || loader(&of_size(16), (0, 1)).steps_per_epoch(20));
    let train = |folder: &Path, epochs| {
        let loader = new();
        let valid = Arc::new(loader.evaluation(Split::Val));
        let trained = train_on(2, folder, &first, epochs, (&loader, valid));
        assert!(trained.error.is_none(), "{:?}", trained.error);
        trained
    };
    let cursor = |run: &Path, epoch: u64| {
        CursorRecord::load(run.join(format!("checkpoint/cursor-{epoch}.cursor"))).unwrap().0
    };
    let expected = train(&whole, (None, 4));
    train(&parts, (None, 2));
    // Ten steps of two devices are an epoch of twenty of one.
    for epoch in 1..=2 {
        assert_eq!(cursor(&parts, epoch).position().get("train/step"), Some(10 * epoch));
    }
    let found = train(&parts, (Some(2), 4));
    assert_eq!(parameters(&found.model), parameters(&expected.model));
    for epoch in 3..=4 {
        assert_eq!(cursor(&parts, epoch), cursor(&whole, epoch));
    }
    // One device goes on from it with the batches that follow.
    let alone = loader(&of_size(32), (0, 1)).steps_per_epoch(1);
    alone.resume(&cursor(&whole, 4)).unwrap();
    let reference = loader(&of_size(32), (0, 1)).steps_per_epoch(41);
    let next = reference.iter().last().unwrap().unwrap().seed_rows;
    assert_eq!(alone.iter().next().unwrap().unwrap().seed_rows, next);
}

/// Neither a pass before the training nor a validation between two epochs counts as an epoch of it.
#[test]
fn p6_the_cursor_of_an_epoch_is_that_of_its_own_end() {
    let folder = tempfile::tempdir().unwrap();
    let loader = loader(&of_size(32), (0, 1)).steps_per_epoch(5);
    assert_eq!(loader.iter().map(Result::unwrap).count(), 5);
    let valid = loader.clone().split(Split::Val).steps_per_epoch(2);
    let trained = train_with(folder.path(), &first(), (None, 2), (&loader, Arc::new(valid)));
    assert!(trained.error.is_none(), "{:?}", trained.error);
    for epoch in 1..=2 {
        let path = folder.path().join(format!("checkpoint/cursor-{epoch}.cursor"));
        let CursorRecord(cursor) = CursorRecord::load(path).unwrap();
        assert_eq!(cursor.position().get("train/step"), Some(5 + 5 * epoch));
    }
}

/// Test 7: what fails in a loader ends the training with the loader's words.
#[test]
fn a_learner_ends_with_the_words_of_the_loader() {
    let folder = tempfile::tempdir().unwrap();
    let rank = Assignment::new(0, 1).unwrap();
    let damaged = vec![damaged_store(folder.path())];
    let damaged = Loader::new(damaged, of_size(32), rank, Speed::default()).unwrap();
    let down = loader(&of_size(32), (0, 1));
    down.shutdown();
    for (name, loader, expected) in [("a", damaged, "customers.bin"), ("b", down, "shut down")] {
        let found = train(&folder.path().join(name), &first(), (None, 1), &loader);
        let error = found.error.expect("the training has an error").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Test 7: a checkpoint of another plan, or of no epoch of the loader, is refused.
#[test]
fn p6_a_checkpoint_of_another_plan_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = || FileCheckpointer::new(folder.path(), "scheduler");
    let own = loader(&settings(), (0, 1)).steps_per_epoch(2);
    let beside = Beside::new(files(), folder.path(), &own);
    let error = beside.save(1, LrSchedulerRecord::new()).unwrap_err().to_string();
    assert!(error.contains("expected the loader at the end of epoch 1"), "{error}");
    own.iter().for_each(|batch| drop(batch.unwrap()));
    beside.save(1, LrSchedulerRecord::new()).unwrap();

    let other = loader(&Settings { seed: 43, ..settings() }, (0, 1));
    let error = Beside::new(files(), folder.path(), &other).restore(1).err().unwrap().to_string();
    assert!(error.contains("seed"), "{error}");
    let bytes = CursorRecord(own.cursor().unwrap()).checkpoint_into_bytes().unwrap();
    let read = CursorRecord::checkpoint_from_bytes(bytes).unwrap();
    assert_eq!(read.0, own.cursor().unwrap());
    beside.delete(1).unwrap();
    beside.delete(1).unwrap();
    assert!(beside.restore(1).is_err());
}
