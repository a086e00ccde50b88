//! The latest events of an entity, as a context that a model continues.

use super::codec::{Codec, FIRST_TIME_TOKENS};
use super::row::{Event, Row, whole_seconds};
use super::store::EventStore;
use super::tokens::TokenTime;
use crate::error::{Error, Result};
use crate::random::Stream;

/// A row, and the number of its events that were not yet looked at.
struct Left<'a> {
    row: Row<'a>,
    count: u32,
}

/// Returns the tokens of the last events of an entity that are before `before_us`: as many as fit into
/// `length` tokens, in the order of time, each with its time. They are of one form, that of the latest.
///
/// # Determinism
/// The words of `random` are the order of the fields.
pub(super) fn latest(
    store: &EventStore,
    entity: u32,
    before_us: i64,
    random: &mut Stream,
    length: usize,
) -> Result<Vec<u16>> {
    let mut rows = Vec::new();
    for number in store.rows_of_entity(entity)? {
        let (row, _) = store.numbered_row(number)?;
        rows.push(Left { count: count_before(&row, before_us)?, row });
    }
    let codec = store.codec();
    let chosen = choose(codec, &mut rows, length)?;
    let mut tokens = vec![0; length];
    let mut written = 0;
    let mut previous = None;
    for (place, event) in chosen.into_iter().rev() {
        let row = &rows[place].row;
        let now = whole_seconds(event.time);
        let time = match previous.replace(now) {
            None => TokenTime::Absolute(now.cast_unsigned()),
            Some(before) => TokenTime::Since(
                u32::try_from(now - before)
                    .map_err(|_| row.corrupt("its times are not in order"))?,
            ),
        };
        written += codec.encode(row, &event, Some(time), random, &mut tokens[written..])?;
    }
    tokens.truncate(written);
    Ok(tokens)
}

/// Returns the number of events of a row that are before a time.
fn count_before(row: &Row<'_>, before_us: i64) -> Result<u32> {
    let (mut low, mut high) = (0, row.event_count());
    while low < high {
        let middle = low + (high - low) / 2;
        match row.event(middle)?.time < before_us {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Ok(low)
}

/// Returns the chosen events with the places of their rows, the latest first.
fn choose<'a>(
    codec: &dyn Codec,
    rows: &mut [Left<'a>],
    length: usize,
) -> Result<Vec<(usize, Event<'a>)>> {
    let mut chosen: Vec<(usize, Event<'a>)> = Vec::new();
    let mut room = length.saturating_sub(FIRST_TIME_TOKENS);
    let mut form = None;
    loop {
        let mut last: Option<(usize, Event<'a>)> = None;
        for (place, Left { row, count }) in rows.iter().enumerate() {
            if *count > 0 && form.is_none_or(|form| form == row.form()) {
                let event = row.event(count - 1)?;
                // Of equal times the later row.
                if last.is_none_or(|(_, known)| event.time >= known.time) {
                    last = Some((place, event));
                }
            }
        }
        let Some((place, event)) = last else { return Ok(chosen) };
        let tokens = codec.bound(&rows[place].row, &event, true);
        let is_near = chosen.last().is_none_or(|(_, later)| {
            whole_seconds(later.time) - whole_seconds(event.time) <= i64::from(u32::MAX)
        });
        if tokens > room && chosen.is_empty() {
            return Err(Error::invalid(format!(
                "length: expected at least {} tokens for the last event of the entity, found {length}",
                tokens + FIRST_TIME_TOKENS
            )));
        }
        if tokens > room || !is_near {
            return Ok(chosen);
        }
        room -= tokens;
        form = Some(rows[place].row.form());
        rows[place].count -= 1;
        chosen.push((place, event));
    }
}
