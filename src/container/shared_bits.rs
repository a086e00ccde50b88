//! Bits that the processes of a machine share, in a file in memory: `/dev/shm/headwater-UID/KEY`.
//!
//! Each process that uses the bits holds a shared lock of the file, which the system drops when the process
//! ends, however it ends. Three rules follow from that, and all that is below keeps them:
//!
//! 1. A file gets its name when it is complete, all zeros, and locked by its maker: it is made under a name that
//!    no other file ever has, and linked to its own. So no process waits for another, not even when all start
//!    at once.
//! 2. The length of a file never changes afterwards, so that no access to its map fails. A full `/dev/shm` is
//!    found when the zeros are written.
//! 3. A name is removed only by a process that holds the exclusive lock of its file: no other uses it then. The
//!    last process to close the bits does so. What killed processes left is removed by the next one that opens
//!    these bits, or makes any: so bits end with the last process that has the store's file open.
//!
//! A file may lose its name between being opened and being locked, so whoever has locked it looks whether it
//! still is the file of that name, and starts again if not. Whatever goes wrong between processes, the worst
//! is that one of them has bits that the others do not see: the bits of a file, with or without a name, are
//! only ever set by processes that have checked a block of the file that is in its key.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bytes::Digest;
use crate::durable::{is_at, try_lock};
use crate::files::{open_as, try_open};
use crate::map::Words;

/// What the key begins with. Another number keeps the bits of versions apart that lay them out in another way.
const KEY_FORMAT: &[u8] = b"headwater: blocks that match their digest, 1";

/// How often a process starts again when others remove what it opens.
const TRIES: u32 = 1000;

/// The use of shared bits by this process.
pub(super) struct SharedBits {
    path: PathBuf,
    /// Holds the lock.
    file: File,
    process: u32,
}

impl SharedBits {
    /// Returns the bits of an open file of a store, whose header has this digest: `count` words.
    ///
    /// # Errors
    /// Whatever prevents sharing.
    pub(super) fn of(file: &File, digest: Digest, count: usize) -> io::Result<(Self, Words)> {
        let user = user()?;
        let folder = PathBuf::from(format!("/dev/shm/headwater-{user}"));
        Self::open(&folder, user, &key(digest, &file.metadata()?), count)
    }

    /// Opens the bits `key` in the folder of a user, and makes them if they are not there.
    fn open(folder: &Path, user: u32, key: &str, count: usize) -> io::Result<(Self, Words)> {
        make_folder(folder, user)?;
        let path = folder.join(key);
        let bytes = count as u64 * size_of::<u64>() as u64;
        for _ in 0..TRIES {
            let opened = match open_as(&path, OpenOptions::new().read(true).write(true)) {
                Ok(file) => join(file, &path)?,
                Err(e) if e.kind() == ErrorKind::NotFound => begin(&path, bytes)?,
                Err(e) => return Err(e),
            };
            let Some(file) = opened else {
                // The other process may need this core to go on.
                std::thread::yield_now();
                continue;
            };
            let found = file.metadata()?;
            if found.len() != bytes || found.uid() != user || found.mode() & 0o077 != 0 {
                return Err(ErrorKind::InvalidData.into());
            }
            let words = Words::of_file(&file, count)?;
            return Ok((Self { path, file, process: std::process::id() }, words));
        }
        Err(ErrorKind::WouldBlock.into())
    }
}

impl Drop for SharedBits {
    fn drop(&mut self) {
        // A forked child has the lock of its parent, which still uses the bits.
        if self.process == std::process::id() {
            // Left there, the file would do no harm.
            let _ = remove_if_unused(&self.file, &self.path);
        }
    }
}

/// Returns the number of the user of this process, who owns its entry.
fn user() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.uid())
}

/// Returns the key of an open file of a store, whose header has this digest.
fn key(digest: Digest, found: &Metadata) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(KEY_FORMAT).update(&digest.0);
    for number in [found.dev(), found.ino(), found.len()] {
        hasher.update(&number.to_le_bytes());
    }
    for time in [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()] {
        hasher.update(&time.to_le_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Makes the folder of a user, and checks that no other user can have put anything in it.
fn make_folder(folder: &Path, user: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    match found.is_dir() && found.uid() == user && found.mode() & 0o777 == 0o700 {
        true => Ok(()),
        false => Err(ErrorKind::PermissionDenied.into()),
    }
}

/// Shares bits that were opened; `None` when no process used them, or their name was removed.
fn join(file: File, path: &Path) -> io::Result<Option<File>> {
    if remove_if_unused(&file, path)? {
        return Ok(None);
    }
    // A process that removes the name has the lock.
    let is_shared = file.try_lock_shared().is_ok() && is_at(&file, path)?;
    Ok(is_shared.then_some(file))
}

/// Makes bits, all 0; `None` when another process has just made them, or removed these as a leftover.
fn begin(path: &Path, bytes: u64) -> io::Result<Option<File>> {
    // Relaxed: the numbers only differ.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    remove_leftovers(path)?;
    let unfinished = path.with_extension(format!("{}-{number}", std::process::id()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let made = open_as(&unfinished, &mut options).and_then(|file| {
        let linked = finish(&file, bytes).and_then(|()| fs::hard_link(&unfinished, path));
        // Where it fails a leftover stays, which goes like any other.
        let _ = fs::remove_file(&unfinished);
        linked.map(|()| file)
    });
    match made {
        // Another file has the name where processes of two containers share the folder, and a number.
        Ok(file) => Ok(is_at(&file, path)?.then_some(file)),
        Err(e) => match e.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotFound | ErrorKind::WouldBlock => Ok(None),
            _ => Err(e),
        },
    }
}

/// Locks a new file, and fills it with zeros.
fn finish(mut file: &File, bytes: u64) -> io::Result<()> {
    file.try_lock_shared()?;
    io::copy(&mut io::repeat(0).take(bytes), &mut file)?;
    Ok(())
}

/// Removes the files beside `path` that no process uses.
fn remove_leftovers(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path.parent().unwrap_or(path))? {
        let path = entry?.path();
        // What cannot be opened or removed is no concern of this process.
        let _ = try_open(&path).and_then(|file| remove_if_unused(&file, &path));
    }
    Ok(())
}

/// Removes the name of an open file if no process uses the file; returns whether none does.
fn remove_if_unused(file: &File, path: &Path) -> io::Result<bool> {
    let is_unused = try_lock(file)?;
    if is_unused && is_at(file, path)? {
        fs::remove_file(path)?;
    }
    Ok(is_unused)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::process::{Child, Command, Stdio};

    use tempfile::TempDir;

    use super::*;

    /// The bits of a file of 64 GiB, so that a file of them that is half made is met.
    const COUNT: usize = 1 << 16;
    const KEY: &str = "key";

    /// The folder of the bits, which is made with the first of them.
    fn folder_in(outer: &TempDir) -> PathBuf {
        outer.path().join("bits")
    }

    fn open(folder: &Path) -> io::Result<(SharedBits, Words)> {
        SharedBits::open(folder, user().unwrap(), KEY, COUNT)
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn are_zero(words: &Words) -> bool {
        words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    fn set(words: &Words, word: usize, bit: usize) {
        words[word].fetch_or(1 << bit, Ordering::Relaxed);
    }

    fn is_set(words: &Words, word: usize, bit: usize) -> bool {
        words[word].load(Ordering::Relaxed) >> bit & 1 == 1
    }

    /// Runs `test` of this module in a process of its own, where [`role`] returns `folder`.
    fn start(test: &str, folder: &Path) -> Child {
        let test = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
        Command::new(std::env::current_exe().unwrap())
            .args([&test, "--exact", "--nocapture"])
            .env(ROLE, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    const ROLE: &str = "HEADWATER_SHARED_BITS_IN";

    /// The folder, in a process that [`start`] started.
    fn role() -> Option<PathBuf> {
        std::env::var_os(ROLE).map(PathBuf::from)
    }

    #[test]
    fn bits_end_with_the_last_process_that_uses_them() {
        let outer = TempDir::new().unwrap();
        let folder = folder_in(&outer);
        let (first, words) = open(&folder).unwrap();
        assert!(words.len() == COUNT && are_zero(&words));
        set(&words, 0, 3);
        let (second, again) = open(&folder).unwrap();
        assert!(is_set(&again, 0, 3));
        set(&again, COUNT - 1, 63);
        assert!(is_set(&words, COUNT - 1, 63));
        drop(first);
        let (third, again) = open(&folder).unwrap();
        assert!(is_set(&again, 0, 3) && is_set(&again, COUNT - 1, 63));
        assert_eq!(names(&folder), [KEY]);
        drop((second, third));
        assert_eq!(names(&folder), [""; 0]);
        let (_fourth, anew) = open(&folder).unwrap();
        assert!(are_zero(&anew));
        // The words outlive the use of them.
        assert!(is_set(&words, 0, 3));
    }

    #[test]
    fn bits_that_a_killed_process_left_begin_anew() {
        if let Some(folder) = role() {
            let (_bits, words) = open(&folder).unwrap();
            set(&words, 7, 7);
            println!("\nready");
            let _ = io::stdin().read_line(&mut String::new());
            return;
        }
        let outer = TempDir::new().unwrap();
        let folder = folder_in(&outer);
        let mut child = start("bits_that_a_killed_process_left_begin_anew", &folder);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"));
        let (bits, words) = open(&folder).unwrap();
        assert!(is_set(&words, 7, 7), "processes share the bits");
        drop((bits, words));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(names(&folder), [KEY]);
        let (bits, words) = open(&folder).unwrap();
        assert!(are_zero(&words));
        set(&words, 1, 1);
        assert!(is_set(&open(&folder).unwrap().1, 1, 1));
        assert_eq!(names(&folder), [KEY]);
        drop(bits);
        assert_eq!(names(&folder), [""; 0]);
    }

    #[test]
    fn making_bits_removes_what_killed_processes_left() {
        let outer = TempDir::new().unwrap();
        let folder = folder_in(&outer);
        drop(open(&folder).unwrap());
        for name in ["key.17-0", "bits-of-another-file"] {
            fs::write(folder.join(name), [0; 16]).unwrap();
        }
        let user = user().unwrap();
        let (_used, words) = SharedBits::open(&folder, user, "used", COUNT).unwrap();
        for name in ["key.17-0", "another"] {
            fs::write(folder.join(name), [0; 16]).unwrap();
        }
        set(&words, 2, 2);
        let (_bits, _) = open(&folder).unwrap();
        assert_eq!(names(&folder), [KEY, "used"]);
        assert!(is_set(&SharedBits::open(&folder, user, "used", COUNT).unwrap().1, 2, 2));
    }

    #[test]
    fn a_forked_child_leaves_the_bits_to_its_parent() {
        let outer = TempDir::new().unwrap();
        let folder = folder_in(&outer);
        let (bits, words) = open(&folder).unwrap();
        set(&words, 0, 0);
        let (path, file) = (bits.path.clone(), bits.file.try_clone().unwrap());
        // The child has the same lock, under the number of another process.
        drop(SharedBits { path, file, process: bits.process + 1 });
        assert!(is_set(&open(&folder).unwrap().1, 0, 0));
    }

    #[test]
    fn a_folder_that_others_can_change_is_not_used() {
        let outer = TempDir::new().unwrap();
        let folder = folder_in(&outer);
        let refused = || open(&folder).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
        drop(open(&folder).unwrap());
        for mode in [0o755, 0o770, 0o701] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert!(refused(), "{mode:o}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        drop(open(&folder).unwrap());
        let real = outer.path().join("real");
        fs::rename(&folder, &real).unwrap();
        symlink(&real, &folder).unwrap();
        assert!(refused(), "a link");
        fs::remove_file(&folder).unwrap();
        fs::write(&folder, "").unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(refused(), "a file");
        fs::remove_file(&folder).unwrap();
        fs::rename(&real, &folder).unwrap();
        drop(open(&folder).unwrap());
        let other = SharedBits::open(&folder, user().unwrap() + 1, KEY, COUNT);
        assert!(other.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied), "another owner");
        // Only the superuser may give a folder away.
        if chown(&folder, Some(user().unwrap() + 1), None).is_ok() {
            assert!(refused(), "given away");
        }
    }

    #[test]
    fn a_file_that_cannot_be_the_bits_is_not_used() {
        let outer = TempDir::new().unwrap();
        let folder = folder_in(&outer);
        let (bits, words) = open(&folder).unwrap();
        let of = |count| SharedBits::open(&folder, user().unwrap(), KEY, count);
        assert!(of(COUNT + 1).is_err() && of(COUNT - 1).is_err());
        let path = folder.join(KEY);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(open(&folder).is_err());
        drop((bits, words));
        fs::create_dir(&path).unwrap();
        assert!(open(&folder).is_err());
        fs::remove_dir(&path).unwrap();
        let other = outer.path().join("other");
        let bytes = vec![255; COUNT * 8];
        fs::write(&other, &bytes).unwrap();
        symlink(&other, &path).unwrap();
        assert!(open(&folder).is_err());
        assert!(fs::read(&other).unwrap() == bytes);
    }

    #[test]
    fn bits_that_lost_their_name_are_not_joined() {
        let outer = TempDir::new().unwrap();
        let folder = folder_in(&outer);
        let path = folder.join(KEY);
        let bits = open(&folder).unwrap();
        // Two processes open the bits just before their last user removes the name.
        let late = [(); 2].map(|()| try_open(&path).unwrap());
        drop(bits);
        let (_bits, words) = open(&folder).unwrap();
        set(&words, 5, 5);
        let [locked, joining] = late;
        locked.lock_shared().unwrap();
        assert!(join(joining, &path).unwrap().is_none());
        assert!(join(locked, &path).unwrap().is_none());
        assert!(is_set(&open(&folder).unwrap().1, 5, 5));
    }

    /// Opens the bits again and again, by two threads, each of which sets the bit of its number.
    fn open_and_close(folder: &Path, worker: usize) {
        std::thread::scope(|scope| {
            for thread in [2 * worker, 2 * worker + 1] {
                scope.spawn(move || {
                    for round in 0..200 {
                        let (_bits, words) = open(folder).unwrap();
                        let word = round * (COUNT / 200);
                        set(&words, word, thread);
                        // While one is open, another sees the same.
                        assert!(is_set(&open(folder).unwrap().1, word, thread), "lost");
                        let seen = words.iter().step_by(COUNT / 200 / 2);
                        let seen = seen.fold(0, |all, word| all | word.load(Ordering::Relaxed));
                        assert_eq!(seen >> (2 * WORKERS), 0, "wrong");
                    }
                });
            }
        });
    }

    const WORKERS: usize = 4;

    #[test]
    fn no_bit_is_lost_or_wrong_while_processes_open_and_close() {
        const TEST: &str = "no_bit_is_lost_or_wrong_while_processes_open_and_close";
        if let Some(folder) = role() {
            let mut worker = String::new();
            io::stdin().read_line(&mut worker).unwrap();
            open_and_close(&folder, worker.trim().parse().unwrap());
            return;
        }
        let outer = TempDir::new().unwrap();
        let folder = folder_in(&outer);
        // Ended by any process between two of its rounds, then kept by this one.
        for is_kept in [false, true] {
            let kept = is_kept.then(|| open(&folder).unwrap());
            let workers = (0..WORKERS).map(|worker| {
                let mut child = start(TEST, &folder);
                io::Write::write_all(
                    &mut child.stdin.take().unwrap(),
                    worker.to_string().as_bytes(),
                )
                .unwrap();
                child
            });
            for child in workers.collect::<Vec<_>>() {
                let done = child.wait_with_output().unwrap();
                assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
            }
            if let Some((_, words)) = &kept {
                let all = (1 << (2 * WORKERS)) - 1;
                let mut of_rounds = words.iter().step_by(COUNT / 200).take(200);
                assert!(of_rounds.all(|word| word.load(Ordering::Relaxed) == all));
            }
            drop(kept);
            assert_eq!(names(&folder), [""; 0]);
        }
    }
}
