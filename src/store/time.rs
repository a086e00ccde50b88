//! When a row came to exist, and which seeds may see it.

/// The time of a row that is always visible, being of no known time.
pub const ALWAYS_VISIBLE: i64 = i64::MIN;

/// The observation time of a seed that sees every row.
pub const SEES_EVERYTHING: i64 = i64::MAX;

/// The time of a row that came to exist nobody knows when: its time should be its parent's, and that
/// parent is not there. Only a seed that sees everything sees it.
pub const NEVER_VISIBLE: i64 = SEES_EVERYTHING - 1;

/// Whether a row of time `time` existed at `obs_time`.
#[inline]
#[must_use]
pub fn is_visible(time: i64, obs_time: i64) -> bool {
    time == ALWAYS_VISIBLE || time <= obs_time
}

/// When a row that happened at `time` became known; at the latest when nobody but a seed that sees
/// everything can know it.
#[inline]
#[must_use]
pub(crate) fn known_from(time: i64, delay_us: i64) -> i64 {
    time.saturating_add(delay_us).min(NEVER_VISIBLE)
}
