//! P7: a context holds nothing of the future, and the label only at the target.

use std::sync::Arc;

use headwater::plan::Split;
use headwater::random::{Purpose, Stream};
use headwater::sampler::{Children, Settings, Shape, Walk};
use headwater::store::{AggregateValue, ColumnStats, Store};
use proptest::prelude::*;

use crate::cases::{cases, walk};
use crate::database::{Database, Value};
use crate::{PLAIN, sampler, stores};

const SCHEMA: &str = r#"
database = "shops"

[[table]]
name = "shops"
key = "id"
time = { column = "at" }
columns = { id = "identifier", at = "timestamp", due = "timestamp", mark = "numerical" }

[[table]]
name = "visits"
key = "id"
time = { column = "at", delay = "3 seconds" }
columns = { id = "identifier", at = "timestamp", due = "timestamp", mark = "numerical", shop = "identifier", before = "identifier" }
references = [{ columns = "shop", to = "shops" }, { columns = "before", to = "visits" }]

[[table]]
name = "sales"
key = "id"
time = { through = "visit", delay = "1 second" }
columns = { id = "identifier", due = "timestamp", mark = "numerical", visit = "identifier" }
references = [{ columns = "visit", to = "visits" }]

[[aggregate]]
table = "visits"
reference = "shop"
columns = "mark"
windows = ["100 seconds", "ever"]

[[aggregate]]
table = "visits"
reference = "before"
columns = "mark"

[[aggregate]]
table = "sales"
reference = "visit"
columns = "mark"
windows = ["5 seconds"]

[[task]]
name = "mark of a visit"
cell = { table = "visits", column = "mark" }

[[task]]
name = "mark of a sale"
cell = { table = "sales", column = "mark" }

[[task]]
name = "tomorrow"
derived = { anchor = "shops", source = "tomorrow", key = "shop", time = "at", target = "y", type = "numerical" }
"#;

const SECOND: i64 = 1_000_000;
/// A mark is the second in which its row came to exist, and less than half a second that only this
/// row has.
const MARK: f64 = 0.001;

/// The origin of the rows: a random seed, and the number of rows of each table.
#[derive(Clone, Debug)]
struct Sizes {
    seed: u64,
    shops: i64,
    visits: i64,
    sales: i64,
    seeds: i64,
}

/// Sizes at which a context leaves out most rows.
const MANY: Sizes = Sizes { seed: 5, shops: 12, visits: 300, sales: 400, seeds: 200 };

fn sizes() -> impl Strategy<Value = Sizes> {
    (any::<u64>().no_shrink(), 1_i64..=12, 1_i64..=300, 1_i64..=400, 1_i64..=200)
        .prop_map(|(seed, shops, visits, sales, seeds)| Sizes { seed, shops, visits, sales, seeds })
}

/// Rows whose times lie a second or two apart, each with a number that only it has and that grows
/// with its time.
fn shops(sizes: &Sizes) -> Database {
    let mut random = Stream::new(sizes.seed, Purpose::Split, [0x1eaf, 0, 0]);
    let mut below = |bound: i64| random.below(bound as u64) as i64;
    let time = |seconds: i64| Value::Time(1_600_000_000 * SECOND + seconds * SECOND);
    let mark = |seconds: i64, row: i64| Value::Number(seconds as f64 + row as f64 * MARK);
    let mut tables = Vec::new();
    let ids = |count: i64| (0..count).map(Value::Integer).collect::<Vec<_>>();
    let shops: Vec<i64> = (0..sizes.shops).map(|_| below(400)).collect();
    let visits: Vec<i64> = (0..sizes.visits).map(|_| below(400)).collect();
    let visit_of: Vec<i64> = (0..sizes.sales).map(|_| below(sizes.visits)).collect();
    let sales: Vec<i64> = visit_of.iter().map(|&visit| visits[visit as usize] + 3).collect();
    let due = |times: &[i64], below: &mut dyn FnMut(i64) -> i64| {
        times.iter().map(|&at| time(at + below(40) - 10)).collect::<Vec<_>>()
    };
    let marks =
        |times: &[i64]| (0..).zip(times).map(|(row, &at)| mark(at, row)).collect::<Vec<_>>();
    let times = |times: &[i64]| times.iter().map(|&at| time(at)).collect::<Vec<_>>();
    tables.push((
        "shops",
        vec![
            ("id", ids(sizes.shops)),
            ("at", times(&shops)),
            ("due", due(&shops, &mut below)),
            ("mark", marks(&shops)),
        ],
    ));
    let known: Vec<i64> = visits.iter().map(|at| at + 3).collect();
    tables.push((
        "visits",
        vec![
            ("id", ids(sizes.visits)),
            ("at", times(&visits)),
            ("due", due(&visits, &mut below)),
            ("mark", marks(&known)),
            ("shop", (0..sizes.visits).map(|_| Value::Integer(below(sizes.shops))).collect()),
            ("before", (0..sizes.visits).map(|_| Value::Integer(below(sizes.visits))).collect()),
        ],
    ));
    let known: Vec<i64> = sales.iter().map(|at| at + 1).collect();
    tables.push((
        "sales",
        vec![
            ("id", ids(sizes.sales)),
            ("due", due(&sales, &mut below)),
            ("mark", marks(&known)),
            ("visit", visit_of.iter().map(|&visit| Value::Integer(visit)).collect()),
        ],
    ));
    let seeds: Vec<i64> = (0..sizes.seeds).map(|_| below(420)).collect();
    tables.push((
        "tomorrow",
        vec![
            ("shop", (0..sizes.seeds).map(|_| Value::Integer(below(sizes.shops))).collect()),
            ("at", times(&seeds)),
            ("y", (0..sizes.seeds).map(|_| Value::Number(below(1_000_000) as f64)).collect()),
        ],
    ));
    Database::new(SCHEMA, tables)
}

fn settings(seed: u64, walk: Walk) -> Settings {
    let shape =
        Shape { batch_size: 8, sequence_length: 400, max_rows: 90, ..Settings::default().shape };
    Settings { seed, walk, shape, ..Settings::default() }
}

/// Returns the seconds between the first row and the time at which this mark became known, or the
/// mean of such times; none for a number that is no mark.
fn marked_second(store: &Store, column: i32, score: f32) -> Option<f64> {
    let metadata = store.metadata();
    let aggregate = metadata.aggregates.iter().find(|a| a.index as i32 == column);
    let column = match aggregate {
        Some(aggregate) => {
            let AggregateValue::Mean { column } = aggregate.value else { return None };
            let child = metadata.relations[aggregate.relation as usize].child;
            &metadata.tables[child as usize].columns[column as usize]
        }
        None => {
            let mut columns = metadata.tables.iter().flat_map(|table| &table.columns);
            columns.find(|c| c.index as i32 == column).unwrap()
        }
    };
    match column.stats {
        ColumnStats::Numerical { mean, std, .. } => Some(f64::from(score) * std + mean),
        _ => panic!("column {:?} has no numbers", column.name),
    }
}

fn open(sizes: &Sizes) -> (tempfile::TempDir, Arc<Store>) {
    let (folder, store) = stores::store_of(&shops(sizes), &[usize::MAX]);
    (folder, Arc::new(store))
}

/// Returns, for each cell with a mark in every context, the seconds between its time and the
/// observation; panics on a cell that was not known yet.
fn known_cells(store: &Arc<Store>, settings: &Settings) -> Vec<f64> {
    let settings =
        Settings { shape: Shape { compact: true, ..settings.shape.clone() }, ..settings.clone() };
    let sampler = sampler(store, &settings, (0, 1), PLAIN).unwrap();
    let mut seen = Vec::new();
    let passes = Split::ALL.into_iter().flat_map(|split| sampler.evaluate(split, None).unwrap());
    for batch in passes {
        let batch = batch.unwrap();
        let obs_times = batch.get::<i64>("obs_time").unwrap();
        let cells = batch.get::<i8>("semantic_types").unwrap();
        for at in 0..cells.len() {
            let flag = |name| batch.get::<u8>(name).unwrap()[at] == 1;
            if flag("is_padding") || flag("is_target") || flag("is_null") {
                continue;
            }
            let obs_time = obs_times[at / settings.shape.sequence_length as usize];
            if cells[at] == 2 {
                let time = batch.get::<i64>("timestamp_us").unwrap()[at];
                assert!(time <= obs_time, "{time} at {obs_time}");
                seen.push((time - obs_time) as f64 / SECOND as f64);
            }
            if cells[at] == 1 {
                let column = batch.get::<i32>("column_ids").unwrap()[at];
                let score = batch.get::<f32>("numeric_values").unwrap()[at];
                let Some(second) = marked_second(store, column, score) else { continue };
                let now = (obs_time / SECOND - 1_600_000_000) as f64;
                assert!(second <= now + 0.45, "{second} at {now}");
                seen.push(second - now);
            }
        }
    }
    seen
}

/// Panics when another cell than the target holds the label.
fn check_labels(store: &Arc<Store>, settings: &Settings) {
    let each = settings.shape.sequence_length as usize;
    let sampler = sampler(store, settings, (0, 1), PLAIN).unwrap();
    for batch in sampler.evaluate(Split::Train, None).unwrap() {
        let batch = batch.unwrap();
        let numbers = batch.get::<f32>("numeric_values").unwrap();
        let targets = batch.get::<i32>("target_pos").unwrap();
        let columns = batch.get::<i32>("column_ids").unwrap();
        let flags = batch.get::<u8>("is_target").unwrap();
        for (sequence, &target) in targets.iter().enumerate() {
            if batch.get::<f32>("seq_weight").unwrap()[sequence] == 0.0 {
                continue;
            }
            let at = sequence * each + target as usize;
            let label = numbers[at];
            assert_eq!(flags[at], 1);
            let others = (sequence * each..(sequence + 1) * each).filter(|&other| other != at);
            for other in others {
                assert_eq!(flags[other], 0);
                // Each number occurs in one row only, so that an equal number is the label.
                assert!(columns[other] != columns[at] || numbers[other] != label || label == 0.0);
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn p7_no_number_and_no_time_of_the_future_is_in_a_batch(sizes in sizes(), walk in walk()) {
        let (_folder, store) = open(&sizes);
        known_cells(&store, &settings(sizes.seed, walk));
    }

    #[test]
    fn p7_the_label_is_at_the_target_alone(sizes in sizes(), walk in walk()) {
        let (_folder, store) = open(&sizes);
        check_labels(&store, &settings(sizes.seed, walk));
    }
}

/// Contexts hold rows up to the second of the observation.
#[test]
fn p7_batches_hold_rows_up_to_the_observation_time() {
    let (_folder, store) = open(&MANY);
    let priority = |child_width| Walk::Priority { child_width, children: Children::Uniform };
    for walk in [priority(3), priority(50), Walk::Breadth { max_hops: 4, budget: 9 }] {
        let seen = known_cells(&store, &settings(1, walk));
        let latest = seen.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert!(seen.len() > 7000 && latest > -0.5, "{} {latest}", seen.len());
    }
}

/// If a seed is observed before its row came to exist, nothing of the row is known.
#[test]
fn p7_a_seed_from_the_future_has_no_context() {
    let (_folder, store) = open(&MANY);
    let sampler = sampler(&store, &settings(2, Settings::default().walk), (0, 1), PLAIN).unwrap();
    let shop = store.table("shops").unwrap().row(3).unwrap();
    for (time, rows) in [(shop.time() - 1, 1..2), (shop.time(), 1..90)] {
        let batch = sampler.sample("tomorrow", &[(3, time)]).unwrap();
        let num_rows = batch.get::<i32>("num_rows").unwrap()[0];
        assert!(rows.contains(&num_rows), "{num_rows}");
        let known = (0..4).filter(|&cell| batch.get::<u8>("is_null").unwrap()[cell] == 0).count();
        assert_eq!(known > 0, time == shop.time());
    }
}
