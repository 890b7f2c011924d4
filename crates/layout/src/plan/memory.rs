//! The locations of scalars and of single statistics, in memory.

use spile_ir::storage::Storage;
use spile_ir::{Global, GlobalKind};

use super::allocator::Areas;
use super::values::agg_layout;
use crate::{GlobalLayout, GlobalLocation, ValueLayout};

/// Per-CPU statistics above this size in bytes are placed last.
const SMALL: u32 = 64;

/// Whether a global can be out of reach of displacements: a per-CPU statistic with a histogram,
/// whose address is computed in any case.
pub(super) fn is_large(global: &Global) -> bool {
    match (&global.kind, global.storage) {
        (GlobalKind::Stats(spec), Storage::PerCpu { .. }) => agg_layout(spec).size > SMALL,
        _ => false,
    }
}

/// Whether a global is in each per-CPU area.
pub(super) fn per_cpu(global: &Global) -> bool {
    matches!(global.storage, Storage::PerCpu { .. })
}

/// Lays out scalars and single statistics, but no arrays.
pub(super) fn location_in_memory(global: &Global, areas: &mut Areas) -> Option<GlobalLayout> {
    let value = match &global.kind {
        GlobalKind::Scalar(ty) => ValueLayout::Scalar(*ty),
        GlobalKind::Stats(spec) => ValueLayout::Stats(agg_layout(spec)),
        GlobalKind::Array { .. } => return None,
    };
    let size = value.size();
    match global.storage {
        Storage::Controller => None,
        Storage::Shared { lock } => {
            let offset = areas.shared.alloc(size);
            Some(GlobalLayout {
                lock: lock.then(|| areas.shared.alloc(8)),
                location: match value {
                    ValueLayout::Scalar(ty) => GlobalLocation::Scalar { offset, ty },
                    ValueLayout::Stats(agg) => GlobalLocation::Stats { offset, agg },
                },
            })
        }
        Storage::PerCpu { double } => Some(GlobalLayout {
            lock: None,
            location: GlobalLocation::PerCpuScalar {
                offset: areas.cpu.alloc(if double { 2 * size } else { size }),
                gen_stride: if double { size } else { 0 },
                value,
            },
        }),
    }
}
