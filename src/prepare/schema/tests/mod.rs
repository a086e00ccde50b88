mod contradictions;
mod of_events;

use super::*;

/// A valid schema with most features.
const GOOD: &str = r#"
database = "league"

[[table]]
name = "races"
key = "id"
time = { column = "date" }
columns = { id = "identifier", date = "timestamp", laps = "numerical", "lap/h" = "numerical" }

[[table]]
name = "drivers"
source = "../drivers"
key = "id"
columns = { id = "identifier", name = "text", old = "ignored" }

[[table]]
name = "results"
key = ["raceId", "driverId"]
time = { through = "raceId", delay = "1 day" }
columns = { raceId = "identifier", driverId = "identifier", won = "boolean", seen = { type = "timestamp", unit = "ms" } }
references = [{ columns = "raceId", to = "races" }, { columns = "driverId", to = "drivers" }]

[[table]]
name = "stops"
time = { through = "raceId+driverId" }
columns = { raceId = "identifier", driverId = "identifier", lap = "numerical" }
references = [{ columns = ["raceId", "driverId"], to = "results" }]

[[aggregate]]
table = "results"
reference = "driverId"
columns = "won"
windows = ["30 days", "ever"]

[[task]]
name = "results.won"
cell = { table = "results", column = "won" }

[[task]]
name = "top3"
derived = { anchor = "drivers", source = "task_top3", key = "driverId", time = "obs", target = "top3", type = "boolean" }

[[summary]]
table = "results"
columns = ["won"]
period = "year"
by = "driverId"
"#;

#[test]
fn a_schema_reads_back_from_its_own_text() {
    let schema = Schema::parse(GOOD).unwrap();
    assert_eq!(schema.tables[0].key, ["id"]);
    assert_eq!(schema.tables[2].time.as_ref().unwrap().delay, Delay(86_400_000_000));
    assert_eq!(schema.tables[2].columns["seen"].unit, Some(TimeUnit::Millisecond));
    assert_eq!(schema.tables[2].columns.get_index(2).unwrap().0, "won");
    let text = toml::to_string(&schema).unwrap();
    assert!(text.contains("key = \"id\""), "{text}");
    assert!(text.contains("\"1 day\""), "{text}");
    assert_eq!(Schema::parse(&text).unwrap(), schema);
}

#[test]
fn a_cell_task_without_a_time_must_set_sees_everything() {
    let text = GOOD.replace(
        "cell = { table = \"results\", column = \"won\" }",
        "cell = { table = \"stops\", column = \"lap\" }",
    );
    Schema::parse(&text).unwrap();
    let text = text.replace("time = { through = \"raceId+driverId\" }", "");
    assert_eq!(
        Schema::parse(&text).unwrap_err().to_string(),
        "task \"results.won\": table \"stops\" has no time, so its seeds have no observation time; \
         give the table a time, or set sees_everything = true"
    );
    let text = text.replace("column = \"lap\" }", "column = \"lap\" }\nsees_everything = true");
    Schema::parse(&text).unwrap();
}

#[test]
fn a_window_needs_a_time() {
    let text = GOOD.replace("time = { through = \"raceId\", delay = \"1 day\" }", "");
    let text = text.replace("time = { through = \"raceId+driverId\" }", "");
    assert_eq!(
        Schema::parse(&text).unwrap_err().to_string(),
        "aggregate of \"results\" by \"driverId\": expected a table with a time, because of the window \
         \"30 days\", found none; give the table a time, or set windows = [\"ever\"]"
    );
}

#[test]
fn a_circular_inheritance_names_the_circle() {
    let table = |name: &str, to: &str| {
        format!(
            "[[table]]\nname = {name:?}\nkey = \"id\"\ntime = {{ through = \"up\" }}\n\
             columns = {{ id = \"identifier\", up = \"identifier\" }}\n\
             references = [{{ columns = \"up\", to = {to:?} }}]\n"
        )
    };
    let circle = |tables: &[(&str, &str)]| {
        let tables: String = tables.iter().map(|(name, to)| table(name, to)).collect();
        Schema::parse(&format!("database = \"x\"\n{tables}")).unwrap_err().to_string()
    };
    assert_eq!(
        circle(&[("a", "b"), ("b", "c"), ("c", "b")]),
        "table \"a\": time: the inheritance is circular: b -> c -> b; give one of these tables a \
         time column"
    );
    assert_eq!(
        circle(&[("a", "a")]),
        "table \"a\": time: the inheritance is circular: a -> a; give one of these tables a time \
         column"
    );
}

#[test]
fn a_schema_without_tables_and_a_long_name_are_rejected() {
    assert_eq!(
        Schema::parse("database = \"x\"").unwrap_err().to_string(),
        "the schema has no table; add one with [[table]]"
    );
    let long = "n".repeat(201);
    let text =
        format!("database = \"x\"\n[[table]]\nname = \"{long}\"\ncolumns = {{ a = \"text\" }}");
    let found = Schema::parse(&text).unwrap_err().to_string();
    assert!(found.contains("the name has 201 bytes, more than 200, so it cannot"), "{found}");
    let fits = text.replace(&long, &long[1..]);
    Schema::parse(&fits).unwrap();
    assert_eq!(
        Schema::parse(&fits.replace("\"text\"", "\"ignored\"")).unwrap_err().to_string(),
        format!(
            "table \"{}\": every column of the table is ignored; give at least one column another \
             type",
            &long[1..]
        )
    );
}

#[test]
fn errors_of_a_schema_file_name_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    assert_eq!(Schema::read(&path).unwrap_err().kind(), crate::ErrorKind::Io);
    std::fs::write(&path, "database = 3").unwrap();
    let found = Schema::read(&path).unwrap_err();
    assert_eq!(found.kind(), crate::ErrorKind::Schema);
    let place =
        format!("schema {}: line 1, column 12: database: expected a string, found", path.display());
    assert!(found.to_string().starts_with(&place), "{found}");
}

#[test]
fn delays_are_written_in_their_largest_whole_unit() {
    let hour = 3_600_000_000;
    for (delay, text) in [
        (0, "0 us"),
        (1, "1 us"),
        (2000, "2 ms"),
        (90_000_000, "90 seconds"),
        (1_800_000_000, "30 minutes"),
        (hour, "1 hour"),
        (12 * hour, "12 hours"),
        (24 * hour, "1 day"),
        (14 * 24 * hour, "2 weeks"),
        (36_525 * 24 * hour - 1, "3155759999999999 us"),
    ] {
        assert_eq!(Delay(delay).to_string(), text);
        let table = toml::from_str::<Time>(&format!("delay = \" {text} \"")).unwrap();
        assert_eq!(table.delay, Delay(delay));
    }
    let table = toml::from_str::<Time>("delay = \"90 s\"").unwrap();
    assert_eq!(table.delay, Delay(90_000_000));
    for bad in [
        "",
        "day",
        "1",
        "-1 day",
        "1.5 days",
        "1 day 2 hours",
        "99999999999999999999 s",
        "36526 days",
    ] {
        toml::from_str::<Time>(&format!("delay = \"{bad}\"")).unwrap_err();
    }
}

/// A declared task over results, with a column that is known later.
fn declared(known: &str, question: &str) -> Result<Schema> {
    let text = GOOD.replace(
        "seen = { type",
        &format!("points = {{ type = \"numerical\"{known} }}, seen = {{ type"),
    ) + &format!(
        "[[task]]\nname = \"next\"\npredict = {{ anchor = \"drivers\", of = \"results\", \
             reference = \"driverId\", horizon = \"30 days\", train_until = \"2005-01-01\", \
             val_until = \"2010-01-01\", {question} }}\n"
    );
    Schema::parse(&text)?.with_declared_tasks()
}

#[test]
fn p7_the_answer_of_a_declared_task_is_known_with_the_columns_that_it_names() {
    let horizon = |question: &str| {
        let schema = declared(", known = { delay = \"10 days\" }", question).unwrap();
        let task = schema.tasks.last().unwrap().derived.clone().unwrap();
        (task.horizon.unwrap().to_string(), task.sql.unwrap())
    };
    // A result is known a day after its race.
    let days = |days: i64| format!("{} AS answer_delay", days * 86_400_000_000);
    for (question, total, answer) in [
        ("what = \"count\"", "31 days", 1),
        ("what = \"sum\", column = \"points\"", "41 days", 11),
        ("what = \"exists\", where = \"points > 3\"", "41 days", 11),
    ] {
        let (found, sql) = horizon(question);
        assert_eq!(found, total, "{question}");
        assert!(sql.contains(&days(answer)), "{sql}");
    }
    let at = ", known = { at = \"seen\" }";
    assert!(declared(at, "what = \"count\"").is_ok());
    let message = declared(at, "what = \"sum\", column = \"points\"").unwrap_err().to_string();
    let wanted = "task \"next\": predict: expected columns that are known a fixed time after their rows, \
                  found \"points\", which is known at \"seen\"; give it known = { delay = \"...\" }, or \
                  write the task as [task.derived] with sql and a horizon";
    assert_eq!(message, wanted);
}
