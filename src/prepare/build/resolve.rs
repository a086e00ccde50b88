//! Between the passes: the parents of all rows, and their times.

use rayon::prelude::*;

use super::first_pass::Ingested;
use super::links::{self, Links, Parents};
use super::references::{referred_columns, time_parent};
use super::row_keys::{KeyLists, TextOf};
use super::row_numbers::RowNumbers;
use super::scratch::Scratch;
use crate::error::{Error, Result};
use crate::prepare::schema::{Reference, Schema, Table, Time};

/// What is known of the tables so far, by their places in the schema.
pub(super) struct Resolved {
    /// The times of the rows.
    pub times: Vec<Option<RowNumbers<i64>>>,
    /// The parents of each reference.
    pub parents: Vec<Vec<Parents>>,
}

impl Resolved {
    pub(super) fn new(schema: &Schema) -> Self {
        let of_each = || schema.tables.iter();
        Self {
            times: of_each().map(|_| None).collect(),
            parents: of_each().map(|_| Vec::new()).collect(),
        }
    }
}

/// Finds the parents and the times of a table's rows.
pub(super) struct Resolver<'a> {
    pub schema: &'a Schema,
    /// The keys of each table by which others look up its rows.
    pub keys: &'a [KeyLists],
    pub scratch: &'a Scratch,
    pub text_of: &'a TextOf<'a>,
}

impl Resolver<'_> {
    /// Resolves the references of table `place`, and finds the times of its rows, which come after those
    /// of the table whose times they inherit.
    pub(super) fn resolve(
        &self,
        place: usize,
        read: &mut Ingested,
        resolved: &mut Resolved,
    ) -> Result<()> {
        let parents = self.parents(place, std::mem::take(&mut read.links))?;
        resolved.times[place] = self.times(place, read, &parents, &resolved.times)?;
        resolved.parents[place] = parents;
        Ok(())
    }

    /// Returns the parents of each reference of table `place`.
    fn parents(&self, place: usize, links: Vec<Links>) -> Result<Vec<Parents>> {
        let Self { schema, keys: all_keys, scratch, text_of } = *self;
        let references = &schema.tables[place].references;
        let resolve = |(links, reference): (Links, &Reference)| {
            let parent = schema.table(&reference.to);
            let list = referred_columns(schema, reference);
            let keys = parent.and_then(|parent| all_keys[parent].get(&list));
            let keys = keys.ok_or_else(|| {
                Error::schema(format!(
                    "table {:?} has no key; give it a key, or name the columns with to_columns",
                    reference.to
                ))
            })?;
            links.resolve(keys, scratch)
        };
        let all: Vec<_> = links.into_par_iter().zip(references).map(resolve).collect();
        let checked = all.into_iter().zip(references).map(|(parents, reference)| {
            let parents = parents?;
            parents.check(reference, &schema.limits, text_of)?;
            Ok(parents)
        });
        checked.collect()
    }

    /// Returns the times of the rows of table `place`.
    fn times(
        &self,
        place: usize,
        read: &mut Ingested,
        parents: &[Parents],
        all_times: &[Option<RowNumbers<i64>>],
    ) -> Result<Option<RowNumbers<i64>>> {
        let table = &self.schema.tables[place];
        let Some(time) = &table.time else { return Ok(None) };
        let delay_us = time.delay.0;
        if time.column.is_some() {
            let times = read.times.take().unwrap_or(Vec::new().into());
            return links::column_times(times, delay_us, self.scratch).map(Some);
        }
        let parent_times = time_parent(self.schema, place).and_then(|p| all_times[p].as_ref());
        let parent_times = parent_times.ok_or_else(without_time)?;
        let through = through(table, time)?;
        links::inherited_times(&parents[through], parent_times, delay_us, self.scratch).map(Some)
    }
}

/// Returns the place of the reference through which a table inherits its time.
pub(super) fn through(table: &Table, time: &Time) -> Result<usize> {
    let through = time.through.as_deref().and_then(|name| table.reference(name));
    through.ok_or_else(without_time)
}

fn without_time() -> Error {
    Error::schema("the time is inherited from a table without a time")
}
