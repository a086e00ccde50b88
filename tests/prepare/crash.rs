//! Kills at any moment, and two preparations at once: a store is there wholly or not at all.

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

/// The demo shop, and how long it takes to prepare.
struct Shop {
    workshop: Workshop,
    takes: Duration,
}

/// Made once for all tests here, with a store of it at `whole`.
fn shop() -> &'static Shop {
    static SHOP: OnceLock<Shop> = OnceLock::new();
    SHOP.get_or_init(|| {
        let workshop = Workshop::new(&[]);
        std::fs::remove_dir(workshop.path("data")).unwrap();
        succeed(&["demo-data", &workshop.text("data")]);
        let started = Instant::now();
        assert!(spawn(&workshop, "whole").wait().unwrap().success());
        Shop { workshop, takes: started.elapsed() }
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

/// Nothing at `out`, or a store that is whole.
fn assert_all_or_nothing(out: &Path) -> bool {
    if std::fs::symlink_metadata(out).is_err() {
        return false;
    }
    Store::open(out).unwrap().verify(&|_| Ok(())).unwrap();
    true
}

#[test]
fn p6_killed_at_any_moment_nothing_half_written_is_left_that_opens() {
    let Shop { workshop, takes } = shop();
    let mut random = Stream::new(2, Purpose::Split, [0xdead, 0, 0]);
    let out = workshop.path("killed");
    let (mut cut_off, mut share) = (0, 1.0);
    for number in 0..20 {
        let mut child = spawn(workshop, "killed");
        // The moments spread over the whole time, and a little beyond.
        let thousandths = number % 10 * 105 + random.below(105);
        sleep(takes.mul_f64(share * thousandths as f64 / 1000.0));
        child.kill().unwrap();
        child.wait().unwrap();
        if assert_all_or_nothing(&out) {
            std::fs::remove_dir_all(&out).unwrap();
            // It was measured while the machine had more to do.
            share *= 0.8;
        } else {
            cut_off += 1;
        }
    }
    assert!(cut_off > 5, "only {cut_off} were killed before their end");
    // What they left does not disturb the next.
    assert!(spawn(workshop, "killed").wait().unwrap().success());
    assert_same_folders(&workshop.path("whole"), &out);
    assert!(!workshop.path("killed.partial").exists());
}

/// Waits until `path` is there.
#[cfg(unix)]
fn wait_for(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !path.exists() {
        assert!(Instant::now() < deadline, "{} does not come", path.display());
        sleep(Duration::from_millis(1));
    }
}

#[cfg(unix)]
#[test]
fn an_interruption_leaves_nothing_and_says_so() {
    let Shop { workshop, .. } = shop();
    let (out, partial) = (workshop.path("interrupted"), workshop.path("interrupted.partial"));
    for signal in ["-INT", "-TERM"] {
        let arguments = arguments(workshop, "interrupted");
        let mut command = headwater();
        let command = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        wait_for(&partial.join("staging"));
        let pressed = Instant::now();
        let id = child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{signal}: {message}");
        assert!(message.ends_with("interrupted; nothing was written\n"), "{message}");
        assert!(pressed.elapsed() < Duration::from_secs(2));
        assert!(!partial.exists() && !out.exists());
    }
}

#[test]
fn two_at_once_do_not_disturb_each_other() {
    let Shop { workshop, takes } = shop();
    let mut refused = 0;
    for share in [0.2, 0.5, 0.8, 0.95] {
        let mut first = spawn(workshop, "twice");
        sleep(takes.mul_f64(share));
        let arguments = arguments(workshop, "twice");
        let second = run(&arguments.each_ref().map(String::as_str));
        let message = String::from_utf8(second.stderr).unwrap();
        assert!(first.wait().unwrap().success(), "the first: {message}");
        assert!(!second.status.success());
        let at_work = format!(
            "headwater: another process is preparing {}; wait until it ends, or choose another \
             folder\n",
            workshop.text("twice.partial")
        );
        let taken = format!(
            "headwater: {} is there already; remove it, or choose another folder\n",
            workshop.text("twice")
        );
        assert!(message == at_work || message == taken, "{message}");
        refused += usize::from(message == at_work);
        assert_same_folders(&workshop.path("whole"), &workshop.path("twice"));
        assert!(!workshop.path("twice.partial").exists());
        std::fs::remove_dir_all(workshop.path("twice")).unwrap();
    }
    assert!(refused > 0);
}
