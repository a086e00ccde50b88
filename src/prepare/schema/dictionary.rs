//! A schema as a dictionary of Python, which arrives as JSON.

use serde_json::Value;

use super::Schema;
use super::text::{Place, in_plain_words, section};
use crate::error::{Error, Result};

impl Schema {
    /// Reads a schema from JSON, and checks everything that does not need the data.
    ///
    /// # Errors
    /// As [`Schema::parse`]; the message names the key, because nobody has seen the text.
    pub fn from_json(json: &str) -> Result<Self> {
        let schema: Self = serde_json::from_str(json).map_err(|error| {
            let words = explain(json).unwrap_or_else(|| {
                let words = error.to_string();
                words.split(" at line ").next().unwrap_or_default().to_owned()
            });
            Error::schema(format!("the schema's dictionary: {words}"))
        })?;
        schema.check()?;
        Ok(schema)
    }
}

/// Returns what is wrong with a schema, and the path of its key; `None` where TOML cannot tell.
fn explain(json: &str) -> Option<String> {
    let mut value = serde_json::from_str(json).ok()?;
    remove_nulls(&mut value);
    // Each key has a line of its own in this text.
    let text = toml::to_string(&toml::Table::try_from(value).ok()?).ok()?;
    let error = toml::from_str::<Schema>(&text).err()?;
    let message = error.message().trim_end().replace('\n', "; ");
    let Some(span) = error.span() else { return Some(message) };
    let line = text.get(..span.start)?.matches('\n').count() + 1;
    let own = text.lines().nth(line - 1)?;
    let key = own.split_once(" = ").map_or("", |(key, _)| key);
    let words = in_plain_words(
        &message,
        &Place { line: own, field: key, found: text.get(span).unwrap_or_default() },
    );
    let mut path = headers(&text, line);
    if !key.is_empty() && !words.starts_with(&format!("{key}: ")) {
        path.push(key.to_owned());
    }
    path.push(words);
    Some(path.join(": "))
}

/// Returns the names of the sections in which a line lies, the outermost first.
fn headers(text: &str, line: usize) -> Vec<String> {
    let header = text.lines().take(line).filter(|line| line.starts_with('[')).last();
    let header = header.unwrap_or_default().trim_matches(['[', ']']);
    let mut names: Vec<String> =
        header.split('.').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if let (Some(outer), Some(known)) = (names.first_mut(), section(text, line)) {
        *outer = known;
    }
    names
}

/// Removes the keys whose value is None, which is the same as no key.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}
