//! Pools, and seeds without a label; the twin has the rule, the random cases ranks and resumes.

use std::collections::BTreeSet;
use std::sync::Arc;

use headwater::ErrorKind;
use headwater::plan::{Setting, Split};
use headwater::random::name_identity;
use headwater::sampler::{Pool, Sampler, Settings};
use headwater::store::{Cell, SEES_EVERYTHING, Store};

use crate::database::{Database, Value};
use crate::{PLAIN, random_stores, sampler, small, stores};

fn pool(table: &str, obs_time: Option<i64>) -> Settings {
    let pools = vec![Pool { table: table.to_owned(), obs_time }];
    Settings { pools, visible_until: None, ..small(5) }
}

/// The small golden store: orders have a time, remarks have none.
fn store() -> Arc<Store> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("checkpoints/store-v4-small");
    Arc::new(Store::open(&path).unwrap())
}

fn message(settings: &Settings) -> String {
    let error = sampler(&store(), settings, (0, 1), PLAIN).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    error.to_string()
}

fn rows_of(sampler: &Sampler, split: Split) -> Vec<u32> {
    let mut rows = Vec::new();
    for batch in sampler.evaluate(split, None).unwrap() {
        let batch = batch.unwrap();
        let weights = batch.get::<f32>("seq_weight").unwrap();
        let seeds = batch.get::<u32>("seed_row").unwrap().iter().zip(weights);
        rows.extend(seeds.filter(|(_, weight)| **weight > 0.0).map(|(row, _)| *row));
    }
    rows
}

#[test]
fn a_pool_alone_serves_each_row_once_over_the_splits_and_no_task() {
    for (_folder, store) in &random_stores(6) {
        // Summaries follow the other tables.
        let count = store.tables().len() - store.metadata().summaries.len();
        for table in store.tables()[..count].iter().filter(|table| table.row_count() > 0) {
            let name = &table.metadata().name;
            if name.ends_with(" labels") {
                continue;
            }
            let sampler =
                sampler(store, &pool(name, Some(SEES_EVERYTHING)), (0, 1), PLAIN).unwrap();
            let served: Vec<_> = sampler.tasks().collect();
            assert_eq!(served, [format!("{}/pool:{name}", store.metadata().database)]);
            let rows: Vec<u32> =
                Split::ALL.iter().flat_map(|&split| rows_of(&sampler, split)).collect();
            let expected: BTreeSet<u32> = (0..table.row_count()).collect();
            assert_eq!(rows.len(), expected.len());
            assert_eq!(rows.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }
}

/// The seeds are divided in pieces of 16,384, by several threads.
#[test]
fn p5_a_large_pool_has_every_row_once_in_the_split_of_its_key() {
    const ROWS: u32 = 40_000;
    let schema = "database = \"large\"\n[[table]]\nname = \"t\"\nkey = \"id\"\n\
                  time = { column = \"at\" }\ncolumns = { id = \"identifier\", at = \"timestamp\" }\n";
    let ids = (0..ROWS).map(|row| Value::Integer(row.into())).collect();
    let times = (0..ROWS).map(|row| Value::Time(row.into())).collect();
    let database = Database::new(schema, [("t", vec![("id", ids), ("at", times)])]);
    let (_folder, store) = stores::store_of(&database, &[usize::MAX]);
    let mut settings = pool("t", None);
    (settings.shape.batch_size, settings.shape.max_rows) = (1000, 1);
    let store = Arc::new(store);
    let sampler = sampler(&store, &settings, (0, 1), PLAIN).unwrap();
    let split_of = |row: &u32| {
        let key = store.tables()[0].identity(*row).unwrap();
        settings.split.split_of(name_identity("pool:t"), key)
    };
    for split in Split::ALL {
        let mut rows = rows_of(&sampler, split);
        rows.sort_unstable();
        assert!(rows.into_iter().eq((0..ROWS).filter(|row| split_of(row) == split)), "{split:?}");
    }
}

#[test]
fn p7_a_pool_has_no_row_that_does_not_exist_at_its_observation() {
    let store = store();
    let orders = store.table("orders").unwrap();
    let times: Vec<i64> = (0..4).map(|row| orders.row(row).unwrap().time()).collect();
    let latest = *times.iter().max().unwrap();
    let settings = Settings { visible_until: Some(latest - 1), ..pool("orders", None) };
    for settings in [&pool("orders", Some(latest - 1)), &settings] {
        let sampler = sampler(&store, settings, (0, 1), PLAIN).unwrap();
        let rows = Split::ALL.map(|split| rows_of(&sampler, split)).concat();
        assert!(!rows.is_empty() && rows.iter().all(|&row| times[row as usize] < latest));
        let left_out = times.iter().position(|&time| time == latest).unwrap() as u32;
        let error = sampler.context("pool:orders", left_out).unwrap_err().to_string();
        assert!(error.contains("left out because the row does not exist at its"), "{error}");
    }
}

#[test]
fn a_context_of_a_pool_has_no_target_and_hides_nothing() {
    let sampler = sampler(&store(), &pool("orders", None), (0, 1), PLAIN).unwrap();
    let context = sampler.context("pool:orders", 1).unwrap();
    assert_eq!((context.target, context.target_column), (Cell::Null, None));
    assert!(context.unseen.iter().all(|unseen| unseen.place > 0));
    let batch = sampler.batch_of_seed("pool:orders", 1).unwrap();
    assert_eq!(batch.get::<i32>("target_pos").unwrap()[0], -1);
    assert_eq!(batch.get::<u8>("target_stype").unwrap(), [255]);
    assert!(batch.get::<u8>("is_target").unwrap().iter().all(|&cell| cell == 0));
    let chosen = sampler.sample("pool:orders", &[(2, i64::MAX - 2)]).unwrap();
    assert_eq!(chosen.get::<u32>("seed_row").unwrap()[0], 2);
}

#[test]
fn pools_that_cannot_be_are_rejected_by_name() {
    let found = message(&pool("remarks", None));
    assert!(
        found.contains("expected a time at which the rows of \"remarks\" are observed")
            && found.ends_with("or set `time` of the table in the schema"),
        "{found}"
    );
    let found = message(&pool("order", None));
    assert!(found.contains("no table is called \"order\"; name one of tiny/customers,"), "{found}");
    let never = Settings { visible_until: Some(-1), ..pool("orders", None) };
    let found = message(&never);
    assert!(
        found.ends_with(
            "expected rows of \"orders\" that exist at their observation time, found none among 4; set a \
             later `visible_until`, or name another table"
        ),
        "{found}"
    );
    // The greatest one sees everything; these three are no times.
    for time in [i64::MIN, i64::MIN + 1, i64::MAX - 1] {
        let expected = format!(
            "pools: expected a time within 292,000 years of 1970 for \"orders\", found {time} us"
        );
        assert_eq!(message(&pool("orders", Some(time))), expected);
    }
    let mut twice = pool("orders", None);
    twice.pools.push(Pool { table: "tiny/orders".to_owned(), obs_time: Some(5) });
    assert!(message(&twice).contains("table \"tiny/orders\" is named twice"));
    let weighted = Settings { task_weights: Some(vec![1.0, 2.0]), ..pool("orders", None) };
    assert!(message(&weighted).contains("for each pool, 1 in all, found 2"));
    let stale = Settings { staleness: 5, ..pool("orders", None) };
    assert!(message(&stale).contains("whose rows are observed at a time of their own"));
    for tasks in [None, Some(vec![])] {
        let labelled = Settings { tasks, require_label: true, ..pool("orders", None) };
        assert_eq!(
            message(&labelled),
            "require_label: expected a task whose seeds have labels, found pools alone, whose rows have none; \
             name a task in tasks, or leave require_label out"
        );
    }
    let none = Settings { tasks: Some(vec![]), ..Settings::default() };
    assert!(message(&none).contains("expected at least one task or pool, found none"));
}

#[test]
fn p1_the_order_in_which_pools_are_named_changes_nothing() {
    let named = |names: &[&str]| Settings {
        pools: names.iter().flat_map(|name| pool(name, Some(i64::MAX - 2)).pools).collect(),
        ..pool("orders", None)
    };
    let [one, other] = [["customers", "orders"], ["orders", "customers"]].map(|names| {
        let sampler = sampler(&store(), &named(&names), (0, 1), PLAIN).unwrap();
        (sampler.tasks().map(str::to_owned).collect::<Vec<_>>(), sampler.cursor())
    });
    assert_eq!(one, other);
    assert!(message(&named(&["orders", "customers", "orders"])).contains("is named twice"));
}

#[test]
fn weights_are_those_of_the_tasks_and_then_of_the_pools_as_named() {
    let store = store();
    let tasks: Vec<String> =
        store.tasks().iter().rev().map(|task| task.metadata().name.clone()).collect();
    assert!(tasks.len() > 1);
    let tables = ["orders", "customers"];
    let names: Vec<String> =
        tasks.iter().cloned().chain(tables.map(|table| format!("pool:{table}"))).collect();
    let weighted = |count: usize| Settings {
        tasks: Some(tasks.clone()),
        pools: tables.iter().flat_map(|table| pool(table, Some(i64::MAX - 2)).pools).collect(),
        task_weights: Some((1..=count).map(|weight| weight as f64).collect()),
        ..pool("orders", None)
    };
    let sampler = sampler(&store, &weighted(names.len()), (0, 1), PLAIN).unwrap();
    for (place, name) in names.iter().enumerate() {
        let weight = Setting::from((place + 1).to_string().as_str());
        assert_eq!(sampler.plan().get(&format!("task/tiny/{name}")), Some(&weight), "{name}");
    }
    for wrong in [names.len() - 1, names.len() + 1] {
        let found = message(&weighted(wrong));
        let expected = format!("then for each pool, {} in all, found {wrong};", names.len());
        assert!(found.starts_with("task_weights: ") && found.contains(&expected), "{found}");
    }
}

/// A store of nodes, and of links that refer to two of them and have a summary.
fn net() -> (tempfile::TempDir, Arc<Store>) {
    const SCHEMA: &str = r#"
database = "net"

[[table]]
name = "nodes"
key = "id"
columns = { id = "identifier" }

[[table]]
name = "links"
key = "id"
time = { column = "at" }
columns = { id = "identifier", at = "timestamp", a = "identifier", b = "identifier" }
references = [{ columns = "a", to = "nodes" }, { columns = "b", to = "nodes" }]

[[summary]]
table = "links"
period = "day"
"#;
    let ids = || (0..9).map(Value::Integer).collect::<Vec<_>>();
    let times = (0..9).map(|row| Value::Time(row * 80_000_000_000)).collect();
    let links = vec![("id", ids()), ("at", times), ("a", ids()), ("b", ids())];
    let database = Database::new(SCHEMA, [("nodes", vec![("id", ids())]), ("links", links)]);
    let (folder, store) = stores::store_of(&database, &[usize::MAX]);
    (folder, Arc::new(store))
}

/// No task has seeds in the table whose rows have the most references.
#[test]
fn a_batch_has_room_for_the_references_and_summaries_of_a_pools_rows() {
    let (_folder, store) = net();
    let sampler = sampler(&store, &pool("links", None), (0, 1), PLAIN).unwrap();
    let shape = &sampler.settings().shape;
    let room = (shape.batch_size * shape.max_rows) as usize * 3;
    let batch = sampler.batch_of_seed("pool:links", 8).unwrap();
    assert_eq!(batch.get::<i32>("fk_relations").unwrap().len(), room);
}

#[test]
fn a_pool_of_a_summary_is_rejected() {
    let (_folder, store) = net();
    let summary = store.tables()[2].metadata().name.clone();
    for name in [summary.clone(), format!("net/{summary}")] {
        let found = sampler(&store, &pool(&name, None), (0, 1), PLAIN).err().unwrap().to_string();
        let expected =
            format!("expected a table of the sources, found the summary {name:?}, whose");
        assert!(found.contains(&expected), "{found}");
    }
}

#[test]
fn a_pool_without_seeds_is_rejected_with_a_remedy() {
    let table = |name: &str| {
        format!(
            "[[table]]\nname = \"{name}\"\nkey = \"id\"\ntime = {{ column = \"at\" }}\n\
             columns = {{ id = \"identifier\", at = \"timestamp\" }}\n"
        )
    };
    let names = ["dated", "undated"];
    let schema = format!("database = \"d\"\n{}", names.map(table).concat());
    let rows = |times: Vec<Value>| {
        let ids = (0..times.len() as i64).map(Value::Integer).collect();
        vec![("id", ids), ("at", times)]
    };
    let times = [vec![Value::Time(1_000)], vec![Value::Null; 2]];
    let database = Database::new(&schema, names.into_iter().zip(times.map(rows)));
    let (_folder, store) = stores::store_of(&database, &[usize::MAX]);
    let store = Arc::new(store);
    for (table, obs_time, visible_until, expected) in [
        (
            "dated",
            Some(5),
            None,
            "found none among 1; give the table a later time in pools, or name",
        ),
        ("dated", None, Some(5), "found none among 1; set a later `visible_until`, or name"),
        (
            "dated",
            Some(5),
            Some(5),
            "give the table a later time in pools, and set a later `visible_until`, or name",
        ),
        (
            "undated",
            None,
            None,
            "found none among 2; give the table a time in pools, at which all rows are observed, or name",
        ),
    ] {
        let settings = Settings { visible_until, ..pool(table, obs_time) };
        let error = sampler(&store, &settings, (0, 1), PLAIN).err().unwrap().to_string();
        let expected = format!("{expected} another table");
        assert!(error.starts_with("pools: ") && error.ends_with(&expected), "{error}");
    }
}

#[test]
fn p6_a_cursor_of_other_pools_or_labels_is_rejected_by_what_differs() {
    let store = store();
    let cursor = |settings: &Settings| sampler(&store, settings, (0, 1), PLAIN).unwrap().cursor();
    let resumed = |settings: &Settings, of: &Settings| {
        let error = sampler(&store, settings, (0, 1), PLAIN).unwrap().resume(&cursor(of));
        error.unwrap_err().to_string()
    };
    let own = pool("orders", None);
    let later = pool("orders", Some(i64::MAX - 2));
    assert!(resumed(&later, &own).contains("\"observed/tiny/pool:orders\""));
    assert!(resumed(&own, &small(5)).contains("\"task/tiny/pool:orders\""));
    let all = Settings { visible_until: None, ..small(5) };
    let labelled = Settings { require_label: true, ..all.clone() };
    assert!(resumed(&labelled, &all).contains("\"require_label\" was not there and is now true"));
}

#[test]
fn seeds_without_a_label_are_left_out_where_it_is_asked_for() {
    let (mut left_out, mut kept) = (0, 0);
    for (_folder, store) in &random_stores(10) {
        let every = Settings { visible_until: None, ..small(3) };
        let labelled = Settings { require_label: true, ..every.clone() };
        let [every, labelled] = [&every, &labelled].map(|of| sampler(store, of, (0, 1), PLAIN));
        let (Ok(every), Ok(labelled)) = (every, labelled) else { continue };
        for (number, task) in store.tasks().iter().enumerate() {
            let anchor = &store.tables()[task.metadata().anchor as usize];
            for index in 0..task.metadata().seed_count {
                let is_null = task.seed(anchor, index).unwrap().target == Cell::Null;
                let name = labelled.tasks().nth(number).unwrap();
                assert_eq!(labelled.context(name, index).is_err(), is_null);
                assert!(every.context(name, index).is_ok());
                *(if is_null { &mut left_out } else { &mut kept }) += 1;
            }
        }
    }
    assert!(left_out > 20 && kept > 20, "{left_out} {kept}");
}
