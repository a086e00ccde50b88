//! The SQL of a declared task, in DuckDB's dialect.
//!
//! Observation k is at `train_until + k * every`. A child at time t lies in the horizon of the
//! observations with `at < t <= at + horizon`, so the numbers of these observations are an
//! arithmetic range: the query makes a row for each of them and joins by number, in time that grows
//! with the children, whatever the number of observations.
//!
//! The observations reach as far as the children do. A time that stands for none, such as 9999-12-31,
//! would make a seed of every anchor row for each step of 8,000 years. So the days with children are cut
//! where none has a child for ten years, the part with the most children is the main one, and a child
//! lies *far* if it is further from this part than the part is long, and than ten years. If a far child
//! counts, the query fails with a message; if none counts, the observations end with the others.

use std::fmt::Write;

use super::predict::{Question, What, in_key_order};
use super::prepared::{ROW, key_column};
use super::{Schema, Table};
use crate::days::DAY_US;
use crate::error::{Error, Result};

/// The columns of a query: the parts of the anchor's key by number, the observation time, the
/// target and the split.
pub(super) const KEY: &str = "key_";
pub(super) const OBSERVED_AT: &str = "observed_at";
pub(super) const TARGET: &str = "target";
pub(super) const SPLIT: &str = "split";

/// The column that says which children count.
pub(super) const COUNTS: &str = "counts for the task";

/// The days without a child that cut the times of the children into parts: ten years.
const DAYS_APART: i64 = 3_653;

/// The beginning of a message with which a query fails; what DuckDB writes before it is left out.
const REFUSES: &str = "headwater: ";

/// Returns the query whose rows are the seeds of a declared task.
pub(super) fn query(schema: &Schema, question: &Question<'_>) -> Result<String> {
    let predict = question.predict;
    let keys = numbered(KEY, question.anchor.key.len());
    let value = match &predict.column {
        Some(column) => format!("x0.{}", quoted(column)),
        None => "NULL".to_owned(),
    };
    let seeds = seeds(schema, question, &keys, &format!("{value} AS value"))?;
    let made = made_of_children(predict.what);
    let target = match predict.what {
        What::Count | What::Sum => format!("coalesce({TARGET}, 0)"),
        What::Exists => format!("coalesce({TARGET}, false)"),
        _ => TARGET.to_owned(),
    };
    let in_horizon = in_horizon();
    Ok(format!(
        "\
{seeds},
task_outcome AS (
  SELECT {keys}, k, {made} AS {TARGET}
  FROM ({in_horizon})
  GROUP BY {keys}, k
),
task_answer AS (
  SELECT {keys}, train_until + k * every AS asked_at, {target} AS {TARGET}
  FROM task_seed LEFT JOIN task_outcome USING ({keys}, k) CROSS JOIN task_bound CROSS JOIN task_question
  WHERE k BETWEEN low AND high
)
-- The target of a seed is known within its split.
SELECT {keys}, make_timestamp(asked_at) AS {OBSERVED_AT}, {TARGET},
  {IN_SPLIT} AS {SPLIT}
FROM task_answer CROSS JOIN task_question
WHERE {TARGET} IS NOT NULL
  AND {IS_KNOWN}"
    ))
}

/// The split of an observation, and whether its answer is known within that split.
pub(super) const IN_SPLIT: &str = "CASE WHEN asked_at < train_until THEN 'train' \
    WHEN asked_at < val_until THEN 'val' ELSE 'test' END";
pub(super) const IS_KNOWN: &str = "\
(asked_at >= train_until OR asked_at + horizon + answer_delay <= train_until)
  AND (asked_at < train_until OR asked_at >= val_until OR asked_at + horizon + answer_delay <= val_until)";

/// Returns the columns of the parts of a key: `key_1, key_2`.
pub(super) fn numbered(name: &str, parts: usize) -> String {
    let columns: Vec<String> = (1..=parts).map(|part| format!("{name}{part}")).collect();
    columns.join(", ")
}

/// Returns the SELECT of the children that count, each with the numbers of the observations in
/// whose horizon it lies.
pub(super) fn in_horizon() -> String {
    let (first, end) = (number_from("t - horizon"), number_from("t"));
    format!(
        "
    SELECT task_child.*, unnest(range({first}, {end})) AS k
    FROM task_child CROSS JOIN task_question WHERE counts
  "
    )
}

/// Returns the beginning of a query: the children, with the columns `more`, and the seeds.
pub(super) fn seeds(
    schema: &Schema,
    question: &Question<'_>,
    keys: &str,
    more: &str,
) -> Result<String> {
    let Question { predict, train_until, val_until, .. } = *question;
    let (children, asked) = (children(schema, question, more)?, asked(schema, question, keys)?);
    let end = number_from("t");
    let (reach, check) = (reach(), check_far(schema, question));
    Ok(format!(
        "\
-- In microseconds: train_until = {:?}, val_until = {:?}, horizon {}, every {};
-- delay is the time until a child is known, answer_delay that until what is asked of it is known, too.
WITH task_question AS (
  SELECT {train_until} AS train_until, {val_until} AS val_until,
    {} AS horizon, {} AS every, {} AS delay, {} AS answer_delay
),
-- The children, when they came to exist, and which of them count.
task_child AS (
{children}
),
{reach},
-- Observation k is at train_until + k * every. Its answer is known by the end of the data.
task_bound AS (
  SELECT min({end}) + max({check}) AS low,
    max(CAST(floor((t + delay - answer_delay - horizon - train_until) / every) AS BIGINT)) AS high
  FROM task_child CROSS JOIN task_question CROSS JOIN task_reach
  WHERE t BETWEEN reach_from AND reach_until
),
{asked}",
        predict.train_until,
        predict.val_until,
        predict.horizon,
        predict.step(),
        predict.horizon.0,
        predict.step().0,
        schema.delay(question.children),
        question.answer_delay,
    ))
}

/// Returns the queries of how far the children reach, and of the far ones that count.
fn reach() -> String {
    format!(
        "\
-- The times of the children are in parts, with {DAYS_APART} days between them at least. A child lies far if
-- it is further from the part with the most children than this part is long.
task_day AS (
  SELECT t // {DAY_US} AS day, min(t) AS first, max(t) AS last, count(*) AS children,
    count(*) FILTER (WHERE counts) AS counted
  FROM task_child GROUP BY day
),
task_part AS (
  SELECT part, min(day) AS part_from, max(day) AS part_until
  FROM (
    SELECT *, sum(CAST(is_apart AS BIGINT)) OVER (ORDER BY day) AS part
    FROM (
      SELECT *, coalesce(day - lag(day) OVER (ORDER BY day) > {DAYS_APART}, false) AS is_apart FROM task_day
    )
  )
  GROUP BY part ORDER BY sum(children) DESC, part LIMIT 1
),
task_far AS (
  SELECT *, greatest(day - part_until, part_from - day) > greatest(part_until - part_from, {DAYS_APART}) AS far
  FROM task_day CROSS JOIN task_part
),
task_reach AS (
  SELECT min(first) FILTER (WHERE NOT far) AS reach_from, max(last) FILTER (WHERE NOT far) AS reach_until,
    coalesce(sum(counted) FILTER (WHERE far), 0) AS far_count, sum(children) AS all_count,
    min(first) FILTER (WHERE far AND counted > 0) AS far_from,
    max(last) FILTER (WHERE far AND counted > 0) AS far_until
  FROM task_far
)"
    )
}

/// Returns an expression that is 0, or fails with a message if far children count.
fn check_far(schema: &Schema, question: &Question<'_>) -> String {
    let children = question.children;
    let lineage = schema.lineage(children);
    let column = lineage.last().and_then(|table| table.time.as_ref()?.column.as_ref());
    let column = column.map_or("", |column| column.as_str());
    // The text parts are SQL strings, between which numbers and times stand. A quote is a call, because a
    // person may put the query into a string of TOML, which three quotes would end.
    let literal = |text: &str| format!("'{}'", text.replace('\'', "' || chr(39) || '"));
    let time = |name: &str| format!("CAST(make_timestamp({name}) AS VARCHAR)");
    let (of, remedy) = match lineage.last() {
        // A condition names columns of the children alone.
        Some(table) if table.name != children.name => (
            format!("{column:?} of {:?}", table.name),
            literal("correct it, or leave these rows out of the source"),
        ),
        _ => {
            let begin = format!(
                "correct it, leave these rows out of the source, or say with where which rows count: {} \
                 BETWEEN TIMESTAMP '",
                quoted(column)
            );
            let parts = [
                literal(&begin),
                time("reach_from"),
                literal("' AND TIMESTAMP '"),
                time("reach_until"),
                literal("'"),
            ];
            (format!("{column:?}"), parts.join(" || "))
        }
    };
    let parts = [
        literal(&format!(
            "{REFUSES}table {:?}: expected rows with times ({of}) that lie together, found ",
            children.name
        )),
        "far_count".to_owned(),
        literal(" of "),
        "all_count".to_owned(),
        literal(" rows at "),
        time("far_from"),
        format!("CASE WHEN far_from = far_until THEN '' ELSE ' to ' || {} END", time("far_until")),
        literal(", far from the others, which lie from "),
        time("reach_from"),
        literal(" to "),
        time("reach_until"),
        literal(&format!(
            ": the task would ask every {} in between; if such a time stands for none, ",
            question.predict.step()
        )),
        remedy,
    ];
    format!("CASE WHEN far_count > 0 THEN error({}) ELSE 0 END", parts.join(" || "))
}

/// Returns the number of the first observation at `time` or later.
fn number_from(time: &str) -> String {
    format!("CAST(ceil(({time} - train_until) / every) AS BIGINT)")
}

/// Returns the anchor's rows at the observations at which the task asks about them.
fn asked(schema: &Schema, question: &Question<'_>, keys: &str) -> Result<String> {
    let Question { predict, anchor, .. } = *question;
    let parts = key_parts(KEY, anchor.key.iter());
    let (from, since) = match &anchor.time {
        None => (format!("FROM {} AS x0", first_rows(anchor, &anchor.key)), "NULL".to_owned()),
        Some(_) => {
            let Timed { from, time, .. } = timed(schema, anchor, &first_rows(anchor, &anchor.key))?;
            (from, format!("epoch_us({time}) + {}", schema.delay(anchor)))
        }
    };
    let named = not_null(anchor.key.iter());
    let asked_about = match predict.active_within {
        None => "  FROM task_anchor CROSS JOIN (SELECT unnest(range(low, high + 1)) AS k FROM task_bound)"
            .to_owned(),
        Some(active) => {
            let (first, end) = (number_from("t + delay"), number_from(&format!("t + delay + {}", active.0)));
            format!(
                "\
  -- Rows of which a child came to be known within {active} before the observation.
  FROM task_anchor JOIN (
    SELECT DISTINCT {keys}, unnest(range({first}, {end})) AS k
    FROM task_child CROSS JOIN task_question
  ) USING ({keys})"
            )
        }
    };
    Ok(format!(
        "\
task_anchor AS (
  SELECT {parts}, {since} AS since
  {from}
  WHERE {named}
),
task_seed AS (
  SELECT {keys}, k
{asked_about}
  CROSS JOIN task_question
  WHERE since IS NULL OR since <= train_until + k * every
)"
    ))
}

/// Returns these columns of x0 as the parts of a key called `name`.
pub(super) fn key_parts<'a>(name: &str, columns: impl Iterator<Item = &'a String>) -> String {
    let parts = columns.enumerate();
    let parts: Vec<_> = parts
        .map(|(part, column)| format!("{} AS {name}{}", as_text(0, column), part + 1))
        .collect();
    parts.join(", ")
}

/// Returns the SELECT of all children that have a time and refer to a row, with the columns `more`.
fn children(schema: &Schema, question: &Question<'_>, more: &str) -> Result<String> {
    let Question { predict, children, reference, anchor, .. } = *question;
    let counts = match &predict.condition {
        // On lines of its own, so that a comment in it ends.
        Some(condition) => format!("coalesce((\n{condition}\n), false)"),
        None => "true".to_owned(),
    };
    let rows = format!("(SELECT *, {counts} AS {} FROM {})", quoted(COUNTS), prepared(children));
    let Timed { from, time, .. } = timed(schema, children, &rows)?;
    let columns = in_key_order(reference, anchor)?;
    Ok(format!(
        "  SELECT {}, epoch_us({time}) AS t,\n    {more}, x0.{} AS counts\n  {from}\n  \
         WHERE {time} IS NOT NULL AND {}",
        key_parts(KEY, columns.into_iter()),
        quoted(COUNTS),
        not_null(reference.columns.iter())
    ))
}

/// The rows of a table with their time.
pub(super) struct Timed {
    /// A FROM clause, in which the rows are named x0.
    pub(super) from: String,
    /// The time.
    pub(super) time: String,
    /// Whether a row that should lend its time is missing, so that the time is never known.
    pub(super) is_lost: String,
}

/// Returns the rows of `table` with their time.
///
/// A time through references comes from the rows that they lead to, named x1, x2 and so on.
pub(super) fn timed(schema: &Schema, table: &Table, rows: &str) -> Result<Timed> {
    let mut is_lost = Vec::new();
    let mut from = format!("FROM {rows} AS x0");
    let lineage = schema.lineage(table);
    for (place, pair) in lineage.windows(2).enumerate() {
        let (child, parent) = (pair[0], pair[1]);
        let through = child.time.as_ref().and_then(|time| time.through.as_ref());
        let reference = through.and_then(|name| child.reference(name));
        let Some(reference) = reference.map(|place| &child.references[place]) else { break };
        let keys =
            if reference.to_columns.is_empty() { &parent.key } else { &reference.to_columns };
        let pairs: Vec<_> = (reference.columns.iter().zip(keys))
            .map(|(own, key)| {
                let (own, key) = (as_text(place, own), as_text(place + 1, key));
                format!("{own} = {key}")
            })
            .collect();
        let named = reference.columns.iter().map(|own| as_text(place, own) + " IS NOT NULL");
        let named: Vec<_> = named.collect();
        let found = as_text(place + 1, &keys[0]);
        is_lost.push(format!("({}) AND {found} IS NULL", named.join(" OR ")));
        let (parent, pairs) = (first_rows(parent, keys), pairs.join(" AND "));
        let _ = write!(from, "\n  LEFT JOIN {parent} AS x{} ON {pairs}", place + 1);
    }
    let last = lineage.last().and_then(|table| table.time.as_ref()?.column.as_ref());
    let column = last.ok_or_else(|| {
        Error::schema(format!("table {:?} has no time; give the table a time", table.name))
    })?;
    let time = format!("x{}.{}", lineage.len() - 1, quoted(column));
    let is_lost = if is_lost.is_empty() { "false".to_owned() } else { is_lost.join(" OR ") };
    Ok(Timed { from, time, is_lost })
}

/// Returns the rows of a table of the schema.
fn prepared(table: &Table) -> String {
    format!("prepared.{}", quoted(&table.name))
}

/// Returns the first row of each key: the one to which references lead.
pub(super) fn first_rows(table: &Table, key: &[String]) -> String {
    let parts: Vec<_> = key.iter().map(|column| quoted(&key_column(column))).collect();
    format!(
        "(\n    FROM {} QUALIFY row_number() OVER (PARTITION BY {} ORDER BY {}) = 1\n  )",
        prepared(table),
        parts.join(", "),
        quoted(ROW)
    )
}

pub(super) fn not_null<'a>(columns: impl Iterator<Item = &'a String>) -> String {
    let parts: Vec<_> =
        columns.map(|column| format!("{} IS NOT NULL", as_text(0, column))).collect();
    parts.join(" AND ")
}

/// Returns a column of keys as the text by which they are compared.
fn as_text(place: usize, column: &str) -> String {
    format!("x{place}.{}", quoted(&key_column(column)))
}

/// Returns what is made of the children of one row and one observation.
///
/// Of children at one time the least value counts, and sums add in the order of times and values, so
/// that the order of rows does not matter.
fn made_of_children(what: What) -> &'static str {
    match what {
        What::Count => "count(*)",
        // A question about links has a query of its own.
        What::Exists | What::Link => "count(*) > 0",
        What::Sum => "sum(value ORDER BY t, value)",
        What::Mean => "avg(CAST(value AS DOUBLE) ORDER BY t, value)",
        What::Min => "min(value)",
        What::Max => "max(value)",
        What::First => "first(value ORDER BY t, value) FILTER (value IS NOT NULL)",
        What::Last => "first(value ORDER BY t DESC, value) FILTER (value IS NOT NULL)",
    }
}

pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
