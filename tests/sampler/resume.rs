//! P3 and P6: the cost of a resume, and the cursors that are rejected.

use headwater::ErrorKind;
use headwater::plan::{Cursor, CursorKind, Position, Setting, Split, SplitRatios, SplitRule};
use headwater::sampler::{Aggregates, Children, RowOrder, Settings, Shape, Speed, Walk};

use crate::resume_cost::assert_cost_is_equal;
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
    let start = fresh.cursor();
    assert_cost_is_equal(|cursor| fresh.resume(cursor).unwrap(), &start, &far);
    fresh.resume(&far).unwrap();
    fresh.next(Split::Train).unwrap();
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

#[test]
fn p3_seek_goes_to_the_batch_that_a_run_without_a_cursor_comes_to() {
    let (_folder, store) = &random_stores(1)[0];
    let settings = small(5);
    let speed = Speed { threads: None, prefetch: 2 };
    for (rank, world) in [(0, 1), (1, 3)] {
        let whole = sampler(store, &settings, (rank, world), PLAIN).unwrap();
        let steps: Vec<_> =
            (0..40).map(|_| sequences(&whole.next(Split::Train).unwrap().0)).collect();
        let seeking = sampler(store, &settings, (rank, world), speed).unwrap();
        let val = sequences(&seeking.next(Split::Val).unwrap().0);
        for step in [39, 0, 7, 8, 31] {
            seeking.seek(Split::Train, step as u64).unwrap();
            assert!(
                sequences(&seeking.next(Split::Train).unwrap().0) == steps[step],
                "step {step}"
            );
        }
        assert_eq!(seeking.cursor().position().get("train/step"), Some(32));
        seeking.seek(Split::Val, 0).unwrap();
        assert!(sequences(&seeking.next(Split::Val).unwrap().0) == val, "another split stays");
        let end = seeking.seek(Split::Train, u64::MAX);
        let error = end.and_then(|()| seeking.next(Split::Train).map(drop)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        seeking.seek(Split::Train, 1 << 50).unwrap();
        seeking.next(Split::Train).unwrap();
    }
}

#[test]
fn p8_seek_leaves_the_other_splits_alone() {
    let (_folder, store) = &random_stores(1)[0];
    for speed in [PLAIN, Speed { threads: Some(2), prefetch: 2 }] {
        let seeking = sampler(store, &small(5), (0, 1), speed).unwrap();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                for step in 1..=400 {
                    let (_, snapshot) = seeking.next(Split::Val).unwrap();
                    let found = seeking.cursor_at(&snapshot).position().get("val/step");
                    assert_eq!(found, Some(step), "no step is done twice");
                }
            });
            while !reading.is_finished() {
                // Another split is never in the way.
                seeking.seek(Split::Train, 7).unwrap();
            }
        });
    }
}

#[test]
fn a_pass_has_as_many_batches_as_an_epoch() {
    let (_folder, store) = &random_stores(1)[0];
    for (rank, world) in [(0, 1), (2, 3)] {
        let sampler = sampler(store, &small(5), (rank, world), PLAIN).unwrap();
        for split in Split::ALL {
            let expected = sampler.batches_per_epoch(split, None).unwrap();
            let mut pass = sampler.evaluate(split, None).unwrap();
            let mut found = 0;
            while pass.next().transpose().unwrap().is_some() {
                found += 1;
                assert_eq!(pass.remaining(), expected - found);
            }
            assert_eq!(found, expected);
        }
    }
}

/// Every setting that determines the sequence is in the plan, whichever walk has it.
#[test]
fn p6_each_setting_of_the_sequence_is_rejected_by_its_name() {
    let (_folder, store) = &random_stores(1)[0];
    let walk = |child_width, children| Walk::Priority { child_width, children };
    let breadth = |max_hops, budget| Walk::Breadth { max_hops, budget };
    let base = Settings {
        walk: walk(3, Children::Uniform),
        row_order: RowOrder::Walk,
        visible_until: None,
        ..small(2)
    };
    let wide = Settings { walk: breadth(2, 4), ..base.clone() };
    let cursor = |settings: &Settings| sampler(store, settings, (0, 1), PLAIN).unwrap().cursor();
    let other_ratios = SplitRule { ratios: SplitRatios::new(0.5, 0.2, 0.3).unwrap(), ..base.split };
    let more_rows = Shape { max_rows: base.shape.max_rows + 1, ..base.shape.clone() };
    for (from, to, name) in [
        (
            &base,
            Settings { walk: walk(4, Children::Uniform), ..base.clone() },
            "\"child_width\" was 3",
        ),
        (
            &base,
            Settings { walk: walk(3, Children::Latest), ..base.clone() },
            "\"uniform\" and is now \"latest\"",
        ),
        (&base, wide.clone(), "\"walk\" was \"priority\" and is now \"breadth\""),
        (&wide, Settings { walk: breadth(3, 4), ..base.clone() }, "\"max_hops\" was 2"),
        (&wide, Settings { walk: breadth(2, 5), ..base.clone() }, "\"budget\" was 4"),
        (
            &base,
            Settings { row_order: RowOrder::CuthillMckee, ..base.clone() },
            "\"walk\" and is now \"cuthill-mckee\"",
        ),
        (
            &base,
            Settings { split: other_ratios, ..base.clone() },
            "\"split_ratios/train\" was 600 and is now 500",
        ),
        (&base, Settings { shape: more_rows, ..base.clone() }, "\"max_rows\""),
    ] {
        let cursor = cursor(from);
        let error = sampler(store, &to, (0, 1), PLAIN).unwrap().resume(&cursor).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
    let plan = sampler(store, &base, (0, 1), PLAIN).unwrap().plan().clone();
    let of = |name: &str| plan.iter().find(|(own, _)| *own == name).map(|(_, setting)| setting);
    assert_eq!(of("sampler"), Some(&Setting::from(3_u64)));
    assert_eq!(of("staleness"), None);
}
