//! A file that memory does not hold is read as any other is, and one whose checks are shared.

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

/// Openers of one file, who stand for processes of one machine: each maps the bits of the file for itself.
#[cfg(target_os = "linux")]
mod sharing {
    use std::fs::{self, FileTimes, OpenOptions};
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use super::*;
    use crate::stamp::Stamp;

    const BLOCK: usize = BlockSize::Large.bytes();

    fn open(path: &Path) -> Container {
        Container::open_sharing(path, 0).unwrap()
    }

    /// Reads a byte of each block whose number is given; returns whether all of them are what was written.
    fn read(container: &Container, blocks: impl IntoIterator<Item = usize>) -> bool {
        let section = container.any_section("bytes").unwrap();
        blocks.into_iter().all(|block| section.get(block * BLOCK, 1).is_ok())
    }

    /// Changes a byte of a block in place, and waits until the time of the file tells so.
    fn damage(path: &Path, block: usize) {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let before = Stamp::of(path).unwrap();
        while before == Stamp::of(path).unwrap() {
            file.write_all_at(&[255; 9], (64 + block * BLOCK) as u64).unwrap();
        }
    }

    #[test]
    fn what_one_process_has_checked_the_others_do_not_check_again() {
        let written = Written::new(BlockSize::Large);
        let (first, second) = (open(&written.file), open(&written.file));
        assert!(read(&first, [3, 64, BLOCKS - 1]));
        // So the second would find if it looked.
        [3, 64, BLOCKS - 1, 4].iter().for_each(|&block| damage(&written.file, block));
        assert!(read(&second, [3, 64, BLOCKS - 1]));
        assert!(!read(&second, [4]) && !read(&first, [4]));
    }

    #[test]
    fn each_process_checks_a_small_file_for_itself() {
        let written = Written::new(BlockSize::Large);
        let [first, second] = [(); 2].map(|()| Container::open(&written.file).unwrap());
        assert!(read(&first, [3]));
        damage(&written.file, 3);
        assert!(read(&first, [3]) && !read(&second, [3]));
    }

    #[test]
    fn sections_of_a_file_have_checks_of_their_own() {
        let folder = TempDir::new().unwrap();
        let mut writer = ContainerWriter::create(folder.path(), "three.bin").unwrap();
        let bytes = vec![7_u8; 70 * BLOCK];
        writer.section("empty", &bytes[..0]).unwrap();
        writer.section("before", &bytes).unwrap();
        writer.section("bytes", &bytes).unwrap();
        writer.finish().unwrap();
        let path = folder.path().join("three.bin");
        let (first, second) = (open(&path), open(&path));
        assert!(read(&first, 0..70));
        // Blocks of the section before.
        [0, 63, 64, 69].iter().for_each(|&block| damage(&path, block));
        let section = second.any_section("before").unwrap();
        assert!([0, 63, 64, 69].iter().all(|block| section.get(block * BLOCK, 1).is_err()));
        assert!(section.get(BLOCK, 1).is_ok());
    }

    #[test]
    fn a_file_damaged_in_place_is_found_by_the_next_process() {
        let written = Written::new(BlockSize::Large);
        let first = open(&written.file);
        assert!(read(&first, 0..BLOCKS));
        damage(&written.file, 3);
        let next = open(&written.file);
        assert!(!read(&next, [3]) && read(&next, [2, 4]));
    }

    #[test]
    fn a_damaged_file_in_place_of_a_checked_one_is_found() {
        let written = Written::new(BlockSize::Large);
        let first = open(&written.file);
        assert!(read(&first, 0..BLOCKS));
        let other = written.file.with_extension("other");
        fs::copy(&written.file, &other).unwrap();
        damage(&other, 3);
        let times =
            FileTimes::new().set_modified(fs::metadata(&written.file).unwrap().modified().unwrap());
        OpenOptions::new().write(true).open(&other).unwrap().set_times(times).unwrap();
        fs::rename(&other, &written.file).unwrap();
        let next = open(&written.file);
        assert!(!read(&next, [3]) && read(&next, [2, 4]) && read(&first, [3]));
    }

    #[test]
    fn verify_finds_damage_of_blocks_that_count_as_checked() {
        let written = Written::new(BlockSize::Large);
        let (first, second) = (open(&written.file), open(&written.file));
        assert!(read(&first, 0..BLOCKS));
        damage(&written.file, BLOCKS - 1);
        assert!(read(&second, 0..BLOCKS));
        for container in [&first, &second] {
            let error = container.verify(&|_| Ok(())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(container.changed(|_, _| Ok(())).is_err());
        }
    }
}
