//! A copy of a store, in memory, in which all that came to be known after some time is different.
//!
//! An audit replays seeds on it: where nothing later than a seed's observation time reaches its
//! context, the context is the same on both.

use super::metadata::{
    ColumnMetadata, ColumnStats, KnownMetadata, TableMetadata, TaskMetadata, TimeMetadata,
};
use super::table::Row;
use super::time::{ALWAYS_VISIBLE, NEVER_VISIBLE, is_visible};
use super::totals::{fixed_point, section_names, summed_columns};
use super::{Cell, GRAPH_FILE, Store, Table, TargetMetadata, table_file, target_bytes, task_file};
use crate::error::{Error, Result};
use crate::random::{Purpose, Stream};

/// What is different in a changed store.
pub(crate) enum Change<'a> {
    /// All that came to be known after a time: rows with their cells, references and times, values that
    /// are known later than their rows, and times to come. Also the targets of derived tasks.
    Later { after: i64 },
    /// Some cells of one row.
    Cells { table: u32, row: u32, columns: &'a [u32] },
}

/// What is added to a later time. As all later times move alike, rows keep their order.
const SHIFT_US: i64 = 400 * crate::days::DAY_US;

impl Store {
    /// Returns a copy of the store in memory with `change`, and the number of rows that are different.
    /// `random_seed` chooses the other values. Statistics, embeddings, keys, and the seeds of tasks
    /// with their groups stay.
    ///
    /// # Cost
    /// Memory and time for what changes: the tables, the links, which are sorted, and the tasks; or one
    /// table.
    ///
    /// # Errors
    /// `LimitExceeded` when there is not enough memory, `Corrupt` when the store is damaged.
    pub(crate) fn changed(&self, change: &Change<'_>, random_seed: u64) -> Result<(Self, u64)> {
        let mut containers = self.containers.clone();
        let place_of = |name: &str| {
            let found = self.metadata.files.iter().position(|file| file.path == name);
            found.expect("an open store has each of its files")
        };
        let mut tables = Vec::with_capacity(self.tables.len());
        let mut rows = 0;
        for (number, table) in (0..).zip(&self.tables) {
            let place = place_of(&table_file(&table.metadata().name));
            if change.is_of_table(number) {
                containers[place] = self.containers[place].changed(|section, bytes| {
                    if section == "rows" {
                        rows += self.change_rows(number, bytes, change, random_seed)?;
                    }
                    Ok(())
                })?;
            }
            tables.push(Table::open(&containers[place], table.metadata())?);
        }
        let mut sections = Vec::new();
        for relation in 0..self.relations.len() {
            if self.changes_links(relation, change) {
                sections.extend(self.links_of(relation, &tables)?);
            }
        }
        if !sections.is_empty() {
            let place = place_of(GRAPH_FILE);
            containers[place] = self.containers[place].changed(|section, bytes| {
                match sections.iter().find(|(name, _)| name == section) {
                    Some((_, new)) if new.len() == bytes.len() => bytes.copy_from_slice(new),
                    Some(_) => {
                        return Err(Error::corrupt(format!(
                            "{GRAPH_FILE}: section {section:?} does not have the links of the \
                             tables; prepare the store again"
                        )));
                    }
                    None => {}
                }
                Ok(())
            })?;
        }
        for (number, task) in (0..).zip(self.tasks.iter().map(super::Task::metadata)) {
            if let (TargetMetadata::Derived { column, .. }, Change::Later { .. }) =
                (&task.target, change)
            {
                let place = place_of(&task_file(&task.name));
                let random = || Stream::new(random_seed, Purpose::Audit, [number, 0, 1]);
                containers[place] = self.containers[place].changed(|section, bytes| {
                    match section {
                        "targets" => change_targets(bytes, &column.stats, random()),
                        "nulls" => change_nulls(bytes, random()),
                        _ => {}
                    }
                    Ok(())
                })?;
            }
        }
        let metadata = self.metadata.clone();
        let store = Self::assemble(&self.path, metadata, self.metadata_bytes, containers)?;
        Ok((store, rows))
    }

    /// Returns about the bytes of memory that the making of a changed copy takes.
    pub(crate) fn bytes_of_changed(&self) -> u64 {
        let files = self.metadata.files.iter().zip(&self.containers);
        let is_of_cells = |task: &TaskMetadata| matches!(task.target, TargetMetadata::Cell { .. });
        let cell_tasks = self.metadata.tasks.iter().filter(|task| is_of_cells(task));
        let unchanged: Vec<String> = cell_tasks.map(|task| task_file(&task.name)).collect();
        let copied = files.map(|(file, container)| {
            // The links are made anew beside the copy, and sorted.
            let times = if file.path == GRAPH_FILE { 3 } else { 1 };
            let is_shared = file.path.ends_with("embeddings.bin") || unchanged.contains(&file.path);
            if is_shared { 0 } else { times * container.file_bytes() }
        });
        copied.sum()
    }

    /// Whether the section of a relation in the graph's file changes.
    fn changes_links(&self, relation: usize, change: &Change<'_>) -> bool {
        match change {
            Change::Later { .. } => true,
            Change::Cells { table, columns, .. } => {
                let sums = summed_columns(&self.metadata.aggregates, relation);
                let is_of_table = self.relations[relation].metadata().child == *table;
                is_of_table && sums.into_iter().any(|column| columns.contains(&column))
            }
        }
    }

    /// Changes the records of a table; returns the number of those that are different.
    fn change_rows(
        &self,
        number: u32,
        bytes: &mut [u8],
        change: &Change<'_>,
        random_seed: u64,
    ) -> Result<u64> {
        let table = &self.tables[number as usize];
        let metadata = table.metadata();
        let text_count = self.metadata.embedding.text_count;
        // The offset of each reference in a record, and the number of rows it may lead to.
        let references = self.metadata.relations.iter().filter(|relation| relation.child == number);
        let references: Vec<_> = references
            .map(|relation| {
                let rows = self.metadata.tables[relation.parent as usize].row_count;
                (relation.parent_offset as usize, rows)
            })
            .collect();
        let (mut different, mut before) = (0, Vec::with_capacity(metadata.stride as usize));
        for (row, bytes) in (0..).zip(bytes.chunks_exact_mut(metadata.stride as usize)) {
            let old = table.row(row)?;
            let identity = [u64::from(number), u64::from(row), 0];
            let random = Stream::new(random_seed, Purpose::Audit, identity);
            before.clear();
            before.extend_from_slice(bytes);
            let mut record = Record { metadata, bytes, random, text_count };
            match *change {
                Change::Later { after } => {
                    record.change_later(&old, after);
                    if !is_visible(old.time(), after) {
                        for &(offset, rows) in &references {
                            record.change_parent(offset, rows);
                        }
                    }
                }
                Change::Cells { row: own, columns, .. } if own == row => {
                    for &column in columns {
                        let place = column as usize;
                        record.change_cell(&old, place, &metadata.columns[place]);
                    }
                }
                Change::Cells { .. } => continue,
            }
            different += u64::from(*record.bytes != *before);
        }
        Ok(different)
    }

    /// Returns the sections of the graph's file for one relation, from the records of `tables`.
    fn links_of(&self, relation: usize, tables: &[Table]) -> Result<Vec<(String, Vec<u8>)>> {
        let opened = &self.relations[relation];
        let metadata = opened.metadata();
        if metadata.edge_count == 0 {
            // No row is a child: of pairs, which have parents all the same, by design.
            return Ok(Vec::new());
        }
        let children = &tables[metadata.child as usize];
        let parent_rows = self.metadata.tables[metadata.parent as usize].row_count as usize;
        let mut links = Vec::with_capacity(metadata.edge_count as usize);
        for row in 0..children.row_count() {
            let record = children.row(row)?;
            if let Some(parent) = opened.parent(&record)? {
                links.push((parent, record.time(), row));
            }
        }
        links.sort_unstable();
        let mut offsets = vec![0_u32; parent_rows + 1];
        links.iter().for_each(|&(parent, ..)| offsets[parent as usize + 1] += 1);
        (1..offsets.len()).for_each(|place| offsets[place] += offsets[place - 1]);
        let rows: Vec<u32> = links.iter().map(|&(_, _, row)| row).collect();
        let times: Vec<i64> = links.iter().map(|&(_, time, _)| time).collect();
        let mut sections = vec![
            (format!("{relation}.offsets"), bytemuck::cast_slice(&offsets).to_vec()),
            (format!("{relation}.children"), bytemuck::cast_slice(&rows).to_vec()),
            (format!("{relation}.times"), bytemuck::cast_slice(&times).to_vec()),
        ];
        for column in summed_columns(&self.metadata.aggregates, relation) {
            let (mut sums, mut counts) = (vec![0_i64], vec![0_u32]);
            let (mut sum, mut count) = (0, 0);
            for &row in &rows {
                let value = fixed_point(children.row(row)?.cell(column as usize));
                sum += i64::from(value.unwrap_or(0));
                count += u32::from(value.is_some());
                sums.push(sum);
                counts.push(count);
            }
            let names = section_names(relation, column);
            sections.push((names.0, bytemuck::cast_slice(&sums).to_vec()));
            sections.push((names.1, bytemuck::cast_slice(&counts).to_vec()));
        }
        Ok(sections)
    }
}

impl Change<'_> {
    fn is_of_table(&self, number: u32) -> bool {
        match self {
            Self::Later { .. } => true,
            Self::Cells { table, .. } => *table == number,
        }
    }
}

/// One record that is changed in place.
struct Record<'a> {
    metadata: &'a TableMetadata,
    bytes: &'a mut [u8],
    random: Stream,
    text_count: u32,
}

impl Record<'_> {
    /// Changes what came to be known after `after`, but for references.
    fn change_later(&mut self, old: &Row<'_>, after: i64) {
        let is_later = |time| !is_visible(time, after);
        let time_column = match self.metadata.time {
            Some(TimeMetadata::Column { column, .. }) => Some(column as usize),
            _ => None,
        };
        for (place, column) in self.metadata.columns.iter().enumerate() {
            if let Some(KnownMetadata::At { offset, .. }) = column.known {
                self.move_time(offset as usize, after);
            }
            let to_come = match old.cell(place) {
                Cell::Timestamp(time) => is_later(time),
                _ => false,
            };
            let is_known = !is_later(old.time()) && !is_later(old.known_time(place));
            if Some(place) == time_column {
                // It decides whether the row is a later one, and stays so.
                if is_later(old.time()) && !old.is_null(place) {
                    self.shift(column.offset as usize);
                }
            } else if to_come || !is_known {
                self.change_cell(old, place, column);
            }
        }
        if let Some(
            TimeMetadata::Inherited { offset, .. }
            | TimeMetadata::Ignored { offset, .. }
            | TimeMetadata::Period { offset },
        ) = self.metadata.time
        {
            self.move_time(offset as usize, after);
        }
    }

    fn change_cell(&mut self, old: &Row<'_>, place: usize, column: &ColumnMetadata) {
        let categories = match column.stats {
            ColumnStats::Text => self.text_count,
            ColumnStats::Categorical { cat_emb_count, .. } => cat_emb_count,
            _ => u32::MAX,
        };
        // A value becomes NULL now and then, or if there is no other, and NULL a value always.
        let becomes_null = !old.is_null(place) && (self.random.below(4) == 0 || categories < 2);
        self.set_bit(place, becomes_null);
        let offset = column.offset as usize;
        match column.stats {
            ColumnStats::Identifier => {}
            ColumnStats::Numerical { .. } | ColumnStats::Count { .. } => {
                let step = 1.0 + self.random.below(1000) as f32 / 250.0;
                let score = f32::from_le_bytes(self.array(offset)) + step;
                self.put(offset, &score.to_le_bytes());
            }
            ColumnStats::Timestamp { .. } => self.shift(offset),
            ColumnStats::Boolean { .. } => {
                let truth = self.bit(offset);
                self.set_bit(offset, !truth);
            }
            ColumnStats::Text | ColumnStats::Categorical { .. } => {
                let width = column.stats.value_bytes() as usize;
                let mut bytes = [0; 4];
                bytes[..width].copy_from_slice(&self.bytes[offset..offset + width]);
                let other = other_than(u32::from_le_bytes(bytes), categories, &mut self.random);
                self.put(offset, &other.to_le_bytes()[..width]);
            }
        }
    }

    /// Replaces the parent at `offset`, one of `rows`, if there is one.
    fn change_parent(&mut self, offset: usize, rows: u32) {
        let old = u32::from_le_bytes(self.array(offset));
        if old != super::NO_PARENT {
            let parent = other_than(old, rows, &mut self.random);
            self.put(offset, &parent.to_le_bytes());
        }
    }

    /// Moves the time at `offset` if it is later than `after`.
    fn move_time(&mut self, offset: usize, after: i64) {
        if !is_visible(i64::from_le_bytes(self.array(offset)), after) {
            self.shift(offset);
        }
    }

    fn shift(&mut self, offset: usize) {
        let time = i64::from_le_bytes(self.array(offset));
        if time != ALWAYS_VISIBLE && time < NEVER_VISIBLE {
            let later = time.saturating_add(SHIFT_US).min(NEVER_VISIBLE - 1);
            self.put(offset, &later.to_le_bytes());
        }
    }

    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        *self.bytes[offset..].first_chunk().expect("the layout is checked on opening")
    }

    fn put(&mut self, offset: usize, value: &[u8]) {
        self.bytes[offset..offset + value.len()].copy_from_slice(value);
    }

    fn bit(&self, bit: usize) -> bool {
        self.bytes[self.metadata.null_offset as usize + bit / 8] >> (bit % 8) & 1 == 1
    }

    fn set_bit(&mut self, bit: usize, is_set: bool) {
        let byte = &mut self.bytes[self.metadata.null_offset as usize + bit / 8];
        *byte = *byte & !(1 << (bit % 8)) | u8::from(is_set) << (bit % 8);
    }
}

/// Returns a number below `count` that is not `old`, if there is one.
fn other_than(old: u32, count: u32, random: &mut Stream) -> u32 {
    match count {
        0 | 1 => old,
        _ => ((u64::from(old) + 1 + random.below(u64::from(count) - 1)) % u64::from(count)) as u32,
    }
}

/// Changes the targets of a derived task.
fn change_targets(bytes: &mut [u8], stats: &ColumnStats, mut random: Stream) {
    for target in bytes.chunks_exact_mut(target_bytes(stats).max(1) as usize) {
        match stats {
            ColumnStats::Boolean { .. } => target[0] ^= 1,
            ColumnStats::Categorical { cat_emb_count, .. } => {
                let old = target.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                let category = other_than(old, *cat_emb_count, &mut random);
                target.copy_from_slice(&category.to_le_bytes());
            }
            ColumnStats::Timestamp { .. } => {
                let time = target.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
                target.copy_from_slice(&time.wrapping_add(SHIFT_US).to_le_bytes());
            }
            _ => {
                let score = target.first_chunk().map_or(0.0, |bytes| f32::from_le_bytes(*bytes));
                target.copy_from_slice(&(score + 1.0).to_le_bytes());
            }
        }
    }
}

/// Makes a quarter of the targets NULL that are not, and all that are no more.
fn change_nulls(nulls: &mut [u8], mut random: Stream) {
    for null in nulls {
        *null = u8::from(*null == 0 && random.below(4) == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Scale;

    fn small() -> Store {
        Store::open("checkpoints/store-v4-small".as_ref()).unwrap()
    }

    /// The bytes of all sections of the tables, the links and the tasks.
    fn bytes(store: &Store) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        for container in &store.containers {
            let mut keep = |name: &str, bytes: &mut [u8]| {
                all.push((name.to_owned(), bytes.to_vec()));
                Ok(())
            };
            container.changed(&mut keep).unwrap();
        }
        all
    }

    #[test]
    fn p7_a_store_without_later_rows_keeps_every_byte_but_the_targets() {
        let store = small();
        let (changed, rows) = store.changed(&Change::Later { after: i64::MAX }, 1).unwrap();
        assert_eq!(rows, 0);
        for ((name, old), (_, new)) in bytes(&store).into_iter().zip(bytes(&changed)) {
            let is_target = ["targets", "nulls"].contains(&name.as_str());
            assert!(is_target || old == new, "section {name}");
            assert!(name != "targets" || old != new, "section {name}");
        }
    }

    #[test]
    fn p7_later_rows_change_and_earlier_rows_do_not() {
        let store = small();
        let times: Vec<i64> = (store.tables().iter())
            .flat_map(|table| (0..table.row_count()).map(|row| table.row(row).unwrap().time()))
            .filter(|&time| time != ALWAYS_VISIBLE)
            .collect();
        let after = *times.iter().min().unwrap();
        let (changed, rows) = store.changed(&Change::Later { after }, 1).unwrap();
        assert!(rows > 0);
        let mut different = 0;
        for (old, new) in store.tables().iter().zip(changed.tables()) {
            let columns = old.metadata().columns.len();
            for row in 0..old.row_count() {
                let (old, new) = (old.row(row).unwrap(), new.row(row).unwrap());
                assert_eq!(is_visible(old.time(), after), is_visible(new.time(), after));
                for column in 0..columns {
                    let is_same = old.cell(column) == new.cell(column);
                    let is_known =
                        is_visible(old.time(), after) && is_visible(old.known_time(column), after);
                    let is_to_come =
                        matches!(old.cell(column), Cell::Timestamp(time) if time > after);
                    assert!(is_same || !is_known || is_to_come, "row {row}, column {column}");
                    different += usize::from(!is_same);
                }
            }
        }
        assert!(different > 0);
    }

    #[test]
    fn p7_one_cell_changes_and_nothing_else() {
        let store = small();
        for (of, table) in (0..).zip(store.tables()) {
            let cells = 0..table.metadata().columns.len() as u32;
            for column in cells.filter(|_| table.row_count() > 0) {
                let change = Change::Cells { table: of, row: 0, columns: &[column] };
                let (changed, _) = store.changed(&change, 1).unwrap();
                for (number, (old, new)) in (0..).zip(store.tables().iter().zip(changed.tables())) {
                    let places = old.metadata().columns.len() as u32;
                    for row in 0..old.row_count() {
                        let (old, new) = (old.row(row).unwrap(), new.row(row).unwrap());
                        for place in 0..places {
                            let is_it = (number, row, place) == (of, 0, column);
                            let [old, new] = [&old, &new].map(|row| row.cell(place as usize));
                            // An identifier has no other value.
                            let may_stay = !is_it || old == Cell::Identifier;
                            assert!(if old == new { may_stay } else { is_it }, "{row} {place}");
                        }
                    }
                }
            }
        }
    }

    /// The links of a changed copy are those of its own rows, by time and row; so are the totals.
    #[test]
    fn p7_a_changed_copy_has_the_links_and_totals_of_its_rows() {
        let store = small();
        let aggregates = &store.metadata().aggregates;
        for (after, seed) in [(0, 1), (20 * crate::days::DAY_US, 2), (i64::MIN + 2, 3)] {
            let (changed, _) = store.changed(&Change::Later { after }, seed).unwrap();
            for (number, relation) in changed.relations().iter().enumerate() {
                let table = &changed.tables()[relation.metadata().child as usize];
                let rows: Vec<_> =
                    (0..table.row_count()).map(|row| table.row(row).unwrap()).collect();
                let parents = changed.tables()[relation.metadata().parent as usize].row_count();
                for parent in 0..parents {
                    let is_child =
                        |row: &u32| relation.parent(&rows[*row as usize]).unwrap() == Some(parent);
                    let mut expected: Vec<u32> = (0..table.row_count()).filter(is_child).collect();
                    expected.sort_by_key(|&row| (rows[row as usize].time(), row));
                    let children = relation.children(parent).unwrap();
                    assert_eq!(children.rows().unwrap(), expected);
                    for (place, row) in expected.iter().enumerate() {
                        let time = children.time(place).unwrap();
                        assert!(time.is_none_or(|time| time == rows[*row as usize].time()));
                    }
                    for column in summed_columns(aggregates, number) {
                        let values = expected
                            .iter()
                            .map(|row| fixed_point(rows[*row as usize].cell(column as usize)));
                        let values: Vec<i64> = values.flatten().map(i64::from).collect();
                        let total = children.total(column, 0, expected.len()).unwrap().unwrap();
                        assert_eq!(total.sum, values.iter().sum::<i64>());
                        // A column without NULL has no counts; there a new NULL counts as 0.
                        let has_null = table.metadata().columns[column as usize].null_count > 0;
                        let count = if has_null { values.len() } else { expected.len() };
                        assert_eq!(total.count as usize, count);
                    }
                }
            }
        }
    }

    /// The different rows and the digest of each changed copy below.
    const EXPECTED: [&str; 21] = [
        "6 5b408945a18172c6",
        "6 d6c7f008badd2adb",
        "6 5b408945a18172c6",
        "6 d6c7f008badd2adb",
        "3 24dfa1a0ac933ddd",
        "3 d666851dd98a1944",
        "0 283d00ef374345dc",
        "0 d6dfcc203414eced",
        "1 f3c3c5689b81d782",
        "1 37aaedfa1a3c4d29",
        "1 14a5badce49f5683",
        "1 443d5e639bb7cf80",
        "1 614e984ea756c929",
        "1 d7535ce4cf62a1cd",
        "1 3b5020c6ab70384d",
        "1 783604ff7f494344",
        "1 8544c94702b905e6",
        "1 f21ffbd284f8cae9",
        "1 d7fd6c57504dc10e",
        "1 92afd83e0fc68902",
        "1 5fbcd2910127a0b1",
    ];

    /// An audit says the same of a store wherever it runs.
    #[test]
    fn p7_the_bytes_of_changed_copies_are_those_of_their_seed() {
        let store = small();
        let digest = |change: &Change<'_>, seed| {
            let (changed, rows) = store.changed(change, seed).unwrap();
            let all: Vec<u8> = bytes(&changed).into_iter().flat_map(|(_, bytes)| bytes).collect();
            (rows, crate::Digest::of(&all).to_string()[..16].to_owned())
        };
        let mut found = Vec::new();
        for after in [i64::MIN + 2, 0, 20 * crate::days::DAY_US, 40 * crate::days::DAY_US] {
            found.extend([1, 2].map(|seed| digest(&Change::Later { after }, seed)));
        }
        for (table, of) in (0..).zip(store.tables()) {
            let columns: Vec<u32> = (0..of.metadata().columns.len() as u32).collect();
            found.extend(
                (0..of.row_count())
                    .map(|row| digest(&Change::Cells { table, row, columns: &columns }, 1)),
            );
        }
        let found: Vec<String> =
            found.into_iter().map(|(rows, digest)| format!("{rows} {digest}")).collect();
        assert_eq!(found, EXPECTED);
    }

    /// Changes one record of a table in a way.
    fn changed_record(change: impl FnOnce(&mut Record<'_>, &Row<'_>)) -> Vec<u8> {
        let store = small();
        let table = &store.tables()[0];
        let mut bytes = vec![0; table.metadata().stride as usize + 16];
        let random = Stream::new(1, Purpose::Audit, [0; 3]);
        let mut record =
            Record { metadata: table.metadata(), bytes: &mut bytes, random, text_count: 3 };
        change(&mut record, &table.row(0).unwrap());
        bytes
    }

    #[test]
    fn a_bit_of_a_record_is_set_alone() {
        for bit in 0..20 {
            let bytes = changed_record(|record, _| {
                assert!(!record.bit(bit));
                record.set_bit(bit, true);
                assert!(record.bit(bit));
            });
            assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1, "bit {bit}");
            changed_record(|record, _| {
                record.bytes.fill(0xff);
                record.set_bit(bit, false);
                assert!((0..20).all(|other| record.bit(other) == (other != bit)));
            });
        }
    }

    /// What came to be known always, or never, stays so; the last time is no more than that.
    #[test]
    fn times_move_alike_and_stay_times() {
        let last = NEVER_VISIBLE - 1;
        for (before, after) in [
            (ALWAYS_VISIBLE, ALWAYS_VISIBLE),
            (NEVER_VISIBLE, NEVER_VISIBLE),
            (5, 5 + SHIFT_US),
            (last - 3, last),
            (last, last),
        ] {
            let bytes = changed_record(|record, _| {
                record.put(0, &before.to_le_bytes());
                record.shift(0);
            });
            assert_eq!(bytes[..8], after.to_le_bytes(), "{before}");
        }
    }

    #[test]
    fn a_category_of_one_byte_becomes_another_one() {
        let stats =
            ColumnStats::Categorical { cat_emb_start: 0, cat_emb_count: 5, known_count: None };
        let column =
            ColumnMetadata { stats, offset: 0, ..small().metadata.tables[0].columns[0].clone() };
        for old in 0..5_u8 {
            changed_record(|record, row| {
                for _ in 0..50 {
                    record.bytes[0] = old;
                    record.change_cell(row, 0, &column);
                    assert!(record.bytes[0] != old && record.bytes[0] < 5);
                }
            });
        }
    }

    #[test]
    fn every_target_becomes_another_one() {
        let of = |stats: &ColumnStats, mut bytes: Vec<u8>| {
            change_targets(&mut bytes, stats, Stream::new(1, Purpose::Audit, [0; 3]));
            bytes
        };
        let truth = ColumnStats::Boolean { true_count: 1 };
        assert_eq!(of(&truth, vec![0, 1, 0]), [1, 0, 1]);
        let time = ColumnStats::Timestamp { mean_us: 0.0, std_us: 1.0, min_us: 0, max_us: 9 };
        let times = |days: [i64; 2]| bytemuck::cast_slice(&days).to_vec();
        assert_eq!(of(&time, times([1, 7])), times([1 + SHIFT_US, 7 + SHIFT_US]));
        let (scale, mean, std, min, max) = (Scale::Linear, 0.0, 1.0, 0.0, 9.0);
        let number = ColumnStats::Numerical { scale, mean, std, min, max };
        let numbers = |numbers: [f32; 2]| bytemuck::cast_slice(&numbers).to_vec();
        assert_eq!(of(&number, numbers([0.5, 2.0])), numbers([1.5, 3.0]));
        let categories =
            ColumnStats::Categorical { cat_emb_start: 0, cat_emb_count: 2, known_count: None };
        let two = |numbers: [u32; 2]| bytemuck::cast_slice(&numbers).to_vec();
        assert_eq!(of(&categories, two([0, 1])), two([1, 0]));
    }

    #[test]
    fn the_memory_of_a_copy_is_that_of_the_files_that_change() {
        let store = small();
        let bytes_of = |name: &str| {
            let found = store.metadata.files.iter().position(|file| file.path == name).unwrap();
            store.containers[found].file_bytes()
        };
        let names: Vec<_> = store.metadata.files.iter().map(|file| file.path.as_str()).collect();
        // The file of a task about cells has no target.
        let stays = |name: &str| name.contains("embeddings") || name == "tasks/vip.bin";
        let changing = names.iter().filter(|name| !stays(name) && **name != GRAPH_FILE);
        let expected = changing.map(|name| bytes_of(name)).sum::<u64>() + 3 * bytes_of(GRAPH_FILE);
        assert!(names.len() > 4 && expected > 0);
        assert_eq!(store.bytes_of_changed(), expected);
    }

    #[test]
    fn another_number_is_another() {
        let mut random = Stream::new(1, Purpose::Audit, [0; 3]);
        for count in 2..20 {
            for old in 0..count {
                let other = other_than(old, count, &mut random);
                assert!(other != old && other < count, "{old} of {count}: {other}");
            }
        }
        assert_eq!([0, 1].map(|count| other_than(0, count, &mut random)), [0, 0]);
    }
}
