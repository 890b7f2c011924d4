//! Location expressions as programs for a small stack machine.

use gimli::{AttributeValue, Expression, Operation, RawLocListEntry};
use spile_cast::Cast;

use crate::cfi::{self, Cfa};
use crate::dwarf::Dwarf;
use crate::enclosing::OuterFrame;
use crate::loc_program::{LocBinary as B, LocStep, Location, Unavailable, little_endian};
use crate::thread_local;
use crate::unit::{Die, R, Unit, number_of};

/// Maximum number of paths through an expression that are followed at once.
const MAX_WAYS: usize = 8;
/// Maximum length of a program; longer ones are taken for damage.
const MAX_OPS: usize = 512;
/// Maximum number of operations of one expression.
const MAX_STEPS: usize = 1024;

const OUTER_REGISTER: &str =
    "a function around this one keeps it in a register, which is not known here";

/// The context of a location expression.
pub(crate) struct LocContext<'a> {
    pub dwarf: &'a Dwarf,
    /// An entry of the expression's unit.
    pub die: Die,
    pub unit: &'a Unit,
    /// The address at which it is evaluated.
    pub pc: u64,
    /// The enclosing out-of-line function, for the frame base.
    pub function: Option<Die>,
    /// Whether `pc` is that function's first instruction.
    pub at_entry: bool,
    /// The frame base of a function around the one at `pc`, whose variable it is: its registers and
    /// its program counter are not known.
    pub outer: Option<&'a OuterFrame>,
}

type LocProgram = Vec<LocStep>;

/// The state of a symbolic evaluation: values are programs instead of numbers.
struct Evaluator<'a, 'c> {
    context: &'a LocContext<'c>,
    stack: Vec<LocProgram>,
    pieces: Vec<(u64, Option<Location>)>,
    /// The location from the operations since the last piece.
    result: Option<Location>,
    lost: bool,
    /// Paths that wait at forward jumps; the one to be met next is on top.
    waiting: Vec<PendingPath>,
    /// The last constant of the table of addresses.
    indexed: Option<i64>,
}

/// A path through an expression that continues at a later operation.
struct PendingPath {
    /// Offset of that operation.
    target: usize,
    /// Not 0 where this path is taken.
    condition: LocProgram,
    stack: Vec<LocProgram>,
}

impl LocContext<'_> {
    /// An attribute that is an expression or a list of them.
    pub(crate) fn attribute(&self, value: AttributeValue<R>) -> Result<Location, Unavailable> {
        match value {
            AttributeValue::Exprloc(e) => self.expression(e, 0),
            AttributeValue::Block(b) => self.expression(Expression(b), 0),
            value => {
                let dwarf = self.dwarf.forms(self.die.part, self.die.unit);
                let list = dwarf.attr_locations(self.unit, value).ok().flatten();
                let mut list = list.ok_or_else(Unavailable::damaged)?;
                let mut base = self.unit.low_pc;
                match self.outer {
                    Some(Ok(_)) => return self.in_frame(list),
                    Some(Err(why)) => return Err(why.clone()),
                    None => {}
                }
                while let Ok(Some(raw)) = list.next_raw() {
                    let empty = self.empty_range(&raw, &mut base);
                    let Ok(entry) = list.convert_raw(raw) else {
                        break;
                    };
                    if let Some(entry) = entry
                        && entry.range.begin <= self.pc
                        && self.pc < entry.range.end
                    {
                        return self.expression(entry.data, 0);
                    }
                    // An empty range at the very start: gcc's location views use it for a location
                    // that is valid only before the first instruction.
                    if let Some((start, data)) = empty
                        && self.at_entry
                        && start == self.pc
                    {
                        return self.expression(data, 0);
                    }
                }
                Err(Unavailable::optimised())
            }
        }
    }

    /// The location in the frame of a function around. While a function inside it can run, what that
    /// one may use is in memory; other ranges are those of copies in registers.
    fn in_frame(&self, mut list: gimli::LocListIter<R>) -> Result<Location, Unavailable> {
        let mut locations = Vec::new();
        while let Ok(Some(entry)) = list.next() {
            let mut ops = entry.data.operations(self.unit.encoding());
            if matches!(ops.next(), Ok(Some(Operation::FrameOffset { .. }))) {
                let location = self.expression(entry.data, 0)?;
                if !locations.contains(&location) {
                    locations.push(location);
                }
            }
        }
        match (locations.pop(), locations.is_empty()) {
            (Some(location), true) => Ok(location),
            _ => Unavailable::because(OUTER_REGISTER),
        }
    }

    /// Address and expression of an empty range. `base` is the base address of offsets.
    fn empty_range(
        &self,
        raw: &RawLocListEntry<R>,
        base: &mut u64,
    ) -> Option<(u64, Expression<R>)> {
        let (begin, end, data) = match raw {
            RawLocListEntry::BaseAddress { addr } => {
                *base = *addr;
                return None;
            }
            RawLocListEntry::BaseAddressx { addr } => {
                let dwarf = self.dwarf.forms(self.die.part, self.die.unit);
                *base = dwarf.address(self.unit, *addr).ok()?;
                return None;
            }
            RawLocListEntry::OffsetPair { begin, end, data }
            | RawLocListEntry::AddressOrOffsetPair { begin, end, data } => {
                (base.wrapping_add(*begin), base.wrapping_add(*end), data)
            }
            RawLocListEntry::StartLength {
                begin,
                length,
                data,
            } => (*begin, begin.wrapping_add(*length), data),
            RawLocListEntry::StartEnd { begin, end, data } => (*begin, *end, data),
            _ => return None,
        };
        (begin == end).then_some((begin, *data))
    }

    fn expression(&self, expression: Expression<R>, depth: usize) -> Result<Location, Unavailable> {
        if expression.0.is_empty() {
            return Err(Unavailable::optimised());
        }
        let mut machine = Evaluator {
            context: self,
            stack: Vec::new(),
            pieces: Vec::new(),
            result: None,
            lost: false,
            waiting: Vec::new(),
            indexed: None,
        };
        let mut ops = expression.operations(self.unit.encoding());
        for step in 0.. {
            let offset = ops.offset_from(&expression);
            machine.join_paths(offset)?;
            let op = match ops.next() {
                Ok(Some(op)) => op,
                Ok(None) => break,
                Err(_) => return Err(Unavailable::damaged()),
            };
            if step > MAX_STEPS {
                return Err(Unavailable::damaged());
            }
            let next_offset = ops.offset_from(&expression);
            match op {
                Operation::Bra { target } => machine.branch(next_offset, target)?,
                Operation::Skip { target } => machine.skip(next_offset, target)?,
                op => machine.step(op, depth)?,
            }
        }
        machine.finish()
    }

    /// The canonical frame address of the function.
    fn cfa(&self) -> Result<LocProgram, Unavailable> {
        if self.outer.is_some() {
            return Unavailable::because(OUTER_REGISTER);
        }
        let main = &self.dwarf.main;
        let debug = &self.dwarf.part(0).image;
        let row = cfi::row_for(main, Some(debug), self.pc);
        let row = row.ok_or_else(|| Unavailable::new("no unwind information for its frame"))?;
        match row.cfa {
            Cfa::Register { register, offset } => Ok(register_offset(register, i64::from(offset))),
            Cfa::Deref { register, offset } => {
                let mut p = register_offset(register, i64::from(offset));
                p.push(LocStep::Load { size: 8 });
                Ok(p)
            }
            _ => Unavailable::because("unwind information for its frame is not understood"),
        }
    }

    fn register(&self, register: gimli::Register) -> Result<(), Unavailable> {
        match self.outer {
            Some(Ok(_)) => Unavailable::because(OUTER_REGISTER),
            Some(Err(why)) => Err(why.clone()),
            None => self.general(register),
        }
    }

    /// Whether a register is one that the kernel saves.
    fn general(&self, register: gimli::Register) -> Result<(), Unavailable> {
        let abi = self.dwarf.main.abi();
        match abi.and_then(|abi| abi.offset(register.0)) {
            Some(_) => Ok(()),
            None => Unavailable::because("it is in a floating point or vector register"),
        }
    }

    fn frame_base(&self, depth: usize) -> Result<LocProgram, Unavailable> {
        if let Some(frame) = self.outer {
            return frame.clone();
        }
        let lost = || Unavailable::new("its function has no frame base");
        let function = self.function.filter(|_| depth < 2).ok_or_else(lost)?;
        let (unit, entry) = self.dwarf.entry(function).ok_or_else(lost)?;
        let value = entry.attr_value(gimli::DW_AT_frame_base).ok_or_else(lost)?;
        let context = LocContext {
            die: function,
            unit: &unit,
            ..*self
        };
        let location = match value {
            AttributeValue::Exprloc(e) => context.expression(e, depth + 1)?,
            v => context.attribute(v)?,
        };
        // For the frame base, a register stands for its value, an address for itself.
        match location {
            Location::Address(p) | Location::Value(p) => Ok(p),
            Location::Pieces(_) | Location::Implicit { .. } => Err(lost()),
        }
    }

    /// Size in bytes and signedness of a basic type of the unit.
    fn base_type(&self, offset: gimli::UnitOffset) -> Result<(u8, bool), Unavailable> {
        if offset.0 == 0 {
            return Ok((8, false));
        }
        let entry = self
            .unit
            .entry(offset)
            .map_err(|_| Unavailable::damaged())?;
        let size = number_of(&entry, gimli::DW_AT_byte_size).unwrap_or(0);
        match (entry.attr_value(gimli::DW_AT_encoding), size) {
            (Some(AttributeValue::Encoding(gimli::DW_ATE_float)), _) => {
                Unavailable::because("it is computed in floating point")
            }
            (Some(AttributeValue::Encoding(e)), 1 | 2 | 4 | 8) => {
                let signed = matches!(e, gimli::DW_ATE_signed | gimli::DW_ATE_signed_char);
                Ok((size.fit::<u8>(), signed))
            }
            _ => Unavailable::because("it is computed in a type that does not fit a word"),
        }
    }

    /// The width of a basic type that LLVM made for a conversion, by its name: its size is in whole
    /// bytes.
    fn bits_of(&self, offset: gimli::UnitOffset) -> Option<u8> {
        let entry = self.unit.entry(offset).ok()?;
        bits_in(self.dwarf.name(self.die, &entry)?)
    }
}

/// The number of bits in the name of a type that LLVM made for a conversion.
fn bits_in(name: &str) -> Option<u8> {
    let signs = ["DW_ATE_unsigned_", "DW_ATE_signed_"];
    let bits = signs.iter().find_map(|s| name.strip_prefix(s))?;
    bits.parse().ok().filter(|b| (1..64).contains(b))
}

/// A register plus an offset.
fn register_offset(register: u16, offset: i64) -> LocProgram {
    if offset == 0 {
        return vec![LocStep::Reg(register)];
    }
    vec![
        LocStep::Reg(register),
        LocStep::Const(offset),
        LocStep::Binary(B::Add),
    ]
}

/// The target of a jump, which must be later.
fn forward_target(next_offset: usize, distance: i16) -> Result<usize, Unavailable> {
    let far = usize::try_from(distance).map_err(|_| Unavailable::new("its location has loops"))?;
    Ok(next_offset.saturating_add(far))
}

impl Evaluator<'_, '_> {
    fn pop(&mut self) -> Result<LocProgram, Unavailable> {
        self.stack.pop().ok_or_else(Unavailable::damaged)
    }

    fn push(&mut self, program: LocProgram) -> Result<(), Unavailable> {
        let whole: usize = self.stack.iter().map(Vec::len).sum();
        if whole + program.len() > MAX_OPS {
            return Err(Unavailable::damaged());
        }
        self.stack.push(program);
        Ok(())
    }

    fn binary(&mut self, op: B) -> Result<(), Unavailable> {
        let right = self.pop()?;
        let mut left = self.pop()?;
        left.extend(right);
        left.push(LocStep::Binary(op));
        self.push(left)
    }

    fn unary(&mut self, op: LocStep) -> Result<(), Unavailable> {
        let mut operand = self.pop()?;
        operand.push(op);
        self.push(operand)
    }

    fn convert(&mut self, to: gimli::UnitOffset) -> Result<(), Unavailable> {
        let ty = self.context.base_type(to)?;
        match self.context.bits_of(to) {
            Some(bits) => self.keep_bits(bits, ty.1),
            None => self.extend(ty),
        }
    }

    /// The address of a thread-local variable, from its offset.
    fn thread_local(&mut self) -> Result<(), Unavailable> {
        let mut offset = self.pop()?;
        let image = &self.context.dwarf.main;
        if let ([LocStep::Const(o)], Some(constant)) = (&mut offset[..], self.indexed)
            && *o == constant
        {
            *o = thread_local::offset_of_index(image, constant)?;
        }
        let mut p = thread_local::block(image)?;
        p.extend(offset);
        p.push(LocStep::Binary(B::Add));
        self.push(p)
    }

    /// Keeps the low bits of a number.
    fn keep_bits(&mut self, bits: u8, signed: bool) -> Result<(), Unavailable> {
        let unused = 64 - i64::from(bits);
        let shifts = match signed {
            true => [B::Shl, B::Sar],
            false => [B::Shl, B::Shr],
        };
        for shift in shifts {
            self.push(vec![LocStep::Const(unused)])?;
            self.binary(shift)?;
        }
        Ok(())
    }

    fn extend(&mut self, (size, signed): (u8, bool)) -> Result<(), Unavailable> {
        if size < 8 {
            self.unary(LocStep::Extend { size, signed })?;
        }
        Ok(())
    }

    fn address(&mut self, address: u64) -> Result<(), Unavailable> {
        let add = LocStep::Binary(B::Add);
        self.push(vec![
            LocStep::Const(address.cast_signed()),
            LocStep::Bias,
            add,
        ])
    }

    /// `DW_OP_bra`: two paths, which meet at the jump's target. Compilers emit it for minimum and
    /// maximum, and only jump forwards.
    fn branch(&mut self, next_offset: usize, distance: i16) -> Result<(), Unavailable> {
        let target = forward_target(next_offset, distance)?;
        let condition = self.pop()?;
        let stack = self.stack.clone();
        self.defer_path(PendingPath {
            target,
            condition,
            stack,
        })
    }

    /// `DW_OP_skip` at the end of one of two paths: the other one begins after it.
    fn skip(&mut self, next_offset: usize, distance: i16) -> Result<(), Unavailable> {
        let target = forward_target(next_offset, distance)?;
        let Some(mut other) = self.waiting.pop().filter(|w| w.target == next_offset) else {
            return Unavailable::because("its location has jumps");
        };
        let not = [LocStep::Const(0), LocStep::Binary(B::Eq)];
        other.condition.extend(not);
        let stack = std::mem::replace(&mut self.stack, other.stack);
        self.defer_path(PendingPath {
            target,
            condition: other.condition,
            stack,
        })
    }

    fn defer_path(&mut self, way: PendingPath) -> Result<(), Unavailable> {
        // Paths that are not nested would meet in another order.
        if self.waiting.last().is_some_and(|w| w.target < way.target)
            || self.waiting.len() > MAX_WAYS
        {
            return Unavailable::because("its location has jumps");
        }
        self.waiting.push(way);
        Ok(())
    }

    /// Joins the paths that meet at an operation: where they differ, the condition selects.
    fn join_paths(&mut self, offset: usize) -> Result<(), Unavailable> {
        while let Some(way) = self.waiting.pop_if(|w| w.target <= offset) {
            let stack = std::mem::take(&mut self.stack);
            if stack.len() != way.stack.len() || way.target != offset {
                return Err(Unavailable::damaged());
            }
            for (b, a) in stack.into_iter().zip(way.stack) {
                if a == b {
                    self.push(b)?;
                    continue;
                }
                // With m of all ones or 0: b ^ ((a ^ b) & m).
                let mut p = b.clone();
                p.extend(a);
                p.extend(b);
                p.push(LocStep::Binary(B::Xor));
                p.extend_from_slice(&way.condition);
                p.extend([LocStep::Const(0), LocStep::Binary(B::Ne), LocStep::Neg]);
                p.extend([LocStep::Binary(B::And), LocStep::Binary(B::Xor)]);
                self.push(p)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, op: Operation<R>, depth: usize) -> Result<(), Unavailable> {
        let die = self.context.die;
        let dwarf = self.context.dwarf.forms(die.part, die.unit);
        let indexed = |index| {
            let word = dwarf.address(self.context.unit, index);
            word.map_err(|_| Unavailable::damaged())
        };
        match op {
            Operation::Nop => {}
            Operation::UnsignedConstant { value } => {
                self.push(vec![LocStep::Const(value.cast_signed())])?
            }
            Operation::SignedConstant { value } => self.push(vec![LocStep::Const(value)])?,
            Operation::Address { address } => self.address(address)?,
            Operation::AddressIndex { index } => self.address(indexed(index)?)?,
            Operation::ConstantIndex { index } => {
                let value = indexed(index)?.cast_signed();
                self.indexed = Some(value);
                self.push(vec![LocStep::Const(value)])?;
            }
            Operation::Register { register } => {
                self.context.register(register)?;
                self.result = Some(Location::Value(vec![LocStep::Reg(register.0)]));
            }
            Operation::RegisterOffset {
                register,
                offset,
                base_type,
            } => {
                self.context.register(register)?;
                self.push(register_offset(register.0, offset))?;
                let ty = self.context.base_type(base_type)?;
                self.extend(ty)?;
            }
            Operation::FrameOffset { offset } => {
                let mut p = self.context.frame_base(depth)?;
                if offset != 0 {
                    p.extend([LocStep::Const(offset), LocStep::Binary(B::Add)]);
                }
                self.push(p)?;
            }
            Operation::CallFrameCFA => {
                let p = self.context.cfa()?;
                self.push(p)?;
            }
            Operation::Deref {
                size, base_type, ..
            } => {
                let ty = self.context.base_type(base_type)?;
                if !matches!(size, 1 | 2 | 4 | 8) {
                    return Err(Unavailable::damaged());
                }
                self.unary(LocStep::Load { size })?;
                self.extend(ty)?;
            }
            Operation::TypedLiteral { base_type, value } => {
                let (size, signed) = self.context.base_type(base_type)?;
                let bytes = value.slice().get(..usize::from(size));
                let value = little_endian(bytes.ok_or_else(Unavailable::damaged)?);
                self.push(vec![LocStep::Const(value)])?;
                self.extend((size, signed))?;
            }
            Operation::Convert { base_type } | Operation::Reinterpret { base_type } => {
                self.convert(base_type)?;
            }
            Operation::EntryValue { expression } => self.entry_value(expression)?,
            Operation::StackValue => {
                let p = self.pop()?;
                self.result = Some(Location::Value(p));
            }
            Operation::ImplicitValue { data } => self.result = Some(Location::known(data.slice())),
            Operation::ImplicitPointer { value, byte_offset } => {
                let value = AttributeValue::DebugInfoRef(value);
                let to = self.context.dwarf.refer(self.context.die, value);
                let to = to.ok_or_else(Unavailable::damaged)?;
                let offset = byte_offset;
                self.result = Some(Location::Implicit { to, offset });
            }
            Operation::Piece {
                size_in_bits,
                bit_offset,
            } => self.piece(size_in_bits, bit_offset)?,
            Operation::TLS => self.thread_local()?,
            Operation::ParameterRef { .. } => {
                return Unavailable::because("only the caller knows it");
            }
            Operation::Call { .. }
            | Operation::VariableValue { .. }
            | Operation::PushObjectAddress => {
                return Unavailable::because("its location depends on another variable's");
            }
            op => return self.arithmetic(op),
        }
        Ok(())
    }

    fn arithmetic(&mut self, op: Operation<R>) -> Result<(), Unavailable> {
        match op {
            Operation::Drop => {
                self.pop()?;
            }
            Operation::Pick { index } => {
                let copy = self.stack.iter().nth_back(index.into()).cloned();
                self.push(copy.ok_or_else(Unavailable::damaged)?)?;
            }
            Operation::Swap | Operation::Rot => {
                let n = if matches!(op, Operation::Swap) { 2 } else { 3 };
                let from = self.stack.len().checked_sub(n);
                self.stack[from.ok_or_else(Unavailable::damaged)?..].rotate_right(1);
            }
            Operation::PlusConstant { value } => {
                let mut p = self.pop()?;
                p.extend([LocStep::Const(value.cast_signed()), LocStep::Binary(B::Add)]);
                self.push(p)?;
            }
            Operation::Abs => self.unary(LocStep::Abs)?,
            Operation::Neg => self.unary(LocStep::Neg)?,
            Operation::Not => self.unary(LocStep::Not)?,
            Operation::And => self.binary(B::And)?,
            Operation::Div => self.binary(B::Div)?,
            Operation::Minus => self.binary(B::Sub)?,
            Operation::Mod => self.binary(B::Mod)?,
            Operation::Mul => self.binary(B::Mul)?,
            Operation::Or => self.binary(B::Or)?,
            Operation::Plus => self.binary(B::Add)?,
            Operation::Shl => self.binary(B::Shl)?,
            Operation::Shr => self.binary(B::Shr)?,
            Operation::Shra => self.binary(B::Sar)?,
            Operation::Xor => self.binary(B::Xor)?,
            Operation::Eq => self.binary(B::Eq)?,
            Operation::Ge => self.binary(B::Ge)?,
            Operation::Gt => self.binary(B::Gt)?,
            Operation::Le => self.binary(B::Le)?,
            Operation::Lt => self.binary(B::Lt)?,
            Operation::Ne => self.binary(B::Ne)?,
            Operation::Uninitialized => self.lost = true,
            _ => return Err(Unavailable::damaged()),
        }
        Ok(())
    }

    /// The value of a register at the function's entry: the register itself if no instruction has
    /// run yet.
    fn entry_value(&mut self, expression: R) -> Result<(), Unavailable> {
        let mut ops = Expression(expression).operations(self.context.unit.encoding());
        let first = ops.next().ok().flatten();
        match first {
            Some(Operation::Register { register }) if self.context.at_entry => {
                self.context.register(register)?;
                self.push(vec![LocStep::Reg(register.0)])
            }
            _ => Unavailable::because(
                "not accessible at this address: only known when the function was entered, where a \
                 probe can keep it in a global",
            ),
        }
    }

    fn piece(&mut self, bits: u64, from: Option<u64>) -> Result<(), Unavailable> {
        if !bits.is_multiple_of(8) || from.unwrap_or(0) != 0 {
            return Unavailable::because("it is in pieces that are no whole bytes");
        }
        let location = match self.result.take() {
            Some(r) => Some(r),
            None => self.stack.pop().map(Location::Address),
        };
        self.pieces.push((bits / 8, location));
        Ok(())
    }

    fn finish(mut self) -> Result<Location, Unavailable> {
        if self.lost {
            return Unavailable::because("it has no value yet here");
        }
        if !self.pieces.is_empty() {
            if self.pieces.iter().all(|p| p.1.is_none()) {
                return Err(Unavailable::optimised());
            }
            return Ok(Location::Pieces(self.pieces));
        }
        match self.result.take() {
            Some(r) => Ok(r),
            None => Ok(Location::Address(self.pop()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::bits_in;

    #[test]
    fn types_of_conversions_have_bits() {
        assert_eq!(bits_in("DW_ATE_unsigned_1"), Some(1));
        assert_eq!(bits_in("DW_ATE_signed_12"), Some(12));
        assert_eq!(bits_in("DW_ATE_unsigned_64"), None);
        assert_eq!(bits_in("unsigned int"), None);
    }
}
