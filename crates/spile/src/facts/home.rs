//! Whose code a file has, and where its addresses are in the running system.
//!
//! Code of programs is probed by its place in the file. The kernel was moved as a whole when it
//! started, and each section of a module was put somewhere.

use std::sync::Arc;

use spile_debuginfo::{Absent, LocBinary, LocOp as Op, Location, Module as File};
use spile_ir::{CodePlace, Space};
use spile_kernel::symbols::Symbols;
use spile_sema::facts::{KernelVar, Loc, LocOp};

/// Symbols that say how far the kernel was moved.
const LANDMARKS: [&str; 2] = ["_stext", "_text"];
/// Addresses from here on are the kernel's own image (x86-64: `__START_KERNEL_map`); what is
/// below in its file is not moved with it.
const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// Whose code a file has.
pub enum Home {
    /// That of a program or a library, by its path.
    Program(Arc<str>),
    /// That of the kernel or of a module of it.
    Kernel(Loaded),
}

/// The kernel or a module of it, as it is in memory.
pub struct Loaded {
    module: Option<Arc<str>>,
    at: At,
}

/// Where it is.
enum At {
    /// Nowhere: another kernel runs.
    Elsewhere,
    /// So far from where it was linked.
    Moved(u64),
    /// Each part somewhere: first address, bytes, and where it is.
    Parts(Vec<(u64, u64, u64)>),
}

impl std::fmt::Display for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Home::Program(path) => f.write_str(path),
            Home::Kernel(Loaded { module: None, .. }) => f.write_str("the kernel"),
            Home::Kernel(Loaded {
                module: Some(name), ..
            }) => write!(f, "the module {name}"),
        }
    }
}

impl Home {
    /// The memory that its objects are in.
    pub fn space(&self) -> Space {
        match self {
            Home::Program(_) => Space::User,
            Home::Kernel(_) => Space::Kernel,
        }
    }

    /// The place of a linked address.
    pub fn place(&self, file: &File, address: u64) -> Option<CodePlace> {
        match self {
            Home::Program(path) => Some(CodePlace::File {
                path: path.clone(),
                offset: file.image().file_offset(address)?,
            }),
            Home::Kernel(loaded) => match loaded.at {
                At::Elsewhere => {
                    let (symbol, offset) = file.symbols().function_at(address)?;
                    Some(CodePlace::Symbol {
                        module: loaded.module.clone(),
                        name: symbol.name.into(),
                        offset,
                    })
                }
                _ => loaded.address(address).map(CodePlace::Address),
            },
        }
    }

    /// A location with the addresses in it as they are in memory, where these are the same as
    /// long as the system runs.
    pub fn moved(&self, location: Location) -> Result<Location, Absent> {
        let Home::Kernel(loaded) = self else {
            return Ok(location);
        };
        Ok(match location {
            Location::Address(ops) => Location::Address(loaded.moved(ops)?),
            Location::Value(ops) => Location::Value(loaded.moved(ops)?),
            Location::Pieces(pieces) => {
                let one = |(size, piece): (u64, Option<Location>)| {
                    Ok((size, piece.map(|p| self.moved(p)).transpose()?))
                };
                Location::Pieces(pieces.into_iter().map(one).collect::<Result<_, _>>()?)
            }
        })
    }

    /// The location of a variable of the kernel of which each processor may have its own.
    pub fn of_processor(&self, loc: Loc) -> Loc {
        match (self, &loc) {
            (Home::Kernel(_), Loc::Address(ops)) => match **ops {
                [LocOp::Const(address)] => match kernel_variable(address as u64, 0) {
                    Some(v) => Loc::Address(v.location()),
                    None => Loc::Absent("where each processor has its own is not known".into()),
                },
                _ => loc,
            },
            _ => loc,
        }
    }
}

impl Loaded {
    /// The kernel that runs.
    ///
    /// # Errors
    /// When its addresses are hidden.
    pub fn kernel(file: &File) -> Result<Loaded, String> {
        let symbols = Symbols::kernel().map_err(ToString::to_string)?;
        let distance = LANDMARKS.iter().find_map(|name| {
            let linked = file.symbols().named(name).next()?.address;
            Some(symbols.address_of(name)?.wrapping_sub(linked))
        });
        let distance = distance.ok_or("where the kernel was moved to is not known")?;
        Ok(Loaded {
            module: None,
            at: At::Moved(distance),
        })
    }

    /// A module that is loaded.
    ///
    /// # Errors
    /// When the addresses of its sections are hidden.
    pub fn module(file: &File, name: &Arc<str>) -> Result<Loaded, String> {
        let part = |p: &spile_debuginfo::Placed| {
            let path = format!("/sys/module/{name}/sections/{}", p.name);
            let text = std::fs::read_to_string(path).ok()?;
            let digits = text.trim().trim_start_matches("0x");
            let at = u64::from_str_radix(digits, 16).ok().filter(|at| *at != 0)?;
            Some((p.address, p.size, at))
        };
        let parts: Vec<_> = file.image().placed().iter().filter_map(part).collect();
        match parts.is_empty() {
            true => Err(format!(
                "where the sections of the module {name} are is hidden; run as root"
            )),
            false => Ok(Loaded {
                module: Some(name.clone()),
                at: At::Parts(parts),
            }),
        }
    }

    /// The kernel, or a module, of another machine.
    pub fn elsewhere(module: Option<&Arc<str>>) -> Loaded {
        Loaded {
            module: module.cloned(),
            at: At::Elsewhere,
        }
    }

    /// Where a linked address is in memory.
    fn address(&self, linked: u64) -> Option<u64> {
        match &self.at {
            At::Elsewhere => None,
            At::Moved(_) if linked < IMAGE => Some(linked),
            At::Moved(distance) => Some(linked.wrapping_add(*distance)),
            At::Parts(parts) => parts.iter().find_map(|&(first, size, at)| {
                let within = linked.checked_sub(first).filter(|d| *d < size)?;
                Some(at.wrapping_add(within))
            }),
        }
    }

    fn moved(&self, ops: Vec<Op>) -> Result<Vec<Op>, Absent> {
        const ADD: Op = Op::Binary(LocBinary::Add);
        let mut out = Vec::with_capacity(ops.len());
        let mut rest = &ops[..];
        while let [first, more @ ..] = rest {
            rest = more;
            match (*first, more) {
                (Op::Const(linked), [Op::Bias, ADD, behind @ ..]) => {
                    let at = self.address(linked as u64);
                    let why = "its place in the running kernel is not known";
                    let at = at.ok_or_else(|| Absent(why.into()))?;
                    out.push(Op::Const(at as i64));
                    rest = behind;
                }
                (op, _) => out.push(op),
            }
        }
        Ok(out)
    }
}

/// A variable of the kernel at an address of its symbols; `None` where the address alone would be
/// wrong.
pub fn kernel_variable(address: u64, ty: u32) -> Option<KernelVar> {
    let symbols = Symbols::kernel().ok()?;
    let edge = |name| symbols.address_of(name);
    let own = match (edge("__per_cpu_start"), edge("__per_cpu_end")) {
        (Some(start), Some(end)) => (start..end).contains(&address),
        _ => false,
    };
    let per_cpu = match own {
        true => Some(edge("__per_cpu_offset")?),
        false => None,
    };
    Some(KernelVar {
        address,
        ty,
        per_cpu,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_memory() {
        let kernel = Loaded {
            module: None,
            at: At::Moved(0x1000),
        };
        assert_eq!(kernel.address(IMAGE), Some(IMAGE + 0x1000));
        // Of variables of processors.
        assert_eq!(kernel.address(0x20), Some(0x20));
        let module = Loaded {
            module: Some("m".into()),
            at: At::Parts(vec![(0x1000, 0x10, 0x7000), (0x2000, 8, 0x9000)]),
        };
        assert_eq!(module.address(0x1004), Some(0x7004));
        assert_eq!(module.address(0x2007), Some(0x9007));
        assert_eq!(module.address(0x1010), None);
        let add = Op::Binary(LocBinary::Add);
        let ops = vec![Op::Const(0x2001), Op::Bias, add, Op::Const(4), add];
        let moved = vec![Op::Const(0x9001), Op::Const(4), add];
        assert_eq!(module.moved(ops.clone()), Ok(moved));
        assert!(Loaded::elsewhere(None).moved(ops).is_err());
    }
}
