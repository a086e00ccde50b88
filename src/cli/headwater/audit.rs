//! `headwater audit`: looks for leaks of the future and of the label.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::named::{check_task, open_store};
use super::prepare::Hooks;
use crate::audit::{Finding, Kind, Report, Settings, Shares, TaskReport, audit, check_has_tables};
use crate::cli::output::Output;
use crate::cli::progress::Bars;
use crate::error::Result;
use crate::view::audit_page;
use crate::view::words::{count, plural};

/// The exit status of an audit that found something.
const FOUND: u8 = 4;
/// The most findings of a task that are printed: the best columns.
const SHOWN_MAX: usize = 5;

/// Looks for leaks of the future and of the label.
///
/// Finds columns that predict the target alone, columns that are totals of later children, tables whose
/// time is missing or that of an earlier parent, rows without a time that are seen before another of their
/// times, and times rounded to days. Also replays seeds on copies of the store in memory, in which everything
/// later than a time is different, or the label: no byte of a context observed by then may change.
///
/// Exit status: 0 nothing found, 4 something found; else as for other commands.
#[derive(Args)]
pub(super) struct AuditArgs {
    /// The store's folder.
    store: PathBuf,
    /// Audit this task; may be given several times (default: all tasks).
    #[arg(long = "task", value_name = "NAME")]
    tasks: Vec<String>,
    /// Accept what is found of this table.column or table; may be given several times.
    #[arg(long = "allow", value_name = "NAME")]
    allowed: Vec<String>,
    /// Look at this many seeds of a task at most, and at about as many rows of a table.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(100..))]
    seeds: u32,
    /// Write an HTML page, too. An existing page is replaced.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Runs the command; returns the exit status.
pub(super) fn run(args: &AuditArgs, hooks: &Hooks<'_>) -> Result<u8> {
    if let Some(path) = &args.html {
        audit_page::check_place(path)?;
    }
    check_has_tables(&args.store)?;
    let store = Arc::new(open_store(&args.store)?);
    args.tasks.iter().try_for_each(|task| check_task(&store, task))?;
    let settings = Settings {
        tasks: (!args.tasks.is_empty()).then(|| args.tasks.clone()),
        seeds: args.seeds,
        allowed: args.allowed.clone(),
    };
    let bars = Bars::new(hooks.interrupted);
    let report = audit(&store, &settings, &bars)?;
    drop(bars);
    if let Some(path) = &args.html {
        audit_page::write(path, &report)?;
    }
    let mut output = Output::new();
    match args.json {
        true => output.json(&report)?,
        false => print(&report, &mut output)?,
    }
    Ok(if report.findings.is_empty() { 0 } else { FOUND })
}

fn print(report: &Report, output: &mut Output) -> Result<()> {
    for task in &report.tasks {
        print_task(task, output)?;
    }
    for finding in &report.allowed {
        output.line(&format!("allowed: {}", sentence(finding)))?;
    }
    let mut number = 0;
    for of_task in report.findings.chunk_by(|a, b| a.task == b.task) {
        for finding in of_task.iter().take(SHOWN_MAX) {
            number += 1;
            output.line(&format!("{number}. {}\n   {}", sentence(finding), finding.remedy))?;
        }
        if let Some(more) = of_task.len().checked_sub(SHOWN_MAX).filter(|&more| more > 0) {
            let of =
                of_task[0].task.as_ref().map_or("of tables".to_owned(), |t| format!("of task {t}"));
            output.line(&format!("   and {more} more {of}; --json and --html have all"))?;
        }
    }
    let allow = allow(&report.findings);
    match allow.is_empty() {
        true => output.line(&report.verdict()),
        false => output.line(&format!(
            "\n{}\naccept what is known at that time; all findings that can be accepted: {}",
            report.verdict(),
            allow.join(" ")
        )),
    }
}

/// Returns the arguments that accept the findings, each once; what a replay finds cannot be accepted.
fn allow(findings: &[Finding]) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.kind != Kind::Replay) {
        let is_bare = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let argument = match finding.subject.chars().all(is_bare) {
            true => format!("--allow {}", finding.subject),
            // For the shell.
            false => format!("--allow '{}'", finding.subject.replace('\'', "'\\''")),
        };
        if !arguments.contains(&argument) {
            arguments.push(argument);
        }
    }
    arguments
}

/// Returns what was seen, with its task.
fn sentence(finding: &Finding) -> String {
    match &finding.task {
        Some(task) => format!("task {task}: {}", finding.evidence),
        None => finding.evidence.clone(),
    }
}

fn print_task(task: &TaskReport, output: &mut Output) -> Result<()> {
    output.line(&format!(
        "task {}: looked at {} of {}",
        task.task,
        count(task.looked_at as u64),
        plural(task.seeds.into(), "seed"),
    ))?;
    output.line(&format!(
        "  replayed {} with later data changed ({} from the observation time on), {} with the label changed",
        plural(task.replayed as u64, "seed"),
        count(task.replayed_exactly as u64),
        count(task.relabelled as u64),
    ))?;
    let tells = match (&task.best, task.too_few) {
        (_, true) => "too few seeds with a label, or too few different labels, to score columns",
        (Some(best), false) => &format!("best column alone: {best}"),
        (None, false) => "no column lies within two links of the seeds",
    };
    output.line(&format!("  {tells}"))?;
    output.columns(task.shares.iter().filter(|shares| shares.links == 1).map(
        |shares: &Shares| {
            [
                format!("  {}", shares.path),
                format!("{} visible", count(shares.visible)),
                format!("{} later ({:.0} %)", count(shares.hidden), shares.percent_hidden()),
            ]
        },
    ))?;
    output.line("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_subjects_that_can_be_accepted_are_printed_once() {
        let finding = |kind, subject: &str| Finding {
            kind,
            task: None,
            subject: subject.to_owned(),
            evidence: String::new(),
            remedy: String::new(),
        };
        let findings = [
            finding(Kind::PredictsTarget, "orders.paid"),
            finding(Kind::Replay, "customers"),
            finding(Kind::RoundedTime, "order items"),
            finding(Kind::TotalsChildren, "orders.paid"),
        ];
        assert_eq!(allow(&findings), ["--allow orders.paid", "--allow 'order items'"]);
        assert!(allow(&findings[1..2]).is_empty());
    }
}
