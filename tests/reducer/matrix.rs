//! Matrices on disk: what they hold, however they are cut into files, and what is no matrix.

use std::fs;
use std::path::{Path, PathBuf};

use half::bf16;
use headwater::ErrorKind;
use headwater::fold::gram::Chunk;
use headwater::fold::{Gram, Statistic};
use headwater::matrix::{Element, Matrix, MatrixFormat, sort_by_name};

pub(crate) const NPY: MatrixFormat = MatrixFormat::Npy(None);

/// A folder that is gone after the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("headwater-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file as `numpy.save` writes it, its header filled up to `align`.
pub(crate) fn npy(descr: &str, shape: (usize, usize), numbers: &[u8], align: usize) -> Vec<u8> {
    let (rows, columns) = shape;
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    while !(10 + header.len() + 1).is_multiple_of(align) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(numbers);
    bytes
}

pub(crate) fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|place| (place as f64 - 7.5) / 8.0).collect()
}

pub(crate) fn gram(matrix: &Matrix) -> Vec<u64> {
    let rows = matrix.read(0..matrix.rows()).unwrap();
    let leaf = Gram::new(matrix.columns()).unwrap().leaf(&Chunk::of(rows.rows().unwrap())).unwrap();
    leaf.values().iter().map(|value| value.to_bits()).collect()
}

pub(crate) fn open(path: &Path, format: MatrixFormat) -> headwater::Result<Matrix> {
    Matrix::open(&[path.to_owned()], &format)
}

/// Demands that a matrix is refused, with these words.
#[track_caller]
pub(crate) fn refused<T>(opened: headwater::Result<T>, kind: ErrorKind, words: &str) {
    let Err(error) = opened else { panic!("opened; expected: {words}") };
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}\nexpected: {words}");
}

#[test]
fn npy_files_and_raw_files_give_the_same_matrix() {
    let folder = Folder::new("kept");
    let values = numbers(15 * 4);
    let bytes: &[u8] = bytemuck::cast_slice(&values);
    let whole = open(&folder.file("a.npy", &npy("<f8", (15, 4), bytes, 64)), NPY).unwrap();
    assert_eq!((whole.rows(), whole.columns(), whole.element()), (15, 4, Element::F64));
    let raw = MatrixFormat::Raw { element: Element::F64, columns: 4 };
    let parts = [
        folder.file("b.npy", &npy("<f8", (7, 4), &bytes[..7 * 32], 64)),
        folder.file("empty.npy", &npy("<f8", (0, 4), &[], 64)),
        folder.file("c.npy", &npy("<f8", (8, 4), &bytes[7 * 32..], 64)),
    ];
    let odd = open(&folder.file("odd.npy", &npy("<f8", (15, 4), bytes, 7)), NPY).unwrap();
    let raw = open(&folder.file("d.raw", bytes), raw).unwrap();
    let cut = Matrix::open(&parts, &NPY).unwrap();
    for other in [&odd, &raw, &cut] {
        assert_eq!(other.rows(), 15);
        assert_eq!(gram(other), gram(&whole));
    }
    assert_eq!(raw.identity(), whole.identity());
    assert_ne!(cut.identity(), whole.identity());
    let mut others = values;
    others[59] += 1.0;
    let others = npy("<f8", (15, 4), bytemuck::cast_slice(&others), 64);
    let others = open(&folder.file("e.npy", &others), NPY).unwrap();
    assert_ne!(others.identity(), whole.identity());
}

/// All these numbers are exact in every type.
#[test]
fn every_element_widens_to_the_same_numbers() {
    let folder = Folder::new("elements");
    let values = numbers(6 * 2);
    let expected = npy("<f8", (6, 2), bytemuck::cast_slice(&values), 64);
    let expected = gram(&open(&folder.file("f8.npy", &expected), NPY).unwrap());
    let f32s: Vec<f32> = values.iter().map(|&v| v as f32).collect();
    let f16s: Vec<half::f16> = values.iter().map(|&v| half::f16::from_f64(v)).collect();
    let bf16s: Vec<bf16> = values.iter().map(|&v| bf16::from_f64(v)).collect();
    let files: [(&str, &[u8], Option<Element>); 3] = [
        ("<f4", bytemuck::cast_slice(&f32s), None),
        ("<f2", bytemuck::cast_slice(&f16s), None),
        ("|V2", bytemuck::cast_slice(&bf16s), Some(Element::Bf16)),
    ];
    for (descr, bytes, given) in files {
        let path = folder.file("x.npy", &npy(descr, (6, 2), bytes, 64));
        assert_eq!(gram(&open(&path, MatrixFormat::Npy(given)).unwrap()), expected, "{descr}");
    }
}

#[test]
fn files_without_a_matrix_are_rejected_with_their_path() {
    let folder = Folder::new("refused");
    let values = numbers(6 * 2);
    let bytes: &[u8] = bytemuck::cast_slice(&values);
    let good = npy("<f8", (6, 2), bytes, 64);
    let refused = |name: &str, bytes: &[u8], format, kind, words: &str| {
        let opened = open(&folder.file(name, bytes), format);
        assert!(opened.as_ref().is_err_and(|e| e.to_string().contains(name)), "{name}");
        super::matrix::refused(opened, kind, words);
    };
    refused("cut.npy", &good[..good.len() - 1], NPY, ErrorKind::Corrupt, "cut off");
    refused("long.npy", &[&good[..], &[0]].concat(), NPY, ErrorKind::Corrupt, "expected 6 rows");
    refused("text.npy", b"hello, world", NPY, ErrorKind::NotOurs, "not a .npy file");
    refused("none.npy", b"", NPY, ErrorKind::NotOurs, "not a .npy file");
    refused("flat.npy", &npy("<f8", (6, 0), &[], 64), NPY, ErrorKind::InvalidArgument, "1 column");
    refused(
        "v2.npy",
        &npy("|V2", (6, 8), bytes, 64),
        NPY,
        ErrorKind::InvalidArgument,
        "give --dtype bf16",
    );
    let f32s = MatrixFormat::Npy(Some(Element::F32));
    refused("f8.npy", &good, f32s, ErrorKind::InvalidArgument, "expected numbers of f32");
    let raw = MatrixFormat::Raw { element: Element::F64, columns: 5 };
    refused("x.raw", bytes, raw, ErrorKind::Corrupt, "of 5 numbers");
    let parts = [folder.file("a.npy", &good), folder.file("b.npy", &npy("<f8", (4, 3), bytes, 64))];
    let Err(error) = Matrix::open(&parts, &NPY) else { panic!("two forms were taken") };
    assert!(error.to_string().contains("b.npy: expected 2 columns of f64"), "{error}");
    let missing = Matrix::open(&[folder.0.join("nothing.npy")], &NPY);
    assert_eq!(missing.err().map(|e| e.kind()), Some(ErrorKind::Io));
    let Err(error) = open(&folder.0, NPY) else { panic!("a folder was taken") };
    assert!(error.to_string().contains("expected a file"), "{error}");
    let matrix = open(&folder.file("a.npy", &good), NPY).unwrap();
    assert!(matrix.read(0..7).is_err());
}

#[test]
fn file_names_give_the_format_and_the_order() {
    let folder = Folder::new("names");
    let values = numbers(6 * 2);
    let bytes: &[u8] = bytemuck::cast_slice(&values);
    let by_name = |name: &str, bytes: &[u8]| {
        open(&folder.file(name, bytes), MatrixFormat::ByName).map(|matrix| gram(&matrix))
    };
    let expected = by_name("a.npy", &npy("<f8", (6, 2), bytes, 64)).unwrap();
    let tensor = crate::safetensors::file(&[("x", "F64", &[6, 2], bytes)]);
    assert_eq!(by_name("a.safetensors", &tensor).unwrap(), expected);
    let unknown = open(&folder.file("a.bin", bytes), MatrixFormat::ByName);
    let words = "a.bin: expected a file name that ends in .npy, .safetensors or .parquet";
    refused(unknown, ErrorKind::InvalidArgument, words);
    refused(Matrix::open(&[], &NPY), ErrorKind::InvalidArgument, "at least one file");
    let mut paths = ["b/part-9", "a/part-9", "z/part-10", "a/part-1"].map(PathBuf::from);
    sort_by_name(&mut paths);
    assert_eq!(paths, ["a/part-1", "z/part-10", "a/part-9", "b/part-9"].map(PathBuf::from));
}

/// Headers whose numbers could lead a reader astray, or to memory that is not there.
#[test]
fn invalid_npy_headers_are_rejected() {
    let folder = Folder::new("lies");
    let mut huge = b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec();
    huge.extend(b"{'descr': '<f8'");
    let path = folder.file("x.npy", &huge);
    refused(open(&path, NPY), ErrorKind::Corrupt, "ends inside its header");
    let mut not_text = npy("<f8", (1, 1), &[0; 8], 64);
    not_text[20] = 0xff;
    let path = folder.file("x.npy", &not_text);
    refused(open(&path, NPY), ErrorKind::Corrupt, "not text");
    for shape in [(usize::MAX, 1), (1, usize::MAX), (usize::MAX, usize::MAX), (1 << 61, 8)] {
        let path = folder.file("x.npy", &npy("<f8", shape, &[0; 64], 64));
        refused(open(&path, NPY), ErrorKind::Corrupt, "numbers of f64, found 64 bytes");
    }
    // An error shows the beginning of a header, not all of a long one.
    let path = folder.file("x.npy", &npy(&"x".repeat(9), (1, 1), &[], 60_000));
    let error = open(&path, NPY).err().unwrap().to_string();
    assert!(error.len() < 500, "{}", error.len());
}

#[test]
fn raw_files_with_incomplete_rows_are_rejected() {
    let folder = Folder::new("counts");
    let raw = |columns| MatrixFormat::Raw { element: Element::F16, columns };
    let path = folder.file("x.raw", &[0; 30]);
    assert_eq!(open(&path, raw(5)).unwrap().rows(), 3);
    refused(open(&path, raw(4)), ErrorKind::Corrupt, "expected 3 rows of 4 numbers of f16");
    refused(open(&path, raw(0)), ErrorKind::InvalidArgument, "at least 1 column");
    refused(open(&path, raw(usize::MAX)), ErrorKind::Corrupt, "expected 0 rows");
    let empty = open(&folder.file("y.raw", &[]), raw(4)).unwrap();
    assert_eq!((empty.rows(), empty.readable()), (0, vec![]));
    assert_eq!(empty.read(0..0).unwrap().rows().unwrap().count(), 0);
}
