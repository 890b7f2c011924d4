//! Programs of type tracing (fentry, fexit), which libbpf loads only after it has parsed the whole
//! BTF of the kernel, for the number of the function (20 ms). The number is known here: sections
//! of these names get a handler that has libbpf take them for another type until they are loaded.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_long};
use std::sync::{Mutex, Once, PoisonError};

use libbpf_rs::libbpf_sys::{
    BPF_PROG_TYPE_KPROBE, BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY, BPF_TRACE_FEXIT,
    bpf_prog_load_opts, bpf_program, bpf_program__name, bpf_program__set_type,
    libbpf_prog_handler_opts, libbpf_register_prog_handler,
};
use spile_bpf::layout::{Attach, CodeAttach, Layout};

/// The numbers of functions in the kernel's BTF, by names of programs.
static TARGETS: Mutex<Option<HashMap<String, u32>>> = Mutex::new(None);

/// Has libbpf load the programs of this object for their functions: the last object counts.
pub(crate) fn prepare(layout: &Layout) {
    let target = |p: &spile_bpf::layout::ProgramInfo| match &p.attach {
        Attach::Code {
            by: CodeAttach::Trampoline(typed),
            ..
        } => Some((p.name.clone(), typed.id)),
        _ => None,
    };
    let targets: HashMap<String, u32> = layout.programs.iter().filter_map(target).collect();
    if targets.is_empty() {
        return;
    }
    *TARGETS.lock().unwrap_or_else(PoisonError::into_inner) = Some(targets);
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        for (section, attach) in [(c"fentry+", BPF_TRACE_FENTRY), (c"fexit+", BPF_TRACE_FEXIT)] {
            let opts = libbpf_prog_handler_opts {
                sz: size_of::<libbpf_prog_handler_opts>() as u64,
                prog_prepare_load_fn: Some(aim),
                ..Default::default()
            };
            // SAFETY: libbpf copies name and options; this runs once, before any other thread
            // opens an object. Without the handler the load is slow and works.
            unsafe {
                libbpf_register_prog_handler(section.as_ptr(), BPF_PROG_TYPE_KPROBE, attach, &opts);
            }
        }
    });
}

/// libbpf calls this right before it loads a program (`libbpf_prog_prepare_load_fn_t`).
unsafe extern "C" fn aim(
    prog: *mut bpf_program,
    opts: *mut bpf_prog_load_opts,
    _cookie: c_long,
) -> c_int {
    // SAFETY: libbpf gives a program of an open object, whose name lives as long as it.
    let name = unsafe { CStr::from_ptr(bpf_program__name(prog)) };
    let targets = TARGETS.lock().unwrap_or_else(PoisonError::into_inner);
    let id = targets
        .as_ref()
        .and_then(|t| t.get(&*name.to_string_lossy()));
    let Some(id) = id else {
        return -libc::ENOENT;
    };
    // SAFETY: the options are libbpf's own, for this load; the type is read after this call.
    unsafe {
        (*opts).attach_btf_id = *id;
        bpf_program__set_type(prog, BPF_PROG_TYPE_TRACING)
    }
}
