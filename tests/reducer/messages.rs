//! Messages between ranks arrive as they were sent, or are refused.

use headwater::ErrorKind;
use headwater::plan::Assignment;
use headwater::reducer::wire::{Failure, JobEnd, Order, Report};
use headwater::reducer::{Blocks, WorkerCursor};

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
    for order in [fold, Order::End(JobEnd::Done)].into_iter().chain(ends) {
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
    refused(Order::decode(&[]).unwrap_err());
    refused(Order::decode(&longer).unwrap_err());
    refused(Order::decode(&longer[..longer.len() - 2]).unwrap_err());
    refused(Order::decode(&[end[0], end[1] + 1]).unwrap_err());
    refused(Order::decode(&[end[0], end[1], 0]).unwrap_err());
}
