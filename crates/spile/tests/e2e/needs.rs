//! Requirements of cases that not every machine meets. Kernels without kprobes leave cases to
//! virtual machines (`cargo xtask vm --all`), and a virtual machine without `--programs` leaves
//! cases that need more programs than busybox to its host. So no case is left out everywhere.

use std::path::Path;

/// A requirement that cases can state.
struct Need {
    name: &'static str,
    /// Whether the kernel decides: no package provides it, and guests run other kernels.
    of_kernel: bool,
    /// Whether it is met here.
    have: fn() -> bool,
}

const NEEDS: &[Need] = &[
    // Functions of the kernel can be probed.
    Need {
        name: "kprobes",
        of_kernel: true,
        have: || in_vm().is_some() || Path::new("/sys/bus/event_source/devices/kprobe").exists(),
    },
    // A machine that a case may break: a guest.
    Need {
        name: "guest",
        of_kernel: true,
        have: || in_vm().is_some(),
    },
    // Breakpoints that follow the target's processes: Linux 6.13.
    Need {
        name: "followed",
        of_kernel: true,
        have: || spile_kernel::machine::version() >= spile_kernel::machine::Version::new(6, 13),
    },
    // An NFS server and its client, as modules that a guest has for cases.
    Need {
        name: "nfs",
        of_kernel: true,
        have: || in_vm().is_some() && module("nfsd"),
    },
    // Disks as modules that a guest has for cases, and workloads that no other machine should run: they press its
    // keys (tests/workloads/src/bin/rare.rs).
    Need {
        name: "devices",
        of_kernel: true,
        have: || in_vm().is_some() && module("null_blk"),
    },
    Need {
        name: "no kprobes",
        of_kernel: true,
        have: || !Path::new("/sys/bus/event_source/devices/kprobe").exists(),
    },
    // Programs may write to memory of processes, which lockdown forbids. No file of this machine
    // says whether it is locked down.
    Need {
        name: "user writes",
        of_kernel: true,
        have: || in_vm().is_some(),
    },
    Need {
        name: "no user writes",
        of_kernel: true,
        have: || in_vm().is_none() && !Path::new("/sys/bus/event_source/devices/kprobe").exists(),
    },
    // Programs may set registers of processes, which only the kernel itself knows.
    Need {
        name: "register writes",
        of_kernel: true,
        have: sets_registers,
    },
    Need {
        name: "no register writes",
        of_kernel: true,
        have: || !sets_registers(),
    },
    // The kernel's debugging information (`cargo xtask vm --debuginfo`).
    Need {
        name: "debuginfo",
        of_kernel: true,
        have: || in_vm().is_some() && has_debuginfo(),
    },
    Need {
        name: "no debuginfo",
        of_kernel: true,
        have: || !has_debuginfo(),
    },
    // Programs beyond those of busybox: perl, python, gcc, bpftool and the like, and the shared
    // libraries of probed programs (`cargo xtask vm --programs`). Where they are missing, the case
    // fails.
    Need {
        name: "programs",
        of_kernel: false,
        have: || in_vm().is_none() || Path::new("/usr/bin/cc").exists(),
    },
    // PHP, whose Debian package has markers.
    Need {
        name: "php",
        of_kernel: false,
        have: || in_vm().is_none() && Path::new("/usr/bin/php").exists(),
    },
    Need {
        name: "ruby",
        of_kernel: false,
        have: || in_vm().is_none() && Path::new("/usr/bin/ruby").exists(),
    },
    // Programs that `cargo xtask programs` builds: `make test-all` does.
    Need {
        name: "built programs",
        of_kernel: false,
        have: || built().join("bash").exists() && built().join("tcl").exists(),
    },
    // The C library's debugging information, from the package libc6-dbg.
    Need {
        name: "libc debuginfo",
        of_kernel: false,
        have: || Path::new("/usr/lib/debug/.build-id").exists(),
    },
    // Rust's compiler, too large for the image of a virtual machine.
    Need {
        name: "rust",
        of_kernel: false,
        have: || in_vm().is_none(),
    },
    // Go's compiler, too large for such an image as well.
    Need {
        name: "go",
        of_kernel: false,
        have: || in_vm().is_none() && has_go(),
    },
    // The workload program has shared libraries: for a virtual machine it is linked statically.
    Need {
        name: "shared libraries",
        of_kernel: false,
        have: || in_vm().is_none(),
    },
    // The kernel reports the function at returns of functions of programs: Linux 6.6.
    Need {
        name: "function at return",
        of_kernel: true,
        have: || symbol("bpf_uprobe_multi_link_attach"),
    },
    // A reader of scraped metrics: Python's client of Prometheus.
    Need {
        name: "metrics parser",
        of_kernel: false,
        have: || {
            let client = "/usr/lib/python3/dist-packages/prometheus_client";
            in_vm().is_none() || Path::new(client).exists()
        },
    },
    // More than one user, threads and processes of the system, hardware.
    Need {
        name: "system",
        of_kernel: false,
        have: || in_vm().is_none(),
    },
    // Task storage: Linux 7 needs `cmpxchg16b` for it.
    Need {
        name: "thread memory",
        of_kernel: true,
        have: || {
            let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            cpus.contains(" cx16 ") || release() < (7, 0)
        },
    },
    // A connection has a timer of its own for what it sends again: before Linux 6.19.
    Need {
        name: "icsk_retransmit_timer",
        of_kernel: true,
        have: || release() < (6, 19),
    },
    // Programs can disable interrupts: Linux 6.14. An emulated guest with an older kernel skips
    // some hits.
    Need {
        name: "interrupts off",
        of_kernel: true,
        have: || in_vm().is_none() || symbol("bpf_local_irq_save"),
    },
    // Programs can attach to netfilter hooks: Linux 6.4.
    Need {
        name: "netfilter",
        of_kernel: true,
        have: || symbol("bpf_nf_link_attach"),
    },
    // The kernel can run virtual machines, and has the tracepoints of that.
    Need {
        name: "kvm",
        of_kernel: true,
        have: || symbol("__traceiter_kvm_entry"),
    },
    // Control groups of version 2 can be made.
    Need {
        name: "cgroup2",
        of_kernel: true,
        have: || {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            let line = mounts.lines().find(|l| l.contains(" - cgroup2 "));
            let location = line.and_then(|l| l.split(' ').nth(4));
            let made = location.map(|p| Path::new(p).join(format!("spile-{}", std::process::id())));
            made.is_some_and(|p| {
                std::fs::create_dir(&p)
                    .and_then(|()| std::fs::remove_dir(&p))
                    .is_ok()
            })
        },
    },
    // Programs can attach to LSM hooks, or the kernel refuses that.
    Need {
        name: "lsm",
        of_kernel: true,
        have: || in_vm().is_some(),
    },
    Need {
        name: "no lsm",
        of_kernel: true,
        have: || in_vm().is_none(),
    },
];

/// Where `cargo xtask programs` builds programs.
pub(crate) fn built() -> std::path::PathBuf {
    crate::root().join("target/programs")
}

fn sets_registers() -> bool {
    spile_kernel::features::has(spile_kernel::features::Feature::WriteRegisters).is_available()
}

/// Whether the running kernel's debugging information is installed.
fn has_debuginfo() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let file = format!("/usr/lib/debug/boot/vmlinux-{}", release.trim());
    Path::new(&file).exists()
}

/// The first two numbers of the kernel's release.
fn release() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse().ok());
    let numbers = (numbers.next()).zip(numbers.next());
    numbers.unwrap_or((u32::MAX, 0))
}

fn has_go() -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut folders = path.split(':').chain(["/usr/local/go/bin"]);
    folders.any(|folder| Path::new(folder).join("go").is_file())
}

/// Whether the kernel has a function of that name.
fn symbol(name: &str) -> bool {
    let all = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    all.lines().any(|l| l.split(' ').nth(2) == Some(name))
}

/// Whether a case of a virtual machine can load that module.
fn module(name: &str) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let folder = Path::new("/usr/lib/modules").join(release.trim());
    folder.join(format!("{name}.ko")).exists()
}

/// In a virtual machine of `cargo xtask vm`: the cases to run, `short` or `all`.
fn in_vm() -> Option<String> {
    std::env::var("SPILE_VM").ok()
}

/// Whether this run has the long cases.
pub(crate) fn all_cases() -> bool {
    in_vm().is_some() || std::env::var_os("SPILE_LONG").is_some()
}

/// Whether a case belongs to this run: the short one of a virtual machine consists of marked cases.
pub(crate) fn in_this_run(vm: bool) -> bool {
    vm || in_vm().as_deref() != Some("short")
}

/// A requirement that is not met here.
#[derive(Clone)]
pub(crate) struct Missing {
    name: &'static str,
    of_kernel: bool,
}

impl Missing {
    /// Ends the running case.
    pub(crate) fn skip(&self) -> ! {
        match in_vm().is_some() || self.of_kernel {
            true => spile_testing::skip_for_guest(self.name),
            false => spile_testing::skip!("needs {}", self.name),
        }
    }
}

/// The first of these requirements that is not met here.
pub(crate) fn missing(needs: &[String]) -> Result<Option<Missing>, String> {
    let mut missing = None;
    for name in needs {
        let need = NEEDS.iter().find(|need| need.name == name);
        let need = need.ok_or_else(|| format!("no such need: {name}"))?;
        if missing.is_none() && !(need.have)() {
            missing = Some(Missing {
                name: need.name,
                of_kernel: need.of_kernel,
            });
        }
    }
    Ok(missing)
}
