//! Atomic operations on words.

use super::{IntoOperand, Scalar};
use crate::func::{LirInst, Value};
use crate::op::{AtomicOp, Width};

impl<'b> Scalar<'b> {
    /// Adds to the word at this address; gives the old one.
    pub fn fetch_add(self, off: i16, v: impl IntoOperand<'b>) -> Scalar<'b> {
        self.fetch((AtomicOp::FetchAdd, Width::W64), None, off, v)
    }

    /// Stores the word at this address; gives the old one.
    pub fn exchange(self, off: i16, v: impl IntoOperand<'b>) -> Scalar<'b> {
        self.fetch((AtomicOp::Xchg, Width::W64), None, off, v)
    }

    /// Stores the word at this address if it is `expected`; gives the old one.
    pub fn compare_exchange(
        self,
        off: i16,
        expected: impl IntoOperand<'b>,
        v: impl IntoOperand<'b>,
    ) -> Scalar<'b> {
        let expected = expected.val(self.f).value();
        self.fetch((AtomicOp::CmpXchg, Width::W64), Some(expected), off, v)
    }

    /// The same with 32 bits at this address.
    pub fn compare_exchange_u32(
        self,
        off: i16,
        expected: impl IntoOperand<'b>,
        v: impl IntoOperand<'b>,
    ) -> Scalar<'b> {
        let expected = expected.val(self.f).value();
        self.fetch((AtomicOp::CmpXchg, Width::W32), Some(expected), off, v)
    }

    fn fetch(
        self,
        (op, width): (AtomicOp, Width),
        expected: Option<Value>,
        off: i16,
        v: impl IntoOperand<'b>,
    ) -> Scalar<'b> {
        let (base, src) = (self.value(), v.val(self.f).value());
        self.f.def(|dst| LirInst::Atomic {
            dst: Some(dst),
            op,
            width,
            base,
            off,
            expected,
            src,
        })
    }

    /// Changes the word at this address by an operation without a result.
    pub fn atomic(self, op: AtomicOp, off: i16, v: impl IntoOperand<'b>) {
        let (base, src) = (self.value(), v.val(self.f).value());
        self.f.0.borrow_mut().emit(LirInst::Atomic {
            dst: None,
            op,
            width: Width::W64,
            base,
            off,
            expected: None,
            src,
        });
    }
}
