//! Schemas of events, in TOML and as dictionaries, each with the message about its fault.

use super::*;

const EVENTS: &str = r#"database = "d"

[events]
source = "t"
codec = "fields-v1"
entity = "card"
time = { column = "at", unit = "s" }
fields = { kind = "category" }
"#;

/// The message about the schema in which `from` is replaced.
fn message(from: &str, to: &str) -> String {
    assert!(EVENTS.contains(from), "{from}");
    Schema::parse(&EVENTS.replace(from, to)).unwrap_err().to_string()
}

#[test]
fn names_of_other_types_are_told_that_of_the_field() {
    Schema::parse(EVENTS).unwrap();
    for (other, meant) in [
        ("categorical", "category"),
        ("numerical", "number"),
        ("numeric", "number"),
        ("text", "bytes"),
        ("String", "bytes"),
        ("timestamp", "time"),
        ("catgory", "category"),
    ] {
        for form in [format!("{other:?}"), format!("{{ type = {other:?} }}")] {
            let found = message("\"category\"", &form);
            let end = format!("found {other:?}; did you mean {meant:?}?");
            assert!(found.ends_with(&end), "{found}");
        }
    }
    assert!(message("\"category\"", "\"zzz\"").ends_with("found \"zzz\"; correct it"));
}

#[test]
fn faults_of_a_schema_of_events_are_told_with_a_remedy() {
    for (from, to, expected) in [
        (
            "[events]",
            "[[events]]",
            "line 3, column 1: expected [events] in single brackets, because there is one, found \
             [[events]]; write [events]",
        ),
        (
            "fields = {",
            "split = { train = .9, test = .1 }\nfields = {",
            "line 8, column 19: train: expected digits before and after the point; write 0.9, not .9",
        ),
        (
            "fields = {",
            "split = { train = 1.0, val = 0.0, test = 0.0, seed = -1 }\nfields = {",
            "line 8, column 54: seed: expected a whole number from 0 to 18446744073709551615, found integer `-1`; choose one \
             of these",
        ),
        (
            "kind = \"category\"",
            "kind = \"category\", kind = \"bytes\"",
            "line 8, column 31: expected each name once, found a second \"kind\"; remove one",
        ),
        (
            "entity = \"card\"",
            "entity = \"card\"\n\"entity\" = \"at\"",
            "line 7, column 1: expected each name once, found a second \"entity\"; remove one",
        ),
        (
            "entity = \"card\"",
            "entity = [\"card\", \"shop\", \"card\"]",
            "events: entity: column \"card\" is named twice; remove one",
        ),
        (
            "fields = {",
            "row_bytes = 1023\nfields = {",
            "events: row_bytes: expected 1,024 to 2^40 bytes, found 1023; leave it out for the default \
             of 8 MiB",
        ),
        (
            "unit = \"s\" }",
            "unit = \"s\", end = true }",
            "line 7, column 8: expected a unit with end = true, one of yyyymmdd, season, month, quarter, \
             year; other times have no end: leave end out",
        ),
    ] {
        assert_eq!(message(from, to), expected);
    }
    Schema::parse(&EVENTS.replace("fields = {", "row_bytes = 1024\nfields = {")).unwrap();
}

#[test]
fn errors_of_a_dictionary_name_the_key_and_no_place_in_a_text() {
    let json = |from: &str, to: &str| {
        let text = serde_json::to_string(&toml::from_str::<toml::Table>(EVENTS).unwrap()).unwrap();
        assert!(text.contains(from), "{from} {text}");
        Schema::from_json(&text.replace(from, to)).map_err(|error| error.to_string())
    };
    assert_eq!(json("\"card\"", "\"card\"").unwrap(), Schema::parse(EVENTS).unwrap());
    // None is the same as no key.
    json("\"card\"", "\"card\",\"row_bytes\":8388608,\"split\":{}").unwrap();
    for (from, to, expected) in [
        (
            "\"category\"",
            "\"text\"",
            "events: fields: kind: expected \"category\", \"number\", \"bytes\", \"time\", or a table such \
             as { type = \"bytes\", max_bytes = 32 }, found \"text\"; did you mean \"bytes\"?",
        ),
        (
            "\"entity\"",
            "\"entty\"",
            "events: entty: expected one of the fields `source`, `codec`, `entity`, `time`, `columns`, \
             `fields`, `row_bytes`, `split`, `dropped_share`, found `entty`; did you mean `entity`?",
        ),
        (
            "\"unit\":\"s\"",
            "\"unit\":\"sec\"",
            "events: time: unit: expected one of `s`, `ms`, `us`, `yyyymmdd`, `month`, `quarter`, \
             `season`, `year`, found `sec`; correct it",
        ),
        (
            "\"source\":\"t\"",
            "\"source\":3",
            "events: source: expected a string, found integer `3`",
        ),
        ("\"source\":\"t\",", "", "events: the field `source` is missing; add source = ..."),
    ] {
        assert_eq!(json(from, to).unwrap_err(), format!("the schema's dictionary: {expected}"));
    }
    assert_eq!(
        json("\"card\"", "[\"card\",null]").unwrap_err(),
        "the schema's dictionary: invalid type: null, expected a string"
    );
    let tables = r#"{"database":"d","table":[{"name":"a","columns":{"x":"txt"}}]}"#;
    assert_eq!(
        Schema::from_json(tables).unwrap_err().to_string(),
        "the schema's dictionary: table \"a\": columns: x: expected one of `identifier`, `numerical`, \
         `timestamp`, `boolean`, `categorical`, `text`, `ignored`, found `txt`; did you mean `text`?"
    );
}
