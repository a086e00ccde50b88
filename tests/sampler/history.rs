//! P2, P4 and P8 over random histories: a run takes batches, saves a cursor, ends, and resumes with
//! other ranks, threads and prefetching, many times.

use std::collections::BTreeMap;

use headwater::plan::{Cursor, Split};
use headwater::sampler::{Sampler, Speed};
use proptest::prelude::*;
use proptest::sample::select;

use crate::cases::{Case, case, cases, has_seeds, speed};
use crate::{PLAIN, digests, sequences, stored, world};

/// Sizes of global batches that several numbers of ranks divide evenly.
fn global_batch() -> impl Strategy<Value = u32> {
    select(vec![1, 2, 3, 4, 6, 8, 12, 24])
}

/// Where a run ends.
#[derive(Clone, Copy, Debug)]
enum Stop {
    After(usize),
    /// After a task has begun another epoch; with a global batch of 1, exactly at the epoch's end.
    AtEpochsEnd,
}

/// One run of a history.
#[derive(Clone, Debug)]
struct Run {
    /// The number of ranks, or the next smaller one that divides the global batch.
    ranks: u32,
    speed: Speed,
    stop: Stop,
    /// The number of val batches after each train batch.
    val_batches: usize,
    /// The rank whose cursor is kept.
    saves: usize,
}

fn run() -> impl Strategy<Value = Run> {
    let stop = prop_oneof![3 => (0_usize..6).prop_map(Stop::After), 1 => Just(Stop::AtEpochsEnd)];
    (select(vec![1, 2, 3, 4, 8, 12]), speed(), stop, 0_usize..=1, 0_usize..8).prop_map(
        |(ranks, speed, stop, val_batches, saves)| Run { ranks, speed, stop, val_batches, saves },
    )
}

fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Returns the number of finished epochs of each task with seeds.
fn epochs(sampler: &Sampler) -> Vec<u64> {
    let cursor = sampler.cursor();
    let tasks = sampler.tasks().enumerate();
    tasks
        .filter_map(|(task, name)| {
            let draws = cursor.position().get(&format!("train/draws/{name}")).unwrap();
            draws.checked_div(sampler.seed_count(task, Split::Train))
        })
        .collect()
}

impl Run {
    /// Resumes from `cursor` beside the uninterrupted run; returns the cursor that it saves.
    fn go(&self, case: &Case, whole: &Sampler, cursor: Option<&Cursor>) -> Cursor {
        let ranks = common_divisor(case.settings.shape.batch_size, self.ranks);
        let ranks = case.ranks(ranks, self.speed);
        let whole = std::slice::from_ref(whole);
        for rank in &ranks {
            if let Some(cursor) = cursor {
                // From any place before.
                rank.next(Split::Train).unwrap();
                rank.resume(cursor).unwrap();
                assert_eq!(&rank.cursor(), cursor);
            }
        }
        let (began, mut steps) = (epochs(&ranks[0]), 0);
        while match self.stop {
            Stop::After(count) => steps < count,
            Stop::AtEpochsEnd => epochs(&ranks[0]) == began,
        } {
            assert_eq!(digests(&ranks, Split::Train, 1), digests(whole, Split::Train, 1));
            if has_seeds(&whole[0], Split::Val) {
                let val = |ranks| digests(ranks, Split::Val, self.val_batches);
                assert_eq!(val(&ranks), val(whole));
            }
            steps += 1;
        }
        let cursors: Vec<Cursor> = ranks.iter().map(Sampler::cursor).collect();
        assert!(cursors.iter().all(|cursor| *cursor == cursors[0]), "ranks stand at one place");
        stored(&cursors[self.saves % cursors.len()])
    }
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn p2_p4_any_history_gives_the_stream_of_the_uninterrupted_run(
        case in case(global_batch()),
        runs in prop::collection::vec(run(), 1..6),
    ) {
        let whole = case.plain();
        let mut cursor = None;
        for run in &runs {
            cursor = Some(run.go(&case, &whole, cursor.as_ref()));
        }
    }

    /// When the size of the global batch changes, each task's seeds keep their order.
    #[test]
    fn p4_a_new_batch_size_neither_loses_nor_repeats_a_seed(
        case in case(Just(1)),
        runs in prop::collection::vec((1_u32..=5, 1_u64..=4, 0_usize..4), 1..8),
    ) {
        let mut drawn: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        let mut cursor: Option<Cursor> = None;
        for (batch_size, ranks, steps) in runs {
            let mut settings = case.settings.clone();
            settings.shape.batch_size = batch_size;
            let ranks = world(&case.stores, &settings, ranks, PLAIN);
            for rank in &ranks {
                cursor.iter().for_each(|cursor| rank.resume(cursor).unwrap());
            }
            for _ in 0..steps {
                let batches: Vec<_> =
                    ranks.iter().map(|rank| rank.next(Split::Train).unwrap().0).collect();
                let task = batches[0].get::<u32>("task_idx").unwrap()[0] as usize;
                let parts: Vec<_> = batches.iter().map(sequences).collect();
                let rows = 0..batch_size as usize;
                let of_all = rows.flat_map(|row| parts.iter().map(move |part| part[row].clone()));
                let name = ranks[0].tasks().nth(task).unwrap().to_owned();
                drawn.entry(name).or_default().extend(of_all);
            }
            cursor = Some(stored(&ranks[0].cursor()));
        }
        for (task, drawn) in drawn {
            let alone = case.alone(&case.settings_of(&task), PLAIN);
            for (draw, found) in drawn.iter().enumerate() {
                let expected = sequences(&alone.next(Split::Train).unwrap().0);
                prop_assert!(found == &expected[0], "draw {} of {}", draw, task);
            }
        }
    }

    /// For any prefetching, and any order of the streams.
    #[test]
    fn p8_the_cursor_of_a_batch_resumes_after_it(
        case in case(1_u32..=5),
        speed in speed(),
        calls in prop::collection::vec(select(&Split::ALL[..]), 1..10),
    ) {
        let running = case.alone(&case.settings, speed);
        let calls = calls.into_iter().filter(|&split| has_seeds(&running, split));
        let mut steps = Split::ALL.map(|_| 0);
        let taken: Vec<_> = calls
            .map(|split| {
                let (batch, snapshot) = running.next(split).unwrap();
                let cursor = running.cursor_at(&snapshot);
                assert_eq!(cursor, running.cursor());
                steps[split as usize] += 1;
                for split in Split::ALL {
                    let step = cursor.position().get(&format!("{}/step", split.name()));
                    assert_eq!(step, Some(steps[split as usize]), "{}", split.name());
                }
                (split, sequences(&batch), cursor)
            })
            .collect();
        for (place, (_, _, cursor)) in taken.iter().enumerate() {
            running.resume(&stored(cursor)).unwrap();
            for (split, expected, _) in &taken[place + 1..] {
                let found = sequences(&running.next(*split).unwrap().0);
                prop_assert!(&found == expected, "{} after call {}", split.name(), place);
            }
        }
    }
}
