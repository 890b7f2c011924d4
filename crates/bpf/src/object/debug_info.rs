//! BTF types of functions and maps, and source lines. Both forms of an object use them: the file
//! (`elf`) and memory (`link`).

use spile_ebpf::isa::asm::{AsmFunction, SourceLine};

use crate::object::btf::{BtfBuilder, BuiltTypeId, LineInfo, Linkage};
use crate::object::elf::{MapSpec, MapType};

/// The type of a program or subprogram, from which the kernel takes the parameters of global ones.
pub(crate) fn function_type(
    btf: &mut BtfBuilder,
    function: &AsmFunction,
    program: bool,
) -> BuiltTypeId {
    let (param, result) = if program {
        let context = btf.ptr(BuiltTypeId::VOID);
        (context, btf.int("int", 4, true))
    } else {
        let param = btf.int("unsigned long", 8, false);
        (param, btf.int("long", 8, true))
    };
    let linkage = if program || function.separate {
        Linkage::Global
    } else {
        Linkage::Static
    };
    let params: Vec<_> = function.params.iter().map(|p| (&**p, param)).collect();
    let proto = btf.func_proto(result, &params);
    btf.func(&function.name, proto, linkage)
}

/// Line records of a function at `start`, with slots of `unit` bytes or words. The first
/// instruction always has one, because the kernel requires it.
pub(crate) fn lines(
    btf: &mut BtfBuilder,
    function: &AsmFunction,
    start: u32,
    unit: u32,
    out: &mut Vec<LineInfo>,
) {
    let end = function.slots();
    let lines = function.lines.iter().filter(|(slot, _)| *slot < end);
    let head = match function.lines.first() {
        Some((0, _)) => None,
        Some((_, line)) => Some(line_info(btf, start, line)),
        None => {
            let none = btf.string("");
            Some(LineInfo {
                offset: start,
                file: none,
                text: none,
                line: 0,
                column: 0,
            })
        }
    };
    out.extend(head);
    for (slot, line) in lines {
        out.push(line_info(btf, start + slot * unit, line));
    }
}

fn line_info(btf: &mut BtfBuilder, offset: u32, source: &SourceLine) -> LineInfo {
    LineInfo {
        offset,
        file: btf.string(&source.file),
        text: btf.string(&source.text),
        line: source.line,
        column: source.column,
    }
}

/// Types of key and value, for maps whose types the kernel needs.
pub(crate) fn map_types(btf: &mut BtfBuilder, map: &MapSpec) -> Option<(BuiltTypeId, BuiltTypeId)> {
    (map.ty == MapType::TaskStorage).then(|| {
        let key = btf.int("int", 4, true);
        let word = btf.int("unsigned long", 8, false);
        (key, btf.array(word, map.value_size / 8))
    })
}
