//! When the rows of each table came to exist.
//!
//! A row without a time is always visible, so a time that few rows lack comes before one that many
//! lack, whatever else is said of them. A table's own time is the best there is, unless it is a
//! later stage of the row or most rows lack it. Otherwise the table has that of a row that it refers
//! to: of an event, if there is one, rather than of a thing; then of that after which it is named;
//! and of several the latest, as it cannot have come before any of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::subject::{Chosen, Gaps, Notes, Origin, Place, Subject, counted};
use super::time_names::{Fit, fit};
use crate::prepare::build::references::parents_first;
use crate::prepare::names::shortened;
use crate::prepare::schema::{Delay, Limits, Task, Time, TimeUnit};
use crate::store::SemanticType;

/// Chooses a time for each table, and notes what it was chosen from.
pub(super) fn find_times(
    subjects: &mut [Subject],
    derived: &BTreeMap<usize, Task>,
    notes: &mut Notes,
) {
    // What another row lends is better than a later stage, or than what most rows lack.
    for is_good in
        [|own: &Own| own.rank > Fit::Stage.rank() && own.gaps > Gaps::Most, |_: &Own| true]
    {
        for subject in subjects.iter_mut().filter(|subject| subject.time.is_none()) {
            subject.time = own_time(subject, is_good);
        }
        inherit(subjects, derived);
    }
    for (index, subject) in subjects.iter().enumerate() {
        notes.insert((subject.name.clone(), Place::Time), note(subjects, index));
    }
}

/// The time of a table in the schema.
pub(super) fn time(subject: &Subject) -> Option<Time> {
    let mut time = Time { column: None, through: None, delay: Delay::default() };
    match subject.time.as_ref()?.from {
        Origin::Column(column, _) => {
            time.column = Some(subject.source.columns[column].name.clone());
        }
        Origin::Link(link) => time.through = Some(subject.links[link].name(subject)),
    }
    Some(time)
}

/// What makes a table's own time the one at which its rows came to exist, what counts most first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Own {
    /// Rows without a time are always visible, which is worse than any name.
    gaps: Gaps,
    rank: u32,
    /// Of several the latest: at the others a row may not have been known yet. Of later stages the
    /// earliest, as it was known at each of them.
    nearness: i128,
    nulls: Reverse<u64>,
    column: Reverse<usize>,
}

/// The best of a table's own times that are good enough.
fn own_time(subject: &Subject, is_good: fn(&Own) -> bool) -> Option<Chosen> {
    let fitting = timestamps(subject).filter_map(|(column, unit)| {
        let profile = &subject.profiles[column];
        let fit = fit(&subject.column_words[column], &subject.words, profile.nulls)?;
        let mean_us = profile.mean() * microseconds(unit);
        let own = Own {
            gaps: Gaps::of(profile.nulls, profile.rows).min(Gaps::Few),
            rank: fit.rank(),
            nearness: if fit == Fit::Stage { -mean_us } else { mean_us },
            nulls: Reverse(profile.nulls),
            column: Reverse(column),
        };
        is_good(&own).then_some((own, fit, mean_us))
    });
    let (own, fit, mean_us) = fitting.max_by(|(one, ..), (other, ..)| one.cmp(other))?;
    let Reverse(column) = own.column;
    let profile = &subject.profiles[column];
    Some(Chosen {
        from: Origin::Column(column, fit),
        gaps: Gaps::of(profile.nulls, profile.rows),
        mean_us,
    })
}

/// The columns of a table that hold times, and their units.
fn timestamps(subject: &Subject) -> impl Iterator<Item = (usize, Option<TimeUnit>)> {
    (0..subject.profiles.len()).filter_map(|column| {
        let (found, _) = super::columns::guess(subject, column, &Limits::default());
        (found.semantic == SemanticType::Timestamp).then_some((column, found.unit))
    })
}

fn microseconds(unit: Option<TimeUnit>) -> i128 {
    match unit {
        Some(TimeUnit::Second) => 1_000_000,
        Some(TimeUnit::Millisecond) => 1_000,
        Some(TimeUnit::Microsecond) | None => 1,
    }
}

/// Lets tables without a time have that of the event that they belong to, until nothing changes.
///
/// A parent has its time before its child takes it, so that no circle can come about.
fn inherit(subjects: &mut [Subject], derived: &BTreeMap<usize, Task>) {
    let parents = |index: usize| subjects[index].links.iter().map(|link| link.to).collect();
    let order = parents_first(subjects.len(), &parents);
    loop {
        let mut changed = false;
        for &index in &order {
            if subjects[index].time.is_some() || derived.contains_key(&index) {
                continue;
            }
            let Some(link) = event(subjects, index) else { continue };
            let found = &subjects[index].links[link];
            let Some(parent) = &subjects[found.to].time else { continue };
            subjects[index].time = Some(Chosen {
                from: Origin::Link(link),
                gaps: found.gaps(&subjects[index]).min(parent.gaps),
                mean_us: parent.mean_us,
            });
            changed = true;
        }
        if !changed {
            return;
        }
    }
}

/// The reference to the event that a table's rows belong to.
fn event(subjects: &[Subject], index: usize) -> Option<usize> {
    let subject = &subjects[index];
    let rank = |link: usize| {
        let found = &subject.links[link];
        let parent = subjects[found.to].time.as_ref()?;
        Some(Rank {
            gaps: found.gaps(subject).min(parent.gaps).min(Gaps::Few),
            event: is_event(subjects, found.to),
            named: is_named_after(subject, &subjects[found.to]),
            mean_us: parent.mean_us,
        })
    };
    // A row that nothing names, or that ties several rows together, is an event's. Other rows are
    // things, and would vanish from before a time that says little of them.
    let ends: usize = subject.links.iter().map(|link| link.columns.len()).sum();
    let is_tie = subject.key.len() != 1 || ends >= 2;
    let ranked = timed(subjects, index).filter_map(|link| Some((rank(link)?, Reverse(link))));
    let (_, Reverse(best)) = ranked.filter(|(rank, _)| is_tie || rank.event || rank.named).max()?;
    Some(best)
}

/// What makes a parent the one whose time is nearest to its child's, what counts most first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// How many rows would have no time, because they refer to none or the parent has none.
    gaps: Gaps,
    event: bool,
    named: bool,
    mean_us: i128,
}

/// The references to other tables that have a time.
fn timed(subjects: &[Subject], index: usize) -> impl Iterator<Item = usize> {
    let links = subjects[index].links.iter().enumerate();
    let is_timed = move |to: usize| to != index && subjects[to].time.is_some();
    links.filter(move |(_, link)| is_timed(link.to)).map(|(place, _)| place)
}

/// Whether a table is named after another one, as an order's lines are after the order.
fn is_named_after(child: &Subject, parent: &Subject) -> bool {
    let count = parent.words.len();
    let joined = parent.words.concat();
    let within = count > 0 && child.words.windows(count).any(|words| words == parent.words);
    within || (joined.len() >= 4 && child.words.concat().starts_with(&joined))
}

/// Whether the rows of a table are events rather than things, by the name of their time; or, where
/// that does not tell, because they refer to others.
fn is_event(subjects: &[Subject], index: usize) -> bool {
    let refers = || subjects[index].links.iter().any(|link| link.to != index);
    match subjects[index].time.as_ref().map(|time| &time.from) {
        None | Some(Origin::Column(_, Fit::Entrance)) => false,
        Some(Origin::Column(_, Fit::Plain | Fit::Kin) | Origin::Link(_)) => true,
        Some(Origin::Column(_, Fit::Stage | Fit::Unsaid | Fit::Started | Fit::Recorded)) => {
            refers()
        }
    }
}

/// What was chosen, why, and what else there was.
fn note(subjects: &[Subject], index: usize) -> String {
    let subject = &subjects[index];
    let (mut parts, own, link) = match &subject.time {
        None => (vec!["no time: its rows are always visible".to_owned()], None, None),
        Some(Chosen { from: Origin::Column(column, fit), .. }) => {
            (vec![own_reason(subject, *column, *fit)], Some(*column), None)
        }
        Some(Chosen { from: Origin::Link(link), .. }) => {
            (inherited_reasons(subjects, index, *link), None, Some(*link))
        }
    };
    let passed_over: Vec<_> = timestamps(subject)
        .filter(|&(column, _)| own != Some(column))
        .map(|(column, _)| with_nulls(subject, column))
        .collect();
    if !passed_over.is_empty() {
        parts.push(format!("passed over: {}", shortened(&passed_over)));
    }
    // A table's own time is never less near than what it could inherit.
    let others = timed(subjects, index).filter(|&other| own.is_none() && link != Some(other));
    let ways: Vec<_> = others.map(|other| way(subjects, index, other)).collect();
    if !ways.is_empty() {
        parts.push(format!("it could be inherited through {}", ways.join(" or ")));
    }
    parts.join("; ")
}

/// Why a time was inherited, and which rows it leaves without.
fn inherited_reasons(subjects: &[Subject], index: usize, link: usize) -> Vec<String> {
    let subject = &subjects[index];
    let to = subject.links[link].to;
    let name = &subjects[to].name;
    let reason = match is_named_after(subject, &subjects[to]) || is_event(subjects, to) {
        true => format!("as {name:?}, to which it belongs; add a delay if it is known only later"),
        false => format!(
            "no earlier than {name:?}, to which it refers; name a time of its own, if it has one"
        ),
    };
    let gaps = link_gaps(subjects, index, link).into_iter();
    [reason].into_iter().chain(gaps.map(|gap| format!("{gap}: always visible"))).collect()
}

/// Another reference through which a time could be inherited.
fn way(subjects: &[Subject], index: usize, link: usize) -> String {
    let subject = &subjects[index];
    let found = &subject.links[link];
    let mut said = vec![format!("{:?}", subjects[found.to].name)];
    said.extend(link_gaps(subjects, index, link));
    format!("{:?} ({})", found.name(subject), said.join("; "))
}

/// Which rows have no time when they have it through a reference.
fn link_gaps(subjects: &[Subject], index: usize, link: usize) -> Vec<String> {
    let subject = &subjects[index];
    let found = &subject.links[link];
    let mut gaps = Vec::new();
    match found.lost(subject) {
        0 => {}
        1 => gaps.push("1 row refers to none".to_owned()),
        lost => gaps.push(format!("{lost} rows refer to none")),
    }
    let parent = &subjects[found.to];
    match &parent.time {
        Some(Chosen {
            from: Origin::Column(column, _),
            gaps: Gaps::Most | Gaps::Many | Gaps::Few,
            ..
        }) => {
            let rows = counted(parent.profiles[*column].nulls, "row");
            gaps.push(format!("what refers to {rows} of {:?} without a time", parent.name));
        }
        Some(time) if time.gaps != Gaps::None => {
            gaps.push(format!("what refers to rows of {:?} without a time", parent.name));
        }
        _ => {}
    }
    gaps
}

/// A column's name, with how many rows it is NULL in.
fn with_nulls(subject: &Subject, column: usize) -> String {
    let name = &subject.source.columns[column].name;
    match subject.profiles[column].nulls {
        0 => format!("{name:?}"),
        nulls => format!("{name:?} (NULL in {})", counted(nulls, "row")),
    }
}

/// Why a table's own time was chosen.
fn own_reason(subject: &Subject, column: usize, fit: Fit) -> String {
    let reason = match fit {
        Fit::Kin | Fit::Plain | Fit::Recorded | Fit::Entrance => {
            "when a row came to exist, by its name"
        }
        Fit::Started => "when something began, by its name; see whether a row was known then",
        Fit::Unsaid => "a time that every row has; see whether it is when a row came to exist",
        Fit::Stage => "a later stage, by its name: a row may have been known before",
    };
    match subject.profiles[column].nulls {
        0 => reason.to_owned(),
        1 => format!("{reason}; NULL in 1 row, which is then always visible"),
        nulls => format!("{reason}; NULL in {nulls} rows, which are then always visible"),
    }
}
