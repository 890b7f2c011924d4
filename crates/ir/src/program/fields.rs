//! What an instruction reads and writes, from the types of its fields.

use super::Val;
use super::ids::*;
use super::operators::*;
use super::types::*;
use crate::intrinsics::Intrinsic;

/// A field of an instruction: an operand, the register that it writes, its global, or none of these.
pub(crate) trait Field {
    fn uses(&self, _: &mut impl FnMut(Val)) {}
    fn uses_mut(&mut self, _: &mut impl FnMut(&mut Val)) {}
    fn dst(&self) -> Option<Reg> {
        None
    }
    fn dst_mut(&mut self) -> Option<&mut Reg> {
        None
    }
    fn global(&self) -> Option<GlobalId> {
        None
    }
}

impl Field for Val {
    fn uses(&self, f: &mut impl FnMut(Val)) {
        f(*self);
    }
    fn uses_mut(&mut self, f: &mut impl FnMut(&mut Val)) {
        f(self);
    }
}

impl Field for Reg {
    fn dst(&self) -> Option<Reg> {
        Some(*self)
    }
    fn dst_mut(&mut self) -> Option<&mut Reg> {
        Some(self)
    }
}

impl Field for GlobalId {
    fn global(&self) -> Option<GlobalId> {
        Some(*self)
    }
}

impl<T: Field> Field for Vec<T> {
    fn uses(&self, f: &mut impl FnMut(Val)) {
        self.iter().for_each(|v| v.uses(f));
    }
    fn uses_mut(&mut self, f: &mut impl FnMut(&mut Val)) {
        self.iter_mut().for_each(|v| v.uses_mut(f));
    }
}

impl<T: Field> Field for Option<T> {
    fn uses(&self, f: &mut impl FnMut(Val)) {
        self.iter().for_each(|v| v.uses(f));
    }
    fn uses_mut(&mut self, f: &mut impl FnMut(&mut Val)) {
        self.iter_mut().for_each(|v| v.uses_mut(f));
    }
    fn dst(&self) -> Option<Reg> {
        self.as_ref()?.dst()
    }
    fn dst_mut(&mut self) -> Option<&mut Reg> {
        self.as_mut()?.dst_mut()
    }
}

macro_rules! neither {
    ($($ty:ty)*) => { $(impl Field for $ty {})* };
}
neither! { bool u8 u32 UnOp BinOp CmpOp Extract Space Stream SortSpec Intrinsic RegexId TableId FormatId IterId FuncId }

/// Defines instructions, and what follows from the types of their fields.
macro_rules! instructions {
    ($(#[$outer:meta])* pub enum Inst {
        $($(#[$doc:meta])* $name:ident $({ $($field:ident: $ty:ty),* $(,)? })?,)*
    }) => {
        $(#[$outer])*
        pub enum Inst {
            $($(#[$doc])* $name $({ $($field: $ty),* })?,)*
        }

        #[allow(unused_variables, unused_mut)]
        impl Inst {
            /// The register it writes.
            pub fn dst(&self) -> Option<Reg> {
                match self {
                    $(Inst::$name $({ $($field),* })? => None$($(.or_else(|| $field.dst()))*)?,)*
                }
            }

            /// Calls `f` with the register it writes.
            pub fn dst_mut(&mut self, mut f: impl FnMut(&mut Reg)) {
                match self {
                    $(Inst::$name $({ $($field),* })? => {
                        $($($field.dst_mut().into_iter().for_each(&mut f);)*)?
                    })*
                }
            }

            /// Calls `f` with every operand, in order.
            pub fn for_each_use(&self, mut f: impl FnMut(Val)) {
                match self {
                    $(Inst::$name $({ $($field),* })? => { $($($field.uses(&mut f);)*)? })*
                }
            }

            /// Calls `f` with every operand, in order, to change it.
            pub fn uses_mut(&mut self, mut f: impl FnMut(&mut Val)) {
                match self {
                    $(Inst::$name $({ $($field),* })? => { $($($field.uses_mut(&mut f);)*)? })*
                }
            }

            /// The global it touches.
            pub fn global(&self) -> Option<GlobalId> {
                match self {
                    $(Inst::$name $({ $($field),* })? => None$($(.or_else(|| $field.global()))*)?,)*
                }
            }
        }
    };
}
pub(crate) use instructions;
