//! A body's accesses to thread records: the records that were looked up, and those that exist, at
//! each point.

use spile_ir::analysis::dataflow::{self, ExitFacts, Forward, Lattice};
use spile_ir::storage::ThreadIdRegs;
use spile_ir::{Block, BlockId, Body, GlobalId, Inst, Term, Val};
use spile_layout::{GlobalLocation, ThreadSlots};

use crate::error::{LowerError, Res};

/// An array that is a field of the thread record.
pub(crate) struct FieldRef {
    pub g: GlobalId,
    pub map: String,
    pub offset: i16,
    /// The field's presence bit, as a mask.
    pub mask: i32,
    pub record: u32,
    pub front: Option<ThreadSlots>,
}

impl FieldRef {
    /// The field in which a global is, if it has one.
    pub(crate) fn for_global(g: GlobalId, location: GlobalLocation) -> Res<Option<FieldRef>> {
        let GlobalLocation::Hash {
            map,
            field: Some(field),
            ..
        } = location
        else {
            return Ok(None);
        };
        let offset = i16::try_from(field.offset);
        Ok(Some(FieldRef {
            g,
            map,
            offset: offset.map_err(|_| LowerError::too_large("a record of more than 32 KB"))?,
            mask: 1 << field.bit,
            record: field.record,
            front: field.front,
        }))
    }
}

/// Facts about thread records at one program point, as a bit for each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RecordState {
    /// The record was looked up, so its slot is valid.
    pub saved: u8,
    /// The record exists: it was written to, or a read returned a number other than 0.
    pub exists: u8,
    /// The record exists, and the verifier knows it: the code has tested the slot.
    pub tested: u8,
}

impl RecordState {
    /// The meet of two facts: what holds on both paths.
    fn meet(self, other: RecordState) -> RecordState {
        RecordState {
            saved: self.saved & other.saved,
            exists: self.exists & other.exists,
            tested: self.tested & other.tested,
        }
    }

    /// Notes that the records of `bits` exist, or no longer do.
    pub(crate) fn note(&mut self, bits: u8, exists: bool) {
        self.exists &= !bits;
        self.tested &= !bits;
        if exists {
            self.exists |= bits;
            self.tested |= bits;
        }
    }

    /// Whether a thread's record was looked up, and whether it exists.
    pub(crate) fn knows(self, thread: usize) -> (bool, bool) {
        let bit = 1 << thread;
        (self.saved & bit != 0, self.exists & bit != 0)
    }

    /// The transfer function of an access; `thread` is `None` if the record's address is not saved.
    pub(crate) fn apply_access(&mut self, inst: &Inst, thread: Option<usize>) {
        let bit = thread.map_or(0, |thread| 1 << thread);
        let present = self.saved & self.exists & bit != 0;
        self.saved |= bit;
        match inst {
            Inst::ASet { .. } | Inst::AAdd { .. } => self.note(bit, true),
            Inst::ADel { .. } if bit == 0 => self.note(u8::MAX, false),
            Inst::ADel { .. } => self.note(bit, false),
            // The access tests the slot: see `record_or_jump`.
            _ if present => self.tested |= bit,
            _ => {}
        }
    }
}

/// Facts about thread records in a body.
pub(crate) struct RecordFacts {
    pub threads: ThreadIdRegs,
    /// The facts at the start of each block.
    pub seen: Vec<RecordState>,
}

impl RecordFacts {
    /// Computes the facts; `fields` tests whether a global is a field.
    pub(crate) fn new(body: &Body, fields: impl Fn(GlobalId) -> bool) -> RecordFacts {
        let mut accesses = Accesses {
            body,
            threads: ThreadIdRegs::new(body),
            fields,
            tests: Vec::new(),
        };
        let tests = body
            .blocks
            .iter()
            .map(|block| accesses.tested_records(block));
        accesses.tests = tests.collect();
        let starts = dataflow::forward(body, &accesses).into_iter();
        RecordFacts {
            seen: starts.map(Option::unwrap_or_default).collect(),
            threads: accesses.threads,
        }
    }

    /// The index of the thread whose record an access to a field is about.
    pub(crate) fn thread_of(&self, inst: &Inst) -> Option<usize> {
        key_of(inst).and_then(|key| self.threads.thread_index(key))
    }
}

impl Lattice for RecordState {
    fn join(&mut self, other: &RecordState) -> bool {
        let both = self.meet(*other);
        std::mem::replace(self, both) != both
    }
}

/// The dataflow analysis of a body's accesses to record fields.
struct Accesses<'a, F> {
    body: &'a Body,
    threads: ThreadIdRegs,
    fields: F,
    /// For each block, the records that exist if its branch finds a nonzero number.
    tests: Vec<u8>,
}

impl<F: Fn(GlobalId) -> bool> Accesses<'_, F> {
    /// Whether an instruction accesses a field, and the index of the thread if it is one of
    /// [`ThreadIdRegs`].
    fn apply_access(&self, inst: &Inst) -> Option<Option<usize>> {
        inst.global().filter(|g| (self.fields)(*g))?;
        Some(key_of(inst).and_then(|key| self.threads.thread_index(key)))
    }

    /// The records that exist if the number that the block's branch tests is not 0.
    fn tested_records(&self, block: &Block) -> u8 {
        let Term::Branch {
            cond: Val::Reg(cond),
            ..
        } = block.term
        else {
            return 0;
        };
        let mut tested = 0;
        for (inst, _) in &block.insts {
            match inst {
                Inst::ADel { .. } => tested = 0,
                Inst::AGet { dst, .. } | Inst::AHas { dst, .. } if *dst == cond => {
                    let thread = self.apply_access(inst).flatten();
                    tested = thread.map_or(0, |thread| 1 << thread);
                }
                _ if inst.dst() == Some(cond) => tested = 0,
                _ => {}
            }
        }
        tested
    }
}

impl<F: Fn(GlobalId) -> bool> Forward for Accesses<'_, F> {
    type Fact = RecordState;

    fn entry(&self) -> RecordState {
        RecordState::default()
    }

    fn block(&self, id: BlockId, start: &RecordState) -> ExitFacts<RecordState> {
        let (mut end, mut anywhere) = (*start, *start);
        for (inst, _) in &self.body.blocks[id.index()].insts {
            if let Some(thread) = self.apply_access(inst) {
                end.apply_access(inst, thread);
                anywhere = anywhere.meet(end);
            }
        }
        ExitFacts { end, anywhere }
    }

    fn jump(&self, id: BlockId, to: BlockId, fact: &mut RecordState) {
        if let Term::Branch { then, els, .. } = self.body.blocks[id.index()].term
            && then == to
            && els != to
        {
            fact.exists |= self.tests[id.index()];
        }
    }
}

/// The first key that an instruction accesses an array with.
pub(crate) fn key_of(inst: &Inst) -> Option<Val> {
    match inst {
        Inst::AHas { keys, .. } | Inst::ADel { keys, .. } => *keys.first()?,
        _ => inst.keys()?.first().copied(),
    }
}
