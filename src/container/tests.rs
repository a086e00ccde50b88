//! A file that memory does not hold is read as any other is.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use super::read_ahead::ReadAhead;
use super::{BlockSize, Container, ContainerWriter};
use crate::error::ErrorKind;

const BLOCKS: usize = 200;
const SIZES: [BlockSize; 2] = [BlockSize::Small, BlockSize::Large];

/// A file with one section.
struct Written {
    _folder: TempDir,
    file: PathBuf,
    bytes: Vec<u8>,
}

impl Written {
    fn new(blocks: BlockSize) -> Self {
        let folder = TempDir::new().unwrap();
        let length = (BLOCKS * blocks.bytes() - 100) as u32;
        let bytes: Vec<u8> = (0..length).map(|at| ((at / 7) ^ (at / 4096)) as u8).collect();
        let mut writer = ContainerWriter::create(folder.path(), "one.bin").unwrap();
        writer.begin_in_blocks("bytes", blocks).unwrap();
        writer.write(&bytes).unwrap();
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
    for (blocks, block_bytes) in SIZES.map(|blocks| (blocks, blocks.bytes())) {
        let written = Written::new(blocks);
        let length = written.bytes.len();
        let whole = written.open().any_section("bytes").unwrap();
        assert_eq!(whole.get(0, length).unwrap(), written.bytes);
        let section = written.open().any_section("bytes").unwrap();
        // Over the ends of blocks and of the section, blocks that were checked and others.
        let starts = (0..length).step_by(5 * block_bytes / 3);
        for at in starts.chain([0, length - 1, length, usize::MAX]) {
            for count in [0, 1, 100, block_bytes, 20 * block_bytes] {
                section.prefetch(at, count);
                let expected = at.checked_add(count).and_then(|end| written.bytes.get(at..end));
                assert_eq!(section.get(at, count).ok(), expected, "{count} bytes at {at}");
            }
        }
    }
}

#[test]
fn a_damaged_block_that_was_read_ahead_is_found() {
    for (blocks, block_bytes) in SIZES.map(|blocks| (blocks, blocks.bytes())) {
        let written = Written::new(blocks);
        let mut bytes = std::fs::read(&written.file).unwrap();
        bytes[64 + 30 * block_bytes + 5] ^= 1;
        std::fs::write(&written.file, bytes).unwrap();
        let container = written.open();
        let section = container.any_section("bytes").unwrap();
        section.prefetch(0, written.bytes.len());
        let error = section.get(30 * block_bytes, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("do not match their digest"), "{error}");
        assert!(section.get(0, 30 * block_bytes).is_ok());
        assert!(section.get(31 * block_bytes, 1).is_ok());
        assert!(container.verify(&|_| Ok(())).is_err());
        assert!(container.copy_to(&written.file.with_extension("copy"), &|_| Ok(())).is_err());
    }
}

#[test]
fn sections_of_one_file_have_blocks_of_two_sizes() {
    let folder = TempDir::new().unwrap();
    let values: Vec<u32> = (0..50_000).collect();
    let mut writer = ContainerWriter::create(folder.path(), "two.bin").unwrap();
    writer.section("large", &values).unwrap();
    writer.begin_in_blocks("small", BlockSize::Small).unwrap();
    writer.write(bytemuck::cast_slice(&values)).unwrap();
    writer.section("last", &values[..10]).unwrap();
    writer.finish().unwrap();
    let path = folder.path().join("two.bin");
    let check = |path: &std::path::Path| {
        let container = Container::open(path).unwrap();
        container.verify(&|_| Ok(())).unwrap();
        for (name, count) in [("large", values.len()), ("small", values.len()), ("last", 10)] {
            let section = container.any_section(name).unwrap();
            assert_eq!(section.slice::<u32>(0, count).unwrap(), &values[..count]);
        }
    };
    check(&path);
    let copy = folder.path().join("copy.bin");
    Container::open(&path).unwrap().copy_to(&copy, &|_| Ok(())).unwrap();
    check(&copy);
    assert_eq!(std::fs::read(path).unwrap(), std::fs::read(copy).unwrap());
}
