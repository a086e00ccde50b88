//! The audit finds each planted leak by name, and nothing in a store without one.

use std::sync::Arc;

use headwater::audit::{Finding, Kind, Report, Settings, audit};
use headwater::progress::Silent;
use headwater::random::{Purpose, Stream};
use headwater::store::Store;
use proptest::prelude::*;

use crate::cases::cases;
use crate::database::{Database, Value};
use crate::{random_store, stores};

const DAY: i64 = 86_400_000_000;
const START: i64 = 18_000 * DAY;
const CUSTOMERS: i64 = 800;

/// What is wrong with a shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leak {
    /// A column of the customer is written when the customer leaves.
    LaterColumn,
    /// A column is the target in another unit.
    Twin,
    /// A column has a value for customers who leave alone.
    NullPattern,
    /// A column of a table without a time counts all orders that ever come.
    TimelessCount,
    /// A column has the day of the last order.
    TimelessDay,
    /// The times of orders are rounded to days.
    RoundedTime,
    /// Another table without a time has the label.
    Sibling,
    /// The other side of the same event has the label.
    OtherSide,
    /// Rows without a time are numbered in the order in which they came.
    OrderOfTime,
    /// A cell beside the target of a cell task predicts it.
    CellBeside,
    /// The items of orders have the time of the customer.
    EarlyParent,
}

const SCHEMA: &str = r#"
database = "shop"

[[table]]
name = "products"
key = "id"
columns = { id = "identifier", price = "numerical", sold = "numerical" }

[[table]]
name = "customers"
key = "id"
time = { column = "since" }
columns = { id = "identifier", since = "timestamp", city = "categorical", state = "categorical", worth = "numerical", reason = "text", last = "timestamp" }

[[table]]
name = "orders"
key = "id"
time = { column = "at" }
columns = { id = "identifier", customer = "identifier", product = "identifier", at = "timestamp", amount = "numerical", tax = "numerical" }
references = [{ columns = "customer", to = "customers" }, { columns = "product", to = "products" }]

[[table]]
name = "items"
time = { through = "THROUGH" }
columns = { order = "identifier", customer = "identifier", count = "numerical" }
references = [{ columns = "order", to = "orders" }, { columns = "customer", to = "customers" }]

[[table]]
name = "notes"
key = "id"
columns = { id = "identifier", customer = "identifier", final = "boolean" }
references = [{ columns = "customer", to = "customers" }]

[[table]]
name = "matches"
key = "id"
columns = { id = "identifier" }

[[table]]
name = "sides"
key = "id"
time = { column = "at" }
columns = { id = "identifier", match = "identifier", at = "timestamp", won = "boolean" }
references = [{ columns = "match", to = "matches" }]

[[task]]
name = "leaves"
derived = { anchor = "customers", source = "leaves", key = "customer", time = "at", target = "y", type = "boolean" }

[[task]]
name = "spends"
derived = { anchor = "customers", source = "spends", key = "customer", time = "at", target = "y", type = "numerical" }

[[task]]
name = "amount"
cell = { table = "orders", column = "amount" }

[[task]]
name = "won"
cell = { table = "sides", column = "won" }
"#;

/// Returns a shop with a leak, or without.
fn shop(leak: Option<Leak>) -> Database {
    let has = |other| leak == Some(other);
    let mut random = Stream::new(7, Purpose::Split, [0xa0d1, 0, 0]);
    let mut below = |bound: i64| random.below(bound as u64) as i64;
    let number = |value: i64| Value::Number(value as f64 / 4.0);
    let mut products: Vec<[Value; 3]> = Vec::new();
    let mut customers: Vec<[Value; 7]> = Vec::new();
    let mut orders: Vec<[Value; 6]> = Vec::new();
    let mut items: Vec<[Value; 3]> = Vec::new();
    let mut notes: Vec<[Value; 3]> = Vec::new();
    let (mut leaves, mut spends): (Vec<[Value; 3]>, Vec<[Value; 3]>) = Default::default();
    let mut sold = [0; 200];
    for customer in 0..CUSTOMERS {
        let since = START + below(300) * DAY + below(DAY);
        let (left, spent) = (below(10) < 3, 100 + below(1000));
        let observed = START + (310 + below(60)) * DAY + DAY / 2;
        let (mut at, mut last) = (since, since);
        for _ in 0..2 + below(12) {
            at += below(60 * DAY) + 1;
            last = at;
            // Every third order is of the day of an observation.
            if below(3) == 0 {
                at = at.max(observed / DAY * DAY) / DAY * DAY + below(DAY);
                last = at;
            }
            let shown = if has(Leak::RoundedTime) { at / DAY * DAY } else { at };
            // Products are bought from a day on that grows with their number, where that leaks.
            let product = match has(Leak::OrderOfTime) {
                true => ((at - START) / (5 * DAY)).min(199),
                false => below(200),
            };
            sold[product as usize] += 1;
            let amount = 40 + below(4000);
            let tax = if has(Leak::CellBeside) { amount / 5 } else { below(800) };
            let id = Value::Integer(orders.len() as i64);
            items.push([id.clone(), Value::Integer(customer), number(below(9))]);
            let (customer, product) = (Value::Integer(customer), Value::Integer(product));
            orders.push([id, customer, product, Value::Time(shown), number(amount), number(tax)]);
        }
        let is_closed =
            if has(Leak::LaterColumn) { left != (below(50) == 0) } else { below(3) == 0 };
        let state = if is_closed { "closed" } else { "open" };
        let worth = if has(Leak::Twin) { spent * 3 } else { below(3000) };
        let has_reason = if has(Leak::NullPattern) { left && below(10) < 6 } else { below(4) == 0 };
        let reason = match has_reason {
            true => Value::Word(format!("reason {}", below(5))),
            false => Value::Null,
        };
        let day = if has(Leak::TimelessDay) { last / DAY * DAY } else { since + below(90 * DAY) };
        let id = Value::Integer(customer);
        customers.push([
            id.clone(),
            Value::Time(since),
            Value::Word(format!("city {}", below(6))),
            Value::Word(state.to_owned()),
            number(worth),
            reason,
            Value::Time(day),
        ]);
        let noted = if has(Leak::Sibling) { left } else { below(2) == 0 };
        notes.push([Value::Integer(customer), id.clone(), Value::Truth(noted)]);
        leaves.push([id.clone(), Value::Time(observed), Value::Truth(left)]);
        spends.push([id, Value::Time(observed), number(spent)]);
    }
    for product in 0..200 {
        let count = if has(Leak::TimelessCount) { sold[product as usize] } else { below(40) };
        products.push([Value::Integer(product), number(below(90)), Value::Integer(count)]);
    }
    let (mut matches, mut sides): (Vec<[Value; 1]>, Vec<[Value; 4]>) = Default::default();
    for game in 0..600 {
        matches.push([Value::Integer(game)]);
        let (at, won) = (START + below(400 * DAY), below(2) == 0);
        let second = if has(Leak::OtherSide) { !won } else { below(2) == 0 };
        for (side, won) in [(0, won), (1, second)] {
            let id = Value::Integer(game * 2 + side);
            sides.push([id, Value::Integer(game), Value::Time(at), Value::Truth(won)]);
        }
    }
    let through = if has(Leak::EarlyParent) { "customer" } else { "order" };
    Database::new(
        &SCHEMA.replace("THROUGH", through),
        [
            ("products", columns(["id", "price", "sold"], &products)),
            (
                "customers",
                columns(["id", "since", "city", "state", "worth", "reason", "last"], &customers),
            ),
            ("orders", columns(["id", "customer", "product", "at", "amount", "tax"], &orders)),
            ("items", columns(["order", "customer", "count"], &items)),
            ("notes", columns(["id", "customer", "final"], &notes)),
            ("matches", columns(["id"], &matches)),
            ("sides", columns(["id", "match", "at", "won"], &sides)),
            ("leaves", columns(["customer", "at", "y"], &leaves)),
            ("spends", columns(["customer", "at", "y"], &spends)),
        ],
    )
}

fn columns<const N: usize>(
    names: [&'static str; N],
    rows: &[[Value; N]],
) -> Vec<(&'static str, Vec<Value>)> {
    let column = |place: usize| rows.iter().map(|row| row[place].clone()).collect();
    names.into_iter().enumerate().map(|(place, name)| (name, column(place))).collect()
}

fn audited(store: Store, settings: &Settings) -> Report {
    audit(&Arc::new(store), settings, &Silent).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns what the audit finds in a shop.
fn found(leak: Option<Leak>) -> Vec<Finding> {
    let (_folder, store) = stores::store_of(&shop(leak), &[usize::MAX]);
    audited(store, &Settings::default()).findings
}

#[test]
fn p7_an_audit_of_a_clean_shop_finds_nothing() {
    let (_folder, store) = stores::store_of(&shop(None), &[usize::MAX]);
    let report = audited(store, &Settings::default());
    assert_eq!(report.findings, []);
    let names: Vec<_> = report.tasks.iter().map(|task| task.task.as_str()).collect();
    assert_eq!(names, ["leaves", "spends", "amount", "won"]);
    for task in &report.tasks {
        assert!(!task.too_few && task.best.is_some() && task.replayed == 512, "{task:?}");
        assert!(task.looked_at >= 800 && task.moments == 8, "{task:?}");
    }
    let hidden = report.tasks[0].shares.iter().find(|s| s.path.starts_with("orders of the seed"));
    assert!(hidden.unwrap().hidden > 100, "{:?}", report.tasks[0].shares);
}

#[test]
fn p7_an_audit_finds_each_planted_leak_and_nothing_else() {
    for (leak, kind, task, subject, words) in [
        (
            Leak::LaterColumn,
            Kind::PredictsTarget,
            Some("leaves"),
            "customers.state",
            "known = { at",
        ),
        (
            Leak::Twin,
            Kind::PredictsTarget,
            Some("spends"),
            "customers.worth",
            "a copy of the target",
        ),
        (Leak::NullPattern, Kind::PredictsTarget, Some("leaves"), "customers.reason", "NULL"),
        (Leak::TimelessCount, Kind::TotalsChildren, None, "products.sold", "the number of orders"),
        (Leak::TimelessDay, Kind::TotalsChildren, None, "customers.last", "the last of orders"),
        (Leak::RoundedTime, Kind::RoundedTime, Some("leaves"), "orders", "delay = \"1 day\""),
        (
            Leak::Sibling,
            Kind::PredictsTarget,
            Some("leaves"),
            "notes.final",
            "notes of the seed row",
        ),
        (
            Leak::OtherSide,
            Kind::PredictsTarget,
            Some("won"),
            "sides.won",
            "other sides of the parent",
        ),
        (Leak::OrderOfTime, Kind::OrderOfTime, None, "products.id", "always visible"),
        (Leak::EarlyParent, Kind::BeforeParent, None, "items", "through = \"order\""),
        (Leak::CellBeside, Kind::PredictsTarget, Some("amount"), "orders.tax", "hide = [\"tax\"]"),
    ] {
        let found = found(Some(leak));
        let is_it = |finding: &&Finding| {
            (finding.kind, finding.task.as_deref(), &*finding.subject) == (kind, task, subject)
        };
        let finding = found.iter().find(is_it).unwrap_or_else(|| panic!("{leak:?}: {found:?}"));
        let text = format!("{} {}", finding.evidence, finding.remedy);
        assert!(text.contains(words), "{leak:?}: {text}");
        // The items of an order inherit its rounded time.
        let is_heir = |other: &Finding| other.subject == "items" && kind == Kind::RoundedTime;
        let is_other = |other: &&Finding| other.subject != subject && !is_heir(other);
        let others: Vec<_> = found.iter().filter(is_other).collect();
        assert!(others.is_empty(), "{leak:?}: {others:?}");
    }
}

#[test]
fn what_is_allowed_by_name_is_no_finding() {
    let (_folder, store) = stores::store_of(&shop(Some(Leak::Twin)), &[usize::MAX]);
    let store = Arc::new(store);
    let with = |allowed: &str| Settings { allowed: vec![allowed.into()], ..Settings::default() };
    let report = audit(&store, &with("customers.worth"), &Silent).unwrap();
    assert_eq!((report.findings.len(), report.allowed.len()), (0, 1), "{report:?}");
    for unknown in ["customers.wort", "customer", "customers.", "worth"] {
        let error = audit(&store, &with(unknown), &Silent).unwrap_err().to_string();
        assert!(error.contains(unknown), "{error}");
    }
    let tasks = Some(vec!["leave".to_owned()]);
    let error = audit(&store, &Settings { tasks, ..Settings::default() }, &Silent).unwrap_err();
    assert!(error.to_string().contains("leaves, spends"), "{error}");
}

#[test]
fn times_at_the_ends_of_their_range_are_audited() {
    let schema = r#"
database = "far"

[[table]]
name = "parents"
key = "id"
columns = { id = "identifier", last = "timestamp" }

[[table]]
name = "children"
time = { column = "at" }
columns = { parent = "identifier", at = "timestamp" }
references = [{ columns = "parent", to = "parents" }]
"#;
    let parents = (0..60).map(|id| [Value::Integer(id), Value::Time(DAY)]).collect::<Vec<_>>();
    let ends = [i64::MIN + 3, i64::MAX - 3];
    let children =
        (0..120).map(|row| [Value::Integer(row / 2), Value::Time(ends[row as usize % 2])]);
    let children = children.collect::<Vec<_>>();
    let database = Database::new(
        schema,
        [
            ("parents", columns(["id", "last"], &parents)),
            ("children", columns(["parent", "at"], &children)),
        ],
    );
    let (_folder, store) = stores::store_of(&database, &[usize::MAX]);
    assert_eq!(audited(store, &Settings::default()).findings, []);
}

proptest! {
    #![proptest_config(cases(40))]

    /// Over random databases, with aggregates, summaries, delays and values that are known later.
    #[test]
    fn p7_replays_of_random_databases_change_nothing(seed in any::<u64>().no_shrink()) {
        let (_folder, store) = random_store(seed);
        let report = audit(&store, &Settings::default(), &Silent).unwrap();
        let replays = report.findings.iter().filter(|finding| finding.kind == Kind::Replay);
        let replays: Vec<_> = replays.map(|finding| &finding.evidence).collect();
        prop_assert!(replays.is_empty(), "{:?}", replays);
        let again = audit(&store, &Settings::default(), &Silent).unwrap();
        prop_assert!(serde_json::to_string(&report).unwrap() == serde_json::to_string(&again).unwrap());
    }
}
