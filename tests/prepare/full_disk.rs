//! A full disk: a clear error, no files left, and a second run elsewhere.

use std::path::Path;
use std::process::Command;

use headwater::store::Store;

use crate::{Workshop, run, succeed};

/// A small disk in memory; dropping it unmounts it.
pub(crate) struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// Mounts the disk; `None` if the user may not mount.
    pub(crate) fn mount(at: &'a Path, size: &str) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let options = format!("size={size}");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(at)
            .output()
            .ok()?;
        output.status.success().then_some(Self(at))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_is_reported_and_nothing_is_left() {
    let workshop = Workshop::new(&[]);
    let data = workshop.text("demo");
    succeed(&["demo-data", &data]);
    let schema = format!("{data}/schema.toml");
    let elsewhere = workshop.text("db");
    succeed(&["prepare", &data, "--schema", &schema, "--out", &elsewhere]);
    let bytes = Store::open(&workshop.path("db")).unwrap().file_bytes();
    std::fs::remove_dir_all(&elsewhere).unwrap();
    // Full at the start, half-way, and near the end.
    for share in [2, 50, 95] {
        let size = (bytes * share / 100).to_string();
        let at = workshop.path(&format!("disk of {size}"));
        let Some(disk) = SmallDisk::mount(&at, &size) else {
            eprintln!("SKIPPED: mounting a small disk needs root; nothing was tested");
            return;
        };
        let out = at.join("db");
        let out_text = out.to_str().unwrap();
        let output = run(&["prepare", &data, "--schema", &schema, "--out", out_text]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        let place = at.join("db.partial").display().to_string();
        assert!(message.contains(&place), "{size}: {message}");
        assert!(message.contains("No space left on device"), "{size}: {message}");
        let told = format!("; nothing was written at {out_text}: free some space there");
        assert!(message.contains(&told), "{size}: {message}");
        assert_eq!(std::fs::read_dir(&at).unwrap().count(), 0, "{size}: something is left");
        drop(disk);
    }
    succeed(&["prepare", &data, "--schema", &schema, "--out", &elsewhere]);
    succeed(&["verify", &elsewhere]);
}

#[test]
fn a_page_on_a_full_disk_is_reported_and_nothing_is_left() {
    let workshop = Workshop::new(&[("numbers.csv", "id,n\n1,2\n3,4\n")]);
    let schema = "database = \"numbers\"\n[[table]]\nname = \"numbers\"\nkey = \"id\"\n\
        columns = { id = \"identifier\", n = \"numerical\" }\n\
        [[task]]\nname = \"n\"\nsees_everything = true\ncell = { table = \"numbers\", column = \"n\" }\n";
    let output = workshop.prepare(schema);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let at = workshop.path("disk");
    let Some(_disk) = SmallDisk::mount(&at, "8192") else {
        eprintln!("SKIPPED: mounting a small disk needs root; nothing was tested");
        return;
    };
    let page = at.join("page.html");
    let (store, page) = (workshop.text("db"), page.to_str().unwrap());
    let output = run(&["inspect", &store, "--task", "n", "--seed-index", "0", "--html", page]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("page.html") && message.contains("No space left"), "{message}");
    assert_eq!(std::fs::read_dir(&at).unwrap().count(), 0, "something is left");
}
