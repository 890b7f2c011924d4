//! Random programs: every storage class, statistics with every part, histograms, wrapping arrays,
//! slices, text with all conversions, errors and catch blocks, several handlers of one event, and
//! iterators; for the controller also functions and jumps back. A seed always gives the same
//! program, and all programs end.

mod iterators;

use iterators::{IteratorSpec, extractors};
use spile_cast::Cast;

use super::Rng;
use crate::fmt::Format;
use crate::intrinsics::ValueKind;
use crate::storage::{self, Storage};
use crate::*;

/// The kind of program to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Handlers of a raw tracepoint; otherwise of `begin`, with functions, loops and iterators.
    pub kernel: bool,
    /// Approximate number of instructions of a handler.
    pub size: u32,
}

/// Number of integer registers of a body; string registers of these widths follow.
const LONGS: u32 = 7;
const WIDTHS: [u16; 5] = [8, 16, 24, 64, 136];

/// How a program uses a global.
#[derive(Clone, Copy, PartialEq)]
enum GlobalUse {
    /// All operations.
    All,
    /// Only additions, which leave it per CPU.
    Adds,
    /// No operation.
    No,
}

/// Formats with the kinds of their arguments: `d` number, `s` string, `w` width, `c` byte, `m` an
/// address that no memory is at, because the interpreter's memory differs.
const FORMATS: &[(&str, &str)] = &[
    ("%d %5d %-5d|\n", "ddd"),
    ("%05d,%+d,% d", "ddd"),
    ("%x %#x %X %o %#o", "ddddd"),
    ("%u %.3d %8.4d|", "ddd"),
    ("<%s|%10s|%-12s>", "sss"),
    ("%.3s:%6.2s:%-6.4s", "sss"),
    ("%d%s", "ds"),
    ("%c%c", "cc"),
    ("%p %i", "dd"),
    ("100%% %s\n", "s"),
    ("%-20s|%20d|", "sd"),
    ("plain", ""),
    ("%*d|%-*d", "wdwd"),
    ("%.*s|%*s", "wsws"),
    ("%*.*x", "wwd"),
    ("%#s", "s"),
    ("%5c|%-3c", "cc"),
    ("%#c%#4c|", "cc"),
    ("%d %.9m", "dm"),
    ("%*.*M|%s", "wwms"),
];

const STRINGS: &[&str] = &[
    "",
    "a",
    "hello",
    "0x1f",
    "1234567",
    "12345678",
    "a longer text of thirty bytes!",
    "fifteen bytes..",
    "\t\"quotes\", \\ and\u{1}\u{e9}",
    ", ",
    "a text that is longer than all of the narrow registers, by some hundred and more bytes, so that it is cut in each of them, as you will see",
];

const IMMEDIATES: &[i64] = &[
    0,
    1,
    2,
    3,
    -1,
    7,
    63,
    64,
    65,
    200,
    -64,
    1 << 31,
    -(1 << 31),
    1 << 40,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
    0xffff_ffff,
    1000,
    -1000,
];

struct Generator {
    kernel: bool,
    rng: Rng,
    p: Program,
    uses: Vec<GlobalUse>,
    /// Percent of instructions that touch globals.
    globals: u32,
    /// Catch blocks of the body.
    catches: Vec<u32>,
    /// Whether the current block is a catch block.
    caught: bool,
    /// The global and order of each iterator of the body.
    iterators: Vec<IteratorSpec>,
}

/// Makes the program of a seed. Its last `print` shows all registers.
pub fn program(seed: u64, config: Config) -> Program {
    let Config { kernel, size } = config;
    let mut g = Generator {
        kernel,
        rng: Rng::new(seed),
        p: Program::default(),
        uses: Vec::new(),
        globals: 0,
        catches: Vec::new(),
        caught: false,
        iterators: Vec::new(),
    };
    g.globals = g.rng.pick(&[20, 40, 70]);
    g.tables();
    g.declare();
    for n in 0..if kernel { 0 } else { 3 } {
        let mut body = g.body(size / 4, true);
        if n == 2 {
            g.recursion(&mut body, FuncId(n));
        }
        g.p.funcs.push(Func {
            name: format!("f{n}").into(),
            params: vec![Reg(0), Reg(LONGS)],
            ret: Some(Ty::Long),
            recursive: n == 2,
            body,
        });
    }
    let handlers = g.rng.pick(&[1, 1, 1, 2, 3, 6]);
    for n in 0..handlers {
        let body = g.body(size / handlers + 2, false);
        g.p.handlers.push(Handler {
            point: format!("random{n}").into(),
            points: 1,
            event: match kernel {
                true => Event::Tracepoint("random".into()),
                false => Event::Begin(n.into()),
            },
            body,
            site: SiteId(0),
        });
    }
    g.p.limits.maxerrors = 1 << 20;
    g.p.limits.maxaction = g.rng.pick(&[1000, 1000, 30]);
    let mut p = g.p.clone();
    if !kernel {
        return p;
    }
    storage::classify(&mut p);
    for global in &mut p.globals {
        if global.storage == (Storage::PerCpu { double: false }) && g.rng.chance(50) {
            global.storage = Storage::PerCpu { double: true };
        }
    }
    p
}

impl Generator {
    /// Makes a function's body begin with a bounded recursive call.
    fn recursion(&mut self, body: &mut Body, itself: FuncId) {
        let entry = BlockId(body.blocks.len().fit());
        for block in &mut body.blocks {
            let moved = |b: &mut BlockId| {
                if b.0 == 0 {
                    *b = entry;
                }
            };
            block.term.targets_mut(moved);
            block.catch.iter_mut().for_each(moved);
        }
        let left = Reg(body.regs.len().fit());
        let less = Reg(left.0 + 1);
        body.regs.extend([Ty::Long, Ty::Long]);
        let catch = self.rng.chance(50).then_some(entry);
        let call = Inst::Call {
            dst: Some(Reg(1)),
            func: itself,
            args: vec![Val::Reg(less), Val::Reg(Reg(LONGS))],
        };
        let bin = |dst, op, a, n| Inst::Bin {
            dst,
            op,
            a: Val::Reg(a),
            b: Val::Imm(n),
        };
        let first = Block {
            insts: vec![(bin(left, BinOp::And, Reg(0), 3), SiteId(1))],
            term: Term::Branch {
                cond: Val::Reg(left),
                then: BlockId(entry.0 + 1),
                els: entry,
            },
            catch: None,
        };
        let old = std::mem::replace(&mut body.blocks[0], first);
        body.blocks.push(old);
        let step = bin(less, BinOp::Sub, left, 1);
        body.blocks.push(Block {
            insts: vec![(step, SiteId(1)), (call, SiteId(1))],
            term: Term::Jump(entry),
            catch,
        });
    }

    fn tables(&mut self) {
        for i in 0..4 {
            self.p.sites.push(Site::at(format!("statement {i}")));
        }
        self.p.strings = STRINGS.iter().map(|s| s.as_bytes().into()).collect();
        let entries = ["zero", "one", "", "a name of nineteen b"].map(|e| e.as_bytes().into());
        self.p.tables.push(ConstTable {
            name: "t".into(),
            entries: entries.to_vec(),
        });
        for (text, _) in FORMATS {
            let format = Format::parse(text.as_bytes()).expect("a format");
            self.p.formats.push(format);
        }
        let all = "%d ".repeat(LONGS as usize) + &"[%s]".repeat(WIDTHS.len()) + "\n";
        self.p
            .formats
            .push(Format::parse(all.as_bytes()).expect("a format"));
    }

    fn spec(&mut self) -> StatsSpec {
        let linear = |low, high, step| Some(Hist::Linear { low, high, step });
        let hist = match self.rng.below(5) {
            0 => Some(Hist::Log),
            1 => linear(-5, 20, 3),
            2 => linear(i64::MIN, i64::MIN + 100, 7),
            _ => None,
        };
        StatsSpec {
            sum: self.rng.chance(60),
            min: self.rng.chance(60),
            max: self.rng.chance(60),
            variance: self.rng.chance(40),
            hist,
        }
    }

    fn declare(&mut self) {
        let value = |v: Ty| ElemTy::Scalar(v);
        let array = |keys: &[Ty], value: ElemTy, max: u32, wrap: bool| GlobalKind::Array {
            keys: keys.to_vec(),
            value,
            max,
            wrap,
        };
        use Ty::{Long, Str};
        let specs: Vec<StatsSpec> = (0..5).map(|_| self.spec()).collect();
        let stats = |n: usize| ElemTy::Stats(specs[n].clone());
        let mixed = [Long, Str(8), Long, Str(24), Str(16), Long, Str(8), Long];
        let kinds = [
            GlobalKind::Scalar(Long),
            GlobalKind::Scalar(Long),
            GlobalKind::Scalar(Str(16)),
            GlobalKind::Scalar(Str(136)),
            GlobalKind::Stats(specs[0].clone()),
            GlobalKind::Stats(specs[1].clone()),
            array(&[Long], value(Long), 4, false),
            array(&[Str(16), Long], value(Str(16)), 3, false),
            array(&[Long], value(Long), 5, true),
            array(&[Long, Str(24)], value(Str(24)), 3, true),
            array(&[Long], stats(2), 4, false),
            array(&[Str(8)], stats(3), 3, true),
            array(&mixed, value(Long), 3, false),
            array(&[Str(16), Long], stats(4), 20, false),
        ];
        for (i, kind) in kinds.into_iter().enumerate() {
            let mut usage = self.rng.pick(&[
                GlobalUse::All,
                GlobalUse::All,
                GlobalUse::Adds,
                GlobalUse::No,
            ]);
            let addable = !matches!(
                kind,
                GlobalKind::Scalar(Str(_))
                    | GlobalKind::Array {
                        value: ElemTy::Scalar(Str(_)),
                        ..
                    }
            );
            if usage == GlobalUse::Adds && !addable {
                usage = GlobalUse::All;
            }
            self.uses.push(usage);
            let init = match &kind {
                GlobalKind::Scalar(Long) if self.rng.chance(30) => {
                    Some(Init::Long(self.rng.pick(IMMEDIATES)))
                }
                GlobalKind::Scalar(Str(_)) if self.rng.chance(30) => {
                    Some(Init::Str((*b"first").into()))
                }
                _ => None,
            };
            self.p.globals.push(Global {
                name: format!("g{i}").into(),
                kind,
                init,
                storage: Storage::Controller,
                display: false,
                site: SiteId(0),
            });
        }
    }

    fn long_reg(&mut self) -> Reg {
        Reg(self.rng.below(LONGS))
    }

    fn str_reg(&mut self) -> Reg {
        Reg(LONGS + self.rng.below(WIDTHS.len().fit::<u32>()))
    }

    fn reg(&mut self, string: bool) -> Reg {
        match string {
            true => self.str_reg(),
            false => self.long_reg(),
        }
    }

    fn val(&mut self, string: bool) -> Val {
        match string {
            true => self.string(),
            false => self.long(),
        }
    }

    fn long(&mut self) -> Val {
        match self.rng.below(4) {
            0 => Val::Imm(self.rng.pick(IMMEDIATES)),
            1 => Val::Imm(i64::from(self.rng.below(6))),
            _ => Val::Reg(self.long_reg()),
        }
    }

    fn string(&mut self) -> Val {
        if self.rng.chance(45) {
            Val::Str(StrId(self.rng.below(STRINGS.len().fit::<u32>())))
        } else {
            Val::Reg(self.str_reg())
        }
    }

    fn body(&mut self, size: u32, func: bool) -> Body {
        let widths = WIDTHS.iter().map(|w| Ty::Str(*w));
        let regs = (0..LONGS).map(|_| Ty::Long).chain(widths).collect();
        let blocks = 2 + size / 6;
        let mut body = Body {
            regs,
            blocks: Vec::new(),
            iters: 0,
        };
        self.iterators = (0..3).filter_map(|_| self.iterator()).collect();
        body.iters = self.iterators.len().fit::<u32>();
        // Only errors lead to catch blocks: only these have a message.
        self.catches = (1..blocks - 1).filter(|_| self.rng.chance(25)).collect();
        for b in 0..blocks {
            let mut insts = Vec::new();
            self.caught = self.catches.contains(&b);
            if b == 0 && self.kernel {
                for (dst, n) in [(0, 0), (1, 1)] {
                    let args = vec![Val::Imm(n)];
                    let (dst, f) = (Some(Reg(dst)), Intrinsic::CtxArg);
                    insts.push((Inst::Intr { dst, f, args }, SiteId(0)));
                }
            }
            if self.rng.chance(30) {
                let n = 1 + self.rng.below(9);
                insts.push((Inst::Tick { n }, SiteId(1)));
            }
            for _ in 0..self.rng.below(2 * size / blocks + 1) {
                let inst = self.inst();
                insts.push((inst, SiteId(self.rng.below(4))));
            }
            let last = b + 1 == blocks;
            let later = self.catches.iter().copied().filter(|c| *c > b);
            let later: Vec<u32> = later.collect();
            let catch =
                (!later.is_empty() && self.rng.chance(60)).then(|| BlockId(self.rng.pick(&later)));
            let term = if last && func {
                Term::Ret(Some(self.long()))
            } else if last {
                let args = (0..LONGS + WIDTHS.len().fit::<u32>())
                    .map(|r| Val::Reg(Reg(r)))
                    .collect();
                let fmt = FormatId(FORMATS.len().fit());
                let stream = Stream::Out;
                insts.push((Inst::Print { stream, fmt, args }, SiteId(0)));
                Term::Ret(None)
            } else {
                self.jump(b, blocks, &mut insts)
            };
            body.blocks.push(Block { insts, term, catch });
        }
        self.start_all(&mut body);
        body
    }

    fn jump(&mut self, b: u32, blocks: u32, insts: &mut Vec<(Inst, SiteId)>) -> Term {
        let later: Vec<u32> = (b + 1..blocks)
            .filter(|b| !self.catches.contains(b))
            .collect();
        let forward = |g: &mut Generator| BlockId(g.rng.pick(&later[..later.len().min(3)]));
        let (then, els) = (forward(self), forward(self));
        if !self.kernel && self.rng.chance(20) {
            return self.back(b, els, insts);
        }
        if !self.iterators.is_empty() && self.rng.chance(20) {
            return self.iter_next(then, els);
        }
        match self.rng.below(20) {
            0 => Term::EndHandler,
            1..8 => Term::Jump(then),
            _ => Term::Branch {
                cond: self.long(),
                then,
                els,
            },
        }
    }

    /// A jump back. It costs much of MAXACTION, so it is not taken often.
    fn back(&mut self, b: u32, els: BlockId, insts: &mut Vec<(Inst, SiteId)>) -> Term {
        insts.push((Inst::Tick { n: 50 }, SiteId(1)));
        let before: Vec<u32> = (0..=b).filter(|b| !self.catches.contains(b)).collect();
        if before.is_empty() {
            return Term::Jump(els);
        }
        Term::Branch {
            cond: Val::Reg(self.long_reg()),
            then: BlockId(self.rng.pick(&before)),
            els,
        }
    }

    fn inst(&mut self) -> Inst {
        if !self.iterators.is_empty() && self.rng.chance(5) {
            let it = self.rng.below(self.iterators.len().fit::<u32>());
            return self.iter_new(it);
        }
        loop {
            let inst = if self.rng.chance(self.globals) {
                self.on_global()
            } else {
                match self.rng.below(10) {
                    0..4 => Some(self.number()),
                    4..8 => Some(self.text()),
                    _ => self.other(),
                }
            };
            if let Some(inst) = inst {
                return inst;
            }
        }
    }

    fn number(&mut self) -> Inst {
        let dst = self.long_reg();
        match self.rng.below(8) {
            0 => Inst::Copy {
                dst,
                src: self.long(),
            },
            1 => Inst::Un {
                dst,
                op: self.rng.pick(UnOp::ALL),
                a: self.long(),
            },
            _ => Inst::Bin {
                dst,
                op: self.rng.pick(BinOp::ALL),
                a: self.long(),
                b: self.long(),
            },
        }
    }

    /// A format, and arguments for it.
    fn format(&mut self) -> (FormatId, Vec<Val>) {
        let fmt = self.rng.below(FORMATS.len().fit::<u32>());
        let args = FORMATS[fmt as usize].1.bytes().map(|k| match k {
            b's' => self.string(),
            b'w' if self.rng.chance(60) => Val::Imm(i64::from(self.rng.below(60)) - 30),
            // A NUL would end the text.
            b'c' => Val::Imm(33 + i64::from(self.rng.below(90))),
            b'm' => Val::Imm(i64::from(self.rng.below(4096))),
            _ => self.long(),
        });
        (FormatId(fmt), args.collect())
    }

    fn text(&mut self) -> Inst {
        let dst = self.str_reg();
        let intr = |g: &mut Generator, f: Intrinsic, second: Option<Val>| {
            let info = f.info();
            let kinds = info.params.iter().map(|kind| *kind == ValueKind::Str);
            let mut args: Vec<Val> = kinds.map(|string| g.val(string)).collect();
            args[1..]
                .iter_mut()
                .zip(second)
                .for_each(|(arg, v)| *arg = v);
            let dst = Some(g.reg(info.ret == Some(ValueKind::Str)));
            Inst::Intr { dst, f, args }
        };
        match self.rng.below(19) {
            0 | 1 => Inst::Copy {
                dst,
                src: self.string(),
            },
            2 => Inst::Concat {
                dst,
                a: self.string(),
                b: self.string(),
            },
            3 => Inst::StrCmp {
                dst: self.long_reg(),
                op: self.rng.pick(CmpOp::ALL),
                a: self.string(),
                b: self.string(),
            },
            4 => Inst::TableGet {
                dst,
                table: TableId(0),
                idx: self.long(),
            },
            5..8 => {
                let (fmt, args) = self.format();
                Inst::Sprint { dst, fmt, args }
            }
            8 => {
                let base = Val::Imm(self.rng.pick(&[0, 8, 10, 16]));
                intr(self, Intrinsic::Strtol, Some(base))
            }
            9 if self.rng.chance(60) => {
                let limit = Val::Imm(i64::from(self.rng.below(150)));
                intr(self, Intrinsic::TextStrn, Some(limit))
            }
            _ => {
                use Intrinsic::*;
                let f = self.rng.pick(&[
                    Substr, Strlen, Isinstr, Strpos, StrReplace, Tokenize, Tokenize, TextStrn,
                    StrToFp, Stringat,
                ]);
                intr(self, f, None)
            }
        }
    }

    fn other(&mut self) -> Option<Inst> {
        Some(match self.rng.below(8) {
            0..4 => {
                let (fmt, args) = self.format();
                let stream = self.rng.pick(&[Stream::Out, Stream::Out, Stream::Warn]);
                Inst::Print { stream, fmt, args }
            }
            4 if self.rng.chance(30) => Inst::Raise { msg: self.string() },
            5 if self.rng.chance(60) => Inst::Load {
                dst: self.long_reg(),
                space: Space::Kernel,
                addr: Val::Imm(i64::from(self.rng.below(4096))),
                ty: IntTy {
                    size: self.rng.pick(&[1, 2, 4, 8]),
                    signed: self.rng.chance(50),
                },
            },
            6 if self.p.funcs.len() == 2 => {
                let args = vec![self.long(), self.string()];
                Inst::Call {
                    dst: self.rng.chance(80).then(|| self.long_reg()),
                    func: FuncId(self.rng.below(2)),
                    args,
                }
            }
            _ if self.caught => Inst::CatchMsg {
                dst: self.str_reg(),
            },
            _ => return None,
        })
    }

    fn keys(&mut self, types: &[Ty]) -> Vec<Val> {
        let key = |g: &mut Generator, ty: &Ty| match ty {
            Ty::Long if g.rng.chance(70) => Val::Imm(i64::from(g.rng.below(6))),
            Ty::Long => g.long(),
            Ty::Str(_) => g.string(),
        };
        types.iter().map(|t| key(self, t)).collect()
    }

    fn slice(&mut self, keys: &[Val]) -> Vec<Option<Val>> {
        let wild = self.rng.pick(&[0, 0, 60]);
        keys.iter()
            .map(|k| (!self.rng.chance(wild)).then_some(*k))
            .collect()
    }

    fn on_global(&mut self) -> Option<Inst> {
        let n = self.rng.below(self.p.globals.len().fit::<u32>());
        let g = GlobalId(n);
        let usage = self.uses[n as usize];
        if usage == GlobalUse::No {
            return None;
        }
        let adds = usage == GlobalUse::Adds;
        let kind = self.p.globals[n as usize].kind.clone();
        Some(match kind {
            GlobalKind::Scalar(ty) => self.on_scalar(g, ty, adds),
            GlobalKind::Stats(spec) => self.on_stats(g, vec![], &spec, adds),
            GlobalKind::Array { keys, value, .. } => {
                let keys = self.keys(&keys);
                if !adds && self.rng.chance(30) {
                    return Some(match self.rng.below(8) {
                        0..4 => Inst::AHas {
                            dst: self.long_reg(),
                            g,
                            keys: self.slice(&keys),
                        },
                        4..7 => Inst::ADel {
                            g,
                            keys: self.slice(&keys),
                        },
                        _ => Inst::GClear { g },
                    });
                }
                match value {
                    ElemTy::Scalar(ty) => self.on_element(g, keys, ty, adds),
                    ElemTy::Stats(spec) => self.on_stats(g, keys, &spec, adds),
                }
            }
        })
    }

    fn on_scalar(&mut self, g: GlobalId, ty: Ty, adds: bool) -> Inst {
        let case = if adds { 0 } else { self.rng.below(8) };
        match (case, ty) {
            (0 | 1, Ty::Long) => {
                let old = (!adds && self.rng.chance(50)).then(|| self.long_reg());
                Inst::GAdd {
                    g,
                    val: self.long(),
                    old,
                }
            }
            (7, _) => Inst::GClear { g },
            (0..4, _) => Inst::GStore {
                g,
                val: self.val(ty != Ty::Long),
            },
            _ => Inst::GLoad {
                dst: self.reg(ty != Ty::Long),
                g,
            },
        }
    }

    fn on_element(&mut self, g: GlobalId, keys: Vec<Val>, ty: Ty, adds: bool) -> Inst {
        let case = if adds { 0 } else { self.rng.below(6) };
        match (case, ty) {
            (0 | 1, Ty::Long) => {
                let old = (!adds && self.rng.chance(50)).then(|| self.long_reg());
                Inst::AAdd {
                    g,
                    keys,
                    val: self.long(),
                    old,
                }
            }
            (0..4, _) => Inst::ASet {
                g,
                keys,
                val: self.val(ty != Ty::Long),
            },
            _ => Inst::AGet {
                dst: self.reg(ty != Ty::Long),
                g,
                keys,
            },
        }
    }

    fn on_stats(&mut self, g: GlobalId, keys: Vec<Val>, spec: &StatsSpec, adds: bool) -> Inst {
        if adds || self.rng.chance(55) {
            return Inst::StatAdd {
                g,
                keys,
                val: self.long(),
            };
        }
        if keys.is_empty() && self.rng.chance(10) {
            return Inst::GClear { g };
        }
        if spec.hist.is_some() && self.rng.chance(50) {
            let idx = self.long();
            return match self.rng.chance(70) {
                true => Inst::HistGet {
                    dst: self.long_reg(),
                    g,
                    keys,
                    idx,
                },
                false => Inst::PrintHist { dst: None, g, keys },
            };
        }
        Inst::StatGet {
            dst: self.long_reg(),
            g,
            keys,
            what: self.rng.pick(&extractors(spec)),
            shift: 0,
        }
    }
}
