//! The SQL of a question about links, in DuckDB's dialect.
//!
//! The query has a row for each pair of an anchor row, at an observation, and a candidate: a row to
//! which its children in the horizon refer, or one of those that are drawn. Candidates are rows that
//! are known at the observation, also those to which children refer: a row that came to exist later
//! is missing in the context, which would tell that it is not one of those drawn.
//!
//! The candidates have places in the order in which they come to be known, and those known at an
//! observation are the first ones. So a draw is a place below their number: 60 bits of the MD5 of the
//! anchor's key, the time and the number of the draw, modulo that number. A place that comes a second
//! time, or of a row that is linked, is no draw. With at least 8 times as many rows as are linked or
//! wanted, a draw fails in at most 1 of 8 cases, so `2 * wanted + 16` of them are enough: the chance
//! that they are not is below 1 in 10^14. With fewer rows, each has a draw of its own, and the least come
//! first. Both ways each set of rows is equally likely, and neither depends on the order of rows, on
//! threads, or on the version of DuckDB.

use super::link::PairColumns;
use super::predict::{Link, Question, in_key_order};
use super::predict_sql::{
    IN_SPLIT, IS_KNOWN, KEY, OBSERVED_AT, SPLIT, TARGET, Timed, first_rows, in_horizon, key_parts,
    not_null, numbered, quoted, seeds, timed,
};
use super::{Schema, Table};
use crate::error::Result;

/// The parts of a candidate's key, by number.
const CANDIDATE: &str = "candidate_";

/// The time from which rows without a time are known: before all others.
const ALWAYS: &str = "-9223372036854775807";

/// Returns the query whose rows are the pairs of a question about links, with their labels.
pub(super) fn query(
    schema: &Schema,
    question: &Question<'_>,
    link: &Link<'_>,
    names: &PairColumns,
) -> Result<String> {
    let Link { to, reference, negatives } = *link;
    let keys = numbered(KEY, question.anchor.key.len());
    let parts = numbered(CANDIDATE, to.key.len());
    let referred = key_parts(CANDIDATE, in_key_order(reference, to)?.into_iter());
    let seeds = seeds(schema, question, &keys, &referred)?;
    let (candidates, in_horizon) = (candidates(schema, to)?, in_horizon());
    // Of one table, a row is no candidate of its own: the context would show that it is itself.
    let not_itself = match to.name == question.anchor.name {
        true => format!(
            "\n  JOIN task_candidate USING (place) WHERE ({keys}) IS DISTINCT FROM ({parts})"
        ),
        false => String::new(),
    };
    let enough = 2 * u64::from(negatives) + 16;
    let named = |name: &str, columns: &[String]| {
        let columns = columns.iter().enumerate();
        let columns: Vec<_> = columns
            .map(|(part, column)| format!("{name}{} AS {}", part + 1, quoted(column)))
            .collect();
        columns.join(", ")
    };
    let (of_anchor, of_candidate) = (named(KEY, &names.anchor), named(CANDIDATE, &names.candidate));
    Ok(format!(
        "\
{seeds},
-- The candidates, numbered in the order in which they come to be known.
task_candidate AS (
  SELECT {parts}, since, row_number() OVER (ORDER BY since, {parts}) - 1 AS place
  FROM (
{candidates}
  )
),
task_known AS (
  SELECT since, max(place) + 1 AS known FROM task_candidate GROUP BY since
),
-- The candidates to which the children in the horizon of each seed refer.
task_link AS MATERIALIZED (
  SELECT DISTINCT {keys}, k, place
  FROM ({in_horizon})
  JOIN task_seed USING ({keys}, k) JOIN task_candidate USING ({parts})
  CROSS JOIN task_bound CROSS JOIN task_question
  WHERE k BETWEEN low AND high AND since <= train_until + k * every
),
-- How many rows to draw from; few have a draw each, of many there are enough draws.
task_group AS (
  SELECT {keys}, k, train_until + k * every AS asked_at, count(*) AS links
  FROM task_link CROSS JOIN task_question GROUP BY {keys}, k, train_until, every
),
task_size AS (
  SELECT {keys}, k, asked_at, known, known <= 8 * (links + {negatives}) AS is_few
  FROM task_group ASOF JOIN task_known ON asked_at >= since
),
task_draw AS (
  SELECT {keys}, k, known, is_few, number,
    CAST('0x' || substr(md5(concat_ws('|', {keys}, asked_at, number)), 1, 15) AS BIGINT) AS hash
  FROM (
    SELECT *, unnest(range(CASE WHEN is_few THEN known ELSE {enough} END)) AS number FROM task_size
  )
),
task_drawn AS (
  SELECT {keys}, k, CASE WHEN is_few THEN number ELSE hash % known END AS place,
    min(CASE WHEN is_few THEN hash ELSE number END) AS turn
  FROM task_draw GROUP BY {keys}, k, place
),
task_other AS (
  SELECT {keys}, k, place FROM task_drawn ANTI JOIN task_link USING ({keys}, k, place){not_itself}
  QUALIFY row_number() OVER (PARTITION BY {keys}, k ORDER BY turn, place) <= {negatives}
),
task_answer AS (
  SELECT {keys}, train_until + k * every AS asked_at, {parts}, {TARGET}
  FROM (
    SELECT {keys}, k, place, true AS {TARGET} FROM task_link
    UNION ALL SELECT {keys}, k, place, false FROM task_other
  ) JOIN task_candidate USING (place) CROSS JOIN task_question
)
-- The target of a seed is known within its split.
SELECT {of_anchor}, make_timestamp(asked_at) AS {OBSERVED_AT}, {of_candidate}, {TARGET},
  {IN_SPLIT} AS {SPLIT}
FROM task_answer CROSS JOIN task_question
WHERE {IS_KNOWN}"
    ))
}

/// Returns the SELECT of the rows that can be linked to, each with the time from which it is known.
fn candidates(schema: &Schema, to: &Table) -> Result<String> {
    let (parts, rows) = (key_parts(CANDIDATE, to.key.iter()), first_rows(to, &to.key));
    let named = not_null(to.key.iter());
    if to.time.is_none() {
        return Ok(format!(
            "  SELECT {parts}, {ALWAYS} AS since\n  FROM {rows} AS x0\n  WHERE {named}"
        ));
    }
    let Timed { from, time, is_lost } = timed(schema, to, &rows)?;
    let delay = schema.delay(to);
    Ok(format!(
        "  SELECT {parts}, coalesce(epoch_us({time}) + {delay}, {ALWAYS}) AS since\n  {from}\n  \
         WHERE {named} AND NOT ({is_lost})"
    ))
}
