//! The calls that `socketcall` and `ipc` of 32-bit programs stand for.
//!
//! Their first argument says which call is meant. `socketcall` has the arguments in memory, `ipc` has them in
//! other registers. If a handler of the script serves such a part, the number on the stack is the part's; see
//! [`NrSet`]. A handler that serves the whole sees the number of the whole.

use spile_cast::Cast;
use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size};
use spile_ir::{Event, NrSet, Program};

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::slots::TMP;
use crate::target::Target;

/// Parts of `socketcall`: 1 to 20.
const SOCKETCALLS: i32 = 20;
/// Parts of `ipc`, with the words of their arguments.
const IPC_WORDS: [(u32, &[Word]); 13] = [
    (1, &[FIRST, POINTER, SECOND, Word::Zero]),
    (2, &[FIRST, SECOND, THIRD]),
    (3, &[FIRST, SECOND, THIRD, Word::Behind(0)]),
    (4, &[FIRST, POINTER, SECOND, FIFTH]),
    (11, &[FIRST, POINTER, SECOND, THIRD]),
    (
        OLD_MSGRCV,
        &[FIRST, Word::Behind(0), SECOND, Word::Behind(4), THIRD],
    ),
    (13, &[FIRST, SECOND]),
    (14, &[FIRST, SECOND, POINTER]),
    (21, &[FIRST, POINTER, SECOND]),
    (22, &[POINTER]),
    (23, &[FIRST, SECOND, THIRD]),
    (24, &[FIRST, SECOND, POINTER]),
    (NEW_MSGRCV, &[FIRST, POINTER, SECOND, FIFTH, THIRD]),
];
/// `msgrcv` with the address of two of its arguments.
const OLD_MSGRCV: u32 = 12;
/// `msgrcv` with a version in the upper half of the first argument.
const NEW_MSGRCV: u32 = OLD_MSGRCV + 16;

const FIRST: Word = Word::Argument(1);
const SECOND: Word = Word::Argument(2);
const THIRD: Word = Word::Argument(3);
const POINTER: Word = Word::Argument(4);
const FIFTH: Word = Word::Argument(5);

/// Where a word of a call's arguments is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// In the register of this argument.
    Argument(usize),
    /// This number of bytes behind the address in [`POINTER`].
    Behind(i32),
    /// Nowhere.
    Zero,
}

/// The number on the stack of the call with this number in a handler's set.
pub(crate) fn on_stack(nr: u32) -> u32 {
    match nr.checked_sub(NrSet::WHOLE) {
        Some(part) if NrSet::whole(nr).is_none() && NrSet::whole(part).is_some() => part,
        _ => nr,
    }
}

/// Whether numbers on the stack can be those of parts: some handler serves one.
pub(crate) fn tells_parts(program: &Program, options: &Target) -> bool {
    let sees = |event: &Event| match event {
        Event::SysEnter(set) | Event::SysExit(set) => {
            set.parts().is_some_and(|mut parts| parts.next().is_some())
        }
        _ => false,
    };
    options.features.task_pt_regs && program.handlers.iter().any(|h| sees(&h.event))
}

impl HandlerCodegen<'_> {
    /// Whether this handler serves parts.
    pub(super) fn sees_parts(&self) -> bool {
        self.ctx.tells_parts && self.parts().is_some_and(|parts| parts != 0)
    }

    /// A bit for each part that the handler serves; `None` if it serves all calls.
    fn parts(&self) -> Option<u64> {
        let (Event::SysEnter(set) | Event::SysExit(set)) = self.event() else {
            return None;
        };
        let parts = set.parts()?;
        Some(parts.fold(0, |mask, nr| mask | 1 << (nr - NrSet::PARTS)))
    }

    /// The number of a 32-bit call becomes that of the part, if it has one.
    pub(super) fn part_of_call(&mut self, number: Reg) -> Res {
        let [sockets, ipc, end] = self.asm.labels();
        self.asm
            .jump_if(Cond::Eq, number, NrSet::SOCKETCALL, sockets);
        self.asm.jump_if(Cond::Eq, number, NrSet::IPC, ipc);
        self.asm.jump(end);
        self.asm.bind(sockets);
        let regs = self.regs()?;
        // The number is known here, so it need not outlive a call.
        self.asm.mov(number, NrSet::SOCKETCALL);
        let part = self.asm.read(Size::W, regs, self.compat_arguments()[0]);
        self.asm.jump_if(Cond::Eq, part, 0, end);
        self.asm.jump_if(Cond::Gt, part, SOCKETCALLS, end);
        self.asm.add(part, NrSet::PARTS);
        self.asm.mov(number, part);
        self.asm.jump(end);
        self.asm.bind(ipc);
        let regs = self.regs()?;
        self.asm.mov(number, NrSet::IPC);
        let first = self.asm.read(Size::W, regs, self.compat_arguments()[0]);
        let part = self.asm.alu_of(AluOp::And, first, 0xffff);
        let [other, known] = self.asm.labels();
        self.asm.jump_if(Cond::Ne, part, OLD_MSGRCV, other);
        self.asm.jump_if(Cond::Le, first, 0xffff, known);
        self.asm.mov(part, NEW_MSGRCV);
        self.asm.jump(known);
        self.asm.bind(other);
        for (call, _) in IPC_WORDS {
            if ![OLD_MSGRCV, NEW_MSGRCV].contains(&call) {
                self.asm.jump_if(Cond::Eq, part, call, known);
            }
        }
        self.asm.jump(end);
        self.asm.bind(known);
        self.asm.add(part, NrSet::IPC_PARTS);
        self.asm.mov(number, part);
        self.asm.bind(end);
        Ok(())
    }

    /// The number of a part that the handler does not serve becomes that of the whole.
    pub(super) fn whole_of_part(&mut self, number: Reg) {
        if !self.ctx.tells_parts {
            return;
        }
        let served = self.parts().unwrap_or(0);
        let [ipc, end] = self.asm.labels();
        self.asm.jump_if(Cond::Slt, number, NrSet::PARTS, end);
        if served != 0 {
            let bits = self.asm.new_reg();
            self.asm.imm(bits, served.cast_signed());
            let part = self.asm.copy(number);
            self.asm.add(part, -NrSet::PARTS.cast_signed());
            self.asm.alu(AluOp::And, part, 63);
            self.asm.alu(AluOp::Rsh, bits, part);
            self.asm.alu(AluOp::And, bits, 1);
            self.asm.jump_if(Cond::Ne, bits, 0, end);
        }
        self.asm.jump_if(Cond::Ge, number, NrSet::IPC_PARTS, ipc);
        self.asm.mov(number, NrSet::SOCKETCALL);
        self.asm.jump(end);
        self.asm.bind(ipc);
        self.asm.mov(number, NrSet::IPC);
        self.asm.bind(end);
    }

    /// The address of the registers becomes argument n of a 32-bit call or a part. A word of memory that cannot
    /// be read has all bits set.
    pub(super) fn compat_word(&mut self, number: Reg, word: Reg, n: usize) {
        let [part, ipc, end] = self.asm.labels();
        self.asm.jump_if(Cond::Ge, number, NrSet::PARTS, part);
        self.asm
            .load(Size::W, word, word, self.compat_arguments()[n]);
        self.asm.jump(end);
        self.asm.bind(part);
        let served = self.parts().unwrap_or(0);
        let [sockets, ipcs] = [served.low32() != 0, served >> 32 != 0];
        if sockets && ipcs {
            self.asm.jump_if(Cond::Ge, number, NrSet::IPC_PARTS, ipc);
        }
        if sockets {
            self.user_word(word, self.compat_arguments()[1], 4 * n.fit::<i32>());
        }
        if sockets && ipcs {
            self.asm.jump(end);
        }
        if ipcs {
            self.asm.bind(ipc);
            self.ipc_word(number, word, n, served >> 32);
        }
        self.asm.bind(end);
    }

    /// The address of the registers becomes argument n of a part of `ipc`. `served` has a bit for each part that
    /// the number can be of.
    fn ipc_word(&mut self, number: Reg, word: Reg, n: usize, served: u64) {
        let mut locations: Vec<(Word, Vec<u32>)> = Vec::new();
        for (call, words) in IPC_WORDS {
            let Some(source) = words.get(n).filter(|_| served >> call & 1 != 0) else {
                continue;
            };
            match locations.iter_mut().find(|(word, _)| word == source) {
                Some((_, calls)) => calls.push(call),
                None => locations.push((*source, vec![call])),
            }
        }
        let arguments = self.compat_arguments();
        let end = self.asm.label();
        let labels: Vec<_> = locations.iter().map(|_| self.asm.label()).collect();
        for ((_, calls), label) in locations.iter().zip(&labels) {
            for call in calls {
                let nr = NrSet::IPC_PARTS + call;
                self.asm.jump_if(Cond::Eq, number, nr, *label);
            }
        }
        self.asm.mov(word, 0);
        for ((source, _), label) in locations.iter().zip(labels) {
            self.asm.jump(end);
            self.asm.bind(label);
            match *source {
                Word::Argument(n) => self.asm.load(Size::W, word, word, arguments[n]),
                Word::Behind(off) => self.user_word(word, self.compat_arguments()[4], off),
                Word::Zero => self.asm.mov(word, 0),
            }
        }
        self.asm.bind(end);
    }

    /// The address of the registers becomes the word of user memory at an offset from the address in a register.
    fn user_word(&mut self, word: Reg, register: i16, off: i32) {
        let from = self.asm.read(Size::W, word, register);
        self.asm.add(from, off);
        let args = [CallArg::Word(TMP[0]), 4.into(), from.into()];
        let fault = self.asm.call_with(Helper::ProbeReadUser, &args);
        let read = self.asm.label();
        self.asm.load(Size::W, word, R10, TMP[0]);
        self.asm.jump_if(Cond::Eq, fault, 0, read);
        self.asm.mov32(word, -1);
        self.asm.bind(read);
    }
}
