//! Statistics keep what is asked of them after all: what only code asked that other passes have taken
//! out since, as what a setting turns off, need not be kept. A histogram is 1 KB an element.

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
            Inst::StatGet { what, .. } => want(spec, *what),
            Inst::IterNew {
                sort:
                    Some(SortSpec {
                        by: SortKey::Stat(what),
                        ..
                    }),
                ..
            } => want(spec, *what),
            Inst::HistGet { .. } | Inst::IterHist { .. } | Inst::PrintHist { .. } => {
                *buckets = true
            }
            _ => {}
        }
    }
    for ((global, wanted), buckets) in program.globals.iter_mut().zip(wanted).zip(buckets) {
        // What is shown at the end is asked for by nobody.
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

/// Adds what an extractor needs.
fn want(spec: &mut StatsSpec, what: Extract) {
    match what {
        Extract::Count => {}
        Extract::Sum | Extract::Avg => spec.sum = true,
        Extract::Min => spec.min = true,
        Extract::Max => spec.max = true,
        Extract::Variance => (spec.sum, spec.variance) = (true, true),
    }
}
