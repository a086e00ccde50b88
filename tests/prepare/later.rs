//! P7: what comes after the end of training changes no statistic, and no cell of a train context.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use headwater::plan::{Assignment, Split};
use headwater::sampler::{Sampler, Settings, Shape, Speed};
use headwater::store::{Cell, ColumnStats, Scale, Store, TargetMetadata};

use crate::{Workshop, succeed};

/// Columns of which training knows all, one value, none, or values that are equal but for rounding.
const SCHEMA: &str = r#"
database = "wards"

[[table]]
name = "patients"
key = "id"
columns = { id = "identifier", born = "timestamp" }

[[table]]
name = "visits"
key = "id"
time = { column = "at" }
references = [{ columns = "patient", to = "patients" }]

[table.columns]
id = "identifier"
patient = "identifier"
at = "timestamp"
plain = "numerical"
log = { type = "numerical", scale = "log" }
rank = { type = "numerical", scale = "rank" }
one = "numerical"
one_log = { type = "numerical", scale = "log" }
one_rank = { type = "numerical", scale = "rank" }
none = "numerical"
none_log = { type = "numerical", scale = "log" }
none_rank = { type = "numerical", scale = "rank" }
rounded = "numerical"
tiny = "numerical"
known_later = { type = "numerical", known = { delay = "4000 days" } }
ward = "categorical"
none_ward = "categorical"
urgent = "boolean"
one_due = "timestamp"
none_due = "timestamp"

[[table]]
name = "scans"
time = { column = "at" }
columns = { at = "timestamp", patient = "identifier", dose = "numerical", device = "categorical" }
references = [{ columns = "patient", to = "patients" }]

[[summary]]
table = "visits"
period = "month"
columns = ["plain", "one", "none", "rounded"]

[[aggregate]]
table = "visits"
reference = "patient"
columns = ["plain", "one", "none", "tiny"]
windows = ["50 days", "ever"]

[[task]]
name = "first"
[task.derived]
anchor = "patients"
source = "first"
key = "patient"
time = "at"
target = "y"
type = "numerical"
split = "split"
horizon = "20 days"

[[task]]
name = "unsplit"
derived = { anchor = "patients", source = "unsplit", key = "patient", time = "at", target = "y", type = "numerical", horizon = "9 days" }

[[task]]
name = "unsplit days"
derived = { anchor = "patients", source = "unsplit", key = "patient", time = "at", target = "day", type = "timestamp" }

[[task]]
name = "unsplit kinds"
derived = { anchor = "patients", source = "unsplit", key = "patient", time = "at", target = "kind", type = "categorical" }

[[task]]
name = "none of a visit"
cell = { table = "visits", column = "none" }
"#;

/// The rows: those after 2020 have numbers that are `factor` times those of the plain case, and categories
/// and times that `kind` names.
fn wards(factor: f64, kind: &str) -> Workshop {
    let mut visits =
        "id,patient,at,plain,log,rank,one,one_log,one_rank,none,none_log,none_rank,rounded,tiny,\
                      known_later,ward,none_ward,urgent,one_due,none_due\n"
            .to_owned();
    for visit in 0..60 {
        let (month, day) = (1 + visit / 5, 1 + 5 * (visit % 5));
        let number = f64::from(visit);
        let rounded = [0.3, 0.1 + 0.2][visit as usize % 2];
        let tiny = [0.0, 1e-40, 2e-40][visit as usize % 3];
        let _ = writeln!(
            visits,
            "{visit},{},2020-{month:02}-{day:02},{},{},{},5,5,5,,,,{rounded},{tiny},{},{},,{},2019-05-05,",
            visit % 4,
            60.0 + number,
            number * number,
            number,
            number * factor,
            ["north", "west"][visit as usize % 2],
            visit % 4 == 0
        );
    }
    let mut scans = "at,patient,dose,device\n".to_owned();
    for visit in 60..80 {
        let (day, number) = (1 + visit - 60, factor * f64::from(visit - 57));
        let numbers = vec![number.to_string(); 12].join(",");
        let _ = writeln!(
            visits,
            "{visit},{},2021-02-{day:02},{numbers},{kind},{kind} ward,true,20{kind}-01-{day:02},20{kind}-02-{day:02}",
            visit % 4
        );
        let _ = writeln!(scans, "2021-03-{day:02},{},{number},{kind}", visit % 4);
    }
    let mut first = "patient,at,y,split\n".to_owned();
    let mut unsplit = "patient,at,y,day,kind\n".to_owned();
    for row in 0..12 {
        let _ = writeln!(first, "{},2020-{:02}-28,{},train", row % 4, row + 1, row * row);
        let (split, day) = (["val", "test"][row % 2], row + 1);
        let number = factor * (row + 1) as f64;
        let _ = writeln!(first, "{},2021-04-{day:02},{number},{split}", row % 4);
        let _ =
            writeln!(unsplit, "{},2021-05-{day:02},{number},20{kind}-01-{day:02},{kind}", row % 4);
    }
    Workshop::new(&[
        ("patients.csv", "id,born\n0,1980-01-01\n1,1990-06-01\n2,1970-05-05\n3,1985-05-05\n"),
        ("visits.csv", &visits),
        ("scans.csv", &scans),
        ("first.csv", &first),
        ("unsplit.csv", &unsplit),
    ])
}

fn prepared(workshop: &Workshop, schema: &str) -> (Arc<Store>, String) {
    let output = workshop.prepare(schema);
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    succeed(&["verify", &workshop.text("db")]);
    (Arc::new(Store::open(&workshop.path("db")).unwrap()), said)
}

/// The statistics that a model sees, of the columns of tables and of targets: not the span of the times,
/// nor the number of rows in a period.
fn seen_stats(store: &Store) -> BTreeMap<String, ColumnStats> {
    let metadata = store.metadata();
    let columns = metadata.tables.iter().flat_map(|table| {
        table.columns.iter().map(|column| (format!("{}.{}", table.name, column.name), column))
    });
    let targets = metadata.tasks.iter().filter_map(|task| match &task.target {
        TargetMetadata::Derived { column, .. } => {
            Some((format!("target of {}", task.name), column))
        }
        TargetMetadata::Cell { .. } => None,
    });
    let seen = |stats: &ColumnStats| match *stats {
        ColumnStats::Count { .. } => ColumnStats::Identifier,
        ColumnStats::Timestamp { mean_us, std_us, .. } => {
            ColumnStats::Timestamp { mean_us, std_us, min_us: 0, max_us: 0 }
        }
        ref other => other.clone(),
    };
    columns.chain(targets).map(|(name, column)| (name, seen(&column.stats))).collect()
}

fn sampler(store: &Arc<Store>) -> Sampler {
    let shape =
        Shape { batch_size: 4, sequence_length: 300, max_rows: 60, ..Settings::default().shape };
    let settings = Settings { shape, ..Settings::default() };
    let rank = Assignment::new(0, 1).unwrap();
    Sampler::new(vec![Arc::clone(store)], settings, rank, Speed::default()).unwrap()
}

/// The tensors of all contexts of a split of a task, as bytes.
fn contexts(store: &Arc<Store>, task: &str, split: Split) -> Vec<(&'static str, Vec<u8>)> {
    let tasks = [task.to_owned()];
    let sampler = sampler(store);
    let batches = sampler.evaluate(split, Some(&tasks)).unwrap().map(|batch| batch.unwrap());
    batches
        .flat_map(|batch| {
            batch.tensors().map(|(tensor, bytes)| (tensor.name, bytes.to_vec())).collect::<Vec<_>>()
        })
        .collect()
}

fn check_same_contexts(stores: [&Arc<Store>; 2], task: &str) {
    let [plain, changed] = stores.map(|store| contexts(store, task, Split::Train));
    assert!(plain.len() > 20 && plain.len() == changed.len());
    for ((name, plain), (_, changed)) in plain.iter().zip(&changed) {
        assert!(plain == changed, "tensor {name:?} of a train context of task {task:?}");
    }
}

#[test]
fn p7_later_values_change_no_statistic_and_no_cell_of_a_train_context() {
    let (plain, changed) = (wards(1.0, "25"), wards(1000.0, "31"));
    let ((plain, remarks), (changed, _)) = (prepared(&plain, SCHEMA), prepared(&changed, SCHEMA));
    let (expected, found) = (seen_stats(&plain), seen_stats(&changed));
    for (name, stats) in &expected {
        assert_eq!(stats, &found[name], "{name}");
    }
    assert_eq!(expected.len(), found.len());
    check_same_contexts([&plain, &changed], "wards/first");
    let remark =
        remarks.lines().find(|line| line.contains("too little is known to scale")).unwrap();
    for column in ["visits.one", "visits.none_rank", "visits.rounded", "visits.tiny", "19 columns"]
    {
        assert!(remark.contains(column), "{column}: {remark}");
    }
    assert!(remark.contains("unsplit kinds"), "{remark}");
    assert!(!remark.contains("visits.plain") && !remark.contains("urgent"), "{remark}");
}

/// A store whose task `a` ends its training before any label of task `b` is known.
fn two_tasks(schema: &str, factor: f64, kind: &str) -> (Workshop, Arc<Store>, String) {
    let a = "user,at,z,split\n1,2020-06-01,1,train\n2,2021-01-01,2,train\n1,2021-03-01,3,val\n";
    let mut b = "user,at,z,split\n".to_owned();
    for (row, (time, split)) in [
        ("2021-06-01", "train"),
        ("2022-06-01", "train"),
        ("2023-06-01", "val"),
        ("2024-06-01", "test"),
    ]
    .into_iter()
    .enumerate()
    {
        for user in 1..4 {
            let (number, later) = ((row * 3 + user) as f64, split != "train");
            let z = match (schema.contains("\"categorical\""), later) {
                (true, true) => kind.to_owned(),
                (true, false) => ["low", "mid", "high"][user - 1].to_owned(),
                (false, true) => (number * factor).to_string(),
                (false, false) => (number / 10.0).to_string(),
            };
            let _ = writeln!(b, "{user},{time},{z},{split}");
        }
    }
    let workshop = Workshop::new(&[("users.csv", "id\n1\n2\n3\n"), ("a.csv", a), ("b.csv", &b)]);
    let (store, remarks) = prepared(&workshop, schema);
    (workshop, store, remarks)
}

const TWO_TASKS: &str = r#"
database = "two"

[[table]]
name = "users"
key = "id"
columns = { id = "identifier" }

[[task]]
name = "a"
derived = { anchor = "users", source = "a", key = "user", time = "at", target = "z", type = "numerical", split = "split" }

[[task]]
name = "b"
derived = { anchor = "users", source = "b", key = "user", time = "at", target = "z", type = "numerical", split = "split", horizon = "30 days" }
"#;

/// The labels of a later task have the scale of its own train split, if none is known earlier.
#[test]
fn p7_test_labels_of_a_later_task_change_no_label_in_a_train_context() {
    let numbers = TWO_TASKS.to_owned();
    let (before, after) = numbers.split_once("name = \"b\"").unwrap();
    let categories = format!("{before}name = \"b\"{}", after.replace("numerical", "categorical"));
    // The first task keeps its numbers.
    for schema in [numbers.clone(), categories] {
        let (_plain, plain, remarks) = two_tasks(&schema, 1.0, "new");
        let (_changed, changed, _) = two_tasks(&schema, 1000.0, "other");
        let (expected, found) = (seen_stats(&plain), seen_stats(&changed));
        assert_eq!(expected["b labels.z"], found["b labels.z"]);
        assert_eq!(expected, found);
        check_same_contexts([&plain, &changed], "two/b");
        if let ColumnStats::Numerical { .. } = expected["b labels.z"] {
            assert_eq!(expected["b labels.z"], expected["target of b"]);
        }
        assert!(!remarks.contains("b labels.z"), "{remarks}");
    }
}

/// Numbers keep an order, and times a distance, that are of use without any known value.
#[test]
fn a_column_that_training_cannot_scale_keeps_its_values_on_a_fixed_scale() {
    let workshop = wards(1.0, "25");
    let (store, _) = prepared(&workshop, SCHEMA);
    let stats = seen_stats(&store);
    let fixed = |least: f64| ColumnStats::Numerical {
        scale: Scale::Log,
        mean: least.ln_1p(),
        std: 1.0,
        min: least,
        max: least,
    };
    for (name, least) in [("one", 5.0), ("one_log", 5.0), ("one_rank", 5.0)] {
        assert_eq!(stats[&format!("visits.{name}")], fixed(least), "{name}");
    }
    for name in ["none", "none_log", "none_rank", "known_later"] {
        assert_eq!(stats[&format!("visits.{name}")], fixed(0.0), "{name}");
    }
    let ColumnStats::Categorical { known_count: Some(0), cat_emb_count: 1, .. } =
        stats["visits.none_ward"]
    else {
        panic!("{:?}", stats["visits.none_ward"])
    };
    let year = 31_557_600e6;
    let until = store.metadata().statistics_until.as_ref().unwrap().time_us;
    let due = |mean: i64| ColumnStats::Timestamp {
        mean_us: mean as f64,
        std_us: year,
        min_us: 0,
        max_us: 0,
    };
    assert_eq!(stats["visits.none_due"], due(until));
    assert_eq!(stats["visits.one_due"], due(1_557_014_400_000_000));

    // A value reads back, and a row of training has z-scores of 0.
    let visits = store.table("visits").unwrap();
    let place = |name: &str| {
        visits.metadata().columns.iter().position(|column| column.name == name).unwrap()
    };
    for name in ["one", "one_log", "one_rank", "none", "none_rank", "rounded", "tiny"] {
        let cell = |row| visits.row(row).unwrap().cell(place(name));
        assert!(
            matches!(cell(7), Cell::Null)
                || matches!(cell(7), Cell::Numerical(z) if z.abs() < 1e-15),
            "{name}: {:?}",
            cell(7)
        );
        let Cell::Numerical(later) = cell(79) else { panic!("{name}: {:?}", cell(79)) };
        let shown = visits.metadata().columns[place(name)].stats.number(later).unwrap();
        assert!((shown - 22.0).abs() < 1e-4, "{name}: {later} shows {shown}");
    }
    let shown = succeed(&["inspect", &workshop.text("db"), "--table", "visits"]);
    assert!(shown.contains("1 category (1 of them only after the training period)"), "{shown}");
}

/// Known values that differ by little scale later ones to numbers beyond 32 bits.
#[test]
fn every_z_score_of_a_context_is_finite() {
    let mut rows = "id,at,small,huge\n".to_owned();
    for row in 0..40 {
        let later = row >= 20;
        let at = if later { "2022-01-01" } else { "2020-01-01" };
        let small = if later { 1e20 } else { f64::from(row) * 1e-30 };
        let huge = if later { 1e150 } else { f64::from(row) };
        let _ = writeln!(rows, "{row},{at},{small:e},{huge:e}");
    }
    let schema = r#"
        database = "far"
        statistics_until = "2021-01-01"
        [[table]]
        name = "far"
        key = "id"
        time = { column = "at" }
        columns = { id = "identifier", at = "timestamp", small = "numerical", huge = "numerical" }
        [[task]]
        name = "small"
        cell = { table = "far", column = "small" }
    "#;
    let workshop = Workshop::new(&[("far.csv", &rows)]);
    let (store, _) = prepared(&workshop, schema);
    let far = store.table("far").unwrap();
    for row in 0..40 {
        for column in [2, 3] {
            let Cell::Numerical(score) = far.row(row).unwrap().cell(column) else { panic!() };
            assert!(score.is_finite() && (row < 20 || score == f32::MAX), "{row}: {score}");
        }
    }
}
