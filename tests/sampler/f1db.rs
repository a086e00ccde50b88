//! The sampler on real data: contexts hold what the raw files say was known, and batches are the same
//! for any ranks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater::plan::Split;
use headwater::prepare::schema::Schema;
use headwater::prepare::source;
use headwater::prepare::{Options, prepare};
use headwater::progress::Silent;
use headwater::sampler::{Batch, Settings, Shape, Speed};
use headwater::store::{Store, TextEncoding};
use tempfile::TempDir;

use crate::f1db_files::{data, rows, schema};
use crate::stores::{Plain, folder};
use crate::{PLAIN, digests, sampler, stored, world};

/// The number of seeds of each task that are checked.
const SEEDS: usize = 120;

fn opened() -> Option<(TempDir, Arc<Store>, PathBuf)> {
    let data = data()?;
    let schema = Schema::parse(&std::fs::read_to_string(schema()).unwrap()).unwrap();
    let (folder, source) = (folder(), source::open(&data).unwrap());
    let out = folder.path().join("store");
    let options = Options {
        embedder: &Plain,
        text_vectors: Some(TextEncoding::F16),
        threads: None,
        memory: None,
        sql: None,
        progress: &Silent,
    };
    prepare(&*source, &schema, &out, &options).unwrap();
    let store = Arc::new(Store::open(&out).unwrap());
    Some((folder, store, data))
}

/// Returns the last day on which each row of a table was not known yet, by the raw files; none for
/// rows without a time. Days in one form sort as texts.
fn unknown_until(
    data: &Path,
    table: &str,
    races: &BTreeMap<String, String>,
) -> Vec<Option<String>> {
    let of_row = |row: &BTreeMap<String, String>| match (table, row.get("raceId")) {
        ("races", _) => Some(day_before(&row["date"])),
        // A race is known the day after.
        (_, Some(race)) => Some(races[race].clone()),
        (_, None) => None,
    };
    rows(data, table).iter().map(of_row).collect()
}

/// A text between this day and the one before.
fn day_before(day: &str) -> String {
    let (year_and_month, day) = day.rsplit_once('-').unwrap();
    format!("{year_and_month}-{:02}~", day.parse::<u32>().unwrap() - 1)
}

#[test]
fn p7_f1db_contexts_agree_with_the_raw_files() {
    let Some((_folder, store, data)) = opened() else { return };
    let races: BTreeMap<String, String> =
        rows(&data, "races").iter().map(|row| (row["id"].clone(), row["date"].clone())).collect();
    let times: Vec<_> = (store.metadata().tables.iter())
        .map(|table| unknown_until(&data, &table.name, &races))
        .collect();
    let sampler = sampler(&store, &Settings::default(), (0, 1), PLAIN).unwrap();
    let drivers = store.table("drivers").unwrap();
    let (mut dated, mut of_last_year, mut hidden) = (0, 0, 0);
    for task in store.tasks() {
        let name = &task.metadata().name;
        let seeds = rows(&data, &format!("task_{}", name.replace('-', "_")));
        for (index, seed) in seeds.iter().enumerate().step_by(seeds.len() / SEEDS) {
            let context = sampler.context(name, index as u32).unwrap();
            let now = &seed["obs_time"];
            assert_eq!(drivers.key(context.rows[0].row).unwrap(), seed["driverId"]);
            for row in &context.rows {
                let Some(unknown) = &times[row.table as usize][row.row as usize] else { continue };
                assert!(unknown < now, "{name}, seed {index} of {now}: {row:?}, {unknown}");
                dated += 1;
                let last_year = now[..4].parse::<u32>().unwrap() - 1;
                of_last_year += u32::from(unknown[..4] == last_year.to_string());
            }
            hidden += context.hidden_count;
        }
    }
    // Some rows were visible, some of them recent, and some rows were hidden.
    assert!(
        dated > 10_000 && of_last_year > 1000 && hidden > 1000,
        "{dated} {of_last_year} {hidden}"
    );
}

/// For example, a driver's death is a cell of a row that was known long before.
#[test]
fn p7_f1db_has_no_cell_of_the_future() {
    let Some((_folder, store, _)) = opened() else { return };
    let shape = Shape { compact: true, ..Settings::default().shape };
    let cells = shape.sequence_length as usize;
    let later = |keep_future_cells| {
        let settings = Settings { keep_future_cells, shape: shape.clone(), ..Settings::default() };
        let sampler = sampler(&store, &settings, (0, 1), PLAIN).unwrap();
        let batches = (0..10).map(|_| sampler.next(Split::Train).unwrap().0);
        let of_batch = |batch: Batch| {
            let kinds = batch.get::<i8>("semantic_types").unwrap();
            let times = batch.get::<i64>("timestamp_us").unwrap();
            let obs_times = batch.get::<i64>("obs_time").unwrap();
            let flag = |name: &str, at: usize| batch.get::<u8>(name).unwrap()[at] == 1;
            let is_later = |&at: &usize| {
                let is_time = kinds[at] == 2 && !flag("is_null", at) && !flag("is_padding", at);
                is_time && times[at] > obs_times[at / cells]
            };
            (0..kinds.len()).filter(is_later).count()
        };
        batches.map(of_batch).sum::<usize>()
    };
    assert_eq!(later(false), 0);
    assert!(later(true) > 100);
}

#[test]
fn p1_p4_f1db_has_one_stream_for_one_two_and_four_ranks() {
    let Some((_folder, store, _)) = opened() else { return };
    let ranks = |ranks: u64, speed| {
        let mut settings = Settings::default();
        settings.shape.batch_size /= ranks as u32;
        world(std::slice::from_ref(&store), &settings, ranks, speed)
    };
    let whole = digests(&ranks(1, PLAIN), Split::Train, 24);
    let halves = ranks(2, Speed { threads: Some(2), prefetch: 3 });
    assert_eq!(digests(&halves, Split::Train, 11), whole[..11]);
    let cursor = stored(&halves[1].cursor());
    let quarters = ranks(4, Speed { threads: Some(1), prefetch: 1 });
    quarters.iter().for_each(|rank| rank.resume(&cursor).unwrap());
    assert_eq!(digests(&quarters, Split::Train, 13), whole[11..]);
}
