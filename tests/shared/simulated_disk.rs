//! A disk in memory that fails at a chosen call, and simulates a loss of power.
//!
//! Bytes and names each have two states: the one that programs see, and the one on the medium.
//! Between two fsyncs any part of the difference may reach the medium, in any order; the tests try
//! the four extremes.
#![allow(dead_code, reason = "each test suite uses a part of it")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use headwater::durable::{Entry, NewFile, Storage};

/// The failure at the chosen call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Breakage {
    /// This call fails, half done if possible; later calls work.
    FailOnce,
    /// This call and all later calls that need space fail.
    Full,
    /// This call is half done if possible; later calls have no effect.
    PowerLoss,
}

/// Whether unsynced names and bytes survive a loss of power.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Survival {
    pub(crate) all_names: bool,
    pub(crate) all_bytes: bool,
}

pub(crate) const SURVIVALS: [Survival; 4] = [
    Survival { all_names: true, all_bytes: true },
    Survival { all_names: true, all_bytes: false },
    Survival { all_names: false, all_bytes: true },
    Survival { all_names: false, all_bytes: false },
];

type Names = BTreeMap<OsString, usize>;

#[derive(Clone)]
enum Node {
    File { seen: Vec<u8>, durable: Vec<u8> },
    Folder { seen: Names, durable: Names },
}

struct State {
    /// Node 0 is the root.
    nodes: Vec<Node>,
    calls: usize,
    breakage: Option<(usize, Breakage)>,
    /// The calls that read or list until one of them fails.
    until_unread: Option<usize>,
}

#[derive(Clone)]
pub(crate) struct SimulatedDisk(Arc<Mutex<State>>);

/// The part of a call that is done.
#[derive(PartialEq)]
enum Part {
    Whole,
    Half,
    Nothing,
}

impl State {
    /// Counts a call that changes the disk; returns the part of it to do.
    fn begin(&mut self, needs_space: bool) -> Part {
        let call = self.calls;
        self.calls += 1;
        match self.breakage {
            Some((at, Breakage::FailOnce)) if call == at => Part::Half,
            Some((at, Breakage::Full)) if call >= at && needs_space => Part::Half,
            Some((at, Breakage::PowerLoss)) if call == at => Part::Half,
            Some((at, Breakage::PowerLoss)) if call > at => Part::Nothing,
            _ => Part::Whole,
        }
    }

    /// Returns the result of a call that was done in part.
    fn end(&self, part: &Part) -> io::Result<()> {
        match self.breakage {
            Some((_, Breakage::FailOnce | Breakage::Full)) if *part != Part::Whole => {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            _ => Ok(()),
        }
    }

    /// Counts a call that reads; the chosen one fails once, as that of a disk whose error passes.
    fn begin_to_read(&mut self) -> io::Result<()> {
        let left = self.until_unread.take();
        self.until_unread = left.and_then(|left| left.checked_sub(1));
        if left == Some(0) { Err(io::Error::other("a passing error of the disk")) } else { Ok(()) }
    }

    fn find(&self, path: &Path) -> Option<usize> {
        path.iter().filter(|name| *name != ".").try_fold(0, |node, name| match &self.nodes[node] {
            Node::Folder { seen, .. } => seen.get(name).copied(),
            Node::File { .. } => None,
        })
    }

    fn must_find(&self, path: &Path) -> io::Result<usize> {
        self.find(path).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn names(&mut self, folder: &Path) -> io::Result<&mut Names> {
        let node = self.must_find(folder)?;
        match &mut self.nodes[node] {
            Node::Folder { seen, .. } => Ok(seen),
            Node::File { .. } => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        }
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<usize> {
        let number = self.nodes.len();
        self.nodes.push(node);
        self.names(parent(path))?.insert(name(path).to_owned(), number);
        Ok(number)
    }

    fn sync(&mut self, node: usize) {
        match &mut self.nodes[node] {
            Node::File { seen, durable } => durable.clone_from(seen),
            Node::Folder { seen, durable } => durable.clone_from(seen),
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap()
}

fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap()
}

impl SimulatedDisk {
    pub(crate) fn new() -> Self {
        let root = Node::Folder { seen: Names::new(), durable: Names::new() };
        Self::of(vec![root])
    }

    fn of(nodes: Vec<Node>) -> Self {
        let state = State { nodes, calls: 0, breakage: None, until_unread: None };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Fails once at the reading or listing call that is `at` such calls from now, counted from 0.
    pub(crate) fn break_reading_at(&self, at: usize) {
        self.0.lock().unwrap().until_unread = Some(at);
    }

    /// Fails at the call that is `at` calls from now, counted from 0.
    pub(crate) fn break_at(&self, at: usize, breakage: Breakage) {
        let mut state = self.0.lock().unwrap();
        state.breakage = Some((state.calls + at, breakage));
    }

    pub(crate) fn mend(&self) {
        let mut state = self.0.lock().unwrap();
        (state.breakage, state.until_unread) = (None, None);
    }

    /// Returns a guard, while which lives all calls wait.
    pub(crate) fn busy(&self) -> impl Drop + '_ {
        self.0.lock().unwrap()
    }

    pub(crate) fn calls(&self) -> usize {
        self.0.lock().unwrap().calls
    }

    /// Adds a durable file.
    pub(crate) fn put(&self, path: &Path, bytes: &[u8]) {
        let node = Node::File { seen: bytes.to_vec(), durable: bytes.to_vec() };
        self.0.lock().unwrap().add(path, node).unwrap();
        self.sync_folder(parent(path)).unwrap();
    }

    /// Adds an unsynced folder.
    pub(crate) fn put_folder(&self, path: &Path) {
        let node = Node::Folder { seen: Names::new(), durable: Names::new() };
        self.0.lock().unwrap().add(path, node).unwrap();
    }

    /// Returns the disk after a loss of power.
    pub(crate) fn after_power_loss(&self, survival: Survival) -> Self {
        let mut nodes = self.0.lock().unwrap().nodes.clone();
        for node in &mut nodes {
            match node {
                Node::File { seen, durable } if survival.all_bytes => durable.clone_from(seen),
                Node::Folder { seen, durable } if survival.all_names => durable.clone_from(seen),
                Node::File { seen, durable } => seen.clone_from(durable),
                Node::Folder { seen, durable } => seen.clone_from(durable),
            }
        }
        Self::of(nodes)
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    /// None for a file that was created after the power was lost.
    node: Option<usize>,
}

impl NewFile for SimulatedFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.0.lock().unwrap();
        let part = state.begin(true);
        let written = match part {
            Part::Whole => bytes,
            Part::Half => &bytes[..bytes.len() / 2],
            Part::Nothing => &[],
        };
        if let Some(Node::File { seen, .. }) = self.node.map(|n| &mut state.nodes[n]) {
            seen.extend_from_slice(written);
        }
        state.end(&part)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.0.lock().unwrap();
        let part = state.begin(true);
        if let (Part::Whole, Some(node)) = (&part, self.node) {
            state.sync(node);
        }
        state.end(&part)
    }
}

impl Storage for SimulatedDisk {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let mut state = self.0.lock().unwrap();
        let part = state.begin(true);
        if state.find(path).is_some() {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        state.end(&part)?;
        let empty = Node::File { seen: Vec::new(), durable: Vec::new() };
        let node = if part == Part::Whole { Some(state.add(path, empty)?) } else { None };
        Ok(Box::new(SimulatedFile { disk: self.clone(), node }))
    }

    /// A disk in memory has one writer at a time, so that every file of an earlier one is abandoned.
    fn remove_abandoned(&self, path: &Path) -> io::Result<bool> {
        if self.exists(path)? { self.remove_file(path).map(|()| true) } else { Ok(false) }
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        let part = state.begin(true);
        let node = state.must_find(path)?;
        if part == Part::Whole {
            state.sync(node);
        }
        state.end(&part)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.sync_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        let part = state.begin(true);
        if part == Part::Whole {
            let node = state.must_find(from)?;
            state.names(parent(from))?.remove(name(from));
            state.names(parent(to))?.insert(name(to).to_owned(), node);
        }
        state.end(&part)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        let part = state.begin(true);
        if part == Part::Whole {
            let (first, second) = (state.must_find(one)?, state.must_find(other)?);
            state.names(parent(one))?.insert(name(one).to_owned(), second);
            state.names(parent(other))?.insert(name(other).to_owned(), first);
        }
        state.end(&part)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        let part = state.begin(false);
        if part == Part::Whole {
            state.must_find(path)?;
            state.names(parent(path))?.remove(name(path));
        }
        state.end(&part)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let mut state = self.0.lock().unwrap();
        state.begin_to_read()?;
        let names = state.names(folder)?.clone();
        let is_folder = |n: usize| matches!(state.nodes[n], Node::Folder { .. });
        Ok(names.into_iter().map(|(name, n)| Entry { name, is_folder: is_folder(n) }).collect())
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.0.lock().unwrap();
        state.begin_to_read()?;
        match &state.nodes[state.must_find(path)?] {
            Node::File { seen, .. } => Ok(seen.clone()),
            Node::Folder { .. } => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.0.lock().unwrap().find(path).is_some())
    }
}
