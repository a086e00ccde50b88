//! Sequences padded to one of several lengths: the same cells, with less padding after them.

use headwater::plan::Split;
use headwater::sampler::{Batch, Sampler, Settings, Shape, Speed};
use proptest::prelude::*;

use crate::cases::{case, cases, speed};
use crate::{PLAIN, several};

/// Returns the settings with these buckets.
fn with_buckets(settings: &Settings, buckets: &[u32]) -> Settings {
    let shape = Shape { sequence_buckets: buckets.to_vec(), ..settings.shape.clone() };
    Settings { shape, ..settings.clone() }
}

/// The number of cells of the longest sequence.
fn longest(batch: &Batch, length: usize) -> usize {
    let is_padding = batch.get::<u8>("is_padding").unwrap().chunks(length);
    is_padding.map(|of| of.iter().position(|&is| is == 1).unwrap_or(length)).max().unwrap()
}

/// Demands that `short` is `whole` without the cells from `length` on, which are padding.
fn check(short: &Batch, whole: &Batch, length: usize, shape: &Shape) {
    let (count, whole_length) = (shape.batch_size as usize, shape.sequence_length as usize);
    assert!(short.tensors().map(|(of, _)| of.name).eq(whole.tensors().map(|(of, _)| of.name)));
    for ((short, found), (whole, expected)) in short.tensors().zip(whole.tensors()) {
        assert_eq!(found.as_ptr() as usize % 64, 0, "{}", short.name);
        let is_of_cells = short.shape[..] != whole.shape[..];
        if !is_of_cells {
            assert!(found == expected, "{}", short.name);
            continue;
        }
        assert_eq!((short.shape[0], short.shape[1]), (count, length), "{}", short.name);
        assert_eq!((whole.shape[0], whole.shape[1]), (count, whole_length), "{}", short.name);
        let [of_short, of_whole] = [found, expected].map(|bytes| bytes.len() / count);
        for (found, expected) in found.chunks(of_short).zip(expected.chunks(of_whole)) {
            let (kept, cut) = expected.split_at(of_short);
            assert!(found == kept, "{}", short.name);
            match short.name {
                "is_padding" => assert!(cut.iter().all(|byte| *byte == 1)),
                // Padding comes last in every order, each cell in its own place.
                name if name.ends_with("_perm") => {
                    let places = cut.as_chunks().0.iter().map(|place| u16::from_le_bytes(*place));
                    assert!(places.eq(length as u16..whole_length as u16));
                }
                name => assert!(cut.iter().all(|byte| *byte == 0), "{name}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn p1_a_shorter_length_cuts_padding_and_nothing_else(
        case in case(1_u32..=5),
        buckets in prop::collection::vec(1_u32..=100, 0..5),
        split in prop::sample::select(Split::ALL.to_vec()),
        speed in speed(),
    ) {
        let shape = &case.settings.shape;
        let most = shape.sequence_length;
        let buckets: Vec<u32> = buckets.into_iter().map(|length| length.min(most)).collect();
        let settings = with_buckets(&case.settings, &buckets);
        let whole = case.plain();
        let short = several(&case.stores, &settings, (0, 1), speed).unwrap();
        let mut lengths = buckets;
        lengths.push(most);
        let compare = |(short, whole): (Batch, Batch)| {
            let longest = longest(&whole, most as usize);
            let fits = lengths.iter().map(|length| *length as usize).filter(|of| *of >= longest);
            check(&short, &whole, fits.min().unwrap(), shape);
        };
        let of_split = (0..whole.tasks().count()).map(|task| whole.seed_count(task, split));
        if of_split.sum::<u64>() > 0 {
            for _ in 0..3 {
                compare((short.next(split).unwrap().0, whole.next(split).unwrap().0));
            }
            // The length of sequences is no part of the plan: a resume may change it.
            short.resume(&whole.cursor()).unwrap();
            compare((short.next(split).unwrap().0, whole.next(split).unwrap().0));
            // The last batch of a pass has fillers.
            let [short, whole] = [&short, &whole].map(|of| of.evaluate(split, None).unwrap());
            short.zip(whole).for_each(|(short, whole)| compare((short.unwrap(), whole.unwrap())));
        }
    }
}

/// A batch as short as its contexts, on a database whose contexts are short.
#[test]
fn a_batch_takes_the_least_length_that_holds_its_longest_sequence() {
    let mut shortened = 0;
    for (_folder, store) in &crate::random_stores(6) {
        let settings = crate::small(5);
        let open = |buckets: &[u32]| -> Sampler {
            let settings = with_buckets(&settings, buckets);
            crate::sampler(store, &settings, (0, 1), PLAIN).unwrap()
        };
        let whole = open(&[]);
        for _ in 0..5 {
            let place = whole.cursor();
            let (batch, _) = whole.next(Split::Train).unwrap();
            let most = settings.shape.sequence_length;
            let longest = longest(&batch, most as usize) as u32;
            for (buckets, expected) in [
                (vec![longest], longest),
                (vec![longest - 1], most),
                (vec![most, longest - 1, longest + 1, longest], longest),
            ] {
                if buckets.iter().any(|length| !(1..=most).contains(length)) {
                    continue;
                }
                let sampler = open(&buckets);
                sampler.resume(&place).unwrap();
                let (batch, _) = sampler.next(Split::Train).unwrap();
                let tensor = batch.tensors().find(|(of, _)| of.name == "column_ids").unwrap().0;
                assert_eq!(tensor.shape[1], expected as usize);
                shortened += usize::from(expected < most);
            }
        }
    }
    assert!(shortened > 10, "{shortened}");
}

#[test]
fn a_length_that_no_sequence_can_have_is_refused() {
    let (_folder, store) = &crate::random_stores(1)[0];
    let settings = crate::small(5);
    let most = settings.shape.sequence_length;
    for length in [0, most + 1] {
        let settings = with_buckets(&settings, &[1, length]);
        let error = crate::sampler(store, &settings, (0, 1), Speed::default()).err().unwrap();
        assert_eq!(error.kind(), headwater::ErrorKind::InvalidArgument);
        let expected =
            format!("sequence_buckets: expected lengths of 1 to {most}, the sequence length");
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert!(error.to_string().contains(&format!("found {length}; leave it out")), "{error}");
    }
}
