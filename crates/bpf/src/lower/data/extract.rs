//! Reading statistics: extractors, and the buckets of histograms.

use spile_cast::Cast;
use spile_ebpf::isa::asm::{Asm, Label};
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size};
use spile_ir::{Extract, GlobalId, Hist, Reg as IrReg, Val};
use spile_layout::{AggLayout, ErrorKind, GlobalLocation, ValueLayout};

use crate::error::{LowerError, Res};
use crate::lower::codegen::HandlerCodegen;

impl HandlerCodegen<'_> {
    /// The address of a statistic, and its layout. Goes to `missing` if an array has no element with the key.
    pub(crate) fn statistic(
        &mut self,
        g: GlobalId,
        keys: &[Val],
        missing: Label,
    ) -> Res<(Reg, AggLayout)> {
        match self.ctx.location(g)? {
            GlobalLocation::Stats { offset, agg } => Ok((self.shared_address(offset), agg)),
            GlobalLocation::Hash {
                map,
                keys: types,
                seq,
                value: ValueLayout::Stats(agg),
                ..
            } => {
                self.build_key(&types, keys)?;
                let address = self.map_call(Helper::MapLookupElem, &map);
                self.asm.jump_if(Cond::Eq, address, 0, missing);
                if seq {
                    self.asm.add(address, 8);
                }
                Ok((address, agg))
            }
            _ => Err("reading a statistic that only the controller can read".into()),
        }
    }

    pub(crate) fn stat_get(&mut self, dst: IrReg, g: GlobalId, keys: &[Val], part: Extract) -> Res {
        let counts = matches!(part, Extract::Count | Extract::Sum);
        let missing = match counts {
            true => self.asm.label(),
            false => self.fail_label(ErrorKind::EmptyAggregate),
        };
        let (address, agg) = self.statistic(g, keys, missing)?;
        let word = |off: Option<u32>| off.ok_or("a statistic does not keep that");
        let off = match part {
            Extract::Count => agg.count,
            Extract::Sum | Extract::Avg => word(agg.sum)?,
            Extract::Min => word(agg.min)?,
            Extract::Max => word(agg.max)?,
            Extract::Variance => word(agg.sumsq)?,
        };
        let value = self.asm.word(address, off.fit());
        if counts {
            if !matches!(self.ctx.location(g)?, GlobalLocation::Stats { .. }) {
                let end = self.asm.label();
                self.asm.jump(end);
                self.asm.bind(missing);
                self.asm.mov(value, 0);
                self.asm.bind(end);
            }
            return self.def_int(dst, value);
        }
        let count = self.asm.word(address, agg.count.fit());
        self.asm.jump_if(Cond::Eq, count, 0, missing);
        match part {
            Extract::Avg => divide_signed(self.asm, value, count),
            Extract::Variance => {
                self.variance_sub()?;
                let variance = variance(self.asm, address, &agg)?;
                return self.def_int(dst, variance);
            }
            _ => {}
        }
        self.def_int(dst, value)
    }

    pub(crate) fn variance_sub(&mut self) -> Res {
        if !self.options.features.bpf_loop {
            return Err(LowerError::unsupported(
                "@variance in a kernel handler needs bpf_loop (Linux 5.17)",
            ));
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
    pub(crate) fn hist_get(&mut self, dst: IrReg, g: GlobalId, keys: &[Val], idx: Val) -> Res {
        let buckets = self.histogram(g)?.buckets().cast_signed();
        let [missing, end] = self.asm.labels();
        let range = self.fail_label(ErrorKind::HistIndex);
        let array = !matches!(self.ctx.location(g)?, GlobalLocation::Stats { .. });
        let (address, agg) = self.statistic(g, keys, missing)?;
        let (off, _) = agg.hist.ok_or("a statistic without a histogram")?;
        let (bucket, count) = (self.number_copy(idx)?, self.asm.new_reg());
        self.asm.jump_if(Cond::Ge, bucket, buckets, range);
        self.asm.alu(AluOp::Lsh, bucket, 3);
        self.asm.add(address, bucket);
        self.asm.load(Size::DW, count, address, off.fit());
        if array {
            self.asm.jump(end);
            self.asm.bind(missing);
            let bucket = self.number_copy(idx)?;
            self.asm.jump_if(Cond::Ge, bucket, buckets, range);
            self.asm.mov(count, 0);
            self.asm.bind(end);
        }
        self.def_int(dst, count)
    }

    /// Sends a histogram's buckets; the controller draws them.
    pub(crate) fn print_hist(&mut self, g: GlobalId, keys: &[Val]) -> Res {
        let hist = self.histogram(g)?;
        let empty = self.fail_label(ErrorKind::EmptyAggregate);
        let (address, agg) = self.statistic(g, keys, empty)?;
        let (off, _) = agg.hist.ok_or("a statistic without a histogram")?;
        let count = self.asm.word(address, agg.count.fit());
        self.asm.jump_if(Cond::Eq, count, 0, empty);
        self.buckets_piece(hist, address, off)
    }
}

/// Divides a signed number by an unsigned one, rounded towards zero.
fn divide_signed(asm: &mut Asm, number: Reg, divisor: Reg) {
    let sign = asm.alu_of(AluOp::Arsh, number, 63);
    asm.alu(AluOp::Xor, number, sign);
    asm.alu(AluOp::Sub, number, sign);
    asm.alu(AluOp::Div, number, divisor);
    asm.alu(AluOp::Xor, number, sign);
    asm.alu(AluOp::Sub, number, sign);
}

/// The variance of the statistic at an address.
fn variance(asm: &mut Asm, address: Reg, agg: &AggLayout) -> Res<Reg> {
    let (Some(sum), Some(squares)) = (agg.sum, agg.sumsq) else {
        return Err("a statistic that keeps no squares".into());
    };
    let words = [agg.count, sum, squares, squares + 8];
    let args = words.map(|off| asm.word(address, off.fit()).into());
    Ok(asm.call_sub_with("variance", &args))
}
