//! A context: events of a window of a row, some with their times, as tokens.

use super::codec::{Codec, FIRST_TIME_TOKENS};
use super::row::{Row, whole_seconds};
use super::tokens::TokenTime;
use crate::error::Result;
use crate::random::Stream;

/// Of ten contexts, those with the times of all events, and those with the times of some.
const FULL_OF_TEN: u64 = 4;
const PARTIAL_OF_TEN: u64 = 3;

/// The buffers with which one thread makes contexts.
#[derive(Default)]
pub(super) struct Scratch {
    /// The places of the shuffle that hold another number than their own.
    moved: Moved,
    /// The chosen events: their places in the row, in the order of the draws.
    chosen: Vec<u32>,
    /// Those with a time, in the order of time.
    timed: Vec<u32>,
}

/// Writes a context of `row` to the front of `tokens`, at most as many as there are; returns their number.
///
/// # Determinism
/// The tokens depend on the row, on the room and on the words of `random`, on nothing else.
pub(super) fn context(
    codec: &dyn Codec,
    row: &Row<'_>,
    random: &mut Stream,
    scratch: &mut Scratch,
    tokens: &mut [u16],
) -> Result<usize> {
    let (start, length) = window(row.event_count(), random);
    let mode = random.below(10);
    let with_times = mode < FULL_OF_TEN + PARTIAL_OF_TEN;
    choose(codec, row, (start, length), with_times, random, scratch, tokens.len())?;

    let Scratch { chosen, timed, .. } = scratch;
    let count = chosen.len() as u64;
    let untimed_count = match mode {
        _ if mode < FULL_OF_TEN => 0,
        _ if with_times => (count * (10 + random.below(81)) / 100).max(1),
        _ => count,
    };
    // The draws are a shuffle of the chosen events: its beginning is a random part of them, in random order.
    let (untimed, rest) = chosen.split_at(untimed_count as usize);
    timed.clear();
    timed.extend_from_slice(rest);
    timed.sort_unstable();

    let (mut untimed, mut timed) = (untimed.iter(), timed.iter());
    let mut written = 0;
    let mut previous: Option<i64> = None;
    loop {
        let (no_time, time) = (untimed.len() as u64, timed.len() as u64);
        let takes_untimed = match (no_time, time) {
            (0, 0) => return Ok(written),
            (0, _) => false,
            (_, 0) => true,
            _ => random.below(no_time + time) < no_time,
        };
        let next = if takes_untimed { untimed.next() } else { timed.next() };
        let Some(&index) = next else { return Ok(written) };
        let event = row.event(index)?;
        let seconds = match takes_untimed {
            true => None,
            false => {
                let now = whole_seconds(event.time);
                Some(match previous.replace(now) {
                    None => TokenTime::Absolute(now.cast_unsigned()),
                    Some(before) => TokenTime::Since(difference(row, before, now)?),
                })
            }
        };
        let room = &mut tokens[written..];
        written += codec.encode(row, &event, seconds, random, room)?;
    }
}

/// Returns the seconds between two events that follow each other.
fn difference(row: &Row<'_>, before: i64, now: i64) -> Result<u32> {
    u32::try_from(now.saturating_sub(before)).map_err(|_| {
        row.corrupt(format_args!(
            "expected times in order and within 2^32 seconds, found {now} s after {before} s"
        ))
    })
}

/// Draws the window of a context: its first event, and the number of its events, whose logarithm is
/// uniform.
fn window(event_count: u32, random: &mut Stream) -> (u32, u32) {
    let uniform = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let length = libm::exp(uniform * libm::log(f64::from(event_count) + 1.0));
    let length = (length as u32).clamp(1, event_count);
    let start = random.below(u64::from(event_count - length) + 1);
    (start as u32, length)
}

/// Chooses events of the window at random, without replacement, until the next one might not fit.
fn choose(
    codec: &dyn Codec,
    row: &Row<'_>,
    (start, length): (u32, u32),
    with_times: bool,
    random: &mut Stream,
    scratch: &mut Scratch,
    room: usize,
) -> Result<()> {
    let mut room = if with_times { room.saturating_sub(FIRST_TIME_TOKENS) } else { room };
    scratch.chosen.clear();
    scratch.moved.clear();
    for first in 0..length {
        let place = first + random.below(u64::from(length - first)) as u32;
        let drawn = start + scratch.moved.swap(first, place);
        let bound = codec.bound(row, &row.event(drawn)?, with_times);
        if bound > room {
            break;
        }
        room -= bound;
        scratch.chosen.push(drawn);
    }
    Ok(())
}

/// The places of a Fisher-Yates shuffle that hold another number than their own: a hash table that grows
/// with the draws, not with the numbers.
#[derive(Default)]
struct Moved {
    /// Place and number, or `EMPTY`.
    slots: Vec<u64>,
    used: Vec<u32>,
}

const EMPTY: u64 = u64::MAX;

impl Moved {
    fn clear(&mut self) {
        for slot in self.used.drain(..) {
            self.slots[slot as usize] = EMPTY;
        }
    }

    /// Returns the number at `place`, and puts there the number at `first`, which is not read again.
    fn swap(&mut self, first: u32, place: u32) -> u32 {
        let at_first = self.get(first);
        if place == first {
            return at_first;
        }
        if self.slots.len() < 2 * (self.used.len() + 1) {
            self.grow();
        }
        let slot = self.slot(place);
        let drawn = match self.slots[slot] {
            EMPTY => {
                self.used.push(slot as u32);
                place
            }
            held => held as u32,
        };
        self.slots[slot] = u64::from(place) << 32 | u64::from(at_first);
        drawn
    }

    fn get(&self, place: u32) -> u32 {
        if self.slots.is_empty() {
            return place;
        }
        match self.slots[self.slot(place)] {
            EMPTY => place,
            held => held as u32,
        }
    }

    /// Returns the slot of `place`, or the empty slot for it.
    fn slot(&self, place: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = (place.wrapping_mul(0x9E37_79B1) >> 7) as usize & mask;
        while self.slots[slot] != EMPTY && (self.slots[slot] >> 32) as u32 != place {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        let held: Vec<u64> = self.used.iter().map(|&slot| self.slots[slot as usize]).collect();
        self.slots = vec![EMPTY; (2 * self.slots.len()).max(64)];
        self.used.clear();
        for entry in held {
            let slot = self.slot((entry >> 32) as u32);
            self.slots[slot] = entry;
            self.used.push(slot as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    #[test]
    fn a_sparse_shuffle_draws_what_a_whole_one_draws() {
        for count in [1_u32, 2, 5, 100, 3000] {
            let mut whole: Vec<u32> = (0..count).collect();
            let mut sparse = Moved::default();
            for round in 0..2 {
                let mut random =
                    Stream::new(u64::from(count), Purpose::EventContext, [round, 0, 0]);
                sparse.clear();
                whole.sort_unstable();
                for first in 0..count {
                    let place = first + random.below(u64::from(count - first)) as u32;
                    whole.swap(first as usize, place as usize);
                    assert_eq!(sparse.swap(first, place), whole[first as usize]);
                }
            }
        }
    }

    #[test]
    fn the_logarithm_of_a_windows_length_is_uniform() {
        let mut random = Stream::new(3, Purpose::EventContext, [0; 3]);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            let (start, length) = window(1023, &mut random);
            assert!(length >= 1 && start + length <= 1023);
            counts[length.ilog2() as usize] += 1;
        }
        // Ten octaves; 4.5 standard deviations.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 430), "{counts:?}");
    }
}
