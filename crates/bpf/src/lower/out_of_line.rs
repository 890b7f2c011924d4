//! Code that is emitted behind the handler, off the straight path.

use spile_ebpf::isa::asm::Label;
use spile_ebpf::isa::insn::{Reg, Src};
use spile_ebpf::isa::sequences::SequenceId;
use spile_ir::{BlockId, GlobalId, SiteId, Val};
use spile_layout::ErrorKind;

use super::operand::KeyWord;

/// Code that is emitted behind the handler, off the straight path.
pub(crate) enum OutOfLine {
    /// The failure path of an instruction.
    Fail(FailurePath),
    /// A miss in the cache of a per-CPU array.
    Miss(CacheMiss),
    /// A sum that may have passed 64 bits.
    Wrap(WrapTest),
    /// A back edge of a resumable loop.
    BackEdge(BackEdge),
}

/// An instruction's failure path, placed behind the handler's code.
#[derive(Debug, Clone)]
pub(crate) struct FailurePath {
    pub label: Label,
    pub kind: ErrorKind,
    pub site: SiteId,
    pub catch: Option<(BlockId, Label)>,
}

/// A cache miss, handled behind the handler's code.
pub(crate) struct CacheMiss {
    /// The sequence that it belongs to.
    pub sequence: SequenceId,
    /// The address of the slot at `entry` and `hit`, and of the element at `element`.
    pub address: Reg,
    /// Start of the miss code.
    pub entry: Label,
    /// Return point after the key has taken the slot.
    pub hit: Label,
    /// Return point with an element of the map.
    pub element: Label,
    /// Return point without an update.
    pub skip: Label,
    pub full: Option<Label>,
    pub g: GlobalId,
    pub words: Vec<KeyWord>,
    /// The value to add.
    pub val: Val,
}

/// A sum that is negative before or after an addition, and so may have passed 64 bits.
pub(crate) struct WrapTest {
    /// The sequence that it belongs to.
    pub sequence: SequenceId,
    /// Start of the test.
    pub entry: Label,
    /// Where it goes on.
    pub end: Label,
    /// The sum after the addition.
    pub sum: Reg,
    /// What was added.
    pub added: Src,
}

/// A back edge, emitted behind the body's code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BackEdge {
    pub label: Label,
    pub to: BlockId,
}
