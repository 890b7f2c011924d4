//! Calls every query on a file of arbitrary bytes, for tests and for fuzzing.

use std::path::Path;

use spile_debuginfo::{
    CallKind, DebugFile, Die, Dwarf, Image, LineQuery, LocationKinds, Pattern, SearchPaths, cfi,
    ifunc, plt, relocations, sdt,
};

/// Calls every query.
pub(crate) fn run_all(bytes: Vec<u8>) {
    let copy = bytes.clone();
    let Ok(image) = Image::from_bytes(bytes, Path::new("damaged")) else {
        return;
    };
    let _ = sdt::markers(&copy);
    let module = DebugFile::new(image, &SearchPaths::default());
    let image = module.image();
    let _ = (image.build_id(), image.debug_link(), image.alt_link());
    let _ = plt::entries(image);
    let _ = (relocations::of(image), relocations::versioned(image));
    for function in module.symbols().functions().take(20) {
        let _ = ifunc::implementations(&module, function.address);
    }
    let rows = cfi::rows(image, module.debug_image());
    assert!(rows.is_sorted_by_key(|r| r.start));
    let entries = module.symbols().all().iter().map(|s| s.address);
    let more = cfi::with_entries(
        rows.clone(),
        entries.collect(),
        image.abi().unwrap_or(spile_abi::HOST),
    );
    assert!(
        more.is_sorted_by_key(|r| r.start)
            && cfi::described_bytes(&more) >= cfi::described_bytes(&rows)
    );
    for s in module.symbols().all() {
        let _ = module.symbols().function_at(s.address);
        let _ = module.symbols().data_at(s.address.wrapping_add(1));
        let _ = image.file_offset(s.address);
        let _ = cfi::row_at(&rows, s.address);
        let _ = cfi::row_for(image, None, s.address);
        let _ = spile_debuginfo::demangle::full(s.name);
    }
    if let Some(dwarf) = module.dwarf() {
        ask_dwarf(dwarf);
    }
}

fn ask_dwarf(dwarf: &Dwarf) {
    let any = Pattern {
        text: "*",
        glob: Some(|_, _| true),
    };
    let all = LocationKinds {
        outline: true,
        inlined: true,
    };
    let mut locations: Vec<(u64, Die)> = Vec::new();
    for f in dwarf.functions(any, None, all).into_iter().take(50) {
        for call in dwarf.calls(f.die).list {
            match call.kind {
                CallKind::Inlined(die) => drop(dwarf.calls(die)),
                CallKind::Called { function, .. } => drop(dwarf.called_functions(function)),
                CallKind::Jumped { function, jump } => {
                    let called = dwarf.called_functions(function);
                    let _ = called.first().map(|p| dwarf.jump_to(jump, p.entry));
                }
            }
        }
        let _ = dwarf.line_range(f.die);
        locations.push((f.body, f.die));
    }
    let lines = dwarf.statements(any, None, LineQuery::All).locations;
    locations.extend(lines.into_iter().take(100).map(|l| (l.address, l.die)));
    for (address, die) in locations {
        let _ = dwarf.frames(address);
        for v in dwarf.variables(address, Some(die)) {
            let _ = dwarf.locate(&v, address);
            let _ = dwarf.c_name(v.ty);
            let _ = dwarf.ctype(v.ty);
            let _ = dwarf.enum_values(v.ty);
            for m in dwarf.members(v.ty).into_iter().take(50) {
                let _ = (dwarf.c_name(m.ty), dwarf.ctype(m.ty));
            }
        }
    }
    let _ = dwarf.global("shared", None);
    let _ = dwarf.type_named("struct tree");
}
