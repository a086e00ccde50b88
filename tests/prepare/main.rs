//! The `headwater` command from data to a store: bad input, broken disks, kills, real data.

mod audit;
mod bad_input;
mod bad_types;
mod crash;
mod environment;
mod f1db;
#[path = "../shared/f1db.rs"]
mod f1db_files;
mod full_disk;
mod inspect;
mod key_types;
mod later;
mod limits;
mod openings;
mod page;
mod parts;
mod scales;
mod stage;
mod strict;
mod until;
mod whole;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use headwater::store::Store;

/// Returns the command without arguments.
fn headwater() -> Command {
    Command::new(env!("CARGO_BIN_EXE_headwater"))
}

fn run(arguments: &[&str]) -> Output {
    headwater().args(arguments).output().unwrap()
}

/// Runs the command, which must succeed; returns its output.
fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// A folder for data, a schema and a store.
struct Workshop {
    folder: tempfile::TempDir,
}

impl Workshop {
    fn new(files: &[(&str, &str)]) -> Self {
        let workshop = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(workshop.path("data")).unwrap();
        for (name, text) in files {
            std::fs::write(workshop.path("data").join(name), text).unwrap();
        }
        workshop
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Prepares the data with this schema.
    fn prepare(&self, schema: &str) -> Output {
        std::fs::write(self.path("schema.toml"), schema).unwrap();
        let (data, schema, out) = (self.text("data"), self.text("schema.toml"), self.text("db"));
        run(&["prepare", &data, "--schema", &schema, "--out", &out, "--dimension", "8"])
    }

    /// Prepares, which must fail with status 1 and leave no files; returns its message.
    fn refused(&self, schema: &str) -> String {
        let output = self.prepare(schema);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        for rest in ["db", "db.partial"] {
            assert!(std::fs::symlink_metadata(self.path(rest)).is_err(), "{rest}: {message}");
        }
        let folder = self.folder.path().to_str().unwrap();
        let message = message.replace(folder, "DIR");
        let message = message.strip_prefix("headwater: ").unwrap_or_else(|| panic!("{message}"));
        message.trim_end().to_owned()
    }

    /// Drafts a schema, prepares with it unedited, and verifies; returns the store.
    fn unedited(&self, source: &Path) -> Store {
        let source = source.to_str().unwrap();
        let (schema, out) = (self.text("drafted.toml"), self.text("drafted.db"));
        succeed(&["schema", source, "--cell-tasks", "--out", &schema]);
        succeed(&["prepare", source, "--schema", &schema, "--out", &out, "--no-text-vectors"]);
        succeed(&["verify", &out]);
        Store::open(Path::new(&out)).unwrap()
    }
}

/// Asserts that two folders have the same files.
fn assert_same_folders(a: &Path, b: &Path) {
    let output = Command::new("diff").args(["-r"]).arg(a).arg(b).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
