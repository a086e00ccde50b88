//! The plain twin of summaries: a calendar that counts days, and loops over all rows for each period.

use std::collections::BTreeMap;

use headwater::prepare::schema::{Summary, Table};
use headwater::store::{
    Cell, ColumnStats, NEVER_VISIBLE, Period, Scale, SemanticType, Store, SummaryMetadata,
    TimeMetadata,
};

use crate::database::{Database, Value};
use crate::twin::{known_by_then, parents, scaling, statistics_until, times, z_score};
use crate::{DIMENSION, plain_vector};

const DAY: i64 = 86_400_000_000;

/// The end of the period that a time of the years from 1600 on is in, by counting days.
fn end(period: Period, time: i64) -> i64 {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // 1600-01-01 was a Saturday.
    let (mut day, mut weekday, mut year, mut month) = (-135_140, 5, 1600, 0);
    loop {
        let february = 28 + i64::from(is_leap(year));
        let length = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month];
        for _ in 0..length {
            day += 1;
            weekday = (weekday + 1) % 7;
            if period == Period::Day && day * DAY > time
                || period == Period::Week && weekday == 0 && day * DAY > time
            {
                return day * DAY;
            }
        }
        month += 1;
        let ends = match period {
            Period::Month => true,
            Period::Quarter => month % 3 == 0,
            _ => period == Period::Year && month == 12,
        };
        if ends && day * DAY > time {
            return day * DAY;
        }
        if month == 12 {
            (year, month) = (year + 1, 0);
        }
    }
}

/// The rows of each period and parent; parent 0 where the summary is by no reference.
fn groups(
    database: &Database,
    summary: &Summary,
    table: &Table,
) -> BTreeMap<(i64, u32), Vec<usize>> {
    let reference = summary.by.as_ref().map(|by| &table.references[table.reference(by).unwrap()]);
    let parents = reference.map(|reference| parents(database, table, reference));
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (row, time) in times(database, table).into_iter().enumerate() {
        let parent = parents.as_ref().map_or(Some(0), |parents| parents[row]);
        if let (Some(time), Some(parent)) = (time.filter(|&time| time != NEVER_VISIBLE), parent) {
            groups.entry((end(summary.period, time), parent)).or_default().push(row);
        }
    }
    groups
}

/// The columns of a summary: their names, and their numbers for the rows of a group.
type Column<'a> = (String, Box<dyn Fn(&[usize]) -> Option<f32> + 'a>);

fn columns<'a>(database: &'a Database, summary: &Summary, table: &'a Table) -> Vec<Column<'a>> {
    let count = |rows: &[usize]| Some(((1.0 + rows.len() as f64).log2() / 8.0) as f32);
    let mut all: Vec<Column<'a>> = vec![("count".to_owned(), Box::new(count))];
    for name in &summary.columns {
        let values = database.column(table.source_name(), name);
        if table.columns[name].semantic == SemanticType::Boolean {
            let share = |rows: &[usize]| {
                let known = rows.iter().filter(|&&row| values[row] != Value::Null).count() as f64;
                let truths = rows.iter().filter(|&&row| values[row] == Value::Truth(true)).count();
                (known > 0.0).then(|| (truths as f64 / known) as f32)
            };
            all.push((format!("{name}: mean"), Box::new(share)));
            continue;
        }
        let known = table.columns[name].known.as_ref();
        let counted = known_by_then(database, table, known, values);
        let scale = scaling(&counted, statistics_until(database).is_some());
        let numbers = |rows: &[usize]| -> Vec<f64> {
            let known = rows.iter().filter_map(|&row| match values[row] {
                Value::Number(number) => Some(number),
                Value::Integer(integer) => Some(integer as f64),
                _ => None,
            });
            known.collect()
        };
        let mean = move |rows: &[usize]| {
            let fixed = |number: f64| f64::from(z_score(number, scale)).clamp(-1000.0, 1000.0);
            let numbers = numbers(rows);
            let sum: i128 = (numbers.iter())
                .map(|&number| (fixed(number) * 1_048_576.0).round_ties_even() as i128)
                .sum();
            let count = numbers.len() as f64;
            (count > 0.0).then(|| (sum as f64 / (count * 1_048_576.0)) as f32)
        };
        all.push((format!("{name}: mean"), Box::new(mean)));
        for (quantile, hundredths) in [("0.1", 10), ("0.5", 50), ("0.9", 90)] {
            // The least number that so many of them are not above.
            let of = move |rows: &[usize]| {
                let numbers = numbers(rows);
                let reaches = |&number: &f64| {
                    let below = numbers.iter().filter(|&&other| other <= number).count();
                    below * 100 >= numbers.len() * hundredths
                };
                let least = numbers.iter().copied().filter(reaches).min_by(f64::total_cmp);
                least.map(|number| z_score(number, scale))
            };
            all.push((format!("{name}: quantile {quantile}"), Box::new(of)));
        }
    }
    all
}

/// Compares the summaries with those of the schema: the last tables and relations of the store.
pub(crate) fn compare(database: &Database, store: &Store) {
    let (tables, summaries) = (&database.schema.tables, &database.schema.summaries);
    let metadata = store.metadata();
    assert_eq!(store.tables().len(), tables.len() + summaries.len());
    assert_eq!(metadata.summaries.len(), summaries.len());
    let by_reference = summaries.iter().filter(|summary| summary.by.is_some()).count();
    let mut by = metadata.relations.len() - by_reference;
    let mut own = metadata.relations.len();
    for (number, (summary, found)) in summaries.iter().zip(&metadata.summaries).enumerate() {
        let relation = if summary.by.is_some() { &mut by } else { &mut own };
        assert_eq!(found.relation as usize, *relation);
        *relation += 1;
        assert_eq!(found.table as usize, tables.len() + number);
        compare_summary(database, store, summary, found);
    }
    let vectors = store.relation_embeddings().unwrap();
    assert_eq!(vectors.len(), own * DIMENSION);
    for found in metadata.global_summaries() {
        let name = &metadata.tables[found.table as usize].name;
        let vector = &vectors[found.relation as usize * DIMENSION..][..DIMENSION];
        assert_eq!(vector, plain_vector(name));
        assert_eq!(store.relation_name(found.relation as usize), *name);
    }
}

fn compare_summary(database: &Database, store: &Store, summary: &Summary, found: &SummaryMetadata) {
    let table = database.table(&summary.table);
    let rows = &store.tables()[found.table as usize];
    let by = summary.by.as_ref().map_or_else(String::new, |by| format!(" and {by}"));
    let metadata = rows.metadata();
    assert_eq!(metadata.name, format!("{} by {}{by}", table.name, summary.period.name()));
    assert!(matches!(metadata.time, Some(TimeMetadata::Period { .. })));
    assert_eq!((&metadata.key, found.period), (&vec![], summary.period));
    let of = &store.tables()[found.of as usize].metadata();
    assert_eq!(of.name, table.name);
    let names = found.columns.iter().map(|&place| &of.columns[place as usize].name);
    assert!(names.eq(&summary.columns));

    let groups = groups(database, summary, table);
    let columns = columns(database, summary, table);
    assert_eq!(metadata.columns.len(), columns.len());
    assert_eq!(rows.row_count() as usize, groups.len());
    for ((row, ((end, parent), of_group)), at) in (0..).zip(&groups).zip(0..) {
        let record = rows.row(row).unwrap();
        assert_eq!(record.time(), *end);
        if summary.by.is_some() {
            let relation = &store.relations()[found.relation as usize];
            assert_eq!(relation.parent(&record).unwrap(), Some(*parent));
            let own = groups.keys().enumerate().filter(|(_, (_, other))| other == parent);
            let own: Vec<_> = own.map(|(row, (end, _))| (row as u32, *end)).collect();
            let children = relation.children(*parent).unwrap();
            assert!(own.iter().map(|(row, _)| row).eq(children.rows().unwrap()));
            assert!(own.iter().map(|(_, end)| end).eq(children.times().unwrap().unwrap()));
        }
        for (place, (name, number)) in columns.iter().enumerate() {
            assert_eq!(metadata.columns[place].name, *name);
            let expected = number(of_group);
            let cell = match record.cell(place) {
                Cell::Null => None,
                Cell::Numerical(number) => Some(number),
                other => panic!("{other:?}"),
            };
            assert_eq!(cell.is_some(), expected.is_some(), "{name} of row {at}");
            // The twin's logarithm and share may differ by a rounding.
            let slack = if name.contains("quantile") { 0.0 } else { 2e-6 };
            let (cell, expected) = (cell.unwrap_or(0.0), expected.unwrap_or(0.0));
            assert!((cell - expected).abs() <= slack * expected.abs(), "{name} of row {at}");
        }
    }
    for (place, (name, number)) in columns.iter().enumerate() {
        let column = &metadata.columns[place];
        let nulls = groups.values().filter(|of_group| number(of_group).is_none()).count();
        assert_eq!(column.null_count, nulls as u64, "{name}");
        let counts = || groups.values().map(|of_group| of_group.len() as u32);
        let (min, max) = (counts().min().unwrap(), counts().max().unwrap());
        let base = name.rsplit_once(": ").map(|(base, _)| base);
        let summarised = of.columns.iter().find(|column| Some(&*column.name) == base);
        let expected = match summarised.map(|column| &column.stats) {
            None => ColumnStats::Count { min, max },
            Some(ColumnStats::Boolean { .. }) => ColumnStats::Numerical {
                scale: Scale::Linear,
                mean: 0.0,
                std: 1.0,
                min: 0.0,
                max: 1.0,
            },
            // A mean has the scale of the numbers, so that it compares with them.
            Some(stats) => stats.clone(),
        };
        assert_eq!(column.stats, expected, "{name}");
    }
}
