//! Visibility, and the stability of splits.

use std::collections::BTreeMap;

use headwater::plan::{Split, SplitRatios, SplitRule};
use headwater::random::name_identity;
use headwater::store::{ALWAYS_VISIBLE, SEES_EVERYTHING, Store, is_visible};
use proptest::prelude::*;

use crate::database::{Database, Value};
use crate::{random, store_of, tiny};

proptest! {
    #[test]
    fn p7_no_row_is_seen_before_its_time(time: i64, obs_time: i64) {
        let naive = time == ALWAYS_VISIBLE || obs_time >= time;
        prop_assert_eq!(is_visible(time, obs_time), naive);
        prop_assert!(is_visible(time, SEES_EVERYTHING) && is_visible(ALWAYS_VISIBLE, obs_time));
        prop_assert!(is_visible(time, time));
        prop_assert!(time == i64::MIN || !is_visible(time, time - 1));
    }
}

/// Returns the split of each row, by its key.
fn splits(store: &Store, table: &str, task: &str) -> BTreeMap<String, Split> {
    let rule = SplitRule { seed: 7, ratios: SplitRatios::default() };
    let found = store.tasks().iter().find(|t| t.metadata().name == task).unwrap();
    let anchor = store.table(table).unwrap();
    let split_of = |index| {
        let row = found.seed(anchor, index).unwrap().row;
        let split = rule.split_of(name_identity(task), anchor.identity(row).unwrap());
        (anchor.key(row).unwrap().to_owned(), split)
    };
    (0..found.metadata().seed_count).map(split_of).collect()
}

/// Customers beyond the four, so that every split has some.
fn crowd(rows: std::ops::Range<usize>) -> Database {
    let mut database = tiny::database();
    for (name, values) in database.data.get_mut("customers").unwrap() {
        for row in rows.clone() {
            values.push(match name.as_str() {
                "id" => Value::Word(format!("customer {row}")),
                "vip" => Value::Truth(row % 3 == 0),
                _ => Value::Null,
            });
        }
    }
    database
}

#[test]
fn splits_stay_when_tasks_and_rows_are_added_or_reordered() {
    let (_folder, before) = store_of(&crowd(0..300), &[100]);
    let before = splits(&before, "customers", "vip");
    for split in Split::ALL {
        assert!(before.values().filter(|s| **s == split).count() > 10, "{}", split.name());
    }

    let mut grown = crowd(0..600);
    for (_, values) in grown.data.get_mut("customers").unwrap() {
        values.reverse();
    }
    let task = grown.schema.tasks[0].clone();
    let mut other = task.clone();
    other.name = "city".into();
    other.cell.as_mut().unwrap().column = "city".into();
    grown.schema.tasks.insert(0, other);
    let (_folder, store) = store_of(&grown, &[64]);
    let after = splits(&store, "customers", "vip");
    assert_eq!(after.len(), 604);
    for (key, split) in &before {
        assert_eq!(after[key], *split, "{key}");
    }
    // Another task divides the same rows in its own way.
    let other = splits(&store, "customers", "city");
    assert!(after.iter().any(|(key, split)| other[key] != *split));
}

#[test]
fn splits_of_random_databases_do_not_depend_on_the_order_of_rows() {
    let mut tasks_seen = 0;
    for seed in 0..30 {
        let database = random::database(seed, 3, 30);
        let mut turned = database.clone();
        for (name, data) in &mut turned.data {
            if !name.starts_with("task_") {
                data.iter_mut().for_each(|(_, values)| values.reverse());
            }
        }
        let (_a, before) = store_of(&database, &[9]);
        let (_b, after) = store_of(&turned, &[9]);
        for (task, schema) in before.tasks().iter().zip(&database.schema.tasks) {
            let anchor = &before.tables()[task.metadata().anchor as usize].metadata();
            if anchor.key.is_empty() {
                continue;
            }
            let (table, task) = (&anchor.name, &schema.name);
            assert_eq!(splits(&before, table, task), splits(&after, table, task));
            tasks_seen += 1;
        }
    }
    assert!(tasks_seen > 30);
}
