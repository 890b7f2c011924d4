//! Reading statistics: extractors, and the buckets of histograms.

use spile_ir::{Extract, GlobalId, Hist, Reg as IrReg, Val};

use crate::isa::asm::{Asm, Label};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::{AggLayout, ErrorKind, GlobalPlace, ValueLayout};
use crate::lower::{HandlerCodegen, Res, TMP};

impl HandlerCodegen<'_> {
    /// `r1` = address of a statistic. Goes to `missing` if an array has no element with the key.
    pub(in crate::lower) fn statistic(
        &mut self,
        g: GlobalId,
        keys: &[Val],
        missing: Label,
    ) -> Res<AggLayout> {
        match self.ctx.place(g)? {
            GlobalPlace::Stats { offset, agg } => {
                self.shared(R1, offset);
                Ok(agg)
            }
            GlobalPlace::Hash {
                map,
                keys: types,
                seq,
                value: ValueLayout::Stats(agg),
                ..
            } => {
                self.build_key(&types, keys)?;
                self.asm.ld_map(R1, &*map);
                self.block_addr(R2, self.plan.scratch.key);
                self.asm.call(Helper::MapLookupElem);
                self.asm.jump_if(Cond::Eq, R0, 0, missing);
                self.asm.mov(R1, R0);
                if seq {
                    self.asm.add(R1, 8);
                }
                Ok(agg)
            }
            _ => Err("reading a statistic that only the controller can read".into()),
        }
    }

    pub(in crate::lower) fn stat_get(
        &mut self,
        dst: IrReg,
        g: GlobalId,
        keys: &[Val],
        what: Extract,
    ) -> Res {
        let missing = self.asm.label();
        let array = !matches!(self.ctx.place(g)?, GlobalPlace::Stats { .. });
        let agg = self.statistic(g, keys, missing)?;
        let word = |off: Option<u32>| off.ok_or("a statistic does not keep that");
        let off = match what {
            Extract::Count => agg.count,
            Extract::Sum | Extract::Avg => word(agg.sum)?,
            Extract::Min => word(agg.min)?,
            Extract::Max => word(agg.max)?,
            Extract::Variance => word(agg.sumsq)?,
        };
        self.asm.load(Size::DW, R2, R1, agg.count as i16);
        self.asm.load(Size::DW, R0, R1, off as i16);
        if matches!(what, Extract::Count | Extract::Sum) {
            if array {
                let end = self.asm.label();
                self.asm.jump(end);
                self.asm.bind(missing);
                self.asm.mov(R0, 0);
                self.asm.bind(end);
            }
            return self.def_int(dst, R0);
        }
        let empty = self.fail_label(ErrorKind::EmptyAggregate);
        if array {
            let end = self.asm.label();
            self.asm.jump(end);
            self.asm.bind(missing);
            self.asm.mov(R2, 0);
            self.asm.bind(end);
        }
        self.asm.jump_if(Cond::Eq, R2, 0, empty);
        match what {
            Extract::Avg => divide_signed(self.asm),
            Extract::Variance => {
                self.variance_sub()?;
                variance(self.asm, &agg)?;
            }
            _ => {}
        }
        self.def_int(dst, R0)
    }

    pub(in crate::lower) fn variance_sub(&mut self) -> Res {
        if !self.options.features.bpf_loop {
            return Err("@variance in a kernel handler needs bpf_loop (Linux 5.17)".into());
        }
        self.pool.library("variance")
    }

    fn histogram(&self, g: GlobalId) -> Res<Hist> {
        let global = self.program.globals.get(g.index());
        let spec = global.and_then(|g| g.kind.stats());
        spec.and_then(|s| s.hist)
            .ok_or_else(|| "a statistic without a histogram".into())
    }

    /// `dst` = the count of one bucket.
    pub(in crate::lower) fn hist_get(
        &mut self,
        dst: IrReg,
        g: GlobalId,
        keys: &[Val],
        idx: Val,
    ) -> Res {
        let buckets = self.histogram(g)?.buckets() as i32;
        let (missing, end) = (self.asm.label(), self.asm.label());
        let range = self.fail_label(ErrorKind::HistIndex);
        let array = !matches!(self.ctx.place(g)?, GlobalPlace::Stats { .. });
        let agg = self.statistic(g, keys, missing)?;
        let (off, _) = agg.hist.ok_or("a statistic without a histogram")?;
        self.use_in(idx, R2)?;
        self.asm.jump_if(Cond::Ge, R2, buckets, range);
        self.asm.alu(AluOp::Lsh, R2, 3);
        self.asm.add(R1, R2);
        self.asm.load(Size::DW, R0, R1, off as i16);
        if array {
            self.asm.jump(end);
            self.asm.bind(missing);
            self.use_in(idx, R2)?;
            self.asm.jump_if(Cond::Ge, R2, buckets, range);
            self.asm.mov(R0, 0);
            self.asm.bind(end);
        }
        self.def_int(dst, R0)
    }

    /// Sends a histogram's buckets; the controller draws them.
    pub(in crate::lower) fn print_hist(&mut self, g: GlobalId, keys: &[Val]) -> Res {
        let hist = self.histogram(g)?;
        let empty = self.fail_label(ErrorKind::EmptyAggregate);
        let agg = self.statistic(g, keys, empty)?;
        let (off, _) = agg.hist.ok_or("a statistic without a histogram")?;
        self.asm.load(Size::DW, R2, R1, agg.count as i16);
        self.asm.jump_if(Cond::Eq, R2, 0, empty);
        self.asm.store(Size::DW, R10, TMP[0], R1);
        self.buckets_piece(hist, TMP[0], off)
    }
}

/// `r0 = r0 / r2`, rounded towards zero; r0 is signed, r2 unsigned. Clobbers r3.
pub(in crate::lower) fn divide_signed(asm: &mut Asm) {
    asm.mov(R3, R0);
    asm.alu(AluOp::Arsh, R3, 63);
    asm.alu(AluOp::Xor, R0, R3);
    asm.alu(AluOp::Sub, R0, R3);
    asm.alu(AluOp::Div, R0, R2);
    asm.alu(AluOp::Xor, R0, R3);
    asm.alu(AluOp::Sub, R0, R3);
}

/// `r0` = variance of the statistic at r1. Clobbers r1 to r5.
pub(in crate::lower) fn variance(asm: &mut Asm, agg: &AggLayout) -> Res {
    let (Some(sum), Some(squares)) = (agg.sum, agg.sumsq) else {
        return Err("a statistic that keeps no squares".into());
    };
    asm.load(Size::DW, R2, R1, sum as i16);
    asm.load(Size::DW, R3, R1, squares as i16);
    asm.load(Size::DW, R4, R1, squares as i16 + 8);
    asm.load(Size::DW, R1, R1, agg.count as i16);
    asm.call_sub("variance");
    Ok(())
}
