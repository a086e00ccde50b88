//! Memory for a kernel: aligned to cache lines, and an error instead of an abort when there is none.

use bytemuck::{Pod, Zeroable};

use crate::bytes::ALIGNMENT;
use crate::error::{Error, Result};

const LINE_VALUES: usize = ALIGNMENT / size_of::<f64>();

/// A cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([f64; LINE_VALUES]);

/// Numbers that start at a multiple of 64 bytes.
#[derive(Default)]
pub(super) struct Buffer(Vec<Line>);

impl Buffer {
    /// At least `count` zeros.
    pub(super) fn zeros(count: usize) -> Result<Self> {
        let lines = count.div_ceil(LINE_VALUES);
        let mut buffer = reserve(lines)?;
        buffer.resize(lines, Line::zeroed());
        Ok(Self(buffer))
    }

    pub(super) fn values(&self) -> &[f64] {
        bytemuck::cast_slice(&self.0)
    }

    pub(super) fn values_mut(&mut self) -> &mut [f64] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// Room for `count` things.
pub(super) fn reserve<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| {
        let bytes = count.saturating_mul(size_of::<T>());
        Error::limit(format!("there is no memory for a statistic of {bytes} bytes"))
    })?;
    Ok(room)
}
