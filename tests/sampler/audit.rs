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
    /// The time of a note is that of an answer, which some notes do not have yet.
    NoTime,
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
    /// Seeds, customers and orders all have the time of midnight.
    AllRounded,
    /// No leak: orders have the time of midnight, but are known a day later, and so are their items.
    RoundedWithDelay,
    /// A boolean is true for some of the customers who leave alone.
    RareTruth,
    /// A number has a value of its own for some of the customers who leave alone.
    Sentinel,
    /// A column has the sum of all orders, also of those that came with the customer.
    LifetimeSum,
    /// Rows without a time have keys with letters, in the order opposite to that in which they came.
    OrderOfLetters,
    /// A time that is known before has the answer to a question of when.
    TwinOfTime,
    /// The sum of all orders is known a day after the customer came, as the schema has it.
    TotalKnownEarly,
    /// The sum of all orders is known from the last order on, as the schema has it.
    TotalKnownAtLast,
    /// No leak: the sum of all orders is known a month after the last.
    TotalKnownAfter,
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
columns = { id = "identifier", since = "timestamp", city = "categorical", state = "categorical", worth = "numerical", reason = "text", last = "timestamp", warned = "boolean", rating = "numerical", total = TOTAL, closed = "ignored", ends = "timestamp" }

[[table]]
name = "orders"
key = "id"
time = { column = "at", delay = "DELAY" }
columns = { id = "identifier", customer = "identifier", product = "identifier", at = "timestamp", amount = "numerical", tax = "numerical" }
references = [{ columns = "customer", to = "customers" }, { columns = "product", to = "products" }]

[[table]]
name = "items"
time = { through = "THROUGH" }
columns = { order = "identifier", customer = "identifier", product = "identifier", count = "numerical", price = "numerical" }
references = [{ columns = "order", to = "orders" }, { columns = "customer", to = "customers" }, { columns = "product", to = "products" }]

[[table]]
name = "notes"
key = "id"
NOTED
columns = { id = "identifier", customer = "identifier", final = "boolean", written = "timestamp", answered = "timestamp" }
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

[[table]]
name = "workers"
key = "id"
columns = { id = "identifier", boss = "identifier", deputy = "identifier", pay = "numerical" }
references = [{ columns = "boss", to = "workers" }, { columns = "deputy", to = "workers" }]

[[task]]
name = "leaves"
derived = { anchor = "customers", source = "leaves", key = "customer", time = "at", target = "y", type = "boolean" }

[[task]]
name = "spends"
derived = { anchor = "customers", source = "spends", key = "customer", time = "at", target = "y", type = "numerical" }

[[task]]
name = "ends"
derived = { anchor = "customers", source = "ends", key = "customer", time = "at", target = "y", type = "timestamp" }

[[task]]
name = "boss"
cell = { table = "workers", column = "pay" }
sees_everything = true

[[task]]
name = "amount"
cell = { table = "orders", column = "amount" }

[[task]]
name = "won"
cell = { table = "sides", column = "won" }
"#;

type Column = (&'static str, Vec<Value>);

/// The tables of a shop that is being made.
struct Shop {
    leak: Option<Leak>,
    random: Stream,
    tables: Vec<(&'static str, Vec<Column>)>,
    /// Of each product.
    prices: Vec<i64>,
    sold: Vec<i64>,
    /// The number of orders.
    orders: i64,
}

impl Shop {
    fn has(&self, leak: Leak) -> bool {
        self.leak == Some(leak)
    }

    fn below(&mut self, bound: i64) -> i64 {
        self.random.below(bound as u64) as i64
    }

    /// Adds a row.
    fn add<const N: usize>(&mut self, table: &'static str, row: [(&'static str, Value); N]) {
        let place = self.tables.iter().position(|(name, _)| *name == table).unwrap_or_else(|| {
            self.tables.push((table, row.iter().map(|(name, _)| (*name, Vec::new())).collect()));
            self.tables.len() - 1
        });
        let columns = &mut self.tables[place].1;
        columns.iter_mut().zip(row).for_each(|((_, column), (_, value))| column.push(value));
    }

    fn add_customer(&mut self, customer: i64) {
        let mut since = START + self.below(300) * DAY + self.below(DAY);
        let (left, spent) = (self.below(10) < 3, 100 + self.below(1000));
        let mut observed = START + (310 + self.below(60)) * DAY + DAY / 2;
        if self.has(Leak::AllRounded) {
            (since, observed) = (midnight(since), midnight(observed));
        }
        let (last, total) = self.add_orders(customer, since, observed);
        let is_closed = match self.has(Leak::LaterColumn) {
            true => left != (self.below(50) == 0),
            false => self.below(3) == 0,
        };
        // Something that is of some, or of some of those alone who leave.
        let mut some = |leak, one_of| match self.leak == Some(leak) {
            true => left && self.random.below(10) < 6,
            false => self.random.below(one_of) == 0,
        };
        let has_reason = some(Leak::NullPattern, 4);
        let (warned, is_special) = (some(Leak::RareTruth, 12), some(Leak::Sentinel, 12));
        let worth = if self.has(Leak::Twin) { spent * 3 } else { self.below(3000) };
        let reason = Value::Word(format!("reason {}", self.below(5)));
        let is_last = self.has(Leak::TimelessDay);
        let day = if is_last { midnight(last) } else { since + self.below(90 * DAY) };
        let rating = if is_special { -1 } else { self.below(20) };
        let is_sum = [Leak::LifetimeSum, Leak::TotalKnownEarly, Leak::TotalKnownAtLast]
            .into_iter()
            .chain([Leak::TotalKnownAfter])
            .any(|leak| self.has(leak));
        let total = if is_sum { total } else { self.below(40_000) };
        let closed = match self.leak {
            Some(Leak::TotalKnownEarly) => since + DAY,
            Some(Leak::TotalKnownAfter) => last + 30 * DAY,
            _ => last,
        };
        let end = observed - 1 - self.below(300 * DAY);
        let is_known = self.has(Leak::TwinOfTime);
        let known = if is_known { end } else { observed - 1 - self.below(300 * DAY) };
        let city = Value::Word(format!("city {}", self.below(6)));
        self.add(
            "customers",
            [
                ("id", Value::Integer(customer)),
                ("since", Value::Time(since)),
                ("city", city),
                ("state", Value::Word(if is_closed { "closed" } else { "open" }.to_owned())),
                ("worth", number(worth)),
                ("reason", if has_reason { reason } else { Value::Null }),
                ("last", Value::Time(day)),
                ("warned", Value::Truth(warned)),
                ("rating", number(rating)),
                ("total", number(total)),
                ("closed", Value::Time(closed)),
                ("ends", Value::Time(known)),
            ],
        );
        let noted = if self.has(Leak::Sibling) { left } else { self.below(2) == 0 };
        let id = ("customer", Value::Integer(customer));
        let is_open = self.has(Leak::NoTime) && customer % 5 == 0;
        let written = if is_open { observed + DAY } else { since };
        let answered = if is_open { Value::Null } else { Value::Time(written) };
        let note = [
            ("id", id.1.clone()),
            id.clone(),
            ("final", Value::Truth(noted)),
            ("written", Value::Time(written)),
            ("answered", answered),
        ];
        self.add("notes", note);
        for (task, answer) in
            [("leaves", Value::Truth(left)), ("spends", number(spent)), ("ends", Value::Time(end))]
        {
            self.add(task, [id.clone(), ("at", Value::Time(observed)), ("y", answer)]);
        }
    }

    /// Returns the time of the last order and the total of all.
    fn add_orders(&mut self, customer: i64, since: i64, observed: i64) -> (i64, i64) {
        let (mut at, mut total) = (since, 0);
        for place in 0..2 + self.below(12) {
            // The first order comes with the customer.
            at += if place == 0 { 0 } else { self.below(60 * DAY) + 1 };
            // Every third order is of the day of an observation.
            if place > 0 && self.below(3) == 0 {
                at = at.max(midnight(observed)) / DAY * DAY + self.below(DAY);
            }
            let is_rounded = [Leak::RoundedTime, Leak::AllRounded, Leak::RoundedWithDelay]
                .map(|leak| self.has(leak))
                .contains(&true);
            let shown = if is_rounded { midnight(at) } else { at };
            // Products are bought from a day on that grows with their number, where that leaks.
            let product = match self.leak {
                Some(Leak::OrderOfTime) => ((at - START) / (5 * DAY)).min(199),
                Some(Leak::OrderOfLetters) => 199 - ((at - START) / (5 * DAY)).min(199),
                _ => self.below(200),
            };
            self.sold[product as usize] += 1;
            // An item has a copy of the price of its product.
            let price = number(self.prices[product as usize]);
            let amount = 40 + self.below(4000);
            let tax = if self.has(Leak::CellBeside) { amount / 5 } else { self.below(800) };
            total += amount;
            let count = number(self.below(9));
            let customer = ("customer", Value::Integer(customer));
            let product = ("product", key_of_product(product));
            let (order, at) = (Value::Integer(self.orders), ("at", Value::Time(shown)));
            self.orders += 1;
            let of_order = ("order", order.clone());
            let (of_customer, of_product) = (customer.clone(), product.clone());
            self.add(
                "items",
                [of_order, of_customer, of_product, ("count", count), ("price", price)],
            );
            let (amount, tax) = (("amount", number(amount)), ("tax", number(tax)));
            self.add("orders", [("id", order), customer, product, at, amount, tax]);
        }
        (at, total)
    }

    fn add_game(&mut self, game: i64) {
        self.add("matches", [("id", Value::Integer(game))]);
        let (at, won) = (START + self.below(400 * DAY), self.below(2) == 0);
        let second = if self.has(Leak::OtherSide) { !won } else { self.below(2) == 0 };
        for (side, won) in [(0, won), (1, second)] {
            let id = ("id", Value::Integer(game * 2 + side));
            let of_match = ("match", Value::Integer(game));
            self.add("sides", [id, of_match, ("at", Value::Time(at)), ("won", Value::Truth(won))]);
        }
    }
}

/// Returns a shop with a leak, or without.
fn shop(leak: Option<Leak>) -> Database {
    let random = Stream::new(7, Purpose::Split, [0xa0d1, 0, 0]);
    let mut shop = Shop {
        leak,
        random,
        tables: Vec::new(),
        prices: Vec::new(),
        sold: vec![0; 200],
        orders: 0,
    };
    shop.prices = (0..200).map(|_| shop.below(90)).collect();
    (0..CUSTOMERS).for_each(|customer| shop.add_customer(customer));
    for product in 0..200 {
        let is_told = shop.has(Leak::TimelessCount);
        let sold = if is_told { shop.sold[product as usize] } else { shop.below(40) };
        let price = number(shop.prices[product as usize]);
        let id = key_of_product(product);
        shop.add("products", [("id", id), ("price", price), ("sold", Value::Integer(sold))]);
    }
    (0..600).for_each(|game| shop.add_game(game));
    // Of two workers each is the boss and the deputy of the other, so that a path of two leads back.
    for worker in 0..400 {
        let [id, other] = [worker, worker ^ 1].map(Value::Integer);
        let pay = number(shop.below(4000));
        let row = [("id", id), ("boss", other.clone()), ("deputy", other), ("pay", pay)];
        shop.add("workers", row);
    }
    let through = if shop.has(Leak::EarlyParent) { "customer" } else { "order" };
    let delay = if shop.has(Leak::RoundedWithDelay) { "1 day" } else { "0 days" };
    let is_known = [Leak::TotalKnownEarly, Leak::TotalKnownAtLast, Leak::TotalKnownAfter]
        .into_iter()
        .any(|leak| shop.has(leak));
    let total = match is_known {
        true => "{ type = \"numerical\", known = { at = \"closed\" } }",
        false => "\"numerical\"",
    };
    let schema = SCHEMA.replace("THROUGH", through).replace("DELAY", delay);
    let noted = if shop.has(Leak::NoTime) { "time = { column = \"answered\" }" } else { "" };
    let schema = schema.replace("TOTAL", total).replace("NOTED", noted);
    Database::new(&schema, shop.tables)
}

fn midnight(time: i64) -> i64 {
    time / DAY * DAY
}

fn number(value: i64) -> Value {
    Value::Number(value as f64 / 4.0)
}

/// Keys with letters, of different lengths.
fn key_of_product(product: i64) -> Value {
    Value::Word(format!("P{product}"))
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
    assert_eq!(names, ["leaves", "spends", "ends", "boss", "amount", "won"]);
    for task in &report.tasks {
        assert!(!task.too_few && task.best.is_some() && task.looked_at >= 400, "{task:?}");
        let is_cell = ["boss", "amount", "won"].contains(&&*task.task);
        assert_eq!(task.relabelled, if is_cell { 8 } else { task.replayed }, "{task:?}");
        // Workers have no time, and so no future.
        assert_eq!(task.replayed > 200, task.task != "boss", "{task:?}");
        assert!(task.replayed_exactly <= task.replayed, "{task:?}");
    }
    assert!(report.tasks.iter().all(|task| task.task != "leaves" || task.replayed_exactly >= 8));
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
            Leak::NoTime,
            Kind::NoTime,
            Some("leaves"),
            "notes",
            "whose \"written\" is later than the observation; so do seeds of tasks spends, ends",
        ),
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
        (
            Leak::AllRounded,
            Kind::RoundedTime,
            Some("leaves"),
            "orders",
            "see rows of orders, items of the day",
        ),
        (
            Leak::RareTruth,
            Kind::PredictsTarget,
            Some("leaves"),
            "customers.warned",
            "one value of it",
        ),
        (
            Leak::Sentinel,
            Kind::PredictsTarget,
            Some("leaves"),
            "customers.rating",
            "one value of it",
        ),
        (Leak::LifetimeSum, Kind::TotalsChildren, None, "customers.total", "the sum of orders"),
        (
            Leak::TotalKnownEarly,
            Kind::TotalsChildren,
            None,
            "customers.total",
            "it is known before most of them",
        ),
        (
            Leak::TotalKnownAtLast,
            Kind::TotalsChildren,
            None,
            "customers.total",
            "that it is not NULL tells that no more come",
        ),
        (Leak::OrderOfLetters, Kind::OrderOfTime, None, "products.id", "correlation -"),
        (Leak::TwinOfTime, Kind::PredictsTarget, Some("ends"), "customers.ends", "a copy"),
        (Leak::CellBeside, Kind::PredictsTarget, Some("amount"), "orders.tax", "hide = [\"tax\"]"),
    ] {
        let found = found(Some(leak));
        let is_it = |finding: &&Finding| {
            (finding.kind, finding.task.as_deref(), &*finding.subject) == (kind, task, subject)
        };
        let finding = found.iter().find(is_it).unwrap_or_else(|| panic!("{leak:?}: {found:?}"));
        let text = format!("{} {}", finding.evidence, finding.remedy);
        assert!(text.contains(words), "{leak:?}: {text}");
        let is_other = |other: &&Finding| other.subject != subject;
        let others: Vec<_> = found.iter().filter(is_other).collect();
        assert!(others.is_empty(), "{leak:?}: {others:?}");
    }
}

#[test]
fn rounded_times_with_a_delay_are_no_leak_nor_are_those_that_inherit_them() {
    assert_eq!(found(Some(Leak::RoundedWithDelay)), []);
}

#[test]
fn p7_a_total_that_is_known_after_its_last_child_is_no_leak() {
    assert_eq!(found(Some(Leak::TotalKnownAfter)), []);
}

#[test]
fn a_target_that_follows_from_the_number_of_earlier_rows_may_be_accepted() {
    let schema = r#"
database = "counts"

[[table]]
name = "users"
key = "id"
columns = { id = "identifier" }

[[table]]
name = "visits"
time = { column = "at" }
columns = { user = "identifier", at = "timestamp" }
references = [{ columns = "user", to = "users" }]

[[task]]
name = "visited"
derived = { anchor = "users", source = "visited", key = "user", time = "at", target = "y", type = "numerical" }
"#;
    let users = (0..200).map(|id| [Value::Integer(id)]).collect::<Vec<_>>();
    let visits = (0..200).flat_map(|user| (0..=(user % 9)).map(move |visit| (user, visit)));
    let at = |visit: i64| Value::Time(START + visit * DAY + visit * visit);
    let visits = visits.map(|(user, visit)| [Value::Integer(user), at(visit)]).collect::<Vec<_>>();
    let visited =
        (0..200).map(|user| [Value::Integer(user), at(300), Value::Number((user % 9) as f64)]);
    let database = Database::new(
        schema,
        [
            ("users", columns(["id"], &users)),
            ("visits", columns(["user", "at"], &visits)),
            ("visited", columns(["user", "at", "y"], &visited.collect::<Vec<_>>())),
        ],
    );
    let (_folder, store) = stores::store_of(&database, &[usize::MAX]);
    let findings = audited(store, &Settings::default()).findings;
    let finding = findings.iter().find(|finding| finding.subject == "visits").unwrap();
    assert!(finding.evidence.contains("the number of visits"), "{findings:?}");
    assert!(finding.remedy.ends_with("that is no leak: accept visits"), "{}", finding.remedy);
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
