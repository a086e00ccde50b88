//! Every bit of a file is protected, and a part of a file is never read as the whole.

use std::fs;
use std::path::Path;

use headwater::prepare::source;
use headwater::{Error, ErrorKind, Result};

use crate::exported_pings;

/// Reads all rows of a file; returns their number.
fn rows(path: &Path) -> Result<usize> {
    let source = source::open(path)?;
    let table = source.tables()?.remove(0);
    let columns: Vec<_> = table.columns.into_iter().map(|column| column.name).collect();
    source.read(&table.name, &columns)?.map(|batch| Ok(batch?.num_rows())).sum()
}

fn assert_known(error: &Error, what: &str) {
    assert_eq!(error.kind(), ErrorKind::Data, "{what}: {error}");
    let text = error.to_string();
    let says_what_to_do = ["write it again", "write the file", "leave the file out"];
    assert!(says_what_to_do.iter().any(|remedy| text.contains(remedy)), "{what}: {text}");
    assert!(text.contains("train.arrayrecord: "), "{what}: {text}");
}

/// A file of several chunks, one of which is longer than a block, and its length without the last block.
fn small_file() -> (tempfile::TempDir, std::path::PathBuf, Vec<u8>) {
    let all = "split = { train = 1.0, val = 0.0, test = 0.0 }";
    let (folder, files) = exported_pings(20, 12, all);
    let path = files.join("train.arrayrecord");
    let bytes = fs::read(&path).unwrap();
    (folder, path, bytes)
}

#[test]
fn no_flipped_bit_is_read_over() {
    let (_folder, path, bytes) = small_file();
    let whole = rows(&path).unwrap();
    assert!(whole > 100);
    let zeros = |at: usize| {
        bytes[at.saturating_sub(64)..(at + 64).min(bytes.len())].iter().all(|b| *b == 0)
    };
    let mut flips = 0;
    // In the long padding, some bytes.
    for at in (0..bytes.len()).filter(|&at| !zeros(at) || at % 499 == 0) {
        for bit in 0..8 {
            if bit != at % 8 && at > 4096 && at % 7 != 0 {
                continue;
            }
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            fs::write(&path, changed).unwrap();
            let what = format!("byte {at}, bit {bit}");
            assert_known(&rows(&path).expect_err(&what), &what);
            flips += 1;
        }
    }
    assert!(flips > 20_000, "{flips}");
    fs::write(&path, &bytes).unwrap();
    assert_eq!(rows(&path).unwrap(), whole);
}

#[test]
fn no_part_of_a_file_is_read_as_the_whole() {
    let (_folder, path, bytes) = small_file();
    for length in (0..bytes.len()).filter(|at| at % 613 == 0 || at % 65_536 < 100) {
        fs::write(&path, &bytes[..length]).unwrap();
        let what = format!("the first {length} bytes");
        assert_known(&rows(&path).expect_err(&what), &what);
    }
    for more in [1, 65_536] {
        fs::write(&path, [&bytes[..], &vec![0; more]].concat()).unwrap();
        let what = format!("{more} more bytes");
        assert_known(&rows(&path).expect_err(&what), &what);
    }
    // Without the block that is padded, or with one twice.
    for blocks in [&[1][..], &[0, 0, 1], &[0, 1, 1], &[1, 0]] {
        let block = |&number: &usize| bytes[number * 65_536..].iter().take(65_536).copied();
        fs::write(&path, blocks.iter().flat_map(block).collect::<Vec<u8>>()).unwrap();
        let what = format!("the blocks {blocks:?}");
        assert_known(&rows(&path).expect_err(&what), &what);
    }
}
