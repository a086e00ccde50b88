//! What a resume costs.

use std::time::{Duration, Instant};

use headwater::plan::Cursor;

use crate::allocations::allocated;

/// Checks that a resume from a cursor far on takes the time and the memory of one from the start.
pub(crate) fn assert_cost_is_equal(resume: impl Fn(&Cursor), start: &Cursor, far: &Cursor) {
    let cost = |cursor: &Cursor| {
        // The resume alone: a batch beside it would hide its cost. Other programs only lengthen a time.
        let resumes = (0..200).map(|_| {
            let started = Instant::now();
            resume(cursor);
            started.elapsed()
        });
        resumes.min().unwrap()
    };
    let (near, at_end) = (cost(start), cost(far));
    assert!(at_end < near * 5 + Duration::from_micros(50), "{near:?}, {at_end:?} at step 10^12");
    // Nor does its memory grow, nor what a resumed sampler keeps.
    let memory = |cursor: &Cursor| allocated(|| resume(cursor));
    assert_eq!(memory(start), memory(far));
}
