//! What Linux's user probes do with each x86-64 instruction, as data.
//!
//! The kernel replaces the first byte of a probed instruction by a breakpoint. At a hit it emulates
//! jumps, calls, pushes and no-operations, and executes a copy of every other instruction elsewhere
//! in single-step mode. It refuses what it cannot execute so.
//!
//! Both decisions look at the last byte of the opcode as if it were a one-byte opcode, also for
//! VEX and EVEX instructions (AVX, AVX2, AVX-512, BMI), where that byte means something else: a
//! `vpshufd` (70) is taken for `jo`, is emulated as one, and never executed. The rules below say
//! where the result is another than the processor's. An instruction without a rule is executed
//! rightly; the live test `instructions` of the crate `spile` holds the table against the kernel.

use crate::uprobes::{KernelVersion, Verdict};

/// How an instruction is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Legacy,
    Vex,
    Evex,
    /// XOP, REX2, and EVEX of APX: the kernels' decoders differ, and no processor was at hand.
    Unknown,
}

/// The parts of an instruction that the kernel's decisions depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Opcode<'b> {
    prefixes: &'b [u8],
    rex: u8,
    encoding: Encoding,
    /// 0 for one-byte opcodes, 1 for `0f`, 2 for `0f 38`, 3 for `0f 3a`; VEX and EVEX number them so.
    map: u8,
    byte: u8,
    /// The byte behind the opcode, which is a ModRM byte where the opcode has one.
    next: u8,
    length: usize,
}

const LEGACY_PREFIXES: [u8; 11] = [
    0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3,
];

impl<'b> Opcode<'b> {
    fn new(bytes: &'b [u8]) -> Option<Opcode<'b>> {
        let is_prefix = |b: &u8| LEGACY_PREFIXES.contains(b);
        let count = bytes.iter().take_while(|b| is_prefix(b)).count();
        let (prefixes, mut rest) = bytes.split_at(count);
        let mut rex = 0;
        if let [r @ 0x40..=0x4f, after @ ..] = rest {
            (rex, rest) = (*r, after);
        }
        let known = |known: bool, encoding| if known { encoding } else { Encoding::Unknown };
        let (encoding, map, byte, after) = match rest {
            [0xc5, _, byte, after @ ..] => (Encoding::Vex, 1, *byte, after),
            [0xc4, m, _, byte, after @ ..] => {
                let map = m & 0x1f;
                (known(map <= 3, Encoding::Vex), map, *byte, after)
            }
            [0x62, m, _, _, byte, after @ ..] => {
                let map = m & 7;
                let fits = matches!(map, 1 | 2 | 3 | 5 | 6) && m & 8 == 0;
                (known(fits, Encoding::Evex), map, *byte, after)
            }
            [0x8f, m, ..] if m & 0x1f >= 8 => (Encoding::Unknown, m & 0x1f, 0, &rest[2..]),
            [0xd5, ..] => (Encoding::Unknown, 0, 0, &rest[1..]),
            [0x0f, 0x38, byte, after @ ..] => (Encoding::Legacy, 2, *byte, after),
            [0x0f, 0x3a, byte, after @ ..] => (Encoding::Legacy, 3, *byte, after),
            [0x0f, byte, after @ ..] => (Encoding::Legacy, 1, *byte, after),
            [byte, after @ ..] => (Encoding::Legacy, 0, *byte, after),
            [] => return None,
        };
        Some(Opcode {
            prefixes,
            rex,
            encoding,
            map,
            byte,
            next: after.first().copied().unwrap_or(0),
            length: bytes.len(),
        })
    }
}

/// A further condition of a rule.
#[derive(Clone, Copy)]
enum When {
    Always,
    /// One of these prefixes.
    Prefix(&'static [u8]),
    /// Bit B of the REX prefix.
    RexB,
    /// One of these numbers in the field `reg` of ModRM.
    Reg(&'static [u8]),
    /// This byte behind the opcode.
    Next(u8),
    /// A length of five bytes and 0 in the field `reg` of ModRM.
    FiveBytes,
}

impl When {
    fn holds(self, op: &Opcode<'_>) -> bool {
        let reg = op.next >> 3 & 7;
        match self {
            When::Always => true,
            When::Prefix(any) => op.prefixes.iter().any(|p| any.contains(p)),
            When::RexB => op.rex & 1 != 0,
            When::Reg(any) => any.contains(&reg),
            When::Next(byte) => op.next == byte,
            When::FiveBytes => op.length == 5 && (op.byte == 0x90 || reg == 0),
        }
    }
}

/// One line of the table.
struct Rule(
    &'static [Encoding],
    /// Opcode maps; empty for all.
    &'static [u8],
    /// Ranges of opcodes, both ends included.
    &'static [(u8, u8)],
    When,
    /// The first version with the behaviour.
    KernelVersion,
    Verdict,
);

const OLDEST: KernelVersion = KernelVersion { major: 0, minor: 0 };
const LINUX_6_18: KernelVersion = KernelVersion {
    major: 6,
    minor: 18,
};

const ANY: &[Encoding] = &[Encoding::Legacy, Encoding::Vex, Encoding::Evex];
const LEGACY: &[Encoding] = &[Encoding::Legacy];
const VECTOR: &[Encoding] = &[Encoding::Vex, Encoding::Evex];
const ALL_BYTES: &[(u8, u8)] = &[(0, 0xff)];

/// One-byte opcodes that the kernel refuses: invalid in 64-bit mode, privileged, or interrupts.
#[rustfmt::skip]
const REFUSED: &[(u8, u8)] = &[
    (0x06, 0x07), (0x0e, 0x0e), (0x16, 0x17), (0x1e, 0x1f), (0x27, 0x27), (0x2f, 0x2f), (0x37, 0x37),
    (0x3f, 0x3f), (0x60, 0x62), (0x6c, 0x6f), (0x82, 0x82), (0x9a, 0x9a), (0xcc, 0xcf), (0xd4, 0xd6),
    (0xe4, 0xe7), (0xea, 0xea), (0xec, 0xef), (0xf1, 0xf1), (0xf4, 0xf4), (0xfa, 0xfb),
];

const UNKNOWN: &str = "is not known to execute rightly under a breakpoint";
const MISREAD: &str = "refuses, because it takes it for a privileged or invalid instruction";

/// The table. The first rule that fits holds.
#[rustfmt::skip]
const RULES: &[Rule] = {
    use Verdict::{OverwritesRedZone, Refused, Wrong};
    use When::{Always, FiveBytes, Next, Prefix, Reg, RexB};
    &[
        Rule(&[Encoding::Unknown], &[], ALL_BYTES, Always, OLDEST, Wrong(UNKNOWN)),
        Rule(ANY, &[], ALL_BYTES, Prefix(&[0x26, 0x2e, 0x36, 0x3e, 0xf0]), OLDEST,
            Refused("refuses for its `lock` or segment prefix")),
        Rule(LEGACY, &[0], REFUSED, Always, OLDEST, Refused("refuses as privileged, invalid, or an interrupt")),
        Rule(VECTOR, &[], REFUSED, Always, OLDEST, Refused(MISREAD)),
        // Loads of the stack segment, and what looks so: `vpmaskmovd` stores of two registers.
        Rule(LEGACY, &[0], &[(0x8e, 0x8e)], Reg(&[2]), OLDEST, Refused("refuses, because it holds interrupts back")),
        Rule(VECTOR, &[], &[(0x8e, 0x8e)], Reg(&[2]), OLDEST, Refused(MISREAD)),
        Rule(LEGACY, &[0], &[(0x70, 0x7f), (0xe8, 0xe9), (0xeb, 0xeb)], Prefix(&[0x66]), OLDEST,
            Refused("refuses for its prefix 66")),
        Rule(LEGACY, &[1], &[(0x80, 0x8f)], Prefix(&[0x66]), OLDEST, Refused("refuses for its prefix 66")),
        Rule(VECTOR, &[], &[(0x70, 0x7f), (0xe8, 0xe9), (0xeb, 0xeb)], Always, OLDEST,
            Wrong("takes for a jump or call and does not execute")),
        Rule(VECTOR, &[], &[(0x90, 0x90)], Always, OLDEST, Wrong("takes for a no-operation and does not execute")),
        // `xchg %r8, %rax`
        Rule(LEGACY, &[0], &[(0x90, 0x90)], RexB, OLDEST, Wrong("takes for a no-operation and does not execute")),
        Rule(VECTOR, &[], &[(0x9d, 0x9d)], Always, OLDEST,
            Wrong("takes for `popf`, and leaves the program in single-step mode")),
        Rule(VECTOR, &[], &[(0xc2, 0xc3), (0xca, 0xcb)], Always, OLDEST,
            Wrong("takes for a return, and continues at the wrong address")),
        Rule(LEGACY, &[0], &[(0x9c, 0x9c)], Always, OLDEST,
            Wrong("executes in single-step mode, which the pushed flags show")),
        Rule(LEGACY, &[1], &[(0x05, 0x05), (0x07, 0x07), (0x34, 0x35)], Always, OLDEST,
            Wrong("executes elsewhere, where a child process would begin, too")),
        Rule(LEGACY, &[0], &[(0xa4, 0xa7), (0xaa, 0xaf)], Prefix(&[0xf2, 0xf3]), OLDEST,
            Wrong("single-steps, so that each of its repetitions is a hit")),
        // The kernel's decoder knows these without the prefixes only, and so does not see a memory
        // operand that is relative to the instruction.
        Rule(LEGACY, &[1], &[(0x2b, 0x2b), (0x41, 0x42), (0x44, 0x47), (0x4a, 0x4b), (0x90, 0x93), (0x98, 0x99)],
            Prefix(&[0xf2, 0xf3]), OLDEST, Wrong("reads as an instruction without memory operand")),
        // Far returns, calls and jumps; `xbegin`; 3DNow!
        Rule(LEGACY, &[0], &[(0xca, 0xcb)], Always, OLDEST, Wrong(UNKNOWN)),
        Rule(LEGACY, &[0], &[(0xff, 0xff)], Reg(&[3, 5]), OLDEST, Wrong(UNKNOWN)),
        Rule(LEGACY, &[0], &[(0xc7, 0xc7)], Next(0xf8), OLDEST, Wrong("single-steps, which aborts every transaction")),
        Rule(LEGACY, &[1], &[(0x0f, 0x0f)], Always, OLDEST, Wrong(UNKNOWN)),
        // Five-byte no-operations become calls.
        Rule(LEGACY, &[1], &[(0x1f, 0x1f)], FiveBytes, LINUX_6_18, OverwritesRedZone),
        Rule(LEGACY, &[0], &[(0x90, 0x90)], FiveBytes, LINUX_6_18, OverwritesRedZone),
    ]
};

/// What a kernel does with a breakpoint on an instruction, given by all of its bytes.
pub(crate) fn verdict(instruction: &[u8], kernel: KernelVersion) -> Verdict {
    let Some(op) = Opcode::new(instruction) else {
        return Verdict::Wrong("cannot decode");
    };
    let fitting = RULES
        .iter()
        .find(|Rule(encodings, maps, bytes, when, since, _)| {
            encodings.contains(&op.encoding)
                && (maps.is_empty() || maps.contains(&op.map))
                && bytes.iter().any(|&(a, b)| (a..=b).contains(&op.byte))
                && *since <= kernel
                && when.holds(&op)
        });
    fitting.map_or(Verdict::Right, |rule| rule.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8]) -> &'static str {
        match verdict(bytes, LINUX_6_18) {
            Verdict::Right => "right",
            Verdict::OverwritesRedZone => "red zone",
            Verdict::Refused(_) => "refused",
            Verdict::Wrong(_) => "wrong",
        }
    }

    /// As measured on Linux 6.18.
    #[test]
    fn instructions_have_the_verdict_that_was_measured() {
        let measured: [(&str, &[u8]); 49] = [
            ("right", &[0x55]),                               // push %rbp
            ("right", &[0x41, 0x57]),                         // push %r15
            ("right", &[0xe8, 0, 0, 0, 0]),                   // call
            ("right", &[0xeb, 5]),                            // jmp
            ("right", &[0x74, 5]),                            // je
            ("right", &[0x0f, 0x84, 0, 0, 0, 0]),             // je
            ("right", &[0xc3]),                               // ret
            ("right", &[0xf3, 0xc3]),                         // rep ret
            ("right", &[0x90]),                               // nop
            ("right", &[0xf3, 0x90]),                         // pause
            ("right", &[0xf3, 0x0f, 0x1e, 0xfa]),             // endbr64
            ("right", &[0x66, 0x0f, 0x70, 0xc0, 1]),          // pshufd
            ("right", &[0x66, 0x0f, 0x38, 0xf6, 0xc0]),       // adcx
            ("right", &[0x8b, 0x05, 0, 0, 0, 0]),             // mov 0(%rip), %eax
            ("right", &[0xff, 0x15, 0, 0, 0, 0]),             // call *0(%rip)
            ("right", &[0x9d]),                               // popf
            ("right", &[0xaa]),                               // stos
            ("right", &[0xc5, 0xfc, 0x57, 0xc0]),             // vxorps
            ("right", &[0xc4, 0xe3, 0x79, 0x0f, 0xc1, 3]),    // vpalignr
            ("right", &[0xc5, 0xf8, 0x92, 0xc8]),             // kmovw %eax, %k1
            ("right", &[0xc4, 0xe2, 0x78, 0xf2, 0xc0]),       // andn
            ("red zone", &[0x0f, 0x1f, 0x44, 0, 0]),          // nopl
            ("right", &[0x0f, 0x1f, 0x40, 0]),                // nopl
            ("refused", &[0x2e, 0x0f, 0x1f, 0x44, 0, 0]),     // cs nopl
            ("refused", &[0xf0, 0xff, 0x00]),                 // lock incl
            ("refused", &[0x3e, 0xff, 0xe0]),                 // notrack jmp
            ("refused", &[0x66, 0xe8, 0, 0, 0, 0]),           // data16 call
            ("refused", &[0xcc]),                             // int3
            ("refused", &[0x8e, 0xd0]),                       // mov %eax, %ss
            ("refused", &[0xc5, 0xf9, 0xef, 0xc0]),           // vpxor
            ("refused", &[0xc5, 0xf9, 0x6f, 0x07]),           // vmovdqa load
            ("refused", &[0xc5, 0xf9, 0x6e, 0xc7]),           // vmovd %edi, %xmm0
            ("wrong", &[0xc5, 0xf9, 0x70, 0xc0, 1]),          // vpshufd
            ("wrong", &[0xc5, 0xf9, 0x7e, 0x07]),             // vmovd store
            ("wrong", &[0xc5, 0xf8, 0x77]),                   // vzeroupper
            ("wrong", &[0xc5, 0xfd, 0xeb, 0xc0]),             // vpor
            ("wrong", &[0xc5, 0xfd, 0xe8, 0xc0]),             // vpsubsb
            ("wrong", &[0xc5, 0xf8, 0xc2, 0xc1, 1]),          // vcmpps
            ("wrong", &[0xc5, 0xf8, 0x90, 0xc9]),             // kmovw %k1, %k1
            ("wrong", &[0xc4, 0xe2, 0xf1, 0x9d, 0xc2]),       // vfnmadd132sd
            ("wrong", &[0x62, 0xe2, 0x7d, 0x28, 0x7c, 0xc7]), // vpbroadcastd %edi, %ymm16
            ("refused", &[0xc4, 0xe2, 0x01, 0x8e, 0x13]),     // vpmaskmovd store
            ("wrong", &[0xf3, 0x0f, 0x90, 0x05, 0, 0, 0, 0]), // repz seto
            ("wrong", &[0x49, 0x90]),                         // xchg %r8, %rax
            ("wrong", &[0x9c]),                               // pushf
            ("wrong", &[0x0f, 0x05]),                         // syscall
            ("wrong", &[0xf3, 0xa4]),                         // rep movsb
            ("wrong", &[0x8f, 0xe8, 0x78, 0xc0, 0xc0, 1]),    // XOP
            ("wrong", &[0xd5, 0x00, 0x90]),                   // REX2
        ];
        for (expected, bytes) in measured {
            assert_eq!(word(bytes), expected, "{bytes:02x?}");
        }
        assert_eq!(word(&[]), "wrong");
    }
}
