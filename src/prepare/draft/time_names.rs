//! What the name of a time says about it.

/// Words of times that are not when a row came to exist: lives, plans, ends and later changes.
const NOT_THE_BEGINNING: [&str; 38] = [
    "birth",
    "birthday",
    "born",
    "dob",
    "death",
    "died",
    "dod",
    "due",
    "deadline",
    "required",
    "expire",
    "expiry",
    "expiration",
    "expires",
    "expected",
    "end",
    "ended",
    "until",
    "to",
    "thru",
    "closed",
    "discontinued",
    "retired",
    "left",
    "terminated",
    "cancelled",
    "canceled",
    "deleted",
    "scheduled",
    "planned",
    "estimated",
    "next",
    "last",
    "updated",
    "update",
    "modified",
    "modification",
    "changed",
];

/// Words of what happens to a row once it is there.
const LATER_STAGES: [&str; 24] = [
    "ship",
    "shipped",
    "shipping",
    "shipment",
    "deliver",
    "delivered",
    "delivery",
    "receipt",
    "received",
    "commit",
    "approved",
    "confirmed",
    "completed",
    "finished",
    "fulfilled",
    "processed",
    "resolved",
    "answered",
    "returned",
    "refunded",
    "settled",
    "verified",
    "reviewed",
    "archived",
];

/// Words of times at which a thing enters a catalogue or a person a register.
const ENTRANCE: [&str; 14] = [
    "added",
    "signup",
    "registered",
    "registration",
    "joined",
    "hire",
    "hired",
    "released",
    "release",
    "published",
    "introduced",
    "founded",
    "since",
    "listed",
];

/// Words of times at which a row is written down.
const BEGINNING: [&str; 24] = [
    "created",
    "create",
    "creation",
    "inserted",
    "placed",
    "ordered",
    "order",
    "posted",
    "submitted",
    "occurred",
    "event",
    "opened",
    "open",
    "start",
    "started",
    "begin",
    "began",
    "paid",
    "happened",
    "recorded",
    "logged",
    "issued",
    "written",
    "sent",
];

/// Words that are a time and nothing else.
const PLAIN: [&str; 10] =
    ["time", "date", "timestamp", "datetime", "t", "at", "ts", "dt", "when", "on"];

/// How well a name says that its time is when a row came to exist; the best is the greatest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// A later stage of the row, such as its shipping.
    Stage,
    /// Some time that every row has.
    Unsaid,
    /// The entrance of a thing or a person, which is no event that others belong to.
    Entrance,
    /// The row's creation, in some word for it.
    Beginning,
    /// A time and nothing else.
    Plain,
    /// Named like the table: `order_date` in `orders`.
    Kin,
}

/// How well the words of a column's name fit; none: its time is not when a row came to exist.
pub(super) fn fit(column: &[String], table: &[String], nulls: u64) -> Option<Fit> {
    let column: Vec<_> = column.iter().flat_map(|word| apart(word)).collect();
    let has = |wanted: &[&str]| column.iter().any(|word| wanted.contains(word));
    if has(&NOT_THE_BEGINNING) {
        return None;
    }
    let rest: Vec<_> = column.iter().filter(|word| !PLAIN.contains(word)).collect();
    // delivered_at in deliveries, order_date in orders
    let kin = |word: &str| table.iter().any(|part| shared_start(word, part) >= 4.min(part.len()));
    if !rest.is_empty() && rest.iter().all(|word| kin(word)) {
        Some(Fit::Kin)
    } else if rest.is_empty() || has(&["obs", "observation", "event"]) {
        Some(Fit::Plain)
    } else if has(&LATER_STAGES) {
        (nulls == 0).then_some(Fit::Stage)
    } else if has(&ENTRANCE) {
        Some(Fit::Entrance)
    } else if has(&BEGINNING) || (column.last() == Some(&"at") && nulls == 0) {
        Some(Fit::Beginning)
    } else {
        (nulls == 0).then_some(Fit::Unsaid)
    }
}

/// How many characters two words begin with alike.
fn shared_start(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count()
}

/// A word such as `orderdate` as two.
fn apart(word: &str) -> impl Iterator<Item = &str> {
    let end = ["datetime", "timestamp", "date", "time"].into_iter().find(|end| word.ends_with(end));
    let (before, end) = word.split_at(word.len() - end.map_or(0, str::len));
    [before, end].into_iter().filter(|part| !part.is_empty())
}
