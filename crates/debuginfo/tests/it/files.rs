//! Files, symbols, stubs, separate debugging information, unwind rows.

use std::path::Path;
use std::process::Command;

use spile_debuginfo::cfi::{self, Cfa, SavedRule};
use spile_debuginfo::{
    Binding, DebugFile, Image, KernelQuery, LocBinary, LocStep, Location, LocationKinds, Pattern,
    SearchPaths, SymbolKind, ifunc, plt,
    relocations::{self, SlotValue},
};

use crate::build::{Dir, run};

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int counter = 3;
static int __attribute__((noinline)) hidden(int x) { return x * counter; }
int __attribute__((noinline)) shown(int x) { return hidden(x) + 1; }
int main(int argc, char **argv) { puts("hello"); return shown(argc) + atoi(argv[0]) > 100; }
"#;

fn open(path: &Path) -> DebugFile {
    DebugFile::open(path, &SearchPaths::default()).expect("opened")
}

#[test]
fn symbols_have_file_offsets() {
    let dir = Dir::new();
    let path = dir.compile("a.c", PROGRAM, &["-O1"]);
    let module = open(&path);
    let shown = module.symbols().named("shown").next().expect("there");
    assert_eq!(
        (shown.kind, shown.binding),
        (SymbolKind::Func, Binding::Global)
    );
    let hidden = module.symbols().named("hidden").next().expect("there");
    assert_eq!(hidden.binding, Binding::Local);
    let counter = module.symbols().named("counter").next().expect("there");
    assert_eq!((counter.kind, counter.size), (SymbolKind::Data, 4));
    let (at, offset) = module
        .symbols()
        .function_at(shown.address + 1)
        .expect("found");
    assert_eq!((at.name, offset), ("shown", 1));
    assert_eq!(
        module
            .symbols()
            .data_at(counter.address + 2)
            .map(|d| (d.0.name, d.1)),
        Some(("counter", 2))
    );

    let image = module.image();
    assert!(image.position_independent() && image.is_program());
    let offset = image.file_offset(shown.address).expect("in the file");
    assert_eq!(image.address_of_offset(offset), Some(shown.address));
    assert!(image.is_code(shown.address) && !image.is_code(counter.address));
    assert_eq!(image.file_offset(u64::MAX), None);
    assert_eq!(image.address_of_offset(u64::MAX), None);
    // Zero-initialised data are not in the file.
    let mut segments = image.segments().iter();
    let data = segments.find(|s| s.mem_size > s.file_size).expect("a .bss");
    let end = data.offset + data.file_size;
    assert_eq!(
        image.address_behind(end),
        Some(data.address + data.file_size)
    );
    assert_eq!(image.address_behind(end - 1), None);
    assert_eq!(image.address_behind(u64::MAX), None);
}

#[test]
fn plt_stubs_of_all_layouts_are_found() {
    let dir = Dir::new();
    for flags in [
        &["-Wl,-z,lazy", "-fcf-protection=full", "-Wl,-z,ibtplt"][..],
        &["-Wl,-z,lazy", "-fcf-protection=none"],
        &["-Wl,-z,now", "-fcf-protection=none"],
        &["-Wl,-z,now", "-no-pie"],
    ] {
        let path = dir.compile("p.c", PROGRAM, flags);
        let module = open(&path);
        let found = plt::entries(module.image());
        for name in ["puts", "atoi"] {
            let count = found.iter().filter(|p| p.name == name).count();
            assert_eq!(count, 1, "{name} with {flags:?} in {found:?}");
        }
        // gdb shows the stubs as puts@plt.
        let text = run(Command::new("gdb")
            .args(["-batch", "-nx", "-ex", "info address puts@plt"])
            .arg(&path));
        let puts = found.iter().find(|p| p.name == "puts").expect("there");
        let hex = format!("{:#x}", puts.address);
        assert!(
            text.contains("No symbol") || text.contains(&hex),
            "{text} {hex}"
        );
    }
}

#[test]
fn separate_debug_files_are_found() {
    let dir = Dir::new();
    let path = dir.compile("s.c", PROGRAM, &["-g", "-O1", "-Wl,--build-id"]);
    let objcopy = |args: &[&str]| run(Command::new("objcopy").current_dir(dir.path()).args(args));
    objcopy(&["--only-keep-debug", "s", "s.dbg"]);
    objcopy(&["--strip-all", "s", "plain"]);
    objcopy(&["--strip-all", "--add-gnu-debuglink=s.dbg", "s", "linked"]);

    let plain = open(&dir.path().join("plain"));
    assert!(plain.debug_image().is_none());
    assert!(plain.symbols().named("hidden").next().is_none());
    let linked = open(&dir.path().join("linked"));
    assert!(linked.debug_image().is_some(), "{:?}", linked.notes());
    assert!(linked.symbols().named("hidden").next().is_some());

    // By build-id below an extra root.
    let id: String = Image::open(&path)
        .expect("opened")
        .build_id()
        .expect("has one")
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let root = dir.path().join("root");
    let at = root.join("usr/lib/debug/.build-id").join(&id[..2]);
    std::fs::create_dir_all(&at).expect("made");
    std::fs::rename(
        dir.path().join("s.dbg"),
        at.join(format!("{}.debug", &id[2..])),
    )
    .expect("moved");
    let search = SearchPaths {
        roots: vec![root],
        ..SearchPaths::default()
    };
    let found = DebugFile::open(&dir.path().join("plain"), &search).expect("opened");
    assert!(found.debug_image().is_some());
    assert!(found.symbols().named("hidden").next().is_some());

    // The cache of elfutils; an empty file means that there is none.
    let client = dir.path().join("client");
    let kept = client.join(&id).join("debuginfo");
    std::fs::create_dir_all(client.join(&id)).expect("made");
    std::fs::write(&kept, b"").expect("written");
    let search = SearchPaths {
        client: Some(client),
        ..SearchPaths::default()
    };
    let ask = || DebugFile::open(&dir.path().join("plain"), &search).expect("opened");
    assert!(ask().debug_image().is_none() && ask().notes().is_empty());
    std::fs::copy(at.join(format!("{}.debug", &id[2..])), &kept).expect("copied");
    assert!(ask().debug_image().is_some());
}

/// A file of another build with the right name is refused.
#[test]
fn a_debug_file_of_another_build_is_refused() {
    let dir = Dir::new();
    dir.compile("s.c", PROGRAM, &["-g", "-O1", "-Wl,--build-id"]);
    let other = dir.compile("t.c", PROGRAM, &["-g", "-O2", "-Wl,--build-id"]);
    let objcopy = |args: &[&str]| run(Command::new("objcopy").current_dir(dir.path()).args(args));
    objcopy(&["--only-keep-debug", "s", "s.dbg"]);
    objcopy(&["--strip-all", "--add-gnu-debuglink=s.dbg", "s", "linked"]);
    std::fs::copy(other, dir.path().join("s.dbg")).expect("copied");
    let linked = open(&dir.path().join("linked"));
    assert!(linked.debug_image().is_none());
    assert_eq!(linked.notes().len(), 1);
}

#[test]
fn packed_symbols_are_read() {
    let dir = Dir::new();
    dir.compile("m.c", PROGRAM, &["-O1"]);
    let here = |cmd: &str, args: &[&str]| run(Command::new(cmd).current_dir(dir.path()).args(args));
    std::fs::copy(dir.path().join("m"), dir.path().join("mini")).expect("copied");
    here("xz", &["-k", "mini"]);
    here(
        "objcopy",
        &[
            "--strip-all",
            "--add-section",
            ".gnu_debugdata=mini.xz",
            "m",
            "stripped",
        ],
    );
    let module = open(&dir.path().join("stripped"));
    assert!(module.symbols().named("hidden").next().is_some());
}

/// A debuginfod server that has one file.
fn serve(file: Vec<u8>, requests: usize) -> (String, std::thread::JoinHandle<Vec<String>>) {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let thread = std::thread::spawn(move || {
        let mut seen = Vec::new();
        for _ in 0..requests {
            let (stream, _) = listener.accept().expect("accepted");
            let mut lines = BufReader::new(&stream).lines();
            seen.push(lines.next().expect("a line").expect("text"));
            while lines.next().is_some_and(|l| l.is_ok_and(|l| !l.is_empty())) {}
            let mut out = &stream;
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                file.len()
            );
            out.write_all(head.as_bytes())
                .and_then(|()| out.write_all(&file))
                .expect("sent");
        }
        seen
    });
    (url, thread)
}

#[test]
fn debug_files_are_taken_from_a_server() {
    let dir = Dir::new();
    dir.compile("d.c", PROGRAM, &["-g", "-Wl,--build-id"]);
    let objcopy = |args: &[&str]| run(Command::new("objcopy").current_dir(dir.path()).args(args));
    objcopy(&["--strip-all", "d", "stripped"]);
    let (url, thread) = serve(std::fs::read(dir.path().join("d")).expect("read"), 1);
    let search = SearchPaths {
        urls: vec!["https://localhost:1".into(), url],
        cache: Some(dir.path().join("cache")),
        ..SearchPaths::default()
    };
    let stripped = dir.path().join("stripped");
    let module = DebugFile::open(&stripped, &search).expect("opened");
    assert!(module.debug_image().is_some(), "{:?}", module.notes());
    assert_eq!(
        module.notes().len(),
        1,
        "https is refused: {:?}",
        module.notes()
    );
    assert!(module.notes()[0].contains("debuginfod-find debuginfo "));
    let seen = thread.join().expect("served");
    assert!(
        seen[0].starts_with("GET /buildid/") && seen[0].contains("/debuginfo "),
        "{seen:?}"
    );
    // The second time the server is gone, and the cache has the file.
    let again = DebugFile::open(&stripped, &search).expect("opened");
    assert!(again.debug_image().is_some());
}

#[test]
fn unwind_rows_are_ordered() {
    let dir = Dir::new();
    let path = dir.compile("u.c", PROGRAM, &["-O2", "-fno-omit-frame-pointer"]);
    let module = open(&path);
    let rows = cfi::rows(module.image(), None);
    assert!(rows.windows(2).all(|w| w[0].start < w[1].start));
    let shown = module.symbols().named("shown").next().expect("there");
    let entry = cfi::row_at(&rows, shown.address).expect("a row");
    assert_eq!(
        entry.cfa,
        Cfa::Register {
            register: spile_abi::X86_64.stack_pointer,
            offset: 8
        }
    );
    assert_eq!(entry.ra, SavedRule::AtCfa(-8));
    let inside = cfi::row_at(&rows, shown.address + 8).expect("a row");
    assert_eq!(
        inside.cfa,
        Cfa::Register {
            register: spile_abi::X86_64.frame_pointer,
            offset: 16
        }
    );
    assert_eq!(inside.frame_pointer, SavedRule::AtCfa(-16));
    assert!(
        rows.iter().any(|r| matches!(r.cfa, Cfa::Plt { .. }))
            || plt::entries(module.image()).is_empty()
    );
    assert!(cfi::row_at(&rows, 0).is_none());
    let start = module.symbols().named("_start").next().expect("there");
    assert_eq!(
        cfi::row_at(&rows, start.address).expect("a row").ra,
        SavedRule::Undefined
    );
    // The same rows from .debug_frame.
    let path = dir.compile(
        "v.c",
        PROGRAM,
        &[
            "-g",
            "-O2",
            "-fno-asynchronous-unwind-tables",
            "-fno-unwind-tables",
            "-fno-omit-frame-pointer",
        ],
    );
    let module = open(&path);
    let rows = cfi::rows(module.image(), None);
    let shown = module.symbols().named("shown").next().expect("there");
    assert_eq!(
        cfi::row_at(&rows, shown.address).map(|r| r.ra),
        Some(SavedRule::AtCfa(-8))
    );
}

#[test]
fn files_that_are_no_programs_are_errors() {
    let dir = Dir::new();
    for (name, bytes) in [
        ("empty", &b""[..]),
        ("text", b"hello"),
        ("short", b"\x7fELF\x02\x01"),
        ("narrow", b"\x7fELF\x01\x01\x01"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        assert!(Image::open(&path).is_err(), "{name}");
    }
    assert!(Image::open(dir.path()).is_err());
    assert!(Image::open(&dir.path().join("none")).is_err());
}

const UNLINKED: &str = r#"
static int level = 4;
__attribute__((section(".init.text"), noipa)) int first(int a) { return a + level; }
__attribute__((noipa)) int second(int a, int b) { int c = first(a) + b; level = c; return c; }
"#;

/// The sections of a relocatable file have addresses that do not overlap; symbols, lines and
/// variables agree on them, also in a file with debugging information only.
#[test]
fn relocatable_files_are_read() {
    for flags in ["-gdwarf-5", "-gdwarf-4"] {
        let dir = Dir::new();
        let path = dir.compile("m.c", UNLINKED, &["-c", "-O1", flags]);
        let debug = dir.path().join("m.debug");
        run(Command::new("objcopy")
            .arg("--only-keep-debug")
            .args([&path, &debug]));
        for path in [path, debug] {
            let module = open(&path);
            let placed = module.image().placed_sections();
            assert!(
                placed
                    .windows(2)
                    .all(|p| p[0].address + p[0].size <= p[1].address)
            );
            let section = |name: &str| {
                let p = placed.iter().find(|p| p.name == name).expect(name);
                p.address..p.address + p.size
            };
            let dwarf = module.dwarf().expect("DWARF");
            let which = LocationKinds {
                outline: true,
                inlined: false,
            };
            for (name, code) in [("first", ".init.text"), ("second", ".text")] {
                let pattern = Pattern {
                    text: name,
                    glob: None,
                };
                let found = dwarf.functions(pattern, None, which);
                let [function] = &found[..] else {
                    panic!("{found:?}");
                };
                let symbol = module.symbols().named(name).next().expect("a symbol");
                assert_eq!(function.entry, symbol.address, "{name} {flags}");
                assert!(section(code).contains(&function.entry));
                assert_eq!(&*dwarf.frames(function.entry)[0].function, name);
            }
            let level = dwarf.global("level", None).expect("a variable");
            let symbol = module.symbols().named("level").next().expect("a symbol");
            let at = LocStep::Const(symbol.address as i64);
            let add = LocStep::Binary(LocBinary::Add);
            assert_eq!(
                dwarf.locate(&level, 0),
                Ok(Location::Address(vec![at, LocStep::Bias, add]))
            );
            assert!(section(".data").contains(&symbol.address));
        }
    }
}

/// A kernel's debugging information is taken from the directories of distributions, and only if it
/// is from the same build.
#[test]
fn debug_files_of_a_kernel_must_be_of_its_build() {
    let dir = Dir::new();
    let build = |name: &str, id: &str| {
        let id = format!("-Wl,--build-id={id}");
        dir.compile(name, PROGRAM, &["-g", &id])
    };
    let root = dir.path().join("root");
    let put = |from: &Path, to: &str| {
        let to = root.join(to);
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        std::fs::copy(from, to).expect("copied");
    };
    put(
        &build("right.c", "0x0102"),
        "usr/lib/debug/lib/modules/1.2.3-x/vmlinux",
    );
    let search = SearchPaths {
        roots: vec![root.clone()],
        ..SearchPaths::default()
    };
    let wanted = KernelQuery {
        release: "1.2.3-x",
        module: None,
        build_id: Some(&[1, 2]),
        build: None,
    };
    let found = search.kernel(&wanted, false).expect("found");
    assert!(found.path().ends_with("modules/1.2.3-x/vmlinux"));
    put(
        &build("wrong.c", "0x0304"),
        "usr/lib/debug/boot/vmlinux-1.2.3-x",
    );
    assert!(search.kernel(&wanted, false).is_ok());
    let other = KernelQuery {
        build_id: Some(&[9]),
        ..wanted
    };
    let notes = search.kernel(&other, false).expect_err("none is right");
    let text = notes.join("\n");
    assert!(text.contains("build-id 0102, wanted 09"), "{text}");
    assert!(text.contains("build/vmlinux"), "{text}");
    // A module whose file has a `-` where the kernel writes `_`.
    let module = dir.compile("m.c", UNLINKED, &["-c", "-g"]);
    put(
        &module,
        "usr/lib/debug/lib/modules/1.2.3-x/kernel/net/a-b.ko",
    );
    let wanted = KernelQuery {
        module: Some("a_b"),
        build_id: None,
        ..wanted
    };
    let found = search.kernel(&wanted, false).expect("found");
    assert!(found.path().ends_with("net/a-b.ko"));
}

const INDIRECT: &str = r#"
#include <unistd.h>
static long one(long x) { return x + 1; }
static long two(long x) { return x + 2; }
long three(long x) { return x + 3; }
static void *choose(void) { int p = getpid(); return p == 1 ? (void *)one : p == 2 ? (void *)two : (void *)three; }
long chosen(long) __attribute__((ifunc("choose")));
static void *pick(void) { return choose(); }
long picked(long) __attribute__((ifunc("pick")));
long old_f(long x) { return x * 5; }
long new_f(long x) { return x * 7; }
__asm__(".symver old_f,f@V1\n.symver new_f,f@@V2");
long use(long x) { return chosen(x) + picked(x); }
"#;

#[test]
fn implementations_of_indirect_functions_are_found() {
    let dir = Dir::new();
    std::fs::write(
        dir.path().join("a.map"),
        "V1 { f; }; V2 { f; chosen; picked; use; };",
    )
    .expect("written");
    let map = format!(
        "-Wl,--version-script={}",
        dir.path().join("a.map").display()
    );
    for how in ["-O0", "-O2"] {
        let path = dir.compile("a.c", INDIRECT, &[how, "-shared", "-fPIC", &map]);
        let module = open(&path);
        let address = |name: &str| module.symbols().named(name).next().expect("there").address;
        let mut wanted = ["one", "two", "three"].map(address);
        wanted.sort_unstable();
        for name in ["chosen", "picked"] {
            let symbol = module.symbols().named(name).next().expect("there");
            assert_eq!(symbol.kind, SymbolKind::IFunc);
            assert_eq!(
                ifunc::implementations(&module, symbol.address),
                wanted,
                "{how} {name}"
            );
        }
        assert!(ifunc::begins_function(&module, address("one")));
        assert!(!ifunc::begins_function(&module, address("one") + 1));
        let all = relocations::versioned(module.image());
        let f: Vec<_> = all
            .iter()
            .filter(|v| v.name == "f")
            .map(|v| (v.version, v.default, v.address))
            .collect();
        assert_eq!(f.len(), 2);
        assert!(
            f.contains(&("V1", false, address("old_f")))
                && f.contains(&("V2", true, address("new_f")))
        );
        let slots = relocations::of(module.image());
        let of = |v: SlotValue<'_>| slots.iter().any(|r| r.value == v);
        let version = Some("V2");
        assert!(of(SlotValue::Symbol {
            name: "chosen",
            version
        }));
    }
    let path = dir.compile("s.c", "int main(void) { return 0; }", &["-static"]);
    let module = open(&path);
    let chosen = relocations::of(module.image())
        .into_iter()
        .filter_map(|r| match r.value {
            SlotValue::Chosen(resolver) => Some(resolver),
            _ => None,
        });
    let resolver = |a: u64| {
        module
            .symbols()
            .starting_at(a)
            .any(|s| s.kind == SymbolKind::IFunc)
    };
    let chosen: Vec<u64> = chosen.collect();
    assert!(!chosen.is_empty() && chosen.into_iter().all(resolver));
}

/// The numbers of functions `shown` and `other` that the debugging information has.
fn described(path: &Path) -> (DebugFile, [usize; 2]) {
    let module = open(path);
    let count = |name| {
        let name = Pattern {
            text: name,
            glob: None,
        };
        let which = LocationKinds {
            outline: true,
            inlined: false,
        };
        module
            .dwarf()
            .expect("DWARF")
            .functions(name, None, which)
            .len()
    };
    let counts = [count("shown"), count("other")];
    (module, counts)
}

/// What was split off is found where the compiler wrote it, next to the program, and in a package.
/// What is missing, or of another build, is told; the rest is there.
#[test]
fn split_files_are_found_or_told() {
    for flags in ["-gdwarf-4", "-gdwarf-5"] {
        let dir = Dir::new();
        let other = dir.path().join("other.c");
        std::fs::write(&other, "int other(int y) { return y * 2; }\n").expect("written");
        let build =
            |text: &str| dir.compile("a.c", text, &["-O1", flags, "-gsplit-dwarf", "other.c"]);
        let path = build(PROGRAM);
        let (module, counts) = described(&path);
        assert_eq!(counts, [1, 1], "{flags}");
        assert!(module.dwarf().expect("DWARF").missing_units().is_none());

        let of_a = dir.path().join("a-a.dwo");
        let of_other = dir.path().join("a-other.dwo");
        let away = dir.path().join("away");
        std::fs::rename(&of_other, &away).expect("renamed");
        let (module, counts) = described(&path);
        assert_eq!(counts, [1, 0], "{flags}");
        let dwarf = module.dwarf().expect("DWARF");
        let missing = dwarf.missing_units().expect("missing");
        assert_eq!(
            (missing.missing, missing.split, missing.every_unit),
            (1, 2, false)
        );
        assert!(missing.file.ends_with("a-other.dwo") && missing.why == "does not exist");
        let symbol = module.symbols().named("other").next().expect("there");
        let line = dwarf.line_at(symbol.address).expect("a line");
        assert!(line.0.is_some_and(|f| f.ends_with("/other.c")) && line.1 == 1);

        // Of another build.
        std::fs::copy(&of_a, &of_other).expect("copied");
        let (module, counts) = described(&path);
        assert_eq!(counts, [1, 0], "{flags}");
        let missing = module
            .dwarf()
            .and_then(|d| d.missing_units())
            .expect("told");
        assert!(missing.why.contains("another build"), "{}", missing.why);

        // The whole folder has another name.
        std::fs::rename(&away, &of_other).expect("renamed");
        let moved = dir.path().join("moved");
        std::fs::create_dir(&moved).expect("a directory");
        for file in ["a", "a-a.dwo", "a-other.dwo"] {
            std::fs::rename(dir.path().join(file), moved.join(file)).expect("renamed");
        }
        assert_eq!(described(&moved.join("a")).1, [1, 1], "{flags}");
    }
}

#[test]
fn packages_of_split_files_are_read() {
    let dir = Dir::new();
    let flags = ["-O1", "-gdwarf-4", "-gsplit-dwarf", "-fdebug-types-section"];
    let path = dir.compile("a.c", PROGRAM, &flags);
    run(Command::new("dwp")
        .current_dir(dir.path())
        .args(["-e", "a", "-o", "a.dwp"]));
    std::fs::remove_file(dir.path().join("a.dwo")).expect("removed");
    assert_eq!(described(&path).1, [1, 0]);
    // A package of another build has none of the units.
    let path = dir.compile("a.c", &PROGRAM.replace("+ 1", "+ 2"), &flags);
    let (module, counts) = described(&path);
    assert_eq!(counts, [1, 0]);
    assert!(module.dwarf().expect("DWARF").missing_units().is_none());
}
