//! The properties of the running machine that the code generator needs.

use std::collections::{BTreeMap, HashMap};

use spile_abi::HOST;
use spile_bpf::target::{
    CastKfunc, Features, InterruptKfuncs, KernelOffsets, MappingOffsets, NumberPath, PageOffsets,
    PreemptionKfuncs, SessionKfuncs, TypedFunction, UnwindOffsets, UprobeOffsets,
};
use spile_cast::Cast;
use spile_ir::intrinsics::TaskNumber;
use spile_ir::{CodeLocation, CodeProbe, Event, Handler, Program, ProgramFacts, Space};
use spile_kernel::bpf::prog_type;
use spile_kernel::btf::Btf;
use spile_kernel::features::{self, Availability, Feature, helper};
use spile_kernel::functions;
use spile_kernel::machine::{self, Version};
use spile_kernel::perf;
use spile_kernel::tracepoints::Tracefs;
use spile_sema::facts::NamedPerfEvent;

/// Makes what scripts with kernel probes need, in the order in which the passes ask for it.
pub(crate) fn preread() {
    let _ = Btf::vmlinux();
    let _ = machine::preempts();
}

/// The named perf events.
pub(crate) fn perf_events() -> Vec<NamedPerfEvent> {
    let groups = [("sw", perf::TYPE_SOFTWARE), ("hw", perf::TYPE_HARDWARE)];
    groups
        .into_iter()
        .flat_map(|(group, ty)| perf::event_names(ty).map(move |name| (group, name)))
        .filter_map(|(group, name)| {
            let event = perf::event(name)?;
            Some(NamedPerfEvent {
                group,
                name: name.into(),
                ty: event.ty,
                config: event.config,
            })
        })
        .collect()
}

/// Number of per-CPU areas that an object for this machine needs.
pub(crate) fn cpus() -> u32 {
    machine::possible_cpus().last().map_or(1, |last| last + 1)
}

/// Offset in bytes of `a.b.c` in a structure.
fn offset(btf: &Btf, structure: &str, path: &[&str]) -> Option<u32> {
    let mut ty = btf.find_struct(structure)?;
    let mut bytes = 0;
    for name in path {
        let member = btf.member(ty, name)?;
        bytes += member.bit_offset / 8;
        ty = member.ty;
    }
    Some(bytes)
}

/// The offset in `task_struct` of the thread pointer of programs, where the kernel keeps it.
pub(crate) fn thread_pointer() -> Option<u32> {
    let path = HOST.kernel.thread_pointer?;
    offset(Btf::vmlinux().ok()?, "task_struct", path)
}

/// See [`spile_sema::facts::MachineFacts::kernel_return_stack`]. Since Linux 6.14 ftrace itself catches
/// returns (`return_to_handler` in `arch/x86/kernel/ftrace_64.S`). The first versions showed a
/// stack pointer below the saved registers, later ones show the right one, and nothing tells which
/// it is. Older kernels, and single probes (`arch_rethook_trampoline_callback`), show the right
/// one.
pub(crate) fn return_stack() -> bool {
    Btf::vmlinux().ok().is_none_or(|btf| {
        let fprobe = btf.find_struct("fprobe");
        fprobe.is_none_or(|s| btf.member(s, "hlist_array").is_none())
    })
}

/// The offsets of facts about the current task that generated code reads. The page cache and the
/// mappings of programs are looked up only where the script needs them, because that takes
/// milliseconds.
pub(crate) fn offsets(btf: &Btf, facts: &ProgramFacts) -> KernelOffsets {
    let (user, stacks) = (facts.reads_user(), facts.takes_user_stacks());
    let numbers = || Some(btf.numbers(btf.find_struct("task_struct")?));
    let task_numbers = facts.takes_task().then(numbers).flatten();
    let task = |path: &[&str]| offset(btf, "task_struct", path);
    KernelOffsets {
        task_pid: task(&["pid"]),
        task_numbers: task_numbers.unwrap_or_default(),
        task_tgid: task(&["tgid"]),
        task_utask: task(&["utask"]),
        task_perf_events: task(&["perf_event_ctxp"]),
        task_comm: task(&["comm"]),
        task_mm: task(&["mm"]),
        task_start: task(&["start_boottime"]),
        task_exec_id: task(&["self_exec_id"]),
        mm_arg_start: offset(btf, "mm_struct", &["arg_start"]),
        mm_arg_end: offset(btf, "mm_struct", &["arg_end"]),
        numbers: numbers_of_tasks(btf),
        task_ti_status: task(&["thread_info", "status"]),
        uprobe: uprobe_offsets(btf),
        unwind: stacks.then(|| unwind_offsets(btf)).flatten(),
        pages: user.then(|| page_offsets(btf)).flatten(),
    }
}

/// The ways to numbers of the current task.
fn numbers_of_tasks(btf: &Btf) -> HashMap<TaskNumber, NumberPath> {
    let task = |name| offset(btf, "task_struct", &[name]);
    let cred = |name| [task("cred"), offset(btf, "cred", &[name])];
    let pid = |kind| {
        let pointer = 8;
        let kind = u32::try_from(btf.constant("pid_type", kind)?).ok()? * pointer;
        Some(offset(btf, "signal_struct", &["pids"])? + kind)
    };
    let number = offset(btf, "pid", &["numbers"])
        .zip(offset(btf, "upid", &["nr"]))
        .map(|(numbers, nr)| numbers + nr);
    let level = offset(btf, "user_namespace", &["level"]);
    let [cred_pointer, user_ns] = cred("user_ns");
    let size = offset(btf, "mm_struct", &["task_size"]);
    let ways: [(_, &[_], _); 9] = [
        (TaskNumber::Ppid, &[task("real_parent"), task("tgid")], 4),
        (
            TaskNumber::Pgrp,
            &[task("signal"), pid("PIDTYPE_PGID"), number],
            4,
        ),
        (
            TaskNumber::Sid,
            &[task("signal"), pid("PIDTYPE_SID"), number],
            4,
        ),
        (TaskNumber::Uid, &cred("uid"), 4),
        (TaskNumber::Euid, &cred("euid"), 4),
        (TaskNumber::Gid, &cred("gid"), 4),
        (TaskNumber::Egid, &cred("egid"), 4),
        (TaskNumber::UserNsLevel, &[cred_pointer, user_ns, level], 4),
        (TaskNumber::TaskSpace, &[task("mm"), size], 8),
    ];
    let known = ways.into_iter().filter_map(|(which, steps, bytes)| {
        let steps = steps.iter().copied().collect::<Option<_>>()?;
        Some((which, NumberPath { steps, bytes }))
    });
    known.collect()
}

/// The offsets for the cookie of a location in a trace event.
fn uprobe_offsets(btf: &Btf) -> Option<UprobeOffsets> {
    let member = |structure, path: &[&str]| offset(btf, structure, path);
    let argument = member("trace_uprobe", &["tp", "args"])? + member("probe_arg", &["code"])?;
    Some(UprobeOffsets {
        task_utask: member("task_struct", &["utask"])?,
        utask_vaddr: member("uprobe_task", &["vaddr"])?,
        hit_location: member("uprobe_dispatch_data", &["tu"])?,
        location_argument: argument,
        argument_value: member("fetch_insn", &["immediate"])?,
    })
}

/// The offsets for finding the mapping at an address.
fn mapping_offsets(btf: &Btf) -> Option<MappingOffsets> {
    Some(MappingOffsets {
        task_mm: offset(btf, "task_struct", &["mm"])?,
        mm_root: offset(btf, "mm_struct", &["mm_mt", "ma_root"])?,
        vma_start: offset(btf, "vm_area_struct", &["vm_start"])?,
        vma_end: offset(btf, "vm_area_struct", &["vm_end"])?,
    })
}

/// The offsets for unwinding stacks of programs, on supported processors.
fn unwind_offsets(btf: &Btf) -> Option<UnwindOffsets> {
    if !HOST.kernel.reads_programs {
        return None;
    }
    let member = |structure, path: &[&str]| offset(btf, structure, path);
    Some(UnwindOffsets {
        mapping: mapping_offsets(btf)?,
        task_tgid: member("task_struct", &["tgid"])?,
        mm_vdso: member("mm_struct", &["context", "vdso"])?,
        vma_pgoff: member("vm_area_struct", &["vm_pgoff"])?,
        vma_file: member("vm_area_struct", &["vm_file"])?,
        vma_flags: member("vm_area_struct", &["vm_flags"])?,
        file_inode: member("file", &["f_inode"])?,
        file_dentry: member("file", &["f_path", "dentry"])?,
        inode_ino: member("inode", &["i_ino"])?,
        inode_sb: member("inode", &["i_sb"])?,
        sb_dev: member("super_block", &["s_dev"])?,
        dentry_parent: member("dentry", &["d_parent"])?,
        dentry_name: member("dentry", &["d_name", "name"])?,
        returns: replaced_returns(btf),
    })
}

/// The offsets of return addresses of programs that the kernel replaced.
fn replaced_returns(btf: &Btf) -> Option<[u32; 5]> {
    let member = |structure, field| offset(btf, structure, &[field]);
    Some([
        member("task_struct", "utask")?,
        member("uprobe_task", "return_instances")?,
        member("return_instance", "stack")?,
        member("return_instance", "orig_ret_vaddr")?,
        member("return_instance", "next")?,
    ])
}

/// The offsets for finding the page of a file, on supported processors.
fn page_offsets(btf: &Btf) -> Option<PageOffsets> {
    if !HOST.kernel.reads_programs {
        return None;
    }
    let vma = |name| offset(btf, "vm_area_struct", &[name]);
    let folio = |name| offset(btf, "folio", &[name]);
    Some(PageOffsets {
        mapping: mapping_offsets(btf)?,
        vma_flags: vma("vm_flags")?,
        vma_pgoff: vma("vm_pgoff")?,
        vma_file: vma("vm_file")?,
        vma_anon: vma("anon_vma")?,
        file_mapping: offset(btf, "file", &["f_mapping"])?,
        mapping_head: offset(btf, "address_space", &["i_pages", "xa_head"])?,
        node_shift: offset(btf, "xa_node", &["shift"])?,
        node_slots: offset(btf, "xa_node", &["slots"])?,
        folio_flags: folio("flags")?,
        folio_index: folio("index")?,
        uptodate: u32::try_from(btf.constant("pageflags", "PG_uptodate")?).ok()?,
        page_size: u32::try_from(btf.size_of(btf.find_struct("page")?)?).ok()?,
    })
}

/// Whether the kernel is at least that version, or has the feature backported.
fn since(major: u32, minor: u32, feature: Feature) -> bool {
    machine::version() >= Version::new(major, minor) || features::has(feature).is_available()
}

/// The BPF features of the running kernel. Features that every kernel of some version has follow
/// from the version; a probe costs one or two system calls.
pub(crate) fn bpf_features(btf: &Btf, program: &Program, facts: &ProgramFacts) -> Features {
    let raw = prog_type::RAW_TRACEPOINT;
    Features {
        may_goto: since(6, 9, Feature::MayGoto),
        for_each: since(5, 13, Feature::Helper(raw, helper::FOR_EACH_MAP_ELEM)),
        bpf_loop: since(5, 17, Feature::Helper(raw, helper::LOOP)),
        atomics: since(5, 12, Feature::Atomics),
        task_pt_regs: since(5, 15, Feature::Helper(raw, helper::TASK_PT_REGS)),
        kprobe_multi: kprobe_multi(program),
        uprobe_multi: since(6, 6, Feature::UprobeMulti),
        kprobe_session: session(btf, program),
        preemption: preemption(btf),
        interrupts: interrupts(btf),
        cast: cast(btf),
        write_user: !facts.change_processes()
            || features::has(Feature::Helper(raw, helper::PROBE_WRITE_USER)) != Availability::No,
        write_registers: facts.change_processes()
            && features::has(Feature::WriteRegisters).is_available(),
        syscall_events: syscall_events(),
    }
}

/// Whether one link attaches many functions of the kernel, if the script has any.
fn kprobe_multi(program: &Program) -> bool {
    let in_kernel =
        |h: &Handler| matches!(&h.event, Event::Code(probe) if probe.space == Space::Kernel);
    program.handlers.iter().any(in_kernel) && features::has(Feature::KprobeMulti).is_available()
}

/// The ids of the trace events of system calls, where programs at raw tracepoints lose hits.
fn syscall_events() -> Option<[u64; 2]> {
    let lost = machine::tracepoints_preempted(machine::version()) && machine::preempts();
    lost.then_some(())?;
    let tracefs = Tracefs::open().ok()?;
    let id = |name: &str| {
        let text = tracefs
            .read(&format!("events/raw_syscalls/{name}/id"))
            .ok()?;
        text.trim().parse().ok()
    };
    Some([id("sys_enter")?, id("sys_exit")?])
}

/// The kernel functions for programs attached to both entry and return, if the script needs them.
/// They exist where the kernel has such programs.
fn session(btf: &Btf, program: &Program) -> Option<SessionKfuncs> {
    let returns = |h: &Handler| matches!(&h.event, Event::Code(probe) if probe.ret && probe.space == Space::Kernel);
    program.handlers.iter().any(returns).then_some(())?;
    Some(SessionKfuncs {
        is_return: btf.find_func("bpf_session_is_return")?,
        cookie: btf.find_func("bpf_session_cookie")?,
        all_entries: !return_stack(),
    })
}

/// The kernel functions by which handlers disable preemption, if there are any. Kernels older than
/// 6.15 have these functions but do not allow global subprograms between them.
fn preemption(btf: &Btf) -> Option<PreemptionKfuncs> {
    let id = |name| btf.find_func(name);
    (machine::version() >= Version::new(6, 15) && machine::preempts()).then_some(())?;
    Some(PreemptionKfuncs {
        off: id("bpf_preempt_disable")?,
        on: id("bpf_preempt_enable")?,
    })
}

/// The kernel functions by which programs disable interrupts, if there are any.
fn interrupts(btf: &Btf) -> Option<InterruptKfuncs> {
    Some(InterruptKfuncs {
        save: btf.find_func("bpf_local_irq_save")?,
        restore: btf.find_func("bpf_local_irq_restore")?,
    })
}

/// The kernel function that gives a pointer a type, if there is one. It is part of BPF itself: all
/// types of programs may call it.
fn cast(btf: &Btf) -> Option<CastKfunc> {
    Some(CastKfunc {
        function: btf.find_func("bpf_rdonly_cast")?,
        task: btf.find_struct("task_struct")?,
        word: btf.find_struct("timespec64")?,
    })
}

/// Functions of the kernel that a program probes by name and that fentry and fexit may attach to.
/// Empty where a thread may be preempted within such programs: the kernel rejects all other hits on
/// the processor until the thread runs again. Kprobe programs run with preemption disabled.
pub(crate) fn typed_functions(btf: &Btf, program: &Program) -> BTreeMap<String, TypedFunction> {
    let names = program.handlers.iter().filter_map(|h| match &h.event {
        Event::Code(CodeProbe {
            space: Space::Kernel,
            sites,
            ..
        }) => match sites.first().map(|s| &s.location) {
            Some(CodeLocation::Symbol {
                module: None,
                name,
                offset: 0,
            }) if sites.len() == 1 => Some(name),
            _ => None,
        },
        _ => None,
    });
    let typed = |name: &str| {
        let (function, returns) = functions::trampoline(btf, name)?;
        Some(TypedFunction {
            id: function.id,
            params: function.params.len().fit(),
            returns,
        })
    };
    let mut names = names.peekable();
    if names.peek().is_none() || machine::preempts() {
        return BTreeMap::new();
    }
    names
        .filter_map(|name| Some((name.to_string(), typed(name)?)))
        .collect()
}
