//! `Codec`: how an event becomes tokens, and tokens an event.

use super::decoded::DecodedEvent;
use super::row::{Event, Form, Row};
use super::tokens::TokenTime;
use crate::error::Result;
use crate::random::Stream;

/// The tokens that an absolute time has more than the longest difference.
pub(crate) const FIRST_TIME_TOKENS: usize = 4;

/// Turns events into tokens, and tokens into events.
pub(crate) trait Codec: Send + Sync {
    /// Returns the number of different tokens.
    fn vocabulary(&self) -> u16;

    /// Returns the tokens that must be free where a context begins: any event fits, with its time.
    fn room(&self) -> usize;

    /// Returns the numbers of the forms that records have, in ascending order.
    #[cfg(feature = "prepare")]
    fn forms(&self) -> &'static [u16];

    /// Returns the sizes of the records of form `form`; none if there is no such form.
    fn form(&self, form: u16) -> Option<Form>;

    /// Whether these bytes are the value of an event of form `form`, as a store has it.
    fn is_value(&self, form: u16, value: &[u8]) -> bool;

    /// Returns the most tokens that the event has, with a time since an earlier event if it is timed.
    fn bound(&self, row: &Row<'_>, event: &Event<'_>, is_timed: bool) -> usize;

    /// Writes the tokens of the event to the front of `tokens`; returns their number.
    ///
    /// `tokens` has room for the bound, and for [`FIRST_TIME_TOKENS`] more if the time is absolute.
    fn encode(
        &self,
        row: &Row<'_>,
        event: &Event<'_>,
        time: Option<TokenTime>,
        random: &mut Stream,
        tokens: &mut [u16],
    ) -> Result<usize>;

    /// Returns the events of a context.
    ///
    /// # Errors
    /// `Data` when the tokens are no context, with the place of the first that does not fit.
    fn decode(&self, tokens: &[u16]) -> Result<Vec<DecodedEvent>>;
}
