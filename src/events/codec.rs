//! `Codec`: how an event becomes tokens.

use super::row::{Event, Form, Row};
use crate::error::Result;
use crate::random::Stream;

/// The time of an event in a context, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seconds {
    /// Since 1970.
    Absolute(u64),
    /// Since the timed event before it.
    Since(u32),
}

/// The tokens that an absolute time has more than the longest difference.
pub(crate) const FIRST_TIME_TOKENS: usize = 4;

/// Turns events into tokens.
pub(crate) trait Codec: Send + Sync {
    /// Returns the number of different tokens.
    fn vocabulary(&self) -> u16;

    /// Returns the numbers of the forms that records have, in ascending order.
    #[cfg(feature = "prepare")]
    fn forms(&self) -> &'static [u16];

    /// Returns the sizes of the records of form `form`; none if there is no such form.
    fn form(&self, form: u16) -> Option<Form>;

    /// Returns the most tokens that the event has, with a time since an earlier event if it is timed.
    fn bound(&self, row: &Row<'_>, event: &Event<'_>, is_timed: bool) -> usize;

    /// Writes the tokens of the event to the front of `tokens`; returns their number.
    ///
    /// `tokens` has room for the bound, and for [`FIRST_TIME_TOKENS`] more if the time is absolute.
    fn encode(
        &self,
        row: &Row<'_>,
        event: &Event<'_>,
        time: Option<Seconds>,
        random: &mut Stream,
        tokens: &mut [u16],
    ) -> Result<usize>;
}
