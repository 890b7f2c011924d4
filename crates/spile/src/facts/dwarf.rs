//! What is in programs and libraries: places by name and by line, variables there, types.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use spile_debuginfo::{
    Absent, Binding, Die, Dwarf, LineQuery, LocBinary, LocOp as Op, Location, Pattern, Symbol,
    SymbolKind, Type, Which, cfi, demangle, plt,
};
use spile_ir::{BinOp, CodePlace};
use spile_kernel::glob;
use spile_sema::facts::{
    CType, CTypeId, CodeQuery, EntryPlace, FoundPlace, FunctionKind, Lines, Loc, LocOp, Member,
    VarKind, Variable,
};

use super::user::{Opened, Place, Programs};

/// Where the number of the file stands in that of a type.
const SHIFT: u32 = 24;
/// Modules of the kernel have numbers from here on.
const FIRST_MODULE: u32 = 128;
/// What functions return in memory is larger than this (System V ABI, x86-64 and aarch64).
const REGISTERS: u32 = 16;

fn pattern(text: &str) -> Pattern<'_> {
    let matches: fn(&str, &str) -> bool = glob::matches;
    Pattern {
        text,
        glob: glob::is_pattern(text).then_some(matches),
    }
}

impl Opened {
    fn dwarf(&self) -> Result<&Dwarf, String> {
        self.file.dwarf().ok_or_else(|| {
            let mut text = format!("{} has no debugging information", self.path);
            for note in self.file.notes() {
                text.push_str(&format!("; {note}"));
            }
            text
        })
    }

    /// Makes a place known; `None` where there is no code.
    fn place(&self, name: &str, address: u64, body: u64, die: Option<Die>) -> Option<FoundPlace> {
        let image = self.file.image();
        let offset = image
            .file_offset(address)
            .filter(|_| image.is_code(address))?;
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.push(Place { address, body, die });
        Some(FoundPlace {
            id: places.len() as u64 - 1,
            name: name.into(),
            file: None,
            line: 0,
            provider: None,
            inlined: false,
            place: CodePlace::File {
                path: self.path.clone(),
                offset,
            },
            address,
            semaphore: 0,
        })
    }

    fn known(&self, id: u64) -> Option<Place> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(usize::try_from(id).ok()?).copied()
    }

    /// Functions by the symbols, by name.
    fn by_symbol(&self, text: &str, kind: &FunctionKind) -> Vec<FoundPlace> {
        let symbols = self.file.symbols();
        let wanted = |s: &&Symbol<'_>| {
            s.kind == SymbolKind::Func
                && (*kind != FunctionKind::Exported || s.binding != Binding::Local)
        };
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        let mut add = |name: &str, s: &Symbol<'_>| {
            if seen.insert(s.address) {
                found.extend(self.place(name, s.address, s.address, None));
            }
        };
        if !glob::is_pattern(text) {
            symbols
                .named(text)
                .filter(wanted)
                .for_each(|s| add(text, s));
        }
        for s in symbols.all().iter().filter(wanted) {
            // Parts of functions that the compiler moved away are no functions.
            if s.name.contains(".cold") || s.name.contains(".part.") {
                continue;
            }
            // What the compiler made of a function has its name and more.
            let plain = s.name.split(['.', '@']).next().unwrap_or(s.name);
            match demangle::short(s.name) {
                Some(name) if glob::matches(text, &name) => add(&name, s),
                _ if glob::matches(text, s.name) => add(s.name, s),
                _ if plain != s.name && glob::matches(text, plain) => add(plain, s),
                _ => {}
            }
        }
        found
    }

    fn functions(&self, query: &CodeQuery) -> Result<Vec<FoundPlace>, String> {
        let CodeQuery::Function {
            name,
            file,
            lines,
            kind,
            callee,
        } = query
        else {
            return Ok(Vec::new());
        };
        if *kind == FunctionKind::Return && self.file.image().is_go() {
            // Its stacks move, and what is put in place of return addresses confuses it.
            return Err("a program in Go would crash at a return probe; probe its calls".into());
        }
        if callee.is_some() {
            return Err("`.callee` is not available for programs".into());
        }
        let plain = file.is_none() && *kind != FunctionKind::Inline;
        let dwarf = match self.dwarf() {
            Ok(dwarf) => dwarf,
            Err(_) if plain => return Ok(self.by_symbol(name, kind)),
            Err(why) => return Err(why),
        };
        let which = Which {
            outline: *kind != FunctionKind::Inline,
            inlined: matches!(kind, FunctionKind::Any | FunctionKind::Inline),
        };
        let mut found = Vec::new();
        for f in dwarf.functions(pattern(name), file.as_deref().map(pattern), which) {
            let inside = match lines {
                Lines::Absolute(parts) => dwarf.line_range(f.die).is_some_and(|(low, high)| {
                    parts.iter().any(|(from, to)| *from <= high && low <= *to)
                }),
                _ => true,
            };
            if !inside || (*kind == FunctionKind::Exported && !f.external) {
                continue;
            }
            let at = match kind {
                FunctionKind::Return => f.entry,
                _ => f.body,
            };
            found.extend(
                self.place(&f.qualified, at, f.body, Some(f.die))
                    .map(|p| FoundPlace {
                        file: f.file.clone(),
                        line: f.line,
                        inlined: f.inlined,
                        ..p
                    }),
            );
        }
        match found.is_empty() && plain {
            // What was written in assembler, or comes from a part without debugging information.
            true => Ok(self.by_symbol(name, kind)),
            false => Ok(found),
        }
    }

    fn statements(
        &self,
        (name, file): (&str, Option<&str>),
        lines: &Lines,
        nearest: bool,
    ) -> Result<Vec<FoundPlace>, String> {
        let dwarf = self.dwarf()?;
        let queries: Vec<LineQuery> = match lines {
            // The function's own beginning, which is not moved behind anything.
            Lines::Any => {
                let which = Which {
                    outline: true,
                    inlined: true,
                };
                let found = dwarf.functions(pattern(name), file.map(pattern), which);
                let place = |f: &spile_debuginfo::FunctionPlace| {
                    let place = self.place(&f.qualified, f.entry, f.body, Some(f.die))?;
                    Some(FoundPlace {
                        file: f.file.clone(),
                        line: f.line,
                        inlined: f.inlined,
                        ..place
                    })
                };
                return Ok(found.iter().filter_map(place).collect());
            }
            Lines::Relative(n) => vec![LineQuery::Plus(*n)],
            Lines::All => vec![LineQuery::All],
            Lines::Absolute(parts) => {
                let part = |(from, to): &(u32, u32)| match from == to {
                    true => LineQuery::At(*from),
                    false => LineQuery::Range(*from, *to),
                };
                parts.iter().map(part).collect()
            }
        };
        let mut found = Vec::new();
        for query in queries {
            let mut answer = dwarf.statements(pattern(name), file.map(pattern), query);
            if let (true, LineQuery::At(line)) = (answer.places.is_empty(), query) {
                let (below, above) = answer.nearest;
                let distance = |n: &u32| n.abs_diff(line);
                let next = below.into_iter().chain(above).min_by_key(distance);
                match next {
                    Some(next) if nearest => {
                        let next = LineQuery::At(next);
                        answer = dwarf.statements(pattern(name), file.map(pattern), next);
                    }
                    Some(_) => {
                        let near: Vec<String> =
                            below.iter().chain(&above).map(u32::to_string).collect();
                        return Err(format!(
                            "line {line} has no code; the nearest that have are {}",
                            near.join(" and ")
                        ));
                    }
                    None => {}
                }
            }
            for s in answer.places {
                let place = self.place(&s.name, s.address, s.address, Some(s.die));
                found.extend(place.map(|p| FoundPlace {
                    file: Some(s.file.clone()),
                    line: s.line,
                    ..p
                }));
            }
        }
        Ok(found)
    }

    /// A type's number as all others see it.
    fn outside(&self, id: u32) -> CTypeId {
        match (id, self.number) {
            (0, _) | (_, 0) => 0,
            (id, number) => id | number << SHIFT,
        }
    }

    fn location(&self, found: Result<Location, Absent>) -> Loc {
        let absent = |why: &str| Loc::Absent(why.into());
        match found {
            Ok(Location::Address(ops)) => self
                .program(&ops)
                .map_or_else(|| absent(COMPLEX), Loc::Address),
            Ok(Location::Value(ops)) => self
                .program(&ops)
                .map_or_else(|| absent(COMPLEX), Loc::Value),
            Ok(Location::Pieces(pieces)) => self.pieces(&pieces),
            Err(why) => absent(&why.0),
        }
    }

    /// A number in several pieces, put together.
    fn pieces(&self, pieces: &[(u64, Option<Location>)]) -> Loc {
        let total: u64 = pieces.iter().map(|(bytes, _)| *bytes).sum();
        if total > 8 {
            return Loc::Absent("its parts are in different places".into());
        }
        let mut whole = vec![LocOp::Const(0)];
        let mut shift = 0;
        for (bytes, piece) in pieces {
            let mask = match bytes {
                8.. => -1,
                n => (1i64 << (8 * n)) - 1,
            };
            let ops = match piece {
                Some(Location::Value(ops)) => self.program(ops),
                Some(Location::Address(ops)) => self.program(ops).map(|mut ops| {
                    ops.push(LocOp::Load {
                        size: bytes.next_power_of_two() as u8,
                        signed: false,
                    });
                    ops
                }),
                _ => return Loc::Absent("a part of it is optimised out".into()),
            };
            let Some(ops) = ops else {
                return Loc::Absent(COMPLEX.into());
            };
            whole.extend(ops);
            whole.extend([LocOp::Const(mask), LocOp::Bin(BinOp::And)]);
            whole.extend([LocOp::Const(shift), LocOp::Bin(BinOp::Shl)]);
            whole.push(LocOp::Bin(BinOp::Or));
            shift += 8 * *bytes as i64;
        }
        Loc::Value(whole)
    }

    fn program(&self, ops: &[Op]) -> Option<Vec<LocOp>> {
        let mut out = Vec::with_capacity(ops.len());
        for op in ops {
            match *op {
                Op::Reg(n) => out.push(LocOp::Reg(n)),
                Op::Const(n) => out.push(LocOp::Const(n)),
                Op::Bias if self.file.image().position_independent() => out.push(LocOp::Bias),
                Op::Bias => out.push(LocOp::Const(0)),
                Op::Load { size } => out.push(LocOp::Load {
                    size,
                    signed: false,
                }),
                Op::Extend { size, signed } => {
                    let bits = 64 - 8 * i64::from(size);
                    let back = if signed { BinOp::Shr } else { BinOp::UShr };
                    out.extend([LocOp::Const(bits), LocOp::Bin(BinOp::Shl)]);
                    out.extend([LocOp::Const(bits), LocOp::Bin(back)]);
                }
                Op::Binary(op) => out.push(LocOp::Bin(binary(op))),
                Op::Neg => out.push(LocOp::Neg),
                Op::Not => out.push(LocOp::Not),
                Op::Abs => return None,
            }
        }
        Some(out)
    }

    /// What a function returns.
    fn returned(&self, dwarf: &Dwarf, function: Die) -> Option<Variable> {
        let ty = dwarf.type_of(function);
        let loc = match dwarf.ctype(ty) {
            Type::Void => return None,
            Type::Int { size: ..=8, .. } | Type::Enum { .. } | Type::Pointer(_) => {
                Loc::Value(vec![LocOp::Ret])
            }
            Type::Struct { size, .. } if size > REGISTERS => Loc::Address(vec![LocOp::Ret]),
            Type::Struct { .. } => Loc::Absent("it is returned in registers".into()),
            _ => Loc::Absent("its type is not understood".into()),
        };
        Some(Variable {
            name: "return".into(),
            ty: self.outside(ty),
            kind: VarKind::Return,
            loc,
        })
    }
}

const COMPLEX: &str = "its location is too complex";

fn binary(op: LocBinary) -> BinOp {
    match op {
        LocBinary::Add => BinOp::Add,
        LocBinary::Sub => BinOp::Sub,
        LocBinary::Mul => BinOp::Mul,
        LocBinary::Div => BinOp::Div,
        LocBinary::Mod => BinOp::Mod,
        LocBinary::And => BinOp::And,
        LocBinary::Or => BinOp::Or,
        LocBinary::Xor => BinOp::Xor,
        LocBinary::Shl => BinOp::Shl,
        LocBinary::Shr => BinOp::UShr,
        LocBinary::Sar => BinOp::Shr,
        LocBinary::Eq => BinOp::Eq,
        LocBinary::Ne => BinOp::Ne,
        LocBinary::Lt => BinOp::Lt,
        LocBinary::Le => BinOp::Le,
        LocBinary::Gt => BinOp::Gt,
        LocBinary::Ge => BinOp::Ge,
    }
}

impl Programs {
    /// As `Facts::places`, for files.
    pub fn places(&self, path: &str, query: &CodeQuery) -> Result<Vec<FoundPlace>, String> {
        let file = self.file(path)?;
        let mut found = match query {
            CodeQuery::Function { .. } => file.functions(query)?,
            CodeQuery::Statement {
                name,
                file: source,
                lines,
                nearest,
            } => file.statements((name, source.as_deref()), lines, *nearest)?,
            CodeQuery::Address { address, .. } => {
                let named = file.file.symbols().function_at(*address);
                let name = named.map_or("", |(s, _)| s.name);
                let place = file.place(name, *address, *address, None);
                vec![place.ok_or_else(|| format!("{path} has no code at {address:#x}"))?]
            }
            CodeQuery::Plt(name) => plt::entries(file.file.image())
                .iter()
                .filter(|e| glob::matches(name, e.name))
                .filter_map(|e| file.place(e.name, e.address, e.address, None))
                .collect(),
            CodeQuery::Mark { .. } => Vec::new(),
        };
        found.sort_by(|a, b| (&a.name, a.address).cmp(&(&b.name, b.address)));
        // Inlined copies of one function in another at one address are one place.
        found.dedup_by(|a, b| a.address == b.address && a.name == b.name);
        Ok(found)
    }

    /// As `Facts::place_variables`, for files.
    pub fn variables(&self, path: &str, id: u64, ret: bool) -> Result<Vec<Variable>, String> {
        let file = self.file(path)?;
        let dwarf = file.dwarf()?;
        let place = file.known(id).ok_or("this place is not known")?;
        let address = if ret { place.body } else { place.address };
        let mut seen = BTreeSet::new();
        let mut found: Vec<Variable> = dwarf
            .variables(address, place.die)
            .into_iter()
            // Inner ones come first and hide the others.
            .filter(|v| seen.insert(v.name.clone()))
            .map(|v| Variable {
                loc: file.location(dwarf.locate(&v, address)),
                ty: file.outside(v.ty),
                kind: match v.parameter {
                    true => VarKind::Parameter,
                    false => VarKind::Local,
                },
                name: v.name,
            })
            .collect();
        found.sort_by_key(|v| v.kind != VarKind::Parameter);
        if let (true, Some(die)) = (ret, place.die) {
            found.extend(file.returned(dwarf, die));
        }
        Ok(found)
    }

    /// As `Facts::entry_place`, for files.
    pub fn entry_place(&self, path: &str, id: u64) -> Option<EntryPlace> {
        let file = self.file(path).ok()?;
        let place = file.known(id)?;
        if place.body == place.address {
            return None;
        }
        let image = file.file.image();
        let row = cfi::row_for(image, file.file.debug_image(), place.body)?;
        let cfi::Cfa::Register { register, offset } = row.cfa else {
            return None;
        };
        Some(EntryPlace {
            place: CodePlace::File {
                path: file.path.clone(),
                offset: image.file_offset(place.body)?,
            },
            address: place.body,
            frame: vec![
                LocOp::Reg(register),
                LocOp::Const(offset.into()),
                LocOp::Bin(BinOp::Add),
            ],
        })
    }

    /// As `Facts::module_variable`, for files.
    pub fn global(&self, path: &str, name: &str, source: Option<&str>) -> Option<Variable> {
        let file = self.file(path).ok()?;
        let dwarf = file.file.dwarf()?;
        let v = dwarf.global(name, source.map(pattern))?;
        Some(Variable {
            loc: file.location(dwarf.locate(&v, 0)),
            ty: file.outside(v.ty),
            kind: VarKind::Global,
            name: v.name,
        })
    }

    /// As `Facts::module_type`, for files.
    pub fn type_named(&self, path: &str, name: &str) -> Option<CTypeId> {
        let file = self.file(path).ok()?;
        let id = file.file.dwarf()?.type_named(name)?;
        Some(file.outside(id))
    }

    /// Whose a type is and its number there; `None` for types of the kernel.
    fn own(&self, id: CTypeId) -> Option<(Arc<Opened>, u32)> {
        let number = id >> SHIFT;
        if !(1..FIRST_MODULE).contains(&number) {
            return None;
        }
        Some((self.numbered(number)?, id & ((1 << SHIFT) - 1)))
    }

    /// Whether a type is a program's.
    pub fn has(&self, id: CTypeId) -> bool {
        (1..FIRST_MODULE).contains(&(id >> SHIFT))
    }

    /// As `Facts::ctype`; `None` for types of the kernel, here and below.
    pub fn ctype(&self, id: CTypeId) -> Option<CType> {
        let (file, id) = self.own(id)?;
        Some(match file.file.dwarf()?.ctype(id) {
            Type::Void => CType::Void,
            Type::Int { size, signed, char } => CType::Int { size, signed, char },
            Type::Pointer(to) => CType::Ptr(file.outside(to)),
            Type::Array { elem, count } => CType::Array {
                elem: file.outside(elem),
                count,
            },
            Type::Struct { name, size, union } => CType::Struct { name, size, union },
            Type::Enum { size, signed } => CType::Enum { size, signed },
            Type::Func => CType::Func,
            Type::Float { .. } | Type::Unknown => CType::Unknown,
        })
    }

    /// As `Facts::c_name`.
    pub fn c_name(&self, id: CTypeId) -> Option<String> {
        let (file, id) = self.own(id)?;
        Some(file.file.dwarf()?.c_name(id))
    }

    /// As `Facts::members`.
    pub fn members(&self, id: CTypeId) -> Option<Vec<Member>> {
        let (file, id) = self.own(id)?;
        let members = file.file.dwarf()?.members(id);
        let member = |m: spile_debuginfo::Member| Member {
            ty: file.outside(m.ty),
            name: m.name,
            bit_offset: m.bit_offset,
            bit_size: m.bit_size,
        };
        Some(members.into_iter().map(member).collect())
    }

    /// As `Facts::enum_values`.
    pub fn enum_values(&self, id: CTypeId) -> Option<Vec<(Arc<str>, i64)>> {
        let (file, id) = self.own(id)?;
        Some(file.file.dwarf()?.enum_values(id))
    }
}

#[cfg(test)]
mod tests {
    use super::super::user::Target;
    use super::*;

    #[test]
    fn functions_of_this_program() {
        let programs = Programs::new(Target::None);
        let path = std::env::current_exe().expect("a path");
        let path = path.to_string_lossy();
        let query = |name: &str| CodeQuery::Function {
            name: name.into(),
            file: None,
            lines: Lines::Any,
            kind: FunctionKind::Call,
            callee: None,
        };
        let here = programs.places(&path, &query("*functions_of_this_program*"));
        assert!(!here.expect("this").is_empty());
        assert!(
            programs
                .places(&path, &query("nosuch"))
                .expect("none")
                .is_empty()
        );
        let nowhere = CodeQuery::Address {
            address: 1,
            absolute: true,
        };
        assert!(programs.places(&path, &nowhere).is_err());
        assert!(programs.places("/dev/null", &query("main")).is_err());
    }
}
