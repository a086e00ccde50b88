//! Memory for a kernel: aligned to cache lines, with an error instead of an abort when it runs out.

use std::marker::PhantomData;

use bytemuck::Pod;

use crate::bytes::no_memory;
use crate::error::Result;
use crate::map::Memory;

/// Numbers that start at a page boundary.
pub(super) struct Buffer<T> {
    memory: Memory,
    count: usize,
    numbers: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// Returns `count` zeros.
    pub(super) fn zeros(count: usize) -> Result<Self> {
        let bytes = count.saturating_mul(size_of::<T>());
        let memory = Memory::zeros(bytes).ok_or_else(|| no_memory(bytes))?;
        Ok(Self { memory, count, numbers: PhantomData })
    }

    pub(super) fn values(&self) -> &[T] {
        &bytemuck::cast_slice(self.memory.bytes())[..self.count]
    }

    pub(super) fn values_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(self.memory.bytes_mut())[..self.count]
    }
}
