//! Asks about functions of a file by pattern and says how long each step took.
//!
//! `ask FILE PATTERN[@SOURCE] [CACHE]`

use std::path::Path;
use std::time::Instant;

use spile_debuginfo::{Module, Pattern, Search, Which};

/// Whether a name holds the parts of a pattern between its `*`, in order.
fn glob(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or("")) else {
        return false;
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || pattern.ends_with('*')
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, file, pattern, ..] = &args[..] else {
        eprintln!("ask FILE PATTERN [CACHE]");
        return;
    };
    let search = Search {
        cache: args.get(3).map(Into::into),
        ..Search::default()
    };
    let start = Instant::now();
    let module = match Module::open(Path::new(file), &search) {
        Ok(m) => m,
        Err(e) => return eprintln!("{e}"),
    };
    let Some(dwarf) = module.dwarf() else {
        return eprintln!("no DWARF: {:?}", module.notes());
    };
    eprintln!("opened after {:?}", start.elapsed());
    let of = |text| Pattern {
        text,
        glob: str::contains(text, '*').then_some(glob as fn(&str, &str) -> bool),
    };
    let (name, file) = match pattern.split_once('@') {
        Some((name, file)) => (name, Some(of(file))),
        None => (&**pattern, None),
    };
    let places = dwarf.functions(
        of(name),
        file,
        Which {
            outline: true,
            inlined: true,
        },
    );
    eprintln!("{} places after {:?}", places.len(), start.elapsed());
    for p in places.iter().take(20) {
        println!(
            "{:#x} {:#x} {} {:?}:{} inlined {}",
            p.entry, p.body, p.qualified, p.file, p.line, p.inlined
        );
        for v in dwarf.variables(p.body, Some(p.die)) {
            println!(
                "    {} {}: {:?}",
                dwarf.c_name(v.ty),
                v.name,
                dwarf.locate(&v, p.body)
            );
        }
    }
    eprintln!("all after {:?}", start.elapsed());
}
