//! P2, P3, P4 and P8: going on from a cursor.

use std::collections::BTreeMap;
use std::time::Instant;

use headwater::ErrorKind;
use headwater::plan::{Cursor, CursorKind, Position, Split};
use headwater::random::{Purpose, Stream};
use headwater::sampler::{Sampler, Settings, Speed};

use crate::{PLAIN, global, random_stores, sampler, sequences, small, world};

/// A cursor that has been to the disk and back.
fn stored(cursor: &Cursor) -> Cursor {
    Cursor::decode(&cursor.encode().unwrap()).unwrap()
}

#[test]
fn p2_resume_is_a_law_at_every_step() {
    for (number, (_folder, store)) in random_stores(6).iter().enumerate() {
        let settings = small(number as u64);
        let whole = global(&world(store, &settings, 1, PLAIN), 24);
        let running = sampler(store, &settings, (0, 1), Speed::default()).unwrap();
        for done in 0..24 {
            let cursor = stored(&running.cursor());
            let resumed = sampler(store, &settings, (0, 1), Speed::default()).unwrap();
            // It may have been anywhere before.
            for _ in 0..done % 3 {
                resumed.next(Split::Train).unwrap();
            }
            resumed.resume(&cursor).unwrap();
            assert_eq!(resumed.cursor(), cursor);
            let tail = global(std::slice::from_ref(&resumed), (24 - done).min(5));
            assert!(tail[..] == whole[done..done + tail.len()], "database {number}, step {done}");
            running.next(Split::Train).unwrap();
        }
    }
}

#[test]
fn p8_a_cursor_tells_what_was_consumed() {
    let (_folder, store) = &random_stores(1)[0];
    let settings = small(3);
    let running =
        sampler(store, &settings, (0, 1), Speed { threads: Some(2), prefetch: 8 }).unwrap();
    let start = running.cursor();
    assert_eq!(start.position().get("train/step"), Some(0));
    let mut cursors = Vec::new();
    for _ in 0..10 {
        let (_, snapshot) = running.next(Split::Train).unwrap();
        assert_eq!(running.cursor_at(&snapshot), running.cursor());
        cursors.push(running.cursor_at(&snapshot));
        running.next(Split::Val).unwrap();
    }
    for (step, cursor) in (1..).zip(&cursors) {
        assert_eq!(cursor.position().get("train/step"), Some(step));
        assert_eq!(cursor.position().get("val/step"), Some(step - 1));
    }
}

#[test]
fn p4_a_run_goes_on_with_other_ranks() {
    for (number, (_folder, store)) in random_stores(8).iter().enumerate() {
        let mut settings = small(number as u64);
        settings.shape.batch_size = 24;
        let whole = global(&world(store, &settings, 1, PLAIN), 30);
        let mut random = Stream::new(number as u64, Purpose::Split, [0xe1a5, 0, 0]);
        let (mut found, mut cursor) = (Vec::new(), None);
        while found.len() < whole.len() {
            let ranks = [1, 2, 3, 4, 8, 12][random.below(6) as usize];
            settings.shape.batch_size = 24 / ranks as u32;
            let samplers = world(store, &settings, ranks, PLAIN);
            if let Some(cursor) = &cursor {
                samplers.iter().for_each(|sampler| sampler.resume(cursor).unwrap());
            }
            let steps = 1 + random.below(6) as usize;
            found.extend(global(&samplers, steps.min(whole.len() - found.len())));
            // The same on every rank: whichever saved it.
            let saved: Vec<Cursor> = samplers.iter().map(Sampler::cursor).collect();
            assert!(saved.iter().all(|other| *other == saved[0]));
            cursor = Some(stored(&saved[random.below(ranks) as usize]));
        }
        assert!(found == whole, "database {number}");
    }
}

/// Other sizes of the global batch on the way: what matters is which seeds were drawn.
#[test]
fn p4_no_seed_is_lost_or_drawn_twice_when_the_batch_changes() {
    for (number, (_folder, store)) in random_stores(8).iter().enumerate() {
        let mut settings = small(number as u64);
        let mut random = Stream::new(number as u64, Purpose::Split, [0xba7c, 0, 0]);
        let mut cursor: Option<Cursor> = None;
        let mut drawn: BTreeMap<(u32, u32, i64), u64> = BTreeMap::new();
        for _ in 0..40 {
            settings.shape.batch_size = 1 + random.below(5) as u32;
            let samplers = world(store, &settings, 1 + random.below(3), PLAIN);
            for sampler in &samplers {
                cursor.iter().for_each(|cursor| sampler.resume(cursor).unwrap());
            }
            for _ in 0..random.below(4) {
                for sampler in &samplers {
                    let batch = sampler.next(Split::Train).unwrap().0;
                    let task = batch.get::<u32>("task_idx").unwrap()[0];
                    let rows = batch.get::<u32>("seed_row").unwrap();
                    let times = batch.get::<i64>("obs_time").unwrap();
                    for (&row, &time) in rows.iter().zip(times) {
                        *drawn.entry((task, row, time)).or_default() += 1;
                    }
                }
            }
            cursor = Some(stored(&samplers[0].cursor()));
        }
        // Each task's seeds are drawn epoch by epoch, so that no count is two ahead of another.
        let sampler = sampler(store, &settings, (0, 1), PLAIN).unwrap();
        let position = cursor.unwrap();
        for (task, name) in sampler.tasks().enumerate() {
            let draws = position.position().get(&format!("train/draws/{name}")).unwrap();
            let of_task = || drawn.iter().filter(|((t, ..), _)| *t as usize == task);
            assert_eq!(of_task().map(|(_, count)| count).sum::<u64>(), draws);
            // Seeds of a derived task may share row and time; then nothing is said of their counts.
            let seeds = sampler.seed_count(task, Split::Train);
            if seeds > 0 && draws >= seeds && of_task().count() as u64 == seeds {
                let (least, most) = (draws / seeds, draws.div_ceil(seeds));
                assert!(of_task().all(|(_, count)| (least..=most).contains(count)));
            }
        }
    }
}

#[test]
fn p3_resume_costs_the_same_at_any_position() {
    let (_folder, store) = &random_stores(1)[0];
    let settings = small(1);
    let fresh = sampler(store, &settings, (0, 1), PLAIN).unwrap();
    let mut position = Position::new();
    for (name, _) in fresh.cursor().position().iter() {
        position.set(name, 1_000_000_000_000);
    }
    let far = Cursor::new(CursorKind::Sampler, fresh.fields().clone(), position);
    let cost = |cursor: &Cursor| {
        let started = Instant::now();
        for _ in 0..100 {
            fresh.resume(cursor).unwrap();
            fresh.next(Split::Train).unwrap();
        }
        started.elapsed()
    };
    let start = fresh.cursor();
    let (near, far) = (cost(&start), cost(&far));
    assert!(far < near * 20, "{near:?} from the start, {far:?} from step 10^12");
    assert_eq!(fresh.cursor().position().get("train/step"), Some(1_000_000_000_001));
}

#[test]
fn p6_a_cursor_of_another_plan_is_refused_by_name() {
    let stores = random_stores(2);
    let store = &stores[0].1;
    let settings = small(2);
    let cursor = sampler(store, &settings, (0, 1), PLAIN).unwrap().cursor();
    let refused = |store, settings: &Settings| {
        let other = sampler(store, settings, (0, 1), PLAIN).unwrap();
        let error = other.resume(&cursor).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PlanMismatch);
        error.to_string()
    };
    let mut changed = settings.clone();
    changed.seed = 99;
    assert!(refused(store, &changed).contains("1 field differs: \"seed\" was 2 and is now 99"));
    let mut changed = settings.clone();
    changed.split.seed = 4;
    assert!(refused(store, &changed).contains("\"split_seed\" was 3 and is now 4"));
    let mut changed = settings.clone();
    changed.shape.sequence_length += 1;
    assert!(refused(store, &changed).contains("\"sequence_length\""));
    let mut changed = settings.clone();
    changed.keep_future_cells = !changed.keep_future_cells;
    assert!(refused(store, &changed).contains("\"keep_future_cells\""));
    assert!(refused(&stores[1].1, &settings).contains("\"database/0/root\""));
    // What may change is no part of the plan.
    let mut free = settings.clone();
    (free.shape.batch_size, free.shape.compact) = (17, true);
    sampler(store, &free, (2, 5), Speed::default()).unwrap().resume(&cursor).unwrap();
}

#[test]
fn val_and_test_have_streams_of_their_own() {
    let (_folder, store) = &random_stores(1)[0];
    let settings = small(5);
    let plain = |split, steps| {
        let sampler = sampler(store, &settings, (0, 1), PLAIN).unwrap();
        (0..steps).map(|_| sequences(&sampler.next(split).unwrap().0)).collect::<Vec<_>>()
    };
    let expected = Split::ALL.map(|split| plain(split, 12).into_iter());
    let mixed = sampler(store, &settings, (0, 1), Speed { threads: None, prefetch: 2 }).unwrap();
    let [mut train, mut val, mut test] = expected;
    for step in 0..12 {
        for (split, expected) in
            [(Split::Test, &mut test), (Split::Train, &mut train), (Split::Val, &mut val)]
        {
            let found = sequences(&mixed.next(split).unwrap().0);
            assert!(Some(found) == expected.next(), "{} {step}", split.name());
        }
    }
}
