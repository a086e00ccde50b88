//! Messages between ranks arrive as they were sent, or are refused.

use headwater::fold::gram::Triangle;
use headwater::fold::{Gram, Node, Tree};
use headwater::matrix::{Element, Matrix, MatrixFormat};
use headwater::plan::Assignment;
use headwater::reducer::wire::{Failure, JobEnd, Order, Report};
use headwater::reducer::{Blocks, FileVersion, OfMatrix, Portion, Source, Sourced, WorkerCursor};
use headwater::{Digest, ErrorKind};
use twox_hash::XxHash3_128;

use crate::matrix::Folder;
use crate::{COLUMNS, job, leaf, portion, reduction, rows};

const KINDS: [ErrorKind; 11] = [
    ErrorKind::Io,
    ErrorKind::NotOurs,
    ErrorKind::Version,
    ErrorKind::Corrupt,
    ErrorKind::LimitExceeded,
    ErrorKind::InvalidArgument,
    ErrorKind::Schema,
    ErrorKind::Data,
    ErrorKind::PlanMismatch,
    ErrorKind::Interrupted,
    ErrorKind::Shutdown,
];

fn cursor() -> WorkerCursor {
    WorkerCursor::new(Assignment::new(2, 5).unwrap(), &Blocks::new(64, 2).unwrap())
}

#[test]
fn p6_every_report_arrives_as_it_was_sent() {
    let portion = b"a portion";
    assert_eq!(cursor().ordinal(), 0);
    let failed = |kind| Report::Failed(Failure { kind, message: "why".to_owned() });
    let readable = vec![0..3, 5..9, 12..13];
    let reports = [
        Report::Ready { job: b"a plan", readable },
        Report::Ready { job: b"", readable: Vec::new() },
        Report::Folded { cursor: cursor(), cpu_microseconds: 7, portion },
        Report::Leaving,
    ];
    for report in reports.into_iter().chain(KINDS.map(failed)) {
        let bytes = report.encode();
        assert_eq!(Report::decode(&bytes).unwrap(), report);
    }
    for kind in KINDS {
        let error = Failure { kind, message: "why".to_owned() }.into_error();
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, "why"));
    }
}

#[test]
fn p6_every_order_arrives_as_it_was_sent() {
    let fold = Order::Fold { chunks: 4..8, cursor: cursor() };
    let ends = KINDS.map(|kind| Order::End(JobEnd::Failed(kind)));
    let next = Order::Next(vec![3, 0, 7]);
    for order in [fold, next, Order::End(JobEnd::Done)].into_iter().chain(ends) {
        assert_eq!(Order::decode(&order.encode()).unwrap(), order);
    }
}

#[test]
fn p6_bytes_that_are_no_message_are_refused() {
    let leaving = Report::Leaving.encode();
    let mut longer = Order::Fold { chunks: 4..8, cursor: cursor() }.encode();
    longer.push(0);
    let end = Order::End(JobEnd::Failed(ErrorKind::Shutdown)).encode();
    let refused = |error: headwater::Error| assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    refused(Report::decode(&[]).unwrap_err());
    refused(Report::decode(&[0]).unwrap_err());
    // Nothing comes before the mark of a rank that leaves.
    refused(Report::decode(&[&[0], &leaving[..]].concat()).unwrap_err());
    // With a right digest, too.
    let before = [0, leaving[0]];
    let digest = XxHash3_128::oneshot(&before).to_le_bytes();
    refused(Report::decode(&[&before[..], &digest].concat()).unwrap_err());
    let mark = XxHash3_128::oneshot(&leaving[..1]).to_le_bytes();
    assert_eq!(leaving, [&leaving[..1], &mark].concat());
    refused(Order::decode(&[]).unwrap_err());
    refused(Order::decode(&longer).unwrap_err());
    refused(Order::decode(&longer[..longer.len() - 2]).unwrap_err());
    refused(Order::decode(&[end[0], end[1] + 1]).unwrap_err());
    refused(Order::decode(&[end[0], end[1], 0]).unwrap_err());
}

/// Rank 0 does not check the digest of a portion in a report, but that of the report.
#[test]
fn p6_every_flipped_bit_of_a_report_is_refused() {
    let (job, data) = (job(12, 1), rows(12));
    let portion = portion(&job, &data, 2..4);
    let failure = Failure { kind: ErrorKind::Io, message: "why".to_owned() };
    let reports = [
        Report::Ready { job: b"a plan", readable: vec![0..3] },
        Report::Folded { cursor: cursor(), cpu_microseconds: 7, portion: &portion },
        Report::Failed(failure),
        Report::Leaving,
    ];
    for report in reports {
        let good = report.encode();
        for bit in 0..8 * good.len() {
            let mut damaged = good.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Report::decode(&damaged).unwrap_err().kind(), ErrorKind::Corrupt, "{bit}");
        }
        assert!((0..good.len()).all(|length| Report::decode(&good[..length]).is_err()));
    }
}

/// A portion can be larger than what is free beside it.
#[test]
fn a_report_has_the_memory_of_its_portion() {
    let (job, data) = (job(12, 1), rows(12));
    let mut tree = Tree::new(job.chunk_count());
    for chunk in [0, 2, 3, 7] {
        tree.insert(Node::leaf(chunk).unwrap(), leaf(&job, &data, chunk)).unwrap();
    }
    let versions = versions_of_a_file();
    let gram = Gram::new(COLUMNS).unwrap();
    let portion = Portion::of(&job, &gram).encode(tree.nodes(), &versions).unwrap();
    let (place, length) = (portion.as_ptr(), portion.len());
    let report = Report::folded(portion, &cursor(), 5);
    assert_eq!((report.as_ptr(), report.capacity()), (place, report.len()));
    assert!(report.len() > length);
}

/// The version of the rows of a file that there is.
fn versions_of_a_file() -> Vec<FileVersion> {
    let folder = Folder::new("versions");
    let path = folder.file("x.f64", bytemuck::cast_slice(&rows(12)));
    let format = MatrixFormat::Raw { element: Element::F64, columns: COLUMNS };
    let matrix = Matrix::open(&[path], &format).unwrap();
    let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let source = OfMatrix::new(Gram::new(COLUMNS).unwrap(), matrix, job(12, 1), threads);
    let versions = source.opened_versions();
    assert_eq!(versions.len(), 1);
    versions
}

#[test]
fn p6_versions_that_repeat_or_come_in_another_order_are_damage() {
    let (job, gram) = (job(12, 1), Gram::new(COLUMNS).unwrap());
    let one = versions_of_a_file().remove(0);
    let other = |place, path: &str| FileVersion { place, path: path.to_owned(), ..one.clone() };
    let (a, b, c) = (other(0, "a"), other(1, "b"), other(1, "c"));
    let decoded = |versions: &[FileVersion]| {
        let none = Tree::<Sourced<Triangle>>::new(job.chunk_count());
        let portion = Portion::of(&job, &gram);
        portion.decode(&portion.encode(none.nodes(), versions).unwrap()).map(|(found, _)| found)
    };
    let right = [a.clone(), b.clone(), c.clone()];
    assert_eq!(decoded(&right).unwrap(), right);
    for wrong in [[a.clone(), a.clone(), b.clone()], [a, c, b]] {
        assert_eq!(decoded(&wrong).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

/// Chunks that arrive twice must have the same sums, and be of the same rows.
#[test]
fn p6_the_same_sums_of_other_rows_and_other_sums_of_the_same_rows_are_refused() {
    let (job, data) = (job(4, 1), rows(4));
    let right = leaf(&job, &data, 1);
    let other_rows = Sourced { rows: Digest::of(b"others"), ..right.clone() };
    let other_sums = Sourced { rows: right.rows, ..leaf(&job, &data, 2) };
    let node = Node::leaf(1).unwrap();
    let gram = Gram::new(COLUMNS).unwrap();
    for wrong in [other_rows, other_sums] {
        let mut whole = reduction(&job);
        whole.insert(node, right.clone()).unwrap();
        whole.insert(node, right.clone()).unwrap();
        assert_eq!(whole.insert(node, wrong.clone()).unwrap_err().kind(), ErrorKind::Corrupt);
        let nodes = [(node, &wrong)];
        let portion = Portion::of(&job, &gram).encode(nodes.into_iter(), &[]).unwrap();
        assert_eq!(whole.receive(&portion).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
