//! Loads the programs of an object that libbpf has prepared: its maps made, its code relocated.
//! libbpf would do that one after the other, and for fentry, fexit and security modules parse the
//! kernel's whole BTF first (20 ms). Here the verifier is at work on as many programs as there are
//! processors, and the numbers of functions are known.

use std::ffi::c_void;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{AsRawLibbpf, Object, OpenObject, ProgramType};
use spile_bpf::layout::{Attach, CodeAttach, Layout, critical};
use spile_kernel::bpf::{BpfError, ProgSpec, load};
use spile_kernel::btf::Btf;

use crate::side_by_side::{processors, side_by_side};

/// Below so many instructions a program is not worth a thread.
const WORTH_A_THREAD: usize = 500;

/// A loaded program by its name in the object, or why the kernel does not take it.
pub(crate) type Outcome = (String, Result<OwnedFd, BpfError>);

/// What libbpf read about a program from its section.
pub(crate) struct Kind {
    name: String,
    ty: u32,
    attach_type: u32,
    /// The function in the kernel's BTF that it is for; 0 for none.
    target: u32,
}

/// Takes note of what each program is, before libbpf prepares the object. Those that are for a
/// function are shown to libbpf as of another type, so that it does not look the function up.
pub(crate) fn kinds(open: &mut OpenObject, layout: &Layout) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for mut prog in open.progs_mut() {
        let name = prog.name().to_string_lossy().into_owned();
        let raw = prog.as_libbpf_object().as_ptr();
        // SAFETY: a program of an open object, which nothing else uses meanwhile.
        let (ty, attach_type) = unsafe {
            let ty = sys::bpf_program__type(raw);
            (ty, sys::bpf_program__expected_attach_type(raw))
        };
        let attach = layout.programs.iter().find(|p| p.name == name);
        let target = match attach.map(|p| &p.attach) {
            Some(Attach::Code {
                by: CodeAttach::Trampoline(typed),
                ..
            }) => typed.id,
            // An unknown hook is 0, which the kernel refuses.
            Some(Attach::Lsm(hook)) => Btf::vmlinux()
                .ok()
                .and_then(|btf| btf.find_func(&format!("bpf_lsm_{hook}")))
                .unwrap_or(0),
            _ => 0,
        };
        if target != 0 {
            prog.set_prog_type(ProgramType::Kprobe);
        }
        kinds.push(Kind {
            name,
            ty,
            attach_type,
            target,
        });
    }
    kinds
}

/// Has libbpf make the maps and relocate the code, which is where its part ends.
///
/// # Errors
/// The error number of what went wrong; libbpf's log says what it was.
pub(crate) fn prepare(open: OpenObject) -> Result<Object, i32> {
    let object = open.take_ptr();
    // SAFETY: an open object that was just given up; from here on it is the `Object`'s, which
    // closes it. Maps have their descriptors; the programs are never used through it.
    unsafe {
        let failed = sys::bpf_object__prepare(object.as_ptr());
        let object = Object::from_ptr(object);
        if failed == 0 {
            Ok(object)
        } else {
            Err(-failed)
        }
    }
}

/// Loads all programs of a prepared object.
pub(crate) fn load_all(object: &Object, kinds: &[Kind]) -> Vec<Outcome> {
    // SAFETY: the object has loaded its BTF when it was prepared, and lives as long as `specs`.
    let btf = unsafe {
        let fd = sys::bpf_object__btf_fd(object.as_libbpf_object().as_ptr());
        (fd >= 0).then(|| BorrowedFd::borrow_raw(fd))
    };
    let mut specs: Vec<ProgSpec<'_>> = object
        .progs()
        .filter_map(|prog| {
            let kind = kinds.iter().find(|k| *k.name == *prog.name())?;
            Some(spec(prog.as_libbpf_object().as_ptr(), kind, btf))
        })
        .collect();
    // The longest first, so that none is left for the end.
    specs.sort_by_key(|s| std::cmp::Reverse(s.insns.len()));
    let worth = specs.iter().filter(|s| s.insns.len() >= WORTH_A_THREAD);
    let threads = worth.count().min(processors());
    // After a failure the rest is not worth the time.
    let failed = AtomicBool::new(false);
    let outcomes = side_by_side(specs, threads, |spec| {
        if failed.load(Relaxed) {
            return None;
        }
        let outcome = load(&spec);
        // A session can do without the critical section.
        let needed = spec.name != critical::PROGRAM;
        failed.fetch_or(needed && outcome.is_err(), Relaxed);
        Some((spec.name.to_owned(), outcome))
    });
    outcomes.into_iter().flatten().collect()
}

/// What the kernel needs to know of a program. The memory is the prepared object's.
fn spec<'a>(
    prog: *const sys::bpf_program,
    kind: &'a Kind,
    btf: Option<BorrowedFd<'a>>,
) -> ProgSpec<'a> {
    // SAFETY: each list is libbpf's, as long as it says, of records of that size, and stays as it
    // is until the object is closed.
    unsafe {
        ProgSpec {
            ty: kind.ty,
            insns: list(
                sys::bpf_program__insns(prog).cast(),
                sys::bpf_program__insn_cnt(prog) as usize,
            ),
            name: &kind.name,
            attach_type: kind.attach_type,
            attach_btf_id: kind.target,
            btf,
            functions: list(
                sys::bpf_program__func_info(prog).cast_const().cast(),
                sys::bpf_program__func_info_cnt(prog) as usize,
            ),
            lines: list(
                sys::bpf_program__line_info(prog).cast_const().cast(),
                sys::bpf_program__line_info_cnt(prog) as usize,
            ),
            ..ProgSpec::default()
        }
    }
}

/// A list of C as a slice; none is an empty one.
///
/// # Safety
/// As [`std::slice::from_raw_parts`], but that the pointer may be null. The type may have less
/// alignment than the slice's only where the allocator gives all memory more.
unsafe fn list<'a, T>(first: *const c_void, len: usize) -> &'a [T] {
    if first.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(first.cast(), len) }
}
