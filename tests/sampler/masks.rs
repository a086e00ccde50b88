//! Cells that are masked beside the target; the twin has the rule, the random cases ranks and resumes.

use headwater::ErrorKind;
use headwater::plan::{Cursor, CursorKind, Plan, Split};
use headwater::random::{Purpose, Stream, name_identity};
use headwater::sampler::{Batch, Masks, Settings, Shape};

use crate::{PLAIN, random_stores, sampler, small};

fn masked(share: f64) -> Settings {
    let settings = small(5);
    let shape =
        Shape { batch_size: 5, sequence_length: 100, max_rows: 30, ..settings.shape.clone() };
    let most = Some(shape.sequence_length as u16);
    let masks = Some(Masks::new(share, most, shape.sequence_length).unwrap());
    Settings { masks, shape, ..settings }
}

fn content(batch: &Batch) -> Vec<(&'static str, Vec<u8>)> {
    batch.tensors().map(|(tensor, bytes)| (tensor.name, bytes.to_vec())).collect()
}

#[test]
fn masks_change_no_other_tensor_and_without_them_nothing_changes() {
    let (_folder, store) = &random_stores(1)[0];
    let plain = Settings { masks: None, ..masked(0.5) };
    let plain = sampler(store, &plain, (0, 1), PLAIN).unwrap();
    let masking = sampler(store, &masked(0.5), (0, 1), PLAIN).unwrap();
    assert!(plain.plan().iter().all(|(name, _)| !name.starts_with("mask")));
    for _ in 0..20 {
        let (expected, found) =
            (plain.next(Split::Train).unwrap().0, masking.next(Split::Train).unwrap().0);
        let (masks, others): (Vec<_>, Vec<_>) =
            content(&found).into_iter().partition(|(name, _)| name.contains("mask"));
        assert!(others == content(&expected), "the labels stay in place");
        assert_eq!(masks.len(), 2);
    }
}

#[test]
fn the_share_of_masked_cells_is_that_of_the_settings() {
    let stores = random_stores(8);
    for share in [0.05, 0.15, 0.7] {
        let (mut all, mut chosen) = (0, 0);
        for (_folder, store) in &stores {
            let (some, whole) = (
                sampler(store, &masked(share), (0, 1), PLAIN),
                sampler(store, &masked(65_535.0 / 65_536.0), (0, 1), PLAIN),
            );
            let (some, whole) = (some.unwrap(), whole.unwrap());
            for _ in 0..400 {
                let count = |batch: &Batch| {
                    batch
                        .get::<u8>("is_masked")
                        .unwrap()
                        .iter()
                        .map(|&cell| u64::from(cell))
                        .sum::<u64>()
                };
                chosen += count(&some.next(Split::Train).unwrap().0);
                all += count(&whole.next(Split::Train).unwrap().0);
            }
        }
        let (all, chosen) = (all as f64, chosen as f64);
        assert!(all > 1e5, "{all} cells");
        let deviation = (all * share * (1.0 - share)).sqrt();
        assert!((chosen - all * share).abs() < 5.0 * deviation, "{chosen} of {all} for {share}");
    }
}

#[test]
fn rows_that_the_caller_chose_are_seen_whole() {
    let (_folder, store) = &random_stores(1)[0];
    let masking = sampler(store, &masked(0.9), (0, 1), PLAIN).unwrap();
    let task = masking.tasks().next().unwrap().to_owned();
    let batch = masking.sample(&task, &[(0, i64::MAX - 2)]).unwrap();
    assert!(batch.get::<u8>("is_masked").unwrap().iter().all(|&cell| cell == 0));
    assert!(batch.get::<u16>("masked_pos").unwrap().iter().all(|&place| place == u16::MAX));
}

#[test]
fn p6_a_cursor_without_masks_is_rejected_by_their_share() {
    let (_folder, store) = &random_stores(1)[0];
    let plain = Settings { masks: None, ..masked(0.5) };
    let cursor = sampler(store, &plain, (0, 1), PLAIN).unwrap().cursor();
    let masking = sampler(store, &masked(0.5), (0, 1), PLAIN).unwrap();
    let error = masking.resume(&cursor).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlanMismatch);
    assert!(
        error.to_string().contains("\"mask_share\" was not there and is now \"0.5\""),
        "{error}"
    );
}

#[test]
fn masks_of_no_cell_or_of_all_are_rejected() {
    for share in [0.0, -0.1, 1.0, 1.5, f64::NAN, f64::INFINITY] {
        let error = Masks::new(share, None, 64).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("mask_share: expected a share of"), "{error}");
    }
}

#[test]
fn a_share_that_rounds_to_no_cell_or_to_all_is_rejected_with_the_bounds() {
    let (least, most) = (1.0 / 131_072.0, 131_071.0 / 131_072.0);
    assert_eq!(Masks::new(least, None, 64).unwrap().share, 1);
    assert_eq!(Masks::new(most - 1e-9, None, 64).unwrap().share, u16::MAX);
    for share in [least - 1e-9, 1e-6, most] {
        assert_eq!(
            Masks::new(share, None, 64).unwrap_err().to_string(),
            format!(
                "mask_share: expected a share of the cells of at least 1/131072 (0.0000077) and below \
                 131071/131072 (0.9999924), found {share}, which is rounded to none or to all of them; 0.15 \
                 masks about every seventh cell; leave it out to mask none"
            )
        );
    }
}

#[test]
fn the_default_of_most_is_rarely_exceeded() {
    assert_eq!(Masks::new(0.15, None, 1024).unwrap().most, 200);
    assert_eq!(Masks::new(0.15, None, 64).unwrap().most, 22);
    assert_eq!(Masks::new(0.9, None, 16).unwrap().most, 16);
}

/// A cell is masked when its 16 bits are below the share, not at it.
#[test]
fn a_cell_at_the_share_is_not_masked_and_one_below_is() {
    let (_folder, store) = &random_stores(1)[0];
    let all = Settings { masks: Masks::new(65_535.0 / 65_536.0, None, 100).ok(), ..masked(0.5) };
    let task = sampler(store, &all, (0, 1), PLAIN).unwrap().tasks().next().unwrap().to_owned();
    let identity = [name_identity(&task), 0, 3];
    let words = Stream::new(all.seed, Purpose::MaskedCell, identity);
    let is_masked = |share: u16| {
        let masks = Masks { share, most: 100, texts: true };
        let settings = Settings { masks: Some(masks), ..masked(0.5) };
        let sampler = sampler(store, &settings, (0, 1), PLAIN).unwrap();
        let batch = sampler.batch_of_seed(&task, 3).unwrap();
        batch.get::<u8>("is_masked").unwrap()[..100].to_vec()
    };
    let may_be = is_masked(u16::MAX);
    let mut tried = 0;
    for at in (0..100).filter(|&at| may_be[at] == 1).take(8) {
        let part = (words.word(at as u64 / 4) >> (16 * (at % 4))) as u16;
        if (1..u16::MAX).contains(&part) {
            assert_eq!((is_masked(part)[at], is_masked(part + 1)[at]), (0, 1));
            tried += 1;
        }
    }
    assert!(tried > 2);
}

/// The first version of the rule masked labels that are rows of a table.
#[test]
fn p6_a_cursor_of_the_first_rule_of_masks_is_rejected_by_its_version() {
    let (_folder, store) = &random_stores(1)[0];
    let masking = sampler(store, &masked(0.5), (0, 1), PLAIN).unwrap();
    let mut plan = Plan::new();
    for (name, value) in masking.plan().iter().filter(|(name, _)| *name != "mask_version") {
        plan.add(name.to_owned(), value.clone()).unwrap();
    }
    let position = masking.cursor().position().clone();
    let error = masking.resume(&Cursor::new(CursorKind::Sampler, plan, position)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlanMismatch);
    let expected = "1 setting differs: \"mask_version\" was not there and is now 3";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn p6_a_cursor_of_other_masks_is_rejected_by_what_differs() {
    let (_folder, store) = &random_stores(1)[0];
    let masks = masked(0.5).masks.unwrap();
    assert!(masks.texts, "texts are masked by default");
    let with = |masks| {
        let settings = Settings { masks: Some(masks), ..masked(0.5) };
        sampler(store, &settings, (0, 1), PLAIN).unwrap()
    };
    let cursor = with(masks).cursor();
    for (other, name) in [
        (Masks { most: 5, ..masks }, "mask_most"),
        (Masks { texts: false, ..masks }, "mask_texts"),
        (Masks { share: 5, ..masks }, "mask_share"),
    ] {
        let error = with(other).resume(&cursor).unwrap_err().to_string();
        assert!(error.contains(&format!("1 setting differs: {name:?}")), "{error}");
    }
}
