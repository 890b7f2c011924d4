//! Random programs that the verifier accepts and that end, for tests which compare executors.
//!
//! A program has one handler. Its registers get values from constants, globals and the event,
//! its blocks lead forwards (with [`Config::loops`] also back, with a `tick`), some blocks have
//! a `catch`, and at the end it prints every register. The same seed gives the same program.

use crate::fmt::Format;
use crate::*;

/// What may be in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Only what kernel handlers can have: no `foreach`, no back edges, no recursion; the
    /// handler's event is `SysEnter(All)`. Otherwise it is `begin`.
    pub kernel: bool,
    /// Strings.
    pub strings: bool,
    /// Arrays and statistics.
    pub arrays: bool,
    /// Functions and calls.
    pub calls: bool,
    /// Back edges (not with `kernel`).
    pub loops: bool,
    /// Instructions of the handler, about.
    pub size: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            kernel: false,
            strings: true,
            arrays: true,
            calls: true,
            loops: true,
            size: 30,
        }
    }
}

/// Makes the program of a seed. Its last format prints all registers.
pub fn program(seed: u64, config: Config) -> Program {
    let mut g = Gen {
        rng: Rng::new(seed),
        config,
        p: Program::default(),
    };
    g.declare();
    if config.calls {
        for _ in 0..2 {
            let body = g.body(config.size / 4, true);
            let ret = Some(Ty::Long);
            let name = format!("f{}", g.p.funcs.len()).into();
            g.p.funcs.push(Func {
                name,
                params: vec![Reg(0), Reg(LONGS)],
                ret,
                body,
            });
        }
    }
    let body = g.body(config.size, false);
    let event = if config.kernel {
        Event::SysEnter(NrSet::All)
    } else {
        Event::Begin(0)
    };
    let point = "random".into();
    g.p.handlers.push(Handler {
        point,
        points: 1,
        event,
        body,
        site: SiteId(0),
    });
    g.p
}

/// Registers of each kind: numbers first, then strings of these widths.
const LONGS: u32 = 6;
const WIDTHS: [u16; 4] = [8, 16, 24, 64];

/// Globals: two numbers, two strings, then arrays and statistics.
const N: GlobalId = GlobalId(0);
const W: GlobalId = GlobalId(2);
const A: GlobalId = GlobalId(4);
const AS: GlobalId = GlobalId(5);
const ST: GlobalId = GlobalId(6);
const AST: GlobalId = GlobalId(7);

struct Gen {
    rng: Rng,
    config: Config,
    p: Program,
}

impl Gen {
    fn declare(&mut self) {
        let p = &mut self.p;
        p.sites = vec![
            Site::default(),
            Site {
                near: "a statement".into(),
            },
        ];
        for s in [
            "",
            "a",
            "hello",
            "0x1f",
            "12",
            "a longer text of thirty bytes!",
        ] {
            p.strings.push(s.as_bytes().into());
        }
        let entries = ["zero", "one", ""].map(|e| e.as_bytes().into()).to_vec();
        p.tables.push(Table {
            name: "t".into(),
            entries,
        });
        let spec = StatsSpec {
            sum: true,
            min: true,
            max: true,
            variance: true,
            hist: None,
        };
        let array = |keys, value| GlobalKind::Array {
            keys,
            value,
            max: 4,
            wrap: false,
        };
        let kinds = [
            GlobalKind::Scalar(Ty::Long),
            GlobalKind::Scalar(Ty::Long),
            GlobalKind::Scalar(Ty::Str(16)),
            GlobalKind::Scalar(Ty::Str(64)),
            array(vec![Ty::Long], ElemTy::Scalar(Ty::Long)),
            array(vec![Ty::Str(16), Ty::Long], ElemTy::Scalar(Ty::Str(16))),
            GlobalKind::Stats(spec.clone()),
            array(vec![Ty::Str(8)], ElemTy::Stats(spec)),
        ];
        for (i, kind) in kinds.into_iter().enumerate() {
            p.globals.push(Global {
                name: format!("g{i}").into(),
                kind,
                init: None,
                storage: crate::storage::Storage::Controller,
                display: false,
                site: SiteId(0),
            });
        }
        let all = "%d ".repeat(LONGS as usize);
        let strings = if self.config.strings {
            "[%s] ".repeat(WIDTHS.len())
        } else {
            String::new()
        };
        for text in [
            "%d|%5d|%x\n",
            "<%s %-6.3s>",
            "%d%s",
            &format!("{all}{strings}\n"),
        ] {
            p.formats
                .push(Format::parse(text.as_bytes()).unwrap_or_default());
        }
    }

    fn long_reg(&mut self) -> Reg {
        Reg(self.rng.below(LONGS))
    }

    fn str_reg(&mut self) -> Reg {
        Reg(LONGS + self.rng.below(WIDTHS.len() as u32))
    }

    fn long(&mut self) -> Val {
        match self.rng.below(4) {
            0 => Val::Imm(
                self.rng
                    .pick(&[0, 1, 2, -1, 7, 63, 64, 1 << 40, i64::MAX, i64::MIN]),
            ),
            1 => Val::Imm(i64::from(self.rng.below(5))),
            _ => Val::Reg(self.long_reg()),
        }
    }

    fn string(&mut self) -> Val {
        if self.rng.chance(40) {
            Val::Str(StrId(self.rng.below(6)))
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
            iters: 1,
        };
        for b in 0..blocks {
            let mut insts = Vec::new();
            for _ in 0..self.rng.below(2 * size / blocks + 1) {
                let inst = self.inst(func);
                let site = SiteId(self.rng.below(2));
                insts.push((inst, site));
            }
            let last = b + 1 == blocks;
            let catch = (!last && self.rng.chance(30))
                .then(|| BlockId(b + 1 + self.rng.below(blocks - b - 1)));
            let term = if last {
                self.last(&mut insts, func)
            } else {
                self.jump(b, blocks, &mut insts)
            };
            body.blocks.push(Block { insts, term, catch });
        }
        body
    }

    /// The end: prints every register, or returns one.
    fn last(&mut self, insts: &mut Vec<(Inst, SiteId)>, func: bool) -> Term {
        if func {
            return Term::Ret(Some(self.long()));
        }
        let count = LONGS
            + if self.config.strings {
                WIDTHS.len() as u32
            } else {
                0
            };
        let args = (0..count).map(|r| Val::Reg(Reg(r))).collect();
        insts.push((
            Inst::Print {
                stream: Stream::Out,
                fmt: FormatId(3),
                args,
            },
            SiteId(0),
        ));
        Term::Ret(None)
    }

    fn jump(&mut self, b: u32, blocks: u32, insts: &mut Vec<(Inst, SiteId)>) -> Term {
        let forward = |g: &mut Gen| BlockId(b + 1 + g.rng.below((blocks - b - 1).min(3)));
        let (x, y) = (forward(self), forward(self));
        if self.config.loops && !self.config.kernel && self.rng.chance(20) {
            insts.push((Inst::Tick { n: 50 }, SiteId(1)));
            let back = BlockId(self.rng.below(b + 1));
            return Term::Branch {
                cond: Val::Reg(self.long_reg()),
                then: back,
                els: x,
            };
        }
        match self.rng.below(10) {
            0..4 => Term::Jump(x),
            4 if self.config.arrays && !self.config.kernel => {
                let sort = self.rng.chance(50).then_some(SortSpec {
                    by: SortKey::Value,
                    descending: true,
                });
                let it = IterId(0);
                insts.push((
                    Inst::IterNew {
                        it,
                        g: A,
                        slice: vec![],
                        sort,
                        limit: None,
                    },
                    SiteId(0),
                ));
                let keys = vec![self.long_reg()];
                let value = Some(self.long_reg());
                Term::IterNext {
                    it,
                    keys,
                    value,
                    body: x,
                    done: y,
                }
            }
            _ => Term::Branch {
                cond: self.long(),
                then: x,
                els: y,
            },
        }
    }

    fn inst(&mut self, func: bool) -> Inst {
        loop {
            let inst = match self.rng.below(12) {
                0..6 => Some(self.number()),
                6..9 if self.config.strings => Some(self.text()),
                9 | 10 => self.on_global(),
                11 => self.other(func),
                _ => None,
            };
            if let Some(inst) = inst {
                return inst;
            }
        }
    }

    fn number(&mut self) -> Inst {
        use BinOp::*;
        let dst = self.long_reg();
        match self.rng.below(8) {
            0 => Inst::Copy {
                dst,
                src: self.long(),
            },
            1 => Inst::Un {
                dst,
                op: self.rng.pick(&[UnOp::Neg, UnOp::Not, UnOp::BitNot]),
                a: self.long(),
            },
            _ => {
                let ops = [
                    Add, Add, Sub, Mul, Div, Mod, And, Or, Xor, Shl, Shr, UShr, Eq, Ne, Lt, Le, Gt,
                    Ge,
                ];
                Inst::Bin {
                    dst,
                    op: self.rng.pick(&ops),
                    a: self.long(),
                    b: self.long(),
                }
            }
        }
    }

    fn text(&mut self) -> Inst {
        use CmpOp::*;
        let dst = self.str_reg();
        match self.rng.below(9) {
            0 | 1 => Inst::Copy {
                dst,
                src: self.string(),
            },
            2 => Inst::Concat {
                dst,
                a: self.string(),
                b: self.string(),
            },
            3 => {
                let op = self.rng.pick(&[Eq, Ne, Lt, Le, Gt, Ge]);
                Inst::StrCmp {
                    dst: self.long_reg(),
                    op,
                    a: self.string(),
                    b: self.string(),
                }
            }
            4 => Inst::TableGet {
                dst,
                table: TableId(0),
                idx: self.long(),
            },
            5 => {
                let args = vec![self.long(), self.string()];
                Inst::Sprint {
                    dst,
                    fmt: FormatId(2),
                    args,
                }
            }
            6 => {
                let args = vec![self.string(), self.long(), self.long()];
                Inst::Intr {
                    dst: Some(dst),
                    f: Intrinsic::Substr,
                    args,
                }
            }
            7 => {
                let args = vec![self.string()];
                Inst::Intr {
                    dst: Some(self.long_reg()),
                    f: Intrinsic::Strlen,
                    args,
                }
            }
            _ => {
                let args = vec![self.string(), self.long()];
                Inst::Intr {
                    dst: Some(self.long_reg()),
                    f: Intrinsic::Stringat,
                    args,
                }
            }
        }
    }

    fn on_global(&mut self) -> Option<Inst> {
        let n = GlobalId(N.0 + self.rng.below(2));
        let w = GlobalId(W.0 + self.rng.below(2));
        let (dst, val) = (self.long_reg(), self.long());
        let old = self.rng.chance(50).then_some(dst);
        let keys = vec![Val::Imm(i64::from(self.rng.below(5)))];
        let keys = if self.rng.chance(50) {
            vec![self.long()]
        } else {
            keys
        };
        let case = self.rng.below(16);
        Some(match case {
            0 | 1 => Inst::GLoad { dst, g: n },
            2 => Inst::GStore { g: n, val },
            3 => Inst::GAdd { g: n, val, old },
            4 if self.config.strings => Inst::GLoad {
                dst: self.str_reg(),
                g: w,
            },
            5 if self.config.strings => Inst::GStore {
                g: w,
                val: self.string(),
            },
            _ if !self.config.arrays => return None,
            6 | 7 => Inst::AGet { dst, g: A, keys },
            8 => Inst::ASet { g: A, keys, val },
            9 => Inst::AAdd {
                g: A,
                keys,
                val,
                old,
            },
            10 => Inst::AHas {
                dst,
                g: A,
                keys: vec![Some(keys[0])],
            },
            11 => Inst::ADel {
                g: A,
                keys: vec![Some(keys[0])],
            },
            12 => Inst::StatAdd {
                g: ST,
                keys: vec![],
                val,
            },
            13 => {
                use Extract::*;
                let what = self.rng.pick(&[Count, Sum, Min, Max, Avg, Variance]);
                Inst::StatGet {
                    dst,
                    g: ST,
                    keys: vec![],
                    what,
                    shift: 0,
                }
            }
            _ if !self.config.strings => return None,
            14 => {
                let keys = vec![self.string(), val];
                if old.is_some() {
                    Inst::AGet {
                        dst: self.str_reg(),
                        g: AS,
                        keys,
                    }
                } else {
                    Inst::ASet {
                        g: AS,
                        keys,
                        val: self.string(),
                    }
                }
            }
            _ => Inst::StatAdd {
                g: AST,
                keys: vec![self.string()],
                val,
            },
        })
    }

    fn other(&mut self, func: bool) -> Option<Inst> {
        let out = Stream::Out;
        Some(match self.rng.below(5) {
            0 => {
                let args = vec![self.long(), self.long(), self.long()];
                Inst::Print {
                    stream: out,
                    fmt: FormatId(0),
                    args,
                }
            }
            1 if self.config.strings => {
                let args = vec![self.string(), self.string()];
                Inst::Print {
                    stream: out,
                    fmt: FormatId(1),
                    args,
                }
            }
            2 if !func && self.config.calls => {
                let args = vec![self.long(), self.string()];
                let dst = self.rng.chance(80).then(|| self.long_reg());
                Inst::Call {
                    dst,
                    func: FuncId(self.rng.below(2)),
                    args,
                }
            }
            3 if self.config.strings => Inst::CatchMsg {
                dst: self.str_reg(),
            },
            4 => Inst::Intr {
                dst: Some(self.long_reg()),
                f: Intrinsic::Pid,
                args: vec![],
            },
            _ => return None,
        })
    }
}

/// Random numbers that depend on the seed alone.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Each seed has its own numbers.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u32) -> u32 {
        // Splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % u64::from(n.max(1))) as u32
    }

    /// True in so many of a hundred cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }
}
