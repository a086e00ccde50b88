//! Which of a table's own times a draft chooses.

use super::draft::{csv, drafted, table};
use super::*;

/// Returns day `i` of a year.
fn day(year: u64, i: u64) -> String {
    format!("{year}-{:02}-{:02}", i / 28 % 12 + 1, i % 28 + 1)
}

/// Returns the line about the time of a table of 300 rows with these columns of times: the name,
/// the year, and whether nine rows of ten are NULL.
fn time_line(name: &str, columns: &[(&str, u64, bool)]) -> String {
    let header = columns.iter().map(|(name, ..)| format!(",{name}")).collect::<String>();
    let field = |i: u64, year: u64, gaps: bool| match gaps && !i.is_multiple_of(10) {
        true => ",".to_owned(),
        false => format!(",{}", day(year, i)),
    };
    let row = |i: u64| columns.iter().map(move |&(_, year, gaps)| field(i, year, gaps));
    let rows = csv(&format!("id{header}"), 300, |i| format!("{i}{}", row(i).collect::<String>()));
    let folder = folder(&[(&format!("{name}.csv"), &rows)]);
    let draft = drafted(&*opened(folder.path()));
    assert_eq!(table(&draft.schema, name).columns.len(), columns.len() + 1);
    let text = draft.render();
    text.lines().find(|line| line.starts_with("time = ")).unwrap_or("none").to_owned()
}

fn chosen(name: &str, columns: &[(&str, u64, bool)]) -> String {
    let line = time_line(name, columns);
    line.split('"').nth(1).unwrap_or("none").to_owned()
}

#[test]
fn a_complete_time_is_preferred_to_one_with_gaps() {
    assert_eq!(
        time_line("orders", &[("created_at", 2020, false), ("order_time", 2020, true)]),
        "time = { column = \"created_at\" } # when a row came to exist, by its name; not chosen: \
         \"order_time\" (NULL in 270 rows)"
    );
    assert_eq!(chosen("things", &[("made_on", 2019, false), ("opened_at", 2020, true)]), "made_on");
    assert_eq!(chosen("parcels", &[("date", 2019, true), ("shipped", 2020, false)]), "shipped");
    assert_eq!(
        time_line("things", &[("opened_at", 2020, true)]),
        "time = { column = \"opened_at\" } # when something began, by its name; check that a row \
         was known then; NULL in 270 rows, which are then always visible"
    );
}

#[test]
fn similar_names_are_not_related() {
    let created = ("created_at", 2021, false);
    assert_eq!(chosen("products", &[("production_date", 2010, false), created]), "created_at");
    assert_eq!(chosen("contracts", &[("contact_date", 2010, false), created]), "created_at");
    assert_eq!(chosen("d_people", &[("decision_date", 2010, false), created]), "created_at");
}

#[test]
fn the_latest_of_equally_good_times_is_chosen() {
    for (name, earlier, later) in [
        ("claims", "started_at", "created_at"),
        ("matches", "season_start", "kickoff"),
        ("cases", "incident_date", "report_date"),
        ("trades", "value_date", "booked"),
        ("orders", "order_date", "recorded_at"),
        ("orders", "created_at", "order_date"),
    ] {
        for columns in [
            [(earlier, 2019, false), (later, 2020, false)],
            [(later, 2020, false), (earlier, 2019, false)],
        ] {
            assert_eq!(chosen(name, &columns), later, "{name}");
        }
    }
    // A recorded time is preferred to a later start.
    let columns = [("created_at", 2019, false), ("start_date", 2020, false)];
    assert_eq!(chosen("courses", &columns), "created_at");
}

#[test]
fn later_changes_are_not_chosen() {
    for later in ["edited_at", "modified_on", "last_activity", "update_date", "maturity_date"] {
        let columns = [("published_at", 2019, false), (later, 2020, false)];
        assert_eq!(chosen("posts", &columns), "published_at", "{later}");
    }
    assert_eq!(chosen("activities", &[("activity_date", 2020, false)]), "activity_date");
}
