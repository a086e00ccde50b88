//! Columns of Parquet files as matrices.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::Compression;
use ::parquet::file::properties::{WriterProperties, WriterVersion};
use arrow_array::{
    ArrayRef, Float16Array, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
    Int64Array, RecordBatch, StringArray, UInt8Array, UInt16Array, UInt32Array,
};
use half::f16;
use headwater::ErrorKind;
use headwater::fold::gram::Chunk;
use headwater::fold::{ColumnMoments, Gram, Statistic};
use headwater::matrix::{Element, Manifest, Matrix, MatrixFormat};
use headwater::plan::Plan;
use headwater::reducer::{CrossOfMatrices, Job, OfMatrix, Source};
use proptest::prelude::*;

use crate::matrix::{Folder, gram, npy, open, refused};

fn write(path: &Path, group_rows: usize, columns: Vec<(&str, ArrayRef)>) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group_rows));
    write_as(path, properties.build(), columns);
}

fn write_as(path: &Path, properties: WriterProperties, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn named(names: &[&str]) -> MatrixFormat {
    MatrixFormat::Parquet(Some(names.iter().map(|&name| name.to_owned()).collect()))
}

fn floats(from: i32, to: i32) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values((from..to).map(|n| f64::from(n) / 8.0)))
}

fn values(matrix: &Matrix, rows: std::ops::Range<u64>) -> Vec<f64> {
    let read = matrix.read(rows).unwrap();
    let headwater::fold::Values::F64(values) = read.values() else { panic!("64 bits") };
    values.to_vec()
}

#[test]
fn columns_come_in_the_order_of_the_selection() {
    let folder = Folder::new("columns");
    let path = folder.0.join("t.parquet");
    let text: ArrayRef = Arc::new(StringArray::from_iter_values((0..20).map(|n| n.to_string())));
    let whole: ArrayRef = Arc::new(Int32Array::from_iter_values(0..20));
    write(&path, 6, vec![("a", floats(0, 20)), ("text", text), ("b", whole)]);
    let matrix = open(&path, named(&["b", "a", "b"])).unwrap();
    assert_eq!((matrix.rows(), matrix.columns(), matrix.element()), (20, 3, Element::F64));
    let expected: Vec<f64> = (0..20).map(f64::from).flat_map(|n| [n, n / 8.0, n]).collect();
    assert_eq!(values(&matrix, 0..20), expected);
    let bytes = npy("<f8", (20, 3), bytemuck::cast_slice(&expected), 64);
    let plain = folder.file("t.npy", &bytes);
    assert_eq!(gram(&matrix), gram(&open(&plain, MatrixFormat::ByName).unwrap()));
    // Parquet and NumPy files, one after the other.
    let (plain, listed) = (folder.file("u.npy", &bytes), folder.0.join("v.parquet"));
    write(&listed, 7, vec![("a", floats(0, 3)), ("b", floats(3, 6)), ("c", floats(6, 9))]);
    let both = Matrix::open(&[plain, listed], &MatrixFormat::ByName).unwrap();
    let last = [2.375, 19.0, 0.0, 0.375, 0.75, 0.125, 0.5];
    assert_eq!(values(&both, 19..22)[1..8], last);
    let other = open(&path, named(&["a", "b", "b"])).unwrap();
    assert_ne!(other.identity(), matrix.identity());
}

#[test]
fn types_that_widen_exactly_are_read_and_others_rejected_by_name() {
    let folder = Folder::new("widening");
    let path = folder.0.join("t.parquet");
    let tiny = f32::from_bits(1);
    let halves = [f16::MIN, f16::from_bits(1)];
    write(
        &path,
        100,
        vec![
            ("i8", Arc::new(Int8Array::from(vec![i8::MIN, i8::MAX]))),
            ("i16", Arc::new(Int16Array::from(vec![i16::MIN, i16::MAX]))),
            ("i32", Arc::new(Int32Array::from(vec![i32::MIN, i32::MAX]))),
            ("u8", Arc::new(UInt8Array::from(vec![0, u8::MAX]))),
            ("u16", Arc::new(UInt16Array::from(vec![0, u16::MAX]))),
            ("u32", Arc::new(UInt32Array::from(vec![0, u32::MAX]))),
            ("f16", Arc::new(Float16Array::from_iter_values(halves))),
            ("f32", Arc::new(Float32Array::from(vec![f32::MAX, tiny]))),
            ("i64", Arc::new(Int64Array::from(vec![1, 2]))),
        ],
    );
    let names = ["i8", "i16", "i32", "u8", "u16", "u32", "f16", "f32"];
    let matrix = open(&path, named(&names)).unwrap();
    let least = [-128.0, -32768.0, -2_147_483_648.0, 0.0, 0.0, 0.0, -65504.0, f64::from(f32::MAX)];
    let most = [127.0, 32767.0, 2_147_483_647.0, 255.0, 65535.0, 4_294_967_295.0];
    assert_eq!(values(&matrix, 0..1), least);
    assert_eq!(values(&matrix, 1..2)[..6], most);
    assert_eq!(values(&matrix, 1..2)[6..], [f64::powi(2.0, -24), f64::powi(2.0, -149)]);
    let words = "t.parquet: column \"i64\": expected floats, or integers of up to 32 bits, found \
                 Int64";
    refused(open(&path, named(&["i8", "i64"])), ErrorKind::InvalidArgument, words);
    refused(open(&path, MatrixFormat::ByName), ErrorKind::InvalidArgument, words);
    let words = "no column is named \"x\"; the columns are \"i8\", \"i16\", \"i32\", \"u8\"";
    refused(open(&path, named(&["x"])), ErrorKind::InvalidArgument, words);
    refused(open(&path, named(&[])), ErrorKind::InvalidArgument, "at least 1 column, found 0");
}

/// Whoever has one of the files sees nothing of the names in the others.
#[test]
fn a_manifest_keeps_column_names_and_rejects_files_that_mix_them() {
    let folder = Folder::new("named-shards");
    let by_name = MatrixFormat::ByName;
    let shard = |name: &str, columns: [&str; 2], format: &MatrixFormat| {
        let path = folder.0.join(format!("{name}.parquet"));
        write(&path, 9, columns.map(|name| (name, floats(0, 5))).to_vec());
        let manifest = path.with_extension("json");
        Manifest::write(&manifest, std::slice::from_ref(&path), format).unwrap();
        (path, manifest)
    };
    let (first, listed) = shard("x1", ["a", "b"], &by_name);
    let (second, swapped) = shard("x2", ["b", "a"], &by_name);
    let all = folder.0.join("all.json");
    let words = "expected the columns \"a\", \"b\", as in the files before, found \"b\", \"a\"";
    let join = |files: &[std::path::PathBuf]| {
        Manifest::write(&all, files, &by_name).map(|()| open(&all, MatrixFormat::ByName).unwrap())
    };
    refused(join(&[listed, swapped]), ErrorKind::InvalidArgument, words);
    refused(join(&[first.clone(), second.clone()]), ErrorKind::InvalidArgument, words);
    assert!(!all.exists());
    // In one order they are one matrix, and known by name to who has none of the files.
    let chosen = named(&["a", "b"]);
    let (_, listed) = shard("x1", ["a", "b"], &chosen);
    let (_, other_order) = shard("x2", ["b", "a"], &chosen);
    assert_eq!(join(&[listed, other_order]).unwrap().names().unwrap(), ["a", "b"]);
    let (_, listed) = shard("x1", ["a", "b"], &by_name);
    let (_, same) = shard("x2", ["a", "b"], &by_name);
    drop(join(&[listed, same]).unwrap());
    std::fs::remove_file(&first).unwrap();
    std::fs::remove_file(&second).unwrap();
    let nobody = open(&all, by_name).unwrap();
    assert_eq!((nobody.readable(), nobody.column_of("b").unwrap()), (vec![], 1));
}

#[test]
fn older_manifests_without_names_are_read() {
    let folder = Folder::new("unnamed-shards");
    let (path, by_name) = (folder.0.join("x.parquet"), MatrixFormat::ByName);
    write(&path, 9, vec![("b", floats(0, 5)), ("a", floats(0, 5))]);
    let manifest = folder.0.join("x.json");
    Manifest::write(&manifest, &[path], &by_name).unwrap();
    let text = std::fs::read(&manifest).unwrap();
    let edited = |edit: &dyn Fn(&mut serde_json::Value)| {
        let mut value = serde_json::from_slice(&text).unwrap();
        edit(&mut value);
        std::fs::write(&manifest, value.to_string()).unwrap();
        open(&manifest, by_name.clone())
    };
    // Those of the files that are here are learnt.
    let old = edited(&|value| drop(value.as_object_mut().unwrap().remove("names").unwrap()));
    assert_eq!(old.unwrap().names().unwrap(), ["b", "a"]);
    let short = edited(&|value| value["names"] = ["b"].as_slice().into());
    refused(short, ErrorKind::Corrupt, "expected 2 column names, found 1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Groups and batches of any size, ranges in any order: those that go on, and those that do not.
    #[test]
    fn ranges_of_rows_can_be_read_in_any_order(
        count in 1_i32..400, group_rows in 1_usize..90,
        reads in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..200, any::<bool>()), 1..12),
    ) {
        let folder = Folder::new("ranges");
        let path = folder.0.join("t.parquet");
        write(&path, group_rows, vec![("a", floats(0, count)), ("b", floats(1000, 1000 + count))]);
        let matrix = open(&path, named(&["a", "b"])).unwrap();
        let mut end = 0;
        for (start, length, goes_on) in reads {
            let start = if goes_on { end } else { start.index(count as usize) };
            end = (start + length).min(count as usize);
            let expected: Vec<f64> = (start as i32..end as i32)
                .flat_map(|n| [f64::from(n) / 8.0, f64::from(n + 1000) / 8.0])
                .collect();
            prop_assert_eq!(values(&matrix, start as u64..end as u64), expected);
        }
    }
}

/// Four rows of two columns, and four of which rows 1 and 3 have NULL in the second.
fn with_nulls(folder: &Folder) -> Matrix {
    let (path, whole) = (folder.0.join("t.parquet"), folder.0.join("whole.parquet"));
    let holed: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None, Some(3.0), None]));
    write(&path, 3, vec![("a", floats(0, 4)), ("b", holed)]);
    write(&whole, 3, vec![("a", floats(0, 4)), ("b", floats(0, 4))]);
    Matrix::open(&[whole, path], &named(&["a", "b"])).unwrap()
}

#[test]
fn nulls_are_counted_by_statistics_and_rejected_by_products() {
    let folder = Folder::new("nulls");
    let matrix = with_nulls(&folder);
    for (rows, nulls) in [(0..8, 2), (4..8, 2), (3..6, 1), (0..4, 0), (6..7, 0), (7..8, 1)] {
        let read = matrix.read(rows.clone()).unwrap();
        let moments = ColumnMoments::new(vec![0.0; 2]).unwrap();
        let sums = moments.leaf(&read.rows().unwrap()).unwrap();
        let found: Vec<u64> = sums.columns().iter().map(|column| column.nulls).collect();
        assert_eq!(found, [0, nulls], "{rows:?}");
        let product = Gram::new(2).unwrap().leaf(&Chunk::of(read.rows().unwrap()));
        assert_eq!(product.is_err(), nulls > 0, "{rows:?}");
    }
    let read = matrix.read(3..8).unwrap();
    let error = Gram::new(2).unwrap().leaf(&Chunk::of(read.rows().unwrap())).unwrap_err();
    assert!(error.to_string().contains("found NULL in row 2 of the chunk, column 1"), "{error}");
}

#[test]
fn a_null_in_a_product_is_named_by_file_row_and_column() {
    let folder = Folder::new("null-of-product");
    let matrix = || with_nulls(&folder);
    let threads = || rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let job = Job::new(Plan::new(), 8, 2).unwrap();
    let words = "t.parquet: row 1, column 1: expected a number, found NULL";
    let gram = OfMatrix::new(Gram::new(2).unwrap(), matrix(), job.clone(), threads());
    assert_eq!(gram.leaves(0..2).unwrap().len(), 2);
    refused(gram.leaves(0..4), ErrorKind::Data, words);
    let cross = CrossOfMatrices::new(matrix(), matrix(), job.clone(), threads()).unwrap();
    refused(cross.leaves(2..3), ErrorKind::Data, words);
    let moments = ColumnMoments::new(vec![0.0; 2]).unwrap();
    assert_eq!(OfMatrix::new(moments, matrix(), job, threads()).leaves(0..4).unwrap().len(), 4);
}

#[test]
fn truncated_and_foreign_parquet_files_are_refused() {
    let folder = Folder::new("no-parquet");
    let path = folder.0.join("t.parquet");
    write(&path, 50, vec![("a", floats(0, 100))]);
    let good = std::fs::read(&path).unwrap();
    for cut in (0..good.len()).step_by(7) {
        let opened = open(&folder.file("cut.parquet", &good[..cut]), MatrixFormat::ByName);
        refused(opened, ErrorKind::Corrupt, "cut.parquet: expected a whole Parquet file");
    }
    let words = "it may be cut short: write it again";
    let opened = open(&folder.file("x.parquet", b"hello, world"), MatrixFormat::ByName);
    refused(opened, ErrorKind::Corrupt, words);
    // Pages that are no pages are found when they are read.
    let mut damaged = good;
    damaged[4..40].fill(0xff);
    let matrix = open(&folder.file("bad.parquet", &damaged), MatrixFormat::ByName).unwrap();
    let error = matrix.read(0..10).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("bad.parquet: expected a whole Parquet file"), "{error}");
    assert_eq!(values(&matrix, 50..52), [6.25, 6.375]);
}

/// Files of each form that pages have, with and without dictionaries and compression.
fn files_of_each_form(folder: &Folder) -> Vec<Vec<u8>> {
    let file = |version, dictionary, compression| {
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_dictionary_enabled(dictionary)
            .set_compression(compression)
            .set_max_row_group_row_count(Some(40))
            .build();
        let number = |n: i32| (n % 7 != 3).then(|| f64::from(n % 5));
        let holed: Float64Array = (0..60).map(number).collect();
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("a", Arc::new(holed)),
            ("b", Arc::new(Int32Array::from_iter_values((0..60).map(|n| n * n % 11)))),
            ("c", Arc::new(Int8Array::from_iter_values((0..60).map(|n| n % 4)))),
            (
                "d",
                Arc::new(Float16Array::from_iter_values((0..60).map(|n| f16::from_f64(n.into())))),
            ),
        ];
        let path = folder.0.join("form.parquet");
        write_as(&path, properties, columns);
        std::fs::read(path).unwrap()
    };
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let forms = versions.into_iter().flat_map(|version| [true, false].map(|of| (version, of)));
    let with = |compression| forms.clone().map(move |(version, of)| (version, of, compression));
    let all = with(Compression::UNCOMPRESSED).chain(with(Compression::SNAPPY));
    all.map(|(version, dictionary, compression)| file(version, dictionary, compression)).collect()
}

/// Reads all rows of a damaged file: some numbers, or an error that names it.
fn read_damaged(path: &Path) {
    let read = Matrix::open(&[path.to_owned()], &MatrixFormat::ByName).and_then(|matrix| {
        let rows = matrix.rows().min(60);
        let read = matrix.read(0..rows)?;
        assert_eq!(read.rows()?.count() as u64, rows);
        Ok(())
    });
    if let Err(error) = read {
        assert!(error.to_string().contains("damaged.parquet"), "{error}");
        let kinds = [ErrorKind::Corrupt, ErrorKind::InvalidArgument, ErrorKind::LimitExceeded];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
}

const AS_CHILD: &str = "HEADWATER_READ_DAMAGED_PAGES";

/// In a process of its own, which would print what a library panics with.
#[test]
fn damaged_pages_are_errors_without_panics() {
    if std::env::var_os(AS_CHILD).is_none() {
        let own = "parquet::damaged_pages_are_errors_and_not_panics";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child =
            child.args([own, "--exact", "--nocapture"]).env(AS_CHILD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        return;
    }
    let folder = Folder::new("damaged-pages");
    for (form, good) in files_of_each_form(&folder).iter().enumerate() {
        for at in 4..good.len() - 8 {
            let mut damaged = good.clone();
            damaged[at] ^= [0x01, 0x10, 0x80, 0xff][(form + at) % 4];
            read_damaged(&folder.file("damaged.parquet", &damaged));
        }
    }
}
