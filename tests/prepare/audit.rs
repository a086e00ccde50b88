//! `headwater audit`: the demo is clean; a leak has a status, a line and a place on the page.

use headwater::prepare::demo::demo_data;

use crate::{Workshop, run, succeed};

/// Prepares the demo shop; `change` edits its schema.
fn demo(change: impl Fn(String) -> String) -> Workshop {
    let workshop = Workshop::new(&[]);
    demo_data(&workshop.path("data")).unwrap();
    let schema = workshop.path("data").join("schema.toml");
    let text = std::fs::read_to_string(&schema).unwrap();
    std::fs::write(&schema, change(text)).unwrap();
    let (data, out) = (workshop.text("data"), workshop.text("db"));
    let schema = schema.to_str().unwrap();
    succeed(&["prepare", &data, "--schema", schema, "--out", &out, "--dimension", "8"]);
    workshop
}

#[test]
fn the_demo_is_clean() {
    let workshop = demo(|text| text);
    let (store, page) = (workshop.text("db"), workshop.text("audit.html"));
    let text = succeed(&["audit", &store, "--html", &page]);
    assert!(text.ends_with("no leak found\n"), "{text}");
    assert_eq!(text.matches(" seeds with later data changed (").count(), 6, "{text}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("no leak found.") && html.contains("<h2>Task churn</h2>"));
    // A page of another kind is never replaced.
    let context = ["inspect", &store, "--task", "churn", "--seed-index", "0", "--html", &page];
    assert_eq!(run(&context).status.code(), Some(1));
    succeed(&["audit", &store, "--task", "churn", "--html", &page]);
}

#[test]
fn a_leak_has_a_status_and_a_name() {
    // The words of a review tell its stars.
    let workshop = demo(|text| text.replace(", hide = [\"words\"]", ""));
    let store = workshop.text("db");
    let found = run(&["audit", &store]);
    let text = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.status.code(), Some(4), "{text}");
    assert!(
        text.contains("1. task reviews.stars: reviews.words: it predicts the target alone"),
        "{text}"
    );
    assert!(text.contains("hide = [\"words\"] in the task"), "{text}");
    assert!(text.contains("1 possible leak found"), "{text}");
    assert!(text.ends_with("can be accepted: --allow reviews.words\n"), "{text}");
    let json = run(&["audit", &store, "--task", "reviews.stars", "--json"]);
    assert_eq!(json.status.code(), Some(4));
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["findings"][0]["kind"], "predicts-target");
    assert_eq!(report["findings"][0]["subject"], "reviews.words");
    let allowed = succeed(&["audit", &store, "--allow", "reviews.words"]);
    assert!(allowed.contains("allowed: task reviews.stars: reviews.words"), "{allowed}");
    assert!(allowed.ends_with("no leak found\n"), "{allowed}");
    // A task that is named twice is one task.
    let twice = succeed(&["audit", &store, "--task", "churn", "--task", "churn"]);
    assert_eq!(twice.matches("task churn:").count(), 1, "{twice}");
}

#[test]
fn what_cannot_be_judged_is_told() {
    let leaves: Vec<String> =
        (0..60).map(|n| format!("{n},2024-01-{:02},{}", n % 28 + 1, n % 2)).collect();
    let customers: Vec<String> = (0..60).map(|n| format!("{n},2023-01-01")).collect();
    let table = |head: &str, rows: &[String]| format!("{head}\n{}\n", rows.join("\n"));
    let workshop = Workshop::new(&[
        ("customers.csv", &table("id,since", &customers)),
        ("leaves.csv", &table("id,at,y", &leaves)),
    ]);
    let prepared = workshop.prepare(
        r#"
database = "few"
[[table]]
name = "customers"
key = "id"
time = { column = "since" }
columns = { id = "identifier", since = "timestamp" }
[[task]]
name = "leaves"
derived = { anchor = "customers", source = "leaves", key = "id", time = "at", target = "y", type = "numerical" }
"#,
    );
    assert!(prepared.status.success(), "{prepared:?}");
    let text = succeed(&["audit", &workshop.text("db")]);
    assert!(text.contains("too few seeds with a label"), "{text}");
    assert!(
        text.ends_with("no leak found; not judged: columns for leaves (too few labels)\n"),
        "{text}"
    );
}

#[test]
fn bad_arguments_are_told() {
    let workshop = demo(|text| text);
    let store = workshop.text("db");
    let misspelt = run(&["audit", &workshop.text("DB")]);
    let text = String::from_utf8_lossy(&misspelt.stderr).into_owned();
    assert!(text.trim_end().ends_with(&format!("did you mean {store}?")), "{text}");
    for (arguments, status, message) in [
        (&["--task", "chrun"][..], 1, "no task is called \"chrun\"; did you mean \"churn\"?"),
        (&["--allow", "order.paid"], 1, "expected a table or a table.column to allow"),
        (&["--seeds", "99"], 2, "99 is not in 100.."),
        (&["--html", "/"], 1, "choose another path"),
    ] {
        let output = run(&[&["audit", &store], arguments].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert!(text.contains(message), "{text}");
    }
}
