//! Drafts a schema: guesses keys, references, types, times and tasks, and notes the reasons.
//!
//! The guesses come from declarations, names and values, and are cautious: a key is verified to be
//! unique, a reference to refer to existing keys, and an uncertain guess is left out with a note, or
//! written as a comment.
//! `prepare` accepts the drafted schema unedited; only a person can tell whether it fits the
//! meaning of the data.

mod aggregates;
mod by_value;
mod columns;
mod composite;
mod containment;
mod evidence;
mod hierarchy;
mod keys;
mod name_tokens;
mod pairs;
mod profile;
mod questions;
mod references;
mod render;
mod subject;
mod tasks;
mod time_names;
mod times;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::prepare::names::shortened;
use crate::prepare::schema::{Limits, Schema, Table};
use crate::prepare::source::{Source, SourceTable};
use crate::process::pool;
use name_tokens::{key_rank, may_number_rows, names_rows, names_same_table, shared_prefix, tokens};
use profile::{Keep, Profile, Storage, profile};
use subject::{Notes, Place, Subject};

use render::Doubtful;

pub use render::Draft;

/// The reason for which a view is left out.
const VIEW: &str = "it is a view: its copies of cells of other tables could reveal targets; name \
                    it in the schema to use it";

/// Drafts a schema for `source`, with the database name `name`.
///
/// Calls `progress` with the name of each table whose rows have been read.
///
/// # Determinism
/// Depends on the source's data alone; not on the thread count.
///
/// # Cost
/// Reads every row once. Reads again, once or twice: columns of which only a sample of the values was
/// kept or a few values are not keys, if they may be references, and columns that may together be a
/// key or refer to one. Keeps eight bytes for each distinct value of columns that are named like keys
/// or references, for each value of columns of short texts or integers in which no value occurs twice,
/// for at most 4,096 values of each other column, for each row of a key of several columns, and of at
/// most six lists of columns that may together be a key. Compares each column with each column of
/// unique values, most of them by their ranges and at most 16 values.
///
/// # Errors
/// `Io` and `Data` when the source cannot be read; `Data` when no table has rows and a usable
/// column.
///
/// # Example
/// ```
/// use headwater::prepare::{Options, draft::draft, embed::HashingEmbedder, prepare, source};
/// use headwater::progress::Silent;
/// use headwater::store::{Store, TextEncoding};
///
/// let folder = tempfile::tempdir()?;
/// let (data, out) = (folder.path().join("users.csv"), folder.path().join("shop.db"));
/// std::fs::write(&data, "id,age\n1,30\n2,41\n")?;
/// let source = source::open(&data)?;
/// let drafted = draft(&*source, "shop", &|_table| Ok(()))?;
/// assert_eq!(drafted.schema.tables[0].key, ["id"]);
/// let (embedder, progress) = (&HashingEmbedder::new(16), &Silent);
/// let (text_vectors, threads, memory) = (Some(TextEncoding::F16), None, None);
/// let options = Options { embedder, text_vectors, threads, memory, sql: None, progress };
/// prepare(&*source, &drafted.schema, &out, &options)?;
/// assert_eq!(Store::open(&out)?.tables().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn draft(
    source: &dyn Source,
    name: &str,
    progress: &(dyn Fn(&str) -> Result<()> + Sync),
) -> Result<Draft> {
    // The threads that come by themselves panic where none can be started.
    pool(None)?.install(|| draft_on_threads(source, name, progress))
}

fn draft_on_threads(
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
        let why = |(table, reason): (String, &str)| format!("{table:?}: {reason}");
        let reasons: Vec<_> = left_out.into_iter().map(why).collect();
        return Err(Error::data(format!(
            "{} has no table with rows and a usable column: {}",
            source.describe(),
            shortened(&reasons)
        )));
    }
    let mut notes = Notes::new();
    keys::find_keys(&mut subjects, &limits, &mut notes);
    references::find_references(source, &limits, &mut subjects, &mut notes)?;
    by_value::find_by_value(source, &limits, &mut subjects, &mut notes)?;
    hierarchy::find_hierarchies(source, &mut subjects, &mut notes)?;
    composite::find_composite_keys(source, &mut subjects, &mut notes)?;
    pairs::find_pairs(source, &limits, &mut subjects, &mut notes)?;
    let derived = tasks::find_derived(&subjects);
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
    let aggregates = aggregates::find(&subjects, &kept, &tables, &mut notes);
    let taken: Vec<_> = tasks.iter().map(|task| task.name.clone()).collect();
    let (questions, unasked) = questions::find(&subjects, &kept, &tables, &taken);
    let database = name.to_owned();
    let summaries = Vec::new();
    let schema = Schema {
        database,
        statistics_until: None,
        limits,
        events: None,
        tables,
        aggregates,
        summaries,
        tasks,
    };
    schema.check()?;
    let doubtful = doubtful(&subjects, &kept);
    let source = source.describe();
    Ok(Draft { schema, source, notes, doubtful, questions, unasked, left_out })
}

/// Reads every table except the views once.
fn examine(
    source: &dyn Source,
    views: &[String],
    limits: &Limits,
    progress: &(dyn Fn(&str) -> Result<()> + Sync),
) -> Result<Vec<Subject>> {
    let mut tables = source.tables()?;
    tables.retain(|table| !table.columns.is_empty() && !views.contains(&table.name));
    if tables.is_empty() {
        let only_views =
            if views.is_empty() { "" } else { ", only views; name the views in a schema" };
        return Err(Error::data(format!(
            "{} has no table with a column{only_views}",
            source.describe()
        )));
    }
    let names = safe_names(&tables);
    let table_tokens: Vec<_> = tables.iter().map(|table| tokens(&table.name)).collect();
    let examined = tables.into_par_iter().zip(names).enumerate().map(|(index, (table, name))| {
        let mut column_tokens: Vec<_> = table.columns.iter().map(|c| tokens(&c.name)).collect();
        if let Some(prefix) = shared_prefix(&column_tokens) {
            for tokens in &mut column_tokens {
                tokens.retain(|token| *token != prefix);
            }
        }
        let place = |name: &str| table.columns.iter().position(|c| c.name == name);
        let declared: Vec<_> = (table.key.iter())
            .chain(table.references.iter().flat_map(|r| &r.columns))
            .filter_map(|name| place(name))
            .collect();
        let keep_all_values = |column: usize| {
            let tokens = &column_tokens[column];
            declared.contains(&column)
                || names_rows(tokens)
                || names_same_table(tokens)
                || key_rank(tokens, &table_tokens[index]).is_some()
                || table_tokens.contains(tokens)
                || may_number_rows(tokens)
        };
        let keep = |name: &str| match place(name).is_some_and(keep_all_values) {
            true => Keep::All,
            false => Keep::Unique(limits.categories as usize),
        };
        let profiles = profile(source, &table.name, &table.columns, |c| keep(&c.name))?;
        progress(&table.name)?;
        let tokens = table_tokens[index].clone();
        let (key, references, doubtful) = (vec![], vec![], vec![]);
        Ok(Subject {
            source: table,
            name,
            tokens,
            column_tokens,
            profiles,
            key,
            references,
            doubtful,
            time: None,
        })
    });
    examined.collect()
}

/// Removes the tables without rows or usable columns, which a store cannot have.
fn leave_out(subjects: &mut Vec<Subject>) -> Vec<(String, &'static str)> {
    let reason = |subject: &Subject| {
        // The types that `columns::guess` ignores.
        let is_kept = |p: &Profile| match p.storage {
            Storage::Other => false,
            Storage::Real => p.all(p.numbers),
            _ => p.present() > 0,
        };
        if subject.profiles.iter().any(is_kept) {
            return None;
        }
        // Columns without a semantic type are not read, so their rows are not counted.
        let is_empty = |p: &Profile| p.rows == 0 && p.storage != Storage::Other;
        Some(match subject.profiles.iter().any(is_empty) {
            true => "it has no rows",
            false => "each column is always NULL or has values without a semantic type",
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

/// Returns table names that are valid file names and differ from each other in any case.
fn safe_names(tables: &[SourceTable]) -> Vec<String> {
    let mut taken: Vec<String> = Vec::new();
    let mut names = Vec::new();
    for table in tables {
        let safe = |c: char| if c.is_control() || matches!(c, '/' | '\\') { '_' } else { c };
        let mut name: String = table.name.chars().map(safe).collect();
        name.drain(..name.len() - name.trim_start_matches('.').len());
        // The name of a cell task consists of this name and a column's.
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

/// Returns the doubtful references between the tables of the schema, with the reasons.
fn doubtful(subjects: &[Subject], kept: &[usize]) -> Doubtful {
    let mut doubtful = Doubtful::new();
    for subject in kept.iter().map(|&index| &subjects[index]) {
        for (found, reason) in subject.doubtful.iter().filter(|(found, _)| kept.contains(&found.to))
        {
            let reference = found.to_schema(subjects, subject);
            doubtful.entry(subject.name.clone()).or_default().push((reference, reason.clone()));
        }
    }
    doubtful
}

/// Returns one table of the schema.
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
        references: subject
            .references
            .iter()
            .map(|found| found.to_schema(subjects, subject))
            .collect(),
        labels_of: None,
    }
}
