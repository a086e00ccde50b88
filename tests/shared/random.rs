//! Small random databases with every type of key, reference, time, column and task.

use std::collections::BTreeMap;

use headwater::prepare::schema::{
    Aggregate, CellTask, Column, Delay, DerivedTask, Known, Limits, Reference, ScaleName, Schema,
    Summary, Table, Task, Time, Window,
};
use headwater::random::{Purpose, Stream};
use headwater::store::{Period, SemanticType};
use indexmap::IndexMap;

use crate::database::{Data, Database, Value};

/// Names that are difficult in files and messages.
const WORDS: [&str; 8] =
    ["plain", "two words", "a|b", "back\\slash", "quo\"te", "comma,", "ÿ\u{1F3C1}", "\\|"];

struct Maker {
    random: Stream,
    tables: Vec<Table>,
    data: Vec<Data>,
}

/// Returns the database of `seed`, with `table_count` tables of at most `row_limit` rows.
pub(crate) fn database(seed: u64, table_count: usize, row_limit: usize) -> Database {
    let random = Stream::new(seed, Purpose::Split, [0xda7a, 0, 0]);
    let mut maker = Maker { random, tables: vec![], data: vec![] };
    for place in 0..table_count {
        maker.add_table(place, row_limit);
    }
    for place in 0..table_count {
        maker.add_references(place);
    }
    for place in 0..table_count {
        maker.add_time(place);
    }
    maker.finish()
}

impl Maker {
    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn add_column(&mut self, place: usize, name: &str, kind: SemanticType, values: Vec<Value>) {
        self.tables[place].columns.insert(name.into(), kind.into());
        self.data[place].push((name.into(), values));
    }

    /// Adds a table with its key and its plain columns.
    fn add_table(&mut self, place: usize, row_limit: usize) {
        let source = self.chance(30).then(|| format!("source_{place}"));
        self.tables.push(Table {
            name: format!("table {place}"),
            source,
            key: vec![],
            time: None,
            columns: IndexMap::new(),
            references: vec![],
            labels_of: None,
        });
        self.data.push(vec![]);
        let rows = 1 + self.below(row_limit);
        let key_kind = self.below(4);
        let numbered = |row: usize| Value::Integer(row as i64 * 7 - 20);
        let named = |row: usize| Value::Word(format!("{}{}", WORDS[row % 8], row / 8));
        match key_kind {
            0 => {}
            1 => {
                self.add_column(place, "id", SemanticType::Identifier, map(rows, numbered));
                self.tables[place].key = vec!["id".into()];
            }
            2 => {
                self.add_column(place, "name", SemanticType::Identifier, map(rows, named));
                self.tables[place].key = vec!["name".into()];
            }
            _ => {
                // Neither part is unique alone, and the parts contain the separator.
                let first = map(rows, |row| Value::Word(WORDS[row % 8].into()));
                let second = map(rows, |row| Value::Integer((row / 8) as i64));
                self.add_column(place, "first", SemanticType::Categorical, first);
                self.add_column(place, "second", SemanticType::Numerical, second);
                self.tables[place].key = vec!["second".into(), "first".into()];
            }
        }
        if key_kind == 0 || self.chance(30) {
            let nulls = self.chance(50);
            let code = |row| if nulls && row % 5 == 3 { Value::Null } else { named(row) };
            self.add_column(place, "code", SemanticType::Text, map(rows, code));
        }
        for number in 0..self.below(8) {
            let kind = SemanticType::ALL[1 + self.below(6)];
            let values = self.values(kind, rows);
            self.add_column(place, &format!("column {number}"), kind, values);
        }
    }

    /// Returns random values of one type; sometimes all NULL, sometimes all equal.
    fn values(&mut self, kind: SemanticType, rows: usize) -> Vec<Value> {
        let null_percent = [0, 10, 50, 100][self.below(4)];
        let constant = self.chance(10);
        let mut values = Vec::new();
        for _ in 0..rows {
            if self.chance(null_percent) {
                values.push(Value::Null);
            } else if let (true, Some(first)) =
                (constant, values.iter().find(|v| **v != Value::Null).cloned())
            {
                values.push(first);
            } else {
                values.push(self.value(kind));
            }
        }
        values
    }

    fn value(&mut self, kind: SemanticType) -> Value {
        match kind {
            SemanticType::Numerical => {
                let scale = [1.0, 1e-9, 1e9, 0.1][self.below(4)];
                Value::Number((self.below(2001) as f64 - 1000.0) * scale)
            }
            // From 1905 to 2060, some equal, some with fractions of seconds.
            SemanticType::Timestamp => {
                let days = self.below(200) as i64 * 283 - 23_700;
                Value::Time(days * 86_400_000_000 + self.below(3) as i64 * 1_500_001)
            }
            SemanticType::Boolean => Value::Truth(self.chance(40)),
            SemanticType::Categorical => Value::Word(WORDS[self.below(8)].into()),
            _ => Value::Word(format!("{} {}", WORDS[self.below(8)], self.below(30))),
        }
    }

    /// Adds up to four references: to itself, forward, backward, by key or by other columns.
    fn add_references(&mut self, place: usize) {
        let rows = self.data[place][0].1.len();
        for number in 0..self.below(5) {
            let parent = self.below(self.tables.len());
            let has_code = self.tables[parent].columns.contains_key("code");
            let by_code = has_code && (self.tables[parent].key.is_empty() || self.chance(40));
            let to_columns = if by_code { vec!["code".to_owned()] } else { vec![] };
            let target = if by_code { &to_columns } else { &self.tables[parent].key }.clone();
            let parent_rows = self.data[parent][0].1.len();
            let mut columns: Vec<Vec<Value>> = vec![vec![]; target.len()];
            for _ in 0..rows {
                let case = self.below(100);
                let row = self.below(parent_rows);
                for (part, name) in target.iter().enumerate() {
                    let found = self.data[parent].iter().find(|(n, _)| n == name).unwrap();
                    columns[part].push(match (case, &found.1[row]) {
                        (0..10, _) => Value::Null,
                        // A partial key matches no row, even if the rest matches.
                        (10..15, _) if part == 0 => Value::Null,
                        (15..20, Value::Integer(_)) => Value::Integer(1_000_000),
                        (15..20, _) => Value::Word("nobody".into()),
                        (_, value) => value.clone(),
                    });
                }
            }
            let names: Vec<_> =
                (0..columns.len()).map(|part| format!("ref {number}.{part}")).collect();
            for (name, values) in names.iter().zip(columns) {
                self.add_column(place, name, SemanticType::Identifier, values);
            }
            let to = self.tables[parent].name.clone();
            self.tables[place].references.push(Reference { columns: names, to, to_columns });
        }
    }

    fn add_time(&mut self, place: usize) {
        let delay = Delay([0, 1, 86_400_000_000][self.below(3)]);
        let is_earlier = |r: &&Reference| {
            let parent = self.tables.iter().position(|t| t.name == r.to).unwrap();
            parent < place && self.tables[parent].time.is_some()
        };
        let through = self.tables[place].references.iter().find(is_earlier).map(Reference::name);
        let rows = self.data[place][0].1.len();
        match (self.below(3), through) {
            (0, _) => {}
            (1, Some(through)) => {
                self.tables[place].time =
                    Some(Time { column: None, through: Some(through), delay });
            }
            _ => {
                let values = self.values(SemanticType::Timestamp, rows);
                self.add_column(place, "when", SemanticType::Timestamp, values);
                self.tables[place].time =
                    Some(Time { column: Some("when".into()), through: None, delay });
            }
        }
    }

    fn finish(mut self) -> Database {
        let mut tasks = Vec::new();
        let mut task_data = BTreeMap::new();
        for place in 0..self.tables.len() {
            tasks.extend(self.cell_task(place));
            if let Some((task, data)) = self.derived_task(place) {
                task_data.insert(task.derived.as_ref().unwrap().source.clone().unwrap(), data);
                tasks.push(task);
            }
        }
        let aggregates = self.aggregates();
        let summaries = self.summaries();
        for place in 0..self.tables.len() {
            self.add_known(place, &aggregates, &summaries);
        }
        for cell in tasks.iter_mut().filter_map(|task| task.cell.as_mut()) {
            self.hide_some(cell);
        }
        let names: Vec<_> = self.tables.iter().map(|t| t.source_name().to_owned()).collect();
        let mut data: BTreeMap<_, _> = names.into_iter().zip(self.data).collect();
        data.append(&mut task_data);
        let limits = Limits { unresolved_share: 1.0, ..Limits::default() };
        let (database, tables) = ("random".into(), self.tables);
        let events = None;
        let statistics_until = None;
        let schema = Schema {
            database,
            statistics_until,
            limits,
            events,
            tables,
            aggregates,
            summaries,
            tasks,
        };
        Database { schema, data }
    }

    /// Lets some columns be known later than their rows, where no aggregate or summary forbids it.
    fn add_known(&mut self, place: usize, aggregates: &[Aggregate], summaries: &[Summary]) {
        let table = self.tables[place].clone();
        let is_timed = table.time.is_some();
        let mut has_times = false;
        for (name, column) in &table.columns {
            let of_table = |summary: &&Summary| summary.table == table.name;
            let mut summaries = summaries.iter().filter(of_table);
            let mut sums = aggregates.iter().filter(|aggregate| aggregate.table == table.name);
            let is_taken = self.links(place, name)
                || column.semantic == SemanticType::Ignored
                || name == "when"
                || summaries.any(|summary| summary.columns.contains(name));
            if is_taken || self.chance(60) {
                continue;
            }
            let is_summed = sums.any(|aggregate| aggregate.columns.contains(name));
            let known = match (is_timed && self.chance(50), is_summed) {
                (true, _) => {
                    Known::Delay(Delay([1, 86_400_000_000, 2_000 * 86_400_000_000][self.below(3)]))
                }
                (false, false) => {
                    has_times = true;
                    Known::At("known at".into())
                }
                (false, true) => continue,
            };
            self.tables[place].columns[name].known = Some(known);
        }
        if has_times {
            let rows = self.data[place][0].1.len();
            let values = self.values(SemanticType::Timestamp, rows);
            // The identity of a row without a key is of all that is read of it.
            let is_ignored = !table.key.is_empty() && self.chance(50);
            let kind = if is_ignored { SemanticType::Ignored } else { SemanticType::Timestamp };
            self.add_column(place, "known at", kind, values);
        }
    }

    /// Lets the seed row of a cell task hide some columns beside the target.
    fn hide_some(&mut self, cell: &mut CellTask) {
        let place = self.tables.iter().position(|table| table.name == cell.table).unwrap();
        let is_hideable = |(name, column): &(&String, &Column)| {
            !self.links(place, name)
                && **name != "when"
                && **name != cell.column
                && column.semantic != SemanticType::Ignored
        };
        let columns = self.tables[place].columns.iter().filter(is_hideable);
        let names: Vec<_> = columns.map(|(name, _)| name.clone()).collect();
        cell.hide = names.into_iter().filter(|_| self.chance(30)).collect();
    }

    /// Whether a column is part of a key, of a reference, or of what references refer to.
    fn links(&self, place: usize, name: &String) -> bool {
        let table = &self.tables[place];
        let incoming = self.tables.iter().flat_map(|t| &t.references);
        table.key.contains(name)
            || table.references.iter().any(|r| r.columns.contains(name))
            || incoming.filter(|r| r.to == table.name).any(|r| r.to_columns.contains(name))
    }

    /// Returns aggregates of about half of the references, of some columns and over some windows.
    fn aggregates(&mut self) -> Vec<Aggregate> {
        let mut aggregates = Vec::new();
        for place in 0..self.tables.len() {
            let table = self.tables[place].clone();
            for reference in &table.references {
                if self.chance(50) {
                    continue;
                }
                let mut columns = Vec::new();
                for (name, column) in &table.columns {
                    let is_summed =
                        [SemanticType::Numerical, SemanticType::Boolean].contains(&column.semantic);
                    if is_summed && self.chance(50) {
                        columns.push(name.clone());
                    }
                }
                let days = |count: i64| Window::Last(Delay(count * 86_400_000_000));
                let mut windows = vec![Window::Ever];
                for window in [days(500), days(5_000), Window::Last(Delay(1))] {
                    if table.time.is_some() && self.chance(50) {
                        windows.push(window);
                    }
                }
                let (table, reference) = (table.name.clone(), reference.name());
                aggregates.push(Aggregate { table, reference, columns, windows });
            }
        }
        aggregates
    }

    /// Returns summaries of about half of the tables with times, of some columns, and some by a
    /// reference.
    fn summaries(&mut self) -> Vec<Summary> {
        let mut summaries: Vec<Summary> = Vec::new();
        for place in 0..self.tables.len() {
            let rows = 0..self.data[place][0].1.len();
            if self.chance(40) || !rows.clone().any(|row| self.has_time(place, row)) {
                continue;
            }
            let table = self.tables[place].clone();
            let is_useful = |by: &&Reference| {
                let is_grouped = |row| self.has_time(place, row) && self.has_parent(place, by, row);
                rows.clone().any(is_grouped)
            };
            let by: Vec<_> =
                table.references.iter().filter(is_useful).map(Reference::name).collect();
            for by in [None].into_iter().chain(by.into_iter().map(Some)) {
                if self.chance(30) {
                    continue;
                }
                let mut columns = Vec::new();
                for (name, column) in &table.columns {
                    let has_mean =
                        [SemanticType::Numerical, SemanticType::Boolean].contains(&column.semantic);
                    if has_mean && self.chance(60) {
                        columns.push(name.clone());
                    }
                }
                let (table, period) = (table.name.clone(), Period::ALL[self.below(5)]);
                summaries.push(Summary { table, columns, period, by });
            }
        }
        summaries
    }

    /// The parent of a row, by a search of all rows.
    fn parent(&self, place: usize, reference: &Reference, row: usize) -> Option<(usize, usize)> {
        let parent = self.tables.iter().position(|table| table.name == reference.to)?;
        let target = match &reference.to_columns[..] {
            [] => &self.tables[parent].key,
            columns => columns,
        };
        let value = |table: usize, name: &String, row: usize| {
            let (_, values) = self.data[table].iter().find(|(n, _)| n == name).unwrap();
            values[row].clone()
        };
        let is_parent = |of: &usize| {
            let mut parts = reference.columns.iter().zip(target);
            parts.all(|(own, name)| {
                let own = value(place, own, row);
                own != Value::Null && own == value(parent, name, *of)
            })
        };
        let row = (0..self.data[parent][0].1.len()).find(is_parent)?;
        Some((parent, row))
    }

    fn has_parent(&self, place: usize, reference: &Reference, row: usize) -> bool {
        self.parent(place, reference, row).is_some()
    }

    fn has_time(&self, place: usize, row: usize) -> bool {
        let table = &self.tables[place];
        let Some(time) = &table.time else { return false };
        if let Some(column) = &time.column {
            let (_, values) = self.data[place].iter().find(|(name, _)| name == column).unwrap();
            return values[row] != Value::Null;
        }
        let through = &table.references[table.reference(time.through.as_ref().unwrap()).unwrap()];
        let parent = self.parent(place, through, row);
        parent.is_some_and(|(place, row)| self.has_time(place, row))
    }

    fn cell_task(&mut self, place: usize) -> Option<Task> {
        let table = &self.tables[place];
        let is_target = |kind| {
            !matches!(kind, SemanticType::Identifier | SemanticType::Text | SemanticType::Ignored)
        };
        let links = |name: &String| {
            table.key.contains(name) || table.references.iter().any(|r| r.columns.contains(name))
        };
        let (column, _) = (table.columns.iter())
            .find(|(n, c)| *n != "when" && !links(n) && is_target(c.semantic))?;
        let cell = CellTask { table: table.name.clone(), column: column.clone(), hide: vec![] };
        let name = format!("cell of {}", table.name);
        Some(Task {
            name,
            cell: Some(cell),
            derived: None,
            predict: None,
            sees_everything: true,
            strict: false,
        })
    }

    fn derived_task(&mut self, place: usize) -> Option<(Task, Data)> {
        let key = self.tables[place].key.clone();
        if key.is_empty() {
            return None;
        }
        let (rows, anchors) = (1 + self.below(30), self.data[place][0].1.len());
        let chosen: Vec<_> = (0..rows).map(|_| self.below(anchors)).collect();
        let mut data = Data::new();
        for (part, name) in key.iter().enumerate() {
            let values = &self.data[place].iter().find(|(n, _)| n == name).unwrap().1;
            let values = chosen.iter().map(|&row| values[row].clone()).collect();
            data.push((format!("key {part}"), values));
        }
        let target_type = SemanticType::ALL[1 + self.below(4)];
        let targets = self.values(target_type, rows);
        data.push(("target".into(), targets.clone()));
        data.push(("at".into(), self.values(SemanticType::Timestamp, rows)));
        let splits = ["train", "val", "test"];
        let split = map(rows, |_| Value::Word(splits[self.below(3)].into()));
        let recorded = self.chance(50) && can_scale(&targets, &split);
        if recorded {
            data.push(("split".into(), split));
        }
        let derived = DerivedTask {
            anchor: self.tables[place].name.clone(),
            source: Some(format!("task_{place}")),
            sql: None,
            key: (0..key.len()).map(|part| format!("key {part}")).collect(),
            time: Some("at".to_owned().into()),
            target: "target".into(),
            target_type,
            scale: ScaleName::Linear,
            split: recorded.then(|| "split".into()),
            horizon: None,
        };
        let name = format!("derived of {place}");
        Some((
            Task {
                name,
                cell: None,
                derived: Some(derived),
                predict: None,
                sees_everything: true,
                strict: false,
            },
            data,
        ))
    }
}

/// Whether the train split has two different values to scale by, or there is nothing to scale.
fn can_scale(targets: &[Value], split: &[Value]) -> bool {
    let differ = |values: &[&Value]| values.windows(2).any(|pair| pair[0] != pair[1]);
    let known = || targets.iter().zip(split).filter(|(target, _)| **target != Value::Null);
    let train = known().filter(|(_, split)| **split == Value::Word("train".into()));
    let train: Vec<_> = train.map(|(target, _)| target).collect();
    let all: Vec<_> = known().map(|(target, _)| target).collect();
    all.is_empty() || differ(&train) || (!train.is_empty() && !differ(&all))
}

fn map(rows: usize, value: impl FnMut(usize) -> Value) -> Vec<Value> {
    (0..rows).map(value).collect()
}
