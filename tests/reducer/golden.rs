//! The golden portions in `checkpoints/`: what this build writes, and what every build reads.
//!
//! `HEADWATER_REGENERATE=1 cargo test --release --test reducer golden` writes those of the present format
//! version anew; files of older versions stay as they are.

use std::fs;

use headwater::fold::columns::{KeyWidth, NumberedRows};
use headwater::fold::gram::Chunk;
use headwater::fold::sums::Width;
use headwater::fold::{
    ArraySums, ColumnMoments, Cross, Distinct, End, Exact, ExponentHistogram, Gram, Histogram,
    Node, Partial, Quantiles, Rows, Statistic, TopRows, Tree,
};
use headwater::plan::Plan;
use headwater::reducer::{FileVersion, Job, Portion, Sourced};
use headwater::{Digest, Stamp};

use crate::manifest_of_goldens::{self as manifest, Golden, folder, is_asked_to_regenerate};

const GENERATOR: &str = "tests/reducer/golden.rs";
const COLUMNS: usize = 2;
const ROWS: u64 = 21;
const CHUNK_ROWS: u64 = 2;

/// Chunks 0 to 3 are one node, 5 is one, 6 and 7 are one, and so is 10, with one row.
const CHUNKS: [u64; 8] = [5, 2, 0, 7, 10, 3, 1, 6];

/// A file name, what it is, and its bytes.
type Case = (String, String, Vec<u8>);

/// Numbers of every kind; with `special`, also those that products drown in.
fn numbers(special: bool) -> Vec<f64> {
    let tiny = f64::from_bits(1);
    let kinds = [0.1, -0.0, 1e300, -2.5, tiny, -1e-310, 0.0, 3.0, 1.0 / 3.0, -7e15, 12.0];
    let specials = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -f64::NAN];
    let number = |at: usize| match at % 13 {
        place if place < kinds.len() => kinds[place] * f64::from(1 + (at / 13) as u8),
        _ if special => specials[at / 13 % 4],
        place => place as f64,
    };
    (0..ROWS as usize * COLUMNS).map(number).collect()
}

fn plan(statistic: &str) -> Plan {
    let mut what = Plan::new();
    what.add("statistic", statistic).unwrap();
    what.add("columns", COLUMNS as u64).unwrap();
    what.add("element", "f64").unwrap();
    what.add("data", *blake3::hash(b"rows").as_bytes()).unwrap();
    what
}

fn job(statistic: &str, chunk_rows: u64) -> Job {
    Job::new(plan(statistic), ROWS, chunk_rows).unwrap()
}

/// A job whose leaves are some arrays.
fn job_of_sums() -> Job {
    let mut what = Plan::new();
    what.add("statistic", "sums").unwrap();
    what.add("data", "leaves").unwrap();
    what.add("arrays", "\"grad\" float32 [2], \"loss\" float64 []").unwrap();
    Job::of_arrays(what, 11).unwrap()
}

/// The portion of some chunks, of few where a partial is long. The golden file must hold its nodes.
fn case<S: Statistic>(
    name: &str,
    chunks: &[u64],
    statistic: &S,
    leaf: impl Fn(std::ops::Range<u64>) -> S::Partial,
) -> Case {
    case_of((name, job(name, CHUNK_ROWS)), chunks, statistic, leaf)
}

fn case_of<S: Statistic>(
    (name, job): (&str, Job),
    chunks: &[u64],
    statistic: &S,
    leaf: impl Fn(std::ops::Range<u64>) -> S::Partial,
) -> Case {
    let mut tree = Tree::new(job.chunk_count());
    for &chunk in chunks {
        let partial = leaf(job.rows_of(chunk));
        let rows = Digest::of(&chunk.to_le_bytes());
        tree.insert(Node::leaf(chunk).unwrap(), Sourced { partial, rows }).unwrap();
    }
    let file = format!("portion-v3-{name}.portion");
    let portion = Portion::of(&job, statistic);
    if !is_asked_to_regenerate() {
        let bytes = fs::read(folder().join(&file)).unwrap();
        let (found, held) = portion.decode(&bytes).unwrap();
        assert_eq!(found, versions(), "{file}");
        let nodes = held.iter().map(|(node, partial)| (*node, partial));
        for (found, expected) in nodes.clone().zip(tree.nodes()) {
            assert!(found.0 == expected.0 && found.1.same_bits(expected.1), "{file}");
        }
        assert_eq!(portion.encode(nodes, &found).unwrap(), bytes, "{file}");
    }
    let bytes = portion.encode(tree.nodes(), &versions()).unwrap();
    (file, format!("a checkpoint of {} nodes: {name}", tree.nodes().count()), bytes)
}

fn good() -> Vec<Case> {
    let (finite, special) = (numbers(false), numbers(true));
    let nulls: Vec<bool> = (0..special.len()).map(|at| at % 9 == 4).collect();
    let rows = |range: &std::ops::Range<u64>| {
        let places = range.start as usize * COLUMNS..range.end as usize * COLUMNS;
        let count = (range.end - range.start) as usize;
        let rows = Rows::new(&special[places.clone()], count, COLUMNS, COLUMNS).unwrap();
        rows.with_nulls(&nulls[places]).unwrap()
    };
    let chunk = |values: &'static [f64], range: &std::ops::Range<u64>| {
        let values = &values[range.start as usize * COLUMNS..range.end as usize * COLUMNS];
        Chunk::of(Rows::new(values, values.len() / COLUMNS, COLUMNS, COLUMNS).unwrap())
    };
    let (finite, unusual): (&'static [f64], &'static [f64]) =
        (finite.leak(), special.clone().leak());
    let gram = Gram::new(COLUMNS).unwrap();
    let cross = Cross::new(COLUMNS, COLUMNS).unwrap();
    let moments = ColumnMoments::new(vec![0.0, 0.75]).unwrap();
    let histogram = Histogram::new(vec![vec![0.0, 1.0, 3.0], vec![-1.0]]).unwrap();
    let (exact, exponents) =
        (Exact::new(COLUMNS).unwrap(), ExponentHistogram::new(COLUMNS).unwrap());
    // The second pass: column 0 has no number, and one of column 1 has the prefix of 12.
    let at = vec!["0.5".parse().unwrap()];
    let known = [2, 0, 0, 0, 0, 18, 12_f64.to_bits() >> 48 | 1 << 15, 1, 1];
    let quantiles = Quantiles::new(COLUMNS, KeyWidth::Wide, at).unwrap();
    let quantiles = quantiles.after(&known.map(u64::to_le_bytes).concat()).unwrap();
    let distinct = Distinct::new(COLUMNS, 4).unwrap();
    let top = TopRows::new(COLUMNS, 1, 3, End::Largest).unwrap();
    let parts = Job::of_parts(plan("moments"), 11, CHUNK_ROWS).unwrap();
    let sums = ArraySums::new(vec![(2, Width::F32), (1, Width::F64)]).unwrap();
    vec![
        case("gram", &CHUNKS, &gram, |range| gram.leaf(&chunk(finite, &range)).unwrap()),
        case("gram-not-finite", &CHUNKS, &gram, |range| {
            gram.leaf(&chunk(unusual, &range)).unwrap()
        }),
        case("cross", &CHUNKS, &cross, |range| {
            cross.leaf(&(chunk(finite, &range), chunk(unusual, &range))).unwrap()
        }),
        case("moments", &CHUNKS, &moments, |range| moments.leaf(&rows(&range)).unwrap()),
        case("exact", &CHUNKS, &exact, |range| exact.leaf(&rows(&range)).unwrap()),
        case("histogram", &CHUNKS, &histogram, |range| histogram.leaf(&rows(&range)).unwrap()),
        case("exponents", &[6], &exponents, |range| exponents.leaf(&rows(&range)).unwrap()),
        case("quantiles", &[1], &quantiles, |range| quantiles.leaf(&rows(&range)).unwrap()),
        case("distinct", &CHUNKS, &distinct, |range| distinct.leaf(&rows(&range)).unwrap()),
        case("top", &CHUNKS, &top, |range| {
            top.leaf(&NumberedRows { first: range.start, rows: rows(&range) }).unwrap()
        }),
        // The rows of a part are not counted: this one has as many as its place says.
        case_of(("parts", parts), &CHUNKS, &moments, |part| {
            moments.leaf(&rows(&(0..part.start))).unwrap()
        }),
        case_of(("sums", job_of_sums()), &CHUNKS, &sums, |leaf| {
            let number = unusual[leaf.start as usize];
            let (loss, grad) = (number.to_le_bytes(), [number as f32, -2.5].map(f32::to_le_bytes));
            sums.leaf(&vec![grad.as_flattened(), &loss[..]]).unwrap()
        }),
    ]
}

/// The versions of the files of every golden portion.
fn versions() -> Vec<FileVersion> {
    let version = |place, path: &str, length| FileVersion {
        place,
        path: path.to_owned(),
        stamp: Stamp { length, changed: 1_700_000_000_123_456_789, file: 42 + place },
    };
    vec![version(0, "data/x-0.npy", 4096), version(1, "data/x-1.npy", 1 << 40)]
}

fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    let hash = blake3::hash(&body);
    body.extend_from_slice(hash.as_bytes());
    body
}

/// Portions of the Gram, each with what is wrong with it.
fn bad(gram: &[u8]) -> Vec<Case> {
    let body = &gram[..gram.len() - 32];
    let flipped = |at: usize| {
        let mut bytes = gram.to_vec();
        bytes[at] ^= 0x10;
        bytes
    };
    let edited = |at: usize, bytes: &[u8]| {
        let mut body = body.to_vec();
        body[at..at + bytes.len()].copy_from_slice(bytes);
        sealed(body)
    };
    // The last node, of one chunk: 16 bytes that name it, the digest of its rows, and three sums.
    let last = body.len() - 72;
    let kept = |name: &str| fs::read(folder().join(name)).unwrap();
    let other_job = {
        let (job, statistic) = (job("gram", 3), Gram::new(COLUMNS).unwrap());
        let none: [(Node, &Sourced<headwater::fold::gram::Triangle>); 0] = [];
        Portion::of(&job, &statistic).encode(none.into_iter(), &[]).unwrap()
    };
    // Behind the plan: the number of nodes, and the length of a partial.
    let plan = job("gram", CHUNK_ROWS).plan().encode().unwrap();
    let counts = 24 + plan.len();
    let lengthened = |body: &[u8]| {
        let mut body = body.to_vec();
        let length = body.len() as u64 - 24;
        body[16..24].copy_from_slice(&length.to_le_bytes());
        sealed(body)
    };
    let empty = {
        let counts = [0_u64, 24, 0].map(u64::to_le_bytes).concat();
        lengthened(&[&gram[..24], &plan, &counts].concat())
    };
    let cases: [(&str, &str, Vec<u8>); 17] = [
        ("nothing", "no byte at all", vec![]),
        ("other-file", "a PNG image", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec()),
        ("cut-short", "the first 10 bytes", gram[..10].to_vec()),
        ("cut-at-the-end", "all but the last byte", gram[..gram.len() - 1].to_vec()),
        ("flipped-bit", "one bit of a sum", flipped(body.len() - 3)),
        ("newer-version", "format version 4", edited(8, &[4])),
        ("other-job", "another chunk size", other_job),
        ("without-last-node", "fewer nodes than it counts", lengthened(&body[..last])),
        ("node-twice", "a node that is there already", edited(last + 8, &[0])),
        ("empty-with-length", "a length of partials where there are none", empty),
        ("unknown-nan", "a NaN that no sum becomes", {
            edited(body.len() - 8, &0x7ff8_0000_0000_0001_u64.to_le_bytes())
        }),
        ("wrong-length", "a payload of 2^63 bytes", edited(16, &(1_u64 << 63).to_le_bytes())),
        // Kept from the versions before: a plan that was a cursor, and no digests of rows.
        ("version-1", "a portion of format version 1", kept("bad/portion-version-1.portion")),
        ("version-2", "a portion of format version 2", kept("bad/portion-version-2.portion")),
        ("versions-in-disorder", "two versions of files in the wrong order", {
            edited(counts + 24, &9_u64.to_le_bytes())
        }),
        ("endless-versions", "2^63 versions of files", {
            edited(counts + 16, &(1_u64 << 63).to_le_bytes())
        }),
        ("endless-counts", "2^63 nodes", edited(counts, &(1_u64 << 63).to_le_bytes())),
    ];
    let case = |(name, what, bytes): (&str, &str, _)| {
        (format!("bad/portion-{name}.portion"), what.to_owned(), bytes)
    };
    cases.into_iter().map(case).collect()
}

/// What the job of the golden Gram says of a portion.
fn message(bytes: &[u8]) -> Option<String> {
    let (job, gram) = (job("gram", CHUNK_ROWS), Gram::new(COLUMNS).unwrap());
    Portion::of(&job, &gram).decode(bytes).err().map(|e| e.to_string())
}

/// One test, so that regenerating comes before checking.
#[test]
fn p6_golden_portions_round_trip_and_bad_ones_have_their_message() {
    let good = good();
    let bad = bad(&good[0].2);
    if is_asked_to_regenerate() {
        let golden = |(name, what, bytes): &Case, message| {
            (name.clone(), what.clone(), bytes.clone(), message)
        };
        let all = good.iter().map(|case| golden(case, None));
        let all: Vec<_> =
            all.chain(bad.iter().map(|case| golden(case, message(&case.2)))).collect();
        let goldens: Vec<_> = all
            .iter()
            .map(|(name, what, bytes, message)| Golden {
                name: name.clone(),
                what: what.clone(),
                bytes,
                message: message.clone(),
            })
            .collect();
        manifest::regenerate(GENERATOR, &goldens);
    }
    for (name, _, bytes) in good.iter().chain(&bad) {
        assert!(fs::read(folder().join(name)).unwrap() == *bytes, "{name}");
    }
    // Whoever adds a file has it checked by adding it to the manifest.
    for (name, entry) in &manifest::manifest() {
        if name.ends_with(".portion") {
            let bytes = fs::read(folder().join(name)).unwrap();
            assert_eq!(entry["digest"].as_str(), Some(&*manifest::digest(&bytes)), "{name}");
            let expected = entry.get("message").and_then(|m| m.as_str());
            assert_eq!(name.starts_with("bad/"), expected.is_some(), "{name}");
            if name.starts_with("bad/") {
                assert_eq!(message(&bytes).as_deref(), expected, "{name}");
            }
        }
    }
}
