//! Arrays whose place or steps are not those of C: Fortran's arrays by descriptor and in column
//! order.

use std::sync::Arc;

use gimli::{AttributeValue, Operation};
use spile_ctype::ObjectOp;

use crate::dwarf::{Die, Dwarf, Entry, R, number, number_of};
use crate::types::Type;

/// Maximum number of operations of an expression.
const MAX_OPS: usize = 64;

/// Languages whose arrays are in column order unless their entries say otherwise.
const FORTRAN: [gimli::DwLang; 6] = [
    gimli::DW_LANG_Fortran77,
    gimli::DW_LANG_Fortran90,
    gimli::DW_LANG_Fortran95,
    gimli::DW_LANG_Fortran03,
    gimli::DW_LANG_Fortran08,
    gimli::DW_LANG_Fortran18,
];

/// Other languages whose arrays begin at 1 (DWARF 5, table 7.17).
const ONE_BASED: [gimli::DwLang; 6] = [
    gimli::DW_LANG_Ada83,
    gimli::DW_LANG_Ada95,
    gimli::DW_LANG_Cobol74,
    gimli::DW_LANG_Cobol85,
    gimli::DW_LANG_Pascal83,
    gimli::DW_LANG_PLI,
];

impl Dwarf {
    /// The type of such an array; `None` for an array as C has it, `Some(Type::Unknown)` where the
    /// debugging information is not understood.
    pub(crate) fn strided(&self, die: Die, entry: &Entry) -> Option<Type> {
        let dimensions = self.dimensions(die);
        let column_order = match entry.attr_value(gimli::DW_AT_ordering) {
            Some(AttributeValue::Ordering(order)) => order == gimli::DW_ORD_col_major,
            _ => dimensions.len() > 1 && self.language(die).is_some_and(|l| FORTRAN.contains(&l)),
        };
        let steps = |(_, e): &(Die, Entry)| {
            e.has_attr(gimli::DW_AT_byte_stride) || e.has_attr(gimli::DW_AT_bit_stride)
        };
        let data = entry.attr_value(gimli::DW_AT_data_location);
        if data.is_none()
            && !dimensions.iter().any(steps)
            && !(column_order && dimensions.len() > 1)
        {
            return None;
        }
        Some(
            self.strided_parts(die, entry, &dimensions, data)
                .unwrap_or(Type::Unknown),
        )
    }

    fn strided_parts(
        &self,
        die: Die,
        entry: &Entry,
        dimensions: &[(Die, Entry)],
        data: Option<AttributeValue<R>>,
    ) -> Option<Type> {
        let data = match data {
            Some(value) => self.object_program(die, value)?,
            None => [ObjectOp::Object].into(),
        };
        // The next dimension's step, if nothing else says it.
        let mut step = self
            .element_size(die, entry)
            .and_then(|s| i64::try_from(s).ok());
        let mut strides: Vec<Arc<[ObjectOp]>> = Vec::new();
        for (at, dimension) in dimensions {
            let own = dimension.attr_value(gimli::DW_AT_byte_stride);
            strides.push(match own {
                Some(value) => self.object_program(*at, value)?,
                None if dimension.has_attr(gimli::DW_AT_bit_stride) => return None,
                None => [ObjectOp::Const(step?)].into(),
            });
            let count = i64::from(self.elements(*at, dimension));
            step = step.and_then(|s| s.checked_mul(count)).filter(|s| *s > 0);
        }
        Some(Type::Strided {
            elem: self.target_of(die, entry),
            data,
            strides: strides.into(),
        })
    }

    /// Number of elements of one dimension; 0 if only the running program has it.
    pub(crate) fn elements(&self, die: Die, dimension: &Entry) -> u32 {
        let bound = |name| {
            let value = dimension.attr_value(name)?;
            value
                .sdata_value()
                .or_else(|| value.udata_value().map(|v| v as i64))
        };
        let count = number_of(dimension, gimli::DW_AT_count).or_else(|| {
            let low = match dimension.has_attr(gimli::DW_AT_lower_bound) {
                true => bound(gimli::DW_AT_lower_bound)?,
                false => self.first_index(die),
            };
            // -1: none.
            let high = bound(gimli::DW_AT_upper_bound)?.checked_add(1)?;
            u64::try_from(high.checked_sub(low)?).ok()
        });
        count.and_then(|c| u32::try_from(c).ok()).unwrap_or(0)
    }

    /// The lower bound of arrays that have none of their own, by the language.
    fn first_index(&self, die: Die) -> i64 {
        let language = self.language(die);
        language
            .is_some_and(|l| FORTRAN.contains(&l) || ONE_BASED.contains(&l))
            .into()
    }

    fn element_size(&self, die: Die, entry: &Entry) -> Option<u64> {
        let (_, elem) = self.strip(self.type_die(die, entry)?)?;
        number_of(&elem, gimli::DW_AT_byte_size)
    }

    /// An expression about an object at a known address.
    fn object_program(&self, die: Die, value: AttributeValue<R>) -> Option<Arc<[ObjectOp]>> {
        let AttributeValue::Exprloc(expression) = value else {
            return Some([ObjectOp::Const(number(value)? as i64)].into());
        };
        let unit = self.unit(die.part, die.unit)?;
        let mut ops = expression.operations(unit.encoding());
        let mut found = Vec::new();
        while let Some(op) = ops.next().ok()? {
            match op {
                Operation::PushObjectAddress => found.push(ObjectOp::Object),
                Operation::UnsignedConstant { value } => found.push(ObjectOp::Const(value as i64)),
                Operation::SignedConstant { value } => found.push(ObjectOp::Const(value)),
                Operation::PlusConstant { value } => {
                    found.extend([ObjectOp::Const(value as i64), ObjectOp::Add]);
                }
                Operation::Deref {
                    size: size @ (1 | 2 | 4 | 8),
                    space: false,
                    ..
                } => found.push(ObjectOp::Load(size)),
                Operation::Plus => found.push(ObjectOp::Add),
                Operation::Minus => found.push(ObjectOp::Sub),
                Operation::Mul => found.push(ObjectOp::Mul),
                _ => return None,
            }
            if found.len() > MAX_OPS {
                return None;
            }
        }
        Some(found.into())
    }
}
