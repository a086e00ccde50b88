//! Names in messages: quoting them, and guessing which one was meant.

/// How many names a message lists before it only counts the rest.
const LISTED: usize = 12;

/// The candidate that `word` most likely stands for; none where nothing is near.
///
/// Case, underscores, hyphens and spaces do not count. Of two equally near candidates the first
/// one wins, so that the same input yields the same message.
pub(crate) fn suggest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let plain = plain(word);
    let allowed = plain.chars().count() / 3;
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&plain, &self::plain(candidate)), candidate))
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// The end of a message about an unknown name: the one that was meant, or those that there are.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    match suggest(word, candidates.clone()) {
        Some(near) => format!("did you mean {near:?}?"),
        None if candidates.clone().into_iter().next().is_none() => "there are none".into(),
        None => format!("expected one of: {}", listed(candidates)),
    }
}

/// The names, quoted, with commas; a long list is cut and counted.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| format!("{name:?}")).collect();
    if names.is_empty() {
        return "none".into();
    }
    shortened(&names)
}

/// The first few of these, with commas, and how many more there are.
pub(crate) fn shortened(names: &[String]) -> String {
    let shown = &names[..names.len().min(LISTED)];
    match names.len() - shown.len() {
        0 => shown.join(", "),
        rest => format!("{} and {rest} more", shown.join(", ")),
    }
}

/// The word without what people write differently from one day to the next.
fn plain(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_wins_and_far_ones_are_listed() {
        assert_eq!(suggest("colums", ["name", "columns", "column"]), Some("columns"));
        assert_eq!(suggest("driver_id", ["DriverID", "driverid2"]), Some("DriverID"));
        assert_eq!(suggest("zzz", ["name", "columns"]), None);
        assert_eq!(did_you_mean("zzz", ["name", "key"]), r#"there are: "name", "key""#);
        assert_eq!(did_you_mean("zzz", []), "there are none");
        let many: Vec<_> = (0..15).map(|i| format!("name{i:02}")).collect();
        assert!(did_you_mean("zzz", many.iter().map(String::as_str)).ends_with(" and 3 more"));
    }
}
