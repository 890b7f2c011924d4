//! Runs `tests/filetests/*.ir`. A file has `; test PASS` headers, a program in text form, a line `;
//! ----`, and the expected output of the passes as comments. With `BLESS=1` the expected output is
//! written anew.
//!
//! | pass | shows |
//! |---|---|
//! | `opt` | the optimised program |
//! | `inline` | the program after inlining only |
//! | `interp` | output and error of every handler, in order |
//! | `verify` | the broken invariants |
//! | `storage` | the storage class of each global with the reason |

use std::fmt::Write;
use std::path::Path;

use spile_ir::interp::testenv::TestEnv;
use spile_ir::{HandlerId, Program, interp, opt, reader, storage, verify};

const MARK: &str = "; ----\n";

fn show(pass: &str, mut p: Program) -> String {
    let mut out = String::new();
    match pass {
        "opt" => {
            opt::optimise(&mut p, true);
            out = p.to_string();
        }
        "inline" => {
            opt::inline(&mut p);
            out = p.to_string();
        }
        "verify" => match verify::verify(&p) {
            Ok(()) => out.push_str("ok\n"),
            Err(errors) => errors.iter().for_each(|e| writeln!(out, "{e}").unwrap()),
        },
        "storage" => out = storage::classify(&mut p).to_string(),
        "interp" => {
            let mut env = TestEnv::new(&p);
            for (i, h) in p.handlers.iter().enumerate() {
                let result = interp::run(&p, HandlerId(i as u32), &mut env);
                writeln!(out, "[{}]", h.point).unwrap();
                out.push_str(&String::from_utf8_lossy(&std::mem::take(&mut env.out)));
                if let Err(e) = result {
                    write!(out, "ERROR: {e}").unwrap();
                    for (i, s) in p.trace(e.site, &e.callers).into_iter().enumerate() {
                        match i {
                            0 => write!(out, " near {}", s.near).unwrap(),
                            _ => write!(out, " (called from {})", s.near).unwrap(),
                        }
                    }
                    out.push('\n');
                }
            }
            if env.cuts != 0 {
                writeln!(out, "cuts: {}", env.cuts).unwrap();
            }
        }
        _ => panic!("unknown pass {pass}"),
    }
    out
}

#[test]
fn files_have_their_blessed_results() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let mut failed = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let source = text.split(MARK).next().unwrap();
        let program = reader::read(source).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut want = source.to_string();
        for pass in source.lines().filter_map(|l| l.strip_prefix("; test ")) {
            want.push_str(MARK);
            for line in show(pass, program.clone()).lines() {
                want.push_str(format!("; {line}").trim_end());
                want.push('\n');
            }
        }
        count += 1;
        if want != text {
            if std::env::var_os("BLESS").is_some() {
                std::fs::write(&path, &want).unwrap();
            } else {
                failed.push(format!("{}: got\n{want}", path.display()));
            }
        }
    }
    assert!(count > 0, "no file tests found");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
