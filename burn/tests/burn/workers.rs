//! Acceptance test 4: threads of every kind are settings of speed.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use headwater::plan::Assignment;
use headwater::sampler::{Settings, Shape, Speed};
use headwater::store::Store;
use headwater_burn::{Loader, Tables};

use crate::model::Model;
use crate::own_process::{run_in_own_process, store_of_own_process};
use crate::resume::losses;
use crate::shop::{bits, churn_path, floats, loader_of, settings, shop};
use crate::training::{MICRO_BATCHES, optimizer, step};

/// Test 4: 1, 2 and 4 workers have the same losses, and none waits for another for ever.
#[test]
fn p1_workers_have_equal_losses() {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let device = Device::flex().autodiff();
        let store = Arc::new(Store::open(&churn_path()).unwrap());
        let tables = Tables::new(&store, &device).unwrap();
        let first = Model::new(24, &device);
        for workers in [1, 2, 4] {
            let rank = Assignment::new(0, 1).unwrap();
            let stores = vec![Arc::clone(&store)];
            let loader = Loader::new(stores, settings(), rank, Speed::default()).unwrap();
            let loader = loader.device(device.clone());
            let (mut model, mut optimizer) = (first.clone(), optimizer());
            let mut batches = loader.iter();
            let mut losses = Vec::new();
            for _ in 0..6 {
                let own: Vec<_> =
                    batches.by_ref().take(MICRO_BATCHES).map(Result::unwrap).collect();
                let loss;
                (model, loss) = step(model, &mut optimizer, &own, &tables, (workers, 1e-3));
                losses.push(loss);
            }
            sender.send(bits(&losses)).unwrap();
        }
    });
    let limit = Duration::from_mins(5);
    let expected = receiver.recv_timeout(limit).expect("one worker is done in time");
    assert!(expected.windows(2).all(|two| two[0] != two[1]), "it learns");
    for _ in 0..2 {
        assert_eq!(receiver.recv_timeout(limit).expect("no worker waits for ever"), expected);
    }
}

/// Test 4: threads and prefetching of the sampler change no bit.
#[test]
fn p1_threads_and_prefetching_change_no_batch() {
    let stream = |threads, prefetch| {
        let speed = Speed { threads: Some(threads), prefetch };
        let rank = Assignment::new(0, 1).unwrap();
        let loader = Loader::new(vec![shop()], settings(), rank, speed).unwrap();
        let loader = loader.device(Device::flex());
        let batches = loader.iter().take(20).map(Result::unwrap);
        batches
            .map(|batch| (batch.seed_rows.clone(), bits(&floats(&batch.timestamp_values))))
            .collect::<Vec<_>>()
    };
    let expected = stream(1, 0);
    for (threads, prefetch) in [(1, 8), (2, 1), (7, 0), (7, 8)] {
        assert!(stream(threads, prefetch) == expected, "{threads} threads, {prefetch} ahead");
    }
}

/// Test 4: the threads of rayon change no loss of a run.
#[test]
fn p1_rayon_threads_change_no_loss() {
    let folder = tempfile::tempdir().unwrap();
    let run =
        |threads: &str| losses(&folder.path().join(threads), &["--stop-after", "3"], Some(threads));
    let expected = run("1");
    assert_eq!(expected.len(), 3);
    assert_eq!(run("2"), expected);
}

/// Test 4: nor those of sequences so long that Flex divides its products among the threads. Each number of threads
/// needs a process of its own: this test, which then prints its losses.
#[test]
fn p1_rayon_threads_change_no_loss_of_long_sequences() {
    const BEGIN: &str = "losses of the child: ";
    if let Some(store) = store_of_own_process() {
        let device = Device::flex().autodiff();
        device.seed(3);
        let store = Arc::new(Store::open(&store).unwrap());
        let tables = Tables::new(&store, &device).unwrap();
        let shape = Shape { sequence_length: 256, max_rows: 64, ..settings().shape };
        let settings = Settings { shape, ..settings() };
        let loader = loader_of(store, &settings, (0, 1)).device(device.clone());
        let (mut model, mut optimizer) = (Model::new(24, &device), optimizer());
        let mut losses = Vec::new();
        for _ in 0..2 {
            let own: Vec<_> = loader.iter().take(MICRO_BATCHES).map(Result::unwrap).collect();
            let loss;
            (model, loss) = step(model, &mut optimizer, &own, &tables, (1, 1e-3));
            losses.push(loss);
        }
        // After the name of the test, which has no end of line yet.
        println!("\n{BEGIN}{:?}", bits(&losses));
        return;
    }
    let losses = |threads: &str| {
        let name = "workers::p1_rayon_threads_change_no_loss_of_long_sequences";
        let text = run_in_own_process(name, &churn_path(), &[("RAYON_NUM_THREADS", threads)]);
        let found = text.lines().find_map(|line| line.strip_prefix(BEGIN)).map(str::to_owned);
        found.unwrap_or_else(|| panic!("{text}"))
    };
    let expected = losses("1");
    assert_eq!(losses("2"), expected);
}
