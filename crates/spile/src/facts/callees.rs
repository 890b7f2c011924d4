//! The functions that functions call: `.callee("NAME")` and `.callees(N)`.
//!
//! A callee is probed where it begins, and a hit counts if it returns to a call site of the function that
//! the script names. Compilers describe call sites in optimised code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spile_abi::HOST;
use spile_cast::Cast;
use spile_debuginfo::{CallKind, Calls, Die, Dwarf, FunctionLocation, LocationKinds};
use spile_glob as glob;
use spile_ir::BinOp;

use spile_runtime::text::kernel_files::LoadAddress;
use spile_sema::facts::{FoundLocation, FunctionKind, LinePattern, LocOp, VarLocation};

use super::code_owner::CodeOwner;
use super::dwarf::{LocationInfo, QueriedFile, address_for, in_lines, pattern};
use super::locations::load;

/// Maximum number of ways to the callees of one point.
const MOST_WAYS: usize = 2000;

/// The callees of a point.
pub(super) struct CalleeQuery<'a> {
    /// The pattern of their names.
    pub name: &'a str,
    /// The number of calls on the way to them, at most.
    pub depth: u32,
    /// At their entry or their return, or only those that are not inlined.
    pub kind: &'a FunctionKind,
}

/// A function whose calls are followed, and the addresses to which its callers' calls return, the innermost
/// first.
struct Caller {
    location: FunctionLocation,
    returns: Vec<u64>,
}

/// A callee at one address.
struct Callee {
    location: FunctionLocation,
    /// The addresses to which the calls on a way to it return, the innermost first; for each way.
    ways: Vec<Vec<u64>>,
    /// It is probed at a jump to it.
    jump: bool,
}

/// The callees by address and entry.
type CalleeMap = BTreeMap<(u64, Die), Callee>;

impl QueriedFile<'_> {
    /// The functions that functions of a name call.
    ///
    /// # Errors
    /// When there is no debugging information, when it does not describe calls, or when a callee cannot be
    /// told from one that others call.
    pub(super) fn callees(
        &self,
        name: &str,
        file: Option<&str>,
        lines: &LinePattern,
        query: &CalleeQuery<'_>,
    ) -> Result<Vec<FoundLocation>, String> {
        let dwarf = self.dwarf()?;
        let kinds = LocationKinds {
            outline: true,
            inlined: true,
        };
        let named = dwarf.functions(pattern(name), file.map(pattern), kinds);
        let mut callers: Vec<Caller> = named
            .into_iter()
            .filter(|p| in_lines(dwarf, p, lines))
            .map(|location| Caller {
                location,
                returns: Vec::new(),
            })
            .collect();
        let first: Vec<Die> = callers.iter().map(|c| c.location.die).collect();
        let mut callees = CalleeMap::new();
        for left in (0..query.depth).rev() {
            let mut next = Vec::new();
            for caller in &callers {
                follow(dwarf, caller, query, left > 0, (&mut callees, &mut next))?;
            }
            if next.len() > MOST_WAYS {
                return Err(format!(
                    "there are more than {MOST_WAYS} ways to its callees: take a smaller number"
                ));
            }
            callers = next;
        }
        if callees.is_empty() && !first.is_empty() {
            return Err(no_callee(dwarf, &first, query.name));
        }
        let locations = callees.into_iter();
        locations
            .map(|(key, c)| self.callee(key, &c, query))
            .collect()
    }

    /// The location of a callee.
    fn callee(
        &self,
        (address, die): (u64, Die),
        callee: &Callee,
        query: &CalleeQuery<'_>,
    ) -> Result<FoundLocation, String> {
        let location = &callee.location;
        let probed = self.found(&location.qualified, die, address);
        let probed = probed.ok_or_else(|| self.home.no_code(address))?;
        let variables = match callee.jump {
            true => location.entry,
            false => address,
        };
        let id = self.table.location_id(LocationInfo {
            die,
            address: variables,
            counter: address,
        });
        Ok(FoundLocation {
            id,
            file: location.file.clone(),
            line: location.line,
            inlined: location.inlined,
            callers: self.callers(address, callee, *query.kind == FunctionKind::Return)?,
            ..probed
        })
    }

    /// The test whether a callee was called on one of the ways; `None` if it was in any case.
    fn callers(
        &self,
        address: u64,
        callee: &Callee,
        ret: bool,
    ) -> Result<Option<Arc<VarLocation>>, String> {
        let deepest = callee.ways.iter().map(Vec::len).max().unwrap_or(0);
        if callee.ways.iter().any(Vec::is_empty) {
            return Ok(None);
        }
        let counter = HOST.program_counter;
        let bias = match self.home {
            CodeOwner::Program(_) if !self.file.image().position_independent() => Vec::new(),
            CodeOwner::Kernel(_) => Vec::new(),
            // At a return the program counter is in the caller.
            CodeOwner::Program(_) if ret => vec![LocOp::Bias(counter), LocOp::Bin(BinOp::Sub)],
            CodeOwner::Program(_) => vec![
                LocOp::Reg(counter),
                LocOp::Const(address.cast_signed()),
                LocOp::Bin(BinOp::Sub),
                LocOp::Bin(BinOp::Sub),
            ],
        };
        let first =
            !ret && !callee.location.inlined && (callee.jump || address == callee.location.entry);
        let mut ops = Vec::new();
        // The addresses of the stack as linked, the innermost on top.
        for n in (1..=deepest).rev() {
            match n {
                1 if ret => ops.push(LocOp::Reg(counter)),
                1 if first => ops.extend([LocOp::Reg(HOST.stack_pointer), load(8)]),
                _ => ops.push(LocOp::Frame((n - usize::from(ret)).fit::<u8>())),
            }
            ops.extend_from_slice(&bias);
        }
        ops.push(LocOp::Const(0));
        for way in &callee.ways {
            ops.push(LocOp::Const(1));
            for (n, returns_to) in (0..).zip(way) {
                let known = self.in_memory(*returns_to);
                let known =
                    known.ok_or("the address of a call in the running kernel is unknown")?;
                // Above the address are those before it, the result so far, and that of this way.
                ops.extend([
                    LocOp::Pick(2 + n),
                    LocOp::Const(known.cast_signed()),
                    LocOp::Bin(BinOp::Eq),
                    LocOp::Bin(BinOp::And),
                ]);
            }
            ops.push(LocOp::Bin(BinOp::Or));
        }
        Ok(Some(Arc::new(VarLocation::Value(ops))))
    }

    /// An address of the kernel in memory; of a program as linked.
    fn in_memory(&self, address: u64) -> Option<u64> {
        match self.home {
            CodeOwner::Program(_) => Some(address),
            CodeOwner::Kernel(loaded) => match loaded.load_address {
                // The probes of a kernel that does not run are only listed and translated.
                LoadAddress::Elsewhere => Some(address),
                _ => loaded.to_load_address(address),
            },
        }
    }
}

/// Adds the callees of a caller, and those whose calls are to be followed.
fn follow(
    dwarf: &Dwarf,
    caller: &Caller,
    query: &CalleeQuery<'_>,
    further: bool,
    (callees, next): (&mut CalleeMap, &mut Vec<Caller>),
) -> Result<(), String> {
    let name = &caller.location.name;
    let calls = described_calls(dwarf, &caller.location)?;
    for call in &calls.list {
        let wanted = match glob::is_pattern(query.name) {
            true => glob::matches(query.name, &call.name),
            false => *query.name == *call.name,
        };
        if !wanted && !further {
            continue;
        }
        let mut add = |location: FunctionLocation, address: u64, returns: Vec<u64>, jump: bool| {
            let key = (address, location.die);
            if wanted && !(location.inlined && *query.kind != FunctionKind::Any) {
                let callee = callees.entry(key).or_insert_with(|| Callee {
                    location: location.clone(),
                    ways: Vec::new(),
                    jump,
                });
                if !callee.ways.contains(&returns) {
                    callee.ways.push(returns.clone());
                }
            }
            if further {
                next.push(Caller { location, returns });
            }
        };
        match call.kind {
            CallKind::Inlined(die) => {
                if let Some(location) = dwarf.inlined_copy(die) {
                    add(
                        location.clone(),
                        location.entry,
                        caller.returns.clone(),
                        false,
                    );
                }
            }
            CallKind::Called {
                function,
                returns_to,
            } => {
                for location in dwarf.called_functions(function) {
                    let address = address_for(query.kind, &location);
                    let returns = [&[returns_to], &*caller.returns].concat();
                    add(location, address, returns, false);
                }
            }
            CallKind::Jumped { function, jump } => {
                for location in dwarf.called_functions(function) {
                    if wanted && *query.kind == FunctionKind::Return {
                        return Err(jumped(name, &call.name, "its return is one of `", "`"));
                    }
                    if further && !dwarf.calls(location.die).list.is_empty() {
                        let why = "the calls in it cannot be told from those of other ways; take \
                                   `.callees(1)`, or probe `";
                        return Err(jumped(name, &call.name, why, "` by itself"));
                    }
                    let Some(probed) = dwarf.jump_to(jump, location.entry) else {
                        let why = "that jump cannot be probed, because it has a condition; probe `";
                        return Err(jumped(name, &call.name, why, "` by itself"));
                    };
                    add(location, probed, caller.returns.clone(), true);
                }
            }
        }
    }
    Ok(())
}

/// The message about functions without such a callee.
fn no_callee(dwarf: &Dwarf, callers: &[Die], name: &str) -> String {
    let mut names = BTreeSet::new();
    let calls = callers.iter().flat_map(|c| dwarf.calls(*c).list);
    for call in calls {
        let known = match call.kind {
            CallKind::Inlined(_) => true,
            CallKind::Called { function, .. } | CallKind::Jumped { function, .. } => {
                !dwarf.called_functions(function).is_empty()
            }
        };
        if known {
            names.insert(call.name);
        }
    }
    let limits = "calls through pointers and calls of other files are not known";
    let shown: Vec<String> = names.iter().take(8).map(|n| format!("`{n}`")).collect();
    match shown.is_empty() {
        true => format!("it calls no function of this file ({limits})"),
        false => format!(
            "it has no such callee `{name}`, but {}{} ({limits})",
            shown.join(", "),
            if names.len() > 8 { ", ..." } else { "" }
        ),
    }
}

/// The message about a call that is a jump at the caller's end.
fn jumped(caller: &str, callee: &str, why: &str, end: &str) -> String {
    let named = match end {
        "`" => caller,
        _ => callee,
    };
    format!(
        "`{caller}` ends by a jump to `{callee}`: {why}{named}{end} \
         (`-fno-optimize-sibling-calls` makes such jumps calls)"
    )
}

/// The calls of a function.
///
/// # Errors
/// When debugging information does not describe them.
fn described_calls(dwarf: &Dwarf, caller: &FunctionLocation) -> Result<Calls, String> {
    let calls = dwarf.calls(caller.die);
    let around = || dwarf.function_at(caller.entry).map(|f| dwarf.calls(f));
    if calls.described || (caller.inlined && around().is_some_and(|c| c.described)) {
        return Ok(calls);
    }
    Err(format!(
        "its debugging information does not describe the calls of `{}`, because compilers do so for \
         optimised code only (-O1 and above); probe the called function with \
         `if (usymname(ustack(1)) == \"NAME\")`",
        caller.name
    ))
}
