//! Rendered diagnostics, at least one for each code.

mod common;

use spile_syntax::codes::SYNTAX_CODES;

/// Code, variant, script.
const CASES: &[(&str, &str, &str)] = &[
    ("E0101", "typographic_quote", "probe begin { print(“hi”) }"),
    ("E0101", "single_quote", "probe begin { x = 'a' }"),
    (
        "E0104",
        "string",
        "probe begin {\n\tprint(\"hello)\n\tx = 1\n}",
    ),
    ("E0105", "comment", "probe begin { } /* and so on"),
    ("E0106", "embedded", "%{ #include <linux/fs.h>"),
    (
        "E0107",
        "range",
        "global x = 18446744073709551616\nglobal y = 18446744073709551615",
    ),
    ("E0107", "octal", "global x = 089"),
    ("E0108", "float", "probe timer.s(1) { x = 1.5 }"),
    (
        "E0110",
        "several",
        "probe begin { x = ; y = 1 z = = 2; if x { } w = 3 }\nprobe end { a + }",
    ),
    (
        "E0110",
        "misspelt_item",
        "prob begin { }\nfunctoin f() { return 1 }\nprobe end { }",
    ),
    (
        "E0110",
        "two_sorts",
        "probe end { foreach ([a+, b-] in c) { } }",
    ),
    ("E0110", "else", "probe end { else { } }"),
    ("E0111", "block", "probe begin {\n  if (1) {\n    x = 1\n"),
    (
        "E0111",
        "missing_brace",
        "probe begin {\n  if (1) {\n}\n\nprobe end { }",
    ),
    ("E0113", "assign", "probe begin { if (f(1) = 2) { } 3++ }"),
    (
        "E0114",
        "format",
        "probe begin { printf(x, 1) if (a =~ b) next }\nglobal g = h",
    ),
    (
        "E0128",
        "probe",
        "probe begin { if (x) return; }\nprobe a = end { return x + }\nfunction f() { return 1 }",
    ),
    ("E0115", "near", "probe end { println(@cuont(x)) }"),
    (
        "E0116",
        "suffix",
        "probe begin if (x) ? { }\nprobe a(1) = begin { }\nprobe = x { }",
    ),
    (
        "E0117",
        "operands",
        "probe end { print(@hist_linear(x, 1)) print(@cast(p)) print(@sum(x, 1)) }",
    ),
    (
        "E0118",
        "keyword",
        "global next\nfunction print() { return 1 }",
    ),
    ("E0125", "initialised", "global a[10] = 42, b% = \"x\""),
    (
        "E0206",
        "second_then",
        "probe begin { %( 1 == 0 %? print(1) %? print(2) %) }",
    ),
    (
        "E0202",
        "define_itself",
        "@define define %( 1 %) probe begin { }",
    ),
    ("E0114", "no_counter", "probe begin { x = @perf(\"\") }"),
    ("E0120", "type", "function f:int(a:char) { }"),
    ("E0121", "star", "probe begin { x = a[*] }"),
    (
        "E0201",
        "argument",
        "probe begin { x = $2 println(@3) %( 1 == 2 %? x = $9 %) }",
    ),
    (
        "E0202",
        "define",
        "@define m(a b) %( 1 %)\n@define %( %)\n@define n %( 1",
    ),
    (
        "E0203",
        "count",
        "@define m(a, b) %( @a + @b %)\nprobe begin { x = @m(1) }",
    ),
    (
        "E0204",
        "recursion",
        "@define a %( @b %)\n@define b %( @a %)\nprobe begin { x = @a }",
    ),
    (
        "E0206",
        "condition",
        "%( arch %? global x %)\n%( (1 == 1) %? global y %)",
    ),
    (
        "E0207",
        "unknown",
        "%( kernel_version >= \"3.0\" %? global x %)",
    ),
    (
        "E0208",
        "types",
        "%( kernel_v >= 3 %? global x %: global y %)",
    ),
    (
        "E0208",
        "order",
        "%( arch < \"x\" %? global x %)\n%( runtime > \"a\" %? %)\n%( guru_mode >= 1 %? %)\n\
         %( systemtap_privilege < \"stapsys\" %? %)\n%( CONFIG_X > \"y\" %? %)",
    ),
    (
        "E0208",
        "values",
        "%( kernel_v < \"6.*\" %? global x %)\n%( guru_mode == 2 %? %)\n%( CONFIG_MOD == 1 %? %)",
    ),
    ("E0209", "unclosed", "%( arch == \"x86_64\" %? global x\n"),
    ("E0210", "stray", "global x %)\n%: global y"),
    ("E0212", "twice", "@define a %( 1 %)\n@define a %( 2 %)"),
    (
        "W0101",
        "escape",
        "probe begin { if (x =~ \"a\\.b\") println(\"\\d\") }",
    ),
    (
        "W0103",
        "precedence",
        "probe begin { if (x & 7 == 0 || y | z =~ \"a\" || w ^ q in a) next }\n\
         probe begin { if (!x in a || !x == y || !x & 1 || x < y < z) next }\n\
         probe begin { x = 1 << y + 2; y = x - 1 >> 3 }\n\
         probe end { if ((x & 7) == 0 || (!x) == y || !x == !y || !(x in a) || !x & (y == z)) next }\n\
         probe end { if (!x || x & ~y || x in a & 1 || 1 << (y + 2) || -x << 2 || (x < y) == z) next }",
    ),
    (
        "E0110",
        "macro",
        "@define m(a) %( @a + %)\nprobe begin { x = @m(1); }",
    ),
    (
        "E0110",
        "tabs_and_crlf",
        "probe begin {\r\n\tx =\t\t) 1\r\n}\r\n",
    ),
    (
        "E0125",
        "declarations",
        "global a[0], b, b\nprivate global b\nfunction f(x, y, x) { return x }",
    ),
    ("E0110", "argument", "probe begin { $1 }"),
];

#[test]
fn diagnostics_are_shown_as_blessed() {
    for (code, name, script) in CASES {
        let args = vec!["1 +".to_owned()];
        let (_, out) = common::parse("t.stp", script.as_bytes().to_vec(), args);
        assert!(out.contains(&format!("[{code}]")), "{code} {name}: {out}");
        insta::assert_snapshot!(format!("{code}_{name}"), format!("{script}\n---\n{out}"));
    }
}

#[test]
fn bad_bytes_are_shown_as_blessed() {
    let cases: &[(&str, &str, &[u8])] = &[
        (
            "E0102",
            "utf8",
            b"# caf\xe9 is fine here\nprobe begin { print(\"caf\xe9\") \xff\xfe x = 1 }",
        ),
        ("E0103", "nul", b"probe begin {\n  x = 1 \0 }"),
    ];
    for (code, name, script) in cases {
        let (_, out) = common::parse("t.stp", script.to_vec(), Vec::new());
        assert!(out.contains(&format!("[{code}]")), "{code} {name}: {out}");
        insta::assert_snapshot!(format!("{code}_{name}"), out);
    }
}

#[test]
fn every_code_has_a_test() {
    let elsewhere = [
        "E0102", "E0103", "E0109", "E0112", "E0122", "E0123", "E0124", "E0126", "E0127", "E0205",
        "E0211", "W0102", "W0104", "W0105",
    ];
    for c in SYNTAX_CODES {
        let here = CASES.iter().any(|(code, ..)| *code == c.code);
        assert!(
            here || elsewhere.contains(&c.code),
            "{} has no test",
            c.code
        );
    }
}

/// What the diagnostics of a library's file become, and whether it is left out.
fn of_library(text: &'static str) -> (bool, Vec<&'static str>, String) {
    use spile_syntax::{diag::Diagnostics, parser::parse_file, preproc, source::Sources};
    let (mut sources, mut own, mut all) = (Sources::new(), Diagnostics::new(), Diagnostics::new());
    let file = sources.add("lib/f.stp", text.as_bytes());
    let env = preproc::PreprocEnv::new("6.12.0", "x86_64");
    parse_file(
        &mut sources,
        file,
        &env,
        &preproc::MacroLibrary::new(),
        &mut own,
    );
    let left_out = all.append_library("lib/f.stp", own);
    let codes = all.iter().map(|d| d.code).collect();
    (left_out, codes, all.render(&sources, false))
}

#[test]
fn files_of_a_library_that_do_not_parse_are_left_out_with_one_warning() {
    let (left_out, codes, said) =
        of_library("function f( { x = ; }\nfunction g() { println(\"\\d\") ");
    assert!(left_out && codes == ["W0104"], "{said}");
    let begin = "warning[W0104]: `lib/f.stp` is left out, because it does not parse: expected";
    assert!(said.starts_with(begin), "{said}");
    assert!(
        said.contains("lib/f.stp:1:13") && said.contains("--explain E0110"),
        "{said}"
    );
    let (left_out, codes, said) = of_library("function g() { println(\"\\d\") }");
    assert!(!left_out && codes == ["W0101"], "{said}");
    // Privileges are no matter of grammar.
    let (left_out, codes, said) = of_library("function f() %{ %} function g( {");
    assert!(!left_out && codes == ["E0124", "E0110"], "{said}");
}

#[test]
fn guru_mode_allows_embedded_c_and_any_address() {
    use spile_syntax::{diag::Diagnostics, parser::parse_file, preproc, source::Sources};
    let library = preproc::MacroLibrary::new();
    for (guru, errors) in [(false, 4), (true, 0)] {
        let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
        let text = "%{ int x; %} probe begin { x = @kderef(4, 8) + %{ x %} + @kregister(0) }";
        let file = sources.add("t.stp", text.as_bytes());
        let mut env = preproc::PreprocEnv::new("6.12.0", "x86_64");
        env.guru = guru;
        parse_file(&mut sources, file, &env, &library, &mut diags);
        assert_eq!(diags.error_count(), errors);
        assert_eq!(diags.render(&sources, false).contains("E0124"), !guru);
    }
}

#[test]
fn a_comment_separated_strings_before_version_2() {
    use spile_syntax::{diag::Diagnostics, parser::parse_file, preproc, source::Sources};
    let library = preproc::MacroLibrary::new();
    let texts = [
        ("\"a\" /* x */ \"b\"", "1.8", 1),
        ("\"a\" # x\n \"b\"", "1.8", 1),
        ("\"a\"\n \"b\" \"c\"", "1.8", 0),
        ("\"a\" /* x */ \"b\"", "2.0", 0),
    ];
    for (strings, version, errors) in texts {
        let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
        let text = format!("probe kernel.function({strings}) {{ }}");
        let file = sources.add("t.stp", text.into_bytes());
        let mut env = preproc::PreprocEnv::new("6.12.0", "x86_64");
        env.systemtap_version = version.into();
        parse_file(&mut sources, file, &env, &library, &mut diags);
        assert_eq!(diags.error_count(), errors, "{strings} {version}");
    }
}

#[test]
fn a_script_has_something_in_it() {
    use spile_syntax::{diag::Diagnostics, parser::parse_script, preproc, source::Sources};
    let library = preproc::MacroLibrary::new();
    for (text, wanted) in [
        ("", true),
        ("# comment\n", true),
        ("@define foo %( cheese %)", true),
        ("%( 1 == 2 %? probe begin { } %)", true),
        ("global x", false),
    ] {
        let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
        let file = sources.add("t.stp", text.as_bytes());
        let env = preproc::PreprocEnv::new("6.12.0", "x86_64");
        parse_script(&mut sources, file, &env, &library, &mut diags);
        let out = diags.render(&sources, false);
        assert_eq!(out.contains("E0127"), wanted, "{text}: {out}");
    }
}

#[test]
fn a_suffix_of_any_value_needs_the_version_that_has_it() {
    use spile_syntax::{diag::Diagnostics, parser::parse_file, preproc, source::Sources};
    let library = preproc::MacroLibrary::new();
    for value in VALUES {
        for (before, after) in SUFFIXES {
            for (version, errors) in [("2.5", 1), ("2.6", 0)] {
                let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
                let text = format!("probe begin {{ ( {before}{value}{after} ) }}");
                let file = sources.add("t.stp", text.clone().into_bytes());
                let mut env = preproc::PreprocEnv::new("6.12.0", "x86_64");
                env.guru = true;
                env.systemtap_version = version.into();
                parse_file(&mut sources, file, &env, &library, &mut diags);
                let out = diags.render(&sources, false);
                assert_eq!(diags.error_count(), errors, "{version}: {text}: {out}");
                assert_eq!(out.contains("E0126"), errors > 0);
            }
        }
    }
}

/// A value of each kind that is no variable of an event.
const VALUES: &[&str] = &[
    "(6 * 9)",
    "\"text\"",
    "42",
    "%{ 42 %}",
    "x",
    "@max(x)",
    "@defined(x)",
    "@entry(x)",
    "@perf(\"x\")",
    "x[6,9]",
    "@hist_log(x)[42]",
    "f(x)",
    "print(x)",
];

/// What can stand before a value, and after it.
const SUFFIXES: &[(&str, &str)] = &[
    ("& ", ""),
    ("", " ->member"),
    ("", "->member[2]"),
    ("", " $"),
    ("", " $$"),
    ("& ", "->member [i]"),
    ("", "->a[i]->member$"),
];

#[test]
fn a_macro_library_with_something_else_is_an_error() {
    use spile_syntax::{diag::Diagnostics, parser::parse_macros, source::Sources};
    let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
    let file = sources.add("x.stpm", &b"@define a %( 1 %)\nglobal x"[..]);
    let library = parse_macros(&mut sources, file, &common::env(Vec::new()), &mut diags);
    assert!(library.get("a").is_some());
    assert!(diags.render(&sources, false).contains("E0211"));
}

#[test]
fn a_configuration_that_cannot_be_read_is_told_once() {
    use spile_syntax::{diag::Diagnostics, parser::parse_file, preproc, source::Sources};
    let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
    let text = "%( CONFIG_X == \"y\" || CONFIG_Y != \"\" %? global no %: global yes %)";
    let file = sources.add("x.stp", text.as_bytes());
    let env = preproc::PreprocEnv::new("6.12.0", "x86_64").with_config(preproc::NoConfig);
    let library = preproc::MacroLibrary::new();
    let tree = parse_file(&mut sources, file, &env, &library, &mut diags);
    assert_eq!(spile_syntax::pretty::file(&tree).trim(), "global yes");
    assert_eq!((diags.error_count(), diags.warning_count()), (0, 1));
    assert!(diags.render(&sources, false).contains("W0102"));
}

#[test]
fn items_that_depend_on_the_version_are_warnings_if_asked() {
    use spile_syntax::{diag::Diagnostics, parser::parse_script, preproc, source::Sources};
    let library = preproc::MacroLibrary::new();
    let text = "%( systemtap_v < \"2.0\" %? global gone %)\nglobal a\n\
                probe begin { %( systemtap_v >= \"2.0\" %? println(a) %) }\n\
                function f() { return 1 } %( 1 == 1 %? probe end { println(f()) } %)\n\
                %( kernel_v > \"1\" && systemtap_v > \"1\" %? function g() { return 2 } %)\n";
    for (asked, lines) in [(false, vec![]), (true, vec![2, 3, 5])] {
        let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
        let file = sources.add("t.stp", text.as_bytes());
        let mut env = preproc::PreprocEnv::new("6.12.0", "x86_64");
        env.check_version = asked;
        parse_script(&mut sources, file, &env, &library, &mut diags);
        let out = diags.render(&sources, false);
        assert_eq!(out.matches("W0105").count(), lines.len(), "{out}");
        for line in lines {
            assert!(out.contains(&format!("t.stp:{line}:")), "{line}: {out}");
        }
    }
}
