//! The exits of functions, compared with `objdump`, those through tail calls, and the hazards of
//! stacks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use spile_debuginfo::exits::{self, FunctionExits};
use spile_debuginfo::tail_calls::ExitFinder;
use spile_debuginfo::{DebugFile, Image, SearchPaths, go_entry, stack_hazards};

use crate::build::{Dir, run};

const FUNCTIONS: &str = r#"
#include <stdlib.h>
typedef int (*op)(int);
extern int outside(int);
__attribute__((noipa)) int leaf(int n) { return n > 3 ? n * 7 : n - 1; }
__attribute__((noipa)) int calls(int n) { return leaf(n) + 1; }
__attribute__((noipa)) int jumps(int n) { return leaf(n + 1); }
__attribute__((noipa)) int jumps_there(op f, int n) { return f(n + 1); }
__attribute__((noipa)) int by_table(const op *table, int i, int n) { return table[i](n); }
static const op own[] = { leaf, calls, jumps, leaf, calls };
__attribute__((noipa)) int by_own_table(unsigned i, int n) { return own[i](n); }
__attribute__((noipa)) int switches(int n, int m) {
    switch (n) {
    case 0: return m * 3;
    case 1: return m ^ 5;
    case 2: return m / 3;
    case 3: return m << 2;
    case 4: return m - 4711;
    case 5: return m & 99;
    case 6: return m % 7;
    default: return 0;
    }
}
__attribute__((noipa, cold)) void rare(int n) { if (n) exit(n); }
__attribute__((noipa)) int apart(int *n) {
    if (__builtin_expect(*n == 77, 0)) { rare(1); rare(*n); *n = leaf(3); rare(2); }
    return leaf(*n) + 2;
}
__attribute__((noipa, noreturn)) void never(int n) { exit(n); }
int main(int argc, char **argv) {
    return calls(argc) + jumps(argc) + jumps_there(own[argc], 1) + by_table(own, argc, 1)
        + by_own_table(argc, 1) + switches(argc, 4) + apart(&argc);
}
"#;

/// The addresses of the instructions that return, by `objdump`.
fn returns(path: &Path) -> BTreeSet<u64> {
    let text = run(Command::new("objdump")
        .args(["-d", "--no-show-raw-insn"])
        .arg(path));
    let line = |line: &str| {
        let (at, what) = line.split_once(":\t")?;
        let mut words = what.split_whitespace();
        let word = words.find(|w| !matches!(*w, "repz" | "bnd" | "notrack"))?;
        let at = u64::from_str_radix(at.trim(), 16).ok()?;
        matches!(word, "ret" | "retq").then_some(at)
    };
    text.lines().filter_map(line).collect()
}

fn open(path: &Path) -> DebugFile {
    DebugFile::open(path, &SearchPaths::default()).expect("opened")
}

fn of(module: &DebugFile, name: &str) -> Result<FunctionExits, String> {
    let symbol = module.symbols().named(name).next().expect("a symbol");
    exits::find(module, symbol.address, &[])
}

#[test]
fn exits_of_functions_are_found() {
    let dir = Dir::new();
    for how in [
        &["-O2"][..],
        &["-O2", "-no-pie", "-fno-pic"],
        &["-O2", "-fcf-protection"],
        &["-O2", "-fno-omit-frame-pointer"],
    ] {
        let path = dir.compile("leave.c", FUNCTIONS, how);
        let module = open(&path);
        let all = returns(&path);
        let of = |name: &str| of(&module, name).unwrap_or_else(|e| panic!("{name}: {e}"));
        // Those between the start and the end of a function, and in its cold parts.
        let own = |name: &str| -> Vec<u64> {
            let mut own = BTreeSet::new();
            for name in [name, &format!("{name}.cold")] {
                if let Some(s) = module.symbols().named(name).next() {
                    own.extend(all.range(s.address..s.address + s.size));
                }
            }
            own.into_iter().collect()
        };
        for name in ["leaf", "calls", "switches", "apart", "main"] {
            let exits = of(name);
            assert_eq!(exits.returns, own(name), "{name} {how:?}");
            assert!(!exits.returns.is_empty(), "{name} {how:?}");
            assert_eq!(exits.jumps, [], "{name} {how:?}");
            let leaf = ["leaf", "switches"].contains(&name);
            assert_eq!(exits.calls, !leaf, "{name} {how:?}");
        }
        let to = |name: &str| of(name).jumps.iter().map(|j| j.to).collect::<Vec<_>>();
        let leaf = module.symbols().named("leaf").next().map(|s| s.address);
        assert_eq!(to("jumps"), [leaf], "{how:?}");
        for name in ["jumps_there", "by_table", "by_own_table"] {
            assert_eq!(to(name), [None], "{name} {how:?}");
        }
        assert_eq!(of("never").returns, [], "{how:?}");
    }
}

#[test]
fn returns_of_whole_files_are_found() {
    let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"];
    let libc = libc.iter().map(Path::new).find(|p| p.exists());
    let this = std::env::current_exe().expect("a path");
    for path in libc.into_iter().chain([&*this]) {
        let module = open(path);
        let all = returns(path);
        let (mut known, mut functions) = (0, BTreeMap::new());
        for s in module.symbols().functions().filter(|s| s.size > 0) {
            functions.insert(s.address, s);
        }
        for (address, s) in functions.iter().step_by(7) {
            let Ok(exits) = exits::find(&module, *address, &[]) else {
                continue;
            };
            known += 1;
            let inside = |at: &u64| (*address..address + s.size).contains(at);
            let found: Vec<u64> = exits.returns.iter().copied().filter(inside).collect();
            let named: Vec<u64> = all.range(address..&(address + s.size)).copied().collect();
            assert_eq!(found, named, "{} of {}", s.name, path.display());
            assert!(
                exits.returns.iter().all(|at| all.contains(at)),
                "{}",
                s.name
            );
        }
        assert!(known > functions.len() / 10, "{}", path.display());
    }
}

const TAILS: &str = r#"
extern int puts(const char *);
__attribute__((noipa)) int ends(int n) { return n > 3 ? n * 7 : n - 1; }
__attribute__((noipa)) int once(int n) { return ends(n + 1); }
__attribute__((noipa)) int twice(int n) { return n == 4 ? 9 : once(n + 1); }
__attribute__((noipa)) int there(const char *s) { return puts(s); }
__attribute__((noipa)) int pointed(int (*f)(int), int n) { return f(n + 1); }
__attribute__((noipa)) int by_pointed(int n) { return pointed(ends, n); }
int main(int n, char **v) { return once(n) + twice(n) + there(*v) + by_pointed(n); }
"#;

#[test]
fn functions_return_where_those_return_that_they_jump_to() {
    let dir = Dir::new();
    for how in [&["-O2"][..], &["-O2", "-g"], &["-O2", "-fcf-protection"]] {
        let path = dir.compile("tails.c", TAILS, how);
        let module = open(&path);
        let finder = ExitFinder::new(&module);
        let find = |name: &str| {
            let symbol = module.symbols().named(name).next().expect("a symbol");
            finder.return_locations(symbol.address)
        };
        let locations = |name: &str| find(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        let ends = locations("ends");
        assert!(
            !ends.in_function.is_empty() && ends.shared.is_empty(),
            "{how:?}"
        );
        let once = locations("once");
        assert_eq!(
            (once.in_function, once.shared),
            (Vec::new(), ends.in_function.clone())
        );
        let twice = locations("twice");
        assert_eq!(
            (twice.in_function.len(), twice.shared),
            (1, ends.in_function),
            "{how:?}"
        );
        let why = |name: &str| find(name).expect_err("unknown");
        assert!(why("there").contains("`puts` through the linkage table"));
        assert!(why("pointed").contains("an address that it computes"));
        assert!(why("by_pointed").contains("an address that it computes"));
    }
}

#[test]
fn hazards_of_stacks_are_found() {
    let dir = Dir::new();
    let hazard = |name: &str, text: &str, how: &[&str]| {
        let path = dir.compile(name, text, how);
        stack_hazards::hazard(&Image::open(&path).expect("an image"))
    };
    let plain = "#include <stdio.h>\nint main(int n, char **v) { char all[n * 64]; return sprintf(all, \"%s\", *v); }\n";
    assert_eq!(hazard("plain.c", plain, &["-O2"]), None);
    let jumps = "#include <setjmp.h>\njmp_buf b;\nint main(void) { if (!setjmp(b)) longjmp(b, 1); return 0; }\n";
    let switches =
        "int main(void) { __asm__ volatile(\"mov %%rdi, %%rsp\" ::: \"memory\"); return 0; }\n";
    for (name, text, how, expected) in [
        (
            "jumps.c",
            jumps,
            &["-O2"][..],
            "leaves functions without a return",
        ),
        ("static.c", plain, &["-O2", "-static"], "`"),
        (
            "stripped.c",
            plain,
            &["-O2", "-static", "-s"],
            "has no symbols",
        ),
        ("switches.c", switches, &["-O2"], "sets the stack pointer"),
        (
            "throws.cc",
            "int main(int n, char **) { if (n > 1) throw n; return 0; }\n",
            &["-O2"],
            "exceptions",
        ),
    ] {
        let found = hazard(name, text, how).unwrap_or_default();
        assert!(found.contains(expected), "{name}: {found}");
    }
    // The C library has these functions, which harm only where they are used.
    let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"];
    for libc in libc.iter().map(Path::new).filter(|p| p.exists()) {
        assert_eq!(
            stack_hazards::hazard(&Image::open(libc).expect("an image")),
            None
        );
    }
}

/// Functions as Go has them: with a stack check, with that of a large frame, and without one.
const GO: &str = r#"
__asm__(".text\n"
    ".type runtime.morestack_noctxt.abi0, @function\n"
    "runtime.morestack_noctxt.abi0: ret\n"
    ".size runtime.morestack_noctxt.abi0, .-runtime.morestack_noctxt.abi0\n"
    ".type elsewhere, @function\nelsewhere: ret\n.size elsewhere, .-elsewhere\n"
    ".type small, @function\n"
    "small: cmp 16(%r14), %rsp\njbe 1f\npush %rbp\npop %rbp\nret\n"
    "1: mov %rax, 8(%rsp)\ncall runtime.morestack_noctxt.abi0\nmov 8(%rsp), %rax\njmp small\n"
    ".size small, .-small\n"
    ".type large, @function\n"
    "large: mov %rsp, %r12\nsub $100000, %r12\njb 1f\ncmp 16(%r14), %r12\njbe 1f\npush %rbp\npop %rbp\nret\n"
    "1: call runtime.morestack_noctxt.abi0\njmp large\n"
    ".size large, .-large\n"
    ".type other, @function\n"
    "other: cmp $0, %rax\njbe 1f\nret\n1: call elsewhere\njmp other\n.size other, .-other\n");
int main(void) { return 0; }
"#;

#[test]
fn functions_of_go_begin_behind_their_stack_checks() {
    let dir = Dir::new();
    let module = open(&dir.compile("go.c", GO, &["-O2"]));
    let at = |name: &str| {
        let symbol = module.symbols().all().iter().find(|s| s.name == name);
        symbol.map_or_else(|| panic!("no {name}"), |s| s.address)
    };
    let behind = |name: &str| go_entry::behind_stack_check(&module, at(name));
    assert_eq!(behind("small") - at("small"), 6);
    assert_eq!(behind("large") - at("large"), 18);
    assert_eq!(behind("other"), at("other"));
    assert_eq!(behind("main"), at("main"));
}
