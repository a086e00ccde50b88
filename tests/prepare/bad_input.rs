//! Faults in rows, keys, references, times and tasks: each has one clear message.

use headwater::store::{ALWAYS_VISIBLE, NEVER_VISIBLE, SEES_EVERYTHING, Store, is_visible};

use crate::{Workshop, succeed};

const CUSTOMERS: &str = "id,since,city\n1,2020-01-01,Ulm\n2,2020-02-01,Bonn\n3,,Ulm\n";
const ORDERS: &str = "customer,at,total,note\n1,2020-03-01,2.5,a b\n2,2020-03-02,3,c\n\
                      1,2020-03-03,4,d\n";
const SEEDS: &str = "customer,at,y,part\n1,2020-04-01,0.5,train\n2,2020-04-02,1.5,test\n\
                     3,2020-04-03,2.5,train\n";

/// The schema of the shop; each test replaces a part of it by a fault.
const SCHEMA: &str = r#"
database = "shop"

[[table]]
name = "customers"
key = "id"
time = { column = "since" }
columns = { id = "identifier", since = "timestamp", city = "categorical" }

[[table]]
name = "orders"
time = { column = "at" }
columns = { customer = "identifier", at = "timestamp", total = "numerical", note = "text" }
references = [{ columns = "customer", to = "customers" }]

[[task]]
name = "churn"
derived = { anchor = "customers", source = "seeds", key = "customer", time = "at", target = "y", type = "numerical", split = "part" }
"#;

fn shop() -> [(&'static str, String); 3] {
    [
        ("customers.csv", CUSTOMERS.to_owned()),
        ("orders.csv", ORDERS.to_owned()),
        ("seeds.csv", SEEDS.to_owned()),
    ]
}

fn workshop(files: &[(&str, String)]) -> Workshop {
    Workshop::new(&files.iter().map(|(n, t)| (*n, t.as_str())).collect::<Vec<_>>())
}

/// Replaces `from` in one of the files by `to`; returns the message.
fn with_data(file: &str, from: &str, to: &str) -> String {
    let mut files = shop();
    let (_, text) = files.iter_mut().find(|(name, _)| *name == file).unwrap();
    assert!(text.contains(from));
    *text = text.replacen(from, to, 1);
    workshop(&files).refused(SCHEMA)
}

/// Replaces `from` in the schema by `to`; returns the message.
fn with_schema(from: &str, to: &str) -> String {
    assert!(SCHEMA.contains(from));
    workshop(&shop()).refused(&SCHEMA.replacen(from, to, 1))
}

#[test]
fn the_shop_without_faults_is_prepared_once() {
    let workshop = workshop(&shop());
    let output = workshop.prepare(SCHEMA);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    crate::succeed(&["verify", &workshop.text("db")]);
    assert!(!workshop.path("db.partial").exists());
    // An existing store is not replaced.
    let again = workshop.prepare(SCHEMA);
    assert_eq!(
        String::from_utf8_lossy(&again.stderr),
        format!(
            "headwater: {} is there already; choose another folder, or replace the store there \
             (--force, force=True)\n",
            workshop.text("db")
        )
    );
}

#[test]
fn missing_tables_and_columns_are_named() {
    assert_eq!(
        with_data("orders.csv", "total", "totale"),
        "table \"orders\": table \"orders\" of folder DIR/data: there is no column \"total\"; did \
         you mean \"totale\"?"
    );
    let files = shop();
    assert_eq!(
        workshop(&files[..2]).refused(SCHEMA),
        "task \"churn\": folder DIR/data has no table \"seeds\"; expected one of: \"customers\", \
         \"orders\""
    );
}

#[test]
fn duplicate_and_null_keys_are_rejected() {
    assert_eq!(
        with_data("customers.csv", "\n3,", "\n1,"),
        "table \"customers\": expected at most 0 rows that repeat a key (id), found 1, the first \
         is \"1\" in row 1 and row 3; correct the key or the data, or raise limits.duplicate_keys \
         (references then link to the first row)"
    );
    assert_eq!(
        with_data("customers.csv", "\n2,", "\n,"),
        "table \"customers\": the key (id) is NULL in 1 row, the first is row 2; every row needs a \
         key: correct the data, or remove the key from the schema"
    );
}

#[test]
fn unresolved_references_are_rejected_over_the_limit() {
    assert_eq!(
        with_data("orders.csv", "\n2,", "\n9,"),
        "table \"orders\": reference \"customer\": 1 of 3 values are not among the keys of table \
         \"customers\", the first is \"9\" in row 2; limits.unresolved_share allows a share of \
         0.01: correct the reference or the data, or raise the limit (these rows then have no \
         parent)"
    );
    let mut files = shop();
    files[1].1 = ORDERS.replacen("\n2,", "\n9,", 1);
    let workshop = workshop(&files);
    let schema = format!("limits = {{ unresolved_share = 0.4 }}\n{SCHEMA}");
    let output = workshop.prepare(&schema);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(
        printed.ends_with(
            "note: table \"orders\": reference \"customer\" has 1 value without a matching row; \
             the rows with these values have no such parent\n"
        ),
        "{printed}"
    );
}

#[test]
fn p7_no_leak_by_a_time_inherited_from_a_missing_row() {
    let schema = r#"
database = "races"
limits = { unresolved_share = 0.5 }
[[table]]
name = "races"
key = "id"
time = { column = "at" }
columns = { id = "identifier", at = "timestamp" }
[[table]]
name = "results"
key = "id"
time = { through = "race", delay = "1 day" }
columns = { id = "identifier", race = "identifier", points = "numerical" }
references = [{ columns = "race", to = "races" }]
"#;
    let workshop = Workshop::new(&[
        ("races.csv", "id,at\n1,2020-01-01\n"),
        ("results.csv", "id,race,points\n1,1,10\n2,7,8\n3,,6\n"),
    ]);
    let output = workshop.prepare(schema);
    let printed = String::from_utf8_lossy(&output.stdout);
    let note = "table \"results\": 1 of 3 rows inherit their time from a missing row and are never \
                visible\n";
    assert!(printed.contains(note), "{printed}");
    let store = Store::open(&workshop.path("db")).unwrap();
    let results = store.table("results").unwrap();
    let times: Vec<i64> = (0..3).map(|row| results.row(row).unwrap().time()).collect();
    assert_eq!(times, [1_577_923_200_000_000, NEVER_VISIBLE, ALWAYS_VISIBLE]);
    assert!(!is_visible(times[1], NEVER_VISIBLE - 1) && is_visible(times[1], SEES_EVERYTHING));
    let shown = succeed(&["inspect", &workshop.text("db"), "--table", "results", "--row", "2"]);
    assert!(shown.contains("never"), "{shown}");

    // As a seed, a row that is never visible would see everything.
    let task = "[[task]]\nname = \"points\"\ncell = { table = \"results\", column = \"points\" }\n";
    let only_missing = Workshop::new(&[
        ("races.csv", "id,at\n1,2020-01-01\n"),
        ("results.csv", "id,race,points\n1,1,10\n2,7,8\n3,1,6\n"),
    ]);
    assert_eq!(
        only_missing.refused(&format!("{schema}{task}")),
        "task \"points\": 1 of 3 rows of table \"results\" have no time, so as seeds they would \
         see the future; set sees_everything = true in this task to allow it"
    );
}

#[test]
fn p7_no_leak_by_a_time_inherited_through_a_partial_key() {
    let schema = r#"
database = "races"
[[table]]
name = "races"
key = ["year", "round"]
time = { column = "at" }
columns = { year = "identifier", round = "identifier", at = "timestamp" }
[[table]]
name = "results"
key = "id"
time = { through = "year+round" }
columns = { id = "identifier", year = "identifier", round = "identifier" }
references = [{ columns = ["year", "round"], to = "races" }]
"#;
    let workshop = Workshop::new(&[
        ("races.csv", "year,round,at\n2020,1,2020-01-01\n"),
        ("results.csv", "id,year,round\n1,2020,1\n2,2020,\n3,,\n"),
    ]);
    assert!(workshop.prepare(schema).status.success());
    let store = Store::open(&workshop.path("db")).unwrap();
    let results = store.table("results").unwrap();
    let times: Vec<i64> = (0..3).map(|row| results.row(row).unwrap().time()).collect();
    assert_eq!(times, [1_577_836_800_000_000, NEVER_VISIBLE, ALWAYS_VISIBLE]);
    assert_eq!(store.relations()[0].metadata().null_count, 2);
}

#[test]
fn numbers_that_64_bits_cannot_scale_are_rejected() {
    assert_eq!(
        with_data(
            "orders.csv",
            "2.5,a b\n2,2020-03-02,3,c\n1,2020-03-03,4,d",
            "1e-200,a b\n2,2020-03-02,2e-200,c\n1,2020-03-03,3e-200,d"
        ),
        "table \"orders\": column \"total\": the numbers from 1e-200 to 3e-200 have a standard \
         deviation that 64 bits round to 0; scale them up, or make the column categorical or text"
    );
}

#[test]
fn circular_and_unreadable_times_are_rejected() {
    let schema = r#"
database = "circle"
[[table]]
name = "a"
key = "id"
time = { through = "b" }
columns = { id = "identifier", b = "identifier" }
references = [{ columns = "b", to = "b" }]
[[table]]
name = "b"
key = "id"
time = { through = "a" }
columns = { id = "identifier", a = "identifier" }
references = [{ columns = "a", to = "a" }]
"#;
    let circle = Workshop::new(&[("a.csv", "id,b\n1,1\n"), ("b.csv", "id,a\n1,1\n")]);
    assert_eq!(
        circle.refused(schema),
        "schema DIR/schema.toml: table \"a\": time: the inheritance is circular: a -> b -> a; give \
         one of these tables a time column"
    );
    assert_eq!(
        with_data("customers.csv", "2020-02-01", "last winter"),
        "table \"customers\": column \"since\": 1 value cannot be read as timestamp: expected a \
         time such as 2020-01-31, 2020-01-31 12:00:00 or with a zone, found \"last winter\" in row \
         2; correct the data or the column's type"
    );
    assert_eq!(
        with_schema("time = { column = \"at\" }", "time = { column = \"total\" }"),
        "schema DIR/schema.toml: table \"orders\": time: column \"total\": expected type \
         timestamp or ignored, found numerical; give the column this type, or choose another"
    );
}

#[test]
fn empty_tables_and_tasks_are_rejected() {
    assert_eq!(
        with_data("orders.csv", &ORDERS[ORDERS.find('\n').unwrap() + 1..], ""),
        "table \"orders\": the table has no rows; remove it, and the references to it, from the \
         schema"
    );
    assert_eq!(
        with_data("seeds.csv", &SEEDS[SEEDS.find('\n').unwrap() + 1..], ""),
        "task \"churn\": the task has no rows; remove it from the schema"
    );
    assert_eq!(
        with_data("customers.csv", CUSTOMERS, ""),
        "table \"customers\": DIR/data/customers.csv: expected a header line with the column \
         names, found an empty file"
    );
    let all = "columns = { customer = \"identifier\", at = \"timestamp\", total = \"numerical\", \
               note = \"text\" }\nreferences = [{ columns = \"customer\", to = \"customers\" }]";
    let none = with_schema(all, "columns = { note = \"ignored\" }");
    assert_eq!(
        none,
        "schema DIR/schema.toml: table \"orders\": every column of the table is ignored; give at \
         least one column another type"
    );
}

#[test]
fn seeds_without_an_anchor_a_time_or_a_split_are_rejected() {
    assert_eq!(
        with_data("seeds.csv", "\n2,", "\n7,"),
        "task \"churn\": the anchor (customer) of 1 row is not in table \"customers\", the first \
         is \"7\" in row 2; remove these rows, or correct the key"
    );
    assert_eq!(
        with_data("seeds.csv", "\n2,", "\n,"),
        "task \"churn\": the key of the anchor (customer) is NULL in 1 row, the first is row 2; \
         remove these rows, or correct the data"
    );
    assert_eq!(
        with_data("seeds.csv", "2020-04-01", ""),
        "task \"churn\": the observation time (\"at\") is NULL in 1 row, the first is row 1; such \
         a seed would see the future: give it a time, or set sees_everything = true in task \
         \"churn\""
    );
    assert_eq!(
        with_data("seeds.csv", "train", "Train"),
        "task \"churn\": expected the split train, val or test, found another in 1 row, the first \
         is \"Train\" in row 1; correct the column \"part\""
    );
    assert_eq!(
        with_data("seeds.csv", "test", ""),
        "task \"churn\": expected the split train, val or test, found another in 1 row, the first \
         is NULL in row 2; correct the column \"part\""
    );
    let cell = "[[task]]\nname = \"city\"\ncell = { table = \"customers\", column = \"city\" }\n";
    assert_eq!(
        workshop(&shop()).refused(&format!("{SCHEMA}\n{cell}")),
        "task \"city\": 1 of 3 rows of table \"customers\" have no time, so as seeds they would \
         see the future; set sees_everything = true in this task to allow it"
    );
}

#[test]
fn targets_that_cannot_be_predicted_are_rejected() {
    assert_eq!(
        with_schema("type = \"numerical\"", "type = \"text\""),
        "schema DIR/schema.toml: task \"churn\": target \"y\": expected a numerical, boolean, \
         categorical or timestamp target, found text"
    );
    assert_eq!(
        with_data("seeds.csv", "1.5", "much"),
        "task \"churn\": column \"y\": 1 value cannot be read as numerical: expected a finite \
         number, found \"much\" in row 2; correct the data or the column's type"
    );
}

#[test]
fn targets_that_the_train_split_cannot_scale_are_rejected() {
    let seeds = "customer,at,y,part\n1,2020-04-01,0,train\n1,2020-04-02,2e-30,train\n\
                 2,2020-04-02,1e150,test\n";
    assert_eq!(
        with_data("seeds.csv", SEEDS, seeds),
        "task \"churn\": column \"y\": the z-score of 1e150 in row 3 does not fit 32 bits \
         (standard deviation of the train split: 1e-30); correct the value, or scale the targets"
    );
    for (from, to, found) in [
        (
            "2.5,train",
            "0.5,train",
            "its 2 targets are all equal or nearly equal, and those of other splits differ",
        ),
        (
            "0.5,train\n2,2020-04-02,1.5,test\n",
            "0.3,train\n2,2020-04-02,1.5,test\n\
          1,2020-04-02,0.30000000000000004,train\n#",
            "its 2 targets are all equal or nearly equal, and those of other splits differ",
        ),
        (
            "0.5,train\n2,2020-04-02,1.5,test\n",
            ",train\n2,2020-04-02,1.5,test\n\
          1,2020-04-02,1,val\n2,2020-04-02,,train\n3,2020-04-02,,train\n#",
            "it has no target, and other splits have some",
        ),
    ] {
        let seeds = SEEDS.replacen(from, to, 1);
        let seeds = seeds.split('#').next().unwrap();
        assert_eq!(
            with_data("seeds.csv", SEEDS, seeds),
            format!(
                "task \"churn\": the train split cannot scale the target \"y\": {found}; correct \
                 the splits, or remove the task"
            )
        );
    }
}

#[test]
fn misspelt_schemas_are_rejected_with_the_nearest_name() {
    let file = "schema DIR/schema.toml: ";
    assert_eq!(
        with_schema("references =", "refrences ="),
        format!(
            "{file}line 14, column 1: table \"orders\": expected one of the fields `name`, `source`, \
             `key`, `time`, `columns`, `references`, found `refrences`; did you mean `references`?"
        )
    );
    assert_eq!(
        with_schema("\"categorical\"", "\"categoric\""),
        format!(
            "{file}line 8, column 60: table \"customers\": city: expected one of `identifier`, \
             `numerical`, `timestamp`, `boolean`, `categorical`, `text`, `ignored`, found `categoric`; \
             did you mean `categorical`?"
        )
    );
    assert_eq!(
        with_schema("to = \"customers\"", "to = \"costumers\""),
        format!(
            "{file}table \"orders\": reference \"customer\": there is no table \"costumers\"; did \
             you mean \"customers\"?"
        )
    );
}

#[test]
fn names_that_leave_the_folder_are_rejected() {
    for (name, reason) in [
        ("../x", "begins with a dot"),
        ("a/../../x", "contains '/'"),
        ("/etc/x", "contains '/'"),
        ("a\\\\b", "contains '\\\\'"),
        ("", "is empty"),
    ] {
        assert_eq!(
            with_schema("name = \"orders\"", &format!("name = \"{name}\"\nsource = \"orders\"")),
            format!(
                "schema DIR/schema.toml: table {}: the name {reason}, so it cannot name a file of \
                 the store; give the table another name and set source = \"...\"",
                if name == "a\\\\b" { "\"a\\\\b\"".to_owned() } else { format!("{name:?}") }
            )
        );
    }
    assert_eq!(
        with_schema("name = \"churn\"", "name = \"../churn\""),
        "schema DIR/schema.toml: task \"../churn\": the name begins with a dot, so it cannot name \
         a file of the store; give the task another name"
    );
}

#[test]
fn referenced_columns_may_be_null_in_rows_without_children() {
    let workshop =
        Workshop::new(&[("a.csv", "id,code\n1,x\n2,\n3,\n"), ("b.csv", "code\nx\n\nx\n")]);
    let schema = r#"
database = "codes"
[[table]]
name = "a"
key = "id"
columns = { id = "identifier", code = "identifier" }
[[table]]
name = "b"
columns = { code = "identifier" }
references = [{ columns = "code", to = "a", to_columns = "code" }]
"#;
    let output = workshop.prepare(schema);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn foreign_files_in_the_partial_folder_are_kept() {
    let workshop = workshop(&shop());
    let partial = workshop.path("db.partial");
    let refused = || {
        let output = workshop.prepare(SCHEMA);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    std::fs::create_dir(&partial).unwrap();
    std::fs::write(partial.join("gold"), "gold").unwrap();
    assert_eq!(
        refused(),
        format!(
            "headwater: {} contains \"gold\", which is not a file of an interrupted preparation; \
             move it away\n",
            partial.display()
        )
    );
    assert_eq!(std::fs::read_to_string(partial.join("gold")).unwrap(), "gold");

    let elsewhere = workshop.path("elsewhere");
    std::fs::rename(&partial, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &partial).unwrap();
    assert!(refused().contains("because the store is written there first; move the file away"));
    assert_eq!(std::fs::read_to_string(elsewhere.join("gold")).unwrap(), "gold");

    // The files of an interrupted preparation are removed.
    std::fs::remove_file(&partial).unwrap();
    std::fs::create_dir_all(partial.join("staging")).unwrap();
    std::fs::write(partial.join("graph.bin"), "half").unwrap();
    assert!(workshop.prepare(SCHEMA).status.success());
    assert!(!partial.exists());
}

#[test]
fn p7_no_leak_of_a_target_through_a_link() {
    let linking = SCHEMA.replacen("customer = \"identifier\"", "customer = \"categorical\"", 1);
    let task = "\n[[task]]\nname = \"who\"\ncell = { table = \"orders\", column = \"customer\" }\n";
    assert_eq!(
        workshop(&shop()).refused(&(linking + task)),
        "schema DIR/schema.toml: task \"who\": column \"customer\" of table \"orders\" is part of \
         a key or reference, so the links of a row reveal its value; predict another column"
    );
}

#[test]
fn p7_no_leak_of_a_target_by_incoming_references_or_a_second_table() {
    // References to a row by a column reveal that column.
    let referred = format!(
        "{SCHEMA}
[[table]]
name = \"notes\"
source = \"orders\"
columns = {{ total = \"ignored\", note = \"text\" }}
references = [{{ columns = \"total\", to = \"orders\", to_columns = \"total\" }}]
[[task]]
name = \"total\"
cell = {{ table = \"orders\", column = \"total\" }}
"
    );
    assert_eq!(
        workshop(&shop()).refused(&referred),
        "schema DIR/schema.toml: task \"total\": column \"total\" of table \"orders\" is part of a \
         key or reference, so the links of a row reveal its value; predict another column"
    );
    let twin = referred.replace("total = \"ignored\", note", "total = \"numerical\", note").replace(
        "references = [{ columns = \"total\", to = \"orders\", to_columns = \"total\" }]\n[[task]]",
        "[[task]]",
    );
    assert_eq!(
        workshop(&shop()).refused(&twin),
        "schema DIR/schema.toml: task \"total\": table \"notes\" is also read from \"orders\" and \
         holds the target \"total\"; give that column the type ignored there, and use it in no key \
         or reference"
    );
}

#[test]
fn p7_no_leak_of_a_target_by_a_table_of_the_same_source() {
    let refused = |table: &str| workshop(&shop()).refused(&format!("{SCHEMA}\n{table}"));
    let table = |time: &str, semantic: &str| {
        format!(
            "[[table]]\nname = \"answers\"\nsource = \"seeds\"\n{time}\n\
             columns = {{ customer = \"ignored\", at = \"timestamp\", y = \"{semantic}\" }}\n\
             references = [{{ columns = \"customer\", to = \"customers\" }}]\n"
        )
    };
    let message = |count: u32| {
        format!(
            "task \"churn\": {count} of 3 seeds could see their own target: table \"answers\" is \
             also read from \"seeds\", and its row with the seed's \"y\" is visible at the \
             observation time; remove that table, give \"y\" the type ignored there and use it in \
             no key, reference or time, or give the table the time at which the target was known"
        )
    };
    let at = "time = { column = \"at\" }";
    assert_eq!(refused(&table("", "numerical")), message(3));
    assert_eq!(refused(&table(at, "categorical")), message(3));
    // An identifier reveals whether it is NULL.
    assert_eq!(refused(&table(at, "identifier")), message(3));
    // An inherited time may be too early for some rows only.
    let early = table("time = { through = \"customer\", delay = \"90 days\" }", "numerical");
    assert_eq!(refused(&early), message(2));
    // References to the target reveal it, too.
    let reveals = "[[table]]\nname = \"reveals\"\nsource = \"seeds\"\n\
                   columns = { y = \"ignored\", at = \"timestamp\" }\n\
                   references = [{ columns = \"y\", to = \"answers\", to_columns = \"y\" }]\n";
    assert_eq!(refused(&(table(at, "ignored") + reveals)), message(3));

    // A target that is known later, or is ignored, is not revealed.
    let later = table("time = { column = \"at\", delay = \"1 day\" }", "numerical");
    for harmless in [later, table("", "ignored")] {
        let output = workshop(&shop()).prepare(&format!("{SCHEMA}\n{harmless}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn p7_no_leak_of_a_target_by_its_horizon() {
    let part = "split = \"part\"";
    let refused = |horizon: &str| with_schema(part, &format!("{part}, horizon = {horizon}"));
    assert_eq!(
        refused("\"0 days\""),
        "schema DIR/schema.toml: task \"churn\": horizon: expected a time longer than 0, found \"0 us\"; set it to the time \
         from an observation until its target is known"
    );
    let sees_everything = SCHEMA.replace(part, "horizon = \"1 day\"") + "sees_everything = true\n";
    assert_eq!(
        workshop(&shop()).refused(&sees_everything),
        "schema DIR/schema.toml: task \"churn\": horizon: expected seeds that each have \
         an observation time, found sees_everything = true, with which a seed without a time sees its \
         own target; remove one of the two"
    );
    let taken =
        SCHEMA.replace(part, "horizon = \"1 day\"").replacen("\"orders\"", "\"Churn labels\"", 1);
    assert_eq!(
        workshop(&shop()).refused(&taken),
        "schema DIR/schema.toml: task \"churn\": horizon: the task's labels become table \"churn labels\", and there is a \
         table \"Churn labels\"; rename that table or the task"
    );
}

#[test]
fn a_summary_without_any_row_is_refused() {
    let summary = "\n[[summary]]\ntable = \"orders\"\nperiod = \"year\"\n";
    let mut files = shop();
    files[1].1 = "customer,at,total,note\n1,,2,a\n2,,3,b\n".to_owned();
    let refused = |by: &str| workshop(&files).refused(&format!("{SCHEMA}{summary}{by}"));
    assert_eq!(
        refused(""),
        "table \"orders\": summary \"orders by year\": no row of table \"orders\" has a time; remove \
         the summary, or correct the data"
    );
    assert_eq!(
        refused("by = \"customer\""),
        "table \"orders\": summary \"orders by year and customer\": no row of table \"orders\" has a \
         time and a parent; remove the summary, or correct the data"
    );
}

#[test]
fn a_horizon_makes_the_table_of_labels_that_one_could_write() {
    let part = ", split = \"part\"";
    let schema = SCHEMA.replace(part, "");
    let table = r#"
[[table]]
name = "churn labels"
source = "seeds"
time = { column = "at", delay = "36 hours" }
columns = { customer = "ignored", at = "timestamp", y = "numerical" }
references = [{ columns = "customer", to = "customers" }]

[[aggregate]]
table = "churn labels"
reference = "customer"
columns = "y"
"#;
    let (own, aggregate) = table.split_at(table.find("[[aggregate]]").unwrap());
    let by_hand = schema.replace("[[task]]", &format!("{own}{aggregate}[[task]]"));
    let type_ = "type = \"numerical\"";
    let by_horizon = schema.replace("[[task]]", &format!("{aggregate}[[task]]"));
    let by_horizon = by_horizon.replace(type_, &format!("{type_}, horizon = \"36 hours\""));
    let files = |schema: &str| {
        let workshop = workshop(&shop());
        let output = workshop.prepare(schema);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Store::open(&workshop.path("db")).unwrap().metadata().files.clone()
    };
    assert_eq!(files(&by_hand), files(&by_horizon));
}

#[test]
fn a_horizon_that_hides_every_target_is_remarked() {
    let part = "split = \"part\"";
    let prepared = |horizon: &str| {
        let schema = SCHEMA.replace(part, &format!("{part}, horizon = \"{horizon}\""));
        let output = workshop(&shop()).prepare(&schema);
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let remark = "note: task \"churn\": no seed sees an earlier target, because the horizon of 3000 \
                  days is longer than the ";
    assert!(prepared("3000 days").contains(remark), "{}", prepared("3000 days"));
    assert!(!prepared("1 second").contains("no seed sees"));
}
