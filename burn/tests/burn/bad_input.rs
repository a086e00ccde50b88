//! Acceptance test 7: what is wrong is told in headwater's words, as an error.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use headwater::ErrorKind;
use headwater::plan::{Assignment, Cursor, Split};
use headwater::sampler::{Sampler, Settings, Shape, Speed};
use headwater::store::Store;
use headwater_burn::{GraphBatch, Loader, TimeScales};

use crate::shop::{churn_path, loader, settings, shop};

/// The only item of a loader's epoch, which is an error.
fn only_error(loader: &dyn DataLoader<GraphBatch>) -> String {
    // More than one, so that an iterator that never ends fails, too.
    let found: Vec<_> = loader.iter().take(2).collect();
    match found.as_slice() {
        [Err(error)] => error.to_string(),
        found => panic!("{} batches", found.len()),
    }
}

/// Copies a store and changes a byte of a table's rows.
pub(crate) fn damaged_store(folder: &Path) -> Arc<Store> {
    let from = churn_path();
    let to = folder.join("damaged");
    let mut folders = vec![(from, to.clone())];
    while let Some((from, to)) = folders.pop() {
        fs::create_dir_all(&to).unwrap();
        for entry in fs::read_dir(&from).unwrap() {
            let (path, name) = (entry.as_ref().unwrap().path(), entry.unwrap().file_name());
            if path.is_dir() {
                folders.push((path, to.join(name)));
            } else {
                fs::copy(&path, to.join(name)).unwrap();
            }
        }
    }
    let table = to.join("tables/customers.bin");
    let mut bytes = fs::read(&table).unwrap();
    // The rows come last, before the digests.
    let in_a_row = bytes.len() - 1000;
    bytes[in_a_row] ^= 1;
    fs::write(&table, bytes).unwrap();
    Arc::new(Store::open(&to).unwrap())
}

/// Test 7: a cursor of another plan is refused, field by field; the loader stays where it is.
#[test]
fn p6_a_foreign_cursor_is_refused_by_name() {
    let own = loader(&settings(), (0, 1));
    let other = loader(&Settings { seed: 43, ..settings() }, (0, 1));
    other.iter().take(3).for_each(|batch| drop(batch.unwrap()));
    let file = tempfile::NamedTempFile::new().unwrap();
    other.save_cursor(file.path()).unwrap();
    let error = own.resume(&Cursor::read(file.path()).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlanMismatch);
    let error = error.to_string();
    assert!(error.contains("seed") && error.contains("43") && error.contains("42"), "{error}");
    assert_eq!(own.cursor().unwrap(), loader(&settings(), (0, 1)).cursor().unwrap());
}

/// Test 7: after a shutdown every iterator has one error.
#[test]
fn a_loader_that_was_shut_down_has_one_error() {
    let loader = loader(&settings(), (0, 1));
    loader.iter().take(2).for_each(|batch| drop(batch.unwrap()));
    loader.shutdown();
    let slice = loader.slice(0, loader.num_items());
    for loader in [&loader as &dyn DataLoader<GraphBatch>, &loader.evaluation(Split::Val)] {
        let error = only_error(loader);
        assert!(error.contains("shut down"), "{error}");
    }
    // A slice has threads of its own.
    assert!(slice.iter().next().unwrap().is_ok());
}

/// Test 7: damage ends the epoch with the file's name.
#[test]
fn p6_a_damaged_store_ends_the_epoch_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = damaged_store(folder.path());
    let rank = Assignment::new(0, 1).unwrap();
    let loader = Loader::new(vec![store], settings(), rank, Speed::default()).unwrap();
    let loader = loader.device(Device::flex());
    let mut batches = loader.iter();
    let error = batches.find_map(Result::err).expect("an epoch reads every customer").to_string();
    assert!(error.contains("customers.bin"), "{error}");
    assert!(batches.next().is_none(), "the iterator has ended");
}

/// Test 7: a second iterator would take batches from the first.
#[test]
fn a_second_iterator_is_an_error_until_the_first_is_dropped() {
    let loader = loader(&settings(), (0, 1));
    let other = loader.to_device(&Device::flex());
    let mut first = loader.iter();
    assert!(first.next().unwrap().is_ok());
    assert!(only_error(&*other).contains("one iterator of the loader at a time"));
    assert!(first.next().unwrap().is_ok());
    drop(first);
    assert!(other.iter().next().unwrap().is_ok());
}

/// A resume beside a living iterator would change its batches, and is refused; the iterator goes on.
#[test]
fn p6_a_resume_beside_an_iterator_is_refused_until_it_is_dropped() {
    let run = || loader(&settings(), (0, 1));
    let seeds = |loader: &Loader| {
        loader.iter().take(4).map(|batch| batch.unwrap().seed_rows).collect::<Vec<_>>()
    };
    let expected = seeds(&run());
    let loader = run();
    let begin = loader.cursor().unwrap();
    let mut batches = loader.iter();
    assert_eq!(batches.next().unwrap().unwrap().seed_rows, expected[0]);
    let error = loader.resume(&begin).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = error.to_string();
    for words in ["expected a loader without an iterator", "found one", "drop the iterator first"] {
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(batches.next().unwrap().unwrap().seed_rows, expected[1]);
    drop(batches);
    loader.resume(&begin).unwrap();
    assert_eq!(seeds(&loader), expected);
}

/// Test 7: settings that give no batch say so.
#[test]
fn epochs_without_steps_and_splits_without_seeds_are_errors() {
    let none = loader(&settings(), (0, 1)).steps_per_epoch(0);
    assert!(only_error(&none).contains("found 0; set steps_per_epoch"));
    let ratios = headwater::plan::SplitRatios::new(1.0, 0.0, 0.0).unwrap();
    let split = headwater::plan::SplitRule { seed: 1, ratios };
    let tasks = Some(vec!["reviews.stars".to_owned()]);
    let none = loader(&Settings { split, tasks, ..settings() }, (0, 1)).split(Split::Val);
    let error = only_error(&none);
    assert!(error.contains("no task with a weight above 0 has a seed in the val split"), "{error}");
}

/// Test 7: each form of a batch is told from the other.
#[test]
fn a_batch_of_the_other_form_is_refused() {
    let sampler = |compact| {
        let shape = Shape { compact, ..settings().shape };
        let rank = Assignment::new(0, 1).unwrap();
        let settings = Settings { shape, ..settings() };
        Sampler::new(vec![shop()], settings, rank, Speed::default()).unwrap()
    };
    let device = Device::flex();
    let (compact, _) = sampler(true).next(Split::Train).unwrap();
    let error = GraphBatch::new(&compact, &device).unwrap_err().to_string();
    assert!(error.contains("use GraphBatch::from_compact"), "{error}");
    let (dense, _) = sampler(false).next(Split::Train).unwrap();
    let error = GraphBatch::from_compact(&dense, &TimeScales::new(&shop()), &device).unwrap_err();
    assert!(error.to_string().contains("\"timestamp_us\""), "{error}");
}
