//! Notes of a draft about values that it cannot read as their likely type.

use super::draft::{csv, drafted};
use super::*;

#[test]
fn numbers_with_a_decimal_comma_get_a_note() {
    let rows = csv("id;price;n", 90, |i| format!("{i};{i},5;{i}.5"));
    let folder = folder(&[("things.csv", &rows)]);
    let text = drafted(&*opened(folder.path())).render();
    let price = "price = \"text\" # looks like numbers with a decimal comma; rewrite them with a \
                 decimal point\n";
    assert!(text.contains(price) && text.contains("n = \"numerical\"\n"), "{text}");
}

#[test]
fn views_are_left_out_with_a_reason_and_stay_readable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, price REAL);
             INSERT INTO orders VALUES (1, 2.5), (2, 3.5);
             CREATE VIEW dear AS SELECT id AS order_id, price FROM orders WHERE price > 3;",
        )
        .unwrap();
    let source = opened(&path);
    let draft = drafted(&*source);
    assert_eq!(draft.schema.tables.len(), 1);
    let text = draft.render();
    assert!(text.contains("\n# Table \"dear\" is left out: it is a view: its copies"), "{text}");
    assert!(!text.contains("dear.price"), "{text}");
    assert_eq!(source.views().unwrap(), ["dear"]);
    assert_eq!(rows(&*source, "dear", &["price", "order_id"]).unwrap(), ["3.5|2"]);
    // Nobody can write while the source is read.
    drop(source);
    connection
        .execute_batch("CREATE VIEW odd AS SELECT 1 AS a; DROP VIEW dear; DROP TABLE orders;")
        .unwrap();
    let refused = headwater::prepare::draft::draft(&*opened(&path), "x", &|_| Ok(()));
    assert_eq!(
        message(refused, ErrorKind::Data, folder.path()),
        "SQLite file DIR/shop.db has no table with a column, only views; name the views in a schema"
    );
}

#[test]
fn a_selection_is_drafted_alone_with_the_views_it_names() {
    let (_folder, source) = super::sqlite::database(
        "CREATE TABLE customers (id INTEGER PRIMARY KEY);
         CREATE TABLE orders (id INTEGER PRIMARY KEY, customer REFERENCES customers, price REAL);
         CREATE VIEW dear AS SELECT id, price FROM orders;
         INSERT INTO customers VALUES (1), (2), (3);
         INSERT INTO orders VALUES (1, 1, 2.5), (2, 3, 1.5), (3, 3, 1.25);",
    );
    let names = ["orders", "dear"].map(str::to_owned);
    let selected = headwater::prepare::source::select(source, &names).unwrap();
    let listed = selected.tables().unwrap();
    assert!(listed.iter().all(|table| table.references.is_empty()), "no table is referred to");
    let draft = drafted(&*selected);
    let tables: Vec<_> = draft.schema.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(tables, ["dear", "orders"]);
    assert!(!draft.render().contains("customers"), "{}", draft.render());

    let (folder, source) = super::sqlite::database("CREATE TABLE orders (id); CREATE TABLE b (c);");
    let found = headwater::prepare::source::select(source, &["ordres".to_owned()]);
    let found = message(found, ErrorKind::Schema, folder.path());
    assert!(found.ends_with("has no table \"ordres\"; did you mean \"orders\"?"), "{found}");
}

#[test]
fn texts_for_null_among_numbers_and_times_get_a_note() {
    let word = |i: u64, marker: &str, value: String| {
        if i % 30 == 4 { marker.to_owned() } else { value }
    };
    let rows = csv("id,price,day,grade,name", 90, |i| {
        let grade = if i == 5 { "-".to_owned() } else { i.to_string() };
        let day = word(i, "NaT", format!("2020-01-{:02}", i % 28 + 1));
        format!(
            "{i},{},{day},{grade},{}",
            word(i, "NA", format!("{i}.5")),
            word(i, "NA", format!("n{i}"))
        )
    });
    let folder = folder(&[("things.csv", &rows)]);
    let text = drafted(&*opened(folder.path())).render();
    let rest = "in CSV only an empty field is NULL; clear those fields to use the column as";
    for line in [
        format!(
            "price = \"text\" # 3 values are texts such as \"NA\"; the others are numbers: {rest} \
             numerical\n"
        ),
        format!(
            "day = \"text\" # 3 values are texts such as \"NaT\"; the others are times: {rest} a \
             time\n"
        ),
        format!(
            "grade = \"text\" # 1 value is the text \"-\"; the others are numbers: {rest} \
             numerical\n"
        ),
        "name = \"text\"\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line}\nis not in\n{text}");
    }
}

#[test]
fn a_few_texts_among_numbers_or_times_get_a_note() {
    let rows = csv("id,price,day,cost,plan", 90, |i| {
        let price = if i == 7 { "EUR 5".to_owned() } else { format!("{i}.5") };
        let day = if i < 2 { "soon".to_owned() } else { format!("2020-01-{:02}", i % 28 + 1) };
        // A fifth is too many.
        let cost = if i % 5 == 0 { format!("about {i}") } else { format!("{i}.5") };
        let plan =
            if i == 3 { "9999-12-31".to_owned() } else { format!("2020-02-{:02}", i % 28 + 1) };
        format!("{i},{price},{day},{cost},{plan}")
    });
    let folder = folder(&[("things.csv", &rows)]);
    let text = drafted(&*opened(folder.path())).render();
    for line in [
        "price = \"text\" # 1 value is the text \"EUR 5\"; the others are numbers: correct those \
         fields to use the column as numerical\n",
        "day = \"text\" # 2 values are texts such as \"soon\"; the others are times: correct \
         those fields to use the column as a time\n",
        "cost = \"text\"\n",
        "plan = \"timestamp\" # 9999-12-31 is among the times, and a row of this time is hidden until \
         then; clear it if it means that there is no time\n",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
}

#[test]
fn integers_in_the_range_of_times_get_a_note() {
    let rows = csv("id,hired,seen_first,size", 90, |i| {
        format!("{i},{},{},{}", 1_500_000_000 + i, 1_500_000_000_000 + i, 600_000_000 + i)
    });
    let folder = folder(&[("things.csv", &rows)]);
    let text = drafted(&*opened(folder.path())).render();
    for line in [
        "hired = \"numerical\" # could be a time in seconds since 1970: { type = \"timestamp\", unit \
         = \"s\" }\n",
        "seen_first = \"numerical\" # could be a time in milliseconds since 1970: { type = \
         \"timestamp\", unit = \"ms\" }\n",
        "size = \"numerical\"\n",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
}

#[test]
fn notes_about_identifiers_are_correct() {
    let rows = csv("order_id,line_no,n,parent_id", 900, |i| format!("{},{},{i},1", i / 30, i % 30));
    let orders = csv("id,n", 30, |i| format!("{i},{i}"));
    let folder = folder(&[("lines.csv", &rows), ("orders.csv", &orders)]);
    let text = drafted(&*opened(folder.path())).render();
    for line in [
        "line_no = \"identifier\" # part of the key, so its value is not a feature; otherwise \
         numerical\n",
        "parent_id = \"categorical\" # 1 different value, named like a key, but no table found \
         with these keys\n",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
}
