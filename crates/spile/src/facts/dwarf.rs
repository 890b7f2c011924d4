//! Locations, variables and types of programs, of the kernel and of its modules, from their
//! debugging information.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use spile_abi::HOST;
use spile_cast::Cast;
use spile_debuginfo::{
    CType, DebugFile as File, Die, Dwarf, FunctionLocation, LineQuery, Location, LocationKinds,
    Pattern, Unavailable, plt,
};
use spile_glob as glob;
use spile_ir::{BinOp, Space};
use spile_sema::facts::{
    self, COUNT_OF, CTypeId, CodeQuery, FoundLocation, FunctionKind, FunctionPart, LinePattern,
    LocOp, LocationPiece, Member, TypeHome, VarKind, VarLocation, Variable, Variants,
};

use super::callees::CalleeQuery;
use super::code_owner::CodeOwner;
use super::convention::{Arguments, FLOATING, first_seen, structure};
use super::locations::{IMPLICIT, extend_to_type, join_pieces, locate_pieces, pointer_to, program};

/// Maximum number of statement locations that one probe point may match.
const MAX_ANY_LINE: u32 = 100_000;

/// The files and locations that analysis has ids of.
#[derive(Default)]
pub(crate) struct FileTable {
    table: Mutex<FileEntries>,
}

#[derive(Default)]
struct FileEntries {
    /// Each with the memory that its objects are in.
    files: Vec<(Arc<File>, Space)>,
    locations: Vec<LocationInfo>,
    ids: HashMap<LocationInfo, u64>,
}

/// A location that a query found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LocationInfo {
    /// The function or inlined instance.
    pub die: Die,
    /// The address where its variables are looked up.
    pub address: u64,
    /// The address of the program counter there.
    pub counter: u64,
}

impl LocationInfo {
    /// A location whose variables are looked up where its program counter is.
    fn at(die: Die, address: u64) -> LocationInfo {
        LocationInfo {
            die,
            address,
            counter: address,
        }
    }
}

/// Ids of locations from here on belong to this table; smaller ones are addresses.
const FIRST_ID: u64 = 1 << 62;

impl FileTable {
    /// Whose a file's types are.
    fn home(&self, file: &Arc<File>, space: Space) -> TypeHome {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let index = table.files.iter().position(|f| Arc::ptr_eq(&f.0, file));
        let index = index.unwrap_or_else(|| {
            table.files.push((file.clone(), space));
            table.files.len() - 1
        });
        TypeHome::File(index.fit())
    }

    /// The file of a type, and the memory that its objects are in.
    fn file(&self, id: CTypeId) -> Option<(Arc<File>, Space)> {
        let TypeHome::File(index) = id.home else {
            return None;
        };
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.files.get(index as usize).cloned()
    }

    /// The file of a type.
    pub(crate) fn file_of(&self, id: CTypeId) -> Option<Arc<File>> {
        Some(self.file(id)?.0)
    }

    /// The memory that objects of a type are in.
    pub(crate) fn space_of(&self, id: CTypeId) -> Option<Space> {
        Some(self.file(id)?.1)
    }

    /// Whether a location was found by debugging information.
    pub(crate) fn has_location(&self, id: u64) -> bool {
        self.location(id).is_some()
    }

    pub(super) fn location_id(&self, info: LocationInfo) -> u64 {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&id) = table.ids.get(&info) {
            return id;
        }
        let id = FIRST_ID + table.locations.len() as u64;
        table.locations.push(info);
        table.ids.insert(info, id);
        id
    }

    fn location(&self, id: u64) -> Option<LocationInfo> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(id.checked_sub(FIRST_ID)?).ok()?;
        table.locations.get(index).copied()
    }
}

/// A file with debugging information.
pub(crate) struct OpenedFile {
    /// The file.
    pub file: Arc<File>,
    /// The owner of its code.
    pub(super) home: CodeOwner,
}

impl OpenedFile {
    /// The file for queries.
    pub(super) fn queried<'a>(&'a self, table: &'a FileTable) -> QueriedFile<'a> {
        QueriedFile {
            home: &self.home,
            file: &self.file,
            table,
        }
    }
}

/// A file for queries.
#[derive(Clone, Copy)]
pub(super) struct QueriedFile<'a> {
    /// The owner of its code.
    pub home: &'a CodeOwner,
    /// The file itself.
    pub file: &'a Arc<File>,
    /// The table of assigned ids.
    pub table: &'a FileTable,
}

/// A pattern of a script.
pub(super) fn pattern(text: &str) -> Pattern<'_> {
    Pattern {
        text,
        glob: glob::is_pattern(text).then_some(glob::matches as fn(&str, &str) -> bool),
    }
}

impl QueriedFile<'_> {
    pub(super) fn dwarf(&self) -> Result<&Dwarf, String> {
        let dwarf = self.any_dwarf()?;
        match dwarf.missing_units() {
            Some(missing) if missing.every_unit => Err(format!("{}: {missing}", self.home)),
            _ => Ok(dwarf),
        }
    }

    /// The debugging information, also where the file has only a part of it.
    fn any_dwarf(&self) -> Result<&Dwarf, String> {
        self.file.dwarf().ok_or_else(|| {
            let notes = self.file.notes();
            let why = match notes.first() {
                Some(note) => format!(" ({note})"),
                None => String::new(),
            };
            format!("{} has no debugging information{why}", self.home)
        })
    }

    pub(super) fn found(&self, name: &str, die: Die, address: u64) -> Option<FoundLocation> {
        let id = self.table.location_id(LocationInfo::at(die, address));
        let location = self.home.location(self.file, address)?;
        Some(FoundLocation::new(id, name.into(), location, address))
    }

    /// Functions and statements that a query matches; empty for other queries.
    ///
    /// # Errors
    /// Those of [`QueriedFile::functions`], [`QueriedFile::callees`] and [`QueriedFile::statements`].
    pub(super) fn locations(&self, query: &CodeQuery) -> Result<Vec<FoundLocation>, String> {
        match query {
            CodeQuery::Function {
                name,
                file,
                lines,
                kind,
                part,
            } => match part {
                Some(FunctionPart::Callees {
                    name: callee,
                    depth,
                }) => {
                    let called = CalleeQuery {
                        name: callee,
                        depth: *depth,
                        kind,
                    };
                    self.callees(name, file.as_deref(), lines, &called)
                }
                Some(FunctionPart::Label(label)) => self.labels(name, file.as_deref(), label),
                None => self.functions(name, file.as_deref(), lines, kind),
            },
            CodeQuery::Statement {
                name,
                file,
                lines,
                nearest,
            } => self.statements(name, file.as_deref(), lines, *nearest),
            _ => Ok(Vec::new()),
        }
    }

    /// Functions by name, file and lines.
    ///
    /// # Errors
    /// When the file has no debugging information.
    pub(super) fn functions(
        &self,
        name: &str,
        file: Option<&str>,
        lines: &LinePattern,
        kind: &FunctionKind,
    ) -> Result<Vec<FoundLocation>, String> {
        let dwarf = self.dwarf()?;
        let kinds = LocationKinds {
            outline: *kind != FunctionKind::Inline,
            inlined: matches!(kind, FunctionKind::Any | FunctionKind::Inline),
        };
        let functions = dwarf.functions(pattern(name), file.map(pattern), kinds);
        let wanted = |p: &&FunctionLocation| {
            (*kind != FunctionKind::Exported || p.external) && in_lines(dwarf, p, lines)
        };
        let location = |p: &FunctionLocation| {
            let location = self.found(&p.qualified, p.die, address_for(kind, p))?;
            Some(FoundLocation {
                file: p.file.clone(),
                line: p.line,
                inlined: p.inlined,
                inexact: p.inexact.map(|why| why.to_string().into()),
                ..location
            })
        };
        let functions = functions.iter().filter(wanted);
        Ok(functions.filter_map(location).collect())
    }

    /// A function found by a symbol, completed by the debugging information of the function of
    /// another name that begins there: aliases have no entries of their own.
    pub(super) fn by_alias(&self, location: FoundLocation, kind: &FunctionKind) -> FoundLocation {
        let dwarf = self.file.dwarf();
        let Some(p) = dwarf.and_then(|d| d.function_starting_at(location.address)) else {
            return location;
        };
        match self.found(&location.name, p.die, address_for(kind, &p)) {
            Some(location) => FoundLocation {
                file: p.file,
                line: p.line,
                ..location
            },
            None => location,
        }
    }

    /// Labels in functions of a name.
    ///
    /// # Errors
    /// When there is no debugging information.
    fn labels(
        &self,
        name: &str,
        file: Option<&str>,
        label: &str,
    ) -> Result<Vec<FoundLocation>, String> {
        let dwarf = self.dwarf()?;
        let outline = LocationKinds {
            outline: true,
            inlined: false,
        };
        let functions = dwarf.functions(pattern(name), file.map(pattern), outline);
        let mut locations = Vec::new();
        for function in &functions {
            for label in dwarf.labels(function.die, pattern(label)) {
                let location = self.found(&function.qualified, function.die, label.address);
                locations.extend(location.map(|location| FoundLocation {
                    file: function.file.clone(),
                    line: function.line,
                    label: Some(label.name),
                    ..location
                }));
            }
        }
        if locations.is_empty() && !functions.is_empty() {
            let labels = functions
                .iter()
                .flat_map(|f| dwarf.labels(f.die, pattern("*")));
            let names: Vec<String> = labels.map(|l| format!("`{}`", l.name)).collect();
            return Err(match names.is_empty() {
                true => "it has no labels; compilers keep those that code jumps to".into(),
                false => format!("it has no label `{label}`, but {}", names.join(", ")),
            });
        }
        Ok(locations)
    }

    /// Statements by function, file and lines.
    ///
    /// # Errors
    /// When there is no debugging information, or no such line; then with the nearest lines.
    pub(super) fn statements(
        &self,
        name: &str,
        file: Option<&str>,
        lines: &LinePattern,
        nearest: bool,
    ) -> Result<Vec<FoundLocation>, String> {
        let dwarf = self.dwarf()?;
        let queries: Vec<LineQuery> = match lines {
            LinePattern::Any => return self.functions(name, file, lines, &FunctionKind::Any),
            LinePattern::All => vec![LineQuery::All],
            LinePattern::Relative(n) => vec![LineQuery::Plus(*n)],
            LinePattern::Absolute(parts) => parts
                .iter()
                .map(|&(a, b)| match a == b {
                    true => LineQuery::At(a),
                    false => LineQuery::Range(a, b.min(a.saturating_add(MAX_ANY_LINE))),
                })
                .collect(),
        };
        let mut locations = Vec::new();
        let mut why = None;
        for query in queries {
            let ask = |query| dwarf.statements(pattern(name), file.map(pattern), query);
            let mut statements = ask(query);
            let (below, above) = statements.nearest;
            if statements.locations.is_empty() && nearest {
                let line = above.or(below);
                statements = line.map(|l| ask(LineQuery::At(l))).unwrap_or_default();
            }
            if let (true, LineQuery::At(line)) = (statements.locations.is_empty(), query) {
                why = Some(no_line(line, (below, above)));
            }
            locations.extend(statements.locations.iter().filter_map(|p| {
                let location = self.found(&p.name, p.die, p.address)?;
                Some(FoundLocation {
                    file: Some(p.file.clone()),
                    line: p.line,
                    ..location
                })
            }));
        }
        match why {
            Some(why) if locations.is_empty() => Err(match dwarf.missing_units() {
                Some(missing) => format!("no function is known there: {missing}"),
                None => why,
            }),
            _ => Ok(locations),
        }
    }

    /// Entries of the procedure linkage table.
    pub(super) fn stubs(&self, name: &str) -> Vec<FoundLocation> {
        let image = self.file.image();
        let entry = |p: &plt::PltEntry<'_>| {
            let location = self.home.location(self.file, p.address)?;
            Some(FoundLocation::new(
                p.address,
                p.name.into(),
                location,
                p.address,
            ))
        };
        let entries = plt::entries(image);
        let wanted = entries.iter().filter(|p| glob::matches(name, p.name));
        wanted.filter_map(entry).collect()
    }

    /// A location at an address, completed by its function and line.
    pub(super) fn describe(&self, location: FoundLocation) -> FoundLocation {
        let Some(dwarf) = self.file.dwarf() else {
            return location;
        };
        let Some(frame) = dwarf.frames(location.address).into_iter().next() else {
            return location;
        };
        let die = dwarf.function_at(location.address);
        let id = die.map(|die| {
            let info = LocationInfo::at(die, location.address);
            self.table.location_id(info)
        });
        FoundLocation {
            id: id.unwrap_or(location.id),
            name: frame.function,
            file: frame.file,
            line: frame.line,
            inlined: frame.inlined,
            ..location
        }
    }

    /// A location whose instruction is another one: variables are looked up there.
    pub(super) fn moved(&self, location: FoundLocation, to: u64) -> FoundLocation {
        let id = match self.table.location(location.id) {
            Some(info) => self.table.location_id(LocationInfo {
                address: to,
                counter: to,
                ..info
            }),
            None => location.id,
        };
        FoundLocation { id, ..location }
    }

    /// The number of one of the file's types for analysis.
    fn ctype_id(&self, ty: u32) -> CTypeId {
        CTypeId::new(self.table.home(self.file, self.home.space()), ty)
    }

    /// The variables at a location.
    ///
    /// # Errors
    /// When there is no information about them.
    pub(super) fn variables(&self, id: u64, ret: bool) -> Result<Vec<Variable>, String> {
        let dwarf = self.dwarf()?;
        let Some(location) = self.table.location(id) else {
            return Err(format!(
                "{} has no information about variables there",
                self.home
            ));
        };
        let mut variables = Vec::new();
        let mut arguments = Arguments::for_function(dwarf, location.die);
        for v in dwarf.variables(location.address, Some(location.die)) {
            let ty = dwarf.ctype(v.ty);
            let passed = v.parameter.then(|| arguments.next(&ty)).flatten();
            let loc = self.loc(dwarf, &v, location.address, Some(location.counter));
            let loc = match loc {
                VarLocation::Address(_) if ret && v.parameter => first_seen(loc, passed, &ty),
                loc => loc,
            };
            variables.push(Variable {
                name: v.name.clone(),
                ty: self.ctype_id(v.ty),
                kind: match v.parameter {
                    true => VarKind::Parameter,
                    false if v.is_outer() => VarKind::Outer,
                    false => VarKind::Local,
                },
                loc,
            });
            for (array, dimension) in dwarf.counted_arrays(v.ty) {
                let count = dwarf.locate_count(dimension, location.address);
                variables.push(Variable {
                    name: format!("{COUNT_OF}{}", v.name).into(),
                    ty: self.ctype_id(array),
                    kind: VarKind::Global,
                    loc: self.location_of(dwarf, count, Some(location.counter)),
                });
            }
        }
        // Parameters first, in order.
        variables.sort_by_key(|v| v.kind != VarKind::Parameter);
        if ret {
            variables.extend(self.result(dwarf, location.die));
        }
        Ok(variables)
    }

    /// The return value of a function.
    fn result(&self, dwarf: &Dwarf, function: Die) -> Option<Variable> {
        let ty = dwarf.type_of(function);
        let loc = match dwarf.ctype(ty) {
            CType::Void => return None,
            CType::Struct { .. } => structure(&dwarf.return_convention(function, ty)),
            CType::Float { .. } => VarLocation::Absent(FLOATING.into()),
            ty => VarLocation::Value(extend_to_type(vec![LocOp::Ret], &ty)),
        };
        Some(Variable {
            name: "return".into(),
            ty: self.ctype_id(ty),
            kind: VarKind::Return,
            loc,
        })
    }

    /// A global variable of the file.
    pub(super) fn global(&self, name: &str, unit: Option<&str>) -> Option<Variable> {
        let dwarf = self.file.dwarf()?;
        let v = dwarf.global(name, unit.map(pattern))?;
        let loc = self.loc(dwarf, &v, 0, None);
        Some(Variable {
            name: v.name.clone(),
            ty: self.ctype_id(v.ty),
            kind: VarKind::Global,
            loc: self.home.of_processor(loc),
        })
    }

    /// A type by name.
    pub(super) fn type_named(&self, name: &str) -> Option<CTypeId> {
        let ty = self.file.dwarf()?.type_named(name)?;
        Some(self.ctype_id(ty))
    }

    /// The location of a variable at an address. `pc`: the program counter when it is read.
    fn loc(
        &self,
        dwarf: &Dwarf,
        v: &spile_debuginfo::DwarfVariable,
        address: u64,
        pc: Option<u64>,
    ) -> VarLocation {
        match dwarf.locate(v, address) {
            // A chain of such pointers ends at the first one.
            Ok(Location::Implicit { to, offset }) => {
                let object = dwarf.variable_at(to);
                let located = dwarf.locate(&object, address);
                pointer_to(self.location_of(dwarf, (object.ty, located), pc), offset)
            }
            located => self.location_of(dwarf, (v.ty, located), pc),
        }
    }

    /// A location in analysis' representation, by the type of the object.
    fn location_of(
        &self,
        dwarf: &Dwarf,
        (ty, located): (u32, Result<Location, Unavailable>),
        pc: Option<u64>,
    ) -> VarLocation {
        let moves = self.file.image().position_independent();
        let bias = match pc {
            _ if !moves => vec![LocOp::Const(0)],
            Some(pc) => vec![
                LocOp::Reg(HOST.program_counter),
                LocOp::Const(pc.cast_signed()),
                LocOp::Bin(BinOp::Sub),
            ],
            None => vec![LocOp::Bias(HOST.program_counter)],
        };
        let ty = dwarf.ctype(ty);
        let absent = |why: &str| VarLocation::Absent(why.into());
        match located.and_then(|l| self.home.relocate(l)) {
            Err(Unavailable(why)) => absent(&why),
            Ok(Location::Implicit { .. }) => absent(IMPLICIT),
            Ok(Location::Address(ops)) => VarLocation::Address(program(&ops, &bias)),
            Ok(Location::Value(ops))
                if matches!(ty, CType::Struct { size: ..=8, .. } | CType::Array { .. }) =>
            {
                let value = Ok(program(&ops, &bias));
                VarLocation::Pieces(vec![LocationPiece { bytes: 8, value }])
            }
            Ok(Location::Value(_)) if matches!(ty, CType::Struct { .. }) => {
                absent("it is in a register as a whole")
            }
            Ok(Location::Value(_))
                if matches!(ty, CType::Int { size: 16, .. } | CType::Float { size: 16 }) =>
            {
                absent("only a part of it is known")
            }
            Ok(Location::Pieces(pieces))
                if matches!(
                    ty,
                    CType::Struct { .. }
                        | CType::Array { .. }
                        | CType::Int { size: 16, .. }
                        | CType::Float { size: 16 }
                ) =>
            {
                VarLocation::Pieces(locate_pieces(&pieces, &bias))
            }
            Ok(Location::Value(ops)) => {
                VarLocation::Value(extend_to_type(program(&ops, &bias), &ty))
            }
            Ok(Location::Pieces(pieces)) => match join_pieces(&pieces, &bias) {
                Some(ops) => VarLocation::Value(extend_to_type(ops, &ty)),
                None => absent("it is in several locations at once"),
            },
        }
    }
}

/// The address to probe for a function.
pub(super) fn address_for(kind: &FunctionKind, function: &FunctionLocation) -> u64 {
    match kind {
        // Variables visible at the return have to be caught at the first instruction.
        FunctionKind::Return => function.entry,
        _ => function.body,
    }
}

/// Whether a function is declared on one of the lines.
pub(super) fn in_lines(dwarf: &Dwarf, p: &FunctionLocation, lines: &LinePattern) -> bool {
    let LinePattern::Absolute(parts) = lines else {
        return true;
    };
    dwarf.line_range(p.die).is_some_and(|(low, high)| {
        let low = low.min(p.line.max(1));
        parts.iter().any(|&(a, b)| a <= high && low <= b)
    })
}

fn no_line(line: u32, nearest: (Option<u32>, Option<u32>)) -> String {
    match nearest {
        (Some(a), Some(b)) => format!("line {line} has no code; lines {a} and {b} do"),
        (Some(a), None) | (None, Some(a)) => format!("line {line} has no code; line {a} does"),
        (None, None) => format!("line {line} has no code"),
    }
}

impl FileTable {
    /// A type without typedefs and qualifiers.
    pub(crate) fn ctype(&self, id: CTypeId) -> Option<facts::CType> {
        let ty = self.file_of(id)?.dwarf()?.ctype(id.number);
        Some(ty.map(|ty| CTypeId::new(id.home, ty)))
    }

    /// The type's name in C.
    pub(crate) fn c_name(&self, id: CTypeId) -> Option<String> {
        Some(self.file_of(id)?.dwarf()?.c_name(id.number))
    }

    /// All members.
    pub(crate) fn members(&self, id: CTypeId) -> Option<Vec<Member>> {
        let members = self.file_of(id)?.dwarf()?.members(id.number).into_iter();
        let member = |m: spile_debuginfo::Member| m.map(|ty| CTypeId::new(id.home, ty));
        Some(members.map(member).collect())
    }

    /// The variants of a structure.
    pub(crate) fn variants(&self, id: CTypeId) -> Option<Variants> {
        let variants = self.file_of(id)?.dwarf()?.variants(id.number)?;
        Some(variants.map(|ty| CTypeId::new(id.home, ty)))
    }

    /// The constants of an enumeration.
    pub(crate) fn enum_values(&self, id: CTypeId) -> Option<Vec<(Arc<str>, i64)>> {
        Some(self.file_of(id)?.dwarf()?.enum_values(id.number))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use spile_debuginfo::SearchPaths;

    use super::*;

    /// Numbers of types were 32 bits for file and type together: the 128th file had none.
    #[test]
    fn types_of_many_files_are_told_apart() {
        let table = FileTable::default();
        let open = || File::open(Path::new("/proc/self/exe"), &SearchPaths::from_env());
        let files: Vec<_> = (0..300).map(|_| Arc::new(open().expect("it"))).collect();
        let ids: Vec<CTypeId> = files
            .iter()
            .map(|file| CTypeId::new(table.home(file, Space::User), 1 << 30))
            .collect();
        for (file, id) in files.iter().zip(&ids) {
            let found = table.file_of(*id).expect("a file");
            assert!(Arc::ptr_eq(&found, file) && id.number == 1 << 30);
        }
        assert_eq!(table.file_of(CTypeId::kernel(1)).map(|_| ()), None);
        assert_eq!(
            CTypeId::new(table.home(&files[0], Space::User), 0),
            CTypeId::VOID
        );
    }
}
