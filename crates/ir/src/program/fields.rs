//! Instructions from rows: what they read and write follows from the types of their fields, their text and
//! its reader from their forms.

use std::fmt::{Display, Formatter, Result};

use super::Val;
use super::ids::*;
use super::operators::*;
use super::types::*;
use crate::form::{Form, Printer};
use crate::intrinsics::Intrinsic;
use crate::token::{Reader, Res, Token};

/// A field of an instruction: an operand, a register that it writes, its global, a block that it goes to, or
/// none of these.
pub(crate) trait Field: Sized {
    fn uses(&self, _: &mut impl FnMut(Val)) {}
    fn uses_mut(&mut self, _: &mut impl FnMut(&mut Val)) {}
    fn dsts(&self, _: &mut impl FnMut(Reg)) {}
    fn dsts_mut(&mut self, _: &mut impl FnMut(&mut Reg)) {}
    fn targets(&self, _: &mut impl FnMut(BlockId)) {}
    fn targets_mut(&mut self, _: &mut impl FnMut(&mut BlockId)) {}
    fn global(&self) -> Option<GlobalId> {
        None
    }
    /// The field that has the result, if an instruction can have this one.
    fn result(_: Option<Reg>) -> Option<Self> {
        None
    }
}

impl Field for Val {
    fn uses(&self, f: &mut impl FnMut(Val)) {
        f(*self);
    }
    fn uses_mut(&mut self, f: &mut impl FnMut(&mut Val)) {
        f(self);
    }
}

impl Field for Reg {
    fn dsts(&self, f: &mut impl FnMut(Reg)) {
        f(*self);
    }
    fn dsts_mut(&mut self, f: &mut impl FnMut(&mut Reg)) {
        f(self);
    }
    fn result(dst: Option<Reg>) -> Option<Self> {
        dst
    }
}

impl Field for BlockId {
    fn targets(&self, f: &mut impl FnMut(BlockId)) {
        f(*self);
    }
    fn targets_mut(&mut self, f: &mut impl FnMut(&mut BlockId)) {
        f(self);
    }
}

impl Field for GlobalId {
    fn global(&self) -> Option<GlobalId> {
        Some(*self)
    }
}

/// Fields that have others in them.
macro_rules! several {
    ($($ty:ident { $($result:tt)* })*) => {$(
        impl<T: Field> Field for $ty<T> {
            fn uses(&self, f: &mut impl FnMut(Val)) {
                self.iter().for_each(|v| v.uses(f));
            }
            fn uses_mut(&mut self, f: &mut impl FnMut(&mut Val)) {
                self.iter_mut().for_each(|v| v.uses_mut(f));
            }
            fn dsts(&self, f: &mut impl FnMut(Reg)) {
                self.iter().for_each(|v| v.dsts(f));
            }
            fn dsts_mut(&mut self, f: &mut impl FnMut(&mut Reg)) {
                self.iter_mut().for_each(|v| v.dsts_mut(f));
            }
            $($result)*
        }
    )*};
}
several! {
    Vec {}
    Option {
        fn result(dst: Option<Reg>) -> Option<Self> {
            Some(T::result(dst))
        }
    }
}

macro_rules! neither {
    ($($ty:ty)*) => { $(impl Field for $ty {})* };
}
neither! { bool u8 u32 UnOp BinOp CmpOp Extract Space IntTy Stream SortSpec Intrinsic RegexId TableId FormatId IterId FuncId }

impl Display for Val {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Val::Reg(r) => r.fmt(f),
            Val::Imm(n) => n.fmt(f),
            Val::Str(s) => s.fmt(f),
        }
    }
}

impl Form for Val {
    const ABSENT: &str = "*";

    fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> Result {
        p.item(self)
    }

    fn opt(_: &[&str], r: &mut Reader) -> Res<Option<Self>> {
        if let Some(Token::Num(_)) = r.peek() {
            return Ok(Some(Val::Imm(r.number()?)));
        }
        let reg = Reg::opt(&[], r)?.map(Val::Reg);
        Ok(reg.or(StrId::opt(&[], r)?.map(Val::Str)))
    }

    fn expected(_: &[&str]) -> String {
        "an operand".into()
    }
}

/// Prints or reads one part of an instruction's form.
macro_rules! part {
    (print $p:ident ,) => { $p.word(",")? };
    (read $r:ident ,) => { $r.want(",")?; };
    (print $p:ident $x:ident $words:expr) => { $x.print(&$words, $p)? };
    (read $r:ident $x:ident $words:expr) => { let $x = Form::read(&$words, $r)?; };
    ($does:ident $p:ident $x:ident) => { part!($does $p $x []); };
    ($does:ident $p:ident [$x:ident]) => { part!($does $p $x ["[", "]"]); };
    ($does:ident $p:ident ($x:ident)) => { part!($does $p $x ["(", ")"]); };
    ($does:ident $p:ident {$x:ident}) => { part!($does $p $x [""]); };
    ($does:ident $p:ident {$($word:literal)+ $x:ident}) => { part!($does $p $x [$($word),+]); };
}

/// Prints or reads the first part of an instruction's form: a word, or an operator.
macro_rules! head {
    (print $p:ident $word:literal) => { $p.word($word)? };
    (print $p:ident $op:ident) => { $op.print(&[], $p)? };
    (read $r:ident $word:literal $then:block) => { if $r.opt($word) $then };
    (read $r:ident $op:ident $then:block) => { if let Some($op) = Form::opt(&[], $r)? $then };
}

/// Reads the result of an instruction, or that it has none.
macro_rules! result {
    ($r:ident $dst:ident) => {
        if $dst.is_some() {
            return $r.error_before("an instruction with a result");
        }
    };
    ($r:ident $dst:ident $x:ident) => {
        let Some($x) = Field::result($dst) else {
            return $r.error_before("an instruction without a result");
        };
    };
}

/// Defines instructions, from rows `NAME { fields } = (form) -> result; effect`. The form is the text: `"word"` or an
/// operator, then
///
/// | part | text |
/// |---|---|
/// | `x` | the operand |
/// | `,` | a comma |
/// | `[x]`, `(x)` | a list between brackets |
/// | `{x}` | the operand if there is one |
/// | `{"word" x}`, `{"one" "other" x}` | the operand with these words: see [`Form`] |
macro_rules! instructions {
    ($($(#[$outer:meta])* pub enum $ty:ident {
        $($(#[$doc:meta])* $name:ident $(($one:ident: $one_ty:ty))? $({ $($x:ident: $x_ty:ty),* })?
            = ($head:tt $($part:tt)*) $(-> $dst:ident)? $(; $effect:ident)?,)*
    })*) => {$(
        $(#[$outer])*
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub enum $ty {
            $($(#[$doc])* $name $(($one_ty))? $({ $($x: $x_ty),* })?,)*
        }

        #[allow(unused)]
        impl $ty {
            /// Calls `f` with every operand, in order.
            pub fn for_each_use(&self, mut f: impl FnMut(Val)) {
                match self {
                    $($ty::$name $(($one))? $({ $($x),* })? => { $($one.uses(&mut f);)? $($($x.uses(&mut f);)*)? })*
                }
            }

            /// Calls `f` with every operand, in order, to change it.
            pub fn uses_mut(&mut self, mut f: impl FnMut(&mut Val)) {
                match self {
                    $($ty::$name $(($one))? $({ $($x),* })? => { $($one.uses_mut(&mut f);)? $($($x.uses_mut(&mut f);)*)? })*
                }
            }

            /// Calls `f` with every register it writes.
            pub fn for_each_dst(&self, mut f: impl FnMut(Reg)) {
                match self {
                    $($ty::$name $(($one))? $({ $($x),* })? => { $($one.dsts(&mut f);)? $($($x.dsts(&mut f);)*)? })*
                }
            }

            /// Calls `f` with every register it writes, to change it.
            pub fn dsts_mut(&mut self, mut f: impl FnMut(&mut Reg)) {
                match self {
                    $($ty::$name $(($one))? $({ $($x),* })? => { $($one.dsts_mut(&mut f);)? $($($x.dsts_mut(&mut f);)*)? })*
                }
            }

            /// Calls `f` with every block that it goes to (not the catch block).
            pub fn for_each_target(&self, mut f: impl FnMut(BlockId)) {
                match self {
                    $($ty::$name $(($one))? $({ $($x),* })? => { $($one.targets(&mut f);)? $($($x.targets(&mut f);)*)? })*
                }
            }

            /// Calls `f` with every block that it goes to, to change it.
            pub fn targets_mut(&mut self, mut f: impl FnMut(&mut BlockId)) {
                match self {
                    $($ty::$name $(($one))? $({ $($x),* })? => { $($one.targets_mut(&mut f);)? $($($x.targets_mut(&mut f);)*)? })*
                }
            }

            /// The global it touches.
            pub fn global(&self) -> Option<GlobalId> {
                match self {
                    $($ty::$name $(($one))? $({ $($x),* })? => None$(.or($one.global()))?$($(.or($x.global()))*)?,)*
                }
            }

            /// Whether its row has this effect.
            pub(crate) fn has(&self, effect: Effect) -> bool {
                match self {
                    $($ty::$name { .. } => false $(|| effect == Effect::$effect)?,)*
                }
            }

            /// Reads one after its result; `None` if no form begins with the next word.
            pub(crate) fn read(r: &mut Reader, dst: Option<Reg>) -> Res<Option<Self>> {
                $(head!(read r $head {
                    result!(r dst $($dst)?);
                    $(part!(read r $part);)*
                    return Ok(Some($ty::$name $(($one))? $({ $($x),* })?));
                });)*
                Ok(None)
            }
        }

        impl Display for $ty {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                let p = &mut Printer::new(f);
                match self {
                    $($ty::$name $(($one))? $({ $($x),* })? => {
                        $(if let Some(dst) = Option::<Reg>::from(*$dst) {
                            dst.print(&[], p)?;
                            p.word("=")?;
                        })?
                        head!(print p $head);
                        $(part!(print p $part);)*
                    })*
                }
                Ok(())
            }
        }
    )*};
}

#[cfg(test)]
mod tests {
    use crate::reader::read;

    fn program(lines: &str) -> String {
        format!("handler \"\" points 1 begin(0) @0 {{\n  b0:\n{lines}}}\n")
    }

    /// The error for a line.
    fn error(line: &str) -> String {
        read(&program(line)).expect_err(line).to_string()
    }

    #[test]
    fn forms_are_read_as_they_are_written() {
        let lines = "    r0 = copy -5\n    r0 = bitnot r1\n    r0 = ushr r1, 3 @7\n    r0 = str_le s0, r1
    r0 = concat r1, s2\n    r0 = match re0, r1\n    r0 = match re0, r1 keep @2\n    r0 = table t0, r1
    r0 = sprint f0()\n    print next_file f0(1, r2)\n    print_hist g0[]\n    r0 = print_hist g0[1]
    intr in_tree()\n    r0 = intr substr(s0, 1, 2)\n    r0 = gload g0\n    gstore g0, 1\n    gadd g0, 1
    r1 = gadd g0, 1\n    r0 = aget g0[1, s0]\n    aset g0[1], 2\n    aadd g0[1], 2\n    r0 = aadd g0[1], 2
    r0 = ahas g0[*, 1]\n    adel g0[*]\n    gclear g0\n    stat_add g0[1], 2\n    r0 = stat_get avg g0[1]
    r0 = stat_get sum g0[] shift 3\n    r0 = hist_get g0[1], 2\n    iter i0 g0[]
    iter i0 g0[*, 1] desc key 1 limit r3\n    iter i0 g0[] asc value\n    iter i0 g0[] desc max limit 2
    iter_hist i0 g0[1]\n    r0 = load user s32 r1\n    r0 = load kernel u8 5\n    raise s0\n    r0 = catch_msg
    call fn0()\n    r0 = call fn0(1, s2)\n    tick 3\n    enter\n    leave\n    save r0, 8\n    r0 = restore 8
    rethrow\n    end_handler\n  b1: catch b0\n    jump b0\n  b2:\n    branch r0, b0, b1\n  b3:
    next i0 [] b0, b1\n  b4:\n    r2 = next i0 [r0, r1] b0, b1\n  b5:\n    ret\n  b6:\n    ret s0\n";
        let text = program(lines);
        assert_eq!(read(&text).expect(&text).to_string(), text);
    }

    #[test]
    fn errors_say_what_is_expected() {
        for (line, expected) in [
            ("r0 = frob 1", "an instruction, found Word(\"frob\")"),
            (
                "copy 5",
                "an instruction without a result, found Word(\"copy\")",
            ),
            (
                "r0 = tick 5",
                "an instruction with a result, found Word(\"tick\")",
            ),
            ("r0 = add r1 r2", "`,`, found Word(\"r2\")"),
            ("r0 = add r1, g2", "an operand, found Word(\"g2\")"),
            ("gstore r1, 2", "`g` and a number, found Word(\"r1\")"),
            ("adel g0[x]", "an operand or `*`, found Word(\"x\")"),
            ("print paper f0()", "a stream, found Word(\"paper\")"),
            ("r0 = load user u9 r1", "`u8` to `s64`, found Word(\"u9\")"),
            (
                "r0 = stat_get mode g0[]",
                "an extractor, found Word(\"mode\")",
            ),
            ("iter i0 g0[] asc size", "a sort key, found Word(\"size\")"),
            ("intr frob()", "an intrinsic, found Word(\"frob\")"),
            ("tick -1", "a number in range, found Num(-1)"),
        ] {
            assert_eq!(error(line), format!("line 3: expected {expected}"));
        }
    }
}
