//! Aligned buffers for batches, which are reused.

use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};

use crate::bytes::ALIGNMENT;
use crate::error::{Error, Result};

/// A cache line: the unit of a buffer, which makes it aligned.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

/// Buffers for reuse: fresh pages cost ten times as much as warm ones.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<Vec<Buffer>>,
}

/// Memory whose bytes after the first `used` are zero.
#[derive(Default)]
struct Buffer {
    lines: Vec<Line>,
    used: usize,
}

/// A buffer that starts at a multiple of 64 and returns to its pool when it is dropped.
pub(crate) struct Slab {
    buffer: Buffer,
    pool: Arc<Pool>,
}

impl Pool {
    /// The most buffers that are kept.
    const FREE_MAX: usize = 64;

    /// Returns a buffer of at least `bytes` bytes. The first `used` hold old content, for the caller
    /// to overwrite; the others are zero.
    ///
    /// # Errors
    /// `LimitExceeded` when the allocation fails.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize, used: usize) -> Result<Slab> {
        let count = bytes.div_ceil(ALIGNMENT);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // The buffer that was returned last is still in a cache.
        let found = free.iter().rposition(|buffer| buffer.lines.len() == count);
        let found = found.map(|place| free.swap_remove(place));
        drop(free);
        let mut buffer = match found {
            Some(buffer) => buffer,
            None => Buffer::new(count)?,
        };
        if buffer.used > used {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer.lines);
            bytes[used..buffer.used].fill(0);
        }
        buffer.used = used;
        Ok(Slab { buffer, pool: Arc::clone(self) })
    }
}

impl Buffer {
    fn new(line_count: usize) -> Result<Self> {
        let mut lines = room_for_batch(line_count)?;
        lines.resize(line_count, Line::zeroed());
        Ok(Self { lines, used: 0 })
    }
}

/// Returns an empty vector with room for `count` values of a batch.
///
/// # Errors
/// `LimitExceeded` when the allocation fails.
pub(crate) fn room_for_batch<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| {
        Error::limit(format!(
            "cannot allocate {} bytes for a batch; use a smaller batch_size or sequence_length",
            count.saturating_mul(size_of::<T>())
        ))
    })?;
    Ok(room)
}

impl Slab {
    pub(crate) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.buffer.lines)
    }

    /// Returns the bytes that the caller must write.
    pub(crate) fn used_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.buffer.lines)[..self.buffer.used]
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < Pool::FREE_MAX {
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samplers of tables have further settings, which they add themselves.
    #[test]
    fn a_batch_too_large_to_allocate_names_the_settings_of_every_sampler() {
        let error = Arc::new(Pool::default()).take(usize::MAX / 2, 0).err().unwrap();
        let remedy = "bytes for a batch; use a smaller batch_size or sequence_length";
        assert!(error.to_string().ends_with(remedy), "{error}");
    }

    #[test]
    fn buffers_are_aligned_and_reused() {
        let pool = Arc::new(Pool::default());
        let mut slab = pool.take(1000, 900).unwrap();
        slab.used_mut().fill(7);
        let place = slab.bytes().as_ptr();
        assert_eq!((place as usize % ALIGNMENT, slab.bytes().len()), (0, 1024));
        drop(slab);
        let other = pool.take(2000, 0).unwrap();
        let again = pool.take(1000, 100).unwrap();
        assert!(again.bytes()[100..].iter().all(|&byte| byte == 0));
        assert!(again.bytes().as_ptr() == place && other.bytes().as_ptr() != place);
    }
}
