//! The error type of the crate: what was expected, what was found, where, and what to do.

use std::fmt;
use std::path::Path;

/// The result of every fallible function of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error; Python has one exception class for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system failed: a missing file, a full disk, a lost connection.
    Io,
    /// The bytes are not a headwater file of the expected kind.
    NotOurs,
    /// A headwater file of a format version that this build does not read.
    Version,
    /// A damaged headwater file.
    Corrupt,
    /// A limit of a format, a setting or the machine is exceeded.
    LimitExceeded,
    /// An argument is not valid.
    InvalidArgument,
    /// The schema does not describe the data, or contradicts itself.
    Schema,
    /// The source data break a rule of the schema.
    Data,
    /// A cursor or checkpoint belongs to another plan, data or format.
    PlanMismatch,
    /// The work was stopped from outside (Ctrl-C).
    Interrupted,
    /// A sampler was used after it was shut down.
    Shutdown,
}

/// An error with its kind and its place.
///
/// Context is added on the way up, outermost first, so that the message reads from the general to
/// the particular: `table "orders": column "price": row 17: expected a number, found "abc"`.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<std::io::Error>,
}

/// EIO, EUCLEAN and EBADMSG: the disk or its file system cannot read the data.
const UNREADABLE: &[i32] = if cfg!(target_os = "linux") { &[5, 117, 74] } else { &[5] };

impl Error {
    /// Returns an error of `kind` with `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), source: None }))
    }

    /// Returns an operating system's error, with the action and the path.
    #[must_use]
    pub fn io(path: &Path, action: &str, source: std::io::Error) -> Self {
        let message = format!("{action} {}: {source}", path.display());
        Self(Box::new(Inner { kind: ErrorKind::Io, message, source: Some(source) }))
    }

    /// Puts a place in front of the message.
    #[must_use]
    pub fn context(mut self, place: impl fmt::Display) -> Self {
        self.0.message = format!("{place}: {}", self.0.message);
        self
    }

    /// Puts a remedy after the message.
    #[must_use]
    pub(crate) fn followed_by(mut self, remedy: &str) -> Self {
        self.0.message.push_str(remedy);
        self
    }

    /// Puts a remedy after the message, in place of another if that is its end.
    #[cfg(feature = "prepare")]
    #[must_use]
    pub(crate) fn remedied(mut self, other: &str, remedy: &str) -> Self {
        let what = self.0.message.strip_suffix(other).unwrap_or(&self.0.message);
        self.0.message = format!("{what}{remedy}");
        self
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether a file cannot be read because it, or the disk below it, is damaged: its rows are to be
    /// folded again.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        let number = self.os_error().and_then(std::io::Error::raw_os_error);
        matches!(self.kind(), ErrorKind::Corrupt | ErrorKind::NotOurs)
            || number.is_some_and(|number| UNREADABLE.contains(&number))
    }

    /// Whether bytes are not those that this build writes: damaged, of another kind or version.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        matches!(self.kind(), ErrorKind::NotOurs | ErrorKind::Version | ErrorKind::Corrupt)
    }

    /// Returns the operating system's error that caused it, if there is one.
    #[must_use]
    pub fn os_error(&self) -> Option<&std::io::Error> {
        self.0.source.as_ref()
    }

    /// Whether a disk or a quota is full.
    #[cfg(any(feature = "prepare", feature = "reduce"))]
    pub(crate) fn is_of_full_disk(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        self.os_error().is_some_and(|e| matches!(e.kind(), StorageFull | QuotaExceeded))
    }

    /// Puts a remedy after the message if there was nothing at the path.
    #[must_use]
    pub(crate) fn followed_if_not_found(self, remedy: &str) -> Self {
        match self.os_error().is_some_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            true => self.followed_by(remedy),
            false => self,
        }
    }
}

/// A `main` that returns the error prints this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as _)
    }
}

/// Short constructors, one for each kind that has only a message.
macro_rules! constructors {
    ($($name:ident => $kind:ident),* $(,)?) => {
        impl Error {
            $(
                #[doc = concat!("Returns an error of kind [`ErrorKind::", stringify!($kind), "`].")]
                pub fn $name(message: impl Into<String>) -> Self {
                    Self::new(ErrorKind::$kind, message)
                }
            )*
        }
    };
}

constructors! {
    not_ours => NotOurs,
    version => Version,
    corrupt => Corrupt,
    limit => LimitExceeded,
    invalid => InvalidArgument,
    schema => Schema,
    data => Data,
    mismatch => PlanMismatch,
    interrupted => Interrupted,
    shutdown => Shutdown,
}

/// Adds a place to the error of a result.
pub trait Context<T> {
    /// Puts the result of `place` in front of the message; calls it only on an error.
    ///
    /// # Errors
    /// The given error, with its place.
    fn context<D: fmt::Display>(self, place: impl FnOnce() -> D) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context<D: fmt::Display>(self, place: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|e| e.context(place()))
    }
}
