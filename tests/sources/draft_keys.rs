//! Keys of several columns that nobody declared.

use super::draft::{csv, drafted, formula_one, links};
use super::*;

/// The line about the key of `sales`, which has these columns, in a shop of tables `a`, `b` and `c`
/// with 40 rows each.
fn noted(header: &str, rows: u64, row: impl Fn(u64) -> String) -> String {
    let parent = csv("id,name", 40, |i| format!("{i},name {i}"));
    let folder = folder(&[
        ("a.csv", &parent),
        ("b.csv", &parent),
        ("c.csv", &parent),
        ("sales.csv", &csv(header, rows, row)),
    ]);
    let text = drafted(&*opened(folder.path())).render();
    let sales = text.split("name = \"sales\"\n").nth(1).unwrap();
    sales.lines().next().unwrap().to_owned()
}

const NONE: &str = "# no key: no column is unique and named like a key";

#[test]
fn two_references_that_never_repeat_together_are_a_key() {
    let pair = |i: u64| format!("{},{}", i / 40, i % 40);
    let key = "key = [\"a_id\", \"b_id\"] # these 2 columns are unique together and never NULL";
    assert_eq!(noted("a_id,b_id,n", 1600, |i| format!("{},{i}", pair(i))), key);
    let one_repeats = |i: u64| format!("{},{i}", pair(if i == 1599 { 0 } else { i }));
    assert_eq!(noted("a_id,b_id,n", 1600, one_repeats), NONE);
    let one_missing = |i: u64| if i == 7 { format!("0,,{i}") } else { format!("{},{i}", pair(i)) };
    assert_eq!(noted("a_id,b_id,n", 1600, one_missing), NONE);
}

#[test]
fn few_rows_that_happen_to_differ_are_not_believed() {
    // 40 times 40 pairs, of which so few rows repeat none by chance.
    let pair = |i: u64| format!("{},{},{i}", i % 40, i * 17 / 40 % 40);
    assert_eq!(noted("a_id,b_id,n", 120, pair), NONE);
}

#[test]
fn a_number_within_a_row_is_preferred_and_a_mere_name_comes_last() {
    let rows = |i: u64| format!("{},{},{},{i}", i / 30, i % 30, i % 30 + 1);
    let key = |columns: &str| {
        format!("key = [{columns}] # these 2 columns are unique together and never NULL")
    };
    let found = |header: &str| noted(header, 1200, rows);
    assert_eq!(found("a_id,b_id,line_no,n"), key("\"a_id\", \"line_no\""));
    assert_eq!(found("a_id,line_no,b_id,n"), key("\"a_id\", \"line_no\""));
    assert_eq!(found("a_id,seat_number,b_id,n"), key("\"a_id\", \"b_id\""));
    assert_eq!(found("a_id,seat_number,m,n"), key("\"a_id\", \"seat_number\""));
    assert_eq!(found("a_id,position,m,n"), NONE);
}

#[test]
fn three_columns_are_tried_where_two_are_not_enough() {
    let rows = |i: u64| format!("{},{},{}", i / 400, i / 20 % 20, i % 20);
    assert_eq!(
        noted("a_id,b_id,c_id", 8000, rows),
        "key = [\"a_id\", \"b_id\", \"c_id\"] # these 3 columns are unique together and never NULL"
    );
    let repeated = |i: u64| rows(i % 7999);
    assert_eq!(noted("a_id,b_id,c_id", 8000, repeated), NONE);
}

#[test]
fn formula_one_has_one_standing_of_a_driver_after_a_race() {
    let Some(data) = formula_one() else { return };
    let schema = drafted(&*opened(&data)).schema;
    let key = |name: &str| schema.tables.iter().find(|t| t.name == name).unwrap().key.join("+");
    assert_eq!(key("driver_standings"), "raceId+driverId");
    assert_eq!(key("starting_grid_positions"), "raceId+driverId");
    // Drivers shared cars, and had several in one race.
    assert_eq!(key("race_results"), "");
}

/// A name that is as long and as odd as a uuid.
fn uuid(i: u64) -> String {
    format!("{i:08x}-0000-4000-8000-{:012x}", i * 7919)
}

#[test]
fn the_key_is_what_other_tables_refer_to() {
    let linked = |header: &str, order: &dyn Fn(u64) -> String| {
        let users = csv(header, 40, |i| format!("{},{},{i}", uuid(i), i + 1000));
        let orders = csv("order_id,user_id", 100, |i| format!("{i},{}", order(i % 40)));
        let folder = folder(&[("users.csv", &users), ("orders.csv", &orders)]);
        let draft = drafted(&*opened(folder.path()));
        let text = draft.render();
        assert!(!text.contains("named like a reference to \"users\""), "{text}");
        assert_eq!(links(&draft.schema, "orders"), "key order_id | time - | user_id > users");
        links(&draft.schema, "users")
    };
    let by_number = |i: u64| (i + 1000).to_string();
    assert_eq!(linked("uuid,user_id,n", &by_number), "key user_id | time - | ");
    assert_eq!(linked("uuid,id,n", &by_number), "key id | time - | ");
    assert_eq!(linked("id,user_id,n", &by_number), "key user_id | time - | ");
    assert_eq!(linked("uuid,user_id,n", &uuid), "key uuid | time - | ");
    assert_eq!(linked("user_uuid,user_id,n", &uuid), "key user_uuid | time - | ");
}

#[test]
fn a_uuid_is_the_key_where_nothing_plainer_is() {
    let key = |header: &str| {
        let folder = folder(&[("users.csv", &csv(header, 40, |i| format!("{},{i}", uuid(i))))]);
        let draft = drafted(&*opened(folder.path()));
        links(&draft.schema, "users")
    };
    assert_eq!(key("uuid,user_id"), "key user_id | time - | ");
    assert_eq!(key("uuid,n"), "key uuid | time - | ");
}
