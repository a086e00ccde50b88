//! The audit of a store: whether anything of the future, or of the label, reaches a context.
//!
//! The sampler hides the rows and values whose times are later than the observation. An audit tests this
//! on the data at hand: seeds are *replayed* on a store in which all that is later than a time is
//! different, and not a byte of the sequences observed by that time may change. And it looks for what a
//! schema gets wrong, where a value has a time at which nobody knew it. Statistics of columns are not
//! replayed: they are of all times.
//!
//! | file | what it finds |
//! |---|---|
//! | `predictors` | columns of the rows within two links of a seed that predict its target alone |
//! | `parents` | columns that are totals of later children; tables whose time is missing, or that of an earlier parent |
//! | `rounded` | times rounded to days, of which seeds of other times see rows of their own day |
//! | `replay` | a sequence that changes with what comes later |
//!
//! What it finds is no proof: a good column can predict a target nearly alone. So a subject may be
//! allowed by name. That it finds nothing is no proof either.

mod parents;
mod path;
mod predictors;
mod replay;
mod report;
mod rounded;
mod score;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::plan::Permutation;
use crate::progress::Progress;
use crate::random::{Purpose, name_identity};
use crate::store::{Cell, Seed, Store, TargetMetadata, Task};
use predictors::Sample;
pub use report::{Finding, Kind, Report, Shares, TaskReport};
use score::Target;

/// What an audit looks at.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tasks to audit (default: all).
    pub tasks: Option<Vec<String>>,
    /// The most seeds of a task that are looked at, and about the rows of a table.
    pub seeds: u32,
    /// Subjects of findings that are right as they are: `table.column`, or `table`.
    pub allowed: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { tasks: None, seeds: 5000, allowed: Vec::new() }
    }
}

/// Audits a store.
///
/// # Determinism
/// The same store and settings give the same report.
///
/// # Cost
/// Milliseconds for each path of up to two links and a thousand seeds. For each task up to 16 changed
/// copies of the tables and links in memory, one after the other, each with a sort of the links.
///
/// # Errors
/// `InvalidArgument` for an unknown task, or a subject that names nothing; `Corrupt` when damaged;
/// `LimitExceeded` when there is not enough memory for the replay.
pub fn audit(store: &Arc<Store>, settings: &Settings, progress: &dyn Progress) -> Result<Report> {
    let tasks = chosen_tasks(store, settings)?;
    check_allowed(store, &settings.allowed)?;
    let relations = store.relations().len() as u64;
    progress.begin("tables", Some(relations));
    let mut findings = parents::findings(store, settings.seeds.max(1), &|n| progress.advance(n))?;
    let rounded = rounded::rounded_tables(store, settings.seeds.max(1))?;
    let mut reports = Vec::new();
    for task in tasks {
        let anchor = task.metadata().anchor;
        let steps = predictors::step_count(store, anchor) + replay::MOMENTS as u64;
        progress.begin(&format!("task {}", task.metadata().name), Some(steps));
        let (report, found) =
            audit_task(store, task, settings, &rounded, &|n| progress.advance(n))?;
        reports.push(report);
        findings.extend(found);
    }
    let is_allowed = |finding: &Finding| settings.allowed.contains(&finding.subject);
    let (allowed, findings) = findings.into_iter().partition(is_allowed);
    Ok(Report {
        database: store.metadata().database.clone(),
        root: store.root().to_string(),
        tasks: reports,
        findings,
        allowed,
    })
}

fn chosen_tasks<'a>(store: &'a Store, settings: &Settings) -> Result<Vec<&'a Task>> {
    let Some(wanted) = &settings.tasks else { return Ok(store.tasks().iter().collect()) };
    wanted.iter().map(|name| store.task(name)).collect()
}

/// Rejects a name that no table and no column has: its finding would not be allowed.
fn check_allowed(store: &Store, allowed: &[String]) -> Result<()> {
    for name in allowed {
        let is_known = store.metadata().tables.iter().any(|table| {
            let rest = name.strip_prefix(table.name.as_str());
            let column = rest.and_then(|rest| rest.strip_prefix('.'));
            rest == Some("") || table.columns.iter().any(|known| Some(&*known.name) == column)
        });
        if !is_known {
            return Err(Error::invalid(format!(
                "expected a table or a table.column to allow, found {name:?}; copy the name from a \
                 finding"
            )));
        }
    }
    Ok(())
}

fn audit_task(
    store: &Arc<Store>,
    task: &Task,
    settings: &Settings,
    rounded: &[u32],
    advance: &dyn Fn(u64) -> Result<()>,
) -> Result<(TaskReport, Vec<Finding>)> {
    let metadata = task.metadata();
    let (seed_indices, sample) = sample(store, task, settings.seeds)?;
    let too_few = !sample.target.is_enough();
    let predictors = predictors::predictors(&sample, advance)?;
    let mut findings = predictors.findings;
    findings.extend(rounded::findings(&sample, rounded)?);
    let replayed = replay::replay(store, &sample, &seed_indices, advance)?;
    if let Some((seed_index, tensors)) = replayed.different.first() {
        findings.push(Finding {
            kind: Kind::Replay,
            task: Some(metadata.name.clone()),
            subject: store.metadata().tables[metadata.anchor as usize].name.clone(),
            evidence: format!(
                "{} of {} sequences change with what comes later; that of seed {seed_index} in {}",
                replayed.different.len(),
                replayed.seeds,
                tensors.join(", ")
            ),
            remedy: "this is a fault of headwater: please report it".to_owned(),
        });
    }
    let best = predictors.best.map(|(words, score)| format!("{words}, {}", score.words()));
    let report = TaskReport {
        task: metadata.name.clone(),
        seeds: metadata.seed_count,
        looked_at: sample.seeds.len(),
        too_few,
        replayed: replayed.seeds,
        moments: replayed.moments,
        best,
        shares: predictors.shares,
    };
    Ok((report, findings))
}

/// Returns seeds with a label, drawn at random and sorted by time.
fn sample<'a>(store: &'a Store, task: &Task, limit: u32) -> Result<(Vec<u32>, Sample<'a>)> {
    let metadata = task.metadata();
    let anchor = &store.tables()[metadata.anchor as usize];
    let mut seeds: Vec<(Seed, u32)> = Vec::new();
    if metadata.seed_count > 0 {
        let identity = [name_identity(&metadata.name), 0, 0];
        let order = Permutation::new(metadata.seed_count.into(), 0, Purpose::Audit, identity)?;
        for place in 0..u64::from(metadata.seed_count) {
            let seed_index = order.at(place) as u32;
            let seed = task.seed(anchor, seed_index)?;
            if seed.target != Cell::Null {
                seeds.push((seed, seed_index));
            }
            if seeds.len() == limit as usize {
                break;
            }
        }
    }
    seeds.sort_by_key(|&(seed, seed_index)| (seed.obs_time, seed_index));
    let (seeds, seed_indices): (Vec<Seed>, Vec<u32>) = seeds.into_iter().unzip();
    let target = target(&seeds);
    let hidden = match &metadata.target {
        TargetMetadata::Cell { column, hide } => [&[*column], &hide[..]].concat(),
        TargetMetadata::Derived { .. } => Vec::new(),
    };
    let task = metadata.name.clone();
    Ok((seed_indices, Sample { store, task, anchor: metadata.anchor, hidden, seeds, target }))
}

fn target(seeds: &[Seed]) -> Target {
    match seeds.first().map(|seed| seed.target) {
        Some(Cell::Boolean(_)) => {
            Target::Truth(seeds.iter().map(|seed| seed.target == Cell::Boolean(true)).collect())
        }
        Some(Cell::Categorical(_)) => {
            let class = |seed: &Seed| match seed.target {
                Cell::Categorical(class) => class,
                _ => 0,
            };
            Target::Class(seeds.iter().map(class).collect())
        }
        _ => {
            let number = |seed: &Seed| match seed.target {
                Cell::Numerical(score) => f64::from(score),
                Cell::Timestamp(time) => time as f64,
                _ => 0.0,
            };
            Target::Number(seeds.iter().map(number).collect())
        }
    }
}
