//! Objects with so much state that some of it is out of the range of displacements.

use spile_bpf::target::Target;
use spile_ir::*;
use spile_layout::counters;

use crate::machine::{Contents, HostKind, options};

/// Counters of many handlers, and many globals. Handlers that do nothing have no code, unless times
/// are recorded.
#[test]
fn counters_of_many_handlers_are_exact() {
    const HANDLERS: usize = 1200;
    const GLOBALS: usize = 400;
    let mut text = "site @0 \"\"\n".to_string();
    for g in 0..GLOBALS {
        let kind = ["long", "stats(sum, min, max)"][g % 2];
        text += &format!("global g{g} \"g{g}\" {kind} percpu double @0\n");
    }
    for h in 0..HANDLERS {
        let g = h % GLOBALS;
        let code = match (h % 3, g % 2) {
            (0, _) => String::new(),
            (_, 0) => format!("    gadd g{g}, {h}\n"),
            _ => format!("    stat_add g{g}[], {h}\n"),
        };
        text += &format!(
            "handler \"h{h}\" points 1 tracepoint(\"x\") @0 {{\n  b0:\n{code}    ret\n}}\n"
        );
    }
    let program = reader::read(&text).expect("reads");
    for (host, timing) in HostKind::ALL
        .into_iter()
        .flat_map(|host| [(host, false), (host, true)])
    {
        let options = Target {
            timing,
            ..options()
        };
        let mut kernel = host.load_with(&program, &options);
        kernel.run(&[]);
        kernel.run(&[]);
        for h in 0..HANDLERS {
            let hits = if h % 3 == 0 && !timing { 0 } else { 2 };
            assert_eq!(kernel.hits(h), hits, "{h}, {timing}");
            if timing {
                let info = kernel.info(h);
                assert!(kernel.header(info.counters + counters::TIME_SUM) > 0);
            }
        }
        for (g, contents) in kernel.outcome().globals.iter().enumerate() {
            let all = (g..HANDLERS).step_by(GLOBALS).filter(|h| h % 3 != 0);
            let sum: usize = 2 * all.sum::<usize>();
            let found = match contents {
                Some(Contents::One(interp::Cell::Stats(stat))) => stat.sum as i64,
                Some(Contents::One(interp::Cell::Scalar(v))) => v.as_long(),
                _ => panic!("{contents:?}"),
            };
            assert_eq!(found, sum as i64, "g{g}");
        }
    }
}

/// Histograms of many statistics exceed the range of displacements.
#[test]
fn many_histograms_are_exact() {
    let mut text = "site @0 \"\"\n".to_string();
    let mut code = String::new();
    for g in 0..24 {
        text += &format!("global g{g} \"h{g}\" stats(hist_linear 0 2000 4) percpu double @0\n");
        code += &format!("    stat_add g{g}[], r0\n");
    }
    text += &format!(
        "handler \"x\" points 1 tracepoint(\"x\") @0 {{\n  regs r0: long\n  b0:\n    \
         r0 = intr ctx_arg(0)\n{code}    ret\n}}\n"
    );
    let program = reader::read(&text).expect("reads");
    for host in HostKind::ALL {
        let mut kernel = host.load(&program);
        [0, 4, 5, 2000].iter().for_each(|n| kernel.run(&[*n]));
        for contents in kernel.outcome().globals {
            let Some(Contents::One(interp::Cell::Stats(stat))) = contents else {
                panic!("{contents:?}")
            };
            assert_eq!(stat.buckets[..4], [0, 1, 2, 0]);
            assert_eq!(stat.buckets.iter().sum::<u64>(), 4);
        }
    }
}
