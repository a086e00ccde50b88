//! The second pass over a table: writes its records, and the children of its parents.

use std::fs;
use std::path::Path;

use super::children::Children;
use super::columns::Summary;
use super::first_pass::Ingested;
use super::layout::Layout;
use super::leaks::reveals_target;
use super::records::StagedTable;
use super::references::time_parent;
use super::resolve::through;
use super::row_numbers::RowNumbers;
use super::scratch::Scratch;
use super::summaries::SummaryRows;
use super::texts::Texts;
use super::{aggregates, links, records, summaries};
use crate::container::ContainerWriter;
use crate::error::{Error, Result};
use crate::prepare::schema::{Aggregate, Reference, Schema, Time};
use crate::store::{
    ALWAYS_VISIBLE, ColumnMetadata, FileMetadata, NEVER_VISIBLE, RelationMetadata, TableMetadata,
    TimeMetadata, table_file,
};

/// The state of the second pass over all tables.
pub(super) struct SecondPass<'a> {
    pub schema: &'a Schema,
    pub row_counts: Vec<u32>,
    pub first_relations: Vec<usize>,
    /// The times of the rows of each table, if a later step needs them.
    pub times: Vec<Option<RowNumbers<i64>>>,
    pub undated: Vec<Undated>,
    /// The rows of the summaries so far, which are written after all tables.
    pub summaries: Vec<SummaryRows>,
    pub graph: ContainerWriter,
    pub scratch: &'a Scratch,
}

/// A table that has been written.
pub(super) struct WrittenTable {
    pub metadata: TableMetadata,
    pub relations: Vec<RelationMetadata>,
    pub file: FileMetadata,
}

/// The numbers of rows of a table without a known time.
#[derive(Clone, Copy, Default)]
pub(super) struct Undated {
    /// The number of rows that are always visible.
    pub always: u64,
    /// The number of rows that only a seed with `sees_everything` sees.
    pub never: u64,
}

impl Undated {
    fn count(times: Option<&[i64]>, rows: u32) -> Self {
        let Some(times) = times else { return Self { always: u64::from(rows), never: 0 } };
        let count = |wanted| times.iter().filter(|&&time| time == wanted).count() as u64;
        Self { always: count(ALWAYS_VISIBLE), never: count(NEVER_VISIBLE) }
    }
}

impl SecondPass<'_> {
    /// Writes the records of table `place`, whose references have these parents, and the children of its
    /// references.
    pub(super) fn write(
        &mut self,
        place: usize,
        read: Ingested,
        columns: Vec<ColumnMetadata>,
        parents: &[links::Parents],
        texts: &Texts,
    ) -> Result<WrittenTable> {
        let table = &self.schema.tables[place];
        let is_cell = |time: &Time| {
            let column = time.column.as_ref();
            column.is_some_and(|name| read.columns.iter().any(|column| column.name == *name))
        };
        let records_time = table.time.as_ref().is_some_and(|time| !is_cell(time));
        let layout =
            Layout::new(columns, table.references.len(), records_time, &table.known_times())?;
        let time = self.time_metadata(place, &read, &layout)?;
        let times = self.times[place].take();
        let recorded = times.as_deref().filter(|_| records_time);
        let text_places = (0..read.columns.len())
            .filter(|&place| matches!(read.columns[place].summary, Summary::Text));
        let numbers = texts.of_table(place, text_places.collect());
        let staged = StagedTable {
            table,
            columns: &read.columns,
            staged: &read.staged,
            times: times.as_deref(),
            parents,
            scratch: self.scratch,
        };
        let (mut file, schema, offsets) = (read.file, self.schema, &layout.parent_offsets);
        let write_rows = || -> Result<_> {
            let known = &read.known_times;
            records::write_records(&mut file, &staged, numbers, &layout, recorded, known)?;
            Ok((file.finish()?, summaries::summarise(schema, &staged)?))
        };
        // They go to files of their own.
        let (rows, relations) =
            rayon::join(write_rows, || self.write_relations(&staged, place, offsets));
        let (file, summaries) = rows?;
        let relations = relations?;
        self.summaries.extend(summaries);
        fs::remove_file(&read.staged).map_err(|e| Error::io(&read.staged, "removing", e))?;
        self.undated[place] = Undated::count(times.as_deref(), read.row_count);
        self.times[place] = times.filter(|_| self.is_time_needed(place));
        let metadata = TableMetadata {
            name: table.name.clone(),
            row_count: read.row_count,
            stride: layout.stride,
            null_offset: layout.null_offset,
            time,
            key: table.key.clone(),
            columns: layout.columns,
        };
        Ok(WrittenTable { metadata, relations, file })
    }

    /// Writes the children of the references of table `place`, whose records have the parents at `offsets`.
    fn write_relations(
        &mut self,
        of: &StagedTable<'_>,
        place: usize,
        offsets: &[u32],
    ) -> Result<Vec<RelationMetadata>> {
        let (table, times, scratch) = (of.table, of.times, self.scratch);
        let summed =
            aggregates::summed_columns(self.schema, &table.name, of.columns, of.staged, scratch)?;
        let (schema, row_counts) = (self.schema, &self.row_counts);
        let is_of_pairs = schema.is_of_pairs(table);
        let parent_of = |reference: &Reference| schema.table(&reference.to).unwrap_or_default();
        let children_of = |number: usize| -> Option<Result<Children>> {
            let parent_rows = row_counts[parent_of(table.references.get(number)?)];
            Some(match is_of_pairs {
                true => Children::none(parent_rows, times, scratch),
                false => Children::find(&of.parents[number], parent_rows, times, scratch),
            })
        };
        let mut next = children_of(0);
        let mut relations = Vec::new();
        for (number, (reference, parents)) in table.references.iter().zip(of.parents).enumerate() {
            let Some(children) = next else { break };
            let children = children?;
            let index = self.first_relations[place] + number;
            let name = reference.name();
            let graph = &mut self.graph;
            let written;
            (written, next) =
                rayon::join(|| children.write(graph, index), || children_of(number + 1));
            written?;
            let is_own = |a: &&Aggregate| a.table == table.name && a.reference == name;
            if let Some(aggregate) = schema.aggregates.iter().find(is_own) {
                aggregates::write_totals(&mut self.graph, index, &children, aggregate, &summed)?;
            }
            relations.push(RelationMetadata {
                name,
                child: place as u32,
                parent: parent_of(reference) as u32,
                to_columns: reference.to_columns.clone(),
                parent_offset: offsets[number],
                edge_count: children.count,
                null_count: parents.null_count,
                unresolved_count: parents.unresolved_count,
            });
        }
        Ok(relations)
    }

    /// Writes a summary as table `place` of the store, whose relation to parents, if it has one, has the
    /// number `relation`.
    pub(super) fn write_summary(
        &mut self,
        place: usize,
        relation: usize,
        rows: &SummaryRows,
        columns: Vec<ColumnMetadata>,
        folder: &Path,
    ) -> Result<WrittenTable> {
        let summary = &self.schema.summaries[rows.number];
        let name = summary.name();
        let layout = Layout::new(columns, usize::from(rows.parents.is_some()), true, &[])?;
        let mut file = ContainerWriter::create(folder, &table_file(&name))?;
        let cells: Vec<_> = rows.columns.iter().map(|column| &*column.cells).collect();
        records::write_numbers(&mut file, &layout, &rows.ends, rows.parents.as_deref(), &cells)?;
        file.section("identities", &rows.identities())?;
        let mut relations = Vec::new();
        if let (Some(by), Some(parents)) = (&summary.by, &rows.parents) {
            let parent = self.parent_of(&summary.table, by)?;
            let (links, times) = (links::Parents::of_rows(parents.clone()), Some(&*rows.ends));
            let (graph, parent_rows) = (&mut self.graph, self.row_counts[parent]);
            Children::find(&links, parent_rows, times, self.scratch)?.write(graph, relation)?;
            relations.push(RelationMetadata {
                name: by.clone(),
                child: place as u32,
                parent: parent as u32,
                to_columns: Vec::new(),
                parent_offset: layout.parent_offsets[0],
                edge_count: links.link_count,
                null_count: 0,
                unresolved_count: 0,
            });
        }
        let metadata = TableMetadata {
            name,
            row_count: rows.ends.len() as u32,
            stride: layout.stride,
            null_offset: layout.null_offset,
            time: Some(TimeMetadata::Period { offset: layout.time_offset }),
            key: Vec::new(),
            columns: layout.columns,
        };
        Ok(WrittenTable { metadata, relations, file: file.finish()? })
    }

    /// Returns the table that a table refers to.
    fn parent_of(&self, table: &str, reference: &str) -> Result<usize> {
        let table = self.schema.table(table).map(|place| &self.schema.tables[place]);
        let parent = table
            .and_then(|table| self.schema.table(&table.references[table.reference(reference)?].to));
        parent.ok_or_else(|| Error::schema(format!("there is no reference {reference:?}")))
    }

    /// Whether another table inherits the time of table `place`, or a task has its targets in it.
    fn is_time_needed(&self, place: usize) -> bool {
        let inherits = |other| time_parent(self.schema, other) == Some(place);
        let mut derived = self.schema.tasks.iter().filter_map(|task| task.derived.as_ref());
        (0..self.schema.tables.len()).any(inherits)
            || derived.any(|task| reveals_target(self.schema, &self.schema.tables[place], task))
    }

    /// Returns where the store keeps the times of the rows of table `place`.
    fn time_metadata(
        &self,
        place: usize,
        read: &Ingested,
        layout: &Layout,
    ) -> Result<Option<TimeMetadata>> {
        let table = &self.schema.tables[place];
        let Some(time) = &table.time else { return Ok(None) };
        let (delay_us, offset) = (time.delay.0, layout.time_offset);
        let Some(column) = &time.column else {
            let relation = (self.first_relations[place] + through(table, time)?) as u32;
            return Ok(Some(TimeMetadata::Inherited { relation, delay_us, offset }));
        };
        Ok(Some(match read.columns.iter().position(|c| c.name == *column) {
            Some(place) => TimeMetadata::Column { column: place as u32, delay_us },
            None => TimeMetadata::Ignored { column: column.clone(), delay_us, offset },
        }))
    }
}
