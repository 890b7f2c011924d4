//! Escaped text of limited length, with or without quotes: `text_strn` and similar functions.

use spile_cast::Cast;
use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::insn::{Cond, Size};
use spile_ir::{Reg as IrReg, Space, Val};
use spile_lir::library::routine::Routine;

use super::escapes::escape_table;
use crate::error::{LowerError, Res};
use crate::lower::codegen::HandlerCodegen;
use crate::lower::pool::Pool;
use crate::lower::slots::block_at;
use crate::lower::values::{probe_read, string_fault};

/// Offsets of scratch words: the arguments of `quote` that are no addresses.
mod word {
    /// Number of source bytes.
    pub(super) const COUNT: u32 = 0;
    /// Limit on the text's length.
    pub(super) const LIMIT: u32 = 8;
    /// Whether the text is quoted.
    pub(super) const QUOTED: u32 = 16;
}

impl HandlerCodegen<'_> {
    /// `dst` = the text escaped, in at most `capacity` bytes.
    pub(crate) fn text_strn(&mut self, dst: IrReg, text: Val, capacity: Val, quoted: Val) -> Res {
        let Some(slot) = self.slot(dst)? else {
            return Ok(());
        };
        let text = self.text(text)?;
        let text = self.copy_into_block(text)?;
        let count = self.strlen(&text);
        self.store(self.plan.scratch.tmp + word::COUNT, count);
        let wide = text.width();
        self.quote_capacity(capacity, quoted)?;
        let name = self.quote_sub(wide)?;
        self.write_text(slot, |g| {
            let text = g.text_arg(&text);
            g.call_quote(name, text);
            Ok(())
        })
    }

    /// Fills a slot with escaped bytes of memory, in quotes. Reading can fail.
    pub(crate) fn memory_quoted(&mut self, dst: Option<IrReg>, space: Space, args: &[Val]) -> Res {
        let (tmp, max) = (self.plan.scratch.tmp, self.plan.max_string);
        let bytes = self.plan.scratch.memory;
        let empty = self.asm.label();
        let count = self.unknown(args[1])?;
        self.asm.mov_unless(Cond::Sge, count, 0, 0);
        self.asm.mov_unless(Cond::Sle, count, max, max);
        self.store(tmp + word::COUNT, count);
        self.asm.jump_if(Cond::Eq, count, 0, empty);
        let from = self.number(args[0])?;
        self.set_aux(from);
        let read = [block_at(bytes), count.into(), from.into()];
        let result = self.asm.call_with(probe_read(space), &read);
        let fail = self.fail_label(string_fault(space));
        self.asm.jump_if(Cond::Ne, result, 0, fail);
        self.asm.bind(empty);
        let Some(slot) = dst.map(|d| self.slot(d)).transpose()?.flatten() else {
            return Ok(());
        };
        self.quote_capacity(args[2], Val::Imm(1))?;
        let name = self.quote_sub(max)?;
        self.write_text(slot, |g| {
            g.call_quote(name, block_at(bytes));
            Ok(())
        })
    }

    /// Stores the limit and the quoting flag in the scratch words.
    fn quote_capacity(&mut self, capacity: Val, quoted: Val) -> Res {
        let tmp = self.plan.scratch.tmp;
        let max = self.plan.max_string.cast_signed();
        if let (Val::Imm(capacity), Val::Imm(quoted)) = (capacity, quoted) {
            let capacity = capacity.clamp(0, i64::from(max)).fit::<i32>();
            let limit = match quoted {
                0 => capacity,
                _ => capacity.max(5) - 1,
            };
            self.store(tmp + word::QUOTED, i32::from(quoted != 0));
            self.store(tmp + word::LIMIT, limit);
            return Ok(());
        }
        let plain = self.asm.label();
        // Facts that the verifier learns about the copies must not reach the originals.
        let [limit, quotes] =
            [(capacity, word::LIMIT), (quoted, word::QUOTED)].map(|(v, offset)| {
                let v = self.number(v)?;
                let (base, disp) = self.block_operand(tmp + offset, 8);
                self.asm.store(Size::DW, base, disp, v);
                Ok::<_, LowerError>(self.asm.word(base, disp))
            });
        let (limit, quotes) = (limit?, quotes?);
        self.asm.mov_unless(Cond::Sge, limit, 0, 0);
        self.asm.mov_unless(Cond::Sle, limit, max, max);
        self.asm.jump_if(Cond::Eq, quotes, 0, plain);
        self.asm.mov_unless(Cond::Sge, limit, 5, 5);
        // The closing quote takes one byte.
        self.asm.add(limit, -1);
        self.store(tmp + word::QUOTED, 1);
        self.asm.bind(plain);
        self.store(tmp + word::LIMIT, limit);
        Ok(())
    }

    /// Writes a text quoted to the text being built.
    fn call_quote(&mut self, name: String, text: CallArg) {
        let tmp = self.plan.scratch.tmp;
        let [count, limit, quoted] = [word::COUNT, word::LIMIT, word::QUOTED]
            .map(|offset| self.block_word(tmp + offset).into());
        let args = [text, block_at(self.plan.scratch.text), count, limit, quoted];
        self.asm.call_sub_with(name, &args);
    }

    /// Defines the function for bytes in a slot of that width, and returns its name.
    fn quote_sub(&mut self, wide: u32) -> Res<String> {
        self.needs_loop("text_strn()")?;
        sub(self.pool, wide, self.plan.max_string)
    }
}

/// Defines `quote_WIDE(text, out, count, limit, quoted)` for bytes in a slot of that width.
pub(crate) fn sub(pool: &mut Pool, wide: u32, max: u32) -> Res<String> {
    let name = format!("quote_{wide}");
    pool.routine_with(&name, None, |_| {
        Ok((Routine::Quote(wide, max), vec![escape_table()]))
    })?;
    Ok(name)
}
