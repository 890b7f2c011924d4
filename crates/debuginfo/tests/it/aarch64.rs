//! A program of 64-bit ARM, which clang compiles here: functions, ends of prologues, parameters and unwind rows.

use std::process::Command;

use spile_abi::AARCH64;
use spile_debuginfo::cfi::{self, Cfa, SavedRule};
use spile_debuginfo::{DebugFile, LocStep, Location, LocationKinds, Pattern, SearchPaths};

use crate::build::{Dir, run};

const PROGRAM: &str = "\
__attribute__((noinline)) static int twice(int n) { volatile int kept = 2 * n; return kept; }
int calls(int a, long b) {
  volatile int sum = 0;
  for (int i = 0; i < a; i++)
    sum += twice(i) + (int)b;
  return sum;
}
";

/// Opens the program, compiled with these flags.
fn open(dir: &Dir, flags: &[&str]) -> DebugFile {
    let common = ["--target=aarch64-linux-gnu", "-g", "-c"];
    let path = dir.compile_by("clang", "a.c", PROGRAM, &[&common, flags].concat());
    DebugFile::open(&path, &SearchPaths::default()).expect("opened")
}

fn named(text: &str) -> Pattern<'_> {
    Pattern { text, glob: None }
}

const OUTLINE: LocationKinds = LocationKinds {
    outline: true,
    inlined: false,
};

/// The distance from a function's start to the end of its prologue, as LLVM prints it.
fn prologue(dir: &Dir, line: u32) -> u64 {
    let table = run(Command::new("llvm-dwarfdump")
        .arg("--debug-line")
        .arg(dir.path().join("a")));
    let rows = table.lines().filter_map(|row| {
        let mut words = row.split_whitespace();
        let address = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        let at: u32 = words.next()?.parse().ok()?;
        Some((address, at, row.ends_with("prologue_end")))
    });
    let rows: Vec<_> = rows.collect();
    let start = rows.iter().find(|r| r.1 == line).expect("a start").0;
    let end = rows.iter().find(|r| r.0 >= start && r.2).expect("an end");
    end.0 - start
}

#[test]
fn functions_of_64_bit_arm_are_probed_behind_their_prologues() {
    let dir = Dir::new();
    let module = open(&dir, &["-O0"]);
    let dwarf = module.dwarf().expect("DWARF");
    for (name, line) in [("calls", 2), ("twice", 1)] {
        let found = dwarf.functions(named(name), None, OUTLINE);
        let [function] = &found[..] else {
            panic!("{name}: {found:?}");
        };
        assert_eq!(
            function.body - function.entry,
            prologue(&dir, line),
            "{name}"
        );
        assert!(function.body > function.entry, "{name}");
    }
}

#[test]
fn parameters_of_64_bit_arm_are_in_frames_and_registers() {
    // clang stores `a` four bytes below the frame record, to which x29 points.
    let dir = Dir::new();
    let module = open(&dir, &["-O0"]);
    let dwarf = module.dwarf().expect("DWARF");
    let calls = &dwarf.functions(named("calls"), None, OUTLINE)[0];
    let variables = dwarf.variables(calls.body, Some(calls.die));
    let a = variables.iter().find(|v| &*v.name == "a").expect("a");
    let Ok(Location::Address(steps)) = dwarf.locate(a, calls.body) else {
        panic!("{:?}", dwarf.locate(a, calls.body));
    };
    assert!(
        steps.contains(&LocStep::Reg(AARCH64.frame_pointer)),
        "{steps:?}"
    );
    assert!(steps.contains(&LocStep::Const(-4)), "{steps:?}");
    // Optimised code has them in the registers of the convention.
    let dir = Dir::new();
    let module = open(&dir, &["-O2"]);
    let dwarf = module.dwarf().expect("DWARF");
    let calls = &dwarf.functions(named("calls"), None, OUTLINE)[0];
    let variables = dwarf.variables(calls.entry, Some(calls.die));
    for (name, register) in ["a", "b"].into_iter().zip(AARCH64.calls.arguments) {
        let variable = variables.iter().find(|v| &*v.name == name).expect(name);
        match dwarf.locate(variable, calls.entry) {
            Ok(Location::Value(steps)) => {
                assert!(
                    steps.contains(&LocStep::Reg(*register)),
                    "{name}: {steps:?}"
                );
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// The rows that `llvm-dwarfdump --debug-frame` prints.
#[test]
fn unwind_rows_of_64_bit_arm_have_the_link_register() {
    let dir = Dir::new();
    let module = open(&dir, &["-O0", "-fno-asynchronous-unwind-tables"]);
    let dwarf = module.dwarf().expect("DWARF");
    let calls = &dwarf.functions(named("calls"), None, OUTLINE)[0];
    let rows = cfi::rows(module.image(), None);
    let at = |address| *cfi::row_at(&rows, address).expect("a row");
    let (sp, fp) = (AARCH64.stack_pointer, AARCH64.frame_pointer);
    let entry = at(calls.entry);
    assert_eq!(
        entry.cfa,
        Cfa::Register {
            register: sp,
            offset: 0
        }
    );
    assert_eq!(
        (entry.frame_pointer, entry.ra),
        (SavedRule::Same, SavedRule::Same)
    );
    let body = at(calls.body);
    assert_eq!(
        body.cfa,
        Cfa::Register {
            register: fp,
            offset: 16
        }
    );
    assert_eq!(body.frame_pointer, SavedRule::AtCfa(-16));
    assert_eq!(body.ra, SavedRule::AtCfa(-8));
}
