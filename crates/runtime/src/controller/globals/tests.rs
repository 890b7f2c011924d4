//! Operations on globals: tests.

use spile_ir::interp::ARRAY_OVERFLOW;
use spile_ir::storage::Storage;
use spile_ir::{Global, Init, SiteId};
use spile_layout::{AggLayout, Colocation, GlobalLayout, Layout, PerCpuArray};

use super::*;
use crate::shared::kernel_state::BoxedTable;
use crate::shared::state::{key_bytes, word_of};
use crate::shared::tests::PlainMap;
use spile_ir::StatsSpec;
use std::cell::RefCell;

fn global(kind: GlobalKind, storage: Storage) -> Global {
    Global {
        name: "g".into(),
        kind,
        init: None,
        storage,
        display: false,
        site: SiteId(0),
    }
}

fn spec() -> StatsSpec {
    StatsSpec {
        sum: true,
        max: true,
        ..StatsSpec::default()
    }
}

fn agg() -> AggLayout {
    AggLayout {
        count: 0,
        sum: Some(8),
        min: None,
        max: Some(16),
        sumsq: None,
        hist: None,
        size: 24,
    }
}

const LOCKED: Storage = Storage::Shared { lock: true };
const NUMBER: GlobalId = GlobalId(0);
const TEXT: GlobalId = GlobalId(1);
const STATS: GlobalId = GlobalId(2);
const ARRAY: GlobalId = GlobalId(3);
const WRAP: GlobalId = GlobalId(4);
const DELTAS: GlobalId = GlobalId(5);
const OWN: GlobalId = GlobalId(6);
const STAT_ARRAY: GlobalId = GlobalId(7);

fn array(value: ElemTy, max: u32, wrap: bool) -> GlobalKind {
    GlobalKind::Array {
        keys: vec![Ty::Str(16), Ty::Long],
        value,
        max,
        wrap,
    }
}

fn program() -> Program {
    let long = || ElemTy::Scalar(Ty::Long);
    let mut number = global(
        GlobalKind::Scalar(Ty::Long),
        Storage::Shared { lock: false },
    );
    number.init = Some(Init::Long(40));
    Program {
        globals: vec![
            number,
            global(GlobalKind::Scalar(Ty::Str(16)), LOCKED),
            global(GlobalKind::Stats(spec()), LOCKED),
            global(array(long(), 3, false), LOCKED),
            global(array(long(), 3, true), LOCKED),
            global(array(long(), 3, false), Storage::PerCpu { double: true }),
            global(array(long(), 3, false), Storage::Controller),
            global(array(ElemTy::Stats(spec()), 3, false), LOCKED),
        ],
        ..Program::default()
    }
}

/// The program's globals in plain memory instead of the kernel's.
fn kernel() -> KernelState {
    let keys = vec![Ty::Str(16), Ty::Long];
    let hash = |seq, value| GlobalLocation::Hash {
        map: "m".into(),
        key_size: 24,
        keys: keys.clone(),
        seq,
        wrap: seq,
        value,
        max: 3,
        field: None,
    };
    let long = || ValueLayout::Scalar(Ty::Long);
    let deltas = GlobalLocation::PerCpuArray(PerCpuArray {
        cache: 64,
        gen_stride: 512,
        slots: 4,
        slot_size: 40,
        maps: vec!["m0".into(), "m1".into()],
        key_size: 24,
        keys: keys.clone(),
        value: long(),
        colocated: Colocation {
            host: None,
            offset: 0,
            size: 8,
        },
        spilt: None,
        max: 3,
        wraps: false,
        large: None,
    });
    let locations = [
        GlobalLocation::Scalar {
            offset: 128,
            ty: Ty::Long,
        },
        GlobalLocation::Scalar {
            offset: 136,
            ty: Ty::Str(16),
        },
        GlobalLocation::Stats {
            offset: 152,
            agg: agg(),
        },
        hash(false, long()),
        hash(true, long()),
        deltas,
    ];
    let location = |location| {
        Some(GlobalLayout {
            lock: None,
            location,
        })
    };
    let mut globals: Vec<_> = locations.into_iter().map(location).collect();
    globals.push(None);
    globals.push(location(hash(false, ValueLayout::Stats(agg()))));
    let layout = Layout {
        shared_size: 256,
        cpu_stride: 2048,
        cpus: 2,
        globals,
        ..Layout::default()
    };
    let table = || -> BoxedTable {
        RefCell::new(Box::new(PlainMap {
            max: 3,
            ..PlainMap::default()
        }))
    };
    let counts = [0, 0, 0, 1, 1, 2, 0, 1];
    let tables = counts
        .iter()
        .map(|n| (0..*n).map(|_| table()).collect())
        .collect();
    KernelState::in_memory(&layout, tables)
}

fn key(name: &str, n: i64) -> Vec<Value> {
    vec![name.into(), n.into()]
}

fn some(keys: &[Value]) -> Vec<Option<Value>> {
    keys.iter().cloned().map(Some).collect()
}

/// Runs with the globals of [`program`] and [`kernel`].
fn with(f: impl FnOnce(&mut SessionGlobals)) {
    let (program, kernel) = (Rc::new(program()), kernel());
    kernel.initialise(&program);
    f(&mut SessionGlobals::new(
        program,
        Some(kernel),
        MarkTexts::default(),
    ));
}

#[test]
fn shared_scalars_are_words() {
    with(|g| {
        assert_eq!(g.gload(NUMBER).unwrap(), Value::Long(40));
        assert_eq!(g.gadd(NUMBER, 2).unwrap(), 40);
        assert_eq!(
            g.kernel
                .as_ref()
                .unwrap()
                .state()
                .shared(128)
                .load(Ordering::Relaxed),
            42
        );
        g.gstore(TEXT, "a text that is far too long".into())
            .unwrap();
        assert_eq!(g.gload(TEXT).unwrap(), "a text that is ".into());
        g.gclear(TEXT).unwrap();
        assert_eq!(g.gload(TEXT).unwrap(), "".into());
        assert_eq!(g.stat_get(STATS, &[]).unwrap(), None);
        g.stat_add(STATS, &[], -4).unwrap();
        g.stat_add(STATS, &[], -6).unwrap();
        let stat = g.stat_get(STATS, &[]).unwrap().unwrap();
        assert_eq!((stat.count, stat.sum, stat.max), (2, -10, -4));
    });
}

#[test]
fn arrays_behave_the_same_wherever_they_are() {
    for id in [ARRAY, OWN, DELTAS] {
        with(|g| {
            g.aset(id, &key("a", 1), 5.into()).unwrap();
            assert_eq!(g.aadd(id, &key("a", 1), 2).unwrap(), 5);
            assert_eq!(g.aadd(id, &key("b", 1), 1).unwrap(), 0);
            g.aset(id, &key("b", 2), 9.into()).unwrap();
            let full = g.aset(id, &key("c", 1), 1.into()).unwrap_err();
            assert_eq!(full.message(), ARRAY_OVERFLOW.as_bytes());
            assert_eq!(g.aget(id, &key("a", 1)).unwrap(), 7.into());
            assert_eq!(g.aget(id, &key("z", 1)).unwrap(), 0.into());
            assert!(g.ahas(id, &some(&key("b", 2))).unwrap());
            assert!(g.ahas(id, &[None, Some(2.into())]).unwrap());
            assert!(!g.ahas(id, &[Some("a".into()), Some(2.into())]).unwrap());
            let slice = [Some("b".into()), None];
            let keys: Vec<_> = g
                .elements(id, &slice)
                .unwrap()
                .iter()
                .map(|e| e.keys.to_vec())
                .collect();
            assert_eq!(keys, [key("b", 1), key("b", 2)]);
            g.adel(id, &slice).unwrap();
            assert_eq!(g.elements(id, &[]).unwrap().len(), 1);
            g.adel(id, &some(&key("a", 1))).unwrap();
            assert!(g.elements(id, &[]).unwrap().is_empty());
            g.aset(id, &key("a", 1), 5.into()).unwrap();
            g.gclear(id).unwrap();
            assert!(g.elements(id, &[]).unwrap().is_empty());
        });
    }
}

#[test]
fn wrapping_arrays_give_up_the_oldest() {
    with(|g| {
        for n in [0, 1, 2, 0, 3, 4] {
            // An update, here of 0, does not make an element younger.
            g.aset(WRAP, &key("k", n), n.into()).unwrap();
        }
        let left: Vec<_> = g
            .elements(WRAP, &[])
            .unwrap()
            .iter()
            .map(|e| e.keys[1].as_long())
            .collect();
        assert_eq!(left, [2, 3, 4]);
        g.aset(WRAP, &key("k", 2), 22.into()).unwrap();
        assert_eq!(g.aget(WRAP, &key("k", 2)).unwrap(), 22.into());
    });
}

#[test]
fn statistics_in_a_map_add_up() {
    with(|g| {
        assert_eq!(g.stat_get(STAT_ARRAY, &key("a", 1)).unwrap(), None);
        g.stat_add(STAT_ARRAY, &key("a", 1), 3).unwrap();
        g.stat_add(STAT_ARRAY, &key("a", 1), 4).unwrap();
        let stat = g.stat_get(STAT_ARRAY, &key("a", 1)).unwrap().unwrap();
        assert_eq!((stat.count, stat.sum, stat.max), (2, 7, 4));
    });
}

#[test]
fn drains_move_deltas_and_report_what_does_not_fit() {
    let (program, mut kernel) = (program(), kernel());
    let mut mem = MemGlobals::new(&program.globals);
    let hit = |kernel: &KernelState, cpu: u32, slot: u32, n: i64, by: u64| {
        let at = 64 + kernel.state().generation() * 512 + slot * 40;
        let key = key_bytes(&[Ty::Str(16), Ty::Long], &key("k", n));
        kernel.state().cpu(cpu, at).store(1, Ordering::Relaxed);
        for o in (0..24).step_by(8) {
            let word = word_of(&key, o);
            kernel
                .state()
                .cpu(cpu, at + 8 + o)
                .store(word, Ordering::Relaxed);
        }
        kernel
            .state()
            .cpu(cpu, at + 32)
            .fetch_add(by, Ordering::Relaxed);
    };
    hit(&kernel, 0, 0, 1, 5);
    hit(&kernel, 1, 3, 1, 6);
    assert_eq!(kernel.drain(&program, &mut mem, &|_, _| None).unwrap(), []);
    hit(&kernel, 1, 2, 1, 10);
    for n in 2..5 {
        hit(&kernel, 0, n as u32 - 2, n, 1);
    }
    assert_eq!(mem.aget(DELTAS, &key("k", 1)).unwrap(), 11.into());
    assert_eq!(
        kernel.drain(&program, &mut mem, &|_, _| None).unwrap(),
        [(DELTAS, 1)]
    );
    assert_eq!(mem.aget(DELTAS, &key("k", 1)).unwrap(), 21.into());
    hit(&kernel, 0, 0, 1, 100);
    assert_eq!(
        kernel
            .final_drain(&program, &mut mem, &|_, _| None)
            .unwrap(),
        []
    );
    assert_eq!(mem.aget(DELTAS, &key("k", 1)).unwrap(), 121.into());
    assert_eq!(kernel.drain(&program, &mut mem, &|_, _| None).unwrap(), []);
}
