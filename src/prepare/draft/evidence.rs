//! Weighs whether the values of a column are keys of a table by meaning, or by chance.
//!
//! **Data.** Two columns: one that may refer, one whose values are unique. Of each the number of
//! distinct values, the range of integers, the mean length of texts, and hashes of the values.
//!
//! **Rule.** The values of a reference are keys; but so are many other values. What counts is how
//! likely that is by chance:
//!
//! - *Texts.* A text of length `l` is one of `26^l` (of digits `10^l`), of which `n` are keys. That `k`
//!   different texts are all keys has the chance `(n / 26^l)^k`.
//! - *Integers among which keys are rare.* With a share `d` of keys among the integers in the range of
//!   the column, the chance is `d^k`.
//! - *Integers among which nearly each is a key* (1, 2, 3 ..) say nothing by being keys: quantities,
//!   ranks and ages are, too. Such values begin at the first keys and end anywhere. A reference is
//!   likely where they end with the last key, or where the rows are in the order of the values without
//!   beginning at the first keys, as those of events are.
//!
//! A verdict is `Likely` or `Doubtful`; a doubtful reference is a comment in the draft.

use super::profile::{Profile, Storage, hash_integer, mix};
use crate::prepare::schema::TimeUnit;

/// The logarithm of the chance at which texts are evidence: 1 in 1,000.
const TEXT_CHANCE: f64 = 6.9;
/// The logarithm of the chance at which integers are evidence, which are tried more often: 1 in a
/// million.
const INTEGER_CHANCE: f64 = 13.8;
/// How many integers of a range are looked up to estimate the share of keys.
const PROBES: u64 = 512;
/// The share of a key's range within which an end counts as the same.
const END: f64 = 0.02;
/// The fewest different values that show by their ends where they come from.
const MANY: f64 = 10.0;
/// The fewest keys that integers may match one by one.
const FEWEST_KEYS: f64 = 5.0;
/// The fewest keys of two tables that are the same by meaning, if they are simply 1, 2, 3 ..
const FEWEST_TWINS: f64 = 1000.0;
/// The largest share of values of a doubtful reference that are not keys.
pub(super) const MISSING: f64 = 0.1;
/// What two tables with the same number of rows may have by chance.
const TWINS: &str = "the rows of both tables may simply be numbered";
/// What any integers from the first keys on may be.
const COUNTS: &str = "its integers may be counts";

/// The kind of values that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Integer,
    Text,
}

/// Returns the kind of a column's values; `None` if they cannot be keys or references.
pub(super) fn kind(profile: &Profile) -> Option<Kind> {
    if profile.present() == 0 || !profile.may_identify() || profile.all(profile.booleans) {
        return None;
    }
    match profile.all(profile.integers) {
        true => Some(Kind::Integer),
        false => (profile.storage == Storage::Text).then_some(Kind::Text),
    }
}

/// How sure a reference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Doubtful,
    Likely,
}

/// What speaks for a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evidence {
    pub(super) verdict: Verdict,
    /// The reason, after the finding that the values are keys.
    pub(super) reason: &'static str,
}

impl Evidence {
    const fn likely(reason: &'static str) -> Self {
        Self { verdict: Verdict::Likely, reason }
    }

    const fn doubtful(reason: &'static str) -> Self {
        Self { verdict: Verdict::Doubtful, reason }
    }
}

/// What names say about a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// The column is named after the table or its key.
    Fits,
    /// The column is named like a key, or no column of the database is.
    Silent,
    /// Other columns of the database are named like keys, but not this one.
    Differs,
}

/// Weighs a column against the unique values of another; `None` without evidence.
pub(super) fn weigh(child: &Profile, keys: &Profile, naming: Naming) -> Option<Evidence> {
    let kind = kind(child)?;
    if kind != self::kind(keys)? || !may_contain(child, keys, kind) {
        return None;
    }
    // Ranges show without a look at the values that they are like those of any counts.
    if kind == Kind::Integer && naming != Naming::Fits && share_of_keys(keys) > 0.5 {
        ends(child, keys, child.values.estimate()).filter(|found| found.reason != COUNTS)?;
    }
    let kept = child.values.kept();
    let missing = child.values.few_missing_from(&keys.values, (kept as f64 * MISSING) as u64)?;
    let count = child.values.estimate() * (1.0 - missing as f64 / kept as f64);
    let found = match kind {
        Kind::Text => texts(child, keys, count, naming),
        Kind::Integer => integers(child, keys, count, naming),
    }?;
    // The exact test decides about a few missing values.
    match missing as f64 > 0.01 * kept as f64 {
        false => Some(found),
        true => (found.verdict == Verdict::Likely && count >= MANY)
            .then_some(Evidence::doubtful("too many are not keys")),
    }
}

/// Whether the ranges of two columns allow that one contains the other.
fn may_contain(child: &Profile, keys: &Profile, kind: Kind) -> bool {
    let within = |child: Option<(i64, i64)>, keys: Option<(i64, i64)>| {
        child.zip(keys).is_some_and(|(child, keys)| child.1 >= keys.0 && child.0 <= keys.1)
    };
    let lengths = |p: &Profile| p.lengths.map(|(low, high)| (low as i64, high as i64));
    match kind {
        Kind::Integer => within(child.range, keys.range),
        Kind::Text => within(lengths(child), lengths(keys)),
    }
}

fn texts(child: &Profile, keys: &Profile, count: f64, naming: Naming) -> Option<Evidence> {
    let letters: f64 = if child.is_numeric() { 10.0 } else { 26.0 };
    let chance = count * (child.mean_length() * letters.ln() - keys.values.estimate().ln());
    if child.is_numeric() && naming == Naming::Differs {
        return (chance >= TEXT_CHANCE).then_some(Evidence::doubtful(COUNTS));
    }
    if chance >= TEXT_CHANCE {
        return Some(Evidence::likely(""));
    }
    (chance >= TEXT_CHANCE / 2.0).then_some(Evidence::doubtful("its texts are short and few"))
}

fn integers(child: &Profile, keys: &Profile, count: f64, naming: Naming) -> Option<Evidence> {
    let range = child.range?;
    if count < 3.0 {
        return None;
    }
    if count * -density(keys, range).max(1e-9).ln() >= INTEGER_CHANCE {
        return Some(Evidence::likely("few integers in their range are keys"));
    }
    let found = ends(child, keys, count)?;
    if found.verdict == Verdict::Likely {
        return Some(match naming {
            _ if child.periods.of(TimeUnit::Year).is_some() => {
                Evidence::doubtful("its values may be years")
            }
            Naming::Differs => Evidence::doubtful(COUNTS),
            Naming::Fits | Naming::Silent => found,
        });
    }
    (naming == Naming::Fits || found.reason != COUNTS).then_some(found)
}

/// Returns the share of keys among the integers in the range of a key.
fn share_of_keys(keys: &Profile) -> f64 {
    let (first, last) = keys.range.unwrap_or((0, 0));
    keys.values.estimate() / (last as f64 - first as f64 + 1.0)
}

/// Returns the share of keys among the integers of a range.
fn density(keys: &Profile, (low, high): (i64, i64)) -> f64 {
    let size = (i128::from(high) - i128::from(low) + 1) as u128;
    let probes = size.min(u128::from(PROBES)) as u64;
    let integer = |probe: u64| match size <= u128::from(PROBES) {
        true => i128::from(low) + i128::from(probe),
        false => i128::from(low) + ((u128::from(mix(probe)) * size) >> 64) as i128,
    };
    let is_key = |&probe: &u64| keys.values.contains(hash_integer(integer(probe) as i64));
    (0..probes).filter(is_key).count() as f64 / probes as f64
}

/// Weighs integers among which nearly each is a key, by where they begin and end.
fn ends(child: &Profile, keys: &Profile, count: f64) -> Option<Evidence> {
    let ((low, high), (first, last)) = (child.range?, keys.range?);
    let size = last as f64 - first as f64 + 1.0;
    let key_count = keys.values.estimate();
    let begins_first = (low as f64 - first as f64) / size <= END || matches!(low, 0 | 1);
    let ends_last = (last as f64 - high as f64) / size <= END;
    let is_unique = child.is_unique() && child.values.count().is_some();
    if begins_first && ends_last {
        let is_whole = count >= key_count && key_count >= FEWEST_KEYS;
        return Some(match is_unique {
            // Two tables may happen to have the same number of rows.
            true if key_count < FEWEST_TWINS => Evidence::doubtful(TWINS),
            true => Evidence::likely("they are the same"),
            false if is_whole || count >= MANY => {
                Evidence::likely("they reach from the first key to the last")
            }
            false => Evidence::doubtful(COUNTS),
        });
    }
    if begins_first {
        // Counts, ranks and quantities; the rows of a table that are simply numbered.
        return (!is_unique).then_some(Evidence::doubtful(COUNTS));
    }
    if ends_last {
        return Some(match count >= MANY {
            true => Evidence::likely("they reach up to the last key"),
            false => Evidence::doubtful(COUNTS),
        });
    }
    let is_ordered = child.ascending && count >= MANY && child.present() as f64 > count;
    match is_ordered {
        true => Some(Evidence::likely("the rows are in their order")),
        false => Some(Evidence::doubtful(COUNTS)),
    }
}
