//! Each invariant of the verifier has a module that violates it; each error of the reader names its
//! location; each fault of the interpreter has code that causes it.

use std::collections::BTreeSet;

use spile_lir::func::{BlockId, JumpTarget, LirTerm, MemoryOperand, Value};
use spile_lir::helpers::Helper;
use spile_lir::interp::{Host, Machine, Memory, NoHost, RegionKind, Trap};
use spile_lir::reader::read;
use spile_lir::verify::{HostLimits, Invariant, verify};

/// The limits of a host.
const LIMITS: HostLimits = HostLimits {
    stack: 512,
    params: 5,
    iterations: 1 << 23,
};

/// A host that has only these limits.
struct LimitedHost;

impl Host for LimitedHost {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        NoHost.helper(memory, helper, args)
    }

    fn location(&mut self, _: &MemoryOperand) -> Option<u64> {
        None
    }

    fn limits(&self) -> HostLimits {
        LIMITS
    }
}

/// Number of the violations that only exceed [`LIMITS`].
const BEYOND_LIMITS: usize = 4;

/// Texts that the reader takes and the verifier refuses, with a part of the message.
const VIOLATIONS: &[(Invariant, &str, &str)] = {
    use Invariant::*;
    &[
        (
            Names,
            "a second `f`",
            "func @f() {\na:\n ret 0\n}\nfunc @f() {\na:\n ret 0\n}",
        ),
        (
            Names,
            "a second `f`",
            "extern @f(0)\nfunc @f() {\na:\n ret 0\n}",
        ),
        (Entry, "more than 5", "extern @f(6)"),
        (Names, "a second `d`", "data @d \"x\" data @d \"y\""),
        (
            Ids,
            "no such slot",
            "func @f() {\na:\n %x = slot 0 + 0\n ret %x\n}",
        ),
        (
            Entry,
            "a jump to the first block",
            "func @f() {\na:\n jump a\n}",
        ),
        (
            Entry,
            "more than 5",
            "func @f(%1, %2, %3, %4, %5, %6) {\na:\n ret 0\n}",
        ),
        (
            Reachable,
            "never reached",
            "func @f() {\na:\n ret 0\nb:\n ret 0\n}",
        ),
        (
            Definition,
            "a second definition",
            "func @f() {\na:\n %x = const 0\n %x = const 1\n ret %x\n}",
        ),
        (Definition, "no definition", "func @f() {\na:\n ret %x\n}"),
        (
            Dominance,
            "not defined on all paths",
            "func @f(%a) {\na:\n if eq %a, 0 then b else c\nb:\n %x = const 1\n jump c\nc:\n ret %x\n}",
        ),
        (
            Dominance,
            "not defined on all paths",
            "func @f() {\na:\n %x = add %y, 1\n %y = const 1\n ret %x\n}",
        ),
        // The edge of a bound leaves the header in front of its instructions.
        (
            Dominance,
            "not defined on all paths",
            "func @f() {\na:\n jump b\nb: loop 2 else c(%x)\n %x = const 1\n jump b\nc(%y):\n ret %y\n}",
        ),
        (
            Arguments,
            "0 arguments for the 1",
            "func @f() {\na:\n jump b\nb(%x):\n ret %x\n}",
        ),
        (
            Shapes,
            "one byte",
            "func @f(%a) {\na:\n %x = swap u8 %a\n ret %x\n}",
        ),
        (
            Shapes,
            "has no sign",
            "func @f(%a) {\na:\n %x = load s64 %a + 0\n ret %x\n}",
        ),
        (
            Shapes,
            "old value",
            "func @f(%a) {\na:\n fetch_add 64 %a + 0, %a\n ret 0\n}",
        ),
        (
            Shapes,
            "old value",
            "func @f(%a) {\na:\n %x = atomic_or 32 %a + 0, %a\n ret 0\n}",
        ),
        (
            Slots,
            "a slot of 12 bytes",
            "func @f() stack 12 {\na:\n ret 0\n}",
        ),
        (
            Slots,
            "520 in all",
            "func @f() stack 512, 8 {\na:\n ret 0\n}",
        ),
        (
            Slots,
            "behind the slot",
            "func @f() stack 8 {\na:\n %x = slot 0 + 8\n ret 0\n}",
        ),
        (
            Data,
            "no such data",
            "func @f() {\na:\n %x = data @d + 0\n ret 0\n}",
        ),
        (
            Data,
            "behind the end",
            "data @d \"ab\" func @f() {\na:\n %x = data @d + 2\n ret 0\n}",
        ),
        (
            Helpers,
            "another number",
            "func @f(%a) {\na:\n %x = helper time_ns(%a)\n ret 0\n}",
        ),
        (
            Calls,
            "no such function",
            "func @f() {\na:\n %x = call @g()\n ret 0\n}",
        ),
        (
            Calls,
            "no such function",
            "func @f() {\na:\n %x = func @g\n ret 0\n}",
        ),
        (
            Calls,
            "another number",
            "func @f(%a) {\na:\n %x = call @g()\n ret 0\n}\nfunc @g(%a) {\na:\n ret 0\n}",
        ),
        (
            Calls,
            "another number",
            "extern @g(2)\nfunc @f(%a) {\na:\n %x = call @g(%a)\n ret 0\n}",
        ),
        (
            Calls,
            "no such function",
            "extern @g(2)\nfunc @f(%a) {\na:\n %x = repeat %a, @g, %a\n ret 0\n}",
        ),
        (
            Calls,
            "two parameters",
            "func @f(%a) {\na:\n %x = repeat %a, @g, %a\n ret 0\n}\nfunc @g(%a) {\na:\n ret 0\n}",
        ),
        (
            Recursion,
            "@f: the function can call itself",
            "func @g(%a) {\na:\n %x = call @f(%a)\n ret 0\n}\nfunc @f(%a) {\na:\n %x = call @g(%a)\n ret 0\n}",
        ),
        (
            Bounds,
            "without a bound",
            "func @f() {\na:\n jump b\nb:\n jump b\n}",
        ),
        (
            Bounds,
            "without a jump back",
            "func @f() {\na:\n jump b\nb: loop 3 else c\n ret 0\nc:\n ret 1\n}",
        ),
        (
            Bounds,
            "not from 1",
            "func @f() {\na:\n jump b\nb: loop 0 else c\n jump b\nc:\n ret 1\n}",
        ),
        (
            Bounds,
            "not from 1",
            "func @f() {\na:\n jump b\nb: loop 8388609 else c\n jump b\nc:\n ret 1\n}",
        ),
        (
            Bounds,
            "does not leave",
            "func @f(%x) {\na:\n jump b\nb: loop 3 else c\n if eq %x, 0 then c else d\nc:\n jump b\nd:\n ret 0\n}",
        ),
        (
            Loops,
            "into the middle",
            "func @f(%x) {\na:\n if eq %x, 0 then b else c\nb:\n jump c\nc:\n if eq %x, 1 then b else d\nd:\n ret 0\n}",
        ),
    ]
};

#[test]
fn each_invariant_can_be_violated() {
    let mut seen = BTreeSet::new();
    for (invariant, message, text) in VIOLATIONS {
        let module = read(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let violation = verify(&module, &LIMITS).expect_err(text);
        assert_eq!(violation.invariant, *invariant, "{violation}\n{text}");
        assert!(
            violation.to_string().contains(message),
            "{violation}\n{text}"
        );
        seen.insert(*invariant);
    }
    // Another host takes what only exceeds the limits.
    let beyond = VIOLATIONS.iter().filter(|(_, _, text)| {
        let module = read(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        verify(&module, &HostLimits::NONE).is_ok()
    });
    assert_eq!(beyond.count(), BEYOND_LIMITS);
    // The documentation's table and the enum have the same entries.
    let source = include_str!("../src/verify.rs");
    let rows = source.lines().filter_map(|l| l.strip_prefix("//! | `"));
    let documented: BTreeSet<_> = rows.filter_map(|l| l.split('`').next()).collect();
    let tested: Vec<String> = seen.iter().map(|i| format!("{i:?}")).collect();
    assert_eq!(documented, tested.iter().map(|t| &**t).collect());
    assert!(source.contains(&format!("    {},\n}}", tested.last().expect("some"))));
}

/// Violations that the text form cannot express.
#[test]
fn ids_that_do_not_exist_are_refused() {
    let text = "func @f(%a) {\na:\n %x = add %a, 1\n ret %x\n}";
    let good = read(text).expect("valid");
    verify(&good, &LIMITS).expect("valid");
    let mut values = good.clone();
    values.funcs[0].blocks[0].term = LirTerm::Ret(Value(7).into());
    let mut blocks = good.clone();
    blocks.funcs[0].blocks[0].term = LirTerm::Jump(JumpTarget {
        block: BlockId(3),
        args: Vec::new(),
    });
    let mut empty = good.clone();
    empty.funcs[0].blocks.clear();
    let mut name = good;
    name.funcs[0].values[0] = "a b".into();
    let bad = [
        (values, Invariant::Ids),
        (blocks, Invariant::Ids),
        (empty, Invariant::Entry),
        (name, Invariant::Names),
    ];
    for (module, invariant) in bad {
        assert_eq!(
            verify(&module, &LIMITS).expect_err("bad").invariant,
            invariant
        );
        // The printer takes it all the same.
        assert!(module.to_string().contains("@f"));
    }
}

#[test]
fn errors_of_the_reader_name_their_location() {
    let rows = [
        ("fun", "1:1: expected `data`, `extern` or `func`"),
        ("extern @g(x)", "1:11: not a number of parameters"),
        (
            "data @d \"a\\q\"",
            "1:11: expected a character, an escape or `\"`",
        ),
        (
            "data @d \"a",
            "1:11: expected a character, an escape or `\"`",
        ),
        ("data @d \"\\xg0\"", "1:10: expected two hexadecimal digits"),
        (
            "data @d \"\\{4}\"",
            "1:12: a repetition of nothing, or too long",
        ),
        (
            "data @d \"a\\{1048577}\"",
            "1:13: a repetition of nothing, or too long",
        ),
        ("func @f() {\n}", "2:2: a function needs a block"),
        ("func @f() {\na:\n jump b\n}", "3:7: no block b"),
        (
            "func @f() {\na:\n ret 0\na:\n ret 0\n}",
            "4:1: a second block a",
        ),
        (
            "func @f() {\na:\n %x = hop %x\n}",
            "3:7: no instruction `hop` gives a value",
        ),
        (
            "func @f() {\na:\n hop %x\n}",
            "3:2: expected an instruction instead of `hop`",
        ),
        (
            "func @f() {\na:\n %x = const 18446744073709551616\n}",
            "3:13: not a number of 64 bits",
        ),
        (
            "func @f() {\na:\n %x = add %x, 4294967296\n}",
            "3:15: not a value or a number of 32 bits",
        ),
        (
            "func @f() {\na:\n %x = load u9 %x + 0\n}",
            "3:12: expected a size",
        ),
        (
            "func @f() {\na:\n %x = load u8 %x + 40000\n}",
            "3:18: not a displacement of 16 bits",
        ),
        (
            "func @f() {\na:\n if lo %x, 0 then a else a\n}",
            "3:5: expected a condition",
        ),
        (
            "func @f(%a) {\na(%b):\n ret 0\n}",
            "2:1: the first block has the function's parameters",
        ),
        ("func @f( {", "1:10: expected `%`"),
    ];
    for (text, message) in rows {
        let error = read(text).expect_err(text);
        assert_eq!(error.to_string(), message, "{text}");
    }
}

fn fault(text: &str, bytes: usize) -> Trap {
    let module = read(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify(&module, &LIMITS).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut machine = Machine::new(&module, 100);
    let at = machine.memory.add(vec![0; bytes], RegionKind::Memory);
    machine.run("f", &[at], &mut LimitedHost).expect_err(text)
}

#[test]
fn each_access_is_checked() {
    let body =
        |code: &str| format!("data @d \"abcd\"\nfunc @f(%a) stack 16 {{\na:\n{code}\n ret 0\n}}");
    let run = |code: &str| fault(&body(code), 8);
    assert!(matches!(run("%x = load u64 %a + 1"), Trap::Outside(_, 8)));
    assert!(matches!(run("%x = load u8 %a - 1"), Trap::Outside(_, 1)));
    assert!(matches!(run("store u16 %a + 7, 0"), Trap::Outside(_, 2)));
    assert!(matches!(
        run("%x = sub %a, %a\n store u8 %x + 0, 0"),
        Trap::Outside(0, 1)
    ));
    assert!(matches!(
        run("%x = data @d + 3\n store u8 %x + 0, 0"),
        Trap::ReadOnly(_)
    ));
    assert!(matches!(
        run("%x = slot 0 + 8\n %y = load u8 %x + 0"),
        Trap::Unwritten(_)
    ));
    assert!(matches!(
        run("%x = slot 0 + 4\n store u64 %x + 0, 0"),
        Trap::Unaligned(_)
    ));
    assert!(matches!(
        run("atomic_add 32 %a + 2, %a"),
        Trap::Unaligned(_)
    ));
    assert!(matches!(
        run("%x = const 9\n %y = bound %x, 8"),
        Trap::Bound(9, 8)
    ));
    assert!(matches!(run("%x = cpu 8"), Trap::Missing(_)));
    assert!(matches!(run("%x = helper time_ns()"), Trap::Helper(_)));
    let declared = "extern @g(1)\nfunc @f(%a) {\na:\n %x = call @g(%a)\n ret 0\n}";
    assert!(matches!(fault(declared, 8), Trap::Missing(_)));
    let endless = "func @f(%a) {\na:\n jump b\nb: loop 1000 else c\n jump b\nc:\n ret 0\n}";
    assert_eq!(fault(endless, 8), Trap::Steps);
    let times = u64::from(LIMITS.iterations) + 1;
    let repeat = format!(
        "func @f(%a) {{\na:\n %n = const {times}\n %x = repeat %n, @g, %a\n ret 0\n}}\nfunc @g(%i, %c) {{\na:\n ret 0\n}}"
    );
    assert_eq!(fault(&repeat, 8), Trap::Repeat(times));
}

/// A stack slot is gone when its function returns.
#[test]
fn slots_end_with_their_function() {
    let text = "func @f(%a) {\na:\n %x = call @g()\n %y = load u64 %x + 0\n ret %y\n}\n\
                func @g() stack 8 {\na:\n %x = slot 0 + 0\n store u64 %x + 0, 1\n ret %x\n}";
    assert!(matches!(fault(text, 8), Trap::Outside(_, 8)));
}

/// The bound counts from each entry to its loop; `repeat` stops at the first result that is not 0.
#[test]
fn loops_count() {
    let text = "func @f(%a) stack 8 {\n\
        a:\n %s = slot 0 + 0\n store u64 %s + 0, 0\n jump outer\n\
        outer: loop 3 else end\n jump inner\n\
        inner: loop 5 else outer\n %n = load u64 %s + 0\n %n1 = add %n, 1\n store u64 %s + 0, %n1\n jump inner\n\
        end:\n %all = load u64 %s + 0\n %ten = const 10\n %calls = repeat %ten, @g, %s\n \
        %sum = mul %all, 100\n %r = add %sum, %calls\n ret %r\n}\n\
        func @g(%i, %s) {\na:\n if eq %i, 6 then b else c\nb:\n ret 9\nc:\n ret 0\n}";
    let module = read(text).unwrap_or_else(|e| panic!("{e}"));
    verify(&module, &LIMITS).unwrap_or_else(|e| panic!("{e}"));
    let result = Machine::new(&module, 10_000).run("f", &[0], &mut NoHost);
    assert_eq!(result, Ok(3 * 5 * 100 + 7));
}
