//! The audit of a store: whether anything of the future, or of the label, reaches a context.
//!
//! The sampler hides the rows and values whose times are later than the observation. An audit tests this
//! on the data at hand: seeds are *replayed* on a store in which all that is later than a time is
//! different, or in which their label is, and not a byte of their sequences may change. And it looks for what a
//! schema gets wrong, where a value has a time at which nobody knew it. Statistics of columns are not
//! replayed: they are of all times.
//!
//! | file | what it finds |
//! |---|---|
//! | `predictors` | columns of the rows within two links of a seed that predict its target alone |
//! | `parents` | columns that are totals of later children; tables whose time is missing, or that of an earlier parent |
//! | `rounded` | times rounded to days, of which seeds of other times see rows of their own day |
//! | `undated` | rows without a time that seeds see before another of their times |
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
mod undated;

#[cfg(feature = "cli")]
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::memory::memory_available;
use crate::plan::Permutation;
use crate::progress::Progress;
use crate::random::{Purpose, name_identity};
#[cfg(feature = "cli")]
use crate::store::Kind as StoreKind;
use crate::store::{Cell, SEES_EVERYTHING, Seed, Store, TargetMetadata, Task};
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

/// Refuses a store of events, which has no tasks to audit.
///
/// # Errors
/// `NotOurs` for one, `Io` when it cannot be read.
#[cfg(feature = "cli")]
pub fn check_has_tables(path: &Path) -> Result<()> {
    if StoreKind::is_events(path)? {
        return Err(Error::not_ours(format!(
            "{}: expected a store of tables, whose tasks are audited, found a store of events, which has \
             no tasks; audit a store of tables",
            path.display()
        )));
    }
    Ok(())
}

/// Audits a store.
///
/// # Determinism
/// The same store and settings give the same report.
///
/// # Cost
/// Milliseconds for each path of up to two links and a thousand seeds. Eight changed copies of the tables
/// and links in memory, one after the other, each with a sort of the links; for each cell task eight of
/// its table. Where less memory is free than a copy has bytes, nothing is replayed, and the report says so.
///
/// # Errors
/// `InvalidArgument` for an unknown task, or a subject that names nothing; `Corrupt` when damaged;
/// `LimitExceeded` when the system gives no memory or no threads.
pub fn audit(store: &Arc<Store>, settings: &Settings, progress: &dyn Progress) -> Result<Report> {
    audit_within(store, settings, progress, memory_available())
}

/// Audits a store with so many bytes of memory, if that is known.
fn audit_within(
    store: &Arc<Store>,
    settings: &Settings,
    progress: &dyn Progress,
    memory: Option<u64>,
) -> Result<Report> {
    let tasks = chosen_tasks(store, settings)?;
    check_allowed(store, &settings.allowed)?;
    let advance = |steps| progress.advance(steps);
    let limit = settings.seeds.max(1);
    progress.begin("tables", Some(store.relations().len() as u64));
    let mut findings = parents::findings(store, limit, &advance)?;
    let rounded = rounded::rounded_tables(store, limit)?;
    let (mut samples, mut reports) = (Vec::new(), Vec::new());
    for task in tasks {
        let metadata = task.metadata();
        let steps = predictors::step_count(store, metadata.anchor);
        progress.begin(&format!("task {}", metadata.name), Some(steps));
        let sample = sample(store, task, limit)?;
        let predictors = predictors::predictors(&sample, &advance)?;
        findings.extend(predictors.findings);
        findings.extend(rounded::findings(&sample, &rounded)?);
        findings.extend(undated::findings(&sample)?);
        let best = predictors.best.map(|(words, score)| format!("{words}, {}", score.words()));
        reports.push(TaskReport {
            task: metadata.name.clone(),
            seeds: metadata.seed_count,
            looked_at: sample.seeds.len(),
            too_few: !sample.target.is_enough(),
            replayed: 0,
            replayed_exactly: 0,
            relabelled: 0,
            best,
            shares: predictors.shares,
        });
        samples.push(sample);
    }
    progress.begin("replay", Some(replay::step_count(&samples)));
    let not_replayed = why_no_copy_fits(store, memory);
    if not_replayed.is_none() {
        let replayed = replay::replay(store, &samples, limit, &advance)?;
        for (report, shown) in reports.iter_mut().zip(replayed) {
            report.replayed = shown.seeds;
            report.replayed_exactly = shown.exact;
            report.relabelled = shown.labels;
            findings.extend(replay_finding(store, &report.task, &shown)?);
        }
    }
    let findings = once_for_each_table(findings);
    let is_allowed = |finding: &Finding| {
        // What a replay finds is no matter of judgement.
        finding.kind != Kind::Replay && settings.allowed.contains(&finding.subject)
    };
    let (allowed, findings) = findings.into_iter().partition(is_allowed);
    Ok(Report {
        database: store.metadata().database.clone(),
        root: store.root().to_string(),
        tasks: reports,
        findings,
        allowed,
        not_replayed,
    })
}

/// Keeps one of the findings that several tasks have about the times of a table, and names the other tasks
/// in it.
fn once_for_each_table(all: Vec<Finding>) -> Vec<Finding> {
    let mut findings: Vec<(Finding, Vec<String>)> = Vec::new();
    for finding in all {
        let is_of_table = matches!(finding.kind, Kind::RoundedTime | Kind::NoTime);
        let is_same = |(other, _): &&mut (Finding, Vec<String>)| {
            (other.kind, &other.subject) == (finding.kind, &finding.subject)
        };
        match (findings.iter_mut().find(is_same).filter(|_| is_of_table), &finding.task) {
            (Some((_, others)), Some(task)) => others.push(task.clone()),
            _ => findings.push((finding, Vec::new())),
        }
    }
    let told = |(mut finding, others): (Finding, Vec<String>)| {
        if !others.is_empty() {
            let tasks = if others.len() == 1 { "task" } else { "tasks" };
            let so_do = format!("; so do seeds of {tasks} {}", others.join(", "));
            finding.evidence.push_str(&so_do);
        }
        finding
    };
    findings.into_iter().map(told).collect()
}

/// Returns why a changed copy of the store would not fit into the free memory; none if it would.
///
/// The size alone decides: if making the copy fails after that, the audit fails.
fn why_no_copy_fits(store: &Store, memory: Option<u64>) -> Option<String> {
    let needed = store.bytes_of_changed();
    let memory = memory.filter(|&memory| memory < needed)?;
    Some(format!(
        "a changed copy of the store needs {:.1} GB of memory, and {:.1} GB are free",
        needed as f64 / 1e9,
        memory as f64 / 1e9
    ))
}

fn replay_finding(store: &Store, task: &str, shown: &replay::Replayed) -> Result<Option<Finding>> {
    let anchor = store.task(task)?.metadata().anchor;
    let finding = shown.different.first().map(|(seed_index, tensors)| Finding {
        kind: Kind::Replay,
        task: Some(task.to_owned()),
        subject: store.metadata().tables[anchor as usize].name.clone(),
        evidence: format!(
            "{} of {} sequences change with what comes later or with the label; that of seed \
             {seed_index} in {}",
            shown.different.len(),
            shown.seeds.max(shown.labels),
            tensors.join(", ")
        ),
        remedy: "this is a fault of headwater: please report it".to_owned(),
    });
    Ok(finding)
}

fn chosen_tasks<'a>(store: &'a Store, settings: &Settings) -> Result<Vec<&'a Task>> {
    let Some(wanted) = &settings.tasks else { return Ok(store.tasks().iter().collect()) };
    wanted.iter().try_for_each(|name| store.task(name).map(drop))?;
    let is_wanted = |task: &&Task| wanted.contains(&task.metadata().name);
    Ok(store.tasks().iter().filter(is_wanted).collect())
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

/// Returns seeds with a label, drawn at random and sorted by time.
fn sample<'a>(store: &'a Store, task: &Task, limit: u32) -> Result<Sample<'a>> {
    let metadata = task.metadata();
    let anchor = &store.tables()[metadata.anchor as usize];
    let mut seeds: Vec<(Seed, u32)> = Vec::new();
    if metadata.seed_count > 0 {
        let identity = [name_identity(&metadata.name), 0, 0];
        let order = Permutation::new(metadata.seed_count.into(), 0, Purpose::Audit, identity)?;
        for place in 0..u64::from(metadata.seed_count) {
            let seed_index = order.at(place) as u32;
            let mut seed = task.seed(anchor, seed_index)?;
            seed.obs_time = task.sees_until(seed.obs_time);
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
    let anchor = metadata.anchor;
    Ok(Sample { store, task, anchor, hidden, seeds, seed_indices, target })
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
                // As times in columns, by the distance.
                Cell::Timestamp(time) if seed.obs_time == SEES_EVERYTHING => time as f64,
                Cell::Timestamp(time) => time.saturating_sub(seed.obs_time) as f64,
                _ => 0.0,
            };
            Target::Number(seeds.iter().map(number).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    #[test]
    fn without_memory_for_a_copy_columns_are_judged_and_the_rest_is_told() {
        let store = Arc::new(Store::open("checkpoints/store-v4-small".as_ref()).unwrap());
        let settings = Settings::default();
        let report = audit_within(&store, &settings, &Silent, Some(1000)).unwrap();
        assert!(report.tasks.iter().all(|task| task.replayed + task.relabelled == 0));
        assert!(report.verdict().contains("not judged: "), "{}", report.verdict());
        assert!(report.verdict().ends_with("0.0 GB are free)"), "{}", report.verdict());
        let report = audit_within(&store, &settings, &Silent, None).unwrap();
        assert!(report.tasks.iter().any(|task| task.relabelled > 0));
        assert!(!report.verdict().contains("memory"), "{}", report.verdict());
    }
}
