//! The number of a part among all parts of a preparation.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::error::{Error, Result};

/// One of the parts into which the reading of a source is divided: `3/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    number: u32,
    count: u32,
}

impl Part {
    /// The most parts: all are open together.
    pub const COUNT_MAX: u32 = 10_000;

    /// Returns part `number`, counted from 1, of `count` parts.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such part.
    pub fn new(number: u32, count: u32) -> Result<Self> {
        if (1..=Self::COUNT_MAX).contains(&count) && (1..=count).contains(&number) {
            return Ok(Self { number, count });
        }
        Err(Error::invalid(format!(
            "expected a part from 1/N to N/N, with N at most {}, found {number}/{count}; number the parts \
             from 1 on",
            Self::COUNT_MAX
        )))
    }

    /// The number of this part, from 1 on.
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }

    /// The number of parts.
    #[must_use]
    pub fn count(self) -> u32 {
        self.count
    }

    /// Whether this part has a block, by its number among the blocks of all tables.
    pub(super) fn has(self, block: u64) -> bool {
        block % u64::from(self.count) == u64::from(self.number - 1)
    }

    /// Returns the name of the part's file.
    pub(in crate::prepare) fn file_name(self) -> String {
        format!("{}-of-{}.{ENDING}", self.number, self.count)
    }
}

/// The ending of the names of parts.
pub(super) const ENDING: &str = "part";

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Part {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = |digits: &str| {
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<u32>().ok().filter(|_| is_number)
        };
        let numbers = text.split_once('/');
        let numbers = numbers.and_then(|(part, count)| Some((number(part)?, number(count)?)));
        let (number, count) = numbers.ok_or_else(|| {
            Error::invalid(format!("expected a part I/N, such as 3/8, found {text:?}"))
        })?;
        Self::new(number, count)
    }
}

#[cfg(test)]
mod tests {
    use super::Part;

    #[test]
    fn every_block_is_in_one_part() {
        for count in [1, 2, 7] {
            let parts: Vec<_> =
                (1..=count).map(|number| Part::new(number, count).unwrap()).collect();
            for block in 0..20 {
                assert_eq!(parts.iter().filter(|part| part.has(block)).count(), 1);
            }
        }
    }

    #[test]
    fn parts_are_counted_from_one() {
        assert_eq!("3/8".parse::<Part>().unwrap(), Part::new(3, 8).unwrap());
        assert_eq!(Part::new(3, 8).unwrap().to_string(), "3/8");
        for text in
            ["", "3", "3/", "/8", "0/8", "9/8", "1/0", "-1/8", "1/10001", "1/2/3", " 1/2", "+1/2"]
        {
            let error = text.parse::<Part>().unwrap_err().to_string();
            assert!(error.contains("expected a part "), "{text}: {error}");
        }
    }
}
