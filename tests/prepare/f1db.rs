//! Real data: seventy years of Formula One, drafted and corrected.

use std::collections::BTreeMap;
use std::path::Path;

use headwater::plan::Split;
use headwater::store::{Cell, ColumnStats, Store};

use crate::f1db_files::{data, rows, schema};
use crate::{Workshop, succeed};

const DAY_US: i64 = 86_400_000_000;

fn prepared(workshop: &Workshop, data: &Path) -> Store {
    let schema = schema();
    let (data, schema) = (data.to_str().unwrap(), schema.to_str().unwrap());
    let out = workshop.text("db");
    succeed(&["prepare", data, "--schema", schema, "--out", &out, "--no-text-vectors"]);
    succeed(&["verify", &out]);
    Store::open(Path::new(&out)).unwrap()
}

#[test]
fn f1db_is_prepared_unedited() {
    let Some(data) = data() else { return };
    let store = Workshop::new(&[]).unedited(&data);
    let metadata = store.metadata();
    assert_eq!(metadata.tables.len(), 31);
    let derived: Vec<_> =
        store.tasks().iter().filter(|t| !t.metadata().name.contains('.')).collect();
    let derived: Vec<_> = derived.iter().map(|t| t.metadata().name.as_str()).collect();
    assert_eq!(derived, ["driver_dnf", "driver_notleadlap", "driver_position", "driver_top3"]);
    let dated = metadata.tables.iter().filter(|t| t.time.is_some()).count();
    assert!(dated > 15, "only {dated} tables have a time");
}

#[test]
fn f1db_store_equals_its_files() {
    let Some(data) = data() else { return };
    let workshop = Workshop::new(&[]);
    let store = prepared(&workshop, &data);
    for table in store.tables() {
        let name = &table.metadata().name;
        assert_eq!(table.row_count() as usize, rows(&data, name).len(), "{name}");
    }
    assert_eq!(store.tables().len(), 31);
    let drivers = store.table("drivers").unwrap();
    let results = store.table("race_results").unwrap();
    let races = store.table("races").unwrap();
    let place = |name: &str| store.metadata().tables.iter().position(|t| t.name == name).unwrap();
    let relation = |child: &str, name: &str| {
        let child = place(child) as u32;
        let found = store.relations().iter().find(|r| {
            let metadata = r.metadata();
            metadata.child == child && metadata.name == name
        });
        found.unwrap()
    };
    let (by_driver, by_race) =
        (relation("race_results", "driverId"), relation("race_results", "raceId"));
    let senna = drivers.find("ayrton-senna").unwrap().unwrap();
    let entered = by_driver.children(senna).unwrap();
    assert_eq!(entered.count(), 162);
    let times = entered.times().unwrap().unwrap();
    assert!(times.is_sorted());
    // The results that are visible before his first race, a day later, and at the end.
    let first = times[0];
    assert_eq!(entered.visible_count(first - DAY_US).unwrap(), 0);
    assert_eq!(entered.visible_count(first).unwrap(), 1);
    assert_eq!(entered.visible_count(i64::MAX).unwrap(), 162);
    let date = races.metadata().columns.iter().position(|c| c.name == "date").unwrap();
    for row in 0..results.row_count() {
        let result = results.row(row).unwrap();
        let race = races.row(by_race.parent(&result).unwrap().unwrap()).unwrap();
        let Cell::Timestamp(date) = race.cell(date) else { panic!("a race without a date") };
        assert_eq!(race.time(), date);
        assert_eq!(result.time(), date + DAY_US);
    }
}

#[test]
fn f1db_tasks_keep_their_recorded_splits() {
    let Some(data) = data() else { return };
    let workshop = Workshop::new(&[]);
    let store = prepared(&workshop, &data);
    let drivers = store.table("drivers").unwrap();
    let tasks = ["driver-dnf", "driver-notleadlap", "driver-position", "driver-top3"];
    assert!(store.tasks().iter().map(|t| t.metadata().name.as_str()).eq(tasks));
    for task in store.tasks() {
        let name = &task.metadata().name;
        let seeds = rows(&data, &format!("task_{}", name.replace('-', "_")));
        assert_eq!(task.metadata().seed_count as usize, seeds.len(), "{name}");
        let mut sizes = BTreeMap::new();
        for (index, seed) in (0..).zip(&seeds) {
            let found = task.seed(drivers, index).unwrap();
            assert_eq!(drivers.key(found.row).unwrap(), seed["driverId"]);
            let split = found.split.unwrap().name();
            assert_eq!(split, seed["split"], "{name} {index}");
            *sizes.entry(split).or_insert(0) += 1;
            if let Cell::Boolean(truth) = found.target {
                assert_eq!(truth, seed["target"] == "1.0", "{name} {index}");
            }
        }
        for split in Split::ALL {
            let expected = seeds.iter().filter(|seed| seed["split"] == split.name()).count();
            assert_eq!(sizes[split.name()], expected, "{name}");
        }
    }
    let position = &store.metadata().tasks[2];
    let seeds = rows(&data, "task_driver_position");
    let train: Vec<f64> = (seeds.iter().filter(|seed| seed["split"] == "train"))
        .map(|seed| seed["target"].parse().unwrap())
        .collect();
    let expected = train.iter().sum::<f64>() / train.len() as f64;
    let ColumnStats::Numerical { mean, std, .. } = store.metadata().target_column(position).stats
    else {
        panic!("a position is a number");
    };
    assert!((mean - expected).abs() < 1e-9 * expected, "{mean}, {expected}");
    for (index, seed) in (0..).zip(&seeds) {
        let target: f64 = seed["target"].parse().unwrap();
        let found = store.tasks()[2].seed(drivers, index).unwrap().target;
        assert_eq!(found, Cell::Numerical(((target - mean) / std) as f32));
    }
}
