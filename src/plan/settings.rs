//! `Plan`: named settings, their fingerprint and their bytes.

use std::collections::BTreeMap;
use std::fmt;

use bincode::{Decode, Encode};

use crate::{Error, Result};

const DOMAIN: &str = "headwater plan fingerprint, version 1";

/// The longest plan that is written or read.
pub(super) const PLAN_BYTES_MAX: usize = 1 << 20;

/// The value of one named setting of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Setting {
    /// A whole number: a seed, a size, a count.
    Number(u64),
    /// On or off.
    Flag(bool),
    /// A name, or a choice among names.
    Text(String),
    /// A BLAKE3 digest of data, or of a setting that is too long to be kept.
    Hash([u8; 32]),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Hash(hash) => f.write_str(&blake3::Hash::from_bytes(*hash).to_hex()),
        }
    }
}

impl From<u64> for Setting {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Setting {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&str> for Setting {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<[u8; 32]> for Setting {
    fn from(hash: [u8; 32]) -> Self {
        Self::Hash(hash)
    }
}

/// The named settings that determine a whole sequence.
///
/// Settings that may change on a resume (rank, world, threads, prefetch) are not in it. Settings are
/// held in the order of their names: the order in which the code adds them does not matter.
///
/// # Example
/// ```
/// use headwater::plan::Plan;
///
/// let mut plan = Plan::new();
/// plan.add("seed", 42)?;
/// plan.add("walk", "priority")?;
/// let mut other = plan.clone();
/// assert_eq!(plan.fingerprint(), other.fingerprint());
///
/// other.add("child_width", 16)?;
/// let error = plan.compare(&other).unwrap_err();
/// assert!(error.to_string().contains("\"child_width\" was 16 and is no longer there"));
/// # Ok::<(), headwater::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan(BTreeMap<String, Setting>);

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

/// A plan as bincode sees it; the order of the fields is the order of the bytes.
#[derive(Encode, Decode)]
struct Encoded {
    fingerprint: Fingerprint,
    settings: BTreeMap<String, Setting>,
}

impl Plan {
    /// Returns a plan without settings.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a setting.
    ///
    /// # Errors
    /// `InvalidArgument` when the plan has a setting of this name already.
    pub fn add(&mut self, name: impl Into<String>, setting: impl Into<Setting>) -> Result<()> {
        let (name, setting) = (name.into(), setting.into());
        if let Some(present) = self.0.get(&name) {
            return Err(Error::invalid(format!(
                "the plan has two settings with the name {name:?}: {present} and {setting}; rename \
                 one of them"
            )));
        }
        self.0.insert(name, setting);
        Ok(())
    }

    /// Returns the setting of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.0.get(name)
    }

    /// Returns all settings in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Setting)> {
        self.0.iter().map(|(name, setting)| (name.as_str(), setting))
    }

    /// Returns the fingerprint.
    ///
    /// # Determinism
    /// Depends on names and settings, not on the order in which they were added.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hasher = blake3::Hasher::new_derive_key(DOMAIN);
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        for (name, setting) in &self.0 {
            add(name.as_bytes());
            match setting {
                Setting::Number(number) => add(&[&[0], &number.to_le_bytes()[..]].concat()),
                Setting::Flag(flag) => add(&[1, u8::from(*flag)]),
                Setting::Text(text) => add(&[&[2], text.as_bytes()].concat()),
                Setting::Hash(hash) => add(&[&[3], &hash[..]].concat()),
            }
        }
        Fingerprint(*hasher.finalize().as_bytes())
    }

    /// Checks that `recorded` is this plan.
    ///
    /// # Errors
    /// `PlanMismatch`, naming every setting that differs, with both values.
    pub fn compare(&self, recorded: &Self) -> Result<()> {
        self.check_equal(
            recorded,
            |name, own, other| match (own, other) {
                (Some(own), Some(other)) => format!("{name:?} was {other} and is now {own}"),
                (Some(own), None) => format!("{name:?} was not there and is now {own}"),
                (None, Some(other)) => format!("{name:?} was {other} and is no longer there"),
                (None, None) => unreachable!("a setting of one of the plans"),
            },
            "use the settings and data that were recorded, or start again from the beginning",
        )
    }

    /// Checks that the plan of another rank is this plan, that of rank 0.
    ///
    /// # Errors
    /// `PlanMismatch`, naming every setting that differs, with both values.
    pub(crate) fn compare_rank(&self, rank: u32, theirs: &Self) -> Result<()> {
        let shown = |setting: Option<&Setting>| {
            setting.map_or_else(|| "not there".to_owned(), Setting::to_string)
        };
        self.check_equal(
            theirs,
            |name, own, other| {
                format!("{name:?} is {} on rank 0 and {} on rank {rank}", shown(own), shown(other))
            },
            "give every rank the same files and options",
        )
    }

    /// Checks that both plans are equal; `describe` names a setting that differs, with the values of
    /// this plan and of the other.
    fn check_equal(
        &self,
        other: &Self,
        describe: impl Fn(&str, Option<&Setting>, Option<&Setting>) -> String,
        remedy: &str,
    ) -> Result<()> {
        let added = other.0.keys().filter(|name| !self.0.contains_key(*name));
        let differences: Vec<String> = (self.0.keys().chain(added))
            .map(|name| (name, self.get(name), other.get(name)))
            .filter(|(_, own, other)| own != other)
            .map(|(name, own, other)| describe(name, own, other))
            .collect();
        let settings = match differences.len() {
            0 => return Ok(()),
            1 => "1 setting differs".to_owned(),
            count => format!("{count} settings differ"),
        };
        Err(Error::mismatch(format!("{settings}: {}; {remedy}", differences.join("; "))))
    }

    /// Returns the bytes of the plan, which begin with its fingerprint.
    ///
    /// # Determinism
    /// Equal plans have equal bytes.
    ///
    /// # Errors
    /// `LimitExceeded` past 1 MiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let encoded = Encoded { fingerprint: self.fingerprint(), settings: self.0.clone() };
        let bytes = bincode::encode_to_vec(encoded, bincode_configuration())
            .map_err(|e| Error::limit(format!("the plan cannot be encoded: {e}")))?;
        if bytes.len() > PLAN_BYTES_MAX {
            return Err(Error::limit(format!(
                "expected a plan of at most {PLAN_BYTES_MAX} bytes, found {}; put the digest of a \
                 long setting in the plan in place of the setting",
                bytes.len()
            )));
        }
        Ok(bytes)
    }

    /// Reads a plan from the beginning of `bytes`; returns the rest as well.
    ///
    /// # Errors
    /// A description of the damage.
    pub(crate) fn decode_first(bytes: &[u8]) -> std::result::Result<(Self, &[u8]), String> {
        let (decoded, length): (Encoded, usize) =
            bincode::decode_from_slice(bytes, bincode_configuration())
                .map_err(|e| format!("its plan cannot be decoded ({e})"))?;
        let (fingerprint, plan) = (decoded.fingerprint, Self(decoded.settings));
        let expected = plan.fingerprint();
        if fingerprint != expected {
            return Err(format!("its fingerprint is {fingerprint}, its settings have {expected}"));
        }
        // One plan has one encoding: names in order, each once.
        if plan.encode().ok().as_deref() != Some(&bytes[..length]) {
            return Err("its settings are not in order, or not unique".to_owned());
        }
        Ok((plan, &bytes[length..]))
    }
}

/// The encoding of plans and positions.
pub(super) fn bincode_configuration() -> impl bincode::config::Config {
    bincode::config::standard()
        .with_little_endian()
        .with_fixed_int_encoding()
        .with_limit::<PLAN_BYTES_MAX>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(list: &[(&str, Setting)]) -> Plan {
        let mut plan = Plan::new();
        for (name, setting) in list {
            plan.add(*name, setting.clone()).unwrap();
        }
        plan
    }

    #[test]
    fn p6_settings_that_differ_between_ranks_are_named_with_both_values() {
        let ours = plan(&[("kind", "gram".into()), ("rows", 1000.into())]);
        let theirs =
            plan(&[("kind", "gram".into()), ("rows", 1001.into()), ("shift", true.into())]);
        assert_eq!(
            ours.compare_rank(3, &theirs).unwrap_err().to_string(),
            "2 settings differ: \"rows\" is 1000 on rank 0 and 1001 on rank 3; \"shift\" is not there \
             on rank 0 and true on rank 3; give every rank the same files and options"
        );
        ours.compare_rank(3, &ours).unwrap();
    }

    #[test]
    fn the_order_of_adding_does_not_change_the_fingerprint() {
        let one = plan(&[("a", 1.into()), ("b", true.into())]);
        let other = plan(&[("b", true.into()), ("a", 1.into())]);
        assert_eq!(one.fingerprint(), other.fingerprint());
    }

    /// Pairs that an encoding without lengths or types would confuse.
    #[test]
    fn p6_every_difference_changes_the_fingerprint() {
        let all = [
            plan(&[]),
            plan(&[("a", 1.into())]),
            plan(&[("a", 2.into())]),
            plan(&[("b", 1.into())]),
            plan(&[("a", true.into())]),
            plan(&[("a", false.into())]),
            plan(&[("a", "".into())]),
            plan(&[("a", "1".into())]),
            plan(&[("a", "\u{1}\0\0\0\0\0\0\0".into())]),
            plan(&[("a", [0; 32].into())]),
            plan(&[("a", "\0".repeat(32).as_str().into())]),
            plan(&[("ab", "c".into())]),
            plan(&[("a", "bc".into())]),
            plan(&[("a\u{2}", "b".into())]),
            plan(&[("a", "\u{2}b".into())]),
            plan(&[("a", 1.into()), ("b", 1.into())]),
        ];
        let distinct: std::collections::BTreeSet<_> =
            all.iter().map(|f| f.fingerprint().0).collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn p6_a_mismatch_names_every_setting_that_differs() {
        let now = plan(&[("batch", 32.into()), ("new", true.into()), ("same", 1.into())]);
        let then = plan(&[("batch", 16.into()), ("old", "x".into()), ("same", 1.into())]);
        assert_eq!(
            now.compare(&then).unwrap_err().to_string(),
            "3 settings differ: \"batch\" was 16 and is now 32; \"new\" was not there and is now true; \
             \"old\" was \"x\" and is no longer there; use the settings and data that were recorded, \
             or start again from the beginning"
        );
        assert_eq!(now.compare(&then).unwrap_err().kind(), crate::ErrorKind::PlanMismatch);
        now.compare(&now).unwrap();
    }

    #[test]
    fn a_setting_is_added_once() {
        let mut once = plan(&[("a", 1.into())]);
        assert!(
            once.add("a", 1).unwrap_err().to_string().contains("two settings with the name \"a\"")
        );
    }
}
