//! The strings that a handler only prints, so that their reads can be deferred (see
//! [`super::deferred`]).

use spile_ir::analysis::dataflow::{self, Direction, InstOrTerm, Lattice, RegisterFacts};
use spile_ir::fmt::{ConvKind, Piece};
use spile_ir::{Body, Inst, Program, Reg as IrReg, Stream, Val};
use spile_layout::Quote;

/// The uses of a register: an element of the analysis's lattice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputUse {
    /// No use so far.
    Unused,
    /// Printed, with or without escapes.
    Printed(Quote),
    /// Any other use.
    Used,
}

impl Lattice for OutputUse {
    fn join(&mut self, other: &OutputUse) -> bool {
        let both = match (*self, *other) {
            (OutputUse::Unused, m) | (m, OutputUse::Unused) => m,
            (a, b) if a == b => a,
            _ => OutputUse::Used,
        };
        std::mem::replace(self, both) != both
    }
}

/// For each register that is used only in output, and there always in the same way, how the
/// controller writes its text.
pub(crate) fn output_uses(program: &Program, body: &Body) -> Vec<Option<Quote>> {
    let start = vec![OutputUse::Unused; body.regs.len()];
    // Backwards: the use of an operand depends on the use of the result.
    let output_uses = dataflow::registers(
        body,
        Direction::Backwards,
        start,
        |step, output_uses| match step {
            InstOrTerm::Inst(inst) => visit(program, inst, output_uses),
            InstOrTerm::Term(term) => {
                term.for_each_use(|v| note_use(v, OutputUse::Used, output_uses))
            }
        },
    );
    let mode = |m| match m {
        OutputUse::Printed(quote) => Some(quote),
        _ => None,
    };
    output_uses.into_iter().map(mode).collect()
}

fn note_use(v: Val, how: OutputUse, output_uses: &mut RegisterFacts<OutputUse>) {
    if let Val::Reg(r) = v {
        output_uses.join(r, &how);
    }
}

fn visit(program: &Program, inst: &Inst, output_uses: &mut RegisterFacts<OutputUse>) {
    let use_of = |output_uses: &RegisterFacts<OutputUse>, r: &IrReg| {
        output_uses.get(*r).map_or(OutputUse::Used, |m| *m)
    };
    match inst {
        Inst::Copy { dst, src } => note_use(*src, use_of(output_uses, dst), output_uses),
        Inst::Concat { dst, a, b } => {
            note_use(*a, use_of(output_uses, dst), output_uses);
            note_use(*b, use_of(output_uses, dst), output_uses);
        }
        Inst::Print { stream, args, .. } => {
            // The text of a shell command is never deferred.
            let how = match stream {
                Stream::System => OutputUse::Used,
                _ => OutputUse::Printed(Quote::No),
            };
            args.iter().for_each(|a| note_use(*a, how, output_uses));
        }
        Inst::Sprint { dst, fmt, args } => {
            let whole = use_of(output_uses, dst);
            let format = program.formats.get(fmt.index());
            let pieces = format.map_or(&[][..], |f| &f.pieces);
            let simple = format.is_none_or(spile_ir::marks::copies_arguments);
            let convs = pieces.iter().filter_map(|p| match p {
                Piece::Conv(c) => Some(c),
                Piece::Lit(_) => None,
            });
            let mut convs = convs.fuse();
            for arg in args {
                let how = match convs.next() {
                    Some(c) if simple && c.kind == ConvKind::Str && c.alt => match whole {
                        OutputUse::Unused => OutputUse::Unused,
                        OutputUse::Printed(Quote::No) => OutputUse::Printed(Quote::Escaped),
                        _ => OutputUse::Used,
                    },
                    Some(c) if simple && c.kind == ConvKind::Str => whole,
                    _ => OutputUse::Used,
                };
                note_use(*arg, how, output_uses);
            }
        }
        _ => inst.for_each_use(|v| note_use(v, OutputUse::Used, output_uses)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_registers_used_in_output_are_deferred() {
        let text = r#"limits maxaction=1000 maxaction_interruptible=10000 maxstringlen=511 maxmapentries=2048 maxerrors=0 maxskipped=100 maxnesting=10 maxtrylock=100
site @0 "unknown"
str s0 "x"
fmt f0 "%s\n"
fmt f1 "\"%#s\""
fmt f2 "%5s"
fmt f3 "%s %5s"
handler "h" points 1 sys_enter(39) @0 {
  regs r0: str512, r1: str512, r2: str512, r3: str512, r4: str512, r5: str512, r6: str512, r7: str512, r8: long, r9: str512
  b0:
    r0 = intr user_str(1, 511)
    r1 = sprint f1(r0)
    print out f0(r1)
    r2 = intr user_str(2, 511)
    r3 = copy r2
    print out f3(r3, r3)
    r8 = intr strlen(r3)
    r4 = intr user_str(3, 511)
    r5 = sprint f2(r4)
    print warn f0(r5)
    r6 = intr user_str(4, 511)
    print system f0(r6)
    r7 = concat s0, r9
    print out f3(r7, r9)
    ret
}
"#;
        let program = spile_ir::reader::read(text).expect("a program");
        let (plain, escaped) = (Some(Quote::No), Some(Quote::Escaped));
        let found = output_uses(&program, &program.handlers[0].body);
        let expected = [
            escaped, plain, None, None, None, plain, None, plain, None, plain,
        ];
        assert_eq!(found, expected);
    }
}
