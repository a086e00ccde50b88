//! Splits names into tokens, and guesses from them what a column is.

/// The last tokens of columns whose values identify rows.
const IDENTITY: [&str; 4] = ["id", "key", "uuid", "guid"];

/// The last tokens of columns that may be a table's own key, and are quantities elsewhere.
const NUMBERING: [&str; 4] = ["code", "no", "number", "nr"];

/// The names of keys that say nothing about their table.
const GENERIC: [&str; 10] =
    ["id", "key", "uuid", "guid", "code", "no", "number", "nr", "name", "title"];

/// Returns the tokens of a name in lower case and singular: `nationalityCountryIDs` has the tokens
/// nationality, country, id.
pub(super) fn tokens(name: &str) -> Vec<String> {
    let characters: Vec<char> = name.chars().collect();
    let mut tokens = vec![String::new()];
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
            tokens.push(String::new());
        }
        if let Some(token) = tokens.last_mut().filter(|_| character.is_alphanumeric()) {
            token.extend(character.to_lowercase());
        }
    }
    tokens.retain(|token| !token.is_empty());
    tokens.iter().map(|token| singular(token)).collect()
}

/// Returns the singular of an English word, by its ending.
fn singular(token: &str) -> String {
    let ends = |end: &str| token.ends_with(end) && token.len() > end.len() + 1;
    match token {
        "people" => "person".into(),
        "children" => "child".into(),
        _ if ends("ies") => format!("{}y", &token[..token.len() - 3]),
        _ if ends("sses") || ends("shes") || ends("ches") || ends("xes") => {
            token[..token.len() - 2].into()
        }
        _ if ends("ss") || ends("us") || ends("is") => token.into(),
        _ if ends("s") => token[..token.len() - 1].into(),
        _ => token.into(),
    }
}

/// Whether the values of a column identify rows, by its tokens.
pub(super) fn names_rows(tokens: &[String]) -> bool {
    tokens.last().is_some_and(|last| {
        IDENTITY.contains(&last.as_str()) || (last.len() > 4 && stem(last).is_some())
    })
}

/// Whether the tokens of a column are those of a universally unique identifier.
pub(super) fn is_uuid(tokens: &[String]) -> bool {
    tokens.last().is_some_and(|last| matches!(last.as_str(), "uuid" | "guid"))
}

/// Returns the part before the ending of a token such as `custkey` or `driverid`.
fn stem(token: &str) -> Option<&str> {
    ["id", "key"].iter().find_map(|end| token.strip_suffix(end)).filter(|stem| stem.len() >= 3)
}

/// Ranks a column as the key of its table by their tokens, 0 best; `None` if it is not named so.
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

/// Ranks a column as a reference to another table, by the tokens of that table and of its key.
///
/// Greater is better; `None` if the column is not named like a reference.
pub(super) fn reference_rank(column: &[String], table: &[String], key: &[String]) -> Option<u32> {
    let ends = |last: &str| IDENTITY.contains(&last) || last == "code";
    let with_end = column.split_last().filter(|(last, _)| ends(last));
    let named = with_end.map_or(column, |(_, before)| before);
    let joined = column.concat();
    let is_specific = key.len() > 1 || key.first().is_some_and(|token| stem(token).is_some());
    if named == table || joined == format!("{}id", table.concat()) {
        Some(100)
    } else if is_specific && column == key {
        Some(99)
    } else if is_specific && column.ends_with(key) {
        Some(50 + key.len() as u32)
    } else if with_end.is_some() && named.ends_with(table) {
        Some(50 + table.len() as u32)
    } else {
        None
    }
}

/// Whether a column is named after a table or its key, by its last tokens: `home_team` after `teams`.
pub(super) fn is_named_after(column: &[String], table: &[String], key: &[String]) -> bool {
    let with_end = column.split_last().filter(|(last, _)| IDENTITY.contains(&last.as_str()));
    let named = with_end.map_or(column, |(_, before)| before);
    let is_specific = !matches!(key, [only] if GENERIC.contains(&only.as_str()));
    (!table.is_empty() && named.ends_with(table))
        || (is_specific && !key.is_empty() && column.ends_with(key))
}

/// Whether a column refers to rows of its own table, by its tokens.
pub(super) fn names_same_table(column: &[String]) -> bool {
    let upward = ["parent", "manager", "supervisor", "boss", "predecessor"];
    let token = |wanted: &str| column.iter().any(|token| token == wanted);
    upward.iter().any(|upward| token(upward)) || (token("report") && token("to"))
}

/// Whether a column is named like a code or a number, which may be a key.
pub(super) fn may_number_rows(tokens: &[String]) -> bool {
    tokens.last().is_some_and(|last| NUMBERING.contains(&last.as_str()))
}

/// Whether a column is named like a place among others, of which a sum says nothing.
pub(super) fn names_rank(tokens: &[String]) -> bool {
    let numbered = tokens.split_last().filter(|(last, _)| NUMBERING.contains(&last.as_str()));
    let named = numbered.map_or(tokens, |(_, before)| before);
    let ranks = ["place", "order", "position", "rank", "ranking"];
    named.last().is_some_and(|last| ranks.contains(&last.as_str()))
}

/// Whether a column numbers the rows of one parent, by its tokens: the lines of an order.
pub(super) fn numbers_within(tokens: &[String]) -> bool {
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
    let joined = tokens.concat();
    tokens.last().is_some_and(|last| last == "line") || ends.iter().any(|end| joined.ends_with(end))
}

/// Returns the token that all columns of a table begin with, if it is a short prefix as in TPC-H.
pub(super) fn shared_prefix(columns: &[Vec<String>]) -> Option<String> {
    let first = columns.first()?.first()?;
    let shared = columns.len() > 1
        && first.len() <= 3
        && columns.iter().all(|tokens| tokens.len() > 1 && tokens.first() == Some(first));
    shared.then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(name: &str) -> String {
        tokens(name).join(" ")
    }

    #[test]
    fn names_split_into_tokens() {
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
    fn keys_are_recognised_by_name() {
        let rank = |column: &str, table: &str| key_rank(&tokens(column), &tokens(table));
        assert_eq!(rank("id", "races"), Some(0));
        assert_eq!(rank("CustomerID", "customers"), Some(1));
        assert_eq!(rank("custkey", "customer"), Some(3));
        assert_eq!(rank("emp_no", "employees"), Some(3));
        assert_eq!(rank("StateID", "us_states"), Some(2));
        assert_eq!(rank("partkey", "supplier"), None);
        assert_eq!(rank("name", "races"), None);
    }

    #[test]
    fn numbers_within_a_parent_are_recognised_by_name() {
        for name in ["l_linenumber", "Line", "order_line_no", "seq", "ItemNumber"] {
            assert!(numbers_within(&tokens(name)), "{name}");
        }
        for name in ["deadline", "line_total", "phone_number", "position", ""] {
            assert!(!numbers_within(&tokens(name)), "{name}");
        }
    }

    #[test]
    fn ranks_are_recognised_by_name() {
        for name in ["positionDisplayOrder", "position", "finishing_place", "Rank", "position_no"] {
            assert!(names_rank(&tokens(name)), "{name}");
        }
        for name in ["order_total", "rank_points", "price", "driverNumber", ""] {
            assert!(!names_rank(&tokens(name)), "{name}");
        }
    }

    #[test]
    fn references_are_recognised_by_name() {
        let rank = |column: &str, table: &str, key: &str| {
            reference_rank(&tokens(column), &tokens(table), &tokens(key))
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
