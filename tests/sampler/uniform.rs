//! A walk draws its children uniformly, and many seeds are divided into the splits once.

use std::sync::Arc;

use headwater::plan::Split;
use headwater::sampler::{Children, Settings, Shape, Walk};

use crate::database::{Database, Value};
use crate::{PLAIN, sampler, stores};

const SCHEMA: &str = r#"
database = "family"

[[table]]
name = "parents"
key = "id"
columns = { id = "identifier" }

[[table]]
name = "children"
key = "id"
time = { column = "born" }
columns = { id = "identifier", born = "timestamp", parent = "identifier" }
references = [{ columns = "parent", to = "parents" }]

[[task]]
name = "next"
derived = { anchor = "parents", source = "next", key = "parent", time = "at", target = "y", type = "boolean" }
"#;

/// The children that the seeds see, and those that came to exist later.
const SEEN: usize = 50;
const UNBORN: usize = 10;
const WIDTH: u32 = 5;
const SEEDS: u32 = 20_000;

/// One parent of many children, each a second younger than the one before, and seeds that see most
/// of them.
fn family() -> Database {
    let rows = (SEEN + UNBORN) as i64;
    let integers = |values: Vec<i64>| values.into_iter().map(Value::Integer).collect::<Vec<_>>();
    let parents = vec![("id", integers(vec![7]))];
    let children = vec![
        ("id", integers((0..rows).collect())),
        ("born", (0..rows).map(|row| Value::Time(row * 1_000_000)).collect()),
        ("parent", integers(vec![7; rows as usize])),
    ];
    let seeds = SEEDS as usize;
    let next = vec![
        ("parent", integers(vec![7; seeds])),
        ("at", vec![Value::Time((SEEN as i64 - 1) * 1_000_000); seeds]),
        ("y", (0..seeds).map(|seed| Value::Truth(seed % 2 == 0)).collect()),
    ];
    Database::new(SCHEMA, [("parents", parents), ("children", children), ("next", next)])
}

/// Returns the distance of counts from uniform, as a sum of squares in units of the variance that
/// one of them would have if they were independent; each round counts `chosen` of all.
fn chi_square(counts: &[u32], chosen: u32) -> f64 {
    let (all, times) = (counts.len() as f64, f64::from(SEEDS));
    let share = f64::from(chosen) / all;
    // A chosen child leaves less room for the others; the factor at the end corrects for it.
    let variance = times * share * (1.0 - share) * all / (all - 1.0);
    counts.iter().map(|&count| (f64::from(count) - times * share).powi(2) / variance).sum()
}

/// For 49 degrees of freedom; chance exceeds it once in ten thousand times. The random seeds are
/// fixed, so that the result is the same every time.
const BOUND: f64 = 95.0;

#[test]
fn every_visible_child_is_equally_likely() {
    let (_folder, store) = stores::store_of(&family(), &[usize::MAX]);
    let store = Arc::new(store);
    let children = store.metadata().tables.iter().position(|t| t.name == "children").unwrap();
    let priority = Walk::Priority { child_width: WIDTH, children: Children::Uniform };
    for walk in [priority, Walk::Breadth { max_hops: 1, budget: WIDTH }] {
        let shape = Shape { max_rows: 100, ..Settings::default().shape };
        let settings = Settings { seed: 11, walk, shape, ..Settings::default() };
        let sampler = sampler(&store, &settings, (0, 1), PLAIN).unwrap();
        let (mut chosen, mut first) = ([0; SEEN], [0; SEEN]);
        for seed in 0..SEEDS {
            let context = sampler.context("next", seed).unwrap();
            let rows: Vec<usize> = (context.rows.iter())
                .filter(|row| row.table as usize == children)
                .map(|row| row.row as usize)
                .collect();
            assert_eq!(rows.len(), WIDTH as usize);
            rows.iter().for_each(|&row| chosen[row] += 1);
            first[rows[0]] += 1;
        }
        let (chosen, first) = (chi_square(&chosen, WIDTH), chi_square(&first, 1));
        assert!(chosen < BOUND && first < BOUND, "{walk:?}: {chosen}, of the first {first}");
    }
}

#[test]
fn each_of_many_seeds_is_served_in_its_split() {
    let (_folder, store) = stores::store_of(&family(), &[usize::MAX]);
    let sampler = sampler(&Arc::new(store), &Settings::default(), (0, 1), PLAIN).unwrap();
    let mut expected = [0_u64; 3];
    for seed in 0..SEEDS {
        expected[sampler.context("next", seed).unwrap().split as usize] += 1;
    }
    assert_eq!(Split::ALL.map(|split| sampler.seed_count(0, split)), expected);
}
