//! What a piece of work takes from the allocator.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// The allocations of this thread, and their bytes.
    static TAKEN: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// The allocator of the system, which counts.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed to the system's allocator as it is; a counter of a plain number needs no
// allocation of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (count, bytes) = TAKEN.get();
        TAKEN.set((count + 1, bytes + layout.size() as u64));
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System.alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns the allocations that `work` makes on this thread, and their bytes.
pub(crate) fn allocated(work: impl FnOnce()) -> (u64, u64) {
    let (count, bytes) = TAKEN.get();
    work();
    let (count_after, bytes_after) = TAKEN.get();
    (count_after - count, bytes_after - bytes)
}
