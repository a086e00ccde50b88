//! Memory for a kernel: aligned to cache lines, and an error instead of an abort when there is none.

use memmap2::MmapMut;

use crate::error::{Error, Result};

/// From here on numbers take large pages: a kernel goes through more small ones than a processor
/// remembers the places of.
const LARGE_BYTES_MIN: usize = 1 << 19;
const LARGE_PAGE_BYTES: usize = 1 << 21;

/// Numbers that start with a page.
pub(super) struct Buffer {
    map: MmapMut,
    count: usize,
}

impl Buffer {
    /// `count` zeros.
    pub(super) fn zeros(count: usize) -> Result<Self> {
        let bytes = count.checked_mul(size_of::<f64>()).ok_or_else(|| no_memory(usize::MAX))?;
        let large = bytes >= LARGE_BYTES_MIN;
        // Only whole large pages lie where they can be large.
        let length = if large { bytes.next_multiple_of(LARGE_PAGE_BYTES) } else { bytes };
        let map = MmapMut::map_anon(length).map_err(|_| no_memory(bytes))?;
        #[cfg(target_os = "linux")]
        if large {
            // Where there are none, small ones do.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Self { map, count })
    }

    pub(super) fn values(&self) -> &[f64] {
        &bytemuck::cast_slice(&self.map)[..self.count]
    }

    pub(super) fn values_mut(&mut self) -> &mut [f64] {
        &mut bytemuck::cast_slice_mut(&mut self.map)[..self.count]
    }
}

/// Room for `count` things.
pub(super) fn reserve<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| no_memory(count.saturating_mul(size_of::<T>())))?;
    Ok(room)
}

fn no_memory(bytes: usize) -> Error {
    Error::limit(format!("there is no memory for a statistic of {bytes} bytes"))
}
