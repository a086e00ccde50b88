//! Names and counts in messages: quotes names, suggests the nearest known name, forms plurals.

/// The most names that a message lists; it counts the rest.
const LISTED: usize = 12;

/// Returns the candidate that is most similar to `name`; `None` if no candidate is similar.
///
/// Ignores case, underscores, hyphens and spaces. The first of several equally near candidates
/// wins, so the same input gives the same message.
pub(crate) fn suggest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let name = simplified(name);
    let limit = name.chars().count() / 3;
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&name, &simplified(candidate)), candidate))
        .filter(|&(distance, _)| distance <= limit)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the end of a message about an unknown name: the nearest known name, or all known names.
pub fn did_you_mean<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    match suggest(name, candidates.clone()) {
        Some(near) => format!("did you mean {near:?}?"),
        None if candidates.clone().into_iter().next().is_none() => "there are none".into(),
        None => format!("expected one of: {}", listed(candidates)),
    }
}

/// Returns the names quoted, with commas between them; shortens a long list.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| format!("{name:?}")).collect();
    if names.is_empty() {
        return "none".into();
    }
    shortened(&names)
}

/// Returns the first names with commas between them, and the number of the others.
pub(crate) fn shortened(names: &[String]) -> String {
    let shown = &names[..names.len().min(LISTED)];
    match names.len() - shown.len() {
        0 => shown.join(", "),
        rest => format!("{} and {rest} more", shown.join(", ")),
    }
}

/// Formats a number of things: `1 row`, `2 rows`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Returns the name in lower case without underscores, hyphens and spaces.
fn simplified(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_or_all_names_are_listed() {
        assert_eq!(suggest("colums", ["name", "columns", "column"]), Some("columns"));
        assert_eq!(suggest("driver_id", ["DriverID", "driverid2"]), Some("DriverID"));
        assert_eq!(suggest("zzz", ["name", "columns"]), None);
        assert_eq!(did_you_mean("zzz", ["name", "key"]), r#"expected one of: "name", "key""#);
        assert_eq!(did_you_mean("zzz", []), "there are none");
        let many: Vec<_> = (0..15).map(|i| format!("name{i:02}")).collect();
        assert!(did_you_mean("zzz", many.iter().map(String::as_str)).ends_with(" and 3 more"));
    }
}
