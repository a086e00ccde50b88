//! The latest events of an entity, as a model continues them.

use std::fs;
use std::sync::Arc;

use headwater::ErrorKind;
use headwater::events::{
    DecodedEvent, EventSampler, EventSettings, EventStore, FieldValue, TokenTime, number_code,
    number_of,
};
use headwater::prepare::schema::Schema;
use headwater::prepare::{EventOptions, prepare_events, source};
use headwater::progress::Silent;

use crate::payments::{FIELDS, Payment, payments, prepared};
use crate::sampler;

/// A sampler of a store of payments, with the folder of the store.
fn sampler_of(all: &[Payment], more: &str) -> (tempfile::TempDir, EventSampler) {
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = prepared(folder.path(), all, (FIELDS, more), None).unwrap();
    let store = Arc::new(EventStore::open(&out).unwrap());
    (folder, sampler(&store, &EventSettings { batch_size: 1, ..<_>::default() }, 0, 1))
}

/// The whole seconds and the amount of each event of some tokens.
fn told(sampler: &EventSampler, tokens: &[u16]) -> Vec<(i64, Option<f64>)> {
    let mut now = 0;
    let event = |event: &DecodedEvent| {
        now = match event.time().expect("each event has a time") {
            TokenTime::Absolute(seconds) => seconds.cast_signed(),
            TokenTime::Since(seconds) => now + i64::from(seconds),
        };
        let amount = event.fields.iter().find(|field| field.name == "amount");
        let amount = amount.map(|field| match field.value {
            FieldValue::Number(amount) => amount,
            ref other => panic!("{other:?}"),
        });
        (now, amount)
    };
    sampler.store().decode(tokens).unwrap().iter().map(event).collect()
}

/// What the events of a card before a time tell, in the order of time.
fn of_card(all: &[Payment], card: &str, before: i64) -> Vec<(i64, Option<f64>)> {
    let mut its: Vec<&Payment> =
        all.iter().filter(|one| one.card == card && one.time < before).collect();
    its.sort_by_key(|one| one.time);
    let amount = |one: &Payment| one.amount.parse().ok().map(|a| number_of(number_code(a)));
    its.into_iter().map(|one| (one.time.div_euclid(1_000_000), amount(one))).collect()
}

#[test]
fn the_latest_events_are_the_last_ones_that_fit_in_the_order_of_time() {
    let all = payments(30, 120);
    let split = "split = { train = 0.5, val = 0.2, test = 0.3 }";
    let (_folder, one) = sampler_of(&all, split);
    let (_parts_folder, parts) = sampler_of(&all, &format!("{split}\nrow_bytes = 1024"));
    assert!(parts.store().metadata().row_count() > 2 * one.store().metadata().row_count());
    let mut shorter = 0;
    for card in 0..30 {
        let card = format!("card-{card}");
        let times: Vec<i64> = all.iter().filter(|p| p.card == card).map(|p| p.time).collect();
        let middle = times[times.len() / 2];
        for before in [None, Some(middle), Some(middle + 1), Some(times[0])] {
            let tokens = one.latest(&card, before, Some(300)).unwrap();
            assert!(tokens.len() <= 300);
            let (found, whole) =
                (told(&one, &tokens), of_card(&all, &card, before.unwrap_or(i64::MAX)));
            assert!(whole.ends_with(&found), "{card} {before:?}");
            // An event has at most 33 tokens, of which its time may have 3 less than was reserved.
            let reserved = 4 + tokens.len() + 3 * found.len();
            assert!(found.len() == whole.len() || reserved + 33 > 300, "{reserved}");
            shorter += usize::from(found.len() < whole.len());
            assert_eq!(parts.latest(&card, before, Some(300)).unwrap(), tokens);
        }
        assert!(one.latest(&card, Some(times[0]), None).unwrap().is_empty());
    }
    assert!(shorter > 20);
}

#[test]
fn latest_refuses_an_unknown_entity_and_a_wrong_length() {
    let all = payments(3, 9);
    let (_folder, one) = sampler_of(&all, "");
    for (name, length, expected) in [
        (
            "card-9",
            None,
            "entity: expected the name of an entity of the store, a value of card, found \"card-9\"",
        ),
        ("card-1", Some(4), "length: expected at least "),
        ("card-1", Some(40_000), "length: expected at most 32768 tokens, found 40000"),
    ] {
        let error = one.latest(name, None, length).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn latest_measurements_are_of_one_family() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("pings.csv");
    // A probe with both families; the last measurement is of IPv6, two thirds of them of IPv4.
    let row = |at: u64| match at % 3 {
        2 => format!("7,2001:db8::1,2001:db8::2,{at},15.5\n"),
        _ => format!("7,192.0.2.1,192.0.2.2,{at},15.5\n"),
    };
    let rows: String = (0..9).map(row).collect();
    fs::write(&data, format!("probe,src,dst,time,rtt\n{rows}")).unwrap();
    let schema = Schema::parse(
        r#"
        database = "pings"
        [events]
        source = "pings"
        codec = "latency-v1"
        entity = "probe"
        time = { column = "time", unit = "s" }
        columns = { src = "src", dst = "dst", rtt = "rtt" }
        split = { train = 1.0, val = 0.0, test = 0.0 }
        "#,
    )
    .unwrap();
    let out = folder.path().join("pings.db");
    let options = EventOptions { replace: false, threads: None, progress: &Silent };
    prepare_events(&*source::open(&data).unwrap(), &schema, &out, &options).unwrap();
    let store = Arc::new(EventStore::open(&out).unwrap());
    let one = sampler(&store, &EventSettings { batch_size: 1, ..<_>::default() }, 0, 1);
    let times = |before: Option<i64>| {
        let events = store.decode(&one.latest("7", before, None).unwrap()).unwrap();
        events.iter().map(|event| event.time().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(times(None), [TokenTime::Absolute(2), TokenTime::Since(3), TokenTime::Since(3)]);
    let v4 =
        [TokenTime::Absolute(0), TokenTime::Since(1), TokenTime::Since(2), TokenTime::Since(1)];
    assert_eq!(times(Some(5_000_000)), v4);
}
