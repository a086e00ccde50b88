//! Memory for a kernel: aligned to cache lines, with an error instead of an abort when it runs out.

use crate::bytes::no_memory;
use crate::error::Result;
use crate::map::Memory;

/// Numbers that start at a page boundary.
pub(super) struct Buffer {
    memory: Memory,
    count: usize,
}

impl Buffer {
    /// Returns `count` zeros.
    pub(super) fn zeros(count: usize) -> Result<Self> {
        let bytes = count.saturating_mul(size_of::<f64>());
        let memory = Memory::zeros(bytes).ok_or_else(|| no_memory(bytes))?;
        Ok(Self { memory, count })
    }

    pub(super) fn values(&self) -> &[f64] {
        &bytemuck::cast_slice(self.memory.bytes())[..self.count]
    }

    pub(super) fn values_mut(&mut self) -> &mut [f64] {
        &mut bytemuck::cast_slice_mut(self.memory.bytes_mut())[..self.count]
    }
}
