//! The plain twin of a store: its expected content, by loops over the values.

use std::collections::BTreeSet;

use headwater::prepare::schema::{Aggregate, Known, Reference, Table, Window};
use headwater::store::{
    ALWAYS_VISIBLE, Cell, ColumnMetadata, ColumnStats, NEVER_VISIBLE, SEES_EVERYTHING, Scale,
    SemanticType, Store, TextVectors, fixed_point,
};

use crate::database::{Database, Value};
use crate::{DIMENSION, plain_vector, summaries};

/// Returns the mean and the standard deviation, by a loop over the values.
pub(crate) fn moments<'a>(values: impl Iterator<Item = &'a Value>) -> (f64, f64) {
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        let number = match value {
            Value::Number(number) => *number,
            Value::Integer(integer) | Value::Time(integer) => *integer as f64,
            _ => continue,
        };
        count += 1.0;
        let distance = number - mean;
        mean += distance / count;
        squares += distance * (number - mean);
    }
    if count == 0.0 { (0.0, 0.0) } else { (mean, (squares / count).sqrt()) }
}

/// How a column's numbers become z-scores: whether from their logarithms, less a mean, over a deviation.
pub(crate) type Scaling = (bool, f64, f64);

/// Returns the scaling by the values that count; `is_restricted` if others of the column may not.
pub(crate) fn scaling(counted: &[Value], is_restricted: bool) -> Scaling {
    let (mean, std) = moments(counted.iter());
    if !is_restricted || is_wide(counted) {
        return (false, mean, std);
    }
    let least = numbers(counted).into_iter().min_by(f64::total_cmp).unwrap_or(0.0);
    (true, logarithm(least), 1.0)
}

/// Whether values differ by more than rounding, and by a normal number of 32 bits.
fn is_wide(values: &[Value]) -> bool {
    let greatest = numbers(values).into_iter().fold(0.0, |greatest: f64, n| greatest.max(n.abs()));
    let std = moments(values.iter()).1;
    std > 8.0 * f64::EPSILON * greatest && std >= f64::from(f32::MIN_POSITIVE)
}

fn numbers(values: &[Value]) -> Vec<f64> {
    let number = |value: &Value| match value {
        Value::Number(number) => Some(*number),
        Value::Integer(integer) | Value::Time(integer) => Some(*integer as f64),
        _ => None,
    };
    values.iter().filter_map(number).collect()
}

fn logarithm(value: f64) -> f64 {
    if value < 0.0 { -libm::log1p(-value) } else { libm::log1p(value) }
}

pub(crate) fn z_score(value: f64, (is_log, mean, std): Scaling) -> f32 {
    let place = if is_log { logarithm(value) } else { value };
    if std == 0.0 { 0.0 } else { ((place - mean) / std) as f32 }
}

/// The text of a key of several columns; none where a part is NULL.
pub(crate) fn key_text(parts: &[&Value]) -> Option<String> {
    let parts = parts.iter().map(|part| part.text()).collect::<Option<Vec<_>>>()?;
    if let [part] = &parts[..] {
        return Some(part.clone());
    }
    let escape = |part: &String| part.replace('\\', "\\\\").replace('|', "\\|");
    Some(parts.iter().map(escape).collect::<Vec<_>>().join("|"))
}

/// The keys of a table's rows by the columns `names`.
pub(crate) fn keys(database: &Database, table: &Table, names: &[String]) -> Vec<Option<String>> {
    let columns: Vec<_> =
        names.iter().map(|name| database.column(table.source_name(), name)).collect();
    (0..database.row_count(table.source_name()))
        .map(|row| key_text(&columns.iter().map(|column| &column[row]).collect::<Vec<_>>()))
        .collect()
}

/// Returns the parent of each row, by a search of all rows.
pub(crate) fn parents(
    database: &Database,
    table: &Table,
    reference: &Reference,
) -> Vec<Option<u32>> {
    let parent = database.table(&reference.to);
    let target = if reference.to_columns.is_empty() { &parent.key } else { &reference.to_columns };
    let targets = keys(database, parent, target);
    let find = |key: Option<String>| {
        let key = key?;
        targets.iter().position(|t| t.as_ref() == Some(&key)).map(|row| row as u32)
    };
    keys(database, table, &reference.columns).into_iter().map(find).collect()
}

/// The time of each row; none for a row that is always visible.
pub(crate) fn times(database: &Database, table: &Table) -> Vec<Option<i64>> {
    let rows = database.row_count(table.source_name());
    let Some(time) = &table.time else { return vec![None; rows] };
    let given: Vec<Option<i64>> = match (&time.column, &time.through) {
        (Some(column), _) => {
            let time = |value: &Value| match value {
                Value::Time(time) => Some(*time),
                _ => None,
            };
            database.column(table.source_name(), column).iter().map(time).collect()
        }
        (None, Some(through)) => {
            let reference = &table.references[table.reference(through).unwrap()];
            let lent = times(database, database.table(&reference.to));
            let parents = parents(database, table, reference);
            let parts = reference.columns.iter();
            let parts: Vec<_> =
                parts.map(|name| database.column(table.source_name(), name)).collect();
            // A missing parent differs from no reference, and so does a partial key.
            let time = |(row, parent): (usize, Option<u32>)| match parent {
                Some(parent) => lent[parent as usize],
                None if parts.iter().any(|part| part[row] != Value::Null) => Some(NEVER_VISIBLE),
                None => None,
            };
            parents.into_iter().enumerate().map(time).collect()
        }
        (None, None) => panic!("a time from nowhere"),
    };
    let delayed = |time: i64| time.saturating_add(time_delay(table)).min(NEVER_VISIBLE);
    given.into_iter().map(|time| time.map(delayed)).collect()
}

/// The time at which a value of a row is known; the least i64 if that is with the row.
fn known_time(database: &Database, table: &Table, known: Option<&Known>, row: usize) -> i64 {
    match known {
        None => ALWAYS_VISIBLE,
        Some(Known::Delay(delay)) => match times(database, table)[row] {
            None => ALWAYS_VISIBLE,
            Some(time) => time.saturating_add(delay.0).min(NEVER_VISIBLE),
        },
        Some(Known::At(column)) => match database.column(table.source_name(), column)[row] {
            Value::Time(time) => time,
            _ => NEVER_VISIBLE,
        },
    }
}

fn time_delay(table: &Table) -> i64 {
    table.time.as_ref().map_or(0, |time| time.delay.0)
}

/// The identity of each row.
pub(crate) fn identities(database: &Database, table: &Table) -> Vec<u64> {
    let first =
        |bytes: &[u8]| u64::from_le_bytes(blake3::hash(bytes).as_bytes()[..8].try_into().unwrap());
    if !table.key.is_empty() {
        let keys = keys(database, table, &table.key);
        return keys.into_iter().map(|key| first(key.unwrap().as_bytes())).collect();
    }
    let columns: Vec<_> = (table.columns.iter())
        .filter(|(_, column)| column.semantic != SemanticType::Ignored)
        .map(|(name, _)| database.column(table.source_name(), name))
        .collect();
    let identity = |row: usize| {
        let mut bytes = Vec::new();
        for column in &columns {
            bytes.push(u8::from(column[row] != Value::Null));
            match &column[row] {
                Value::Null => {}
                Value::Number(number) => bytes.extend(number.to_le_bytes()),
                Value::Time(time) => bytes.extend(time.to_le_bytes()),
                Value::Truth(truth) => bytes.push(u8::from(*truth)),
                word @ (Value::Word(_) | Value::Integer(_)) => {
                    let text = word.text().unwrap();
                    bytes.extend((text.len() as u64).to_le_bytes());
                    bytes.extend(text.as_bytes());
                }
            }
        }
        first(&bytes)
    };
    (0..database.row_count(table.source_name())).map(identity).collect()
}

/// Compares everything in `store` with `database`.
pub(crate) fn compare(database: &Database, store: &Store) {
    let tables = &database.schema.tables;
    let mut relation = 0;
    let mut texts = std::collections::BTreeSet::new();
    for (place, table) in tables.iter().enumerate() {
        compare_rows(database, store, place, &mut texts);
        for reference in &table.references {
            compare_relation(database, store, place, reference, relation);
            relation += 1;
        }
    }
    let by_parent = database.schema.summaries.iter().filter(|summary| summary.by.is_some());
    assert_eq!(store.relations().len(), relation + by_parent.count());
    assert_eq!(store.metadata().embedding.text_count as usize, texts.len());
    for index in 0..texts.len() as u32 {
        let text = store.text(index).unwrap();
        assert!(texts.remove(text), "{text:?} twice, or in no row");
        let vector = store.text_embedding(index).unwrap().unwrap();
        assert_eq!(vector, TextVectors::F16(&plain_vector(text)));
    }
    let categories = store.metadata().embedding.category_count;
    let vectors = store.categorical_embeddings().unwrap();
    for index in 0..categories {
        let vector = &vectors[index as usize * 8..][..8];
        assert_eq!(vector, plain_vector(store.category(index).unwrap()));
    }
    compare_aggregates(database, store);
    summaries::compare(database, store);
    compare_tasks(database, store);
}

fn compare_rows(
    database: &Database,
    store: &Store,
    place: usize,
    texts: &mut std::collections::BTreeSet<String>,
) {
    let schema = &database.schema.tables[place];
    let table = &store.tables()[place];
    assert!(std::ptr::eq(store.table(&schema.name).unwrap(), table));
    let rows = database.row_count(schema.source_name());
    assert_eq!(table.row_count() as usize, rows);
    let times = times(database, schema);
    let identities = identities(database, schema);
    let keys = keys(database, schema, &schema.key);
    for row in 0..rows as u32 {
        let at = row as usize;
        let record = table.row(row).unwrap();
        assert_eq!(record.time(), times[at].unwrap_or(ALWAYS_VISIBLE));
        assert_eq!(table.identity(row).unwrap(), identities[at]);
        if schema.key.is_empty() {
            assert!(table.key(row).is_err());
        } else {
            assert_eq!(Some(table.key(row).unwrap()), keys[at].as_deref());
            assert_eq!(table.find(table.key(row).unwrap()).unwrap(), Some(row));
        }
    }
    assert!(table.row(rows as u32).is_err() && table.identity(rows as u32).is_err());
    if !schema.key.is_empty() {
        assert_eq!(table.find("nobody of this name").unwrap(), None);
    }
    let kept = schema.columns.iter().filter(|(_, c)| c.semantic != SemanticType::Ignored);
    let kept: Vec<_> = kept.map(|(name, _)| name).collect();
    let found: Vec<_> = table.metadata().columns.iter().map(|c| &c.name).collect();
    assert_eq!(found, kept);
    for (column, metadata) in table.metadata().columns.iter().enumerate() {
        let values = database.column(schema.source_name(), &metadata.name);
        let of_schema = &schema.columns[&metadata.name];
        let counted = known_by_then(database, schema, of_schema.known.as_ref(), values);
        let nulls = values.iter().filter(|value| **value == Value::Null).count();
        assert_eq!(metadata.null_count, nulls as u64);
        let is_in = |columns: &Vec<String>| columns.contains(&metadata.name);
        let references = database.schema.tables.iter().flat_map(|table| &table.references);
        let links_rows = is_in(&schema.key)
            || schema.references.iter().any(|reference| is_in(&reference.columns))
            || references.filter(|r| r.to == schema.name).any(|r| is_in(&r.to_columns));
        let found = store.metadata().links_rows(place as u32, &metadata.name);
        assert_eq!(found, links_rows, "{} of {}", metadata.name, schema.name);
        check_statistics(store, values, metadata, &counted, statistics_until(database));
        for (row, value) in values.iter().enumerate() {
            let record = table.row(row as u32).unwrap();
            let cell = record.cell(column);
            assert_eq!(record.is_null(column), *value == Value::Null);
            let known = schema.columns[&metadata.name].known.as_ref();
            assert_eq!(record.known_time(column), known_time(database, schema, known, row));
            compare_cell(store, metadata, value, cell);
            if let (Cell::Text(_), Value::Word(word)) = (cell, value) {
                texts.insert(word.clone());
            }
        }
    }
}

/// The last observation of the train split that ends first; none without a recorded split.
pub(crate) fn statistics_until(database: &Database) -> Option<i64> {
    let end = |task: &headwater::prepare::schema::Task| {
        let source =
            task.derived.as_ref().filter(|derived| derived.split.is_some())?.source.as_ref()?;
        let times = database.column(source, "at").iter().enumerate();
        let train = times.filter(|&(row, _)| split(database, task, row) == "train");
        train
            .filter_map(|(_, time)| if let Value::Time(time) = time { Some(*time) } else { None })
            .max()
    };
    database.schema.tasks.iter().filter_map(end).min()
}

/// The values of a column that were known at the end of training, and NULL in place of the others.
pub(crate) fn known_by_then(
    database: &Database,
    table: &Table,
    known: Option<&Known>,
    values: &[Value],
) -> Vec<Value> {
    let Some(until) = statistics_until(database) else { return values.to_vec() };
    let times = times(database, table);
    let is_known = |row: usize| {
        times[row].is_none_or(|time| time <= until)
            && known_time(database, table, known, row) <= until
            && !matches!(values[row], Value::Time(time) if time > until)
    };
    (0..values.len())
        .map(|row| if is_known(row) { values[row].clone() } else { Value::Null })
        .collect()
}

/// The number of the first target among the columns.
fn first_target(store: &Store) -> u32 {
    store.metadata().tables.iter().map(|table| table.columns.len() as u32).sum()
}

/// `counted` are the values that the statistics are of: those known by the end of training, or a target's
/// train split. Those known by `until` may have no scale.
fn check_statistics(
    store: &Store,
    values: &[Value],
    column: &ColumnMetadata,
    counted: &[Value],
    until: Option<i64>,
) {
    match column.stats {
        ColumnStats::Numerical { ref scale, mean, std, .. } => {
            let expected = scaling(counted, until.is_some());
            assert_eq!((*scale == Scale::Log, mean, std), expected);
            assert_ne!(scale.is_linear(), expected.0);
        }
        ColumnStats::Timestamp { mean_us, std_us, min_us, max_us } => {
            let (mean, std) = moments(counted.iter());
            let expected = match until {
                Some(until) if !is_wide(counted) => {
                    let is_known = counted.iter().any(|value| *value != Value::Null);
                    (if is_known { mean } else { until as f64 }, 365.25 * 86_400e6)
                }
                _ => (mean, std),
            };
            assert_eq!((mean_us, std_us), expected);
            // Of a table's column the span of all values.
            let spanned = if column.index < first_target(store) { values } else { counted };
            let times = spanned.iter().filter_map(|value| match value {
                Value::Time(time) => Some(*time),
                _ => None,
            });
            assert_eq!(min_us, times.clone().min().unwrap_or(0));
            assert_eq!(max_us, times.max().unwrap_or(0));
        }
        ColumnStats::Boolean { true_count } => {
            let truths = counted.iter().filter(|value| **value == Value::Truth(true)).count();
            assert_eq!(true_count, truths as u64);
        }
        ColumnStats::Categorical { cat_emb_start, cat_emb_count, known_count } => {
            let names = |values: &[Value]| -> BTreeSet<String> {
                values.iter().filter_map(Value::text).collect()
            };
            let (all, known) = (names(values), names(counted));
            let later = all.difference(&known);
            let found =
                (0..cat_emb_count).map(|place| store.category(cat_emb_start + place).unwrap());
            assert!(found.eq(known.iter().chain(later)));
            assert_eq!(known_count.unwrap_or(cat_emb_count) as usize, known.len());
        }
        ColumnStats::Identifier | ColumnStats::Text => {}
        ColumnStats::Count { .. } => panic!("a column of a table is no count"),
    }
}

fn compare_cell(store: &Store, column: &ColumnMetadata, value: &Value, cell: Cell) {
    let expected = match (&column.stats, value) {
        (_, Value::Null) => Cell::Null,
        (ColumnStats::Identifier, _) => Cell::Identifier,
        (ColumnStats::Numerical { scale, mean, std, .. }, Value::Number(number)) => {
            Cell::Numerical(z_score(*number, (*scale == Scale::Log, *mean, *std)))
        }
        (ColumnStats::Numerical { scale, mean, std, .. }, Value::Integer(number)) => {
            Cell::Numerical(z_score(*number as f64, (*scale == Scale::Log, *mean, *std)))
        }
        (ColumnStats::Timestamp { .. }, Value::Time(time)) => Cell::Timestamp(*time),
        (ColumnStats::Boolean { .. }, Value::Truth(truth)) => Cell::Boolean(*truth),
        (ColumnStats::Text, Value::Word(word)) => {
            let Cell::Text(index) = cell else { panic!("{cell:?} for {word:?}") };
            assert_eq!(store.text(index).unwrap(), word);
            cell
        }
        (ColumnStats::Categorical { cat_emb_start, cat_emb_count, .. }, value) => {
            let Cell::Categorical(index) = cell else { panic!("{cell:?} for {value:?}") };
            assert!((*cat_emb_start..cat_emb_start + cat_emb_count).contains(&index));
            assert_eq!(Some(store.category(index).unwrap()), value.text().as_deref());
            cell
        }
        (stats, value) => panic!("{value:?} in {stats:?}"),
    };
    assert_eq!(cell, expected, "column {:?}", column.name);
}

fn compare_relation(
    database: &Database,
    store: &Store,
    place: usize,
    reference: &Reference,
    index: usize,
) {
    let schema = &database.schema.tables[place];
    let relation = &store.relations()[index];
    let metadata = relation.metadata();
    assert_eq!(metadata.name, reference.name());
    assert_eq!(metadata.child as usize, place);
    assert_eq!(Some(metadata.parent as usize), database.schema.table(&reference.to));
    let parents = parents(database, schema, reference);
    let nulls = keys(database, schema, &reference.columns).iter().filter(|k| k.is_none()).count();
    assert_eq!(metadata.null_count as usize, nulls);
    let edges = parents.iter().flatten().count();
    assert_eq!(metadata.edge_count as usize, edges);
    assert_eq!(metadata.unresolved_count as usize, parents.len() - nulls - edges);
    let times = times(database, schema);
    for (row, parent) in parents.iter().enumerate() {
        let record = store.tables()[place].row(row as u32).unwrap();
        assert_eq!(relation.parent(&record).unwrap(), *parent);
    }
    let parent_rows = store.tables()[metadata.parent as usize].row_count();
    for parent in 0..parent_rows {
        let mut expected: Vec<(Option<i64>, u32)> = (parents.iter().enumerate())
            .filter(|(_, found)| **found == Some(parent))
            .map(|(row, _)| (times[row], row as u32))
            .collect();
        // None is less than any time, as always visible is.
        expected.sort_unstable();
        let children = relation.children(parent).unwrap();
        let rows: Vec<u32> = expected.iter().map(|(_, row)| *row).collect();
        assert_eq!(children.rows().unwrap(), rows);
        for (place, &row) in rows.iter().enumerate() {
            assert_eq!(children.row(place).unwrap(), row);
        }
        assert!(children.row(children.count()).is_err());
        assert_eq!(children.times().unwrap().is_some(), schema.time.is_some());
        let mut moments: Vec<i64> = times.iter().flatten().copied().collect();
        moments.extend(moments.clone().iter().map(|time| time - 1));
        moments.extend([i64::MIN, 0, SEES_EVERYTHING]);
        for now in moments {
            let visible = expected.iter().filter(|(time, _)| time.is_none_or(|time| time <= now));
            let visible: Vec<u32> = visible.map(|(_, row)| *row).collect();
            assert_eq!(children.visible_count(now).unwrap(), visible.len());
            assert_eq!(&rows[..visible.len()], visible);
        }
    }
    assert!(relation.children(parent_rows).is_err());
    compare_totals(database, store, place, index);
}

/// Compares the totals of a relation's columns with sums over the children of each parent.
fn compare_totals(database: &Database, store: &Store, place: usize, index: usize) {
    let (relation, table) = (&store.relations()[index], &store.tables()[place]);
    let reference = &relation.metadata().name;
    let aggregate = (database.schema.aggregates.iter())
        .find(|a| a.table == table.metadata().name && a.reference == *reference);
    let columns = aggregate.map_or(&[][..], |aggregate| &aggregate.columns);
    for (column, metadata) in (0..).zip(&table.metadata().columns) {
        for parent in 0..store.tables()[relation.metadata().parent as usize].row_count() {
            let children = relation.children(parent).unwrap();
            let values: Vec<Option<i32>> = (children.rows().unwrap().iter())
                .map(|&row| fixed_point(table.row(row).unwrap().cell(column as usize)))
                .collect();
            for from in 0..=values.len() {
                let total = children.total(column, from, values.len()).unwrap();
                assert_eq!(total.is_some(), columns.contains(&metadata.name));
                let Some(total) = total else { continue };
                let known = values[from..].iter().flatten();
                assert_eq!(total.count as usize, known.clone().count());
                assert_eq!(total.sum, known.map(|&value| i64::from(value)).sum::<i64>());
            }
            assert!(children.total(column, 0, values.len() + 1).is_err());
        }
    }
}

/// Compares the aggregates with those of the schema, and their vectors with their names.
fn compare_aggregates(database: &Database, store: &Store) {
    let mut expected = Vec::new();
    for aggregate in &database.schema.aggregates {
        let Aggregate { table, reference, columns, windows } = aggregate;
        for window in windows {
            let when = match window {
                Window::Ever => String::new(),
                Window::Last(length) => format!(", last {length}"),
            };
            expected.push(format!("{table} by {reference}{when}: count"));
            let mean = |column| format!("{table} by {reference}{when}: mean of {column}");
            expected.extend(columns.iter().map(mean));
        }
        if database.table(table).time.is_some() {
            expected.push(format!("{table} by {reference}: time since the last"));
        }
    }
    let found = store.metadata().aggregates.iter().map(|aggregate| aggregate.name.clone());
    assert_eq!(found.collect::<Vec<_>>(), expected);
    let words = |name: &str| {
        let parts = name.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
        parts.map(str::to_lowercase).collect::<Vec<_>>().join(" ")
    };
    let first = store.metadata().embedding.column_count as usize - expected.len();
    let vectors = store.column_embeddings().unwrap();
    for (number, name) in expected.iter().enumerate() {
        let vector = &vectors[(first + number) * DIMENSION..][..DIMENSION];
        assert_eq!(vector, plain_vector(&words(name)), "{name}");
    }
}

fn compare_tasks(database: &Database, store: &Store) {
    let tables_columns: usize = store.metadata().tables.iter().map(|t| t.columns.len()).sum();
    let mut column_index = tables_columns as u32;
    assert_eq!(store.tasks().len(), database.schema.tasks.len());
    for (task, schema) in store.tasks().iter().zip(&database.schema.tasks) {
        assert_eq!(task.metadata().name, schema.name);
        let anchor = &store.tables()[task.metadata().anchor as usize];
        if let Some(cell) = &schema.cell {
            let table = database.table(&cell.table);
            let times = times(database, table);
            let column = anchor.metadata().columns.iter().position(|c| c.name == cell.column);
            assert_eq!(task.metadata().seed_count, anchor.row_count());
            for row in 0..anchor.row_count() {
                let seed = task.seed(anchor, row).unwrap();
                assert_eq!(seed.row, row);
                let known = times[row as usize].filter(|&time| time != NEVER_VISIBLE);
                assert_eq!(seed.obs_time, known.unwrap_or(SEES_EVERYTHING));
                assert_eq!(seed.target, anchor.row(row).unwrap().cell(column.unwrap()));
                assert_eq!(seed.split, None);
            }
            continue;
        }
        let derived = schema.derived.as_ref().unwrap();
        let source = derived.source.as_ref().unwrap();
        let rows = database.row_count(source);
        let table = database.table(&derived.anchor);
        let anchor_keys = keys(database, table, &table.key);
        let targets = database.column(source, &derived.target);
        let column = store.metadata().target_column(task.metadata());
        assert_eq!(column.index, column_index);
        column_index += 1;
        let train: Vec<_> =
            (0..rows).filter(|&row| split(database, schema, row) == "train").collect();
        let observed = database.column(source, "at");
        let until = statistics_until(database);
        let by_then = |&row: &usize| !matches!(observed[row], Value::Time(time) if until.is_some_and(|until| time > until));
        let of_target = |rows: Vec<usize>| -> Vec<Value> {
            rows.into_iter().map(|row| targets[row].clone()).collect()
        };
        let counted = match derived.split {
            Some(_) => of_target(train),
            None => {
                let known = of_target((0..rows).filter(by_then).collect());
                let has_any = |values: &[Value]| values.iter().any(|v| matches!(v, Value::Word(_)));
                // Without any category known, all of the target are.
                if has_any(&known) || !has_any(targets) { known } else { targets.to_vec() }
            }
        };
        // A train split that cannot scale the target is an error.
        let until = until.filter(|_| derived.split.is_none());
        let nulls = if derived.split.is_none() { targets } else { &counted[..] };
        let nulls = nulls.iter().filter(|value| **value == Value::Null).count();
        assert_eq!(column.null_count, nulls as u64);
        check_statistics(store, targets, column, &counted, until);
        assert_eq!(task.metadata().seed_count as usize, rows);
        for (row, target) in targets.iter().enumerate() {
            let seed = task.seed(anchor, row as u32).unwrap();
            let parts: Vec<_> =
                derived.key.iter().map(|name| &database.column(source, name)[row]).collect();
            let key = key_text(&parts);
            let expected = anchor_keys.iter().position(|found| *found == key).unwrap();
            assert_eq!(seed.row as usize, expected);
            let expected = match database.column(source, "at")[row] {
                Value::Time(time) => time,
                _ => SEES_EVERYTHING,
            };
            assert_eq!(seed.obs_time, expected);
            compare_cell(store, column, target, seed.target);
            assert_eq!(seed.split.map_or("", |split| split.name()), split(database, schema, row));
        }
        assert!(task.seed(anchor, rows as u32).is_err());
    }
    column_index += store.metadata().aggregates.len() as u32;
    assert_eq!(store.metadata().embedding.column_count, column_index);
    assert_eq!(store.column_embeddings().unwrap().len(), column_index as usize * 8);
}

/// The recorded split of a task's row, or nothing.
fn split<'a>(
    database: &'a Database,
    task: &headwater::prepare::schema::Task,
    row: usize,
) -> &'a str {
    let derived = task.derived.as_ref().unwrap();
    let (Some(source), Some(split)) = (&derived.source, &derived.split) else { return "" };
    match &database.column(source, split)[row] {
        Value::Word(word) => word,
        other => panic!("{other:?} is not a split"),
    }
}
