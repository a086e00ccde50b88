//! The promises, on token rows.

use std::sync::Arc;

use headwater::events::{EventSampler, EventSettings, EventStore, Speed, TokenType};
use headwater::plan::{Assignment, Cursor, Split};
use headwater::{Error, ErrorKind};
use proptest::prelude::*;

use crate::pings::pings;
use crate::resume_cost::assert_cost_is_equal;
use crate::{rows_of, sampler, store_of};

fn settings(batch_size: u32) -> EventSettings {
    EventSettings { batch_size, sequence_length: 256, seed: 5, ..EventSettings::default() }
}

/// The next `steps` global batches of `world` ranks, as the bytes of their rows.
fn global(samplers: &[EventSampler], split: Split, steps: usize) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    for _ in 0..steps {
        let parts: Vec<_> =
            samplers.iter().map(|one| rows_of(&one.next(split).unwrap().0)).collect();
        for row in 0..parts[0].len() {
            rows.extend(parts.iter().map(|part| part[row].clone()));
        }
    }
    rows
}

fn ranks(store: &Arc<EventStore>, batch_size: u32, world: u64) -> Vec<EventSampler> {
    (0..world).map(|rank| sampler(store, &settings(batch_size), rank, world)).collect()
}

#[test]
fn p1_ranks_threads_and_prefetch_change_no_bit() {
    let (_folder, store) = store_of(&pings(40, 40), "");
    let whole = global(&ranks(&store, 24, 1), Split::Train, 10);
    for world in [2, 3, 4] {
        let shared = global(&ranks(&store, 24 / world as u32, world), Split::Train, 10);
        assert_eq!(shared, whole, "{world} ranks");
    }
    for (threads, prefetch) in [(1, 0), (2, 0), (4, 3), (7, 1)] {
        let rank = Assignment::new(0, 1).unwrap();
        let speed = Speed { threads: Some(threads), prefetch };
        let one = EventSampler::new(Arc::clone(&store), settings(24), rank, speed);
        assert_eq!(global(&[one.unwrap()], Split::Train, 10), whole, "{threads} {prefetch}");
    }
}

#[test]
fn p3_resume_costs_the_same_at_any_position() {
    let (_folder, store) = store_of(&pings(40, 40), "");
    let fresh = sampler(&store, &settings(4), 0, 1);
    let start = fresh.cursor();
    fresh.seek(Split::Train, 1_000_000_000_000).unwrap();
    let far = fresh.cursor();
    assert_cost_is_equal(|cursor| fresh.resume(cursor).unwrap(), &start, &far);
}

#[test]
fn p3_the_rows_after_a_resume_at_ten_to_the_twelve_are_those_at_their_indexes() {
    let (_folder, store) = store_of(&pings(40, 40), "");
    let resumed = sampler(&store, &settings(4), 0, 1);
    resumed.seek(Split::Train, 1_000_000_000_000).unwrap();
    let cursor = resumed.cursor();
    let other = sampler(&store, &settings(4), 0, 1);
    other.resume(&cursor).unwrap();
    let batch = other.next(Split::Train).unwrap().0;
    let indexes: Vec<u64> = (0..4).map(|row| 1_000_000_000_000 + row).collect();
    let direct = sampler(&store, &settings(4), 0, 1).rows(Split::Train, &indexes).unwrap();
    assert_eq!(rows_of(&batch), rows_of(&direct));
}

#[test]
fn p5_every_item_leads_one_row_of_an_epoch() {
    let (_folder, store) =
        store_of(&pings(40, 40), "split = { train = 0.6, val = 0.1, test = 0.3 }");
    for split in [Split::Train, Split::Test] {
        let one = sampler(&store, &settings(4), 0, 1);
        let count = one.count(split);
        for epoch in 0..3 {
            let mut items: Vec<u64> = (0..count)
                .map(|at| one.token_row(split, epoch * count + at).unwrap().item)
                .collect();
            items.sort_unstable();
            assert_eq!(items, (0..count).collect::<Vec<_>>(), "epoch {epoch}");
        }
    }
}

#[test]
fn p6_a_cursor_of_another_plan_is_refused_by_name() {
    let (_folder, store) = store_of(&pings(40, 40), "");
    let (_other_folder, other_store) = store_of(&pings(41, 40), "");
    let cursor = sampler(&store, &settings(4), 0, 1).cursor();
    let refused = |store: &Arc<EventStore>, settings: EventSettings| -> Error {
        sampler(store, &settings, 0, 1).resume(&cursor).unwrap_err()
    };
    for (error, field) in [
        (refused(&store, EventSettings { seed: 6, ..settings(4) }), "\"seed\" was 5 and is now 6"),
        (
            refused(&store, EventSettings { sequence_length: 512, ..settings(4) }),
            "\"sequence_length\" was 256 and is now 512",
        ),
        (
            refused(&store, EventSettings { packing: false, ..settings(4) }),
            "\"packing\" was true and is now false",
        ),
        (refused(&other_store, settings(4)), "\"root\" was"),
    ] {
        assert_eq!(error.kind(), ErrorKind::PlanMismatch);
        assert!(error.to_string().contains(field), "{error}");
    }
    let of_16_bits = EventSettings { token_type: TokenType::UInt16, ..settings(9) };
    sampler(&store, &of_16_bits, 1, 3).resume(&cursor).unwrap();
}

#[test]
fn p6_every_flipped_bit_of_a_cursor_is_refused() {
    let (_folder, store) =
        store_of(&pings(5, 10), "split = { train = 1.0, val = 0.0, test = 0.0 }");
    let one = sampler(&store, &settings(4), 0, 1);
    one.next(Split::Train).unwrap();
    let whole = one.cursor().encode().unwrap();
    for at in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        let refused = Cursor::decode(&bytes).and_then(|cursor| one.resume(&cursor));
        assert!(refused.is_err(), "bit {at}");
    }
}

#[test]
fn p7_fillers_and_passes_stay_in_their_split() {
    let all = pings(60, 20);
    let (_folder, store) = store_of(&all, "split = { train = 0.5, val = 0.2, test = 0.3 }");
    let one = sampler(&store, &settings(8), 0, 1);
    let sources = |split| {
        let mut sources = std::collections::BTreeSet::new();
        for _ in 0..40 {
            for row in crate::contexts_of(&one.next(split).unwrap().0, 256) {
                for context in row {
                    for event in headwater::events::decode_measurements(&context).unwrap() {
                        sources.insert(event.source);
                    }
                }
            }
        }
        sources
    };
    let [train, val, test] = Split::ALL.map(sources);
    assert!(train.is_disjoint(&val) && train.is_disjoint(&test) && val.is_disjoint(&test));
    assert!(train.len() > 15 && test.len() > 5);
}

#[test]
fn p8_a_cursor_counts_what_was_consumed() {
    let (_folder, store) = store_of(&pings(40, 40), "");
    let one = sampler(&store, &settings(4), 0, 1);
    let (_, after) = one.next(Split::Train).unwrap();
    assert_eq!(one.cursor_at(after).position().get("train/rows"), Some(4));
    one.wait(Split::Train).unwrap();
    assert_eq!(one.cursor().position().get("train/rows"), Some(4));
}

#[test]
fn a_pass_has_every_item_once_for_any_ranks() {
    let (_folder, store) = store_of(&pings(40, 40), "");
    let pass = |world: u64| {
        let mut rows = Vec::new();
        let ranks = ranks(&store, 6, world);
        let mut passes: Vec<_> =
            ranks.iter().map(|one| one.evaluate(Split::Test).unwrap()).collect();
        loop {
            let parts: Vec<_> = passes.iter_mut().map(Iterator::next).collect();
            if parts.iter().all(Option::is_none) {
                return rows;
            }
            let parts: Vec<_> =
                parts.into_iter().map(|part| rows_of(&part.unwrap().unwrap())).collect();
            for row in 0..6 {
                rows.extend(parts.iter().map(|part| part[row].clone()));
            }
        }
    };
    let is_real = |row: &&Vec<u8>| row.ends_with(&1_f32.to_le_bytes());
    let whole: Vec<_> = pass(1).iter().filter(is_real).cloned().collect();
    assert_eq!(whole.len() as u64, sampler(&store, &settings(6), 0, 1).count(Split::Test));
    for world in [2, 3] {
        let shared: Vec<_> = pass(world).iter().filter(is_real).cloned().collect();
        assert_eq!(shared, whole, "{world} ranks");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn p2_p4_a_run_goes_on_with_any_ranks_and_batch_size(
        before in 0_usize..6,
        (world, size) in (1_u64..5, 1_u32..5),
        (next_world, next_size) in (1_u64..5, 1_u32..5),
    ) {
        let (_folder, store) = store_of(&pings(20, 30), "");
        let first = ranks(&store, size, world);
        let mut rows = global(&first, Split::Train, before);
        let cursor = first[0].cursor().encode().unwrap();
        prop_assert!(first.iter().all(|one| one.cursor().encode().unwrap() == cursor));
        let next = ranks(&store, next_size, next_world);
        for one in &next {
            one.resume(&Cursor::decode(&cursor).unwrap()).unwrap();
        }
        rows.extend(global(&next, Split::Train, 4));
        let whole = ranks(&store, 1, 1);
        prop_assert_eq!(&rows, &global(&whole, Split::Train, rows.len()));
    }
}
