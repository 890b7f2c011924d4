//! The calling convention for parameters and results of functions of programs as location
//! programs.

use spile_abi::HOST;
use spile_cast::Cast;
use spile_debuginfo::{CType, Die, Dwarf, ReturnConvention, ReturnWord};
use spile_sema::facts::{LocOp, LocationPiece, VarLocation};

use super::locations::{extend_to_type, load, on_stack};

/// The reason why a floating-point number is missing.
pub(super) const FLOATING: &str = "it is in a floating point register";

/// The location of a returned structure.
pub(super) fn structure(returned: &ReturnConvention) -> VarLocation {
    match returned {
        ReturnConvention::Memory => VarLocation::Address(vec![LocOp::Ret]),
        ReturnConvention::Registers(words) => in_registers(words),
        ReturnConvention::Unknown => {
            VarLocation::Absent("the registers that return it are unknown".into())
        }
    }
}

/// A structure in the result registers.
pub(super) fn in_registers(words: &[ReturnWord]) -> VarLocation {
    let [_, second] = HOST.calls.results;
    let mut results = [LocOp::Ret, LocOp::Reg(second)].into_iter();
    let value = |word: &ReturnWord| match word {
        ReturnWord::Integer => Ok(results.next().into_iter().collect()),
        ReturnWord::Float => Err(FLOATING.into()),
        ReturnWord::Nothing => Err("it is padding".into()),
    };
    let values = words.iter().map(value);
    VarLocation::Pieces(
        values
            .map(|value| LocationPiece { bytes: 8, value })
            .collect(),
    )
}

/// The location of a parameter at the first instruction, where the function moves it to memory
/// later.
pub(super) fn first_seen(
    moved: VarLocation,
    passed: Option<Vec<LocOp>>,
    ty: &CType,
) -> VarLocation {
    match (passed, ty) {
        (Some(ops), _) => VarLocation::Value(ops),
        (None, CType::Struct { size, .. }) if *size > HOST.calls.in_registers => moved,
        (None, _) => VarLocation::Absent("it is not yet in memory when the function begins".into()),
    }
}

/// Parameters as the caller passes them, counted.
pub(super) struct Arguments {
    words: usize,
    /// An earlier parameter was of a kind whose registers depend on its members.
    lost: bool,
}

impl Arguments {
    /// The parameters of a function. A result in memory takes one for its address.
    pub(super) fn for_function(dwarf: &Dwarf, function: Die) -> Arguments {
        let result = dwarf.type_of(function);
        let returned = match dwarf.ctype(result) {
            CType::Struct { .. } => dwarf.return_convention(function, result),
            _ => ReturnConvention::Registers(Vec::new()),
        };
        Arguments {
            words: usize::from(returned == ReturnConvention::Memory),
            lost: returned == ReturnConvention::Unknown,
        }
    }

    /// The location of the next parameter, of type `ty`, at the first instruction.
    pub(super) fn next(&mut self, ty: &CType) -> Option<Vec<LocOp>> {
        match ty {
            CType::Float { .. } => return None,
            CType::Int { size: 16, .. } | CType::Struct { .. } | CType::Unknown => self.lost = true,
            _ => {}
        }
        let n = self.words;
        self.words += 1;
        if self.lost {
            return None;
        }
        let registers = HOST.calls.arguments;
        let ops = match registers.get(n) {
            Some(&register) => vec![LocOp::Reg(register)],
            None => {
                // Offset above the return address.
                let offset = HOST.calls.popped + 8 * (n - registers.len()).fit::<i64>();
                let mut ops = on_stack(offset);
                ops.push(load(8));
                ops
            }
        };
        Some(extend_to_type(ops, ty))
    }
}
