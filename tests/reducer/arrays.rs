//! Several arrays with the same rows: sums of their columns side by side, or of one times the other.

use std::ops::Range;
use std::sync::Arc;

use headwater::fold::columns::{End, NumberedRows};
use headwater::fold::gram::Chunk;
use headwater::fold::{
    ColumnMoments, Cross, Distinct, Exact, ExponentHistogram, Gram, Histogram, Node, Rows,
    Statistic, TopRows, Tree, Values,
};
use headwater::matrix::{Element, Matrix, MatrixFormat};
use headwater::plan::Plan;
use headwater::reducer::{
    Arrays, Job, OfArrays, Portion, Reduction, Settings, Sourced, Stream, fold_portion,
};
use headwater::{Digest, ErrorKind};
use twox_hash::XxHash3_128;

use crate::matrix::{Folder, npy, numbers, open, refused};

const ROWS: usize = 23;

/// X has two columns of 64 bits, Y three of 32.
const X: (usize, Element) = (2, Element::F64);
const Y: (usize, Element) = (3, Element::F32);

fn job() -> Job {
    Job::new(Plan::new(), ROWS as u64, 4).unwrap()
}

fn form(y: bool, ones: bool, weighted: bool) -> Arrays {
    Arrays { x: X, y: y.then_some(Y), ones, weighted, finite_only: false }
}

struct Data {
    x: Vec<f64>,
    y: Vec<f32>,
    weights: Vec<f64>,
}

impl Data {
    fn new() -> Self {
        let y = numbers(ROWS * 3).into_iter().map(|number| (number * 3.0) as f32);
        let weights = (0..ROWS).map(|row| row as f64 / 8.0);
        Self { x: numbers(ROWS * 2), y: y.collect(), weights: weights.collect() }
    }

    fn x(&self, rows: Range<usize>) -> &[f64] {
        &self.x[rows.start * 2..rows.end * 2]
    }

    fn y(&self, rows: Range<usize>) -> &[f32] {
        &self.y[rows.start * 3..rows.end * 3]
    }

    /// The arrays of a form as they are pushed.
    fn pushed(&self, form: &Arrays, rows: Range<usize>) -> Vec<(Values<'_>, usize)> {
        let mut arrays = vec![(Values::F64(self.x(rows.clone())), 2)];
        if form.y.is_some() {
            arrays.push((Values::F32(self.y(rows.clone())), 3));
        }
        if form.weighted {
            arrays.push((Values::F64(&self.weights[rows]), 1));
        }
        arrays
    }

    /// The rows of X and of Y.
    fn sides(&self, rows: Range<usize>) -> [Rows<'_>; 2] {
        let (x, y) = (self.x(rows.clone()), self.y(rows.clone()));
        [Rows::new(x, rows.len(), 2, 2).unwrap(), Rows::new(y, rows.len(), 3, 3).unwrap()]
    }

    /// The digest of the rows of all arrays.
    fn digest(&self, form: &Arrays, rows: Range<usize>) -> Digest {
        let mut digest = digest_of(self.x(rows.clone()));
        if form.y.is_some() {
            digest = both(digest, digest_of(self.y(rows.clone())));
        }
        if form.weighted {
            digest = both(digest, digest_of(&self.weights[rows]));
        }
        digest
    }
}

fn digest_of<T: bytemuck::NoUninit>(numbers: &[T]) -> Digest {
    Digest::of(&XxHash3_128::oneshot(bytemuck::cast_slice(numbers)).to_le_bytes())
}

fn both(one: Digest, other: Digest) -> Digest {
    Digest::of(&[one.0, other.0].concat())
}

/// Demands that a stream of the arrays, in pieces of any size, has the portion of these leaves.
#[track_caller]
fn has_leaves<S: OfArrays>(
    statistic: impl Fn() -> S,
    form: Arrays,
    leaf: impl Fn(&S, &Data, Range<usize>) -> S::Partial,
) {
    let (data, own) = (Data::new(), statistic());
    let mut tree = Tree::new(job().chunk_count());
    for chunk in 0..job().chunk_count() {
        let rows = job().rows_of(chunk);
        let rows = rows.start as usize..rows.end as usize;
        let partial = leaf(&own, &data, rows.clone());
        let sourced = Sourced { partial, rows: data.digest(&form, rows) };
        tree.insert(Node::leaf(chunk).unwrap(), sourced).unwrap();
    }
    let expected = Portion::of(&job(), &own).encode(tree.nodes(), &[]).unwrap();
    for piece in [1, 3, 9, ROWS] {
        let mut stream = Stream::new(job(), form, Arc::new(statistic()), 0, Some(2)).unwrap();
        for first in (0..ROWS).step_by(piece) {
            let rows = first..ROWS.min(first + piece);
            stream.push(&data.pushed(&form, rows), &|| false).unwrap();
        }
        assert_eq!(*stream.form(), form);
        assert!(stream.portion().unwrap() == expected, "pieces of {piece} rows");
    }
}

#[test]
fn p1_streams_of_several_arrays_have_the_sums_of_their_columns_side_by_side() {
    for [y, ones, weighted] in
        [0, 1, 2, 3, 4, 5, 6, 7].map(|at| [at & 1, at & 2, at & 4].map(|bit| bit > 0))
    {
        let form = form(y, ones, weighted);
        let gram = || {
            let gram = Gram::new(form.columns()).unwrap();
            if weighted { gram.weighted() } else { gram }
        };
        has_leaves(gram, form, |gram, data, rows| {
            let [x_rows, y_rows] = data.sides(rows.clone());
            let mut chunk = Chunk::of(x_rows);
            if ones {
                chunk = chunk.and_ones();
            }
            if y {
                chunk = chunk.and(y_rows).unwrap();
            }
            if weighted {
                chunk = chunk.weighted(&data.weights[rows]).unwrap();
            }
            gram.leaf(&chunk).unwrap()
        });
    }
    has_leaves(
        || Cross::new(2, 3).unwrap(),
        form(true, false, false),
        |cross, data, rows| {
            let [x, y] = data.sides(rows);
            cross.leaf(&(Chunk::of(x), Chunk::of(y))).unwrap()
        },
    );
}

/// Of a statistic that takes rows as they are.
#[track_caller]
fn has_leaves_of_x<S>(statistic: impl Fn() -> S)
where
    S: OfArrays + for<'a> Statistic<Chunk<'a> = Rows<'a>>,
{
    has_leaves(statistic, form(false, false, false), |of, data, rows| {
        of.leaf(&data.sides(rows)[0]).unwrap()
    });
}

#[test]
fn p1_streams_of_one_array_have_the_leaves_of_its_rows() {
    has_leaves_of_x(|| ColumnMoments::new(vec![0.5, 0.0]).unwrap());
    has_leaves_of_x(|| Exact::new(2).unwrap());
    has_leaves_of_x(|| Histogram::new(vec![vec![-0.5, 0.5]; 2]).unwrap());
    has_leaves_of_x(|| ExponentHistogram::new(2).unwrap());
    has_leaves_of_x(|| Distinct::new(2, 5).unwrap());
    let top = || TopRows::new(2, 1, 3, End::Largest).unwrap();
    has_leaves(top, form(false, false, false), |top, data, rows| {
        let first = rows.start as u64;
        top.leaf(&NumberedRows { first, rows: data.sides(rows)[0] }).unwrap()
    });
}

/// All that tells one job of arrays from another is in its plan.
#[test]
fn the_form_of_arrays_is_in_the_plan() {
    let names =
        |form: Arrays| form.settings().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let all: Settings = vec![
        ("with_columns", 3_u64.into()),
        ("with_element", "f32".into()),
        ("ones", true.into()),
        ("weighted", true.into()),
    ];
    assert_eq!(form(true, true, true).settings(), all);
    assert!(names(Arrays::of_x(2, Element::F64)).is_empty());
    assert_eq!(names(form(false, true, false)), ["ones"]);
    assert_eq!(names(form(false, false, true)), ["weighted"]);
    assert_eq!(form(true, true, true).columns(), 6);
    assert_eq!(form(true, false, true).columns(), 5);
    assert_eq!(form(false, false, false).columns(), 2);
    let pushed = form(true, true, true).pushed();
    assert_eq!(pushed, [("rows", X), ("Y", Y), ("weights", (1, Element::F64))]);
}

#[test]
fn arrays_that_do_not_fit_each_other_are_refused_and_change_nothing() {
    let (data, form) = (Data::new(), form(true, false, true));
    let gram = Arc::new(Gram::new(5).unwrap().weighted());
    let mut stream = Stream::new(job(), form, gram, 0, Some(1)).unwrap();
    stream.push(&data.pushed(&form, 0..5), &|| false).unwrap();
    let all = data.pushed(&form, 5..8);
    let cases: [(Vec<(Values<'_>, usize)>, &str); 4] = [
        (all[..2].to_vec(), "expected rows, Y, weights as in the job, found 2 arrays"),
        (
            vec![all[0], (Values::F32(data.y(5..7)), 3), all[2]],
            "expected as many rows in Y as the 3 of X, found 2",
        ),
        (
            vec![all[0], all[1], (Values::F64(&data.weights[5..9]), 1)],
            "expected as many rows in weights as the 3 of X, found 4",
        ),
        (
            vec![all[0], all[0], all[2]],
            "expected Y of 3 columns of f32 as in the job, found 2 of f64",
        ),
    ];
    for (arrays, words) in cases {
        refused(stream.push(&arrays, &|| false), ErrorKind::InvalidArgument, words);
        assert_eq!(stream.next_row(), 5);
    }
    stream.push(&data.pushed(&form, 5..ROWS), &|| false).unwrap();
    assert_eq!(stream.next_row(), ROWS as u64);
    let cross = Arc::new(Cross::new(2, 3).unwrap());
    let mut stream = Stream::new(job(), Arrays::of_x(2, Element::F64), cross, 0, Some(1)).unwrap();
    let x = [(Values::F64(data.x(0..4)), 2)];
    refused(stream.push(&x, &|| false), ErrorKind::InvalidArgument, "found those of X");
}

/// Demands that the rows of files have the nodes of those that a program pushes, and digests as these.
#[track_caller]
fn has_rows_of_files<S: OfArrays>(statistic: impl Fn() -> S, form: Arrays, files: &[Arc<Matrix>]) {
    let (data, statistic) = (Data::new(), || Arc::new(statistic()));
    let threads = || rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let source = statistic().of_files(&form, files.to_vec(), &job(), threads()).unwrap();
    let chunks = job().chunk_count();
    let mut whole = Reduction::new(job(), statistic());
    let of_files = fold_portion(&job(), &*source, 0..chunks, &|| false).unwrap();
    assert!(whole.receive(&of_files).unwrap() > 0);
    let mut stream = Stream::new(job(), form, statistic(), 0, Some(1)).unwrap();
    stream.push(&data.pushed(&form, 0..ROWS), &|| false).unwrap();
    // Nodes with other bits or of other rows are refused.
    assert_eq!(whole.receive(&stream.portion().unwrap()).unwrap(), 0);
    let wrong = if files.len() == 1 { [files, files].concat() } else { files[..1].to_vec() };
    let words = format!("expected {} matrices in files, found {}", files.len(), wrong.len());
    let refusal = statistic().of_files(&form, wrong, &job(), threads());
    refused(refusal, ErrorKind::InvalidArgument, &words);
}

#[test]
fn p1_files_have_the_nodes_of_pushed_rows() {
    let (folder, data) = (Folder::new("arrays"), Data::new());
    let file = |name: &str, descr, columns, bytes: &[u8]| {
        let path = folder.file(name, &npy(descr, (ROWS, columns), bytes, 64));
        Arc::new(open(&path, MatrixFormat::ByName).unwrap())
    };
    let x = file("x.npy", "<f8", 2, bytemuck::cast_slice(&data.x));
    let y = file("y.npy", "<f4", 3, bytemuck::cast_slice(&data.y));
    let one = [Arc::clone(&x)];
    has_rows_of_files(|| Gram::new(2).unwrap(), form(false, false, false), &one);
    has_rows_of_files(|| Exact::new(2).unwrap(), form(false, false, false), &one);
    has_rows_of_files(|| Cross::new(2, 3).unwrap(), form(true, false, false), &[x, y]);
}
