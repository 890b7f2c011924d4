//! The meaning of names at an event: context variables and predefined plain variables.

use std::sync::Arc;

use spile_ir::Event;
use spile_syntax::ast::{BinOp, Expr, ExprKind, FileId, Ident, Span};
use spile_syscalls::{ArgForm, ArgValueKind, Syscall, SyscallArg};

use super::handler::{HandlerContext, HandlerKind, PlainVar, TargetSource, TargetVar};
use super::mentions::Mentions;
use crate::ctype::{CBase, CTy};
use crate::facts::{Facts, RecordField, TraceRecord, VarKind};

/// The meaning of a plain variable at one system call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PlainBinding {
    /// Not predefined.
    Absent,
    /// An argument's value.
    Value(u8, ArgValueKind),
    /// The string that an argument points to, in quotes.
    Quoted(u8),
    /// The string itself.
    Unquoted(u8),
    /// Name of a signal.
    SignalName(u8),
    /// The argument's text as in `argstr`.
    Text(u8),
    /// A text that only SystemTap decodes.
    TextOnly,
    /// A number.
    Number(i64),
    /// A text.
    Literal(&'static str),
    /// The result of a function of the library.
    Function(&'static str, Vec<PlainBinding>),
}

impl PlainBinding {
    /// Whether entry handlers only have it: texts of arguments are made there.
    pub(crate) fn of_entry(&self) -> bool {
        match self {
            PlainBinding::Text(_) => true,
            PlainBinding::Function(_, args) => args.iter().any(PlainBinding::of_entry),
            _ => false,
        }
    }
}

/// A system call, with the native call of the same name if a 32-bit one can share its handler.
#[derive(Clone, Copy)]
pub(crate) struct BoundCall<'a> {
    pub(crate) call: &'a Syscall,
    pub(crate) native: Option<&'a Syscall>,
}

impl BoundCall<'_> {
    /// The kind of an argument's value: that of the native call where it makes no difference. Argument
    /// words of 32-bit programs arrive zero-extended, so an unsigned 32-bit number is also a 64-bit one.
    pub(crate) fn kind(self, arg: &SyscallArg) -> ArgValueKind {
        let kind = arg.value_kind();
        let native = self.native.into_iter().flat_map(|native| native.args);
        let mut both = self.call.args.iter().zip(native);
        let native = both.find(|(a, n)| a.word == arg.word && n.word == arg.word);
        match (kind, native.map(|(_, n)| n.value_kind())) {
            (
                ArgValueKind::Int { signed: false, .. },
                Some(
                    native @ ArgValueKind::Int {
                        size: 4 | 8,
                        signed: false,
                    },
                ),
            ) => native,
            _ => kind,
        }
    }

    /// The meaning of the plain variable `name` at the entry to the call, or (`ret`) at the return.
    ///
    /// [`SyscallArg::form`] has the rule for names of arguments. A call can have variables of its own besides.
    pub(crate) fn bind(self, name: &str, ret: bool) -> PlainBinding {
        if let Some((arg, form)) = self.call.variable(name) {
            return self.argument(arg, form);
        }
        let mut variables = self.call.variables.iter();
        variables
            .find(|v| v.name == name && (ret || !v.at_return))
            .map_or(PlainBinding::Absent, |v| self.value(v.value, ret))
    }

    /// The meaning of the value of a call's own variable, see [`spile_syscalls::Variable::value`].
    fn value(self, value: &'static str, ret: bool) -> PlainBinding {
        let value = value.trim();
        if let Ok(number) = value.parse() {
            return PlainBinding::Number(number);
        }
        let quoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        if let Some(text) = quoted {
            return PlainBinding::Literal(text);
        }
        let function = value.strip_suffix(')').and_then(|v| v.split_once('('));
        match function {
            Some((name, args)) => {
                let args = args.split(',').map(|arg| self.value(arg, ret));
                PlainBinding::Function(name, args.collect())
            }
            None => self.bind(value, ret),
        }
    }

    fn argument(self, arg: &SyscallArg, form: ArgForm) -> PlainBinding {
        let kind = self.kind(arg);
        match form {
            ArgForm::Value => PlainBinding::Value(arg.word, kind),
            ArgForm::Address => PlainBinding::Value(arg.word, ArgValueKind::Ptr),
            ArgForm::Text if kind == ArgValueKind::Str => PlainBinding::Quoted(arg.word),
            ArgForm::Text => PlainBinding::Text(arg.word),
            ArgForm::Unquoted => PlainBinding::Unquoted(arg.word),
            ArgForm::SignalName => PlainBinding::SignalName(arg.word),
            ArgForm::TextOnly => PlainBinding::TextOnly,
        }
    }
}

/// The meaning of the plain variable `name` at the entry to a call, or (`ret`) at the return.
pub(crate) fn bind(call: &Syscall, name: &str, ret: bool) -> PlainBinding {
    BoundCall { call, native: None }.bind(name, ret)
}

/// Makes expressions for initial values, all at one location of the script.
pub(crate) struct ExprBuilder(pub Span);

impl ExprBuilder {
    fn expr(&self, kind: ExprKind) -> Expr {
        Expr { kind, span: self.0 }
    }

    pub(crate) fn num(&self, n: i64) -> Expr {
        self.expr(ExprKind::Num(n))
    }

    pub(crate) fn string(&self, s: &str) -> Expr {
        self.expr(ExprKind::Str(s.as_bytes().into()))
    }

    pub(crate) fn call(&self, name: &str, args: Vec<Expr>) -> Expr {
        let span = Span {
            file: FileId::COMPILER,
            ..self.0
        };
        let name = Ident {
            name: name.into(),
            span,
        };
        self.expr(ExprKind::Call { name, args })
    }

    pub(crate) fn bin(&self, op: BinOp, a: Expr, n: i64) -> Expr {
        self.expr(ExprKind::Binary(op, Box::new(a), Box::new(self.num(n))))
    }

    fn word(&self, n: u8) -> Expr {
        self.call("__sys_arg", vec![self.num(n.into())])
    }

    /// The low bytes of a number, sign- or zero-extended.
    fn extended(&self, v: Expr, size: u8, signed: bool) -> Expr {
        if size >= 8 || size == 0 {
            return v;
        }
        let bits = i64::from(size) * 8;
        if signed {
            self.bin(BinOp::Shr, self.bin(BinOp::Shl, v, 64 - bits), 64 - bits)
        } else {
            self.bin(BinOp::And, v, (1 << bits) - 1)
        }
    }

    /// The value of a binding; `None` if it has none.
    pub(crate) fn value(&self, b: &PlainBinding) -> Option<Expr> {
        Some(match *b {
            PlainBinding::Absent | PlainBinding::TextOnly => return None,
            PlainBinding::Number(n) => self.num(n),
            PlainBinding::Literal(text) => self.string(text),
            PlainBinding::Function(name, ref args) => {
                let args = args.iter().map(|arg| self.value(arg));
                self.call(name, args.collect::<Option<_>>()?)
            }
            PlainBinding::Value(w, ArgValueKind::Int { size, signed }) => {
                self.extended(self.word(w), size, signed)
            }
            PlainBinding::Value(w, ArgValueKind::Signal) => self.extended(self.word(w), 4, true),
            PlainBinding::Value(w, ArgValueKind::Blocks(size)) => {
                self.bin(BinOp::Shl, self.extended(self.word(w), size, false), 12)
            }
            PlainBinding::Value(w, ArgValueKind::Pair) => {
                let low = self.extended(self.word(w), 4, false);
                let high = self.bin(BinOp::Shl, self.word(w.saturating_add(1)), 32);
                self.expr(ExprKind::Binary(BinOp::Or, Box::new(low), Box::new(high)))
            }
            PlainBinding::Value(w, _) => self.word(w),
            PlainBinding::Quoted(w) => self.call("user_string_quoted", vec![self.word(w)]),
            PlainBinding::Unquoted(w) => {
                let unknown = self.expr(ExprKind::Str(b"<unknown>"[..].into()));
                self.call("user_string", vec![self.word(w), unknown])
            }
            PlainBinding::Text(w) => self.call("__sys_argtext", vec![self.num(w.into())]),
            PlainBinding::SignalName(w) => {
                self.call("__signal_name", vec![self.extended(self.word(w), 4, true)])
            }
        })
    }

    pub(crate) fn choose(&self, condition: Expr, yes: Expr, no: Expr) -> Expr {
        let [condition, yes, no] = [condition, yes, no].map(Box::new);
        self.expr(ExprKind::Ternary(condition, yes, no))
    }

    /// One value, or the other if the `int` in an argument's word is 0.
    pub(crate) fn unless_zero(&self, word: u8, value: Expr, other: Expr) -> Expr {
        let argument = self.extended(self.word(word), 4, false);
        self.choose(self.bin(BinOp::Ne, argument, 0), value, other)
    }

    /// The number of the current system call in its own table.
    pub(crate) fn syscall_nr(&self) -> Expr {
        let nr = || self.call("__sys_nr", Vec::new());
        let compat = i64::from(spile_ir::NrSet::COMPAT);
        let is = self.bin(BinOp::Ge, nr(), compat);
        let nr_of_compat = self.bin(BinOp::Sub, nr(), compat);
        self.choose(is, nr_of_compat, nr())
    }
}

/// The C type of an argument for `$name`.
fn arg_type(kind: ArgValueKind) -> CTy {
    match kind {
        ArgValueKind::Int {
            size: size @ (1 | 2 | 4),
            signed,
        } => CTy::int(size, signed),
        ArgValueKind::Int { signed, .. } => CTy::int(8, signed),
        ArgValueKind::Signal => CTy::int(4, true),
        ArgValueKind::Blocks(size) => CTy::int(size, false),
        ArgValueKind::Str => {
            let base = CBase::Int {
                size: 1,
                signed: true,
                char: true,
            };
            CTy { base, ptrs: 1 }
        }
        ArgValueKind::Ptr | ArgValueKind::StrVec | ArgValueKind::Pair => CTy::int(8, false),
    }
}

/// The `$` variables of a call that `keep` accepts.
pub(crate) fn call_targets(
    call: &Syscall,
    ret: bool,
    keep: impl Fn(&str) -> bool,
) -> Vec<TargetVar> {
    let mut targets: Vec<TargetVar> = call
        .args
        .iter()
        .filter(|a| keep(a.kernel_name))
        .map(|a| {
            let (source, ty) = (TargetSource::SysArg(a.word), arg_type(a.value_kind()));
            TargetVar::parameter(a.kernel_name.into(), source, ty)
        })
        .collect();
    targets.extend(ret.then(call_result));
    targets
}

/// `$return` of a system call.
fn call_result() -> TargetVar {
    TargetVar {
        kind: VarKind::Return,
        ..TargetVar::parameter("return".into(), TargetSource::SysRet, CTy::LONG)
    }
}

/// The variables that the bodies read, of these names with their initial values.
pub(crate) fn read_vars(m: &Mentions, vars: Vec<(&str, Expr)>) -> Vec<PlainVar> {
    let read = vars.into_iter().filter(|(name, _)| m.reads.contains(*name));
    read.map(|(name, init)| PlainVar {
        name: name.into(),
        init,
    })
    .collect()
}

/// The arguments of a tracepoint as `$` variables.
pub(crate) fn tracepoint_arguments(facts: &dyn Facts, name: &str) -> Vec<TargetVar> {
    TargetVar::arguments(facts.tracepoint_args(name).unwrap_or_default())
}

/// The fields of a record as `$` variables.
pub(crate) fn record_fields(record: &TraceRecord) -> Vec<TargetVar> {
    let field = |f: &RecordField| {
        let source = TargetSource::Loc(Arc::new(f.loc.clone()));
        TargetVar::parameter(f.name.clone(), source, f.ty)
    };
    record.fields.iter().map(field).collect()
}

/// The event and the context of a handler at a tracepoint. `$` variables are the tracepoint's arguments.
/// They are the fields of its record if the handler mentions a field, and no argument that is not a field:
/// a program sees either the arguments or the record.
pub(crate) fn tracepoint(
    facts: &dyn Facts,
    name: &Arc<str>,
    system: Option<Arc<str>>,
    m: &Mentions,
) -> (Event, HandlerContext) {
    let mut event = Event::Tracepoint(name.clone());
    let mut ctx = HandlerContext {
        name: Some(name.clone()),
        ..HandlerContext::empty(HandlerKind::Tracepoint)
    };
    // Arguments are expensive to look up, and most handlers of many tracepoints use none.
    if m.all_targets || !m.targets.is_empty() {
        ctx.targets = tracepoint_arguments(facts, name);
    }
    let argument = |t: &str| ctx.target(t).is_some() || ctx.numbered_argument(t).is_some();
    let (arguments, others): (Vec<&str>, Vec<&str>) =
        m.targets.iter().map(|t| &**t).partition(|t| argument(t));
    let record = match others.is_empty() {
        true => None,
        false => facts.trace_record(name, system.as_deref()),
    };
    if let Some(record) = record {
        let fields = record_fields(&record);
        let field = |t: &str| fields.iter().any(|f| &*f.name == t);
        let mut mentioned: Vec<&str> = others.into_iter().filter(|t| field(t)).collect();
        mentioned.sort_unstable();
        match arguments.iter().filter(|t| !field(t)).min() {
            None if !mentioned.is_empty() => {
                event = Event::TraceEvent(record.event);
                ctx.targets = fields;
            }
            Some(argument) if !mentioned.is_empty() => {
                let one = mentioned[0];
                let why = format!(
                    "`${one}` is a field of the trace event's record, and `${argument}` an argument of the \
                     tracepoint; a handler reads either of them, so write a probe for each"
                );
                ctx.missing = Some(why.into());
            }
            _ => ctx.missing = Some(listed_fields(&fields)),
        }
    }
    ctx.system = system;
    (event, ctx)
}

/// The fields of a record, for a message.
fn listed_fields(fields: &[TargetVar]) -> Arc<str> {
    let names: Vec<String> = fields.iter().map(|f| format!("${}", f.name)).collect();
    format!("the fields of its record are {}", names.join(", ")).into()
}

/// The context of all system calls. With `process`, that of `process.syscall`, where the plain
/// variables of `syscall_any` are an addition.
pub(crate) fn syscall_any(m: &Mentions, ret: bool, process: bool, span: Span) -> HandlerContext {
    let make = ExprBuilder(span);
    let result = || make.call("__sys_ret", Vec::new());
    let written = |(name, _): &(&str, Expr)| m.writes.contains(*name);
    let mut vars = vec![
        ("name", make.call("__sys_name", Vec::new())),
        ("syscall_nr", make.syscall_nr()),
    ];
    // SystemTap does not have these here, so a script's own variables come first.
    let mut extra = Vec::new();
    if ret {
        vars.push(("retval", result()));
        extra.push(("retstr", make.call("__sys_retstr", Vec::new())));
        extra.push(("errno", make.call("__errno_of", vec![result()])));
    } else {
        extra.push(("argstr", make.call("__sys_argstr", Vec::new())));
    }
    vars.retain(|v| !(process && written(v)));
    extra.retain(|v| !written(v));
    vars.append(&mut extra);
    let target = |name: &str, source| TargetVar::parameter(name.into(), source, CTy::LONG);
    let mut targets = vec![target("syscall", TargetSource::SysNr)];
    if ret {
        targets.push(call_result());
    } else {
        let args = ["arg1", "arg2", "arg3", "arg4", "arg5", "arg6"];
        let args = args.iter().zip(0..);
        targets.extend(args.map(|(name, n)| target(name, TargetSource::SysArg(n))));
    }
    HandlerContext {
        vars: read_vars(m, vars),
        targets,
        ..HandlerContext::empty(HandlerKind::of_syscalls(ret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spile_syscalls::{ArgKind, SyscallVariable, fake};

    #[test]
    fn variables_besides_the_arguments() {
        const fn variable(
            name: &'static str,
            value: &'static str,
            at_return: bool,
        ) -> SyscallVariable {
            SyscallVariable {
                name,
                text: false,
                at_return,
                value,
            }
        }
        let call = Syscall {
            variables: const {
                &[
                    variable("zero", "-1", false),
                    variable("none", "\"\"", false),
                    variable("all", "f(buf_uaddr, 4, buf_str)", false),
                    variable("later", "buf_uaddr", true),
                    variable("buf_str", "0", false),
                ]
            },
            ..fake::call(
                1,
                "call",
                const { &[fake::arg(2, "buf_uaddr", ArgKind::Buf(1))] },
            )
        };
        let address = || PlainBinding::Value(2, ArgValueKind::Ptr);
        let at_entry = |name| bind(&call, name, false);
        assert_eq!(at_entry("zero"), PlainBinding::Number(-1));
        assert_eq!(at_entry("none"), PlainBinding::Literal(""));
        let args = vec![address(), PlainBinding::Number(4), PlainBinding::Text(2)];
        let all = at_entry("all");
        assert_eq!(all, PlainBinding::Function("f", args));
        // The text of the argument is made at the entry.
        assert!(all.of_entry() && !at_entry("zero").of_entry());
        assert_eq!(at_entry("later"), PlainBinding::Absent);
        assert_eq!(bind(&call, "later", true), address());
        assert_eq!(at_entry("buf_str"), PlainBinding::Text(2));
    }
}
