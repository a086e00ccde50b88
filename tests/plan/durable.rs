//! Atomic writes of files and folders on disks that fail at every call.

use std::fs;
use std::path::Path;

use headwater::ErrorKind;
use headwater::durable::{
    Claim, Disk, Lease, Series, Storage, commit_folder, replace_folder, write_file,
};

use crate::simulated_disk::{Breakage, SURVIVALS, SimulatedDisk};

const OLD: &[u8] = b"the old content of the file";
const NEW: &[u8] = b"the new content, which is longer than the old one was";

fn checkpoints_folder(old: Option<&[u8]>) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.put_folder(Path::new("ck"));
    disk.sync_folder(Path::new("")).unwrap();
    if let Some(bytes) = old {
        disk.put(Path::new("ck/a.cursor"), bytes);
    }
    disk
}

fn file_names(disk: &SimulatedDisk, folder: &str) -> Vec<String> {
    let entries = disk.list(Path::new(folder)).unwrap();
    entries.into_iter().map(|e| e.name.into_string().unwrap()).collect()
}

/// Returns the number of disk calls of a write.
fn calls_of_a_write() -> usize {
    let disk = checkpoints_folder(None);
    let before = disk.calls();
    write_file(&disk, Path::new("ck/a.cursor"), NEW).unwrap();
    disk.calls() - before
}

#[test]
fn p6_a_file_is_old_or_new_after_any_failure_at_any_call() {
    let path = Path::new("ck/a.cursor");
    assert_eq!(calls_of_a_write(), 5, "create, write, fsync, rename, fsync");
    for old in [None, Some(OLD)] {
        for breakage in [Breakage::FailOnce, Breakage::Full, Breakage::PowerLoss] {
            for at in 0..=calls_of_a_write() {
                let disk = checkpoints_folder(old);
                disk.break_at(at, breakage);
                let result = write_file(&disk, path, NEW);
                let place = format!("{breakage:?} at call {at}, old {old:?}, {result:?}");
                if breakage != Breakage::PowerLoss {
                    assert_eq!(result.is_ok(), at == calls_of_a_write(), "{place}");
                    let is_new = disk.read(path).ok().as_deref() == Some(NEW);
                    assert!(is_new || disk.read(path).ok().as_deref() == old, "{place}");
                    if let Err(error) = &result {
                        let says_old =
                            error.to_string().contains("was not written and is as it was");
                        assert_eq!(says_old, !is_new, "{place}");
                    }
                    let expected: &[&str] =
                        if is_new || old.is_some() { &["a.cursor"] } else { &[] };
                    assert_eq!(file_names(&disk, "ck"), expected, "{place}");
                }
                disk.mend();
                for survival in SURVIVALS {
                    let place = format!("{place}, {survival:?}");
                    let found = disk.after_power_loss(survival);
                    let content = found.read(path).ok();
                    let content = content.as_deref();
                    assert!(content == old || content == Some(NEW), "{place}: {content:?}");
                    if result.is_ok() && at == calls_of_a_write() {
                        assert_eq!(
                            content,
                            Some(NEW),
                            "{place}: a write that was reported done is lost"
                        );
                    }
                    write_file(&found, path, NEW).expect(&place);
                    assert_eq!(found.read(path).ok().as_deref(), Some(NEW), "{place}");
                }
            }
        }
    }
}

#[test]
fn a_full_disk_is_reported_and_the_old_file_stays() {
    let disk = checkpoints_folder(Some(OLD));
    disk.break_at(1, Breakage::Full);
    let error = write_file(&disk, Path::new("ck/a.cursor"), NEW).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(
        error.to_string(),
        "ck/a.cursor was not written and is as it was: write ck/.a.cursor.0.partial: no storage space"
    );
    disk.break_at(4, Breakage::FailOnce);
    let error = write_file(&disk, Path::new("ck/a.cursor"), NEW).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ck/a.cursor is written, but a loss of power may undo it: write the names in ck: no \
         storage space"
    );
}

#[test]
fn the_next_writer_removes_the_temporaries_of_killed_writers() {
    let disk = checkpoints_folder(None);
    for attempt in 0..3 {
        disk.put(Path::new(&format!("ck/.a.cursor.{attempt}.partial")), b"half");
    }
    disk.put(Path::new("ck/.b.cursor.0.partial"), b"half");
    write_file(&disk, Path::new("ck/a.cursor"), NEW).unwrap();
    assert_eq!(file_names(&disk, "ck"), [".b.cursor.0.partial", "a.cursor"]);
}

#[test]
fn a_living_writer_keeps_its_temporary() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.cursor");
    let temporary = |attempt: u32| folder.path().join(format!(".a.cursor.{attempt}.partial"));
    let mut living = Disk.create_new(&temporary(0)).unwrap();
    fs::write(temporary(1), b"of a killed one").unwrap();
    write_file(&Disk, &path, NEW).unwrap();
    assert_eq!((fs::read(&path).unwrap(), temporary(1).exists()), (NEW.to_vec(), false));
    living.write_all(OLD).unwrap();
    assert_eq!(fs::read(temporary(0)).unwrap(), OLD);
    assert!(!Disk.remove_abandoned(&temporary(0)).unwrap());
    drop(living);
    assert!(Disk.remove_abandoned(&temporary(0)).unwrap());
    assert!(!Disk.remove_abandoned(&temporary(0)).unwrap());
    // Neither folders nor the files of others.
    fs::create_dir(temporary(2)).unwrap();
    assert!(!Disk.remove_abandoned(&temporary(2)).unwrap());
}

#[test]
fn writers_of_one_file_at_a_time_leave_one_complete_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.cursor");
    std::thread::scope(|scope| {
        for writer in 0..8_u8 {
            let path = &path;
            scope.spawn(move || {
                for _ in 0..100 {
                    write_file(&Disk, path, &[writer; 999]).unwrap();
                }
            });
        }
    });
    let bytes = fs::read(&path).unwrap();
    assert!(bytes.len() == 999 && bytes.iter().all(|byte| *byte == bytes[0]));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary is left");
}

/// Returns a disk with a finished folder, not synced yet.
fn finished_folder() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for folder in ["db.partial", "db.partial/tables"] {
        disk.put_folder(Path::new(folder));
    }
    for file in STORE_FILES {
        let path = Path::new("db.partial").join(file);
        disk.create_new(&path).unwrap().write_all(file.as_bytes()).unwrap();
    }
    disk
}

const STORE_FILES: [&str; 3] = ["graph.bin", "metadata.json", "tables/orders.bin"];

fn assert_absent_or_complete(disk: &SimulatedDisk, place: &str) -> bool {
    let is_there = disk.exists(Path::new("db")).unwrap();
    for file in STORE_FILES {
        let content = disk.read(&Path::new("db").join(file)).ok();
        let expected = is_there.then(|| file.as_bytes().to_vec());
        assert_eq!(content, expected, "{file}, {place}");
    }
    is_there
}

#[test]
fn p6_a_folder_is_absent_or_complete_after_any_failure() {
    let (partial, to) = (Path::new("db.partial"), Path::new("db"));
    let undisturbed = finished_folder();
    let before = undisturbed.calls();
    commit_folder(&undisturbed, partial, to).unwrap();
    let calls = undisturbed.calls() - before;
    assert_eq!(calls, 7, "three files, two folders, rename, the folder above");
    for breakage in [Breakage::FailOnce, Breakage::PowerLoss] {
        for at in 0..=calls {
            let disk = finished_folder();
            disk.break_at(at, breakage);
            let result = commit_folder(&disk, partial, to);
            disk.mend();
            let place = format!("{breakage:?} at call {at}, {result:?}");
            assert_eq!(result.is_ok(), breakage == Breakage::PowerLoss || at == calls, "{place}");
            if breakage == Breakage::FailOnce && !assert_absent_or_complete(&disk, &place) {
                commit_folder(&disk, partial, to).expect("the second attempt");
                assert!(assert_absent_or_complete(&disk, &place));
            }
            for survival in SURVIVALS {
                let place = format!("{place}, {survival:?}");
                let is_there = assert_absent_or_complete(&disk.after_power_loss(survival), &place);
                assert!(is_there || at < calls, "{place}: a write that was reported done is lost");
            }
        }
    }
}

#[test]
fn p6_a_replaced_folder_is_the_old_or_the_new_one_after_any_failure() {
    let (partial, to) = (Path::new("db.partial"), Path::new("db"));
    let with_old = || {
        let disk = finished_folder();
        disk.put_folder(to);
        disk.put(&to.join("metadata.json"), b"old");
        disk.sync_folder(Path::new(".")).unwrap();
        disk
    };
    let assert_old_or_complete = |disk: &SimulatedDisk, place: &str| {
        let is_old = disk.read(&to.join("metadata.json")).is_ok_and(|bytes| bytes == b"old");
        assert!(is_old || assert_absent_or_complete(disk, place), "{place}: no folder is there");
        !is_old
    };
    let undisturbed = with_old();
    let before = undisturbed.calls();
    replace_folder(&undisturbed, partial, to).unwrap();
    let calls = undisturbed.calls() - before;
    assert_eq!(calls, 7, "three files, two folders, exchange, the folder above");
    assert_eq!(undisturbed.read(&partial.join("metadata.json")).unwrap(), b"old");
    for breakage in [Breakage::FailOnce, Breakage::PowerLoss] {
        for at in 0..=calls {
            let disk = with_old();
            disk.break_at(at, breakage);
            let result = replace_folder(&disk, partial, to);
            disk.mend();
            let place = format!("{breakage:?} at call {at}, {result:?}");
            assert_eq!(result.is_ok(), breakage == Breakage::PowerLoss || at == calls, "{place}");
            if breakage == Breakage::FailOnce && !assert_old_or_complete(&disk, &place) {
                let said = result.unwrap_err().to_string();
                assert!(said.starts_with("db was not written and is as it was: "), "{said}");
            }
            for survival in SURVIVALS {
                let place = format!("{place}, {survival:?}");
                let is_new = assert_old_or_complete(&disk.after_power_loss(survival), &place);
                assert!(is_new || at < calls, "{place}: a write that was reported done is lost");
            }
        }
    }
}

#[test]
fn an_existing_folder_is_never_replaced() {
    let disk = finished_folder();
    disk.put_folder(Path::new("db"));
    let error = commit_folder(&disk, Path::new("db.partial"), Path::new("db")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(
        error.to_string(),
        "db exists already, and headwater never replaces a folder; remove it, or choose another path"
    );
}

fn series() -> Series {
    Series { prefix: "run".into(), suffix: ".cursor".into() }
}

#[test]
fn a_series_keeps_its_highest_numbers_and_other_files() {
    let disk = checkpoints_folder(Some(OLD));
    let foreign = [
        "run-7.cursor",
        "run-000000000007.cursor.bak",
        ".run-000000000007.cursor.0.partial",
        "run-+00000000007.cursor",
        "other-000000000007.cursor",
        "run-0000000000007.cursor",
    ];
    foreign.iter().for_each(|f| disk.put(&Path::new("ck").join(f), OLD));
    disk.put_folder(Path::new("ck/run-000000000003.cursor"));
    for number in [9, 10, 999_999_999_999, 1_000_000_000_000, 2] {
        disk.put(&Path::new("ck").join(series().file_name(number)), NEW);
    }
    series().keep_last(&disk, Path::new("ck"), (1_000_000_000_000, 3), &[]).unwrap();
    let numbers = series().numbers(&disk, Path::new("ck")).unwrap();
    assert_eq!(numbers, [10, 999_999_999_999, 1_000_000_000_000]);
    let names = file_names(&disk, "ck");
    assert!(foreign.iter().all(|f| names.iter().any(|n| n == f)), "{names:?}");
    assert!(names.iter().any(|n| n == "run-000000000003.cursor"), "a folder stays");
    series().keep_last(&disk, Path::new("ck"), (1_000_000_000_000, 7), &[]).unwrap();
    assert_eq!(series().numbers(&disk, Path::new("ck")).unwrap(), numbers);
    let error = series().keep_last(&disk, Path::new("ck"), (10, 0), &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

#[test]
fn damaged_files_that_were_passed_over_do_not_count_as_kept() {
    let disk = checkpoints_folder(None);
    for number in [3, 4, 5, 8, 9] {
        disk.put(&Path::new("ck").join(series().file_name(number)), NEW);
    }
    // 8 and 9 are damaged: somebody went on from 4, and wrote 5.
    series().keep_last(&disk, Path::new("ck"), (5, 2), &[]).unwrap();
    assert_eq!(series().numbers(&disk, Path::new("ck")).unwrap(), [4, 5]);
}

#[test]
fn a_series_removes_the_temporaries_of_its_killed_writers_alone() {
    let disk = checkpoints_folder(None);
    let foreign = [".other-000000000007.cursor.0.partial", ".run-000000000007.cursor.x.partial"];
    let own = [".run-000000000007.cursor.0.partial", ".run-000000000012.cursor.31.partial"];
    foreign.iter().chain(&own).for_each(|file| disk.put(&Path::new("ck").join(file), OLD));
    series().remove_abandoned(&disk, Path::new("ck")).unwrap();
    assert_eq!(file_names(&disk, "ck"), foreign);
}

#[test]
fn the_newest_file_of_a_series_survives_any_failure() {
    for breakage in [Breakage::FailOnce, Breakage::PowerLoss] {
        for at in 0..4 {
            let disk = checkpoints_folder(None);
            for number in 0..5 {
                disk.put(&Path::new("ck").join(series().file_name(number)), NEW);
            }
            disk.break_at(at, breakage);
            let result = series().keep_last(&disk, Path::new("ck"), (4, 1), &[]);
            assert_eq!(result.is_ok(), breakage == Breakage::PowerLoss, "{at}");
            disk.mend();
            for survival in SURVIVALS {
                let found = disk.after_power_loss(survival);
                let numbers = series().numbers(&found, Path::new("ck")).unwrap();
                assert_eq!(numbers.last(), Some(&4), "{breakage:?} at call {at}");
                series().keep_last(&found, Path::new("ck"), (4, 1), &[]).unwrap();
                assert_eq!(series().numbers(&found, Path::new("ck")).unwrap(), [4]);
            }
        }
    }
}

#[test]
fn the_real_disk_keeps_the_same_promises() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run-000000000001.cursor");
    write_file(&Disk, &path, OLD).unwrap();
    write_file(&Disk, &path, NEW).unwrap();
    assert_eq!(fs::read(&path).unwrap(), NEW);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary is left");
    assert_eq!(series().numbers(&Disk, folder.path()).unwrap(), [1]);

    let partial = folder.path().join("db.partial");
    fs::create_dir_all(partial.join("tables")).unwrap();
    fs::write(partial.join("tables/a.bin"), NEW).unwrap();
    let to = folder.path().join("db");
    commit_folder(&Disk, &partial, &to).unwrap();
    assert_eq!(fs::read(to.join("tables/a.bin")).unwrap(), NEW);
    assert!(!partial.exists());
    fs::create_dir(&partial).unwrap();
    assert!(commit_folder(&Disk, &partial, &to).is_err());

    let nowhere = folder.path().join("missing/run.cursor");
    let error = write_file(&Disk, &nowhere, NEW).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(
        error.to_string().contains("missing/run.cursor was not written and is as it was"),
        "{error}"
    );
    assert!(write_file(&Disk, Path::new("/"), NEW).is_err());
}

#[test]
fn the_real_disk_lists_names_in_order_and_sees_dangling_links() {
    let folder = tempfile::tempdir().unwrap();
    let mut names: Vec<_> = (0..40_u32).map(|n| format!("{:02}", n * 29 % 40)).collect();
    for name in &names {
        assert!(!Disk.exists(&folder.path().join(name)).unwrap());
        fs::write(folder.path().join(name), NEW).unwrap();
        assert!(Disk.exists(&folder.path().join(name)).unwrap());
    }
    assert!(Disk.exists(&folder.path().join("00/below a file")).is_err());
    names.sort();
    let listed = Disk.list(folder.path()).unwrap();
    assert_eq!(listed.iter().map(|entry| entry.name.to_str().unwrap()).collect::<Vec<_>>(), names);
    #[cfg(unix)]
    {
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("nowhere"), &link).unwrap();
        assert!(Disk.exists(&link).unwrap());
    }
}

#[cfg(unix)]
#[test]
fn a_socket_or_device_is_never_replaced_by_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&to).unwrap();
    let error = write_file(&Disk, &to, NEW).unwrap_err();
    assert!(error.to_string().contains("is not a file; choose another path"), "{error}");
    assert_eq!(Disk.list(folder.path()).unwrap().len(), 1, "the socket stays, and nothing else");
}

#[cfg(feature = "prepare")]
#[test]
fn the_real_disk_exchanges_two_folders() {
    let folder = tempfile::tempdir().unwrap();
    let (partial, to) = (folder.path().join("db.partial"), folder.path().join("db"));
    for (path, bytes) in [(&partial, NEW), (&to, OLD)] {
        fs::create_dir(path).unwrap();
        fs::write(path.join("a.bin"), bytes).unwrap();
    }
    replace_folder(&Disk, &partial, &to).unwrap();
    assert_eq!(fs::read(to.join("a.bin")).unwrap(), NEW);
    assert_eq!(fs::read(partial.join("a.bin")).unwrap(), OLD);
}

#[test]
fn a_claim_waits_for_the_end_of_another_and_keeps_the_bytes_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(Claim::FILE);
    fs::write(&file, OLD).unwrap();
    let first = Claim::of(folder.path()).unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| Claim::of(folder.path()));
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(!second.is_finished(), "the folder is claimed");
        drop(first);
        second.join().unwrap().unwrap();
    });
    assert_eq!(fs::read(&file).unwrap(), OLD);
}

#[test]
fn a_lease_has_one_holder_at_a_time_and_its_file_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1.lease");
    // A killed process left the file.
    fs::write(&path, b"").unwrap();
    let first = Lease::of(&path).unwrap().expect("no other process has the lease");
    assert!(Lease::of(&path).unwrap().is_none());
    assert!(path.exists(), "the holder's file stays when another process asks");
    drop(first);
    assert!(!path.exists());
    assert!(Lease::of(&path).unwrap().is_some());
}

#[cfg(unix)]
#[test]
fn a_link_or_folder_at_the_path_of_a_lease_is_rejected_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    fs::write(path("file"), OLD).unwrap();
    fs::create_dir(path("folder")).unwrap();
    for (link, to) in [("link", "file"), ("dangling", "nowhere")] {
        std::os::unix::fs::symlink(path(to), path(link)).unwrap();
    }
    for name in ["link", "dangling", "folder"] {
        let error = Lease::of(&path(name)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().ends_with("; remove it"), "{error}");
        assert!(Disk.exists(&path(name)).unwrap(), "{name}");
    }
    assert!(!path("nowhere").exists());
}

/// The files are the system's own, which root may not write, either.
#[cfg(target_os = "linux")]
#[test]
fn a_lease_needs_a_file_to_read_or_a_folder_to_write_to() {
    // Another run of this test may hold it.
    Lease::of(Path::new("/proc/sys/kernel/ostype")).unwrap();
    let error = Lease::of(Path::new("/sys/1.lease")).unwrap_err();
    assert!(error.to_string().ends_with("; let this process write to the folder"), "{error}");
}
