//! Partials as words of 64 bits, little endian.

use crate::error::{Error, Result};

/// Appends the bytes of `words`.
pub(super) fn write(words: impl Iterator<Item = u64>, bytes: &mut Vec<u8>) {
    bytes.extend(words.flat_map(u64::to_le_bytes));
}

/// The words of `bytes`, which must be `count`; `what` names the partial.
pub(super) fn decode<'a>(
    bytes: &'a [u8],
    count: usize,
    what: &str,
) -> Result<impl Iterator<Item = u64> + 'a> {
    let expected = count.saturating_mul(size_of::<u64>());
    check_length(bytes, expected, what)?;
    Ok(bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)))
}

/// Refuses another length than the partial's.
pub(super) fn check_length(bytes: &[u8], expected: usize, what: &str) -> Result<()> {
    if bytes.len() == expected {
        return Ok(());
    }
    let found = bytes.len();
    Err(Error::corrupt(format!("expected {expected} bytes of {what}, found {found}")))
}
