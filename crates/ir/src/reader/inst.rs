//! Parses bodies, blocks and instructions.

use spile_cast::Cast;

use super::token::Token;
use super::{Reader, Res};
use crate::text::{EXTRACTS, SPACES, STREAMS};
use crate::*;

/// The value of a word in a table of words.
fn find<T: Copy>(table: &[(T, &str)], word: &str) -> Option<T> {
    table.iter().find(|(_, w)| *w == word).map(|(t, _)| *t)
}

/// A parsed line of a block.
enum BlockLine {
    Inst(Inst),
    Term(Term),
}

impl Reader {
    pub(super) fn body(&mut self) -> Res<Body> {
        let mut body = Body::default();
        self.punct('{')?;
        if self.opt("regs") {
            loop {
                self.index("r", body.regs.len())?;
                self.punct(':')?;
                body.regs.push(self.ty()?);
                if !self.opt_punct(',') {
                    break;
                }
            }
        }
        if self.opt("iters") {
            body.iters = self.number()?;
        }
        while !self.opt_punct('}') {
            self.index("b", body.blocks.len())?;
            self.punct(':')?;
            let catch = if self.opt("catch") {
                Some(BlockId(self.id("b")?))
            } else {
                None
            };
            let mut insts = Vec::new();
            let term = loop {
                match self.line()? {
                    BlockLine::Inst(inst) => {
                        let site = SiteId(self.opt_id("@").unwrap_or(0));
                        insts.push((inst, site));
                    }
                    BlockLine::Term(term) => break term,
                }
            };
            body.blocks.push(Block { insts, term, catch });
        }
        Ok(body)
    }

    fn val(&mut self) -> Res<Val> {
        if let Some(Token::Num(_)) = self.peek() {
            return Ok(Val::Imm(self.number()?));
        }
        if let Some(r) = self.opt_id("r") {
            return Ok(Val::Reg(Reg(r)));
        }
        match self.opt_id("s") {
            Some(s) => Ok(Val::Str(StrId(s))),
            None => self.error("an operand"),
        }
    }

    /// Parses a comma and an operand.
    fn next_val(&mut self) -> Res<Val> {
        self.punct(',')?;
        self.val()
    }

    fn block(&mut self) -> Res<BlockId> {
        self.id("b").map(BlockId)
    }

    fn next_block(&mut self) -> Res<BlockId> {
        self.punct(',')?;
        self.block()
    }

    fn g(&mut self) -> Res<GlobalId> {
        self.id("g").map(GlobalId)
    }

    fn keys(&mut self) -> Res<Vec<Val>> {
        self.list('[', ']', Reader::val)
    }

    fn pattern(&mut self) -> Res<Vec<Option<Val>>> {
        self.list('[', ']', |r| {
            if r.opt_punct('*') {
                Ok(None)
            } else {
                r.val().map(Some)
            }
        })
    }

    fn args(&mut self) -> Res<Vec<Val>> {
        self.list('(', ')', Reader::val)
    }

    fn line(&mut self) -> Res<BlockLine> {
        let dst = self.opt_id("r").map(Reg);
        if dst.is_some() {
            self.punct('=')?;
        }
        let word = self.word()?;
        let line = match dst {
            None => self.plain(&word)?,
            Some(dst) => self.assign(&word, dst)?.map(BlockLine::Inst),
        };
        match line {
            Some(line) => Ok(line),
            None => self.either(&word, dst),
        }
    }

    /// Parses a line without a result.
    fn plain(&mut self, word: &str) -> Res<Option<BlockLine>> {
        let inst = match word {
            "jump" => return Ok(Some(BlockLine::Term(Term::Jump(self.block()?)))),
            "branch" => {
                let cond = self.val()?;
                let (then, els) = (self.next_block()?, self.next_block()?);
                return Ok(Some(BlockLine::Term(Term::Branch { cond, then, els })));
            }
            "ret" => {
                let has = match self.peek() {
                    Some(Token::Num(_)) => true,
                    // A label `b1:` may follow, or the end.
                    Some(Token::Word(w)) => w.starts_with(['r', 's']),
                    _ => false,
                };
                let v = if has { Some(self.val()?) } else { None };
                return Ok(Some(BlockLine::Term(Term::Ret(v))));
            }
            "end_handler" => return Ok(Some(BlockLine::Term(Term::EndHandler))),
            "print" => {
                let word = self.word()?;
                let Some(stream) = find(STREAMS, &word) else {
                    return self.error("a stream");
                };
                let fmt = FormatId(self.id("f")?);
                Inst::Print {
                    stream,
                    fmt,
                    args: self.args()?,
                }
            }
            "print_hist" => Inst::PrintHist {
                dst: None,
                g: self.g()?,
                keys: self.keys()?,
            },
            "gstore" => Inst::GStore {
                g: self.g()?,
                val: self.next_val()?,
            },
            "aset" => Inst::ASet {
                g: self.g()?,
                keys: self.keys()?,
                val: self.next_val()?,
            },
            "adel" => Inst::ADel {
                g: self.g()?,
                keys: self.pattern()?,
            },
            "gclear" => Inst::GClear { g: self.g()? },
            "stat_add" => Inst::StatAdd {
                g: self.g()?,
                keys: self.keys()?,
                val: self.next_val()?,
            },
            "iter" => self.iter()?,
            "iter_hist" => {
                let it = IterId(self.id("i")?);
                Inst::IterHist {
                    it,
                    g: self.g()?,
                    keys: self.keys()?,
                }
            }
            "raise" => Inst::Raise { msg: self.val()? },
            "tick" => Inst::Tick { n: self.number()? },
            "enter" => Inst::Enter,
            "leave" => Inst::Leave,
            "save" => {
                let src = self.val()?;
                self.punct(',')?;
                Inst::Save {
                    src,
                    at: self.number()?,
                }
            }
            "rethrow" => Inst::Rethrow,
            _ => return Ok(None),
        };
        Ok(Some(BlockLine::Inst(inst)))
    }

    fn iter(&mut self) -> Res<Inst> {
        let it = IterId(self.id("i")?);
        let (g, slice) = (self.g()?, self.pattern()?);
        let descending = self.opt("desc");
        let sort = if descending || self.opt("asc") {
            let by = match self.word()?.as_str() {
                "key" => SortKey::Key(self.number()?),
                "value" => SortKey::Value,
                word => match find(EXTRACTS, word) {
                    Some(what) => SortKey::Stat(what),
                    None => return self.error("a sort key before here"),
                },
            };
            Some(SortSpec { by, descending })
        } else {
            None
        };
        let limit = if self.opt("limit") {
            Some(self.val()?)
        } else {
            None
        };
        Ok(Inst::IterNew {
            it,
            g,
            slice,
            sort,
            limit,
        })
    }

    /// Parses a line with a result.
    fn assign(&mut self, word: &str, dst: Reg) -> Res<Option<Inst>> {
        if let Some(op) = find(BinOp::WORDS, word) {
            return Ok(Some(Inst::Bin {
                dst,
                op,
                a: self.val()?,
                b: self.next_val()?,
            }));
        }
        if let Some(op) = find(CmpOp::WORDS, word) {
            return Ok(Some(Inst::StrCmp {
                dst,
                op,
                a: self.val()?,
                b: self.next_val()?,
            }));
        }
        if let Some(op) = find(UnOp::WORDS, word) {
            return Ok(Some(Inst::Un {
                dst,
                op,
                a: self.val()?,
            }));
        }
        Ok(Some(match word {
            "copy" => Inst::Copy {
                dst,
                src: self.val()?,
            },
            "concat" => Inst::Concat {
                dst,
                a: self.val()?,
                b: self.next_val()?,
            },
            "table" => {
                let table = TableId(self.id("t")?);
                Inst::TableGet {
                    dst,
                    table,
                    idx: self.next_val()?,
                }
            }
            "match" => {
                let re = RegexId(self.id("re")?);
                Inst::Regex {
                    dst,
                    re,
                    text: self.next_val()?,
                    keep: self.opt("keep"),
                }
            }
            "sprint" => {
                let fmt = FormatId(self.id("f")?);
                Inst::Sprint {
                    dst,
                    fmt,
                    args: self.args()?,
                }
            }
            "load" => self.load(dst)?,
            "catch_msg" => Inst::CatchMsg { dst },
            "restore" => Inst::Restore {
                dst,
                at: self.number()?,
            },
            _ => return self.assign_global(word, dst),
        }))
    }

    /// Parses a line whose result comes from a global.
    fn assign_global(&mut self, word: &str, dst: Reg) -> Res<Option<Inst>> {
        Ok(Some(match word {
            "gload" => Inst::GLoad { dst, g: self.g()? },
            "aget" => Inst::AGet {
                dst,
                g: self.g()?,
                keys: self.keys()?,
            },
            "ahas" => Inst::AHas {
                dst,
                g: self.g()?,
                keys: self.pattern()?,
            },
            "stat_get" => {
                let word = self.word()?;
                let Some(what) = find(EXTRACTS, &word) else {
                    return self.error("an extractor");
                };
                let (g, keys) = (self.g()?, self.keys()?);
                let shift = if self.opt("shift") { self.number()? } else { 0 };
                Inst::StatGet {
                    dst,
                    g,
                    keys,
                    what,
                    shift,
                }
            }
            "hist_get" => Inst::HistGet {
                dst,
                g: self.g()?,
                keys: self.keys()?,
                idx: self.next_val()?,
            },
            "print_hist" => Inst::PrintHist {
                dst: Some(dst),
                g: self.g()?,
                keys: self.keys()?,
            },
            _ => return Ok(None),
        }))
    }

    /// Parses a load from memory.
    fn load(&mut self, dst: Reg) -> Res<Inst> {
        let word = self.word()?;
        let Some(space) = find(SPACES, &word) else {
            return self.error("a memory");
        };
        let word = self.word()?;
        let bits = word.get(1..).and_then(|n| n.parse::<u32>().ok());
        let (Some(bits @ (8 | 16 | 32 | 64)), true) = (bits, word.starts_with(['s', 'u'])) else {
            return self.error("`u8` to `s64` before here");
        };
        let (size, signed) = ((bits / 8).fit::<u8>(), word.starts_with('s'));
        Ok(Inst::Load {
            dst,
            space,
            addr: self.val()?,
            size,
            signed,
        })
    }

    /// Parses a line that can have a result.
    fn either(&mut self, word: &str, dst: Option<Reg>) -> Res<BlockLine> {
        Ok(BlockLine::Inst(match word {
            "intr" => {
                let name = self.word()?;
                let Some(f) = Intrinsic::by_name(&name) else {
                    return self.error("an intrinsic");
                };
                Inst::Intr {
                    dst,
                    f,
                    args: self.args()?,
                }
            }
            "gadd" => Inst::GAdd {
                g: self.g()?,
                val: self.next_val()?,
                old: dst,
            },
            "aadd" => {
                let (g, keys) = (self.g()?, self.keys()?);
                Inst::AAdd {
                    g,
                    keys,
                    val: self.next_val()?,
                    old: dst,
                }
            }
            "call" => {
                let func = FuncId(self.id("fn")?);
                Inst::Call {
                    dst,
                    func,
                    args: self.args()?,
                }
            }
            "next" => {
                let it = IterId(self.id("i")?);
                let keys = self.list('[', ']', |r| r.id("r").map(Reg))?;
                let (body, done) = (self.block()?, self.next_block()?);
                return Ok(BlockLine::Term(Term::IterNext {
                    it,
                    keys,
                    value: dst,
                    body,
                    done,
                }));
            }
            _ => {
                self.pos -= 1;
                return self.error("an instruction");
            }
        }))
    }
}
