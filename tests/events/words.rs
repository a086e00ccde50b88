//! What the command and the errors say about logs and stores of events.

use std::path::Path;
use std::process::Command;

use headwater::ErrorKind;
use headwater::prepare::{EventOptions, EventsReport, prepare_events, schema::Schema, source};
use headwater::progress::Silent;

/// A log with values that are rare, blank or hard to tell apart.
const LOG: &str = "card,at,shop,note,due\n\
                   a,1751328000,\"x, y\",\" \",1752019200\n\
                   a,1751328060,z,tab\there,1751328060\n";

/// A schema of the log, with a field of each kind.
const SCHEMA: &str = r#"
database = "log"
[events]
source = "log"
codec = "fields-v1"
entity = "card"
time = { column = "at", unit = "s" }
fields = { shop = "category", note = "bytes", due = { type = "time", unit = "s" } }
split = { train = 1.0, test = 0.0 }
"#;

/// Prepares a log by a schema, in a folder.
fn prepared(folder: &Path, log: &str, schema: &str, out: &str) -> headwater::Result<EventsReport> {
    let data = folder.join("log.csv");
    std::fs::write(&data, log).unwrap();
    let options = EventOptions { replace: false, threads: Some(1), progress: &Silent };
    let source = source::open(&data)?;
    prepare_events(&*source, &Schema::parse(schema)?, &folder.join(out), &options)
}

/// Runs the command in a folder; returns what it prints, and whether it succeeds.
fn run(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let command = env!("CARGO_BIN_EXE_headwater");
    let output = Command::new(command).current_dir(folder).args(arguments).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(printed).unwrap())
}

/// Runs the command, which must succeed.
fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let (is_success, printed) = run(folder, arguments);
    assert!(is_success, "{arguments:?}: {printed}");
    printed
}

#[test]
fn a_token_row_reads_well() {
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path(), LOG, SCHEMA, "log.db").unwrap();
    let row = succeed(folder.path(), &["inspect", "log.db", "--token-row", "0"]);
    assert!(row.starts_with("log: train row 0; epoch 0, item 0 of 1, of a: "), "{row}");
    // An epoch has one row; the window of another may have both events.
    let rows: String = (0..20)
        .map(|row| succeed(folder.path(), &["inspect", "log.db", "--token-row", &row.to_string()]))
        .collect();
    for expected in
        ["shop \"x, y\"", "note \" \"", "note \"tab\\there\"", "due +691,200 s", "shop z"]
    {
        assert!(rows.contains(expected), "{expected}: {rows}");
    }
    let store = succeed(folder.path(), &["inspect", "log.db"]);
    assert!(store.contains("1 token row an epoch"), "{store}");
    assert!(store.contains("0 token rows an epoch"), "{store}");
}

#[test]
fn one_byte_and_names_for_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let log = LOG.replace("shop,note", "\"sh\u{1b}[2Jop\",note").replace("card,", "\"ca\u{7}rd\",");
    let schema = SCHEMA
        .replace(
            "shop = \"category\"",
            r#""sh\u001b[2Jop" = { type = "category", max_tokens = 1, max_bytes = 1 }"#,
        )
        .replace("note = \"bytes\"", "note = { type = \"bytes\", max_bytes = 1 }")
        .replace("\"card\"", r#""ca\u0007rd""#);
    prepared(folder.path(), &log, &schema, "log.db").unwrap();
    let store = succeed(folder.path(), &["inspect", "log.db"]);
    assert!(store.contains("an entity is a value of \"ca\\u{7}rd\""), "{store}");
    assert!(store.contains("  \"sh\\u{1b}[2Jop\"  token"), "{store}");
    assert!(store.contains("category of 1 value; rare ones in up to 1 byte\n"), "{store}");
    let row = succeed(folder.path(), &["inspect", "log.db", "--token-row", "0"]);
    assert!(row.contains("\"sh\\u{1b}[2Jop\" "), "{row}");
    assert!(![store, row].concat().contains(['\u{1b}', '\u{7}']));
}

/// Events of more than 1,024 tokens: the report, and both commands, say how long a row must be.
#[test]
fn a_token_row_is_as_long_as_the_longest_event() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..6).map(|number| format!("text{number}")).collect();
    let log = format!("card,at,{}\na,1751328000,{}\n", names.join(","), "x,".repeat(5) + "x");
    let fields: Vec<_> = names
        .iter()
        .map(|name| format!("{name} = {{ type = \"bytes\", max_bytes = 254 }}"))
        .collect();
    let schema = SCHEMA.lines().filter(|line| !line.starts_with("fields")).collect::<Vec<_>>();
    let schema = format!("{}\nfields = {{ {} }}\n", schema.join("\n"), fields.join(", "));
    std::fs::write(folder.path().join("log.csv"), log).unwrap();
    std::fs::write(folder.path().join("log.toml"), schema).unwrap();
    let arguments = ["prepare", "log.csv", "--schema", "log.toml", "--out", "log.db"];
    let report = succeed(folder.path(), &arguments);
    let store = headwater::events::EventStore::open(&folder.path().join("log.db")).unwrap();
    let room = store.room();
    assert!(room > 1024, "{room}");
    let (thousands, rest) = (room / 1000, room % 1000);
    let words =
        format!("\na token row needs at least {thousands},{rest:03} tokens (sequence_length)\n");
    assert!(report.contains(&words), "{report}");
    assert!(succeed(folder.path(), &["inspect", "log.db"]).contains(&words));
    let row = |more: &[&str]| {
        let arguments = [&["inspect", "log.db", "--token-row", "0"], more].concat();
        run(folder.path(), &arguments)
    };
    assert!(row(&[]).1.contains(&format!(" of {thousands},{rest:03} tokens\n")));
    assert!(row(&["--sequence-length", "4000"]).1.contains(" of 4,000 tokens\n"));
    let (is_success, message) = row(&["--sequence-length", "1024"]);
    assert!(
        !is_success && message.contains(&format!("expected {room} to 32768 tokens")),
        "{message}"
    );
    let (is_success, _) = run(folder.path(), &["inspect", "log.db", "--sequence-length", "4000"]);
    assert!(!is_success, "only a token row has a length");
}

#[test]
fn a_store_within_a_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path(), LOG, SCHEMA, "log.db").unwrap();
    let store = folder.path().canonicalize().unwrap().join("log.db");
    std::os::unix::fs::symlink("log.db", folder.path().join("link")).unwrap();
    for out in ["log.db/sub.db", "log.db/new/sub.db", "link/sub.db", "log.db/../link/a/b"] {
        let error = prepared(folder.path(), LOG, SCHEMA, out).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let expected = format!(
            "{}: expected a folder outside of stores, found one within the store {}; choose a folder \
             beside it",
            folder.path().join(out).display(),
            store.display()
        );
        assert_eq!(error.to_string(), expected);
    }
    headwater::events::EventStore::open(&store).unwrap().verify(&|_| Ok(())).unwrap();
    prepared(folder.path(), LOG, SCHEMA, "log.db/../beside.db").unwrap();
}

#[test]
fn an_audit_of_events_says_what_it_is_for() {
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path(), LOG, SCHEMA, "log.db").unwrap();
    let (is_success, message) = run(folder.path(), &["audit", "log.db"]);
    assert!(!is_success);
    let expected = "headwater: log.db: expected a store of tables, whose tasks are audited, found a store \
                    of events, which has no tasks; audit a store of tables\n";
    assert_eq!(message, expected);
}

#[test]
fn times_without_a_unit_are_told_as_events_write_it() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |from: &str, to: &str| {
        assert!(SCHEMA.contains(from));
        prepared(folder.path(), LOG, &SCHEMA.replace(from, to), "log.db").unwrap_err().to_string()
    };
    let place = "table \"log\": column";
    let expected =
        "expected a time such as 2020-01-31 (an integer since 1970 needs its unit, as in";
    let time = refused("time = { column = \"at\", unit = \"s\" }", "time = \"at\"");
    let remedy = "time = { column = \"..\", unit = \"s\" }), found \"1751328000\" in row 1";
    assert!(time.starts_with(&format!("{place} \"at\": {expected} {remedy}")), "{time}");
    let field = refused("{ type = \"time\", unit = \"s\" }", "\"time\"");
    let remedy = "{ type = \"time\", unit = \"s\" }), found \"1752019200\" in row 1";
    assert!(field.starts_with(&format!("{place} \"due\": {expected} {remedy}")), "{field}");
}
