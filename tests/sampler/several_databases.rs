//! Several databases in one sampler: their schedule, and one cursor for all.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater::ErrorKind;
use headwater::plan::{Schedule, Split};
use headwater::sampler::{Settings, Speed};
use headwater::store::Store;
use tempfile::TempDir;

use crate::database::{Database, Value};
use crate::{PLAIN, digests, random, sampler, sequences, several, small, stored, stores, world};

/// A random database of this name.
fn database(name: &str, seed: u64) -> Database {
    let mut database = random::database(seed, 4, 60);
    name.clone_into(&mut database.schema.database);
    database
}

/// The store of a random database of this name.
fn named(name: &str, seed: u64) -> (TempDir, Arc<Store>) {
    let (folder, store) = stores::store_of(&database(name, seed), &[usize::MAX]);
    (folder, Arc::new(store))
}

/// Two databases whose tasks have the same names.
fn two() -> (Vec<TempDir>, Vec<Arc<Store>>) {
    [named("one", 1), named("two", 1)].into_iter().unzip()
}

fn settings() -> Settings {
    let mut settings = small(1);
    settings.shape.batch_size = 12;
    settings.shape.sequence_length = 100;
    settings
}

#[test]
fn the_schedule_chooses_the_database_and_the_task() {
    let (_folders, stores) = two();
    let settings = settings();
    let both = several(&stores, &settings, (0, 1), PLAIN).unwrap();
    let names: Vec<&str> = both.tasks().collect();
    let weights: Vec<f64> = (0..names.len())
        .map(|task| if both.seed_count(task, Split::Train) > 0 { 1.0 } else { 0.0 })
        .collect();
    let schedule = Schedule::new(settings.seed, Split::Train, &weights).unwrap();
    let alone = |name: &&str| {
        let (database, _) = name.split_once('/').unwrap();
        let store = stores.iter().find(|store| store.metadata().database == database).unwrap();
        let settings = Settings { tasks: Some(vec![(*name).to_owned()]), ..settings.clone() };
        sampler(store, &settings, (0, 1), PLAIN).unwrap()
    };
    let alone: Vec<_> = names.iter().map(alone).collect();
    let mut served = BTreeMap::new();
    for step in 0..4 * names.len() as u64 {
        let (batch, _) = both.next(Split::Train).unwrap();
        let task = batch.get::<u32>("task_idx").unwrap()[0] as usize;
        assert_eq!(task, schedule.task_at(step));
        // Beside others a task has the same stream as alone.
        let (expected, _) = alone[task].next(Split::Train).unwrap();
        assert!(sequences(&batch) == sequences(&expected), "step {step}, {}", names[task]);
        *served.entry(names[task].split_once('/').unwrap().0).or_insert(0) += 1;
    }
    assert!(served["one"] > 2 && served["two"] > 2, "{served:?}");
}

#[test]
fn p2_p4_one_cursor_covers_all_databases() {
    let (_folders, stores) = two();
    let mut settings = settings();
    let whole = digests(&world(&stores, &settings, 1, PLAIN), Split::Train, 30);
    settings.shape.batch_size = 6;
    let halves = world(&stores, &settings, 2, Speed { threads: Some(2), prefetch: 3 });
    assert_eq!(digests(&halves, Split::Train, 13), whole[..13]);
    let cursor = stored(&halves[1].cursor());
    let drawn = |database: &str| {
        let names = halves[0].tasks().filter(|name| name.starts_with(database));
        let draws = names.map(|name| cursor.position().get(&format!("train/draws/{name}")));
        draws.map(|draws| draws.expect("a counter for every task")).sum::<u64>()
    };
    let (one, two) = (drawn("one/"), drawn("two/"));
    assert_eq!(one + two, 13 * 12);
    assert!(one > 0 && two > 0);
    settings.shape.batch_size = 4;
    let thirds = world(&stores, &settings, 3, PLAIN);
    thirds.iter().for_each(|rank| rank.resume(&cursor).unwrap());
    assert_eq!(digests(&thirds, Split::Train, 17), whole[13..]);
}

#[test]
fn p6_a_cursor_names_the_database_that_differs() {
    let (_folders, stores) = two();
    let cursor = several(&stores, &settings(), (0, 1), PLAIN).unwrap().cursor();
    let refused = |stores: &[Arc<Store>]| {
        let other = several(stores, &settings(), (0, 1), PLAIN).unwrap();
        let error = other.resume(&cursor).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PlanMismatch);
        error.to_string()
    };
    // The same database with one other number.
    let mut database = database("two", 1);
    let columns = database.data.values_mut().flatten();
    let mut numbers = columns.flat_map(|(_, values)| values).filter_map(|value| match value {
        Value::Number(number) => Some(number),
        _ => None,
    });
    *numbers.next().unwrap() += 0.5;
    drop(numbers);
    let (_folder, changed) = stores::store_of(&database, &[usize::MAX]);
    let message = refused(&[Arc::clone(&stores[0]), Arc::new(changed)]);
    assert!(message.contains("1 setting differs: \"database/1/root\""), "{message}");
    let message = refused(&[Arc::clone(&stores[1]), Arc::clone(&stores[0])]);
    assert!(message.contains("\"database/0\" was \"one\" and is now \"two\""), "{message}");
    let message = refused(&stores[..1]);
    assert!(message.contains("\"database/1\""), "{message}");
}

#[test]
fn stores_of_one_name_are_served_under_aliases() {
    let (_folder, store) = named("one", 1);
    let (_other, same_name) = named("one", 2);
    let stores = [store, same_name];
    let with = |aliases: &[&str]| {
        let aliases = Some(aliases.iter().map(|&alias| alias.to_owned()).collect());
        several(&stores, &Settings { aliases, ..settings() }, (0, 1), PLAIN)
    };
    let refused = |aliases: &[&str]| with(aliases).err().unwrap().to_string();
    let error = several(&stores, &settings(), (0, 1), PLAIN).err().unwrap().to_string();
    assert!(error.contains("two stores have the name \"one\"; give the stores aliases"), "{error}");
    assert!(refused(&["a", "a"]).contains("two stores have the name \"a\""));
    assert!(refused(&["a"]).contains("expected 2 aliases, one for each store, found 1"));
    assert!(refused(&["a", "b/c"]).contains("without \"/\""));
    assert!(refused(&["a", ""]).contains("at least one character"));
    let both = with(&["eu", "us"]).unwrap();
    let (eu, us): (Vec<&str>, Vec<&str>) = both.tasks().partition(|name| name.starts_with("eu/"));
    assert!(!eu.is_empty() && us.iter().all(|name| name.starts_with("us/")), "{us:?}");
    let name = |alias: &str| headwater::plan::Setting::from(alias);
    assert_eq!(both.plan().get("database/0"), Some(&name("eu")));
    // The alias stands for the store's name: a store prepared under it has the same batches.
    let (_folder, eu_alone) = named("eu", 1);
    let alone = Settings { tasks: Some(vec![eu[0].to_owned()]), ..settings() };
    let prepared = sampler(&eu_alone, &alone, (0, 1), PLAIN).unwrap();
    let alone = Settings { aliases: Some(vec!["eu".to_owned()]), ..alone };
    let aliased = sampler(&stores[0], &alone, (0, 1), PLAIN).unwrap();
    let first = |sampler: &headwater::sampler::Sampler| {
        let batches = (0..5).map(|_| sequences(&sampler.next(Split::Train).unwrap().0));
        batches.collect::<Vec<_>>()
    };
    assert!(first(&prepared) == first(&aliased));
}

#[test]
fn a_task_name_in_two_databases_needs_its_database() {
    let (_folders, stores) = two();
    let name = stores[0].tasks()[0].metadata().name.clone();
    let serving = |task: &str| {
        let settings = Settings { tasks: Some(vec![task.to_owned()]), ..settings() };
        several(&stores, &settings, (0, 1), PLAIN)
    };
    let error = serving(&name).err().unwrap().to_string();
    let both = format!("several tasks are called {name:?}; name one of one/{name}, two/{name}");
    assert!(error.contains(&both), "{error}");
    let sampler = several(&stores, &settings(), (0, 1), PLAIN).unwrap();
    let error = sampler.evaluate(Split::Train, Some(std::slice::from_ref(&name)));
    let error = error.err().unwrap().to_string();
    assert!(error.contains(&both), "{error}");
    let second = serving(&format!("two/{name}")).unwrap();
    assert!(second.tasks().eq([format!("two/{name}")]));
}
