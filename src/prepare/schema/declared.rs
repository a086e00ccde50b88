//! Turns each declared task into a derived one.
//!
//! A declared task is a [`DerivedTask`] whose SQL is written by [`super::predict_sql`]: the seeds are
//! the rows of the anchor at the times `train_until + k * every`, and the target is made from the
//! child rows in the horizon after each of these times. A seed is in the split in which its target is
//! known, so no label of training tells of the validation period, and none of the test period.

use super::check::{fail, has_columns};
use super::link::{PairColumns, key_of_pairs, reference, refers_to_key};
use super::predict::{Predict, Question, What};
use super::predict_sql::{COUNTS, KEY, OBSERVED_AT, SPLIT, TARGET, query};
use super::{Column, Delay, DerivedTask, Known, Schema, Table, Task, link_sql};
use crate::error::{Context, Error, Result};
use crate::store::SemanticType;

impl Schema {
    /// Returns the schema with a derived task, whose SQL says the same, for each declared task, and a
    /// table of pairs for each that asks about links.
    ///
    /// # Errors
    /// `Schema`: a declared task names what is not there, or asks what cannot be known.
    pub fn with_declared_tasks(&self) -> Result<Self> {
        let mut schema = self.clone();
        for task in &mut schema.tasks {
            let Some(predict) = &task.predict else { continue };
            let (derived, pairs) =
                self.derived(task, predict).context(|| format!("task {:?}: predict", task.name))?;
            task.derived = Some(derived);
            schema.tables.extend(pairs);
        }
        Ok(schema)
    }

    /// Returns the derived task that says the same, and the table of its pairs, if it has some.
    fn derived(&self, task: &Task, predict: &Predict) -> Result<(DerivedTask, Option<Table>)> {
        if task.cell.is_some() || task.derived.is_some() {
            return fail("expected only one of cell, derived and predict, found several");
        }
        if task.sees_everything {
            return fail(
                "its seeds have observation times, so they do not see everything; remove \
                 sees_everything",
            );
        }
        let question = self.question(predict)?;
        let target = question.target.clone();
        // A label is known when the answer from the last child of its horizon can be known.
        let horizon = Delay(predict.horizon.0.saturating_add(question.answer_delay));
        let count = question.anchor.key.len();
        let derived = DerivedTask {
            anchor: predict.anchor.clone(),
            source: None,
            sql: None,
            key: (1..=count).map(|part| format!("{KEY}{part}")).collect(),
            time: Some(OBSERVED_AT.to_owned().into()),
            target: TARGET.to_owned(),
            target_type: target.semantic,
            scale: target.scale,
            split: Some(SPLIT.to_owned()),
            horizon: Some(horizon),
        };
        let Some(link) = &question.link else {
            return Ok((DerivedTask { sql: Some(query(self, &question)?), ..derived }, None));
        };
        let columns = PairColumns::of(&question, link)?;
        let pairs = self.pair_table(task, &columns, link)?;
        let derived = DerivedTask {
            anchor: pairs.name.clone(),
            sql: Some(link_sql::query(self, &question, link, &columns)?),
            key: key_of_pairs(&columns),
            // No context has the labels of other pairs.
            horizon: None,
            ..derived
        };
        Ok((derived, Some(pairs)))
    }

    /// Returns the delays of the time of a table and of those that it inherits.
    pub(super) fn delay(&self, table: &Table) -> i64 {
        let times = self.lineage(table).into_iter().filter_map(|table| table.time.as_ref());
        times.fold(0, |total, time| total.saturating_add(time.delay.0))
    }

    /// Returns a table and the tables from which it inherits its time, up to the one with a column.
    pub(super) fn lineage<'a>(&'a self, table: &'a Table) -> Vec<&'a Table> {
        let parent = |table: &&'a Table| {
            let through = table.time.as_ref()?.through.as_ref()?;
            self.find_table(&table.references[table.reference(through)?].to).ok()
        };
        // `check` refuses a circle; it must not hang what runs without it.
        std::iter::successors(Some(table), parent).take(self.tables.len()).collect()
    }

    fn question<'a>(&'a self, predict: &'a Predict) -> Result<Question<'a>> {
        let anchor = self.find_table(&predict.anchor).context(|| "anchor")?;
        if anchor.key.is_empty() {
            return fail(format!(
                "anchor {:?} has no key, so its rows cannot be named; give the table a key",
                anchor.name
            ));
        }
        let children = self.find_table(&predict.of).context(|| "of")?;
        if children.time.is_none() {
            return fail(format!(
                "of: table {:?} has no time, so which of its rows lie after an observation cannot \
                 be known; give the table a time",
                children.name
            ));
        }
        let reference = reference(self, predict, children)?;
        refers_to_key(reference, anchor)?;
        let link = self.link(predict, children, reference)?;
        if predict.condition.as_ref().is_some_and(|condition| condition.trim().is_empty()) {
            return fail(
                "where: expected a condition of SQL, found none; write one, or remove where",
            );
        }
        if children.columns.contains_key(COUNTS) {
            return fail(format!(
                "table {:?} has a column {COUNTS:?}, a name that declared tasks use themselves; \
                 leave the column out",
                children.name
            ));
        }
        for (name, length) in [
            ("horizon", Some(predict.horizon)),
            ("every", predict.every),
            ("active_within", predict.active_within),
        ] {
            if length.is_some_and(|length| length.0 <= 0) {
                return fail(format!("{name}: expected a time longer than 0, found 0"));
            }
        }
        // Before the times at which columns are known: a column that the question may not name has none.
        let target = target(predict, children)?;
        let train_until = time(&predict.train_until).context(|| "train_until")?;
        let val_until = time(&predict.val_until).context(|| "val_until")?;
        if val_until.saturating_sub(train_until) < predict.horizon.0 {
            return fail(format!(
                "expected val_until at least one horizon ({}) after train_until, found {:?} and \
                 {:?}; choose a later val_until or a shorter horizon",
                predict.horizon, predict.val_until, predict.train_until
            ));
        }
        let answer_delay =
            self.delay(children).saturating_add(longest_known_delay(predict, children)?);
        Ok(Question {
            predict,
            anchor,
            children,
            reference,
            link,
            target,
            train_until,
            val_until,
            answer_delay,
        })
    }
}

/// Returns the longest delay after its row of a column of the children that the question names.
fn longest_known_delay(predict: &Predict, children: &Table) -> Result<i64> {
    let Predict { column: asked, condition, .. } = predict;
    let is_named = |name: &String| {
        asked.as_ref() == Some(name)
            || condition.as_ref().is_some_and(|condition| may_name(condition, name))
    };
    let mut longest = 0;
    for (name, column) in children.columns.iter().filter(|(name, _)| is_named(name)) {
        match &column.known {
            None => {}
            Some(Known::Delay(delay)) => longest = longest.max(delay.0),
            Some(Known::At(time)) => {
                return fail(format!(
                    "expected columns that are known a fixed time after their rows, found {name:?}, \
                     which is known at {time:?}; give it known = {{ delay = \"...\" }}, or write the \
                     task as [task.derived] with sql and a horizon"
                ));
            }
        }
    }
    Ok(longest)
}

/// Whether a condition of SQL may name a column: in any case of letters, as SQL does; with another
/// meaning, or in a text, the word counts too.
fn may_name(condition: &str, column: &str) -> bool {
    let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    let (condition, column) = (condition.to_lowercase(), column.to_lowercase());
    let mut words = condition.split(|c| !is_of_word(c));
    // `COLUMNS(...)` names columns by a pattern.
    let has_pattern = words.clone().any(|word| word == "columns");
    let is_there = match column.chars().all(is_of_word) {
        true => words.any(|word| word == column),
        false => condition.contains(&column.replace('"', "\"\"")) || condition.contains(&column),
    };
    is_there || has_pattern
}

/// Returns the type and scale of the target.
fn target(predict: &Predict, children: &Table) -> Result<Column> {
    let Predict { what, .. } = *predict;
    let name = what.name();
    let scaled = |semantic| Ok(Column { scale: predict.scale, ..Column::from(semantic) });
    let column = match (&predict.column, what.needs_column()) {
        (None, true) => {
            return fail(format!("what = {name:?} needs a column; add column = \"...\""));
        }
        (Some(column), false) => {
            return fail(format!(
                "what = {name:?} is about rows and takes no column; remove column = {column:?}, or \
                 say with where which rows count"
            ));
        }
        (None, false) if matches!(what, What::Exists | What::Link) => {
            return scaled(SemanticType::Boolean);
        }
        (None, false) => return scaled(SemanticType::Numerical),
        (Some(column), true) => column,
    };
    has_columns(children, std::slice::from_ref(column)).context(|| "column")?;
    let semantic = children.columns[column].semantic;
    let is_fit = match what {
        What::First | What::Last => !matches!(
            semantic,
            SemanticType::Text | SemanticType::Identifier | SemanticType::Ignored
        ),
        What::Mean => matches!(semantic, SemanticType::Numerical | SemanticType::Boolean),
        _ => semantic == SemanticType::Numerical,
    };
    if !is_fit {
        let expected = match what {
            What::First | What::Last => "a numerical, boolean, categorical or timestamp column",
            What::Mean => "a numerical or boolean column",
            _ => "a numerical column",
        };
        return fail(format!(
            "column {column:?}: expected {expected} for what = {name:?}, found {semantic}; choose \
             another column, or give it such a type"
        ));
    }
    match what {
        What::First | What::Last => scaled(semantic),
        _ => scaled(SemanticType::Numerical),
    }
}

/// Parses a time of a schema file.
impl Schema {
    /// Returns the time until which rows have a part in statistics, in microseconds since 1970.
    ///
    /// # Errors
    /// `Schema` when it is no time.
    pub(in crate::prepare) fn statistics_until(&self) -> Result<Option<i64>> {
        let until = self.statistics_until.as_deref().map(time).transpose();
        until.context(|| "statistics_until")
    }
}

fn time(text: &str) -> Result<i64> {
    crate::prepare::values::time_of_text(text).ok_or_else(|| {
        Error::schema(format!(
            "expected a time such as \"2020-01-31\" or \"2020-01-31 12:00:00\", found {text:?}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::may_name;

    #[test]
    fn p7_a_condition_names_columns_in_any_case_and_whole() {
        for (condition, column, expected) in [
            ("Score > 0.9", "Score", true),
            ("score > 0.9", "Score", true),
            ("\"SCORE\" > 0.9", "Score", true),
            ("x.score>0.9", "score", true),
            ("ÄNDERUNG = 1", "änderung", true),
            ("\"paid \"\"late\"\"\"", "paid \"late\"", true),
            ("\"Paid Late\"", "paid late", true),
            ("COLUMNS('sc.*') > 1", "score", true),
            ("paid_late", "paid", false),
            ("NOT paid", "e", false),
            ("score_2 > 1", "score", false),
        ] {
            assert_eq!(may_name(condition, column), expected, "{condition}, {column}");
        }
    }
}
