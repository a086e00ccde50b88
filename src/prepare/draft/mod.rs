//! A first schema for data that nobody has described: keys, references, types, times and tasks,
//! guessed from declarations, names and values, each guess with its reason.
//!
//! The rules are cautious: a key is verified to be unique, a reference to be contained in its
//! target, and what is not sure is left out with a note. The drafted schema is one that `prepare`
//! accepts as it is; whether it says what the data mean, a person has to judge.

mod columns;
mod composite;
mod links;
mod profile;
mod render;
mod subject;
mod tasks;
mod time_names;
mod times;
mod words;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::prepare::schema::{Limits, Schema, Table};
use crate::prepare::source::{Source, SourceTable};
use profile::{Profile, Storage, profile};
use subject::{Notes, Place, Subject};
use words::{key_rank, may_number_rows, names_rows, names_same_table, shared_prefix, words};

pub use render::Draft;

/// Why a view is left out.
const VIEW: &str = "it is a view: what it copies from other tables would give away the cells that \
                    are to be predicted there; a schema may still name it";

/// Drafts a schema for `source`, in which the database is called `name`.
///
/// Calls `progress` with the name of each table whose rows have been read.
///
/// # Determinism
/// Depends on the source's data alone; not on the thread count.
///
/// # Cost
/// Reads every row once, and once or twice more the columns that may together be a key. Keeps eight
/// bytes for each different value of columns that may be keys or references, and of at most six
/// lists of columns that may together be a key.
///
/// # Errors
/// `Io` and `Data` when the source cannot be read; `Data` when no table has a row and a column that
/// could be used.
pub fn draft(
    source: &dyn Source,
    name: &str,
    progress: &(dyn Fn(&str) -> Result<()> + Sync),
) -> Result<Draft> {
    let limits = Limits::default();
    let views = source.views()?;
    let mut subjects = examine(source, &views, &limits, progress)?;
    let mut left_out = leave_out(&mut subjects);
    left_out.extend(views.into_iter().map(|view| (view, VIEW)));
    if subjects.is_empty() {
        return Err(Error::data(format!(
            "{} has no table with a row and a column that could be used",
            source.describe()
        )));
    }
    let mut notes = Notes::new();
    links::find_keys(&mut subjects, &limits, &mut notes);
    links::find_links(source, &limits, &mut subjects, &mut notes)?;
    composite::find_composite_keys(source, &mut subjects, &mut notes)?;
    let derived = tasks::take_derived(&subjects);
    times::find_times(&mut subjects, &derived, &mut notes);
    let kept: Vec<_> = (0..subjects.len()).filter(|&index| !derived.contains_key(&index)).collect();
    let tables: Vec<_> =
        kept.iter().map(|&index| table(&subjects, index, &limits, &mut notes)).collect();
    let mut tasks = tasks::cell_tasks(&subjects, &kept, &tables, &derived, &mut notes);
    for (index, task) in derived {
        let reason = "its columns are those of a task: a key, a time, a target".to_owned();
        notes.insert((subjects[index].name.clone(), Place::Task(task.name.clone())), reason);
        tasks.push(task);
    }
    let schema = Schema { database: name.to_owned(), limits, tables, tasks };
    schema.check()?;
    Ok(Draft { schema, source: source.describe(), notes, left_out })
}

/// Reads every table once, but for the views.
fn examine(
    source: &dyn Source,
    views: &[String],
    limits: &Limits,
    progress: &(dyn Fn(&str) -> Result<()> + Sync),
) -> Result<Vec<Subject>> {
    let mut tables = source.tables()?;
    tables.retain(|table| !table.columns.is_empty() && !views.contains(&table.name));
    if tables.is_empty() {
        let but = if views.is_empty() { "" } else { ", but for views; name them in a schema" };
        return Err(Error::data(format!("{} has no table with a column{but}", source.describe())));
    }
    let names = safe_names(&tables);
    let table_words: Vec<_> = tables.iter().map(|table| words(&table.name)).collect();
    let examined = tables.into_par_iter().zip(names).enumerate().map(|(index, (table, name))| {
        let mut column_words: Vec<_> = table.columns.iter().map(|c| words(&c.name)).collect();
        if let Some(prefix) = shared_prefix(&column_words) {
            for words in &mut column_words {
                words.retain(|word| *word != prefix);
            }
        }
        let place = |name: &str| table.columns.iter().position(|c| c.name == name);
        let declared: Vec<_> = (table.key.iter())
            .chain(table.references.iter().flat_map(|r| &r.columns))
            .filter_map(|name| place(name))
            .collect();
        let in_full = |column: usize| {
            let words = &column_words[column];
            declared.contains(&column)
                || names_rows(words)
                || names_same_table(words)
                || key_rank(words, &table_words[index]).is_some()
                || table_words.contains(words)
                || may_number_rows(words)
        };
        let limit = |name: &str| match place(name).is_some_and(in_full) {
            true => None,
            false => Some(limits.categories as usize),
        };
        let profiles = profile(source, &table.name, &table.columns, |c| limit(&c.name))?;
        progress(&table.name)?;
        let words = table_words[index].clone();
        let (key, links) = (vec![], vec![]);
        Ok(Subject { source: table, name, words, column_words, profiles, key, links, time: None })
    });
    examined.collect()
}

/// Takes out the tables of which nothing could be kept; a store has none without rows or cells.
fn leave_out(subjects: &mut Vec<Subject>) -> Vec<(String, &'static str)> {
    let reason = |subject: &Subject| {
        // As `columns::guess` ignores them.
        let is_kept = |p: &Profile| match p.storage {
            Storage::Other => false,
            Storage::Real => p.all(p.numbers),
            _ => p.present() > 0,
        };
        if subject.profiles.iter().any(is_kept) {
            return None;
        }
        // Columns that no semantic type takes are not read, so that their rows are not counted.
        let is_empty = |p: &Profile| p.rows == 0 && p.storage != Storage::Other;
        Some(match subject.profiles.iter().any(is_empty) {
            true => "it has no rows",
            false => "each column is NULL throughout, or has values that no semantic type takes",
        })
    };
    let mut left_out = Vec::new();
    subjects.retain(|subject| {
        let reason = reason(subject);
        left_out.extend(reason.map(|reason| (subject.source.name.clone(), reason)));
        reason.is_none()
    });
    left_out
}

/// The tables' names, made fit for files and different from each other in any case.
fn safe_names(tables: &[SourceTable]) -> Vec<String> {
    let mut taken: Vec<String> = Vec::new();
    let mut names = Vec::new();
    for table in tables {
        let safe = |c: char| if c.is_control() || matches!(c, '/' | '\\') { '_' } else { c };
        let mut name: String = table.name.chars().map(safe).collect();
        name.drain(..name.len() - name.trim_start_matches('.').len());
        // A task's name is made of this one and a column's.
        name.truncate(name.floor_char_boundary(100));
        if name.is_empty() {
            name = "table".into();
        }
        let stem = name.clone();
        for number in 2.. {
            if !taken.contains(&name.to_lowercase()) {
                break;
            }
            name = format!("{stem}_{number}");
        }
        taken.push(name.to_lowercase());
        names.push(name);
    }
    names
}

/// One table of the schema.
fn table(subjects: &[Subject], index: usize, limits: &Limits, notes: &mut Notes) -> Table {
    let subject = &subjects[index];
    let column_name = |&column: &usize| subject.source.columns[column].name.clone();
    let columns = columns::columns(subject, limits, notes);
    let renamed = (subject.source.name != subject.name).then(|| subject.source.name.clone());
    Table {
        name: subject.name.clone(),
        source: renamed,
        key: subject.key.iter().map(column_name).collect(),
        time: times::time(subject),
        columns,
        references: subject.links.iter().map(|link| link.reference(subjects, subject)).collect(),
    }
}
