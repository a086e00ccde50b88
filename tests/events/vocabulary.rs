//! How a store of `fields-v1` is built: what is counted, refused and told.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use headwater::events::{EventSettings, EventStore, FieldKind, FieldMetadata, TokenTime};
use headwater::plan::Split;
use headwater::prepare::schema::{Schema, TimeUnit};
use headwater::prepare::source::{Batches, Source, SourceColumn, SourceTable};
use headwater::prepare::{EventOptions, EventsReport, prepare_events, source};
use headwater::progress::Silent;
use headwater::{ErrorKind, Result};

use crate::payments::{FIELDS, Payment, payments, prepared, schema, write_csv};
use crate::sampler;

const ALL_TRAIN: &str = "split = { train = 1.0, val = 0.0, test = 0.0 }";
const HALVES: &str = "split = { train = 0.5, val = 0.2, test = 0.3, seed = 4 }";

fn built(
    all: &[Payment],
    fields: &str,
    more: &str,
) -> (tempfile::TempDir, EventStore, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let (out, report) = prepared(folder.path(), all, (fields, more), None).unwrap();
    let store = EventStore::open(&out).unwrap();
    store.verify(&|_| Ok(())).unwrap();
    (folder, store, report.remarks)
}

fn refusal(all: &[Payment], fields: &str, more: &str) -> headwater::Error {
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path(), all, (fields, more), None).err().unwrap()
}

/// A source with other rows at its second read.
struct Changing {
    reads: [Box<dyn Source>; 2],
    was_read: AtomicBool,
}

impl Source for Changing {
    fn describe(&self) -> String {
        self.reads[0].describe()
    }

    fn names(&self) -> Result<Vec<String>> {
        self.reads[0].names()
    }

    fn columns(&self, table: &str) -> Result<Vec<SourceColumn>> {
        self.reads[0].columns(table)
    }

    fn tables(&self) -> Result<Vec<SourceTable>> {
        self.reads[0].tables()
    }

    fn read(&self, table: &str, columns: &[String]) -> Result<Batches> {
        let number = usize::from(self.was_read.swap(true, Ordering::Relaxed));
        self.reads[number].read(table, columns)
    }
}

fn prepared_from_two_reads(first: &[Payment], second: &[Payment]) -> Result<EventsReport> {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str, all: &[Payment]| {
        let folder = folder.path().join(name);
        fs::create_dir(&folder).unwrap();
        source::open(&write_csv(&folder, all)).unwrap()
    };
    let changing =
        Changing { reads: [read("a", first), read("b", second)], was_read: AtomicBool::new(false) };
    let options = EventOptions { replace: false, threads: Some(2), progress: &Silent };
    let fields = "fields = { merchant = \"category\", note = \"category\", amount = \"number\" }";
    prepare_events(&changing, &schema(fields, "").unwrap(), &folder.path().join("db"), &options)
}

/// A change of a log between its two reads.
type Change<'a> = &'a dyn Fn(&mut Vec<Payment>);

#[test]
fn p6_a_source_that_changes_between_two_reads_is_refused() {
    let all = payments(20, 20);
    let mut turned = all.clone();
    turned.reverse();
    assert!(prepared_from_two_reads(&all, &turned).is_ok(), "the order of the rows is free");

    let is_other =
        |place: &usize| all[*place].card != all[0].card && all[*place].merchant != all[0].merchant;
    let other = (1..all.len()).find(is_other).unwrap();
    let changes: [(&str, Change<'_>); 6] = [
        ("two categories changed places", &|all| {
            let Payment { merchant, note, .. } = &mut all[2];
            assert_ne!(merchant, note);
            std::mem::swap(merchant, note);
        }),
        ("one more", &|all| all.push(Payment { merchant: "a new one".into(), ..all[0].clone() })),
        ("one less", &|all| _ = all.pop()),
        ("another merchant", &|all| all[7].merchant = "a new one".into()),
        ("a merchant that is NULL", &|all| all[7].merchant.clear()),
        ("two cards changed places", &|all| {
            let card = std::mem::take(&mut all[0].card);
            all[0].card = std::mem::replace(&mut all[other].card, card);
        }),
    ];
    for (what, change) in changes {
        let mut changed = all.clone();
        change(&mut changed);
        let error = prepared_from_two_reads(&all, &changed).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Data, "{what}: {error}");
        let message = error.to_string();
        assert!(message.contains("the source changed meanwhile"), "{what}: {message}");
    }
}

/// The splits of the cards, as the stores of these tests have them.
fn splits_of(store: &Arc<EventStore>) -> BTreeMap<String, Split> {
    let mut splits = BTreeMap::new();
    for split in Split::ALL {
        let one = sampler(store, &EventSettings { batch_size: 1, ..<_>::default() }, 0, 1);
        for row in 0..one.count(split) {
            splits.insert(one.token_row(split, row).unwrap().entity, split);
        }
    }
    splits
}

#[test]
fn p7_values_of_val_and_test_change_no_row_of_train() {
    let all = payments(40, 12);
    let rows_of_train = |all: &[Payment], fields: &str| {
        let (folder, store, _) = built(all, fields, HALVES);
        let store = Arc::new(store);
        let settings = EventSettings { sequence_length: 128, batch_size: 1, ..<_>::default() };
        let one = sampler(&store, &settings, 0, 1);
        let row = |row| one.token_row(Split::Train, row).unwrap().segments;
        let rows: Vec<_> = (0..200).map(row).collect();
        (folder, store.metadata().fields.clone(), rows, splits_of(&store))
    };
    let explicit = FIELDS.replace("max_tokens = 6", "max_tokens = 6, max_bytes = 12");
    for fields in [FIELDS, &explicit] {
        let (_folder, vocabulary, rows, splits) = rows_of_train(&all, fields);
        let mut longer = all.clone();
        for payment in longer.iter_mut().filter(|one| splits[&one.card] != Split::Train) {
            payment.merchant = format!("a merchant with a long name {}", payment.merchant);
        }
        let (_other_folder, new_vocabulary, new_rows, _) = rows_of_train(&longer, fields);
        assert!(new_vocabulary == vocabulary);
        assert!(new_rows == rows);
    }
}

#[test]
fn categories_are_counted_over_all_batches_and_files() {
    // More than two batches of each of two files, with counts that differ by few.
    let folder = tempfile::tempdir().unwrap();
    let parts = folder.path().join("payments");
    fs::create_dir(&parts).unwrap();
    let all = payments(300, 120);
    assert!(all.len() > 30_000);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for payment in all.iter().filter(|payment| !payment.merchant.is_empty()) {
        *counts.entry(&payment.merchant).or_default() += 1;
    }
    for (number, part) in all.chunks(all.len() / 2 + 1).enumerate() {
        let of_part = folder.path().join(format!("{number}"));
        fs::create_dir(&of_part).unwrap();
        fs::rename(write_csv(&of_part, part), parts.join(format!("{number}.csv"))).unwrap();
    }
    let mut expected: Vec<_> = counts.into_iter().collect();
    expected.sort_by_key(|&(merchant, count)| (std::cmp::Reverse(count), merchant));
    let expected: Vec<&str> = expected.into_iter().map(|(merchant, _)| merchant).collect();
    let fields = "fields = { merchant = \"category\" }";
    let out = folder.path().join("payments.db");
    let options = EventOptions { replace: false, threads: Some(3), progress: &Silent };
    let pattern = parts.join("*.csv");
    let schema: Schema = schema(fields, ALL_TRAIN).unwrap();
    prepare_events(&*source::open(&pattern).unwrap(), &schema, &out, &options).unwrap();
    let store = EventStore::open(&out).unwrap();
    let FieldKind::Category { values, .. } = &store.metadata().fields[0].kind else { panic!() };
    assert_eq!(*values, expected);
}

/// The values and the bytes of rare ones of the category `note`.
fn note(store: &EventStore) -> (Vec<String>, u8) {
    let [FieldMetadata { kind: FieldKind::Category { values, max_bytes, .. }, .. }] =
        &store.metadata().fields[..]
    else {
        panic!("{:?}", store.metadata().fields)
    };
    (values.clone(), *max_bytes)
}

#[test]
fn a_value_that_is_too_long_has_no_token() {
    let mut all = payments(4, 6);
    all.iter_mut().for_each(|payment| payment.note = "n".repeat(254));
    let fields = "fields = { note = \"category\" }";
    let (_folder, store, _) = built(&all, fields, ALL_TRAIN);
    assert_eq!(note(&store), (vec!["n".repeat(254)], 0));
    all[3].note.push('n');
    let (_folder, store, remarks) = built(&all, fields, ALL_TRAIN);
    assert_eq!(note(&store), (vec!["n".repeat(254)], 16));
    let cut = "1 event whose \"note\" is not among the values that have a token (the most frequent of \
               train), stored as its first 16 bytes (max_bytes); the first is in row 4, \
               \"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\"...";
    assert!(remarks.iter().any(|remark| remark == cut), "{remarks:?}");
}

#[test]
fn more_different_values_than_are_counted_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let rows = (0..=1 << 20).map(|row| format!("a,{},v{row}\n", 1_751_000_000 + row));
    let data = folder.path().join("payments.csv");
    fs::write(&data, format!("card,time,note\n{}", rows.collect::<String>())).unwrap();
    let fields = "fields = { note = \"category\" }";
    let error = prepare(&data, fields, ALL_TRAIN, "s").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert!(
        error.to_string().contains(
            "expected at most 1048576 different values of the category \"note\" in train, found \
             more; make the field \"bytes\""
        ),
        "{error}"
    );
}

/// Prepares a file, with times of this unit.
fn prepare(data: &Path, fields: &str, more: &str, unit: &str) -> Result<EventsReport> {
    let mut schema = schema(fields, more)?;
    let unit = TimeUnit::ALL.into_iter().find(|known| known.name() == unit);
    schema.events.as_mut().unwrap().time.unit = unit;
    let options = EventOptions { replace: true, threads: None, progress: &Silent };
    prepare_events(&*source::open(data)?, &schema, &data.with_extension("db"), &options)
}

/// A second of 2025.
const NOW: u64 = 1_751_000_000;

#[test]
fn times_in_a_wrong_unit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("payments.csv");
    let fields = "fields = { note = \"bytes\", due = { type = \"time\", unit = \"s\" } }";
    let of = |times: &[u64], unit: &str, due: u64| {
        let rows = times.iter().map(|time| format!("a,{time},n,{due}\n"));
        fs::write(&data, format!("card,time,note,due\n{}", rows.collect::<String>())).unwrap();
        prepare(&data, fields, ALL_TRAIN, unit)
    };
    // One of a hundred may be anything, such as a 0 for a time that is not known.
    let seconds: Vec<u64> =
        (0..200).map(|event| if event == 7 { 0 } else { NOW + event }).collect();
    let steps = |factor: u64| seconds.iter().map(|time| time * factor).collect::<Vec<_>>();
    for (factor, given, remedy) in [
        (1, "us", "write unit = \"s\" in events.time"),
        (1, "ms", "write unit = \"s\" in events.time"),
        (1000, "us", "write unit = \"ms\" in events.time"),
        (1000, "s", "write unit = \"ms\" in events.time"),
        (1_000_000, "ms", "write unit = \"us\" in events.time"),
        (1_000_000_000, "us", "divide them in the source by 1000"),
    ] {
        let message = of(&steps(factor), given, NOW).unwrap_err().to_string();
        let column = "column \"time\": expected whole ";
        assert!(
            message.contains(column) && message.contains(remedy),
            "{factor} {given}: {message}"
        );
    }
    for (factor, unit) in [(1, "s"), (1000, "ms"), (1_000_000, "us")] {
        of(&steps(factor), unit, NOW).unwrap();
    }
    let message = of(&seconds, "s", NOW * 1000).unwrap_err().to_string();
    assert!(message.contains("column \"due\": expected whole seconds"), "{message}");
    assert!(message.contains("write unit = \"ms\" in the field"), "{message}");
    // A log that counts from its beginning.
    assert!(of(&[0, 60, 3600], "s", NOW).is_ok() && of(&[5, 900], "us", NOW).is_ok());
}

#[test]
fn remarks_name_null_fields_rare_values_and_empty_splits() {
    let mut all = payments(6, 8);
    for payment in &mut all {
        payment.note.clear();
        payment.amount = "1e-9".to_owned();
    }
    let fields = r#"fields = { merchant = { type = "category", max_tokens = 0 }, amount = "number", note = "bytes" }"#;
    // A dropped event does not count.
    all[2].card = " ".to_owned();
    all[2].note = "dropped".to_owned();
    let split = "split = { train = 0.999, val = 0.001, test = 0.0 }\ndropped_share = 0.1";
    let (_folder, _, remarks) = built(&all, fields, split);
    let remarks = remarks.join("\n");
    let is_rare = |one: &&Payment| !one.merchant.is_empty() && one.card != " ";
    let rare = all.iter().filter(is_rare).count();
    for expected in [
        "the field \"note\" is NULL in every event",
        "no value of \"merchant\" has a token",
        "whose \"amount\" is nearer to 0 than a millionth, stored as 0; the first is in row 1, 0.000000001",
        "the val split is empty: none of 6 entities fell into its share of 0.001",
        &format!("{rare} events whose \"merchant\" is not among the values that have a token"),
    ] {
        assert!(remarks.contains(expected), "{expected}: {remarks}");
    }
    assert!(!remarks.contains("test split"), "{remarks}");
}

#[test]
fn the_first_wrong_value_is_told_whatever_the_threads() {
    let mut all = payments(300, 120);
    all.iter_mut().for_each(|payment| payment.note = "1".to_owned());
    for row in [4, 8_200, 17_000, 29_000] {
        all[row].note = format!("no number {row}");
    }
    let folder = tempfile::tempdir().unwrap();
    for threads in [1, 4] {
        let fields = ("fields = { note = \"number\" }", ALL_TRAIN);
        let error = prepared(folder.path(), &all, fields, Some(threads)).unwrap_err().to_string();
        assert!(error.contains("found \"no number 4\" in row 5;"), "{threads}: {error}");
    }
    all[4].time = 7_258_118_400_000_001;
    let message = refusal(&all, "fields = { note = \"bytes\" }", "dropped_share = 0.0").to_string();
    assert!(
        message.contains("outside of 1970 to 2200; the first is in row 5, 2200-01-01 00:00:00"),
        "{message}"
    );
}

#[test]
fn only_tokens_that_the_codec_writes_are_decoded() {
    let all = payments(20, 20);
    let (_folder, store, _) = built(&all, FIELDS, ALL_TRAIN);
    let [merchant, amount, note, due] =
        [0, 1, 2, 3].map(|field| store.metadata().fields[field].role);
    let byte = |byte: u8| 16 + u16::from(byte);
    let decoded = |tokens: &[u16]| store.decode(tokens);
    let cases: [(&[u16], &str); 11] = [
        (
            &[0, 3, byte(0), byte(0), byte(0), byte(255)],
            "token 2: expected the bytes of 256 seconds",
        ),
        (
            &[0, 1, byte(1), 16, 16, 16, 16, 16, 16, 16],
            "token 2: expected the bytes of a time before",
        ),
        (&[0, amount, byte(255), byte(255)], "token 2: expected the two bytes of a code"),
        (&[0, due, byte(127), byte(255)], "token 2: expected the two bytes of a code"),
        (&[0, amount, byte(128), byte(0)], "token 2: expected the two bytes of a code"),
        (&[0, note, byte(10)], "token 2: expected the byte of a length of at most 9"),
        (&[0, merchant, 4, byte(40)], "token 3: expected the byte of a length of at most 7"),
        (&[0, note, byte(0), note, byte(0)], "token 3: expected no second \"note\" in the event"),
        (&[0, 2, byte(1), 2, byte(1)], "token 3: expected no second \"time\" in the event"),
        (&[0, 5], "token 1: expected the token of a field, or of a time, found the token 5"),
        (&[merchant], "token 0: expected the token 0, which begins an event"),
    ];
    for (tokens, expected) in cases {
        let message = decoded(tokens).unwrap_err().to_string();
        assert!(message.contains(expected), "{tokens:?}: {message}");
    }
    // What a model adds to a context may begin with a difference of times.
    let events = decoded(&[0, 2, byte(7), amount, byte(0), byte(0)]).unwrap();
    assert_eq!(events[0].time(), Some(TokenTime::Since(7)));
}

#[test]
fn p6_verify_finds_values_that_the_vocabulary_does_not_have() {
    let (_folder, store, _) = built(&payments(20, 20), FIELDS, ALL_TRAIN);
    let mut metadata = store.metadata().clone();
    let FieldKind::Category { values, .. } = &mut metadata.fields[0].kind else { panic!() };
    values.pop();
    fs::write(store.path().join("metadata.json"), metadata.encode().unwrap()).unwrap();
    let error = EventStore::open(store.path()).unwrap().verify(&|_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("a value that the codec does not write"), "{error}");
}
