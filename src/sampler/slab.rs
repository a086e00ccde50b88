//! Buffers for batches: aligned, and used again.

use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};

use crate::bytes::ALIGNMENT;

/// A cache line, which is what makes a buffer aligned.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

/// Buffers that wait to be used again: fresh pages cost ten times what warm ones do.
#[derive(Default)]
pub(super) struct Pool {
    free: Mutex<Vec<Vec<Line>>>,
}

/// A buffer that starts at a multiple of 64 and goes back to its pool when it is dropped.
pub(super) struct Slab {
    lines: Vec<Line>,
    pool: Arc<Pool>,
}

impl Pool {
    /// The most buffers that wait; more were alive at once than will be needed again.
    const FREE_MAX: usize = 64;

    /// A buffer of at least `bytes` bytes, which hold anything.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Slab {
        let count = bytes.div_ceil(ALIGNMENT);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let found = free.iter().position(|lines| lines.len() == count);
        let lines = found.map(|place| free.swap_remove(place));
        drop(free);
        let lines = lines.unwrap_or_else(|| vec![Line::zeroed(); count]);
        Slab { lines, pool: Arc::clone(self) }
    }
}

impl Slab {
    pub(super) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines)
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.lines)
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < Pool::FREE_MAX {
            free.push(lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_used_again() {
        let pool = Arc::new(Pool::default());
        let slab = pool.take(1000);
        let place = slab.bytes().as_ptr();
        assert_eq!((place as usize % ALIGNMENT, slab.bytes().len()), (0, 1024));
        drop(slab);
        let other = pool.take(2000);
        let again = pool.take(1000);
        assert!(again.bytes().as_ptr() == place && other.bytes().as_ptr() != place);
    }
}
