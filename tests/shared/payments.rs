//! A made log of payments, with a field of each kind, and values that are NULL, rare, long or odd.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use headwater::Result;
use headwater::prepare::schema::Schema;
use headwater::prepare::{EventOptions, EventsReport, prepare_events, source};
use headwater::progress::Silent;
use headwater::random::{Purpose, Stream};

/// One payment; texts are as in a CSV file, where an empty one is NULL.
#[derive(Clone, Debug)]
pub(crate) struct Payment {
    pub(crate) card: String,
    /// Microseconds since 1970.
    pub(crate) time: i64,
    pub(crate) merchant: String,
    pub(crate) amount: String,
    pub(crate) note: String,
    /// Microseconds since 1970.
    pub(crate) due: Option<i64>,
}

/// The columns as fields; merchants have few tokens, so that some are rare.
pub(crate) const FIELDS: &str = r#"fields = { merchant = { type = "category", max_tokens = 6 }, amount = "number", note = { type = "bytes", max_bytes = 9 }, due = { type = "time", unit = "us" } }"#;

/// Returns the payments of some cards, around `mean` of each.
pub(crate) fn payments(cards: u64, mean: u64) -> Vec<Payment> {
    let mut payments = Vec::new();
    for card in 0..cards {
        let mut random = Stream::new(8, Purpose::Demo, [2, card, 0]);
        let mut time = 1_751_000_000_000_000 + random.below(86_400_000_000).cast_signed();
        for _ in 0..=random.below(2 * mean) {
            time += random.below(3_000_000_000).cast_signed();
            // Of 36 merchants the first ones are seen most.
            let limit = 1 + random.below(36);
            let merchant = random.below(limit);
            let amount = random.below(10_000_000) as f64 / 1000.0 - 1000.0;
            let (is_null, note) = (random.below(10) == 0, random.below(4) as usize);
            payments.push(Payment {
                card: format!("card-{card}"),
                time,
                merchant: if is_null { String::new() } else { format!("shop {merchant}") },
                amount: if is_null { String::new() } else { format!("{amount}") },
                note: ["", "thanks", "Gruß an alle", "x"][note].to_owned(),
                due: (note != 2).then(|| time + (random.below(9) * 86_400_000_000).cast_signed()),
            });
        }
    }
    payments
}

/// The schema of such a log, with its fields and further lines in `[events]`.
pub(crate) fn schema(fields: &str, more: &str) -> Result<Schema> {
    Schema::parse(&format!(
        r#"
        database = "payments"
        [events]
        source = "payments"
        codec = "fields-v1"
        entity = "card"
        time = {{ column = "time", unit = "us" }}
        {fields}
        {more}
        "#
    ))
}

/// Writes payments as a CSV file in `folder`; returns its path.
pub(crate) fn write_csv(folder: &Path, payments: &[Payment]) -> PathBuf {
    let mut text = "card,time,merchant,amount,note,due\n".to_owned();
    for Payment { card, time, merchant, amount, note, due } in payments {
        let due = due.map_or(String::new(), |due| due.to_string());
        writeln!(text, "{card},{time},{merchant},{amount},{note},{due}").unwrap();
    }
    let path = folder.join("payments.csv");
    fs::write(&path, text).unwrap();
    path
}

/// Prepares the event store of payments in `folder`; returns its path and the report.
pub(crate) fn prepared(
    folder: &Path,
    payments: &[Payment],
    (fields, more): (&str, &str),
    threads: Option<usize>,
) -> Result<(PathBuf, EventsReport)> {
    let data = write_csv(folder, payments);
    let out = folder.join("payments.db");
    let options = EventOptions { replace: true, threads, progress: &Silent };
    let report = prepare_events(&*source::open(&data)?, &schema(fields, more)?, &out, &options)?;
    Ok((out, report))
}
