//! How a draft recognises years, months and other periods as times.

use super::draft::{csv, drafted};
use super::*;

/// Returns the lines of a draft of one table of 200 rows that begin so, without the beginning.
fn lines(header: &str, row: impl Fn(u64) -> String, beginnings: &[&str]) -> Vec<String> {
    let folder = folder(&[(
        "results.csv",
        &csv(&format!("id,{header}"), 200, |i| format!("{i},{}", row(i))),
    )]);
    let text = drafted(&*opened(folder.path())).render();
    let of = |beginning: &&str| {
        let found = text.lines().find_map(|line| line.strip_prefix(*beginning));
        found.unwrap_or_else(|| panic!("no {beginning} in {text}")).to_owned()
    };
    beginnings.iter().map(of).collect()
}

#[test]
fn a_period_that_its_form_or_name_shows_is_the_time_of_its_table() {
    let year = |i: u64| 1990 + i % 30;
    let season = |i: u64| format!("{}/{:02}", year(i), (year(i) + 1) % 100);
    for (name, unit, value) in [
        ("year", "year", &(|i| year(i).to_string()) as &dyn Fn(u64) -> String),
        ("yearID", "year", &|i| year(i).to_string()),
        ("fiscal_year", "year", &|i| format!("{}.0", year(i))),
        ("season", "season", &season),
        ("played", "season", &season),
        ("season", "year", &|i| year(i).to_string()),
        ("season", "season", &|i| format!("{}{}", year(i), year(i) + 1)),
        ("month", "month", &|i| format!("{}{:02}", year(i), i % 12 + 1)),
        ("at", "month", &|i| format!("{}-{:02}", year(i), i % 12 + 1)),
        ("quarter", "quarter", &|i| format!("{}Q{}", year(i), i % 4 + 1)),
        ("date", "yyyymmdd", &|i| format!("{}{:02}{:02}", year(i), i % 12 + 1, i % 28 + 1)),
        ("n", "yyyymmdd", &|i| format!("{}{:02}{:02}", year(i), i % 12 + 1, i % 28 + 1)),
    ] {
        let beginnings = [format!("{name} = "), "time = ".to_owned()];
        let beginnings: Vec<_> = beginnings.iter().map(String::as_str).collect();
        let found =
            lines(&format!("{name},score"), |i| format!("{},{i}", value(i)), &beginnings[..1]);
        let column = format!("{{ type = \"timestamp\", unit = \"{unit}\"");
        assert!(found[0].starts_with(&column), "{name}: {}", found[0]);
        // A name that says nothing of a time of the row is not taken for it.
        if ["played", "n"].contains(&name) {
            continue;
        }
        assert!(
            found[0].starts_with(&format!("{column}, end = true }} # each value is")),
            "{}",
            found[0]
        );
        let found =
            lines(&format!("{name},score"), |i| format!("{},{i}", value(i)), &beginnings[1..]);
        assert!(found[0].starts_with(&format!("{{ column = \"{name}\" }}")), "{}", found[0]);
    }
}

#[test]
fn other_numbers_and_other_years_are_not_the_time_of_their_table() {
    // By their names.
    for name in ["birth_year", "model_year", "year_retired"] {
        let [column, time] = &lines(
            &format!("{name},score"),
            |i| format!("{},{i}", 1950 + i % 50),
            &[&format!("{name} = "), "# no time"],
        )[..] else {
            unreachable!()
        };
        assert_eq!(
            column,
            "{ type = \"timestamp\", unit = \"year\" } # each value is a year such as 2003"
        );
        let reason = match name {
            "model_year" => "property of the row",
            _ => "birth, change or end",
        };
        assert_eq!(
            time,
            &format!(
                ": its rows are always visible; not chosen: \"{name}\" (its name suggests a {reason})"
            )
        );
    }
    // A column that may be a number of years is a number, and the note says what it could be.
    assert_eq!(
        lines("price", |i| (1900 + i).to_string(), &["price = "]),
        ["\"numerical\" # could be years: { type = \"timestamp\", unit = \"year\" }"]
    );
    assert_eq!(lines("year", |i| (1700 + i).to_string(), &["year = "]), ["\"numerical\""]);
    assert_eq!(lines("month", |i| (i % 12 + 1).to_string(), &["month = "]), ["\"numerical\""]);
    // A day is nearer to a row than its year.
    let both =
        lines("date,year", |i| format!("{0}-03-01,{0}", 1990 + i % 30), &["time = ", "year = "]);
    assert_eq!(
        both,
        [
            "{ column = \"date\" } # when a row came to exist, by its name; not chosen: \"year\" (only the year)",
            "{ type = \"timestamp\", unit = \"year\" } # each value is a year such as 2003"
        ]
    );
}
