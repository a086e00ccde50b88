//! The words that a name is made of, to guess from them what a column is.

/// The ends of names that say that a value names a row.
const IDENTITY: [&str; 4] = ["id", "key", "uuid", "guid"];

/// The ends of names that may say so in a table's own key, and mean a quantity elsewhere.
const NUMBERING: [&str; 4] = ["code", "no", "number", "nr"];

/// The words of a name, in lower case and the singular: `nationalityCountryIDs` is nationality,
/// country, id.
pub(super) fn words(name: &str) -> Vec<String> {
    let characters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (place, &character) in characters.iter().enumerate() {
        let before = place.checked_sub(1).map(|p| characters[p]);
        let after = characters.get(place + 1);
        let begins = match before {
            _ if !character.is_alphanumeric() => true,
            Some(before) if character.is_uppercase() => {
                let ends_capitals =
                    before.is_uppercase() && after.is_some_and(|a| a.is_lowercase());
                // The plural of an acronym belongs to it: IDs.
                let is_plural = after == Some(&'s') && place + 2 == characters.len();
                before.is_lowercase() || before.is_ascii_digit() || (ends_capitals && !is_plural)
            }
            _ => false,
        };
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words.iter().map(|word| singular(word)).collect()
}

/// The singular of an English word, as far as its end tells.
fn singular(word: &str) -> String {
    let ends = |end: &str| word.ends_with(end) && word.len() > end.len() + 1;
    match word {
        "people" => "person".into(),
        "children" => "child".into(),
        _ if ends("ies") => format!("{}y", &word[..word.len() - 3]),
        _ if ends("sses") || ends("shes") || ends("ches") || ends("xes") => {
            word[..word.len() - 2].into()
        }
        _ if ends("ss") || ends("us") || ends("is") => word.into(),
        _ if ends("s") => word[..word.len() - 1].into(),
        _ => word.into(),
    }
}

/// Whether a column's words say that its values name rows.
pub(super) fn names_rows(words: &[String]) -> bool {
    words.last().is_some_and(|last| {
        IDENTITY.contains(&last.as_str()) || (last.len() > 4 && stem(last).is_some())
    })
}

/// Whether a column's words end like those of a name that is unique everywhere.
pub(super) fn is_uuid(words: &[String]) -> bool {
    words.last().is_some_and(|last| matches!(last.as_str(), "uuid" | "guid"))
}

/// What stands before the ending of a word such as `custkey` or `driverid`.
fn stem(word: &str) -> Option<&str> {
    ["id", "key"].iter().find_map(|end| word.strip_suffix(end)).filter(|stem| stem.len() >= 3)
}

/// How well a column's words name the key of the table whose words these are; none: not at all.
pub(super) fn key_rank(column: &[String], table: &[String]) -> Option<u32> {
    let (last, before) = column.split_last()?;
    let ends = |ends: &[&str]| ends.contains(&last.as_str());
    let table_joined = table.concat();
    if before.is_empty() {
        if ends(&["id", "key", "uuid", "guid"]) {
            return Some(0);
        }
        // A joined name: custkey of customer, driverid of drivers.
        let stem = stem(last)?;
        return match table_joined == stem {
            true => Some(1),
            false => table_joined.starts_with(stem).then_some(3),
        };
    }
    if !ends(&IDENTITY) && !ends(&NUMBERING) {
        return None;
    }
    let before_joined = before.concat();
    if table_joined == before_joined {
        Some(1)
    } else if table.ends_with(before) || table_joined.ends_with(&before_joined) {
        Some(2)
    } else {
        (before_joined.len() >= 3 && table_joined.starts_with(&before_joined)).then_some(3)
    }
}

/// How well a column's words name a row of another table, by that table's words and its key's.
///
/// Greater is better; none: not at all.
pub(super) fn reference_rank(column: &[String], table: &[String], key: &[String]) -> Option<u32> {
    let ends = |last: &str| IDENTITY.contains(&last) || last == "code";
    let with_end = column.split_last().filter(|(last, _)| ends(last));
    let named = with_end.map_or(column, |(_, before)| before);
    let joined = column.concat();
    let telling = key.len() > 1 || key.first().is_some_and(|word| stem(word).is_some());
    if named == table || joined == format!("{}id", table.concat()) {
        Some(100)
    } else if telling && column == key {
        Some(99)
    } else if telling && column.ends_with(key) {
        Some(50 + key.len() as u32)
    } else if with_end.is_some() && named.ends_with(table) {
        Some(50 + table.len() as u32)
    } else {
        None
    }
}

/// Whether a column's words say that a row refers to another one of the same table.
pub(super) fn names_same_table(column: &[String]) -> bool {
    let upward = ["parent", "manager", "supervisor", "boss", "predecessor"];
    let word = |wanted: &str| column.iter().any(|word| word == wanted);
    upward.iter().any(|upward| word(upward)) || (word("report") && word("to"))
}

/// Whether a column's words end like those of a code or a number, which may be a key.
pub(super) fn may_number_rows(words: &[String]) -> bool {
    words.last().is_some_and(|last| NUMBERING.contains(&last.as_str()))
}

/// Whether a column's words say that it numbers rows within those of another table, as the lines of
/// an order are.
pub(super) fn numbers_within(words: &[String]) -> bool {
    let ends = [
        "linenumber",
        "lineno",
        "linenr",
        "linenum",
        "itemnumber",
        "itemno",
        "seq",
        "seqno",
        "seqnr",
        "sequence",
        "sequencenumber",
        "ordinal",
    ];
    let joined = words.concat();
    words.last().is_some_and(|last| last == "line") || ends.iter().any(|end| joined.ends_with(end))
}

/// The word that all columns of a table begin with, when it is a mere prefix, as in TPC-H.
pub(super) fn shared_prefix(columns: &[Vec<String>]) -> Option<String> {
    let first = columns.first()?.first()?;
    let shared = columns.len() > 1
        && first.len() <= 3
        && columns.iter().all(|words| words.len() > 1 && words.first() == Some(first));
    shared.then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(name: &str) -> String {
        words(name).join(" ")
    }

    #[test]
    fn names_fall_into_words() {
        for (name, expected) in [
            ("nationalityCountryId", "nationality country id"),
            ("CustomerID", "customer id"),
            ("customer_ids", "customer id"),
            ("HTTPStatus", "http status"),
            ("grands_prix", "grand prix"),
            ("l_partkey", "l partkey"),
            ("Order Details", "order detail"),
            ("categories", "category"),
            ("addresses", "address"),
            ("freePractice1Date", "free practice1 date"),
            ("driverIDs", "driver id"),
            ("été", "été"),
            ("", ""),
        ] {
            assert_eq!(joined(name), expected, "{name}");
        }
    }

    #[test]
    fn keys_are_known_by_name() {
        let rank = |column: &str, table: &str| key_rank(&words(column), &words(table));
        assert_eq!(rank("id", "races"), Some(0));
        assert_eq!(rank("CustomerID", "customers"), Some(1));
        assert_eq!(rank("custkey", "customer"), Some(3));
        assert_eq!(rank("emp_no", "employees"), Some(3));
        assert_eq!(rank("StateID", "us_states"), Some(2));
        assert_eq!(rank("partkey", "supplier"), None);
        assert_eq!(rank("name", "races"), None);
    }

    #[test]
    fn numbers_within_another_table_are_known_by_name() {
        for name in ["l_linenumber", "Line", "order_line_no", "seq", "ItemNumber"] {
            assert!(numbers_within(&words(name)), "{name}");
        }
        for name in ["deadline", "line_total", "phone_number", "position", ""] {
            assert!(!numbers_within(&words(name)), "{name}");
        }
    }

    #[test]
    fn references_are_known_by_name() {
        let rank = |column: &str, table: &str, key: &str| {
            reference_rank(&words(column), &words(table), &words(key))
        };
        assert_eq!(rank("engineManufacturerId", "engine_manufacturers", "id"), Some(100));
        assert_eq!(rank("nationalityCountryId", "countries", "id"), Some(51));
        assert_eq!(rank("country", "countries", "id"), Some(100));
        assert_eq!(rank("custkey", "customer", "custkey"), Some(99));
        assert_eq!(rank("ship_emp_no", "employees", "emp_no"), Some(52));
        assert_eq!(rank("driverNumber", "drivers", "id"), None);
        assert_eq!(rank("id", "drivers", "id"), None);
    }
}
