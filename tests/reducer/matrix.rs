//! Matrices on disk: what they hold, however they are cut into files, and what is no matrix.

use std::fs;
use std::path::{Path, PathBuf};

use half::bf16;
use headwater::ErrorKind;
use headwater::fold::gram::Chunk;
use headwater::fold::{Gram, Statistic};
use headwater::reducer::{Element, Matrix, MatrixFormat};

const NPY: MatrixFormat = MatrixFormat::Npy(None);

/// A folder that is gone after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("headwater-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
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
fn npy(descr: &str, shape: (usize, usize), numbers: &[u8], align: usize) -> Vec<u8> {
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

fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|place| (place as f64 - 7.5) / 8.0).collect()
}

fn gram(matrix: &Matrix) -> Vec<u64> {
    let rows = matrix.read(0..matrix.rows()).unwrap();
    let leaf = Gram::new(matrix.columns()).unwrap().leaf(&Chunk::of(rows.rows().unwrap())).unwrap();
    leaf.values().iter().map(|value| value.to_bits()).collect()
}

fn open(path: &Path, format: MatrixFormat) -> headwater::Result<Matrix> {
    Matrix::open(&[path.to_owned()], format)
}

#[test]
fn one_matrix_however_it_is_kept() {
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
    let cut = Matrix::open(&parts, NPY).unwrap();
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
fn what_is_no_matrix_is_refused_with_its_place() {
    let folder = Folder::new("refused");
    let values = numbers(6 * 2);
    let bytes: &[u8] = bytemuck::cast_slice(&values);
    let good = npy("<f8", (6, 2), bytes, 64);
    let refused = |name: &str, bytes: &[u8], format, kind, words: &str| {
        let Err(error) = open(&folder.file(name, bytes), format) else { panic!("{name}: taken") };
        assert_eq!(error.kind(), kind, "{name}: {error}");
        let text = error.to_string();
        assert!(text.contains(words) && text.contains(name), "{name}: {text}");
    };
    refused("cut.npy", &good[..good.len() - 1], NPY, ErrorKind::Corrupt, "cut off");
    refused("long.npy", &[&good[..], &[0]].concat(), NPY, ErrorKind::Corrupt, "expected 6 rows");
    refused("text.npy", b"hello, world", NPY, ErrorKind::NotOurs, "no .npy file");
    refused("none.npy", b"", NPY, ErrorKind::NotOurs, "no .npy file");
    refused("flat.npy", &npy("<f8", (6, 0), &[], 64), NPY, ErrorKind::InvalidArgument, "1 column");
    refused("v2.npy", &npy("|V2", (6, 8), bytes, 64), NPY, ErrorKind::InvalidArgument, "say bf16");
    let f32s = MatrixFormat::Npy(Some(Element::F32));
    refused("f8.npy", &good, f32s, ErrorKind::InvalidArgument, "expected numbers of f32");
    let raw = MatrixFormat::Raw { element: Element::F64, columns: 5 };
    refused("x.raw", bytes, raw, ErrorKind::Corrupt, "of 5 numbers");
    let parts = [folder.file("a.npy", &good), folder.file("b.npy", &npy("<f8", (4, 3), bytes, 64))];
    let Err(error) = Matrix::open(&parts, NPY) else { panic!("two forms were taken") };
    assert!(error.to_string().contains("b.npy: expected 2 columns of f64"), "{error}");
    let missing = Matrix::open(&[folder.0.join("nothing.npy")], NPY);
    assert_eq!(missing.err().map(|e| e.kind()), Some(ErrorKind::Io));
    let Err(error) = open(&folder.0, NPY) else { panic!("a folder was taken") };
    assert!(error.to_string().contains("expected a file"), "{error}");
    let matrix = open(&folder.file("a.npy", &good), NPY).unwrap();
    assert!(matrix.read(0..7).is_err());
}
