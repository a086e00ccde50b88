//! Acceptance test 5: the cells that the sampler masks beside the target.

use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use headwater::ErrorKind;
use headwater::plan::Split;
use headwater::store::{Metadata, Store, TargetMetadata, TimeMetadata};
use headwater_burn::{EvaluationLoader, GraphBatch, Loader};

use crate::shop::{bits, churn_path, floats, ints, loader, loader_of, settings, shop, with_masks};

const SHARE: f64 = 0.25;

fn masked(batch: &GraphBatch) -> Vec<i32> {
    let masked = batch.masked.as_ref().unwrap();
    masked.is_masked.clone().int().try_to_vec_as().unwrap()
}

/// The masked cells of some steps, row by row.
fn steps(loader: &Loader, count: usize) -> Vec<Vec<i32>> {
    let rows =
        |batch: GraphBatch| masked(&batch).chunks_exact(64).map(<[_]>::to_vec).collect::<Vec<_>>();
    loader.iter().take(count).flat_map(|batch| rows(batch.unwrap())).collect()
}

/// Test 5: a quarter of the cells within 5 standard deviations; none of those that may not be.
#[test]
fn masked_cells_have_their_share_and_never_the_target() {
    assert_eq!(masked_cells_of(shop(), 100_000), 0);
}

/// Where labels are rows, no cell of these rows is masked, nor what is made of them.
#[test]
fn p7_labels_that_are_rows_are_never_masked() {
    let of_labels = masked_cells_of(Arc::new(Store::open(&churn_path()).unwrap()), 10_000);
    assert!(of_labels > 1_000, "{of_labels}");
}

/// Checks which cells are masked, at least `least` of which may be; returns the number of cells of rows that are
/// labels.
fn masked_cells_of(store: Arc<Store>, least: u64) -> u64 {
    // Other tensors tell the time of a row.
    let times: Vec<i32> = (store.metadata().tables.iter())
        .filter_map(|table| match table.time.as_ref()? {
            TimeMetadata::Column { column, .. } => {
                Some(table.columns[*column as usize].index as i32)
            }
            _ => None,
        })
        .collect();
    assert!(!times.is_empty());
    let never = never_masked(store.metadata());
    assert!(!never.is_empty());
    let rows_of_labels: Vec<i32> = (store.metadata().label_tables())
        .flat_map(|(_, table)| &store.metadata().tables[table as usize].columns)
        .map(|column| column.index as i32)
        .collect();
    let (mut count, mut eligible, mut of_labels) = (0_u64, 0_u64, 0_u64);
    let loader = loader_of(store, &with_masks(SHARE), (0, 1));
    for batch in loader.iter().take(1500) {
        let batch = batch.unwrap();
        let flags =
            |tensor: &burn::tensor::Tensor<2, burn::tensor::Bool>| ints(&tensor.clone().int());
        let (null, target, padding) =
            (flags(&batch.is_null), flags(&batch.is_target), flags(&batch.is_padding));
        let (kinds, columns) = (ints(&batch.semantic_types), ints(&batch.column_ids));
        for (at, is_masked) in masked(&batch).into_iter().enumerate() {
            let is_eligible = [null[at], target[at], padding[at]] == [0; 3]
                && kinds[at] != 0
                && !times.contains(&columns[at])
                && !never.contains(&columns[at]);
            assert!(is_eligible || is_masked == 0, "cell {at}");
            of_labels += u64::from(padding[at] == 0 && rows_of_labels.contains(&columns[at]));
            eligible += u64::from(is_eligible);
            count += u64::from(is_masked == 1);
        }
    }
    assert!(eligible > least, "{eligible}");
    let (cells, share) = (eligible as f64, (SHARE * 65_536.0).round() / 65_536.0);
    let deviation = (cells * share * (1.0 - share)).sqrt();
    assert!((count as f64 - cells * share).abs() < 5.0 * deviation, "{count} of {eligible}");
    of_labels
}

/// Returns the columns whose cells are labels of a task in some row, made of other rows, or values that link rows.
fn never_masked(metadata: &Metadata) -> Vec<i32> {
    let index = |table: u32, column: u32| {
        metadata.tables[table as usize].columns[column as usize].index as i32
    };
    let aggregates = metadata.aggregates.iter().map(|aggregate| aggregate.index as i32);
    let mut cells: Vec<i32> = aggregates.collect();
    for (number, table) in (0..).zip(&metadata.tables) {
        let linking =
            table.columns.iter().filter(|column| metadata.links_rows(number, &column.name));
        cells.extend(linking.map(|column| column.index as i32));
    }
    for summary in &metadata.summaries {
        let columns = &metadata.tables[summary.table as usize].columns;
        cells.extend(columns.iter().map(|column| column.index as i32));
    }
    for task in &metadata.tasks {
        match &task.target {
            TargetMetadata::Cell { column, hide } => {
                cells.extend(hide.iter().chain([column]).map(|&column| index(task.anchor, column)));
            }
            TargetMetadata::Derived { horizon_us: Some(_), .. } => {
                let name = format!("{} labels", task.name);
                let own = metadata.tables.iter().find(|table| table.name == name).unwrap();
                cells.extend(own.columns.iter().map(|column| column.index as i32));
            }
            TargetMetadata::Derived { horizon_us: None, .. } => {}
        }
    }
    cells
}

/// Test 5: ranks and a resume change no mask.
#[test]
fn p2_masked_cells_are_those_of_the_sequence() {
    let alone = loader(&with_masks(SHARE), (0, 1));
    let first = steps(&alone, 9);
    let cursor = alone.cursor().unwrap();
    let tail = steps(&alone, 9);
    let resumed = loader(&with_masks(SHARE), (0, 1));
    resumed.resume(&cursor).unwrap();
    assert_eq!(steps(&resumed, 9), tail);
    let ranks: Vec<_> =
        (0..3).map(|rank| steps(&loader(&with_masks(SHARE), (rank, 3)), 3)).collect();
    let together: Vec<_> =
        (0..12).flat_map(|row| ranks.iter().map(move |rank| rank[row].clone())).collect();
    assert_eq!(together, first);
}

/// Test 5: a cursor of a run without masks is refused by the name of the setting, and the other way round.
#[test]
fn p6_a_cursor_without_masks_is_refused_by_mask_share() {
    let (plain, masked) = (loader(&settings(), (0, 1)), loader(&with_masks(SHARE), (0, 1)));
    for (from, to) in [(&plain, &masked), (&masked, &plain)] {
        let error = to.resume(&from.cursor().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PlanMismatch);
        assert!(error.to_string().contains("mask_share"), "{error}");
    }
}

/// A finite pass is of whole contexts: that of a loader without masks. It has the masks where they are asked for.
#[test]
fn a_pass_of_a_loader_with_masks_has_whole_contexts() {
    let pass = |loader: EvaluationLoader| -> Vec<GraphBatch> {
        loader.device(Device::flex()).iter().take(40).map(Result::unwrap).collect()
    };
    let (plain, own) = (loader(&settings(), (0, 1)), loader(&with_masks(SHARE), (0, 1)));
    let evaluation = own.evaluation(Split::Val);
    let (expected, found) = (pass(plain.evaluation(Split::Val)), pass(evaluation.clone()));
    let masked = pass(evaluation.with_masks());
    assert!(expected.len() == 40 && found.len() == 40 && masked.len() == 40);
    for ((expected, found), masked) in expected.iter().zip(&found).zip(&masked) {
        assert!(found.masked.is_none());
        let cells = |batch: &GraphBatch| {
            (batch.seed_rows.clone(), ints(&batch.column_ids), bits(&floats(&batch.numeric_values)))
        };
        assert_eq!(cells(found), cells(expected));
        assert_eq!(masked.seed_rows, expected.seed_rows);
        assert!(self::masked(masked).contains(&1));
    }
    // Its threads end with those of the loader.
    own.shutdown();
    assert!(own.evaluation(Split::Val).iter().next().unwrap().is_err());
}
