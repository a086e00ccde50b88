//! What sources of matrices give to a fold: leaves, digests, versions, cuts and what can be read.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use headwater::ErrorKind;
use headwater::fold::columns::{KeyWidth, NumberedRows, Refined};
use headwater::fold::gram::{Chunk, Order, Speed};
use headwater::fold::{
    ColumnMoments, Cross, Distinct, End, Exact, ExponentHistogram, Gram, Histogram, Quantiles,
    Rows, Statistic, TopRows,
};
use headwater::matrix::{Element, Manifest, Matrix, MatrixFormat};
use headwater::plan::{Plan, Setting};
use headwater::reducer::{
    Blocks, CrossOfMatrices, Job, OfMatrix, OfRows, Policy, Settings, Source, moments_near,
    moments_of_files,
};

use crate::matrix::{Folder, npy, numbers};

const ROWS: usize = 12;
const CHUNK_ROWS: u64 = 2;

fn threads() -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap()
}

fn job() -> Job {
    Job::new(Plan::new(), ROWS as u64, CHUNK_ROWS).unwrap()
}

/// Files NAME0.npy, NAME1.npy, ... of the rows of `values` between the cuts.
fn files(folder: &Folder, name: &str, values: &[f64], cuts: &[usize]) -> Vec<PathBuf> {
    let columns = values.len() / ROWS;
    let starts = [0].iter().chain(cuts);
    let ends = cuts.iter().chain(&[ROWS]);
    let pieces = starts.zip(ends).enumerate();
    let written = pieces.map(|(number, (&start, &end))| {
        let bytes = bytemuck::cast_slice(&values[start * columns..end * columns]);
        let npy = npy("<f8", (end - start, columns), bytes, 64);
        folder.file(&format!("{name}{number}.npy"), &npy)
    });
    written.collect()
}

fn opened(paths: &[PathBuf]) -> Matrix {
    Matrix::open(paths, &MatrixFormat::ByName).unwrap()
}

/// Demands the leaves that the statistic itself has, and the digests of the rows.
#[track_caller]
fn has_leaves<S: OfRows>(
    statistic: impl Fn() -> S,
    leaf: impl Fn(&S, &NumberedRows<'_>) -> S::Partial,
) {
    let folder = Folder::new("leaves");
    let values = numbers(ROWS * 3);
    let matrix = opened(&files(&folder, "x", &values, &[5]));
    let source = OfMatrix::new(statistic(), matrix, job(), threads());
    let (own, leaves) = (statistic(), source.leaves(1..6).unwrap());
    assert_eq!(leaves.len(), 5);
    for (chunk, sourced) in (1..6).zip(leaves) {
        let first = chunk * CHUNK_ROWS;
        let part = &values[first as usize * 3..][..CHUNK_ROWS as usize * 3];
        let rows = Rows::new(part, CHUNK_ROWS as usize, 3, 3).unwrap();
        let expected = leaf(&own, &NumberedRows { first, rows });
        assert_eq!(own.encode(&sourced.partial), own.encode(&expected));
        assert_eq!(sourced.rows, source.rows_digest(chunk).unwrap());
    }
    assert!(source.at_once() > 1);
}

#[test]
fn p1_each_statistic_of_a_matrix_has_the_leaves_of_its_rows() {
    has_leaves(|| Gram::new(3).unwrap(), |of, chunk| of.leaf(&Chunk::of(chunk.rows)).unwrap());
    has_leaves(
        || TopRows::new(3, 1, 2, End::Largest).unwrap(),
        |of, chunk| of.leaf(chunk).unwrap(),
    );
    has_leaves(
        || ColumnMoments::new(vec![0.0; 3]).unwrap(),
        |of, chunk| of.leaf(&chunk.rows).unwrap(),
    );
    has_leaves(|| Distinct::new(3, 4).unwrap(), |of, chunk| of.leaf(&chunk.rows).unwrap());
    has_leaves(
        || Quantiles::new(3, KeyWidth::Wide, vec!["0.5".parse().unwrap()]).unwrap(),
        |of, chunk| of.leaf(&chunk.rows).unwrap(),
    );
    has_leaves(|| Exact::new(3).unwrap(), |of, chunk| of.leaf(&chunk.rows).unwrap());
    has_leaves(|| ExponentHistogram::new(3).unwrap(), |of, chunk| of.leaf(&chunk.rows).unwrap());
    has_leaves(
        || Histogram::new(vec![vec![-1.0, 0.0, 1.0]; 3]).unwrap(),
        |of, chunk| of.leaf(&chunk.rows).unwrap(),
    );
}

/// X in three files, of two columns; Y in two, of three columns.
struct Sides {
    folder: Folder,
    x: Vec<f64>,
    y: Vec<f64>,
}

impl Sides {
    fn new(name: &str) -> Self {
        let sides = Self { folder: Folder::new(name), x: numbers(ROWS * 2), y: numbers(ROWS * 3) };
        for (name, paths) in [("x", sides.x()), ("y", sides.y())] {
            let manifest = sides.folder.0.join(format!("{name}.json"));
            Manifest::write(&manifest, &paths, &MatrixFormat::ByName).unwrap();
        }
        sides
    }

    fn x(&self) -> Vec<PathBuf> {
        files(&self.folder, "x", &self.x, &[3, 8])
    }

    fn y(&self) -> Vec<PathBuf> {
        files(&self.folder, "y", &self.y, &[6])
    }

    /// The source over the manifests, which may name files that are not here.
    fn listed(&self) -> CrossOfMatrices {
        let [x, y] = ["x.json", "y.json"].map(|name| opened(&[self.folder.0.join(name)]));
        CrossOfMatrices::new(x, y, job(), threads()).unwrap()
    }
}

#[test]
fn p1_products_of_two_matrices_have_the_leaves_of_their_rows() {
    let sides = Sides::new("sides");
    let source = sides.listed();
    assert_eq!(source.columns(), [2, 3]);
    assert!(source.at_once() > 1);
    let cross = Cross::new(2, 3).unwrap();
    let leaves = source.leaves(0..6).unwrap();
    assert_eq!(leaves.len(), 6);
    for (chunk, sourced) in (0..6).zip(leaves) {
        let of =
            |values: &[f64], columns: usize| values[chunk * 2 * columns..][..2 * columns].to_vec();
        let (x, y) = (of(&sides.x, 2), of(&sides.y, 3));
        let rows = |values, columns| Chunk::of(Rows::new(values, 2, columns, columns).unwrap());
        let expected = cross.leaf(&(rows(&x[..], 2), rows(&y[..], 3))).unwrap();
        assert_eq!(cross.encode(&sourced.partial), cross.encode(&expected));
        assert_eq!(sourced.rows, source.rows_digest(chunk as u64).unwrap());
    }
}

#[test]
fn files_of_both_sides_are_named_numbered_and_cut() {
    let sides = Sides::new("files");
    let source = sides.listed();
    // X begins a file with rows 3 and 8, Y with row 6; a chunk has two rows.
    let cuts: Vec<u64> = source.cuts().into_iter().filter(|chunk| (1..6).contains(chunk)).collect();
    assert_eq!(cuts, [1, 2, 3, 4]);
    let names = source.files_of(0..3);
    let [x, y] = ["x0.npy", "y0.npy"].map(|name| names.find(name).expect("both files"));
    assert!(x < y && names.contains(" and "), "{names}");
    let places = |versions: Vec<headwater::reducer::FileVersion>| {
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let mut places: Vec<_> =
            versions.iter().map(|file| (file.place, name(&file.path))).collect();
        places.sort();
        places
    };
    let of = |number, name: &str| (number, name.to_owned());
    let all = [(0, "x0.npy"), (1, "x1.npy"), (2, "x2.npy"), (3, "y0.npy"), (4, "y1.npy")];
    assert_eq!(places(source.opened_versions()), all.map(|(number, name)| of(number, name)));
    let last = [of(2, "x2.npy"), of(4, "y1.npy")];
    assert_eq!(places(source.versions_of(10..12).unwrap()), last);
}

#[test]
fn chunks_that_both_sides_have_can_be_read() {
    let sides = Sides::new("readable");
    let read = |source: &CrossOfMatrices| -> Vec<Range<u64>> { source.readable() };
    assert_eq!(read(&sides.listed()), [0..6]);
    // Rows 3 to 7 of X, with which chunks 1 to 3 go.
    fs::remove_file(sides.folder.0.join("x1.npy")).unwrap();
    assert_eq!(read(&sides.listed()), [0..1, 4..6]);
    // Rows 0 to 5 of Y, with which chunks 0 to 2 go.
    fs::remove_file(sides.folder.0.join("y0.npy")).unwrap();
    assert_eq!(read(&sides.listed()), std::slice::from_ref(&(4..6)));
    let one = |name: &str| opened(&[sides.folder.0.join(name)]);
    let alone = |name| OfMatrix::new(Gram::new(3).unwrap(), one(name), job(), threads());
    assert_eq!(alone("y.json").readable(), std::slice::from_ref(&(3..6)));
}

#[test]
fn numbers_that_are_none_are_named_and_sides_of_other_lengths_refused() {
    let mut sides = Sides::new("odd");
    sides.y[7 * 3 + 1] = f64::INFINITY;
    let [x, y] = [sides.x(), sides.y()].map(|paths| opened(&paths));
    let source = CrossOfMatrices::new(x, y, job(), threads()).unwrap();
    assert_eq!(source.leaves(0..6).unwrap().len(), 6);
    let error = source.finite_only().leaves(0..6).expect_err("an infinity");
    assert_eq!(error.kind(), ErrorKind::Data);
    let place = "y1.npy: row 1, column 1: expected a finite number, found inf";
    assert!(error.to_string().contains(place), "{error}");
    let alone = opened(&sides.y());
    let alone = OfMatrix::new(Gram::new(3).unwrap(), alone, job(), threads()).finite_only();
    assert!(alone.leaves(0..3).is_ok());
    let error = alone.leaves(3..6).expect_err("an infinity");
    assert!(error.to_string().contains(place), "{error}");

    let [x, short] = [sides.x(), vec![sides.y()[0].clone()]].map(|paths| opened(&paths));
    let error = CrossOfMatrices::new(x, short, job(), threads()).err().expect("fewer rows");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error.to_string().contains("expected 12 rows in Y, as many as in X, found 6"),
        "{error}"
    );
}

#[test]
fn a_job_has_its_limits_and_names_all_that_decides_its_result() {
    let of = |rows| Job::new(Plan::new(), rows, 1 << 40);
    assert!(of(1 << 62).is_ok());
    let error = of((1 << 62) + 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    let with = |data: &str| {
        Job::of_matrix("gram", (3, Element::F32), data, (12, 2), &[("shift", Setting::from(true))])
    };
    let job = with("x").unwrap();
    let texts: Vec<_> =
        job.plan().iter().map(|(name, setting)| format!("{name}={setting}")).collect();
    for text in ["statistic=\"gram\"", "columns=3", "element=\"f32\"", "data=\"x\"", "shift=true"] {
        assert!(texts.iter().any(|of| of == text), "{text} is not in {texts:?}");
    }
    let error = with(&"x".repeat(1 << 20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert!(error.to_string().contains("settings of a job to have at most 1 MiB"), "{error}");
}

#[test]
fn blocks_are_as_large_as_they_may_be() {
    assert_eq!(Blocks::new(1, 62).unwrap().chunks_each(), 1 << 62);
    let error = Blocks::new(1, 63).unwrap_err();
    assert!(error.to_string().contains("expected blocks of at most 2^62 chunks"), "{error}");
    // Sixteen for each rank, and no more chunks than told.
    assert_eq!(Blocks::for_ranks(1024, 2, u64::MAX).chunks_each(), 32);
    assert_eq!(Blocks::for_ranks(1023, 2, u64::MAX).chunks_each(), 16);
    assert_eq!(Blocks::for_ranks(1024, 2, 9).chunks_each(), 8);
    assert_eq!(Blocks::for_ranks(5, 2, u64::MAX).chunks_each(), 1);
    assert_eq!(Blocks::for_ranks(64, 0, u64::MAX).chunks_each(), 64);
}

#[test]
fn chunks_within_rows_are_those_of_which_no_row_is_missing() {
    let job = Job::new(Plan::new(), 10, 3).unwrap();
    let within = |rows: &[Range<u64>]| job.chunks_within(rows.to_vec());
    assert_eq!(within(&[1..8, 9..10]), [1..2, 3..4]);
    assert_eq!(within(&[0..7]), std::slice::from_ref(&(0..2)));
    assert_eq!(within(&[4..5]), [0..0; 0]);
    assert_eq!(within(&[0..10]), std::slice::from_ref(&(0..4)));
}

/// A block takes about a second of all threads, or longer where a partial is large.
#[test]
fn blocks_are_as_long_as_their_operations_and_partials_ask() {
    let folder = Folder::new("policy");
    let chunks_each = |columns: usize, (ranks, threads_each), chunk_operations| {
        let values = vec![0.0; ROWS * columns];
        let matrix = opened(&files(&folder, &format!("x{columns}-"), &values, &[]));
        let gram = Gram::new(columns).unwrap();
        let job = Job::new(Plan::new(), 1 << 30, 1).unwrap();
        let source = OfMatrix::new(gram, matrix, job.clone(), threads());
        let policy = Policy::for_job(&job, &source, (ranks, threads_each), chunk_operations);
        assert_eq!((policy.ranks, policy.audited_per_mille), (ranks, 0));
        policy.blocks.chunks_each()
    };
    // 2e10 operations for each thread, in chunks of 1e9.
    assert_eq!(chunks_each(3, (4, 2), 1e9), 32);
    assert_eq!(chunks_each(3, (4, 4), 1e9), 64);
    // 500 columns are 125,250 sums: of 1,000 ranks 1 GB, for which a thread has 1e11 operations.
    assert_eq!(chunks_each(500, (1000, 2), 1e9), 128);
    assert_eq!(chunks_each(500, (100, 2), 1e9), 32);
}

/// So wide that all threads share a chunk.
#[test]
fn p1_a_wide_gram_matrix_has_the_leaves_of_its_rows() {
    let folder = Folder::new("wide");
    let columns = 1024;
    let values = numbers(ROWS * columns);
    let matrix = opened(&files(&folder, "x", &values, &[5]));
    let source = OfMatrix::new(Gram::new(columns).unwrap(), matrix, job(), threads());
    let gram = Gram::new(columns).unwrap();
    let leaves = source.leaves(1..3).unwrap();
    assert_eq!(leaves.len(), 2);
    for (chunk, sourced) in (1..3).zip(leaves) {
        let part = &values[chunk * 2 * columns..][..2 * columns];
        let rows = Rows::new(part, 2, columns, columns).unwrap();
        let expected = gram.leaf(&Chunk::of(rows)).unwrap();
        assert!(gram.encode(&sourced.partial) == gram.encode(&expected), "chunk {chunk}");
        assert_eq!(sourced.rows, source.rows_digest(chunk as u64).unwrap());
    }
}

/// What decides the bits of a statistic besides the rows.
#[test]
fn statistics_with_other_bits_have_other_settings() {
    let moments = |shift| ColumnMoments::new(vec![0.0, shift]).unwrap().settings();
    assert_eq!(moments(1.0), moments(1.0));
    assert_ne!(moments(1.0), moments(2.0));
    let histogram = |edges: &[&[f64]]| {
        Histogram::new(edges.iter().map(|edges| edges.to_vec()).collect()).unwrap().settings()
    };
    let all: [&[&[f64]]; 6] = [
        &[&[0.0, 1.0], &[0.0, 1.0], &[0.0, 2.0]],
        &[&[0.0, 1.0], &[0.0, 2.0], &[0.0, 1.0]],
        &[&[0.0, 1.0], &[0.0, 1.0]],
        &[&[0.0, 2.0], &[0.0, 2.0]],
        &[&[0.0, 1.0], &[2.0]],
        &[&[0.0], &[1.0, 2.0]],
    ];
    for (at, edges) in all.iter().enumerate() {
        assert!(all[..at].iter().all(|other| histogram(other) != histogram(edges)), "{edges:?}");
    }
    // The edges of all columns are one setting, whatever their number.
    assert_eq!(histogram(all[2]), Histogram::of_all(5, &[0.0, 1.0]).unwrap().settings());
    let top: Settings =
        vec![("column", 1_u64.into()), ("kept", 2_u64.into()), ("smallest", true.into())];
    assert_eq!(TopRows::new(3, 1, 2, End::Smallest).unwrap().settings(), top);
    assert_ne!(TopRows::new(3, 1, 2, End::Largest).unwrap().settings(), top);
    let precision: Settings = vec![("precision", 9_u64.into())];
    assert_eq!(Distinct::new(1, 9).unwrap().settings(), precision);
    let gram = |order| Gram::with_order(3, order, &Speed::default()).unwrap().settings();
    assert!(Gram::new(3).unwrap().settings().is_empty() && gram(Order::F64).is_empty());
    assert_eq!(gram(Order::F32x128), [("sums", "f32x128".into())]);
    assert!(Exact::new(3).unwrap().settings().is_empty());
    assert!(ExponentHistogram::new(3).unwrap().settings().is_empty());
    let pass = |at: &[&str]| {
        let at = at.iter().map(|at| at.parse().unwrap()).collect();
        Quantiles::new(1, KeyWidth::Narrow, at).unwrap()
    };
    let two = pass(&["0.50", "1"]);
    let values: [f32; 3] = [1.0, 2.0, 3.0];
    let counts = two.leaf(&Rows::new(&values[..], 3, 1, 1).unwrap()).unwrap();
    let Refined::Next(next) = two.refine(&counts).unwrap() else { panic!("one pass was enough") };
    let of = |pass: u64, known: &[u8]| -> Settings {
        let known = headwater::Digest::of(known).0;
        vec![("at", "0.5 1".into()), ("pass", pass.into()), ("known", known.into())]
    };
    assert_eq!((two.settings(), next.settings()), (of(1, &[]), of(2, &next.known())));
    assert_ne!(pass(&["0.5"]).settings(), two.settings());
}

#[test]
fn shifts_are_the_medians_of_the_first_1024_rows() {
    let folder = Folder::new("shifts");
    let values: Vec<f64> = (0..3000).map(|row| f64::from(row / 512)).collect();
    let file = npy("<f8", (3000, 1), bytemuck::cast_slice(&values), 64);
    let long = opened(&[folder.file("long.npy", &file)]);
    assert_eq!(moments_of_files(&long).unwrap().shifts(), [0.0]);
    assert_eq!(moments_near(&long.read(0..3000).unwrap()).unwrap().shifts(), [0.0]);
    assert_eq!(moments_near(&long.read(400..3000).unwrap()).unwrap().shifts(), [1.0]);
    let short = opened(&files(&folder, "x", &numbers(ROWS * 3), &[5]));
    assert_eq!(moments_of_files(&short).unwrap().shifts(), &numbers(18)[15..]);
}
