//! The front end as the fuzz target and the short run under `cargo test` drive it.

/// Runs the whole front end on arbitrary bytes and renders its diagnostics. Text that parses
/// without errors must also parse after pretty-printing, and formatting is idempotent on it. Text
/// that has tokens can be formatted; if brackets do not match, each formatting may change it.
pub(crate) fn front_end(data: &[u8]) {
    use spile_syntax::{diag, fmt, parser, preproc, pretty, source};
    let mut env =
        preproc::PreprocEnv::new("6.12.0-1-amd64", "x86_64").with_args(["7", "a b", "\"x\""]);
    env.guru = true;
    let parse = |text: Vec<u8>| {
        let mut sources = source::Sources::new();
        let mut diags = diag::Diagnostics::new();
        let library = sources.add("lib.stpm", &b"@define two(a, b) %( @a + @b %)"[..]);
        let library = parser::parse_macros(&mut sources, library, &env, &mut diags);
        let file = sources.add("input.stp", text);
        let ast = parser::parse_file(&mut sources, file, &env, &library, &mut diags);
        let picture = diags.render(&sources, data.len().is_multiple_of(2));
        (ast, diags.has_errors(), picture)
    };
    let (ast, failed, _) = parse(data.to_vec());
    match (fmt::format(data), failed) {
        (Ok(out), false) => assert_eq!(fmt::format(&out).as_ref(), Ok(&out), "formatting twice"),
        (Ok(out), true) => assert!(fmt::format(&out).is_ok()),
        (Err(e), _) => assert_ne!(e, fmt::FormatRefusal::Changed),
    }
    if !failed {
        let text = pretty::file(&ast);
        let (again, failed, picture) = parse(text.clone().into_bytes());
        assert!(!failed, "{picture}\n{text}");
        assert_eq!(text, pretty::file(&again));
    }
}
