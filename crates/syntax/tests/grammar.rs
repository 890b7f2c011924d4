//! The grammar by example: source text, and the pretty-printer's output.

mod common;

use spile_syntax::ast::*;
use spile_syntax::codes;
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{Definitions, parse_part};
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::pretty;
use spile_syntax::source::Sources;

/// The only expression statement of a probe that contains `text`.
fn expr(text: &str) -> String {
    let source = format!("probe begin {{ {text} }}");
    let (ast, out) = common::parse("t.stp", source.into_bytes(), vec!["a1".into()]);
    // The tests are about precedence: brackets are left out on purpose.
    let only_precedence = out.matches("[W").count() == out.matches("[W0103]").count();
    assert!(!out.contains("error") && only_precedence, "{text}: {out}");
    match &ast.items[..] {
        [Item::Probe(Probe { body, .. })] => match &body.stmts[..] {
            [
                Stmt {
                    kind: StmtKind::Expr(e),
                    ..
                },
            ] => bracketed(e),
            other => panic!("{text}: {other:?}"),
        },
        other => panic!("{text}: {other:?}"),
    }
}

/// The structure of binary operators with every bracket written.
fn bracketed(e: &Expr) -> String {
    match &e.kind {
        ExprKind::Binary(op, l, r) => format!("({} {op:?} {})", bracketed(l), bracketed(r)),
        ExprKind::Ternary(c, a, b) => {
            format!("({} ? {} : {})", bracketed(c), bracketed(a), bracketed(b))
        }
        ExprKind::Assign { op, lhs, rhs } => {
            let op = op.map_or(String::new(), |op| format!("{op:?}"));
            format!("({} {op}= {})", bracketed(lhs), bracketed(rhs))
        }
        ExprKind::StatAdd { lhs, rhs } => format!("({} <<< {})", bracketed(lhs), bracketed(rhs)),
        ExprKind::Unary(op, x) => format!("({op:?} {})", bracketed(x)),
        ExprKind::In { keys, array } => {
            let keys = keys.iter().map(|k| match k {
                Key::Expr(e) => bracketed(e),
                Key::Any(_) => "*".into(),
            });
            format!(
                "([{}] in {})",
                keys.collect::<Vec<_>>().join(", "),
                array.name
            )
        }
        ExprKind::Match { subject, .. } => format!("({} =~)", bracketed(subject)),
        _ => pretty::expr(e),
    }
}

#[test]
fn operators_bind_by_precedence() {
    let cases = [
        ("a = b <<< c", "(a = (b <<< c))"),
        ("a += b ? c : d = e", "(a Add= (b ? c : (d = e)))"),
        ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
        (
            "a || b && c | d ^ e & f",
            "(a LogOr (b LogAnd (c Or (d Xor (e And f)))))",
        ),
        ("a & b in c", "(a And ([b] in c))"),
        ("a == b in c", "([(a Eq b)] in c)"),
        ("[a, *] in c && d", "(([a, *] in c) LogAnd d)"),
        ("a < b << c", "(a Lt (b Shl c))"),
        ("a << b . c", "(a Shl (b Concat c))"),
        ("a . b + c", "(a Concat (b Add c))"),
        ("a . b . c", "((a Concat b) Concat c)"),
        ("a + b * c % d", "(a Add ((b Mul c) Mod d))"),
        ("a - b - c", "((a Sub b) Sub c)"),
        ("-a * !b", "((Neg a) Mul (Not b))"),
        ("-x++", "(Neg x++)"),
        ("a >>> b >> c", "((a UShr b) Shr c)"),
        ("a . b =~ \"x\" && c", "(((a Concat b) =~) LogAnd c)"),
        ("a == b != c", "((a Eq b) Ne c)"),
        ("~-a", "(BitNot (Neg a))"),
        ("a - -b", "(a Sub (Neg b))"),
        ("a & &$b->c", "(a And &$b->c)"),
    ];
    for (text, wanted) in cases {
        assert_eq!(expr(text), wanted, "{text}");
    }
}

#[test]
fn values_print_as_written() {
    for text in [
        "$x->a[1]->b$",
        "(x)[1]",
        "(x[1])[2]->f",
        "&(x)",
        "(f(1) . g)->h$$",
        "([x] in a)->f",
        "$x$$",
        "&$x",
        "$$vars",
        "$$parms$",
        "$return",
        "@cast(p, \"t\", \"m\")->f",
        "&@var(\"n@f.c\")->x[2]",
        "@cast(p, \"task_struct\")$",
        "@entry($x)",
        "@defined($x->y)",
        "f(1)->next->pid",
        "e->f",
        "(1 + 2)->f",
        "@hist_log(x)[3]",
        "@hist_linear(x, -10, 10, 2)",
        "@variance(x, 3)",
        "@count(x[1, 2])",
        "print_char(65)",
        "sprintf(\"%d\", x)",
        "printdln(\", \", a, b)",
        "@kderef(8, x)",
        "@enumname(x, \"t\")",
        "a[b[1], \"x\"]",
        "x++",
        "--$y",
    ] {
        assert_eq!(expr(text), text);
    }
    // Without the brackets it would be a statement.
    assert_eq!(expr("(%{ 1 %})"), "%{ 1 %}");
}

fn points(text: &str) -> Vec<String> {
    let (mut sources, mut diags) = Default::default();
    let points = spile_syntax::parser::parse_probe_points(&mut sources, "-l", text, &mut diags);
    assert!(diags.is_empty(), "{}", diags.render(&sources, false));
    points.iter().map(pretty::probe_point).collect()
}

#[test]
fn probe_points_with_alternatives_are_expanded() {
    let cases: &[(&str, &[&str])] = &[
        ("syscall.*", &["syscall.*"]),
        (
            "syscall.{open,close}.return?",
            &["syscall.open.return?", "syscall.close.return?"],
        ),
        ("{a,b.{c,d}}.e!", &["a.e!", "b.c.e!", "b.d.e!"]),
        (
            "kernel.{trace(\"a\")!, trace(\"b\")}",
            &["kernel.trace(\"a\")!", "kernel.trace(\"b\")"],
        ),
        (
            "process(\"/bin/*\").function(\"**\").return",
            &["process(\"/bin/*\").function(\"**\").return"],
        ),
        (
            "a.**, timer.s(1) if (x > 1)",
            &["a.**", "timer.s(1) if (x > 1)"],
        ),
        (
            "kernel.statement(0xff).absolute",
            &["kernel.statement(255).absolute"],
        ),
        ("syscall.*64_x32", &["syscall.*64_x32"]),
        ("kernel.function(\"a\" \"b\")", &["kernel.function(\"ab\")"]),
        ("foo.probe.function.return", &["foo.probe.function.return"]),
    ];
    for (text, wanted) in cases {
        assert_eq!(&points(text), wanted, "{text}");
    }
    let (mut sources, mut diags) = Default::default();
    let none = spile_syntax::parser::parse_probe_points(&mut sources, "-l", "a.b {}", &mut diags);
    assert!(none.is_empty() && diags.has_errors());
}

/// The text of `-l` as a file, printed; with its errors.
fn pattern(text: &str) -> (String, String) {
    let (mut sources, mut diags) = <(spile_syntax::source::Sources, Diagnostics)>::default();
    let (env, macros) = (PreprocEnv::new("6.12.0", "x86_64"), MacroLibrary::new());
    let id = sources.add("-l", text.as_bytes().to_vec());
    let file = spile_syntax::parser::parse_pattern(&mut sources, id, &env, &macros, &mut diags);
    (pretty::file(&file), diags.render(&sources, false))
}

#[test]
fn definitions_precede_the_points_of_a_pattern() {
    let same = |text: &str, script: &str| {
        let (printed, errors) = pattern(text);
        assert_eq!(
            (printed, errors),
            (pretty::file(&file(script)), String::new())
        );
    };
    same("syscall.{open,close}?", "probe syscall.{open,close}? { }");
    same(
        "a = begin { x = 1 } probe a",
        "probe a = begin { x = 1 } probe a { }",
    );
    same(
        "a += end { f() } function f() { } global g probe a, begin",
        "probe a += end { f() } function f() { } global g probe a, begin { }",
    );
    same("end { } probe begin", "probe end { } probe begin { }");
    for wrong in ["a = begin", "a = begin { ", "a {} {}", "a.b c"] {
        assert!(pattern(wrong).1.starts_with("error"), "{wrong}");
    }
}

fn file(text: &str) -> File {
    let args = vec!["5".to_owned(), "x y".to_owned()];
    let (ast, out) = common::parse("t.stp", text.as_bytes().to_vec(), args);
    assert_eq!(out, "", "{text}");
    ast
}

#[test]
fn statements_need_no_semicolons() {
    let text = "function f() { x = 1 y = 2; if (x) y++; else z++ while (x) { break } ; return }";
    let printed = pretty::file(&file(text));
    let wanted = "function f() {\n  x = 1;\n  y = 2;\n  if (x)\n    y++;\n  else\n    z++;\n  \
                  while (x) {\n    break;\n  }\n  ;\n  return;\n}\n";
    assert_eq!(printed, wanted);
}

#[test]
fn every_top_level_item_is_parsed() {
    let text = "private global a, b = -3, c[100], d%, e%[10]\nglobal f = \"x\" \"y\";\n\
                function g:string(a:long, b) :2 { return \"\" }\nfunction h(a) %{ C %}\n\
                probe x = y = begin, end { } , { }\nprobe z += begin { }\n%{ C %}\n";
    let printed = pretty::file(&file(text));
    let wanted = "private global a, b = -3, c[100], d%, e%[10]\n\nglobal f = \"xy\"\n\n\
                  function g:string(a:long, b) : 2 {\n  return \"\";\n}\n\n\
                  function h(a) %{ C %}\n\nprobe x = y = begin, end {\n}, {\n}\n\n\
                  probe z += begin {\n}\n\n%{ C %}\n";
    assert_eq!(printed, wanted);
}

#[test]
fn documentation_is_kept() {
    let text = "// not this\n\n/**\n * sfunction f - does\n *  it\n */\nfunction f() { }\n\
                # one\n# two\nprobe a = begin { }\nfunction g() { }";
    let ast = file(text);
    let docs: Vec<_> = ast
        .items
        .iter()
        .map(|i| match i {
            Item::Function(f) => f.doc.as_deref(),
            Item::Alias(a) => a.doc.as_deref(),
            _ => None,
        })
        .collect();
    assert_eq!(
        docs,
        [Some("sfunction f - does\n it"), Some("one\ntwo"), None]
    );
}

#[test]
fn conditions_of_the_preprocessor_select_code() {
    let cases = [
        (
            "%( kernel_v >= \"6.9\" %? global yes %: global no %)",
            "yes",
        ),
        (
            "%( kernel_vr == \"6.12*amd64\" %? global yes %: global no %)",
            "yes",
        ),
        (
            "%( arch == \"i386\" || arch == \"x86_64\" && 1 == 1 %? global yes %: global no %)",
            "yes",
        ),
        (
            "%( 1 == 1 || 1 == 1 && 1 == 2 %? global yes %: global no %)",
            "yes",
        ),
        (
            "%( systemtap_v < \"2.3\" %? global no %: global yes %)",
            "yes",
        ),
        ("%( CONFIG_X == \"y\" %? global no %: global yes %)", "yes"),
        (
            "%( CONFIG_HZ >= 100 && CONFIG_HZ < 1000 %? global yes %)",
            "yes",
        ),
        ("%( CONFIG_NR_CPUS == 64 %? global yes %)", "yes"),
        ("%( CONFIG_NR_CPUS < CONFIG_HZ %? global yes %)", "yes"),
        // An option that is not set is "" and 0.
        (
            "%( CONFIG_NO == \"\" && CONFIG_NO == 0 %? global yes %)",
            "yes",
        ),
        (
            "%( CONFIG_MOD == \"[ym]\" && CONFIG_MOD != \"y\" %? global yes %)",
            "yes",
        ),
        ("%( CONFIG_MOD != CONFIG_NO %? global yes %)", "yes"),
        (
            "%( kernel_v != \"6.1.*\" && kernel_v == \"6.*\" %? global yes %)",
            "yes",
        ),
        (
            "%( arch == \"x86*\" && runtime == \"k*l\" %? global yes %)",
            "yes",
        ),
        (
            "%( systemtap_privilege != \"stapusr\" %? global yes %)",
            "yes",
        ),
        (
            "%( \"abc\" < \"abd\" && \"a*\" != \"abc\" && 2 <= 3 %? global yes %)",
            "yes",
        ),
        (
            "%( 1 == 2 %? global no %: %( 1 != 1 %? global no %: global yes %) %)",
            "yes",
        ),
        (
            "%( $# == 2 %? %( @2 == \"x y\" %? global yes %) %: global no %)",
            "yes",
        ),
        ("%( $1 > 4 %? global yes %)", "yes"),
        ("%( @# == \"2\" %? global yes %)", "yes"),
        (
            "%( guru_mode == 1 && runtime != \"bpf\" %? global yes %)",
            "yes",
        ),
        (
            "%( 1 == 2 %? @define n %( no %) global @nothing ( %: @define n %( yes %) %) global @n",
            "yes",
        ),
        (
            "@define id(x) %( @x %)\n@define y %( yes %)\nglobal @id(@id(@y))",
            "yes",
        ),
        // The parameter of the caller, not of the called macro.
        (
            "@define in(a) %( @a %)\n@define out(a) %( @in(@a) %)\nglobal @out(yes)",
            "yes",
        ),
    ];
    for (text, wanted) in cases {
        let ast = file(text);
        match &ast.items[..] {
            [Item::Global(g)] => assert_eq!(&*g.vars[0].name.name, wanted, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn literals_have_their_values() {
    let text =
        "global a = 0x7f, b = 017, c = 18446744073709551615, d = \"\\x41\\101\\n\\\"\", e = @2";
    let ast = file(text);
    let [Item::Global(g)] = &ast.items[..] else {
        panic!("{ast:?}")
    };
    let values: Vec<_> = g.vars.iter().map(|v| v.init.clone()).collect();
    let num = |n| Some(Literal::Num(n));
    let text = |s: &str| Some(Literal::Str(s.as_bytes().into()));
    assert_eq!(
        values,
        [num(127), num(15), num(-1), text("AA\n\""), text("x y")]
    );
}

#[test]
fn parts_of_a_script_know_those_before_them() {
    let (mut sources, mut before) = (Sources::new(), Definitions::default());
    let (env, library) = (PreprocEnv::new("6.18.0", "x86_64"), MacroLibrary::new());
    let mut errors = |text: &str| {
        let mut diags = Diagnostics::new();
        let file = sources.add("part", text.as_bytes().to_vec());
        parse_part(&mut sources, file, &env, &library, &mut before, &mut diags);
        diags.iter().map(|d| d.code).collect::<Vec<_>>()
    };
    assert_eq!(errors("global a, b"), [""; 0]);
    assert_eq!(errors("@define one %( println(1) %)"), [""; 0]);
    assert_eq!(errors("probe begin { @one }"), [""; 0]);
    assert_eq!(errors("global b"), [codes::BAD_DECLARATION]);
    assert_eq!(errors("@define one %( 1 %)"), [codes::MACRO_TWICE]);
    // A part with an error defines nothing.
    assert_eq!(errors("global c @define two %( 2 %) probe").len(), 1);
    assert_eq!(errors("global c @define two %( 2 %)"), [""; 0]);
}
