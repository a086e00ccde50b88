//! P7: a strict task shows what came to exist before the observation time, and not at it.

use std::path::Path;
use std::sync::Arc;

use headwater::plan::Assignment;
use headwater::sampler::{Context, Sampler, Settings, Speed};
use headwater::store::Store;

use crate::Workshop;

const SCHEMA: &str = r#"
database = "clinic"

[[table]]
name = "patients"
key = "id"
columns = { id = "identifier" }

[[table]]
name = "visits"
key = "id"
time = { column = "at" }
columns = { id = "identifier", patient = "identifier", at = "timestamp", weight = "numerical" }
references = [{ columns = "patient", to = "patients" }]

[[aggregate]]
table = "visits"
reference = "patient"
columns = "weight"

[[task]]
name = "readmitted"
STRICT
[task.derived]
anchor = "patients"
source = "labels"
key = "patient"
time = "seen"
target = "again"
type = "boolean"
"#;

fn workshop() -> Workshop {
    Workshop::new(&[
        ("patients.csv", "id\n1\n"),
        (
            "visits.csv",
            "id,patient,at,weight\n1,1,2020-01-01 00:00:00,60\n2,1,2020-01-02 00:00:00,70\n\
             3,1,2020-01-03 00:00:00,80\n",
        ),
        (
            "labels.csv",
            "patient,seen,again\n1,2020-01-02 00:00:00,true\n1,2020-01-02 00:00:00.000001,false\n",
        ),
    ])
}

/// The context of a seed of the task, and the observation time in its batch.
fn context(clinic: &Workshop, schema: &str, seed: u32) -> (Context, i64) {
    let output = clinic.prepare(schema);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let store = Arc::new(Store::open(Path::new(&clinic.text("db"))).unwrap());
    let rank = Assignment::new(0, 1).unwrap();
    let sampler = Sampler::new(vec![store], Settings::default(), rank, Speed::default()).unwrap();
    let batch = sampler.batch_of_seed("readmitted", seed).unwrap();
    let observed = batch.get::<i64>("obs_time").unwrap()[0];
    let found = (sampler.context("readmitted", seed).unwrap(), observed);
    std::fs::remove_dir_all(clinic.path("db")).unwrap();
    found
}

#[test]
fn p7_a_strict_task_hides_rows_of_the_very_observation_time() {
    let clinic = workshop();
    let (loose, strict) = (SCHEMA.replace("STRICT", ""), SCHEMA.replace("STRICT", "strict = true"));
    let visits = |context: &Context| context.rows.len() - 1;
    let second = 1_577_923_200_000_000;
    let (context_of_loose, observed) = context(&clinic, &loose, 0);
    assert_eq!((visits(&context_of_loose), observed), (2, second));
    let (context_of_strict, observed) = context(&clinic, &strict, 0);
    assert_eq!((visits(&context_of_strict), observed), (1, second));
    assert_eq!(context_of_strict.obs_time, second);
    assert_ne!(
        context_of_loose.aggregates, context_of_strict.aggregates,
        "the count is of one visit"
    );
    // A microsecond later both visits were there before.
    let (later, _) = context(&clinic, &strict, 1);
    assert_eq!((visits(&later), later.aggregates), (2, context_of_loose.aggregates));
}

#[test]
fn a_cell_task_cannot_be_strict() {
    let tasks = SCHEMA.find("[[task]]").unwrap();
    let schema = format!(
        "{}[[task]]\nname = \"weight\"\nstrict = true\ncell = {{ table = \"visits\", column = \"weight\" }}\n",
        &SCHEMA[..tasks]
    );
    let message = workshop().refused(&schema);
    assert!(message.contains("strict hides rows of the very observation time"), "{message}");
}
