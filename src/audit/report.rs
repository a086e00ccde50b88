//! What an audit reports.

use serde::Serialize;

/// What an audit found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The database's name.
    pub database: String,
    /// The root of the store.
    pub root: String,
    /// The tasks that were looked at.
    pub tasks: Vec<TaskReport>,
    /// The possible leaks.
    pub findings: Vec<Finding>,
    /// The possible leaks that are allowed.
    pub allowed: Vec<Finding>,
    /// Why seeds were not replayed, if they were not.
    pub not_replayed: Option<String>,
}

impl Report {
    /// Returns what was found in one sentence, and what could not be judged.
    #[must_use]
    pub fn verdict(&self) -> String {
        let verdict = match self.findings.len() {
            0 => "no leak found".to_owned(),
            1 => "1 possible leak found".to_owned(),
            count => format!("{count} possible leaks found"),
        };
        let few = self.tasks.iter().filter(|task| task.too_few).map(|task| task.task.as_str());
        let few: Vec<_> = few.collect();
        let mut not_judged = Vec::new();
        if !few.is_empty() {
            not_judged.push(format!("columns for {} (too few labels)", few.join(", ")));
        }
        not_judged.extend(self.not_replayed.iter().map(|why| format!("the replay ({why})")));
        match not_judged.is_empty() {
            true => verdict,
            false => format!("{verdict}; not judged: {}", not_judged.join("; ")),
        }
    }
}

/// What an audit saw of one task.
#[derive(Clone, Debug, Serialize)]
pub struct TaskReport {
    /// Its name.
    pub task: String,
    /// The number of its seeds.
    pub seeds: u32,
    /// The number of seeds with a label that were looked at.
    pub looked_at: usize,
    /// Whether these were too few, or too much alike, to conclude anything from columns.
    pub too_few: bool,
    /// The number of seeds that were replayed with later data changed.
    pub replayed: usize,
    /// The number of them for which the data were changed from the observation time on; for the others
    /// it was from a later time on.
    pub replayed_exactly: usize,
    /// The number of seeds that were replayed with their label changed.
    pub relabelled: usize,
    /// The column that predicts the target best alone, and how well.
    pub best: Option<String>,
    /// How many rows near the seeds are shown and hidden.
    pub shares: Vec<Shares>,
}

/// The rows that seeds reach by one path.
#[derive(Clone, Debug, Serialize)]
pub struct Shares {
    /// The path in words.
    pub path: String,
    /// The number of its links.
    pub links: usize,
    /// The number of rows that exist at the seeds' observation times.
    pub visible: u64,
    /// The number of rows that came to exist later.
    pub hidden: u64,
}

impl Shares {
    /// Returns the share of the rows that are hidden, in percent; 0 if there are none.
    #[must_use]
    pub fn percent_hidden(&self) -> f64 {
        self.hidden as f64 / (self.visible + self.hidden).max(1) as f64 * 100.0
    }
}

/// The kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A column predicts the target alone.
    PredictsTarget,
    /// A column is a total of later children.
    TotalsChildren,
    /// Rows without a time came to exist one after the other.
    OrderOfTime,
    /// Rows have the time of one parent, but another is later.
    BeforeParent,
    /// Rows without a time are visible before another of their times.
    NoTime,
    /// Times are rounded to days.
    RoundedTime,
    /// A sequence changes with what comes later.
    Replay,
}

/// A possible leak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// The task, if it is of one.
    pub task: Option<String>,
    /// The column or the table.
    pub subject: String,
    /// What was seen.
    pub evidence: String,
    /// What to do.
    pub remedy: String,
}
