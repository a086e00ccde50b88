//! P7 of masked cells: none is a label, nor made of labels, for tasks of every form.

use std::sync::Arc;

use headwater::ErrorKind;
use headwater::plan::Split;
use headwater::sampler::{Aggregates, Batch, Masks, Pool, Sampler, Settings, Shape};
use headwater::store::Store;

use crate::database::{Database, Value};
use crate::{PLAIN, sampler, stores};

/// A cell task, tasks with a horizon of each type, and a task without one.
const SCHEMA: &str = r#"
database = "league"

[[table]]
name = "teams"
key = "id"
columns = { id = "identifier", city = "categorical", founded = "numerical" }

[[table]]
name = "games"
key = "id"
time = { column = "at", delay = "2 hours" }
references = [{ columns = "team", to = "teams" }]
[table.columns]
id = "identifier"
at = "timestamp"
team = "identifier"
won = "boolean"
goals = "numerical"
crowd = "numerical"

[[aggregate]]
table = "games"
reference = "team"
columns = ["won", "goals", "crowd"]
windows = ["80 hours", "ever"]

[[aggregate]]
table = "next labels"
reference = "team"
columns = "y"
windows = ["120 hours", "ever"]

[[aggregate]]
table = "margin labels"
reference = "team"
columns = "m"
windows = ["ever"]

[[summary]]
table = "games"
columns = ["goals", "crowd"]
period = "day"

[[summary]]
table = "games"
columns = "crowd"
period = "week"
by = "team"

[[summary]]
table = "next labels"
columns = "y"
period = "day"

[[summary]]
table = "margin labels"
columns = "m"
period = "week"
by = "team"

[[task]]
name = "won"
cell = { table = "games", column = "won", hide = ["goals"] }

[[task]]
name = "next"
derived = { anchor = "teams", source = "asked", key = "team", time = "at", target = "y", type = "boolean", horizon = "20 hours" }

[[task]]
name = "margin"
derived = { anchor = "teams", source = "asked", key = "team", time = "at", target = "m", type = "numerical", horizon = "20 hours" }

[[task]]
name = "grade"
derived = { anchor = "teams", source = "asked", key = "team", time = "at", target = "c", type = "categorical", horizon = "2 hours" }

[[task]]
name = "back"
derived = { anchor = "teams", source = "asked", key = "team", time = "at", target = "t", type = "timestamp", horizon = "1 hour" }

[[task]]
name = "unlisted"
derived = { anchor = "teams", source = "asked", key = "team", time = "at", target = "u", type = "numerical" }
"#;

const HOUR: i64 = 3_600_000_000;
const TEAMS: i64 = 5;
const GAMES: i64 = 120;
const ASKED: i64 = 100;

/// The store with its labels, or with others in their place: all other values are the same.
fn league(are_others: bool) -> (tempfile::TempDir, Arc<Store>) {
    let column = |count: i64, value: &dyn Fn(i64) -> Value| (0..count).map(value).collect();
    let team = |row: i64| Value::Integer(row * 7 % TEAMS);
    let number = |row: i64| Value::Number(if are_others { 900 - row * row } else { row } as f64);
    let truth = |row: i64| Value::Truth((row % 3 == 0) != are_others);
    let won = |game: i64| if game % 6 == 5 { Value::Null } else { truth(game) };
    let teams: Vec<(&str, Vec<Value>)> = vec![
        ("id", column(TEAMS, &Value::Integer)),
        ("city", column(TEAMS, &|team| Value::Word(format!("city {team}")))),
        ("founded", column(TEAMS, &|team| Value::Number(1900.0 + team as f64))),
    ];
    let games = vec![
        ("id", column(GAMES, &Value::Integer)),
        ("at", column(GAMES, &|game| Value::Time(game * 5 * HOUR))),
        ("team", column(GAMES, &team)),
        ("won", column(GAMES, &won)),
        ("goals", column(GAMES, &number)),
        ("crowd", column(GAMES, &|game| Value::Number((game * 37 % 11) as f64))),
    ];
    let grade = |row: i64| Value::Word(if (row % 2 == 0) == are_others { "a" } else { "b" }.into());
    let back = |row: i64| Value::Time((row * if are_others { 3 } else { 5 } - 7) * HOUR);
    let asked = vec![
        ("team", column(ASKED, &team)),
        ("at", column(ASKED, &|row| Value::Time((row * 6 + 1) * HOUR))),
        ("y", column(ASKED, &truth)),
        ("m", column(ASKED, &number)),
        ("c", column(ASKED, &grade)),
        ("t", column(ASKED, &back)),
        ("u", column(ASKED, &number)),
    ];
    let tables = [("teams", teams), ("games", games), ("asked", asked)];
    let (folder, store) = stores::store_of(&Database::new(SCHEMA, tables), &[usize::MAX]);
    (folder, Arc::new(store))
}

/// Nearly all cells masked, in contexts of all tasks and of the pools of both tables.
fn settings(store: &Store) -> Settings {
    let shape = Shape {
        batch_size: 4,
        sequence_length: 120,
        max_rows: 40,
        compact: true,
        permutations: false,
        ..Settings::default().shape
    };
    let pool = |table: &str, obs_time| Pool { table: table.to_owned(), obs_time };
    Settings {
        tasks: Some(store.tasks().iter().map(|task| task.metadata().name.clone()).collect()),
        pools: vec![pool("teams", Some(400 * HOUR)), pool("games", None)],
        aggregates: Aggregates::All,
        masks: Some(Masks::new(0.95, Some(120), shape.sequence_length).unwrap()),
        shape,
        ..Settings::default()
    }
}

fn batches(sampler: &Sampler) -> Vec<Batch> {
    let pass = |split| sampler.evaluate(split, None).unwrap();
    Split::ALL.into_iter().flat_map(pass).map(Result::unwrap).collect()
}

/// Returns the places of the masked cells of a batch, their columns, and their values in every tensor.
fn masked_cells(batch: &Batch) -> Vec<(usize, i32, [Vec<u8>; 5])> {
    let is_masked = batch.get::<u8>("is_masked").unwrap();
    let columns = batch.get::<i32>("column_ids").unwrap();
    let values =
        ["numeric_values", "bool_values", "timestamp_us", "categorical_embed_ids", "is_null"];
    let value = |name: &str, at: usize| {
        let (_, bytes) = batch.tensors().find(|(tensor, _)| tensor.name == name).unwrap();
        let each = bytes.len() / is_masked.len();
        bytes[at * each..][..each].to_vec()
    };
    (0..is_masked.len())
        .filter(|&at| is_masked[at] == 1)
        .map(|at| (at, columns[at], values.map(|name| value(name, at))))
        .collect()
}

/// Were a masked cell a label, or made of labels, then other labels would change it.
#[test]
fn p7_no_masked_cell_is_a_label_or_is_made_of_labels() {
    let [(_one, ours), (_two, others)] = [false, true].map(league);
    let running =
        [&ours, &others].map(|store| sampler(store, &settings(store), (0, 1), PLAIN).unwrap());
    let [ours_made, others_made] = running.each_ref().map(batches);
    assert_eq!(ours_made.len(), others_made.len());
    let name_of = |index: i32| {
        let tables = ours.metadata().tables.iter();
        let all = tables.flat_map(|table| table.columns.iter().map(move |column| (table, column)));
        let mut named = all.map(|(table, of)| (of.index, format!("{}.{}", table.name, of.name)));
        let made = ours.metadata().aggregates.iter().map(|of| (of.index, of.name.clone()));
        named.by_ref().chain(made).find(|(of, _)| *of == index as u32).map(|(_, name)| name)
    };
    let mut masked = std::collections::BTreeSet::new();
    for (ours, others) in ours_made.iter().zip(&others_made) {
        let (ours, others) = (masked_cells(ours), masked_cells(others));
        assert_eq!(ours.len(), others.len());
        for (one, other) in ours.into_iter().zip(others) {
            assert_eq!(one, other, "a masked cell of {:?} changes with labels", name_of(one.1));
            masked.insert(name_of(one.1).unwrap());
        }
    }
    let expected = ["games.crowd", "teams.city", "teams.founded"];
    assert_eq!(masked.iter().collect::<Vec<_>>(), expected);
}

/// The rows with the labels are in the contexts, unmasked, and so are what is made of them.
#[test]
fn p7_labels_that_are_rows_stay_unmasked_in_the_contexts() {
    let (_folder, store) = league(false);
    let sampler = sampler(&store, &settings(&store), (0, 1), PLAIN).unwrap();
    let all = batches(&sampler);
    for table in ["next labels", "margin labels", "grade labels", "back labels"] {
        let metadata = store.table(table).unwrap().metadata();
        let columns: Vec<i32> = metadata.columns.iter().map(|of| of.index as i32).collect();
        let mut seen = 0;
        for batch in &all {
            let cells = batch.get::<i32>("column_ids").unwrap().iter();
            let cells = cells.zip(batch.get::<u8>("is_masked").unwrap());
            let padding = batch.get::<u8>("is_padding").unwrap();
            for ((column, &is_masked), &is_padding) in cells.zip(padding) {
                if columns.contains(column) && is_padding == 0 {
                    assert_eq!(is_masked, 0, "a cell of {table:?} is masked");
                    seen += 1;
                }
            }
        }
        assert!(seen > 100, "{seen} cells of {table:?}");
    }
}

#[test]
fn p7_a_pool_of_labels_is_rejected_by_its_task() {
    let (_folder, store) = league(false);
    let rejected = |table: &str| {
        let pools = vec![Pool { table: table.to_owned(), obs_time: None }];
        let settings = Settings { tasks: None, pools, ..settings(&store) };
        let error = sampler(&store, &settings, (0, 1), PLAIN).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.to_string()
    };
    for table in ["next labels", "league/next labels"] {
        assert_eq!(
            rejected(table),
            format!(
                "pools: expected a table without labels, found {table:?}, whose rows are the labels of task \
                 \"next\", those of test seeds, too; name another table, such as \"teams\""
            )
        );
    }
    let unknown = rejected("labels");
    assert!(
        unknown.ends_with("no table is called \"labels\"; name one of league/teams, league/games"),
        "{unknown}"
    );
}
