//! A database on disk, memory-mapped: the store that `headwater prepare` writes.
#![doc = include_str!("FORMAT.md")]

mod cells;
mod changed;
mod check;
pub(crate) mod counts;
mod groups;
mod metadata;
mod pairs;
mod period;
mod relation;
mod scale;
mod semantic;
mod table;
mod task;
#[cfg(test)]
mod tests;
mod time;
mod totals;
mod vectors;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::f16;

use crate::bytes::Digest;
use crate::container::{
    Container, Section, Strings, check_no_other_files, file_of, open_folder, read_ahead_if_larger,
    warm,
};
use crate::error::{Context, Error, Result};
use crate::memory::memory_available;
use vectors::TextSections;

pub use crate::bytes::identity_of;
pub use crate::container::{FileMetadata, Kind, METADATA_FILE};
pub(crate) use cells::{CategoryPlace, CellPlace};
pub(crate) use changed::Change;
pub(crate) use groups::{GroupSet, Groups, RUN};
pub use metadata::{
    AggregateMetadata, AggregateValue, ColumnMetadata, ColumnStats, EmbeddingMetadata,
    FORMAT_VERSION, KnownMetadata, LinkMetadata, Metadata, RelationMetadata, StatisticsUntil,
    SummaryMetadata, TableMetadata, TargetMetadata, TaskMetadata, TimeMetadata,
};
pub use pairs::{PairHistory, Pairs};
pub use period::Period;
pub use relation::{Children, Relation};
pub use scale::{Scale, Scorer};
pub use semantic::SemanticType;
pub use table::{Cell, NO_PARENT, Row, Table};
pub(crate) use task::target_bytes;
pub use task::{Seed, Task};
pub(crate) use time::is_time;
pub use time::{ALWAYS_VISIBLE, NEVER_VISIBLE, SEES_EVERYTHING, is_visible};
pub use totals::{Total, fixed_point};
pub use vectors::{TextEncoding, TextVectors};
#[cfg(feature = "prepare")]
pub(crate) use {
    groups::{GROUP_COUNTS, GROUPS, group_count},
    metadata::label_table_name,
    time::known_from,
    totals::section_names,
    vectors::quantise,
};

pub(crate) const GRAPH_FILE: &str = "graph.bin";
pub(crate) const COLUMN_FILE: &str = "column_embeddings.bin";
pub(crate) const CATEGORY_FILE: &str = "categorical_embeddings.bin";
pub(crate) const TEXT_FILE: &str = "text_embeddings.bin";

/// Returns the path of a table's file in the store's folder.
pub(crate) fn table_file(name: &str) -> String {
    format!("tables/{name}.bin")
}

/// Returns the path of a task's file in the store's folder.
pub(crate) fn task_file(name: &str) -> String {
    format!("tasks/{name}.bin")
}

/// A database on disk, memory-mapped and read-only.
///
/// Processes that open the same store share its pages. All methods take `&self` and may be called
/// from many threads.
///
/// # Example
/// ```
/// use headwater::store::Store;
///
/// let store = Store::open("checkpoints/store-v4-small".as_ref())?;
/// store.verify(&|_bytes_read| Ok(()))?;
/// let customers = store.table("customers")?;
/// let row = customers.require("ann")?;
/// assert_eq!(customers.key(row)?, "ann");
/// # Ok::<(), headwater::Error>(())
/// ```
pub struct Store {
    path: PathBuf,
    metadata: Metadata,
    metadata_bytes: u64,
    containers: Vec<Container>,
    tables: Vec<Table>,
    relations: Vec<Relation>,
    tasks: Vec<Task>,
    column_vectors: Section,
    relation_vectors: Section,
    category_vectors: Section,
    category_names: Strings,
    text_vectors: Option<TextSections>,
    texts: Strings,
}

impl Store {
    /// Opens the store in the folder `path`.
    ///
    /// Checks the metadata, each file's length and section table, and all offsets. The contents are
    /// checked block by block on first read, or all at once by [`Store::verify`].
    ///
    /// A store that does not fit into three quarters of the memory that this process can have is read
    /// block by block, ahead of their use ([`Store::is_larger_than_memory`]).
    ///
    /// # Cost
    /// Milliseconds. Reads 32 bytes for each block of data.
    ///
    /// # Errors
    /// `Io` when a file cannot be read; `NotOurs`, `Version` or `Corrupt` when the folder is not an
    /// intact store of this format.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_within(path, memory_available())
    }

    /// Opens the store with so many bytes of memory, if that is known.
    pub(crate) fn open_within(path: &Path, memory: Option<u64>) -> Result<Self> {
        let (metadata, metadata_bytes, containers) = open_folder::<Metadata>(path, memory)?;
        metadata.check().context(|| format!("{}", path.join(METADATA_FILE).display()))?;
        Self::assemble(path, metadata, metadata_bytes, containers)
    }

    fn assemble(
        path: &Path,
        metadata: Metadata,
        metadata_bytes: u64,
        containers: Vec<Container>,
    ) -> Result<Self> {
        let file = |name: &str| file_of(path, &metadata.files, &containers, name);
        let tables = metadata
            .tables
            .iter()
            .map(|table| Table::open(file(&table_file(&table.name))?, table))
            .collect::<Result<Vec<_>>>()?;
        let graph = file(GRAPH_FILE)?;
        let relations = (metadata.relations.iter().enumerate())
            .map(|(index, relation)| {
                let (child, parent) = (relation.child as usize, relation.parent as usize);
                let timed = metadata.tables[child].time.is_some();
                let parent_rows = metadata.tables[parent].row_count;
                let columns = &metadata.tables[child].columns;
                let summed = totals::summed_columns(&metadata.aggregates, index).into_iter();
                let summed = summed.map(|column| (column, &columns[column as usize]));
                Relation::open(graph, index, relation, parent_rows, timed, summed)
            })
            .collect::<Result<Vec<_>>>()?;
        let tasks = metadata
            .tasks
            .iter()
            .map(|task| {
                let container = file(&task_file(&task.name))?;
                Task::open(container, task, metadata.target_column(task).semantic())
            })
            .collect::<Result<Vec<_>>>()?;
        let embedding = &metadata.embedding;
        let row_bytes = u64::from(embedding.dimension) * 2;
        // Two such counts multiplied can pass even 64 bits; no section is that long.
        let vectors = |count: u32| u64::from(count).saturating_mul(row_bytes);
        let relation_count =
            (metadata.relations.len() + metadata.global_summaries().count()) as u32;
        let (columns, categories, texts) =
            (file(COLUMN_FILE)?, file(CATEGORY_FILE)?, file(TEXT_FILE)?);
        Ok(Self {
            column_vectors: columns.section("vectors", vectors(embedding.column_count))?,
            relation_vectors: columns.section("relations", vectors(relation_count))?,
            category_vectors: categories.section("vectors", vectors(embedding.category_count))?,
            category_names: Strings::open(categories, "names", embedding.category_count as usize)?,
            text_vectors: match embedding.text_vectors {
                true => {
                    let EmbeddingMetadata { text_encoding, text_count, dimension, .. } = *embedding;
                    Some(TextSections::open(texts, text_encoding, text_count, dimension)?)
                }
                false => None,
            },
            texts: Strings::open(texts, "texts", embedding.text_count as usize)?,
            path: path.to_path_buf(),
            tables,
            relations,
            tasks,
            metadata,
            metadata_bytes,
            containers,
        })
    }

    /// Reads every byte of the store and checks it against its digest.
    ///
    /// Calls `progress` with the number of bytes read since its last call; its error stops the check.
    ///
    /// # Errors
    /// `Corrupt`, naming the file and the place, when any bit of any file changed, or when the folder
    /// holds a file that is not part of the store.
    pub fn verify(&self, progress: &dyn Fn(u64) -> Result<()>) -> Result<()> {
        for container in &self.containers {
            container.verify(progress)?;
        }
        self.tasks.iter().try_for_each(|task| task.groups().verify())?;
        check_no_other_files(&self.path, &["tables", "tasks"], &self.metadata.files)
    }

    /// Returns the folder of the store.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the metadata: what the store holds.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the root: the identity of the data.
    #[must_use]
    pub fn root(&self) -> Digest {
        self.metadata.root
    }

    /// Returns the total number of bytes of the files.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.metadata_bytes + self.containers.iter().map(Container::file_bytes).sum::<u64>()
    }

    /// Whether the files did not fit into three quarters of the memory that this process could have when
    /// the store was opened, or when a sampler was made of it, with its other stores.
    ///
    /// Then only the blocks that are needed are read, ahead of their use and many at a time; results are the
    /// same.
    #[must_use]
    pub fn is_larger_than_memory(&self) -> bool {
        self.containers.iter().any(Container::reads_ahead)
    }

    /// Whether the store is a changed copy, which an audit makes: it is in memory whole.
    pub(crate) fn is_copy(&self) -> bool {
        self.containers.iter().any(Container::is_copy)
    }

    /// Reads the whole store into memory, in sequence, so that the first batches wait for no disk.
    /// Returns the number of bytes that were read.
    ///
    /// Calls `progress` with the number of bytes read since its last call; its error stops the reading.
    ///
    /// # Errors
    /// `LimitExceeded` when the store is larger than the memory that this process can have; `Io` when a
    /// file cannot be read.
    pub fn warm(&self, progress: &dyn Fn(u64) -> Result<()>) -> Result<u64> {
        warm(&self.path, &self.containers, memory_available(), progress)
    }

    /// Reads `stores`, which are sampled together, block by block and ahead of their use if so many bytes of
    /// memory, where that is known, do not hold them all.
    pub(crate) fn expect_together(stores: &[Arc<Self>], memory: Option<u64>) {
        let is_on_disk = |store: &&Arc<Self>| !store.is_copy();
        // The system keeps the pages of a store once, however often it is opened.
        let mut places = BTreeSet::new();
        let place = |store: &Self| fs::canonicalize(&store.path).unwrap_or(store.path.clone());
        let different = stores.iter().filter(is_on_disk);
        let different = different.filter(|store| places.insert(place(store)));
        let bytes = different.map(|store| store.file_bytes()).sum();
        let files = stores.iter().filter(is_on_disk).flat_map(|store| &store.containers);
        read_ahead_if_larger(memory, bytes, files);
    }

    /// Begins a batch, which decides what is read ahead.
    pub(crate) fn begin_batch(&self) {
        // All files share the decision.
        if let Some(container) = self.containers.first() {
            container.begin_batch();
        }
    }

    /// Returns the tables, in the order of the schema.
    #[must_use]
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Returns the table called `name`.
    ///
    /// # Errors
    /// `InvalidArgument` when there is none; the message lists the tables.
    pub fn table(&self, name: &str) -> Result<&Table> {
        self.tables.iter().find(|t| t.metadata().name == name).ok_or_else(|| {
            let names: Vec<_> = self.tables.iter().map(|t| t.metadata().name.as_str()).collect();
            Error::invalid(format!("no table is called {name:?}; name one of {}", names.join(", ")))
        })
    }

    /// Returns the relations, in the order of the schema.
    #[must_use]
    pub fn relations(&self) -> &[Relation] {
        &self.relations
    }

    /// Returns a relation's name with its child table: `orders.customer_id`. Only relations by the
    /// same columns to several tables share a name. That of a summary without parents is the name of
    /// its table.
    ///
    /// # Panics
    /// When there is no such relation.
    #[must_use]
    pub fn relation_name(&self, relation: usize) -> String {
        let table = |table: u32| &self.tables[table as usize].metadata().name;
        match self.relations.get(relation).map(Relation::metadata) {
            Some(relation) => format!("{}.{}", table(relation.child), relation.name),
            None => table(self.summary_of(relation).table).clone(),
        }
    }

    /// Returns a relation's name without its child table: `customer_id`.
    ///
    /// # Panics
    /// When there is no such relation.
    #[must_use]
    pub fn short_relation_name(&self, relation: usize) -> String {
        match self.relations.get(relation) {
            Some(relation) => relation.metadata().name.clone(),
            None => self.relation_name(relation),
        }
    }

    /// Returns the summary of a relation after those of the tables.
    fn summary_of(&self, relation: usize) -> &SummaryMetadata {
        let summary = self.metadata.global_summaries().nth(relation - self.relations.len());
        summary.expect("the store has this relation")
    }

    /// Returns the tasks, in the order of the schema.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Returns the task called `name`.
    ///
    /// # Errors
    /// `InvalidArgument` when there is none; the message lists the tasks.
    pub fn task(&self, name: &str) -> Result<&Task> {
        self.tasks.iter().find(|t| t.metadata().name == name).ok_or_else(|| {
            let names: Vec<_> = self.tasks.iter().map(|t| t.metadata().name.as_str()).collect();
            Error::invalid(format!("no task is called {name:?}; name one of {}", names.join(", ")))
        })
    }

    /// Returns the vectors of the column names, in order: the tables' columns, the derived tasks'
    /// targets, the aggregates.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub fn column_embeddings(&self) -> Result<&[f16]> {
        self.column_vectors.slice(0, self.column_vectors.len() / 2)
    }

    /// Returns the vectors of the relations' names, in order, then those of the summaries that are of
    /// no parent.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub fn relation_embeddings(&self) -> Result<&[f16]> {
        self.relation_vectors.slice(0, self.relation_vectors.len() / 2)
    }

    /// Returns the vectors of the categories, in order.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub fn categorical_embeddings(&self) -> Result<&[f16]> {
        self.category_vectors.slice(0, self.category_vectors.len() / 2)
    }

    /// Returns the name of category `index` of the categorical embeddings.
    ///
    /// # Errors
    /// `Corrupt` when damaged or out of range.
    pub fn category(&self, index: u32) -> Result<&str> {
        self.category_names.get(index as usize)
    }

    /// Returns the characters of text `index`.
    ///
    /// # Errors
    /// `Corrupt` when damaged or out of range.
    pub fn text(&self, index: u32) -> Result<&str> {
        self.texts.get(index as usize)
    }

    /// Returns the vectors of all texts, in order; none when the store has no text vectors.
    ///
    /// # Cost
    /// Reads and checks all of them.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub fn text_embeddings(&self) -> Result<Option<TextVectors<'_>>> {
        self.text_vectors.as_ref().map(TextSections::all).transpose()
    }

    /// Prefetches the vector of text `index`.
    #[inline]
    pub(crate) fn prefetch_text_embedding(&self, index: u32) {
        if let Some(vectors) = &self.text_vectors {
            vectors.prefetch(index);
        }
    }

    /// Returns the vector of text `index`; none when the store has no text vectors.
    ///
    /// # Errors
    /// `Corrupt` when damaged or out of range.
    pub fn text_embedding(&self, index: u32) -> Result<Option<TextVectors<'_>>> {
        self.text_vectors.as_ref().map(|vectors| vectors.one(index)).transpose()
    }
}
