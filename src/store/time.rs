//! The time of a row, and its visibility at an observation time.

/// The time of a row that has none and is always visible.
pub const ALWAYS_VISIBLE: i64 = i64::MIN;

/// The observation time of a seed that sees every row.
pub const SEES_EVERYTHING: i64 = i64::MAX;

/// The time of a row whose time cannot be known, because it should inherit it from a parent that is
/// missing. Only a seed that sees everything sees it.
pub const NEVER_VISIBLE: i64 = SEES_EVERYTHING - 1;

/// Whether `time` is a time of the calendar: the two least and the two greatest have other meanings.
#[must_use]
pub(crate) fn is_time(time: i64) -> bool {
    (i64::MIN + 2..=i64::MAX - 2).contains(&time)
}

/// Whether a row of time `time` existed at `obs_time`.
#[inline]
#[must_use]
pub fn is_visible(time: i64, obs_time: i64) -> bool {
    time == ALWAYS_VISIBLE || time <= obs_time
}

/// Returns the time at which a row of `time` becomes known, at most [`NEVER_VISIBLE`].
#[inline]
#[must_use]
pub(crate) fn known_from(time: i64, delay_us: i64) -> i64 {
    time.saturating_add(delay_us).min(NEVER_VISIBLE)
}
