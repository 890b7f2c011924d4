//! Names of user symbols, for handlers that inspect them. `append_symbol` finds a frame's file and
//! symbol in tables that the controller loads with the file (see [`crate::layout::symbol_row`]),
//! and writes the same text as the controller.

use spile_ir::marks::BodyId;
use spile_ir::{Reg as IrReg, Val};
use spile_lir::library::unwind::at;

use super::frames::append_each;
use super::walk_gen::{WalkGen, walks};
use crate::isa::asm::{Function, Label};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size};
use crate::layout::{
    EXACT, LINE_ROWS_MAP, NAMES_MAP, SYMBOL_ROWS_MAP, SYMBOLS_MAP, SymbolicForm, VDSO, percpu,
    symbol_row,
};
use crate::lower::event::stacks::put_byte;
use crate::lower::text::append::{APPEND_HEX, flag};
use crate::lower::text::put::ArgAppender;
use crate::lower::{HandlerCodegen, Res};

/// Steps of a binary search among the [`symbol_row::MAX`] rows of a file.
const HALVINGS: u32 = 20;

/// Name of the subprogram that appends line numbers.
pub(in crate::lower) const NUMBER: &str = "append_number_10";

/// The parts to write for a frame.
mod how {
    /// A line of its own, with the address in front.
    pub(super) const LINE: i32 = 1;
    /// The distance from the symbol.
    pub(super) const OFFSET: i32 = 2;
    /// The size of the symbol or of the file.
    pub(super) const SIZE: i32 = 4;
    /// The file's path.
    pub(super) const MODULE: i32 = 8;
    /// The last component of the file's path.
    pub(super) const BASE: i32 = 16;
    /// The end of a line.
    pub(super) const END: i32 = 32;
    /// Nothing except the file.
    pub(super) const ONLY: i32 = 64;
    /// A stack: frames behind the first are return addresses.
    pub(super) const STACK: i32 = 128;
    /// The position in the source, behind the position in the code.
    pub(super) const AT: i32 = 256;
    /// The source file.
    pub(super) const FILE: i32 = 512;
    /// The line number, or the address if the position is unknown.
    pub(super) const NUMBER: i32 = 1024;
    /// A tab and the position in the source, behind the name.
    pub(super) const PLACE: i32 = 2048;
}

/// The parts that a form consists of.
fn form_parts(form: SymbolicForm) -> i32 {
    use how::{AT, BASE, END, FILE, LINE, MODULE, NUMBER, OFFSET, ONLY, PLACE, SIZE, STACK};
    match form {
        SymbolicForm::UserLines => LINE | OFFSET | SIZE | MODULE | END | STACK,
        SymbolicForm::UserSimple => OFFSET | BASE | END | STACK,
        SymbolicForm::UserBrief => OFFSET | END | STACK,
        SymbolicForm::UserData => OFFSET | SIZE | MODULE,
        SymbolicForm::UserModule => ONLY,
        SymbolicForm::UserFileLines => AT | form_parts(SymbolicForm::UserLines),
        SymbolicForm::UserSimpleLines => AT | form_parts(SymbolicForm::UserSimple),
        SymbolicForm::UserFileLine => FILE | NUMBER,
        SymbolicForm::UserFile => FILE,
        SymbolicForm::UserLine => NUMBER,
        SymbolicForm::UserPlace => PLACE,
        _ => 0,
    }
}

impl HandlerCodegen<'_> {
    /// Whether the handler makes the text for this register itself.
    pub(in crate::lower) fn makes_text(&self, dst: IrReg) -> bool {
        self.plan
            .marks
            .made_in_kernel(BodyId::Handler(self.handler.index()), dst)
    }

    /// Appends a frame of the room.
    pub(super) fn append_symbol(&mut self, form: SymbolicForm, index: u32) -> Res {
        self.use_append_symbol()?;
        self.asm.mov(R1, index as i32);
        self.asm.mov(R2, form_parts(form));
        self.asm.call_sub("append_symbol");
        Ok(())
    }

    /// Appends the frames from `first` on, with the text that a mark stands for.
    pub(super) fn append_symbols(&mut self, form: SymbolicForm, first: Val) -> Res {
        self.use_append_symbol()?;
        let plan = self.plan;
        let (room, base, _) = walks(plan, self.options)?;
        self.pool.sub("append_symbols", |_| {
            let p = ArgAppender::new("append_symbols", &["how", "first", "most"], plan);
            append_each(p, base, room, "append_symbol", 0)
        })?;
        self.use_in(first, R2)?;
        self.forget_bounds(R2);
        self.asm.mov(R1, form_parts(form));
        self.asm.mov(R3, form.piece());
        self.asm.call_sub("append_symbols");
        Ok(())
    }

    fn use_append_symbol(&mut self) -> Res {
        let (plan, options) = (self.plan, self.options);
        let (room, base, _) = walks(plan, options)?;
        let walk = |name, params| WalkGen {
            p: ArgAppender::new(name, params, plan),
            base,
            room,
        };
        self.pool.use_append_hex(plan)?;
        self.pool.sub("find_symbol", |_| {
            walk("find_symbol", &["index", "how"]).find_symbol()
        })?;
        self.pool.sub("append_file", |_| {
            walk("append_file", &["how"]).append_file()
        })?;
        if room.lines {
            self.pool.use_append_number(plan, 10)?;
            self.pool.sub("append_place", |_| {
                walk("append_place", &["how"]).append_place()
            })?;
        }
        self.pool.sub("append_symbol", |_| {
            walk("append_symbol", &["index", "how"]).append_symbol()
        })
    }
}

/// Words of a look-up, in those that a walk uses only for one frame.
mod word {
    use super::at;
    /// Key of the file.
    pub(super) const FILE: u32 = at::KEY;
    /// Address of the symbol's name, 0 for none.
    pub(super) const NAME: u32 = at::VALUE;
    /// Position of the file's name in the map of names; 0 for none.
    pub(super) const MODULE: u32 = at::VALUE + 8;
    /// The position in the source.
    pub(super) const PLACE: u32 = at::VALUE + 16;
    /// The two words in front of a name.
    pub(super) const BASE: u32 = at::READ;
    pub(super) const SIZE: u32 = at::READ + 8;
    /// The address to look up in the file's tables.
    pub(super) const KEY: u32 = at::MAPPINGS;
}

/// Appends the text at kernel address r3; `r0` = its length with the NUL. Clobbers r1 to r5.
pub(in crate::lower) fn append_kernel_text(p: &mut ArgAppender<'_>, out: Label) {
    let scratch = &p.plan.scratch;
    let (pos, text) = (scratch.text_pos as i16, scratch.text as i32);
    let most = p.plan.max_string as i32;
    p.asm.load(Size::DW, R2, R6, pos);
    p.asm.jump_if(Cond::Gt, R2, most, out);
    p.asm.mov(R1, R6);
    p.asm.add(R1, text);
    p.asm.add(R1, R2);
    p.asm.mov(R2, most);
    p.asm.call(Helper::ProbeReadKernelStr);
    p.asm.jump_if(Cond::Sle, R0, 0, out);
    p.asm.add(R0, -1);
    p.asm.load(Size::DW, R2, R6, pos);
    p.asm.add(R2, R0);
    p.asm.store(Size::DW, R6, pos, R2);
}

/// Appends number r9 in base 10 by [`NUMBER`]. Clobbers r0 to r5.
pub(in crate::lower) fn put_decimal(p: &mut ArgAppender<'_>) {
    p.asm.mov(R1, -1);
    p.asm.mov(R2, R9);
    p.asm.mov(R3, 0);
    p.asm.mov(R4, 0);
    p.asm.call_sub(NUMBER);
}

impl WalkGen<'_> {
    /// Converts the frame index in `reg` to the frame's offset in the block; goes to `out` if it is
    /// out of range.
    fn frame(&mut self, reg: Reg, out: Label) {
        let most = self.room.most as i32;
        self.asm().jump_if(Cond::Gt, reg, most, out);
        self.asm().alu(AluOp::Lsh, reg, 3);
        self.asm().add(reg, R6);
    }

    /// `find_symbol(index, how)`: fills [`word`].
    fn find_symbol(mut self) -> Res<Function> {
        let [unnamed, none, exact, near] = std::array::from_fn(|_| self.p.asm.label());
        let end = self.p.end;
        let (files, offsets) = (
            self.base + at::FILES as i16,
            self.base + at::offsets(self.room.most) as i16,
        );
        self.store_field(word::KEY, -1);
        for field in [
            word::FILE,
            word::NAME,
            word::MODULE,
            word::PLACE,
            word::BASE,
            word::SIZE,
        ] {
            self.store_field(field, 0);
        }
        // r8 = 1 if the address is a return address, which belongs to the instruction before it.
        self.asm().alu(AluOp::And, R8, how::STACK);
        self.asm()
            .alu(AluOp::Rsh, R8, how::STACK.trailing_zeros() as i32);
        self.asm().jump_if(Cond::Ne, R7, 0, exact);
        self.asm().mov(R8, 0);
        self.asm().bind(exact);
        self.frame(R7, end);
        self.asm().load(Size::DW, R1, R7, files);
        self.asm().jump_if(Cond::Eq, R1, 0, end);
        self.store_field(word::FILE, R1);
        self.asm().load(Size::DW, R9, R7, offsets);
        self.asm().mov(R7, R9);
        // Bit 63 becomes bit 31.
        self.asm().mov(R1, R9);
        self.asm().alu(AluOp::Rsh, R1, 63);
        self.asm().alu(AluOp::Lsh, R1, 31);
        // Bit 62 marks the address as exact.
        self.asm().mov(R2, R9);
        self.asm()
            .alu(AluOp::Rsh, R2, EXACT.trailing_zeros() as i32);
        self.asm().alu(AluOp::Xor, R2, 1);
        self.asm().alu(AluOp::And, R8, R2);
        self.asm().alu(AluOp::Lsh, R7, 2);
        self.asm().alu(AluOp::Rsh, R7, 2);
        self.store_field(word::PLACE, R7);
        self.asm().ld_imm64(R2, 0x7fff_ffff);
        self.asm().jump_if(Cond::Le, R7, R2, near);
        self.asm().jump(unnamed);
        self.asm().bind(near);
        self.asm().alu(AluOp::Sub, R7, R8);
        self.asm().alu(AluOp::And, R7, 0x7fff_ffff);
        self.asm().alu(AluOp::Or, R7, R1);
        self.store_field(word::KEY, R7);
        self.element(SYMBOLS_MAP, word::FILE, unnamed);
        self.asm().load(Size::DW, R1, R0, symbol_row::NAME);
        self.store_field(word::MODULE, R1);
        self.asm().load(Size::DW, R1, R0, symbol_row::FIRST);
        self.asm().load(Size::DW, R2, R0, symbol_row::COUNT);
        self.asm().jump_if(Cond::Eq, R2, 0, end);
        self.store_field(at::LO, R1);
        self.asm().add(R2, R1);
        self.store_field(at::HI, R2);
        self.search((SYMBOL_ROWS_MAP, HALVINGS), 0, none);
        self.asm().load(Size::W, R1, R0, 4);
        self.name(R1, none);
        self.store_field(word::NAME, R3);
        self.two_words(none);
        let p_end = self.p.end;
        self.asm().jump(p_end);
        self.asm().bind(unnamed);
        // A file without a symbol for the address is no loss; code outside of files goes to `end`.
        self.load_field(R1, word::FILE);
        self.asm().jump_if(Cond::Eq, R1, VDSO as i32, none);
        self.count(percpu::UNNAMED);
        self.asm().bind(none);
        self.p.finish()
    }

    /// `r3` = address of the name at that position of the names. Clobbers r0 to r5.
    fn name(&mut self, place: Reg, none: Label) {
        self.asm().alu(AluOp::Lsh, place, 3);
        self.asm().mov(R2, place);
        self.asm()
            .alu(AluOp::And, R2, symbol_row::NAMES_PAGE as i32 - 1);
        self.store_field(at::HI, R2);
        let page = symbol_row::NAMES_PAGE.trailing_zeros() as i32;
        self.asm().alu(AluOp::Rsh, place, page);
        self.store_field(at::MID, place);
        self.element(NAMES_MAP, at::MID, none);
        // Goes through memory, which turns the pointer into a number.
        self.store_field(at::LO, R0);
        self.load_field(R3, at::LO);
        self.load_field(R2, at::HI);
        self.asm().add(R3, R2);
        self.asm().add(R3, 16);
    }

    /// Reads the two words in front of the text at r3.
    fn two_words(&mut self, none: Label) {
        self.asm().add(R3, -16);
        self.addr(R1, word::BASE);
        self.asm().mov(R2, 16);
        self.asm().call(Helper::ProbeReadKernel);
        self.asm().jump_if(Cond::Ne, R0, 0, none);
    }

    fn append_kernel_text(&mut self, out: Label) {
        append_kernel_text(&mut self.p, out);
    }

    fn append_hex(&mut self, number: Reg) {
        self.asm().mov(R1, number);
        self.asm().mov(R2, flag::MARK);
        self.asm().call_sub(APPEND_HEX);
    }

    fn append_literal(&mut self, text: &str) {
        for byte in text.bytes() {
            put_byte(&mut self.p, byte);
        }
    }

    /// Goes to `to` if none of these parts is wanted.
    fn jump_unless(&mut self, bits: i32, to: Label) {
        self.asm().mov(R1, R8);
        self.asm().alu(AluOp::And, R1, bits);
        self.asm().jump_if(Cond::Eq, R1, 0, to);
    }

    /// `append_file(how)`: appends the name of the file that was found.
    fn append_file(mut self) -> Res<Function> {
        let end = self.p.end;
        let whole = self.asm().label();
        self.asm().mov(R8, R7);
        self.load_field(R1, word::MODULE);
        self.asm().jump_if(Cond::Eq, R1, 0, end);
        self.name(R1, end);
        self.asm().mov(R7, R3);
        self.two_words(end);
        self.asm().mov(R3, R7);
        self.jump_unless(how::BASE, whole);
        self.load_field(R1, word::BASE);
        self.asm().add(R3, R1);
        self.asm().bind(whole);
        self.append_kernel_text(end);
        self.p.finish()
    }

    /// `append_symbol(index, how)`: appends a frame.
    fn append_symbol(mut self) -> Res<Function> {
        let [named, bare, only, ends] = std::array::from_fn(|_| self.p.asm.label());
        let end = self.p.end;
        let frames = self.room.frames as i16;
        self.asm().mov(R1, R7);
        self.asm().mov(R2, R8);
        self.asm().call_sub("find_symbol");
        self.frame(R7, end);
        self.asm().load(Size::DW, R9, R7, frames);
        let many = self.asm().label();
        self.jump_unless(how::ONLY, many);
        self.asm().jump(only);
        self.asm().bind(many);
        if self.room.lines {
            let text = self.asm().label();
            self.jump_unless(how::FILE | how::NUMBER, text);
            self.asm().mov(R1, R8);
            self.place_or_address();
            self.asm().jump(end);
            self.asm().bind(text);
        }
        let begun = self.asm().label();
        self.jump_unless(how::LINE, begun);
        self.append_literal(" ");
        self.asm().bind(begun);
        // A missing name has length 0.
        self.load_field(R1, word::NAME);
        self.asm().jump_if(Cond::Eq, R1, 0, bare);
        self.addr(R1, at::LO);
        self.asm().mov(R2, 1);
        self.load_field(R3, word::NAME);
        self.asm().call(Helper::ProbeReadKernel);
        self.asm().jump_if(Cond::Ne, R0, 0, bare);
        self.load_field(R1, at::LO);
        self.asm().alu(AluOp::And, R1, 255);
        self.asm().jump_if(Cond::Ne, R1, 0, named);
        self.asm().bind(bare);
        self.append_unnamed(ends);
        self.asm().bind(named);
        self.append_named(ends);
        self.asm().bind(only);
        self.append_file_only(end);
        self.asm().bind(ends);
        if self.room.lines {
            let last = self.asm().label();
            self.jump_unless(how::PLACE, last);
            self.append_literal("\t");
            self.asm().mov(R1, how::FILE | how::NUMBER);
            self.place_or_address();
            self.asm().bind(last);
        }
        self.jump_unless(how::END, end);
        self.append_literal("\n");
        self.p.finish()
    }

    /// Appends the position in the source as r1 specifies, or address r9.
    fn place_or_address(&mut self) {
        let done = self.asm().label();
        self.asm().call_sub("append_place");
        self.asm().jump_if(Cond::Eq, R0, 0, done);
        self.append_hex(R9);
        self.asm().bind(done);
    }

    /// Appends the position in the source if it is wanted here.
    fn append_at(&mut self) {
        if !self.room.lines {
            return;
        }
        let none = self.asm().label();
        self.jump_unless(how::AT, none);
        self.asm().mov(R1, how::AT | how::FILE | how::NUMBER);
        self.asm().call_sub("append_place");
        self.asm().bind(none);
    }

    /// `append_place(how)`: appends the position in the source for the last call of `find_symbol`;
    /// returns 1 if it is unknown.
    fn append_place(mut self) -> Res<Function> {
        let [unknown, begun, colon, number] = std::array::from_fn(|_| self.p.asm.label());
        let end = self.p.end;
        self.asm().mov(R8, R7);
        self.element(SYMBOLS_MAP, word::FILE, unknown);
        self.asm().load(Size::DW, R1, R0, symbol_row::FIRST_LINE);
        self.asm().load(Size::DW, R2, R0, symbol_row::LINES);
        self.asm().jump_if(Cond::Eq, R2, 0, unknown);
        self.store_field(at::LO, R1);
        self.asm().add(R2, R1);
        self.store_field(at::HI, R2);
        self.load_field(R7, word::KEY);
        self.search((LINE_ROWS_MAP, HALVINGS), 0, unknown);
        self.asm().load(Size::W, R9, R0, 8);
        self.asm().load(Size::W, R1, R0, 4);
        self.asm().jump_if(Cond::Eq, R1, 0, unknown);
        self.name(R1, unknown);
        self.asm().mov(R7, R3);
        self.jump_unless(how::AT, begun);
        self.append_literal(" at ");
        self.asm().bind(begun);
        self.jump_unless(how::FILE, colon);
        self.asm().mov(R3, R7);
        self.append_kernel_text(end);
        self.jump_unless(how::NUMBER, end);
        self.append_literal(":");
        self.asm().jump(number);
        self.asm().bind(colon);
        self.jump_unless(how::NUMBER, end);
        self.asm().bind(number);
        put_decimal(&mut self.p);
        self.finish_with_flag(unknown)
    }

    /// A frame with a symbol; r9 is its address.
    fn append_named(&mut self, ends: Label) {
        let [at_name, sized, unsized_, file] = std::array::from_fn(|_| self.p.asm.label());
        self.jump_unless(how::LINE, at_name);
        self.append_hex(R9);
        self.append_literal(" : ");
        self.asm().bind(at_name);
        self.load_field(R3, word::NAME);
        self.append_kernel_text(ends);
        self.jump_unless(how::OFFSET, ends);
        self.append_literal("+");
        self.load_field(R9, word::PLACE);
        self.load_field(R1, word::BASE);
        self.asm().alu(AluOp::Sub, R9, R1);
        self.append_hex(R9);
        self.jump_unless(how::SIZE, unsized_);
        self.asm().bind(sized);
        self.append_literal("/");
        self.load_field(R9, word::SIZE);
        self.append_hex(R9);
        self.asm().bind(unsized_);
        self.append_at();
        self.jump_unless(how::MODULE | how::BASE, ends);
        self.load_field(R1, word::MODULE);
        self.asm().jump_if(Cond::Eq, R1, 0, ends);
        self.asm().bind(file);
        self.append_literal(" [");
        self.asm().mov(R1, R8);
        self.asm().call_sub("append_file");
        self.append_literal("]");
        self.asm().jump(ends);
    }

    /// A frame without a symbol: its address, and its offset in the file.
    fn append_unnamed(&mut self, ends: Label) {
        let no_size = self.asm().label();
        self.append_hex(R9);
        self.jump_unless(how::MODULE | how::BASE, ends);
        self.load_field(R1, word::MODULE);
        self.asm().jump_if(Cond::Eq, R1, 0, ends);
        self.append_literal(" [");
        self.load_field(R9, word::PLACE);
        self.load_field(R1, word::BASE);
        self.asm().alu(AluOp::Sub, R9, R1);
        self.asm().mov(R1, R8);
        self.asm().call_sub("append_file");
        self.append_literal("+");
        self.append_hex(R9);
        self.jump_unless(how::SIZE, no_size);
        self.append_literal("/");
        // The file's size follows its name.
        self.load_field(R9, word::SIZE);
        self.append_hex(R9);
        self.asm().bind(no_size);
        self.append_literal("]");
        self.append_at();
        self.asm().jump(ends);
    }

    /// The file's name alone.
    fn append_file_only(&mut self, end: Label) {
        let unknown = self.asm().label();
        self.load_field(R1, word::MODULE);
        self.asm().jump_if(Cond::Eq, R1, 0, unknown);
        self.asm().mov(R1, R8);
        self.asm().call_sub("append_file");
        self.asm().jump(end);
        self.asm().bind(unknown);
        self.append_literal("<unknown>");
        self.asm().jump(end);
    }
}
