//! What the code generator needs to know of an object before it generates code: the layout
//! ([`spile_layout::plan`]), the maps, the attachments, and the operations that handlers share.
//!
//! | module | what it decides |
//! |---|---|
//! | `outlining` | which operations are functions that handlers share |
//! | `depth` | the depth of calls, and the length of programs |

use std::ops::Deref;
use std::rc::Rc;

use spile_ebpf::emit::CpuBlocks;
use spile_ebpf::isa::asm::{Asm, Label, Section};
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg};
use spile_ir::marks::Marks;
use spile_ir::{HostKind, Program, ProgramFacts};
use spile_layout::plan::{CriticalParams, HostParams, StateLayout, TableKind, TableSpec};

use crate::attach::AttachPlan;
use crate::error::Res;
use crate::object::elf::{MapSpec, MapType};
use crate::target::Target;

pub(crate) mod depth;
pub(crate) mod outlining;

use outlining::Outlining;

/// The layout of a program, and how its code uses the kernel.
#[derive(Debug)]
pub(crate) struct ObjectPlan {
    state: StateLayout,
    /// Summary of what each body contains.
    pub facts: Rc<ProgramFacts>,
    /// Strings with symbols, and those that handlers make themselves.
    pub marks: Marks,
    /// How the handlers are attached.
    pub attach: AttachPlan,
    /// The operations that handlers share.
    pub outlining: Outlining,
}

impl Deref for ObjectPlan {
    type Target = StateLayout;

    fn deref(&self) -> &StateLayout {
        &self.state
    }
}

impl ObjectPlan {
    /// Plans an object whose handlers have frames of at most `frame` bytes.
    pub(crate) fn new(
        program: &Program,
        (facts, marks): (Rc<ProgramFacts>, Marks),
        options: &Target,
        frame: u32,
        attach: AttachPlan,
    ) -> Res<ObjectPlan> {
        let features = &options.features;
        let interrupts_off = features.interrupts.is_some();
        // In a process the controller takes the locks itself.
        let critical = options.host == HostKind::Kernel && features.for_each && features.atomics;
        let host = HostParams {
            cpus: options.cpus,
            timing: options.timing,
            frame,
            critical: critical.then_some(CriticalParams {
                interrupts_off,
                // In another processor's interrupt, iterating is the smallest part of the cost.
                key_lists: interrupts_off && features.bpf_loop,
            }),
        };
        Ok(ObjectPlan {
            state: StateLayout::new(program, &facts, &marks, &host)?,
            facts,
            marks,
            attach,
            outlining: Outlining::new(program, options.share),
        })
    }

    /// The maps of the layout's tables.
    pub(crate) fn maps(&self) -> Vec<MapSpec> {
        self.tables.iter().map(map).collect()
    }

    /// `to` = this CPU's area; goes to `out` where the plan has none for it.
    pub(crate) fn cpu_block(&self, asm: &mut Asm, to: Reg, out: Label) {
        let cpu = self.cpu_number(asm, out);
        self.block_of_cpu(asm, cpu, to);
    }

    /// The number of this CPU; goes to `out` if the plan has no area for it.
    pub(crate) fn cpu_number(&self, asm: &mut Asm, out: Label) -> Reg {
        let cpu = asm.call_with(Helper::GetSmpProcessorId, &[]);
        asm.jump_if(Cond::Ge, cpu, self.layout.cpus, out);
        cpu
    }

    /// `to` = the area of a CPU. Changes `cpu`.
    pub(crate) fn block_of_cpu(&self, asm: &mut Asm, cpu: Reg, to: Reg) {
        asm.alu(AluOp::Mul, cpu, self.layout.cpu_stride);
        asm.ld_data(to, Section::Bss, self.layout.shared_size);
        asm.add(to, cpu);
    }

    /// Bytes of `.bss`.
    pub(crate) fn bss_size(&self) -> u32 {
        // Space behind the last per-CPU area. No code reaches it, but the verifier's bounds on output
        // positions and activations include it.
        let beyond =
            (2 * (self.scratch.out_size + 1).next_power_of_two()).max(self.saved_max) + 3 * 8192;
        self.layout.shared_size + self.layout.cpu_stride * self.layout.cpus + beyond
    }
}

/// Where the per-CPU areas lie.
pub(crate) fn cpu_blocks(plan: &StateLayout) -> CpuBlocks {
    CpuBlocks {
        first: plan.layout.shared_size,
        stride: plan.layout.cpu_stride,
        count: plan.layout.cpus,
    }
}

/// The map of a table.
fn map(table: &TableSpec) -> MapSpec {
    /// `BPF_F_NO_PREALLOC` and `BPF_F_MMAPABLE` of `linux/bpf.h`.
    const NO_PREALLOC: u32 = 1;
    const MMAPABLE: u32 = 1 << 10;
    let (ty, flags) = match table.kind {
        TableKind::Hash { preallocated: true } => (MapType::Hash, 0),
        TableKind::Hash {
            preallocated: false,
        } => (MapType::Hash, NO_PREALLOC),
        TableKind::PerCpuHash => (MapType::PercpuHash, NO_PREALLOC),
        TableKind::Array { mapped } => (MapType::Array, if mapped { MMAPABLE } else { 0 }),
    };
    MapSpec {
        name: table.name.clone(),
        ty,
        key_size: table.key_size,
        value_size: table.value_size,
        max_entries: table.max_entries,
        flags,
    }
}
