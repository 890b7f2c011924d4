//! Templates against the emitter, and the scripts that use them.

use std::collections::BTreeMap;

use spile_ebpf::emit::CpuBlocks;
use spile_ebpf::prebuilt::extract::{Choice, emitted, extract};
use spile_ebpf::prebuilt::samples::samples;
use spile_ir::reader;
use spile_lir::library::routine::Routine;
use spile_lir::library::{append, arguments};
use spile_syscalls::fake::{arg, call};
use spile_syscalls::{ArgKind, Syscall};

use super::find;
use super::find::TEMPLATES;
use crate::compile;
use crate::target::{Features, KernelOffsets, MappingOffsets, PageOffsets, Target, UnwindOffsets};

#[test]
fn linked_code_is_what_the_emitter_writes() {
    let samples = samples();
    for (sample, template) in TEMPLATES {
        for seed in 0..6 {
            let routine = &samples[*sample];
            let random = emitted(routine, template.blocks, Choice::Random(1 << seed));
            let random = random.unwrap_or_else(|e| panic!("{e}"));
            let linked = template.link(&random.numbers, None);
            assert_eq!(linked, Ok(random.functions), "{routine:?}");
        }
    }
}

#[test]
fn the_build_has_the_templates_of_this_library() {
    let samples = samples();
    for (sample, template) in TEMPLATES {
        let made = extract(&samples[*sample], template.blocks);
        assert_eq!(made, Ok(*template), "{:?}", samples[*sample]);
    }
}

#[test]
fn each_sample_finds_its_template() {
    for (sample, template) in TEMPLATES {
        for count in [1, 2, 3, 256] {
            let routine = &samples()[*sample];
            let blocks = CpuBlocks {
                first: 0,
                stride: 8,
                count,
            };
            let found = find(routine, Some(blocks)).expect("a template");
            assert_eq!(found.functions[0].name, template.functions[0].name);
        }
    }
}

#[test]
fn lists_of_names_of_any_length_have_a_template() {
    let is_lists = |routine: &Routine| matches!(routine, Routine::Arguments(..));
    let sample = samples().into_iter().find(is_lists);
    let Some(Routine::Arguments(layout, _)) = sample else {
        panic!("no sample has lists");
    };
    for entries in [2, 3, 100, 3_000] {
        let size = entries * arguments::ENTRY.cast_signed();
        let routine = Routine::Arguments(layout.clone(), size);
        let blocks = CpuBlocks {
            first: 192,
            stride: 12_544,
            count: 2,
        };
        assert!(find(&routine, Some(blocks)).is_some(), "{entries} entries");
    }
}

#[test]
fn other_shapes_have_no_template() {
    let usual = append::AppendLayout {
        length: 128,
        text: 1000,
        most: 512,
        digits: 640,
    };
    let others = [
        append::AppendLayout { most: 256, ..usual },
        // No instruction adds 0.
        append::AppendLayout { length: 0, ..usual },
        // Beyond the range of displacements.
        append::AppendLayout {
            text: 40_000,
            ..usual
        },
    ];
    assert!(find(&Routine::AppendText(usual), None).is_some());
    for other in others {
        assert_eq!(find(&Routine::AppendText(other), None), None, "{other:?}");
    }
}

/// A script with arguments of system calls, stacks of programs, and iterations over arrays.
const SCRIPT: &str = r#"
site @0 ""
site @1 "operator at x.stp:1:2"
global g0 "s" str512 shared lock @0
global g1 "a" [long, str16] long max 10 shared lock @0
global g2 "b" [long] stats(sum, hist_log) max 10 shared lock @0
handler "x" points 1 sys_enter(all) @0 {
  regs r0: str512, r1: long, r2: str16, r3: long
  iters 4
  b0:
    r0 = intr sys_argstr()
    gstore g0, r0
    r0 = intr user_stack(8)
    gstore g0, r0
    iter i0 g1[]
    jump b1
  b1: r3 = next i0 [r1, r2] b1, b2
  b2: iter i1 g1[] asc key 1
    jump b3
  b3: r3 = next i1 [r1, r2] b3, b4
  b4: iter i2 g1[] desc key 1
    jump b5
  b5: r3 = next i2 [r1, r2] b5, b6
  b6: iter_hist i3 g2[r1]
    jump b7
  b7: r3 = next i3 [r1] b7, b8
  b8: ret
}
"#;

/// Signals have a list of names, as the table of a kernel has many.
static SYSCALLS: [Syscall; 1] = [call(
    59,
    "execve",
    &[
        arg(0, "", ArgKind::Str),
        arg(1, "", ArgKind::Argv),
        arg(2, "", ArgKind::Signal),
    ],
)];

fn options() -> Target {
    let mapping = MappingOffsets {
        task_mm: 1136,
        mm_root: 72,
        vma_start: 0,
        vma_end: 8,
    };
    let pages = PageOffsets {
        mapping,
        vma_flags: 32,
        vma_pgoff: 80,
        vma_file: 88,
        vma_anon: 64,
        file_mapping: 16,
        mapping_head: 8,
        node_shift: 0,
        node_slots: 40,
        folio_flags: 0,
        folio_index: 32,
        uptodate: 3,
        page_size: 64,
    };
    let unwind = UnwindOffsets {
        mapping,
        task_tgid: 1268,
        mm_vdso: 1240,
        vma_pgoff: 80,
        vma_file: 88,
        vma_flags: 32,
        file_inode: 32,
        file_dentry: 72,
        inode_ino: 64,
        inode_sb: 40,
        sb_dev: 16,
        dentry_parent: 24,
        dentry_name: 40,
        returns: Some([2896, 8, 24, 32, 48]),
    };
    Target {
        host: spile_ir::HostKind::Kernel,
        cpus: 6,
        ring_bytes: 1 << 20,
        timing: false,
        lines: false,
        offsets: KernelOffsets {
            pages: Some(pages),
            unwind: Some(unwind),
            task_pid: Some(1264),
            task_start: Some(1400),
            task_exec_id: Some(1416),
            ..KernelOffsets::default()
        },
        features: Features::SINCE_6_9,
        syscalls: &SYSCALLS,
        functions: BTreeMap::new(),
        share: None,
        abi: &spile_abi::X86_64,
        resident: false,
    }
}

#[test]
fn a_script_without_limits_of_its_own_emits_only_what_is_made_for_it() {
    let program = reader::read(SCRIPT).unwrap_or_else(|e| panic!("{e}"));
    let object = compile(&program, &options()).unwrap_or_else(|e| panic!("{e}"));
    // The lock waits as the script and the kernel say, and an iterator copies keys of its array.
    let made = |name: &&str| **name == *"wait_lock" || name.starts_with("copy_");
    let emitted: Vec<&str> = object.lir.emitted();
    assert!(emitted.iter().all(made), "{emitted:?}");
    assert!(
        object
            .spec
            .subprograms
            .iter()
            .any(|f| f.name == "append_stack")
    );
    assert!(object.spec.subprograms.iter().any(|f| f.name == "put_arg"));
    let is_heap = |name: &str| ["take_", "_up"].map(|part| name.contains(part)) == [true; 2];
    assert!(object.spec.subprograms.iter().any(|f| is_heap(&f.name)));
}
