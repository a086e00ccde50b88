//! The golden files in `checkpoints/`: this build writes them, and every build reads them.
//!
//! `HEADWATER_REGENERATE=1 cargo test --release --test plan golden` writes those of the current format
//! version again; files of older versions stay as they are.

use std::fs;

use headwater::plan::{Cursor, CursorKind, Plan, Position};

use crate::manifest::{self, Golden, digest, folder, is_asked_to_regenerate, manifest};

const GENERATOR: &str = "tests/plan/golden.rs";

fn cursor(plan: Plan, counters: &[(&str, u64)]) -> Cursor {
    let mut position = Position::new();
    counters.iter().for_each(|(name, count)| position.set(*name, *count));
    Cursor::new(CursorKind::Sampler, plan, position)
}

fn typical_plan() -> Plan {
    let mut plan = Plan::new();
    plan.add("seed", 42).unwrap();
    plan.add("store/root_hash", *blake3::hash(b"a store").as_bytes()).unwrap();
    plan.add("task/orders.status/share", 3).unwrap();
    plan.add("walk/latest_children", false).unwrap();
    plan.add("walk/order", "breadth first").unwrap();
    plan
}

/// Returns a cursor with every kind of setting, half-way through a run.
pub(crate) fn typical() -> Cursor {
    cursor(
        typical_plan(),
        &[("train/step", 1200), ("train/task/orders.status/draws", 38_400), ("val/step", 1 << 40)],
    )
}

/// Returns a cursor of a finite pass, in its second task.
fn pass() -> Cursor {
    let mut plan = typical_plan();
    plan.add("pass/split", "test").unwrap();
    plan.add("pass/task/0", "shop/churn").unwrap();
    plan.add("pass/task/1", "shop/spend").unwrap();
    let mut position = Position::new();
    position.set("seeds", 96);
    position.set("tasks", 1);
    Cursor::new(CursorKind::Evaluation, plan, position)
}

/// Appends the digest of a body.
pub(crate) fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    let hash = blake3::hash(&body);
    body.extend_from_slice(hash.as_bytes());
    body
}

/// Returns the name, the description and the cursor of each golden file.
fn good() -> Vec<(&'static str, &'static str, Cursor)> {
    let mut foreign = Plan::new();
    foreign.add("tâche/état", "\u{1F3C1}").unwrap();
    foreign.add("seed", u64::MAX).unwrap();
    vec![
        ("cursor-v1-empty.cursor", "no setting, no counter", cursor(Plan::new(), &[])),
        ("cursor-v1-typical.cursor", "every kind of setting, half-way through a run", typical()),
        ("cursor-v1-evaluation.cursor", "a pass in its second task", pass()),
        (
            "cursor-v1-extremes.cursor",
            "names beyond ASCII, the greatest numbers, an empty name",
            cursor(foreign, &[("", 0), ("ÿ", u64::MAX)]),
        ),
    ]
}

/// Returns the name, the damage and the bytes of each bad file.
fn bad() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let whole = typical().encode().unwrap();
    let body = whole[..whole.len() - 32].to_vec();
    let edited = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut edited = body.clone();
        edit(&mut edited);
        let payload_bytes = edited.len() as u64 - 24;
        edited[16..24].copy_from_slice(&payload_bytes.to_le_bytes());
        sealed(edited)
    };
    let replaced = |from: &[u8], to: &[u8]| {
        let at = body.windows(from.len()).position(|w| w == from).unwrap();
        edited(&|b| drop(b.splice(at..at + from.len(), to.iter().copied())))
    };
    let mut flipped = whole.clone();
    flipped[100] ^= 0x10;
    let mut wrong_length = body.clone();
    wrong_length[16] ^= 1;
    vec![
        ("bad/cursor-nothing.cursor", "no byte at all", vec![]),
        ("bad/cursor-other-file.cursor", "a PNG image", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec()),
        ("bad/cursor-cut-short.cursor", "the first 40 bytes", whole[..40].to_vec()),
        ("bad/cursor-cut-at-the-end.cursor", "all but the last byte", {
            whole[..whole.len() - 1].to_vec()
        }),
        ("bad/cursor-flipped-bit.cursor", "one bit of the payload", flipped),
        ("bad/cursor-newer-version.cursor", "format version 2", edited(&|b| b[8] = 2)),
        ("bad/cursor-unknown-kind.cursor", "kind 7", edited(&|b| b[12] = 7)),
        ("bad/cursor-wrong-length.cursor", "another length in the header", sealed(wrong_length)),
        ("bad/cursor-wrong-fingerprint.cursor", "a bit of the fingerprint", {
            edited(&|b| b[24] ^= 1)
        }),
        ("bad/cursor-changed-field.cursor", "the fingerprint of other settings", {
            replaced(b"breadth first", b"breadth worst")
        }),
        ("bad/cursor-longer-payload.cursor", "bytes after the end of the payload", {
            edited(&|b| b.extend([0; 3]))
        }),
        ("bad/cursor-shorter-payload.cursor", "a payload without its last counter", {
            edited(&|b| b.truncate(b.len() - 8))
        }),
        ("bad/cursor-name-twice.cursor", "two counters of one name", {
            replaced(
                &[&8_u64.to_le_bytes()[..], b"val/step"].concat(),
                &[&10_u64.to_le_bytes()[..], b"train/step"].concat(),
            )
        }),
        ("bad/cursor-names-in-disorder.cursor", "counters out of order", {
            replaced(
                &[&8_u64.to_le_bytes()[..], b"val/step"].concat(),
                &[&8_u64.to_le_bytes()[..], b"all/step"].concat(),
            )
        }),
        ("bad/cursor-flag-of-two.cursor", "a flag that is neither 0 nor 1", {
            replaced(b"children\x01\0\0\0\0", b"children\x01\0\0\0\x02")
        }),
        ("bad/cursor-unknown-type.cursor", "a setting of type 9", {
            replaced(b"children\x01\0\0\0\0", b"children\x09\0\0\0\0")
        }),
        ("bad/cursor-name-not-text.cursor", "a name that is not UTF-8", {
            replaced(b"val/step", b"val/\xffstp")
        }),
        ("bad/cursor-endless-name.cursor", "a name of 2^56 bytes", {
            replaced(
                &[&8_u64.to_le_bytes()[..], b"val/step"].concat(),
                &[&(1_u64 << 56).to_le_bytes()[..], b"val/step"].concat(),
            )
        }),
    ]
}

fn regenerate() {
    let good =
        good().into_iter().map(|(name, what, cursor)| (name, what, cursor.encode().unwrap()));
    let all: Vec<_> = good.chain(bad()).collect();
    let goldens: Vec<_> = all
        .iter()
        .map(|(name, what, bytes)| Golden {
            name: (*name).to_owned(),
            what: (*what).to_owned(),
            bytes,
            message: Cursor::decode(bytes).err().map(|e| e.to_string()),
        })
        .collect();
    manifest::regenerate(GENERATOR, &goldens);
}

/// One test, so that files are regenerated before they are checked.
#[test]
fn p6_golden_cursors_round_trip_and_bad_ones_have_their_messages() {
    if is_asked_to_regenerate() {
        regenerate();
    }
    let manifest = manifest();
    for (name, _, cursor) in good() {
        let bytes = fs::read(folder().join(name)).unwrap();
        assert_eq!(Cursor::decode(&bytes).unwrap(), cursor, "{name}");
        assert_eq!(cursor.encode().unwrap(), bytes, "{name}");
    }
    for (name, _, bytes) in bad() {
        assert_eq!(fs::read(folder().join(name)).unwrap(), bytes, "{name}");
    }
    // Every file in the manifest is checked, of any version.
    for (name, entry) in &manifest {
        let bytes = fs::read(folder().join(name)).unwrap();
        assert_eq!(entry["digest"].as_str(), Some(digest(&bytes).as_str()), "{name}");
        assert!(entry["what"].as_str().is_some_and(|w| !w.is_empty()), "{name}");
        assert!(entry["generator"].as_str().is_some_and(|g| !g.is_empty()), "{name}");
        if name.ends_with(".cursor") {
            let message = Cursor::decode(&bytes).err().map(|e| e.to_string());
            let expected = entry.get("message").and_then(|m| m.as_str());
            assert_eq!(message.as_deref(), expected, "{name}");
            assert_eq!(name.starts_with("bad/"), message.is_some(), "{name}");
        }
    }
}

#[test]
fn golden_folder_and_manifest_agree() {
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(prefix) = folders.pop() {
        for entry in fs::read_dir(folder().join(&prefix)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                folders.push(name + "/");
            } else if name != "MANIFEST.toml" {
                found.push(name);
            }
        }
    }
    found.sort();
    let mut listed: Vec<String> = manifest().keys().cloned().collect();
    listed.sort();
    assert_eq!(found, listed);
}
