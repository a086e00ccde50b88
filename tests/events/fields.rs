//! The codec `fields-v1`: vocabulary, values, and tokens that read back.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use headwater::ErrorKind;
use headwater::events::{
    DecodedEvent, EventSettings, EventStore, EventsMetadata, FieldKind, FieldValue, TokenTime,
    number_code, number_of,
};
use headwater::plan::Split;
use headwater::random::{Purpose, Stream};
use proptest::prelude::*;

use crate::payments::{FIELDS, Payment, payments, prepared};
use crate::{contexts_of, files, rows_of, sampler};

const ALL_TRAIN: &str = "split = { train = 1.0, val = 0.0, test = 0.0 }";

fn store_of(all: &[Payment], fields: &str, more: &str) -> (tempfile::TempDir, Arc<EventStore>) {
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = prepared(folder.path(), all, (fields, more), None).unwrap();
    let store = EventStore::open(&out).unwrap();
    store.verify(&|_| Ok(())).unwrap();
    (folder, Arc::new(store))
}

fn values_of<'a>(metadata: &'a EventsMetadata, name: &str) -> &'a [String] {
    let field = metadata.fields.iter().find(|field| field.name == name).unwrap();
    match &field.kind {
        FieldKind::Category { values, .. } => values,
        other => panic!("{other:?}"),
    }
}

fn field<'a>(event: &'a DecodedEvent, name: &str) -> Option<&'a FieldValue> {
    event.fields.iter().find(|field| field.name == name).map(|field| &field.value)
}

/// The beginning of a text, as its bytes tell it.
fn cut(text: &str, bytes: usize) -> String {
    String::from_utf8_lossy(&text.as_bytes()[..bytes.min(text.len())]).into_owned()
}

#[test]
fn a_number_is_at_most_a_1024th_away_and_codes_are_in_its_order() {
    let mut random = Stream::new(1, Purpose::Demo, [0; 3]);
    for _ in 0..1_000_000 {
        let exponent = random.below(63) as i32 - 19;
        let number = 2_f64.powi(exponent) * (1.0 + random.below(1 << 30) as f64 / 2_f64.powi(30));
        for number in [number, -number] {
            let error = (number - number_of(number_code(number))) / number;
            assert!(error.abs() < 1.0 / 1024.0 || number.abs() > 1.756e13, "{number}: {error}");
        }
    }
    // The last code of a sign is not used: 0xffff is NULL.
    let codes = (0..0x7fff_u16).chain(0x8001..0xffff);
    assert!(codes.clone().all(|code| number_code(number_of(code)) == code));
    assert!((1..0x7fff).all(|code| number_of(code) > number_of(code - 1)));
    let whole = (0..=1024).all(|n| number_of(number_code(f64::from(n))) == f64::from(n));
    assert!(whole, "whole numbers up to 1024 are exact");
    let ends = [0.0, -0.0, 1e-7, f64::INFINITY, f64::NEG_INFINITY, 1e300].map(number_code);
    assert_eq!(ends, [0, 0, 0, 0x7ffe, 0xfffe, 0x7ffe]);
    // Of two codes at the same distance the even one.
    assert_eq!(number_of(number_code(1025.0)), 1024.0);
    assert_eq!(number_of(number_code(1027.0)), 1028.0);
}

#[test]
fn p7_only_values_of_train_have_tokens_and_the_most_frequent_come_first() {
    let all = payments(60, 12);
    let (_folder, store) =
        store_of(&all, FIELDS, "split = { train = 0.5, val = 0.2, test = 0.3, seed = 4 }");
    let mut entities = BTreeMap::new();
    let mut items = 0;
    for split in Split::ALL {
        let one = sampler(&store, &EventSettings { batch_size: 1, ..<_>::default() }, 0, 1);
        for row in 0..one.count(split) {
            entities.insert(one.token_row(split, row).unwrap().entity, split);
        }
        items += one.count(split);
    }
    assert!(entities.len() == 60 && items >= 60);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for payment in all.iter().filter(|one| entities[&one.card] == Split::Train) {
        *counts.entry(&payment.merchant).or_default() += u64::from(!payment.merchant.is_empty());
    }
    let mut expected: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    expected.sort_by_key(|&(merchant, count)| (std::cmp::Reverse(count), merchant));
    let expected: Vec<&str> = expected.into_iter().map(|(merchant, _)| merchant).take(6).collect();
    assert_eq!(values_of(store.metadata(), "merchant"), expected);

    // One value only in train, one only elsewhere, one more often elsewhere than all of train.
    let mut all = all;
    for payment in &mut all {
        let is_train = entities[&payment.card] == Split::Train;
        payment.merchant = if is_train { "here" } else { "elsewhere" }.to_owned();
    }
    let (_folder, store) =
        store_of(&all, FIELDS, "split = { train = 0.5, val = 0.2, test = 0.3, seed = 4 }");
    assert_eq!(values_of(store.metadata(), "merchant"), ["here"]);
}

#[test]
fn a_store_holds_no_bytes_for_rare_values_that_it_does_not_have() {
    let all = payments(30, 5);
    let of = |max_tokens: u32| {
        let fields = format!(
            "fields = {{ merchant = {{ type = \"category\", max_tokens = {max_tokens} }} }}"
        );
        let (_folder, store) = store_of(&all, &fields, ALL_TRAIN);
        let FieldKind::Category { max_bytes, .. } = store.metadata().fields[0].kind else {
            panic!()
        };
        (max_bytes, store.file_bytes())
    };
    let (all_known, some_rare) = (of(1000), of(6));
    assert_eq!((all_known.0, some_rare.0), (0, 7));
    assert!(all_known.1 < some_rare.1);
}

#[test]
fn the_order_of_rows_and_threads_change_no_byte() {
    let mut all = payments(40, 20);
    let mut stores = Vec::new();
    for (threads, round) in [(1, 0), (2, 1), (4, 2)] {
        let mut random = Stream::new(5, Purpose::Demo, [round, 0, 0]);
        for place in (1..all.len()).rev() {
            all.swap(place, random.below(place as u64 + 1) as usize);
        }
        let folder = tempfile::tempdir().unwrap();
        let (out, _) = prepared(folder.path(), &all, (FIELDS, ""), Some(threads)).unwrap();
        stores.push(files(&out));
    }
    assert!(stores[0] == stores[1] && stores[0] == stores[2]);
}

#[test]
fn p1_p4_ranks_and_threads_change_no_row_of_fields() {
    let (_folder, store) = store_of(&payments(40, 40), FIELDS, "");
    let settings =
        |batch_size| EventSettings { batch_size, sequence_length: 200, ..<_>::default() };
    let global = |world: u64| {
        let ranks: Vec<_> = (0..world)
            .map(|rank| sampler(&store, &settings(24 / world as u32), rank, world))
            .collect();
        let mut rows = Vec::new();
        for _ in 0..8 {
            let parts: Vec<_> =
                ranks.iter().map(|one| rows_of(&one.next(Split::Train).unwrap().0)).collect();
            (0..parts[0].len()).for_each(|row| rows.extend(parts.iter().map(|p| p[row].clone())));
        }
        rows
    };
    let whole = global(1);
    assert!([2, 3, 4].into_iter().all(|world| global(world) == whole));
}

#[test]
fn padding_is_less_than_the_longest_event() {
    let (_folder, store) = store_of(&payments(40, 40), FIELDS, ALL_TRAIN);
    // 1, role and bytes of a rare merchant (10), number (3), text (11), time (3), and the time (9).
    let room = 1 + 10 + 3 + 11 + 3 + 9;
    let settings = |length| EventSettings {
        batch_size: 64,
        sequence_length: length,
        ..EventSettings::default()
    };
    for length in [room, 256] {
        let one = sampler(&store, &settings(length), 0, 1);
        for _ in 0..10 {
            for row in contexts_of(&one.next(Split::Train).unwrap().0, length as usize) {
                let used: usize = row.iter().map(Vec::len).sum();
                assert!(length as usize - used < room as usize);
            }
        }
    }
    let rank = headwater::plan::Assignment::new(0, 1).unwrap();
    let speed = headwater::events::Speed::default();
    let short = headwater::events::EventSampler::new(store, settings(room - 1), rank, speed);
    let message = short.err().unwrap().to_string();
    assert!(
        message.contains("sequence_length: expected 37 to 32768 tokens, found 36"),
        "{message}"
    );
}

/// What a context can tell of a payment, as it must come back.
fn told(payment: &Payment, values: &[String]) -> BTreeMap<String, FieldValue> {
    let mut fields = BTreeMap::new();
    let text = |text: &str, bytes| FieldValue::Text(cut(text, bytes));
    if !payment.merchant.is_empty() {
        let is_known = values.contains(&payment.merchant);
        let bytes = if is_known { usize::MAX } else { 16 };
        fields.insert("merchant".to_owned(), text(&payment.merchant, bytes));
    }
    if let Ok(amount) = payment.amount.parse::<f64>()
        && !amount.is_nan()
    {
        fields.insert("amount".to_owned(), FieldValue::Number(number_of(number_code(amount))));
    }
    if !payment.note.is_empty() {
        fields.insert("note".to_owned(), text(&payment.note, 9));
    }
    if let Some(due) = payment.due {
        let later = due.div_euclid(1_000_000) - payment.time.div_euclid(1_000_000);
        let later = number_of(number_code(later as f64));
        fields.insert("due".to_owned(), FieldValue::SecondsLater(later));
    }
    fields
}

/// Earlier times could be milliseconds that are read as microseconds, and are refused.
const SINCE_1970_03: i64 = 5_100_000_000_000;

fn payment() -> impl Strategy<Value = Payment> {
    let amount = prop_oneof![
        Just(String::new()),
        Just("nan".to_owned()),
        any::<f64>().prop_map(|amount| amount.to_string()),
        (-1e6..1e6_f64).prop_map(|amount| amount.to_string()),
    ];
    let time = SINCE_1970_03..7_258_118_400_000_000_i64;
    let due = proptest::option::of(-62_000_000_000_000_000..250_000_000_000_000_000_i64);
    ("[a-z]{0,20}", time, amount, "[a-zß日]{0,12}", due).prop_map(
        |(merchant, time, amount, note, due)| Payment {
            card: "one".to_owned(),
            time,
            merchant,
            amount,
            note,
            due,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn decoded_tokens_are_the_fields(one in payment(), other in payment()) {
        // Another card has other merchants, so that there are rare ones.
        let more = (0..4).map(|_| Payment { merchant: "often".to_owned(), ..other.clone() });
        let all: Vec<Payment> = std::iter::once(one.clone()).chain(more).collect();
        let fields = FIELDS.replace("max_tokens = 6", "max_tokens = 1");
        let (_folder, store) = store_of(&all, &fields, ALL_TRAIN);
        let values = values_of(store.metadata(), "merchant").to_vec();
        let known: Vec<_> = all.iter().map(|payment| told(payment, &values)).collect();
        let settings = EventSettings { packing: false, batch_size: 1, ..EventSettings::default() };
        let sampler = sampler(&store, &settings, 0, 1);
        for row in 0..8 {
            let tokens = sampler.token_row(Split::Train, row).unwrap().segments.remove(0);
            prop_assert!(tokens.iter().all(|token| *token < store.vocabulary()));
            for event in store.decode(&tokens).unwrap() {
                let read: BTreeMap<_, _> = (event.fields.iter())
                    .filter(|field| field.name != "time")
                    .map(|field| (field.name.clone(), field.value.clone()))
                    .collect();
                prop_assert_eq!(read.len() + usize::from(event.time().is_some()), event.fields.len());
                let place = known.iter().position(|fields| *fields == read);
                prop_assert!(place.is_some(), "{:?} is none of {:?}", read, known);
                if let Some(TokenTime::Absolute(seconds)) = event.time() {
                    let is_its = |(fields, payment): (&BTreeMap<_, _>, &Payment)| {
                        *fields == read && payment.time / 1_000_000 == seconds.cast_signed()
                    };
                    prop_assert!(known.iter().zip(&all).any(is_its));
                }
            }
        }
    }
}

#[test]
fn fields_come_in_every_order_equally_often() {
    let one = Payment { card: "a".into(), time: 5_000_000, ..payments(1, 1).remove(0) };
    let one = Payment { merchant: "m".into(), amount: "1".into(), note: "n".into(), ..one };
    let (_folder, store) = store_of(&[Payment { due: None, ..one }], FIELDS, ALL_TRAIN);
    let settings = EventSettings { packing: false, batch_size: 1, ..EventSettings::default() };
    let sampler = sampler(&store, &settings, 0, 1);
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for row in 0..12_000 {
        let tokens = sampler.token_row(Split::Train, row).unwrap().segments.remove(0);
        let event = store.decode(&tokens).unwrap().remove(0);
        assert_eq!(field(&event, "merchant"), Some(&FieldValue::Text("m".into())));
        let order: String = event.fields.iter().map(|field| &field.name[..1]).collect();
        *counts.entry(order).or_default() += 1;
    }
    // Four of ten with a time (a partial one of one event has none): 24 orders, and 6 orders.
    assert_eq!(counts.len(), 30);
    for (order, count) in counts {
        let expected = if order.contains('t') { 4800.0 / 24.0 } else { 7200.0 / 6.0 };
        assert!((f64::from(count) - expected).abs() < 5.0 * f64::sqrt(expected), "{order} {count}");
    }
}

#[test]
fn odd_values_are_counted_and_told_by_row() {
    let mut all = payments(10, 5);
    all[3].amount = "NaN".to_owned();
    all[4].amount = "-2e14".to_owned();
    all[5].note = "a longer note than nine".to_owned();
    all[6].card = " ".to_owned();
    let folder = tempfile::tempdir().unwrap();
    let (_, report) = prepared(folder.path(), &all, (FIELDS, "dropped_share = 0.1"), None).unwrap();
    assert_eq!(report.dropped_count, 1);
    let remarks = report.remarks.join("\n");
    for expected in [
        "dropped 1 event without an entity (NULL or blank); the first is in row 7",
        "1 event whose \"amount\" is NaN, stored as NULL; the first is in row 4",
        "1 event whose \"amount\" is beyond 1.7557826306048e13, stored as that number; the first is in row 5, -2000",
        "whose \"note\" is cut to its max_bytes of 9; the first is in row",
    ] {
        assert!(remarks.contains(expected), "{expected}: {remarks}");
    }
}

#[test]
fn a_wrong_schema_is_told_what_to_write() {
    let all = payments(3, 3);
    let folder = tempfile::tempdir().unwrap();
    for (fields, more, expected) in [
        ("", "", "fields: expected 1 to 64 columns, each with its type, found 0"),
        (FIELDS, "columns = { dst = \"merchant\" }", "columns: the codec \"fields-v1\" has no"),
        ("fields = { time = \"number\" }", "", "fields: expected another name than \"time\""),
        ("fields = { note = \"byte\" }", "", "expected \"category\", \"number\", \"bytes\""),
        (
            "fields = { note = { type = \"number\", max_bytes = 3 } }",
            "",
            "the type \"number\" has no option \"max_bytes\"",
        ),
        (
            "fields = { note = { type = \"bytes\", max_bytes = 255 } }",
            "",
            "note: max_bytes: expected at most 254, found 255",
        ),
        (
            "fields = { note = { type = \"bytes\", max_bytes = 0 } }",
            "",
            "note: max_bytes: expected 1 to 254, found 0",
        ),
        (
            "fields = { note = { type = \"category\", max_tokens = 70000 } }",
            "",
            "note: max_tokens: expected at most 65535, found 70000",
        ),
        ("fields = { notes = \"bytes\" }", "", "there is no column \"notes\""),
        ("fields = { note = \"number\" }", "", "column \"note\": expected a number, found"),
        ("fields = { note = \"time\" }", "", "column \"note\": expected a time"),
        ("fields = { due = \"time\" }", "", "column \"due\": expected a time"),
    ] {
        let error = prepared(folder.path(), &all, (fields, more), None).err().unwrap();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}

#[test]
fn too_many_tokens_are_refused_before_a_row_is_written() {
    let all: Vec<Payment> = (0..40_000)
        .map(|number| Payment {
            merchant: format!("m{number}"),
            note: format!("n{number}"),
            ..payments(1, 1)[0].clone()
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let fields = "fields = { merchant = { type = \"category\", max_tokens = 40000 }, note = { type = \
                  \"category\", max_tokens = 40000 } }";
    let error = prepared(folder.path(), &all, (fields, ALL_TRAIN), None).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert!(error.to_string().contains("lower max_tokens of the categories"), "{error}");
    assert!(!folder.path().join("payments.db").exists());
}

/// A change of the metadata that makes them false.
type Change = fn(&mut EventsMetadata);

#[test]
fn a_vocabulary_that_does_not_fit_is_refused_at_open() {
    let (_folder, store) = store_of(&payments(10, 5), FIELDS, "");
    let path = store.path().join("metadata.json");
    let changes: [(&str, Change); 13] = [
        ("the name of the time", |metadata| metadata.fields[1].name = "time".into()),
        ("a longer value than has a token", |metadata| {
            if let FieldKind::Category { values, .. } = &mut metadata.fields[0].kind {
                values[0] = "v".repeat(255);
            }
        }),
        ("times from 1970 to 2200", |metadata| metadata.last_us = 7_258_118_400_000_000),
        ("times from 1970 to 2200", |metadata| metadata.first_us = metadata.last_us + 1),
        ("the test split: ", |metadata| metadata.splits[2].items = u64::MAX),
        ("fields", |metadata| metadata.fields.clear()),
        ("another token", |metadata| metadata.fields[1].role += 1),
        ("another token", |metadata| metadata.fields[1].name = "merchant".into()),
        ("other tokens for its values", |metadata| {
            if let FieldKind::Category { first, .. } = &mut metadata.fields[0].kind {
                *first += 1;
            }
        }),
        ("one value twice", |metadata| {
            if let FieldKind::Category { values, .. } = &mut metadata.fields[0].kind {
                values[1] = values[0].clone();
            }
        }),
        ("longer texts than a byte can tell", |metadata| {
            metadata.fields[2].kind = FieldKind::Bytes { max_bytes: 255 };
        }),
        ("expected no fields for the codec \"latency-v1\"", |metadata| {
            metadata.codec = "latency-v1".into();
        }),
        ("expected the codec \"latency-v1\" or \"fields-v1\", found \"fields-v2\"", |metadata| {
            metadata.codec = "fields-v2".into();
        }),
    ];
    for (expected, change) in changes {
        let mut metadata = store.metadata().clone();
        change(&mut metadata);
        fs::write(&path, metadata.encode().unwrap()).unwrap();
        let message = EventStore::open(store.path()).err().unwrap().to_string();
        assert!(message.contains(expected) && message.contains("metadata.json"), "{message}");
    }
}
