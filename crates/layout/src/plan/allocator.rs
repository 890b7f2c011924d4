//! Allocates offsets in the state memory and in the per-CPU areas, one after the other.

use super::host::{PlanError, Res};
use super::spec::TableSpec;
use crate::{percpu, shared};

/// Allocates offsets in a block.
#[derive(Debug)]
pub(crate) struct BumpAllocator(u32);

impl BumpAllocator {
    /// Allocates from this offset on.
    pub(crate) fn from(offset: u32) -> BumpAllocator {
        BumpAllocator(offset)
    }

    /// The next offset.
    pub(crate) fn at(&self) -> u32 {
        self.0
    }

    /// Allocates bytes, rounded up to a multiple of 8.
    pub(crate) fn alloc(&mut self, bytes: u32) -> u32 {
        let offset = self.0;
        self.0 += bytes.next_multiple_of(8);
        offset
    }
}

/// All memory of an object.
#[derive(Debug)]
pub(crate) struct Areas {
    /// The shared area.
    pub(crate) shared: BumpAllocator,
    /// Each per-CPU area.
    pub(crate) cpu: BumpAllocator,
    pub(crate) tables: Vec<TableSpec>,
}

impl Areas {
    /// The memory behind the headers of the areas.
    pub(crate) fn new() -> Areas {
        Areas {
            shared: BumpAllocator::from(shared::END),
            cpu: BumpAllocator::from(percpu::END),
            tables: Vec::new(),
        }
    }

    /// Bytes of the shared area and of a per-CPU area, in whole cache lines.
    pub(crate) fn sizes(&self, cpus: u32) -> Res<(u32, u32)> {
        let shared = self.shared.at().next_multiple_of(64);
        let stride = self.cpu.at().next_multiple_of(64);
        let total = u64::from(stride) * u64::from(cpus) + u64::from(shared);
        match total > 1 << 28 {
            true => Err(PlanError::TooLarge(format!(
                "the state memory would take {} MB",
                total >> 20
            ))),
            false => Ok((shared, stride)),
        }
    }
}
