//! Arrays whose location or steps are not those of C: Fortran's arrays by descriptor and in column
//! order.

use std::sync::Arc;

use gimli::{AttributeValue, Operation};
use spile_ctype::ObjectOp;

use crate::ada::ELEMENTS_OF_PAIR;
use crate::caches::TypeId;
use crate::dwarf::Dwarf;
use crate::loc_program::{LocBinary, LocStep, Location, Unavailable};
use crate::types::CType;
use crate::unit::{Die, Entry, R, constant, number_of};

/// Maximum number of operations of an expression.
const MAX_OPS: usize = 64;

/// Maximum number of pointers and arrays in one another.
const MAX_LEVELS: usize = 8;

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

/// Whether a dimension has an end.
fn has_bound(dimension: &Entry) -> bool {
    dimension.has_attr(gimli::DW_AT_count) || dimension.has_attr(gimli::DW_AT_upper_bound)
}

impl Dwarf {
    /// The arrays in a type, and in what it points to, whose number of elements only the running program
    /// has, each with its dimension.
    #[must_use]
    pub fn counted_arrays(&self, ty: TypeId) -> Vec<(TypeId, Die)> {
        let mut arrays = Vec::new();
        let mut level = ty;
        for _ in 0..MAX_LEVELS {
            let array = self.array_of(level);
            let mut take = |skip: Option<usize>, id: TypeId| {
                let (die, skipped) = array?;
                let dimensions = self.dimensions(die);
                let (dimension_die, dimension) = dimensions.get(skip.unwrap_or(skipped.into()))?;
                if self.elements(*dimension_die, dimension) == 0 && has_bound(dimension) {
                    arrays.push((id, *dimension_die));
                }
                Some(())
            };
            level = match self.ctype(level) {
                CType::Ptr(to) | CType::Ref(to) => to,
                CType::Array { elem, count } => {
                    if count == 0 {
                        take(None, level);
                    }
                    elem
                }
                CType::Strided { elem, strides, .. } => {
                    for (n, _) in (0..u8::MAX).zip(&*strides) {
                        let die = array.map_or(level, |a| self.dimension(a.0, n));
                        take(Some(n.into()), die);
                    }
                    elem
                }
                _ => break,
            };
        }
        arrays
    }

    /// The type and the value of a dimension's number of elements before the instruction at an address
    /// executes.
    ///
    /// # Errors
    /// When it is not known there, with the reason.
    pub fn locate_count(
        &self,
        dimension: Die,
        address: u64,
    ) -> (TypeId, Result<Location, Unavailable>) {
        (
            self.word(),
            self.count_at(dimension, address).map(Location::Value),
        )
    }

    fn count_at(&self, dimension: Die, address: u64) -> Result<Vec<LocStep>, Unavailable> {
        let (_, entry) = self.entry(dimension).ok_or_else(Unavailable::optimised)?;
        let bound = |name| {
            let value = entry.attr_value(name);
            value.map(|v| self.number_at(dimension, v, address))
        };
        if let Some(count) = bound(gimli::DW_AT_count) {
            return count;
        }
        let low = match bound(gimli::DW_AT_lower_bound) {
            Some(low) => low?,
            None => vec![LocStep::Const(self.first_index(dimension))],
        };
        let high = bound(gimli::DW_AT_upper_bound).ok_or_else(Unavailable::optimised)?;
        let mut count = high?;
        count.extend(low);
        count.extend([
            LocStep::Binary(LocBinary::Sub),
            LocStep::Const(1),
            LocStep::Binary(LocBinary::Add),
        ]);
        Ok(count)
    }

    /// The entry that a function at an address has for a variable of its abstract instance.
    fn instance_of(&self, variable: Die, address: u64) -> Die {
        let scopes = self.scopes_at(address);
        let mut children = scopes.iter().rev().flat_map(|s| self.child_entries(s.die));
        let instance = children.find(|(child, e)| self.origin(*child, e) == Some(variable));
        instance.map_or(variable, |(die, _)| die)
    }

    /// The variable whose value is the whole expression, as gcc's link-time optimisation has it.
    fn variable_in(&self, die: Die, value: &AttributeValue<R>) -> Option<Die> {
        let AttributeValue::Exprloc(expression) = value else {
            return None;
        };
        let unit = self.unit(die.part, die.unit)?;
        let mut ops = expression.operations(unit.encoding());
        match (ops.next().ok()?, ops.next().ok()?) {
            (Some(Operation::VariableValue { offset }), None) => {
                self.refer(die, AttributeValue::DebugInfoRef(offset))
            }
            _ => None,
        }
    }

    /// An attribute that is a number, a variable's value, or what an expression computes.
    fn number_at(
        &self,
        die: Die,
        value: AttributeValue<R>,
        address: u64,
    ) -> Result<Vec<LocStep>, Unavailable> {
        if let Some(n) = constant(&value) {
            return Ok(vec![LocStep::Const(n)]);
        }
        let several = || Unavailable::new("the number of elements is in several locations at once");
        let variable = self
            .variable_in(die, &value)
            .or_else(|| self.refer(die, value));
        let Some(variable) = variable else {
            return match self.locate_attribute(die, value, address)? {
                Location::Address(ops) | Location::Value(ops) => Ok(ops),
                _ => Err(several()),
            };
        };
        let variable = self.variable_at(self.instance_of(variable, address));
        let CType::Int {
            size: size @ ..=8,
            signed,
            ..
        } = self.ctype(variable.ty)
        else {
            return Unavailable::because("the number of elements has no known type");
        };
        let mut ops = match self.locate(&variable, address)? {
            Location::Address(mut ops) => {
                ops.push(LocStep::Load { size });
                ops
            }
            Location::Value(ops) => ops,
            _ => return Err(several()),
        };
        if size < 8 {
            ops.push(LocStep::Extend { size, signed });
        }
        Ok(ops)
    }

    /// The type of such an array; `None` for an array as C has it, `Some(Type::Unknown)` where the
    /// debugging information is not understood.
    pub(crate) fn strided(&self, die: Die, entry: &Entry) -> Option<CType> {
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
        let data = match data {
            Some(value) => self.object_program(die, value),
            None => Some([ObjectOp::Object].into()),
        };
        let parts =
            data.and_then(|d| self.strided_parts(die, entry, (&dimensions, column_order), d));
        Some(parts.unwrap_or(CType::Unknown))
    }

    /// The type of GNAT's pair of pointers, by the entry of the array behind the first.
    pub(crate) fn pair(&self, array: Die, entry: &Entry) -> CType {
        let dimensions = self.dimensions(array);
        self.strided_parts(array, entry, (&dimensions, false), ELEMENTS_OF_PAIR.into())
            .unwrap_or(CType::Unknown)
    }

    /// The type of an array with these dimensions, whose elements begin where `data` says.
    fn strided_parts(
        &self,
        die: Die,
        entry: &Entry,
        (dimensions, column_order): (&[(Die, Entry)], bool),
        data: Arc<[ObjectOp]>,
    ) -> Option<CType> {
        // The next dimension's step, if nothing else says it.
        let mut step = self
            .element_size(die, entry)
            .and_then(|s| Some(vec![ObjectOp::Const(i64::try_from(s).ok()?)]));
        let mut strides: Vec<Arc<[ObjectOp]>> = Vec::new();
        let mut counts = Vec::new();
        let count = u8::try_from(dimensions.len()).ok()?;
        let mut inner_first: Vec<_> = (0..count).zip(dimensions).collect();
        if !column_order {
            inner_first.reverse();
        }
        for (n, (dimension_die, dimension)) in inner_first {
            let byte_stride = dimension.attr_value(gimli::DW_AT_byte_stride);
            strides.push(match byte_stride {
                Some(value) => self.object_program(*dimension_die, value)?,
                None if dimension.has_attr(gimli::DW_AT_bit_stride) => return None,
                None => step.clone()?.into(),
            });
            counts.push(self.count_of_object(*dimension_die, dimension));
            let count = match (self.elements(*dimension_die, dimension), counts.last()) {
                (0, Some(Some(program))) => Some(Arc::clone(program)),
                (0, _) if has_bound(dimension) => {
                    Some([ObjectOp::Count(self.dimension(die, n))].into())
                }
                (0, _) => None,
                (count, _) => Some([ObjectOp::Const(count.into())].into()),
            };
            step = step.zip(count).map(|(mut step, count)| {
                step.extend(count.iter());
                step.push(ObjectOp::Mul);
                step
            });
        }
        if !column_order {
            strides.reverse();
            counts.reverse();
        }
        Some(CType::Strided {
            elem: self.target_of(die, entry),
            data,
            strides: strides.into(),
            counts: counts.into(),
        })
    }

    /// The number of elements of one dimension, by a program about the array; `None` where it has no end
    /// or something else has it.
    fn count_of_object(&self, die: Die, dimension: &Entry) -> Option<Arc<[ObjectOp]>> {
        let program = |name| self.object_program(die, dimension.attr_value(name)?);
        if let Some(count) = program(gimli::DW_AT_count) {
            return Some(count);
        }
        let program = |name| Some(self.with_sign_of_index(program(name)?, die));
        let mut count = program(gimli::DW_AT_upper_bound)?.to_vec();
        match dimension.has_attr(gimli::DW_AT_lower_bound) {
            true => count.extend(program(gimli::DW_AT_lower_bound)?.iter()),
            false => count.push(ObjectOp::Const(self.first_index(die))),
        }
        count.extend([ObjectOp::Sub, ObjectOp::Const(1), ObjectOp::Add]);
        Some(count.into())
    }

    /// Number of elements of one dimension; 0 if only the running program has it.
    pub(crate) fn elements(&self, die: Die, dimension: &Entry) -> u32 {
        let bound = |name| constant(&dimension.attr_value(name)?);
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
            return Some([ObjectOp::Const(constant(&value)?)].into());
        };
        let unit = self.unit(die.part, die.unit)?;
        let mut ops = expression.operations(unit.encoding());
        let mut program = Vec::new();
        while let Some(op) = ops.next().ok()? {
            match op {
                Operation::PushObjectAddress => program.push(ObjectOp::Object),
                Operation::UnsignedConstant { value } => {
                    program.push(ObjectOp::Const(value.cast_signed()))
                }
                Operation::SignedConstant { value } => program.push(ObjectOp::Const(value)),
                Operation::PlusConstant { value } => {
                    program.extend([ObjectOp::Const(value.cast_signed()), ObjectOp::Add]);
                }
                Operation::Deref {
                    size: size @ (1 | 2 | 4 | 8),
                    space: false,
                    ..
                } => program.push(ObjectOp::Load {
                    size,
                    signed: false,
                }),
                Operation::Plus => program.push(ObjectOp::Add),
                Operation::Minus => program.push(ObjectOp::Sub),
                Operation::Mul => program.push(ObjectOp::Mul),
                _ => return None,
            }
            if program.len() > MAX_OPS {
                return None;
            }
        }
        Some(program.into())
    }
}
