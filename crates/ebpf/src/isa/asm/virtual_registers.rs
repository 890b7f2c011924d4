//! Virtual registers of a function under assembly, until [`Asm::finish`] allocates them.

use spile_cast::Cast;

use super::{Asm, AsmError};
use crate::isa::insn::{Insn, Reg};
use crate::isa::sequences::{Allocator, Failure, Placed, RegMask, Sequence, SequenceId};

impl Asm {
    /// Starts a sequence in which these machine registers hold no number.
    pub fn begin_sequence(&mut self, free: RegMask) -> SequenceId {
        self.begin_sequence_for(free, 0)
    }

    /// The same for one at whose end these registers hold its results.
    pub fn begin_sequence_for(&mut self, free: RegMask, result: RegMask) -> SequenceId {
        self.end_piece();
        self.sequences.push(Sequence {
            free: free | result,
            result,
            virtuals: 0,
            pieces: Vec::new(),
            words: self.spill_words,
        });
        self.current = self.sequences.len() - 1;
        SequenceId(self.current.fit())
    }

    /// The sequence that the next instruction belongs to.
    pub fn sequence(&self) -> SequenceId {
        SequenceId(self.current.fit())
    }

    /// Goes on with another sequence: the next instructions belong to it.
    pub fn resume_sequence(&mut self, sequence: SequenceId) {
        self.end_piece();
        self.current = sequence.0 as usize;
    }

    /// A new virtual register of the sequence.
    pub fn new_reg(&mut self) -> Reg {
        let sequence = &mut self.sequences[self.current];
        sequence.virtuals += 1;
        Reg::Virtual(sequence.virtuals - 1)
    }

    /// Sets the stack words that spilled registers may use, in this sequence and those that follow.
    pub fn set_spill_words(&mut self, words: &'static [i16]) {
        self.spill_words = words;
        self.sequences[self.current].words = words;
    }

    fn end_piece(&mut self) {
        let end = self.function.insns.len().fit::<u32>();
        let begin = std::mem::replace(&mut self.piece, end);
        if begin < end {
            self.sequences[self.current].pieces.push(begin..end);
            self.ended = self.current;
        }
    }

    /// Removes the last instruction from its piece.
    pub(super) fn shorten_piece(&mut self) {
        let end = self.function.insns.len().fit::<u32>();
        if self.piece > end {
            self.piece = end;
            let pieces = &mut self.sequences[self.ended].pieces;
            if let Some(last) = pieces.last_mut() {
                last.end = end;
            }
        }
    }

    /// Puts machine registers instead of the virtual ones.
    pub(super) fn allocate(&mut self) -> Result<(), AsmError> {
        self.end_piece();
        if self.sequences.iter().all(|s| s.virtuals == 0) {
            return Ok(());
        }
        let insns = &self.function.insns;
        let mut index_at = vec![0; self.here as usize + 1];
        let mut slot = 0;
        for (i, insn) in insns.iter().enumerate() {
            index_at[slot] = i.fit::<u32>();
            slot += insn.slots() as usize;
        }
        index_at[slot] = insns.len().fit::<u32>();
        let target = |insn: u32| {
            let fixup = self.fixups.binary_search_by_key(&insn, |f| f.index).ok()?;
            let label = self.fixups[fixup].label;
            index_at
                .get(*self.labels.get(label.0 as usize)? as usize)
                .copied()
        };
        let mut placed = Vec::with_capacity(insns.len());
        let mut covered = vec![false; insns.len()];
        let mut allocator = Allocator::default();
        let params = self.function.params.len();
        for sequence in self.sequences.iter().filter(|s| s.virtuals > 0) {
            let code = allocator.allocate(sequence, insns, params, &target);
            placed.extend_from_slice(code.map_err(|failure| self.registers_error(failure))?);
            for piece in &sequence.pieces {
                covered[piece.start as usize..piece.end as usize].fill(true);
            }
        }
        placed.sort_by_key(|p| p.origin);
        self.location(&placed, &covered, &index_at);
        Ok(())
    }

    fn registers_error(&self, failure: Failure) -> AsmError {
        AsmError::Registers {
            function: self.function.name.clone(),
            resource: match failure {
                Failure::Words => "stack words",
                Failure::Registers => "registers",
            },
        }
    }

    /// Replaces the covered instructions, and moves all that names an instruction.
    fn location(&mut self, placed: &[Placed], covered: &[bool], index_at: &[u32]) {
        let old = std::mem::take(&mut self.function.insns);
        let mut placed = placed.iter().peekable();
        // The slot in front of an instruction's spill code, and the index and slot of itself.
        let mut front = Vec::with_capacity(old.len() + 1);
        let mut positions = vec![(0, 0); old.len()];
        let index = |slot: u32| index_at[slot as usize] as usize;
        let mut targets = vec![false; old.len() + 1];
        for label in self.labels.iter().filter(|l| **l != super::UNBOUND) {
            targets[index(*label)] = true;
        }
        let mut next_slot = 0;
        let new = &mut self.function.insns;
        new.reserve(old.len());
        // Sequences that follow one another can be merged only now.
        let mut push = |insn: Insn, is_target: bool| {
            let last = new.last().filter(|_| !is_target);
            let replacement = last.and_then(|last| super::merged(last, &insn));
            let position = (new.len().fit::<u32>(), next_slot);
            if let Some(insn) = replacement.unwrap_or(Some(insn)) {
                next_slot += insn.slots();
                new.push(insn);
            }
            (position, next_slot)
        };
        let mut end = 0;
        // Stays set while the instructions at a label are none.
        let mut is_target = false;
        for (i, insn) in old.into_iter().enumerate() {
            front.push(end);
            is_target |= targets[i];
            if !covered[i] {
                (positions[i], end) = push(insn, std::mem::take(&mut is_target));
            }
            while let Some(next) = placed.next_if(|p| p.origin == i.fit::<u32>()) {
                let position;
                (position, end) = push(next.insn, std::mem::take(&mut is_target));
                if next.is_original {
                    positions[i] = position;
                }
            }
        }
        front.push(end);
        self.here = end;
        for fixup in &mut self.fixups {
            (fixup.index, fixup.slot) = positions[fixup.index as usize];
        }
        for reloc in &mut self.function.relocs {
            reloc.slot = positions[index(reloc.slot)].1;
        }
        let bound = self.labels.iter_mut().filter(|l| **l != super::UNBOUND);
        let comments = self.function.comments.iter_mut().map(|c| &mut c.0);
        let lines = self.function.lines.iter_mut().map(|l| &mut l.0);
        bound
            .chain(comments)
            .chain(lines)
            .for_each(|slot| *slot = front[index(*slot)]);
        // The kernel accepts one position for each instruction: the last one counts.
        self.function.lines.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                std::mem::swap(next, kept);
            }
            same
        });
    }
}
