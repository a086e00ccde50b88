//! Runs all steps of a preparation, from the source to the files of the store.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::path::Path;

use super::chain::SpillWriter;
use super::first_pass::{Ingested, TableInput, TableRows, ingest};
use super::groups::{self, Buckets};
use super::keys::write_key;
use super::leaks;
use super::names::{Names, in_words, name_of};
use super::parts::Parts;
use super::references::{first_relations, link_of, looked_up, reading_order, time_order};
use super::remarks::{
    linked_rows_remark, undated_remarks, unknown_labels_remark, unresolved_remark,
};
use super::resolve::{Resolved, Resolver};
use super::row_keys::KeyLists;
use super::row_numbers::RowNumbers;
use super::scratch::Scratch;
use super::second_pass::{SecondPass, Undated, WrittenTable};
use super::tasks::{self, Derived};
use super::texts::{SpilledTexts, Texts};
use super::until::{DatedTable, restrict, statistics_until};
use crate::bytes::Digest;
use crate::container::{Container, ContainerWriter};
use crate::days::time_text;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::memory::memory_available;
use crate::prepare::names::{counted, listed};
use crate::prepare::options::{Options, Report};
use crate::prepare::schema::{CellTask, DerivedTask, Predict, Schema, Table, Task};
use crate::prepare::source::{Batches, Source};
use crate::prepare::values::to_texts;
use crate::store::{
    AggregateMetadata, ColumnMetadata, EmbeddingMetadata, FORMAT_VERSION, FileMetadata, GRAPH_FILE,
    METADATA_FILE, Metadata, RelationMetadata, StatisticsUntil, SummaryMetadata,
    Table as StoreTable, TableMetadata, TargetMetadata, TaskMetadata, table_file, task_file,
};

/// The state of a preparation.
pub(in crate::prepare) struct Preparation<'a> {
    source: &'a dyn Source,
    /// What has been read of the tables, if processes shared the reading.
    parts: Option<&'a Parts>,
    schema: &'a Schema,
    options: &'a Options<'a>,
    folder: &'a Path,
    scratch: Scratch,
    /// The keys of each table by which others look up its rows.
    keys: Vec<KeyLists>,
    names: Names,
    files: Vec<FileMetadata>,
    relations: Vec<RelationMetadata>,
    summaries: Vec<SummaryMetadata>,
    remarks: Vec<String>,
    statistics_until: Option<StatisticsUntil>,
    /// The number of rows without a time of each table.
    undated: Vec<Undated>,
}

impl<'a> Preparation<'a> {
    pub(in crate::prepare) fn new(
        source: &'a dyn Source,
        parts: Option<&'a Parts>,
        schema: &'a Schema,
        options: &'a Options<'a>,
        folder: &'a Path,
    ) -> Self {
        Self {
            source,
            parts,
            schema,
            options,
            folder,
            scratch: Scratch::new(folder.join("staging"), memory(options.memory)),
            keys: schema.tables.iter().map(|_| KeyLists::new()).collect(),
            names: Names::default(),
            files: Vec::new(),
            relations: Vec::new(),
            summaries: Vec::new(),
            remarks: Vec::new(),
            statistics_until: None,
            undated: Vec::new(),
        }
    }

    pub(in crate::prepare) fn run(mut self) -> Result<Report> {
        let mut texts = SpilledTexts::new(&self.scratch);
        let spill = SpillWriter::new(&self.scratch);
        let mut ingested = Vec::new();
        ingested.resize_with(self.schema.tables.len(), || None);
        for place in reading_order(self.schema) {
            let mut read = self.ingest(place, &spill, &mut texts)?;
            self.keys[place] = std::mem::take(&mut read.keys);
            ingested[place] = Some(read);
        }
        drop(spill);
        let mut ingested: Vec<_> = ingested.into_iter().flatten().collect();
        let (folder, progress) = (self.folder, self.options.progress);
        // Neither needs the other.
        let (texts, resolved) =
            rayon::join(|| texts.number(folder, progress), || self.resolve_tables(&mut ingested));
        let texts = texts?;
        let mut derived = self.read_tasks()?;
        // No later step looks up a key, and they take memory.
        self.keys.clear();
        let tables = self.write_tables(ingested, resolved?, &texts, &mut derived)?;
        let tasks = self.write_tasks(&tables, &derived)?;
        let aggregates = self.names.add_aggregates(self.schema, &tables)?;
        self.write_names(&tables)?;
        let text_count = texts.count();
        self.options.progress.begin("embedding texts", Some(u64::from(text_count)));
        let vectors = (self.options.embedder, self.options.text_vectors);
        self.files.push(texts.finish(vectors, self.options.progress)?);
        self.write_metadata(tables, aggregates, tasks, text_count)
    }

    /// The first pass over one table.
    fn ingest(
        &mut self,
        place: usize,
        spill: &SpillWriter,
        texts: &mut SpilledTexts,
    ) -> Result<Ingested> {
        let table = &self.schema.tables[place];
        self.options.progress.begin(&format!("reading {}", table.name), None);
        let looked_up = looked_up(self.schema, &table.name);
        let rows = |columns: &[String]| self.rows_of(table, columns);
        let of_parts = |columns: &[String]| match self.parts.and_then(|parts| parts.batches(place))
        {
            Some(batches) => Ok(TableRows::OfParts(batches)),
            None => rows(columns).map(TableRows::OfSource),
        };
        let input = TableInput {
            rows: &of_parts,
            place,
            table,
            limits: &self.schema.limits,
            looked_up: &looked_up,
            spill,
            scratch: &self.scratch,
            text_of: &|columns, row| text_of(rows(columns), row),
            folder: self.folder,
            progress: self.options.progress,
        };
        let read = ingest(input, texts).map_err(|error| match &table.labels_of {
            // Its rows are the task's.
            Some(task) => of_task(error, self.schema, task),
            None => error.context(format!("table {:?}", table.name)),
        })?;
        if read.duplicate_keys > 0 {
            self.remarks.push(format!(
                "table {:?}: a key repeats in {}; references link to the first row with the key",
                table.name,
                counted(read.duplicate_keys, "row")
            ));
        }
        Ok(read)
    }

    /// Returns the rows of a table, from the source or from the task whose labels they are.
    fn rows_of(&self, table: &Table, columns: &[String]) -> Result<Batches> {
        match self.schema.labelled_task(table) {
            Some(derived) => self.task_rows(derived, columns),
            None => self.source.read(table.source_name(), columns),
        }
    }

    fn read_tasks(&mut self) -> Result<HashMap<String, Derived>> {
        let mut derived_tasks = HashMap::new();
        for task in &self.schema.tasks {
            let Some(derived) = &task.derived else { continue };
            self.options.progress.begin(&format!("reading task {}", task.name), None);
            let read = self.read_task(task, derived);
            let read = read.map_err(|error| of_task(error, self.schema, &task.name))?;
            self.remarks.extend(unknown_labels_remark(task, derived, read.obs_times()));
            // What a person would see in a file of seeds.
            if let Some(predict) = &task.predict {
                self.remarks.push(format!("task {:?}: {}", task.name, read.describe_splits()));
                let empty = read.describe_empty_splits(predict);
                self.remarks.extend(empty.map(|words| format!("task {:?}: {words}", task.name)));
                self.remarks.extend(linked_rows_remark(task, predict));
            }
            derived_tasks.insert(task.name.clone(), read);
        }
        Ok(derived_tasks)
    }

    fn read_task(&self, task: &Task, derived: &DerivedTask) -> Result<Derived> {
        let batches = self.task_rows(derived, &tasks::columns_of(derived))?;
        let anchor = self.schema.table(&derived.anchor);
        let keys = anchor.and_then(|place| self.keys[place].get(&self.schema.tables[place].key));
        let keys = keys.ok_or_else(|| {
            Error::schema(format!(
                "the anchor {:?} has no key, so its rows cannot be looked up; give the table a key",
                derived.anchor
            ))
        })?;
        let text_of = |columns: &[String], row| text_of(self.task_rows(derived, columns), row);
        tasks::read(task, derived, batches, keys, &self.schema.limits, &text_of, &self.scratch)
    }

    /// Returns the rows of a derived task.
    fn task_rows(&self, derived: &DerivedTask, columns: &[String]) -> Result<Batches> {
        match (&derived.source, &derived.sql, self.options.sql) {
            (Some(source), _, _) => self.source.read(source, columns),
            (None, Some(query), Some(engine)) => {
                engine.query(query, columns, &self.scratch.folder().join("sql"))
            }
            (None, Some(_), None) => Err(Error::schema(
                "the task has sql, which only the Python package runs (with DuckDB); prepare with \
                 headwater.prepare or with the headwater command of `pip install headwater[sql]`, \
                 or give the rows of the task as a file",
            )),
            (None, None, _) => Err(Error::schema("expected source or sql, found neither")),
        }
    }

    /// Resolves all references, and finds the times of all rows; a table comes after the one whose time it
    /// inherits.
    fn resolve_tables(&self, ingested: &mut [Ingested]) -> Result<Resolved> {
        let schema = self.schema;
        let mut resolved = Resolved::new(schema);
        for place in time_order(schema) {
            // An interrupt ends it here, too.
            self.options.progress.advance(0)?;
            let table = &schema.tables[place];
            let rows = |columns: &[String]| self.rows_of(table, columns);
            let resolver = Resolver {
                schema,
                keys: &self.keys,
                scratch: &self.scratch,
                text_of: &|columns, row| text_of(rows(columns), row),
            };
            resolver
                .resolve(place, &mut ingested[place], &mut resolved)
                .context(|| format!("table {:?}", table.name))?;
        }
        Ok(resolved)
    }

    /// Runs the second pass.
    fn write_tables(
        &mut self,
        mut ingested: Vec<Ingested>,
        resolved: Resolved,
        texts: &Texts,
        derived_tasks: &mut HashMap<String, Derived>,
    ) -> Result<Vec<TableMetadata>> {
        let row_counts: Vec<u32> = ingested.iter().map(|table| table.row_count).collect();
        let rows = row_counts.iter().map(|&count| u64::from(count)).sum();
        let (schema, scratch) = (self.schema, self.scratch.clone());
        let Resolved { times, parents } = resolved;
        let mut second = SecondPass {
            schema,
            row_counts,
            first_relations: first_relations(schema),
            times,
            undated: vec![Undated::default(); schema.tables.len()],
            summaries: Vec::new(),
            graph: ContainerWriter::create(self.folder, GRAPH_FILE)?,
            scratch: &scratch,
        };
        self.statistics_until = statistics_until(schema, derived_tasks)?;
        let mut unscaled = self.restrict_statistics(&mut ingested, derived_tasks, &second.times)?;
        self.use_target_statistics(&mut ingested, derived_tasks, &mut unscaled);
        self.remarks.extend(self.unscaled_remark(&unscaled));
        self.options.progress.begin("writing rows and links", Some(rows));
        let columns = self.number_columns(&ingested)?;
        let mut written: Vec<_> = schema.tables.iter().map(|_| None).collect();
        let waiting = ingested.into_iter().zip(columns).zip(parents);
        let mut waiting: Vec<_> = waiting.map(Some).collect();
        for place in time_order(schema) {
            let Some(((read, columns), parents)) = waiting[place].take() else { continue };
            let table = second
                .write(place, read, columns, &parents, texts)
                .context(|| format!("table {:?}", schema.tables[place].name))?;
            self.options.progress.advance(u64::from(table.metadata.row_count))?;
            self.files.push(table.file);
            written[place] = Some((table.metadata, table.relations));
        }
        leaks::check(schema, derived_tasks, &second.times)?;
        let mut tables = Vec::new();
        self.undated = std::mem::take(&mut second.undated);
        for (place, (table, relations)) in written.into_iter().flatten().enumerate() {
            self.remarks.extend(undated_remarks(&table, self.undated[place]));
            self.remarks.extend(relations.iter().filter_map(|r| unresolved_remark(&table, r)));
            self.relations.extend(relations);
            tables.push(table);
        }
        self.write_summaries(&mut second, &mut tables)?;
        self.files.push(second.graph.finish()?);
        Ok(tables)
    }

    /// Takes what was not known by the end of training out of the statistics. Returns the names of the
    /// columns and targets of which too little was known to scale them.
    fn restrict_statistics(
        &mut self,
        ingested: &mut [Ingested],
        derived_tasks: &mut HashMap<String, Derived>,
        times: &[Option<RowNumbers<i64>>],
    ) -> Result<Vec<String>> {
        let mut all_unscaled = Vec::new();
        let Some(until) = &self.statistics_until else { return Ok(all_unscaled) };
        for task in &self.schema.tasks {
            let (Some(of), Some(read)) = (&task.derived, derived_tasks.get_mut(&task.name)) else {
                continue;
            };
            let horizon = of.horizon.map_or(0, |horizon| horizon.0);
            if !read.restrict(until.time_us.saturating_sub(horizon))? {
                all_unscaled.push(format!("the target of task {:?}", task.name));
            }
        }
        let rows = ingested.iter().map(|table| u64::from(table.row_count)).sum();
        self.options.progress.begin("statistics of the training period", Some(rows));
        for ((read, table), times) in ingested.iter_mut().zip(&self.schema.tables).zip(times) {
            let known_times = std::mem::take(&mut read.known_times);
            let dated = DatedTable { table, times: times.as_deref(), known_times: &known_times };
            let unscaled = restrict(read, until.time_us, &dated)
                .context(|| format!("table {:?}", table.name))?;
            read.known_times = known_times;
            all_unscaled.extend(unscaled.iter().map(|name| column_of(table, name)));
            self.options.progress.advance(u64::from(read.row_count))?;
        }
        Ok(all_unscaled)
    }

    /// Returns a remark about the columns that the training period cannot scale.
    fn unscaled_remark(&self, unscaled: &[String]) -> Option<String> {
        let until = self.statistics_until.as_ref().filter(|_| !unscaled.is_empty())?;
        Some(format!(
            "until {} too little is known to scale {}, so a model sees logarithms of their numbers, \
             their times in years, and none of their categories (all of them, if the column is a target): \
             {}",
            time_text(until.time_us),
            counted(unscaled.len() as u64, "column"),
            listed(unscaled.iter().map(String::as_str))
        ))
    }

    /// Writes the summaries as further tables, in the schema's order.
    fn write_summaries(
        &mut self,
        second: &mut SecondPass<'_>,
        tables: &mut Vec<TableMetadata>,
    ) -> Result<()> {
        let mut all = std::mem::take(&mut second.summaries);
        all.sort_unstable_by_key(|rows| rows.number);
        for rows in &all {
            let summary = &self.schema.summaries[rows.number];
            let columns = rows.column_metadata(self.names.column_count);
            self.names.add_summary(&columns, &summary.name());
            let (place, relation) = (tables.len(), self.relations.len());
            let WrittenTable { metadata, relations, file } =
                second.write_summary(place, relation, rows, columns, self.folder)?;
            self.summaries.push(SummaryMetadata {
                table: place as u32,
                of: self.schema.table(&summary.table).unwrap_or_default() as u32,
                columns: rows.of_columns.clone(),
                period: summary.period,
                relation: relation as u32,
            });
            self.relations.extend(relations);
            self.files.push(file);
            tables.push(metadata);
        }
        // Those of no parent come after all relations.
        let mut own = self.relations.len() as u32;
        for (summary, rows) in self.summaries.iter_mut().zip(&all) {
            if rows.parents.is_none() {
                summary.relation = own;
                own += 1;
            }
        }
        Ok(())
    }

    /// Gives labels the statistics of their task's targets, so that both have one scale, which no
    /// row after the train split changes where splits are recorded. Takes them from `unscaled`.
    fn use_target_statistics(
        &self,
        ingested: &mut [Ingested],
        derived_tasks: &HashMap<String, Derived>,
        unscaled: &mut Vec<String>,
    ) {
        for (read, table) in ingested.iter_mut().zip(&self.schema.tables) {
            let Some(task) = self.schema.labelled_task(table) else { continue };
            let targets = table.labels_of.as_ref().and_then(|name| derived_tasks.get(name));
            let column = read.columns.iter_mut().find(|column| column.name == task.target);
            // Labels of a later train split are no part of an earlier training, but a scale where that has none.
            let is_later = |targets: &&Derived| {
                let until = self.statistics_until.as_ref().map(|until| until.time_us);
                targets.train_end().zip(until).is_some_and(|(end, until)| end > until)
            };
            let name = column_of(table, &task.target);
            let targets = targets.filter(|targets| !is_later(targets) || unscaled.contains(&name));
            if let (Some(column), Some(targets)) = (column, targets) {
                column.summary = targets.summary.summary.clone();
                unscaled.retain(|column| *column != name);
            }
        }
    }

    /// Numbers the columns and categories of all tables, in the schema's order.
    fn number_columns(&mut self, ingested: &[Ingested]) -> Result<Vec<Vec<ColumnMetadata>>> {
        let of_tables = ingested.iter().zip(&self.schema.tables);
        let names = &mut self.names;
        of_tables
            .map(|(read, table)| {
                read.columns.iter().map(|column| names.add(column, &table.name)).collect()
            })
            .collect()
    }

    fn write_tasks(
        &mut self,
        tables: &[TableMetadata],
        derived_tasks: &HashMap<String, Derived>,
    ) -> Result<Vec<TaskMetadata>> {
        let mut tasks = Vec::new();
        let mut anchors = Anchors { folder: self.folder, tables, opened: HashMap::new() };
        for task in &self.schema.tasks {
            self.options.progress.begin(&format!("dividing seeds of task {}", task.name), None);
            let metadata = match (&task.cell, &task.derived, derived_tasks.get(&task.name)) {
                (Some(cell), _, _) => self.write_cell_task(task, cell, &mut anchors),
                (_, Some(derived), Some(read)) => {
                    self.write_task(task, derived, read, &mut anchors)
                }
                _ => Err(Error::schema("expected either cell or derived")),
            };
            tasks.push(metadata.context(|| format!("task {:?}", task.name))?);
        }
        Ok(tasks)
    }

    fn write_task(
        &mut self,
        task: &Task,
        derived: &DerivedTask,
        read: &Derived,
        anchors: &mut Anchors<'_>,
    ) -> Result<TaskMetadata> {
        let anchor = self.schema.table(&derived.anchor).unwrap_or_default();
        let (index, progress) = (self.names.column_count, self.options.progress);
        let (categories, rows) = (&mut self.names.category_count, anchors.table(anchor)?);
        let (column, file) = read.write(self.folder, task, index, categories, rows, progress)?;
        // The rows of a question about links are pairs; it asks about the rows of its anchor.
        let asked = task.predict.as_ref().map_or(&derived.anchor, |predict| &predict.anchor);
        self.names.add_numbered(&read.summary, &task.name, asked);
        self.files.push(file);
        Ok(TaskMetadata {
            name: task.name.clone(),
            anchor: anchor as u32,
            seed_count: read.seed_count(),
            sees_everything: task.sees_everything,
            strict: task.strict,
            target: TargetMetadata::Derived {
                column,
                recorded_split: derived.split.is_some(),
                horizon_us: derived.horizon.map(|horizon| horizon.0),
                link: link_of(self.schema, task),
            },
        })
    }

    fn write_cell_task(
        &mut self,
        task: &Task,
        cell: &CellTask,
        anchors: &mut Anchors<'_>,
    ) -> Result<TaskMetadata> {
        let missing = || Error::schema("the table or the column of the cell is not in the schema");
        let anchor = self.schema.table(&cell.table).ok_or_else(missing)?;
        let table = &anchors.tables[anchor];
        let place = |name: &String| {
            let place = table.columns.iter().position(|column| column.name == *name);
            place.map(|place| place as u32).ok_or_else(missing)
        };
        let column = place(&cell.column)?;
        let hide = cell.hide.iter().map(&place).collect::<Result<_>>()?;
        let undated = self.undated[anchor].always + self.undated[anchor].never;
        if undated > 0 && !task.sees_everything {
            return Err(Error::data(format!(
                "{undated} of {} rows of table {:?} have no time, so as seeds they would see the \
                 future; set sees_everything = true in this task to allow it",
                table.row_count, table.name
            )));
        }
        let (seed_count, rows) = (table.row_count, anchors.table(anchor)?);
        let mut file = ContainerWriter::create(self.folder, &task_file(&task.name))?;
        let buckets = Buckets::new(&task.name, rows);
        groups::write(&mut file, seed_count, false, self.options.progress, |row| {
            Ok((buckets.of(row)?, rows.row(row)?.is_null(column as usize)))
        })?;
        self.files.push(file.finish()?);
        Ok(TaskMetadata {
            name: task.name.clone(),
            anchor: anchor as u32,
            seed_count,
            sees_everything: task.sees_everything,
            strict: false,
            target: TargetMetadata::Cell { column, hide },
        })
    }

    /// Embeds the names of columns, relations and categories.
    fn write_names(&mut self, tables: &[TableMetadata]) -> Result<()> {
        self.options.progress.begin("embedding names", None);
        let table = |place: u32| &*tables[place as usize].name;
        let of_tables =
            self.relations.iter().map(|relation| name_of(&relation.name, table(relation.child)));
        let own = (self.summaries.iter())
            .filter(|summary| summary.relation as usize >= self.relations.len())
            .map(|summary| in_words(table(summary.table)));
        let relations: Vec<_> = of_tables.chain(own).collect();
        self.files.extend(self.names.write(self.folder, self.options.embedder, &relations)?);
        Ok(())
    }

    fn write_metadata(
        mut self,
        tables: Vec<TableMetadata>,
        aggregates: Vec<AggregateMetadata>,
        tasks: Vec<TaskMetadata>,
        text_count: u32,
    ) -> Result<Report> {
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut metadata = Metadata {
            format_version: FORMAT_VERSION,
            root: Digest([0; 32]),
            database: self.schema.database.clone(),
            statistics_until: self.statistics_until,
            embedding: EmbeddingMetadata {
                embedder: self.options.embedder.name(),
                dimension: self.options.embedder.dimension() as u32,
                column_count: self.names.column_count,
                category_count: self.names.category_count,
                text_count,
                text_vectors: self.options.text_vectors.is_some(),
                text_encoding: self.options.text_vectors.unwrap_or_default(),
            },
            tables,
            relations: self.relations,
            aggregates,
            summaries: self.summaries,
            tasks,
            files: self.files,
        };
        let text = metadata.encode()?;
        let path = self.folder.join(METADATA_FILE);
        fs::write(&path, &text).map_err(|e| Error::io(&path, "writing", e))?;
        let file_bytes: u64 = metadata.files.iter().map(|file| file.length).sum();
        Ok(Report {
            root: metadata.root,
            row_count: metadata.tables.iter().map(|t| u64::from(t.row_count)).sum(),
            link_count: metadata.relations.iter().map(|r| u64::from(r.edge_count)).sum(),
            text_count,
            store_bytes: file_bytes + text.len() as u64,
            remarks: self.remarks,
        })
    }
}

/// The tables of seeds, opened once they are written.
struct Anchors<'a> {
    folder: &'a Path,
    tables: &'a [TableMetadata],
    opened: HashMap<usize, StoreTable>,
}

impl Anchors<'_> {
    fn table(&mut self, place: usize) -> Result<&StoreTable> {
        Ok(match self.opened.entry(place) {
            Entry::Occupied(opened) => opened.into_mut(),
            Entry::Vacant(place_of) => {
                let metadata = &self.tables[place];
                let file = Container::open_alone(&self.folder.join(table_file(&metadata.name)))?;
                place_of.insert(StoreTable::open(&file, metadata)?)
            }
        })
    }
}

/// Returns the bytes of keys, links and the like that memory holds before they go to files: half of what a
/// preparation may have, which by default is half of what this process can have.
fn memory(asked: Option<u64>) -> u64 {
    // A system that does not tell has some memory all the same.
    const UNKNOWN: u64 = 1 << 30;
    asked.unwrap_or_else(|| memory_available().unwrap_or(2 * UNKNOWN) / 2) / 2
}

/// Returns the text of a key's columns in a row among all of them; none if they cannot be read once more.
fn text_of(rows: Result<Batches>, row: u64) -> Option<String> {
    let mut first = 0;
    for batch in rows.ok()? {
        let batch = batch.ok()?;
        let next = first + batch.num_rows() as u64;
        if row < next {
            let columns = batch.columns().iter().map(to_texts).collect::<Result<Vec<_>>>().ok()?;
            let mut text = String::new();
            write_key(&columns.iter().collect::<Vec<_>>(), (row - first) as usize, &mut text);
            return Some(text);
        }
        first = next;
    }
    None
}

/// Returns the name of a column among those of all tables.
fn column_of(table: &Table, name: &str) -> String {
    format!("{}.{name}", table.name)
}

/// Puts the task in front of an error of its rows; to a refusal of a declared task's query it adds the part
/// that a person wrote.
fn of_task(error: Error, schema: &Schema, name: &str) -> Error {
    let task = schema.tasks.iter().find(|task| task.name == name);
    let error = match task.and_then(|task| task.predict.as_ref()) {
        Some(Predict { of, condition: Some(condition), .. })
            if error.kind() == ErrorKind::Schema =>
        {
            error.followed_by(&format!(
                "; check where = {condition:?}: a condition of SQL on the columns of {of:?} that the \
                 schema keeps; `headwater sql` prints the whole query"
            ))
        }
        _ => error,
    };
    error.context(format!("task {name:?}"))
}
