//! Aggregates of children: the running totals of their columns, and the list of all aggregates.

use std::path::Path;

use super::children::Children;
use super::columns::ColumnSummary;
use super::records::numbers_of;
use super::references::first_relations;
use super::row_numbers::RowNumbers;
use super::scratch::Scratch;
use crate::container::ContainerWriter;
use crate::error::{Error, Result};
use crate::prepare::schema::{Aggregate, Schema, Window};
use crate::store::{AggregateMetadata, AggregateValue, Cell, fixed_point, section_names};

/// The values of one column, for totals over children.
pub(super) struct SummedColumn {
    name: String,
    /// The column's place in the table.
    place: u32,
    has_nulls: bool,
    /// [`fixed_point`] of each row's value, or [`NO_VALUE`].
    values: RowNumbers<i32>,
}

/// No value in fixed point is this one.
const NO_VALUE: i32 = i32::MIN;

/// Returns the columns of table `table` that any of its aggregates sums.
///
/// # Cost
/// Reads the staging file once more if there are any, and keeps 4 bytes for each value.
pub(super) fn summed_columns(
    schema: &Schema,
    table: &str,
    summaries: &[ColumnSummary],
    staged: &Path,
    scratch: &Scratch,
) -> Result<Vec<SummedColumn>> {
    let is_summed = |summary: &ColumnSummary| {
        let of_table = schema.aggregates.iter().filter(|aggregate| aggregate.table == table);
        of_table.flat_map(|aggregate| &aggregate.columns).any(|name| *name == summary.name)
    };
    let summed: Vec<_> =
        summaries.iter().enumerate().filter(|(_, summary)| is_summed(summary)).collect();
    let fixed = |cell: Option<Cell>| cell.and_then(fixed_point).unwrap_or(NO_VALUE);
    let values = numbers_of(staged, &summed, fixed, scratch)?;
    let columns = summed.into_iter().zip(values);
    Ok(columns
        .map(|((place, summary), values)| SummedColumn {
            name: summary.name.clone(),
            place: place as u32,
            has_nulls: summary.null_count > 0,
            values,
        })
        .collect())
}

/// Writes the running totals of an aggregate's columns over the `children` of its relation.
pub(super) fn write_totals(
    graph: &mut ContainerWriter,
    relation: usize,
    children: &Children,
    aggregate: &Aggregate,
    columns: &[SummedColumn],
) -> Result<()> {
    let mut own = columns.iter().filter(|column| aggregate.columns.contains(&column.name));
    own.try_for_each(|column| write_column(graph, relation, children, column))
}

fn write_column(
    graph: &mut ContainerWriter,
    relation: usize,
    children: &Children,
    column: &SummedColumn,
) -> Result<()> {
    let (sums, counts) = section_names(relation, column.place);
    let value = |child: u32| Some(column.values[child as usize]).filter(|&value| value != NO_VALUE);
    let mut sum = 0_i64;
    write_running(graph, &sums, children, |child| {
        sum += i64::from(value(child).unwrap_or(0));
        sum
    })?;
    if column.has_nulls {
        let mut count = 0_u32;
        write_running(graph, &counts, children, |child| {
            count += u32::from(value(child).is_some());
            count
        })?;
    }
    Ok(())
}

/// Writes 0 and then the running total after each child.
fn write_running<T: bytemuck::Pod>(
    graph: &mut ContainerWriter,
    section: &str,
    children: &Children,
    mut total: impl FnMut(u32) -> T,
) -> Result<()> {
    graph.begin(section)?;
    graph.write(bytemuck::bytes_of(&T::zeroed()))?;
    let mut totals = Vec::new();
    children.for_each(|rows| {
        totals.clear();
        totals.extend(rows.iter().map(|&child| total(child)));
        graph.write(bytemuck::cast_slice(&totals))
    })
}

/// Returns the aggregates of a schema; `place` finds a column of a table.
pub(super) fn aggregates(
    schema: &Schema,
    first_index: u32,
    place: impl Fn(usize, &str) -> Option<u32>,
) -> Result<Vec<AggregateMetadata>> {
    let missing = || Error::schema("the table, reference or column of an aggregate is not there");
    let first_relations = first_relations(schema);
    let mut all = Vec::new();
    for aggregate in &schema.aggregates {
        let Aggregate { table: name, reference, columns, windows } = aggregate;
        let child = schema.table(name).ok_or_else(missing)?;
        let table = &schema.tables[child];
        let number = table.reference(reference).ok_or_else(missing)?;
        let relation = (first_relations[child] + number) as u32;
        let mut add = |window_us, name, value| {
            let index = first_index + all.len() as u32;
            all.push(AggregateMetadata { name, index, relation, window_us, value });
        };
        for window in windows {
            let (window_us, when) = match window {
                Window::Ever => (None, String::new()),
                Window::Last(length) => (Some(length.0), format!(", last {length}")),
            };
            let scope = format!("{name} by {reference}{when}");
            add(window_us, format!("{scope}: count"), AggregateValue::Count);
            for column in columns {
                let mean =
                    AggregateValue::Mean { column: place(child, column).ok_or_else(missing)? };
                add(window_us, format!("{scope}: mean of {column}"), mean);
            }
        }
        if table.time.is_some() {
            let name = format!("{name} by {reference}: time since the last");
            add(None, name, AggregateValue::SinceLast);
        }
    }
    Ok(all)
}
