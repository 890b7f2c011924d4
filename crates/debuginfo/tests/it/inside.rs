//! Functions inside functions, constructors, and functions in parts. The programs are those of the
//! end-to-end cases, which count calls.

use std::path::Path;

use spile_debuginfo::{
    CallKind, DebugFile, Dwarf, LineQuery, LocStep, Location, LocationKinds, Pattern, SearchPaths,
    Unavailable,
};

use crate::build::Dir;

const C: &str = include_str!("../../../../tests/programs/inside.c");
const CPLUS: &str = include_str!("../../../../tests/programs/inside.cc");
const FORTRAN: &str = include_str!("../../../../tests/programs/inside.f90");
const RUST: &str = include_str!("../../../../tests/programs/inside.rs");
const PARTS: &str = include_str!("../../../../tests/programs/parts.c");

const ALL: LocationKinds = LocationKinds {
    outline: true,
    inlined: true,
};

fn open(path: &Path) -> DebugFile {
    DebugFile::open(path, &SearchPaths::default()).expect("opened")
}

fn exact(text: &str) -> Pattern<'_> {
    Pattern { text, glob: None }
}

/// The qualified names of the functions of a file, each once.
fn names(dwarf: &Dwarf, file: &str) -> Vec<String> {
    let any = Pattern {
        text: "*",
        glob: Some(|_, _| true),
    };
    let found = dwarf.functions(any, Some(exact(file)), ALL);
    let mut names: Vec<String> = found.iter().map(|f| f.qualified.to_string()).collect();
    names.sort();
    names.dedup();
    names
}

/// The numbers of functions of a name and of inlined copies of them.
fn count(dwarf: &Dwarf, name: &str) -> (usize, usize) {
    let found = dwarf.functions(exact(name), None, ALL);
    let inlined = found.iter().filter(|f| f.inlined).count();
    (found.len() - inlined, inlined)
}

#[test]
fn nested_functions_of_c_are_found_in_their_functions() {
    for flags in [
        ["-O0", "-gdwarf-5"],
        ["-O2", "-gdwarf-5"],
        ["-O2", "-gdwarf-2"],
    ] {
        let dir = Dir::new();
        let module = open(&dir.compile("inside.c", C, &flags));
        let dwarf = module.dwarf().expect("DWARF");
        let all = names(dwarf, "inside.c");
        let wanted = [
            "each",
            "main",
            "other",
            "other::inner",
            "outer",
            "outer::copied",
            "outer::inner",
        ];
        assert_eq!(all, wanted, "{flags:?}");
        assert_eq!(count(dwarf, "inner"), (2, 0), "{flags:?}");
        assert_eq!(count(dwarf, "outer::inner"), (1, 0), "{flags:?}");
        assert_eq!(count(dwarf, "copied"), (0, 1), "{flags:?}");
        // `sink = x`, in the first of the two.
        let line = dwarf.statements(exact("inner"), Some(exact("inside.c")), LineQuery::At(16));
        assert_eq!(line.locations.len(), 1, "{flags:?}");
        let f = &dwarf.functions(exact("outer::inner"), None, ALL)[0];
        assert_eq!((line.locations[0].die, f.line), (f.die, 15), "{flags:?}");
    }
}

#[test]
fn lambdas_methods_and_constructors_of_cplusplus_are_found() {
    let every: [(&str, &[&str]); 5] = [
        ("g++", &["-g", "-O0"]),
        ("g++", &["-g", "-O2"]),
        ("g++", &["-g", "-O2", "-flto"]),
        ("clang++", &["-g", "-O0"]),
        ("clang++", &["-g", "-O2", "-gdwarf-4"]),
    ];
    for (compiler, flags) in every {
        let dir = Dir::new();
        let module = open(&dir.compile_by(compiler, "inside.cc", CPLUS, flags));
        let dwarf = module.dwarf().expect("DWARF");
        let all = names(dwarf, "inside.cc");
        for name in [
            "A::A",
            "A::~A",
            "B::B",
            "locals::Local::method",
            "locals::operator()",
        ] {
            assert!(
                all.iter().any(|n| n == name),
                "{compiler} {flags:?}: {name} of {all:?}"
            );
        }
        let (outline, inlined) = count(dwarf, "A::A");
        // Once for a local and once in the constructor of B, or both in one function.
        let wanted = if flags.contains(&"-O0") {
            (1, 0)
        } else {
            (0, 2)
        };
        assert!(
            inlined == wanted.1 && outline >= wanted.0,
            "{compiler} {flags:?}: {outline} {inlined}"
        );
        assert_eq!(
            count(dwarf, "locals::operator()"),
            (1, 0),
            "{compiler} {flags:?}"
        );
        // The destructor that also frees calls the other one, so it is none by itself.
        let locations = dwarf.functions(exact("~A"), None, ALL);
        let symbols = module.symbols();
        let frees = |address| symbols.starting_at(address).any(|s| s.name == "_ZN1AD0Ev");
        assert!(
            !locations.is_empty() && !locations.iter().any(|p| !p.inlined && frees(p.entry)),
            "{compiler} {flags:?}"
        );
    }
}

#[test]
fn procedures_in_procedures_of_fortran_are_found() {
    for flags in [["-O0", "-g"], ["-O2", "-g"]] {
        let dir = Dir::new();
        let module = open(&dir.compile("inside.f90", FORTRAN, &flags));
        let dwarf = module.dwarf().expect("DWARF");
        let all = names(dwarf, "inside.f90");
        for name in ["sums::work", "sums::work::add", "inside::show"] {
            assert!(
                all.iter().any(|n| n == name),
                "{flags:?}: {name} of {all:?}"
            );
        }
    }
}

#[test]
fn functions_and_closures_in_functions_of_rust_are_found() {
    for level in ["0", "2"] {
        let dir = Dir::new();
        let flags = ["-g", "-C", &format!("opt-level={level}")];
        let module = open(&dir.compile("inside.rs", RUST, &flags));
        let dwarf = module.dwarf().expect("DWARF");
        assert_eq!(count(dwarf, "outer::inner"), (1, 0), "{level}");
        assert!(count(dwarf, "outer::{closure#0}").0 == 1, "{level}");
    }
}

#[test]
fn outlined_functions_of_openmp_are_found() {
    const TEXT: &str = "int main(void) {\n  int sum = 0;\n#pragma omp parallel reduction(+:sum)\n  {\n    sum++;\n  }\n  return !sum;\n}\n";
    let every = [("gcc", "main._omp_fn.0"), ("clang", ".omp_outlined.*")];
    for (compiler, name) in every {
        for level in ["-O0", "-O2"] {
            let dir = Dir::new();
            let flags = ["-g", "-fopenmp", level];
            let module = open(&dir.compile_by(compiler, "omp.c", TEXT, &flags));
            let all = names(module.dwarf().expect("DWARF"), "omp.c");
            let wanted = name.trim_end_matches('*');
            assert!(
                all.iter().any(|n| n.starts_with(wanted)),
                "{compiler} {level}: {all:?}"
            );
        }
    }
}

/// A call is one location, also if gcc splits a function and inlines its parts one into the other.
#[test]
fn the_rest_of_a_split_function_is_no_call() {
    for more in [
        &["-O2"][..],
        &["-O2", "-gno-column-info"],
        &["-O3", "-flto"],
    ] {
        let dir = Dir::new();
        let flags = [&["-g"], more].concat();
        let module = open(&dir.compile("parts.c", PARTS, &flags));
        let dwarf = module.dwarf().expect("DWARF");
        let part = module
            .symbols()
            .functions()
            .any(|s| s.name.starts_with("large.part."));
        assert!(
            part,
            "{more:?}: gcc does not split here, so this tests nothing"
        );
        assert_eq!(count(dwarf, "small"), (0, 2), "{more:?}");
        assert_eq!(count(dwarf, "large"), (0, 2), "{more:?}");
        // The copy of `small` in `one` has no call of `small`.
        let one = &dwarf.functions(exact("one"), None, ALL)[0];
        let [call] = &dwarf.calls(one.die).list[..] else {
            panic!("{:?}", dwarf.calls(one.die));
        };
        let CallKind::Inlined(copy) = call.kind else {
            panic!("{call:?}");
        };
        assert_eq!(dwarf.calls(copy).list, [], "{more:?}");
        // Copies of calls that are in the source are calls.
        assert!(count(dwarf, "walk").1 >= 2, "{more:?}");
    }
}

/// Variables of the function around are reached by the static link, which is in a register at the
/// first instruction and in the frame later.
#[test]
fn variables_of_functions_around_are_found() {
    for flags in [["-O0", "-g"], ["-O1", "-g"], ["-O2", "-g"]] {
        let dir = Dir::new();
        let module = open(&dir.compile("inside.c", C, &flags));
        let dwarf = module.dwarf().expect("DWARF");
        let inner = &dwarf.functions(exact("outer::inner"), None, ALL)[0];
        for address in [inner.entry, inner.body] {
            let own = dwarf.variables(address, Some(inner.die));
            let named = |name: &str| own.iter().find(|v| &*v.name == name).expect("there");
            assert!(!named("x").is_outer(), "{flags:?}");
            for name in ["base", "extra"] {
                let location = dwarf.locate(named(name), address);
                let Ok(Location::Address(ops)) = location else {
                    panic!("{flags:?} {name}: {location:?}");
                };
                let by_register = ops.contains(&LocStep::Reg(10));
                assert_eq!(by_register, address == inner.entry, "{flags:?}: {ops:?}");
                assert!(named(name).is_outer(), "{flags:?}");
            }
        }
        // Inlined into the function around, it is in the same frame.
        let copy = &dwarf.functions(exact("copied"), None, ALL)[0];
        let extra = dwarf
            .variable("extra", copy.body, Some(copy.die))
            .expect("there");
        assert!(dwarf.locate(&extra, copy.body).is_ok(), "{flags:?}");
    }
}

/// Without a static link the reason is told.
#[test]
fn variables_around_a_lambda_have_no_location() {
    for compiler in ["g++", "clang++"] {
        let dir = Dir::new();
        let module = open(&dir.compile_by(compiler, "inside.cc", CPLUS, &["-g", "-O0"]));
        let dwarf = module.dwarf().expect("DWARF");
        let lambda = &dwarf.functions(exact("locals::operator()"), None, ALL)[0];
        let local = dwarf
            .variable("local", lambda.body, Some(lambda.die))
            .expect("there");
        let Err(Unavailable(why)) = dwarf.locate(&local, lambda.body) else {
            panic!("{compiler}");
        };
        assert!(
            why.contains("frame of `locals`") && why.contains("DW_AT_static_link"),
            "{compiler}: {why}"
        );
    }
}
