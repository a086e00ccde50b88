//! Seeds of the train stream that are observed earlier: by how much, in which epochs, and which tasks can.

use std::collections::BTreeSet;
use std::sync::Arc;

use headwater::plan::Split;
use headwater::random::{Purpose, Stream, name_identity};
use headwater::sampler::{Sampler, Settings};
use headwater::store::Store;

use crate::database::{Database, Value};
use crate::{PLAIN, sampler, small, stores};

const SCHEMA: &str = r#"
database = "visits"

[[table]]
name = "guests"
key = "id"
time = { column = "since" }
columns = { id = "identifier", since = "timestamp", vip = "boolean" }

[[task]]
name = "back"
derived = { anchor = "guests", source = "back", key = "guest", time = "at", target = "y", type = "boolean" }

[[task]]
name = "ever"
sees_everything = true
derived = { anchor = "guests", source = "ever", key = "guest", target = "y", type = "boolean" }

[[task]]
name = "vip"
cell = { table = "guests", column = "vip" }
"#;

const GUESTS: i64 = 40;
/// Some are observed at the beginning of time, and some of these stay there.
fn observed(guest: i64) -> i64 {
    if guest % 5 == 0 { i64::MIN + 3 + guest % 2 } else { 1_000_000 * guest }
}

fn store() -> (tempfile::TempDir, Arc<Store>) {
    let ids = || (0..GUESTS).map(Value::Integer).collect::<Vec<_>>();
    let truth = || (0..GUESTS).map(|guest| Value::Truth(guest % 3 == 0)).collect::<Vec<_>>();
    let since = (0..GUESTS).map(|guest| Value::Time(guest * 7)).collect();
    let at = (0..GUESTS).map(|guest| Value::Time(observed(guest))).collect();
    let database = Database::new(
        SCHEMA,
        [
            ("guests", vec![("id", ids()), ("since", since), ("vip", truth())]),
            ("back", vec![("guest", ids()), ("at", at), ("y", truth())]),
            ("ever", vec![("guest", ids()), ("y", truth())]),
        ],
    );
    let (folder, store) = stores::store_of(&database, &[usize::MAX]);
    (folder, Arc::new(store))
}

fn settings(task: &str, staleness: i64) -> Settings {
    let tasks = Some(vec![task.to_owned()]);
    Settings { tasks, staleness, visible_until: None, ..small(4) }
}

/// The rows and observation times of the next batches.
fn observations(sampler: &Sampler, split: Split, steps: usize) -> Vec<(u32, i64)> {
    let mut all = Vec::new();
    for _ in 0..steps {
        let (batch, _) = sampler.next(split).unwrap();
        let rows = batch.get::<u32>("seed_row").unwrap().iter().copied();
        all.extend(rows.zip(batch.get::<i64>("obs_time").unwrap().iter().copied()));
    }
    all
}

#[test]
fn each_epoch_observes_a_seed_earlier_by_its_own_draw() {
    let (_folder, store) = store();
    let task = store.task("back").unwrap();
    let seed_index_of = |row: u32| {
        let anchor = store.table("guests").unwrap();
        let all = 0..task.metadata().seed_count;
        all.into_iter().find(|&index| task.seed(anchor, index).unwrap().row == row).unwrap()
    };
    for staleness in [1, 2, 500_000, 10_000_000_000] {
        let sampler = sampler(&store, &settings("back", staleness), (0, 1), PLAIN).unwrap();
        let count = sampler.seed_count(0, Split::Train) as usize;
        let found = observations(&sampler, Split::Train, 3 * count);
        let mut early = BTreeSet::new();
        for (draw, (row, obs_time)) in found.into_iter().enumerate() {
            let epoch = (draw / count) as u64;
            let identity = [name_identity("visits/back"), epoch, u64::from(seed_index_of(row))];
            let mut random = Stream::new(4, Purpose::Staleness, identity);
            let step = random.below(staleness as u64 + 1) as i64;
            // The two least times have other meanings.
            let expected = observed(i64::from(row)).saturating_sub(step).max(i64::MIN + 2);
            assert_eq!(obs_time, expected, "row {row} in epoch {epoch}");
            early.insert(step.min(3));
        }
        assert!(staleness > 2 || early.len() as i64 == staleness + 1, "{early:?}");
        // No other stream, and no pass.
        for (row, obs_time) in observations(&sampler, Split::Val, 5) {
            assert_eq!(obs_time, observed(i64::from(row)));
        }
        for batch in sampler.evaluate(Split::Train, None).unwrap() {
            let batch = batch.unwrap();
            let own = batch.get::<u32>("seed_row").unwrap().iter().map(|&row| observed(row.into()));
            let weights = batch.get::<f32>("seq_weight").unwrap();
            let found = batch.get::<i64>("obs_time").unwrap();
            assert!(own.zip(found).zip(weights).all(|((own, at), w)| *w == 0.0 || own == *at));
        }
    }
}

#[test]
fn tasks_whose_seeds_cannot_be_observed_earlier_are_rejected() {
    let (_folder, store) = store();
    for (task, why) in [
        ("vip", "which predicts a cell of the seed row"),
        ("ever", "whose seeds may have no observation time"),
    ] {
        for staleness in [1, 2, 1_000_000] {
            let error = sampler(&store, &settings(task, staleness), (0, 1), PLAIN).err().unwrap();
            assert!(error.to_string().contains(why), "{error}");
        }
        assert!(sampler(&store, &settings(task, 0), (0, 1), PLAIN).is_ok());
    }
    // 10,000 years of 365 days.
    let longest = 3_650_000 * 86_400_000_000;
    assert!(sampler(&store, &settings("back", longest), (0, 1), PLAIN).is_ok());
    for wrong in [-1, longest + 1] {
        let error = sampler(&store, &settings("back", wrong), (0, 1), PLAIN).err().unwrap();
        assert!(error.to_string().contains(&format!("staleness: expected 0 to {longest} us")));
    }
    let cursor = |staleness| sampler(&store, &settings("back", staleness), (0, 1), PLAIN).unwrap();
    let error = cursor(2).resume(&cursor(1).cursor()).unwrap_err().to_string();
    assert!(error.contains("\"staleness\" was 1 and is now 2"), "{error}");
}
