//! How a draft guesses when the rows of each table came to exist.

use headwater::prepare::schema::Schema;

use super::draft::{csv, drafted, formula_one, task};
use super::*;

/// Returns the origin of each table's time, in the order of `names`.
fn times(schema: &Schema, names: &[&str]) -> Vec<String> {
    let time = |name: &&str| {
        let table = schema.tables.iter().find(|t| t.name == **name).unwrap();
        let Some(time) = &table.time else { return "-".to_owned() };
        let through = time.through.as_ref().map(|through| format!("via {through}"));
        time.column.clone().or(through).unwrap()
    };
    names.iter().map(time).collect()
}

/// Asserts that the text contains each of these lines, or parts of lines.
fn assert_contains(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
}

fn day(year: u64, i: u64) -> String {
    format!("{year}-{:02}-{:02}", i / 28 % 12 + 1, i % 28 + 1)
}

/// A shop with catalogue dates for things, and `ts` for events.
fn shop() -> tempfile::TempDir {
    folder(&[
        ("categories.csv", &csv("id,name,since", 5, |i| format!("{i},c{i},{}", day(2015, i)))),
        (
            "products.csv",
            &csv("id,category_id,added,valid_until", 60, |i| {
                format!("{i},{},{},{}", i % 5, day(2024, i), day(2030, i))
            }),
        ),
        (
            "customers.csv",
            &csv("id,name,birth_date,created_at", 50, |i| {
                format!("{i},n{i},{},{}", day(1970, i), day(2019, i))
            }),
        ),
        (
            "orders.csv",
            &csv("id,customer_id,ts,deadline", 200, |i| {
                format!("{i},{},{},{}", i % 50, day(2020, i), day(2021, i))
            }),
        ),
        ("order_items.csv", &csv("order_id,product_id", 400, |i| format!("{},{}", i / 2, i % 60))),
        (
            "visits.csv",
            &csv("id,customer_id,entered", 300, |i| format!("{i},{},{}", i % 50, day(2022, i))),
        ),
        (
            "remarks.csv",
            &csv("id,order_id,visit_id", 300, |i| format!("{i},{},{}", i % 200, i % 90)),
        ),
        (
            "product_reviews.csv",
            &csv("id,product_id,order_id,visit_id", 300, |i| {
                let visit = if i % 3 == 0 { i.to_string() } else { String::new() };
                format!("{i},{},{},{visit}", i % 60, i % 200)
            }),
        ),
        (
            "answers.csv",
            &csv("id,customer_id,remark_id,parent_answer_id", 300, |i| {
                format!("{i},{},{i},{}", i % 50, i / 2)
            }),
        ),
        ("wishes.csv", &csv("customer_id,product_id", 300, |i| format!("{},{}", i % 50, i % 60))),
        ("shelves.csv", &csv("id,category_id", 9, |i| format!("{i},{}", i % 5))),
    ])
}

#[test]
fn own_times_come_first_then_those_of_the_latest_event() {
    let folder = shop();
    let draft = drafted(&*opened(folder.path()));
    let found = |names: &[&str]| times(&draft.schema, names);
    assert_eq!(found(&["products", "customers"]), ["added", "created_at"]);
    assert_eq!(found(&["orders", "visits"]), ["ts", "entered"], "not their customers'");
    assert_eq!(found(&["order_items"]), ["via order_id"], "though products are later");
    assert_eq!(found(&["remarks", "answers"]), ["via visit_id", "via remark_id"]);
    assert_eq!(found(&["product_reviews"]), ["via order_id"], "which every row has, not visits");
    assert_eq!(found(&["wishes", "shelves"]), ["via product_id", "-"]);
    assert_contains(
        &draft.render(),
        &[
            "time = { column = \"added\" } # when a row came to exist, by its name; not chosen: \
             \"valid_until\" (its name suggests a birth, change or end)\n",
            "time = { column = \"created_at\" } # when a row came to exist, by its name; not \
             chosen: \"birth_date\" (its name suggests a birth, change or end)\n",
            "time = { column = \"entered\" } # a time that every row has; check that a row came to \
             exist then\n",
            "time = { through = \"order_id\" } # the time of \"orders\", to which a row belongs; \
             add a delay if a row is known only later; could be inherited through \"product_id\" \
             (\"products\")\n",
            "time = { through = \"visit_id\" } # the time of \"visits\", to which a row belongs; \
             add a delay if a row is known only later; could be inherited through \"order_id\" \
             (\"orders\")\n",
            "time = { through = \"remark_id\" } # the time of \"remarks\", to which a row belongs; \
             add a delay if a row is known only later; could be inherited through \"customer_id\" \
             (\"customers\")\n",
            "time = { through = \"product_id\" } # the time of \"products\", to which a row \
             refers, but a row may be later; name the table's own time if it has one; could be \
             inherited through \"customer_id\" (\"customers\")\n",
            "\n# no time: its rows are always visible; could be inherited through \"category_id\" \
             (\"categories\")\n",
        ],
    );
}

#[test]
fn a_complete_time_is_inherited_before_one_with_gaps() {
    let refer =
        |i: u64, every: u64| if i % 10 < every { (i % 50).to_string() } else { String::new() };
    let dated = |gaps: u64, year: u64| {
        csv("id,created_at", 50, |i| {
            format!("{i},{}", if i < gaps { String::new() } else { day(year, i) })
        })
    };
    let refers = |header: &str, first: u64, second: u64| {
        csv(header, 300, |i| format!("{i},{},{}", refer(i, first), refer(i, second)))
    };
    let folder = folder(&[
        ("orders.csv", &dated(0, 2020)),
        ("visits.csv", &dated(0, 2022)),
        ("trips.csv", &dated(9, 2023)),
        // The latest parent is NULL in three rows of ten, or has no time.
        ("remarks.csv", &refers("id,order_id,visit_id", 10, 7)),
        ("notes.csv", &refers("id,order_id,trip_id", 10, 10)),
        ("claims.csv", &refers("id,visit_id,trip_id", 7, 7)),
        ("replies.csv", &csv("id,claim_id", 300, |i| format!("{i},{i}"))),
    ]);
    let draft = drafted(&*opened(folder.path()));
    let names = ["remarks", "notes", "claims", "replies"];
    let found = times(&draft.schema, &names);
    assert_eq!(found, ["via order_id", "via order_id", "via trip_id", "via claim_id"]);
    assert_contains(
        &draft.render(),
        &[
            "if it has one; could be inherited through \"visit_id\" (\"visits\"; 90 rows refer to \
             no row)\n",
            "through \"trip_id\" (\"trips\"; rows that refer to 9 rows of \"trips\" without a \
             time)\n",
            "if it has one; 90 rows refer to no row: always visible; rows that refer to 9 rows of \
             \"trips\" without a time: always visible; could be inherited through \"visit_id\" \
             (\"visits\"; 90 rows refer to no row)\n",
            "rows that refer to rows of \"claims\" without a time: always visible\n",
        ],
    );
}

#[test]
fn p7_a_time_that_every_row_has_is_chosen_before_one_with_gaps() {
    let unless = |i: u64, every: u64, text: String| {
        if i.is_multiple_of(every) { String::new() } else { text }
    };
    let folder = folder(&[
        (
            "visits.csv",
            &csv("id,at,paid_at", 400, |i| {
                format!("{i},{},{}", day(2020, i), unless(i, 30, day(2021, i)))
            }),
        ),
        (
            "stays.csv",
            &csv("id,started,paid_at", 400, |i| {
                format!("{i},{},{}", day(2020, i), unless(i, 30, day(2021, i)))
            }),
        ),
        ("payments.csv", &csv("id,visit_id,paid_at", 400, |i| format!("{i},{i},{}", day(2022, i)))),
        (
            "letters.csv",
            &csv("id,written,sent", 400, |i| {
                format!("{i},{},{}", day(2020, i), unless(i, 30, day(2021, i)))
            }),
        ),
    ]);
    let draft = drafted(&*opened(folder.path()));
    assert_eq!(times(&draft.schema, &["visits", "stays", "letters"]), ["at", "started", "written"]);
    assert_eq!(times(&draft.schema, &["payments"]), ["paid_at"], "not its visit's");
    assert_contains(
        &draft.render(),
        &[
            "time = { column = \"at\" } # when a row came to exist, by its name; not chosen: \"paid_at\" (NULL \
           in 14 rows)\n",
        ],
    );
}

#[test]
fn later_stages_are_chosen_only_without_a_better_time() {
    let stages = |header: &str| {
        csv(header, 60, |i| format!("{i},{},{},{}", i % 40, day(2021, i), day(2022, i)))
    };
    let folder = folder(&[
        ("orders.csv", &csv("id,date", 40, |i| format!("{i},{}", day(2020, i)))),
        ("order_lines.csv", &stages("id,order_id,shipped,received_at")),
        ("parcels.csv", &stages("id,weight,shipped,received_at")),
        ("deliveries.csv", &stages("id,order_id,due_at,delivered_at")),
    ]);
    let draft = drafted(&*opened(folder.path()));
    let names = ["order_lines", "parcels", "deliveries"];
    assert_eq!(times(&draft.schema, &names), ["via order_id", "shipped", "delivered_at"]);
    assert_contains(
        &draft.render(),
        &[
            "later; not chosen: \"shipped\", \"received_at\"\n",
            "time = { column = \"shipped\" } # a later stage, by its name: a row may have been \
             known before; not chosen: \"received_at\"\n",
        ],
    );
}

#[test]
fn unreadable_dates_get_a_note() {
    let rows = csv("id,made,checked,version,seen", 90, |i| {
        let (month, day) = (i % 12 + 1, i % 28 + 1);
        let checked = if i % 2 == 0 { "2021-05-01".to_owned() } else { format!("{day}/5/2021") };
        format!("{i},{day:02}/{month:02}/2021,{checked},1.{month}.{day},{day}.{month}.2021 10:00")
    });
    let folder = folder(&[("things.csv", &rows)]);
    let text = drafted(&*opened(folder.path())).render();
    let remark = "# looks like dates in an ambiguous or unsupported format; rewrite them as \
                  YYYY-MM-DD to use them as times\n";
    assert_contains(
        &text,
        &[
            &format!("made = \"text\" {remark}"),
            &format!("checked = \"categorical\" {remark}"),
            &format!("seen = \"text\" {remark}"),
            "version = \"text\"\n",
        ],
    );
}

#[test]
fn seeds_that_would_see_the_future_get_a_warning() {
    let gap = |i: u64| if i == 7 { String::new() } else { day(2020, i) };
    let folder = folder(&[
        ("people.csv", &csv("id,age", 40, |i| format!("{i},{}", i % 30))),
        ("trips.csv", &csv("id,price,created_at", 40, |i| format!("{i},{},{}", i % 9, gap(i)))),
        ("walks.csv", &csv("id,length,date", 40, |i| format!("{i},{},{}", i % 9, day(2020, i)))),
    ]);
    let draft = drafted(&*opened(folder.path()));
    let sees = |name: &str| task(&draft.schema, name).unwrap().sees_everything;
    assert_eq!(
        [sees("people.age"), sees("trips.price"), sees("walks.length")],
        [true, true, false]
    );
    assert_contains(
        &draft.render(),
        &[
            "sees_everything = true # \"people\" has no time, so its seeds see all rows, also \
             later ones; give \"people\" a time and delete this line\n",
            "sees_everything = true # rows of \"trips\" may have no time, and as seeds they see \
             all rows, also later ones; give each row a time and delete this line\n",
            "by its name; NULL in 1 row, which is then always visible\n",
        ],
    );
}

/// A member joins before each visit: with the time of the member, all visits would be visible too early.
#[test]
fn one_row_without_a_time_does_not_lead_to_that_of_a_parent() {
    let entered = |i: u64| if i == 7 { String::new() } else { day(2021, i % 300) };
    let folder = folder(&[
        ("members.csv", &csv("id,joined_at", 40, |i| format!("{i},{}", day(2020, i)))),
        (
            "visits.csv",
            &csv("id,member_id,entered_at", 400, |i| format!("{i},{},{}", i % 40, entered(i))),
        ),
    ]);
    let draft = drafted(&*opened(folder.path()));
    assert_eq!(times(&draft.schema, &["visits"]), ["entered_at"]);
    assert_contains(
        &draft.render(),
        &["a time that nearly every row has; check that a row came to exist then; NULL in 1 row, \
           which is then always visible\n"],
    );
}

/// The parent of one row is missing, that of another is not given.
#[test]
fn rows_without_a_parent_are_noted_by_when_they_are_visible() {
    let order = |i: u64| match i {
        3 => String::new(),
        4 => "999".to_owned(),
        _ => (i % 300).to_string(),
    };
    let folder = folder(&[
        ("orders.csv", &csv("id,ordered_at", 300, |i| format!("{i},{}", day(2020, i)))),
        ("order_lines.csv", &csv("order_id,price", 4000, |i| format!("{},{}", order(i), i % 9))),
    ]);
    let draft = drafted(&*opened(folder.path()));
    assert_eq!(times(&draft.schema, &["order_lines"]), ["via order_id"]);
    assert_contains(
        &draft.render(),
        &[
            "; 1 row refers to no row: always visible; 1 row refers to a missing row: never visible\n",
        ],
    );
}

/// Changes a line of a file; true for the header.
type Change<'a> = &'a dyn Fn(&str, bool) -> String;

/// Returns a copy of Formula One with some tables changed, line by line.
fn altered(data: &Path, changes: &[(&str, Change<'_>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_str().unwrap();
        let Some((table, "csv")) = name.split_once('.') else { continue };
        let copy = folder.path().join(name);
        let Some((_, change)) = changes.iter().find(|(changed, _)| *changed == table) else {
            std::os::unix::fs::symlink(&entry, copy).unwrap();
            continue;
        };
        let text = std::fs::read_to_string(&entry).unwrap();
        let lines = text.lines().enumerate().map(|(i, line)| change(line, i == 0) + "\n");
        std::fs::write(copy, lines.collect::<String>()).unwrap();
    }
    folder
}

#[test]
fn times_of_formula_one_come_from_its_races() {
    let Some(data) = formula_one() else { return };
    // The original, and a copy with catalogue dates in the tables of things.
    let listed = |line: &str, header: bool| {
        format!("{line},{}", if header { "added" } else { "2024-01-31" })
    };
    let shifted = |line: &str, header: bool| match header {
        true => line.replacen(",date,", ",ts,", 1),
        false => line.to_owned(),
    };
    let catalogue =
        altered(&data, &[("drivers", &listed), ("constructors", &listed), ("races", &shifted)]);
    for (path, race, driver) in [(data.as_path(), "date", "-"), (catalogue.path(), "ts", "added")] {
        let draft = drafted(&*opened(path));
        let found = |names: &[&str]| times(&draft.schema, names);
        assert_eq!(found(&["races", "drivers", "constructors"]), [race, driver, driver]);
        assert_eq!(found(&["countries", "circuits", "engines", "chassis"]), ["-"; 4]);
        let results = [
            "race_results",
            "driver_standings",
            "constructor_standings",
            "qualifying_results",
            "pit_stops",
            "fastest_laps",
            "sprint_race_results",
            "starting_grid_positions",
            "driver_of_the_day_results",
        ];
        assert_eq!(found(&results), ["via raceId"; 9]);
        let note = "by its name; not chosen: \"year\" (only the year), \"freePractice1Date\"";
        assert_contains(&draft.render(), &[note]);
    }
}
