//! Acceptance test 2: a run that was stopped, or killed while it saved, has the bits of the other one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::shop::churn_path;

/// The example, which Cargo builds with the tests.
pub(crate) fn example() -> Command {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples/relational_transformer");
    assert!(program.exists(), "{}: say cargo test without --test", program.display());
    Command::new(program)
}

/// Runs the example to its end; returns the losses of its steps, bit for bit as text.
pub(crate) fn losses(run: &Path, words: &[&str], threads: Option<&str>) -> Vec<String> {
    let mut command = example();
    command.arg(churn_path()).arg("--out").arg(run).args(words);
    if let Some(threads) = threads {
        command.env("RAYON_NUM_THREADS", threads);
    }
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| line.starts_with("step ")).map(str::to_owned).collect()
}

pub(crate) fn step(run: &Path, step: u64) -> PathBuf {
    run.join(format!("step-{step:06}"))
}

/// Copies a run.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

/// Goes on with a run to its next step, and kills the process as soon as it saves this step; whether the save was
/// incomplete then.
fn is_killed_in_the_save_of(next: u64, run: &Path) -> bool {
    let mut command = example();
    command.arg(churn_path()).arg("--out").arg(run).stdout(Stdio::null());
    command.args(["--resume", "--stop-after", &next.to_string()]);
    let mut process = command.spawn().unwrap();
    let begin = Instant::now();
    let partial = run.join("step.partial");
    // Without a pause, because a save may take less than a millisecond.
    while !partial.exists() && process.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < Duration::from_mins(5), "the run saves nothing");
    }
    process.kill().unwrap();
    process.wait().unwrap();
    partial.exists() && !step(run, next).exists()
}

/// Test 2: 40 steps at once against 15, a kill in the save of step 16, and the rest in a new process.
#[test]
fn p2_a_killed_run_has_the_losses_and_the_model_of_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, killed] = ["whole", "killed"].map(|name| folder.path().join(name));
    // Both begin with one saved step, because Burn gives parameters random ids.
    assert_eq!(losses(&whole, &["--stop-after", "0"], None), [""; 0]);
    copy(&whole, &killed);
    let expected = losses(&whole, &["--resume", "--stop-after", "40"], None);
    assert_eq!(expected.len(), 40);

    let mut found = losses(&killed, &["--resume", "--stop-after", "15"], None);
    let mut tries = (0..100).map(|number| folder.path().join(format!("killed-{number}")));
    let killed = tries.find(|run| {
        copy(&killed, run);
        is_killed_in_the_save_of(16, run)
    });
    let killed = killed.expect("one of 100 kills comes in the save");
    found.extend(losses(&killed, &["--resume", "--stop-after", "40"], None));
    assert_eq!(found, expected);
    // Burn writes the states of its optimiser in an order of their own in each process.
    for name in ["model.bpk", "loader.cursor"] {
        let bytes = |run| fs::read(step(run, 40).join(name)).unwrap();
        assert!(bytes(&whole) == bytes(&killed), "{name} differs");
    }
    let kept = fs::read_dir(&killed).unwrap().count();
    assert_eq!(kept, 2, "the last two steps are kept, and no partial one");
}

/// A run goes into a folder without steps, unless it resumes one.
#[test]
fn a_run_replaces_no_saved_step() {
    let folder = tempfile::tempdir().unwrap();
    losses(folder.path(), &["--stop-after", "0"], None);
    for (words, expected) in [
        (["--stop-after", "1"].as_slice(), "say --resume to go on"),
        (&["--workers", "0"], "--workers: expected 1 to 4 threads"),
        (&["--unknown"], "unknown argument \"--unknown\""),
    ] {
        let run = example().arg(churn_path()).arg("--out").arg(folder.path()).args(words).output();
        let run = run.unwrap();
        let error = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && error.contains(expected), "{error}");
    }
}
