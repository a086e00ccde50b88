//! Each entrance for a file, with a pipe, a folder, a device and a socket in its place: an error that
//! names it, and no wait for ever.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Workshop, succeed};

const KINDS: [&str; 4] = ["pipe", "folder", "device", "socket"];

/// Puts something that is no file at `path`; returns what must live for it to stay one.
fn place(kind: &str, path: &Path) -> Option<UnixListener> {
    if path.is_dir() && !path.is_symlink() {
        std::fs::remove_dir_all(path).unwrap();
    } else if path.symlink_metadata().is_ok() {
        std::fs::remove_file(path).unwrap();
    }
    match kind {
        "pipe" => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        "folder" => std::fs::create_dir(path).unwrap(),
        "device" => std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
        _ => return Some(UnixListener::bind(path).unwrap()),
    }
    None
}

/// Runs a command, which must fail within 10 seconds; returns its message.
fn told(command: &mut Command) -> String {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > Duration::from_secs(10) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} waits for ever");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut message = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut message).unwrap();
    assert!(status.code().is_some_and(|code| (1..=4).contains(&code)), "{status}: {message}");
    message
}

/// The name of a file within the workshop, and the command that is given its path.
type Entrance<'a> = (&'a str, Box<dyn Fn(&str) -> Command + 'a>);

const SCHEMA: &str =
    "database = \"t\"\n[[table]]\nname = \"t\"\nkey = \"a\"\ncolumns = { a = \"identifier\" }\n";

#[test]
fn what_is_no_file_is_told_at_each_entrance() {
    let workshop = Workshop::new(&[("t.csv", "a\n1\n2\n")]);
    let text = |name: &str| workshop.text(name);
    std::fs::write(workshop.path("schema.toml"), SCHEMA).unwrap();
    let (data, schema, db) = (text("data"), text("schema.toml"), text("db"));
    succeed(&["prepare", &data, "--schema", &schema, "--out", &db, "--dimension", "8"]);
    let headwater = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
        command.args(arguments);
        command
    };
    let reduce = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-reduce"));
        command.args(arguments).arg("--out").arg(workshop.path("out.npy"));
        command
    };
    let fold = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-reduce"));
        let spool = workshop.path("spool");
        command.args(["fold", "--spool"]).arg(spool).arg("--out").arg(workshop.path("f.npy"));
        command
    };
    let new = text("new.db");
    let url = ["--embedder", "http://127.0.0.1:9/v1", "--model", "m", "--embedding-cache"];
    let prepare = |source: &str, schema: &str, more: &[&str]| {
        let words = ["prepare", source, "--schema", schema, "--out", &new, "--dimension", "8"];
        headwater(&[&words[..], more].concat())
    };
    let entrances: Vec<Entrance<'_>> = vec![
        ("x.toml", Box::new(|path| prepare(&data, path, &[]))),
        ("x.csv", Box::new(|path| prepare(path, &schema, &[]))),
        ("x.csv.gz", Box::new(|path| headwater(&["schema", path]))),
        ("x.parquet", Box::new(|path| headwater(&["schema", path]))),
        ("x.arrayrecord", Box::new(|path| headwater(&["schema", path]))),
        ("x.sqlite", Box::new(|path| headwater(&["schema", path]))),
        ("lone/t.csv", Box::new(|_| headwater(&["schema", &text("lone")]))),
        ("parts/t/0.parquet", Box::new(|_| headwater(&["schema", &text("parts")]))),
        ("x.cursor", Box::new(|path| headwater(&["cursor", path]))),
        ("cache", Box::new(|path| prepare(&data, &schema, &[&url[..], &[path]].concat()))),
        ("x.npy", Box::new(|path| reduce(&["gram", "--input", path]))),
        ("x.safetensors", Box::new(|path| reduce(&["gram", "--input", path]))),
        ("y.parquet", Box::new(|path| reduce(&["gram", "--input", path]))),
        (
            "x.raw",
            Box::new(|path| reduce(&["gram", "--dtype", "f32", "--columns", "2", "--input", path])),
        ),
        ("x.json", Box::new(|path| reduce(&["gram", "--input", path]))),
        ("spool/job.json", Box::new(|_| fold())),
        // The last, since it spoils the store.
        ("db/tables/t.bin", Box::new(|_| headwater(&["verify", &db]))),
        ("db/metadata.json", Box::new(|_| headwater(&["verify", &db]))),
    ];
    for folder in ["lone", "parts/t", "spool"] {
        std::fs::create_dir_all(workshop.path(folder)).unwrap();
    }
    for (name, command) in entrances {
        let path = workshop.path(name);
        for kind in KINDS {
            let _socket = place(kind, &path);
            let message = told(&mut command(path.to_str().unwrap()));
            // A folder that holds no tables is named, and not each that lies in it.
            let named = match kind {
                "folder" => workshop.text(name.split('/').next().unwrap()),
                _ => path.to_str().unwrap().to_owned(),
            };
            assert!(message.contains(&named), "{name}: {kind}: {message}");
        }
        place("folder", &path);
    }
}
