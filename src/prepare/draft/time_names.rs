//! What the name of a time says about it.

/// Words of times that are not when a row came to exist: lives, plans, ends and later changes.
const NOT_THE_BEGINNING: [&str; 52] = [
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
    "edit",
    "edited",
    "revised",
    "activity",
    "active",
    "accessed",
    "login",
    "maturity",
    "mature",
    "matured",
    "renewal",
    "payoff",
    "stop",
    "stopped",
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
const RECORDED: [&str; 26] = [
    "created",
    "create",
    "creation",
    "inserted",
    "insert",
    "recorded",
    "record",
    "reported",
    "report",
    "booked",
    "booking",
    "logged",
    "log",
    "filed",
    "placed",
    "ordered",
    "order",
    "posted",
    "submitted",
    "submission",
    "issued",
    "issue",
    "paid",
    "payment",
    "written",
    "sent",
];

/// Words of times at which something began or happened, of which a row may be written later.
const STARTED: [&str; 15] = [
    "start",
    "started",
    "begin",
    "began",
    "opened",
    "open",
    "opening",
    "from",
    "effective",
    "occurred",
    "happened",
    "incident",
    "accident",
    "season",
    "period",
];

/// Words that are a time and nothing else.
const PLAIN: [&str; 10] =
    ["time", "date", "timestamp", "datetime", "t", "at", "ts", "dt", "when", "on"];

/// Words that make the time of an event, which may also be called so, no less plain.
const EVENT: [&str; 3] = ["obs", "observation", "event"];

/// What words that say the same end in: delivery and delivered, shipment and shipped. Not `ion`: a
/// production is no product.
const ENDINGS: [&str; 9] = ["", "y", "e", "d", "ed", "ing", "ment", "ped", "ping"];

/// What a name says of when its time is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// A later stage of the row, such as its shipping.
    Stage,
    /// Some time that every row has.
    Unsaid,
    /// When something began or happened, of which the row tells.
    Started,
    /// The entrance of a thing or a person, which is no event that others belong to.
    Entrance,
    /// The row's creation, in some word for it.
    Recorded,
    /// A time and nothing else.
    Plain,
    /// Named like the table: `order_date` in `orders`.
    Kin,
}

impl Fit {
    /// How well it says that the row came to exist then; the best is the greatest.
    pub(super) fn rank(self) -> u32 {
        match self {
            Self::Stage => 0,
            Self::Unsaid | Self::Started => 1,
            Self::Entrance => 2,
            Self::Recorded | Self::Plain | Self::Kin => 3,
        }
    }
}

/// How well the words of a column's name fit; none: its time is not when a row came to exist.
pub(super) fn fit(column: &[String], table: &[String], nulls: u64) -> Option<Fit> {
    let column: Vec<_> = column.iter().flat_map(|word| apart(word)).collect();
    let has = |wanted: &[&str]| column.iter().any(|word| wanted.contains(word));
    let rest: Vec<_> = column.iter().copied().filter(|word| !PLAIN.contains(word)).collect();
    let all_kin = |kin: &dyn Fn(&str, &str) -> bool| {
        !rest.is_empty() && rest.iter().all(|word| table.iter().any(|part| kin(word, part)))
    };
    // An activity_date is no birth of a row, but in activities.
    if all_kin(&|word, part| word == part) {
        return Some(Fit::Kin);
    }
    if has(&NOT_THE_BEGINNING) {
        return None;
    }
    let every_row = |fit: Fit| (nulls == 0).then_some(fit);
    if all_kin(&are_kin) {
        Some(Fit::Kin)
    } else if rest.iter().all(|word| EVENT.contains(word)) {
        Some(Fit::Plain)
    } else if has(&LATER_STAGES) {
        every_row(Fit::Stage)
    } else if has(&ENTRANCE) {
        Some(Fit::Entrance)
    } else {
        rest.iter().rev().find_map(|word| telling(word)).or_else(|| every_row(Fit::Unsaid))
    }
}

/// What one word says of a beginning. The last that does decides: `incident_reported` is a report,
/// `booking_start` a start.
fn telling(word: &str) -> Option<Fit> {
    let recorded = RECORDED.contains(&word).then_some(Fit::Recorded);
    recorded.or_else(|| STARTED.contains(&word).then_some(Fit::Started))
}

/// Whether two words say the same of an event: `delivered` in `deliveries`.
fn are_kin(one: &str, other: &str) -> bool {
    let pairs = one.char_indices().zip(other.chars());
    let shared =
        pairs.take_while(|((_, a), b)| a == b).map(|((at, a), _)| at + a.len_utf8()).last();
    let shared = shared.unwrap_or(0);
    let rest_is_ending = |word: &str| ENDINGS.contains(&&word[shared..]);
    shared >= 4 && rest_is_ending(one) && rest_is_ending(other)
}

/// A word such as `orderdate` as two; `update` is one.
fn apart(word: &str) -> impl Iterator<Item = &str> {
    let ends = ["datetime", "timestamp", "date", "time"];
    let end = ends.into_iter().find(|end| word != "update" && word.ends_with(end));
    let (before, end) = word.split_at(word.len() - end.map_or(0, str::len));
    [before, end].into_iter().filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare::draft::words::words;

    fn found(column: &str, table: &str) -> Option<u32> {
        fit(&words(column), &words(table), 0).map(Fit::rank)
    }

    #[test]
    fn kinship_is_of_whole_words() {
        let is_kin = |column: &str, table: &str| {
            fit(&words(column), &words(table), 0).is_some_and(|fit| fit == Fit::Kin)
        };
        for (column, table) in [
            ("order_date", "orders"),
            ("delivered_at", "deliveries"),
            ("shipped_at", "shipments"),
            ("invoiced", "invoices"),
            ("activity_date", "activities"),
        ] {
            assert!(is_kin(column, table), "{column} in {table}");
        }
        for (column, table) in [
            ("production_date", "products"),
            ("contact_date", "contracts"),
            ("decision_date", "d_people"),
            ("order_start", "orders"),
            ("updated_at", "updates"),
        ] {
            assert!(!is_kin(column, table), "{column} in {table}");
        }
    }

    #[test]
    fn what_is_written_down_is_above_what_began_and_a_change_is_nothing() {
        for column in ["created_at", "recorded", "inserted_on", "booked", "incident_reported", "ts"]
        {
            assert_eq!(found(column, "cases"), Some(3), "{column}");
        }
        for column in ["started_at", "season_start", "booking_start", "incident_date", "checked_at"]
        {
            assert_eq!(found(column, "cases"), Some(1), "{column}");
        }
        for column in ["edited_at", "modified", "last_activity", "update_date", "maturity_date"] {
            assert_eq!(found(column, "cases"), None, "{column}");
        }
    }
}
