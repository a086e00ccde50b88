//! Acceptance test 2: a kill after any operation of a save.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::data::dataloader::DataLoader;
use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use headwater::durable::{Disk, Entry, NewFile, Storage};
use headwater::store::Store;
use headwater_burn::{Loader, Tables};

use crate::model::Model;
use crate::resume::{copy, step as folder_of};
use crate::saves::{restore, save};
use crate::shop::{churn_path, loader_of, settings};
use crate::training::{self, MICRO_BATCHES};

/// A disk whose process is killed after a number of operations that change it: all that follow fail, those of an
/// error's clean-up, too. A write that it is killed in has written half of its bytes.
struct Dying(Arc<AtomicU64>);

fn killed() -> io::Error {
    io::Error::other("killed")
}

/// Does an operation, if the process lives; fails if it was the last one.
fn last_of<T>(left: &AtomicU64, operation: impl FnOnce(bool) -> io::Result<T>) -> io::Result<T> {
    let before = left.load(Ordering::Relaxed);
    if before == 0 {
        return Err(killed());
    }
    left.store(before - 1, Ordering::Relaxed);
    let done = operation(before == 1)?;
    if before == 1 { Err(killed()) } else { Ok(done) }
}

struct DyingFile(Box<dyn NewFile>, Arc<AtomicU64>);

impl NewFile for DyingFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self(file, left) = self;
        last_of(left, |is_last| {
            file.write_all(if is_last { &bytes[..bytes.len() / 2] } else { bytes })
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
}

impl Storage for Dying {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let file = last_of(&self.0, |_| Disk.create_new(path))?;
        Ok(Box::new(DyingFile(file, Arc::clone(&self.0))))
    }

    fn remove_abandoned(&self, path: &Path) -> io::Result<bool> {
        // It changes nothing in a new folder.
        Disk.remove_abandoned(path)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        Disk.sync_file(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        Disk.sync_folder(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        last_of(&self.0, |_| Disk.rename(from, to))
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        last_of(&self.0, |_| Disk.exchange(one, other))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        last_of(&self.0, |_| Disk.remove_file(path))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        Disk.list(folder)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Disk.read(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Disk.exists(path)
    }
}

const LAST: u64 = 4;

struct Run {
    model: Model,
    optimizer: ModuleOptimizer,
    loader: Loader,
    tables: Tables,
}

impl Run {
    fn new(store: &Arc<Store>) -> Self {
        let device = Device::flex().autodiff();
        let loader = loader_of(Arc::clone(store), &settings(), (0, 1)).device(device.clone());
        let tables = Tables::new(store, &device).unwrap();
        Self { model: Model::new(24, &device), optimizer: training::optimizer(), loader, tables }
    }

    /// Goes on from the newest saved step, in a new run as of a new process.
    fn resumed(store: &Arc<Store>, folder: &Path) -> (u64, Self) {
        let new = Self::new(store);
        let (step, model, optimizer) =
            restore(&Disk, folder, (new.model, new.optimizer, &new.loader)).unwrap();
        (step, Self { model, optimizer, ..new })
    }

    /// Takes the steps up to `last`; returns the bits of their losses.
    fn train(mut self, first: u64, last: u64) -> (Self, Vec<u32>) {
        let mut losses = Vec::new();
        for step in first..=last {
            let own: Vec<_> = self.loader.iter().take(MICRO_BATCHES).map(Result::unwrap).collect();
            let loss;
            let speed = (1, training::rate(step, 400));
            (self.model, loss) =
                training::step(self.model, &mut self.optimizer, &own, &self.tables, speed);
            losses.push(loss.to_bits());
        }
        (self, losses)
    }

    fn save(&self, storage: &dyn Storage, folder: &Path, step: u64) -> headwater::Result<()> {
        save(storage, folder, step, (&self.model, &self.optimizer, &self.loader))
    }
}

/// Test 2: whichever operation of a save is the last before a kill, the run goes on with the losses of a whole one.
#[test]
fn p2_a_kill_after_any_operation_of_a_save_changes_no_loss() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(&churn_path()).unwrap());
    // Steps 0 and 1 are saved, so that the save of step 2 removes one.
    let base = folder.path().join("base");
    let run = Run::new(&store);
    run.save(&Disk, &base, 0).unwrap();
    let (run, _) = run.train(1, 1);
    run.save(&Disk, &base, 1).unwrap();
    let (_, expected) = run.train(2, LAST);
    assert!(expected.windows(2).all(|two| two[0] != two[1]), "it learns");

    let (step, saving) = Run::resumed(&store, &base);
    let (saving, _) = saving.train(step + 1, 2);
    let mut states = BTreeSet::new();
    for operations in 0.. {
        let killed = folder.path().join(format!("killed-{operations}"));
        copy(&base, &killed);
        let disk = Dying(Arc::new(AtomicU64::new(operations)));
        let is_whole = saving.save(&disk, &killed, 2).is_ok();
        // The partial folder becomes the new step, and then the removed one has its name.
        let is_between = folder_of(&killed, 2).exists() && folder_of(&killed, 0).exists();
        assert_eq!(killed.join("step.partial").exists(), !is_whole && !is_between);
        let (step, run) = Run::resumed(&store, &killed);
        assert_eq!(step == 2, folder_of(&killed, 2).exists(), "{operations} operations");
        let (run, losses) = run.train(step + 1, LAST);
        assert!(losses == expected[step as usize - 1..], "{operations} operations, step {step}");
        run.save(&Disk, &killed, LAST).unwrap();
        let left: BTreeSet<_> = fs::read_dir(&killed).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(left, [step, LAST].map(|step| folder_of(&killed, step)).into());
        states.insert((step, is_whole));
        if is_whole {
            // Four files are created, written and renamed; so are two folders.
            assert_eq!(operations, 15);
            break;
        }
    }
    assert_eq!(states, [(1, false), (2, false), (2, true)].into());
}
