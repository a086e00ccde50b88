//! Partials as 64-bit words, little endian.

use crate::error::{Error, Result};

/// Appends the bytes of `words`.
pub(super) fn write(words: impl Iterator<Item = u64>, bytes: &mut Vec<u8>) {
    bytes.extend(words.flat_map(u64::to_le_bytes));
}

/// Reads `count` words from `bytes`; `what` names the partial in errors.
pub(super) fn decode<'a>(
    bytes: &'a [u8],
    count: usize,
    what: &str,
) -> Result<impl Iterator<Item = u64> + 'a> {
    let expected = count.saturating_mul(size_of::<u64>());
    check_length(bytes, expected, what)?;
    Ok(bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)))
}

/// Checks the length of a partial's bytes.
pub(super) fn check_length(bytes: &[u8], expected: usize, what: &str) -> Result<()> {
    if bytes.len() == expected {
        return Ok(());
    }
    let found = bytes.len();
    Err(Error::corrupt(format!("expected {expected} bytes of {what}, found {found}")))
}
