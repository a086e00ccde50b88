//! Columns on a scale of their own, and times that are no cells.

use headwater::store::{Cell, ColumnStats, Scale, Store};

use crate::{Workshop, succeed};

/// Payments that grow by a tenth from one to the next, the last of them NULL.
fn payments() -> String {
    let rows = (0..400).map(|n| format!("{n},{},2020-01-{:02}", payment(n), n % 28 + 1));
    let rows: Vec<_> = rows.chain(["400,,2020-02-01".to_owned()]).collect();
    format!("id,amount,at\n{}\n", rows.join("\n"))
}

fn payment(n: u32) -> f64 {
    (100.0 * 1.1_f64.powi(n.cast_signed() % 200)).round()
}

fn schema(amount: &str, at: &str) -> String {
    format!(
        "database = \"x\"\n[[table]]\nname = \"payments\"\nkey = \"id\"\n\
         time = {{ column = \"at\", delay = \"1 day\" }}\n\
         columns = {{ id = \"identifier\", amount = {amount}, at = {at} }}\n"
    )
}

fn prepared(schema: &str) -> (Workshop, Store) {
    let workshop = Workshop::new(&[("payments.csv", &payments())]);
    let output = workshop.prepare(schema);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let store = Store::open(&workshop.path("db")).unwrap();
    (workshop, store)
}

fn scores(store: &Store) -> Vec<Option<f32>> {
    let table = &store.tables()[0];
    let column = table.metadata().columns.iter().position(|column| column.name == "amount");
    let cell = |row| match table.row(row).unwrap().cell(column.unwrap()) {
        Cell::Numerical(score) => Some(score),
        _ => None,
    };
    (0..401).map(cell).collect()
}

#[test]
fn a_number_on_a_scale_is_stored_as_the_plain_formula_says() {
    let (_workshop, store) =
        prepared(&schema(r#"{ type = "numerical", scale = "log" }"#, r#""timestamp""#));
    let logs: Vec<f64> = (0..400).map(|n| (1.0 + payment(n)).ln()).collect();
    let mean = logs.iter().sum::<f64>() / 400.0;
    let std = (logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / 400.0).sqrt();
    let found = scores(&store);
    for (log, score) in logs.iter().zip(&found) {
        assert!(((log - mean) / std - f64::from(score.unwrap())).abs() < 1e-6);
    }
    assert_eq!(found[400], None);
    let ColumnStats::Numerical { scale: Scale::Log, min: 100.0, max, .. } =
        store.tables()[0].metadata().columns[1].stats
    else {
        panic!("{:?}", store.tables()[0].metadata().columns[1].stats)
    };
    assert_eq!(max, payment(199));
}

#[test]
fn a_rank_is_the_share_of_smaller_numbers() {
    let (_workshop, store) =
        prepared(&schema(r#"{ type = "numerical", scale = "rank" }"#, r#""timestamp""#));
    for (n, score) in (0..400).zip(scores(&store)) {
        // Each number is there twice.
        let rank = f64::from(n % 200) / 199.0;
        let expected = (rank - 0.5) * 12_f64.sqrt();
        assert!((expected - f64::from(score.unwrap())).abs() < 0.02, "{n}: {expected} {score:?}");
    }
}

#[test]
fn cells_on_a_scale_are_shown_in_the_units_of_the_source() {
    for scale in ["log", "rank"] {
        let column = format!("{{ type = \"numerical\", scale = \"{scale}\" }}");
        let (workshop, _) = prepared(&schema(&column, r#""timestamp""#));
        let db = workshop.text("db");
        for n in [0, 57, 199] {
            let shown = succeed(&["inspect", &db, "--table", "payments", "--row", &n.to_string()]);
            let value = shown.lines().find(|line| line.trim_start().starts_with("amount")).unwrap();
            let value: f64 = value.split_whitespace().last().unwrap().parse().unwrap();
            assert!((value / payment(n) - 1.0).abs() < 1e-3, "{scale}: {value} {}", payment(n));
        }
    }
}

#[test]
fn an_ignored_time_gives_rows_the_same_times_and_no_cell() {
    let (_first, with_cell) = prepared(&schema(r#""numerical""#, r#""timestamp""#));
    let (second, without) = prepared(&schema(r#""numerical""#, r#""ignored""#));
    assert_eq!(without.tables()[0].metadata().columns.len(), 2);
    assert_eq!(scores(&with_cell), scores(&without));
    for row in 0..401 {
        let time = |store: &Store| store.tables()[0].row(row).unwrap().time();
        assert_eq!(time(&with_cell), time(&without));
    }
    let db = second.text("db");
    succeed(&["verify", &db]);
    let shown = succeed(&["inspect", &db, "--table", "payments"]);
    assert!(shown.contains("time at (ignored as a cell) + 1 day"), "{shown}");
}

#[test]
fn a_scale_that_a_column_cannot_have_is_refused() {
    let refused = |amount: &str, at: &str| {
        let workshop = Workshop::new(&[("payments.csv", &payments())]);
        workshop.refused(&schema(amount, at))
    };
    let text = r#""timestamp""#;
    let message = refused(
        r#""numerical""#,
        r#"{ type = "ignored", unit = "s" }, other = { type = "ignored", unit = "s" }"#,
    );
    assert!(
        message
            .contains("column \"other\": expected a unit only for a column that is read as a time"),
        "{message}"
    );
    let message = refused(r#"{ type = "categorical", scale = "log" }"#, text);
    assert!(
        message.contains("expected type numerical for a column with a scale, found categorical"),
        "{message}"
    );
    let message = refused(r#"{ type = "numerical", scale = "logarithm" }"#, text);
    assert!(message.contains("`linear`, `log`, `rank`"), "{message}");
    let message = refused(r#""numerical""#, r#""numerical""#);
    assert!(message.contains("expected type timestamp or ignored, found numerical"), "{message}");
}

#[test]
fn a_target_by_rank_is_refused_because_its_numbers_are_lost() {
    let workshop = Workshop::new(&[("payments.csv", &payments())]);
    let task =
        "[[task]]\nname = \"amount\"\ncell = { table = \"payments\", column = \"amount\" }\n";
    let by_rank = schema(r#"{ type = "numerical", scale = "rank" }"#, r#""timestamp""#) + task;
    let message = workshop.refused(&by_rank);
    assert!(
        message.contains("expected the scale linear or log for a target, found rank"),
        "{message}"
    );
}

#[test]
fn p7_no_leak_of_a_target_by_a_time_that_is_no_cell() {
    let visits: Vec<_> =
        (0..60).map(|n| format!("{},2020-01-{:02},2020-03-01", n % 5, n % 28 + 1)).collect();
    let visits = format!("cust,at,obs\n{}\n", visits.join("\n"));
    let customers = "id,age\n0,1\n1,2\n2,3\n3,4\n4,5\n";
    let workshop = Workshop::new(&[("visits.csv", &visits), ("customers.csv", customers)]);
    let message = workshop.refused(
        "database = \"x\"\n[[table]]\nname = \"customers\"\nkey = \"id\"\n\
         columns = { id = \"identifier\", age = \"numerical\" }\n\
         [[table]]\nname = \"visits\"\ntime = { column = \"at\" }\n\
         references = [{ columns = \"cust\", to = \"customers\" }]\n\
         columns = { cust = \"identifier\", at = \"ignored\" }\n\
         [[task]]\nname = \"when\"\nderived = { anchor = \"customers\", source = \"visits\", \
         key = \"cust\", time = \"obs\", target = \"at\", type = \"timestamp\" }\n",
    );
    assert!(message.contains("60 of 60 seeds could see their own target"), "{message}");
}

#[test]
fn the_draft_gives_a_heavy_tail_its_scale() {
    let workshop = Workshop::new(&[("payments.csv", &payments())]);
    let drafted = workshop.text("drafted.toml");
    succeed(&["schema", &workshop.text("data"), "--out", &drafted]);
    let text = std::fs::read_to_string(&drafted).unwrap();
    let line = text.lines().find(|line| line.starts_with("amount = ")).unwrap();
    assert!(
        line.starts_with(r#"amount = { type = "numerical", scale = "log" } # heavy tail: "#),
        "{line}"
    );
    let (data, out) = (workshop.text("data"), workshop.text("drafted.db"));
    succeed(&["prepare", &data, "--schema", &drafted, "--out", &out]);
}
