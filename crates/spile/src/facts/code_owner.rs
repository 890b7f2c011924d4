//! The owner of a file's code, and its addresses in the running system.
//!
//! Code of programs is probed by file offset. The kernel was relocated as a whole when it started,
//! and each section of a module was loaded somewhere.

use std::sync::Arc;

use spile_debuginfo::{DebugFile as File, LocBinary, LocStep as Op, Location, Unavailable};
use spile_ir::{CodeLocation, Space};
use spile_kernel::symbols::Symbols;
use spile_runtime::text::kernel_files::{KernelImage, LoadAddress};
use spile_sema::facts::{CTypeId, KernelVar, LocOp, VarLocation};

/// The owner of a file's code.
pub(super) enum CodeOwner {
    /// A program or a library, by its path.
    Program(Arc<str>),
    /// The kernel or a module of it.
    Kernel(KernelImage),
}

impl std::fmt::Display for CodeOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CodeOwner::Program(path) => f.write_str(path),
            CodeOwner::Kernel(KernelImage { module: None, .. }) => f.write_str("the kernel"),
            CodeOwner::Kernel(KernelImage {
                module: Some(name), ..
            }) => write!(f, "the module {name}"),
        }
    }
}

impl CodeOwner {
    /// The error for an address where it has no code.
    pub(super) fn no_code(&self, address: u64) -> String {
        format!("{self} has no code at {address:#x}")
    }

    /// The memory that its objects are in.
    pub(super) fn space(&self) -> Space {
        match self {
            CodeOwner::Program(_) => Space::User,
            CodeOwner::Kernel(_) => Space::Kernel,
        }
    }

    /// The location of an address as linked.
    pub(super) fn location(&self, file: &File, address: u64) -> Option<CodeLocation> {
        match self {
            CodeOwner::Program(path) => Some(CodeLocation::File {
                path: path.clone(),
                offset: file.image().file_offset(address)?,
            }),
            CodeOwner::Kernel(loaded) => match loaded.load_address {
                LoadAddress::Elsewhere => {
                    let (symbol, offset) = file.symbols().function_at(address)?;
                    Some(CodeLocation::Symbol {
                        module: loaded.module.clone(),
                        name: symbol.name.into(),
                        offset,
                    })
                }
                _ => loaded.to_load_address(address).map(CodeLocation::Address),
            },
        }
    }

    /// A location with its addresses as they are in memory, where these are the same for as long as
    /// the system runs.
    pub(super) fn relocate(&self, location: Location) -> Result<Location, Unavailable> {
        let CodeOwner::Kernel(loaded) = self else {
            return Ok(location);
        };
        Ok(match location {
            Location::Address(ops) => Location::Address(relocate_ops(loaded, ops)?),
            Location::Value(ops) => Location::Value(relocate_ops(loaded, ops)?),
            Location::Implicit { .. } => location,
            Location::Pieces(pieces) => {
                let one = |(size, piece): (u64, Option<Location>)| {
                    Ok((size, piece.map(|p| self.relocate(p)).transpose()?))
                };
                Location::Pieces(pieces.into_iter().map(one).collect::<Result<_, _>>()?)
            }
        })
    }

    /// The location of a variable of the kernel; for a per-CPU variable, that of the current
    /// processor.
    pub(super) fn of_processor(&self, loc: VarLocation) -> VarLocation {
        match (self, &loc) {
            (CodeOwner::Kernel(_), VarLocation::Address(ops)) => match **ops {
                [LocOp::Const(address)] => {
                    match kernel_variable(address.cast_unsigned(), CTypeId::VOID) {
                        Some(v) => VarLocation::Address(v.location()),
                        None => VarLocation::Absent(
                            "the address of each processor's copy is unknown".into(),
                        ),
                    }
                }
                _ => loc,
            },
            _ => loc,
        }
    }
}

/// A location program with its addresses as they are in memory.
fn relocate_ops(loaded: &KernelImage, ops: Vec<Op>) -> Result<Vec<Op>, Unavailable> {
    const ADD: Op = Op::Binary(LocBinary::Add);
    let mut out = Vec::with_capacity(ops.len());
    let mut rest = &ops[..];
    while let [first, more @ ..] = rest {
        rest = more;
        match (*first, more) {
            (Op::Const(linked), [Op::Bias, ADD, behind @ ..]) => {
                let address = loaded.to_load_address(linked.cast_unsigned());
                let why = "its address in the running kernel is unknown";
                let address = address.ok_or_else(|| Unavailable(why.into()))?;
                out.push(Op::Const(address.cast_signed()));
                rest = behind;
            }
            (op, _) => out.push(op),
        }
    }
    Ok(out)
}

/// A variable of the kernel at an address of its symbols; `None` where the address alone is not
/// enough.
pub(super) fn kernel_variable(address: u64, ty: CTypeId) -> Option<KernelVar> {
    let symbols = Symbols::kernel().ok()?;
    let edge = |name| symbols.address_of(name);
    let is_per_cpu = match (edge("__per_cpu_start"), edge("__per_cpu_end")) {
        (Some(start), Some(end)) => (start..end).contains(&address),
        _ => false,
    };
    let per_cpu = match is_per_cpu {
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
    fn addresses_in_the_file_become_addresses_in_memory() {
        let module = KernelImage {
            module: Some("m".into()),
            load_address: LoadAddress::Parts(vec![(0x1000, 0x10, 0x7000), (0x2000, 8, 0x9000)]),
        };
        let add = Op::Binary(LocBinary::Add);
        let ops = vec![Op::Const(0x2001), Op::Bias, add, Op::Const(4), add];
        let there = vec![Op::Const(0x9001), Op::Const(4), add];
        assert_eq!(relocate_ops(&module, ops.clone()), Ok(there));
        assert!(relocate_ops(&KernelImage::elsewhere(None), ops).is_err());
    }
}
