//! A file that memory does not hold is read as any other is.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use super::file::BLOCK_BYTES;
use super::read_ahead::ReadAhead;
use super::{Container, ContainerWriter};
use crate::error::ErrorKind;

const BLOCKS: usize = 200;
const LENGTH: usize = BLOCKS * BLOCK_BYTES - 100;

/// A file with one section.
struct Written {
    _folder: TempDir,
    file: PathBuf,
    bytes: Vec<u8>,
}

impl Written {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let bytes: Vec<u8> =
            (0..LENGTH as u32).map(|at| ((at / 7) ^ (at / 16_384)) as u8).collect();
        let mut writer = ContainerWriter::create(folder.path(), "one.bin").unwrap();
        writer.section("bytes", &bytes).unwrap();
        writer.finish().unwrap();
        Self { file: folder.path().join("one.bin"), _folder: folder, bytes }
    }

    fn open(&self) -> Container {
        let container = Container::open(&self.file).unwrap();
        container.start_reading_ahead(Arc::new(ReadAhead::new()));
        container
    }
}

#[test]
fn reading_ahead_changes_no_byte() {
    let written = Written::new();
    let whole = written.open().any_section("bytes").unwrap();
    assert_eq!(whole.get(0, LENGTH).unwrap(), written.bytes);
    let section = written.open().any_section("bytes").unwrap();
    // Over the ends of blocks and of the section, blocks that were checked and others.
    for at in (0..LENGTH).step_by(5 * BLOCK_BYTES / 3).chain([0, LENGTH - 1, LENGTH, usize::MAX]) {
        for count in [0, 1, 100, BLOCK_BYTES, 20 * BLOCK_BYTES] {
            section.prefetch(at, count);
            let expected = at.checked_add(count).and_then(|end| written.bytes.get(at..end));
            assert_eq!(section.get(at, count).ok(), expected, "{count} bytes at {at}");
        }
    }
}

#[test]
fn a_damaged_block_that_was_read_ahead_is_found() {
    let written = Written::new();
    let mut bytes = std::fs::read(&written.file).unwrap();
    bytes[64 + 30 * BLOCK_BYTES + 5] ^= 1;
    std::fs::write(&written.file, bytes).unwrap();
    let container = written.open();
    let section = container.any_section("bytes").unwrap();
    section.prefetch(0, LENGTH);
    let error = section.get(30 * BLOCK_BYTES, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("do not match their digest"), "{error}");
    assert!(section.get(0, 30 * BLOCK_BYTES).is_ok());
    assert!(section.get(31 * BLOCK_BYTES, 1).is_ok());
    assert!(container.verify(&|_| Ok(())).is_err());
}
