//! `headwater inspect DB --task T --item I`: one context as a tree.

use std::sync::Arc;

use serde::Serialize;

use super::inspect::{cell_text, row_name, time_text};
use super::output::{Output, plural};
use crate::error::Result;
use crate::plan::Assignment;
use crate::sampler::{Context, Sampler, Settings, Speed, Visit};
use crate::store::{ALWAYS_VISIBLE, SEES_EVERYTHING, Store};

/// A row of a context as a person would see it.
#[derive(Serialize)]
struct RowView {
    place: usize,
    hop: u32,
    /// The place of the row that brought it in, and by which reference of which of the two.
    from: usize,
    relation: Option<String>,
    is_parent: bool,
    table: String,
    row: String,
    time: Option<String>,
    before: Option<String>,
}

#[derive(Serialize)]
struct ContextView {
    task: String,
    item: u32,
    obs_time: Option<String>,
    target: String,
    value: Option<String>,
    cell_count: usize,
    hidden_count: u64,
    rows: Vec<RowView>,
}

/// Shows the context of one seed, with the sampler's default settings.
pub(super) fn show(store: Store, task: &str, item: u32, json: bool) -> Result<()> {
    let store = Arc::new(store);
    let settings = Settings { tasks: Some(vec![task.to_owned()]), ..Settings::default() };
    let speed = Speed { threads: Some(1), prefetch: 0 };
    let sampler = Sampler::new(vec![Arc::clone(&store)], settings, Assignment::new(0, 1)?, speed)?;
    let view = ContextView::of(&store, &sampler.context(task, item)?, item)?;
    let mut output = Output::new();
    if json { output.json(&view) } else { view.print(&mut output) }
}

impl ContextView {
    fn of(store: &Store, context: &Context, item: u32) -> Result<Self> {
        let name = context.task.split_once('/').map_or("", |(_, name)| name);
        let task = store.tasks().iter().find(|task| task.metadata().name == name);
        let column = task.map(|task| store.metadata().target_column(task.metadata()));
        let rows = context.rows.iter().enumerate();
        let sees_everything = context.obs_time == SEES_EVERYTHING;
        Ok(Self {
            task: context.task.clone(),
            item,
            obs_time: (!sees_everything).then(|| time_text(context.obs_time)),
            target: column.map_or_else(String::new, |column| column.name.clone()),
            value: match column {
                Some(column) => cell_text(store, column, context.target)?,
                None => None,
            },
            cell_count: context.cell_count,
            hidden_count: context.hidden_count,
            rows: rows
                .map(|(place, row)| RowView::of(store, context, place, row))
                .collect::<Result<_>>()?,
        })
    }

    fn print(&self, output: &mut Output) -> Result<()> {
        let when = self.obs_time.as_ref().map_or_else(
            || "sees everything, whenever it is".to_owned(),
            |time| format!("observed at {time}"),
        );
        output.line(&format!("task {}, item {}: {when}", self.task, self.item))?;
        let value = self.value.as_deref().unwrap_or("NULL");
        output.line(&format!("target {} = {value}", self.target))?;
        output.line(&format!(
            "{} and {} in the context; {} came to exist later",
            plural(self.rows.len() as u64, "row"),
            plural(self.cell_count as u64, "cell"),
            plural(self.hidden_count, "row"),
        ))?;
        output.line("")?;
        self.print_below(0, "", output)
    }

    /// Prints the row at `place` and what it brought in.
    fn print_below(&self, place: usize, indent: &str, output: &mut Output) -> Result<()> {
        let brought_in: Vec<&RowView> =
            self.rows.iter().filter(|row| row.place > 0 && row.from == place).collect();
        if place == 0 {
            output.line(&self.rows[0].line())?;
        }
        for (number, row) in brought_in.iter().enumerate() {
            let is_last = number + 1 == brought_in.len();
            let (branch, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            output.line(&format!("{indent}{branch}{}", row.line()))?;
            self.print_below(row.place, &format!("{indent}{below}"), output)?;
        }
        Ok(())
    }
}

impl RowView {
    fn of(store: &Store, context: &Context, place: usize, row: &Visit) -> Result<Self> {
        let table = &store.tables()[row.table as usize];
        let time = table.row(row.row)?.time();
        let has_time = time != ALWAYS_VISIBLE;
        let relation = &store.relations()[row.relation as usize].metadata().name;
        let since = context.obs_time.checked_sub(time);
        let before = since.filter(|_| has_time && context.obs_time != SEES_EVERYTHING);
        Ok(Self {
            place,
            hop: row.hop,
            from: row.from as usize,
            relation: (place > 0).then(|| relation.clone()),
            is_parent: row.is_parent,
            table: table.metadata().name.clone(),
            row: row_name(table, row.row)?,
            time: has_time.then(|| time_text(time)),
            before: before.map(span),
        })
    }

    fn line(&self) -> String {
        let way = match (&self.relation, self.is_parent) {
            (None, _) => String::new(),
            (Some(relation), true) => format!("{relation} → "),
            (Some(relation), false) => format!("← {relation} of "),
        };
        let when = match (&self.time, &self.before) {
            (None, _) => String::new(),
            (Some(time), None) => format!("  {time}"),
            (Some(time), Some(before)) => format!("  {time}, {before}"),
        };
        format!("{way}{} {}{when}  [hop {}]", self.table, self.row, self.hop)
    }
}

/// How long before the observation something was, in its two largest units.
fn span(micros: i64) -> String {
    const UNITS: [(i64, &str); 4] = [
        (86_400_000_000, "day"),
        (3_600_000_000, "hour"),
        (60_000_000, "minute"),
        (1_000_000, "second"),
    ];
    let mut rest = micros.abs();
    let mut parts = Vec::new();
    for (unit, name) in UNITS {
        let whole = rest / unit;
        rest %= unit;
        if whole > 0 && parts.len() < 2 {
            parts.push(plural(whole as u64, name));
        }
    }
    match (parts.is_empty(), micros < 0) {
        (true, _) => "at that time".to_owned(),
        (false, false) => format!("{} before", parts.join(" ")),
        (false, true) => format!("{} after", parts.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn spans_have_two_units() {
        assert_eq!(span(0), "at that time");
        assert_eq!(span(1_000_000), "1 second before");
        assert_eq!(span(90_061_000_000), "1 day 1 hour before");
        assert_eq!(span(-120_000_000), "2 minutes after");
    }
}
