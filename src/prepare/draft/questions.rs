//! Drafts questions: declared tasks that a person may take as they are, written as comments.
//!
//! Of each table whose rows have many children one after the other: will there be another one soon, and
//! how much? The horizon is about the time from one child to the next, so that both answers occur, or
//! shorter, so that val and test have two horizons each.

use std::cmp::Reverse;

use super::aggregates::{Candidate, candidates};
use super::name_tokens::{may_number_rows, names_rank};
use super::subject::Subject;
use crate::days::{DAY_US, Date};
use crate::prepare::schema::{Column, Delay, Predict, ScaleName, Table, What};
use crate::store::SemanticType;

/// The most questions.
const QUESTIONS_MAX: usize = 5;
/// The pairs of a table and its children that questions are drafted of.
const PAIRS_MAX: usize = 2;
/// The fewest rows of an anchor table, and children of each of them.
const ANCHORS_MIN: u64 = 50;
const CHILDREN_MIN: u64 = 3;
/// The most seeds; with more, a row is asked about less often.
const SEEDS_MAX: i128 = 500_000;
/// The horizons to choose from.
const HORIZONS: [i64; 6] =
    [DAY_US, 7 * DAY_US, 30 * DAY_US, 90 * DAY_US, 180 * DAY_US, 365 * DAY_US];
/// The parts of the time, in percent, until which train and val reach.
const TRAIN_PERCENT: i128 = 70;
const VAL_PERCENT: i128 = 85;

/// A declared task with its name and the reason for it.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) name: String,
    pub(super) predict: Predict,
    pub(super) note: String,
}

/// Drafts at most five questions about the tables of the schema; `tables` are those of `kept`. Without a
/// question the second part says why, if a table is near to one.
pub(super) fn find(
    subjects: &[Subject],
    kept: &[usize],
    tables: &[Table],
    taken: &[String],
) -> (Vec<Question>, Vec<String>) {
    let mut too_short: Vec<String> = Vec::new();
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for candidate in candidates(subjects, kept) {
        match Pair::of(subjects, kept, tables, &candidate) {
            Some(Ok(pair)) => pairs.push(pair),
            Some(Err(why)) => too_short.push(why),
            None => {}
        }
    }
    pairs.sort_by_key(|pair| (Reverse(pair.anchors), Reverse(pair.children), pair.of.name.clone()));
    // Each anchor and each child table once.
    let mut chosen: Vec<Pair<'_>> = Vec::new();
    for pair in pairs {
        let is_new = |other: &Pair<'_>| {
            other.anchor.name != pair.anchor.name && other.of.name != pair.of.name
        };
        if chosen.len() < PAIRS_MAX && chosen.iter().all(is_new) {
            chosen.push(pair);
        }
    }
    let mut questions: Vec<Question> = chosen.iter().flat_map(Pair::questions).collect();
    questions.extend(chosen.iter().find_map(Pair::class));
    let is_free =
        |question: &Question| taken.iter().all(|name| !name.eq_ignore_ascii_case(&question.name));
    questions.retain(is_free);
    questions.truncate(QUESTIONS_MAX);
    too_short.dedup();
    if !questions.is_empty() {
        too_short.clear();
    }
    (questions, too_short)
}

/// A table and one of the tables that refer to it.
struct Pair<'a> {
    anchor: &'a Table,
    of: &'a Table,
    /// The reference, if there are several.
    reference: Option<String>,
    anchors: u64,
    children: u64,
    horizon: Delay,
    every: Option<Delay>,
    /// How often a row is asked about.
    times: i128,
    train_until: String,
    val_until: String,
    /// The columns of the children that have at least two values.
    varying: Vec<Varying<'a>>,
}

/// A column of the children that has at least two values.
struct Varying<'a> {
    name: &'a str,
    column: &'a Column,
    /// Whether it is named like a code, so that its numbers are names.
    is_name: bool,
    /// Whether it is named like a place among others, of which a sum says nothing.
    is_rank: bool,
}

impl<'a> Pair<'a> {
    fn of(
        subjects: &[Subject],
        kept: &[usize],
        tables: &'a [Table],
        candidate: &Candidate,
    ) -> Option<Result<Self, String>> {
        let &Candidate { child, reference, parent, children, parents } = candidate;
        let place = |wanted: usize| kept.iter().position(|&index| index == wanted);
        let (anchor, of) = (&tables[place(parent)?], &tables[place(child)?]);
        let time = subjects[child].time.as_ref()?;
        let is_enough = parents >= ANCHORS_MIN && children >= CHILDREN_MIN * parents;
        if !is_enough || anchor.key.is_empty() || parent == child || time.span_us <= 0 {
            return None;
        }
        // About one child of a row comes within the horizon.
        let between = time.span_us * i128::from(parents) / i128::from(children);
        let distance = |horizon: &i64| (i128::from(*horizon) - between).abs();
        // Val and test have two horizons each, at least.
        let fits = |horizon: &i64| {
            time.span_us * (VAL_PERCENT - TRAIN_PERCENT) >= 200 * i128::from(*horizon)
        };
        let Some(horizon) = HORIZONS.into_iter().filter(fits).min_by_key(distance) else {
            return Some(Err(format!(
                "the rows of {:?} are of {} days: {} % of them, for each of val and test, are shorter than \
                 two horizons of 1 day",
                of.name,
                time.span_us / i128::from(DAY_US),
                VAL_PERCENT - TRAIN_PERCENT
            )));
        };
        let length = i128::from(horizon);
        // In horizons; at least one observation lies in the test period, the shortest.
        let longest = time.span_us * (100 - VAL_PERCENT) / (100 * length) - 1;
        let every = (i128::from(parents) * time.span_us / (length * SEEDS_MAX)).min(longest).max(1);
        let date = |percent: i128| {
            let day = (time.first_us + time.span_us * percent / 100) / i128::from(DAY_US);
            let Date { year, month, day, .. } = Date::of(i64::try_from(day).ok()?);
            Some(format!("{year:04}-{:02}-{:02}", month + 1, day + 1))
        };
        let subject = &subjects[child];
        let varying = of.columns.iter().enumerate().filter(|(place, (_, column))| {
            let profile = &subject.profiles[*place];
            let counted = profile.values.count().is_none_or(|count| count > 1);
            counted && column.known.is_none() && !subject.refers_by(*place)
        });
        let several = of.references.iter().filter(|other| other.to == anchor.name).count() > 1;
        let varying = varying.map(|(place, (name, column))| Varying {
            name,
            column,
            is_name: may_number_rows(&subject.column_tokens[place]),
            is_rank: names_rank(&subject.column_tokens[place]),
        });
        Some(Ok(Self {
            anchor,
            of,
            reference: several.then(|| subject.references[reference].name(subject)),
            anchors: parents,
            children,
            horizon: Delay(horizon),
            every: (every > 1).then(|| Delay(horizon * every as i64)),
            times: (time.span_us - length) / (length * every),
            train_until: date(TRAIN_PERCENT)?,
            val_until: date(VAL_PERCENT)?,
            varying: varying.collect(),
        }))
    }

    /// Returns whether there will be a child, and how much its first number will be: in all, or in the mean
    /// where a sum says nothing.
    fn questions(&self) -> Vec<Question> {
        let is_amount = |varying: &&Varying<'_>| {
            varying.column.semantic == SemanticType::Numerical
                && (varying.is_rank || !varying.is_name)
        };
        let number = self.varying.iter().find(is_amount);
        let rest = match number {
            Some(&Varying { name, column, is_rank, .. }) => {
                let what = if is_rank { What::Mean } else { What::Sum };
                self.question(what, Some(name), column.scale)
            }
            None => self.question(What::Count, None, ScaleName::Linear),
        };
        vec![self.question(What::Exists, None, ScaleName::Linear), rest]
    }

    /// Returns what category the next child will have.
    fn class(&self) -> Option<Question> {
        let is_class =
            |varying: &&Varying<'_>| varying.column.semantic == SemanticType::Categorical;
        let class = self.varying.iter().find(is_class)?;
        Some(self.question(What::First, Some(class.name), ScaleName::Linear))
    }

    fn question(&self, what: What, column: Option<&str>, scale: ScaleName) -> Question {
        let (anchor, of) = (&self.anchor.name, &self.of.name);
        let predict = Predict {
            anchor: anchor.clone(),
            what,
            of: of.clone(),
            column: column.map(str::to_owned),
            reference: self.reference.clone(),
            to: None,
            to_reference: None,
            negatives: None,
            condition: None,
            horizon: self.horizon,
            every: self.every,
            active_within: Some(Delay(self.horizon.0 * 4)),
            train_until: self.train_until.clone(),
            val_until: self.val_until.clone(),
            // A rank is no unit of a sum.
            scale: if scale == ScaleName::Log { scale } else { ScaleName::Linear },
        };
        let words = match (what, column) {
            (What::Exists, _) => format!("will a row of {anchor:?} have any of {of:?}"),
            (What::Sum, Some(column)) => format!("how much {column:?} of {of:?} in all"),
            (What::Mean, Some(column)) => format!("which {column:?} of {of:?} in the mean"),
            (_, Some(column)) => format!("what {column:?} will the next of {of:?} have"),
            (_, None) => format!("how many of {of:?}"),
        };
        let seeds = i128::from(self.anchors) * self.times;
        Question {
            name: format!("{anchor}-{of}-{}", column.unwrap_or(what.name())),
            predict,
            note: format!(
                "{words} within {}? At most {seeds} seeds: {} rows, asked about up to {} times",
                self.horizon, self.anchors, self.times
            ),
        }
    }
}
