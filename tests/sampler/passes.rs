//! Finite passes: every seed once, and a cursor that goes on anywhere, on any number of ranks.

use headwater::ErrorKind;
use headwater::plan::{Cursor, CursorKind, Position, Split};
use headwater::sampler::{Evaluation, Sampler, Settings, Shape, Speed, Texts};
use headwater::store::TextVectors;

use crate::{PLAIN, random_stores, sampler, sequences, small, stored, world};

const AHEAD: Speed = Speed { threads: Some(2), prefetch: 5 };

fn settings(batch_size: u32) -> Settings {
    let settings = small(5);
    Settings { shape: Shape { batch_size, ..settings.shape }, ..settings }
}

/// The sequences of the next global batches of a pass, as task and bytes, without the fillers.
fn items(ranks: &mut [Evaluation], steps: usize) -> Vec<(u32, Vec<u8>)> {
    let mut items = Vec::new();
    for _ in 0..steps {
        let batches: Vec<_> = ranks.iter_mut().filter_map(Iterator::next).collect();
        if batches.is_empty() {
            break;
        }
        let batches: Vec<_> = batches.into_iter().map(Result::unwrap).collect();
        assert_eq!(batches.len(), ranks.len(), "all ranks have the same number of batches");
        let parts: Vec<_> = batches.iter().map(sequences).collect();
        // The rows go to the ranks in turn.
        for row in 0..parts[0].len() {
            for (batch, part) in batches.iter().zip(&parts) {
                if batch.get::<f32>("seq_weight").unwrap()[row] > 0.0 {
                    let task = batch.get::<u32>("task_idx").unwrap()[0];
                    items.push((task, part[row].clone()));
                }
            }
        }
    }
    items
}

fn passes(ranks: &[Sampler], cursor: Option<&Cursor>) -> Vec<Evaluation> {
    let pass = |rank: &Sampler| match cursor {
        None => rank.evaluate(Split::Train, None),
        Some(cursor) => rank.evaluate_from(Split::Train, None, cursor),
    };
    ranks.iter().map(|rank| pass(rank).unwrap()).collect()
}

#[test]
fn p2_p4_p5_a_pass_goes_on_at_its_cursor_on_any_number_of_ranks() {
    let (_folder, store) = &random_stores(1)[0];
    let store = std::slice::from_ref(store);
    let whole = items(&mut passes(&world(store, &settings(1), 1, PLAIN), None), usize::MAX);
    let sampler = &world(store, &settings(1), 1, PLAIN)[0];
    let seeds = (0..sampler.tasks().count()).map(|task| sampler.seed_count(task, Split::Train));
    assert_eq!(whole.len() as u64, seeds.sum::<u64>());
    for (world_before, before, world_after, after) in
        [(1, 3, 1, 3), (2, 3, 3, 2), (3, 1, 1, 5), (1, 7, 2, 2)]
    {
        let ranks = world(store, &settings(before), world_before, AHEAD);
        let steps = passes(&ranks, None)[0].remaining() as usize;
        for stop in [0, 1, steps / 2, steps - 1, steps] {
            let mut first = passes(&ranks, None);
            let mut found = items(&mut first, stop);
            // What was made ahead does not count, and all ranks have the same cursor.
            let cursor = stored(&first[0].cursor());
            assert!(first.iter().all(|pass| pass.cursor() == cursor), "{world_before} ranks");
            assert_eq!(first[0].remaining() as usize, steps - stop);
            let ranks = world(store, &settings(after), world_after, AHEAD);
            let mut rest = passes(&ranks, Some(&cursor));
            let remaining = rest[0].remaining() as usize;
            found.extend(items(&mut rest, remaining));
            assert!(rest[0].next().is_none(), "{remaining} batches were left");
            assert!(
                found == whole,
                "{world_before} x {before} for {stop}, {world_after} x {after}"
            );
        }
    }
}

#[test]
fn p6_a_cursor_of_another_pass_is_rejected_by_name() {
    let stores = random_stores(2);
    let one = sampler(&stores[0].1, &settings(2), (0, 1), PLAIN).unwrap();
    let names: Vec<String> = one.tasks().map(str::to_owned).collect();
    let cursor = one.evaluate(Split::Train, None).unwrap().cursor();
    let refused = |error: headwater::Error| {
        assert_eq!(error.kind(), ErrorKind::PlanMismatch, "{error}");
        error.to_string()
    };
    let message = refused(one.evaluate_from(Split::Test, None, &cursor).err().unwrap());
    assert!(message.contains("\"pass/split\" was \"train\" and is now \"test\""), "{message}");
    let without_first = one.evaluate_from(Split::Train, Some(&names[1..]), &cursor);
    let message = refused(without_first.err().unwrap());
    assert!(message.contains("\"pass/task/0\" was"), "{message}");
    let message = refused(one.resume(&cursor).unwrap_err());
    assert!(message.contains("expected a cursor of kind sampler, found one of kind evaluation"));
    let of_streams = one.evaluate_from(Split::Train, None, &one.cursor());
    assert!(refused(of_streams.err().unwrap()).contains("found one of kind sampler"));
    let other = sampler(&stores[1].1, &settings(2), (0, 1), PLAIN).unwrap();
    let message = refused(other.evaluate_from(Split::Train, None, &cursor).err().unwrap());
    assert!(message.contains("\"database/0/root\""), "{message}");
}

#[test]
fn a_place_beyond_a_pass_is_damage() {
    let (_folder, store) = &random_stores(1)[0];
    let one = sampler(store, &settings(2), (0, 1), PLAIN).unwrap();
    let whole = one.evaluate(Split::Train, None).unwrap().cursor();
    let served = (0..one.tasks().count()).filter(|&task| one.seed_count(task, Split::Train) > 0);
    let served: Vec<_> = served.collect();
    let first = one.seed_count(served[0], Split::Train);
    let at = |counters: &[(&str, u64)]| {
        let mut position = Position::new();
        counters.iter().for_each(|&(name, count)| position.set(name, count));
        let cursor = Cursor::new(CursorKind::Evaluation, whole.plan().clone(), position);
        one.evaluate_from(Split::Train, None, &cursor)
    };
    let (tasks, end) = (served.len() as u64, [("tasks", served.len() as u64), ("seeds", 0)]);
    assert_eq!(at(&end).unwrap().count(), 0);
    assert!(at(&[("tasks", 0), ("seeds", first - 1)]).is_ok());
    for counters in [
        &[("tasks", 0), ("seeds", first)][..],
        &[("tasks", tasks), ("seeds", 1)],
        &[("tasks", tasks + 1), ("seeds", 0)],
        &[("tasks", u64::MAX), ("seeds", u64::MAX)],
        &[("tasks", 0)],
    ] {
        let error = at(counters).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{counters:?}: {error}");
    }
}

#[test]
fn batches_without_permutations_are_the_same_otherwise() {
    let (_folder, store) = &random_stores(1)[0];
    let with = settings(3);
    let without = Settings {
        row_order: headwater::sampler::RowOrder::Walk,
        shape: Shape { permutations: false, ..with.shape.clone() },
        ..with.clone()
    };
    let with = Settings { row_order: headwater::sampler::RowOrder::Walk, ..with };
    let all = sampler(store, &with, (0, 1), PLAIN).unwrap();
    let fewer = sampler(store, &without, (0, 1), PLAIN).unwrap();
    for _ in 0..10 {
        let (all, fewer) = (all.next(Split::Train).unwrap().0, fewer.next(Split::Train).unwrap().0);
        let content = |batch: &headwater::sampler::Batch| {
            let tensors = batch.tensors().map(|(tensor, bytes)| (tensor.name, bytes.to_vec()));
            tensors.filter(|(name, _)| !name.ends_with("_perm")).collect::<Vec<_>>()
        };
        assert!(content(&all) == content(&fewer));
        assert!(fewer.tensors().all(|(tensor, _)| !tensor.name.ends_with("_perm")));
        assert_eq!(all.tensors().count(), fewer.tensors().count() + 3);
    }
    // The plan is the same: the form of a batch may change on a resume.
    fewer.resume(&all.cursor()).unwrap();
}

#[test]
fn a_filler_is_padding_alone_in_any_order() {
    let (_folder, store) = &random_stores(1)[0];
    let sampler = sampler(store, &settings(7), (0, 1), PLAIN).unwrap();
    let length = sampler.settings().shape.sequence_length as usize;
    let places: Vec<u16> = (0..length as u16).collect();
    let mut fillers = 0;
    for batch in sampler.evaluate(Split::Train, None).unwrap() {
        let batch = batch.unwrap();
        let weights = batch.get::<f32>("seq_weight").unwrap();
        for (at, _) in weights.iter().enumerate().filter(|(_, weight)| **weight == 0.0) {
            let cells = at * length..(at + 1) * length;
            let is_padding = &batch.get::<u8>("is_padding").unwrap()[cells.clone()];
            assert!(is_padding.iter().all(|&is| is == 1));
            for order in ["col_perm", "out_perm", "in_perm"] {
                assert_eq!(batch.get::<u16>(order).unwrap()[cells.clone()], places);
            }
            let numbers = [
                batch.get::<i64>("obs_time").unwrap()[at],
                batch.get::<u32>("seed_row").unwrap()[at].into(),
                batch.get::<i32>("target_pos").unwrap()[at].into(),
                batch.get::<i32>("num_rows").unwrap()[at].into(),
            ];
            assert_eq!(numbers, [0; 4]);
            fillers += 1;
        }
    }
    assert!(fillers > 0);
}

#[test]
fn a_task_named_twice_and_other_weights_are_rejected() {
    let (_folder, store) = &random_stores(1)[0];
    let names: Vec<String> = store.tasks().iter().map(|t| t.metadata().name.clone()).collect();
    let with = |weights: [f64; 2]| {
        let settings = Settings {
            tasks: Some(names[..2].to_vec()),
            task_weights: Some(weights.to_vec()),
            ..settings(2)
        };
        sampler(store, &settings, (0, 1), PLAIN).unwrap()
    };
    let sampler = with([1.0, 1.0]);
    for twice in [vec![&names[0], &names[0]], vec![&names[0], &names[1], &names[0]]] {
        let twice: Vec<String> = twice.into_iter().cloned().collect();
        let error = sampler.evaluate(Split::Train, Some(&twice)).err().unwrap();
        assert!(error.to_string().contains("is named twice"), "{error}");
    }
    let error = with([1.0, 2.0]).resume(&sampler.cursor()).unwrap_err().to_string();
    let name = format!("task/{}/{}", store.metadata().database, names[1]);
    assert!(error.contains(&format!("{name:?} was \"1\" and is now \"2\"")), "{error}");
}

/// The least bucket that holds the texts, in whatever order they are given.
#[test]
fn a_batch_has_the_bucket_that_its_texts_just_fill() {
    let mut compared = 0;
    for (_folder, store) in &random_stores(6) {
        let first = |buckets| {
            let settings = settings(3);
            let shape =
                Shape { texts: Texts::Batch(buckets), sequence_length: 100, ..settings.shape };
            let sampler = sampler(store, &Settings { shape, ..settings }, (0, 1), PLAIN).ok()?;
            sampler.next(Split::Train).ok().map(|(batch, _)| batch)
        };
        let Some(batch) = first(vec![300]) else { continue };
        let cells = batch.get::<i8>("semantic_types").unwrap().iter();
        let cells = cells.zip(batch.get::<u8>("is_null").unwrap());
        let texts = cells.zip(batch.get::<u32>("text_embed_ids").unwrap());
        let of_texts = texts.filter(|((kind, is_null), _)| **kind == 5 && **is_null == 0);
        let count = of_texts.map(|(_, text)| text + 1).max().unwrap_or(0);
        if count > 1 {
            for buckets in [vec![300, count], vec![count - 1, 300, count, 300]] {
                let batch = first(buckets).unwrap();
                let texts = batch.tensors().find(|(of, _)| of.name == "text_batch_embeddings");
                assert_eq!(texts.unwrap().0.shape[0], count as usize);
            }
            compared += 1;
        }
    }
    assert!(compared > 1, "{compared}");
}

/// With all texts on the device, a batch has the number of each in the store.
#[test]
fn texts_of_the_store_have_the_vectors_of_the_batch() {
    let mut compared = 0;
    for (_folder, store) in &random_stores(6) {
        let form = |texts| {
            let settings = settings(3);
            let shape = Shape { texts, sequence_length: 100, ..settings.shape };
            sampler(store, &Settings { shape, ..settings }, (0, 1), PLAIN)
        };
        let (Ok(own), Ok(global)) = (form(Texts::Batch(vec![])), form(Texts::Global)) else {
            continue;
        };
        for _ in 0..10 {
            let [own, global] = [&own, &global].map(|of| of.next(Split::Train).unwrap().0);
            assert!(global.get::<u16>("text_batch_embeddings").is_none());
            assert!(global.bytes() < own.bytes());
            let vectors = own.get::<u16>("text_batch_embeddings").unwrap();
            let width = store.metadata().embedding.dimension as usize;
            let cells = own.get::<i8>("semantic_types").unwrap().iter();
            let cells = cells.zip(own.get::<u8>("is_null").unwrap()).enumerate();
            for (at, _) in cells.filter(|(_, (kind, is_null))| **kind == 5 && **is_null == 0) {
                let [own, text] =
                    [&own, &global].map(|of| of.get::<u32>("text_embed_ids").unwrap()[at]);
                let expected = store.text_embedding(text).unwrap();
                let Some(TextVectors::F16(expected)) = expected else { panic!("{expected:?}") };
                let found = &vectors[own as usize * width..][..width];
                assert!(expected.iter().map(|x| x.to_bits()).eq(found.iter().copied()));
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared}");
}
