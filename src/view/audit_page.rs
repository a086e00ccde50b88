//! `headwater audit STORE --html FILE`: an audit as an HTML page that loads nothing else.

use std::fmt::Write;
use std::path::Path;

use super::page::check_page;
use super::page::markup::escape;
use super::words::count;
use crate::audit::{Finding, Report, TaskReport};
use crate::durable::{Disk, write_file};
use crate::error::Result;

/// The first bytes of every page, by which it is recognised.
const MARK: &str = "<!doctype html>\n<!-- An audit, drawn by headwater. -->\n";

/// Rejects a path with anything else than such a page.
pub(crate) fn check_place(path: &Path) -> Result<()> {
    check_page(path, MARK)
}

/// Writes an audit to a page, completely or not at all.
pub(crate) fn write(path: &Path, report: &Report) -> Result<()> {
    let page = format!(
        include_str!("audit.html"),
        style = include_str!("page/style.css"),
        title = escape(&format!("Audit of {}", report.database)),
        root = escape(&report.root),
        verdict = escape(&report.verdict()),
        findings = findings(&report.findings, "leak"),
        allowed = findings(&report.allowed, "allowed"),
        tasks = report.tasks.iter().map(task).collect::<String>(),
    );
    write_file(&Disk, path, (MARK.to_owned() + &page).as_bytes())
}

fn findings(findings: &[Finding], class: &str) -> String {
    let mut list = String::new();
    for finding in findings {
        let of = finding.task.as_ref().map_or_else(String::new, |task| format!("task {task}: "));
        // Writing to a string cannot fail.
        let _ = write!(
            list,
            "<li class=\"{class}\"><h3>{}</h3><p>{}{}</p><p class=\"muted\">{}</p></li>",
            escape(&finding.subject),
            escape(&of),
            escape(&finding.evidence),
            escape(&finding.remedy)
        );
    }
    list
}

fn task(task: &TaskReport) -> String {
    let best = match (&task.best, task.too_few) {
        (_, true) => {
            "Too few seeds with a label, or too few different labels, to score columns.".to_owned()
        }
        (Some(best), false) => format!("Best column alone: {}.", escape(best)),
        (None, false) => "No column lies within two links of the seeds.".to_owned(),
    };
    let mut rows = String::new();
    for shares in task.shares.iter().filter(|shares| shares.visible + shares.hidden > 0) {
        let share = shares.percent_hidden();
        // Writing to a string cannot fail.
        let _ = write!(
            rows,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{share:.0} %</td><td><meter min=\"0\" \
             max=\"100\" value=\"{share:.1}\"></meter></td></tr>",
            escape(&shares.path),
            count(shares.visible),
            count(shares.hidden)
        );
    }
    format!(
        "<h2>Task {}</h2><p>Looked at {} of {} seeds; replayed {} with later data changed ({} from the \
         observation time on), {} with the label changed. {best}</p><table><tr><th>rows within two links of the seeds</th><th>visible</th>\
         <th>later</th><th>share later</th><th></th></tr>{rows}</table>",
        escape(&task.task),
        count(task.looked_at as u64),
        count(task.seeds.into()),
        count(task.replayed as u64),
        count(task.replayed_exactly as u64),
        count(task.relabelled as u64)
    )
}
