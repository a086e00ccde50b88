//! Stands in for `shared_bits` on systems other than Linux, whose files in memory and locks it is built on.

use std::fs::File;
use std::io;

use crate::bytes::Digest;
use crate::map::Words;

/// There are none.
pub(super) enum SharedBits {}

impl SharedBits {
    pub(super) fn of(_: &File, _: Digest, _: usize) -> io::Result<(Self, Words)> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
