//! Cases with exact expectations, each of which also has to agree with the interpreter.

use std::fmt::Write;

use spile_bpf::target::Target;
use spile_ir::interp::{Cell, Value};
use spile_ir::stats::Stat;
use spile_ir::{Program, reader};
use spile_layout::GlobalLocation;

use crate::machine::{Contents, HostKind, Kernel, Outcome, options};
use crate::random::{comparable, difference};
use crate::world::World;

/// Runs a script once for each argument pair, on the CPUs in turn.
pub(crate) fn run(text: &str, args: &[[i64; 2]]) -> Outcome {
    run_with(text, args, &options())
}

fn run_with(text: &str, args: &[[i64; 2]], options: &Target) -> Outcome {
    let [kernel, process] = HostKind::ALL.map(|host| run_in(host, text, args, options));
    assert_eq!(kernel, process);
    kernel
}

fn run_in(host: HostKind, text: &str, args: &[[i64; 2]], options: &Target) -> Outcome {
    let program = reader::read(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut kernel = host.load_with(&program, options);
    let mut world = World::new(&program);
    for (n, args) in args.iter().enumerate() {
        let args = args.map(|a| a as u64);
        host.go_to(n as u64);
        kernel.run(&args);
        world.run(&args);
    }
    let got = comparable(&program, kernel.outcome());
    let want = comparable(&program, world.outcome());
    let same = got.out == want.out && got.errors == want.errors && got.globals == want.globals;
    assert!(
        same,
        "{host:?}: {}",
        difference(&got, &want, kernel.errors())
    );
    got
}

pub(crate) fn load(program: &Program) -> Kernel<'_> {
    load_with(program, &options())
}

pub(crate) fn load_with<'p>(program: &'p Program, options: &Target) -> Kernel<'p> {
    Kernel::with(program, options).unwrap_or_else(|why| panic!("{why}"))
}

/// A script of one handler, with the event's arguments in r0 and r1.
pub(crate) fn script(head: &str, regs: &str, code: &str) -> String {
    format!(
        "limits maxerrors=1000000\nsite @0 \"\"\nsite @1 \"x\"\n{head}\n\
         handler \"x\" points 1 tracepoint(\"x\") @0 {{\n  regs r0: long, r1: long{regs}\n  b0:\n    \
         r0 = intr ctx_arg(0)\n    r1 = intr ctx_arg(1)\n{code}\n    ret\n}}\n"
    )
}

pub(crate) fn stat(outcome: &Outcome, g: usize) -> &Stat {
    match &outcome.globals[g] {
        Some(Contents::One(Cell::Stats(stat))) => stat,
        other => panic!("{other:?}"),
    }
}

fn elements(outcome: &Outcome, g: usize) -> Vec<(i64, i64)> {
    let Some(Contents::Elements(all)) = &outcome.globals[g] else {
        panic!("{:?}", outcome.globals[g])
    };
    all.iter()
        .map(|(k, c)| (k[0].as_long(), c.value().as_long()))
        .collect()
}

const VALUES: [i64; 12] = [
    0,
    1,
    -1,
    7,
    8,
    -8,
    i64::MIN,
    i64::MAX,
    i64::MIN + 1,
    1 << 32,
    -(1 << 32) - 1,
    0xffff_ffff,
];

fn values() -> Vec<[i64; 2]> {
    VALUES.map(|v| [v, 0]).to_vec()
}

#[test]
fn histograms_equal_the_interpreter_s() {
    for storage in ["percpu double", "percpu", "shared lock"] {
        let text = script(
            &format!(
                "global g0 \"a\" stats(hist_log) {storage} @0\n\
                 global g1 \"b\" stats(hist_linear -8 8 4) {storage} @0\n\
                 global g2 \"c\" stats(hist_linear -9223372036854775808 -9223372036854775800 4) {storage} @0"
            ),
            "",
            "stat_add g0[], r0\n    stat_add g1[], r0\n    stat_add g2[], r0",
        );
        let outcome = run(&text, &values());
        let log = &stat(&outcome, 0).buckets;
        for (bucket, n) in [
            (0, 1),
            (1, 1),
            (31, 1),
            (60, 1),
            (63, 1),
            (64, 1),
            (65, 1),
            (67, 1),
            (68, 1),
            (96, 1),
            (97, 1),
            (127, 1),
        ] {
            assert_eq!(log[bucket], n, "bucket {bucket}");
        }
        // Below -8; -8..-4; -4..0; 0..4; 4..8; 8..12; more.
        assert_eq!(
            stat(&outcome, 1).buckets,
            [3, 1, 1, 2, 1, 1, 3],
            "{storage}"
        );
        assert_eq!(stat(&outcome, 2).buckets, [0, 2, 0, 0, 10], "{storage}");
    }
}

#[test]
fn sums_of_squares_and_extremes_are_exact() {
    for storage in ["percpu double", "shared lock"] {
        let text = script(
            &format!("global g0 \"a\" stats(sum, min, max, variance) {storage} @0"),
            "",
            "stat_add g0[], r0",
        );
        for part in [
            &VALUES[..],
            &[-5, -3, -9],
            &[i64::MIN; 4],
            &[i64::MIN, i64::MAX, -1],
        ] {
            let args: Vec<_> = part.iter().map(|v| [*v, 0]).collect();
            let outcome = run(&text, &args);
            let squares = part.iter().map(|v| u128::from(v.unsigned_abs()).pow(2));
            let s = stat(&outcome, 0);
            assert_eq!(s.sumsq, squares.fold(0, u128::wrapping_add));
            assert_eq!(Some(&s.min), part.iter().min());
            assert_eq!(Some(&s.max), part.iter().max());
            let sum = part.iter().fold(0, |a: i64, b| a.wrapping_add(*b));
            assert_eq!(s.sum as i64, sum);
        }
    }
}

#[test]
fn wrapping_arrays_lose_the_oldest() {
    let text = script(
        "global g0 \"a\" [long] long max 10 wrap shared lock @0",
        "",
        "aset g0[r0], r1",
    );
    let args: Vec<_> = (0..1000).map(|n| [n, n * 2]).collect();
    let outcome = run(&text, &args);
    let want: Vec<_> = (990..1000).map(|n| (n, n * 2)).collect();
    assert_eq!(elements(&outcome, 0), want);
    assert!(outcome.errors.is_empty());

    // A large array evicts several elements at once, the oldest ones.
    let program = reader::read(&text.replace("max 10", "max 640")).expect("reads");
    let mut kernel = load(&program);
    (0..5000).for_each(|n| kernel.run(&[n, n]));
    let outcome = kernel.outcome();
    let left = elements(&outcome, 0);
    assert!((629..=640).contains(&left.len()), "{}", left.len());
    let first = 5000 - left.len() as i64;
    assert!(left.iter().map(|e| e.0).eq(first..5000), "{left:?}");
    assert!(outcome.errors.is_empty());
}

#[test]
fn arrays_are_full_at_their_size() {
    for (storage, kind, code) in [
        ("shared", "long", "aadd g0[r0], 1 @1"),
        ("shared lock", "long", "aset g0[r0], 1 @1"),
        ("percpu", "long", "aadd g0[r0], 1 @1"),
        ("percpu double", "stats(sum)", "stat_add g0[r0], 1 @1"),
    ] {
        let head = format!("global g0 \"a\" [long] {kind} max 2048 {storage} @0");
        let mut args: Vec<_> = (0..2048).map(|n| [n * 3, 0]).collect();
        // Existing keys continue to work on every CPU; new ones fail.
        args.extend((0..8).map(|n| [n % 2 * 3, 0]));
        args.extend([[1, 0], [2, 0], [0, 0], [1, 0]]);
        let outcome = run(&script(&head, "", code), &args);
        assert_eq!(outcome.errors.len(), 3, "{storage}");
        assert_eq!(elements(&outcome, 0).len(), 2048, "{storage}");
        let message = match kind {
            "long" => "Array overflow, check MAXMAPENTRIES",
            _ => "aggregation overflow in a",
        };
        assert!(
            outcome.errors.iter().all(|e| e.0 == message),
            "{:?}",
            outcome.errors
        );
    }
}

#[test]
fn keys_beyond_the_cache_slots_are_counted() {
    for double in ["", " double"] {
        let head = format!("global g0 \"a\" [long] long max 5000 percpu{double} @0");
        let args: Vec<_> = (0..24_000).map(|n| [n % 4000, n]).collect();
        let outcome = run(&script(&head, "", "aadd g0[r0], r1"), &args);
        let want = (0..4000).map(|k| (k, (0..6).map(|i| k + i * 4000).sum()));
        assert!(elements(&outcome, 0).into_iter().eq(want));
    }
}

/// Co-located elements with more keys than the cache has slots: in the cache and in the map.
#[test]
fn colocated_elements_are_counted_in_cache_and_map() {
    let add = "stat_add g0[r2, r3], r1
         r4 = and r1, 1
         branch r4, b1, b2
       b1:
         stat_add g1[r2, r3], r1
         stat_add g2[r2, r3], r0
         jump b2
       b2:
         r4 = and r1, 2
         branch r4, b3, b4
       b3:
         stat_add g2[r2, r3], -5
         jump b4
       b4:";
    let args: Vec<_> = (0..9_000).map(|n| [n % 3000, n * 7 - 1]).collect();
    for (double, share) in [
        ("", None),
        (" double", Some(true)),
        ("", Some(true)),
        (" double", Some(false)),
    ] {
        let array = |g, value| {
            format!("global g{g} \"a{g}\" [str16, long] {value} max 5000 percpu{double} @0\n")
        };
        let head = format!(
            "fmt f0 \"%d\"\n{}{}{}",
            array(0, "stats(sum, min, max)"),
            array(1, "stats(sum, variance)"),
            array(2, "stats(max)")
        );
        let key = "r2 = sprint f0(r0)\n r3 = div r0, 7\n";
        let text = script(
            &head,
            ", r2: str16, r3: long, r4: long",
            &format!("{key}{add}"),
        );
        let options = Target { share, ..options() };
        let program = reader::read(&text).unwrap_or_else(|e| panic!("{e}"));
        let object = spile_bpf::compile(&program, &options).unwrap();
        assert_eq!(object.layout.globals.iter().flatten().filter(|g| {
            matches!(&g.location, GlobalLocation::PerCpuArray(array) if array.colocated.host.is_some() && array.colocated.size == 80)
        }).count(), 2);
        let outcome = run_with(&text, &args, &options);
        let count = |g: usize| match &outcome.globals[g] {
            Some(Contents::Elements(all)) => all.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!([0, 1, 2].map(count), [3000, 1500, 2250]);
    }
}

/// The first field creates a thread record, and the last one deletes it.
#[test]
fn thread_records_come_and_go() {
    let code = "r2 = intr tid()
         branch r2, b1, b9
       b1:
         r3 = aget g0[r2]
         branch r3, b2, b3
       b2:
         adel g0[r2]
         r4 = aadd g1[r2], r0
         r4 = aget g1[r2]
         print out f0(r4)
         jump b4
       b3:
         aset g0[r2], r1
         jump b4
       b4:
         r3 = ahas g1[r2]
         r4 = aget g0[r2]
         print out f0(r3)
         print out f0(r4)
         branch r4, b5, b6
       b5:
         adel g1[r2]
         adel g0[r2]
         r4 = ahas g0[r2]
         print out f0(r4)
         branch r0, b6, b7
       b6:
         aset g1[r2], r1
         r4 = aget g1[r2]
         print out f0(r4)
         jump b7
       b7:
         r4 = aget g1[r2]
         print out f0(r4)
         r4 = eq r0, 2
         branch r4, b8, b9
       b8:
         adel g0[r2]
         adel g1[r2]
         jump b9
       b9:";
    let array = |g| format!("global g{g} \"a{g}\" [long] long max 100 shared @0\n");
    let head = format!("fmt f0 \"%d \"\n{}{}", array(0), array(1));
    let text = script(&head, ", r2: long, r3: long, r4: long", code);
    let args: Vec<_> = (0..201).map(|n| [n % 3, n * 7 % 5 - 1]).collect();
    for share in [Some(false), Some(true)] {
        let options = Target { share, ..options() };
        let program = reader::read(&text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(spile_ir::storage::thread_records(&program).len(), 2);
        run_with(&text, &args, &options);
    }
}

/// Strings of 4,095 bytes, many live at once: the frame exceeds the range of displacements.
#[test]
fn frames_beyond_the_displacement_range_work() {
    let count = 16;
    let mut regs = String::new();
    let mut code = String::new();
    for r in 2..2 + count {
        let _ = write!(regs, ", r{r}: str4096");
    }
    for r in 2..2 + count {
        let _ = writeln!(
            code,
            "    r{r} = sprint f0(r0, r{})",
            if r == 2 { 2 } else { r - 1 }
        );
    }
    let _ = write!(regs, ", r{}: long", 2 + count);
    let len = 2 + count;
    for r in 2..2 + count {
        let _ = writeln!(
            code,
            "    r{len} = intr strlen(r{r})\n    print out f1(r{len})"
        );
        let _ = writeln!(code, "    print out f2(r{r})");
    }
    // The verifier allows 8,192 jumps in a row; comparing eight bytes takes two.
    for r in 3..6 {
        let _ = writeln!(
            code,
            "    r{len} = str_lt r{r}, r{}\n    print out f1(r{len})",
            r - 1
        );
    }
    let head = "fmt f0 \"%d,%s\"\nfmt f1 \"%d \"\nfmt f2 \"%s\\n\"";
    let text = script(head, &regs, &code).replace("maxerrors", "maxstringlen=4095 maxerrors");
    let outcome = run(&text, &[[7, 0], [-123_456_789, 0]]);
    assert!(outcome.out.starts_with("2 7,\n4 7,7,\n"), "{}", outcome.out);
}

/// More live numbers than machine registers and stack slots.
#[test]
fn live_numbers_beyond_the_registers_are_spilled() {
    let count = 200;
    let (mut regs, mut code) = (String::new(), String::new());
    for r in 2..count {
        let _ = write!(regs, ", r{r}: long");
        let _ = writeln!(
            code,
            "    r{r} = mul r{}, {}\n    r{r} = add r{r}, r0",
            r - 1,
            r + 1
        );
    }
    for r in 2..count {
        let _ = writeln!(code, "    r1 = xor r1, r{r}\n    print out f0(r{r}, r1)");
    }
    let text = script("fmt f0 \"%d %d\\n\"", &regs, &code);
    let outcome = run(&text, &[[7, 3], [-1, 5]]);
    assert!(outcome.out.starts_with("16 19\n71 84\n"), "{}", outcome.out);
}

/// Handlers run in the script's order, even after one failed.
#[test]
fn handlers_of_one_event_run_in_the_script_s_order() {
    for count in [2, 5, 64] {
        let mut text = "limits maxerrors=1000000\nsite @0 \"\"\nfmt f0 \"%d \"\n\
                        global g0 \"n\" long shared lock @0\n"
            .to_string();
        for h in 0..count {
            let _ = write!(
                text,
                "handler \"h{h}\" points 1 tracepoint(\"x\") @0 {{\n  regs r0: long, r1: long\n  b0:\n    \
                 r0 = intr ctx_arg(0)\n    r1 = gload g0\n    r1 = add r1, 1\n    gstore g0, r1\n    \
                 r0 = sub r0, {h}\n    print out f0({h})\n    r1 = div r1, r0\n    ret\n}}\n"
            );
        }
        let outcome = run(&text, &[[0, 0], [1, 0], [1000, 0]]);
        let once: String = (0..count).map(|h| format!("{h} ")).collect();
        assert_eq!(outcome.out, once.repeat(3));
        assert_eq!(outcome.errors.len(), 2);
        let Some(Contents::One(cell)) = &outcome.globals[0] else {
            panic!("no value")
        };
        assert_eq!(cell.value(), Value::Long(3 * count));
    }
}

#[test]
fn arithmetic_at_the_edges_equals_the_interpreter_s() {
    let mut code = String::new();
    for op in ["div", "mod", "shl", "shr", "ushr", "mul", "sub", "lt", "ge"] {
        let _ = writeln!(code, "    r2 = {op} r0, r1\n    print out f0(r2)");
        let _ = writeln!(code, "    r2 = {op} r0, -3\n    print out f0(r2)");
        let _ = writeln!(
            code,
            "    r2 = {op} -9223372036854775808, r1\n    print out f0(r2)"
        );
    }
    let text = script("fmt f0 \"%d \"", ", r2: long", &code);
    let mut args = Vec::new();
    for a in VALUES {
        for b in [1, -1, 3, -3, 63, 64, 65, -64, i64::MIN, i64::MAX] {
            args.push([a, b]);
        }
    }
    let outcome = run(&text, &args);
    assert!(outcome.errors.is_empty());
    let min = "-9223372036854775808";
    let text = script(
        "fmt f0 \"%d \"",
        ", r2: long",
        "    r2 = div r0, r1\n    print out f0(r2)\n    r2 = mod r0, r1\n    print out f0(r2)",
    );
    let outcome = run(&text, &[[i64::MIN, -1], [-7, 2], [7, -2], [1, 0]]);
    assert_eq!(outcome.out, format!("{min} 0 -3 -1 -3 1 "));
    assert_eq!(
        outcome.errors,
        [("division by 0".to_string(), spile_ir::SiteId(0))]
    );
}

#[test]
fn errors_are_caught_where_they_should_be() {
    let text = "limits maxerrors=1000000\nsite @0 \"\"\nsite @1 \"inner\"\nsite @2 \"outer\"\n\
        str s0 \"raised\"\nfmt f0 \"%s;\"\nfmt f1 \"%d \"\nfmt f2 \"after\\n\"\n\
        handler \"x\" points 1 tracepoint(\"x\") @0 {\n\
          regs r0: long, r1: long, r2: str64\n\
          b0: catch b3\n    r0 = intr ctx_arg(0)\n    r1 = intr ctx_arg(1)\n    print out f1(r0)\n    jump b1\n\
          b1: catch b2\n    r0 = div 1, r0 @1\n    print out f1(r0)\n    jump b4\n\
          b2: catch b3\n    r2 = catch_msg\n    print out f0(r2)\n    r1 = div 1, r1 @2\n    raise s0 @2\n    jump b4\n\
          b3:\n    r2 = catch_msg\n    print out f0(r2)\n    r0 = load kernel u32 100 @1\n    jump b4\n\
          b4:\n    print out f2()\n    ret\n\
        }\n";
    let outcome = run(text, &[[1, 1], [0, 1], [0, 0]]);
    // Output from before the error arrives.
    assert_eq!(
        outcome.out,
        "1 1 after\n0 division by 0;raised;0 division by 0;division by 0;"
    );
    let fault = ("read fault at 0x64".to_string(), spile_ir::SiteId(1));
    assert_eq!(outcome.errors, [fault.clone(), fault]);
}

/// More output than the buffer of a CPU holds.
#[test]
fn output_beyond_the_buffer_is_complete() {
    let mut code = "    r2 = sprint f0(r0)\n".to_string();
    for _ in 0..60 {
        code += "    print out f1(r1, r2)\n";
    }
    let text = script(
        "fmt f0 \"%500d\"\nfmt f1 \"%d %s\\n\"",
        ", r2: str512",
        &code,
    );
    let outcome = run(&text, &[[7, 3], [8, 4]]);
    assert_eq!(outcome.out.len(), 2 * 60 * 503);
}

/// `maxerrors` errors are forgiven, one more ends the session.
#[test]
fn one_error_too_many_ends_the_session() {
    let text = script(
        "fmt f0 \"%d \"",
        "",
        "    print out f0(r1)\n    r0 = div 1, r0",
    );
    let program = reader::read(&text.replace("maxerrors=1000000", "maxerrors=2")).expect("reads");
    let mut kernel = load(&program);
    (0..6).for_each(|n| kernel.run(&[0, n]));
    let outcome = kernel.outcome();
    assert_eq!((outcome.out.as_str(), outcome.errors.len()), ("0 1 2 ", 3));
    assert!(kernel.state.exit_wanted() && !kernel.state.running());
    assert_eq!(kernel.hits(0), 3);
}

/// Wide strings that differ in any word or in none. One jump for each word would exceed the
/// verifier's limit.
#[test]
fn many_comparisons_of_wide_strings_pass_the_verifier() {
    let lengths = [0, 20, 30, 62, 63, 64, 90, 120, 300, 480, 509];
    let ops = ["eq", "ne", "lt", "le", "gt", "ge"];
    for wide in [511, 4095] {
        let width = (wide + 1) / 8 * 8;
        let mut head = String::new();
        let mut regs = ", r2: long".to_string();
        let mut code = String::new();
        for (n, length) in lengths.iter().enumerate() {
            let prefix = "a".repeat(length * wide / 511);
            let _ = writeln!(head, "fmt f{n} \"{prefix}%d\"\nstr s{n} \"{prefix}7\"");
            let (a, b) = (3 + 2 * n, 4 + 2 * n);
            let _ = write!(regs, ", r{a}: str{width}, r{b}: str{width}");
            let _ = writeln!(
                code,
                "    r{a} = sprint f{n}(r0)\n    r{b} = sprint f{n}(r1)"
            );
        }
        let print = lengths.len();
        let _ = write!(head, "fmt f{print} \"%d\"");
        for n in 0..lengths.len() {
            let (a, b) = (3 + 2 * n, 4 + 2 * n);
            let next = 4 + 2 * ((n + 1) % lengths.len());
            let others = [format!("r{b}"), format!("s{n}"), format!("r{next}")];
            for (op, other) in ops
                .iter()
                .flat_map(|op| others.iter().map(move |o| (op, o)))
            {
                let _ = writeln!(code, "    r2 = str_{op} r{a}, {other}");
                let _ = writeln!(code, "    print out f{print}(r2)");
            }
        }
        let limit = format!("maxstringlen={wide} maxerrors");
        let text = script(&head, &regs, &code).replace("maxerrors", &limit);
        let args = [[7, 7], [7, 8], [70, 7], [-1, 9], [i64::MIN, i64::MAX]];
        let outcome = run(&text, &args);
        assert!(outcome.out.len() >= 5 * 3 * ops.len() * lengths.len());
    }
}

/// Keys of wide strings.
#[test]
fn arrays_with_wide_keys_are_exact() {
    for (class, read) in [("percpu", ""), ("shared lock", "r1 = aget g0[r2, r0]\n")] {
        let head = format!(
            "fmt f0 \"%d{}%d\"\nglobal g0 \"a\" [str512, long] long max 5000 {class} @0",
            "k".repeat(400)
        );
        let mut code = "    r2 = sprint f0(r0, r1)\n".to_string();
        for n in 0..150 {
            let _ = writeln!(
                code,
                "    r0 = add r0, {n}\n    aadd g0[r2, r0], r1\n    {read}"
            );
        }
        let text = script(&head, ", r2: str512", &code);
        run(&text, &[[1, 2], [1, 3], [2, 2], [1, 2]]);
    }
}

/// Not the message of an earlier hit.
#[test]
fn no_error_message_is_left_outside_of_a_catch_block() {
    let text = "limits maxerrors=1000000\nsite @0 \"\"\nfmt f0 \"%s;\"\n\
        handler \"x\" points 1 tracepoint(\"x\") @0 {\n\
          regs r0: long, r1: str64\n\
          b0:\n    r1 = catch_msg\n    print out f0(r1)\n    r0 = intr ctx_arg(0)\n    jump b1\n\
          b1: catch b2\n    r0 = div 1, r0 @0\n    ret\n\
          b2:\n    r1 = catch_msg\n    print out f0(r1)\n    ret\n\
        }\n";
    let outcome = run(text, &[[0, 0], [0, 0], [1, 0], [1, 0], [0, 0]]);
    assert_eq!(outcome.out.replace("division by 0", "E"), ";E;;E;;;;E;");
}
