//! Acceptance test 3: ranks and slices divide one stream.

use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::data::dataloader::split::split_dataloader;
use burn::tensor::Device;
use headwater::plan::Split;
use headwater::sampler::{Settings, Shape};
use headwater_burn::{GraphBatch, Loader};

use crate::shop::{floats, ints, loader, settings, with_masks};

/// Settings with another batch size.
fn of_size(settings: Settings, batch_size: u32) -> Settings {
    Settings { shape: Shape { batch_size, ..settings.shape }, ..settings }
}

/// A row of a batch: its seed, its weight and its cells.
type Row = (u32, f32, Vec<i32>);

fn rows(batch: &GraphBatch) -> Vec<Row> {
    let columns = ints(&batch.column_ids);
    let weights = floats(&batch.seq_weight);
    let cells = columns.chunks_exact(batch.column_ids.dims()[1]).map(<[i32]>::to_vec);
    let rows = batch.seed_rows.iter().zip(weights).zip(cells);
    rows.map(|((&seed, weight), cells)| (seed, weight, cells)).collect()
}

/// The rows of each step of an epoch.
fn epoch(loader: &dyn DataLoader<GraphBatch>) -> Vec<Vec<Row>> {
    loader.iter().map(|batch| rows(&batch.unwrap())).collect()
}

/// Deals the rows of the ranks out again: row b of rank r of W is row b W + r of all.
fn interleaved(ranks: &[Vec<Vec<Row>>]) -> Vec<Row> {
    let mut all = Vec::new();
    for step in 0..ranks[0].len() {
        for row in 0..ranks[0][step].len() {
            all.extend(ranks.iter().map(|rank| rank[step][row].clone()));
        }
    }
    all
}

/// Test 3: 2 and 3 ranks have the rows of 1, in order; masked cells too.
#[test]
fn p5_ranks_together_have_the_rows_of_one() {
    let few = |loader: Loader| epoch(&loader.steps_per_epoch(30));
    let alone = few(loader(&of_size(with_masks(0.2), 6), (0, 1))).concat();
    for world in [2, 3] {
        let settings = of_size(with_masks(0.2), 6 / world as u32);
        let ranks: Vec<_> = (0..world).map(|rank| few(loader(&settings, (rank, world)))).collect();
        assert_eq!(interleaved(&ranks), alone, "{world} ranks");
    }
}

/// Test 3: the slices that Burn cuts for 1 to 8 devices take each seed exactly once, in the order of one.
#[test]
fn p5_slices_of_split_dataloader_have_the_rows_of_one() {
    let whole = || loader(&of_size(settings(), 32), (0, 1)).split(Split::Val);
    let one = Arc::new(whole());
    let seeds = one.num_items();
    let alone: Vec<Row> = epoch(&*one).concat().into_iter().take(seeds).collect();
    let mut distinct: Vec<u32> = alone.iter().map(|(seed, ..)| *seed).collect();
    for devices in 1..=8 {
        let slices = split_dataloader(Arc::new(whole()), &vec![Device::flex(); devices]);
        assert_eq!(slices.iter().map(|slice| slice.num_items()).sum::<usize>(), seeds);
        let ranks: Vec<_> = slices.iter().map(|slice| epoch(&**slice)).collect();
        let steps = seeds.div_ceil(32 * devices);
        assert!(ranks.iter().all(|rank| rank.len() == steps), "{devices} devices");
        let all = interleaved(&ranks);
        assert!(all[..seeds] == alone[..], "{devices} devices");
    }
    // A customer may be a seed at several times; no draw of the epoch is a repetition of another.
    distinct.sort_unstable();
    let pass = epoch(&one.evaluation(Split::Val)).concat();
    let mut expected: Vec<u32> =
        pass.iter().filter(|(_, weight, _)| *weight > 0.0).map(|(seed, ..)| *seed).collect();
    expected.sort_unstable();
    assert_eq!(distinct, expected);
}

/// Test 3: slices of a finite pass have every seed exactly once.
#[test]
fn p5_slices_of_an_evaluation_have_every_seed_once() {
    let whole = loader(&of_size(settings(), 32), (0, 1)).evaluation(Split::Val);
    let real = |steps: Vec<Vec<Row>>| {
        let rows = steps.concat().into_iter().filter(|(_, weight, _)| *weight > 0.0);
        rows.collect::<Vec<_>>()
    };
    let key = |row: &Row| (row.0, row.2.clone());
    let mut alone = real(epoch(&whole));
    alone.sort_by_key(key);
    assert_eq!(alone.len(), whole.num_items());
    for devices in [2, 3, 8] {
        let slices = split_dataloader(Arc::new(whole.clone()), &vec![Device::flex(); devices]);
        let mut all: Vec<Row> = slices.iter().flat_map(|slice| real(epoch(&**slice))).collect();
        all.sort_by_key(key);
        assert!(all == alone, "{devices} devices");
    }
}

/// Test 3: a slice begins where its loader stands, and the slices of a rank have its seeds.
#[test]
fn p4_slices_of_a_resumed_rank_go_on_with_its_rows() {
    let run = loader(&of_size(settings(), 4), (1, 2)).steps_per_epoch(100);
    run.iter().take(7).for_each(|batch| drop(batch.unwrap()));
    let cursor = run.cursor().unwrap();
    let ahead = epoch(&run.clone().steps_per_epoch(12)).concat();
    let resumed = loader(&of_size(settings(), 2), (1, 2)).steps_per_epoch(4000);
    resumed.resume(&cursor).unwrap();
    let slices = split_dataloader(Arc::new(resumed), &[Device::flex(), Device::flex()]);
    let first = |slice: &Arc<dyn DataLoader<GraphBatch>>| {
        slice.iter().take(12).map(|batch| rows(&batch.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(interleaved(&slices.iter().map(first).collect::<Vec<_>>()), ahead);
}

/// A loader whose slices have moved stands behind them: it says so, until it resumes, and gives no cursor.
#[test]
fn p8_a_loader_whose_slices_moved_has_no_cursor() {
    let whole = loader(&settings(), (0, 1));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("loader.cursor");
    let begin = whole.cursor().unwrap();
    let slices = split_dataloader(Arc::new(whole.clone()), &[Device::flex(), Device::flex()]);
    // Nothing has moved yet.
    assert_eq!(whole.cursor().unwrap(), begin);
    assert!(slices[1].iter().next().unwrap().is_ok());
    let cut_again = whole.slice(0, whole.num_items());
    for error in [
        whole.cursor().unwrap_err().to_string(),
        whole.save_cursor(&file).unwrap_err().to_string(),
        whole.iter().next().unwrap().unwrap_err().to_string(),
        cut_again.iter().next().unwrap().unwrap_err().to_string(),
    ] {
        let words = ["found one whose slices have taken batches", "Assignment::new(rank, devices)"];
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
    }
    assert!(!file.exists());
    whole.resume(&begin).unwrap();
    assert_eq!(whole.cursor().unwrap(), begin);
    assert!(whole.iter().next().unwrap().is_ok());
    // A slice of a slice moves them all.
    let part = whole.slice(0, whole.num_items());
    let inner = part.slice(0, part.num_items());
    assert!(inner.iter().next().unwrap().is_ok());
    assert!(part.iter().next().unwrap().is_err() && whole.cursor().is_err());
}

/// Test 3: a slice that Burn never cuts is one error, and no rows.
#[test]
fn odd_slices_are_an_error() {
    let whole = loader(&settings(), (0, 1));
    let end = whole.num_items();
    for (start, end) in [(0, 1), (1, end), (end, 0), (0, end + 1), (7, 7), (100, 300)] {
        let slice = whole.slice(start, end);
        let found: Vec<_> = slice.iter().collect();
        let [Err(error)] = found.as_slice() else { panic!("{} batches", found.len()) };
        let error = error.to_string();
        assert!(error.contains(&format!("{start}..{end}")), "{error}");
        assert!(error.contains("Assignment::new(rank, devices)"), "{error}");
        assert_eq!(slice.num_items(), 0);
        assert!(slice.to_device(&Device::flex()).slice(0, 1).iter().next().unwrap().is_err());
    }
}

/// The progress of an epoch counts seeds, and is complete after the last step alone.
#[test]
fn progress_is_complete_after_the_last_step() {
    let whole = loader(&of_size(settings(), 32), (0, 1)).split(Split::Val);
    let mut batches = whole.iter();
    let mut before = 0;
    while let Some(batch) = batches.next() {
        assert!(batch.is_ok());
        let progress = batches.progress();
        assert!(progress.items_processed > before && progress.items_total == whole.num_items());
        before = progress.items_processed;
    }
    assert!(batches.progress().is_completed());
    assert_eq!(before, whole.num_items());
}
