//! One context as a tree of rows: for text, JSON and the page.

use std::fmt::Write;

use serde::Serialize;

use super::cell::{CellView, cell_text, row_name, span, time_text};
use super::relation::{relation_name, short_relation_name};
use super::words::{count, plural, shortened};
use crate::error::Result;
use crate::sampler::{Context, Link, Neighbours, Unseen, Visit, WhyUnseen};
use crate::store::{ALWAYS_VISIBLE, ColumnMetadata, SEES_EVERYTHING, Store};

/// The most characters of a line of cells, and of a text in it.
const LINE_CHARACTERS: usize = 100;
const TEXT_CHARACTERS: usize = 60;

/// A row of a context, with readable values.
#[derive(Serialize)]
pub(crate) struct ContextRow {
    pub place: usize,
    pub hop: u32,
    /// The place of the row that brought it in; then the relation, and whether this row is the parent.
    pub from: usize,
    pub relation: Option<String>,
    pub is_parent: bool,
    pub table: String,
    pub row: String,
    pub time: Option<String>,
    /// Whether its table has times, and this row has none.
    #[serde(skip)]
    pub lacks_time: bool,
    pub before: Option<String>,
    /// Its cells, as the model sees them.
    pub cells: Vec<SeenCell>,
    /// The aggregates of its children, if it has them.
    pub aggregates: Vec<CellView>,
    /// Whether each of its cells is masked beside the target; aggregates never are.
    #[serde(skip)]
    pub masked: Vec<bool>,
    pub neighbours: Vec<NeighbourCounts>,
}

/// A cell as the model sees it.
#[derive(Serialize)]
pub(crate) struct SeenCell {
    pub column: String,
    pub semantic: String,
    /// The value; none if the model sees NULL, or a mask in place of the target.
    pub value: Option<String>,
    /// Why there is no value, if there is none.
    pub why_null: Option<&'static str>,
}

/// Why a cell of a context has no value.
const NULL_IN_DATA: &str = "NULL in the data";
pub(in crate::view) const KNOWN_LATER: &str = "known later";
pub(in crate::view) const HIDDEN_BY_TASK: &str = "hidden by the task";
const TARGET: &str = "the target";
const CUT: &str = "after the end of the sequence";

/// Stands in place of the time of a row that has none, in a table that has times.
pub(in crate::view) const NO_TIME: &str = "no time: always visible";

/// Follows a value in whose place the model sees a mask.
const MASKED: &str = " (masked)";

/// The number of neighbours of a row through one relation, in the context or not.
#[derive(Serialize)]
pub(crate) struct NeighbourCounts {
    /// The relation, with its child table.
    pub relation: String,
    #[serde(skip)]
    pub relation_number: u32,
    pub is_parent: bool,
    pub in_context: u64,
    pub visible: u64,
    pub hidden: u64,
}

#[derive(Serialize)]
pub(crate) struct ContextView {
    pub task: String,
    pub seed_index: u32,
    pub obs_time: Option<String>,
    pub split: &'static str,
    /// The column of the target; a pool has none.
    pub target: Option<String>,
    pub value: Option<String>,
    pub cell_count: usize,
    /// How many of them come after the end of the sequence.
    pub cut_count: usize,
    /// How many are masked beside the target in the first epoch, if the sampler masks cells.
    #[serde(skip)]
    pub masked_count: Option<u64>,
    /// The hidden rows that the walk reached; the neighbours of the rows also count those that it did
    /// not reach.
    pub hidden_count: u64,
    pub rows: Vec<ContextRow>,
}

impl ContextView {
    /// Shows a context, of which a sequence has the first `sequence_length` cells. `is_masked` is 1 for each
    /// of these that is masked, if the sampler masks cells.
    pub(super) fn of(
        store: &Store,
        context: &Context,
        seed_index: u32,
        sequence_length: u32,
        is_masked: Option<&[u8]>,
    ) -> Result<Self> {
        let column = target_column(store, context);
        let rows = context.rows.iter().enumerate();
        let mut room = sequence_length as usize;
        let mut masks = is_masked.unwrap_or_default().iter().map(|&masked| masked == 1);
        let sees_everything = context.obs_time == SEES_EVERYTHING;
        Ok(Self {
            task: context.task.clone(),
            seed_index,
            obs_time: (!sees_everything).then(|| time_text(context.obs_time)),
            split: context.split.name(),
            target: column.map(|column| column.name.clone()),
            value: match column {
                Some(column) => cell_text(store, column, context.target)?,
                None => None,
            },
            cell_count: context.cell_count,
            cut_count: context.cell_count.saturating_sub(sequence_length as usize),
            masked_count: is_masked.map(|all| all.iter().map(|&masked| u64::from(masked)).sum()),
            hidden_count: context.hidden_count,
            rows: rows
                .map(|(place, row)| {
                    ContextRow::of(store, context, (place, row), &mut room, &mut masks)
                })
                .collect::<Result<_>>()?,
        })
    }

    /// Returns the observation time as text.
    pub(super) fn when(&self) -> String {
        self.obs_time.as_ref().map_or_else(
            || "not limited by an observation time".to_owned(),
            |time| format!("observed at {time}"),
        )
    }

    pub(crate) fn size(&self) -> String {
        let rows = plural(self.rows.len() as u64, "row");
        let content = match self.cut_count as u64 {
            0 => {
                format!("{rows} and {} in the context", plural(self.cell_count as u64, "cell"))
            }
            cut => {
                let kept = self.cell_count as u64 - cut;
                let fill = if kept == 1 { "fills" } else { "fill" };
                let are = if cut == 1 { "is" } else { "are" };
                let kept = plural(kept, "cell");
                format!("{rows}; {kept} {fill} the sequence, {} more {are} cut", count(cut))
            }
        };
        let masked = match self.masked_count {
            None => String::new(),
            Some(number) => {
                format!("; {} masked beside the target, in the first epoch", plural(number, "cell"))
            }
        };
        format!("{content}{masked}; {} came to exist later", plural(self.hidden_count, "row"))
    }

    /// Returns the context as a tree of lines.
    pub(crate) fn text(&self) -> String {
        let target = match &self.target {
            Some(column) => format!("{column} = {}", self.value.as_deref().unwrap_or("NULL")),
            None => "none, a row of a pool".to_owned(),
        };
        let mut text = format!(
            "task {}, seed_index {}: {}\ntarget {target}\n{}\n\n{}\n",
            self.task,
            self.seed_index,
            self.when(),
            self.size(),
            self.rows[0].line(),
        );
        self.write_cells(0, "", &mut text);
        self.write_below(0, "", &mut text);
        text
    }

    /// Writes the cells and aggregates of the row at `place`, beside the line to the rows that it brought in.
    fn write_cells(&self, place: usize, indent: &str, text: &mut String) {
        let is_leaf = !self.rows.iter().any(|row| row.place > 0 && row.from == place);
        let branch = if is_leaf { ' ' } else { '│' };
        let mut line = String::new();
        let row = &self.rows[place];
        let mark = |is_masked: bool| if is_masked { MASKED } else { "" };
        let cells = row.cells.iter().zip(&row.masked);
        for cell in cells.map(|(cell, &is_masked)| cell.text() + mark(is_masked)) {
            if !line.is_empty() && line.chars().count() + cell.chars().count() > LINE_CHARACTERS {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{indent}{branch}    {line}");
                line.clear();
            }
            line.push_str(if line.is_empty() { "" } else { ", " });
            line.push_str(&cell);
        }
        if !line.is_empty() {
            let _ = writeln!(text, "{indent}{branch}    {line}");
        }
        for CellView { column, value, .. } in &row.aggregates {
            let value = value.as_deref().unwrap_or("NULL");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{indent}{branch}    {column} = {value}");
        }
    }

    /// Writes the rows that the row at `place` brought in.
    fn write_below(&self, place: usize, indent: &str, text: &mut String) {
        let brought_in: Vec<&ContextRow> =
            self.rows.iter().filter(|row| row.place > 0 && row.from == place).collect();
        for (number, row) in brought_in.iter().enumerate() {
            let is_last = number + 1 == brought_in.len();
            let (branch, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{indent}{branch}{}", row.line());
            let indent = format!("{indent}{below}");
            self.write_cells(row.place, &indent, text);
            self.write_below(row.place, &indent, text);
        }
    }
}

impl ContextRow {
    /// Shows a row; `room` is the number of cells that the sequence has for it and the next ones, `masks` has
    /// whether they are masked.
    fn of(
        store: &Store,
        context: &Context,
        (place, row): (usize, &Visit),
        room: &mut usize,
        masks: &mut impl Iterator<Item = bool>,
    ) -> Result<Self> {
        let table = &store.tables()[row.table as usize];
        let time = table.row(row.row)?.time();
        let has_time = time != ALWAYS_VISIBLE;
        let relation = || short_relation_name(store, row.relation);
        let since = context.obs_time.checked_sub(time);
        let before = since.filter(|_| has_time && context.obs_time != SEES_EVERYTHING);
        let cells = cells(store, context, (place, row), *room)?;
        let aggregates = aggregates(store, context, place);
        *room = room.saturating_sub(cells.len() + aggregates.len());
        // Nothing after the end of the sequence is masked.
        let masked = masks.by_ref().chain(std::iter::repeat(false)).take(cells.len()).collect();
        masks.take(aggregates.len()).for_each(drop);
        Ok(Self {
            place,
            hop: row.hop,
            from: row.from as usize,
            // A store may have no relations, so that the seed's 0 names none.
            relation: (place > 0).then(relation),
            is_parent: row.is_parent,
            table: table.metadata().name.clone(),
            row: row_name(table, row.row)?,
            time: has_time.then(|| time_text(time)),
            lacks_time: !has_time && table.metadata().time.is_some(),
            before: before.map(before_or_after),
            cells,
            aggregates,
            masked,
            neighbours: (context.neighbours.iter())
                .filter(|neighbours| neighbours.place as usize == place)
                .map(|neighbours| NeighbourCounts::of(store, context, neighbours))
                .collect(),
        })
    }

    /// Returns its role for the row that brought it in.
    pub(super) fn kind(&self) -> &'static str {
        match (self.place, self.is_parent) {
            (0, _) => "seed",
            (_, true) => "parent",
            (_, false) => "child",
        }
    }

    /// Returns the table and the key of the row.
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
            (None, _) if self.lacks_time => format!("  ({NO_TIME})"),
            (None, _) => String::new(),
            (Some(time), None) => format!("  {time}"),
            (Some(time), Some(before)) => format!("  {time}, {before}"),
        };
        let hidden: Vec<_> = (self.neighbours.iter().filter(|neighbours| neighbours.hidden > 0))
            .map(|neighbours| format!("{} {}", count(neighbours.hidden), neighbours.relation))
            .collect();
        let later = match hidden.is_empty() {
            true => String::new(),
            false => format!("  (later: {})", hidden.join(", ")),
        };
        format!("{way}{}{when}  [hop {}]{later}", self.name(), self.hop)
    }
}

impl NeighbourCounts {
    fn of(store: &Store, context: &Context, neighbours: &Neighbours) -> Self {
        let own = |link: &&Link| {
            let place = if neighbours.is_parent { link.child } else { link.parent };
            link.relation == neighbours.relation && place == neighbours.place
        };
        Self {
            relation: relation_name(store, neighbours.relation),
            relation_number: neighbours.relation,
            is_parent: neighbours.is_parent,
            in_context: context.links.iter().filter(own).count() as u64,
            visible: neighbours.visible,
            hidden: neighbours.hidden,
        }
    }
}

impl SeenCell {
    fn of(view: CellView, why_null: Option<&'static str>) -> Self {
        let CellView { column, semantic, value } = view;
        Self { column, semantic, value: value.filter(|_| why_null.is_none()), why_null }
    }

    /// Returns the cell as a text: `city = "Oslo"`, or `left = NULL (known later)`.
    fn text(&self) -> String {
        let Self { column, semantic, value, why_null } = self;
        let is_word = matches!(semantic.as_str(), "categorical" | "text");
        match (value, *why_null) {
            (Some(value), _) if is_word => {
                format!("{column} = {:?}", shortened(value, TEXT_CHARACTERS))
            }
            (Some(value), _) => format!("{column} = {value}"),
            // A NULL of the data needs no reason.
            (None, None | Some(NULL_IN_DATA)) => format!("{column} = NULL"),
            (None, Some(why)) => format!("{column} = NULL ({why})"),
        }
    }
}

/// Returns the cells of a row, the target of a derived task after those of the seed; of all its cells the
/// first `room` are in the sequence.
fn cells(
    store: &Store,
    context: &Context,
    (place, row): (usize, &Visit),
    room: usize,
) -> Result<Vec<SeenCell>> {
    let table = &store.tables()[row.table as usize];
    let record = table.row(row.row)?;
    let mut cells = Vec::new();
    for (number, column) in (0..).zip(&table.metadata().columns) {
        let view = CellView::of(store, column, record.cell(number as usize))?;
        let is_it = |unseen: &&Unseen| (unseen.place as usize, unseen.column) == (place, number);
        let why = context.unseen.iter().find(is_it).map(|unseen| unseen.why);
        let is_target = place == 0 && context.target_column == Some(number);
        let why_null = match why {
            _ if is_target => Some(TARGET),
            _ if cells.len() >= room => Some(CUT),
            Some(WhyUnseen::KnownLater) => Some(KNOWN_LATER),
            Some(WhyUnseen::HiddenByTask) => Some(HIDDEN_BY_TASK),
            None if view.value.is_none() => Some(NULL_IN_DATA),
            None => None,
        };
        cells.push(SeenCell::of(view, why_null));
    }
    let own =
        target_column(store, context).filter(|_| place == 0 && context.target_column.is_none());
    if let Some(column) = own {
        cells.push(SeenCell::of(CellView::of(store, column, context.target)?, Some(TARGET)));
    }
    Ok(cells)
}

/// Returns the aggregates of the row at `place`.
fn aggregates(store: &Store, context: &Context, place: usize) -> Vec<CellView> {
    let own = context.aggregates.iter().filter(|aggregate| aggregate.place as usize == place);
    let all = &store.metadata().aggregates;
    own.map(|own| CellView::of_aggregate(store, &all[own.aggregate as usize], own.cell)).collect()
}

/// Returns the column of the target.
pub(super) fn target_column<'a>(store: &'a Store, context: &Context) -> Option<&'a ColumnMetadata> {
    let name = context.task.split_once('/').map_or("", |(_, name)| name);
    let task = store.tasks().iter().find(|task| task.metadata().name == name)?;
    Some(store.metadata().target_column(task.metadata()))
}

/// Returns the time between an event and the observation, in its two largest units.
fn before_or_after(micros: i64) -> String {
    match (micros.unsigned_abs() < 1_000_000, micros < 0) {
        (true, _) => "at the observation time".to_owned(),
        (false, false) => format!("{} before", span(micros.unsigned_abs())),
        (false, true) => format!("{} after", span(micros.unsigned_abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::{ContextView, before_or_after};

    #[test]
    fn a_context_says_what_fills_the_sequence_and_what_is_cut() {
        let size = |cell_count, cut_count| {
            let view = ContextView {
                task: "clinic/returns".to_owned(),
                seed_index: 0,
                obs_time: None,
                split: "train",
                target: None,
                value: None,
                cell_count,
                cut_count,
                masked_count: None,
                hidden_count: 3,
                rows: Vec::new(),
            };
            view.size()
        };
        for (cells, cut, shown) in [
            (1024, 0, "0 rows and 1,024 cells in the context"),
            (1025, 1, "0 rows; 1,024 cells fill the sequence, 1 more is cut"),
            (3000, 2999, "0 rows; 1 cell fills the sequence, 2,999 more are cut"),
        ] {
            assert_eq!(size(cells, cut), format!("{shown}; 3 rows came to exist later"));
        }
    }

    #[test]
    fn spans_have_two_units() {
        assert_eq!(before_or_after(0), "at the observation time");
        assert_eq!(before_or_after(1_000_000), "1 second before");
        assert_eq!(before_or_after(90_061_000_000), "1 day 1 hour before");
        assert_eq!(before_or_after(-120_000_000), "2 minutes after");
    }
}
