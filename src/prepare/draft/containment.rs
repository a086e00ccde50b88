//! Compares the values of a column with the keys of another table.

use super::profile::{Profile, unresolved_rows, without_point};
use super::subject::{Subject, share};
use crate::error::Result;
use crate::prepare::schema::Limits;
use crate::prepare::source::Source;

/// Which of a column's values are keys of a parent table.
pub(super) struct Containment {
    /// Whether enough of the values are keys.
    pub(super) holds: bool,
    /// How many rows have another value than NULL that is not a key; 0 where too many values are not.
    pub(super) unresolved: u64,
    /// The share of the values, or of a sample of them, that are not keys.
    pub(super) missing: f64,
    /// The finding in words, for a note.
    pub(super) reason: String,
}

/// Compares the values of a column of `subject` with the values `keys`.
///
/// # Cost
/// Reads the column again where only a sample of its values was kept, or a few of them are not keys.
pub(super) fn contained(
    source: &dyn Source,
    limits: &Limits,
    (subject, column): (&Subject, usize),
    keys: &Profile,
) -> Result<Containment> {
    let profile = &subject.profiles[column];
    if keys.values.count().is_none() {
        let reason = "its values could not be compared".to_owned();
        return Ok(Containment { holds: false, unresolved: 0, missing: 1.0, reason });
    }
    // Few values can be many rows, and `prepare` counts rows.
    let unresolved = |rewrite| {
        let name = &subject.source.columns[column];
        unresolved_rows(source, &subject.source.name, name, &keys.values, rewrite)
    };
    let (count, missing) = (profile.values.kept(), profile.values.missing_from(&keys.values));
    let missing_share = missing as f64 / count.max(1) as f64;
    let refused = |reason: String| {
        Ok(Containment { holds: false, unresolved: 0, missing: missing_share, reason })
    };
    let few = |missing: u64, of: u64| are_few(missing, of, limits);
    let is_sample = profile.values.count().is_none();
    if missing == 0 && !is_sample {
        let reason = match count {
            1 => "its one value is a key there".to_owned(),
            count => format!("all {count} values are keys there"),
        };
        return Ok(Containment { holds: true, unresolved: 0, missing: 0.0, reason });
    }
    let missing_values = match is_sample {
        false => format!("{} values are not keys there", share(missing, count)),
        true => format!("{} values of a sample are not keys there", share(missing, count)),
    };
    if few(missing, count) {
        let rows = unresolved(|text| text)?;
        let holds = few(rows, profile.present());
        let reason = match rows {
            0 => format!("the values of all {} rows are keys there", profile.present()),
            _ => format!("{missing_values}, in {} rows", share(rows, profile.present())),
        };
        return Ok(Containment { holds, unresolved: rows, missing: missing_share, reason });
    }
    let pointed = profile.pointed > 0 && profile.all(profile.integers + profile.pointed);
    match pointed && few(unresolved(without_fraction)?, profile.present()) {
        true => refused(format!(
            "{missing_values}: it has 1.0 where the keys have 1, as pandas writes integers with \
             missing values; write integers (astype(\"Int64\") in pandas)"
        )),
        false => refused(missing_values),
    }
}

/// Returns a text such as `1.0` as `1`, and any other text unchanged.
fn without_fraction(text: &str) -> &str {
    without_point(text).unwrap_or(text)
}

/// Whether `missing` values are within the limit of unresolved references.
pub(super) fn are_few(missing: u64, of: u64, limits: &Limits) -> bool {
    missing as f64 <= of as f64 * limits.unresolved_share
}

/// Whether a column has values, and all but few of them, or of a sample of them, are among `keys`.
pub(super) fn are_keys(column: &Profile, keys: &Profile, limits: &Limits) -> bool {
    let count = column.values.kept();
    let most = (count as f64 * limits.unresolved_share) as u64;
    count > 0
        && keys.values.count().is_some()
        && column.values.few_missing_from(&keys.values, most).is_some()
}
