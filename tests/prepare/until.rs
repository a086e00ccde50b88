//! P7: no statistic is made of what was not known at the end of the training period.

use std::fmt::Write;
use std::path::Path;

use headwater::store::{ColumnStats, Metadata, Store, TargetMetadata};

use crate::{Workshop, succeed};

const SCHEMA: &str = r#"
database = "clinic"

[[table]]
name = "patients"
key = "id"
columns = { id = "identifier", born = "timestamp" }

[[table]]
name = "visits"
key = "id"
time = { column = "at" }
references = [{ columns = "patient", to = "patients" }]

[table.columns]
id = "identifier"
patient = "identifier"
at = "timestamp"
ward = "categorical"
weight = "numerical"
height = { type = "numerical", scale = "log" }
age = { type = "numerical", scale = "rank" }
cost = { type = "numerical", known = { delay = "11 days" } }
urgent = "boolean"

[[table]]
name = "drugs"
time = { through = "visit" }
columns = { visit = "identifier", dose = "numerical", kind = "categorical" }
references = [{ columns = "visit", to = "visits" }]

[[summary]]
table = "visits"
period = "month"
columns = ["weight"]

[[task]]
name = "readmitted"
[task.derived]
anchor = "patients"
source = "labels"
key = "patient"
time = "seen"
target = "reason"
type = "categorical"
split = "split"
"#;

/// A clinic whose visits of 2021, after the end of training, are of another kind.
fn clinic(later: &str) -> Workshop {
    let patients = "id,born\n1,1980-01-01\n2,2020-06-01\n3,2021-05-05\n";
    let mut visits = "id,patient,at,ward,weight,height,age,cost,urgent\n".to_owned();
    let mut drugs = "visit,dose,kind\n".to_owned();
    for visit in 0..60 {
        let (month, day) = (1 + visit / 5, 1 + 5 * (visit % 5));
        let _ = writeln!(
            visits,
            "{visit},{},2020-{month:02}-{day:02},{},{},{},{},{},{}",
            1 + visit % 3,
            ["north", "west"][visit % 2],
            60 + visit,
            150 + visit % 7,
            visit,
            7 * visit,
            visit % 4 == 0
        );
        let _ = writeln!(drugs, "{visit},{}.5,{}", visit % 9, ["pill", "drop"][visit % 2]);
    }
    for (number, kind) in later.split(' ').enumerate() {
        let visit = 60 + number;
        let _ =
            writeln!(visits, "{visit},1,2021-02-0{},{kind},9000,9000,9000,9000,true", number + 1);
        let _ = writeln!(drugs, "{visit},777,{kind}");
    }
    let labels = "patient,seen,reason,split\n1,2020-12-31,pain,train\n2,2020-05-01,fever,train\n\
                  3,2021-01-15,aches,val\n1,2021-03-01,fever,test\n";
    Workshop::new(&[
        ("patients.csv", patients),
        ("visits.csv", &visits),
        ("drugs.csv", &drugs),
        ("labels.csv", labels),
    ])
}

fn stats(store: &Store, table: &str, column: &str) -> ColumnStats {
    let table = store.tables().iter().find(|found| found.metadata().name == table).unwrap();
    let columns = &table.metadata().columns;
    columns.iter().find(|found| found.name == column).unwrap().stats.clone()
}

/// The statistics of all columns of tables, without where categories lie and how many there are.
fn all_stats(metadata: &Metadata) -> Vec<(String, ColumnStats)> {
    let columns = metadata.tables.iter().flat_map(|table| &table.columns);
    let named = columns.map(|column| {
        let stats = match column.stats {
            ColumnStats::Categorical { cat_emb_count, known_count, .. } => {
                let known = Some(known_count.unwrap_or(cat_emb_count));
                ColumnStats::Categorical { cat_emb_start: 0, cat_emb_count: 0, known_count: known }
            }
            ColumnStats::Count { .. } => ColumnStats::Identifier,
            ColumnStats::Timestamp { mean_us, std_us, .. } => {
                ColumnStats::Timestamp { mean_us, std_us, min_us: 0, max_us: 0 }
            }
            ref other => other.clone(),
        };
        (column.name.clone(), stats)
    });
    named.collect()
}

#[test]
fn p7_rows_after_the_train_split_change_no_statistic() {
    let of = |later: &str| {
        let clinic = clinic(later);
        let output = clinic.prepare(SCHEMA);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        succeed(&["verify", &clinic.text("db")]);
        let store = Store::open(Path::new(&clinic.text("db"))).unwrap();
        (clinic, store)
    };
    let (_, few) = of("north");
    let (clinic, many) = of("south east north aft");
    assert_eq!(all_stats(few.metadata()), all_stats(many.metadata()));
    let until = many.metadata().statistics_until.as_ref().unwrap();
    assert_eq!((until.time_us, until.task.as_deref()), (1_609_372_800_000_000, Some("readmitted")));

    let ColumnStats::Numerical { mean, max, .. } = stats(&many, "visits", "weight") else {
        panic!()
    };
    assert_eq!((mean, max), (89.5, 119.0));
    // Known eleven days after the visit: that of December 21 is known in January.
    let ColumnStats::Numerical { max, .. } = stats(&many, "visits", "cost") else { panic!() };
    assert_eq!(max, 7.0 * 58.0);
    // A time that had not come is not in the mean; the span of the data is.
    let ColumnStats::Timestamp { mean_us, max_us, .. } = stats(&many, "patients", "born") else {
        panic!()
    };
    assert_eq!((mean_us, max_us), (953_251_200_000_000.0, 1_620_172_800_000_000));
    // Inherited times count, too.
    let ColumnStats::Numerical { max, .. } = stats(&many, "drugs", "dose") else { panic!() };
    assert_eq!(max, 8.5);

    // Later categories come after the known ones, and no cell is lost.
    let ColumnStats::Categorical { cat_emb_start: start, cat_emb_count: 5, known_count: Some(2) } =
        stats(&many, "visits", "ward")
    else {
        panic!("{:?}", stats(&many, "visits", "ward"))
    };
    let names: Vec<_> = (0..5).map(|place| many.category(start + place).unwrap()).collect();
    assert_eq!(names, ["north", "west", "aft", "east", "south"]);
    let TargetMetadata::Derived { column, .. } = &many.metadata().tasks[0].target else { panic!() };
    let ColumnStats::Categorical { known_count: Some(2), cat_emb_count: 3, .. } = column.stats
    else {
        panic!("{:?}", column.stats)
    };
    let shown = succeed(&["inspect", &clinic.text("db")]);
    assert!(
        shown.contains(
            "statistics of the rows until 2020-12-31 00:00:00, the end of the train split of \
                        task \"readmitted\""
        ),
        "{shown}"
    );
}

#[test]
fn p7_the_schema_says_until_when_statistics_are() {
    let clinic = clinic("south");
    let schema = SCHEMA.replace(
        "\n\n[[table]]\nname = \"patients\"",
        "\nstatistics_until = \"2020-03-15\"\n\n[[table]]\nname = \"patients\"",
    );
    assert_ne!(schema, SCHEMA);
    assert!(clinic.prepare(&schema).status.success());
    let store = Store::open(Path::new(&clinic.text("db"))).unwrap();
    let ColumnStats::Numerical { max, .. } = stats(&store, "visits", "weight") else { panic!() };
    assert_eq!(max, 72.0);
    assert!(
        succeed(&["inspect", &clinic.text("db")])
            .contains("until 2020-03-15 00:00:00, as the schema")
    );
    let wrong = self::clinic("south").refused(&schema.replace("2020-03-15", "soon"));
    assert!(wrong.contains("statistics_until: expected a time such as"), "{wrong}");
}

#[test]
fn p7_without_a_recorded_split_the_store_says_that_statistics_are_of_all_rows() {
    let clinic = clinic("south");
    assert!(clinic.prepare(&SCHEMA.replace("split = \"split\"", "")).status.success());
    let store = Store::open(Path::new(&clinic.text("db"))).unwrap();
    let ColumnStats::Numerical { max, .. } = stats(&store, "visits", "weight") else { panic!() };
    assert_eq!((max, &store.metadata().statistics_until), (9000.0, &None));
    let shown = succeed(&["inspect", &clinic.text("db")]);
    assert!(shown.contains("statistics of all rows: no task records a train split"), "{shown}");
}

#[test]
fn a_column_that_training_cannot_scale_has_a_remark() {
    let clinic = clinic("south east");
    let schema = SCHEMA.replace(
        "database = \"clinic\"",
        "database = \"clinic\"\nstatistics_until = \"2019-01-01\"",
    );
    let output = clinic.prepare(&schema);
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    let words = "until 2019-01-01 00:00:00 too little is known to scale ";
    assert!(said.contains(words) && said.contains("\"visits.weight\""), "{said}");
}
