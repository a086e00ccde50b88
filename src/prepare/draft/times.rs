//! When the rows of each table came to exist.

use std::collections::BTreeMap;

use super::{Chosen, Notes, Origin, Place, Subject};
use crate::prepare::schema::{Delay, Limits, Task, Time};
use crate::store::SemanticType;

/// Words of times that are not when a row came to exist: lives, plans, ends and later changes.
const NOT_THE_BEGINNING: [&str; 36] = [
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
    "end",
    "ended",
    "until",
    "to",
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
    "expected",
    "next",
    "last",
    "updated",
    "update",
    "modified",
    "modification",
];

/// Words of times at which a row is written down.
const BEGINNING: [&str; 32] = [
    "created",
    "create",
    "creation",
    "inserted",
    "added",
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
    "signup",
    "registered",
    "joined",
    "hire",
    "hired",
    "released",
    "paid",
    "happened",
    "recorded",
    "logged",
    "issued",
    "published",
    "written",
    "sent",
];

/// Words that are a time and nothing else.
const PLAIN: [&str; 6] = ["time", "date", "timestamp", "datetime", "t", "at"];

/// From this score on a table's own time is better than one that it could inherit.
const GOOD: u32 = 4;

/// Chooses a time for each table: its own, or that of the event that it belongs to.
pub(super) fn find_times(
    subjects: &mut [Subject],
    derived: &BTreeMap<usize, Task>,
    notes: &mut Notes,
) {
    for subject in subjects.iter_mut() {
        own_time(subject, GOOD, notes);
    }
    inherit(subjects, derived, notes);
    for subject in subjects.iter_mut().filter(|subject| subject.time.is_none()) {
        own_time(subject, 0, notes);
    }
    inherit(subjects, derived, notes);
}

/// The time of a table in the schema.
pub(super) fn time(subject: &Subject) -> Option<Time> {
    let chosen = subject.time.as_ref()?;
    let mut time = Time { column: None, through: None, delay: Delay::default() };
    let name = |&column: &usize| subject.source.columns[column].name.as_str();
    match chosen.from {
        Origin::Column(column) => time.column = Some(name(&column).to_owned()),
        Origin::Link(link) => {
            let columns: Vec<_> = subject.links[link].columns.iter().map(name).collect();
            time.through = Some(columns.join("+"));
        }
    }
    Some(time)
}

/// Chooses the best of a table's own times, when it scores high enough.
fn own_time(subject: &mut Subject, least: u32, notes: &mut Notes) {
    let mut best: Option<(u32, std::cmp::Reverse<u64>, std::cmp::Reverse<usize>)> = None;
    for column in 0..subject.profiles.len() {
        let (found, _) = super::columns::guess(subject, column, &Limits::default());
        if found.semantic != SemanticType::Timestamp {
            continue;
        }
        let nulls = subject.profiles[column].nulls;
        let score = score(&subject.column_words[column], &subject.words, nulls);
        if let Some(score) = score.filter(|&score| score >= least) {
            let candidate = (score, std::cmp::Reverse(nulls), std::cmp::Reverse(column));
            best = best.max(Some(candidate));
        }
    }
    let Some((_, nulls, column)) = best else { return };
    let note = match nulls.0 {
        0 => "when a row came to exist, by its name".to_owned(),
        nulls => format!("NULL in {nulls} rows, which are then always visible"),
    };
    notes.insert((subject.name.clone(), Place::Time), note);
    subject.time = Some(Chosen { from: Origin::Column(column.0), nullable: nulls.0 > 0 });
}

/// How well a column's words say that its time is when a row came to exist.
fn score(column: &[String], table: &[String], nulls: u64) -> Option<u32> {
    let column: Vec<_> = column.iter().flat_map(|word| apart(word)).collect();
    let has = |wanted: &[&str]| column.iter().any(|word| wanted.contains(word));
    if has(&NOT_THE_BEGINNING) {
        return None;
    }
    let rest: Vec<_> = column.iter().filter(|word| !PLAIN.contains(word)).collect();
    // delivered_at in deliveries, order_date in orders
    let kin = |word: &str| table.iter().any(|part| shared_start(word, part) >= 4.min(part.len()));
    if !rest.is_empty() && rest.iter().all(|word| kin(word)) {
        Some(6)
    } else if rest.is_empty() || has(&["obs", "observation", "event"]) {
        Some(5)
    } else if has(&BEGINNING) || (column.last() == Some(&"at") && nulls == 0) {
        Some(GOOD)
    } else {
        // Some other time of the row: better than none, if every row has it.
        (nulls == 0).then_some(2)
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

/// Lets tables without a time have that of the event that they belong to, until nothing changes.
///
/// A parent has its time before its child takes it, so that no circle can come about.
fn inherit(subjects: &mut [Subject], derived: &BTreeMap<usize, Task>, notes: &mut Notes) {
    loop {
        let mut changed = false;
        for index in 0..subjects.len() {
            if subjects[index].time.is_some() || derived.contains_key(&index) {
                continue;
            }
            let Some(link) = event(subjects, index, notes) else { continue };
            let subject = &subjects[index];
            let parent = &subjects[subject.links[link].to];
            let nullable =
                subject.links[link].partial || parent.time.as_ref().is_none_or(|t| t.nullable);
            let note = format!(
                "as {:?}, to which it belongs; add a delay if it is known only later",
                parent.name
            );
            notes.insert((subject.name.clone(), Place::Time), note);
            subjects[index].time = Some(Chosen { from: Origin::Link(link), nullable });
            changed = true;
        }
        if !changed {
            return;
        }
    }
}

/// The reference to the event that a table's rows belong to.
fn event(subjects: &[Subject], index: usize, notes: &mut Notes) -> Option<usize> {
    let subject = &subjects[index];
    let timed: Vec<_> = (0..subject.links.len())
        .filter(|&link| subjects[subject.links[link].to].time.is_some())
        .collect();
    // An order's lines are named after the order.
    let named = |&link: &usize| {
        let parent = &subjects[subject.links[link].to].words;
        !parent.is_empty() && subject.words.starts_with(parent)
    };
    if let Some(link) = timed.iter().copied().find(|link| named(link)) {
        return Some(link);
    }
    // A row that nothing names, or that ties several rows together, is an event's.
    let ends: usize = subject.links.iter().map(|link| link.columns.len()).sum();
    let is_tie = subject.key.len() != 1 || ends >= 2;
    match timed[..] {
        [link] if is_tie => Some(link),
        [] => None,
        _ => {
            let names = timed.iter().map(|&link| &subjects[subject.links[link].to].name);
            let names: Vec<_> = names.map(|name| format!("{name:?}")).collect();
            let note = format!("no time: it could be inherited from {}", names.join(" or "));
            notes.insert((subject.name.clone(), Place::Time), note);
            None
        }
    }
}
