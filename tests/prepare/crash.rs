//! Kills and concurrent preparations: a store is complete or does not exist.

use std::path::Path;
#[cfg(unix)]
use std::process::Command;
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use headwater::random::{Purpose, Stream};
use headwater::store::Store;

use crate::{Workshop, assert_same_folders, headwater, run, succeed};

/// The demo shop, and the duration of its preparation.
struct Shop {
    workshop: Workshop,
    duration: Duration,
}

/// Prepared once for all tests of this file, with a store at `whole`.
fn shop() -> &'static Shop {
    static SHOP: OnceLock<Shop> = OnceLock::new();
    SHOP.get_or_init(|| {
        let workshop = Workshop::new(&[]);
        std::fs::remove_dir(workshop.path("data")).unwrap();
        succeed(&["demo-data", &workshop.text("data")]);
        let started = Instant::now();
        assert!(spawn(&workshop, "whole").wait().unwrap().success());
        Shop { workshop, duration: started.elapsed() }
    })
}

fn arguments(workshop: &Workshop, out: &str) -> [String; 6] {
    let (data, schema) = (workshop.text("data"), workshop.text("data/schema.toml"));
    ["prepare".into(), data, "--schema".into(), schema, "--out".into(), workshop.text(out)]
}

fn spawn(workshop: &Workshop, out: &str) -> Child {
    let arguments = arguments(workshop, out);
    headwater().args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Asserts that `out` does not exist or is a complete store.
fn assert_complete_or_missing(out: &Path) -> bool {
    if std::fs::symlink_metadata(out).is_err() {
        return false;
    }
    Store::open(out).unwrap().verify(&|_| Ok(())).unwrap();
    true
}

#[test]
fn p6_killed_at_any_moment_leaves_no_store_or_a_complete_one() {
    let Shop { workshop, duration } = shop();
    let mut random = Stream::new(2, Purpose::Split, [0xdead, 0, 0]);
    let out = workshop.path("killed");
    let (mut killed, mut share) = (0, 1.0);
    for number in 0..20 {
        let mut child = spawn(workshop, "killed");
        // The moments cover the whole duration, and a little more.
        let thousandths = number % 10 * 105 + random.below(105);
        sleep(duration.mul_f64(share * thousandths as f64 / 1000.0));
        child.kill().unwrap();
        child.wait().unwrap();
        if assert_complete_or_missing(&out) {
            std::fs::remove_dir_all(&out).unwrap();
            // The machine was busier when the duration was measured.
            share *= 0.8;
        } else {
            killed += 1;
        }
    }
    assert!(killed > 5, "only {killed} were killed before their end");
    // The next preparation succeeds in spite of their files.
    assert!(spawn(workshop, "killed").wait().unwrap().success());
    assert_same_folders(&workshop.path("whole"), &out);
    assert!(!workshop.path("killed.partial").exists());
}

/// Waits until `path` exists.
#[cfg(unix)]
fn wait_for(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !path.exists() {
        assert!(Instant::now() < deadline, "{} does not appear", path.display());
        sleep(Duration::from_millis(1));
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_nothing_and_is_reported() {
    let Shop { workshop, .. } = shop();
    let (out, partial) = (workshop.path("interrupted"), workshop.path("interrupted.partial"));
    for signal in ["-INT", "-TERM"] {
        let arguments = arguments(workshop, "interrupted");
        let mut command = headwater();
        let command = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        wait_for(&partial.join("staging"));
        let sent = Instant::now();
        let id = child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{signal}: {message}");
        assert!(message.ends_with("interrupted; nothing was written\n"), "{message}");
        assert!(sent.elapsed() < Duration::from_secs(2));
        assert!(!partial.exists() && !out.exists());
    }
}

#[test]
fn two_preparations_of_one_store_exclude_each_other() {
    let Shop { workshop, duration } = shop();
    let mut refused = 0;
    for share in [0.2, 0.5, 0.8, 0.95] {
        let mut first = spawn(workshop, "twice");
        sleep(duration.mul_f64(share));
        let arguments = arguments(workshop, "twice");
        let second = run(&arguments.each_ref().map(String::as_str));
        let message = String::from_utf8(second.stderr).unwrap();
        assert!(first.wait().unwrap().success(), "the first: {message}");
        assert!(!second.status.success());
        let in_use = format!(
            "headwater: another process is preparing {}; wait until it ends, or choose another \
             folder\n",
            workshop.text("twice.partial")
        );
        let exists = format!(
            "headwater: {} is there already; choose another folder, or replace the store there \
             (--force, force=True)\n",
            workshop.text("twice")
        );
        assert!(message == in_use || message == exists, "{message}");
        refused += usize::from(message == in_use);
        assert_same_folders(&workshop.path("whole"), &workshop.path("twice"));
        assert!(!workshop.path("twice.partial").exists());
        std::fs::remove_dir_all(workshop.path("twice")).unwrap();
    }
    assert!(refused > 0);
}

#[test]
fn p6_killed_with_force_leaves_the_old_store_or_the_new_one() {
    let Shop { workshop, duration } = shop();
    let mut random = Stream::new(2, Purpose::Split, [0xf0, 0, 0]);
    let out = workshop.path("forced");
    let dimension = |number: u64| ["16", "24"][number as usize % 2];
    let spawn = |number: u64| {
        let arguments = arguments(workshop, "forced");
        let options = ["--force", "--dimension", dimension(number)];
        let command = &mut headwater();
        command.args(arguments).args(options).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    // Without a store there it makes one.
    assert!(spawn(0).wait().unwrap().success());
    let dimension_there = || Store::open(&out).unwrap().metadata().embedding.dimension.to_string();
    assert_eq!(dimension_there(), dimension(0));
    let (mut old, mut new) = (0, 0);
    for number in 1..16 {
        let before = dimension_there();
        let mut child = spawn(number);
        let thousandths = number % 5 * 230 + random.below(230);
        sleep(duration.mul_f64(thousandths as f64 / 1000.0));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(assert_complete_or_missing(&out), "neither store is there");
        let found = dimension_there();
        assert!(found == before || found == dimension(number), "{found}");
        *if found == before { &mut old } else { &mut new } += 1;
    }
    assert!(old > 3, "only {old} were killed before their end, {new} after it");
    assert!(spawn(17).wait().unwrap().success());
    assert_eq!(dimension_there(), dimension(17));
    assert!(!workshop.path("forced.partial").exists());
}

#[test]
fn force_replaces_nothing_but_a_store() {
    let Shop { workshop, .. } = shop();
    let refused = |out: &str| {
        let arguments = arguments(workshop, out);
        let mut arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        arguments.extend(["--force", "--dimension", "8"]);
        let output = run(&arguments);
        assert!(!output.status.success());
        let path = workshop.text(out);
        String::from_utf8(output.stderr).unwrap().replace(&path, "DB")
    };
    let end = "; move it away, or choose another folder\n";
    let expected = "headwater: DB: expected a store and nothing else to replace, found ";
    let folder = workshop.path("foreign");
    std::fs::create_dir(&folder).unwrap();
    assert_eq!(refused("foreign"), format!("{expected}a folder that is no store{end}"));
    std::fs::write(folder.join("metadata.json"), "{\"format_version\": 1}").unwrap();
    std::fs::write(folder.join("graph.bin"), "?").unwrap();
    assert_eq!(refused("foreign"), format!("{expected}a folder that is no store{end}"));
    assert_eq!(std::fs::read(folder.join("graph.bin")).unwrap(), b"?");
    std::fs::write(workshop.path("file"), "mine").unwrap();
    assert_eq!(refused("file"), format!("{expected}a link or a file{end}"));
    std::os::unix::fs::symlink(workshop.path("whole"), workshop.path("link")).unwrap();
    assert_eq!(refused("link"), format!("{expected}a link or a file{end}"));

    // A store with a file of the user's is not replaced; a damaged store is.
    assert!(spawn(workshop, "mixed").wait().unwrap().success());
    for name in ["notes.txt", "tables/notes.txt"] {
        let notes = workshop.path("mixed").join(name);
        std::fs::write(&notes, "mine").unwrap();
        assert_eq!(refused("mixed"), format!("{expected}{name} in it{end}"));
        std::fs::remove_file(&notes).unwrap();
    }
    std::fs::write(workshop.path("mixed").join("metadata.json"), "{").unwrap();
    let arguments = arguments(workshop, "mixed");
    let mut arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    arguments.push("--force");
    succeed(&arguments);
    assert_same_folders(&workshop.path("whole"), &workshop.path("mixed"));
    assert!(!workshop.path("mixed.partial").exists());
}
