//! Functions of SystemTap's library that need more than eBPF has, with the reason and the way out.

/// Names, and what a message says of them.
const ABSENT: &Reasons = &[
    (
        &["mdelay", "udelay"],
        "no BPF program can wait; save what you need in a global and continue in `probe timer.ms(N)`",
    ),
    (
        &["typeof"],
        "the language has no `typeof`: `@cast(p, \"TYPE\")` gives an address a type, and `->` follows the type of what \
         a variable was given",
    ),
    (
        &["sizeof"],
        "the language has no `sizeof`: `@cast_sizeof(\"TYPE\")` is the size of a type",
    ),
    (
        &["panic"],
        "no BPF program can stop the kernel; set a global, and call `system()` from a `probe timer`",
    ),
    (
        &["printk"],
        "no BPF program writes to the kernel's log; `printf` prints, and a command of `system()` can write to /dev/kmsg",
    ),
    (
        &["dump_stack"],
        "no BPF program writes to the kernel's log; `print_backtrace()` prints the same stack",
    ),
    (
        &[
            "set_kernel_char",
            "set_kernel_int",
            "set_kernel_long",
            "set_kernel_pointer",
            "set_kernel_short",
            "set_kernel_string",
            "set_kernel_string_n",
        ],
        "no BPF program can write to memory of the kernel",
    ),
    (&["module_size"], "there is no kernel module"),
    (
        &["remote_id", "remote_uri"],
        "a session runs on one machine; give its name or number as an argument, which is $1",
    ),
    (
        &["print_java_backtrace", "sprint_java_backtrace"],
        "there are no probes in methods of Java",
    ),
    (
        &["get_loadavg_index", "sprint_loadavg"],
        "the kernel does not export its averages; `system(\"cat /proc/loadavg\")` prints them from a `probe timer`",
    ),
    (
        &["cve_count_metric", "cve_record_metric", "cve_tmpdisable"],
        "scripts against security holes change memory of the kernel, which no BPF program can",
    ),
    (
        &[
            "get_inode_from_path",
            "get_thread_context_pointer",
            "regex_module_compare",
            "set_tls_module_by_name",
            "setup_link_map",
        ],
        "SystemTap has it for its own functions of thread-local variables",
    ),
    (
        &["cpuid"],
        "SystemTap has it with --compatible=1.4 only; use `cpu()`",
    ),
    (
        &["task_backtrace"],
        "SystemTap has it with --compatible=1.6 only; `sprint_backtrace()` has the stack of the current task",
    ),
    (
        &["ppos_pos"],
        "SystemTap has it with --compatible=2.2 only; use `kernel_long()`",
    ),
    (
        &["get_mmap_args"],
        "SystemTap has it with --compatible=3.0 only; `syscall.mmap` has the arguments as variables",
    ),
    (
        &["umodaddr", "umodbuildid"],
        "a handler does not know where a program's files lie in memory; `umodname()` and `usymdata()` name the file",
    ),
    (
        &[
            "NFS_CLIENT",
            "NFS_FH",
            "NFS_I",
            "NFS_PROTO",
            "NFS_SERVER",
            "get_ip",
            "get_ip_from_client",
            "get_prot",
            "get_prot_from_client",
            "stap_NFS_CLIENT",
        ],
        "SystemTap has it for its own aliases; the variables of `nfs.proc.*` have what it gives",
    ),
    (
        &["disk_get_part_start_sect"],
        "SystemTap has it for its own aliases; `p_start_sect` of `ioblock.request` is what it gives",
    ),
    (
        &["ftrace"],
        "no BPF program writes a text of its own to the kernel's trace; `printf` prints, and a command of `system()` can \
         write to /sys/kernel/tracing/trace_marker",
    ),
    (
        &["python_print_backtrace", "python_sprint_backtrace"],
        PYTHON,
    ),
    (
        &["get_devstate_from_req"],
        "SystemTap has it for its own aliases; the variables of `scsi.*` have what it gives",
    ),
    (
        &["regparm"],
        "SystemTap has it for kernels of 32 bits; `int_arg()` and similar functions find arguments without it",
    ),
    (
        &["pnlabel"],
        "`pn()` and `pp()` have the probe point with its label",
    ),
    (
        &["set_returnval"],
        "SystemTap has it with --compatible=4.0 only; in a `.return` probe of a program, `$return = N` sets the result",
    ),
];

/// What messages say of functions that read objects of Python.
const PYTHON: &str = "there are no probes in functions of Python that read its objects; \
    `process(\"python3\").mark(\"function__entry\")` has the function and its line";

/// Names that have the same reason, and the reason.
type Reasons = [(&'static [&'static str], &'static str)];

/// Globals of SystemTap's library that this one does not have, and what messages say of them.
const ABSENT_GLOBALS: &Reasons = &[
    (
        &[
            "qs_dcount",
            "qs_rcount",
            "qs_rlentime",
            "qs_rtime",
            "qs_stime",
            "qs_utime",
            "qs_wcount",
            "qs_wlentime",
            "qs_wtime",
        ],
        "SystemTap has it for its own functions; `qsq_print` and similar functions have what it counts",
    ),
    (
        &["sockstate"],
        "SystemTap has it for its own functions; use `tcp_sockstate_str()`",
    ),
    (
        &["syscall_string_trunc"],
        "SystemTap has it for its own aliases; `-D MAXSTRINGLEN=N` is the length of texts",
    ),
    (
        &["java_backtrace_string"],
        "there are no probes in methods of Java",
    ),
    (
        &["tls_debug", "tls_link_map_name", "tls_module"],
        "SystemTap has it for its own functions of thread-local variables",
    ),
];

/// Why a global of SystemTap's library is not there.
pub(in crate::types) fn reason_of_global(name: &str) -> Option<&'static str> {
    find(ABSENT_GLOBALS, name)
}

/// Why a function of SystemTap's library is not there.
pub(crate) fn reason(function: &str) -> Option<&'static str> {
    let python = ["Py3", "python3_"];
    match python.iter().any(|start| function.starts_with(start)) {
        true => Some(PYTHON),
        false => find(ABSENT, function),
    }
}

fn find(reasons: &Reasons, name: &str) -> Option<&'static str> {
    let row = reasons.iter().find(|(names, _)| names.contains(&name));
    row.map(|(_, why)| *why)
}
