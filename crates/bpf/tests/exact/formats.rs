//! Formats with exact expectations. Interpreter and kernel print each one and format it as a
//! string, once with constant arguments and once with registers.

use std::fmt::Write;

use crate::directed::{run, script};

/// An argument.
#[derive(Clone, Copy)]
enum Arg {
    N(i64),
    S(&'static str),
}
use Arg::{N, S};

/// Format, arguments, text.
const TABLE: &[(&str, &[Arg], &str)] = &[
    // Examples from SystemTap's manual page.
    (
        "%c is %s; %x or %X or %p; %d or %u",
        &[
            N(97),
            S("alice"),
            N(0x1234_abcd),
            N(0x1234_abcd),
            N(0x1234_abcd),
            N(-1),
            N(-1),
        ],
        "a is alice; 1234abcd or 1234ABCD or 0x1234abcd; -1 or 18446744073709551615",
    ),
    ("%#o %#x %#X", &[N(1), N(2), N(3)], "01 0x2 0X3"),
    ("%#c %#c %#c", &[N(0), N(9), N(42)], "\\000 \\t *"),
    (
        "%1b%1b%1blo %1b%1brld",
        &[N(72), N(101), N(108), N(87), N(111)],
        "Hello World",
    ),
    // Flags.
    (
        "%5d|%-5d|%05d|%+d|% d",
        &[N(42); 5],
        "   42|42   |00042|+42| 42",
    ),
    (
        "%5d|%-5d|%05d|%+d|% d",
        &[N(-42); 5],
        "  -42|-42  |-0042|-42|-42",
    ),
    (
        "%i|%ld|%lld|%lu",
        &[N(1), N(2), N(3), N(-1)],
        "1|2|3|18446744073709551615",
    ),
    (
        "%8x|%-8x|%08x|%#8x|%#08x",
        &[N(255); 5],
        "      ff|ff      |000000ff|    0xff|0x0000ff",
    ),
    (
        "%o|%5o|%-5o|%05o|%#5o",
        &[N(8); 5],
        "10|   10|10   |00010|  010",
    ),
    (
        "%.3d|%6.3d|%-6.3d|%.0d|%.d",
        &[N(7), N(7), N(7), N(0), N(0)],
        "007|   007|007   |0|0",
    ),
    (
        "%p|%8p|%-8p|%p",
        &[N(16), N(16), N(16), N(0)],
        "0x10|    0x10|0x10    |0x0",
    ),
    (
        "%d|%x|%o",
        &[N(i64::MIN); 3],
        "-9223372036854775808|8000000000000000|1000000000000000000000",
    ),
    (
        "%d|%u|%X",
        &[N(i64::MAX); 3],
        "9223372036854775807|9223372036854775807|7FFFFFFFFFFFFFFF",
    ),
    // Widths and precisions from arguments.
    (
        "%*d|%-*d|%*d",
        &[N(4), N(7), N(4), N(7), N(-4), N(7)],
        "   7|7   |7   ",
    ),
    ("%.*d|%*.*d", &[N(3), N(7), N(6), N(3), N(7)], "007|   007"),
    (
        "%.*s|%.*s|%*s",
        &[N(2), S("abc"), N(-2), S("abc"), N(5), S("abc")],
        "ab|abc|  abc",
    ),
    // Strings and characters.
    (
        "%s|%5s|%-5s|%.2s|%5.2s|%-5.2s",
        &[S("abc"); 6],
        "abc|  abc|abc  |ab|   ab|ab   ",
    ),
    ("%c|%3c|%-3c", &[N(65); 3], "A|  A|A  "),
    (
        "%#c|%#c|%#c|%#4c|%#-4c|",
        &[N(39), N(34), N(92), N(10), N(200)],
        "\\'|\"|\\\\|  \\n|\\310|",
    ),
    (
        "%#s|%#10s|%#-10s|",
        &[S("a\"b\n"), S("\t\x01"), S("'\\")],
        "a\\\"b\\n|    \\t\\001|'\\\\       |",
    ),
    ("100%%|%%%d", &[N(5)], "100%|%5"),
    ("%2b%4b", &[N(0x4241), N(0x4645_4443)], "ABCDEF"),
    (
        "%.1b%2.2b%.4b",
        &[N(65), N(0x4342), N(0x4746_4544)],
        "ABCDEFG",
    ),
    ("%*.*b%.*b", &[N(2), N(2), N(0x4241), N(1), N(67)], "ABC"),
    // A negative precision is none.
    ("%*.*b%*b", &[N(2), N(-1), N(0x4241), N(1), N(67)], "ABC"),
    // Cases where C has other rules.
    (
        "%#o|%#.3o|%#6o|%#06o|%#-6o|",
        &[N(0), N(0), N(8), N(8), N(8)],
        "00|0000|   010|000010|010   |",
    ),
    (
        "%08.3d|%-08.3d|%0*.*d|%.0x",
        &[N(-5), N(5), N(6), N(2), N(7), N(0)],
        "-0000005|005     |000007|0",
    ),
    // Invalid memory, or too much of it.
    ("%.4m", &[N(16)], "!read fault at 0x10"),
    ("%d %#.4M", &[N(1), N(17)], "!read fault at 0x11"),
    (
        "%.*m",
        &[N(5000), N(16)],
        "!5000 is too many bytes for a memory dump",
    ),
    (
        "%5.4097M",
        &[N(1 << 40)],
        "!4097 is too many bytes for a memory dump",
    ),
];

/// A string literal in the reader's syntax.
fn quoted(text: &str) -> String {
    let byte = |b: u8| match b {
        b' '..=b'~' if b != b'"' && b != b'\\' => char::from(b).to_string(),
        _ => format!("\\x{b:02x}"),
    };
    text.bytes().map(byte).collect()
}

/// The script for a row. Registers get their values from the event.
fn row((format, args, _): &(&str, &[Arg], &str), known: bool, text: bool) -> String {
    let mut head = format!("fmt f0 \"{}\"\nfmt f1 \"%s\"\n", quoted(format));
    let (mut regs, mut code) = (", r2: str136".to_owned(), String::new());
    let (mut operands, mut strings) = (Vec::new(), 0);
    for (i, arg) in args.iter().enumerate() {
        let r = i + 3;
        let (value, ty, set) = match arg {
            N(n) => (n.to_string(), "long", format!("add r0, {n}")),
            S(s) => {
                let _ = writeln!(head, "str s{strings} \"{}\"", quoted(s));
                let name = format!("s{strings}");
                strings += 1;
                (
                    name.clone(),
                    "str24",
                    format!("intr substr({name}, r0, 99)"),
                )
            }
        };
        if known {
            operands.push(value);
            continue;
        }
        operands.push(format!("r{r}"));
        let _ = write!(regs, ", r{r}: {ty}");
        let _ = writeln!(code, "    r{r} = {set}");
    }
    let operands = operands.join(", ");
    code += &match text {
        true => format!("    r2 = sprint f0({operands})\n    print out f1(r2)"),
        false => format!("    print out f0({operands})"),
    };
    script(&head, &regs, &code)
}

#[test]
fn rows_of_the_format_table_print_as_written() {
    for line in TABLE {
        for (known, text) in [(true, false), (true, true), (false, false), (false, true)] {
            let outcome = run(&row(line, known, text), &[[0, 0]]);
            let errors: Vec<&str> = outcome.errors.iter().map(|e| &*e.0).collect();
            let (out, want) = match line.2.strip_prefix('!') {
                Some(error) => ("", vec![error]),
                None => (line.2, vec![]),
            };
            assert_eq!(
                (&*outcome.out, errors),
                (out, want),
                "{} {known} {text}",
                line.0
            );
        }
    }
}
