//! Judges by the name of a time column whether a row came to exist then.

/// Tokens of times other than the creation of a row: births, ends and later changes.
const NOT_THE_CREATION: [&str; 45] = [
    "birth",
    "birthday",
    "born",
    "dob",
    "death",
    "died",
    "dod",
    "expire",
    "expiry",
    "expiration",
    "expires",
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

/// Tokens of planned times, at which a row is known at the latest.
const PLANNED: [&str; 8] =
    ["due", "deadline", "required", "expected", "scheduled", "planned", "estimated", "sched"];

/// Tokens of later stages of an existing row.
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

/// Tokens of times at which a thing enters a catalogue or a person a register.
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

/// Tokens of times at which a row is recorded. Not `paid`: a visit was known before it was paid, and a payment
/// was not.
const RECORDED: [&str; 25] = [
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
    "payment",
    "written",
    "sent",
];

/// Tokens of times at which something began or happened; the row may be recorded later.
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

/// Tokens that mean a time and nothing else.
const PLAIN: [&str; 10] =
    ["time", "date", "timestamp", "datetime", "t", "at", "ts", "dt", "when", "on"];

/// Tokens that may accompany a plain time: the time of an event.
const EVENT: [&str; 3] = ["obs", "observation", "event"];

/// The endings of related tokens: delivery and delivered, shipment and shipped. Not `ion`, because
/// production and product are different things.
const ENDINGS: [&str; 9] = ["", "y", "e", "d", "ed", "ing", "ment", "ped", "ping"];

/// The share of a table's rows without a time, the best case last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gaps {
    /// More than half.
    Most,
    Many,
    /// One in twenty, or fewer.
    Few,
    None,
}

impl Gaps {
    pub(super) fn of(rows: u64, all: u64) -> Self {
        match rows {
            0 => Self::None,
            _ if rows * 20 <= all => Self::Few,
            _ if rows * 2 <= all => Self::Many,
            _ => Self::Most,
        }
    }
}

/// The meaning of a time by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// A planned time.
    Planned,
    /// A later stage of the row, such as its shipping.
    Stage,
    /// An unknown meaning; nearly every row has the time.
    Unknown,
    /// The start of what the row records.
    Started,
    /// The entrance of a thing or a person; not an event that other rows belong to.
    Entrance,
    /// The recording of the row.
    Recorded,
    /// A time without further meaning.
    Plain,
    /// The event that the table is named after: `order_date` in `orders`.
    Related,
}

impl Fit {
    /// Ranks how likely the row came to exist then; the greatest is the likeliest.
    pub(super) fn rank(self) -> u32 {
        match self {
            Self::Planned => 0,
            Self::Stage => 1,
            Self::Unknown | Self::Started => 2,
            Self::Entrance => 3,
            Self::Recorded | Self::Plain | Self::Related => 4,
        }
    }
}

/// Judges the name of a time column; `None` if a row did not come to exist at its time.
pub(super) fn fit(column: &[String], table: &[String], gaps: Gaps) -> Option<Fit> {
    let column: Vec<_> = column.iter().flat_map(|token| split_compound(token)).collect();
    let has = |wanted: &[&str]| column.iter().any(|token| wanted.contains(token));
    let rest: Vec<_> = column.iter().copied().filter(|token| !PLAIN.contains(token)).collect();
    let all_related = |related: &dyn Fn(&str, &str) -> bool| {
        !rest.is_empty() && rest.iter().all(|token| table.iter().any(|part| related(token, part)))
    };
    // `activity_date` is a later change, except in a table of activities.
    if all_related(&|token, part| token == part) {
        return Some(Fit::Related);
    }
    if has(&NOT_THE_CREATION) {
        return None;
    }
    if has(&PLANNED) {
        (gaps == Gaps::None).then_some(Fit::Planned)
    } else if all_related(&are_related) {
        Some(Fit::Related)
    } else if rest.iter().all(|token| EVENT.contains(token)) {
        Some(Fit::Plain)
    } else if has(&LATER_STAGES) {
        (gaps == Gaps::None).then_some(Fit::Stage)
    } else if has(&ENTRANCE) {
        Some(Fit::Entrance)
    } else {
        // A NULL here and there must not lead to the time of a parent, which may be far too early.
        let unknown = || (gaps >= Gaps::Few).then_some(Fit::Unknown);
        rest.iter().rev().find_map(|token| beginning(token)).or_else(unknown)
    }
}

/// Returns the beginning that a token means. The last such token decides: `incident_reported` is a
/// report, `booking_start` a start.
fn beginning(token: &str) -> Option<Fit> {
    let recorded = RECORDED.contains(&token).then_some(Fit::Recorded);
    recorded.or_else(|| STARTED.contains(&token).then_some(Fit::Started))
}

/// Whether a name is that of a period and nothing more: `year`, `yearID`, `fiscal_year`, `season`.
pub(super) fn names_period_alone(column: &[String]) -> bool {
    let words = [
        "year", "yr", "yyyy", "fiscal", "fy", "season", "quarter", "qtr", "month", "ym", "yyyymm",
        "period", "id", "no", "number", "date", "day", "dt", "time", "yyyymmdd",
    ];
    column.iter().all(|token| words.contains(&token.as_str()))
}

/// Whether two tokens mean the same event: `delivered` in `deliveries`.
fn are_related(one: &str, other: &str) -> bool {
    let pairs = one.char_indices().zip(other.chars());
    let shared =
        pairs.take_while(|((_, a), b)| a == b).map(|((at, a), _)| at + a.len_utf8()).last();
    let shared = shared.unwrap_or(0);
    let rest_is_ending = |token: &str| ENDINGS.contains(&&token[shared..]);
    shared >= 4 && rest_is_ending(one) && rest_is_ending(other)
}

/// Splits a token such as `orderdate` in two; `update` stays one.
fn split_compound(token: &str) -> impl Iterator<Item = &str> {
    let ends = ["datetime", "timestamp", "date", "time"];
    let end = ends.into_iter().find(|end| token != "update" && token.ends_with(end));
    let (before, end) = token.split_at(token.len() - end.map_or(0, str::len));
    [before, end].into_iter().filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare::draft::name_tokens::tokens;

    fn found(column: &str, table: &str) -> Option<u32> {
        fit(&tokens(column), &tokens(table), Gaps::None).map(Fit::rank)
    }

    #[test]
    fn related_tokens_are_whole_words() {
        let is_related = |column: &str, table: &str| {
            fit(&tokens(column), &tokens(table), Gaps::None).is_some_and(|fit| fit == Fit::Related)
        };
        for (column, table) in [
            ("order_date", "orders"),
            ("delivered_at", "deliveries"),
            ("shipped_at", "shipments"),
            ("invoiced", "invoices"),
            ("activity_date", "activities"),
        ] {
            assert!(is_related(column, table), "{column} in {table}");
        }
        for (column, table) in [
            ("production_date", "products"),
            ("contact_date", "contracts"),
            ("decision_date", "d_people"),
            ("order_start", "orders"),
            ("updated_at", "updates"),
        ] {
            assert!(!is_related(column, table), "{column} in {table}");
        }
    }

    #[test]
    fn recorded_times_rank_above_starts_and_changes_are_rejected() {
        for column in ["created_at", "recorded", "inserted_on", "booked", "incident_reported", "ts"]
        {
            assert_eq!(found(column, "cases"), Some(4), "{column}");
        }
        for column in ["started_at", "season_start", "booking_start", "incident_date", "checked_at"]
        {
            assert_eq!(found(column, "cases"), Some(2), "{column}");
        }
        for column in ["edited_at", "modified", "last_activity", "update_date", "maturity_date"] {
            assert_eq!(found(column, "cases"), None, "{column}");
        }
    }
}
