//! Trims statistics to the values that are still read. Other passes may have removed the code that
//! read a value, for example code that a setting turns off. A histogram takes 1 KB an element.

use crate::*;

/// Runs the pass.
pub fn run(program: &mut Program) {
    let mut wanted = vec![StatsSpec::default(); program.globals.len()];
    let mut buckets = vec![false; program.globals.len()];
    for inst in program.bodies().flat_map(Body::insts) {
        let Some(g) = inst.global().map(GlobalId::index) else {
            continue;
        };
        let (Some(spec), Some(buckets)) = (wanted.get_mut(g), buckets.get_mut(g)) else {
            continue;
        };
        match inst {
            Inst::StatGet { what, .. } => require(spec, *what),
            Inst::IterNew {
                sort:
                    Some(SortSpec {
                        by: SortKey::Stat(what),
                        ..
                    }),
                ..
            } => require(spec, *what),
            Inst::HistGet { .. } | Inst::IterHist { .. } | Inst::PrintHist { .. } => {
                *buckets = true
            }
            _ => {}
        }
    }
    for ((global, wanted), buckets) in program.globals.iter_mut().zip(wanted).zip(buckets) {
        // The display at the end reads it without an instruction.
        if global.display {
            continue;
        }
        let (GlobalKind::Stats(spec)
        | GlobalKind::Array {
            value: ElemTy::Stats(spec),
            ..
        }) = &mut global.kind
        else {
            continue;
        };
        spec.sum &= wanted.sum;
        spec.min &= wanted.min;
        spec.max &= wanted.max;
        spec.variance &= wanted.variance;
        spec.hist = spec.hist.filter(|_| buckets);
    }
}

/// Adds the values that an extractor needs.
fn require(spec: &mut StatsSpec, extractor: Extract) {
    match extractor {
        Extract::Count => {}
        Extract::Sum | Extract::Avg => spec.sum = true,
        Extract::Min => spec.min = true,
        Extract::Max => spec.max = true,
        // The smallest and the largest value show whether the sum passed 64 bits.
        Extract::Variance => {
            (spec.sum, spec.variance, spec.min, spec.max) = (true, true, true, true);
        }
    }
}
