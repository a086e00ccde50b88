//! The options of the example, and its messages about them.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::resume::{example, losses, step};
use crate::saves::{DIGESTS, FILES};
use crate::shop::{churn_path, narrow_path};

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
fn a_reader_that_stops_early_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = example()
        .arg(churn_path())
        .arg("--out")
        .arg(folder.path().join("run"))
        .args(["--stop-after", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(running.stdout.take());
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
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
        (
            ["--stop-after", "soon"],
            "--stop-after: expected a whole number of at least 0, found \"soon\"",
        ),
        (["--workers", "-1"], "--workers: expected a whole number of at least 0, found \"-1\""),
        (["--seed", "1.5"], "--seed: expected a whole number of at least 0, found \"1.5\""),
        (["--workers", "0"], "--workers: expected 1 to 4 threads, one for each micro-batch"),
        (["--workers", "5"], "--workers: expected 1 to 4 threads, one for each micro-batch"),
        (["--seed", "--resume"], "--seed: expected a value, found \"--resume\"; usage"),
        (["--seed", ""], "--seed: expected a value, found \"\"; usage"),
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

/// Every file of a saved step is told from a damaged one, and from that of another step, before it is loaded.
#[test]
fn p6_a_file_that_was_not_saved_with_its_step_is_refused_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    assert_eq!(losses(&out, &["--stop-after", "1"], None).len(), 1);
    let refusal = |file: &str, what: &str| {
        let message = refused(&out, &["--resume", "--stop-after", "2"]);
        let begin =
            format!("error: --resume: {}: expected {what}", step(&out, 1).join(file).display());
        let remedy = format!(
            "; remove the folder {} to go on from step 0, or begin a new run with another --out",
            step(&out, 1).display()
        );
        assert!(message.starts_with(&begin), "{message}");
        assert!(message.trim_end().ends_with(&remedy), "{message}");
        assert!(message.contains(", found "), "{message}");
    };
    for name in FILES {
        let file = step(&out, 1).join(name);
        let whole = fs::read(&file).unwrap();
        for length in [0, 9, whole.len() / 2, whole.len() - 1] {
            fs::write(&file, &whole[..length]).unwrap();
            refusal(name, "the digest");
        }
        // In the values of the tensors, which Burn does not check.
        let mut changed = whole.clone();
        let place = whole.len() - 20;
        changed[place] ^= 1;
        fs::write(&file, changed).unwrap();
        refusal(name, "the digest");
        fs::copy(step(&out, 0).join(name), &file).unwrap();
        refusal(name, "the digest");
        fs::remove_file(&file).unwrap();
        refusal(name, "a file");
        fs::write(&file, whole).unwrap();
    }
    let file = step(&out, 1).join(DIGESTS);
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, "").unwrap();
    refusal(DIGESTS, "\"step 1\"");
    fs::write(&file, whole.lines().next().unwrap()).unwrap();
    refusal(DIGESTS, "the digest of model.bpk");
    // All files of another step agree with each other.
    fs::copy(step(&out, 0).join(DIGESTS), &file).unwrap();
    refusal(DIGESTS, "\"step 1\", found \"step 0\"");
    fs::remove_file(&file).unwrap();
    refusal(DIGESTS, "a file");
    fs::write(&file, whole).unwrap();
    // Without an earlier step there is none to go on from.
    let of_0 = folder.path().join("step 0");
    fs::rename(step(&out, 0), &of_0).unwrap();
    fs::remove_file(step(&out, 1).join("model.bpk")).unwrap();
    let message = refused(&out, &["--resume", "--stop-after", "2"]);
    assert!(message.contains("found none; begin a new run with another --out"), "{message}");
    fs::rename(&of_0, step(&out, 0)).unwrap();
    // As the message says.
    fs::remove_dir_all(step(&out, 1)).unwrap();
    let text = run(&out, &["--resume", "--stop-after", "2"]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("goes on after step 0\nstep 1 loss "), "{text}");
}

/// Another store is told by what differs, and not by the shape of its model; nothing is advised to be removed.
#[test]
fn p6_a_resume_with_another_store_is_refused_by_the_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    losses(&out, &["--stop-after", "0"], None);
    let other = example().arg(narrow_path()).arg("--out").arg(&out).arg("--resume").output();
    for (output, what) in
        [(other.unwrap(), "database/0/root"), (run(&out, &["--resume", "--seed", "8"]), "seed")]
    {
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{message}");
        let cursor = step(&out, 0).join("loader.cursor");
        let begin = format!(
            "error: --resume: {}: the cursor does not belong to this plan: ",
            cursor.display()
        );
        assert!(message.starts_with(&begin) && message.contains(what), "{message}");
        assert!(!message.contains("remove"), "{message}");
    }
}
