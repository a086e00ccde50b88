//! Reads and writes derived tasks: tables of (anchor key, observation time, target[, split]).

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, StringViewArray};
use arrow_select::concat::concat;
use arrow_select::filter::filter;

use super::chain::SpillWriter;
use super::columns::{ColumnSummary, Summary};
use super::groups::{self, Buckets};
use super::key_list::KeyList;
use super::keys::{KeyFaults, NULL_KEY, digest, write_key};
use super::layout::column_metadata;
use super::links::{Links, Parents};
use super::records::encode_target;
use super::row_keys::{TextOf, row_in_words};
use super::scratch::Scratch;
use crate::bytes::reserve;
use crate::container::ContainerWriter;
use crate::days::time_text;
use crate::error::{Error, Result};
use crate::fold::Moments;
use crate::plan::Split;
use crate::prepare::names::counted;
use crate::prepare::schema::{DerivedTask, Limits, Predict, Task};
use crate::prepare::source::Batches;
use crate::prepare::values::{Values, arrow_error, to_texts};
use crate::progress::Progress;
use crate::store::{ColumnMetadata, FileMetadata, SEES_EVERYTHING, Table as StoreTable, task_file};

/// The seeds of a derived task, all in memory: they are few compared to the rows of the database.
pub(super) struct Derived {
    anchors: Vec<u32>,
    obs_times: Vec<i64>,
    splits: Vec<Split>,
    targets: ArrayRef,
    /// The statistics of the targets; of the train split only, if splits are recorded.
    pub summary: ColumnSummary,
}

/// Returns the columns of a derived task, in the order in which it reads them.
pub(super) fn columns_of(task: &DerivedTask) -> Vec<String> {
    let mut columns = task.key.clone();
    columns.push(task.target.clone());
    columns.extend(task.time.iter().map(|time| time.column.clone()));
    columns.extend(task.split.clone());
    columns
}

/// The faults in the rows of a task.
#[derive(Default)]
struct SeedFaults {
    null_key: KeyFaults,
    null_time: KeyFaults,
    bad_split: KeyFaults,
}

/// Reads the seeds of `task`, whose anchors have `keys`.
pub(super) fn read(
    task: &Task,
    derived: &DerivedTask,
    batches: Batches,
    keys: &KeyList,
    limits: &Limits,
    text_of: &TextOf<'_>,
    scratch: &Scratch,
) -> Result<Derived> {
    let spill = SpillWriter::new(scratch);
    let mut reading = Reading {
        task,
        derived,
        links: Links::new(),
        spill: &spill,
        row: 0,
        faults: SeedFaults::default(),
        times: match &derived.time {
            Some(time) => ColumnSummary::new(&time.column, time.as_column()),
            None => ColumnSummary::new("", crate::store::SemanticType::Timestamp.into()),
        },
        targets: Vec::new(),
        result: Derived {
            anchors: Vec::new(),
            obs_times: Vec::new(),
            splits: Vec::new(),
            targets: arrow_array::new_empty_array(&arrow_schema::DataType::Null),
            summary: ColumnSummary::new(&derived.target, derived.target_column()),
        },
    };
    for batch in batches {
        reading.add_batch(&batch?)?;
    }
    reading.finish(keys, limits, text_of, scratch)
}

struct Reading<'a> {
    task: &'a Task,
    derived: &'a DerivedTask,
    /// The keys of the anchors.
    links: Links,
    spill: &'a SpillWriter,
    row: u64,
    faults: SeedFaults,
    times: ColumnSummary,
    targets: Vec<ArrayRef>,
    result: Derived,
}

impl Reading<'_> {
    fn add_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let key_count = self.derived.key.len();
        let keys = batch.columns()[..key_count].iter().map(to_texts).collect::<Result<Vec<_>>>()?;
        let keys: Vec<&StringViewArray> = keys.iter().collect();
        let (mut text, mut digests) = (String::new(), reserve(batch.num_rows())?);
        for row in 0..batch.num_rows() {
            let is_whole = write_key(&keys, row, &mut text);
            if !is_whole {
                let at = self.row + row as u64 + 1;
                self.faults.null_key.add(|first| *first = format!("row {at}"));
            }
            digests.push(if is_whole { digest(text.as_bytes()) } else { NULL_KEY });
        }
        self.links.add(self.spill, &digests)?;
        let mut columns = batch.columns()[key_count + 1..].iter();
        let times = match &self.derived.time {
            None => None,
            Some(_) => columns.next(),
        };
        self.add_times(times, batch.num_rows())?;
        if let (Some(_), Some(splits)) = (&self.derived.split, columns.next()) {
            self.add_splits(&to_texts(splits)?);
        }
        let values = self.result.summary.read(&batch.columns()[key_count], self.row)?;
        self.targets.push(self.result.summary.add(&values));
        self.row += batch.num_rows() as u64;
        Ok(())
    }

    fn add_times(&mut self, times: Option<&ArrayRef>, rows: usize) -> Result<()> {
        let values = match times {
            None => None,
            Some(times) => {
                let values = self.times.read(times, self.row)?;
                self.times.add(&values);
                Some(values)
            }
        };
        for row in 0..rows {
            let time = match &values {
                Some(Values::Times(times)) if times.is_valid(row) => times.value(row),
                _ if self.task.sees_everything => SEES_EVERYTHING,
                _ => {
                    let at = self.row + row as u64 + 1;
                    self.faults.null_time.add(|first| *first = format!("row {at}"));
                    SEES_EVERYTHING
                }
            };
            self.result.obs_times.push(time);
        }
        Ok(())
    }

    fn add_splits(&mut self, splits: &StringViewArray) {
        for (row, name) in splits.iter().enumerate() {
            match Split::ALL.into_iter().find(|split| Some(split.name()) == name) {
                Some(split) => self.result.splits.push(split),
                None => {
                    let at = self.row + row as u64 + 1;
                    let name = name.map_or_else(|| "NULL".to_owned(), |name| format!("{name:?}"));
                    self.faults.bad_split.add(|first| *first = format!("{name} in row {at}"));
                }
            }
        }
    }

    fn finish(
        mut self,
        keys: &KeyList,
        limits: &Limits,
        text_of: &TextOf<'_>,
        scratch: &Scratch,
    ) -> Result<Derived> {
        if self.row == 0 {
            return Err(Error::data("the task has no rows; remove it from the schema"));
        }
        if self.row > u64::from(u32::MAX) {
            return Err(Error::limit(format!(
                "expected at most 4,294,967,295 seeds, found {}",
                self.row
            )));
        }
        self.times.check()?;
        self.result.summary.check()?;
        self.result.summary.check_categories(limits)?;
        let anchors = self.links.resolve(keys, scratch)?;
        self.faults.check(self.task, self.derived, &anchors, text_of)?;
        self.result.anchors = anchors.stored(0..self.row as usize).collect();
        let targets: Vec<&dyn Array> = self.targets.iter().map(|array| &**array).collect();
        self.result.targets = concat(&targets).map_err(arrow_error)?;
        self.result.use_train_statistics(self.task.predict.as_ref())?;
        Ok(self.result)
    }
}

impl SeedFaults {
    fn check(
        &self,
        task: &Task,
        derived: &DerivedTask,
        anchors: &Parents,
        text_of: &TextOf<'_>,
    ) -> Result<()> {
        let Self { null_key, null_time, bad_split } = self;
        let key = derived.key.join(", ");
        if null_key.count > 0 {
            return Err(Error::data(format!(
                "the key of the anchor ({key}) is NULL in {}, the first is {}; remove these rows, \
                 or correct the data",
                counted(null_key.count, "row"),
                null_key.first
            )));
        }
        if let Some(first) = anchors.first_unresolved {
            return Err(Error::data(format!(
                "the anchor ({key}) of {} is not in table {:?}, the first is {}; remove these \
                 rows, or correct the key",
                counted(anchors.unresolved_count, "row"),
                derived.anchor,
                row_in_words(text_of, &derived.key, first)
            )));
        }
        if null_time.count > 0 {
            let fault = match &derived.time {
                Some(time) => format!("the observation time ({:?}) is NULL", time.column),
                None => "the observation time is missing".to_owned(),
            };
            return Err(Error::data(format!(
                "{fault} in {}, the first is {}; such a seed would see the future: give it a time, \
                 or set sees_everything = true in task {:?}",
                counted(null_time.count, "row"),
                null_time.first,
                task.name
            )));
        }
        if bad_split.count > 0 {
            return Err(Error::data(format!(
                "expected the split train, val or test, found another in {}, the first is {}; \
                 correct the column {:?}",
                counted(bad_split.count, "row"),
                bad_split.first,
                derived.split.as_deref().unwrap_or_default()
            )));
        }
        Ok(())
    }
}

impl Derived {
    /// Returns the number of seeds.
    pub(super) fn seed_count(&self) -> u32 {
        self.anchors.len() as u32
    }

    /// Returns the number of seeds of each recorded split, and the mean of their numbers or the share
    /// of true.
    pub(super) fn describe_splits(&self) -> String {
        let splits = [Split::Train, Split::Val, Split::Test].map(|split| {
            let rows = (self.splits.iter().enumerate()).filter(|&(_, &of_row)| of_row == split);
            let rows: Vec<usize> = rows.map(|(row, _)| row).collect();
            if rows.is_empty() {
                return format!("{} no seeds", split.name());
            }
            let shown =
                self.describe_targets(&rows).map_or_else(String::new, |it| format!(" ({it})"));
            format!("{} {}{shown}", split.name(), counted(rows.len() as u64, "seed"))
        });
        splits.join(", ")
    }

    fn describe_targets(&self, rows: &[usize]) -> Option<String> {
        let present = || rows.iter().copied().filter(|&row| self.targets.is_valid(row));
        let count = present().count().max(1) as f64;
        if let Some(targets) = self.targets.as_boolean_opt() {
            let share = present().filter(|&row| targets.value(row)).count() as f64 / count;
            return Some(format!("{:.1} % true", 100.0 * share));
        }
        let targets = self.targets.as_primitive_opt::<Float64Type>()?;
        let mean = present().map(|row| targets.value(row)).sum::<f64>() / count;
        Some(format!("mean {mean:.4}"))
    }

    /// Returns why splits of a declared task have no seeds: its dates lie outside of the observations.
    pub(super) fn describe_empty_splits(&self, predict: &Predict) -> Option<String> {
        let is_there = |split| self.splits.contains(&split);
        let (field, date) = match (is_there(Split::Train), is_there(Split::Test)) {
            (false, _) => ("train_until", &predict.train_until),
            (true, false) if !is_there(Split::Val) => ("train_until", &predict.train_until),
            (true, false) => ("val_until", &predict.val_until),
            (true, true) => return None,
        };
        let (first, last) = (self.obs_times.iter().min()?, self.obs_times.iter().max()?);
        Some(format!(
            "{field} = {date:?} leaves a split without seeds: they are observed from {} to {}; choose \
             {field} between these times, one horizon ({}) after the first at least",
            time_text(*first),
            time_text(*last),
            predict.horizon
        ))
    }

    /// Returns the observation time of each seed.
    pub(super) fn obs_times(&self) -> &[i64] {
        &self.obs_times
    }

    /// Returns the last observation time of the recorded train split; `None` if no split is recorded, or
    /// none of its seeds has a time.
    pub(super) fn train_end(&self) -> Option<i64> {
        let seeds = self.splits.iter().zip(&self.obs_times);
        let train =
            seeds.filter(|&(&split, &time)| split == Split::Train && time != SEES_EVERYTHING);
        train.map(|(_, &time)| time).max()
    }

    /// Computes the statistics from the recorded train split only, so that they do not depend on
    /// the other splits.
    fn use_train_statistics(&mut self, predict: Option<&Predict>) -> Result<()> {
        if self.splits.is_empty() {
            return Ok(());
        }
        let train: BooleanArray =
            self.splits.iter().map(|&split| Some(split == Split::Train)).collect();
        let train = filter(&self.targets, &train).map_err(arrow_error)?;
        self.summary.null_count = train.logical_null_count() as u64;
        let all = self.summarise(&train);
        self.check_scale(&all, train.len() - train.logical_null_count(), predict)
    }

    /// Makes the statistics of some targets those of the task. Returns those before.
    fn summarise(&mut self, train: &ArrayRef) -> Summary {
        let all = self.summary.summary.clone();
        match &mut self.summary.summary {
            Summary::Numerical(numbers) => {
                *numbers = numbers.emptied();
                let targets = train.as_primitive::<Float64Type>();
                targets.iter().flatten().for_each(|target| numbers.push(target));
            }
            Summary::Timestamp { moments, min, max, .. } => {
                *moments = Moments::default();
                let targets = train.as_primitive::<Int64Type>();
                targets.iter().flatten().for_each(|target| moments.push(target as f64));
                *min = targets.iter().flatten().min().unwrap_or(i64::MAX);
                *max = targets.iter().flatten().max().unwrap_or(i64::MIN);
            }
            Summary::Boolean { true_count } => {
                *true_count = train.as_boolean().true_count() as u64;
            }
            Summary::Categorical(dictionary) => {
                dictionary.know(train.as_primitive::<UInt32Type>().iter().flatten());
            }
            Summary::Identifier | Summary::Text => {}
        }
        all
    }

    /// Makes the statistics, where no split is recorded, those of the targets that are observed by `until`
    /// or have no time. Returns whether these can scale all targets, or have a category; without any, all
    /// categories stay.
    pub(super) fn restrict(&mut self, until: i64) -> Result<bool> {
        if !self.splits.is_empty() {
            return Ok(true);
        }
        let is_known = |&time: &i64| Some(time == SEES_EVERYTHING || time <= until);
        let known: BooleanArray = self.obs_times.iter().map(is_known).collect();
        let known = filter(&self.targets, &known).map_err(arrow_error)?;
        let all = self.summarise(&known);
        let is_scaled = !self.summary.summary.cannot_scale(&all);
        if !is_scaled && matches!(all, Summary::Categorical(_)) {
            // Its train seeds, by hash, are of all times; without a category they could learn nothing.
            self.summary.summary = all;
        } else {
            self.summary.summary.restrict(until);
        }
        Ok(is_scaled)
    }

    /// Checks that the `count` targets of the train split can scale `all` targets: otherwise all would have
    /// the same score, or be of categories that nothing predicts.
    fn check_scale(&self, all: &Summary, count: usize, predict: Option<&Predict>) -> Result<()> {
        let first = self.obs_times.iter().min();
        let has_scale = matches!(all, Summary::Numerical(_) | Summary::Timestamp { .. });
        if let (Some(predict), Some(&first), false, true) =
            (predict, first, self.splits.contains(&Split::Train), has_scale)
        {
            return Err(Error::data(format!(
                "expected a train_until after the first answers, found {:?}, by which no answer is known: the \
                 first seed is observed at {}, and its horizon is {}; choose a later train_until",
                predict.train_until,
                time_text(first),
                predict.horizon
            )));
        }
        if !self.summary.summary.cannot_scale(all) {
            return Ok(());
        }
        if !has_scale {
            return Err(Error::data(format!(
                "the train split has no target {:?}, and other splits have some; correct the splits, or \
                 remove the task",
                self.summary.name
            )));
        }
        let found = match count {
            0 => "it has no target, and other splits have some".to_owned(),
            count => format!(
                "its {count} targets are all equal or nearly equal, and those of other splits \
                 differ"
            ),
        };
        Err(Error::data(format!(
            "the train split cannot scale the target {:?}: {found}; correct the splits, or remove \
             the task",
            self.summary.name,
        )))
    }

    /// Writes the file of the task, whose seeds are in the rows of `anchor`; returns the metadata of its
    /// target.
    pub(super) fn write(
        &self,
        folder: &Path,
        task: &Task,
        column_index: u32,
        category_count: &mut u32,
        anchor: &StoreTable,
        progress: &dyn Progress,
    ) -> Result<(ColumnMetadata, FileMetadata)> {
        let column = column_metadata(&self.summary, column_index, category_count)?;
        let mut file = ContainerWriter::create(folder, &task_file(&task.name))?;
        file.section("anchors", &self.anchors)?;
        file.section("obs_times", &self.obs_times)?;
        let targets = encode_target(&self.summary, &column.stats, &self.targets)?;
        file.section("targets", &targets)?;
        let nulls: Vec<u8> =
            (0..self.targets.len()).map(|row| u8::from(self.targets.is_null(row))).collect();
        file.section("nulls", &nulls)?;
        if !self.splits.is_empty() {
            let tags: Vec<u8> = self.splits.iter().map(|&split| split as u8).collect();
            file.section("splits", &tags)?;
        }
        let buckets = Buckets::new(&task.name, anchor);
        groups::write(&mut file, self.seed_count(), !self.splits.is_empty(), progress, |seed| {
            let seed = seed as usize;
            let group = match self.splits.get(seed) {
                Some(split) => *split as u16,
                None => buckets.of(self.anchors[seed])?,
            };
            Ok((group, nulls[seed] != 0))
        })?;
        Ok((column, file.finish()?))
    }
}
