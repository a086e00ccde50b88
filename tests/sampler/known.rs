//! P7 of columns that are known later than their rows, and of columns that a task hides.

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
columns = { id = "identifier" }

[[table]]
name = "matches"
key = "id"
time = { column = "kickoff" }
references = [{ columns = "team", to = "teams" }]

[table.columns]
id = "identifier"
kickoff = "timestamp"
finished = "ignored"
team = "identifier"
won = { type = "boolean", known = { at = "finished" } }
crowded = { type = "boolean", known = { delay = "3 hours" } }
shootout = "boolean"

[[aggregate]]
table = "matches"
reference = "team"
columns = ["crowded", "shootout"]
windows = ["20 hours", "ever"]

[[summary]]
table = "matches"
columns = "shootout"
period = "day"

[[task]]
name = "won"
cell = { table = "matches", column = "won", hide = "shootout" }

[[task]]
name = "next"
derived = { anchor = "teams", source = "next", key = "team", time = "at", target = "y", type = "boolean" }
"#;

const HOUR: i64 = 3_600_000_000;
const HOURS: u64 = 200;
const TEAMS: u64 = 4;

#[derive(Clone, Debug, PartialEq)]
struct Match {
    /// Hours; none for a match that was never finished.
    kickoff: i64,
    finished: Option<i64>,
    team: i64,
    won: bool,
    crowded: bool,
    shootout: bool,
}

fn matches(seed: u64, count: usize) -> Vec<Match> {
    let mut random = Stream::new(seed, Purpose::Split, [0x3a7c, 0, 0]);
    let mut below = |bound| random.below(bound) as i64;
    let mut one = |_| {
        let kickoff = below(HOURS);
        let finished = (below(5) > 0).then(|| kickoff + below(9));
        let [won, crowded, shootout] = [(); 3].map(|()| below(2) == 1);
        Match { kickoff, finished, team: below(TEAMS), won, crowded, shootout }
    };
    (0..count).map(&mut one).collect()
}

/// The matches as they might have been for somebody who knows, at hour `now`, what is known then, and of
/// match `asked` not who won or whether there was a shootout.
fn perturbed(matches: &[Match], seed: u64, now: i64, asked: Option<usize>) -> Vec<Match> {
    let mut random = Stream::new(seed, Purpose::Split, [0x3a7c, 1, 0]);
    let mut below = |bound| random.below(bound) as i64;
    let change = |(number, old): (usize, &Match)| {
        let mut new = old.clone();
        if old.kickoff > now {
            new.kickoff += below(50);
            (new.team, new.shootout) = (below(TEAMS), below(2) == 1);
        }
        if old.kickoff + 3 > now {
            new.crowded = !old.crowded;
        }
        if old.finished.is_none_or(|finished| finished > now) {
            new.won = !old.won;
            // It is still not finished at this hour.
            new.finished = [None, Some(now + 1 + below(20))][below(2) as usize];
        }
        if asked == Some(number) {
            (new.won, new.shootout) = (!old.won, !old.shootout);
        }
        new
    };
    matches.iter().enumerate().map(change).collect()
}

fn store(matches: &[Match]) -> (tempfile::TempDir, Arc<Store>) {
    let ids = |count: usize| (0..count as i64).map(Value::Integer).collect::<Vec<_>>();
    let of = |value: &dyn Fn(&Match) -> Value| matches.iter().map(value).collect::<Vec<_>>();
    let hour = |hour: i64| Value::Time(hour * HOUR);
    let columns = vec![
        ("id", ids(matches.len())),
        ("kickoff", of(&|m| hour(m.kickoff))),
        ("finished", of(&|m| m.finished.map_or(Value::Null, hour))),
        ("team", of(&|m| Value::Integer(m.team))),
        ("won", of(&|m| Value::Truth(m.won))),
        ("crowded", of(&|m| Value::Truth(m.crowded))),
        ("shootout", of(&|m| Value::Truth(m.shootout))),
    ];
    let seeds = vec![
        ("team", vec![Value::Integer(0)]),
        ("at", vec![hour(0)]),
        ("y", vec![Value::Truth(true)]),
    ];
    let teams = vec![("id", ids(TEAMS as usize))];
    let tables = [("teams", teams), ("matches", columns), ("next", seeds)];
    let (folder, store) = stores::store_of(&Database::new(SCHEMA, tables), &[usize::MAX]);
    (folder, Arc::new(store))
}

fn sampled(
    matches: &[Match],
    settings: &Settings,
    task: &str,
    seed: (u32, i64),
) -> Vec<(&'static str, Vec<u8>)> {
    let (_folder, store) = store(matches);
    let sampler = sampler(&store, settings, (0, 1), PLAIN).unwrap();
    content_without_label(&sampler.sample(task, &[seed]).unwrap(), &["bool_values"])
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn p7_no_byte_tells_of_a_value_before_it_is_known(
        seed in any::<u64>().no_shrink(),
        count in 2_usize..80,
        asked in any::<proptest::sample::Index>(),
        later in 0_i64..60,
        walk in walk(),
        rows in proptest::sample::select(vec![Aggregates::Near, Aggregates::All]),
    ) {
        let shape = Shape {
            batch_size: 1, sequence_length: 200, max_rows: 60, compact: true,
            ..Settings::default().shape
        };
        let settings = Settings { seed, walk, shape, aggregates: rows, ..Settings::default() };
        let (ours, asked) = (matches(seed, count), asked.index(count));
        // A match is asked about when it begins, and later.
        for now in [ours[asked].kickoff, ours[asked].kickoff + later] {
            let other = perturbed(&ours, seed, now, Some(asked));
            let seeds = (asked as u32, now * HOUR);
            let expected = sampled(&ours, &settings, "won", seeds);
            prop_assert!(expected == sampled(&other, &settings, "won", seeds));
        }
        let now = ours[asked].kickoff + later;
        let other = perturbed(&ours, seed, now, None);
        let seeds = (seed as u32 % TEAMS as u32, now * HOUR);
        let expected = sampled(&ours, &settings, "next", seeds);
        prop_assert!(expected == sampled(&other, &settings, "next", seeds));
        let frozen = Settings { visible_until: Some(now * HOUR), ..settings };
        let seeds = (seeds.0, i64::MAX);
        prop_assert!(expected == sampled(&other, &frozen, "next", seeds));
    }
}

/// A value is in the context from the microsecond on in which it is known; the row always was.
#[test]
fn p7_a_value_is_in_the_context_once_it_is_known() {
    let one = |kickoff, finished, team| {
        let (won, crowded, shootout) = (true, true, true);
        Match { kickoff, finished, team, won, crowded, shootout }
    };
    let all = [one(10, Some(15), 1), one(11, None, 1), one(12, Some(12), 2)];
    let (_folder, store) = store(&all);
    let sampler = sampler(&store, &Settings::default(), (0, 1), PLAIN).unwrap();
    let index = |name: &str| {
        let columns = &store.table("matches").unwrap().metadata().columns;
        columns.iter().find(|column| column.name == name).unwrap().index as i32
    };
    let seen = |name: &str, task: &str, seed: u32, obs_time: i64| {
        let batch = sampler.sample(task, &[(seed, obs_time)]).unwrap();
        let columns = batch.get::<i32>("column_ids").unwrap().iter();
        let is_padding = batch.get::<u8>("is_padding").unwrap();
        let is_null = batch.get::<u8>("is_null").unwrap();
        let own = columns.zip(is_padding).zip(is_null);
        let own = own.filter(|((column, padding), _)| **column == index(name) && **padding == 0);
        own.map(|(_, is_null)| *is_null == 0).collect::<Vec<_>>()
    };
    let of_team = |name, obs_time| seen(name, "next", 1, obs_time).iter().filter(|s| **s).count();
    assert_eq!(seen("won", "next", 1, 11 * HOUR).len(), 2);
    assert_eq!(of_team("won", 15 * HOUR - 1), 0);
    assert_eq!(of_team("won", 15 * HOUR), 1);
    // What was never finished is known to a seed that sees everything alone.
    assert_eq!(of_team("won", 1_000_000 * HOUR), 1);
    assert_eq!(of_team("won", i64::MAX), 2);
    assert_eq!(of_team("crowded", 13 * HOUR - 1), 0);
    assert_eq!(of_team("crowded", 13 * HOUR), 1);
    assert_eq!(of_team("crowded", 14 * HOUR), 2);
    // The seed row hides its own shootout at any time, and sees those of its siblings.
    let own = seen("shootout", "won", 0, 100 * HOUR);
    assert_eq!((own[0], own[1]), (false, true));
}
