//! P3 and P6: the cost of a resume, and the cursors that are rejected.

use std::time::Instant;

use headwater::ErrorKind;
use headwater::plan::{Cursor, CursorKind, Position, Split};
use headwater::sampler::{Aggregates, Settings, Speed};

use crate::{PLAIN, random_stores, sampler, sequences, small};

#[test]
fn p3_resume_costs_the_same_at_any_position() {
    let (_folder, store) = &random_stores(1)[0];
    let settings = small(1);
    let fresh = sampler(store, &settings, (0, 1), PLAIN).unwrap();
    let mut position = Position::new();
    for (name, _) in fresh.cursor().position().iter() {
        position.set(name, 1_000_000_000_000);
    }
    let far = Cursor::new(CursorKind::Sampler, fresh.plan().clone(), position);
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
fn p6_a_cursor_of_another_plan_is_rejected_by_name() {
    let stores = random_stores(2);
    let store = &stores[0].1;
    let settings = Settings { visible_until: None, ..small(2) };
    let cursor = sampler(store, &settings, (0, 1), PLAIN).unwrap().cursor();
    let refused = |store, settings: &Settings| {
        let other = sampler(store, settings, (0, 1), PLAIN).unwrap();
        let error = other.resume(&cursor).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PlanMismatch);
        error.to_string()
    };
    let mut changed = settings.clone();
    changed.seed = 99;
    assert!(refused(store, &changed).contains("1 setting differs: \"seed\" was 2 and is now 99"));
    let mut changed = settings.clone();
    changed.split.seed = 4;
    assert!(refused(store, &changed).contains("\"split_seed\" was 3 and is now 4"));
    let mut changed = settings.clone();
    changed.shape.sequence_length += 1;
    assert!(refused(store, &changed).contains("\"sequence_length\""));
    let mut changed = settings.clone();
    changed.aggregates = match changed.aggregates {
        Aggregates::None => Aggregates::Near,
        _ => Aggregates::None,
    };
    assert!(refused(store, &changed).contains("\"aggregates\""));
    changed = settings.clone();
    changed.visible_until = Some(7);
    assert!(refused(store, &changed).contains("\"visible_until\""));
    changed = settings.clone();
    changed.keep_future_cells = !changed.keep_future_cells;
    assert!(refused(store, &changed).contains("\"keep_future_cells\""));
    assert!(refused(&stores[1].1, &settings).contains("\"database/0/root\""));
    // Settings that may change are not in the plan.
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
