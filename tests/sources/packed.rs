//! CSV files packed with gzip and Zstandard.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstandard(text: &[u8]) -> Vec<u8> {
    // With a checksum, as the command `zstd` writes it.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// The name of a packed file, and the function that packs it.
type Packing = (&'static str, fn(&[u8]) -> Vec<u8>);

const PACKINGS: [Packing; 2] = [("t.csv.gz", gzip), ("t.csv.zst", zstandard)];

fn text() -> Vec<u8> {
    let body = (0..50_000).map(|i| format!("{i},{}\n", i * 7919 % 104_729));
    format!("a,b\n{}", body.collect::<String>()).into_bytes()
}

#[test]
fn a_packed_file_has_the_rows_of_the_plain_one() {
    let plain = folder(&[("t.csv", &text())]);
    let expected = rows(&*opened(plain.path()), "t", &["b", "a"]).unwrap();
    for (name, pack) in PACKINGS {
        let whole = folder(&[(name, &pack(&text()))]);
        assert_eq!(rows(&*opened(whole.path()), "t", &["b", "a"]).unwrap(), expected, "{name}");
        // Tools that pack in parallel write several archives, one after another.
        let text = text();
        let (front, back) = text.split_at(100_000);
        let parts = folder(&[(name, &[pack(front), pack(back)].concat())]);
        assert_eq!(rows(&*opened(parts.path()), "t", &["b", "a"]).unwrap(), expected, "{name}");
    }
}

#[test]
fn a_truncated_or_damaged_archive_is_named() {
    for (name, pack) in PACKINGS {
        let whole = pack(&text());
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x55;
        damaged[middle + 1] ^= 0x55;
        let cut = whole[..whole.len() - 3].to_vec();
        for bytes in [damaged, cut, whole[..middle].to_vec(), whole[..5].to_vec(), text(), vec![]] {
            let folder = folder(&[(name, &bytes)]);
            let source = opened(folder.path());
            let found = message(rows(&*source, "t", &["a"]), ErrorKind::Data, folder.path());
            let expected = match name {
                "t.csv.gz" => "not a complete gzip file: ",
                _ => "not a complete Zstandard file: ",
            };
            assert!(found.starts_with(&format!("DIR/{name}: {expected}")), "{found}");
            let advice = "; it may be truncated or damaged, write it again";
            assert!(found.ends_with(advice), "{found}");
        }
    }
}

#[test]
fn errors_in_a_packed_file_have_the_place_in_the_text() {
    let filler: String = (0..20_000).map(|i| format!("{i},\"x\ny\"\r\n")).collect();
    for bad in [&b"1,\xff\n"[..], b"1,2,3\n", b"1,\"x\"y\n", b"1,\"x\n"] {
        let text = [b"a,b\r\n", filler.as_bytes(), bad].concat();
        let plain = folder(&[("t.csv", &text)]);
        let refused = |folder: &tempfile::TempDir| {
            let found = rows(&*opened(folder.path()), "t", &["a", "b"]);
            message(found, ErrorKind::Data, folder.path())
        };
        let expected = refused(&plain);
        assert!(expected.contains("line 40002: "), "{expected}");
        for (name, pack) in PACKINGS {
            let folder = folder(&[(name, &pack(&text))]);
            assert_eq!(refused(&folder), expected.replace("t.csv", name));
        }
    }
}
