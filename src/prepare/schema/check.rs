//! Checks a schema without the data.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Aggregate, CellTask, Column, Delay, DerivedTask, Reference, ScaleName, Schema, Table, Task,
    Time, Window,
};
use crate::error::{Context, Error, Result};
use crate::prepare::names::{did_you_mean, listed, suggest};
use crate::store::{SemanticType, label_table_name};

/// The longest name of a table or task, in bytes; with an ending it must be a valid file name.
const NAME_BYTES: usize = 200;

impl Schema {
    /// Checks everything that does not need the data.
    ///
    /// # Errors
    /// `Schema`: the first contradiction, in the order of the file, with its table or task and a
    /// remedy.
    pub fn check(&self) -> Result<()> {
        self.check_limits()?;
        if self.tables.is_empty() && self.events.is_none() {
            return fail("the schema has no table; add one with [[table]]");
        }
        if self.database.is_empty() || self.database.contains('/') {
            return fail(format!(
                "database: expected a name without '/', because a task is named DATABASE/TASK, \
                 found {:?}",
                self.database
            ));
        }
        if let Some(events) = &self.events {
            return self.check_events(events);
        }
        self.statistics_until()?;
        unique_names("table", self.tables.iter().map(|t| t.name.as_str()))?;
        unique_names("task", self.tasks.iter().map(|t| t.name.as_str()))?;
        for table in &self.tables {
            self.check_table(table).context(|| format!("table {:?}", table.name))?;
        }
        for table in &self.tables {
            self.check_inheritance(table).context(|| format!("table {:?}: time", table.name))?;
        }
        let declared = self.with_declared_tasks()?;
        let whole = declared.with_label_tables();
        whole.check_aggregates()?;
        whole.check_summaries()?;
        for task in &declared.tasks {
            declared.check_task(task).context(|| format!("task {:?}", task.name))?;
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<()> {
        let limits = &self.limits;
        if !(0.0..=1.0).contains(&limits.unresolved_share) {
            let found = limits.unresolved_share;
            return fail(format!("limits: expected unresolved_share from 0 to 1, found {found}"));
        }
        if limits.categories == 0 {
            return fail("limits: expected categories of at least 1, found 0");
        }
        Ok(())
    }

    fn check_table(&self, table: &Table) -> Result<()> {
        safe_name(&table.name, "; give the table another name and set source = \"...\"")?;
        if table.columns.values().all(|c| c.semantic == SemanticType::Ignored) {
            return fail(
                "every column of the table is ignored; give at least one column another type",
            );
        }
        let is_unused = |(name, column): &(&String, &Column)| {
            column.semantic == SemanticType::Ignored
                && column.unit.is_some()
                && !table.is_read_as_time(name)
        };
        if let Some((name, _)) = table.columns.iter().find(is_unused) {
            return fail(format!(
                "column {name:?}: expected a unit only for a column that is read as a time, found one \
                 for an ignored column; remove the unit"
            ));
        }
        has_columns(table, &table.key).context(|| "key")?;
        let mut names = BTreeSet::new();
        for reference in &table.references {
            let name = reference.name();
            if !names.insert(name.clone()) {
                return fail(format!(
                    "two references have the columns {name:?}; remove one of them"
                ));
            }
            self.check_reference(table, reference).context(|| format!("reference {name:?}"))?;
        }
        table.time.as_ref().map_or(Ok(()), |time| check_time(table, time)).context(|| "time")?;
        self.check_known(table)
    }

    fn check_reference(&self, table: &Table, reference: &Reference) -> Result<()> {
        if reference.columns.is_empty() {
            return fail("expected at least one column, found none");
        }
        has_columns(table, &reference.columns)?;
        let parent = self.find_table(&reference.to)?;
        has_columns(parent, &reference.to_columns)
            .context(|| format!("to_columns of {:?}", parent.name))?;
        let target =
            if reference.to_columns.is_empty() { &parent.key } else { &reference.to_columns };
        if target.is_empty() {
            return fail(format!(
                "table {:?} has no key; give it a key, or name the columns with to_columns",
                parent.name
            ));
        }
        if target.len() != reference.columns.len() {
            return fail(format!(
                "expected {} column(s), one for each of {} in table {:?}, found {}; correct \
                 columns or to_columns",
                target.len(),
                listed(target.iter().map(String::as_str)),
                parent.name,
                reference.columns.len(),
            ));
        }
        Ok(())
    }

    /// Checks that the inherited time of `table` comes from a table with a time column.
    fn check_inheritance(&self, table: &Table) -> Result<()> {
        let mut path = vec![table.name.as_str()];
        let mut current = table;
        while let Some(through) = current.time.as_ref().and_then(|t| t.through.as_ref()) {
            let Some(reference) = current.reference(through) else { return Ok(()) };
            let parent = self.find_table(&current.references[reference].to)?;
            if parent.time.is_none() {
                return fail(format!(
                    "{:?} inherits its time through {through:?} from {:?}, which has no time; give \
                     the parent a time, or remove the time of this table",
                    current.name, parent.name
                ));
            }
            path.push(&parent.name);
            if let Some(start) = path[..path.len() - 1].iter().position(|&t| t == parent.name) {
                return fail(format!(
                    "the inheritance is circular: {}; give one of these tables a time column",
                    path[start..].join(" -> ")
                ));
            }
            current = parent;
        }
        Ok(())
    }

    fn check_aggregates(&self) -> Result<()> {
        let mut named = BTreeSet::new();
        for aggregate in &self.aggregates {
            let Aggregate { table, reference, .. } = aggregate;
            let context = || format!("aggregate of {table:?} by {reference:?}");
            if !named.insert((table, reference)) {
                return fail("the schema has it twice; put all columns and windows into one")
                    .context(context);
            }
            self.check_aggregate(aggregate).context(context)?;
        }
        Ok(())
    }

    fn check_aggregate(&self, aggregate: &Aggregate) -> Result<()> {
        let table = self.find_table(&aggregate.table)?;
        self.refuse_pairs(table)?;
        find_reference(table, &aggregate.reference)?;
        has_columns(table, &aggregate.columns)?;
        has_averages(table, &aggregate.columns)?;
        table.check_known_with_rows(&aggregate.columns, true)?;
        if aggregate.windows.is_empty() {
            return fail("expected at least one window, found none; \"ever\" means all children");
        }
        for (place, window) in aggregate.windows.iter().enumerate() {
            if aggregate.windows[..place].contains(window) {
                return fail(format!("the window \"{window}\" is listed twice; remove one"));
            }
            match window {
                Window::Last(length) if length.is_zero() => {
                    return fail("expected windows longer than 0, found \"0 us\"");
                }
                Window::Last(_) if table.time.is_none() => {
                    return fail(format!(
                        "expected a table with a time, because of the window \"{window}\", found \
                         none; give the table a time, or set windows = [\"ever\"]"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_task(&self, task: &Task) -> Result<()> {
        safe_name(&task.name, "; give the task another name")?;
        if task.name.starts_with("pool:") {
            return fail(
                "expected a name that does not begin with \"pool:\", as those of pools do; give the task \
                 another name",
            );
        }
        if task.strict && task.cell.is_some() {
            return fail(
                "strict hides rows of the very observation time, and the seed of a cell task is such a \
                 row; remove strict, or give the task observation times of its own (derived)",
            );
        }
        match (&task.cell, &task.derived) {
            (Some(cell), None) => self.check_cell(task, cell),
            (None, Some(derived)) => self.check_derived(task, derived),
            (Some(_), Some(_)) => fail("expected either cell or derived, found both"),
            (None, None) => fail(
                "expected cell = { table, column }, derived = { anchor, source, key, time, target, \
                 type } or predict = { anchor, what, of, horizon, train_until, val_until }, found \
                 none of them",
            ),
        }
    }

    fn check_cell(&self, task: &Task, cell: &CellTask) -> Result<()> {
        let table = self.find_table(&cell.table)?;
        has_columns(table, std::slice::from_ref(&cell.column))
            .context(|| format!("table {:?}", table.name))?;
        if let Some(column) = table.columns.get(&cell.column) {
            predictable(column.semantic)
                .and_then(|()| keeps_numbers(column.scale))
                .context(|| format!("column {:?} of {:?}", cell.column, cell.table))?;
        }
        self.can_be_hidden(table, &cell.column, "target", "predict another column")?;
        self.check_hide(table, cell).context(|| "hide")?;
        if table.time.is_none() && !task.sees_everything {
            return fail(format!(
                "table {:?} has no time, so its seeds have no observation time; give the table a \
                 time, or set sees_everything = true",
                table.name
            ));
        }
        Ok(())
    }

    /// Checks the columns that a cell task hides beside its target.
    fn check_hide(&self, table: &Table, cell: &CellTask) -> Result<()> {
        has_columns(table, &cell.hide)?;
        for name in &cell.hide {
            if *name == cell.column {
                return fail(format!("column {name:?} is the target, which is hidden; remove it"));
            }
            if table.columns[name].semantic == SemanticType::Ignored {
                return fail(format!("column {name:?} is ignored, so it is no cell; remove it"));
            }
            self.can_be_hidden(table, name, "hidden column", "remove it from the list")?;
        }
        Ok(())
    }

    /// Refuses a column, a target or a hidden one, whose value in a row more than its cell tells.
    fn can_be_hidden(&self, table: &Table, column: &str, role: &str, remedy: &str) -> Result<()> {
        if table.time.as_ref().and_then(|time| time.column.as_deref()) == Some(column) {
            return fail(format!(
                "column {column:?} is the time of table {:?}, which every context contains; {remedy}",
                table.name
            ));
        }
        if self.links_rows(table, column) {
            return fail(format!(
                "column {column:?} of table {:?} is part of a key or reference, so the links of a row \
                 reveal its value; {remedy}",
                table.name
            ));
        }
        let is_twin = |t: &&Table| t.name != table.name && t.source_name() == table.source_name();
        let mut twins = self.tables.iter().filter(is_twin);
        if let Some(twin) = twins.find(|twin| self.reveals(twin, column)) {
            return fail(format!(
                "table {:?} is also read from {:?} and holds the {role} {column:?}; give that column \
                 the type ignored there, and use it in no key or reference",
                twin.name,
                twin.source_name(),
            ));
        }
        Ok(())
    }

    fn check_derived(&self, task: &Task, derived: &DerivedTask) -> Result<()> {
        let anchor = self.find_table(&derived.anchor).context(|| "anchor")?;
        match (&derived.source, &derived.sql) {
            (Some(_), Some(_)) => return fail("expected either source or sql, found both"),
            (None, None) => {
                return fail("expected source = \"...\" or sql = \"...\", found neither");
            }
            _ => {}
        }
        if anchor.key.is_empty() {
            return fail(format!(
                "anchor {:?} has no key, so its rows cannot be looked up; give the table a key",
                anchor.name
            ));
        }
        if derived.key.len() != anchor.key.len() {
            return fail(format!(
                "expected {} key column(s), one for each of {} in table {:?}, found {}",
                anchor.key.len(),
                listed(anchor.key.iter().map(String::as_str)),
                anchor.name,
                derived.key.len(),
            ));
        }
        predictable(derived.target_type)
            .and_then(|()| keeps_numbers(derived.scale))
            .context(|| format!("target {:?}", derived.target))?;
        if !derived.scale.is_linear() && derived.target_type != SemanticType::Numerical {
            return fail(format!(
                "target {:?}: expected type numerical for a target with a scale, found {}; remove \
                 the scale",
                derived.target, derived.target_type
            ));
        }
        if derived.time.is_none() && !task.sees_everything {
            return fail(
                "expected an observation time, found none; name its column with time = \"...\", or \
                 set sees_everything = true",
            );
        }
        match derived.horizon {
            Some(horizon) => self.check_horizon(task, horizon).context(|| "horizon"),
            None => Ok(()),
        }
    }

    fn check_horizon(&self, task: &Task, horizon: Delay) -> Result<()> {
        if horizon.0 <= 0 {
            return fail(format!(
                "expected a time longer than 0, found \"{horizon}\"; set it to the time from an \
                 observation until its target is known"
            ));
        }
        if task.sees_everything {
            return fail(
                "expected seeds that each have an observation time, found sees_everything = true, \
                 with which a seed without a time sees its own target; remove one of the two",
            );
        }
        let name = label_table_name(&task.name);
        let is_taken = |table: &&Table| table.name.to_lowercase() == name.to_lowercase();
        if let Some(table) = self.tables.iter().find(is_taken) {
            return fail(format!(
                "the task's labels become table {name:?}, and there is a table {:?}; rename that \
                 table or the task",
                table.name
            ));
        }
        safe_name(&name, "; give the task another name")
    }

    /// Whether a row of `table` reveals its value of `column`, or that the value is NULL.
    pub(in crate::prepare) fn reveals(&self, table: &Table, column: &str) -> bool {
        let kept = table.columns.get(column);
        let time = table.time.as_ref().and_then(|time| time.column.as_deref());
        kept.is_some_and(|column| column.semantic != SemanticType::Ignored)
            || time == Some(column)
            || self.links_rows(table, column)
    }

    /// Whether a column of `table` is part of its key, of a reference, or of a referenced list.
    pub(super) fn links_rows(&self, table: &Table, column: &str) -> bool {
        let incoming =
            self.tables.iter().flat_map(|t| &t.references).filter(|r| r.to == table.name);
        let own = table.references.iter().flat_map(|r| &r.columns).chain(&table.key);
        own.chain(incoming.flat_map(|r| &r.to_columns)).any(|linking| linking == column)
    }

    pub(super) fn find_table(&self, name: &str) -> Result<&Table> {
        self.table(name).map(|index| &self.tables[index]).ok_or_else(|| {
            let of_labels = self.tasks.iter().find(|task| label_table_name(&task.name) == name);
            if let Some((task, derived)) =
                of_labels.and_then(|task| Some((task, task.derived.as_ref()?)))
            {
                let (missing, example) = match derived.horizon {
                    None => ("horizon", "30 days"),
                    Some(_) => ("time", "the column of the observation time"),
                };
                return Error::schema(format!(
                    "there is no table {name:?}, because the task {:?} has no {missing}; add one \
                     to its [task.derived], such as {missing} = {example:?}",
                    task.name
                ));
            }
            let names = self.tables.iter().map(|t| t.name.as_str());
            Error::schema(format!("there is no table {name:?}; {}", did_you_mean(name, names)))
        })
    }
}

pub(super) fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::schema(message))
}

fn check_time(table: &Table, time: &Time) -> Result<()> {
    if time.delay.0 < 0 {
        return fail("expected a delay of at least 0, found a negative one");
    }
    match (&time.column, &time.through) {
        (Some(column), None) => {
            has_columns(table, std::slice::from_ref(column))?;
            match table.columns.get(column).map(|c| c.semantic) {
                Some(SemanticType::Timestamp | SemanticType::Ignored) => Ok(()),
                other => fail(format!(
                    "column {column:?}: expected type timestamp or ignored, found {}; give the \
                     column this type, or choose another",
                    other.map_or("unknown", SemanticType::name)
                )),
            }
        }
        (None, Some(through)) => find_reference(table, through),
        (Some(_), Some(_)) => fail("expected either column or through, found both"),
        (None, None) => fail("expected column = \"...\" or through = \"...\", found neither"),
    }
}

/// Checks that the table has this reference.
pub(super) fn find_reference(table: &Table, name: &str) -> Result<()> {
    if table.reference(name).is_some() {
        return Ok(());
    }
    if table.references.is_empty() {
        return fail(format!(
            "there is no reference {name:?}; table {:?} has no references, add it to them",
            table.name
        ));
    }
    let names: Vec<_> = table.references.iter().map(Reference::name).collect();
    let hint = did_you_mean(name, names.iter().map(String::as_str));
    fail(format!("there is no reference {name:?}; {hint}"))
}

/// Checks that the table has these columns, each named once. An ignored column may link rows; it is
/// not a cell.
pub(super) fn has_columns(table: &Table, names: &[String]) -> Result<()> {
    for (index, name) in names.iter().enumerate() {
        match table.columns.get(name) {
            None => {
                let all = table.columns.keys().map(String::as_str);
                // Either name may be misspelt; only the source has the correct one.
                let hint = match suggest(name, all.clone()) {
                    Some(near) => format!("did you mean {near:?}? spell both as the source does"),
                    None => format!("expected one of: {}", listed(all)),
                };
                return fail(format!("there is no column {name:?} in columns; {hint}"));
            }
            Some(_) if names[..index].contains(name) => {
                return fail(format!("column {name:?} is named twice; remove one"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Checks that these columns of the table have means: that they are numerical or boolean.
pub(super) fn has_averages(table: &Table, names: &[String]) -> Result<()> {
    for name in names {
        let semantic = table.columns.get(name).map(|column| column.semantic);
        if !matches!(semantic, Some(SemanticType::Numerical | SemanticType::Boolean)) {
            return fail(format!(
                "column {name:?}: expected a numerical or boolean column, found {}; give the column \
                 such a type, or leave it out",
                semantic.map_or("unknown", SemanticType::name)
            ));
        }
    }
    Ok(())
}

/// Refuses types that cannot be a target.
fn predictable(semantic: SemanticType) -> Result<()> {
    match semantic {
        SemanticType::Text | SemanticType::Identifier | SemanticType::Ignored => fail(format!(
            "expected a numerical, boolean, categorical or timestamp target, found {semantic}"
        )),
        _ => Ok(()),
    }
}

/// Refuses the scale of ranks for a target: labels and predictions need their numbers, and a rank has
/// them only as nearly as 257 quantiles do.
fn keeps_numbers(scale: ScaleName) -> Result<()> {
    match scale {
        ScaleName::Linear | ScaleName::Log => Ok(()),
        ScaleName::Rank => fail(
            "expected the scale linear or log for a target, found rank, which does not keep the \
             numbers exactly; give the column another scale",
        ),
    }
}

/// Checks that names differ, also on file systems that ignore case.
fn unique_names<'a>(kind: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut earlier_names: BTreeMap<String, &str> = BTreeMap::new();
    for name in names {
        if let Some(earlier) = earlier_names.insert(name.to_lowercase(), name) {
            return fail(if earlier == name {
                format!("two {kind}s are named {name:?}; rename one of them")
            } else {
                format!(
                    "{kind}s {earlier:?} and {name:?} differ only in case, which some file systems \
                     ignore; rename one of them"
                )
            });
        }
    }
    Ok(())
}

/// Checks that a name is valid for one file in the store's folder.
pub(super) fn safe_name(name: &str, remedy: &str) -> Result<()> {
    let reason = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > NAME_BYTES {
        format!("has {} bytes, more than {NAME_BYTES}", name.len())
    } else if name.starts_with('.') {
        "begins with a dot".to_owned()
    } else if let Some(c) = name.chars().find(|&c| matches!(c, '/' | '\\') || c.is_control()) {
        format!("contains {c:?}")
    } else {
        return Ok(());
    };
    fail(format!("the name {reason}, so it cannot name a file of the store{remedy}"))
}
