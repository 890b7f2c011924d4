//! Formatter inputs and their outputs.

use super::*;

fn fmt(text: &str) -> String {
    let out = format(text.as_bytes()).unwrap_or_else(|e| panic!("{e:?}: {text}"));
    let again = format(&out).expect("formatted");
    let out = String::from_utf8(out).expect("UTF-8");
    assert_eq!(
        out,
        String::from_utf8(again).expect("UTF-8"),
        "not idempotent"
    );
    out
}

#[track_caller]
fn check(text: &str, want: &str) {
    assert_eq!(fmt(text), want);
}

/// Formats the body of a handler, and compares it without its indentation.
#[track_caller]
fn body(text: &str, want: &str) {
    let out = fmt(&format!("probe begin {{\n{text}\n}}"));
    let inner = out
        .strip_prefix("probe begin {\n")
        .and_then(|t| t.strip_suffix("}\n"));
    let lines: Vec<&str> = inner
        .expect("a handler")
        .lines()
        .map(|l| l.get(2..).unwrap_or(l))
        .collect();
    assert_eq!(lines.join("\n"), want);
}

#[test]
fn blanks_stand_around_operators() {
    body("a=b+c*-d", "a = b + c * -d");
    body("a = - - b", "a = - -b");
    body("a = !b&&~c||&$d->e", "a = !b && ~c || &$d->e");
    body("i ++ ; -- j", "i++; --j");
    body("x [ 1,2 ]<<<f ( y )", "x[1, 2] <<< f(y)");
    body("s = a.b.\"c\"", "s = a . b . \"c\"");
    body("x = a?b:c", "x = a ? b : c");
    body(
        "if([a,b] in c)delete c[a,*]",
        "if ([a, b] in c) delete c[a, *]",
    );
    body("printf (\"%d\", @count ( x ))", "printf(\"%d\", @count(x))");
    body("v = $task -> comm [ 0 ]", "v = $task->comm[0]");
    body("return (a)", "return (a)");
    body("a = 1   b = 2 c = 3", "a = 1  b = 2 c = 3");
}

#[test]
fn heads_of_loops_have_one_form() {
    body(
        "foreach([a-,b] in c limit 5){x}",
        "foreach ([a-, b] in c limit 5) { x }",
    );
    body(
        "foreach (v=[a] in c[*,1] @sum - ) x",
        "foreach (v = [a] in c[*, 1] @sum-) x",
    );
    body("for(i=0;i<3;i++) x", "for (i = 0; i < 3; i++) x");
    body("while(1)\nx", "while (1)\n  x");
}

#[test]
fn braces_stay_and_governed_statements_are_indented() {
    check("probe begin\n{\nx }", "probe begin {\n  x\n}\n");
    check("probe begin{x}", "probe begin { x }\n");
    check(
        "function f:long (a : long,b)\n{ return a }",
        "function f:long(a:long, b) { return a }\n",
    );
    check("function f() : 3 { }", "function f() : 3 {}\n");
    body(
        "if (a)\n{\nb\n}\nelse\n{\nc\n}",
        "if (a) {\n  b\n} else {\n  c\n}",
    );
    body(
        "if (a)\nif (b)\nc\nelse\nd\ne",
        "if (a)\n  if (b)\n    c\n  else\n    d\ne",
    );
    body(
        "if (a) {\nb\n} else if (c) d; else\ne",
        "if (a) {\n  b\n} else if (c) d; else\n  e",
    );
    body(
        "try{\na\n}\ncatch(m){\nb\n}",
        "try {\n  a\n} catch (m) {\n  b\n}",
    );
    body("if (a) ; else b", "if (a); else b");
    body("{\na\n}", "{\n  a\n}");
}

#[test]
fn items_have_one_form() {
    check(
        "global a,b=3 , c%[10],d = \"x\"",
        "global a, b = 3, c%[10], d = \"x\"\n",
    );
    check("global a,\nb", "global a,\n       b\n");
    check(
        "private global a\nprivate function f(){}",
        "private global a\nprivate function f() {}\n",
    );
    check(
        "probe syscall.{open,close}.return ? , kernel . trace(\"a*\") !if(x){}",
        "probe syscall.{open,close}.return?, kernel.trace(\"a*\")! if (x) {}\n",
    );
    check("probe a=b,\nc\n{\n}", "probe a = b,\n      c {}\n");
    check("probe a = b { x } , { y }", "probe a = b { x }, { y }\n");
    check("probe a.*b*.c* { }", "probe a.*b*.c* {}\n");
}

#[test]
fn comments_stay() {
    check(
        "#! /bin/x\n\n\n\n# a\nprobe begin { }  # b\n",
        "#! /bin/x\n\n# a\nprobe begin {}  # b\n",
    );
    body("# a\n\n\n# b\nx # c\n# d", "# a\n\n# b\nx  # c\n# d");
    body("x      # a\nlonger # b", "x       # a\nlonger  # b");
    body("x # a\nlonger # b", "x  # a\nlonger  # b");
    body("f(/* a */ x /* b */)", "f( /* a */ x /* b */)");
    body("if (a) // why\n{\nx\n}", "if (a)  // why\n{\n  x\n}");
    body("/* a\n * b\n */\nx", "/* a\n * b\n */\nx");
    body(
        "if (a)\n# one\nx\n# two\nelse\ny",
        "if (a)\n  # one\n  x\n# two\nelse\n  y",
    );
    let latin1 = format(b"# \xe9\nprobe begin{ }").expect("formatted");
    assert_eq!(latin1, b"# \xe9\nprobe begin {}\n");
}

#[test]
fn continued_lines_are_indented() {
    body("f(a,\nb)", "f(a,\n  b)");
    body("f(\na\n)", "f(\n  a\n)");
    body("x =\n1 +\n2\ny", "x =\n  1 +\n  2\ny");
    body("if (a &&\nb)\nc", "if (a &&\n    b)\n  c");
}

#[test]
fn preprocessor_constructs_have_one_form() {
    check(
        "@define m(a,b) %(@a+@b%)",
        "@define m(a, b) %( @a + @b %)\n",
    );
    check(
        "@define m\n%(\nif (x) @y\n%)",
        "@define m %(\n  if (x) @y\n%)\n",
    );
    check(
        "%( kernel_v>=\"3\" %?\nglobal a\n%:\nglobal b\n%)\nprobe begin { }",
        "%( kernel_v >= \"3\" %?\nglobal a\n%:\nglobal b\n%)\nprobe begin {}\n",
    );
    body(
        "%( $#>1 %?\nx=$1\n%:\nx=@1\n%)\ny",
        "%( $# > 1 %?\n  x = $1\n%:\n  x = @1\n%)\ny",
    );
    // A block that begins in both branches.
    check(
        "%( arch == \"a\" %?\nprobe x {\n%:\nprobe y {\n%)\nz\n}",
        "%( arch == \"a\" %?\nprobe x {\n%:\nprobe y {\n%)\n  z\n}\n",
    );
    check(
        "function f() %{  a;\n   b %}",
        "function f() %{  a;\n   b %}\n",
    );
}

#[test]
fn anything_with_tokens_comes_out() {
    for text in [
        "",
        "\n\n",
        "# a",
        "}",
        ")",
        "%)",
        "%:",
        "{{{",
        "else",
        "catch",
        "@define",
        "%( %? %: %: %)",
        "a b c",
    ] {
        fmt(text);
    }
    assert_eq!(format(b"\"a"), Err(FormatRefusal::Errors));
    assert_eq!(
        format("{".repeat(5000).as_bytes()),
        Err(FormatRefusal::TooDeep)
    );
    assert_eq!(
        format("%(".repeat(5000).as_bytes()),
        Err(FormatRefusal::TooDeep)
    );
}

#[test]
fn a_script_is_parsed_before_and_after() {
    let run = |name: &str, text: &str| {
        let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
        let file = sources.add(name, text.as_bytes().to_vec());
        let (env, none) = (PreprocEnv::new("6.12.0", "x86_64"), MacroLibrary::new());
        let out = format_script(&mut sources, file, text.as_bytes(), &env, &none, &mut diags);
        (
            out.map(|o| String::from_utf8(o).expect("UTF-8")),
            diags.render(&sources, false),
        )
    };
    let (out, said) = run("a.stp", "probe timer.s($1){print(@2)}");
    assert_eq!(
        (out.as_deref(), &*said),
        (Some("probe timer.s($1) { print(@2) }\n"), "")
    );
    let (out, said) = run("a.stp", "probe begin {");
    assert!(out.is_none() && said.contains("E0111"), "{said}");
    let (out, said) = run("a.stpm", "@define a %( 1 %)");
    assert_eq!((out.as_deref(), &*said), (Some("@define a %( 1 %)\n"), ""));
}
