//! Drafted aggregates: of children that are many and that came to exist one after the other.

use headwater::prepare::schema::Aggregate;

use super::draft::{csv, drafted};
use super::*;

fn described(aggregates: &[Aggregate]) -> Vec<String> {
    let describe = |aggregate: &Aggregate| {
        let Aggregate { table, reference, columns, windows } = aggregate;
        let windows: Vec<_> = windows.iter().map(ToString::to_string).collect();
        format!("{table} by {reference}: {}; {}", columns.join(" "), windows.join(", "))
    };
    aggregates.iter().map(describe).collect()
}

/// Visits of shops, `days` apart, with a few columns.
fn visits(days: f64) -> Vec<u8> {
    csv("id,shop_id,at,price,paid,currency,fee", 400, |i| {
        let seconds = (i as f64 * days * 86_400.0) as i64 + 1_600_000_000;
        format!("{i},{},{seconds},{}.5,{},{},7", i % 20, i * i % 97, i % 2 == 0, i % 3)
    })
}

#[test]
fn aggregates_are_drafted_for_rows_with_many_dated_children() {
    let shops = csv("id,town", 20, |i| format!("{i},t{}", i % 4));
    // A visit has one receipt, and its notes came with it.
    let receipts = csv("id,visit_id,sum", 400, |i| format!("{i},{i},{}", i % 7));
    let notes = csv("visit_id,words", 1000, |i| format!("{},w{i}", i % 400));
    // Nobody knows when a shelf came.
    let shelves = csv("id,shop_id,width", 200, |i| format!("{i},{},{}", i % 20, i % 9));
    let folder = folder(&[
        ("shops.csv", &shops),
        ("visits.csv", &visits(2.0)),
        ("receipts.csv", &receipts),
        ("notes.csv", &notes),
        ("shelves.csv", &shelves),
    ]);
    let draft = drafted(&*opened(folder.path()));
    assert_eq!(
        described(&draft.schema.aggregates),
        ["visits by shop_id: price paid currency; 30 days, 120 days, 480 days, ever"]
    );
    let text = draft.render();
    assert!(
        text.contains(
            "\n[[aggregate]] # 20.0 of them for each row of \"shops\", on average\n\
             table = \"visits\"\n\
             reference = \"shop_id\"\n\
             columns = [\"price\", \"paid\", \"currency\"]\n\
             windows = [\"30 days\", \"120 days\", \"480 days\", \"ever\"]\n"
        ),
        "{text}"
    );
}

#[test]
fn windows_are_as_long_as_the_times_allow() {
    let windows = |days: f64| {
        let shops = csv("id,town", 20, |i| format!("{i},t{}", i % 4));
        let folder = folder(&[("shops.csv", &shops), ("visits.csv", &visits(days))]);
        let found = described(&drafted(&*opened(folder.path())).schema.aggregates);
        found[0].split_once("; ").unwrap().1.to_owned()
    };
    assert_eq!(windows(1.0), "1 week, 4 weeks, 16 weeks, ever");
    assert_eq!(windows(0.1), "1 day, 4 days, 16 days, ever");
    assert_eq!(windows(0.001), "1 hour, 4 hours, 16 hours, ever");
}

#[test]
fn the_references_with_the_most_children_share_the_cells() {
    let shops = csv("id,town", 20, |i| format!("{i},t{}", i % 4));
    let mut files = vec![("shops.csv".to_owned(), shops)];
    for (number, rows) in [400, 800, 50, 600, 700].into_iter().enumerate() {
        let at = |i: u64| 1_600_000_000 + i * 86_400;
        let table = csv("id,shop_id,at,price", rows, |i| {
            format!("{i},{},{},{}.5", i % 20, at(i), i * i % 97)
        });
        files.push((format!("events{number}.csv"), table));
    }
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), &text[..])).collect();
    let folder = folder(&files);
    let found = described(&drafted(&*opened(folder.path())).schema.aggregates);
    let tables: Vec<_> = found.iter().map(|text| &text[..7]).collect();
    assert_eq!(tables, ["events0", "events1", "events3", "events4"]);
    assert!(found[1].ends_with("price; 120 days, 480 days, ever"), "{}", found[1]);
}
