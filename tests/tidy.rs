//! The source itself keeps the rules that one package cannot have the compiler enforce.

use std::fs;
use std::path::{Path, PathBuf};

/// The floors of the house, the ground first. A room may use those below it, and `store` the split
/// of `plan`, on whose floor it stands.
const FLOORS: [&[&str]; 5] = [
    &["error", "bytes", "random", "durable"],
    &["plan", "fold", "store"],
    &["prepare"],
    &["cli", "py"],
    &["bin"],
];

/// What rooms of one floor may use of each other.
const NEIGHBOURS: [(&str, &str); 8] = [
    ("store", "plan"),
    ("durable", "error"),
    ("bytes", "error"),
    ("random", "error"),
    ("durable", "bytes"),
    ("random", "bytes"),
    ("py", "cli"),
    ("bin", "cli"),
];

/// Where clocks and ambient randomness may be read: progress and timing, never results.
const CLOCK_ROOMS: [&str; 3] = ["cli", "py", "bin"];
const CLOCKS: [&str; 6] = [
    "Instant::now",
    "SystemTime",
    "thread_rng",
    "RandomState",
    "getrandom",
    "available_parallelism",
];

const LINE_LIMIT: usize = 1000;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below `folder`.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty());
    found
}

/// The room that a file of `src` belongs to.
fn room(path: &Path) -> String {
    let inside = path.strip_prefix(root().join("src")).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

#[test]
fn dependencies_run_downward() {
    for path in sources("src") {
        let from = room(&path);
        if from == "lib" {
            continue;
        }
        let own = floor(&from).unwrap_or_else(|| panic!("{}: on no floor", path.display()));
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for rest in code.split("crate::").skip(1).chain(code.split("headwater::").skip(1)) {
                let to: String =
                    rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                // Types that lib.rs hands out are on the ground floor.
                let Some(below) = floor(&to) else { continue };
                let allowed =
                    to == from || below < own || NEIGHBOURS.contains(&(from.as_str(), to.as_str()));
                assert!(allowed, "{}:{}: {from} uses {to}", path.display(), number + 1);
            }
        }
    }
}

#[test]
fn no_file_is_too_long_to_read() {
    for path in ["src", "tests", "benches"].into_iter().flat_map(sources) {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= LINE_LIMIT, "{}: {lines} lines", path.display());
    }
}

#[test]
fn no_clock_and_no_ambient_randomness_below_the_command() {
    for path in sources("src") {
        if CLOCK_ROOMS.contains(&room(&path).as_str()) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for clock in CLOCKS {
            assert!(!text.contains(clock), "{}: {clock}", path.display());
        }
    }
}

/// The seams that may hold `unsafe`, each with its reason beside it.
#[test]
fn unsafe_lives_in_its_seams() {
    const SEAMS: [&str; 2] = ["src/store/map.rs", "src/py/arrow_source.rs"];
    for path in sources("src") {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let uses = text.contains("unsafe {") || text.contains("unsafe fn");
        assert!(!uses || SEAMS.contains(&name.as_str()), "{name}: unsafe outside its seams");
        let blocks = text.matches("unsafe {").count();
        assert!(text.matches("// SAFETY:").count() >= blocks, "{name}: unsafe without its reason");
    }
}

/// Each foreign library has one home.
#[test]
fn foreign_libraries_stay_at_home() {
    const HOMES: [(&str, &[&str]); 8] = [
        ("arrow::", &["prepare", "cli", "py"]),
        ("parquet::", &["prepare"]),
        ("rusqlite::", &["prepare"]),
        ("ureq::", &["prepare"]),
        ("clap::", &["cli"]),
        ("indicatif::", &["cli"]),
        ("pyo3::", &["py"]),
        ("memmap2::", &["store"]),
    ];
    for path in sources("src") {
        let (text, room) = (fs::read_to_string(&path).unwrap(), room(&path));
        for (library, homes) in HOMES {
            let used = text.lines().any(|line| {
                let code = line.split("//").next().unwrap_or_default();
                code.match_indices(library).any(|(at, _)| {
                    !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
                })
            });
            assert!(!used || homes.contains(&room.as_str()), "{}: {library}", path.display());
        }
    }
}
