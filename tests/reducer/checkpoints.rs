//! Checkpoints in a folder: what is gone on from, what is passed over, and what is refused.

use std::fs;
use std::path::Path;
use std::thread;

use headwater::ErrorKind;
use headwater::reducer::{CheckpointWriter, Checkpoints, Reduction};

use crate::matrix::Folder;
use crate::simulated_disk::{Breakage, SimulatedDisk};
use crate::{job, portion, reduction, rows};

/// A folder with a checkpoint of 4 chunks and one of 8, and the path of that.
fn two_checkpoints(name: &str) -> (Folder, std::path::PathBuf) {
    let (job, data, folder) = (job(10, 1), rows(10), Folder::new(name));
    let checkpoints = Checkpoints::new(&folder.0).unwrap();
    let mut done = reduction(&job);
    for chunks in [0..4, 4..8] {
        done.receive(&portion(&job, &data, chunks)).unwrap();
        checkpoints.write(&done).unwrap();
    }
    let newest = folder.0.join("fold-000000000008.portion");
    assert!(newest.exists());
    (folder, newest)
}

/// Goes on from the older checkpoint; yields what was said of the newer one.
#[track_caller]
fn passed_over(folder: &Folder) -> String {
    let mut again = reduction(&job(10, 1));
    let resumed = Checkpoints::new(&folder.0).unwrap().resume(&mut again).unwrap();
    assert_eq!((resumed.nodes, again.covered_count()), (1, 4));
    assert_eq!(resumed.damaged.len(), 1);
    resumed.damaged[0].to_string()
}

#[test]
fn p6_damaged_checkpoints_are_skipped_and_other_versions_rejected() {
    let (folder, newest) = two_checkpoints("damage");
    let whole = fs::read(&newest).unwrap();
    let mut other = whole.clone();
    other[8] = 4;
    fs::write(&newest, &other).unwrap();
    let words = format!("checkpoint {}: the portion is damaged", newest.display());
    assert!(passed_over(&folder).starts_with(&words));
    // With a right digest it is no damage.
    let body = &other[..other.len() - 32];
    let sealed = [body, blake3::hash(body).as_bytes()].concat();
    fs::write(&newest, sealed).unwrap();
    let refused =
        |done: &mut Reduction<_>| Checkpoints::new(&folder.0).unwrap().resume(done).unwrap_err();
    let error = refused(&mut reduction(&job(10, 1)));
    assert_eq!(error.kind(), ErrorKind::Version);
    assert!(error.to_string().contains("found version 4"), "{error}");
    fs::write(&newest, whole).unwrap();
    let error = refused(&mut reduction(&job(10, 2)));
    assert_eq!(error.kind(), ErrorKind::PlanMismatch);
    assert!(error.to_string().contains("the portion is of another job"), "{error}");
}

/// Reading this file yields EIO.
#[cfg(target_os = "linux")]
const BROKEN: &str = "/proc/self/mem";

#[cfg(target_os = "linux")]
#[test]
fn p6_checkpoints_with_read_errors_are_skipped() {
    let (folder, newest) = two_checkpoints("unreadable");
    fs::remove_file(&newest).unwrap();
    std::os::unix::fs::symlink(BROKEN, &newest).unwrap();
    let said = passed_over(&folder);
    assert!(said.contains("error 5"), "{said}");
    fs::remove_file(folder.0.join("fold-000000000004.portion")).unwrap();
    let checkpoints = Checkpoints::new(&folder.0).unwrap();
    let error = checkpoints.resume(&mut reduction(&job(10, 1))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("every checkpoint is damaged; reading"), "{error}");
}

/// The error of a read may pass, unlike damage.
#[cfg(target_os = "linux")]
#[test]
fn p6_a_checkpoint_with_a_read_error_stays_until_two_are_newer() {
    let (folder, newest) = two_checkpoints("passing");
    let aside = folder.0.join("aside");
    fs::rename(&newest, &aside).unwrap();
    std::os::unix::fs::symlink(BROKEN, &newest).unwrap();
    let (job, data, mut again) = (job(10, 1), rows(10), reduction(&job(10, 1)));
    let checkpoints = Checkpoints::new(&folder.0).unwrap();
    assert_eq!(checkpoints.resume(&mut again).unwrap().damaged.len(), 1);
    let mut write = |chunks: std::ops::Range<u64>| {
        again.receive(&portion(&job, &data, chunks)).unwrap();
        checkpoints.write(&again).unwrap();
        let names = fs::read_dir(&folder.0).unwrap().map(|e| e.unwrap().file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        let numbers = names.filter_map(|name| name.get(5..17)?.parse().ok());
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        numbers
    };
    assert_eq!(write(4..5), [4, 5, 8]);
    // The error passes, and the rest of the run is lost.
    fs::remove_file(&newest).unwrap();
    fs::copy(&aside, &newest).unwrap();
    let mut last = reduction(&job);
    let other = Checkpoints::on(Box::new(headwater::durable::Disk), &folder.0);
    assert_eq!(other.resume(&mut last).unwrap().damaged.len(), 0);
    assert_eq!(last.covered_count(), 8);
    // It does not count in the place of a good one.
    assert_eq!(write(5..9), [5, 8, 9]);
    assert_eq!(write(9..10), [9, 10]);
}

#[cfg(unix)]
#[test]
fn p6_an_unopenable_checkpoint_is_not_reported_as_damaged() {
    let (folder, newest) = two_checkpoints("unopened");
    fs::remove_file(&newest).unwrap();
    std::os::unix::fs::symlink(&newest, &newest).unwrap();
    let checkpoints = Checkpoints::new(&folder.0).unwrap();
    let error = checkpoints.resume(&mut reduction(&job(10, 1))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().starts_with(&format!("reading {}: ", newest.display())), "{error}");
}

#[test]
fn p6_two_damaged_checkpoints_do_not_push_out_the_good_ones() {
    let (folder, newest) = two_checkpoints("two-damaged");
    let (job, data) = (job(10, 1), rows(10));
    for number in [9, 10] {
        fs::write(newest.with_file_name(format!("fold-{number:012}.portion")), b"HWFOLD").unwrap();
    }
    fs::write(folder.0.join(".fold-000000000009.portion.0.partial"), b"of a killed run").unwrap();
    let checkpoints = Checkpoints::new(&folder.0).unwrap();
    let mut again = reduction(&job);
    assert_eq!(checkpoints.resume(&mut again).unwrap().damaged.len(), 2);
    again.receive(&portion(&job, &data, 8..9)).unwrap();
    checkpoints.write(&again).unwrap();
    drop(checkpoints);
    // Killed here.
    let mut last = reduction(&job);
    Checkpoints::new(&folder.0).unwrap().resume(&mut last).unwrap();
    assert_eq!(last.covered_count(), 9);
    let mut names: Vec<_> =
        fs::read_dir(&folder.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".lock", "fold-000000000008.portion", "fold-000000000009.portion"]);
}

#[test]
fn a_job_that_begins_anew_needs_a_folder_without_checkpoints() {
    let (folder, newest) = two_checkpoints("anew");
    let error = Checkpoints::new(&folder.0).unwrap().check_empty().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let message = error.to_string();
    assert!(message.starts_with(&format!("{} exists", newest.display())), "{message}");
    let made = folder.0.join("of another job/checkpoints");
    Checkpoints::new(&made).unwrap().check_empty().unwrap();
}

#[test]
fn checkpoints_of_doubtful_sums_are_removed_and_nothing_else() {
    let (folder, newest) = two_checkpoints("discarded");
    fs::write(folder.0.join("notes.txt"), "of a person").unwrap();
    let checkpoints = Checkpoints::new(&folder.0).unwrap();
    checkpoints.discard().unwrap();
    checkpoints.check_empty().unwrap();
    assert!(!newest.exists() && folder.0.join("notes.txt").exists());
}

#[test]
fn what_a_killed_run_left_is_removed_when_the_folder_is_opened() {
    let (folder, newest) = two_checkpoints("abandoned");
    let left = newest.with_file_name(".fold-000000000009.portion.0.partial");
    fs::write(&left, b"of a killed run").unwrap();
    Checkpoints::new(&folder.0).unwrap();
    assert!(newest.exists() && !left.exists());
}

#[test]
fn p6_of_several_damaged_checkpoints_the_newest_is_named() {
    let (folder, newest) = two_checkpoints("all-damaged");
    for path in [&newest, &newest.with_file_name("fold-000000000004.portion")] {
        fs::write(path, b"HWFOLD").unwrap();
    }
    let checkpoints = Checkpoints::new(&folder.0).unwrap();
    let error = checkpoints.resume(&mut reduction(&job(10, 1))).unwrap_err().to_string();
    let words = format!("every checkpoint is damaged; checkpoint {}", newest.display());
    assert!(error.starts_with(&words), "{error}");
}

#[test]
fn a_checkpoint_is_written_beside_the_fold_on_a_slow_disk() {
    let (job, data, disk) = (job(10, 1), rows(10), SimulatedDisk::new());
    disk.put_folder(Path::new("ck"));
    let checkpoints = || Checkpoints::on(Box::new(disk.clone()), Path::new("ck"));
    let kept = checkpoints();
    let mut done = reduction(&job);
    done.receive(&portion(&job, &data, 0..4)).unwrap();
    thread::scope(|scope| {
        let mut writer = CheckpointWriter::new(&kept, scope);
        assert!(!writer.is_busy().unwrap());
        let busy = disk.busy();
        writer.begin(&done).unwrap();
        done.receive(&portion(&job, &data, 4..8)).unwrap();
        assert!(writer.is_busy().unwrap());
        drop(busy);
        writer.finish().unwrap();
        assert!(!writer.is_busy().unwrap());
        // What was folded when it began.
        let mut again = reduction(&job);
        checkpoints().resume(&mut again).unwrap();
        assert_eq!(again.covered_count(), 4);
        disk.break_at(0, Breakage::Full);
        writer.begin(&done).unwrap();
        // The next checkpoint, the last of all and a look find the error of the one before.
        assert_eq!(writer.begin(&done).unwrap_err().kind(), ErrorKind::Io);
        disk.break_at(0, Breakage::Full);
        writer.begin(&done).unwrap();
        assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Io);
        disk.break_at(0, Breakage::Full);
        writer.begin(&done).unwrap();
        let found = loop {
            match writer.is_busy() {
                Ok(true) => thread::yield_now(),
                found => break found,
            }
        };
        assert_eq!(found.unwrap_err().kind(), ErrorKind::Io);
        disk.mend();
        writer.begin(&done).unwrap();
        writer.finish().unwrap();
    });
    let mut again = reduction(&job);
    checkpoints().resume(&mut again).unwrap();
    assert_eq!(again.covered_count(), 8);
}
