//! The columns and categories of a store: each gets its number, and its name is embedded.

use std::path::Path;

use half::f16;

use super::aggregates;
use super::columns::{ColumnSummary, Summary};
use super::layout::column_metadata;
use crate::container::{ContainerWriter, StringsWriter};
use crate::error::Result;
use crate::prepare::embed::Embedder;
use crate::prepare::schema::Schema;
use crate::store::{
    AggregateMetadata, CATEGORY_FILE, COLUMN_FILE, ColumnMetadata, FileMetadata, TableMetadata,
};

/// The columns and categories so far.
#[derive(Default)]
pub(super) struct Names {
    pub column_count: u32,
    pub category_count: u32,
    /// The names of all categories, in the order of their numbers.
    categories: Vec<String>,
    /// The text to embed for each column.
    columns: Vec<String>,
}

impl Names {
    /// Numbers a column of a table, and its categories.
    pub(super) fn add(&mut self, summary: &ColumnSummary, table: &str) -> Result<ColumnMetadata> {
        let column = column_metadata(summary, self.column_count, &mut self.category_count)?;
        self.add_numbered(summary, &summary.name, table);
        Ok(column)
    }

    /// Adds a column with the next number, whose categories have their numbers already.
    pub(super) fn add_numbered(&mut self, summary: &ColumnSummary, name: &str, table: &str) {
        self.column_count += 1;
        self.columns.push(name_of(name, table));
        if let Summary::Categorical(dictionary) = &summary.summary {
            self.categories.extend(dictionary.sorted().0.into_iter().map(str::to_owned));
        }
    }

    /// Adds the columns of a summary, which have the next numbers.
    pub(super) fn add_summary(&mut self, columns: &[ColumnMetadata], summary: &str) {
        self.column_count += columns.len() as u32;
        self.columns.extend(columns.iter().map(|column| name_of(&column.name, summary)));
    }

    /// Numbers the aggregates, after all columns.
    pub(super) fn add_aggregates(
        &mut self,
        schema: &Schema,
        tables: &[TableMetadata],
    ) -> Result<Vec<AggregateMetadata>> {
        let place = |table: usize, name: &str| {
            let columns = &tables[table].columns;
            columns.iter().position(|column| column.name == name).map(|place| place as u32)
        };
        let aggregates = aggregates::aggregates(schema, self.column_count, place)?;
        self.column_count += aggregates.len() as u32;
        self.columns.extend(aggregates.iter().map(|aggregate| in_words(&aggregate.name)));
        Ok(aggregates)
    }

    /// Embeds the names of columns, relations and categories, and writes their files.
    pub(super) fn write(
        &self,
        folder: &Path,
        embedder: &dyn Embedder,
        relations: &[String],
    ) -> Result<[FileMetadata; 2]> {
        let embed = |names: &[String]| -> Result<Vec<f16>> {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut vectors = vec![f16::ZERO; names.len() * embedder.dimension()];
            embedder.embed(&names, &mut vectors)?;
            Ok(vectors)
        };
        let mut columns = ContainerWriter::create(folder, COLUMN_FILE)?;
        columns.section("vectors", &embed(&self.columns)?)?;
        columns.section("relations", &embed(relations)?)?;
        let mut categories = ContainerWriter::create(folder, CATEGORY_FILE)?;
        categories.section("vectors", &embed(&self.categories)?)?;
        let mut names = StringsWriter::begin(&mut categories, "names")?;
        for name in &self.categories {
            names.push(&mut categories, name)?;
        }
        names.finish(&mut categories, "names")?;
        Ok([columns.finish()?, categories.finish()?])
    }
}

/// Returns the text to embed for a column, or for a relation, of a table.
pub(super) fn name_of(name: &str, table: &str) -> String {
    format!("{} of {}", in_words(name), in_words(table))
}

/// Returns the words of a name: `countryOfBirth_id` is "country of birth id".
pub(super) fn in_words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 8);
    let mut previous = ' ';
    for character in name.chars() {
        let starts_word = character.is_uppercase() && previous.is_lowercase();
        let ends_word = starts_word || !character.is_alphanumeric();
        if ends_word && !words.ends_with(' ') && !words.is_empty() {
            words.push(' ');
        }
        if character.is_alphanumeric() {
            words.extend(character.to_lowercase());
        }
        previous = character;
    }
    words.trim_end().to_owned()
}
