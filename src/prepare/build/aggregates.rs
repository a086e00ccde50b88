//! Aggregates of children: the running totals of their columns, and the list of all aggregates.

use std::path::Path;

use super::columns::ColumnSummary;
use super::records::{MeanReader, staged};
use super::references::first_relations;
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
    values: Vec<i32>,
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
    staged_path: &Path,
) -> Result<Vec<SummedColumn>> {
    let is_summed = |summary: &ColumnSummary| {
        let of_table = schema.aggregates.iter().filter(|aggregate| aggregate.table == table);
        of_table.flat_map(|aggregate| &aggregate.columns).any(|name| *name == summary.name)
    };
    let summed = (0..).zip(summaries).filter(|(_, summary)| is_summed(summary));
    let mut columns = summed
        .map(|(place, summary)| {
            let (name, has_nulls) = (summary.name.clone(), summary.null_count > 0);
            let column = SummedColumn { name, place, has_nulls, values: Vec::new() };
            Ok((column, MeanReader::new(summary)?))
        })
        .collect::<Result<Vec<_>>>()?;
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    for batch in staged(staged_path)? {
        let batch = batch?;
        for (column, reader) in &mut columns {
            let array = batch.column(column.place as usize);
            let fixed = |cell: Option<Cell>| cell.and_then(fixed_point).unwrap_or(NO_VALUE);
            reader.read(array, &mut column.values, fixed);
        }
    }
    Ok(columns.into_iter().map(|(column, _)| column).collect())
}

/// Writes the running totals of an aggregate's columns over the `children` of its relation.
pub(super) fn write_totals(
    graph: &mut ContainerWriter,
    relation: usize,
    children: &[u32],
    aggregate: &Aggregate,
    columns: &[SummedColumn],
) -> Result<()> {
    let mut own = columns.iter().filter(|column| aggregate.columns.contains(&column.name));
    own.try_for_each(|column| write_column(graph, relation, children, column))
}

fn write_column(
    graph: &mut ContainerWriter,
    relation: usize,
    children: &[u32],
    column: &SummedColumn,
) -> Result<()> {
    let values = || {
        let values = children.iter().map(|&child| column.values[child as usize]);
        values.map(|value| (value != NO_VALUE).then_some(value))
    };
    let (sums, counts) = section_names(relation, column.place);
    let sum = |sum: &mut i64, value: Option<i32>| {
        *sum += i64::from(value.unwrap_or(0));
        Some(*sum)
    };
    write_running(graph, &sums, values().scan(0, sum))?;
    if column.has_nulls {
        let count = |count: &mut u32, value: Option<i32>| {
            *count += u32::from(value.is_some());
            Some(*count)
        };
        write_running(graph, &counts, values().scan(0, count))?;
    }
    Ok(())
}

/// Writes 0 and then the running totals.
fn write_running<T: bytemuck::Pod>(
    graph: &mut ContainerWriter,
    section: &str,
    totals: impl Iterator<Item = T>,
) -> Result<()> {
    const AT_A_TIME: usize = 8192;
    graph.begin(section)?;
    let mut buffer = vec![T::zeroed()];
    for total in totals {
        buffer.push(total);
        if buffer.len() == AT_A_TIME {
            graph.write(bytemuck::cast_slice(&buffer))?;
            buffer.clear();
        }
    }
    graph.write(bytemuck::cast_slice(&buffer))
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
