//! The switch of the mutants, a module of the rewritten copy: which mutant is on, and which are reached.
//!
//! `HEADWATER_MUTANT=17` turns mutant 17 on. `HEADWATER_MUTANTS_REACHED=FILE` turns none on and sets
//! byte N of the file, which is as long as there are mutants, when code asks for mutant N.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

const NONE: u32 = u32::MAX;
const RECORDING: u32 = u32::MAX - 1;
const NOT_READ: u32 = u32::MAX - 2;

static ACTIVE: AtomicU32 = AtomicU32::new(NOT_READ);
static REACHED: OnceLock<Vec<&'static AtomicU8>> = OnceLock::new();

/// Whether mutant `number` is on.
// Inner loops ask, too, and a build that optimises little would make each a call.
#[inline(always)]
pub fn on(number: u32) -> bool {
    let active = ACTIVE.load(Relaxed);
    if active == NONE {
        return false;
    }
    active == number || (active >= NOT_READ && reached(number))
}

#[cold]
#[inline(never)]
fn reached(number: u32) -> bool {
    let chosen = std::env::var("HEADWATER_MUTANT").ok().map(|n| n.parse().unwrap());
    let record = std::env::var_os("HEADWATER_MUTANTS_REACHED");
    let bytes = REACHED.get_or_init(|| record.as_ref().map(map).unwrap_or_default());
    let recording = if bytes.is_empty() { NONE } else { RECORDING };
    ACTIVE.store(chosen.unwrap_or(recording), Relaxed);
    if let Some(byte) = bytes.get(number as usize) {
        byte.store(1, Relaxed);
    }
    chosen == Some(number)
}

/// The file's memory, so that the record is complete however the process ends.
#[allow(unsafe_code)]
fn map(path: &std::ffi::OsString) -> Vec<&'static AtomicU8> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    // SAFETY: other processes write to the file by this function alone, one byte at a time.
    let map = Box::leak(Box::new(unsafe { memmap2::MmapMut::map_mut(&file).unwrap() }));
    let start = map.as_mut_ptr();
    // SAFETY: the bytes live as long as the process and are reached only by these atomics.
    (0..map.len()).map(|at| unsafe { AtomicU8::from_ptr(start.add(at)) }).collect()
}
