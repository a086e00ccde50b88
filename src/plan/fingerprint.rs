//! What a plan consists of, by name, and the fingerprint of it.

use std::collections::BTreeMap;
use std::fmt;

use bincode::{Decode, Encode};

use crate::{Error, Result};

const DOMAIN: &str = "headwater plan fingerprint, version 1";

/// The value of one field of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Value {
    /// A whole number: a seed, a size, a count.
    Number(u64),
    /// A setting that is on or off.
    Flag(bool),
    /// A name or a choice among names.
    Text(String),
    /// A BLAKE3 hash, of data or of what is too long to be a field.
    Hash([u8; 32]),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Hash(hash) => f.write_str(&blake3::Hash::from_bytes(*hash).to_hex()),
        }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<[u8; 32]> for Value {
    fn from(hash: [u8; 32]) -> Self {
        Self::Hash(hash)
    }
}

/// Everything that determines a sequence, field by field.
///
/// What may change freely on a resume (rank, world, threads, prefetch) is no field. The fields are
/// held in the order of their names, so that the place in the code where one is added is no part
/// of the identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(BTreeMap<String, Value>);

/// The identity of a plan: two plans with the same fingerprint give the same sequence.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl Fields {
    /// No field yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field.
    ///
    /// # Errors
    /// `InvalidArgument` when there is one of this name already.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<Value>) -> Result<()> {
        let (name, value) = (name.into(), value.into());
        if let Some(present) = self.0.get(&name) {
            return Err(Error::invalid(format!(
                "the plan has the field {name:?} twice, as {present} and as {value}; two things \
                 with one name cannot be told apart"
            )));
        }
        self.0.insert(name, value);
        Ok(())
    }

    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// All fields in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the fingerprint.
    ///
    /// # Determinism
    /// Depends on the names and values, not on the order in which they were added.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hasher = blake3::Hasher::new_derive_key(DOMAIN);
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        for (name, value) in &self.0 {
            add(name.as_bytes());
            match value {
                Value::Number(number) => add(&[&[0], &number.to_le_bytes()[..]].concat()),
                Value::Flag(flag) => add(&[1, u8::from(*flag)]),
                Value::Text(text) => add(&[&[2], text.as_bytes()].concat()),
                Value::Hash(hash) => add(&[&[3], &hash[..]].concat()),
            }
        }
        Fingerprint(*hasher.finalize().as_bytes())
    }

    /// Checks that `recorded` are the fields of this plan.
    ///
    /// # Errors
    /// `PlanMismatch`, naming every field that differs, with both values.
    pub fn compare(&self, recorded: &Self) -> Result<()> {
        let mut differences = Vec::new();
        for (name, own) in &self.0 {
            match recorded.get(name) {
                Some(other) if other == own => {}
                Some(other) => {
                    differences.push(format!("{name:?} was {other} and is now {own}"));
                }
                None => differences.push(format!("{name:?} was not there and is now {own}")),
            }
        }
        for (name, other) in &recorded.0 {
            if !self.0.contains_key(name) {
                differences.push(format!("{name:?} was {other} and is no longer there"));
            }
        }
        if differences.is_empty() {
            return Ok(());
        }
        Err(Error::mismatch(format!(
            "it was recorded under another plan; {} differ{}: {}; go on with the settings and data \
             it was recorded with, or start afresh without it",
            count_of(differences.len(), "field"),
            if differences.len() == 1 { "s" } else { "" },
            differences.join("; ")
        )))
    }

    pub(super) fn from_map(fields: BTreeMap<String, Value>) -> Self {
        Self(fields)
    }

    pub(super) fn as_map(&self) -> &BTreeMap<String, Value> {
        &self.0
    }
}

fn count_of(count: usize, noun: &str) -> String {
    if count == 1 { format!("{count} {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(&str, Value)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in list {
            fields.add(*name, value.clone()).unwrap();
        }
        fields
    }

    #[test]
    fn the_order_of_adding_is_no_part_of_the_identity() {
        let one = fields(&[("a", 1.into()), ("b", true.into())]);
        let other = fields(&[("b", true.into()), ("a", 1.into())]);
        assert_eq!(one.fingerprint(), other.fingerprint());
    }

    /// Pairs that an encoding without lengths or types would confuse.
    #[test]
    fn p6_every_difference_changes_the_fingerprint() {
        let all = [
            fields(&[]),
            fields(&[("a", 1.into())]),
            fields(&[("a", 2.into())]),
            fields(&[("b", 1.into())]),
            fields(&[("a", true.into())]),
            fields(&[("a", false.into())]),
            fields(&[("a", "".into())]),
            fields(&[("a", "1".into())]),
            fields(&[("a", "\u{1}\0\0\0\0\0\0\0".into())]),
            fields(&[("a", [0; 32].into())]),
            fields(&[("a", "\0".repeat(32).as_str().into())]),
            fields(&[("ab", "c".into())]),
            fields(&[("a", "bc".into())]),
            fields(&[("a\u{2}", "b".into())]),
            fields(&[("a", "\u{2}b".into())]),
            fields(&[("a", 1.into()), ("b", 1.into())]),
        ];
        let distinct: std::collections::BTreeSet<_> =
            all.iter().map(|f| f.fingerprint().0).collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn p6_a_refusal_names_every_field_that_differs() {
        let now = fields(&[("batch", 32.into()), ("new", true.into()), ("same", 1.into())]);
        let then = fields(&[("batch", 16.into()), ("old", "x".into()), ("same", 1.into())]);
        assert_eq!(
            now.compare(&then).unwrap_err().to_string(),
            "it was recorded under another plan; 3 fields differ: \"batch\" was 16 and is now 32; \
             \"new\" was not there and is now true; \"old\" was \"x\" and is no longer there; go \
             on with the settings and data it was recorded with, or start afresh without it"
        );
        assert_eq!(now.compare(&then).unwrap_err().kind(), crate::ErrorKind::PlanMismatch);
        now.compare(&now).unwrap();
    }

    #[test]
    fn a_field_is_there_once() {
        let mut once = fields(&[("a", 1.into())]);
        assert!(once.add("a", 1).unwrap_err().to_string().contains("\"a\" twice"));
    }
}
