//! P7 of summaries: which rows a seed may see, and that none of them tells of the label.

use std::sync::Arc;

use headwater::sampler::{Children, Settings, Shape, Walk};
use headwater::store::{NEVER_VISIBLE, Seed, Store, SummaryMetadata, TargetMetadata};

use crate::database::{Database, Value};
use crate::twin::Served;
use crate::{PLAIN, sampler, stores};

/// A table and a row of it.
pub(crate) type Place = (usize, u32);

/// The seed: its row, its observation time, and the columns of its table that it hides.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) seed: Place,
    pub(crate) obs_time: i64,
    pub(crate) hidden: Vec<u32>,
}

impl Asked {
    pub(crate) fn of(store: &Store, served: Served, seed: &Seed) -> Self {
        let hidden = match served.target(store) {
            Some(TargetMetadata::Cell { column, hide }) => {
                hide.iter().copied().chain([*column]).collect()
            }
            Some(TargetMetadata::Derived { .. }) | None => vec![],
        };
        Self { seed: (served.anchor(store), seed.row), obs_time: seed.obs_time, hidden }
    }

    /// Whether a row of a summary is known: its period has ended by the observation and, where the
    /// summary is of what the seed hides, before the seed's own row came to be known.
    pub(crate) fn sees(&self, store: &Store, summary: &SummaryMetadata, end: i64) -> bool {
        let own = store.tables()[self.seed.0].row(self.seed.1).unwrap().time();
        let has_target = summary.of as usize == self.seed.0
            && self.hidden.iter().any(|column| summary.columns.contains(column));
        let is_earlier = own != i64::MIN && own != NEVER_VISIBLE && end <= own;
        end <= self.obs_time && (!has_target || is_earlier)
    }

    /// The latest row that is known of each summary without parents, and its relation.
    pub(crate) fn summary_rows(&self, store: &Store) -> Vec<(usize, Place)> {
        let relations = store.relations().len();
        let of_no_parent =
            store.metadata().summaries.iter().filter(|s| s.relation as usize >= relations);
        let latest = |(number, summary): (usize, &SummaryMetadata)| {
            let table = &store.tables()[summary.table as usize];
            let rows = (0..table.row_count()).map(|row| (table.row(row).unwrap().time(), row));
            let (_, row) = rows.filter(|&(end, _)| self.sees(store, summary, end)).max()?;
            Some((relations + number, (summary.table as usize, row)))
        };
        of_no_parent.enumerate().filter_map(latest).collect()
    }
}

/// The summary whose rows are the children through a relation.
pub(crate) fn summary_of(store: &Store, relation: usize) -> Option<&SummaryMetadata> {
    store.metadata().summaries.iter().find(|summary| summary.relation as usize == relation)
}

const SCHEMA: &str = r#"
database = "league"

[[table]]
name = "teams"
key = "id"
columns = { id = "identifier", city = "categorical" }

[[table]]
name = "games"
key = "id"
time = { column = "at", delay = "1 hour" }
columns = { id = "identifier", at = "timestamp", team = "identifier", won = "boolean", goals = "numerical" }
references = [{ columns = "team", to = "teams" }]

[[summary]]
table = "games"
columns = ["won", "goals"]
period = "day"

[[summary]]
table = "games"
columns = "won"
period = "day"
by = "team"

[[summary]]
table = "games"
columns = "goals"
period = "week"

[[task]]
name = "won"
cell = { table = "games", column = "won" }
sees_everything = true

[[task]]
name = "next"
derived = { anchor = "teams", source = "next", key = "team", time = "at", target = "y", type = "boolean" }
"#;

const HOUR: i64 = 3_600_000_000;
const DAY: i64 = 24 * HOUR;
/// A Monday.
const START: i64 = 4 * DAY;

/// A game of each of two teams at noon of each of ten days, and one without a time. Game 2 d + t is that
/// of team t on day d, and team 1 won on even days, team 0 never.
fn league() -> (tempfile::TempDir, Arc<Store>) {
    let games = 0..21;
    let column = |value: fn(i64) -> Value| games.clone().map(value).collect::<Vec<_>>();
    let at = |game: i64| match game {
        20 => Value::Null,
        game => Value::Time(START + game / 2 * DAY + 12 * HOUR),
    };
    let games = vec![
        ("id", column(Value::Integer)),
        ("at", column(at)),
        ("team", column(|game| Value::Integer(game % 2))),
        ("won", column(|game| Value::Truth(game % 4 == 1))),
        ("goals", column(|game| Value::Number(game as f64))),
    ];
    let ids = vec![Value::Integer(0), Value::Integer(1)];
    let cities = ["Ulm", "Bonn"].map(|city| Value::Word(city.into())).to_vec();
    let next = vec![
        ("team", ids.clone()),
        ("at", vec![Value::Time(START + 2 * DAY); 2]),
        ("y", vec![Value::Truth(true), Value::Truth(false)]),
    ];
    let tables = [("teams", vec![("id", ids), ("city", cities)]), ("games", games), ("next", next)];
    let (folder, store) = stores::store_of(&Database::new(SCHEMA, tables), &[usize::MAX]);
    (folder, Arc::new(store))
}

/// The day, from the first one, at whose end each summary's row ends in a context, by its relation's
/// name, with the hop of the row.
fn days_in(
    store: &Arc<Store>,
    settings: &Settings,
    task: &str,
    seed: (u32, i64),
) -> Vec<(String, i64, u16)> {
    let sampler = sampler(store, settings, (0, 1), PLAIN).unwrap();
    let batch = sampler.sample(task, &[seed]).unwrap();
    let of_summary = |relation: i32| {
        store.metadata().summaries.iter().any(|summary| summary.relation as i32 == relation)
    };
    let relations = batch.get::<i32>("row_relation").unwrap();
    let times = batch.get::<i64>("row_time").unwrap();
    let hops = batch.get::<u16>("row_hop").unwrap();
    let rows = 1..batch.get::<i32>("num_rows").unwrap()[0] as usize;
    let mut found: Vec<_> = rows
        .filter(|&row| of_summary(relations[row]))
        .map(|row| {
            let day = (times[row] - START) / DAY - 1;
            (store.relation_name(relations[row] as usize), day, hops[row])
        })
        .collect();
    found.sort();
    found
}

fn named(found: &[(String, i64, u16)], name: &str) -> Vec<i64> {
    found.iter().filter(|(found, ..)| found == name).map(|(_, day, _)| *day).collect()
}

const OF_ALL: &str = "games by day";
const OF_TEAM: &str = "games by day and team.team";
const OF_GOALS: &str = "games by week";

fn settings() -> Settings {
    let shape = Shape { batch_size: 1, ..Settings::default().shape };
    Settings { shape, ..Settings::default() }
}

#[test]
fn a_context_has_the_latest_period_of_each_summary() {
    let (_folder, store) = league();
    for (time, day) in [(3 * DAY, 2), (4 * DAY - 1, 2), (4 * DAY, 3)] {
        let found = days_in(&store, &settings(), "next", (1, START + time));
        assert_eq!(named(&found, OF_ALL), [day]);
        assert_eq!(named(&found, OF_TEAM), [day]);
        assert!(named(&found, OF_GOALS).is_empty());
        assert!(found.iter().all(|(.., hop)| *hop == 1));
    }
    let found = days_in(&store, &settings(), "next", (1, START + 7 * DAY));
    assert_eq!(named(&found, OF_GOALS), [6]);
    // Before the first period has ended there is nothing to see.
    assert!(days_in(&store, &settings(), "next", (1, START + DAY - 1)).is_empty());
    let wide = Settings { child_widths: vec![(OF_TEAM.into(), 3)], ..settings() };
    let found = days_in(&store, &wide, "next", (1, START + 9 * DAY));
    assert_eq!((named(&found, OF_TEAM), named(&found, OF_ALL)), (vec![6, 7, 8], vec![8]));
    let none = Settings { child_widths: vec![(OF_TEAM.into(), 0)], ..settings() };
    let found = days_in(&store, &none, "next", (1, START + 9 * DAY));
    assert!(named(&found, OF_TEAM).is_empty());
}

#[test]
fn p7_no_summary_tells_of_the_seeds_own_target() {
    let (_folder, store) = league();
    for walk in [
        Settings::default().walk,
        Walk::Priority { child_width: 2, children: Children::Latest },
        Walk::Breadth { max_hops: 3, budget: 30 },
    ] {
        let settings = Settings { walk, ..settings() };
        // The game of team 1 on day 4, the only one of its team in that period.
        let game = 9;
        for obs_time in [START + 4 * DAY + 13 * HOUR, START + 5 * DAY, START + 9 * DAY, i64::MAX] {
            let found = days_in(&store, &settings, "won", (game, obs_time));
            assert_eq!(named(&found, OF_ALL), [3], "{walk:?}");
            let of_teams = named(&found, OF_TEAM);
            assert!(!of_teams.is_empty() && of_teams.iter().all(|&day| day <= 3), "{of_teams:?}");
        }
        // Goals do not tell who won.
        let found = days_in(&store, &settings, "won", (game, i64::MAX));
        assert_eq!(named(&found, OF_GOALS), [13]);
        // Nobody knows what was before a game without a time.
        let found = days_in(&store, &settings, "won", (20, i64::MAX));
        assert!(found.iter().all(|(name, ..)| name == OF_GOALS), "{found:?}");
    }
}

#[test]
fn summaries_count_as_rows_and_cells() {
    let (_folder, store) = league();
    let seed = (1, START + 8 * DAY);
    let with = |max_rows, sequence_length| {
        let shape = Shape { max_rows, sequence_length, ..settings().shape };
        days_in(&store, &Settings { shape, ..settings() }, "next", seed)
    };
    assert!(with(1, 100).is_empty());
    let names = |found: Vec<(String, i64, u16)>| -> Vec<String> {
        found.into_iter().map(|(name, ..)| name).collect()
    };
    assert_eq!(names(with(2, 100)), [OF_ALL]);
    assert_eq!(names(with(3, 100)), [OF_ALL, OF_GOALS]);
    // The seed has three cells, with its target; the summaries 6 and 5.
    assert_eq!(names(with(100, 9)), [OF_ALL]);
    assert_eq!(names(with(100, 10)), [OF_ALL, OF_GOALS]);
    assert_eq!(names(with(100, 14)), [OF_ALL, OF_GOALS]);
}

/// Every number of a relation in a batch has a vector.
#[test]
fn a_batch_refers_to_relations_with_vectors() {
    let (_folder, store) = league();
    let metadata = store.metadata();
    let sampler = sampler(&store, &settings(), (0, 1), PLAIN).unwrap();
    let batch = sampler.sample("won", &[(9, START + 8 * DAY)]).unwrap();
    let vectors = store.relation_embeddings().unwrap().len() / stores::DIMENSION;
    assert_eq!(vectors, metadata.relations.len() + 2);
    let edges = batch.get::<i32>("fk_relations").unwrap();
    assert!(edges.iter().all(|&relation| (relation as usize) < vectors));
    let of_summaries: Vec<_> = edges.iter().filter(|&&edge| edge as usize >= vectors - 2).collect();
    assert_eq!(of_summaries, [&(vectors as i32 - 2), &(vectors as i32 - 1)]);
    let columns = batch.get::<i32>("column_ids").unwrap();
    assert!(columns.iter().all(|&column| (column as u32) < metadata.embedding.column_count));
    // A game refers to its team and to two summaries.
    let rows = batch.get::<i64>("row_time").unwrap().len();
    assert_eq!(edges.len(), rows * 3);
}
