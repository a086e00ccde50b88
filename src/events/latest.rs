//! The latest events of an entity, as a context that a model continues.

use std::ops::Range;

use super::codec::FIRST_TIME_TOKENS;
use super::row::{Event, Row, whole_seconds};
use super::store::EventStore;
use super::tokens::TokenTime;
use crate::error::{Error, Result};
use crate::random::Stream;

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
    let chosen = choose(store, entity, before_us, length, &mut rows)?;
    let mut tokens = vec![0; length];
    let mut written = 0;
    let mut previous = None;
    for (place, event) in chosen.into_iter().rev() {
        let row = &rows[place];
        let now = whole_seconds(event.time);
        let time = match previous.replace(now) {
            None => TokenTime::Absolute(now.cast_unsigned()),
            Some(before) => TokenTime::Since(
                u32::try_from(now - before)
                    .map_err(|_| row.corrupt("its times are not in order"))?,
            ),
        };
        written += store.codec().encode(row, &event, Some(time), random, &mut tokens[written..])?;
    }
    tokens.truncate(written);
    Ok(tokens)
}

/// Goes through the events of some rows of one form from the last to the first.
struct Backwards<'a> {
    store: &'a EventStore,
    /// The rows that were not opened yet.
    rows: Range<usize>,
    before_us: i64,
    /// The place of the opened row in `opened`, and the number of its events that are left.
    current: Option<(usize, u32)>,
}

impl<'a> Backwards<'a> {
    /// Returns the next event with the place of its row, without taking it.
    fn peek(&mut self, opened: &mut Vec<Row<'a>>) -> Result<Option<(usize, Event<'a>)>> {
        loop {
            if let Some((place, count @ 1..)) = self.current {
                return Ok(Some((place, opened[place].event(count - 1)?)));
            }
            let Some(number) = self.rows.next_back() else { return Ok(None) };
            let (row, _) = self.store.numbered_row(number)?;
            self.current = Some((opened.len(), count_before(&row, self.before_us)?));
            opened.push(row);
        }
    }

    fn take(&mut self) {
        self.current = self.current.map(|(place, count)| (place, count - 1));
    }
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

/// Returns the chosen events with the places of their rows in `opened`, the latest first.
fn choose<'a>(
    store: &'a EventStore,
    entity: u32,
    before_us: i64,
    length: usize,
    opened: &mut Vec<Row<'a>>,
) -> Result<Vec<(usize, Event<'a>)>> {
    // The form of the latest event, of equal times the later one.
    let mut latest: Option<(i64, Backwards<'a>)> = None;
    for rows in store.rows_by_form(entity)? {
        let mut events = Backwards { store, rows, before_us, current: None };
        if let Some((_, event)) = events.peek(opened)?
            && latest.as_ref().is_none_or(|(time, _)| event.time >= *time)
        {
            latest = Some((event.time, events));
        }
    }
    let Some((_, mut events)) = latest else { return Ok(Vec::new()) };
    let mut chosen: Vec<(usize, Event<'a>)> = Vec::new();
    let mut room = length.saturating_sub(FIRST_TIME_TOKENS);
    while let Some((place, event)) = events.peek(opened)? {
        let tokens = store.codec().bound(&opened[place], &event, true);
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
            break;
        }
        room -= tokens;
        events.take();
        chosen.push((place, event));
    }
    Ok(chosen)
}
