//! What holds of a command in which any one call has failed, or all from any one on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs};

use crate::entrances::{Entrance, LARGE};
use crate::injector::{End, Fault, Run, Target, run};

/// SIGABRT.
const ABORTED: i32 = 6;
/// What Rust and glibc say before they abort without memory; and Arrow and Rayon's own pool, which panic
/// instead.
const ABORTS: [&str; 4] = [
    "memory allocation of ",
    "failed to register TLS destructor: out of memory",
    "failed to allocate memory for layout",
    "The global thread pool has not been initialized",
];
/// The exit status after a panic.
const PANICKED: i32 = 101;

/// The files and folders below a folder, by their path.
pub(crate) type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

pub(crate) fn tree(folder: &Path) -> Tree {
    let (mut found, mut folders) = (Tree::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let bytes = if path.is_dir() { None } else { Some(fs::read(&path).unwrap()) };
            if bytes.is_none() {
                folders.push(path.clone());
            }
            found.insert(path.strip_prefix(folder).unwrap().to_owned(), bytes);
        }
    }
    found
}

/// Makes `folder` hold `tree`, and nothing else. What is right stays as it is: a fold knows its inputs by
/// their dates, too.
fn restore(folder: &Path, wanted: &Tree) {
    let found = tree(folder);
    for (path, bytes) in found.iter().rev().filter(|(path, _)| !wanted.contains_key(*path)) {
        let path = folder.join(path);
        if bytes.is_none() { fs::remove_dir(path) } else { fs::remove_file(path) }.unwrap();
    }
    for (path, bytes) in wanted.iter().filter(|(path, bytes)| found.get(*path) != Some(*bytes)) {
        match bytes {
            None => fs::create_dir(folder.join(path)).unwrap(),
            Some(bytes) => fs::write(folder.join(path), bytes).unwrap(),
        }
    }
}

/// The part of a tree that lies at or below one of `paths`; or all but that.
fn part(tree: &Tree, paths: &[&str], is_in: bool) -> Tree {
    let lies_in = |path: &Path| paths.iter().any(|&other| path.starts_with(other));
    let chosen = tree.iter().filter(|(path, _)| lies_in(path) == is_in);
    chosen.map(|(path, bytes)| (path.clone(), bytes.clone())).collect()
}

/// How many runs ended how.
#[derive(Default)]
pub(crate) struct Figures {
    calls: u64,
    faults: u64,
    success: u64,
    error: u64,
    abort: u64,
    pub(crate) broken: Vec<String>,
}

/// An entrance whose faultless run is known.
pub(crate) struct Bench<'a> {
    entrance: &'a Entrance,
    folder: PathBuf,
    beside: PathBuf,
    given: Tree,
    before: Tree,
    after: Tree,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(entrance: &'a Entrance, room: &Path) -> Self {
        let (folder, beside) = (room.join("here"), room.join("beside"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(&beside).unwrap();
        (entrance.given)(&folder);
        let given = tree(&folder);
        let (before, after) = (Tree::new(), Tree::new());
        let mut bench = Self { entrance, folder, beside, given, before, after };
        bench.before = bench.found();
        let whole = bench.run(&bench.command(), no_fault(Target::Files));
        let expected = if entrance.is_refused { End::Error(1) } else { End::Success };
        assert_eq!(whole.end, expected, "{}: {}", entrance.name, whole.message);
        bench.after = bench.found();
        bench
    }

    fn command(&self) -> Vec<&'a str> {
        self.entrance.command.split(' ').collect()
    }

    fn run(&self, words: &[&str], fault: Fault) -> Run {
        let mut command = Command::new(self.entrance.program);
        command.args(words);
        run(&mut command, &self.folder, &self.beside, fault)
    }

    /// The files, without what differs from run to run.
    fn found(&self) -> Tree {
        let mut found = tree(&self.folder);
        let is_made = |path: &Path| self.entrance.outputs.iter().any(|out| path.starts_with(out));
        for (path, bytes) in &mut found {
            let is_summary = path.extension().is_some_and(|end| end == "json") && is_made(path);
            if let Some(bytes) =
                bytes.as_mut().filter(|_| is_summary || path == Path::new("stdout"))
            {
                *bytes = (self.entrance.said)(&String::from_utf8_lossy(bytes)).into_bytes();
            }
        }
        found
    }

    /// Fails calls of `target` one after the other, at most `count`, evenly spread.
    pub(crate) fn fail_each(&self, target: Target, goes_on: bool, count: u64) -> Figures {
        restore(&self.folder, &self.given);
        let calls = self.run(&self.command(), no_fault(target)).calls;
        let mut figures = Figures { calls, ..Figures::default() };
        let tries = count.min(calls);
        for number in 0..tries {
            let fault = Fault { target, first: 1 + number * calls / tries, goes_on };
            restore(&self.folder, &self.given);
            let run = self.run(&self.command(), fault);
            figures.faults += u64::from(run.faults > 0);
            let told = match (run.end, self.broken(&run, fault)) {
                (End::Success, None) => &mut figures.success,
                (End::Error(_), None) => &mut figures.error,
                (_, None) => &mut figures.abort,
                (end, Some(law)) => {
                    let (name, what, message) = (self.entrance.name, &run.what, &run.message);
                    figures.broken.push(format!(
                        "{name}: {fault:?}: {what}: {end:?}: {law}\n    {}",
                        message.trim_end()
                    ));
                    continue;
                }
            };
            *told += 1;
        }
        figures
    }

    /// The law that a run broke.
    fn broken(&self, run: &Run, fault: Fault) -> Option<String> {
        let (message, target) = (&run.message, fault.target);
        let is_small = matches!(target, Target::Memory(bytes) if bytes < LARGE);
        let is_abort = is_small && ABORTS.iter().any(|words| message.contains(words));
        let bad_word = ["panicked", "internal error", "unreachable"];
        let bad_word = bad_word.iter().find(|&&word| message.contains(word));
        match (run.end, bad_word) {
            (End::Signal(ABORTED) | End::Error(PANICKED), _) if is_abort => {}
            (_, Some(word)) => return Some(format!("a panic, by the word {word:?}")),
            (End::Success, _) if self.entrance.is_refused => {
                return Some("it must fail".to_owned());
            }
            (End::Success, _) => {}
            (End::Error(code), _) if code != PANICKED => {
                if !message.lines().any(|line| line.starts_with("headwater")) {
                    return Some("an error without a message".to_owned());
                }
                if let Some(law) = self.unnamed(run, target) {
                    return Some(law);
                }
            }
            (end, _) => return Some(format!("it ended with {end:?}")),
        }
        self.broken_by_files(run, fault)
    }

    /// An error of a file names the file, and what the system said.
    fn unnamed(&self, run: &Run, target: Target) -> Option<String> {
        // SQLite takes an error of the disk for damage, and has words of its own; and the standard library
        // takes a folder for a file that it cannot look at (os error 17).
        let errors = match target {
            Target::Files => "os error 5|os error 17|I/O error|unable to open|malformed",
            Target::Interrupted => "os error 4|os error 17|I/O error|unable to open",
            Target::Space => "os error 28|full",
            Target::Parts => return None,
            Target::Memory(_) => "allocat|memory",
        };
        let told = errors.split('|').any(|error| run.message.contains(error));
        (!told && !self.entrance.is_refused)
            .then(|| format!("the message has not the cause {errors:?}"))
    }

    fn broken_by_files(&self, run: &Run, fault: Fault) -> Option<String> {
        let (found, outputs) = (self.found(), self.entrance.outputs);
        let is_input = |path: &Path| !outputs.iter().any(|output| path.starts_with(output));
        for (path, bytes) in &self.before {
            if is_input(path) && found.get(path) != Some(bytes) {
                return Some(format!("{} has changed", path.display()));
            }
        }
        for output in outputs {
            let [found, old, new] =
                [&found, &self.before, &self.after].map(|tree| part(tree, &[output], true));
            let is_right = match run.end {
                // A checkpoint that could not be written is of no use beside the result.
                End::Success => found == new || is_without_checkpoint(&found, &new),
                _ if self.entrance.in_place => true,
                _ if output.ends_with('/') => found.iter().all(|(path, bytes)| {
                    let versions = [&old, &new].map(|tree| tree.get(path));
                    versions.contains(&Some(bytes)) || versions == [None, None]
                }),
                _ => found == old || found == new,
            };
            if !is_right {
                let d = difference(&found, &new).unwrap_or_default();
                return Some(format!("{output} is neither the old one nor the right one: {d}"));
            }
        }
        if run.end == End::Success {
            let [said, expected] = [&found, &self.after].map(|tree| &tree[Path::new("stdout")]);
            let said = String::from_utf8_lossy(said.as_ref().unwrap());
            let is_excused = self.entrance.excuse.is_some_and(|excuse| said.contains(excuse));
            if !is_excused && Some(said.as_bytes()) != expected.as_deref() {
                return Some(format!("success, and yet it said {said}"));
            }
        }
        let without = |tree: &Tree| part(tree, &["stdout"], false);
        if [&self.before, &self.after].iter().any(|&tree| without(&found) == without(tree)) {
            return None;
        }
        // It removes what it has written, if it can.
        if self.entrance.in_place && (fault.goes_on || !matches!(run.end, End::Error(_))) {
            return None;
        }
        let again: Vec<&str> = self.entrance.again.split(' ').collect();
        let next = self.run(&again, no_fault(Target::Files));
        let is_refused = part(&found, outputs, true) == part(&self.after, outputs, true);
        if next.end != End::Success && !is_refused {
            return Some(format!("the next run ended with {:?}: {}", next.end, next.message));
        }
        let (mut left, mut expected) = (without(&self.found()), without(&self.after));
        // An earlier checkpoint stays beside the last. The cursor of a rank is advice: a rank that finds its
        // blocks folded does not write it.
        left.retain(|path, _| expected.contains_key(path) || !ends(path, "portion"));
        expected.retain(|path, _| left.contains_key(path) || !ends(path, "cursor"));
        let d = difference(&left, &expected);
        d.map(|d| format!("after the next run {d}"))
    }
}

fn no_fault(target: Target) -> Fault {
    Fault { target, first: 0, goes_on: false }
}

fn ends(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|end| end == extension)
}

/// Whether a folder of checkpoints lacks the last alone. Beside the result it is of no use.
fn is_without_checkpoint(found: &Tree, right: &Tree) -> bool {
    let is_checkpoint = |path: &Path| path.starts_with("ck") && ends(path, "portion");
    let mut rest = right.clone();
    rest.retain(|path, _| found.contains_key(path) || !is_checkpoint(path));
    // The temporary of that checkpoint is looked for after the next run.
    found.iter().filter(|(path, _)| !ends(path, "partial")).eq(&rest)
}

/// The first paths in which two trees differ.
fn difference(found: &Tree, expected: &Tree) -> Option<String> {
    let lacks = expected.keys().find(|path| !found.contains_key(*path));
    let has = found.keys().find(|path| !expected.contains_key(*path));
    let other = found.iter().find(|(path, bytes)| expected.get(*path).is_some_and(|e| e != *bytes));
    match (lacks, has, other) {
        (Some(path), ..) => Some(format!("{} is missing", path.display())),
        (_, Some(path), _) => Some(format!("{} is left", path.display())),
        (.., Some((path, _))) => Some(format!("{} has other bytes", path.display())),
        _ => None,
    }
}

impl fmt::Display for Figures {
    /// The cells of a row of the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, faults, success, error, abort, broken } = self;
        write!(f, "{calls} | {faults} | {success} | {error} | {abort} | {}", broken.len())
    }
}
