//! A context agrees with its batch, and counts the hidden neighbours of each row.

use headwater::ErrorKind;
use headwater::plan::Split;
use headwater::sampler::{
    Context, Link, Neighbours, Sampler, Settings, Unseen, Visit, Walk, WhyUnseen,
};
use headwater::store::{Cell, Seed, Store, Task, is_visible};

use crate::summaries::{Asked, summary_of};
use crate::twin::Served;
use crate::{PLAIN, random_store, sampler, sequences, small};

/// Finds the neighbours of a context's rows by reading every row of every table.
fn plain_links_and_neighbours(store: &Store, context: &Context) -> (Vec<Link>, Vec<Neighbours>) {
    let (mut links, mut neighbours) = (vec![], vec![]);
    let time = |table: u32, row: u32| store.tables()[table as usize].row(row).unwrap().time();
    let sees = |table: u32, row: u32| is_visible(time(table, row), context.obs_time);
    let (_, name) = context.task.split_once('/').unwrap();
    let task = store.tasks().iter().position(|task| task.metadata().name == name).unwrap();
    let Context { obs_time, target, .. } = *context;
    let seed = Seed { row: context.rows[0].row, obs_time, target, split: None };
    let asked = Asked::of(store, Served::Task(task), &seed);
    for (place, visit) in (0..).zip(&context.rows) {
        if !sees(visit.table, visit.row) {
            continue;
        }
        for is_parent in [true, false] {
            // The seed refers to summaries as to parents, after all others.
            for (relation, row) in asked.summary_rows(store) {
                if place == 0 && !is_parent {
                    let at = |v: &Visit| (v.table as usize, v.row) == row;
                    let (relation, is_parent) = (relation as u32, true);
                    let found = context.rows.iter().position(at);
                    links.extend(found.map(|at| Link { child: 0, parent: at as u32, relation }));
                    neighbours.push(Neighbours {
                        place,
                        relation,
                        is_parent,
                        visible: 1,
                        hidden: 0,
                    });
                }
            }
            for (number, relation) in (0..).zip(store.relations()) {
                let ends = (relation.metadata().child, relation.metadata().parent);
                let (own, other) = if is_parent { ends } else { (ends.1, ends.0) };
                if own != visit.table {
                    continue;
                }
                let refers = |child: u32, parent: u32| {
                    let record = store.tables()[ends.0 as usize].row(child).unwrap();
                    relation.parent(&record).unwrap() == Some(parent)
                };
                let all = 0..store.tables()[other as usize].row_count();
                let linked: Vec<u32> = all
                    .filter(|&row| match is_parent {
                        true => refers(visit.row, row),
                        false => refers(row, visit.row),
                    })
                    .collect();
                let is_known = |row: u32| match summary_of(store, number as usize) {
                    None => sees(other, row),
                    Some(summary) => asked.sees(store, summary, time(other, row)),
                };
                let visible = linked.iter().filter(|&&row| is_known(row)).count() as u64;
                let hidden = linked.len() as u64 - visible;
                if !linked.is_empty() {
                    neighbours.push(Neighbours {
                        place,
                        relation: number,
                        is_parent,
                        visible,
                        hidden,
                    });
                }
                let at = |row| context.rows.iter().position(|v| (v.table, v.row) == (other, row));
                if let (true, [row]) = (is_parent, &linked[..])
                    && let Some(parent) = at(*row)
                {
                    links.push(Link { child: place, parent: parent as u32, relation: number });
                }
            }
        }
    }
    (links, neighbours)
}

fn is_never_full(context: &Context, settings: &Settings) -> bool {
    context.cell_count < settings.shape.sequence_length as usize
        && context.rows.len() < settings.shape.max_rows as usize
}

/// Checks the links of a context against the store and the batch.
fn check(sampler: &Sampler, store: &Store, task: &str, seed_index: u32) -> Context {
    let context = sampler.context(task, seed_index).unwrap();
    let (links, neighbours) = plain_links_and_neighbours(store, &context);
    assert_eq!(context.links, links);
    assert_eq!(context.neighbours, neighbours);
    let batch = sampler.batch_of_seed(task, seed_index).unwrap();
    let rows = sampler.settings().shape.max_rows as usize;
    let mut matrix = vec![0_u8; rows * rows];
    for link in &links {
        matrix[link.child as usize * rows + link.parent as usize] = 1;
    }
    assert_eq!(batch.get::<u8>("fk_adj").unwrap()[..rows * rows], matrix);
    let weights = batch.get::<f32>("seq_weight").unwrap();
    assert!(weights[0] == 1.0 && weights[1..].iter().all(|&weight| weight == 0.0));
    context
}

/// Checks the unseen cells and the aggregates of a context against the store and the batch; returns how
/// many there are.
fn check_cells(sampler: &Sampler, store: &Store, task: usize, seed_index: u32) -> [usize; 3] {
    let metadata = store.tasks()[task].metadata();
    let context = sampler.context(&metadata.name, seed_index).unwrap();
    let batch = sampler.batch_of_seed(&metadata.name, seed_index).unwrap();
    let length = sampler.settings().shape.sequence_length as usize;
    let is_null = &batch.get::<u8>("is_null").unwrap()[..length];
    let Context { obs_time, target, .. } = context;
    let seed = Seed { row: context.rows[0].row, obs_time, target, split: None };
    let hidden = Asked::of(store, Served::Task(task), &seed).hidden;
    let is_derived = context.target_column.is_none();
    assert_eq!(context.task, format!("{}/{}", store.metadata().database, metadata.name));
    let (mut at, mut counts) = (0, [0; 3]);
    for (place, visit) in (0..).zip(&context.rows) {
        let table = &store.tables()[visit.table as usize];
        let record = table.row(visit.row).unwrap();
        for column in 0..table.metadata().columns.len() as u32 {
            let is_it = |unseen: &&Unseen| (unseen.place, unseen.column) == (place, column);
            let why = context.unseen.iter().find(is_it).map(|unseen| unseen.why);
            let is_hidden = place == 0 && hidden.contains(&column);
            let has_value = record.cell(column as usize) != Cell::Null;
            if place == 0 && context.target_column == Some(column) {
                assert_eq!(why, None, "the target");
            } else if is_hidden && has_value {
                assert_eq!(why, Some(WhyUnseen::HiddenByTask));
                counts[0] += 1;
            } else if at < length {
                let is_unseen = has_value && is_null[at] == 1;
                assert_eq!(why, is_unseen.then_some(WhyUnseen::KnownLater));
                counts[1] += usize::from(is_unseen);
            }
            at += 1;
        }
        at += usize::from(place == 0 && is_derived);
        for own in context.aggregates.iter().filter(|own| own.place == place) {
            if at < length {
                let index = store.metadata().aggregates[own.aggregate as usize].index;
                assert_eq!(batch.get::<i32>("column_ids").unwrap()[at], index as i32);
                let number = batch.get::<f32>("numeric_values").unwrap()[at];
                let in_batch = if is_null[at] == 1 { Cell::Null } else { Cell::Numerical(number) };
                assert_eq!(own.cell, in_batch);
                counts[2] += 1;
            }
            at += 1;
        }
    }
    assert_eq!(context.cell_count, at);
    let mut padding = batch.get::<u8>("is_padding").unwrap()[..length].iter();
    assert_eq!(padding.position(|&is| is == 1).unwrap_or(length), at.min(length));
    counts
}

#[test]
fn a_context_tells_what_the_batch_hides_and_adds() {
    let mut counts = [0; 3];
    for seed in 0..60 {
        let (_folder, store) = random_store(seed);
        let Ok(sampler) = sampler(&store, &small(seed), (0, 1), PLAIN) else { continue };
        for (number, task) in store.tasks().iter().enumerate() {
            for seed_index in 0..task.metadata().seed_count.min(8) {
                let found = check_cells(&sampler, &store, number, seed_index);
                counts.iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
            }
        }
        sampler.shutdown();
        let name = &store.tasks()[0].metadata().name;
        assert_eq!(sampler.context(name, 0).unwrap_err().kind(), ErrorKind::Shutdown);
    }
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
}

#[test]
fn hidden_counts_add_up() {
    let (mut hidden, mut all_found, mut less_found) = (0, 0, 0);
    for seed in 0..60 {
        let (_folder, store) = random_store(seed);
        let settings = small(seed);
        let Ok(sampler) = sampler(&store, &settings, (0, 1), PLAIN) else { continue };
        for task in store.tasks().iter().map(Task::metadata) {
            for seed_index in 0..task.seed_count.min(8) {
                let context = check(&sampler, &store, &task.name, seed_index);
                let sum: u64 = context.neighbours.iter().map(|near| near.hidden).sum();
                assert!(context.hidden_count <= sum);
                hidden += sum;
                let by_priority = matches!(settings.walk, Walk::Priority { .. });
                if by_priority && is_never_full(&context, &settings) {
                    assert_eq!(context.hidden_count, sum);
                    all_found += u64::from(sum > 0);
                }
                less_found += u64::from(context.hidden_count < sum);
            }
        }
    }
    assert!(hidden > 500 && all_found > 20 && less_found > 20, "{hidden} {all_found} {less_found}");
}

#[test]
fn the_batch_of_a_seed_equals_that_of_a_pass() {
    let mut compared = 0;
    for seed in 0..20 {
        let (_folder, store) = random_store(seed);
        let mut settings = small(seed);
        settings.shape.batch_size = 1;
        let Ok(sampler) = sampler(&store, &settings, (0, 1), PLAIN) else { continue };
        let task = store.tasks()[0].metadata();
        for split in Split::ALL {
            let is_in =
                |seed_index: &u32| sampler.context(&task.name, *seed_index).unwrap().split == split;
            let seed_indexes: Vec<u32> = (0..task.seed_count).filter(is_in).collect();
            assert_eq!(seed_indexes.len() as u64, sampler.seed_count(0, split));
            let own = seed_indexes
                .iter()
                .map(|&seed_index| sampler.batch_of_seed(&task.name, seed_index).unwrap());
            let name = format!("{}/{}", store.metadata().database, task.name);
            let pass = sampler.evaluate(split, Some(&[name])).unwrap();
            for (own, passed) in own.zip(pass) {
                assert!(sequences(&own) == sequences(&passed.unwrap()));
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared}");
}
