//! Functions, lines, variables and types, compared with gdb's answers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use spile_debuginfo::{
    CType, CallKind, DebugFile, Dwarf, LineQuery, LocBinary, LocStep, Location, LocationKinds,
    Pattern, SearchPaths, Unavailable,
};

use crate::build::{Dir, run};

const PROGRAM: &str = r#"#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum colour { RED, GREEN = 5, BLUE = -1 };
typedef unsigned int myint;
struct point { int x; short y; };
struct box {
  struct point from, to;
  union { long whole; struct { int low; int high; }; };
  unsigned flag : 3, more : 7;
  signed tiny : 2;
  enum colour colour;
  char name[12];
  int grid[2][3];
  struct box *next;
  int (*call)(int);
};
static long counter = 7;
int shared = 9;
volatile int sink;

static inline __attribute__((always_inline)) int inner(int a, int b) {
  int product = a * b;
  sink = product;
  return product + sink;
}

__attribute__((noipa)) int many(int a, long b, short c, char d, unsigned long e, int f, int g, long h) {
  static int calls = 40;
  calls++;
  sink = a + b + c + d + e + f + g + h + calls;
  return sink + calls;
}

__attribute__((noipa)) long work(struct box *box, int count, const char *text) {
  long sum = 0;
  for (int i = 0; i < count; i++) {
    int part = inner(i, box->from.x);
    sum += part;
    if (i == 2) {
      short deep = part + text[0];
      sink = deep;
      sum += many(i, sum, deep, 'x', 5, 6, 7, sum);
    }
  }
  counter += sum;
  return sum + strlen(text);
}

__attribute__((noipa)) int by_value(struct point p, int scale) {
  sink = p.x;
  return p.x * scale + p.y;
}

int main(int argc, char **argv) {
  struct box *box = calloc(1, sizeof *box);
  box->from.x = 3 + argc;
  box->colour = BLUE;
  long r = work(box, 4 + argc, argv[0]);
  r += by_value(box->from, argc);
  return (int)r & sink & 1;
}
"#;

fn open(path: &Path) -> DebugFile {
    DebugFile::open(path, &SearchPaths::default()).expect("opened")
}

fn exact(text: &str) -> Pattern<'_> {
    Pattern { text, glob: None }
}

/// A pattern that matches any name.
fn any() -> Pattern<'static> {
    Pattern {
        text: "*",
        glob: Some(|_, _| true),
    }
}

const ALL: LocationKinds = LocationKinds {
    outline: true,
    inlined: true,
};

const FLAGS: [&[&str]; 9] = [
    &["-O0", "-gdwarf-5"],
    &["-O0", "-gdwarf-4", "-fno-omit-frame-pointer"],
    &["-O1", "-gdwarf-5"],
    &["-O2", "-gdwarf-4", "-gstrict-dwarf"],
    &["-O2", "-gdwarf-5", "-gz"],
    &["-Og", "-gdwarf-4", "-fdebug-types-section"],
    &["-O2", "-gdwarf-5", "-flto"],
    &["-O2", "-gdwarf-5", "-gsplit-dwarf"],
    &["-O0", "-gdwarf-4", "-gsplit-dwarf", "-fdebug-types-section"],
];

fn gdb(path: &Path, script: &str) -> String {
    let dir = path.parent().expect("a directory");
    let file = dir.join("script.gdb");
    std::fs::write(&file, script).expect("written");
    run(Command::new("gdb")
        .args(["-batch", "-nx", "-iex", "set debuginfod enabled off", "-x"])
        .arg(&file)
        .arg(path))
}

/// Functions begin where gdb sets breakpoints on them.
#[test]
fn functions_begin_where_gdb_sets_breakpoints() {
    for flags in FLAGS {
        let dir = Dir::new();
        let path = dir.compile("b.c", PROGRAM, flags);
        let module = open(&path);
        let dwarf = module.dwarf().expect("has DWARF");
        for name in ["many", "work", "by_value", "main"] {
            let locations = dwarf.functions(
                exact(name),
                None,
                LocationKinds {
                    outline: true,
                    inlined: false,
                },
            );
            assert_eq!(locations.len(), 1, "{name} {flags:?}");
            assert!(locations[0].external, "{name} {flags:?}");
            assert!(
                locations[0]
                    .file
                    .as_deref()
                    .is_some_and(|f| f.ends_with("/b.c"))
            );
            let symbol = module.symbols().named(name).next().expect("there");
            assert_eq!(locations[0].entry, symbol.address, "{name} {flags:?}");
            if flags[0] == "-O0" {
                let said = gdb(&path, &format!("break {name}\n"));
                let hex = format!("{:#x}", locations[0].body);
                assert!(said.contains(&hex), "{name} {flags:?}: {hex}, {said}");
            } else if flags[0] == "-O2" {
                assert_eq!(locations[0].body, locations[0].entry, "{name} {flags:?}");
            }
        }
    }
}

#[test]
fn inlined_instances_are_found() {
    for flags in FLAGS {
        let dir = Dir::new();
        let path = dir.compile("i.c", PROGRAM, flags);
        let module = open(&path);
        let dwarf = module.dwarf().expect("has DWARF");
        let locations = dwarf.functions(exact("inner"), None, ALL);
        assert!(!locations.is_empty(), "{flags:?}");
        assert!(
            locations.iter().all(|p| p.inlined && p.line == 23),
            "{flags:?} {locations:?}"
        );
        let frames = dwarf.frames(locations[0].entry);
        let names: Vec<_> = frames.iter().map(|f| &*f.function).collect();
        assert_eq!(names[..2], ["inner", "work"], "{flags:?}");
        assert!(
            frames[0].inlined && frames[1].line == 39,
            "{flags:?} {frames:?}"
        );
        let work = dwarf.functions(exact("work"), None, ALL);
        let calls = dwarf.calls(work[0].die);
        assert!(
            calls
                .list
                .iter()
                .any(|c| &*c.name == "inner" && matches!(c.kind, CallKind::Inlined(_))),
            "{flags:?} {calls:?}"
        );
    }
}

#[test]
fn lines_lead_to_their_addresses() {
    for flags in FLAGS {
        let dir = Dir::new();
        let path = dir.compile("l.c", PROGRAM, flags);
        let module = open(&path);
        let dwarf = module.dwarf().expect("has DWARF");
        let file = Some(exact("l.c"));
        // `counter += sum`
        let found = dwarf.statements(any(), file, LineQuery::At(47));
        assert!(!found.locations.is_empty(), "{flags:?}");
        let said = gdb(&path, "info line l.c:47\n");
        let hex = format!("{:#x}", found.locations[0].address);
        assert!(said.contains(&hex), "{flags:?}: {hex}, {said}");
        assert_eq!(&*found.locations[0].name, "work");
        // The same line by its distance.
        let relative = dwarf.statements(exact("work"), file, LineQuery::Plus(11));
        assert_eq!(
            relative.locations[0].address, found.locations[0].address,
            "{flags:?}"
        );
        // An empty line: the error names its neighbours.
        let none = dwarf.statements(any(), file, LineQuery::At(28));
        assert!(none.locations.is_empty());
        let (below, above) = none.nearest;
        assert!(
            below.is_some_and(|l| l < 28) && above.is_some_and(|l| l > 28),
            "{:?}",
            none.nearest
        );
        let all = dwarf.statements(exact("work"), file, LineQuery::All);
        assert!(all.locations.len() >= 5, "{flags:?}");
        let range = dwarf.statements(any(), file, LineQuery::Range(37, 47));
        assert!(range.locations.iter().all(|p| (37..=47).contains(&p.line)));
        assert!(
            dwarf
                .statements(any(), Some(exact("other.c")), LineQuery::All)
                .locations
                .is_empty()
        );
    }
}

/// A program as an expression of gdb.
fn expression(program: &[LocStep]) -> String {
    let mut stack: Vec<String> = Vec::new();
    for op in program {
        let text = match *op {
            LocStep::Reg(r) => {
                let names = ["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp"];
                match names.get(usize::from(r)) {
                    Some(n) => format!("(unsigned long)${n}"),
                    None => format!("(unsigned long)$r{r}"),
                }
            }
            LocStep::Const(c) => format!("({c}L)"),
            LocStep::Bias => "0".into(),
            LocStep::ThreadPointer => "$fs_base".into(),
            LocStep::Load { size } => {
                let ty = ["", "char", "short", "", "int", "", "", "", "long"][usize::from(size)];
                format!(
                    "(unsigned long)(*(unsigned {ty}*)({}))",
                    stack.pop().expect("operand")
                )
            }
            LocStep::Extend { size, signed } => {
                let ty = ["", "char", "short", "", "int"][usize::from(size)];
                let sign = if signed { "signed" } else { "unsigned" };
                format!("(long)({sign} {ty})({})", stack.pop().expect("operand"))
            }
            LocStep::Neg => format!("(-({}))", stack.pop().expect("operand")),
            LocStep::Not => format!("(~({}))", stack.pop().expect("operand")),
            LocStep::Abs => panic!("no such expression in gdb"),
            LocStep::Binary(b) => {
                let right = stack.pop().expect("operand");
                let sign = if b == LocBinary::Shr {
                    "unsigned"
                } else {
                    "signed"
                };
                let left = format!("({sign} long){}", stack.pop().expect("operand"));
                let sign = match b {
                    LocBinary::Add => "+",
                    LocBinary::Sub => "-",
                    LocBinary::Mul => "*",
                    LocBinary::Div => "/",
                    LocBinary::Mod => "%",
                    LocBinary::And => "&",
                    LocBinary::Or => "|",
                    LocBinary::Xor => "^",
                    LocBinary::Shl => "<<",
                    LocBinary::Shr | LocBinary::Sar => ">>",
                    LocBinary::Eq => "==",
                    LocBinary::Ne => "!=",
                    LocBinary::Lt => "<",
                    LocBinary::Le => "<=",
                    LocBinary::Gt => ">",
                    LocBinary::Ge => ">=",
                };
                format!("({left} {sign} {right})")
            }
        };
        stack.push(text);
    }
    stack.pop().expect("a result")
}

/// The values that gdb prints for the variables at an address, and the number of comparisons.
fn questions(
    dwarf: &Dwarf,
    address: u64,
    of: spile_debuginfo::Die,
    script: &mut String,
) -> (usize, usize) {
    let (mut found, mut lost) = (0, 0);
    let _ = write!(script, "tbreak *{address:#x}\ncommands\nsilent\n");
    for v in dwarf.variables(address, Some(of)) {
        let size = match dwarf.ctype(v.ty) {
            CType::Int { size, .. } | CType::Enum { size, .. } => size,
            CType::Ptr(_) | CType::Ref(_) => 8,
            _ => continue,
        };
        let cast = ["", "char", "short", "", "int", "", "", "", "long"][usize::from(size)];
        let value = match dwarf.locate(&v, address) {
            Ok(Location::Address(p)) => format!("*(unsigned {cast}*)({})", expression(&p)),
            Ok(Location::Value(p)) => format!("(unsigned {cast})({})", expression(&p)),
            Ok(Location::Pieces(_) | Location::Implicit { .. }) => continue,
            Err(_) => {
                let _ = writeln!(
                    script,
                    "printf \"lost {} at {address:#x}: \"\noutput {}\nprintf \"\\n\"",
                    v.name, v.name
                );
                lost += 1;
                continue;
            }
        };
        let _ = writeln!(
            script,
            "printf \"equal {} at {address:#x}: %d\\n\", (unsigned {cast}){} == {value}",
            v.name, v.name
        );
        found += 1;
    }
    script.push_str("continue\nend\n");
    (found, lost)
}

/// At every line of the program, every variable is where gdb finds it.
#[test]
fn variables_are_where_gdb_finds_them() {
    for flags in FLAGS {
        let dir = Dir::new();
        let mut all: Vec<&str> = flags.to_vec();
        all.push("-no-pie");
        let path = dir.compile("v.c", PROGRAM, &all);
        let module = open(&path);
        let dwarf = module.dwarf().expect("has DWARF");
        let mut script = String::from("set pagination off\n");
        let mut locations: Vec<_> = dwarf
            .functions(any(), Some(exact("v.c")), ALL)
            .into_iter()
            .map(|p| (p.body, p.die))
            .collect();
        let lines = dwarf
            .statements(any(), Some(exact("v.c")), LineQuery::All)
            .locations;
        // For gdb, inlined code at an address belongs to the innermost function.
        locations.extend(lines.into_iter().map(|p| (p.address, p.die)));
        let mut seen = BTreeSet::new();
        let mut found = 0;
        for (address, die) in locations {
            let inner = dwarf.frames(address).iter().position(|f| !f.inlined);
            let instance = dwarf
                .functions(any(), None, ALL)
                .iter()
                .any(|p| p.die == die && p.inlined);
            if seen.contains(&address) || (inner != Some(0)) != instance {
                continue;
            }
            seen.insert(address);
            found += questions(dwarf, address, die, &mut script).0;
        }
        assert!(found > 20, "{flags:?}: {found}");
        script.push_str("run\n");
        let said = gdb(&path, &script);
        let wrong: Vec<_> = said
            .lines()
            .filter(|l| l.starts_with("equal") && !l.ends_with(": 1"))
            .collect();
        assert!(wrong.is_empty(), "{flags:?}: {wrong:#?}");
        let right = said.lines().filter(|l| l.starts_with("equal")).count();
        assert!(right > 20, "{flags:?}: {said}");
        // Values that gdb finds by examining the callers are not found here.
        if flags[0] == "-O0" {
            assert!(!said.contains("lost"), "{flags:?}: {said}");
        }
    }
}

#[test]
fn static_variables_have_their_symbols_addresses() {
    for flags in FLAGS {
        let dir = Dir::new();
        let path = dir.compile("s.c", PROGRAM, flags);
        let module = open(&path);
        let dwarf = module.dwarf().expect("has DWARF");
        for name in ["counter", "shared", "sink"] {
            let Some(symbol) = module.symbols().named(name).next() else {
                assert!(flags.contains(&"-flto"));
                continue;
            };
            let v = dwarf.global(name, Some(exact("s.c"))).expect("there");
            let add = LocStep::Binary(LocBinary::Add);
            let wanted = vec![LocStep::Const(symbol.address as i64), LocStep::Bias, add];
            assert_eq!(
                dwarf.locate(&v, 0),
                Ok(Location::Address(wanted)),
                "{name} {flags:?}"
            );
        }
        assert!(dwarf.global("counter", Some(exact("t.c"))).is_none());
        assert!(dwarf.global("nothing", None).is_none());
        // A static variable of a function, from within.
        let many = dwarf.functions(exact("many"), None, ALL);
        let calls = dwarf
            .variable("calls", many[0].body, Some(many[0].die))
            .expect("there");
        assert!(matches!(
            dwarf.locate(&calls, many[0].body),
            Ok(Location::Address(_))
        ));
    }
}

#[test]
fn types_have_their_members_and_sizes() {
    for flags in FLAGS {
        let dir = Dir::new();
        let path = dir.compile("t.c", PROGRAM, flags);
        let module = open(&path);
        let dwarf = module.dwarf().expect("has DWARF");
        let ty = dwarf.type_named("struct box").expect("there");
        let CType::Struct {
            name,
            size,
            union: false,
        } = dwarf.ctype(ty)
        else {
            panic!("{:?}", dwarf.ctype(ty));
        };
        let said = gdb(&path, "print sizeof(struct box)\n");
        assert_eq!((&*name, said.trim()), ("box", &*format!("$1 = {size}")));
        let members = dwarf.members(ty);
        let offset = |n: &str| {
            members
                .iter()
                .find(|m| &*m.name == n)
                .map(|m| (m.bit_offset, m.bit_size))
        };
        for (name, wanted) in [
            ("from", (0, 0)),
            ("to", (64, 0)),
            ("whole", (128, 0)),
            ("high", (160, 0)),
            ("flag", (192, 3)),
            ("more", (195, 7)),
            ("tiny", (202, 2)),
            ("colour", (224, 0)),
            ("name", (256, 0)),
        ] {
            assert_eq!(offset(name), Some(wanted), "{name} {flags:?}");
        }
        let c_name = |n: &str| {
            members
                .iter()
                .find(|m| &*m.name == n)
                .map(|m| dwarf.c_name(m.ty))
        };
        assert_eq!(c_name("grid").as_deref(), Some("int[2][3]"));
        assert_eq!(c_name("next").as_deref(), Some("struct box *"), "{flags:?}");
        assert_eq!(c_name("call").as_deref(), Some("int (*)(...)"));
        assert_eq!(c_name("colour").as_deref(), Some("enum colour"));
        let grid = members
            .iter()
            .find(|m| &*m.name == "grid")
            .expect("there")
            .ty;
        let CType::Array { elem, count: 2 } = dwarf.ctype(grid) else {
            panic!()
        };
        assert!(matches!(dwarf.ctype(elem), CType::Array { count: 3, .. }));
        let colour = dwarf.type_named("enum colour").expect("there");
        let values: Vec<_> = dwarf
            .enum_values(colour)
            .into_iter()
            .map(|(n, v)| (n.to_string(), v))
            .collect();
        assert_eq!(
            values,
            [("RED".into(), 0), ("GREEN".into(), 5), ("BLUE".into(), -1)]
        );
        assert_eq!(
            dwarf.ctype(colour),
            CType::Enum {
                size: 4,
                signed: true
            }
        );
        for (name, signed) in [
            ("myint", true),
            ("unsigned", false),
            ("unsigned int", false),
        ] {
            // Link-time optimisation drops unused types.
            if let Some(ty) = dwarf.type_named(name) {
                assert_eq!(
                    dwarf.ctype(ty),
                    CType::Int {
                        size: 4,
                        signed,
                        char: false
                    }
                );
            }
        }
        let pointer = dwarf.type_named("struct box **").expect("there");
        assert!(
            matches!(dwarf.ctype(pointer), CType::Ptr(to) if matches!(dwarf.ctype(to), CType::Ptr(_)))
        );
        let work = dwarf.functions(exact("work"), None, ALL);
        assert_eq!(dwarf.c_name(dwarf.type_of(work[0].die)), "long int");
        let text = dwarf
            .variable("text", work[0].body, Some(work[0].die))
            .expect("there");
        assert_eq!(dwarf.c_name(text.ty), "const char *");
    }
}

const CPLUS: &str = r#"
namespace outer { namespace {
int hidden = 3;
} 
struct Base { int b; virtual int f(int x) { return x + b + hidden; } };
template <class T> struct Derived : Base {
  T t; static int count;
  int f(int x) override { return x + t; }
  Derived(T t) : t(t) {}
};
template <class T> int Derived<T>::count = 4;
int over(int a) { return a; }
int over(double a) { return (int)a; }
}
int main(int argc, char **) {
  outer::Derived<long> d(argc);
  outer::Base *b = &d;
  auto &r = d;
  return b->f(argc) + outer::over(1) + outer::over(2.0) + outer::Derived<long>::count + r.b;
}
"#;

#[test]
fn functions_of_cplusplus_are_found_by_every_name() {
    let dir = Dir::new();
    let path = dir.compile("c.cc", CPLUS, &["-g", "-O0"]);
    let module = open(&path);
    let dwarf = module.dwarf().expect("has DWARF");
    let count = |name: &str| dwarf.functions(exact(name), None, ALL).len();
    assert_eq!(count("f"), 2);
    assert_eq!(count("outer::Base::f"), 1);
    assert_eq!(count("Base::f"), 1);
    assert_eq!(count("::main"), 1);
    assert_eq!(count("::Base::f"), 0);
    assert_eq!(count("over"), 2);
    let f = dwarf.functions(exact("Base::f"), None, ALL);
    assert_eq!(&*f[0].qualified, "outer::Base::f");
    let names: Vec<_> = dwarf
        .variables(f[0].body, Some(f[0].die))
        .iter()
        .map(|v| v.name.to_string())
        .collect();
    assert_eq!(names, ["this", "x"]);
    let main = dwarf.functions(exact("main"), None, ALL);
    let d = dwarf.variable("d", main[0].body, None).expect("there");
    let members: Vec<_> = dwarf
        .members(d.ty)
        .iter()
        .map(|m| (m.name.to_string(), m.bit_offset))
        .collect();
    assert!(
        members.contains(&("b".into(), 64)) && members.contains(&("t".into(), 128)),
        "{members:?}"
    );
    assert!(dwarf.global("hidden", None).is_some());
    assert!(dwarf.global("Derived<long int>::count", None).is_some());
    assert!(dwarf.type_named("outer::Base").is_some() && dwarf.type_named("inner::Base").is_none());
    // The `this`-adjusting thunk and both constructors are also found by mangled names.
    assert!(
        module
            .symbols()
            .named("_ZN5outer4Base1fEi")
            .next()
            .is_some()
    );
}

/// The index of a file is cached and read again.
#[test]
fn the_cached_index_is_read_again() {
    cached_index(&["-g", "-O0", "-Wl,--build-id"]);
}

#[test]
fn the_cached_index_of_split_files_is_read_again() {
    let dir = cached_index(&["-g", "-O0", "-Wl,--build-id", "-gsplit-dwarf"]);
    // It does not answer for what is missing now.
    std::fs::remove_file(dir.path().join("k.dwo")).expect("removed");
    let search = SearchPaths {
        cache: Some(dir.path().join("cache")),
        ..SearchPaths::default()
    };
    let module = DebugFile::open(&dir.path().join("k"), &search).expect("opened");
    let dwarf = module.dwarf().expect("has DWARF");
    assert!(dwarf.functions(any(), None, ALL).is_empty());
}

fn cached_index(flags: &[&str]) -> Dir {
    let dir = Dir::new();
    let mut text = String::from("#include <stddef.h>\n");
    for i in 0..600 {
        let members: String = (0..150).map(|m| format!("int m{m}; ")).collect();
        let _ = writeln!(
            text,
            "struct s{i} {{ {members} }};\nlong f{i}(struct s{i} *p) {{ long t{i} = p->m0; return t{i}; }}"
        );
    }
    text.push_str("int main(void) { return 0; }\n");
    let path = dir.compile("k.c", &text, flags);
    let search = SearchPaths {
        cache: Some(dir.path().join("cache")),
        ..SearchPaths::default()
    };
    let ask = || {
        let module = DebugFile::open(&path, &search).expect("opened");
        let dwarf = module.dwarf().expect("has DWARF");
        let f = dwarf.functions(exact("f77"), None, ALL);
        assert_eq!(f.len(), 1);
        let all = dwarf.functions(any(), None, ALL).len();
        assert!(dwarf.type_named("struct s99").is_some());
        (f[0].body, all)
    };
    let first = ask();
    assert_eq!(first.1, 601);
    let kept: Vec<_> = std::fs::read_dir(dir.path().join("cache/index"))
        .expect("made")
        .flatten()
        .collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(ask(), first);
    // A damaged one is made again.
    std::fs::write(kept[0].path(), b"rubbish").expect("written");
    assert_eq!(ask(), first);
    assert!(std::fs::metadata(kept[0].path()).expect("there").len() > 1000);
    dir
}

/// The scopes around an address are the same by the index and by the unit's entries.
#[test]
fn scopes_around_an_address_are_equal_by_index_and_by_entries() {
    for flags in FLAGS {
        let dir = Dir::new();
        let path = dir.compile("a.c", PROGRAM, flags);
        let (fresh, indexed) = (open(&path), open(&path));
        let (fresh, indexed) = (
            fresh.dwarf().expect("DWARF"),
            indexed.dwarf().expect("DWARF"),
        );
        let locations = indexed.functions(any(), None, ALL);
        assert!(locations.iter().any(|p| !p.inlined), "{flags:?}");
        for address in locations
            .iter()
            .flat_map(|p| (0..64).map(|n| p.entry + n * 3))
        {
            assert_eq!(fresh.frames(address), indexed.frames(address), "{flags:?}");
            assert_eq!(fresh.function_at(address), indexed.function_at(address));
        }
    }
}

/// A value computed with jumps (a minimum), as compilers describe a variable that was optimised
/// away.
#[test]
fn locations_with_jumps_are_evaluated() {
    const TEXT: &str = r#"
int limit = 3;
__attribute__((noipa)) int use(int a) { return a; }
__attribute__((noipa)) int work(int *v) {
  int a = use(*v), b = use(limit);
  int least = a < b ? a : b;
  use(a);
  use(b);
  return a + b;
}
int main(int argc, char **argv) { return work(&argc); }
"#;
    let dir = Dir::new();
    let path = dir.compile("x.c", TEXT, &["-g", "-O2"]);
    let module = DebugFile::open(&path, &SearchPaths::default()).expect("opened");
    let dwarf = module.dwarf().expect("DWARF");
    let name = Pattern {
        text: "work",
        glob: None,
    };
    let locations = dwarf.statements(name, None, LineQuery::All).locations;
    let found = locations.iter().filter_map(|p| {
        let all = dwarf.variables(p.address, Some(p.die));
        let least = all.into_iter().find(|v| &*v.name == "least")?;
        match dwarf.locate(&least, p.address) {
            Ok(Location::Value(ops)) => Some(ops),
            Ok(_) => None,
            Err(Unavailable(why)) => {
                assert!(!why.contains("jumps"), "{why}");
                None
            }
        }
    });
    let mut tried = 0;
    for ops in found {
        for (a, b) in [(1, 2), (2, 1), (-5, 5), (7, 7)] {
            // Two registers hold the values; the program tells which.
            let mut registers: Vec<u16> = Vec::new();
            for op in &ops {
                if let LocStep::Reg(n) = op
                    && !registers.contains(n)
                {
                    registers.push(*n);
                }
            }
            let [first, _] = registers[..] else {
                continue;
            };
            let value = |n: u16| if n == first { a } else { b };
            tried += 1;
            assert_eq!(run_ops(&ops, &value) as i32, a.min(b) as i32, "{ops:?}");
        }
    }
    assert!(tried > 0);
}

/// Runs a program that needs no memory.
fn run_ops(ops: &[LocStep], register: &dyn Fn(u16) -> i64) -> i64 {
    let mut stack: Vec<i64> = Vec::new();
    for op in ops {
        let made = match *op {
            LocStep::Reg(n) => register(n),
            LocStep::Const(n) => n,
            LocStep::Neg => -stack.pop().expect("one"),
            LocStep::Extend { size, signed } => {
                let bits = 64 - 8 * u32::from(size);
                let v = stack.pop().expect("one") << bits;
                if signed {
                    v >> bits
                } else {
                    ((v as u64) >> bits) as i64
                }
            }
            LocStep::Binary(op) => {
                let (b, a) = (stack.pop().expect("two"), stack.pop().expect("two"));
                match op {
                    LocBinary::Add => a.wrapping_add(b),
                    LocBinary::Sub => a.wrapping_sub(b),
                    LocBinary::And => a & b,
                    LocBinary::Xor => a ^ b,
                    LocBinary::Shl => a << b,
                    LocBinary::Sar => a >> b,
                    LocBinary::Shr => ((a as u64) >> b) as i64,
                    LocBinary::Eq => i64::from(a == b),
                    LocBinary::Ne => i64::from(a != b),
                    LocBinary::Lt => i64::from(a < b),
                    LocBinary::Le => i64::from(a <= b),
                    LocBinary::Gt => i64::from(a > b),
                    LocBinary::Ge => i64::from(a >= b),
                    op => panic!("{op:?}"),
                }
            }
            op => panic!("{op:?}"),
        };
        stack.push(made);
    }
    assert_eq!(stack.len(), 1, "{ops:?}");
    stack[0]
}
