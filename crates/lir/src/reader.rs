//! Reads the text form that [`crate::text`] describes. Errors name the line and the column.
//!
//! The reader checks the grammar; [`crate::verify`] checks the rest.

use std::collections::HashMap;
use std::fmt;

use spile_cast::Cast;

use crate::func::{
    BlockId, ConstantData, Extern, JumpTarget, LirBlock, LirFunc, LirInst, LirTerm, LoopBound,
    LoopForm, MemoryOperand, Module, Operand, SlotId, Value,
};
use crate::helpers::Helper;
use crate::op::{AluOp, AtomicOp, Cond, ExtOp, Size, Width};
use crate::text::signed_name;

/// A text that is not a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleReadError {
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
    /// The error message.
    pub message: String,
}

impl fmt::Display for ModuleReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ModuleReadError {}

type Res<T = ()> = Result<T, ModuleReadError>;

/// Reads a module.
///
/// # Errors
/// The first position where the text does not follow the grammar.
pub fn read(text: &str) -> Result<Module, ModuleReadError> {
    let mut reader = Reader {
        text: text.as_bytes(),
        position: 0,
        comments: Vec::new(),
        names: Names::default(),
        repeated: 0,
    };
    reader.module()
}

/// The names of the function that is read.
#[derive(Default)]
struct Names {
    values: HashMap<String, Value>,
    names: Vec<String>,
    blocks: HashMap<String, BlockId>,
    /// For each block its name, the location of its first mention, and whether it is defined.
    mentions: Vec<(String, usize, bool)>,
}

struct Reader<'a> {
    text: &'a [u8],
    position: usize,
    /// The comments since the last other token, each a line.
    comments: Vec<String>,
    names: Names,
    /// Number of bytes that repetitions made.
    repeated: usize,
}

/// The largest number of bytes that repetitions make in a module, so that a short text stays small.
const MOST_REPEATED: usize = 1 << 20;

fn is_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'.'
}

impl Reader<'_> {
    fn error_at<T>(&self, position: usize, message: impl Into<String>) -> Res<T> {
        let before = &self.text[..position.min(self.text.len())];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let start = before
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |n| n + 1);
        Err(ModuleReadError {
            line: line.fit(),
            column: (before.len() - start + 1).fit(),
            message: message.into(),
        })
    }

    fn error<T>(&mut self, message: impl Into<String>) -> Res<T> {
        self.skip();
        self.error_at(self.position, message)
    }

    /// Skips white space and comments.
    fn skip(&mut self) {
        while let Some(b) = self.text.get(self.position) {
            if *b == b';' {
                let rest = &self.text[self.position..];
                let len = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                let line = String::from_utf8_lossy(&rest[1..len]);
                let line = line.strip_prefix(' ').unwrap_or(&line);
                self.comments.push(line.trim_end().to_owned());
                self.position += len;
            } else if b.is_ascii_whitespace() {
                self.position += 1;
            } else {
                return;
            }
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip();
        self.text.get(self.position).copied()
    }

    /// The name at this location, without taking it; empty if there is none.
    fn peek_name(&mut self) -> String {
        self.skip();
        let rest = &self.text[self.position..];
        let len = rest.iter().position(|b| !is_name(*b));
        String::from_utf8_lossy(&rest[..len.unwrap_or(rest.len())]).into_owned()
    }

    fn name(&mut self, expected: &str) -> Res<String> {
        let name = self.peek_name();
        if name.is_empty() {
            return self.error(format!("expected {expected}"));
        }
        self.position += name.len();
        self.comments.clear();
        Ok(name)
    }

    fn take(&mut self, sign: u8) -> bool {
        let next = self.peek() == Some(sign);
        if next {
            self.position += 1;
            self.comments.clear();
        }
        next
    }

    fn expect(&mut self, sign: u8) -> Res {
        if self.take(sign) {
            return Ok(());
        }
        self.error(format!("expected `{}`", char::from(sign)))
    }

    fn take_word(&mut self, word: &str) -> bool {
        let next = self.peek_name() == word;
        if next {
            self.position += word.len();
            self.comments.clear();
        }
        next
    }

    fn word(&mut self, word: &str) -> Res {
        if self.take_word(word) {
            return Ok(());
        }
        self.error(format!("expected `{word}`"))
    }

    /// A number that fits.
    fn number<T: TryFrom<i128>>(&mut self, expected: &str) -> Res<T> {
        self.skip();
        let start = self.position;
        let negative = self.take(b'-');
        let digits = self.name(expected)?;
        let value = match digits.strip_prefix("0x") {
            Some(hex) => i128::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        let value = value.ok().map(|n| if negative { -n } else { n });
        match value.and_then(|n| T::try_from(n).ok()) {
            Some(n) => Ok(n),
            None => self.error_at(start, format!("not {expected}")),
        }
    }

    /// One of a table, by its name.
    fn one_of<T>(&mut self, expected: &str, find: impl Fn(&str) -> Option<T>) -> Res<T> {
        let name = self.peek_name();
        match find(&name) {
            Some(value) => {
                self.position += name.len();
                self.comments.clear();
                Ok(value)
            }
            None => self.error(format!("expected {expected}")),
        }
    }

    fn module(&mut self) -> Res<Module> {
        let mut module = Module::default();
        while self.peek().is_some() {
            let contract = std::mem::take(&mut self.comments);
            if self.take_word("data") {
                module.data.push(self.data()?);
            } else if self.take_word("func") {
                module.funcs.push(self.func(contract.join("\n"))?);
            } else if self.take_word("extern") {
                module.externs.push(self.declared()?);
            } else {
                return self.error("expected `data`, `extern` or `func`");
            }
        }
        Ok(module)
    }

    /// A function of the host: its name and number of parameters.
    fn declared(&mut self) -> Res<Extern> {
        self.expect(b'@')?;
        let name = self.name("a name")?;
        self.expect(b'(')?;
        let params = self.number::<u8>("a number of parameters")?;
        self.expect(b')')?;
        Ok(Extern {
            name,
            params: params.into(),
        })
    }

    fn data(&mut self) -> Res<ConstantData> {
        self.expect(b'@')?;
        let name = self.name("a name")?;
        self.expect(b'"')?;
        let mut bytes = Vec::new();
        self.string(&mut bytes)?;
        while self.take(b'"') {
            self.string(&mut bytes)?;
        }
        Ok(ConstantData { name, bytes })
    }

    /// The rest of a string of constant data behind its first quote.
    fn string(&mut self, bytes: &mut Vec<u8>) -> Res<()> {
        loop {
            let rest = &self.text[self.position..];
            if let [b'\\', b'{', ..] = rest {
                self.position += 2;
                self.repetition(bytes)?;
                continue;
            }
            let (byte, len) = match rest {
                [b'"', ..] => break,
                [b'\\', b @ (b'"' | b'\\'), ..] => (*b, 2),
                [b'\\', b'x', a, b, ..] => {
                    let digit = |d: u8| char::from(d).to_digit(16);
                    match digit(*a).zip(digit(*b)) {
                        Some((a, b)) => ((16 * a + b).fit::<u8>(), 4),
                        None => {
                            return self.error_at(self.position, "expected two hexadecimal digits");
                        }
                    }
                }
                [b @ b' '..=b'~', ..] if *b != b'\\' => (*b, 1),
                _ => {
                    return self.error_at(self.position, "expected a character, an escape or `\"`");
                }
            };
            bytes.push(byte);
            self.position += len;
        }
        self.position += 1;
        Ok(())
    }

    /// The rest of `\{N}`, which makes N bytes of the last one.
    fn repetition(&mut self, bytes: &mut Vec<u8>) -> Res<()> {
        let start = self.position;
        let count: usize = self.number("a number of bytes")?;
        self.expect(b'}')?;
        self.repeated = self.repeated.saturating_add(count);
        let last = bytes.last().copied();
        match last.filter(|_| count > 0 && self.repeated <= MOST_REPEATED) {
            Some(byte) => bytes.resize(bytes.len() + count - 1, byte),
            None => return self.error_at(start, "a repetition of nothing, or too long"),
        }
        Ok(())
    }

    fn func(&mut self, contract: String) -> Res<LirFunc> {
        self.names = Names::default();
        self.expect(b'@')?;
        let name = self.name("a name")?;
        self.expect(b'(')?;
        let mut params = self.values()?;
        let mut slots = Vec::new();
        if self.take_word("stack") {
            slots.push(self.number("a size")?);
            while self.take(b',') {
                slots.push(self.number("a size")?);
            }
        }
        self.expect(b'{')?;
        let mut blocks: Vec<Option<LirBlock>> = Vec::new();
        while !self.take(b'}') {
            let start = self.position;
            let (id, mut block) = self.block()?;
            if blocks.iter().all(Option::is_none) {
                if id.0 != 0 || !block.params.is_empty() {
                    return self.error_at(start, "the first block has the function's parameters");
                }
                block.params = std::mem::take(&mut params);
            }
            let index = id.index();
            blocks.resize(blocks.len().max(index + 1), None);
            blocks[index] = Some(block);
        }
        if let Some((name, mentioned, _)) = self.names.mentions.iter().find(|m| !m.2) {
            return self.error_at(*mentioned, format!("no block {name}"));
        }
        let blocks: Vec<LirBlock> = blocks.into_iter().flatten().collect();
        if blocks.is_empty() {
            return self.error("a function needs a block");
        }
        let mut func = LirFunc {
            name,
            contract,
            slots,
            values: std::mem::take(&mut self.names.names),
            blocks,
        };
        self.in_written_order(&mut func);
        Ok(func)
    }

    /// Blocks got their numbers at their first mention; they are numbered as they are written.
    fn in_written_order(&self, func: &mut LirFunc) {
        let mut order: Vec<usize> = (0..func.blocks.len()).collect();
        order.sort_by_key(|i| self.names.mentions[*i].1);
        let mut new = vec![BlockId(0); order.len()];
        for (to, from) in order.iter().enumerate() {
            new[*from] = BlockId(to.fit());
        }
        let mut blocks: Vec<Option<LirBlock>> = std::mem::take(&mut func.blocks)
            .into_iter()
            .map(Some)
            .collect();
        func.blocks = order.iter().filter_map(|i| blocks[*i].take()).collect();
        for target in func.blocks.iter_mut().flat_map(LirBlock::edges_mut) {
            target.block = new[target.block.index()];
        }
    }

    fn value(&mut self) -> Res<Value> {
        self.expect(b'%')?;
        let name = self.name("a value's name")?;
        let names = &mut self.names;
        if let Some(v) = names.values.get(&name) {
            return Ok(*v);
        }
        let v = Value(names.names.len().fit());
        names.names.push(name.clone());
        names.values.insert(name, v);
        Ok(v)
    }

    /// Values up to a closing parenthesis.
    fn values(&mut self) -> Res<Vec<Value>> {
        let mut values = Vec::new();
        while !self.take(b')') {
            if !values.is_empty() {
                self.expect(b',')?;
            }
            values.push(self.value()?);
        }
        Ok(values)
    }

    fn block_name(&mut self) -> Res<BlockId> {
        self.skip();
        let start = self.position;
        let name = self.name("a block's name")?;
        let names = &mut self.names;
        if let Some(id) = names.blocks.get(&name) {
            return Ok(*id);
        }
        let id = BlockId(names.mentions.len().fit());
        names.mentions.push((name.clone(), start, false));
        names.blocks.insert(name, id);
        Ok(id)
    }

    fn target(&mut self) -> Res<JumpTarget> {
        let block = self.block_name()?;
        let args = match self.take(b'(') {
            true => self.values()?,
            false => Vec::new(),
        };
        Ok(JumpTarget { block, args })
    }

    fn operand(&mut self) -> Res<Operand> {
        if self.peek() == Some(b'%') {
            return Ok(Operand::Value(self.value()?));
        }
        Ok(Operand::Imm(self.number("a value or a number of 32 bits")?))
    }

    fn block(&mut self) -> Res<(BlockId, LirBlock)> {
        self.skip();
        let start = self.position;
        let id = self.block_name()?;
        let mention = &mut self.names.mentions[id.index()];
        if mention.2 {
            let name = mention.0.clone();
            return self.error_at(start, format!("a second block {name}"));
        }
        (mention.1, mention.2) = (start, true);
        let name = mention.0.clone();
        let params = match self.take(b'(') {
            true => self.values()?,
            false => Vec::new(),
        };
        self.expect(b':')?;
        let mut bound = None;
        if self.take_word("loop") {
            let max = self.number("a number of iterations")?;
            let form = match (self.take_word("inline"), self.take_word("open")) {
                (true, _) => LoopForm::Inline,
                (_, true) => LoopForm::Open,
                _ => LoopForm::Callback,
            };
            self.word("else")?;
            bound = Some(LoopBound {
                max,
                form,
                exhausted: self.target()?,
            });
        }
        let mut insts = Vec::new();
        let term = loop {
            if let Some(term) = self.term()? {
                break term;
            }
            insts.push(self.inst()?);
        };
        let block = LirBlock {
            name,
            params,
            bound,
            insts,
            term,
        };
        Ok((id, block))
    }

    fn term(&mut self) -> Res<Option<LirTerm>> {
        if self.take_word("jump") {
            return Ok(Some(LirTerm::Jump(self.target()?)));
        }
        if self.take_word("ret") {
            return Ok(Some(LirTerm::Ret(self.operand()?)));
        }
        let width = match () {
            () if self.take_word("if") => Width::W64,
            () if self.take_word("if32") => Width::W32,
            () => return Ok(None),
        };
        let cond = self.one_of("a condition", Cond::by_name)?;
        let a = self.value()?;
        self.expect(b',')?;
        let b = self.operand()?;
        self.word("then")?;
        let then = self.target()?;
        self.word("else")?;
        let els = self.target()?;
        Ok(Some(LirTerm::Branch {
            cond,
            width,
            a,
            b,
            then,
            els,
        }))
    }

    fn inst(&mut self) -> Res<LirInst> {
        let start = self.position;
        let dst = match self.peek() {
            Some(b'%') => {
                let dst = self.value()?;
                self.expect(b'=')?;
                Some(dst)
            }
            _ => None,
        };
        let name = self.name("an instruction")?;
        match (&*name, dst) {
            ("store", None) => {
                let size = self.one_of("a size", Size::by_name)?;
                let (base, off) = self.memory()?;
                self.expect(b',')?;
                let src = self.operand()?;
                Ok(LirInst::Store {
                    size,
                    base,
                    off,
                    src,
                })
            }
            ("helper", dst) => {
                let helper = self.one_of("a helper's name", Helper::by_name)?;
                self.expect(b'(')?;
                let args = self.values()?;
                Ok(LirInst::Helper { dst, helper, args })
            }
            (name, dst) if AtomicOp::by_name(name).is_some() => {
                let Some(op) = AtomicOp::by_name(name) else {
                    return self.error("expected an atomic operation");
                };
                self.atomic(op, dst)
            }
            (_, Some(dst)) => self.defining(&name, dst),
            _ => self.error_at(
                start,
                format!("expected an instruction instead of `{name}`"),
            ),
        }
    }

    fn memory(&mut self) -> Res<(Value, i16)> {
        let base = self.value()?;
        self.skip();
        let start = self.position;
        let negative = self.take(b'-');
        if !negative {
            self.expect(b'+')?;
        }
        let off: i32 = self.number("a displacement")?;
        match i16::try_from(if negative { off.wrapping_neg() } else { off }) {
            Ok(off) => Ok((base, off)),
            Err(_) => self.error_at(start, "not a displacement of 16 bits"),
        }
    }

    fn atomic(&mut self, op: AtomicOp, dst: Option<Value>) -> Res<LirInst> {
        let width = self.one_of("32 or 64", Width::by_name)?;
        let (base, off) = self.memory()?;
        self.expect(b',')?;
        let mut expected = None;
        if op == AtomicOp::CmpXchg {
            expected = Some(self.value()?);
            self.expect(b',')?;
        }
        let src = self.value()?;
        Ok(LirInst::Atomic {
            dst,
            op,
            width,
            base,
            off,
            expected,
            src,
        })
    }

    /// An instruction that defines a value, after its name.
    fn defining(&mut self, name: &str, dst: Value) -> Res<LirInst> {
        if let Some(op) = ExtOp::by_name(name) {
            let size = self.one_of("a size", Size::by_name)?;
            let a = self.value()?;
            return Ok(LirInst::Ext { dst, op, size, a });
        }
        let narrow = name.strip_suffix("32");
        if let Some(op) = AluOp::by_name(narrow.unwrap_or(name)) {
            let width = narrow.map_or(Width::W64, |_| Width::W32);
            let a = self.value()?;
            self.expect(b',')?;
            let b = self.operand()?;
            return Ok(LirInst::Alu {
                dst,
                width,
                op,
                a,
                b,
            });
        }
        match name {
            "const" => {
                let imm = self.number("a number of 64 bits")?;
                Ok(LirInst::Const { dst, imm })
            }
            "load" => {
                let (size, signed) = self.one_of("a size", |name| {
                    let signed = |s: &&Size| signed_name(**s) == name;
                    let plain = Size::by_name(name).map(|s| (s, false));
                    plain.or_else(|| Size::ALL.iter().find(signed).map(|s| (*s, true)))
                })?;
                let (base, off) = self.memory()?;
                Ok(LirInst::Load {
                    dst,
                    size,
                    signed,
                    base,
                    off,
                })
            }
            "bound" => {
                let a = self.value()?;
                self.expect(b',')?;
                let max = self.number("a bound of 32 bits")?;
                Ok(LirInst::Bound { dst, a, max })
            }
            "opaque" => Ok(LirInst::Opaque {
                dst,
                a: self.value()?,
            }),
            "slot" | "cpu" | "state" | "map" | "func" | "data" => {
                let location = self.location(name)?;
                Ok(LirInst::Addr { dst, location })
            }
            "call" => {
                self.expect(b'@')?;
                let func = self.name("a function's name")?;
                self.expect(b'(')?;
                let args = self.values()?;
                Ok(LirInst::Call { dst, func, args })
            }
            "repeat" => self.repeat(dst),
            _ => {
                let start = self.position - name.len();
                self.error_at(start, format!("no instruction `{name}` gives a value"))
            }
        }
    }

    fn repeat(&mut self, dst: Value) -> Res<LirInst> {
        let times = self.value()?;
        self.expect(b',')?;
        self.expect(b'@')?;
        let func = self.name("a function's name")?;
        self.expect(b',')?;
        let context = self.value()?;
        Ok(LirInst::Repeat {
            dst,
            times,
            func,
            context,
        })
    }

    fn location(&mut self, kind: &str) -> Res<MemoryOperand> {
        Ok(match kind {
            "slot" => {
                let slot = SlotId(self.number("a slot's number")?);
                self.expect(b'+')?;
                MemoryOperand::Slot(slot, self.number("an offset")?)
            }
            "cpu" => MemoryOperand::Cpu(self.number("an offset")?),
            "state" => MemoryOperand::State(self.number("an offset")?),
            kind => {
                self.expect(b'@')?;
                let name = self.name("a name")?;
                match kind {
                    "map" => return Ok(MemoryOperand::Map(name)),
                    "func" => return Ok(MemoryOperand::Func(name)),
                    _ => {}
                }
                self.expect(b'+')?;
                MemoryOperand::Data(name, self.number("an offset")?)
            }
        })
    }
}
