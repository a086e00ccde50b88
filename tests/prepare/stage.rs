//! `headwater stage`: one verified copy of a store for all processes, or none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use headwater::ErrorKind;
use headwater::plan::{Assignment, Split};
use headwater::prepare::stage;
use headwater::progress::Silent;
use headwater::random::{Purpose, Stream};
use headwater::sampler::{Sampler, Settings, Speed};
use headwater::store::{METADATA_FILE, Metadata, Store};

use crate::full_disk::SmallDisk;
use crate::{Workshop, assert_same_folders, headwater, run, succeed};

const EVENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/checkpoints/events-v1-small");
const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/checkpoints/store-v4-small");

/// A folder with the demo shop as `store`; prepared once for all tests.
fn shop() -> &'static Workshop {
    static SHOP: OnceLock<Workshop> = OnceLock::new();
    SHOP.get_or_init(|| {
        let workshop = Workshop::new(&[]);
        fs::remove_dir(workshop.path("data")).unwrap();
        let (data, schema) = (workshop.text("data"), workshop.text("data/schema.toml"));
        succeed(&["demo-data", &data]);
        succeed(&["prepare", &data, "--schema", &schema, "--out", &workshop.text("store")]);
        workshop
    })
}

fn spawn(out: &Path) -> Child {
    let mut command = headwater();
    command.args(["stage", &shop().text("store"), out.to_str().unwrap(), "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Whether a command that must succeed made the copy.
fn has_copied(output: &Output) -> bool {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report["copied"].as_bool().unwrap()
}

/// A small store that a test may change, and the place of its copy.
struct Copied {
    folder: tempfile::TempDir,
}

impl Copied {
    fn of(store: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("store");
        assert!(Command::new("cp").arg("-r").arg(store).arg(to).status().unwrap().success());
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn stage(&self) -> headwater::Result<bool> {
        let report = stage(&self.path("store"), &self.path("copy"), &Silent)?;
        assert_same_folders(&self.path("store"), &self.path("copy"));
        Ok(report.copied)
    }

    /// Stages, which must fail and leave no new file; returns the message.
    fn refused(&self, kind: ErrorKind) -> String {
        let names = || {
            let listed = fs::read_dir(self.folder.path()).unwrap();
            let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let before = names();
        let error = stage(&self.path("store"), &self.path("copy"), &Silent).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(names(), before, "{error}");
        error.to_string().replace(self.folder.path().to_str().unwrap(), "DIR")
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_copy_has_the_bytes_of_the_store_and_is_made_once() {
    for store in [SMALL, EVENTS] {
        let copied = Copied::of(store);
        assert!(copied.stage().unwrap());
        assert!(!copied.stage().unwrap());
    }
    let out = shop().path("said");
    let said = |_| succeed(&["stage", &shop().text("store"), out.to_str().unwrap()]);
    let root = Store::open(&shop().path("store")).unwrap().root();
    for (run, words) in [": copied, ", ": there already, "].into_iter().enumerate() {
        let said = said(run);
        assert!(said.contains(words) && said.ends_with(&format!("root {root}\n")), "{said}");
    }
    assert_same_folders(&shop().path("store"), &out);
    succeed(&["verify", out.to_str().unwrap()]);
}

#[test]
fn batches_of_a_copy_are_those_of_the_store() {
    let out = shop().path("batches");
    stage(&shop().path("store"), &out, &Silent).unwrap();
    let batches = |path: &Path| {
        let store = Arc::new(Store::open(path).unwrap());
        let assignment = Assignment::new(0, 1).unwrap();
        let sampler =
            Sampler::new(vec![store], Settings::default(), assignment, Speed::default()).unwrap();
        let next = |_| {
            let (batch, _) = sampler.next(Split::Train).unwrap();
            let tensors = batch.tensors().map(|(tensor, bytes)| (tensor.clone(), bytes.to_vec()));
            tensors.collect::<Vec<_>>()
        };
        (0..5).map(next).collect::<Vec<_>>()
    };
    assert!(batches(&shop().path("store")) == batches(&out), "the batches differ");
}

/// Another process that makes a copy, until this is dropped.
struct OtherProcess {
    partial: PathBuf,
    _locked: fs::File,
}

impl OtherProcess {
    fn with(out: &Path) -> Self {
        let partial = PathBuf::from(format!("{}.partial", out.display()));
        fs::create_dir(&partial).unwrap();
        fs::write(partial.join("graph.bin"), "half").unwrap();
        let locked = fs::File::open(&partial).unwrap();
        locked.lock().unwrap();
        Self { partial, _locked: locked }
    }
}

/// Waits some time in which nothing must happen.
fn pause() {
    sleep(Duration::from_millis(400));
}

#[test]
fn of_several_processes_one_copies_and_the_others_wait() {
    let out = shop().path("together");
    // As if a process had been killed while the others waited for it.
    let busy = OtherProcess::with(&out);
    let mut children: Vec<_> = (0..4).map(|_| spawn(&out)).collect();
    pause();
    for child in &mut children {
        assert!(child.try_wait().unwrap().is_none(), "it does not wait");
    }
    assert!(busy.partial.join("graph.bin").exists() && !out.exists());
    let partial = busy.partial.clone();
    drop(busy);
    let ended = children.into_iter().map(|child| child.wait_with_output().unwrap());
    assert_eq!(ended.filter(has_copied).count(), 1);
    assert_same_folders(&shop().path("store"), &out);
    assert!(!partial.exists());
}

#[test]
fn a_waiting_process_reports_the_failure_of_the_copying_one() {
    let out = shop().path("failed");
    let busy = OtherProcess::with(&out);
    let child = spawn(&out);
    pause();
    fs::remove_dir_all(&busy.partial).unwrap();
    drop(busy);
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("and failed; see its message, and run this again"), "{message}");
    assert!(!out.exists());
    assert!(has_copied(&spawn(&out).wait_with_output().unwrap()));
}

#[test]
fn an_interrupt_ends_the_waiting() {
    let out = shop().path("waiting");
    let busy = OtherProcess::with(&out);
    for signal in ["-INT", "-TERM"] {
        let child = spawn(&out);
        pause();
        let sent = Instant::now();
        let id = child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        assert!(sent.elapsed() < Duration::from_secs(5));
        assert!(busy.partial.join("graph.bin").exists() && !out.exists());
    }
}

#[test]
fn p6_killed_at_any_moment_leaves_no_copy_or_a_complete_one() {
    let out = shop().path("killed");
    let started = Instant::now();
    assert!(has_copied(&spawn(&out).wait_with_output().unwrap()));
    let (mut duration, mut killed) = (started.elapsed(), 0);
    fs::remove_dir_all(&out).unwrap();
    let mut random = Stream::new(2, Purpose::Split, [0x57a6e, 0, 0]);
    for _ in 0..20 {
        let mut child = spawn(&out);
        sleep(duration.mul_f64(random.below(1000) as f64 / 1000.0));
        child.kill().unwrap();
        child.wait().unwrap();
        if out.exists() {
            Store::open(&out).unwrap().verify(&|_| Ok(())).unwrap();
            fs::remove_dir_all(&out).unwrap();
            duration = duration.mul_f64(0.8);
        } else {
            killed += 1;
        }
    }
    assert!(killed > 3, "only {killed} were killed before their end");
    assert!(has_copied(&spawn(&out).wait_with_output().unwrap()));
    assert_same_folders(&shop().path("store"), &out);
    assert!(!shop().path("killed.partial").exists());
}

#[test]
fn a_damaged_store_is_not_copied() {
    for file in ["graph.bin", "tables/customers.bin"] {
        let copied = Copied::of(SMALL);
        // The first block after the header.
        flip(&copied.path("store").join(file), 64);
        let message = copied.refused(ErrorKind::Corrupt);
        let place = format!("DIR/store/{file}: section \"");
        assert!(message.starts_with(&place), "{message}");
        let words =
            "of the file do not match their digest; copy the store again from an intact copy";
        assert!(message.contains("the bytes 64..") && message.contains(words), "{message}");
        // In the header, and in the section table at the end.
        flip(&copied.path("store").join(file), 64);
        let length = fs::metadata(copied.path("store").join(file)).unwrap().len() as usize;
        for at in [20, length - 1] {
            flip(&copied.path("store").join(file), at);
            copied.refused(ErrorKind::Corrupt);
            flip(&copied.path("store").join(file), at);
        }
        assert!(copied.stage().unwrap());
    }
    let copied = Copied::of(SMALL);
    fs::remove_file(copied.path("store/graph.bin")).unwrap();
    assert!(copied.refused(ErrorKind::Corrupt).contains("graph.bin is missing"));
}

#[test]
fn a_file_or_another_store_at_the_copy_is_refused_and_stays() {
    let copied = Copied::of(SMALL);
    let root = Store::open(&copied.path("store")).unwrap().root();
    let expected = |found: &str| {
        format!(
            "DIR/copy: expected nothing, or a copy of the store DIR/store with root {root}, found \
             {found}; move it away, or choose another folder"
        )
    };
    let out = copied.path("copy");
    fs::write(&out, "mine").unwrap();
    assert_eq!(copied.refused(ErrorKind::InvalidArgument), expected("something else"));
    assert_eq!(fs::read(&out).unwrap(), b"mine");
    fs::remove_file(&out).unwrap();
    fs::create_dir(&out).unwrap();
    assert_eq!(copied.refused(ErrorKind::InvalidArgument), expected("something else"));
    fs::remove_dir(&out).unwrap();
    stage(EVENTS.as_ref(), &out, &Silent).unwrap();
    assert_eq!(copied.refused(ErrorKind::InvalidArgument), expected("something else"));
    fs::remove_dir_all(&out).unwrap();
    let other = shop().path("store");
    stage(&other, &out, &Silent).unwrap();
    let other_root = Store::open(&other).unwrap().root();
    let found = format!("a store with root {other_root}");
    assert_eq!(copied.refused(ErrorKind::InvalidArgument), expected(&found));
    assert_same_folders(&other, &out);
    fs::remove_dir_all(&out).unwrap();

    // A copy that was cut off later.
    copied.stage().unwrap();
    let graph = fs::read(out.join("graph.bin")).unwrap();
    fs::write(out.join("graph.bin"), &graph[..graph.len() - 64]).unwrap();
    let message = copied.refused(ErrorKind::Corrupt);
    let start =
        "the copy in DIR/copy cannot be used; remove it, and copy again: DIR/copy/graph.bin: ";
    assert!(message.starts_with(start), "{message}");
}

#[test]
fn no_file_is_written_outside_the_copy() {
    let copied = Copied::of(SMALL);
    let store = copied.path("store");
    let file = store.join(METADATA_FILE);
    let mut metadata: Metadata = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    // There is such a file, so only the check of the path refuses it.
    let graph = metadata.files.iter_mut().find(|file| file.path == "graph.bin").unwrap();
    fs::copy(store.join("graph.bin"), copied.path("graph.bin")).unwrap();
    graph.path = "../graph.bin".to_owned();
    fs::write(&file, metadata.encode().unwrap()).unwrap();
    let message = copied.refused(ErrorKind::Corrupt);
    assert!(message.contains("the file \"../graph.bin\" lies outside the store"), "{message}");
}

#[test]
fn bad_arguments_are_refused() {
    let copied = Copied::of(SMALL);
    let (store, inside) = (copied.path("store"), copied.path("store/copy"));
    let (store, inside) = (store.to_str().unwrap(), inside.to_str().unwrap());
    let folder = copied.folder.path().to_str().unwrap();
    for (arguments, status, words) in [
        (&["stage", store][..], 2, "<COPY>"),
        (&["stage", store, "/", "x"], 2, "unexpected argument 'x'"),
        (&["stage", folder, inside], 3, "not a store"),
        (&["stage", "/nowhere", inside], 1, "/nowhere"),
        (&["stage", store, inside], 1, "expected a folder outside of stores"),
        (&["stage", store, "/"], 1, "found something else"),
    ] {
        let output = run(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{message}");
        assert!(message.contains(words), "{message}");
    }
    Store::open(Path::new(store)).unwrap().verify(&|_| Ok(())).unwrap();
}

#[test]
fn a_full_disk_is_reported_and_no_half_copy_is_left() {
    let store = shop().path("store");
    let bytes = Store::open(&store).unwrap().file_bytes();
    for share in [2, 50, 95] {
        let size = (bytes * share / 100).to_string();
        let at = shop().path(&format!("copy on a disk of {size}"));
        let Some(_disk) = SmallDisk::mount(&at, &size) else {
            eprintln!("SKIPPED: mounting a small disk needs root; nothing was tested");
            return;
        };
        let out = at.join("copy");
        let message = stage(&store, &out, &Silent).unwrap_err().to_string();
        assert!(message.starts_with("copying ") && message.contains("copy.partial"), "{message}");
        let remedy = format!(
            "; the copy needs {bytes} bytes: free them there, or choose another disk than that of {}",
            out.display()
        );
        assert!(message.ends_with(&remedy), "{message}");
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0, "{size}: something is left");
    }
}
