//! Runs programs under `inject.c`, which fails their n-th call.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time of a command: a hundred times what it takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Calls about files: EIO.
    Files,
    /// Calls about files: EINTR.
    Interrupted,
    /// Calls that need space: ENOSPC.
    Space,
    /// Reads and writes, which move a part of the bytes.
    Parts,
    /// Allocations of at least so many bytes.
    Memory(u64),
}

impl Target {
    /// The numbers that `inject.c` has for calls and error.
    fn numbers(self) -> [u64; 2] {
        match self {
            Self::Files => [0, 5],
            Self::Interrupted => [0, 4],
            Self::Space => [1, 28],
            Self::Parts => [2, 0],
            Self::Memory(_) => [3, 12],
        }
    }
}

/// The calls that fail, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) target: Target,
    pub(crate) first: u64,
    pub(crate) goes_on: bool,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Success,
    Error(i32),
    Signal(i32),
    /// It did not end.
    Hang,
}

/// A run of a command, in which a call failed or not.
pub(crate) struct Run {
    pub(crate) end: End,
    pub(crate) message: String,
    /// The calls of the target, and those that failed.
    pub(crate) calls: u64,
    pub(crate) faults: u64,
    /// The call that failed first, with its file.
    pub(crate) what: String,
}

/// The library, compiled once; `None` where it cannot be.
pub(crate) fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            if !cfg!(all(target_os = "linux", target_env = "gnu")) {
                eprintln!(
                    "SKIPPED: faults are injected on Linux with glibc alone; nothing was tested"
                );
                return None;
            }
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/inject.c");
            let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inject.so");
            let options = ["-shared", "-fPIC", "-O1", "-o"];
            let compiled = Command::new("cc").args(options).arg(&out).arg(source).status();
            assert!(compiled.expect("expected a C compiler, cc").success(), "{source}");
            Some(out)
        })
        .as_deref()
}

/// Runs `command` in `folder`, with its output in the file `stdout` there, below which its calls are
/// counted. Other files of the run lie in `beside`.
pub(crate) fn run(command: &mut Command, folder: &Path, beside: &Path, fault: Fault) -> Run {
    let (state, message) = (beside.join("state"), beside.join("message"));
    let [target, error] = fault.target.numbers();
    let last = if fault.goes_on { u64::MAX } else { fault.first };
    let bytes_min = if let Target::Memory(bytes) = fault.target { bytes } else { 0 };
    let mut words = [0; 64];
    words[..6].copy_from_slice(&[target, fault.first, last, error, bytes_min, 1]);
    fs::write(&state, words.map(u64::to_le_bytes).concat()).unwrap();
    command.current_dir(folder).stdin(Stdio::null());
    command.stdout(File::create(folder.join("stdout")).unwrap());
    command.stderr(File::create(&message).unwrap());
    command.env("LD_PRELOAD", library().unwrap()).env("FAULTS_STATE", &state);
    command.env("FAULTS_FOLDER", folder).env("RUST_BACKTRACE", "0");
    let mut child = command.spawn().unwrap();
    let begin = Instant::now();
    let end = loop {
        match child.try_wait().unwrap() {
            Some(status) => match (status.code(), status.signal()) {
                (Some(0), _) => break End::Success,
                (Some(code), _) => break End::Error(code),
                (None, signal) => break End::Signal(signal.unwrap()),
            },
            None if begin.elapsed() > PATIENCE => {
                child.kill().unwrap();
                child.wait().unwrap();
                break End::Hang;
            }
            None => sleep(Duration::from_micros(500)),
        }
    };
    let bytes = fs::read(&state).unwrap();
    let number = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap());
    let what = bytes[64..].split(|&byte| byte == 0).next().unwrap();
    let what = String::from_utf8_lossy(what).replace(&format!("{}/", folder.display()), "");
    let message = String::from_utf8_lossy(&fs::read(&message).unwrap()).into_owned();
    Run { end, message, calls: number(6), faults: number(7), what }
}
