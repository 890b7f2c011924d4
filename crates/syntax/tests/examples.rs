//! The scripts that SystemTap ships parse without errors and survive pretty-printing, where
//! they are installed.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

mod common;

#[test]
fn all_example_scripts_parse_and_round_trip() {
    let scripts = common::example_scripts();
    let mut failed = Vec::new();
    for path in &scripts {
        if path.ends_with(common::TEMPLATE) {
            continue;
        }
        let Ok(text) = std::fs::read(path) else {
            continue;
        };
        let (ast, out) = common::parse(&path.display().to_string(), text, common::dummy_args(path));
        if out.is_empty() {
            common::assert_round_trip(&ast);
        } else {
            failed.push(out);
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn own_tapset_parses_and_round_trips() {
    use spile_syntax::{diag::Diagnostics, parser, preproc::MacroLibrary, source::Sources};
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tapset");
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .collect();
    paths.sort();
    let env = common::env(Vec::new());
    let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
    let mut library = MacroLibrary::new();
    library.define(&mut sources, "MAXSTRINGLEN", "512", &mut diags);
    library.define(&mut sources, "MAXBACKTRACE", "20", &mut diags);
    for is_library in [true, false] {
        let wanted = if is_library { "stpm" } else { "stp" };
        for path in paths
            .iter()
            .filter(|p| p.extension().is_some_and(|e| e == wanted))
        {
            let Ok(text) = std::fs::read(path) else {
                continue;
            };
            let file = sources.add_built_in(path.display().to_string(), text);
            if is_library {
                library.extend(parser::parse_macros(&mut sources, file, &env, &mut diags));
            } else {
                let ast = parser::parse_file(&mut sources, file, &env, &library, &mut diags);
                common::assert_round_trip(&ast);
            }
        }
    }
    assert!(diags.is_empty(), "{}", diags.render(&sources, false));
}
