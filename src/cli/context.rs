//! `headwater inspect DB --task T --item I`: one context as a tree, as JSON or as a page.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::inspect::{cell_text, row_name, time_text};
use super::output::{Output, count, plural};
use super::page;
use crate::error::Result;
use crate::plan::Assignment;
use crate::sampler::{Context, Kin, Link, Sampler, Settings, Shape, Speed, Texts, Visit};
use crate::store::{ALWAYS_VISIBLE, ColumnMetadata, SEES_EVERYTHING, Store};

/// A row of a context as a person would see it.
#[derive(Serialize)]
pub(super) struct RowView {
    pub place: usize,
    pub hop: u32,
    /// The place of the row that brought it in, and by which reference of which of the two.
    pub from: usize,
    pub relation: Option<String>,
    pub is_parent: bool,
    pub table: String,
    pub row: String,
    pub time: Option<String>,
    pub before: Option<String>,
    pub kin: Vec<KinView>,
}

/// The rows that a row is linked with through one relation, in the context or not.
#[derive(Serialize)]
pub(super) struct KinView {
    /// The relation, with the table whose rows refer.
    pub relation: String,
    #[serde(skip)]
    pub relation_number: u32,
    pub is_parent: bool,
    pub in_context: u64,
    pub visible: u64,
    pub hidden: u64,
}

#[derive(Serialize)]
pub(super) struct ContextView {
    pub task: String,
    pub item: u32,
    pub obs_time: Option<String>,
    pub split: &'static str,
    pub target: String,
    pub value: Option<String>,
    pub cell_count: usize,
    /// What the walk came upon; the rows' kin are also those that it did not look for.
    pub hidden_count: u64,
    pub rows: Vec<RowView>,
}

/// Shows the context of one seed, with the sampler's default settings: on a page where `html` says
/// so, else on the standard output.
pub(super) fn show(
    store: Store,
    task: &str,
    item: u32,
    json: bool,
    html: Option<&Path>,
) -> Result<()> {
    let settings = Settings { tasks: Some(vec![task.to_owned()]), ..Settings::default() };
    let store = Arc::new(store);
    let mut output = Output::new();
    if let Some(path) = html {
        let size = draw(vec![store], settings, task, item, path)?;
        return output.line(&format!("{}: {size}; open it in a browser", path.display()));
    }
    let context = sampler_of_one(vec![Arc::clone(&store)], settings)?.context(task, item)?;
    let view = ContextView::of(&store, &context, item)?;
    if json { output.json(&view) } else { view.print(&mut output) }
}

/// Draws the context of one seed, as a sampler with these settings has it, on a page; returns its
/// size in words.
pub(crate) fn draw(
    stores: Vec<Arc<Store>>,
    settings: Settings,
    task: &str,
    item: u32,
    html: &Path,
) -> Result<String> {
    page::check_place(html)?;
    let sampler = sampler_of_one(stores, settings)?;
    let context = sampler.context(task, item)?;
    let store = sampler.stores().nth(context.database).expect("a task has a store");
    let view = ContextView::of(store, &context, item)?;
    page::write(html, store, &sampler, &context, &view)?;
    Ok(view.size())
}

/// A sampler of one sequence, with the tensors that a page shows, and without vectors: they are not
/// shown, and a store may have none.
fn sampler_of_one(stores: Vec<Arc<Store>>, settings: Settings) -> Result<Sampler> {
    let shape = Shape { batch_size: 1, compact: false, texts: Texts::Global, ..settings.shape };
    let speed = Speed { threads: Some(1), prefetch: 0 };
    Sampler::new(stores, Settings { shape, ..settings }, Assignment::new(0, 1)?, speed)
}

impl ContextView {
    fn of(store: &Store, context: &Context, item: u32) -> Result<Self> {
        let column = target_column(store, context);
        let rows = context.rows.iter().enumerate();
        let sees_everything = context.obs_time == SEES_EVERYTHING;
        Ok(Self {
            task: context.task.clone(),
            item,
            obs_time: (!sees_everything).then(|| time_text(context.obs_time)),
            split: context.split.name(),
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

    /// When the seed is observed, in words.
    pub(super) fn when(&self) -> String {
        self.obs_time.as_ref().map_or_else(
            || "sees everything, whenever it is".to_owned(),
            |time| format!("observed at {time}"),
        )
    }

    fn size(&self) -> String {
        format!(
            "{} and {} in the context; {} came to exist later",
            plural(self.rows.len() as u64, "row"),
            plural(self.cell_count as u64, "cell"),
            plural(self.hidden_count, "row"),
        )
    }

    fn print(&self, output: &mut Output) -> Result<()> {
        output.line(&format!("task {}, item {}: {}", self.task, self.item, self.when()))?;
        let value = self.value.as_deref().unwrap_or("NULL");
        output.line(&format!("target {} = {value}", self.target))?;
        output.line(&self.size())?;
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
        let relation = || store.relations()[row.relation as usize].metadata().name.clone();
        let since = context.obs_time.checked_sub(time);
        let before = since.filter(|_| has_time && context.obs_time != SEES_EVERYTHING);
        Ok(Self {
            place,
            hop: row.hop,
            from: row.from as usize,
            // A store need not have any.
            relation: (place > 0).then(relation),
            is_parent: row.is_parent,
            table: table.metadata().name.clone(),
            row: row_name(table, row.row)?,
            time: has_time.then(|| time_text(time)),
            before: before.map(span),
            kin: (context.kin.iter())
                .filter(|kin| kin.place as usize == place)
                .map(|kin| KinView::of(store, context, kin))
                .collect(),
        })
    }

    /// What it is to the row that brought it in.
    pub(super) fn kind(&self) -> &'static str {
        match (self.place, self.is_parent) {
            (0, _) => "seed",
            (_, true) => "parent",
            (_, false) => "child",
        }
    }

    /// What the row is called.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.table, self.row)
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
        let hidden: Vec<_> = (self.kin.iter().filter(|kin| kin.hidden > 0))
            .map(|kin| format!("{} {}", count(kin.hidden), kin.relation))
            .collect();
        let later = match hidden.is_empty() {
            true => String::new(),
            false => format!("  (later: {})", hidden.join(", ")),
        };
        format!("{way}{}{when}  [hop {}]{later}", self.name(), self.hop)
    }
}

impl KinView {
    fn of(store: &Store, context: &Context, kin: &Kin) -> Self {
        let own = |link: &&Link| {
            let place = if kin.is_parent { link.child } else { link.parent };
            link.relation == kin.relation && place == kin.place
        };
        Self {
            relation: store.relation_name(kin.relation as usize),
            relation_number: kin.relation,
            is_parent: kin.is_parent,
            in_context: context.links.iter().filter(own).count() as u64,
            visible: kin.visible,
            hidden: kin.hidden,
        }
    }
}

/// The column of what is to be predicted.
pub(super) fn target_column<'a>(store: &'a Store, context: &Context) -> Option<&'a ColumnMetadata> {
    let name = context.task.split_once('/').map_or("", |(_, name)| name);
    let task = store.tasks().iter().find(|task| task.metadata().name == name)?;
    Some(store.metadata().target_column(task.metadata()))
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
