//! Tests the objects with other programs, where they are installed.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::spec;
use spile_ebpf::isa::disasm;

/// Runs a program; the test is skipped if it is not installed.
fn output(program: &str, args: &[&str]) -> (bool, String) {
    match Command::new(program).args(args).output() {
        Ok(out) => {
            let text = [out.stdout, out.stderr].concat();
            (
                out.status.success(),
                String::from_utf8_lossy(&text).into_owned(),
            )
        }
        Err(e) => spile_testing::skip!("{program}: {e}"),
    }
}

fn object_file(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, spec().write().expect("complete")).expect("written");
    path
}

#[test]
fn bpftool_reads_types() {
    let path = object_file("types.bpf.o");
    let path = path.to_str().expect("UTF-8");
    let (ok, text) = output("bpftool", &["btf", "dump", "file", path]);
    assert!(ok, "{text}");
    for part in [
        "FUNC 'on_enter'",
        "linkage=global",
        "FUNC 'multiply'",
        "linkage=static",
        "VAR 'counts'",
        "DATASEC '.maps' size=80 vlen=3",
        "DATASEC '.bss' size=8388608 vlen=1",
        "DATASEC '.rodata' size=16 vlen=1",
        "'max_entries'",
        "nr_elems=4096",
        "'sum'",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}

/// Loads and dumps in a mount namespace of its own, whose pins disappear with it.
#[test]
fn bpftool_loads() {
    let path = object_file("loads.bpf.o");
    let dir = path.with_extension("bpffs");
    std::fs::create_dir_all(&dir).expect("directory");
    let script = "mount -t bpf bpf \"$2\" || exit 77
        bpftool version >/dev/null || exit 77
        bpftool prog loadall \"$1\" \"$2/pins\" && bpftool prog dump xlated pinned \"$2/pins/on_enter\"";
    let out = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .args([&path, &dir])
        .output();
    let out = match out {
        Ok(out) => out,
        Err(e) => spile_testing::skip!("unshare: {e}"),
    };
    let text = [out.stdout, out.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    if out.status.code() == Some(77) || text.contains("not permitted") {
        spile_testing::skip!("{text}");
    }
    assert!(out.status.success(), "{text}");
    for part in [
        "foreach (k in counts)",
        "add_value",
        "multiply",
        "bpf_ringbuf_output#",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}

#[test]
fn readelf_reads_sections() {
    let path = object_file("sections.bpf.o");
    let path = path.to_str().expect("UTF-8");
    let (ok, text) = output("readelf", &["-hSsrW", path]);
    assert!(ok, "{text}");
    let field = |name: &str, words: &[&str]| {
        let line = text.lines().find(|l| {
            let words_of_line: Vec<&str> = l.split_whitespace().collect();
            words_of_line.contains(&name) && words.iter().all(|w| words_of_line.contains(w))
        });
        assert!(line.is_some(), "no {name} with {words:?} in\n{text}");
    };
    field("REL", &["(Relocatable"]);
    field("Linux", &["BPF"]);
    field(".bss", &["NOBITS", "800000", "WA"]);
    field(".rodata", &["PROGBITS", "A"]);
    field("raw_tp/sys_enter", &["PROGBITS", "AX"]);
    field("on_enter", &["FUNC", "GLOBAL"]);
    field("tock", &["FUNC", "GLOBAL"]);
    field("multiply", &["FUNC", "LOCAL"]);
    field("counts", &["OBJECT", "GLOBAL"]);
    for name in ["counts", "out", ".bss", ".rodata", ".text"] {
        let refers = |l: &str| l.contains("R_BPF_") && l.split_whitespace().last() == Some(name);
        assert!(
            text.lines().any(refers),
            "no reference to {name} in\n{text}"
        );
    }
    assert!(
        !text.contains("warning") && !text.contains("Warning"),
        "{text}"
    );
}

/// The disassembly of a function's bytes equals the assembler's listing.
#[test]
fn listing_and_disassembly() {
    for program in &spec().programs {
        let mut bytes = Vec::new();
        program
            .function
            .insns
            .iter()
            .for_each(|i| i.encode(&mut bytes));
        let listing = program.function.listing();
        let plain: Vec<&str> = listing
            .lines()
            .filter(|l| !l.trim_start().starts_with(';') && !l.ends_with("):"))
            .map(|l| l.split("  <").next().unwrap_or_default())
            .collect();
        assert_eq!(plain.join("\n") + "\n", disasm::text(&bytes));
    }
}

#[test]
fn same_input_same_bytes() {
    assert_eq!(spec().write(), spec().write());
    let bytes = spec().write().expect("complete");
    assert!(
        bytes.len() < 8192,
        "the state memory takes no space: {}",
        bytes.len()
    );
}
