//! The options of the example, and its messages about them.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::resume::{example, losses, step};
use crate::shop::churn_path;

fn run(out: &Path, words: &[&str]) -> Output {
    example().arg(churn_path()).arg("--out").arg(out).args(words).output().unwrap()
}

/// Runs the example, which refuses; returns its message.
fn refused(out: &Path, words: &[&str]) -> String {
    let output = run(out, words);
    assert!(!output.status.success(), "{words:?}");
    assert!(output.stdout.is_empty(), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn help_names_each_option() {
    for word in ["--help", "-h"] {
        let output = example().arg(word).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        let help = String::from_utf8(output.stdout).unwrap();
        for option in ["STORE", "--out", "--resume", "--stop-after", "--workers", "--seed"] {
            assert!(help.lines().any(|line| line.trim_start().starts_with(option)), "{option}");
        }
    }
}

#[test]
fn a_resume_without_a_run_is_refused_and_makes_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("none");
    let message = refused(&out, &["--resume"]);
    let expected =
        format!("error: --resume: expected a saved step in {}, found none;", out.display());
    assert!(message.starts_with(&expected), "{message}");
    assert!(!out.exists());
}

#[test]
fn values_that_are_no_numbers_are_refused_by_their_option() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    for (words, expected) in [
        (["--stop-after", "soon"], "--stop-after: expected a whole number, found \"soon\""),
        (["--workers", "-1"], "--workers: expected a whole number, found \"-1\""),
        (["--seed", "1.5"], "--seed: expected a whole number, found \"1.5\""),
        (["--workers", "0"], "--workers: expected at least 1 thread, found 0"),
        (["--stop-after", "401"], "--stop-after: expected at most 400, the last step, found 401"),
    ] {
        let message = refused(&out, &words);
        assert!(message.starts_with(&format!("error: {expected}")), "{message}");
        assert!(!out.exists());
    }
}

#[test]
fn a_stop_at_or_before_the_saved_step_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    assert_eq!(losses(&out, &["--stop-after", "2"], None).len(), 2);
    for stop in ["0", "1", "2"] {
        let message = refused(&out, &["--resume", "--stop-after", stop]);
        let expected = format!(
            "error: --stop-after: expected a step after 2, the newest saved step of {}, found {stop};",
            out.display()
        );
        assert!(message.starts_with(&expected), "{message}");
    }
    assert_eq!(losses(&out, &["--resume", "--stop-after", "3"], None).len(), 1);
    let message = refused(&out, &[]);
    assert!(
        message.starts_with("error: --out: expected a folder without saved steps"),
        "{message}"
    );
}

#[test]
fn p6_a_torn_file_of_a_step_is_refused_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    assert_eq!(losses(&out, &["--stop-after", "1"], None).len(), 1);
    for name in ["model.bpk", "optimizer.bpk"] {
        let file = step(&out, 1).join(name);
        let whole = fs::read(&file).unwrap();
        for length in [0, 9, whole.len() / 2, whole.len() - 1] {
            fs::write(&file, &whole[..length]).unwrap();
            let message = refused(&out, &["--resume", "--stop-after", "2"]);
            let remedy = format!("; remove the folder {} to go on", step(&out, 1).display());
            let begin = format!("error: {}: ", file.display());
            assert!(message.starts_with(&begin) && message.contains(&remedy), "{message}");
        }
        fs::write(&file, whole).unwrap();
    }
    // As the message says.
    fs::remove_dir_all(step(&out, 1)).unwrap();
    assert_eq!(losses(&out, &["--resume", "--stop-after", "2"], None).len(), 2);
}
