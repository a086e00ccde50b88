//! One state of a SQLite file, for all reads of a source.
//!
//! A source is read more than once, and its tables belong together: a row of one refers to a row of
//! another. So every connection begins a read transaction when the source is opened, and keeps it until
//! the source and its rows are dropped.
//!
//! With a rollback journal, the shared lock of such a transaction keeps every other process from
//! committing. With a WAL, others commit all the time, and each transaction has a snapshot; the snapshots
//! are of one state if nobody committed while the transactions began, which `PRAGMA data_version` tells.
//! Otherwise one connection remains, which has one state by itself.
//!
//! A lock of POSIX is lost when the process closes the file elsewhere, and a copy over the file asks for
//! none. So with a rollback journal, and with a WAL that is empty when the transactions begin, a file that has
//! changed all the same is refused: while they last, no process writes pages of an empty WAL to the file.
//!
//! A statement cannot leave the thread of its connection. Each thread therefore makes a batch of any of its
//! statements when one is wanted, so that rows of several tables can be read by turns.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use arrow_array::RecordBatch;
use rusqlite::{Connection, InterruptHandle, OpenFlags, Row, Statement};

use super::fault::{PATIENCE, fault};
use super::rows::Stream;
use super::varying::Varying;
use crate::error::{Error, Result};
use crate::prepare::source::Batches;
use crate::stamp::Stamp;

/// The most connections: as many tables are read at a time when a schema is drafted.
const CONNECTIONS: usize = 4;

/// The batches of each read that are made ahead.
const BATCHES_AHEAD: usize = 2;

/// The pause between two interrupts of a thread that is to end.
const INTERRUPT_EVERY: Duration = Duration::from_millis(1);

/// The connections of a source.
pub(super) struct Session {
    path: PathBuf,
    readers: Vec<Arc<Reader>>,
    /// The version of the file; none with a WAL that has pages, which come into the file at any time.
    version: Option<Stamp>,
    /// The number of the next read.
    next: AtomicU64,
}

/// A connection, in a thread of its own. Dropping it waits until the thread has closed the file.
struct Reader {
    /// None once the reader is dropped, which ends the thread.
    requests: Option<Sender<Request>>,
    interrupt: InterruptHandle,
    thread: Option<JoinHandle<()>>,
    /// The process of the thread: a forked child has none.
    process: u32,
}

/// What the thread of a connection is asked for.
enum Request {
    /// Runs this.
    Ask(Box<dyn FnOnce(&Connection) + Send>),
    /// Begins a read, which gets its batches through the channel.
    Open(u64, Stream, Sender<Result<Option<RecordBatch>>>),
    /// Makes the next batch of a read.
    Next(u64),
    /// Ends a read.
    Close(u64),
}

impl Session {
    /// Opens the file, and fixes the state that all reads see.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let connections = snapshots(path).map_err(|e| fault(path, &e))?;
        let mode = |row: &Row<'_>| row.get::<_, String>(0);
        let mode = connections[0].0.query_row("PRAGMA journal_mode", [], mode);
        let version = match mode.map_err(|e| fault(path, &e))?.as_str() {
            "wal" if has_pages(&wal_of(path)) => None,
            _ => Some(Stamp::of(path)?),
        };
        let mut readers = Vec::new();
        for (connection, varying) in connections {
            let (sender, requests) = channel();
            let interrupt = connection.get_interrupt_handle();
            let thread = std::thread::Builder::new()
                .name("headwater-sqlite".into())
                .spawn(move || serve(&connection, &varying, requests))
                .map_err(|e| Error::io(path, "starting a thread to read", e))?;
            readers.push(Arc::new(Reader {
                requests: Some(sender),
                interrupt,
                thread: Some(thread),
                process: std::process::id(),
            }));
        }
        Ok(Self { path: path.to_owned(), readers, version, next: AtomicU64::new(0) })
    }

    /// Returns what `read` returns on a connection.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> T + Send + 'static,
    ) -> Result<T> {
        let (sender, answer) = channel();
        let request = Request::Ask(Box::new(move |connection| {
            // Sending fails only if nobody waits for the answer.
            let _ = sender.send(read(connection));
        }));
        // The thread has ended if it does not take the request; then there is no answer, either.
        let _ = self.readers[0].send(request);
        answer.recv().map_err(|_| panicked(&self.path))
    }

    /// Begins a read.
    pub(super) fn stream(&self, stream: Stream) -> Result<Batches> {
        self.version.map_or(Ok(()), |version| version.check(&self.path))?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let reader = Arc::clone(&self.readers[number as usize % self.readers.len()]);
        let (sender, batches) = channel();
        let requests = std::iter::once(Request::Open(number, stream, sender))
            .chain((0..BATCHES_AHEAD).map(|_| Request::Next(number)));
        for request in requests {
            reader.send(request).map_err(|()| panicked(&self.path))?;
        }
        let (path, version) = (self.path.clone(), self.version);
        Ok(Box::new(Rows { path, version, reader, number, batches, has_ended: false }))
    }
}

impl Reader {
    /// Asks the thread for something; fails if it has ended.
    fn send(&self, request: Request) -> std::result::Result<(), ()> {
        self.requests.as_ref().and_then(|requests| requests.send(request).ok()).ok_or(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.requests = None;
        let Some(thread) = self.thread.take().filter(|_| self.process == std::process::id()) else {
            return;
        };
        // Nobody waits for what it still reads, which may take long.
        while !thread.is_finished() {
            self.interrupt.interrupt();
            std::thread::sleep(INTERRUPT_EVERY);
        }
        let _ = thread.join();
    }
}

/// The rows of a read.
struct Rows {
    path: PathBuf,
    version: Option<Stamp>,
    reader: Arc<Reader>,
    number: u64,
    batches: Receiver<Result<Option<RecordBatch>>>,
    has_ended: bool,
}

impl Iterator for Rows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let batch = self.batches.recv().unwrap_or_else(|_| Err(panicked(&self.path)));
        self.has_ended = !matches!(batch, Ok(Some(_)));
        if !self.has_ended {
            // If the thread has ended, the next batch is the error.
            let _ = self.reader.send(Request::Next(self.number));
        } else if let Some(Err(changed)) = self.version.map(|version| version.check(&self.path)) {
            return Some(Err(changed));
        }
        batch.transpose()
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        // If the thread has ended, so has the read.
        let _ = self.reader.send(Request::Close(self.number));
    }
}

/// Does what is asked for until nobody is left to ask.
fn serve(connection: &Connection, varying: &Varying, requests: Receiver<Request>) {
    let mut reads: HashMap<u64, (Statement<'_>, Stream, Sender<_>)> = HashMap::new();
    for request in requests {
        match request {
            Request::Ask(read) => read(connection),
            Request::Open(number, stream, sender) => match prepare(connection, varying, &stream) {
                Ok(statement) => drop(reads.insert(number, (statement, stream, sender))),
                // Sending fails only if nobody waits for the rows; so it is below.
                Err(error) => drop(sender.send(Err(error))),
            },
            Request::Next(number) => {
                if let Some((statement, stream, sender)) = reads.get_mut(&number) {
                    let _ = sender.send(stream.next_batch(statement, varying));
                }
            }
            Request::Close(number) => drop(reads.remove(&number)),
        }
    }
}

fn prepare<'a>(
    connection: &'a Connection,
    varying: &Varying,
    stream: &Stream,
) -> Result<Statement<'a>> {
    // Some errors of the disk end a transaction; another one would have another state.
    if connection.is_autocommit() {
        return Err(Error::data("the read transaction ended early; run this again"));
    }
    connection.prepare(&stream.query.sql).map_err(|e| stream.fault(&e, varying))
}

/// The path of the WAL beside a file.
pub(super) fn wal_of(path: &Path) -> PathBuf {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    wal.into()
}

fn has_pages(wal: &Path) -> bool {
    std::fs::metadata(wal).is_ok_and(|wal| wal.len() > 0)
}

fn panicked(path: &Path) -> Error {
    Error::data("internal error: the thread that reads the file panicked").context(path.display())
}

/// Returns connections that see the file in one state, at least one.
fn snapshots(path: &Path) -> rusqlite::Result<Vec<(Connection, Varying)>> {
    let watch = connect(path, PATIENCE)?;
    let version = || watch.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0));
    let before = version()?;
    let mut begun = vec![begin(path, PATIENCE)?];
    // A process that waits to commit lets no other transaction begin; do not wait for it.
    begun.extend((1..CONNECTIONS).map_while(|_| begin(path, Duration::ZERO).ok()));
    if version().ok() != Some(before) {
        begun.truncate(1);
    }
    Ok(begun)
}

/// Opens a connection and begins its read transaction.
fn begin(path: &Path, patience: Duration) -> rusqlite::Result<(Connection, Varying)> {
    let mut connection = connect(path, patience)?;
    let varying = Varying::watch(&mut connection)?;
    connection.execute_batch("BEGIN")?;
    // The first read takes the lock, or the snapshot.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok((connection, varying))
}

fn connect(path: &Path, patience: Duration) -> rusqlite::Result<Connection> {
    // Each connection is used by one thread at a time, so SQLite needs no mutex.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(patience)?;
    Ok(connection)
}
