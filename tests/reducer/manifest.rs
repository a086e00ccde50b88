//! Manifests: a matrix of which some files are elsewhere.

use std::fs;

use headwater::ErrorKind;
use headwater::fold::Gram;
use headwater::matrix::{Element, Manifest, Matrix, MatrixFormat};
use headwater::plan::Plan;
use headwater::reducer::{Job, OfMatrix, Source};

use crate::matrix::{Folder, gram, npy, numbers, open, refused};

const BY_NAME: MatrixFormat = MatrixFormat::ByName;

/// Four files of two columns and 3, 0, 4 and 5 rows, and their manifest.
fn written(folder: &Folder) -> [std::path::PathBuf; 4] {
    let values = numbers(12 * 2);
    let bytes: &[u8] = bytemuck::cast_slice(&values);
    let rows = [0..3, 3..3, 3..7, 7..12];
    let names = ["a.npy", "b.npy", "c.npy", "d.npy"];
    let paths = std::array::from_fn(|at| {
        let bytes = &bytes[rows[at].start * 16..rows[at].end * 16];
        folder.file(names[at], &npy("<f8", (rows[at].len(), 2), bytes, 64))
    });
    Manifest::write(&folder.0.join("all.json"), &paths, &BY_NAME).unwrap();
    paths
}

#[test]
fn p1_a_manifest_with_missing_files_gives_the_same_rows_and_identity() {
    let folder = Folder::new("shards");
    let paths = written(&folder);
    let whole = Matrix::open(&paths, &BY_NAME).unwrap();
    let listed = || open(&folder.0.join("all.json"), BY_NAME).unwrap();
    let all = listed();
    assert_eq!((all.rows(), all.columns(), all.element()), (12, 2, Element::F64));
    assert_eq!(all.identity(), whole.identity());
    assert_eq!(all.readable(), std::slice::from_ref(&(0..12)));
    assert_eq!(gram(&all), gram(&whole));
    fs::remove_file(&paths[2]).unwrap();
    let some = listed();
    assert_eq!((some.rows(), some.identity()), (12, whole.identity()));
    assert_eq!(some.readable(), [0..3, 7..12]);
    let (mine, theirs) = (some.read(8..12).unwrap(), whole.read(8..12).unwrap());
    let values = |n: &headwater::matrix::Numbers<'_>| format!("{:?}", n.values());
    assert_eq!(values(&mine), values(&theirs));
    let error = some.read(2..5).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("rows 3..5 lie in "), "{error}");
    assert!(error.to_string().contains("c.npy, which is not on this machine"), "{error}");
    assert_eq!(some.place_of(8), Some((&*paths[3], 1)));
    assert_eq!(some.place_of(4), Some((&*paths[2], 1)));
    assert_eq!(some.place_of(12), None);
    for path in &paths {
        let _ = fs::remove_file(path);
    }
    assert_eq!((listed().rows(), listed().readable()), (12, vec![]));
}

/// A chunk that lies in two files can be read by none that has one of them.
#[test]
fn blocks_end_where_files_begin() {
    let folder = Folder::new("cuts");
    // They begin with rows 0, 3, 3 and 7.
    let matrix = Matrix::open(&written(&folder), &BY_NAME).unwrap();
    let job = Job::new(Plan::new(), 12, 2).unwrap();
    let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let source = OfMatrix::new(Gram::new(2).unwrap(), matrix, job, threads);
    let cuts: Vec<u64> = source.cuts().into_iter().filter(|&chunk| chunk > 0).collect();
    assert_eq!(cuts, [1, 2, 3, 4]);
}

#[test]
fn p6_a_file_that_differs_from_the_manifest_is_refused_by_name() {
    let folder = Folder::new("disagreeing");
    let paths = written(&folder);
    let listed = || open(&folder.0.join("all.json"), BY_NAME);
    let good = fs::read(&paths[3]).unwrap();
    let mut other = good.clone();
    *other.last_mut().unwrap() ^= 1;
    fs::write(&paths[3], other).unwrap();
    refused(listed(), ErrorKind::PlanMismatch, "d.npy: expected rows with digest ");
    for (descr, shape, words) in [
        ("<f8", (4, 2), "expected 5 rows of 2 columns of f64, as in the manifest, found 4 rows"),
        ("<f8", (2, 5), "found 2 rows of 5 columns of f64"),
        ("<f4", (5, 2), "found 5 rows of 2 columns of f32"),
    ] {
        let size = if descr == "<f8" { 8 } else { 4 };
        fs::write(&paths[3], npy(descr, shape, &vec![0; shape.0 * shape.1 * size], 64)).unwrap();
        refused(listed(), ErrorKind::PlanMismatch, words);
    }
    fs::write(&paths[3], &good[..good.len() - 1]).unwrap();
    refused(listed(), ErrorKind::Corrupt, "d.npy: expected 5 rows");
    fs::write(&paths[3], good).unwrap();
    assert!(listed().is_ok());
}

#[test]
fn damaged_and_foreign_manifests_are_refused() {
    let folder = Folder::new("no-manifest");
    written(&folder);
    let path = folder.0.join("all.json");
    let good = fs::read_to_string(&path).unwrap();
    let of = |text: &[u8]| open(&folder.file("x.json", text), BY_NAME);
    assert!(of(good.as_bytes()).is_ok());
    refused(of(b""), ErrorKind::NotOurs, "x.json: expected a matrix manifest");
    refused(of(b"[1, 2]"), ErrorKind::NotOurs, "found no JSON with \"headwater_matrix\"");
    refused(of(b"\xff\xfe"), ErrorKind::NotOurs, "expected a matrix manifest");
    let edited = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        of(good.replacen(from, to, 1).as_bytes())
    };
    let version = edited("\"headwater_matrix\": 1", "\"headwater_matrix\": 2");
    refused(version, ErrorKind::Version, "of version 1, found version 2");
    let corrupt = ErrorKind::Corrupt;
    refused(edited("\"rows\": 3", "\"rows\": -3"), corrupt, "the manifest is damaged");
    refused(edited("\"rows\": 3", "\"rows\": 3, \"x\": 3"), corrupt, "unknown field `x`");
    refused(edited("\"digest\": \"", "\"digest\": \"0"), corrupt, "64 hexadecimal digits");
    refused(edited("\"byname\"", "\"best\""), corrupt, "unknown variant `best`");
    let invalid = ErrorKind::InvalidArgument;
    refused(edited("\"columns\": 2", "\"columns\": 0"), invalid, "at least 1 column");
    refused(edited("\"a.npy\"", "\"all.json\""), invalid, "a file name that ends in .npy");
    let many = good.replace("a.npy", "none-1.npy").replace("d.npy", "none-2.npy");
    let many = many.replacen("\"rows\": 3", "\"rows\": 18446744073709551615", 1);
    refused(of(many.as_bytes()), ErrorKind::LimitExceeded, "at most 2^64 - 1 rows");
    for cut in 0..good.trim_end().len() {
        assert!(of(&good.as_bytes()[..cut]).is_err(), "cut at {cut}");
    }
}

/// What a manifest says of the format holds for its files, whatever their names.
#[test]
fn a_manifest_sets_the_format_of_its_files() {
    let folder = Folder::new("formats");
    let raw = MatrixFormat::Raw { element: Element::F32, columns: 3 };
    let path = folder.file("x.bin", &[0; 24]);
    let manifest = folder.0.join("m.json");
    Manifest::write(&manifest, std::slice::from_ref(&path), &raw).unwrap();
    let listed = open(&manifest, BY_NAME).unwrap();
    assert_eq!((listed.rows(), listed.columns(), listed.element()), (2, 3, Element::F32));
    assert_eq!(listed.identity(), open(&path, raw).unwrap().identity());
    // What is not below the manifest's folder keeps its whole name.
    let elsewhere = Folder::new("elsewhere").0.clone();
    fs::create_dir_all(&elsewhere).unwrap();
    let manifest = elsewhere.join("m.json");
    let raw = MatrixFormat::Raw { element: Element::F32, columns: 3 };
    Manifest::write(&manifest, &[path], &raw).unwrap();
    assert_eq!(open(&manifest, BY_NAME).unwrap().readable(), std::slice::from_ref(&(0..2)));
    fs::remove_dir_all(elsewhere).unwrap();
}
