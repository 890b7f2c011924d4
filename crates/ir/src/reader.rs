//! The reader of the text form that [`crate::text`] writes. It checks the form only;
//! [`crate::verify`] checks ids and types.

use crate::fmt::Format;
use crate::form::Form;
use crate::storage::Storage;
pub use crate::token::ReadError;
use crate::token::{Operand, Reader, Res, Token};
use crate::*;

/// The limits by the names that the text form gives them.
pub(crate) fn limit_fields(l: &mut Limits) -> Vec<(&'static str, u64)> {
    let mut out = Vec::new();
    each_limit(l, &mut |name, get, _| out.push((name, get)));
    out
}

/// A callback that gets a limit's name, its value and its setter.
type EachLimit<'a> = dyn FnMut(&'static str, u64, &mut dyn FnMut(u64)) + 'a;

/// Calls `f` with each limit's name, value and setter.
fn each_limit(l: &mut Limits, f: &mut EachLimit<'_>) {
    macro_rules! field {
        ($($name:ident),*) => {$(
            let now = l.$name;
            f(stringify!($name), now.into(), &mut |n| l.$name = n.try_into().unwrap_or(now));
        )*};
    }
    field!(
        maxaction,
        maxaction_interruptible,
        maxstringlen,
        maxmapentries
    );
    field!(maxerrors, maxskipped, maxnesting, maxtrylock, maxbacktrace);
}

/// Reads a program.
///
/// # Errors
/// The first position that departs from the form described in [`crate::text`].
pub fn read(text: &str) -> Result<Program, ReadError> {
    let mut r = Reader::new(text)?;
    let mut p = Program::default();
    while let Some(word) = r.opt_word() {
        r.item(&word, &mut p)?;
    }
    match r.peek() {
        None => {
            crate::opt::inline::mark_recursive(&mut p);
            Ok(p)
        }
        Some(_) => r.error("`site`, `str`, `fmt`, `global`, `func` or `handler`"),
    }
}

impl Reader {
    fn item(&mut self, word: &str, p: &mut Program) -> Res<()> {
        match word {
            "limits" => self.limits(&mut p.limits)?,
            "site" => {
                self.index("@", p.sites.len())?;
                let near = self.text()?.into();
                let caller = match self.opt("called") {
                    true => Some(SiteId::read(self)?),
                    false => None,
                };
                p.sites.push(Site {
                    near,
                    caller,
                    library: self.opt("library"),
                });
            }
            "str" => {
                self.index("s", p.strings.len())?;
                p.strings.push(self.bytes()?.into());
            }
            "table" => {
                self.index("t", p.tables.len())?;
                let name = self.text()?.into();
                let mut entries = Vec::new();
                while let Some(Token::Str(_)) = self.peek() {
                    entries.push(self.bytes()?.into());
                }
                p.tables.push(ConstTable { name, entries });
            }
            "regex" => {
                self.index("re", p.regexes.len())?;
                let pattern = self.bytes()?;
                match crate::regex::Regex::new(&pattern, self.opt("find")) {
                    Ok(r) => p.regexes.push(r),
                    Err(e) => {
                        let text = format!("a regular expression before here ({})", e.message);
                        return self.error(&text);
                    }
                }
            }
            "fmt" => {
                self.index("f", p.formats.len())?;
                let text = self.bytes()?;
                match Format::parse(&text) {
                    Ok(f) => p.formats.push(f),
                    Err(e) => return self.error(&format!("a format before here ({e})")),
                }
            }
            "global" => {
                self.index("g", p.globals.len())?;
                let g = self.global()?;
                p.globals.push(g);
            }
            "func" => {
                self.index("fn", p.funcs.len())?;
                let func = self.func()?;
                p.funcs.push(func);
            }
            "handler" => {
                let handler = self.handler()?;
                p.handlers.push(handler);
            }
            _ => {
                return self.error_before("`site`, `str`, `fmt`, `global`, `func` or `handler`");
            }
        }
        Ok(())
    }

    fn limits(&mut self, limits: &mut Limits) -> Res<()> {
        while let Some(name) = self.opt_word() {
            self.punct('=')?;
            let n: u64 = self.number()?;
            let mut found = false;
            each_limit(limits, &mut |field, _, set| {
                if field == name {
                    set(n);
                    found = true;
                }
            });
            if !found {
                return self.error("a limit's name");
            }
            if self.peek_at(1) != Some(&Token::Punct('=')) {
                break;
            }
        }
        Ok(())
    }

    fn func(&mut self) -> Res<Func> {
        let name = self.text()?.into();
        let params = self.list('(', ')', Operand::read)?;
        let ret = if self.peek() == Some(&Token::Punct('{')) {
            None
        } else {
            Some(self.ty()?)
        };
        let body = self.body()?;
        Ok(Func {
            name,
            params,
            ret,
            // Set by `mark_recursive` after the whole program is read.
            recursive: false,
            body,
        })
    }

    fn handler(&mut self) -> Res<Handler> {
        let point = self.text()?.into();
        self.want("points")?;
        let points = self.number()?;
        let event = Event::read(&["(", ")"], self)?;
        let site = Operand::read(self)?;
        let body = self.body()?;
        Ok(Handler {
            point,
            points,
            event,
            body,
            site,
        })
    }

    fn body(&mut self) -> Res<Body> {
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
            let catch = match self.opt("catch") {
                true => Some(BlockId::read(self)?),
                false => None,
            };
            let block = self.block(catch)?;
            body.blocks.push(block);
        }
        Ok(body)
    }

    fn block(&mut self, catch: Option<BlockId>) -> Res<Block> {
        let mut insts = Vec::new();
        loop {
            let dst = Reg::opt(self)?;
            if dst.is_some() {
                self.punct('=')?;
            }
            if let Some(term) = Term::read(self, dst)? {
                return Ok(Block { insts, term, catch });
            }
            match Inst::read(self, dst)? {
                Some(inst) => insts.push((inst, SiteId::opt(self)?.unwrap_or(SiteId(0)))),
                None => return self.error("an instruction"),
            }
        }
    }

    fn ty(&mut self) -> Res<Ty> {
        if self.opt("long") {
            return Ok(Ty::Long);
        }
        let width = self.id("str")?;
        u16::try_from(width).map_or_else(|_| self.error("a string width"), |w| Ok(Ty::Str(w)))
    }

    fn spec(&mut self) -> Res<StatsSpec> {
        let mut spec = StatsSpec::default();
        let words = self.list('(', ')', |r| {
            let word = r.word()?;
            match word.as_str() {
                "sum" => spec.sum = true,
                "min" => spec.min = true,
                "max" => spec.max = true,
                "variance" => spec.variance = true,
                "hist_log" => spec.hist = Some(Hist::Log),
                "hist_linear" => {
                    let (low, high, step) = (r.number()?, r.number()?, r.number()?);
                    spec.hist = Some(Hist::Linear { low, high, step });
                }
                _ => return r.error("a part of a statistic"),
            }
            Ok(())
        });
        words.map(|_| spec)
    }

    fn global(&mut self) -> Res<Global> {
        let name = self.text()?.into();
        let kind = if self.peek() == Some(&Token::Punct('[')) {
            let keys = self.list('[', ']', Reader::ty)?;
            let value = if self.opt("stats") {
                ElemTy::Stats(self.spec()?)
            } else {
                ElemTy::Scalar(self.ty()?)
            };
            self.want("max")?;
            let max = self.number()?;
            GlobalKind::Array {
                keys,
                value,
                max,
                wrap: self.opt("wrap"),
            }
        } else if self.opt("stats") {
            GlobalKind::Stats(self.spec()?)
        } else {
            GlobalKind::Scalar(self.ty()?)
        };
        let init = match self.opt_punct('=') {
            false => None,
            true if matches!(self.peek(), Some(Token::Str(_))) => {
                Some(Init::Str(self.bytes()?.into()))
            }
            true => Some(Init::Long(self.number()?)),
        };
        let storage = match self.word()?.as_str() {
            "controller" => Storage::Controller,
            "shared" => Storage::Shared {
                lock: self.opt("lock"),
            },
            "percpu" => Storage::PerCpu {
                double: self.opt("double"),
            },
            _ => return self.error("a storage class before here"),
        };
        let display = self.opt("display");
        Ok(Global {
            name,
            kind,
            init,
            storage,
            display,
            site: SiteId::read(self)?,
        })
    }
}
