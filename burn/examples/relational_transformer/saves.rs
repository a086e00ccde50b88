//! The saved steps of a run: each is complete or absent, and the last two are kept.
//!
//! A step is a folder of model, optimiser and cursor. Beside them the file `digests` names the step and the BLAKE3
//! digest of each, so that neither a damaged file nor one of another step is ever loaded.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::{ModuleOptimizer, OptimizerRecord};
use burn::store::{ModuleRecord, RecordError};
use burn::tensor::Bytes;
use headwater::durable::{Storage, commit_folder, write_file};
use headwater::plan::Cursor;
use headwater::{Context, Digest, Error, ErrorKind, Result};
use headwater_burn::Loader;

use crate::model::Model;

const KEPT: usize = 2;

pub(crate) const FILES: [&str; 3] = ["model.bpk", "optimizer.bpk", "loader.cursor"];
pub(crate) const DIGESTS: &str = "digests";

/// Saves a step as a folder that gets its name when all of it is on the disk.
pub(crate) fn save(
    storage: &dyn Storage,
    run: &Path,
    step: u64,
    (model, optimizer, loader): (&Model, &ModuleOptimizer, &Loader),
) -> Result<()> {
    let contents = [
        model.clone().into_record().into_bytes().map_err(unsaved)?.to_vec(),
        optimizer.to_record().into_bytes().map_err(unsaved)?.to_vec(),
        loader.cursor()?.encode()?,
    ];
    let partial = run.join("step.partial");
    // What a killed process left.
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).map_err(|e| Error::io(&partial, "creating", e))?;
    for (name, bytes) in FILES.iter().zip(&contents) {
        write_file(storage, &partial.join(name), bytes)?;
    }
    write_file(storage, &partial.join(DIGESTS), digests(step, &contents).as_bytes())?;
    commit_folder(storage, &partial, &folder(run, step))?;
    let steps = steps(run)?;
    for &old in &steps[..steps.len().saturating_sub(KEPT)] {
        let old = folder(run, old);
        // It loses the name of a complete step before it loses a file.
        storage.rename(&old, &partial).map_err(|e| Error::io(&old, "removing", e))?;
        fs::remove_dir_all(&partial).map_err(|e| Error::io(&partial, "removing", e))?;
    }
    Ok(())
}

/// Goes on from the newest saved step; returns its number.
pub(crate) fn restore(
    storage: &dyn Storage,
    run: &Path,
    (model, optimizer, loader): (Model, ModuleOptimizer, &Loader),
) -> Result<(u64, Model, ModuleOptimizer)> {
    let Some(step) = steps(run)?.pop() else {
        return Err(Error::invalid(format!(
            "--resume: expected a saved step in {}, found none; leave out --resume to begin there, or name the \
             folder of a run with --out",
            run.display()
        )));
    };
    let [saved_model, saved_optimizer, cursor] = read(storage, run, step)?;
    let [of_model, of_optimizer, of_cursor] = FILES.map(|name| folder(run, step).join(name));
    // First the cursor: it names what differs between another store, whose model has another shape, and its own.
    let resumed = Cursor::decode(&cursor).and_then(|cursor| loader.resume(&cursor));
    resumed.context(|| format!("--resume: {}", of_cursor.display()))?;
    let of_another_build = |file: PathBuf| {
        move |error: RecordError| {
            Error::version(format!(
                "{}: expected what this build of the example saves, found {error}; go on with the build that saved \
                 it, or begin a new run with another --out",
                file.display()
            ))
        }
    };
    let model = ModuleRecord::from_bytes(Bytes::from_bytes_vec(saved_model))
        .and_then(|saved| model.try_load_record(saved))
        .map_err(of_another_build(of_model))?;
    let saved = OptimizerRecord::from_bytes(Bytes::from_bytes_vec(saved_optimizer))
        .map_err(of_another_build(of_optimizer))?;
    Ok((step, model, optimizer.load_record(saved)))
}

/// Reads the files of a step, and demands that they are those that were saved with it.
fn read(storage: &dyn Storage, run: &Path, step: u64) -> Result<[Vec<u8>; 3]> {
    let folder = folder(run, step);
    let read = |name: &str| {
        let path = folder.join(name);
        storage.read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                damaged(run, step, name, "expected a file of a saved step, found none")
            }
            _ => Error::io(&path, "reading", error),
        })
    };
    let text = read(DIGESTS)?;
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines();
    let (expected, found) = (format!("step {step}"), lines.next().unwrap_or_default());
    if found != expected {
        let what = format!("expected {expected:?}, found {found:?}");
        return Err(damaged(run, step, DIGESTS, &what));
    }
    let mut contents = FILES.map(|_| Vec::new());
    for (content, name) in contents.iter_mut().zip(FILES) {
        let line = lines.next().unwrap_or_default();
        let Some(expected) = line.strip_suffix(name).and_then(|line| line.strip_suffix("  "))
        else {
            let what = format!("expected the digest of {name}, found {line:?}");
            return Err(damaged(run, step, DIGESTS, &what));
        };
        *content = read(name)?;
        let found = Digest::of(content).to_string();
        if found != expected {
            let what = format!(
                "expected the digest {expected}, as the file {DIGESTS} has it, found {found}"
            );
            return Err(damaged(run, step, name, &what));
        }
    }
    Ok(contents)
}

/// Returns the text of `digests`: the step, and a line for each file.
fn digests(step: u64, contents: &[Vec<u8>; 3]) -> String {
    let mut text = format!("step {step}\n");
    for (name, bytes) in FILES.iter().zip(contents) {
        let _ = writeln!(text, "{}  {name}", Digest::of(bytes));
    }
    text
}

/// Returns the saved steps, the oldest first.
pub(crate) fn steps(run: &Path) -> Result<Vec<u64>> {
    let entries = match fs::read_dir(run) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| Error::io(run, "listing", e))?,
    };
    let number = |name: &str| name.strip_prefix("step-")?.parse().ok();
    let mut steps: Vec<u64> =
        entries.flatten().filter_map(|entry| number(entry.file_name().to_str()?)).collect();
    steps.sort_unstable();
    Ok(steps)
}

fn folder(run: &Path, step: u64) -> PathBuf {
    run.join(format!("step-{step:06}"))
}

fn unsaved(error: RecordError) -> Error {
    Error::new(ErrorKind::LimitExceeded, format!("saving a step: {error}; go on with --resume"))
}

/// The error of a file that is not as it was saved with its step.
fn damaged(run: &Path, step: u64, name: &str, what: &str) -> Error {
    let folder = folder(run, step);
    let earlier = steps(run).unwrap_or_default().into_iter().rfind(|&other| other < step);
    let go_back = earlier.map_or_else(String::new, |earlier| {
        format!("remove the folder {} to go on from step {earlier}, or ", folder.display())
    });
    Error::corrupt(format!(
        "--resume: {}: {what}; {go_back}begin a new run with another --out",
        folder.join(name).display()
    ))
}
