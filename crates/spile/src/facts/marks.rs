//! Static markers of programs and libraries: their locations, and their arguments as location
//! programs.

use std::sync::Arc;

use spile_debuginfo::sdt::{ArgLocation, Marker, MarkerArg};
use spile_glob as glob;
use spile_ir::{BinOp, CodeLocation};
use spile_sema::facts::{FoundLocation, LONG, LocOp, VarKind, VarLocation, Variable};

use spile_abi::HOST;

use super::locations::{extend, with};

/// Flag in the id of a location that is a marker; the rest is its index among the markers of the file.
/// Addresses of programs have the bit clear.
pub(super) const MARK: u64 = 1 << 63;

/// DWARF's number of the program counter in location programs: the last register that is saved.
const PC: u16 = HOST.program_counter;

/// Markers whose provider and name match. As in SystemTap, `-` in a name stands for `__`.
pub(super) fn locations(
    path: &Arc<str>,
    markers: &[Marker],
    provider: Option<&str>,
    name: &str,
) -> Vec<FoundLocation> {
    let dashed = match glob::is_pattern(name) {
        // In a pattern, `-` can also be part of a range.
        true => name.to_owned(),
        false => name.replace('-', "__"),
    };
    let wanted = |m: &Marker| {
        provider.is_none_or(|p| glob::matches(p, &m.provider)) && glob::matches(&dashed, &m.name)
    };
    let mut locations: Vec<FoundLocation> = markers
        .iter()
        .enumerate()
        .filter(|(_, m)| wanted(m))
        .map(|(i, m)| {
            let name = m.name.as_str().into();
            let location = CodeLocation::File {
                path: path.clone(),
                offset: m.offset,
            };
            FoundLocation {
                provider: Some(m.provider.as_str().into()),
                semaphore: m.semaphore,
                ..FoundLocation::new(MARK | i as u64, name, location, m.address)
            }
        })
        .collect();
    let key = |p: &FoundLocation| (p.provider.clone(), p.name.clone(), p.address);
    locations.sort_by_key(key);
    locations
}

/// The variables `$arg1` and on of a marker.
pub(super) fn variables(marker: &Marker) -> Vec<Variable> {
    let numbered = marker.args.iter().enumerate();
    numbered
        .map(|(i, operand)| Variable {
            name: format!("arg{}", i + 1).into(),
            ty: LONG,
            kind: VarKind::Parameter,
            loc: location(operand, marker.address),
        })
        .collect()
}

/// The location of an argument at a marker with that address.
fn location(operand: &MarkerArg, site: u64) -> VarLocation {
    if operand.float {
        return VarLocation::Absent("it is a floating-point number".into());
    }
    // The distance from the site is independent of the load address.
    let loaded = |address: u64| {
        let distance = address.wrapping_sub(site).cast_signed();
        vec![
            LocOp::Reg(PC),
            LocOp::Const(distance),
            LocOp::Bin(BinOp::Add),
        ]
    };
    let mut ops = match &operand.location {
        ArgLocation::Constant(value) => {
            return VarLocation::Value(vec![LocOp::Const(sign_extend(*value, operand))]);
        }
        ArgLocation::Register { number, .. } if *number > PC => {
            return VarLocation::Absent("it is in a register that the kernel does not save".into());
        }
        ArgLocation::Register { number, shift } => {
            let mut ops = vec![LocOp::Reg(*number)];
            binary(&mut ops, BinOp::UShr, i64::from(*shift));
            extend(&mut ops, operand.size, operand.signed);
            return VarLocation::Value(ops);
        }
        ArgLocation::LinkedAddress(address) => return VarLocation::Value(loaded(*address)),
        ArgLocation::Linked(address) => loaded(*address),
        ArgLocation::Memory {
            base,
            index,
            displacement,
        } => {
            let mut ops: Vec<LocOp> = base.iter().map(|b| LocOp::Reg(*b)).collect();
            if let Some((register, scale)) = index {
                let first = ops.is_empty();
                ops.push(LocOp::Reg(*register));
                binary(&mut ops, BinOp::Shl, i64::from(scale.trailing_zeros()));
                if !first {
                    ops.push(LocOp::Bin(BinOp::Add));
                }
            }
            if ops.is_empty() {
                ops.push(LocOp::Const(0));
            }
            binary(&mut ops, BinOp::Add, *displacement);
            ops
        }
        ArgLocation::Unreadable(text) => {
            return VarLocation::Absent(format!("its operand `{text}` is not supported").into());
        }
    };
    ops.push(LocOp::Load {
        size: operand.size,
        signed: operand.signed,
    });
    VarLocation::Value(ops)
}

/// An operation with a constant; left out where it changes nothing.
fn binary(ops: &mut Vec<LocOp>, op: BinOp, constant: i64) {
    if constant != 0 {
        ops.extend(with(op, constant));
    }
}

/// Extends the low bytes of a constant to the operand's size.
fn sign_extend(value: i64, operand: &MarkerArg) -> i64 {
    let above = 64 - 8 * u32::from(operand.size);
    if operand.signed {
        value << above >> above
    } else {
        (value.cast_unsigned() << above >> above).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operand(size: u8, signed: bool, at: ArgLocation) -> MarkerArg {
        MarkerArg {
            size,
            signed,
            float: false,
            location: at,
        }
    }

    fn value(size: u8, signed: bool, at: ArgLocation) -> Vec<LocOp> {
        match location(&operand(size, signed, at), 0x1000) {
            VarLocation::Value(ops) => ops,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn constants_have_the_size_of_the_argument() {
        let constant = |size, signed, value| {
            sign_extend(value, &operand(size, signed, ArgLocation::Constant(0)))
        };
        assert_eq!(constant(4, false, -1), 0xffff_ffff);
        assert_eq!(constant(4, true, 0xffff_fffe), -2);
        assert_eq!(constant(1, false, 200), 200);
        assert_eq!(constant(8, false, -1), -1);
    }

    #[test]
    fn registers_and_memory_become_operations() {
        use LocOp::{Bin, Const, Reg};
        let rdx = ArgLocation::Register {
            number: 1,
            shift: 0,
        };
        assert_eq!(value(8, true, rdx.clone()), [Reg(1)]);
        let cut = [
            Reg(1),
            Const(32),
            Bin(BinOp::Shl),
            Const(32),
            Bin(BinOp::Shr),
        ];
        assert_eq!(value(4, true, rdx), cut);
        let indexed = ArgLocation::Memory {
            base: Some(0),
            index: Some((1, 4)),
            displacement: -8,
        };
        let load = super::super::locations::load(4);
        let sum = [
            Reg(0),
            Reg(1),
            Const(2),
            Bin(BinOp::Shl),
            Bin(BinOp::Add),
            Const(-8),
            Bin(BinOp::Add),
            load,
        ];
        assert_eq!(value(4, false, indexed), sum);
        let global = [Reg(PC), Const(0x234), Bin(BinOp::Add), load];
        assert_eq!(value(4, false, ArgLocation::Linked(0x1234)), global);
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let xmm = MarkerArg {
            float: true,
            ..operand(8, true, ArgLocation::Constant(0))
        };
        assert!(matches!(location(&xmm, 0), VarLocation::Absent(_)));
        let odd = operand(8, true, ArgLocation::Unreadable("8@?".into()));
        assert!(matches!(location(&odd, 0), VarLocation::Absent(_)));
    }

    #[test]
    fn markers_are_found_by_name_and_provider() {
        let marker = |provider: &str, name: &str, address| Marker {
            provider: provider.into(),
            name: name.into(),
            address,
            offset: address,
            semaphore: 0,
            args: Vec::new(),
        };
        let all = [
            marker("shop", "sold", 3),
            marker("shop", "sold__out", 2),
            marker("store", "sold", 1),
        ];
        let path: Arc<str> = "/bin/x".into();
        let of = |provider, name| -> Vec<u64> {
            let found = locations(&path, &all, provider, name);
            found.iter().map(|p| p.address).collect()
        };
        assert_eq!(of(None, "sold"), [3, 1]);
        assert_eq!(of(Some("store"), "*"), [1]);
        assert_eq!(of(Some("s*"), "sold-out"), [2]);
        assert_eq!(of(None, "*"), [3, 2, 1]);
        assert_eq!(of(None, "nothing"), [0; 0]);
    }
}
