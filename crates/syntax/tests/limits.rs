//! Hostile input: deep nesting, long chains, huge files, expanding macros. Each ends in an
//! error, on a thread with the stack of a test (2 MiB).

mod common;

fn code_of(text: String) -> String {
    let (_, out) = common::parse("t.stp", text.into_bytes(), Vec::new());
    let error = out.lines().find(|l| l.starts_with("error"));
    error.unwrap_or_default().to_owned()
}

fn in_probe(text: &str) -> String {
    format!("probe begin {{ {text} }}")
}

#[test]
fn deep_nesting_is_an_error() {
    let n = 10_000;
    let wraps = [
        ("x = ", "(", "1", ")"),
        ("x = ", "!", "1", ""),
        ("x = ", "- ", "1", ""),
        ("x = ", "f(", "1", ")"),
        ("x = ", "a[", "1", "]"),
        ("x = ", "@count(", "1", ")"),
        ("x = ", "$x[", "1", "]"),
        ("", "{", ";", "}"),
        ("", "if (1) ", ";", ""),
        ("", "if (1) {", ";", "}"),
        ("", "if (1) ; else ", ";", ""),
        ("", "while (1) ", ";", ""),
        ("", "for (;;) ", ";", ""),
        ("", "foreach (a in b) ", ";", ""),
        ("", "try {", ";", "} catch { }"),
        ("", "x = ", "1", ""),
        ("", "1 ? ", "1", " : 1"),
        ("", "1 ? 1 : ", "1", ""),
        ("x = ", "[", "1", "] in a"),
    ];
    for (head, open, middle, close) in wraps {
        let text = [head, &open.repeat(n), middle, &close.repeat(n)].concat();
        let code = code_of(in_probe(&text));
        assert!(code.starts_with("error[E0112]"), "{open}: {code}");
    }
    let braces = format!("probe {}a{} {{}}", "{".repeat(n), "}".repeat(n));
    assert!(code_of(braces).starts_with("error[E0112]"));
}

#[test]
fn long_chains_are_an_error() {
    for op in [" + ", " . ", " == ", " && "] {
        let code = code_of(in_probe(&format!("x = {}", vec!["1"; 100_000].join(op))));
        assert!(code.contains("error[E0112]"), "{op}: {code}");
    }
    for op in [" in a", " =~ \"x\"", "->f"] {
        let text = in_probe(&format!("x = y{}", op.repeat(100_000)));
        let (_, out) = common::parse("t.stp", text.into_bytes(), Vec::new());
        assert!(out.contains("error[E0112]") || op == "->f", "{op}: {out}");
    }
}

#[test]
fn what_is_under_the_limit_parses() {
    let n = 250;
    let sum = vec!["a"; n].join(" + ");
    let parens = format!("{}1{}", "(".repeat(n), ")".repeat(n));
    let ladder = "if (x) y++; else ".repeat(n);
    let text = in_probe(&format!("x = {sum}; x = {parens}; {ladder} z++"));
    let (ast, out) = common::parse("t.stp", text.into_bytes(), Vec::new());
    assert_eq!(out, "");
    common::assert_round_trip(&ast);
}

#[test]
fn wide_scripts_parse() {
    let n = 50_000;
    let text = format!(
        "global a{} probe begin {{ {} println({}\"\") {} }}",
        (0..n).map(|i| format!(", a{i}")).collect::<String>(),
        "x = 1 ".repeat(n),
        "\"a\" ".repeat(n),
        "$x[1]->a;".repeat(n)
    );
    assert_eq!(code_of(text), "");
}

#[test]
fn large_file_is_an_error() {
    let text = "# a comment\n".repeat(1_000_000);
    assert!(code_of(text).starts_with("error[E0109]"));
}

#[test]
fn a_megabyte_of_garbage_does_not_panic() {
    for piece in [
        "{",
        "}",
        "(",
        "\"",
        "\"\n",
        "%(",
        "%)",
        "@",
        "$",
        "é",
        "probe ",
        "/*",
        "%{",
        "@a(",
        "probe a{",
        "global ",
        "function f(",
        "@define a %( ",
        "\\",
        "\u{1}",
    ] {
        let start = std::time::Instant::now();
        let text = piece.repeat(1_000_000 / piece.len());
        let code = code_of(text);
        assert!(code.starts_with("error["), "{piece}: {code}");
        let code = code_of(in_probe(&piece.repeat(99_999)));
        assert!(code.starts_with("error["), "{piece}: {code}");
        println!("{piece:?} {:?}", start.elapsed());
    }
}

#[test]
fn exploding_macros_are_an_error() {
    let mut text = String::from("@define m0 %( 1 + 1 %)\n");
    for i in 1..60 {
        text += &format!("@define m{i} %( @m{} + @m{} %)\n", i - 1, i - 1);
    }
    text += "probe begin { x = @m59 }";
    let code = code_of(text);
    assert!(
        code.starts_with("error[E0205]") || code.starts_with("error[E0112]"),
        "{code}"
    );
}

#[test]
fn nested_macros_are_limited() {
    let mut text = String::from("@define m0 %( 1 %)\n");
    for i in 1..5_000 {
        text += &format!("@define m{i} %( @m{} %)\n", i - 1);
    }
    text += "probe begin { x = @m4999 }";
    assert!(code_of(text).starts_with("error[E0205]"));
    let n = 5_000;
    let nested = format!("{}1{}", "@id(".repeat(n), ")".repeat(n));
    let text = format!("@define id(a) %( @a %)\nprobe begin {{ x = {nested} }}");
    assert!(code_of(text).starts_with("error[E0205]"));
}

#[test]
fn exploding_braces_are_an_error() {
    let text = format!("probe a{} {{}}", ".{a,b}".repeat(40));
    assert!(code_of(text).starts_with("error[E0122]"));
}

#[test]
fn arguments_are_not_expanded_in_arguments() {
    let args = vec!["$1".to_owned()];
    let (_, out) = common::parse("t.stp", b"probe begin { x = $1 }".to_vec(), args);
    assert!(out.starts_with("error[E0201]"), "{out}");
}
