//! Linking in memory gives the same result as libbpf does for the file: instructions, positions of
//! functions and lines, and program types. Skipped if BPF is not allowed.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

mod common;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{AsRawLibbpf, MapCore, Object, ObjectBuilder};
use spile_bpf::compile;
use spile_bpf::compiled::{Attach, CodeAttach, Hook, SampledEvent};
use spile_bpf::object::elf::{ElfError, LICENSE, ObjectSpec};
use spile_bpf::object::link::{self, MapRef};
use spile_bpf::target::{Features, KernelOffsets, Target, TypedFunction};
use spile_ir::testgen::{self, Config};
use spile_ir::{
    CodeLocation, CodeProbe, CodeSite, Event, Netfilter, OptionalSites, PerfScope, SamplingRate,
    Space, TraceEvent,
};

/// Makes libbpf create the maps and relocate the code; the test is skipped if that is not
/// permitted.
fn prepared(spec: &ObjectSpec) -> Object {
    let bytes = spec.write().expect("complete");
    let mut builder = ObjectBuilder::default();
    let open = builder
        .name("spile")
        .expect("name")
        .open_memory(&bytes)
        .expect("opens");
    let object = open.take_ptr();
    // SAFETY: an open object that was just given up; from here on it is the `Object`'s.
    let (failed, object) = unsafe {
        let failed = sys::bpf_object__prepare(object.as_ptr());
        (failed, Object::from_ptr(object))
    };
    if failed == -1 {
        spile_testing::skip("making maps is not permitted here");
    }
    assert_eq!(failed, 0, "libbpf prepares the object");
    object
}

/// # Safety
/// `first` points to as many, and they outlive the copy.
unsafe fn copy<T: Copy>(first: *const c_void, len: usize) -> Vec<T> {
    if first.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise; the copy does not ask for alignment.
    (0..len)
        .map(|i| unsafe { first.cast::<T>().add(i).read_unaligned() })
        .collect()
}

/// A program as libbpf would load it.
struct Relocated {
    insns: Vec<u64>,
    functions: Vec<[u32; 2]>,
    lines: Vec<[u32; 4]>,
}

fn relocated(object: &Object) -> BTreeMap<String, Relocated> {
    let programs = object.progs().map(|program| {
        let raw = program.as_libbpf_object().as_ptr();
        // SAFETY: lists of a prepared object, as long as it says, of records of these sizes.
        let relocated = unsafe {
            Relocated {
                insns: copy(
                    sys::bpf_program__insns(raw).cast(),
                    sys::bpf_program__insn_cnt(raw) as usize,
                ),
                functions: copy(
                    sys::bpf_program__func_info(raw).cast_const().cast(),
                    sys::bpf_program__func_info_cnt(raw) as usize,
                ),
                lines: copy(
                    sys::bpf_program__line_info(raw).cast_const().cast(),
                    sys::bpf_program__line_info_cnt(raw) as usize,
                ),
            }
        };
        (program.name().to_string_lossy().into_owned(), relocated)
    });
    programs.collect()
}

/// Compares both forms of an object.
fn same(spec: &ObjectSpec) {
    let object = prepared(spec);
    let descriptors: BTreeMap<String, i32> = object
        .maps()
        .map(|m| {
            (
                m.name().to_string_lossy().into_owned(),
                m.as_fd().as_raw_fd(),
            )
        })
        .collect();
    let descriptor = |map: MapRef| match map {
        MapRef::Map(i) => descriptors[&spec.maps[i].name],
        MapRef::Bss => descriptors["spile.bss"],
        MapRef::Rodata => descriptors["spile.rodata"],
    };
    let theirs = relocated(&object);
    let mut linked = link::link(spec).expect("complete");
    assert_eq!(linked.programs.len(), theirs.len());
    for ours in &mut linked.programs {
        ours.set_maps(descriptor);
        let theirs = &theirs[&ours.name];
        let at = (ours.insns.iter().zip(&theirs.insns)).position(|(a, b)| a != b);
        assert_eq!(at, None, "{}: the instruction at that slot", ours.name);
        assert_eq!(ours.insns.len(), theirs.insns.len(), "{}", ours.name);
        let slots = |all: &[[u32; 2]]| all.iter().map(|f| f[0]).collect::<Vec<_>>();
        assert_eq!(
            slots(&ours.functions),
            slots(&theirs.functions),
            "{}",
            ours.name
        );
        // The texts are in different BTF: compares slot and line.
        let lines = |all: &[[u32; 4]]| all.iter().map(|l| (l[0], l[3])).collect::<Vec<_>>();
        if !ours.lines.is_empty() {
            assert_eq!(lines(&ours.lines), lines(&theirs.lines), "{}", ours.name);
        }
    }
}

#[test]
fn an_object_with_every_part_links_as_by_libbpf() {
    let spec = common::spec();
    let linked = link::link(&spec).expect("complete");
    assert!(linked.programs.iter().any(|p| !p.lines.is_empty()));
    same(&spec);
}

fn options(lines: bool) -> Target {
    Target {
        host: spile_ir::HostKind::Kernel,
        cpus: 4,
        ring_bytes: 1 << 18,
        timing: false,
        lines,
        offsets: KernelOffsets::default(),
        features: Features::SINCE_6_9,
        syscalls: &[],
        functions: Default::default(),
        share: None,
        abi: spile_abi::HOST,
        resident: false,
    }
}

/// Random handlers, with nested subprograms and callbacks.
#[test]
fn random_handlers_link_as_by_libbpf() {
    let mut called = 0;
    for seed in 0..60 {
        let config = Config {
            kernel: true,
            size: 20 + seed as u32 * 3,
        };
        let program = testgen::program(seed, config);
        let object = compile(&program, &options(seed % 2 == 0)).expect("compiles");
        called += object.spec.subprograms.len();
        same(&object.spec);
    }
    assert!(called > 100, "subprograms: {called}");
}

/// libbpf derives a program's type from its section; ours is the same.
#[test]
fn program_types_are_those_that_libbpf_derives() {
    let code = |space, ret, by| Attach::Code {
        probe: CodeProbe {
            space,
            ret,
            pid: None,
            tree: false,
            optional_sites: OptionalSites::Single,
            sites: vec![CodeSite {
                location: CodeLocation::Symbol {
                    module: None,
                    name: "vfs_read".into(),
                    offset: 0,
                },
                semaphore: 0,
                number: 0,
                exits: None,
            }],
        },
        by,
    };
    let typed = CodeAttach::Trampoline(TypedFunction {
        id: 1,
        params: 1,
        returns: true,
    });
    let (kernel, user) = (Space::Kernel, Space::User);
    let hook = |event: Event| Attach::Hook(Hook::of(&event).expect("a hook"));
    let all = [
        Attach::RawTracepoint(vec!["sys_enter".into()]),
        Attach::TraceEvent(TraceEvent {
            system: "raw_syscalls".into(),
            name: "sys_enter".into(),
            id: 1,
        }),
        Attach::Perf {
            events: vec![SampledEvent {
                ty: 1,
                config: 0,
                sample: SamplingRate::Freq(100),
            }],
            scope: PerfScope::All,
        },
        hook(Event::Netfilter(Netfilter {
            pf: 2,
            hook: 1,
            priority: 0,
        })),
        hook(Event::Lsm("file_open".into())),
        Attach::Switch(Vec::new()),
        Attach::OnDemand,
        code(kernel, false, typed),
        code(kernel, true, typed),
        code(kernel, false, CodeAttach::Multi),
        code(kernel, false, CodeAttach::Session),
        code(kernel, false, CodeAttach::Single),
        code(user, false, CodeAttach::Multi),
        code(user, true, CodeAttach::Multi),
        code(user, false, CodeAttach::Single),
    ];
    for attach in all {
        let kind = attach.program_type();
        let spec = ObjectSpec {
            programs: vec![common::program(&kind.section, common::empty("it"))],
            license: LICENSE.into(),
            ..Default::default()
        };
        let bytes = spec.write().expect("complete");
        let open = ObjectBuilder::default().open_memory(&bytes).expect("opens");
        let program = open.progs().next().expect("a program");
        let raw = program.as_libbpf_object().as_ptr();
        // SAFETY: a program of an open object, which is only asked.
        let theirs = unsafe {
            (
                sys::bpf_program__type(raw),
                sys::bpf_program__expected_attach_type(raw),
            )
        };
        assert_eq!((kind.ty, kind.attach_type), theirs, "{}", kind.section);
    }
}

/// Undefined references cause the same errors as in the file writer.
#[test]
fn what_is_not_there() {
    let call = |name: &str| {
        let mut asm = spile_ebpf::isa::asm::Asm::new("main", &["ctx"]);
        asm.call_sub(name);
        asm.exit();
        ObjectSpec {
            programs: vec![common::program("raw_tp", asm.finish().expect("assembles"))],
            license: LICENSE.into(),
            ..Default::default()
        }
    };
    let undefined = ElfError::Undefined("main".into(), "nobody".into());
    assert_eq!(
        link::link(&call("nobody")).expect_err("incomplete"),
        undefined
    );
    assert_eq!(call("nobody").write().expect_err("incomplete"), undefined);
}
