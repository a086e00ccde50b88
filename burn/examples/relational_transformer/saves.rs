//! The saved steps of a run: each is complete or absent, and the last two are kept.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::{ModuleOptimizer, OptimizerRecord};
use burn::store::ModuleRecord;
use headwater::durable::{Disk, commit_folder};
use headwater::plan::Cursor;
use headwater::{Context, Error, ErrorKind, Result};
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
            "expected a saved step in {}, found none; leave out --resume",
            run.display()
        )));
    };
    let folder = folder(run, step);
    let at = || folder.display().to_string();
    let saved = ModuleRecord::load(folder.join("model.bpk")).map_err(record).context(at)?;
    let model = model.try_load_record(saved).map_err(record).context(at)?;
    let saved = OptimizerRecord::load(folder.join("optimizer.bpk")).map_err(record).context(at)?;
    loader.resume(&Cursor::read(&folder.join("loader.cursor"))?)?;
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

fn record(error: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("{error}; remove this step to go on from the one before"))
}
