//! The source itself keeps the rules that one package cannot have the compiler enforce.

mod imports;

use std::fs;
use std::path::{Path, PathBuf};

use imports::Imports;

/// The floors of the house, the ground first. A room may use those below it.
const FLOORS: [&[&str]; 9] = [
    &[
        "error",
        "bytes",
        "days",
        "environment",
        "files",
        "launcher",
        "map",
        "memory",
        "panics",
        "random",
        "durable",
        "progress",
        "process",
        "stamp",
        "tensor",
    ],
    &["container", "handoff"],
    &["plan", "fold", "store", "matrix"],
    &["events"],
    &["prepare", "sampler", "reducer"],
    &["audit"],
    &["view"],
    &["cli"],
    &["bin"],
];

/// What rooms of one floor may use of each other: `store` the split of `plan` and the z-score of
/// `fold`, `matrix` the rows of `fold`.
const NEIGHBOURS: [(&str, &str); 20] = [
    ("store", "plan"),
    ("store", "fold"),
    ("matrix", "fold"),
    ("progress", "error"),
    ("process", "error"),
    ("process", "environment"),
    ("launcher", "error"),
    ("stamp", "error"),
    ("stamp", "days"),
    ("stamp", "files"),
    ("durable", "error"),
    ("bytes", "error"),
    ("map", "error"),
    ("files", "error"),
    ("map", "files"),
    ("durable", "files"),
    ("random", "error"),
    ("durable", "bytes"),
    ("random", "bytes"),
    ("bin", "cli"),
];

/// Where clocks and ambient randomness may be read: progress and timing, never results.
const CLOCK_ROOMS: [&str; 2] = ["cli", "bin"];
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

/// The sources of the library, and of the two packages that stand on it.
const PACKAGES: [&str; 3] = ["src", "extension/src", "mpi/src"];

/// Every Rust file below `folder`.
fn sources(folder: &str) -> Vec<PathBuf> {
    files_below(folder, "rs")
}

fn files_below(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
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
        for (line, to) in names_used(&text, module_depth(&path)) {
            // Types that lib.rs hands out are on the ground floor.
            let Some(below) = floor(&to) else { continue };
            let allowed =
                to == from || below < own || NEIGHBOURS.contains(&(from.as_str(), to.as_str()));
            assert!(allowed, "{}:{line}: {from} uses {to}", path.display());
        }
    }
}

#[test]
fn files_import_each_other_in_no_circle() {
    for package in PACKAGES {
        let root = root().join(package);
        let files: Vec<_> = sources(package)
            .into_iter()
            .filter(|path| !path.starts_with(root.join("bin")) && !path.ends_with("main.rs"))
            .map(|path| {
                let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
                (name, fs::read_to_string(&path).unwrap())
            })
            .collect();
        let files = files.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        assert_eq!(Imports::read(files).circles(), [""; 0]);
    }
}

/// A module with parts is a folder with a `mod.rs`, never a file beside a folder of its name.
#[test]
fn modules_have_one_style() {
    let paths: Vec<_> = PACKAGES.into_iter().flat_map(sources).collect();
    let wrong: Vec<_> = second_style(&paths).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let planted = ["src/lib.rs", "src/a/mod.rs", "src/b.rs", "src/b/c.rs"].map(PathBuf::from);
    assert_eq!(second_style(&planted).collect::<Vec<_>>(), [Path::new("src/b.rs")]);
}

fn second_style(paths: &[PathBuf]) -> impl Iterator<Item = &Path> {
    paths.iter().map(PathBuf::as_path).filter(|path| {
        let folder = path.with_extension("");
        paths.iter().any(|other| other.parent() == Some(&folder))
    })
}

/// How many `super`s lead from a file's module to the crate.
fn module_depth(path: &Path) -> usize {
    let inside = path.strip_prefix(root().join("src")).unwrap();
    inside.components().count() - usize::from(inside.ends_with("mod.rs"))
}

/// The names of the crate's top level that `text` uses, each with its line.
fn names_used(text: &str, depth: usize) -> Vec<(usize, String)> {
    let code: Vec<_> =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let upward = "super::".repeat(depth);
    let mut names = Vec::new();
    for start in ["crate::", "headwater::", &upward] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            // The end of another word, or of a longer way up, which leads to no name.
            if is_of_word(before) || before == ':' {
                continue;
            }
            let line = code[..at].matches('\n').count() + 1;
            let found = first_names(&code[at + start.len()..]);
            names.extend(found.into_iter().map(|name| (line, name)));
        }
    }
    names.sort();
    names
}

/// The name that `rest` begins with, or the first names of each part of its braces.
fn first_names(rest: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|&c| is_of_word(c)).collect::<String>();
    let Some(group) = rest.strip_prefix('{') else { return vec![word(rest)] };
    let (mut nesting, mut names, mut part) = (1, Vec::new(), 0);
    for (at, c) in group.char_indices() {
        nesting = match c {
            '{' => nesting + 1,
            '}' => nesting - 1,
            _ => nesting,
        };
        if nesting == 0 || (nesting == 1 && c == ',') {
            names.push(word(group[part..at].trim_start()));
            part = at + 1;
        }
        if nesting == 0 {
            break;
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn every_way_to_name_a_room_is_seen() {
    let used = |text: &str, depth| {
        let names = names_used(text, depth);
        names.into_iter().map(|(line, name)| format!("{line} {name}")).collect::<Vec<_>>()
    };
    assert_eq!(
        used("use crate::plan::Cursor; // crate::cli\nheadwater::py::x()", 1),
        ["1 plan", "2 py"]
    );
    let grouped = "use crate::{\n    bytes::{Digest, u32_at},\n    cli, py::{self, work},\n};";
    assert_eq!(used(grouped, 1), ["1 bytes", "1 cli", "1 py"]);
    assert_eq!(used("use super::super::cli;\nuse super::{csv, cli};", 2), ["1 cli"]);
    assert_eq!(used("use super::{cli, plan::Split};", 1), ["1 cli", "1 plan"]);
    assert_eq!(used("use super::super::cli;", 3), [""; 0]);
    assert_eq!(used("fn f(x: my_crate::cli) {}\npub(in super::super) fn g() {}", 2), [""; 0]);
    assert_eq!(module_depth(&root().join("src/prepare/mod.rs")), 1);
    assert_eq!(module_depth(&root().join("src/prepare/embed/cache.rs")), 3);
}

#[test]
fn no_file_is_too_long_to_read() {
    for path in PACKAGES.into_iter().chain(["tests", "benches"]).flat_map(sources) {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= LINE_LIMIT, "{}: {lines} lines", path.display());
    }
}

#[test]
fn no_clock_and_no_ambient_randomness_below_the_command() {
    let rooms = sources("src").into_iter();
    let rooms = rooms.filter(|path| !CLOCK_ROOMS.contains(&room(path).as_str()));
    for path in rooms.chain(sources("mpi/src")) {
        let text = fs::read_to_string(&path).unwrap();
        for clock in CLOCKS {
            assert!(!text.contains(clock), "{}: {clock}", path.display());
        }
    }
}

/// A file that a user names may be a pipe, whose opening waits for ever: `files` alone opens files to read
/// them.
#[test]
fn files_are_opened_in_one_place() {
    const OPENERS: [&str; 5] =
        [" File::open(", "::File::open(", "fs::read(", "fs::read_to_string(", ".open(path)"];
    // Files of the system, and the terminal.
    const OTHERS: [&str; 3] = ["src/files.rs", "src/memory.rs", "src/cli/reduce/run.rs"];
    for path in PACKAGES.into_iter().flat_map(sources) {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        if OTHERS.contains(&name.as_str()) || name.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (line, code) in code.lines().enumerate() {
            let code = code.split("//").next().unwrap_or_default();
            // Making a new file never waits.
            let opens = OPENERS.iter().any(|opener| code.contains(opener));
            let is_wrong = opens && !code.contains("create_new(true)");
            assert!(!is_wrong, "{name}:{}: open it with crate::files", line + 1);
        }
    }
}

/// The same in Python: `read_file` of the compiled module reads them.
#[test]
fn files_are_read_in_one_place_in_python() {
    // Files of the system, and of the package itself.
    const OTHERS: [&str; 2] = ["python/confluence/processor.py", "python/confluence/config.py"];
    for path in files_below("python", "py") {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        if OTHERS.contains(&name.as_str()) {
            continue;
        }
        for (line, code) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let reads = [".read_text(", ".read_bytes("].iter().any(|reader| code.contains(reader));
            assert!(!reads, "{name}:{}: read it with headwater._headwater.read_file", line + 1);
        }
    }
}

/// The seams that may hold `unsafe`, each with its reason beside it.
#[test]
fn unsafe_lives_in_its_seams() {
    const SEAMS: [&str; 8] = [
        "extension/src/arrow_source.rs",
        "extension/src/objects.rs",
        "mpi/src/lib.rs",
        "src/environment.rs",
        "src/fold/columns/avx2.rs",
        "src/fold/gram/avx2.rs",
        "src/fold/gram/avx512.rs",
        "src/map.rs",
    ];
    for path in PACKAGES.into_iter().flat_map(sources) {
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
    const HOMES: [(&str, &[&str]); 14] = [
        ("arrow_", &["prepare", "matrix", "view"]),
        // Tables whole and in order, matrices by ranges of rows: they share nothing but the library.
        ("parquet::", &["prepare", "matrix"]),
        ("rusqlite::", &["prepare"]),
        ("ureq::", &["prepare"]),
        ("memchr::", &["prepare"]),
        ("signal_hook::", &["cli"]),
        ("clap::", &["cli"]),
        ("indicatif::", &["cli"]),
        ("base64::", &["view"]),
        // Unpacks tables, packs pages.
        ("flate2::", &["prepare", "view"]),
        ("zstd::", &["prepare"]),
        ("highway::", &["prepare"]),
        ("md5::", &["prepare"]),
        ("memmap2::", &["map"]),
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
