//! P7 by perturbation: whatever changes after the observation time, and whatever the label is, no
//! other byte of the batch changes.

use std::sync::Arc;

use headwater::random::{Purpose, Stream};
use headwater::sampler::{Aggregates, Settings, Shape};
use headwater::store::Store;
use proptest::prelude::*;

use crate::cases::{cases, walk};
use crate::database::{Database, Value};
use crate::{PLAIN, content_without_label, sampler, stores};

const SCHEMA: &str = r#"
database = "league"

[[table]]
name = "teams"
key = "id"
columns = { id = "identifier", city = "categorical" }

[[table]]
name = "games"
key = "id"
time = { column = "at", delay = "8 hours" }
columns = { id = "identifier", at = "timestamp", home = "identifier", away = "identifier", won = "boolean" }
references = [{ columns = "home", to = "teams" }, { columns = "away", to = "teams" }]

[[aggregate]]
table = "games"
reference = "home"
columns = "won"
windows = ["80 hours", "ever"]

[[aggregate]]
table = "games"
reference = "away"
columns = "won"
windows = ["1 us", "360 hours"]

[[aggregate]]
table = "next labels"
reference = "team"
columns = "y"
windows = ["120 hours", "ever"]

[[summary]]
table = "games"
columns = "won"
period = "day"

[[summary]]
table = "games"
columns = "won"
period = "week"
by = "home"

[[summary]]
table = "games"
period = "month"
by = "away"

[[summary]]
table = "next labels"
columns = "y"
period = "day"

[[summary]]
table = "next labels"
columns = "y"
period = "week"
by = "team"

[[task]]
name = "won"
cell = { table = "games", column = "won" }

[[task]]
name = "next"
derived = { anchor = "teams", source = "next", key = "team", time = "at", target = "y", type = "boolean", horizon = "20 hours" }
"#;

/// Four hours.
const TICK: i64 = 14_400_000_000;
/// Some games are on at the same tick.
const TICKS: u64 = 150;
const TEAMS: u64 = 6;

#[derive(Clone, PartialEq)]
struct Game {
    tick: i64,
    teams: [i64; 2],
    /// NULL for a game that was called off.
    won: Option<bool>,
}

/// A seed of the task `next`.
#[derive(Clone, PartialEq)]
struct Label {
    team: i64,
    tick: i64,
    y: bool,
}

/// The ticks from an observation until the label is known.
const HORIZON: i64 = 5;

fn labels(seed: u64, count: usize) -> Vec<Label> {
    let mut random = Stream::new(seed, Purpose::Split, [0x1abe1, 0, 0]);
    let mut below = |bound| random.below(bound) as i64;
    (0..count).map(|_| Label { team: below(TEAMS), tick: below(TICKS), y: below(2) == 1 }).collect()
}

/// The labels as they might have been for somebody who knows those up to tick `now`.
fn other_labels(labels: &[Label], seed: u64, now: i64) -> Vec<Label> {
    let mut random = Stream::new(seed, Purpose::Split, [0x1abe1, 1, 0]);
    let mut below = |bound| random.below(bound) as i64;
    let change = |label: &Label| match label.tick + HORIZON > now {
        false => label.clone(),
        true => Label { team: below(TEAMS), tick: label.tick + below(30), y: !label.y },
    };
    labels.iter().map(change).collect()
}

fn games(seed: u64, count: usize) -> Vec<Game> {
    let mut random = Stream::new(seed, Purpose::Split, [0x6a3e, 0, 0]);
    let mut below = |bound| random.below(bound) as i64;
    (0..count)
        .map(|_| Game {
            tick: below(TICKS),
            teams: [below(TEAMS), below(TEAMS)],
            won: [None, Some(true), Some(false), Some(true)][below(4) as usize],
        })
        .collect()
}

/// The games as they might have been for somebody who knows them up to tick `now`, and the result
/// of game `asked` not at all.
fn perturbed(games: &[Game], seed: u64, now: i64, asked: Option<usize>) -> Vec<Game> {
    let mut random = Stream::new(seed, Purpose::Split, [0x0ddb, 0, 0]);
    let mut below = |bound| random.below(bound) as i64;
    let change = |(number, game): (usize, &Game)| {
        let mut game = game.clone();
        if game.tick + 2 > now {
            game.tick += below(30);
            game.teams = [below(TEAMS), below(TEAMS)];
            game.won = [None, Some(true), Some(false)][below(3) as usize];
        }
        if asked == Some(number) {
            game.teams = games[number].teams;
            game.tick = games[number].tick;
            game.won = Some(games[number].won != Some(true));
        }
        game
    };
    games.iter().enumerate().map(change).collect()
}

fn store(games: &[Game], labels: &[Label]) -> (tempfile::TempDir, Arc<Store>) {
    let mut tables = Vec::new();
    let ids = |count: usize| (0..count as i64).map(Value::Integer).collect::<Vec<_>>();
    let cities = (0..TEAMS).map(|team| Value::Word(format!("city {team}"))).collect();
    tables.push(("teams", vec![("id", ids(TEAMS as usize)), ("city", cities)]));
    let team = |side: usize| games.iter().map(|g| Value::Integer(g.teams[side])).collect();
    let at = games.iter().map(|game| Value::Time(game.tick * TICK)).collect();
    let won = games.iter().map(|game| game.won.map_or(Value::Null, Value::Truth)).collect();
    tables.push((
        "games",
        vec![
            ("id", ids(games.len())),
            ("at", at),
            ("home", team(0)),
            ("away", team(1)),
            ("won", won),
        ],
    ));
    let team = labels.iter().map(|label| Value::Integer(label.team)).collect();
    let at = labels.iter().map(|label| Value::Time(label.tick * TICK)).collect();
    let y = labels.iter().map(|label| Value::Truth(label.y)).collect();
    tables.push(("next", vec![("team", team), ("at", at), ("y", y)]));
    let (folder, store) = stores::store_of(&Database::new(SCHEMA, tables), &[usize::MAX]);
    (folder, Arc::new(store))
}

/// Returns the contents for one seed of `task`, and the aggregates that are not NULL in them.
fn sampled(
    (games, labels): (&[Game], &[Label]),
    settings: &Settings,
    task: &str,
    seed: (u32, i64),
) -> (Vec<(&'static str, Vec<u8>)>, usize) {
    let (_folder, store) = store(games, labels);
    let sampler = sampler(&store, settings, (0, 1), PLAIN).unwrap();
    let batch = sampler.sample(task, &[seed]).unwrap();
    let first = store.metadata().aggregates[0].index as i32;
    let columns = batch.get::<i32>("column_ids").unwrap();
    let is_null = batch.get::<u8>("is_null").unwrap();
    let known =
        columns.iter().zip(is_null).filter(|(column, null)| **column >= first && **null == 0);
    (content_without_label(&batch, &["bool_values", "is_null"]), known.count())
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn p7_no_byte_tells_of_the_future_or_of_the_label(
        seed in any::<u64>().no_shrink(),
        count in 2_usize..120,
        asked in any::<proptest::sample::Index>(),
        now in 0..TICKS as i64,
        walk in walk(),
        rows in proptest::sample::select(vec![Aggregates::Near, Aggregates::All]),
    ) {
        let shape = Shape {
            batch_size: 1, sequence_length: 200, max_rows: 60, compact: true,
            ..Settings::default().shape
        };
        let settings = Settings { seed, walk, shape, aggregates: rows, ..Settings::default() };
        let (games, labels) = (games(seed, count), labels(seed, count));
        let asked = asked.index(count);
        // A game is asked about when it is known, but for its result.
        let known = games[asked].tick + 2;
        let other = perturbed(&games, seed, known, Some(asked));
        prop_assert!(games != other);
        let (ours, others) = ((&*games, &*labels), other_labels(&labels, seed, known));
        let seeds = (asked as u32, known * TICK);
        let (expected, aggregates) = sampled(ours, &settings, "won", seeds);
        prop_assert!(aggregates > 0);
        prop_assert_eq!(expected, sampled((&other, &others), &settings, "won", seeds).0);
        // Observed later, and by a seed that sees everything, still nothing tells of the result.
        for (later, obs_time) in [(known + 40, (known + 40) * TICK), (1 << 40, i64::MAX)] {
            let other = perturbed(&games, seed, later, Some(asked));
            let others = other_labels(&labels, seed, later);
            let seeds = (asked as u32, obs_time);
            let (expected, _) = sampled(ours, &settings, "won", seeds);
            prop_assert_eq!(expected, sampled((&other, &others), &settings, "won", seeds).0);
        }
        let (other, others) = (perturbed(&games, seed, now, None), other_labels(&labels, seed, now));
        let other = (&*other, &*others);
        let seeds = (seed as u32 % TEAMS as u32, now * TICK);
        let (expected, aggregates) = sampled(ours, &settings, "next", seeds);
        prop_assert!(aggregates > 0);
        prop_assert_eq!(&expected, &sampled(other, &settings, "next", seeds).0);
        // Asked about later, but with all knowledge of that time.
        let frozen = Settings { visible_until: Some(now * TICK), ..settings };
        for later in [now * TICK + 1, i64::MAX] {
            prop_assert_eq!(&expected, &sampled(other, &frozen, "next", (seeds.0, later)).0);
        }
    }
}

/// A mean over all siblings but the seed would tell, beside the means of the siblings, the seed's own
/// value. So means of targets are those of earlier siblings.
#[test]
fn p7_a_mean_of_targets_does_not_tell_the_label() {
    let game = |tick| Game { tick, teams: [1, 2], won: Some(tick % 2 == 0) };
    let games: Vec<_> = [3, 3, 3, 8, 8].map(game).to_vec();
    let (_folder, store) = store(&games, &labels(0, 1));
    let sampler = sampler(&store, &Settings::default(), (0, 1), PLAIN).unwrap();
    let mean_of = |game: u32, obs_time: i64| {
        let batch = sampler.sample("won", &[(game, obs_time)]).unwrap();
        let name = "games by home: mean of won";
        let index = store.metadata().aggregates.iter().find(|a| a.name == name).unwrap().index;
        let columns = batch.get::<i32>("column_ids").unwrap();
        let at = columns.iter().position(|&column| column == index as i32).unwrap();
        let is_null = batch.get::<u8>("is_null").unwrap()[at] == 1;
        (!is_null).then(|| batch.get::<f32>("numeric_values").unwrap()[at])
    };
    for obs_time in [10 * TICK, 100 * TICK, i64::MAX] {
        for of_the_first in 0..3 {
            assert_eq!(mean_of(of_the_first, obs_time), None);
        }
        for later in 3..5 {
            assert_eq!(mean_of(later, obs_time), Some(0.0));
        }
    }
}

#[test]
fn p7_a_label_is_a_row_of_the_context_from_its_horizon_on() {
    let label = |tick| Label { team: 1, tick, y: tick == 20 };
    let labels = [10, 20, 30].map(label);
    let (_folder, store) = store(&games(1, 2), &labels);
    let table = store.tables().iter().find(|t| t.metadata().name == "next labels").unwrap();
    let column = table.metadata().columns.iter().find(|column| column.name == "y").unwrap();
    let sampler = sampler(&store, &Settings::default(), (0, 1), PLAIN).unwrap();
    for (obs_time, expected) in [
        (15 * TICK - 1, vec![]),
        (15 * TICK, vec![0]),
        (25 * TICK - 1, vec![0]),
        (25 * TICK, vec![0, 1]),
        (35 * TICK, vec![0, 0, 1]),
    ] {
        let batch = sampler.sample("next", &[(1, obs_time)]).unwrap();
        let columns = batch.get::<i32>("column_ids").unwrap().iter();
        let values = batch.get::<u8>("bool_values").unwrap();
        let mut found: Vec<u8> = columns
            .zip(values)
            .filter(|(found, _)| **found == column.index as i32)
            .map(|(_, value)| *value)
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected, "observed at {obs_time}");
        // Another team has no label.
        let batch = sampler.sample("next", &[(2, obs_time)]).unwrap();
        let is_label = |found: &&i32| **found == column.index as i32;
        assert_eq!(batch.get::<i32>("column_ids").unwrap().iter().filter(is_label).count(), 0);
    }
}
