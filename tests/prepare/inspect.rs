//! `inspect --task`: what a reader sees of a context, and the options of the walk.

use crate::{Workshop, run, succeed};

const SCHEMA: &str = r#"
database = "clinic"

[[table]]
name = "patients"
key = "id"
columns = { id = "identifier", city = "categorical" }

[[table]]
name = "visits"
key = "id"
time = { column = "at" }
columns = { id = "identifier", patient = "identifier", at = "timestamp", minutes = "numerical", cost = "numerical" }
references = [{ columns = "patient", to = "patients" }]

[[aggregate]]
table = "visits"
reference = "patient"
columns = "minutes"

[[task]]
name = "returns"
derived = { anchor = "patients", source = "returns", key = "patient", time = "at", target = "returns", type = "boolean" }
"#;

const PATIENTS: &str = "id,city\n1,Oslo\n2,Lima\n";
/// Visit 4 has no time, and visit 5 is later than the first seed.
const VISITS: &str = "id,patient,at,minutes,cost\n\
    5,1,2023-04-01,90,1100\n\
    2,1,2023-02-01,20,1234.5678\n\
    3,1,2023-03-01,25,1234\n\
    4,1,,25,1235\n\
    6,2,2023-02-01,31.07,1300\n";
const RETURNS: &str = "patient,at,returns\n1,2023-03-15,true\n2,2023-03-15,false\n";
const FILES: [(&str, &str); 3] =
    [("patients.csv", PATIENTS), ("visits.csv", VISITS), ("returns.csv", RETURNS)];

fn prepared(files: &[(&str, &str)], schema: &str) -> Workshop {
    let workshop = Workshop::new(files);
    let output = workshop.prepare(schema);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    workshop
}

fn clinic() -> Workshop {
    prepared(&FILES, SCHEMA)
}

fn inspected(workshop: &Workshop, arguments: &[&str]) -> String {
    let store = workshop.text("db");
    succeed(&[&["inspect", &store, "--task", "returns"], arguments].concat())
}

#[test]
fn rows_without_a_time_are_marked_in_tables_that_have_times() {
    let workshop = clinic();
    let text = inspected(&workshop, &[]);
    let marked: Vec<_> = text.lines().filter(|line| line.contains("no time")).collect();
    let [line] = marked[..] else { panic!("{text}") };
    assert!(line.ends_with(" of visits 4  (no time: always visible)  [hop 1]"), "{line}");
    assert!(text.contains("patients 1  [hop 0]"), "{text}");

    let page = workshop.text("page.html");
    inspected(&workshop, &["--html", &page]);
    let html = std::fs::read_to_string(page).unwrap();
    assert_eq!(html.matches("<span>no time: always visible</span>").count(), 1);
    assert_eq!(html.matches("<span>always visible</span>").count(), 1);
}

#[test]
fn numbers_of_a_context_have_six_digits() {
    let text = inspected(&clinic(), &[]);
    assert!(text.contains("mean of minutes = 23.3333\n"), "{text}");
    assert!(text.contains("cost = 1234.57\n"), "{text}");
}

#[test]
fn a_task_alone_shows_its_first_seed() {
    let workshop = clinic();
    assert_eq!(inspected(&workshop, &[]), inspected(&workshop, &["--seed-index", "0"]));
    assert_ne!(inspected(&workshop, &[]), inspected(&workshop, &["--seed-index", "1"]));
    let output = run(&["inspect", &workshop.text("db"), "--task", "retruns"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("no task is called \"retruns\"; did you mean \"returns\"?"), "{error}");
}

#[test]
fn the_walk_is_limited_by_rows_and_by_children() {
    let workshop = clinic();
    let third_line = |arguments: &[&str]| {
        inspected(&workshop, arguments).lines().nth(2).unwrap_or_default().to_owned()
    };
    assert!(third_line(&[]).starts_with("4 rows and "));
    assert!(third_line(&["--max-rows", "2"]).starts_with("2 rows and "));
    assert!(third_line(&["--child-width", "1"]).starts_with("2 rows and "));
    for option in ["--max-rows", "--child-width"] {
        let output = run(&["inspect", &workshop.text("db"), option, "2"]);
        assert_eq!(output.status.code(), Some(2), "{option}");
    }
}

/// A task as a declared one is kept: its labels refer to the patients by `key_1`.
const LABELS: &str = r#"
[[task]]
name = "many minutes"
derived = { anchor = "patients", source = "minutes", key = "key_1", time = "observed_at", target = "target", type = "boolean", horizon = "7 days" }

[[aggregate]]
table = "many minutes labels"
reference = "key_1"
columns = "target"
"#;
const MINUTES: &str = "key_1,observed_at,target\n\
    1,2023-02-01,true\n\
    1,2023-03-01,false\n\
    1,2023-04-01,true\n";

#[test]
fn labels_refer_to_their_anchor_by_its_own_key() {
    let files = [&FILES[..], &[("minutes.csv", MINUTES)]].concat();
    let workshop = prepared(&files, &format!("{SCHEMA}{LABELS}"));
    let store = workshop.text("db");
    let text = succeed(&["inspect", &store, "--task", "many minutes", "--seed-index", "2"]);
    assert!(text.contains("← id of many minutes labels #0"), "{text}");
    assert!(text.contains("many minutes labels by id: mean of target = 50.0 %"), "{text}");
    let row = succeed(&["inspect", &store, "--table", "patients", "--row", "1"]);
    assert!(row.contains("many minutes labels.id"), "{row}");
    let page = workshop.text("page.html");
    succeed(&["inspect", &store, "--task", "many minutes", "--html", &page]);
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("many minutes labels.id"));
    for shown in [text, row, html] {
        assert!(!shown.contains("key_1"), "{shown}");
    }
    // Settings and schemas take the name that the store has.
    assert!(succeed(&["inspect", &store]).contains("many minutes labels.key_1"));
}
