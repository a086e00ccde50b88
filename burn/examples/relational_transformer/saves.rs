//! The saved steps of a run: each is complete or absent, and the last two are kept.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::{ModuleOptimizer, OptimizerRecord};
use burn::store::ModuleRecord;
use headwater::durable::{Disk, commit_folder};
use headwater::plan::Cursor;
use headwater::{Error, ErrorKind, Result};
use headwater_burn::Loader;

use crate::model::Model;

const KEPT: usize = 2;

/// Saves a step as a folder that gets its name when all of it is on the disk.
pub(crate) fn save(
    run: &Path,
    step: u64,
    model: &Model,
    optimizer: &ModuleOptimizer,
    loader: &Loader,
) -> Result<()> {
    let partial = run.join("step.partial");
    // What a killed process left.
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).map_err(|e| Error::io(&partial, "creating", e))?;
    model.clone().into_record().save(partial.join("model.bpk")).map_err(unsaved)?;
    optimizer.to_record().save(partial.join("optimizer.bpk")).map_err(unsaved)?;
    loader.save_cursor(&partial.join("loader.cursor"))?;
    commit_folder(&Disk, &partial, &folder(run, step))?;
    let steps = steps(run)?;
    for &old in &steps[..steps.len().saturating_sub(KEPT)] {
        let old = folder(run, old);
        fs::remove_dir_all(&old).map_err(|e| Error::io(&old, "removing", e))?;
    }
    Ok(())
}

/// Goes on from the newest saved step; returns its number.
pub(crate) fn restore(
    run: &Path,
    model: Model,
    optimizer: ModuleOptimizer,
    loader: &Loader,
) -> Result<(u64, Model, ModuleOptimizer)> {
    let Some(step) = steps(run)?.pop() else {
        return Err(Error::invalid(format!(
            "--resume: expected a saved step in {}, found none; leave out --resume to begin there, or name the \
             folder of a run with --out",
            run.display()
        )));
    };
    let folder = folder(run, step);
    let file = |name| folder.join(name);
    let (of_model, of_optimizer) = (file("model.bpk"), file("optimizer.bpk"));
    let saved = ModuleRecord::load(&of_model).map_err(|error| unread(&of_model, error))?;
    let model = model.try_load_record(saved).map_err(|error| unread(&of_model, error))?;
    let saved =
        OptimizerRecord::load(&of_optimizer).map_err(|error| unread(&of_optimizer, error))?;
    loader.resume(&Cursor::read(&file("loader.cursor"))?)?;
    Ok((step, model, optimizer.load_record(saved)))
}

/// Returns the saved steps, the oldest first.
pub(crate) fn steps(run: &Path) -> Result<Vec<u64>> {
    let entries = match fs::read_dir(run) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
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

fn unsaved(error: impl std::fmt::Display) -> Error {
    let words = format!("saving a step: {error}; free some space, and go on with --resume");
    Error::new(ErrorKind::Io, words)
}

/// The error of a file of a saved step that cannot be read.
fn unread(file: &Path, error: impl std::fmt::Display) -> Error {
    let step = file.parent().unwrap_or(file).display();
    Error::corrupt(format!(
        "{}: {error}; remove the folder {step} to go on from the step before, or begin a new run with another \
         --out",
        file.display()
    ))
}
