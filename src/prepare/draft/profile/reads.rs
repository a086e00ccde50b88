//! Reads columns of a source again: to compare rows with keys, and lists of columns with each other.

use arrow_array::{Array, ArrayRef};

use super::distinct::{Distinct, Keep, canonical_integer, hash_integer, hash_text, mix};
use super::integers;
use crate::error::Result;
use crate::prepare::source::{Source, SourceColumn};
use crate::prepare::values::to_texts;

/// Counts the rows of a column whose value, after `rewrite`, is not among `keys`.
pub(in crate::prepare::draft) fn unresolved_rows(
    source: &dyn Source,
    table: &str,
    column: &SourceColumn,
    keys: &Distinct,
    rewrite: fn(&str) -> &str,
) -> Result<u64> {
    let mut count = 0;
    for batch in source.read(table, std::slice::from_ref(&column.name))? {
        let texts = to_texts(batch?.column(0))?;
        let missing = |text: &&str| !keys.contains(hash_text(rewrite(text)));
        count += texts.iter().flatten().filter(missing).count() as u64;
    }
    Ok(count)
}

/// Returns for each list of columns whether its values are unique; the columns are never NULL.
///
/// # Cost
/// Reads the columns once, or until each list has repeated. Keeps eight bytes for each row and each
/// list that has not.
pub(in crate::prepare::draft) fn unique_lists(
    source: &dyn Source,
    table: &str,
    columns: &[SourceColumn],
    lists: &[Vec<usize>],
) -> Result<Vec<bool>> {
    let mut read: Vec<usize> = lists.concat();
    read.sort_unstable();
    read.dedup();
    let names: Vec<_> = read.iter().map(|&column| columns[column].name.clone()).collect();
    let mut distinct_lists: Vec<_> = lists.iter().map(|_| Some(Distinct::new(Keep::All))).collect();
    for batch in source.read(table, &names)? {
        let batch = batch?;
        let hashes = batch.columns().iter().map(hashes).collect::<Result<Vec<_>>>()?;
        for (list, entry) in lists.iter().zip(&mut distinct_lists) {
            let Some(distinct) = entry else { continue };
            let parts: Vec<_> = read
                .iter()
                .zip(&hashes)
                .filter(|(c, _)| list.contains(c))
                .map(|(_, h)| h)
                .collect();
            distinct.make_room(batch.num_rows())?;
            for row in 0..batch.num_rows() {
                distinct.add(parts.iter().fold(0, |hash, part| mix(hash ^ part[row])));
            }
            if distinct.repeats {
                *entry = None;
            }
        }
        if distinct_lists.iter().all(Option::is_none) {
            break;
        }
    }
    let is_unique = |distinct: &mut Distinct| {
        distinct.settle();
        !distinct.repeats
    };
    Ok(distinct_lists.iter_mut().map(|entry| entry.as_mut().is_some_and(is_unique)).collect())
}

/// Returns the hash of each row's value.
fn hashes(array: &ArrayRef) -> Result<Vec<u64>> {
    if let Some(integers) = integers(array)? {
        return Ok(integers.values().iter().map(|&integer| hash_integer(integer)).collect());
    }
    Ok(to_texts(array)?.iter().map(|text| text.map_or(0, hash_text)).collect())
}

/// Reads lists of columns of one table, to compare them with a key of several columns.
pub(in crate::prepare::draft) struct Lists<'a> {
    pub(in crate::prepare::draft) source: &'a dyn Source,
    pub(in crate::prepare::draft) table: &'a str,
    pub(in crate::prepare::draft) columns: &'a [SourceColumn],
}

/// How many rows have a list of values that is a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::prepare::draft) struct Compared {
    /// The rows without NULL.
    pub(in crate::prepare::draft) rows: u64,
    /// The rows whose values are not a key.
    pub(in crate::prepare::draft) missing: u64,
    /// The rows whose values would not be a key with all parts but the first from another row.
    pub(in crate::prepare::draft) mixed: u64,
}

impl Lists<'_> {
    /// Calls `each` for every row in which no column of a list is NULL: with the position of the list,
    /// the hash of its values, and that of its first value with the others from another row.
    fn visit(&self, lists: &[Vec<usize>], mut each: impl FnMut(usize, u64, u64)) -> Result<()> {
        let mut read: Vec<usize> = lists.concat();
        read.sort_unstable();
        read.dedup();
        let names: Vec<_> = read.iter().map(|&column| self.columns[column].name.clone()).collect();
        let position = |column| read.binary_search(column).unwrap_or_default();
        for batch in self.source.read(self.table, &names)? {
            let batch = batch?;
            let hashes = batch.columns().iter().map(hashes).collect::<Result<Vec<_>>>()?;
            let nulls: Vec<_> = batch.columns().iter().map(Array::logical_nulls).collect();
            for (place, list) in lists.iter().enumerate() {
                let parts: Vec<_> = list.iter().map(position).collect();
                let is_null = |row: usize| {
                    parts.iter().any(|&part| nulls[part].as_ref().is_some_and(|n| n.is_null(row)))
                };
                let rows: Vec<_> = (0..batch.num_rows()).filter(|&row| !is_null(row)).collect();
                let hash = |first: usize, others: usize| {
                    let row = |place: usize| if place == 0 { first } else { others };
                    let values = parts.iter().enumerate().map(|(i, &part)| hashes[part][row(i)]);
                    values.fold(0, |hash, value| mix(hash ^ value))
                };
                for (number, &row) in rows.iter().enumerate() {
                    // Another row without regard to the order of the rows.
                    let other = rows[(mix(number as u64) % rows.len() as u64) as usize];
                    each(place, hash(row, row), hash(row, other));
                }
            }
        }
        Ok(())
    }

    /// Returns the values of a list of columns.
    pub(in crate::prepare::draft) fn distinct(&self, list: &[usize]) -> Result<Distinct> {
        let mut distinct = Distinct::new(Keep::All);
        self.visit(&[list.to_vec()], |_, hash, _| distinct.add(hash))?;
        distinct.settle();
        Ok(distinct)
    }

    /// Returns the share of the integers of a column, of those greater than the least, that follow the
    /// next lesser one in a row with the same values of `others`.
    pub(in crate::prepare::draft) fn following_share(
        &self,
        others: &[usize],
        number: usize,
    ) -> Result<f64> {
        let name = |&column: &usize| self.columns[column].name.clone();
        let names: Vec<_> = others.iter().chain([&number]).map(name).collect();
        let mut rows = Vec::new();
        for batch in self.source.read(self.table, &names)? {
            let batch = batch?;
            let (last, first) = batch.columns().split_last().expect("a number was read");
            let hashes = first.iter().map(hashes).collect::<Result<Vec<_>>>()?;
            let numbers = to_texts(last)?;
            for (row, number) in numbers.iter().enumerate() {
                let Some(number) = number.and_then(canonical_integer) else { continue };
                let group = hashes.iter().fold(0, |hash, part| mix(hash ^ part[row]));
                rows.push((group, number));
            }
        }
        rows.sort_unstable();
        rows.dedup();
        let least = rows.iter().map(|&(_, number)| number).min();
        let follows =
            rows.windows(2).filter(|two| two[0].0 == two[1].0 && two[0].1 + 1 == two[1].1);
        let greater = rows.iter().filter(|&&(_, number)| Some(number) > least).count();
        Ok(follows.count() as f64 / greater.max(1) as f64)
    }

    /// Counts for each list the rows whose values are not among `keys`.
    pub(in crate::prepare::draft) fn compare(
        &self,
        lists: &[Vec<usize>],
        keys: &Distinct,
    ) -> Result<Vec<Compared>> {
        let mut found = vec![Compared::default(); lists.len()];
        self.visit(lists, |list, hash, mixed| {
            let counts = &mut found[list];
            counts.rows += 1;
            counts.missing += u64::from(!keys.contains(hash));
            counts.mixed += u64::from(!keys.contains(mixed));
        })?;
        Ok(found)
    }
}

/// Returns of the first `most` rows the hash of `key`, and that of `column` unless it is NULL.
pub(in crate::prepare::draft) fn parent_rows(
    source: &dyn Source,
    table: &str,
    (key, column): (&SourceColumn, &SourceColumn),
    most: usize,
) -> Result<Vec<(u64, Option<u64>)>> {
    let mut rows = Vec::new();
    for batch in source.read(table, &[key.name.clone(), column.name.clone()])? {
        let batch = batch?;
        let (keys, values) = (hashes(batch.column(0))?, hashes(batch.column(1))?);
        let nulls = batch.column(1).logical_nulls();
        let value = |row: usize| match &nulls {
            Some(nulls) if nulls.is_null(row) => None,
            _ => Some(values[row]),
        };
        rows.extend((0..batch.num_rows()).map(|row| (keys[row], value(row))));
        if rows.len() >= most {
            break;
        }
    }
    Ok(rows)
}
