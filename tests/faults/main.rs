//! The n-th call of a command fails, for each n: it ends with the right bits or an error that names the
//! cause, good files stay, and the next run is as if nothing had happened.
//!
//! `inject.c` stands between the command and its system. `HEADWATER_FAULTS=all` fails every call; without
//! it a few of each kind. `--nocapture` prints what was tried, and how it ended.

mod entrances;
mod given;
mod injector;
mod laws;

use entrances::{ENTRANCES, EXPORTS, Entrance, LARGE, LARGE_ENTRANCES};
use injector::Target;
use laws::Bench;

/// How many calls of each kind fail in one entrance.
fn count() -> u64 {
    match std::env::var("HEADWATER_FAULTS") {
        Ok(all) if all == "all" => u64::MAX,
        Ok(number) => number.parse().expect("HEADWATER_FAULTS is `all` or a number"),
        Err(_) => 4,
    }
}

/// Fails calls of each of these kinds at each entrance.
fn at_each<'a>(entrances: impl IntoIterator<Item = &'a Entrance>, faults: &[(&str, Target, bool)]) {
    if injector::library().is_none() {
        return;
    }
    let room = tempfile::tempdir().unwrap();
    let mut broken = 0;
    for entrance in entrances {
        if std::env::var("HEADWATER_ENTRANCE").is_ok_and(|only| !entrance.name.contains(&only)) {
            continue;
        }
        let bench = Bench::new(entrance, &room.path().canonicalize().unwrap());
        for (name, target, goes_on) in faults {
            let figures = bench.fail_each(*target, *goes_on, count());
            println!("| {} | {name} | {figures} |", entrance.name);
            figures.broken.iter().for_each(|law| println!("{law}"));
            broken += figures.broken.len();
        }
    }
    assert_eq!(broken, 0, "runs broke a law");
}

#[test]
fn any_call_about_a_file_may_fail() {
    at_each(
        ENTRANCES.iter().chain(EXPORTS),
        &[
            ("EIO once", Target::Files, false),
            ("EIO from then on", Target::Files, true),
            ("EINTR once", Target::Interrupted, false),
        ],
    );
}

#[test]
fn any_write_may_find_no_space_or_be_short() {
    at_each(
        ENTRANCES.iter().chain(EXPORTS),
        &[
            ("ENOSPC once", Target::Space, false),
            ("ENOSPC from then on", Target::Space, true),
            ("short once", Target::Parts, false),
            ("short from then on", Target::Parts, true),
        ],
    );
}

#[test]
fn any_allocation_may_fail() {
    at_each(
        ENTRANCES.iter().chain(EXPORTS),
        &[
            ("no memory once", Target::Memory(0), false),
            ("no memory from then on", Target::Memory(0), true),
        ],
    );
}

#[test]
fn an_allocation_sized_by_data_may_fail_without_an_abort() {
    let faults = [("no large memory once", Target::Memory(LARGE), false)];
    // What is written in place has a size of its own.
    let entrances = ENTRANCES.iter().chain(EXPORTS).chain(LARGE_ENTRANCES);
    at_each(entrances.filter(|entrance| !entrance.in_place), &faults);
}
