//! Fractions from 0 to 1, exactly as they are written.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The most decimal places: a 64-bit float in its shortest form has fewer.
const PLACES_MAX: usize = 400;

/// A decimal number from 0 to 1, such as 0.99, without any rounding.
///
/// # Example
///
/// ```
/// use headwater::fold::Fraction;
///
/// let fraction: Fraction = "0.07".parse()?;
/// // The 64-bit float 0.07 * 100.0 is above 7.
/// assert_eq!(fraction.rank_of(100), 7);
/// assert_eq!("7e-2".parse::<Fraction>()?, fraction);
/// # Ok::<(), headwater::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fraction {
    /// Whether it is 1; then there are no digits.
    is_one: bool,
    /// The decimal digits after the point, each from 0 to 9, without zeros at the end.
    digits: Vec<u8>,
}

impl Fraction {
    /// Returns the rank, counted from 1, of this quantile among `count` numbers: the least whole number that
    /// is at least `self * count`, and 1 for 0. Without numbers it is 0.
    #[must_use]
    pub fn rank_of(&self, count: u64) -> u64 {
        if self.is_one || count == 0 {
            return count;
        }
        // The product from the last digit on: its whole part, and whether anything is below that.
        let (mut whole, mut has_rest) = (0_u128, false);
        for &digit in self.digits.iter().rev() {
            let tenths = whole + u128::from(digit) * u128::from(count);
            has_rest |= tenths % 10 != 0;
            whole = tenths / 10;
        }
        // Below `count`, because the fraction is below 1.
        (whole as u64 + u64::from(has_rest)).max(1)
    }
}

impl FromStr for Fraction {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let read = read(text).ok_or_else(|| {
            Error::invalid(format!(
                "expected a decimal number from 0 to 1 with at most {PLACES_MAX} decimal places, such as \
                 0.99, found {text:?}"
            ))
        })?;
        Ok(read)
    }
}

fn read(text: &str) -> Option<Fraction> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all: Vec<u8> = [before, after].concat().into_bytes();
    if all.is_empty() || !all.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let leading = all.iter().take_while(|digit| **digit == b'0').count();
    let digits: Vec<u8> = all[leading..].iter().map(|digit| digit - b'0').collect();
    let used = digits.iter().rposition(|digit| *digit > 0).map_or(0, |last| last + 1);
    let digits = &digits[..used];
    if digits.is_empty() {
        return Some(Fraction { is_one: false, digits: Vec::new() });
    }
    // The decimal places before the first digit: none of 0.1, one of 0.01.
    let point = i64::try_from(before.len()).ok()? + i64::from(exponent);
    let zeros = i64::try_from(leading).ok()? - point;
    if zeros == -1 && digits == [1] {
        return Some(Fraction { is_one: true, digits: Vec::new() });
    }
    let zeros = usize::try_from(zeros).ok()?;
    if zeros.checked_add(digits.len())? > PLACES_MAX {
        return None;
    }
    Some(Fraction { is_one: false, digits: [vec![0; zeros].as_slice(), digits].concat() })
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_one || self.digits.is_empty() {
            return f.write_str(if self.is_one { "1" } else { "0" });
        }
        f.write_str("0.")?;
        self.digits.iter().try_for_each(|digit| write!(f, "{digit}"))
    }
}

impl TryFrom<String> for Fraction {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Fraction> for String {
    fn from(fraction: Fraction) -> Self {
        fraction.to_string()
    }
}
