//! Tensors of safetensors files, and headers that are none.

use half::{bf16, f16};
use headwater::ErrorKind;
use headwater::matrix::{Element, Matrix, MatrixFormat};

use crate::matrix::{Folder, gram, npy, numbers, open, refused};

const ONLY: MatrixFormat = MatrixFormat::Safetensors(None);

/// A file with these tensors, one behind the other: name, type, shape and bytes.
pub(crate) fn file(tensors: &[(&str, &str, &[u64], &[u8])]) -> Vec<u8> {
    let mut at = 0;
    let entries = tensors.iter().map(|(name, dtype, shape, bytes)| {
        let offsets = (at, at + bytes.len());
        at = offsets.1;
        format!(
            "{name:?}:{{\"dtype\":{dtype:?},\"shape\":{shape:?},\"data_offsets\":[{},{}]}}",
            offsets.0, offsets.1
        )
    });
    let header = format!("{{\"__metadata__\":{{\"format\":\"pt\"}},{}}}", {
        entries.collect::<Vec<_>>().join(",")
    });
    let data: Vec<u8> = tensors.iter().flat_map(|(.., bytes)| *bytes).copied().collect();
    with_header(header.as_bytes(), &data)
}

fn with_header(header: &[u8], data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header, data].concat()
}

/// All these numbers are exact in every type.
#[test]
fn tensors_of_every_type_equal_the_npy_matrices() {
    let folder = Folder::new("tensors");
    let values = numbers(6 * 2);
    let bytes: &[u8] = bytemuck::cast_slice(&values);
    let expected = folder.file("x.npy", &npy("<f8", (6, 2), bytes, 64));
    let expected = open(&expected, MatrixFormat::Npy(None)).unwrap();
    let f32s: Vec<f32> = values.iter().map(|&v| v as f32).collect();
    let f16s: Vec<f16> = values.iter().map(|&v| f16::from_f64(v)).collect();
    let bf16s: Vec<bf16> = values.iter().map(|&v| bf16::from_f64(v)).collect();
    let path = folder.file(
        "x.safetensors",
        &file(&[
            ("ids", "I64", &[2], &[0; 16]),
            ("f64", "F64", &[6, 2], bytes),
            ("f32", "F32", &[3, 2, 2], bytemuck::cast_slice(&f32s)),
            ("f16", "F16", &[6, 2], bytemuck::cast_slice(&f16s)),
            ("bf16", "BF16", &[1, 6, 1, 2], bytemuck::cast_slice(&bf16s)),
        ]),
    );
    for (name, element) in [
        ("f64", Element::F64),
        ("f32", Element::F32),
        ("f16", Element::F16),
        ("bf16", Element::Bf16),
    ] {
        let found = open(&path, MatrixFormat::Safetensors(Some(name.to_owned()))).unwrap();
        assert_eq!((found.rows(), found.columns(), found.element()), (6, 2, element));
        assert_eq!(gram(&found), gram(&expected), "{name}");
        assert_eq!(found.identity() == expected.identity(), element == Element::F64);
    }
    let words = "expected 1 tensor, found 5; choose one with --tensor: \"ids\", \
                 \"f64\", \"f32\", \"f16\", \"bf16\"";
    refused(open(&path, ONLY), ErrorKind::InvalidArgument, words);
    let named = |name: &str| open(&path, MatrixFormat::Safetensors(Some(name.to_owned())));
    let words = "no tensor is named \"y\"; the tensors are \"ids\", \"f64\"";
    refused(named("y"), ErrorKind::InvalidArgument, words);
    let words = "tensor \"ids\": expected numbers of F64, F32, F16 or BF16, found \"I64\"";
    refused(named("ids"), ErrorKind::InvalidArgument, words);
}

#[test]
fn tensors_without_rows_and_columns_are_refused() {
    let folder = Folder::new("no-tensors");
    let of = |tensors: &[(&str, &str, &[u64], &[u8])]| {
        open(&folder.file("x.safetensors", &file(tensors)), ONLY)
    };
    let (invalid, corrupt) = (ErrorKind::InvalidArgument, ErrorKind::Corrupt);
    refused(of(&[("x", "F32", &[4], &[0; 16])]), invalid, "found the shape [4]; reshape it");
    refused(of(&[("x", "F32", &[], &[0; 4])]), invalid, "found the shape []; reshape it");
    refused(of(&[("x", "F32", &[4, 0], &[])]), invalid, "expected at least 1 column, found 0");
    assert_eq!(of(&[("x", "F32", &[0, 4], &[])]).unwrap().rows(), 0);
    let words = "the shape [4, 2] of F32 does not match its 28 bytes";
    refused(of(&[("x", "F32", &[4, 2], &[0; 28])]), corrupt, words);
    for shape in [&[1 << 63, 2][..], &[1 << 40, 1 << 40, 1 << 40], &[u64::MAX, u64::MAX, 0, 1]] {
        refused(of(&[("x", "F32", shape, &[0; 28])]), corrupt, "does not match its 28 bytes");
    }
    refused(of(&[]), corrupt, "not a list of tensors");
    let none = folder.file("x.safetensors", &with_header(b"{}", b""));
    refused(open(&none, ONLY), invalid, "found a file without tensors");
    let a = folder.file("a.safetensors", &file(&[("x", "F32", &[1, 2], &[0; 8])]));
    let b = folder.file("b.safetensors", &file(&[("x", "F64", &[1, 2], &[0; 16])]));
    let words = "b.safetensors: expected 2 columns of f32, as in ";
    let both = Matrix::open(&[a, b], &ONLY);
    assert!(both.as_ref().is_err_and(|e| e.to_string().contains("a.safetensors, found 2")));
    refused(both, invalid, words);
}

#[test]
fn invalid_headers_are_rejected() {
    let folder = Folder::new("headers");
    let of = |bytes: &[u8]| open(&folder.file("x.safetensors", bytes), ONLY);
    let (corrupt, foreign) = (ErrorKind::Corrupt, ErrorKind::NotOurs);
    refused(of(b""), foreign, "expected at least 8 bytes, found 0");
    refused(of(&[0; 7]), foreign, "expected at least 8 bytes, found 7");
    refused(of(b"hello, world, this is text"), foreign, "does not begin with '{'");
    let length = |length: u64| [&length.to_le_bytes()[..], b"{\"x\":1}"].concat();
    refused(of(&length(8)), corrupt, "expected a header of 8 bytes, found 7");
    refused(of(&length(100_000_000)), corrupt, "expected a header of 100000000 bytes, found 7");
    for huge in [100_000_001, u64::MAX, 1 << 63] {
        refused(of(&length(huge)), ErrorKind::LimitExceeded, "a header of at most 100000000 bytes");
    }
    refused(of(&with_header(b"{\"\xff\":1}", b"")), corrupt, "not text");
    let tensor =
        |offsets: &str| format!("{{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":{offsets}}}");
    let one = |offsets: &str, data: usize| {
        of(&with_header(format!("{{\"x\":{}}}", tensor(offsets)).as_bytes(), &vec![0; data]))
    };
    assert!(one("[0,8]", 8).is_ok());
    for offsets in ["[0,16]", "[1,9]", "[8,0]", "[18446744073709551615,8]", "[0,9]"] {
        refused(
            one(offsets, 8),
            corrupt,
            "expected tensor \"x\" from byte 0 of 8 bytes of numbers, found it from",
        );
    }
    refused(one("[0,8]", 9), corrupt, "expected 8 bytes of numbers after the header, found 9");
    for offsets in ["[0]", "[-1,8]", "[0,8,9]", "[0,1e300]", "[0,18446744073709551616]", "{}"] {
        refused(one(offsets, 8), corrupt, "the header is not a list of tensors");
    }
    let two = |a: &str, b: &str, second: &str| {
        let header = format!("{{\"a\":{},{second:?}:{}}}", tensor(a), tensor(b));
        of(&with_header(header.as_bytes(), &[0; 16]))
    };
    refused(two("[0,8]", "[8,16]", "b"), ErrorKind::InvalidArgument, "expected 1 tensor, found 2");
    refused(two("[0,8]", "[4,12]", "b"), corrupt, "found it from 4 to 12");
    refused(two("[0,8]", "[0,8]", "b"), corrupt, "expected tensor \"b\" from byte 8");
    refused(two("[0,8]", "[8,16]", "a"), corrupt, "\"a\" is listed twice");
    let deep = format!("{{\"x\":{}", "[".repeat(100_000));
    refused(of(&with_header(deep.as_bytes(), b"")), corrupt, "not a list of tensors");
    let good = file(&[("x", "F32", &[4, 2], &[1; 32])]);
    for cut in 0..good.len() {
        assert!(of(&good[..cut]).is_err(), "cut at {cut}");
    }
}
