//! Compiled handlers in the running kernel: the verifier accepts them, and their results are right.
//! Skipped if BPF is not allowed.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{
    MapCore, MapFlags, Object, ObjectBuilder, PrintLevel, ProgramInput, RingBufferBuilder,
};
use spile_bpf::compile;
use spile_bpf::compiled::Attach;
use spile_bpf::compiled::Object as Compiled;
use spile_bpf::target::{
    CastKfunc, Features, KernelOffsets, NumberPath, PreemptionKfuncs, SessionKfuncs, Target,
};
use spile_ir::interp::Value;
use spile_ir::intrinsics::TaskNumber;
use spile_ir::{Program, TraceEvent, Ty, reader};
use spile_kernel::btf::Btf;
use spile_kernel::features::{Feature, has};
use spile_layout::{RecordKind, shared};
use spile_syscalls::fake::{arg, call};
use spile_syscalls::{ArgKind, Flag, FlagTable, ResultForm, Syscall, SyscallArg};

static LOG: Mutex<String> = Mutex::new(String::new());

fn log() -> std::sync::MutexGuard<'static, String> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The way to the number of the current task's parent.
fn parent(real_parent: Option<u32>, tgid: Option<u32>) -> HashMap<TaskNumber, NumberPath> {
    let steps = real_parent
        .zip(tgid)
        .map(|(parent, number)| vec![parent, number]);
    let path = steps.map(|steps| (TaskNumber::Ppid, NumberPath { steps, bytes: 4 }));
    path.into_iter().collect()
}

/// Fields of the running kernel's structures.
fn offsets() -> KernelOffsets {
    let Ok(btf) = Btf::vmlinux() else {
        return KernelOffsets::default();
    };
    let of = |ty: &str, member: &str| {
        let id = btf.find_struct(ty)?;
        btf.member(id, member).map(|m| m.bit_offset / 8)
    };
    KernelOffsets {
        task_pid: of("task_struct", "pid"),
        task_tgid: of("task_struct", "tgid"),
        task_comm: of("task_struct", "comm"),
        numbers: parent(of("task_struct", "real_parent"), of("task_struct", "tgid")),
        task_ti_status: of("thread_info", "status"),
        ..KernelOffsets::default()
    }
}

fn options() -> Target {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible
        .trim()
        .rsplit(['-', ','])
        .next()
        .and_then(|n| n.parse::<u32>().ok());
    Target {
        host: spile_ir::HostKind::Kernel,
        cpus: last.unwrap_or(0) + 1,
        ring_bytes: 1 << 18,
        timing: false,
        lines: false,
        offsets: offsets(),
        features: Features {
            may_goto: false,
            ..Features::SINCE_6_9
        },
        syscalls: &[],
        functions: Default::default(),
        share: None,
        abi: &spile_abi::X86_64,
        resident: false,
    }
}

/// Loads; the test is skipped without privileges.
fn load(compiled: &Compiled) -> Object {
    let keep = |_: PrintLevel, text: String| log().push_str(&text);
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    let bytes = compiled.spec.write().expect("complete");
    let open = ObjectBuilder::default().open_memory(&bytes).expect("opens");
    log().clear();
    match open.load() {
        Ok(object) => object,
        Err(_) if !has(Feature::Bpf).is_available() => {
            spile_testing::skip("loading BPF programs is not permitted here")
        }
        Err(e) => {
            let listing: Vec<_> = compiled
                .spec
                .programs
                .iter()
                .map(|p| p.function.listing())
                .collect();
            let log = log().clone();
            let tail: String = log[log.len().saturating_sub(6000)..].into();
            panic!("{e}\n{}\n{tail}", listing.join("\n"));
        }
    }
}

fn bss(object: &Object) -> libbpf_rs::MapHandle {
    let map = object
        .maps()
        .find(|m| m.name().to_string_lossy().ends_with(".bss"))
        .expect(".bss");
    libbpf_rs::MapHandle::try_from(&map).expect("handle")
}

/// The records that a run sends, and the state memory after it.
fn run(
    object: &mut Object,
    program: &str,
    args: [u64; 2],
    times: usize,
    prepare: impl FnOnce(&mut [u8]),
) -> (Vec<Vec<u8>>, Vec<u8>) {
    let state = bss(object);
    let mut words = state
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .expect("state")
        .expect("element");
    words[shared::RUNNING as usize] = 1;
    prepare(&mut words);
    state
        .update(&0u32.to_ne_bytes(), &words, MapFlags::ANY)
        .expect("state");
    let records = Arc::new(Mutex::new(Vec::new()));
    let out = object.maps().find(|m| m.name() == "out").expect("out");
    let (seen, mut builder) = (Arc::clone(&records), RingBufferBuilder::new());
    let keep = move |data: &[u8]| {
        seen.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(data.to_vec());
        0
    };
    builder.add(&out, keep).expect("ring");
    let ring = builder.build().expect("ring");
    for _ in 0..times {
        let program = object
            .progs_mut()
            .find(|p| p.name() == program)
            .expect("program");
        let mut context: Vec<u8> = args.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let input = ProgramInput {
            context_in: Some(&mut context),
            ..Default::default()
        };
        program.test_run(input).expect("run");
        ring.consume().expect("records");
    }
    let words = state
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .expect("state")
        .expect("element");
    let records = records.lock().expect("records").clone();
    (records, words)
}

fn program(text: &str) -> Program {
    reader::read(text).unwrap_or_else(|e| panic!("{e}"))
}

fn compiled(program: &Program) -> Compiled {
    compile(program, &options()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn count_by_name() {
    let p = program(
        "site @0 \"\"\n\
         global g0 \"a\" [str16] stats(sum) max 2048 percpu double @0\n\
         handler \"syscall_any\" points 1 sys_enter(all) @0 {\n\
           regs r0: str16\n\
           b0:\n\
             r0 = intr execname()\n\
             stat_add g0[r0], 1\n\
             ret\n\
         }\n",
    );
    let c = compiled(&p);
    let mut object = load(&c);
    let name = c.programs[0].name.clone();
    run(&mut object, &name, [0, 39], 10, |_| ());
    let (_, words) = run(&mut object, &name, [0, 39], 10, |_| ());
    assert_eq!(count(&c, &words), 20);
}

/// Each exit of a handler in user code enables preemption again; otherwise the verifier refuses it.
#[test]
fn preemption_is_off_within() {
    let p = program(
        "site @0 \"\"\n\
         global g0 \"a\" long shared lock @0\n\
         handler \"p\" points 1 code(user, file \"/p\" 16) @0 {\n\
           regs r0: long\n\
           b0:\n\
             r0 = gload g0\n\
             r0 = add r0, 1\n\
             gstore g0, r0\n\
             ret\n\
         }\n",
    );
    let btf = Btf::vmlinux().unwrap_or_else(|why| spile_testing::skip(why));
    let (Some(off), Some(on)) = (
        btf.find_func("bpf_preempt_disable"),
        btf.find_func("bpf_preempt_enable"),
    ) else {
        spile_testing::skip("programs of this kernel cannot turn preemption off")
    };
    let mut options = options();
    options.features.preemption = Some(PreemptionKfuncs { off, on });
    let c = compile(&p, &options).unwrap_or_else(|e| panic!("{e}"));
    let listing = c.spec.programs[0].function.listing();
    let calls = |id: u32| listing.matches(&format!("kfunc#{id}")).count();
    assert_eq!((calls(off), calls(on)), (1, 1), "{listing}");
    load(&c);
}

/// What casts pointers in programs of this kernel.
fn cast(btf: &Btf) -> CastKfunc {
    let (Some(function), Some(task), Some(word)) = (
        btf.find_func("bpf_rdonly_cast"),
        btf.find_struct("task_struct"),
        btf.find_struct("timespec64"),
    ) else {
        spile_testing::skip("programs of this kernel cannot cast")
    };
    CastKfunc {
        function,
        task,
        word,
    }
}

/// Loads through a cast pointer give the same numbers and errors as the kernel's helper, of all sizes and
/// from all kinds of addresses.
#[test]
fn loads_through_a_cast_are_those_of_the_helper() {
    let btf = Btf::vmlinux().unwrap_or_else(|why| spile_testing::skip(why));
    let mut casting = options();
    casting.features.cast = Some(cast(btf));
    let member = |name| {
        Some(
            btf.member(btf.find_struct("task_struct")?, name)?
                .bit_offset
                / 8,
        )
    };
    let offset = |name| u64::from(member(name).expect("a member of all kernels"));
    // In the task: a pointer, numbers, a text, and words that are 0 as a rule.
    let names = ["stack", "pid", "tgid", "comm", "prio", "exit_state"];
    let mut cases: Vec<[u64; 2]> = names.map(|name| [1, offset(name)]).into();
    let own = Box::new([1u64; 2]);
    cases.extend([
        [0, 0],
        [0, 0x10],
        [0, own.as_ptr() as u64],
        [0, 0x7fff_ffff_f000],
        [0, 0x7fff_ffff_fffc],
        [0, 0x8000_0000_0000],
        [0, 0x8000_0000_0000_0000],
        [0, 0xffff_8000_0000_0000],
        [0, 0xffff_ffff_ff60_0000],
        [0, u64::MAX - 0xfff],
        [0, u64::MAX - 7],
        [0, u64::MAX],
    ]);
    for access in ["u8", "s8", "u16", "s16", "u32", "s32", "s64"] {
        let p = program(&format!(
            "site @0 \"\"\n\
             site @1 \"inner\"\n\
             fmt f0 \"%d\"\n\
             fmt f1 \"%s\"\n\
             handler \"t\" points 1 tracepoint(\"sched_switch\") @0 {{\n\
               regs r0: long, r1: long, r2: str64\n\
               b0: catch b3\n\
                 r0 = intr ctx_arg(0)\n\
                 r1 = intr ctx_arg(1)\n\
                 branch r0, b1, b2\n\
               b1: catch b3\n\
                 r0 = intr task_current()\n\
                 r1 = add r0, r1\n\
                 jump b2\n\
               b2: catch b3\n\
                 r1 = load kernel {access} r1 @1\n\
                 print out f0(r1)\n\
                 ret\n\
               b3:\n\
                 r2 = catch_msg\n\
                 print out f1(r2)\n\
                 ret\n\
             }}\n"
        ));
        let results = [&options(), &casting].map(|options| {
            let c = compile(&p, options).unwrap_or_else(|e| panic!("{e}"));
            let listing = c.spec.programs[0].function.listing();
            let casts = options.features.cast.is_some();
            assert_eq!(listing.contains("kfunc#"), casts, "{listing}");
            let mut object = load(&c);
            let name = c.programs[0].name.clone();
            let of = |args: &[u64; 2]| run(&mut object, &name, *args, 1, |_| ()).0;
            cases.iter().map(of).collect::<Vec<_>>()
        });
        for (i, case) in cases.iter().enumerate() {
            assert_eq!(results[0][i], results[1][i], "{access} {case:x?}");
            assert!(!results[0][i].is_empty(), "{access} {case:x?}");
        }
    }
}

/// Pointers are followed from a cast task, and numbers of the task itself are loaded without it.
#[test]
fn pointers_of_a_task_are_followed_from_a_cast() {
    let btf = Btf::vmlinux().unwrap_or_else(|why| spile_testing::skip(why));
    let cast = cast(btf);
    let function = cast.function;
    let mut options = options();
    let member = |of, name| Some(btf.member(btf.find_struct(of)?, name)?.bit_offset / 8);
    options.offsets.task_pid = member("task_struct", "pid");
    options.offsets.task_tgid = member("task_struct", "tgid");
    options.offsets.numbers = parent(
        member("task_struct", "real_parent"),
        member("task_struct", "tgid"),
    );
    options.features.cast = Some(cast);
    for (number, casts) in [("ppid", 1), ("tid", 0)] {
        let p = program(&format!(
            "site @0 \"\"\n\
             global g0 \"a\" long percpu double @0\n\
             handler \"t\" points 1 tracepoint(\"sched_switch\") @0 {{\n\
               regs r0: long\n\
               b0:\n\
                 r0 = intr {number}()\n\
                 gadd g0, r0\n\
                 ret\n\
             }}\n"
        ));
        let c = compile(&p, &options).unwrap_or_else(|e| panic!("{e}"));
        let bodies = c.spec.programs.iter().map(|p| &p.function);
        let listing: String = bodies
            .chain(&c.spec.subprograms)
            .map(|f| f.listing())
            .collect();
        let call = format!("kfunc#{function}");
        assert_eq!(listing.matches(&call).count(), casts, "{listing}");
        load(&c);
    }
}

/// System calls are probed by trace events if raw tracepoints lose hits, unless the script has
/// events that can arrive while a handler runs and count: the kernel drops those during trace events.
#[test]
fn system_calls_beside_samples() {
    let attach = |perf: &str| {
        let handlers = [("syscall_any", "sys_enter(all)"), ("perf", perf)];
        let handlers = handlers.map(|(name, event)| {
            format!(
                "handler \"{name}\" points 1 {event} @0 {{\n  b0:\n    stat_add g0[], 1\n    ret\n}}\n"
            )
        });
        let global = "site @0 \"\"\nglobal g0 \"a\" stats(sum) percpu double @0\n";
        let p = program(&format!("{global}{}", handlers.concat()));
        let mut options = options();
        options.features.syscall_events = Some([348, 347]);
        let c = compile(&p, &options).unwrap_or_else(|e| panic!("{e}"));
        c.programs[0].attach.clone()
    };
    let event = Attach::TraceEvent(TraceEvent {
        system: "raw_syscalls".into(),
        name: "sys_enter".into(),
        id: 348,
    });
    // Minor faults; samples of a clock; ticks of a clock; a counter of the processor.
    assert_eq!(attach("perf(1, 5, period 1)"), event);
    assert_eq!(attach("perf(1, 0, freq 97)"), event);
    for clock in ["perf(1, 0, period 1000000)", "perf(0, 0, period 1000000)"] {
        assert_eq!(
            attach(clock),
            Attach::RawTracepoint(vec!["sys_enter".into()])
        );
    }
}

/// Tracepoints of interrupts with the same handlers share a program. Excluded are those with
/// different handlers, soft interrupts, which interrupts can interrupt, and per-handler reports.
#[test]
fn one_program_at_tracepoints_of_interrupts() {
    let adds = |n: u32| format!("    stat_add g0[], {n}\n");
    let stack = "    r0 = intr kernel_stack(3)\n".to_owned();
    let points = [
        ("local_timer_entry", adds(1)),
        ("softirq_entry", adds(1)),
        ("reschedule_entry", adds(1)),
        ("irq_handler_entry", adds(2)),
        ("irq_handler_exit", adds(1)),
        ("vector_alloc", adds(1)),
        ("irq_work_exit", adds(1) + &adds(1)),
        ("call_function_entry", stack.clone()),
        ("call_function_exit", stack),
    ];
    let handler = |(name, body): &(&str, String)| {
        let regs = if body.contains("r0") {
            "regs r0: str64"
        } else {
            ""
        };
        format!(
            "handler \"{name}\" points 1 tracepoint(\"{name}\") @0 {{ {regs}\n  b0:\n{body}    ret\n}}\n"
        )
    };
    let global = "site @0 \"\"\nglobal g0 \"a\" stats(sum) percpu double @0\n";
    let handlers: String = points.iter().map(handler).collect();
    let p = program(&format!("{global}{handlers}"));
    let names = |change: fn(&mut Target)| {
        let mut options = options();
        change(&mut options);
        let c = compile(&p, &options).unwrap_or_else(|e| panic!("{e}"));
        let programs = c.programs.iter();
        let attached: Vec<Vec<String>> = programs
            .map(|p| match &p.attach {
                Attach::RawTracepoint(names) => names.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        (attached, c.layout)
    };
    let (shared, layout) = names(|_| {});
    let first = ["local_timer_entry", "reschedule_entry", "irq_handler_exit"];
    assert_eq!(shared[0], first);
    assert!(
        shared[1..].iter().all(|names| names.len() == 1),
        "{shared:?}"
    );
    assert_eq!(shared.iter().flatten().count(), points.len());
    assert_eq!(layout.others(spile_ir::HandlerId(0)), &first[1..]);
    assert_eq!(layout.others(spile_ir::HandlerId(1)), &[] as &[String]);
    assert_eq!(names(|o| o.timing = true).0.len(), points.len());
    assert_eq!(names(|o| o.lines = true).0.len(), points.len());
}

/// Functions and their returns share one program, which identifies calls by the kernel's session
/// cookie. On a kernel that drops entries without space for their return, only the entry halves of
/// return handlers join.
#[test]
fn one_program_at_entries_and_returns() {
    let code = |ret: &str| format!("code(kernel{ret}, traced 4096, traced 8192)");
    let (entry, ret) = (code(""), code(" return"));
    let p = program(&format!(
        "site @0 \"\"\n\
         global g0 \"@entry0\" [long, long] long max 64 wrap shared lock @0\n\
         global g1 \"n\" long shared @0\n\
         handler \"e\" points 2 {entry} @0 {{\n b0:\n gstore g1, 1\n ret\n }}\n\
         handler \"@entry of r\" points 2 {entry} @0 {{\n\
           regs r0: long, r1: long, r2: long\n b0:\n\
             r0 = intr tid()\n r1 = intr ctx_activation()\n r2 = intr ctx_arg(0)\n\
             aset g0[r0, r1], r2\n ret\n }}\n\
         handler \"r\" points 2 {ret} @0 {{\n\
           regs r0: long, r1: long, r2: long\n b0:\n\
             r0 = intr tid()\n r1 = intr ctx_activation()\n r2 = aget g0[r0, r1]\n\
             gstore g1, r2\n ret\n }}\n"
    ));
    let handlers = |session| {
        let mut options = options();
        options.features.kprobe_session = session;
        let c = compile(&p, &options).unwrap_or_else(|e| panic!("{e}"));
        let of = |p: &spile_bpf::compiled::ProgramInfo| p.handlers.iter().map(|h| h.0).collect();
        let all: Vec<Vec<u32>> = c.programs.iter().map(of).collect();
        (all, c)
    };
    let session = |all_entries| SessionKfuncs {
        is_return: 7001,
        cookie: 7002,
        all_entries,
    };
    assert_eq!(handlers(None).0, [vec![0, 1], vec![2]]);
    assert_eq!(handlers(Some(session(false))).0, [vec![0], vec![1, 2]]);
    let (all, c) = handlers(Some(session(true)));
    assert_eq!(all, [[0, 1, 2]]);
    assert_eq!(c.spec.programs[0].section, "kprobe.session");
    let listing = c.spec.programs[0].function.listing();
    let calls = |id: u32| listing.matches(&format!("kfunc#{id}")).count();
    assert_eq!((calls(7001), calls(7002)), (1, 2), "{listing}");
}

/// Sum of an element's first words in the caches of all CPUs.
fn count(c: &Compiled, words: &[u8]) -> u64 {
    let layout = c.layout.globals[0].as_ref().expect("global");
    let spile_layout::GlobalLocation::PerCpuArray(spile_layout::PerCpuArray {
        cache,
        slots,
        slot_size,
        key_size,
        ..
    }) = layout.location
    else {
        panic!("{layout:?}");
    };
    let mut sum = 0;
    for cpu in 0..c.layout.cpus {
        for slot in 0..slots {
            let at = c.layout.shared_size + cpu * c.layout.cpu_stride + cache + slot * slot_size;
            let at = (at + 8 + key_size) as usize;
            sum += u64::from_ne_bytes(words[at..at + 8].try_into().expect("8 bytes"));
        }
    }
    sum
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// The text of the records, and whether an error ended the handler.
fn text(p: &Program, c: &Compiled, records: &[Vec<u8>]) -> (Vec<u8>, Vec<String>) {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    for record in records {
        let used = (long(record, 0) >> 32) as usize;
        let mut at = 8;
        while at < used {
            let shape = &c.layout.records[long(record, at) as usize];
            at += 8;
            let mut fields = Vec::new();
            for ty in &shape.fields {
                let word = long(record, at);
                at += 8;
                fields.push(match ty {
                    Ty::Long => Value::Long(word as i64),
                    Ty::Str(_) => {
                        let len = word as usize;
                        let v = Value::from(&record[at..at + len]);
                        at += len.next_multiple_of(8);
                        v
                    }
                });
            }
            match &shape.what {
                RecordKind::Print { fmt, .. } => {
                    let format = &p.formats[fmt.index()];
                    let memory = &mut |_: spile_ir::Space, _: u64, _: &mut [u8]| Ok(());
                    spile_ir::fmt::render(format, &fields, memory, &mut out).expect("renders");
                }
                RecordKind::Deferred
                | RecordKind::File
                | RecordKind::Executed
                | RecordKind::Copy => {
                    panic!("nothing is left to anybody here")
                }
                RecordKind::Hist(_) => panic!("no program draws a histogram"),
                RecordKind::Error { kind, .. } => errors.push(format!("{kind:?}")),
                RecordKind::Rethrown { .. } => errors.push("rethrown".into()),
            }
        }
        assert_eq!(at, used, "a record is as long as its pieces");
    }
    (out, errors)
}

static BITS: FlagTable = FlagTable {
    name: "bits",
    decimal: true,
    wide: false,
    octal: 0,
    number: 0,
    flags: &[
        Flag {
            mask: 3,
            value: 0,
            name: "ZERO",
        },
        Flag {
            mask: 3,
            value: 1,
            name: "ONE",
        },
        Flag {
            mask: 3,
            value: 2,
            name: "TWO",
        },
        Flag {
            mask: 4,
            value: 4,
            name: "FOUR",
        },
        Flag {
            mask: 8,
            value: 8,
            name: "EIGHT",
        },
    ],
};

/// A set of 64 bits.
const SET: SyscallArg = SyscallArg {
    bits: 64,
    ..arg(0, "", ArgKind::Flags(&BITS))
};

static SYSCALLS: [Syscall; 3] = [
    call(321, "bpf", &[SET]),
    Syscall {
        ret: ResultForm::Hex,
        ..call(
            322,
            "listed",
            &[
                arg(0, "", ArgKind::Choice(&BITS)),
                arg(1, "", ArgKind::DirFd),
                arg(2, "", ArgKind::Mode),
                arg(3, "", ArgKind::Argv),
                arg(4, "", ArgKind::Signal),
            ],
        )
    },
    Syscall {
        ret: ResultForm::Hex,
        ..call(
            323,
            "all",
            &[
                SET,
                arg(1, "", ArgKind::Ptr),
                arg(2, "", ArgKind::Int(32)),
                arg(3, "", ArgKind::Str),
            ],
        )
    },
];

/// Text about the system call that runs the program: `bpf(BPF_PROG_TEST_RUN, attr, size)`.
#[test]
fn text_of_system_calls() {
    let text_of = |event: &str, value: &str, context: [u64; 2]| {
        let p = program(&format!(
            "site @0 \"\"\n\
             fmt f0 \"%s\"\n\
             handler \"x\" points 1 {event}(all) @0 {{\n\
               regs r0: str520\n\
               b0:\n\
                 r0 = intr {value}()\n\
                 print out f0(r0)\n\
                 ret\n\
             }}\n"
        ));
        let mut options = options();
        options.syscalls = &SYSCALLS;
        let c = compile(&p, &options).unwrap_or_else(|e| panic!("{e}"));
        let mut object = load(&c);
        let name = c.programs[0].name.clone();
        let (records, _) = run(&mut object, &name, context, 1, |_| ());
        String::from_utf8_lossy(&text(&p, &c, &records).0).into_owned()
    };
    let args = text_of("sys_enter", "sys_argstr", [0, 321]);
    assert_eq!(args, "TWO|EIGHT");
    let args = text_of("sys_enter", "sys_argstr", [0, 322]);
    assert!(args.starts_with("10, "), "{args}");
    let args = text_of("sys_enter", "sys_argstr", [0, 323]);
    assert!(args.starts_with("TWO|EIGHT, 0x"), "{args}");
    assert_eq!(text_of("sys_enter", "sys_argstr", [0, 5]), "");
    assert_eq!(text_of("sys_enter", "sys_name", [0, 322]), "listed");
    assert_eq!(text_of("sys_enter", "sys_name", [0, 700]), "syscall_700");
    let ret = |n: i64| text_of("sys_exit", "sys_retstr", [0, n as u64]);
    assert_eq!(ret(-2), "-2 (ENOENT)");
    assert_eq!(ret(-133), "-133 (EHWPOISON)");
    assert_eq!(ret(-514), "-514");
    assert_eq!(ret(17), "17");
}

/// Handlers of one event that exceed one program are split into several, in order.
#[test]
fn more_code_than_the_kernel_takes_in_a_program() {
    let long = "    print out f0(1)\n".repeat(250) + "    ret\n";
    let programs = in_programs(&long);
    let code: u32 = programs.spec.subprograms.iter().map(|f| f.slots()).sum();
    assert!(code > 1_000_000, "a test of {code} instructions");
    // A loop adds a subprogram to the handler's own.
    let programs = in_programs("    jump b1\n  b1:\n    tick 1\n    jump b1\n");
    let subs = programs.spec.subprograms.len();
    assert!(subs > 256, "a test of {subs} subprograms");
}

/// 400 handlers of one event with this code.
fn in_programs(does: &str) -> Compiled {
    let handlers: String = (0..400)
        .map(|n| {
            format!("handler \"h{n}\" points 1 tracepoint(\"sys_enter\") @0 {{\n  b0:\n{does}}}\n")
        })
        .collect();
    let p = program(&format!("site @0 \"\"\nfmt f0 \"%d\\n\"\n{handlers}"));
    let c = compiled(&p);
    let programs = &c.programs;
    assert!(programs.len() > 1, "{}", programs.len());
    let at = Attach::RawTracepoint(vec!["sys_enter".into()]);
    assert!(programs.iter().all(|p| p.attach == at));
    let handlers = programs.iter().flat_map(|p| &p.handlers);
    let handlers: Vec<u32> = handlers.map(|h| h.0).collect();
    assert_eq!(handlers, (0..400).collect::<Vec<_>>());
    let mut names: Vec<&str> = programs.iter().map(|p| &*p.name).collect();
    names.dedup();
    assert_eq!(names.len(), programs.len());
    c
}
