//! Regular expressions: matches by the automata of [`spile_ir::regex`], which the run-time library runs.

use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size};
use spile_ir::regex;
use spile_ir::{Reg as IrReg, RegexId, Val};
use spile_lir::library::regex::{
    CHUNK, FIND_ON, FinderView, MATCH_AT, MAX_GROUPS, NO_SLOT, ScannerView, area, find, matches,
};
use spile_lir::library::routine::Routine;

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;
use crate::lower::slots::block_at;

const _: () = assert!(MAX_GROUPS == regex::MAX_GROUPS && NO_SLOT == regex::NO_SLOT as i32);

impl HandlerCodegen<'_> {
    /// Resets the match at a handler's entry.
    pub(crate) fn forget_match(&mut self) {
        if self.facts.asks_of_match() {
            let last = self.block_address(self.plan.scratch.last_match);
            self.asm.store(Size::DW, last, area::STATE, -2);
        }
    }

    /// `dst` = 1 if the text matches.
    pub(crate) fn regex(&mut self, dst: IrReg, re: RegexId, text: Val, keep: bool) -> Res {
        let regex = self.program.regexes.get(re.index());
        let regex = regex.ok_or("no such regular expression")?;
        let text = self.text(text)?;
        let compiled = regex.compiled.clone();
        if keep {
            let finder = compiled
                .find
                .as_ref()
                .ok_or("a match without its location")?;
            return self.find_match(dst, re, &compiled.classes, finder, &text);
        }
        if let StrOperand::Const { bytes } = &text {
            return self.def_int(dst, i32::from(regex.is_match(bytes)));
        }
        if compiled.test.start >= compiled.test.accept {
            return self.def_int(dst, 1);
        }
        self.needs_loop("a regular expression")?;
        let name = format!("match_{}", re.0);
        self.pool.library(MATCH_AT)?;
        self.pool.define_once(&name, None, || {
            matches(&name, &compiled.classes, &scanner(&compiled.test))
        })?;
        let chunks = CallArg::from(text.width().cast_signed() / CHUNK);
        let args = [
            self.text_arg(&text),
            block_at(self.plan.scratch.tmp),
            chunks,
        ];
        let matches = self.asm.call_sub_with(name, &args);
        self.def_int(dst, matches)
    }

    fn find_match(
        &mut self,
        dst: IrReg,
        re: RegexId,
        classes: &[u8; 256],
        finder: &regex::Finder,
        text: &StrOperand,
    ) -> Res {
        self.needs_loop("a regular expression")?;
        let last = self.plan.scratch.last_match;
        let max = self.plan.max_matched;
        let name = format!("find_{}", re.0);
        self.pool
            .routine(FIND_ON, None, |_| Ok(Routine::FindSteps))?;
        self.pool
            .define_once(&name, None, || find(&name, classes, &tables(finder), max))?;
        // The copied text is kept for its groups, and ends with a NUL.
        let most = CallArg::from(text.width().min(max));
        let args = [
            block_at(last + area::TEXT as u32),
            most,
            self.text_arg(text),
        ];
        let bytes = self.asm.call_with(Helper::ProbeReadKernelStr, &args);
        let args = [block_at(last), bytes.into()];
        let matches = self.asm.call_sub_with(name, &args);
        self.def_int(dst, matches)
    }

    /// The number of groups of the last match, or the reason for none.
    pub(crate) fn match_groups(&mut self) -> Reg {
        let last = self.block_address(self.plan.scratch.last_match);
        self.asm.word(last, area::STATE)
    }

    /// `dst` = text of a group.
    pub(crate) fn match_group(&mut self, dst: IrReg, n: Val) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let last = self.plan.scratch.last_match;
        let max = self.plan.max_matched.cast_signed();
        let end = self.asm.label();
        self.fill_zero(off, width);
        let group = self.number_copy(n)?;
        let last_match = self.block_address(last);
        let groups = self.asm.word(last_match, area::STATE);
        let asm = &mut *self.asm;
        asm.jump_if(Cond::Gt, group, MAX_GROUPS, end);
        asm.jump_if(Cond::Sgt, group, groups, end);
        asm.alu(AluOp::Lsh, group, 4);
        asm.add(group, last_match);
        let [start, bytes] = [area::START, area::END].map(|offset| asm.word(group, offset));
        asm.jump_if(Cond::Ge, start, max, end);
        asm.jump_if(Cond::Ge, bytes, max, end);
        asm.alu(AluOp::Sub, bytes, start);
        self.truncate_length(bytes, width);
        self.asm.jump_if(Cond::Sle, bytes, 0, end);
        self.asm.add(last_match, area::TEXT);
        self.asm.add(last_match, start);
        let args = [block_at(off), bytes.into(), last_match.into()];
        self.asm.call_with(Helper::ProbeReadKernel, &args);
        self.asm.bind(end);
        Ok(())
    }
}

/// The tables of a scanner for the library.
fn scanner(s: &regex::Scanner) -> ScannerView<'_> {
    ScannerView {
        next: &s.next,
        start: s.start,
        accept: s.accept,
        edge: s.edge(),
    }
}

/// The same of a finder.
fn tables(f: &regex::Finder) -> FinderView<'_> {
    FinderView {
        groups: f.groups,
        reverse: (!f.anchored).then(|| scanner(&f.reverse)),
        columns: f.columns,
        accept: f.accept,
        start: f.start,
        start_list: f.start_list,
        next: &f.next,
        lists: &f.lists,
        ops: &f.ops,
    }
}
