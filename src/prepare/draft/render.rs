//! Writes the drafted schema as TOML, with a comment for each guess.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::questions::Question;
use super::subject::{Notes, Place};
use crate::prepare::schema::{
    Aggregate, Column, ObservationTime, Reference, Schema, Table, Task, Time, TimeUnit,
};

/// The data do not tell when a target is known, and too short a horizon would be a leak.
const HORIZON: &str = "# horizon = \"30 days\" # the time from an observation until its target is \
                       known; then contexts have earlier labels\n";

/// The doubtful references of each table, by its name, with the reasons.
pub(super) type Doubtful = BTreeMap<String, Vec<(Reference, String)>>;

/// A drafted schema, with the reason for each guess.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The schema.
    pub schema: Schema,
    pub(super) source: String,
    pub(super) notes: Notes,
    pub(super) doubtful: Doubtful,
    pub(super) questions: Vec<Question>,
    /// Why no question was drafted, if tables are near to one.
    pub(super) unasked: Vec<String>,
    /// The tables that are left out, and the reasons.
    pub(super) left_out: Vec<(String, &'static str)>,
}

impl Draft {
    /// Returns the schema file: TOML that reads back as the same schema, with comments.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = format!(
            "# Drafted from {}. A comment gives the reason for each guess: correct wrong ones.\n# \
             Types: identifier numerical timestamp boolean categorical text ignored.\n\ndatabase = \
             {}\n\n",
            self.source.replace(char::is_control, " "),
            quoted(&self.schema.database)
        );
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    /// Leaves out the tasks that predict a cell from the rest.
    #[must_use]
    pub fn without_cell_tasks(mut self) -> Self {
        self.schema.tasks.retain(|task| task.cell.is_none());
        self
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let limits = &self.schema.limits;
        writeln!(text, "[limits]")?;
        writeln!(
            text,
            "unresolved_share = {:?} # largest share of a reference's values that match no row",
            limits.unresolved_share
        )?;
        writeln!(
            text,
            "duplicate_keys = {} # most rows of a table that repeat a key",
            limits.duplicate_keys
        )?;
        writeln!(text, "categories = {} # most categories of a column", limits.categories)?;
        for (table, reason) in &self.left_out {
            writeln!(text, "\n# Table {} is left out: {reason}.", quoted(table))?;
        }
        for table in &self.schema.tables {
            self.write_table(text, table)?;
        }
        if !self.schema.aggregates.is_empty() {
            let heading = "Counts and means of a row's children as cells of the row; correct the \
                           windows, and delete those that say nothing";
            writeln!(text, "\n# {heading}.")?;
        }
        for aggregate in &self.schema.aggregates {
            self.write_aggregate(text, aggregate)?;
        }
        let (cells, others): (Vec<_>, Vec<_>) =
            self.schema.tasks.iter().partition(|task| task.cell.is_some());
        if !cells.is_empty() {
            let heading = "These tasks predict a cell from the rest; delete those that you do not \
                           need";
            writeln!(text, "\n# {heading}.")?;
        }
        for task in cells.into_iter().chain(others) {
            self.write_task(text, task)?;
        }
        if !self.questions.is_empty() {
            let heading = "Questions that these tables can answer. To ask one, remove the # before \
                           its lines; headwater sql shows how it is asked";
            writeln!(text, "\n# {heading}.")?;
        }
        for reason in &self.unasked {
            let reason = comment(&format!("No question was drafted: {reason}."));
            writeln!(text, "\n{}", reason.trim_start())?;
        }
        self.questions.iter().try_for_each(|question| write_question(text, question))
    }

    fn write_table(&self, text: &mut String, table: &Table) -> std::fmt::Result {
        let note = |place| self.note(&table.name, place);
        writeln!(text, "\n[[table]]{}", note(Place::Table))?;
        writeln!(text, "name = {}", quoted(&table.name))?;
        if let Some(source) = &table.source {
            writeln!(text, "source = {}", quoted(source))?;
        }
        match table.key.is_empty() {
            true => writeln!(text, "{}", note(Place::Key).trim_start())?,
            false => writeln!(text, "key = {}{}", list(&table.key), note(Place::Key))?,
        }
        match &table.time {
            Some(time) => writeln!(text, "time = {}{}", inline_time(time), note(Place::Time))?,
            None => writeln!(text, "{}", note(Place::Time).trim_start())?,
        }
        self.write_references(text, table)?;
        writeln!(text, "[table.columns]")?;
        for (name, column) in &table.columns {
            let note = note(Place::Column(name.clone()));
            writeln!(text, "{} = {}{note}", key(name), inline_column(column))?;
        }
        Ok(())
    }

    /// Writes the references of a table; doubtful ones as comments.
    fn write_references(&self, text: &mut String, table: &Table) -> std::fmt::Result {
        let doubtful = self.doubtful.get(&table.name).map_or(&[][..], |doubtful| doubtful);
        if table.references.is_empty() && doubtful.is_empty() {
            return Ok(());
        }
        writeln!(text, "references = [")?;
        for reference in &table.references {
            let note = self.note(&table.name, Place::Reference(reference.name()));
            writeln!(text, "  {},{note}", inline_reference(reference))?;
        }
        for (reference, reason) in doubtful {
            let note = comment(&format!("doubtful: {reason}; to use it, remove the # before it"));
            writeln!(text, "  # {},{note}", inline_reference(reference))?;
        }
        writeln!(text, "]")
    }

    fn write_aggregate(&self, text: &mut String, aggregate: &Aggregate) -> std::fmt::Result {
        let Aggregate { table, reference, columns, windows } = aggregate;
        let note = self.note(table, Place::Aggregate(reference.clone()));
        writeln!(text, "\n[[aggregate]]{note}")?;
        writeln!(text, "table = {}\nreference = {}", quoted(table), quoted(reference))?;
        if !columns.is_empty() {
            writeln!(text, "columns = {}", list(columns))?;
        }
        let windows: Vec<_> = windows.iter().map(|window| quoted(&window.to_string())).collect();
        writeln!(text, "windows = [{}]", windows.join(", "))
    }

    fn write_task(&self, text: &mut String, task: &Task) -> std::fmt::Result {
        let note = self
            .notes
            .iter()
            .find(|((_, place), _)| *place == Place::Task(task.name.clone()))
            .map_or_else(String::new, |(_, note)| comment(note));
        // A note about a cell task warns that its seeds see everything.
        let (note, sees_everything) = match task.sees_everything {
            true => (String::new(), note),
            false => (note, String::new()),
        };
        writeln!(text, "\n[[task]]{note}")?;
        writeln!(text, "name = {}", quoted(&task.name))?;
        if let Some(cell) = &task.cell {
            let (table, column) = (quoted(&cell.table), quoted(&cell.column));
            writeln!(text, "cell = {{ table = {table}, column = {column} }}")?;
        }
        if task.sees_everything {
            writeln!(text, "sees_everything = true{sees_everything}")?;
        }
        if let Some(derived) = &task.derived {
            writeln!(text, "[task.derived]")?;
            writeln!(text, "anchor = {}", quoted(&derived.anchor))?;
            let optional =
                [("source", &derived.source), ("sql", &derived.sql), ("split", &derived.split)];
            for (name, value) in optional {
                if let Some(value) = value {
                    writeln!(text, "{name} = {}", quoted(value))?;
                }
            }
            if let Some(time) = &derived.time {
                writeln!(text, "time = {}", inline_observation(time))?;
            }
            writeln!(text, "key = {}", list(&derived.key))?;
            writeln!(text, "target = {}", quoted(&derived.target))?;
            writeln!(text, "type = {}", quoted(derived.target_type.name()))?;
            if !derived.scale.is_linear() {
                writeln!(text, "scale = {}", quoted(derived.scale.name()))?;
            }
            if derived.time.is_some() {
                text.push_str(HORIZON);
            }
        }
        Ok(())
    }

    fn note(&self, table: &str, place: Place) -> String {
        let note = self.notes.get(&(table.to_owned(), place));
        note.map_or_else(String::new, |note| comment(note))
    }
}

/// Writes a declared task, each line as a comment.
fn write_question(text: &mut String, question: &Question) -> std::fmt::Result {
    let Question { name, predict, note } = question;
    writeln!(text, "\n{}", comment(note).trim_start())?;
    writeln!(text, "# [[task]]\n# name = {}\n# [task.predict]", quoted(name))?;
    writeln!(text, "# anchor = {}", quoted(&predict.anchor))?;
    writeln!(text, "# what = {}\n# of = {}", quoted(predict.what.name()), quoted(&predict.of))?;
    for (field, value) in [("column", &predict.column), ("reference", &predict.reference)] {
        if let Some(value) = value {
            writeln!(text, "# {field} = {}", quoted(value))?;
        }
    }
    writeln!(text, "# horizon = \"{}\"", predict.horizon)?;
    for (field, value) in [("every", predict.every), ("active_within", predict.active_within)] {
        if let Some(value) = value {
            writeln!(text, "# {field} = \"{value}\"")?;
        }
    }
    writeln!(text, "# train_until = {}", quoted(&predict.train_until))?;
    writeln!(text, "# val_until = {}", quoted(&predict.val_until))?;
    if !predict.scale.is_linear() {
        writeln!(text, "# scale = {}", quoted(predict.scale.name()))?;
    }
    Ok(())
}

/// Returns a comment for the end of a line; control characters become spaces.
fn comment(note: &str) -> String {
    format!(" # {}", note.replace(char::is_control, " "))
}

fn inline_time(time: &Time) -> String {
    let mut fields = Vec::new();
    fields.extend(time.column.iter().map(|column| format!("column = {}", quoted(column))));
    fields.extend(time.through.iter().map(|through| format!("through = {}", quoted(through))));
    if !time.delay.is_zero() {
        fields.push(format!("delay = \"{}\"", time.delay));
    }
    format!("{{ {} }}", fields.join(", "))
}

fn inline_reference(reference: &Reference) -> String {
    let (columns, to) = (list(&reference.columns), quoted(&reference.to));
    match &reference.to_columns[..] {
        [] => format!("{{ columns = {columns}, to = {to} }}"),
        others => format!("{{ columns = {columns}, to = {to}, to_columns = {} }}", list(others)),
    }
}

fn inline_column(column: &Column) -> String {
    let semantic = quoted(column.semantic.name());
    let scale = (!column.scale.is_linear()).then(|| column.scale.name());
    match (column.unit, scale) {
        (None, None) => semantic,
        (Some(unit), _) => format!("{{ type = {semantic}, {} }}", unit_fields(unit, column.end)),
        (_, Some(scale)) => format!("{{ type = {semantic}, scale = \"{scale}\" }}"),
    }
}

fn inline_observation(time: &ObservationTime) -> String {
    let column = quoted(&time.column);
    match time.unit {
        None => column,
        Some(unit) => format!("{{ column = {column}, {} }}", unit_fields(unit, time.end)),
    }
}

fn unit_fields(unit: TimeUnit, end: bool) -> String {
    format!("unit = \"{}\"{}", unit.name(), if end { ", end = true" } else { "" })
}

fn list(names: &[String]) -> String {
    match names {
        [name] => quoted(name),
        names => {
            format!("[{}]", names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Returns a TOML key, bare if TOML allows it.
fn key(name: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match !name.is_empty() && name.bytes().all(bare) {
        true => name.to_owned(),
        false => quoted(name),
    }
}

/// Returns a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            c if c.is_control() => quoted.extend(format!("\\u{:04X}", u32::from(c)).chars()),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
