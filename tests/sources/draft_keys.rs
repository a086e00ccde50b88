//! Undeclared keys, of one and of several columns.

use super::draft::{csv, drafted, formula_one, summary};
use super::*;

/// Returns the line about the key of `sales`, with these columns, in a shop of tables `a`, `b` and
/// `c` with 40 rows each.
fn key_line(header: &str, rows: u64, row: impl Fn(u64) -> String) -> String {
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
fn two_references_that_are_unique_together_are_a_key() {
    let pair = |i: u64| format!("{},{}", i / 40, i % 40);
    let key = "key = [\"a_id\", \"b_id\"] # these 2 columns are unique together and never NULL";
    assert_eq!(key_line("a_id,b_id,n", 1600, |i| format!("{},{i}", pair(i))), key);
    let one_repeats = |i: u64| format!("{},{i}", pair(if i == 1599 { 0 } else { i }));
    assert_eq!(key_line("a_id,b_id,n", 1600, one_repeats), NONE);
    let one_missing = |i: u64| if i == 7 { format!("0,,{i}") } else { format!("{},{i}", pair(i)) };
    assert_eq!(key_line("a_id,b_id,n", 1600, one_missing), NONE);
}

#[test]
fn uniqueness_of_few_rows_is_not_evidence_of_a_key() {
    // Of 40 times 40 pairs, so few rows repeat none by chance.
    let pair = |i: u64| format!("{},{},{i}", i % 40, i * 17 / 40 % 40);
    assert_eq!(key_line("a_id,b_id,n", 120, pair), NONE);
}

#[test]
fn a_number_within_a_parent_is_preferred_to_a_name() {
    let rows = |i: u64| format!("{},{},{},{i}", i / 30, i % 30, i % 30 + 1);
    let key = |columns: &str| {
        format!("key = [{columns}] # these 2 columns are unique together and never NULL")
    };
    let found = |header: &str| key_line(header, 1200, rows);
    assert_eq!(found("a_id,b_id,line_no,n"), key("\"a_id\", \"line_no\""));
    assert_eq!(found("a_id,line_no,b_id,n"), key("\"a_id\", \"line_no\""));
    assert_eq!(found("a_id,seat_number,b_id,n"), key("\"a_id\", \"b_id\""));
    assert_eq!(found("a_id,seat_number,m,n"), key("\"a_id\", \"seat_number\""));
    assert_eq!(found("a_id,position,m,n"), NONE);
}

#[test]
fn three_columns_are_tried_if_two_are_not_unique() {
    let rows = |i: u64| format!("{},{},{}", i / 400, i / 20 % 20, i % 20);
    assert_eq!(
        key_line("a_id,b_id,c_id", 8000, rows),
        "key = [\"a_id\", \"b_id\", \"c_id\"] # these 3 columns are unique together and never NULL"
    );
    let repeated = |i: u64| rows(i % 7999);
    assert_eq!(key_line("a_id,b_id,c_id", 8000, repeated), NONE);
}

#[test]
fn composite_keys_of_formula_one_are_found() {
    let Some(data) = formula_one() else { return };
    let schema = drafted(&*opened(&data)).schema;
    let key = |name: &str| schema.tables.iter().find(|t| t.name == name).unwrap().key.join("+");
    assert_eq!(key("driver_standings"), "raceId+driverId");
    assert_eq!(key("starting_grid_positions"), "raceId+driverId");
    // Some drivers have several results in one race.
    assert_eq!(key("race_results"), "");
}

/// Returns a text in the form of a uuid.
fn uuid(i: u64) -> String {
    format!("{i:08x}-0000-4000-8000-{:012x}", i * 7919)
}

#[test]
fn the_column_that_other_tables_refer_to_is_the_key() {
    let linked = |header: &str, order: &dyn Fn(u64) -> String| {
        let users = csv(header, 40, |i| format!("{},{},{i}", uuid(i), i + 1000));
        let orders = csv("order_id,user_id", 100, |i| format!("{i},{}", order(i % 40)));
        let folder = folder(&[("users.csv", &users), ("orders.csv", &orders)]);
        let draft = drafted(&*opened(folder.path()));
        let text = draft.render();
        assert!(!text.contains("named like a reference to \"users\""), "{text}");
        assert_eq!(summary(&draft.schema, "orders"), "key order_id | time - | user_id > users");
        summary(&draft.schema, "users")
    };
    let by_number = |i: u64| (i + 1000).to_string();
    assert_eq!(linked("uuid,user_id,n", &by_number), "key user_id | time - | ");
    assert_eq!(linked("uuid,id,n", &by_number), "key id | time - | ");
    assert_eq!(linked("id,user_id,n", &by_number), "key user_id | time - | ");
    assert_eq!(linked("uuid,user_id,n", &uuid), "key uuid | time - | ");
    assert_eq!(linked("user_uuid,user_id,n", &uuid), "key user_uuid | time - | ");
}

#[test]
fn a_uuid_is_the_key_only_without_a_plainer_one() {
    let key = |header: &str| {
        let folder = folder(&[("users.csv", &csv(header, 40, |i| format!("{},{i}", uuid(i))))]);
        let draft = drafted(&*opened(folder.path()));
        summary(&draft.schema, "users")
    };
    assert_eq!(key("uuid,user_id"), "key user_id | time - | ");
    assert_eq!(key("uuid,n"), "key uuid | time - | ");
}
