//! The output of scripts: the language's surface, through analysis, the optimiser and the
//! interpreter. Expected values are SystemTap's.

mod support;

use spile_ir::interp::Value;
use spile_ir::interp::testenv::TestEnv;
use spile_ir::intrinsics::Intrinsic;
use spile_ir::{Event, HandlerId, Program};
use spile_sema::analyse::AnalysisOptions;
use support::{run, run_with};

/// Runs `begin` handlers in order, then `end` handlers; errors are part of the text.
fn output(program: &Program) -> String {
    let mut env = TestEnv::new(program);
    let mut order: Vec<(bool, i64, usize)> = Vec::new();
    for (i, h) in program.handlers.iter().enumerate() {
        match h.event {
            Event::Begin(n) => order.push((false, n, i)),
            Event::End(n) => order.push((true, n, i)),
            _ => {}
        }
    }
    order.sort_unstable();
    for (_, _, i) in order {
        if let Err(e) = spile_ir::interp::run(program, HandlerId(i as u32), &mut env) {
            env.out.extend(format!("ERROR {e}\n").bytes());
        }
    }
    String::from_utf8_lossy(&env.out).into_owned()
}

fn check(cases: &[(&str, &str)]) {
    let mut wrong = String::new();
    for (script, expected) in cases {
        let whole = ["probe", "global", "function", "private"];
        let script = match whole.iter().any(|w| script.starts_with(w)) {
            true => (*script).to_owned(),
            false => format!("probe begin {{ {script} }}"),
        };
        wrong.push_str(&differs(&script, expected, &AnalysisOptions::default()));
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn differs(script: &str, expected: &str, options: &AnalysisOptions) -> String {
    let r = run_with(script, options);
    let Some(a) = r.analysis else {
        return format!("{script}\n{}\n", r.diags.render(&r.sources, false));
    };
    let mut wrong = String::new();
    for optimise in [None, Some(false), Some(true)] {
        let mut p = a.program.clone();
        if let Some(all) = optimise {
            spile_ir::opt::optimise(&mut p, all);
        }
        if let Err(e) = spile_ir::verify::verify(&p) {
            wrong.push_str(&format!("{script}\n  {e:?}\n"));
        }
        let got = output(&p);
        if got.trim_end() != expected {
            wrong.push_str(&format!(
                "{script}\n  optimised {optimise:?}: {got:?}\n  expected: {expected:?}\n"
            ));
            break;
        }
    }
    wrong
}

#[test]
fn literals_and_operators_have_their_values() {
    check(&[
        (
            r#"printdln(" ", 10, 0x1f, 017, -1, 0xffffffffffffffff, 18446744073709551615)"#,
            "10 31 15 -1 -1 -1",
        ),
        (
            r#"print("a\tb\x41\101\\\"\n" "joined" "twice")"#,
            "a\tbAA\\\"\njoinedtwice",
        ),
        (
            r#"printdln(" ", 7 / 2, -7 / 2, -7 % 3, 7 % -3, 2 + 3 * 4, (2 + 3) * 4)"#,
            "3 -3 -1 1 14 20",
        ),
        (
            r#"printdln(" ", 1 << 4, -16 >> 2, -1 >>> 60, 6 & 3, 6 | 3, 6 ^ 3, ~5, !5, !0)"#,
            "16 -4 15 2 7 5 -6 0 1",
        ),
        (
            r#"printdln(" ", 1 | 2 ^ 3 & 1, 1 + 1 << 2, 1 < 2 == 1, 0 || 1 && 0)"#,
            "3 8 1 0",
        ),
        (
            r#"printdln(" ", "a" . "b" . "c", "a" < "b", "b" <= "a", "x" == "x", "x" != "x")"#,
            "abc 1 0 1 0",
        ),
        (
            r#"x = y = 3; x += y++ + ++y; printdln(" ", x, y, x--, --x)"#,
            "11 5 11 9",
        ),
        (
            r#"x = 100; x -= 1; x *= 2; x /= 3; x %= 50; x <<= 3; x >>= 1; x |= 1; x &= 0xf1; x ^= 0xff; println(x)"#,
            "190",
        ),
        (r#"s = "a"; s .= "b"; s .= sprint(1); println(s)"#, "ab1"),
        (r#"println(1 ? 2 ? "a" : "b" : "c")"#, "a"),
        (
            r#"x = 0x7fffffffffffffff; x++; println(x)"#,
            "-9223372036854775808",
        ),
        (r#"z = 0; println(1 / z)"#, "ERROR division by 0"),
        (r#"x = 5; x %= x - 5"#, "ERROR division by 0"),
        (
            r#"println((0 && f()) || (1 || f())) } function f() { println("no") return 1 } probe never {"#,
            "1",
        ),
    ]);
}

#[test]
fn control_flow_runs_as_in_c() {
    check(&[
        (
            r#"for (i = 0; i < 9; i++) { if (i == 2) continue; if (i == 5) break; printf("%d ", i) }"#,
            "0 1 3 4",
        ),
        (r#"for (;;) if (i++ > 3) break; println(i)"#, "5"),
        (
            r#"while (i < 3) { i++; while (1) { j++; break } } printdln(" ", i, j)"#,
            "3 3",
        ),
        (
            r#"if (0) println("a") else if (1) println("b") else println("c")"#,
            "b",
        ),
        (
            r#"try { error("x") println("no") } catch (m) { printf("<%s>", m) } println("after")"#,
            "<x>after",
        ),
        (
            r#"try { try { error("x") } catch { error("y") } } catch (m) { println(m) }"#,
            "y",
        ),
        (
            r#"try { f() } catch (m) { println(m) } } function f() { try { g() } catch (m) { error(m . "+f") } } function g() { error("g") } probe never {"#,
            "g+f",
        ),
        (
            r#"foreach (k in a) { try { if (k == 2) error("two"); println(k) } catch (m) { println(m) } } } global a probe begin(-1) { a[1] = a[2] = a[3] = 1 "#,
            "3\ntwo\n1",
        ),
        (
            r#"println("a") next println("b") } probe end { println("c")"#,
            "a\nc",
        ),
        (
            r#"error("stop") println("no") } probe end { println("end")"#,
            "ERROR stop\nend",
        ),
        (r#"while (1) { }"#, "ERROR MAXACTION exceeded"),
    ]);
}

#[test]
fn arrays_are_walked_in_order() {
    let fill = "} global a, b probe begin(-1) { a[\"x\"] = 3; a[\"z\"] = 1; a[\"y\"] = 2; b[1, \"p\"] = 10; b[2, \"q\"] = 30; b[1, \"q\"] = 20; ";
    let cases = [
        (r#"foreach (k in a) print(k)"#, "xzy"),
        (r#"foreach (k+ in a) print(k)"#, "xyz"),
        (r#"foreach (k- in a) print(k)"#, "zyx"),
        (r#"foreach (k in a+) print(k)"#, "zyx"),
        (r#"foreach (k in a-) print(k)"#, "xyz"),
        (r#"foreach (k in a- limit 2) print(k)"#, "xy"),
        (r#"foreach (k in a limit 1 + 1) print(k)"#, "xz"),
        (r#"foreach (k in a limit 0) print(k)"#, ""),
        (r#"foreach (v = k in a-) printf("%s%d ", k, v)"#, "x3 y2 z1"),
        (r#"foreach (v = k- in a) printf("%s%d ", k, v)"#, "z1 y2 x3"),
        (r#"foreach ([n, s] in b) printf("%d%s ", n, s)"#, "1p 2q 1q"),
        (
            r#"foreach ([n, s-] in b) printf("%d%s ", n, s)"#,
            "2q 1q 1p",
        ),
        (
            r#"foreach ([n+, s] in b) printf("%d%s ", n, s)"#,
            "1p 1q 2q",
        ),
        (
            r#"foreach ([n, s] in b[1, *]) printf("%d%s ", n, s)"#,
            "1p 1q",
        ),
        (
            r#"foreach ([n, s] in b[*, "q"] - limit 1) printf("%d%s ", n, s)"#,
            "2q",
        ),
        (
            r#"foreach (v = [n, s] in b[*, "q"]+) printf("%d%s=%d ", n, s, v)"#,
            "1q=20 2q=30",
        ),
        (
            r#"printdln(" ", "x" in a, "w" in a, [1, "p"] in b, [1, *] in b, [*, "r"] in b, [*, *] in b)"#,
            "1 0 1 1 0 1",
        ),
        (
            r#"delete a["x"]; delete b[*, "q"]; foreach (k in a) print(k); foreach ([n, s] in b) printf(" %d%s", n, s)"#,
            "zy 1p",
        ),
        (r#"delete a; printdln(" ", "x" in a, a["x"])"#, "0 0"),
        (
            r#"foreach (k in a) { delete b[1, *]; delete a } printdln(" ", "x" in a, "y" in a)"#,
            "0 0",
        ),
        (
            r#"a["n"]++; a["n"] += 4; a["x"]--; printdln(" ", a["n"], a["x"], a["none"]++, a["none"])"#,
            "5 2 0 1",
        ),
        (r#"println(a["m"]); println("m" in a)"#, "0\n0"),
    ];
    let scripts: Vec<(String, &str)> = cases
        .iter()
        .map(|(body, out)| (format!("probe begin {{ {body} {fill} }}"), *out))
        .collect();
    check(&scripts.iter().map(|(s, o)| (&**s, *o)).collect::<Vec<_>>());
    check(&[
        (
            r#"global m probe begin { m[1, "b", 3, "d", 5, "f", 7, "h"] = "v"; foreach ([a, b, c, d, e, f, g, h] in m) print(a, b, c, d, e, f, g, h, m[a, b, c, d, e, f, g, h]) }"#,
            "1b3d5f7hv",
        ),
        (
            r#"global w%[2] probe begin { w[1] = 1; w[2] = 2; w[3] = 3; foreach (k in w) print(k) }"#,
            "23",
        ),
        (
            r#"global w[2] probe begin { w[1] = 1; w[2] = 2; w[3] = 3 }  probe end { println(w[3]) }"#,
            "ERROR Array overflow, check MAXMAPENTRIES\n0",
        ),
        (
            r#"global s = "init", n = 3, neg = -2 probe begin { printdln(" ", s, n, neg); delete s; delete n; printdln(" ", "<" . s . ">", n) }"#,
            "init 3 -2\n<> 0",
        ),
    ]);
}

#[test]
fn statistics_have_their_extractors() {
    check(&[
        (
            r#"global s probe begin { for (i = 1; i <= 4; i++) s <<< i; printdln(" ", @count(s), @sum(s), @min(s), @max(s), @avg(s)) }"#,
            "4 10 1 4 2",
        ),
        (
            r#"global s probe begin { s <<< 10; s <<< 20; printdln(" ", @variance(s), @variance(s, 2)) }"#,
            "50 50",
        ),
        (
            r#"global s probe begin { println(@count(s)); println(@avg(s)) }"#,
            "0\nERROR empty aggregate",
        ),
        (
            r#"global s probe begin { s["a", 1] <<< 5; s["b", 2] <<< 7; s["b", 2] <<< 1; foreach ([x, y] in s-) printf("%s%d:%d ", x, y, @sum(s[x, y])) }"#,
            "b2:8 a1:5",
        ),
        (
            r#"global s probe begin { s[1] <<< 50; s[2] <<< 20; s[2] <<< 21; s[3] <<< 30; foreach (k in s @sum-) print(k); foreach (k in s @max+) print(k); foreach (k in s @count- limit 1) print(k); foreach (k in s @min+) print(k); foreach (k in s @avg-) print(k) }"#,
            "1232312231132",
        ),
        (
            r#"global s probe begin { s <<< 1; s <<< 3; s <<< 3; foreach (b in @hist_log(s)) printf("%d:%d ", b, @hist_log(s)[b]); println() }"#,
            "65:1 66:2",
        ),
        (
            r#"global s probe begin { s <<< -5; s <<< 2; s <<< 3; s <<< 99; printdln(" ", @hist_linear(s, 0, 10, 2)[0], @hist_linear(s, 0, 10, 2)[2], @hist_linear(s, 0, 10, 2)[7]) }"#,
            "1 2 1",
        ),
        (
            r#"global s probe begin { s <<< 2; println(@hist_linear(s, 0, 10, 2)[8]) }"#,
            "ERROR histogram index out of range",
        ),
        (
            r#"global s probe begin { s[1] <<< 2; delete s[1]; println(1 in s); s[1] <<< 3; println(@sum(s[1])); delete s; println(@count(s[1])) }"#,
            "0\n3\n0",
        ),
    ]);
}

#[test]
fn functions_are_chosen_by_arguments_and_next() {
    check(&[
        (
            r#"function f(x) { return x * 2 } function f(x, y) { return x + y } probe begin { printdln(" ", f(3), f(3, 4)) }"#,
            "6 7",
        ),
        (
            r#"function f:string(x) { if (x > 9) next; return "small" } function f:string(x) { if (x > 99) next; return "medium" } function f:string(x) { return "large" } probe begin { printdln(" ", f(1), f(10), f(100)) }"#,
            "small medium large",
        ),
        (
            r#"function f(x):2 { return "second" } function f(x):1 { if (x) next; return "first" } probe begin { printdln(" ", f(0), f(1)) }"#,
            "first second",
        ),
        (
            r#"function f(x) { next } probe begin { try { f(1) } catch (m) { println(m) } }"#,
            "all functions exhausted",
        ),
        (
            r#"function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) } probe begin { println(fib(10)) }"#,
            "55",
        ),
        (
            r#"function f(n) { return n ? f(n - 1) : 0 } probe begin { println(f(100)) }"#,
            "ERROR MAXNESTING exceeded",
        ),
        (
            r#"function f:long() { } function g:string() { } probe begin { println(f(), "<", g(), ">") }"#,
            "0<>",
        ),
        (
            r#"function f() { g = 5; return g } global g = 1 probe begin { println(f(), g) }"#,
            "55",
        ),
        (
            r#"function f(g) { g = 5; return g } global g = 1 probe begin { println(f(2), g) }"#,
            "51",
        ),
        (
            r#"private function p() { return 7 } private global q = 8 probe begin { println(p(), q) }"#,
            "78",
        ),
        (
            r#"function swap(a, b) { t = a; a = b; b = t; return a . b } probe begin { x = "1"; println(swap(x, "2"), x) }"#,
            "211",
        ),
    ]);
}

#[test]
fn printing_functions_print_as_documented() {
    check(&[
        (
            r#"printf("%5d|%-5d|%05d|%+d|% d|%#x|%#o|%X|%i|%u|%c|%%|%5s|%-5s|%.2s\n", 1, 2, 3, 4, 5, 255, 8, 255, -1, 7, 65, "a", "b", "cde")"#,
            "    1|2    |00003|+4| 5|0xff|010|FF|-1|7|A|%|    a|b    |cd",
        ),
        (
            r#"printf("%*d|%-*d|%.*s|%p\n", 4, 1, 4, 2, 2, "xyz", 255)"#,
            "   1|2   |xy|0xff",
        ),
        (
            r#"print("a", 1); println("b"); printd("-", 1, "x", 2); printdln("+", 3, 4); println(sprint(1, "b"), sprintf("%03d", 7), sprintln("c"))"#,
            "a1b\n1-x-23+4\n1b007c",
        ),
        (r#"print_char(72); print_char(105); println("")"#, "Hi"),
        (
            r#"printf("%b", 0x4142); printf("%2b%1b\n", 0x4344, 0x45)"#,
            "BA\0\0\0\0\0\0DCE",
        ),
    ]);
}

#[test]
fn options_set_globals_and_limits() {
    let g = |name: &str, value: &str| AnalysisOptions {
        globals: vec![(name.into(), value.into())],
        ..AnalysisOptions::default()
    };
    let d = |name: &str, value: &str| AnalysisOptions {
        defines: vec![(name.into(), value.into())],
        ..AnalysisOptions::default()
    };
    let cases = [
        ("global n = 1 probe begin { println(n) }", g("n", "5"), "5"),
        (
            "global n probe begin { println(n + 1) }",
            g("n", "0x10"),
            "17",
        ),
        (
            "global s = \"a\" probe begin { println(s) }",
            g("s", "5"),
            "5",
        ),
        (
            "global s probe begin { println(s . \"!\") }",
            g("s", "text"),
            "text!",
        ),
        (
            "probe begin { for (i = 0; i < 30; i++) { } println(i) }",
            d("MAXACTION", "2"),
            "ERROR MAXACTION exceeded",
        ),
        (
            "global a probe begin { a[1] = 1; a[2] = 2 }  probe end { println(a[1]) }",
            d("MAXMAPENTRIES", "1"),
            "ERROR Array overflow, check MAXMAPENTRIES\n1",
        ),
        (
            "function f(n) { return n ? f(n - 1) : 9 } probe begin { println(f(100)) }",
            d("MAXNESTING", "200"),
            "9",
        ),
    ];
    let wrong: String = cases.iter().map(|(s, o, out)| differs(s, out, o)).collect();
    assert!(wrong.is_empty(), "{wrong}");
}

/// Wrong scripts, and the start of their messages.
const MISUSE: &[(&str, &[&str])] = &[
    (
        "global s probe begin { s <<< 1; s = 2 }",
        &["type mismatch"],
    ),
    (
        "global s probe begin { s <<< 1; x = s; println(x) }",
        &["statistic"],
    ),
    (
        "global s probe begin { s <<< \"a\"; println(@count(s)) }",
        &["type mismatch"],
    ),
    ("global n = 1 probe begin { n <<< 1 }", &["type mismatch"]),
    (
        "global n = 1 probe begin { println(n[1]) }",
        &["`n` is used with 1 index and with no index"],
    ),
    (
        "global a probe begin { a[1] = 1; println(a) }",
        &["no index"],
    ),
    (
        "global a probe begin { a[1] = 1; a[\"x\"] = 1 }",
        &["type mismatch"],
    ),
    (
        "global a probe begin { a[1, 2] = 1; delete a[1] }",
        &["1 index"],
    ),
    (
        "probe begin { x = 1; x = \"a\"; println(x) }",
        &["type mismatch"],
    ),
    ("probe begin { println(1 + \"a\") }", &["type mismatch"]),
    (
        "function f(a) { return a } probe begin { println(f()) }",
        &["takes 1 argument"],
    ),
    (
        "function f:string(a) { return 1 } probe begin { println(f(1)) }",
        &["type mismatch"],
    ),
    (
        "function f(a:long) { println(a) } probe begin { f(\"x\") }",
        &["type mismatch"],
    ),
    ("probe begin { break }", &["outside"]),
    ("probe begin { continue }", &["outside"]),
    (
        "probe begin { foreach (k in nothing) println(k) }",
        &["unresolved global array"],
    ),
    (
        "global x probe begin { foreach (k in x) println(k); x = 1 }",
        &["index"],
    ),
    (
        "global a probe begin { a[1, 2] = 1; foreach (k in a) println(k) }",
        &["1"],
    ),
    (
        "global a probe begin { a[1] = 1; foreach (k in a @sum+) println(k) }",
        &["statistic"],
    ),
    (
        "global s probe begin { s <<< 1; println(@count(t)) }",
        &["t"],
    ),
    (
        "probe begin { println(undefined_function(1)) }",
        &["unresolved function `undefined_function`"],
    ),
    (
        "probe begin { println(exacname()) }",
        &["did you mean `execname`"],
    ),
    (
        "global counts probe begin { count[1] = 1; counts[1] = 1 }",
        &["did you mean `counts`"],
    ),
    (
        "probe kernel.trace(\"x\") { println($prevv->pid) }",
        &["did you mean `$prev`"],
    ),
    (
        "probe kernel.trace(\"x\") { println($prev->pidd) }",
        &["did you mean `pid`"],
    ),
    (
        "probe begin { excname() execnam() pidd() }",
        &["excname", "execnam", "pidd"],
    ),
    (
        "probe begin { a = b } probe end { println(\"a\" + 1) }",
        &["type mismatch"],
    ),
    (
        "probe begin { printf(\"%d %s\", \"a\", 1) }",
        &["type mismatch"],
    ),
    (
        "probe begin { printf(\"%d %d\", 1) }",
        &["takes 2 arguments"],
    ),
    ("probe begin { $x = 1 }", &["there is no `$x`"]),
    (
        "global s probe begin { s <<< 1; println(@variance(s, 63)) }",
        &["0 to 62"],
    ),
];

#[test]
fn misuse_is_refused_with_a_reason() {
    let mut wrong = String::new();
    for (script, says) in MISUSE {
        let r = run(script);
        let text = r.diags.render(&r.sources, false);
        let missing = says.iter().any(|s| !text.contains(s));
        if r.analysis.is_some() || missing || !text.contains('^') {
            wrong.push_str(&format!("{script}: wanted {says:?}\n{text}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Each has something wrong in what it computes in vain, and something right.
const UNUSED: &[&str] = &[
    "probe begin { foo->has->no->type; print(1) }",
    "probe begin { no . $such . $target + $variable; print(1) }",
    "probe begin { @cast(0, \"no_such_type\")->tgid; print(1) }",
    "probe begin { - @entry(pid()); print(1) }",
    "probe begin { foo$1$2; print(1) }",
    "probe begin { statvar <<< value <<< 4; print(1) }",
    "global b probe begin { a = b + 2; b = \"text\"; print(1) }",
    "probe begin { a = $no; c = a; c += 2; d = sprintf(\"%d\", c); print(1) }",
    "probe begin { foo = $bar; if (foo) { } else { ; } print(1) }",
    "probe begin { if ($bar) { x = $bar } print(1) }",
    "global g probe begin { foreach (x in g) g[x] + 1; print(1) }",
    "probe begin { for (2 < $i; print(1); $i) ; }",
    "function f() { x = $no; return 1 } probe begin { print(f()) }",
    "probe begin { try { x = $no } catch { y = $no } print(1) }",
    "probe a = begin { x = 1 } probe a { x = $no; print(1) }",
];

#[test]
fn what_a_script_does_not_use_cannot_fail() {
    let mut wrong = String::new();
    for script in UNUSED {
        let r = run(script);
        let options = AnalysisOptions {
            keep_unused: true,
            ..Default::default()
        };
        let kept = run_with(script, &options);
        if r.analysis.is_none() || kept.analysis.is_some() {
            wrong.push_str(&format!(
                "{script}\n{}\n",
                r.diags.render(&r.sources, false)
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Statements decide types even if nobody uses their values.
#[test]
fn types_may_come_from_what_is_not_used() {
    for script in [
        "global a[4] probe begin { foreach (x = [y] in a) println(y) } probe end { a[1] + 1 }",
        "function f(p, q) { q . \"\"; p | 0; println(p, q) } probe begin { f(y, z) }",
    ] {
        let r = run(script);
        let text = r.diags.render(&r.sources, false);
        assert!(r.analysis.is_some(), "{script}: {text}");
    }
    // Without such a statement.
    let r = run("global a[4] probe begin { foreach (x = [y] in a) println(y) }");
    assert!(r.analysis.is_none());
}

#[test]
fn what_has_an_effect_or_is_read_is_not_left_out() {
    for script in [
        "probe begin { x = $no; println(x) }",
        "probe begin { x = y = $no; println(y) }",
        "global g probe begin { g = $no }",
        "probe begin { if ($no) print(1) }",
        "function f() { x = 1; return x + $no } probe begin { f() }",
        "probe a = begin { x = 1 } probe b = a { println(x) } probe b { x = $no; println(x) }",
        "probe begin { g[$no]++ }",
    ] {
        assert!(run(script).analysis.is_none(), "{script}");
    }
}

/// A return whose entry was not seen runs nothing.
#[test]
fn returns_without_entries_run_nothing() {
    let r = run(
        "probe syscall.read.return { printdln(\" \", pp(), @entry($fd) + @entry(pid()) - $fd - pid()) }",
    );
    let p = r.analysis.map(|a| a.program).unwrap_or_default();
    let handler = |exit: bool| {
        let is = |h: &spile_ir::Handler| matches!(h.event, Event::SysExit(_)) == exit;
        let at = p
            .handlers
            .iter()
            .position(|h| h.event.is_compiled() && is(h));
        HandlerId(at.unwrap_or(usize::MAX) as u32)
    };
    let mut env = TestEnv::new(&p);
    for exit in [true, false, true, true, false, true] {
        spile_ir::interp::run(&p, handler(exit), &mut env).unwrap();
    }
    let once = "syscall.read.return 0\n";
    assert_eq!(String::from_utf8_lossy(&env.out), once.repeat(2));
}

#[test]
fn structures_print_as_blessed() {
    let r = run(
        "probe kernel.trace(\"sched_switch\") { println($prev$); println($prev->comm$); println($$parms$$) }",
    );
    let p = r.analysis.map(|a| a.program).unwrap_or_default();
    let at = p.handlers.iter().position(|h| h.event.is_compiled());
    let mut env = TestEnv::new(&p);
    let addr = Value::Long(0x10_0000);
    env.answers.push((Intrinsic::CtxArg, addr));
    spile_ir::interp::run(&p, HandlerId(at.unwrap_or(0) as u32), &mut env).unwrap();
    insta::assert_snapshot!(String::from_utf8_lossy(&env.out));
}
