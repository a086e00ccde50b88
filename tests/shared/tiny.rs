//! A fixed database of a dozen rows, with one of each feature.

use crate::database::{Database, Value};

const SCHEMA: &str = r#"
database = "tiny"
limits = { unresolved_share = 0.5 }

[[table]]
name = "customers"
key = "id"
time = { column = "since" }
columns = { id = "identifier", since = "timestamp", vip = "boolean", city = "categorical", advisor = "identifier" }
references = [{ columns = "advisor", to = "customers" }]

[[table]]
name = "orders"
key = ["customer", "number"]
time = { through = "customer", delay = "1 day" }
columns = { customer = "identifier", number = "numerical", note = "text" }
references = [{ columns = "customer", to = "customers" }]

[[table]]
name = "remarks"
columns = { customer = "identifier", number = "identifier", words = "text", internal = "ignored" }
references = [{ columns = ["customer", "number"], to = "orders" }]

[[aggregate]]
table = "orders"
reference = "customer"
columns = "number"
windows = ["15 days", "ever"]

[[aggregate]]
table = "customers"
reference = "advisor"
columns = "vip"

[[task]]
name = "vip"
cell = { table = "customers", column = "vip" }
sees_everything = true

[[task]]
name = "next order"
derived = { anchor = "customers", source = "next", key = "id", time = "at", target = "amount", type = "numerical", split = "split" }

[[task]]
name = "churn"
derived = { anchor = "customers", source = "churn", key = "id", time = "at", target = "kind", type = "categorical" }
"#;

const DAY: i64 = 86_400_000_000;

fn integer(number: i64) -> Value {
    Value::Integer(number)
}

fn word(word: &str) -> Value {
    if word == "-" { Value::Null } else { Value::Word(word.into()) }
}

fn day(day: i64) -> Value {
    if day < 0 { Value::Null } else { Value::Time(day * DAY) }
}

pub(crate) fn database() -> Database {
    let column = |name: &'static str, values: Vec<Value>| (name, values);
    let words = |text: &str| text.split(' ').map(word).collect::<Vec<_>>();
    let integers = |numbers: &[i64]| numbers.iter().copied().map(integer).collect::<Vec<_>>();
    let days = |days: &[i64]| days.iter().copied().map(day).collect::<Vec<_>>();
    let truth = |c| match c {
        't' => Value::Truth(true),
        'f' => Value::Truth(false),
        _ => Value::Null,
    };
    let number = |number: f64| Value::Number(number);
    let customers = vec![
        column("id", words("ann bob c|d eve")),
        column("since", days(&[30, 10, -1, 20])),
        column("vip", "tf-t".chars().map(truth).collect()),
        column("city", words("Ulm Bonn Ulm -")),
        column("advisor", words("bob ann - nobody")),
    ];
    let orders = vec![
        column("customer", words("ann bob ann c|d")),
        column("number", integers(&[1, 1, 2, 5])),
        column("note", words("gift - gift late")),
    ];
    let remarks = vec![
        column("customer", words("ann ann c|d bob -")),
        column("number", integers(&[1, 1, 5, 7, 1])),
        column("words", words("late fine fine - gift")),
        column("internal", words("1 2 3 4 5")),
    ];
    let next = vec![
        column("id", words("ann bob ann eve")),
        column("at", days(&[40, 40, 70, 41])),
        column("amount", [12.5, 0.25, -3.0, 100.0].map(number).to_vec()),
        column("split", words("train train val test")),
    ];
    let churn = vec![
        column("id", words("bob c|d eve")),
        column("at", days(&[50, 51, 52])),
        column("kind", words("gone - here")),
    ];
    let tables = [
        ("customers", customers),
        ("orders", orders),
        ("remarks", remarks),
        ("next", next),
        ("churn", churn),
    ];
    Database::new(SCHEMA, tables)
}
