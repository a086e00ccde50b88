//! Guesses when the rows of each table came to exist.
//!
//! A row without a time is always visible, so a time with few gaps comes before one with many,
//! whatever their names. A time of the table itself is best, unless it is planned, or a later stage
//! of the row, or most rows lack it. Then comes the time of the event to which a row belongs; then
//! its planned time or a later stage, because it was known by then; then the time of any parent: the
//! one that the table is named after, or the latest, because a row cannot have existed before any of
//! its parents. A flight has its departure in place of the year of its plane.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::profile::Profile;
use super::subject::{ChosenTime, Notes, Origin, Place, Subject};
use super::time_names::{Fit, Gaps, fit, names_period_alone};
use crate::prepare::build::references::parents_first;
use crate::prepare::names::{counted, shortened};
use crate::prepare::schema::{Delay, Limits, Task, Time, TimeUnit};
use crate::store::SemanticType;

/// Chooses a time for each table, and notes the alternatives.
pub(super) fn find_times(
    subjects: &mut [Subject],
    derived: &BTreeMap<usize, Task>,
    notes: &mut Notes,
) {
    type IsGood = fn(&Own) -> bool;
    let passes: [(IsGood, Parents); 3] = [
        (
            |own| own.is_exact && own.rank > Fit::Stage.rank() && own.gaps > Gaps::Most,
            Parents::Events,
        ),
        (|own| own.gaps > Gaps::Most, Parents::All),
        (|_| true, Parents::All),
    ];
    for (is_good, parents) in passes {
        for subject in subjects.iter_mut().filter(|subject| subject.time.is_none()) {
            subject.time = own_time(subject, is_good);
        }
        inherit(subjects, derived, parents);
    }
    for (index, subject) in subjects.iter().enumerate() {
        notes.insert((subject.name.clone(), Place::Time), note(subjects, index));
    }
}

/// Returns the time of a table as a schema has it.
pub(super) fn time(subject: &Subject) -> Option<Time> {
    let mut time = Time { column: None, through: None, delay: Delay::default() };
    match subject.time.as_ref()?.from {
        Origin::Column(column, _) => {
            time.column = Some(subject.source.columns[column].name.clone());
        }
        Origin::Reference(reference) => {
            time.through = Some(subject.references[reference].name(subject));
        }
    }
    Some(time)
}

/// The parents whose time a table may inherit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parents {
    /// Events, and those after which the table is named.
    Events,
    All,
}

/// How likely the rows of a table came to exist at one of its own times, the main criterion first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Own {
    /// Rows without a time are always visible, which is worse than a bad name.
    gaps: Gaps,
    rank: u32,
    /// A day is nearer to a row than its year.
    is_exact: bool,
    /// Of times that are equally likely, one that every row has.
    is_complete: bool,
    /// The mean time. The latest beginning is safest: a row may have been unknown at the others. Of
    /// plans and later stages the earliest is nearest: the row was known at each of them.
    nearness: i128,
    nulls: Reverse<u64>,
    column: Reverse<usize>,
}

/// Returns the best of the table's own times that satisfy `is_good`.
fn own_time(subject: &Subject, is_good: fn(&Own) -> bool) -> Option<ChosenTime> {
    let fitting = timestamps(subject).filter_map(|(column, unit)| {
        let profile = &subject.profiles[column];
        let gaps = Gaps::of(profile.nulls, profile.rows);
        let fit = fit(&subject.column_tokens[column], &subject.tokens, gaps)?;
        let span = Span::of(profile, unit);
        let own = Own {
            gaps: gaps.min(Gaps::Few),
            rank: fit.rank(),
            is_exact: !is_period(unit),
            is_complete: gaps == Gaps::None,
            nearness: if fit.rank() <= Fit::Stage.rank() { -span.mean } else { span.mean },
            nulls: Reverse(profile.nulls),
            column: Reverse(column),
        };
        // The year of a model or of a birth says something about a row, not when it came to exist.
        let is_meant = fit != Fit::Unknown
            || !is_period(unit)
            || names_period_alone(&subject.column_tokens[column]);
        (is_meant && is_good(&own)).then_some((own, fit, span))
    });
    let (own, fit, span) = fitting.max_by(|(one, ..), (other, ..)| one.cmp(other))?;
    let Reverse(column) = own.column;
    let profile = &subject.profiles[column];
    Some(ChosenTime {
        from: Origin::Column(column, fit),
        gaps: Gaps::of(profile.nulls, profile.rows),
        mean_us: span.mean,
        first_us: span.first,
        span_us: span.length,
        gap_us: span.gap,
    })
}

/// The times of a column, in microseconds.
struct Span {
    mean: i128,
    first: i128,
    length: i128,
    /// From one distinct time to the next, in the mean; 0 if there are too many to count.
    gap: i128,
}

impl Span {
    fn of(profile: &Profile, unit: Option<TimeUnit>) -> Self {
        let from_to = |first: i64, last: i64| i128::from(last) - i128::from(first);
        let (mean, first, length) = match unit.and_then(|unit| profile.periods.of(unit)) {
            Some(periods) => {
                let (first, last) = (periods.first, periods.last);
                (periods.mean(), first.into(), from_to(first, last))
            }
            None => {
                let step = i128::from(unit.and_then(TimeUnit::microseconds).unwrap_or(1));
                let (first, last) = profile.time_range.or(profile.range).unwrap_or_default();
                (profile.mean() * step, i128::from(first) * step, from_to(first, last) * step)
            }
        };
        let steps = profile.values.count().map_or(0, |count| i128::from(count) - 1);
        let gap = if steps > 0 { length / steps } else { 0 };
        Self { mean, first, length, gap }
    }
}

fn is_period(unit: Option<TimeUnit>) -> bool {
    unit.is_some_and(|unit| TimeUnit::PERIODS.contains(&unit))
}

/// Returns the columns of a table that hold times, and their units.
fn timestamps(subject: &Subject) -> impl Iterator<Item = (usize, Option<TimeUnit>)> {
    (0..subject.profiles.len()).filter_map(|column| {
        let (found, _) = super::columns::guess(subject, column, &Limits::default());
        (found.semantic == SemanticType::Timestamp).then_some((column, found.unit))
    })
}

/// Gives each table without a time that of its event, until nothing changes.
///
/// A parent has a time before its child inherits it, so the inheritance cannot be circular.
fn inherit(subjects: &mut [Subject], derived: &BTreeMap<usize, Task>, parents: Parents) {
    let parents_of =
        |index: usize| subjects[index].references.iter().map(|reference| reference.to).collect();
    let order = parents_first(subjects.len(), &parents_of);
    loop {
        let mut changed = false;
        for &index in &order {
            if subjects[index].time.is_some() || derived.contains_key(&index) {
                continue;
            }
            let Some(reference) = event(subjects, index, parents) else { continue };
            let found = &subjects[index].references[reference];
            let Some(parent) = &subjects[found.to].time else { continue };
            subjects[index].time = Some(ChosenTime {
                from: Origin::Reference(reference),
                gaps: found.gaps(&subjects[index]).min(parent.gaps),
                mean_us: parent.mean_us,
                first_us: parent.first_us,
                span_us: parent.span_us,
                gap_us: parent.gap_us,
            });
            changed = true;
        }
        if !changed {
            return;
        }
    }
}

/// Returns the reference to the event that the rows of a table belong to.
fn event(subjects: &[Subject], index: usize, parents: Parents) -> Option<usize> {
    let subject = &subjects[index];
    let rank = |reference: usize| {
        let found = &subject.references[reference];
        let parent = subjects[found.to].time.as_ref()?;
        Some(Rank {
            gaps: found.gaps(subject).min(parent.gaps).min(Gaps::Few),
            event: is_event(subjects, found.to),
            mean_us: parent.mean_us,
            named: is_named_after(subject, &subjects[found.to]),
        })
    };
    // A row without a key of its own, or with several references, belongs to an event. Other rows
    // are things: with an inherited time they would disappear before it.
    let column_count: usize =
        subject.references.iter().map(|reference| reference.columns.len()).sum();
    let adds_to_row = subject.references.iter().any(|r| r.to != index && r.columns == subject.key);
    let is_connection =
        parents == Parents::All && (subject.key.len() != 1 || column_count >= 2 || adds_to_row);
    let ranked =
        timed(subjects, index).filter_map(|reference| Some((rank(reference)?, Reverse(reference))));
    let (_, Reverse(best)) =
        ranked.filter(|(rank, _)| is_connection || rank.event || rank.named).max()?;
    Some(best)
}

/// How near the time of a parent is to that of its child, the main criterion first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// How many rows would have no time, because they have no parent or the parent has no time.
    gaps: Gaps,
    event: bool,
    /// A row is never earlier than any of its parents.
    mean_us: i128,
    named: bool,
}

/// Returns the references to other tables with a time.
fn timed(subjects: &[Subject], index: usize) -> impl Iterator<Item = usize> {
    let references = subjects[index].references.iter().enumerate();
    let is_timed = move |to: usize| to != index && subjects[to].time.is_some();
    references.filter(move |(_, reference)| is_timed(reference.to)).map(|(place, _)| place)
}

/// Whether a table is named after another one: `order_lines` after `orders`.
fn is_named_after(child: &Subject, parent: &Subject) -> bool {
    let count = parent.tokens.len();
    let joined = parent.tokens.concat();
    let within = count > 0 && child.tokens.windows(count).any(|tokens| tokens == parent.tokens);
    within || (joined.len() >= 4 && child.tokens.concat().starts_with(&joined))
}

/// Whether the rows of a table are events rather than things, by the name of their time; if the
/// name is not decisive, by whether they refer to other tables.
fn is_event(subjects: &[Subject], index: usize) -> bool {
    let refers = || subjects[index].references.iter().any(|reference| reference.to != index);
    match subjects[index].time.as_ref().map(|time| &time.from) {
        None | Some(Origin::Column(_, Fit::Entrance)) => false,
        Some(Origin::Column(_, Fit::Plain | Fit::Related) | Origin::Reference(_)) => true,
        Some(Origin::Column(
            _,
            Fit::Planned | Fit::Stage | Fit::Unknown | Fit::Started | Fit::Recorded,
        )) => refers(),
    }
}

/// Returns the note about the time of a table: the choice, its reason and the alternatives.
fn note(subjects: &[Subject], index: usize) -> String {
    let subject = &subjects[index];
    let (mut parts, own, reference) = match &subject.time {
        None => (vec!["no time: its rows are always visible".to_owned()], None, None),
        Some(ChosenTime { from: Origin::Column(column, fit), .. }) => {
            (vec![own_reason(subject, *column, *fit)], Some(*column), None)
        }
        Some(ChosenTime { from: Origin::Reference(reference), .. }) => {
            (inherited_reasons(subjects, index, *reference), None, Some(*reference))
        }
    };
    let alternatives: Vec<_> = timestamps(subject)
        .filter(|&(column, _)| own != Some(column))
        .map(|(column, unit)| passed_over(subject, column, unit))
        .collect();
    if !alternatives.is_empty() {
        parts.push(format!("not chosen: {}", shortened(&alternatives)));
    }
    // A time of the table itself is always nearer than an inherited one.
    let others = timed(subjects, index).filter(|&other| own.is_none() && reference != Some(other));
    let references: Vec<_> =
        others.map(|other| alternative_reference(subjects, index, other)).collect();
    if !references.is_empty() {
        parts.push(format!("could be inherited through {}", references.join(" or ")));
    }
    parts.join("; ")
}

/// Returns the reasons for an inherited time, and the rows that it leaves without a time.
fn inherited_reasons(subjects: &[Subject], index: usize, reference: usize) -> Vec<String> {
    let subject = &subjects[index];
    let to = subject.references[reference].to;
    let name = &subjects[to].name;
    let reason = match is_named_after(subject, &subjects[to]) || is_event(subjects, to) {
        true => format!(
            "the time of {name:?}, to which a row belongs; add a delay if a row is known only later"
        ),
        false => format!(
            "the time of {name:?}, to which a row refers, but a row may be later; name the table's \
             own time if it has one"
        ),
    };
    let gaps = reference_gaps(subjects, index, reference).into_iter();
    [reason].into_iter().chain(gaps.map(|(gap, then)| format!("{gap}: {then}"))).collect()
}

/// Describes another reference through which a time could be inherited.
fn alternative_reference(subjects: &[Subject], index: usize, reference: usize) -> String {
    let subject = &subjects[index];
    let found = &subject.references[reference];
    let mut details = vec![format!("{:?}", subjects[found.to].name)];
    details.extend(reference_gaps(subjects, index, reference).into_iter().map(|(gap, _)| gap));
    format!("{:?} ({})", found.name(subject), details.join("; "))
}

/// Describes the rows without a time if it is inherited through `reference`, and when they are visible.
fn reference_gaps(
    subjects: &[Subject],
    index: usize,
    reference: usize,
) -> Vec<(String, &'static str)> {
    const ALWAYS: &str = "always visible";
    let subject = &subjects[index];
    let found = &subject.references[reference];
    let mut gaps = Vec::new();
    match found.null_rows(subject) {
        0 => {}
        1 => gaps.push(("1 row refers to no row".to_owned(), ALWAYS)),
        count => gaps.push((format!("{count} rows refer to no row"), ALWAYS)),
    }
    match found.unresolved.unwrap_or(0) {
        0 => {}
        1 => gaps.push(("1 row refers to a missing row".to_owned(), "never visible")),
        count => gaps.push((format!("{count} rows refer to missing rows"), "never visible")),
    }
    let parent = &subjects[found.to];
    match &parent.time {
        Some(ChosenTime {
            from: Origin::Column(column, _),
            gaps: Gaps::Most | Gaps::Many | Gaps::Few,
            ..
        }) => {
            let rows = counted(parent.profiles[*column].nulls, "row");
            let gap = format!("rows that refer to {rows} of {:?} without a time", parent.name);
            gaps.push((gap, ALWAYS));
        }
        Some(time) if time.gaps != Gaps::None => {
            let gap = format!("rows that refer to rows of {:?} without a time", parent.name);
            gaps.push((gap, ALWAYS));
        }
        _ => {}
    }
    gaps
}

/// Returns the name of a time that was not chosen, with what speaks against it.
fn passed_over(subject: &Subject, column: usize, unit: Option<TimeUnit>) -> String {
    let name = &subject.source.columns[column].name;
    let profile = &subject.profiles[column];
    let mut reasons = Vec::new();
    if profile.nulls > 0 {
        reasons.push(format!("NULL in {}", counted(profile.nulls, "row")));
    }
    let is_meant = fit(&subject.column_tokens[column], &subject.tokens, Gaps::None).is_some();
    let is_alone = names_period_alone(&subject.column_tokens[column]);
    match unit.filter(|_| is_period(unit)) {
        _ if !is_meant => reasons.push("its name suggests a birth, change or end".to_owned()),
        Some(unit) if is_alone => reasons.push(format!("only the {}", unit.name())),
        Some(_) => reasons.push("its name suggests a property of the row".to_owned()),
        None => {}
    }
    match reasons[..] {
        [] => format!("{name:?}"),
        _ => format!("{name:?} ({})", reasons.join("; ")),
    }
}

/// Returns the reason for choosing a time of the table itself.
fn own_reason(subject: &Subject, column: usize, fit: Fit) -> String {
    let reason = match fit {
        Fit::Related | Fit::Plain | Fit::Recorded | Fit::Entrance => {
            "when a row came to exist, by its name"
        }
        Fit::Started => "when something began, by its name; check that a row was known then",
        Fit::Unknown if subject.profiles[column].nulls == 0 => {
            "a time that every row has; check that a row came to exist then"
        }
        Fit::Unknown => "a time that nearly every row has; check that a row came to exist then",
        Fit::Stage => "a later stage, by its name: a row may have been known before",
        Fit::Planned => {
            "a planned time, by its name: cells that say what became of the plan are known later"
        }
    };
    match subject.profiles[column].nulls {
        0 => reason.to_owned(),
        1 => format!("{reason}; NULL in 1 row, which is then always visible"),
        nulls => format!("{reason}; NULL in {nulls} rows, which are then always visible"),
    }
}
