//! A small machine for tests: a few types, tracepoints, system calls and events, the same
//! everywhere.

use std::sync::Arc;

use spile_ir::{HostKind, NrSet, Space, WatchOwner};
use spile_syscalls::{ArgKind, Syscall, SyscallArg, fake};

use spile_sema::ctype::CTy;
use spile_sema::facts::*;

/// `long`
pub const LONG: CTypeId = CTypeId::kernel(1);
/// `int`
pub const INT: CTypeId = CTypeId::kernel(2);
/// `struct task_struct`
pub const TASK: CTypeId = CTypeId::kernel(3);
/// `struct task_struct *`
pub const TASK_PTR: CTypeId = CTypeId::kernel(4);
/// `char`
pub const CHAR: CTypeId = CTypeId::kernel(5);
/// `char [16]`
pub const COMM: CTypeId = CTypeId::kernel(6);
/// `unsigned int`
pub const UINT: CTypeId = CTypeId::kernel(7);
/// `_Bool`
pub const BOOL: CTypeId = CTypeId::kernel(8);
/// `struct list_head`
pub const LIST: CTypeId = CTypeId::kernel(9);
/// `struct list_head *`
pub const LIST_PTR: CTypeId = CTypeId::kernel(10);
/// `struct task_struct *[4]`
pub const TASKS: CTypeId = CTypeId::kernel(11);
/// A structure that is only declared.
pub const FWD: CTypeId = CTypeId::kernel(12);
/// A pointer to [`FWD`].
pub const FWD_PTR: CTypeId = CTypeId::kernel(13);
/// `enum state`
pub const STATE: CTypeId = CTypeId::kernel(14);
/// `int &`
pub const INT_REF: CTypeId = CTypeId::kernel(15);
/// `struct task_struct *(&)[4]`
pub const TASKS_REF: CTypeId = CTypeId::kernel(16);
/// `struct task_struct *&`
pub const TASK_PTR_REF: CTypeId = CTypeId::kernel(17);
/// The `int` of another unit than that of [`INT`].
pub const TWIN: CTypeId = CTypeId::kernel(18);
/// A structure with every member. Each is an [`ANY_PTR`].
pub const ANY: CTypeId = CTypeId::kernel(19);
/// A pointer to [`ANY`].
pub const ANY_PTR: CTypeId = CTypeId::kernel(20);

/// The programs of the machine: none, or those of a test.
pub trait FakeCode {
    /// The modules that a query matches, or why there are none.
    fn modules(&self, query: &ModuleQuery) -> Result<Vec<FoundModule>, String>;
    /// The locations that a query matches, or why they are unknown.
    fn locations(&self, query: &CodeQuery) -> Result<Vec<FoundLocation>, String>;
    /// The variables at a location, or at its return.
    fn variables(&self, location: u64, ret: bool) -> Vec<Variable>;
    /// A global variable.
    fn global(&self, name: &str) -> Option<Variable>;
    /// For a machine where every name exists: the arguments of a tracepoint or an LSM hook, by the text of its
    /// probe point.
    fn arguments(&self, _point: &str) -> Vec<TracepointArg> {
        Vec::new()
    }
}

/// The machine.
pub struct FakeMachine {
    calls: Vec<Syscall>,
    code: Option<Box<dyn FakeCode>>,
    /// Whether every tracepoint, hook, type, member and constant exists.
    every_name: bool,
    host: HostKind,
    target: bool,
}

impl Default for FakeMachine {
    fn default() -> Self {
        FakeMachine::new()
    }
}

impl FakeMachine {
    /// The machine with these programs.
    pub fn with_code(code: impl FakeCode + 'static) -> FakeMachine {
        FakeMachine {
            code: Some(Box::new(code)),
            ..FakeMachine::new()
        }
    }

    /// The machine where every name exists, with these programs and the system calls of the host.
    pub fn with_every_name(code: impl FakeCode + 'static) -> FakeMachine {
        FakeMachine {
            calls: spile_syscalls::of(spile_abi::HOST).to_vec(),
            code: Some(Box::new(code)),
            every_name: true,
            ..FakeMachine::new()
        }
    }

    /// The same machine for a session that runs in its target's processes.
    pub fn in_process(self) -> FakeMachine {
        FakeMachine {
            host: HostKind::Process,
            target: true,
            ..self
        }
    }

    /// The same machine for a session without a target.
    pub fn without_target(self) -> FakeMachine {
        FakeMachine {
            target: false,
            ..self
        }
    }

    /// The arguments of the tracepoint or hook of a probe point, where every name exists.
    fn any_arguments(&self, point: &str) -> Option<Vec<TracepointArg>> {
        let code = self.code.as_ref().filter(|_| self.every_name)?;
        Some(code.arguments(point))
    }

    /// The machine, with a few system calls of both tables.
    pub fn new() -> FakeMachine {
        use ArgKind::*;
        let [int, long, u32_, ulong] = [Int(32), Int(64), Uint(32), Uint(64)];
        let c = NrSet::COMPAT;
        let read = |count| {
            [
                arg("fd", "fd", int),
                arg("buf_uaddr", "buf", Ptr),
                arg("count", "count", count),
            ]
        };
        let open = [
            arg("filename", "filename", Str),
            arg("flags", "flags", int),
            arg("mode", "mode", u32_),
        ];
        let kill = [arg("pid", "pid", int), arg("sig", "sig", Signal)];
        FakeMachine {
            code: None,
            every_name: false,
            host: HostKind::Kernel,
            target: false,
            calls: vec![
                call(0, "read", "read", &read(ulong)),
                call(1, "write", "write", &read(ulong)),
                call(2, "open", "open", &open),
                call(3, "close", "close", &[arg("fd", "fd", int)]),
                call(
                    8,
                    "lseek",
                    "lseek",
                    &[arg("fildes", "fd", int), arg("offset", "offset", long)],
                ),
                call(39, "getpid", "getpid", &[]),
                call(
                    59,
                    "execve",
                    "execve",
                    &[
                        arg("filename", "filename", Str),
                        arg("argv_str", "argv", Argv),
                    ],
                ),
                call(62, "kill", "kill", &kill),
                call(
                    262,
                    "newfstatat",
                    "fstatat",
                    &[arg("dirfd", "dfd", int), arg("path", "filename", Str)],
                ),
                call(c + 3, "read", "read", &read(u32_)),
                call(c + 4, "write", "write", &read(u32_)),
                call(c + 5, "open", "open", &open),
                call(
                    c + 300,
                    "fstatat64",
                    "fstatat",
                    &[arg("dirfd", "dfd", int), arg("path", "filename", Str)],
                ),
            ],
        }
    }
}

/// An argument, in the first word.
pub const fn arg(name: &'static str, kernel_name: &'static str, kind: ArgKind) -> SyscallArg {
    SyscallArg {
        kernel_name,
        ..fake::arg(0, name, kind)
    }
}

/// A system call with arguments of one word each. They stay for the rest of the process.
pub fn call(nr: u32, name: &'static str, probe: &'static str, args: &[SyscallArg]) -> Syscall {
    let args = (0..)
        .zip(args)
        .map(|(word, arg)| SyscallArg { word, ..*arg });
    Syscall {
        probe,
        point: probe,
        ..fake::call(nr, name, args.collect::<Vec<SyscallArg>>().leak())
    }
}

const TRACEPOINTS: &[(&str, &str)] = &[
    ("bare_tp", ""),
    ("mm_vmscan_write_folio", "vmscan"),
    ("numbers", "test"),
    ("sched_process_exit", "sched"),
    ("sched_process_fork", "sched"),
    ("sched_switch", "sched"),
    ("signal_generate", "signal"),
];

impl TracepointFacts for FakeMachine {
    fn tracepoints(&self, glob: &str) -> Vec<Arc<str>> {
        if self.every_name {
            return vec![glob.into()];
        }
        let fits = |n: &&str| spile_glob::matches(glob, n);
        TRACEPOINTS
            .iter()
            .map(|(n, _)| *n)
            .filter(fits)
            .map(Into::into)
            .collect()
    }
    fn tracepoint_system(&self, name: &str) -> Option<Arc<str>> {
        TRACEPOINTS
            .iter()
            .find(|(n, s)| *n == name && !s.is_empty())
            .map(|(_, s)| (*s).into())
    }
    fn tracepoint_args(&self, name: &str) -> Option<Vec<TracepointArg>> {
        let arg = |name: &str, ty| TracepointArg {
            name: name.into(),
            ty,
        };
        match name {
            _ if self.every_name => self.any_arguments(&format!("kernel.trace(\"{name}\")")),
            "sched_switch" => Some(vec![
                arg("preempt", BOOL),
                arg("prev", TASK_PTR),
                arg("next", TASK_PTR),
                arg("prev_state", UINT),
            ]),
            "numbers" => Some(vec![arg("a", LONG), arg("b", LONG)]),
            "sched_process_fork" => Some(vec![arg("parent", TASK_PTR), arg("child", TASK_PTR)]),
            "sched_process_exit" => Some(vec![arg("p", TASK_PTR)]),
            _ => None,
        }
    }
    fn trace_record(&self, name: &str, _: Option<&str>) -> Option<TraceRecord> {
        if name != "sched_switch" || self.every_name {
            return None;
        }
        let at = |offset| {
            let add = LocOp::Bin(spile_ir::BinOp::Add);
            vec![LocOp::Record, LocOp::Const(offset), add]
        };
        let field = |name: &str, ty, loc| RecordField {
            name: name.into(),
            ty,
            loc,
        };
        let char = CTy::id(CHAR);
        Some(TraceRecord {
            event: spile_ir::TraceEvent {
                system: "sched".into(),
                name: name.into(),
                id: 313,
            },
            fields: vec![
                field("prev_state", CTy::LONG, VarLocation::Address(at(8))),
                field("next_comm", char.pointer(), VarLocation::Value(at(16))),
                field("next_pid", CTy::int(4, true), VarLocation::Address(at(32))),
            ],
        })
    }
    fn module_tracepoints(&self, _: &str, _: &str) -> Vec<Arc<str>> {
        Vec::new()
    }
    fn has_subsystems(&self) -> bool {
        true
    }
    fn lsm_hooks(&self, glob: &str) -> Vec<Arc<str>> {
        self.every_name.then(|| glob.into()).into_iter().collect()
    }
    fn lsm_hook(&self, name: &str) -> Option<LsmHook> {
        let args = self.any_arguments(&format!("lsm(\"{name}\")"))?;
        let decides = true;
        Some(LsmHook { args, decides })
    }
}

impl TypeFacts for FakeMachine {
    fn ctype(&self, id: CTypeId) -> CType {
        match id {
            LONG => CType::Int {
                size: 8,
                signed: true,
                char: false,
            },
            INT | TWIN => CType::Int {
                size: 4,
                signed: true,
                char: false,
            },
            UINT => CType::Int {
                size: 4,
                signed: false,
                char: false,
            },
            BOOL => CType::Int {
                size: 1,
                signed: false,
                char: false,
            },
            CHAR => CType::Int {
                size: 1,
                signed: true,
                char: true,
            },
            STATE => CType::Enum {
                size: 4,
                signed: false,
            },
            TASK => CType::Struct {
                name: "task_struct".into(),
                size: 128,
                union: false,
            },
            LIST => CType::Struct {
                name: "list_head".into(),
                size: 16,
                union: false,
            },
            ANY => CType::Struct {
                name: "any".into(),
                size: 4096,
                union: false,
            },
            ANY_PTR => CType::Ptr(ANY),
            TASK_PTR => CType::Ptr(TASK),
            LIST_PTR => CType::Ptr(LIST),
            INT_REF => CType::Ref(INT),
            TASKS_REF => CType::Ref(TASKS),
            TASK_PTR_REF => CType::Ref(TASK_PTR),
            FWD_PTR => CType::Ptr(FWD),
            COMM => CType::Array {
                elem: CHAR,
                count: 16,
            },
            TASKS => CType::Array {
                elem: TASK_PTR,
                count: 4,
            },
            _ => CType::Unknown,
        }
    }
    fn c_name(&self, id: CTypeId) -> String {
        let name = match id {
            LONG => "long int",
            INT | TWIN => "int",
            UINT => "unsigned int",
            BOOL => "_Bool",
            CHAR => "char",
            TASK => "struct task_struct",
            TASK_PTR => "struct task_struct *",
            LIST => "struct list_head",
            LIST_PTR => "struct list_head *",
            COMM => "char[16]",
            TASKS => "struct task_struct *[4]",
            FWD_PTR => "struct secret *",
            STATE => "enum state",
            ANY => "struct any",
            ANY_PTR => "struct any *",
            _ => "struct secret",
        };
        name.to_owned()
    }
    fn module_type(&self, module: &ProbeModule, name: &str) -> Option<CTypeId> {
        match name {
            _ if *module != ProbeModule::Kernel => None,
            _ if self.every_name => Some(ANY),
            "task_struct" | "struct task_struct" => Some(TASK),
            "list_head" | "struct list_head" => Some(LIST),
            "pid_t" => Some(INT),
            "enum state" => Some(STATE),
            _ => None,
        }
    }
    fn member(&self, id: CTypeId, name: &str) -> Option<Member> {
        if id == ANY {
            return Some(Member {
                name: name.into(),
                bit_offset: 64,
                bit_size: 0,
                ty: ANY_PTR,
            });
        }
        self.members(id).into_iter().find(|m| &*m.name == name)
    }
    fn members(&self, id: CTypeId) -> Vec<Member> {
        let m = |name: &str, bit_offset, bit_size, ty| Member {
            name: name.into(),
            bit_offset,
            bit_size,
            ty,
        };
        match id {
            TASK => vec![
                m("pid", 0, 0, INT),
                m("flags", 32, 3, UINT),
                m("in_iowait", 37, 1, UINT),
                m("wide", 60, 10, INT),
                m("parent", 128, 0, TASK_PTR),
                m("comm", 192, 0, COMM),
                m("tasks", 320, 0, LIST),
                m("peers", 448, 0, TASKS),
                m("secret", 704, 0, FWD_PTR),
            ],
            LIST => vec![m("next", 0, 0, LIST_PTR), m("prev", 64, 0, LIST_PTR)],
            _ => Vec::new(),
        }
    }
    fn enum_constant(&self, name: &str) -> Option<i64> {
        let states = self.enum_values(STATE);
        let value = states.iter().find(|(n, _)| &**n == name).map(|(_, v)| *v);
        value.or(self.every_name.then_some(1))
    }
    fn enum_values(&self, id: CTypeId) -> Vec<(Arc<str>, i64)> {
        match id {
            STATE => vec![("RUNNING".into(), 0), ("STOPPED".into(), 2)],
            _ => Vec::new(),
        }
    }
    fn type_home(&self, _: CTypeId) -> String {
        "the kernel".into()
    }
    fn type_space(&self, _: CTypeId) -> Space {
        Space::Kernel
    }
    fn similar_type(&self, _: &ProbeModule, _: &str) -> Option<String> {
        None
    }
    fn variants(&self, _: CTypeId) -> Option<Variants> {
        None
    }
}

impl CodeFacts for FakeMachine {
    fn modules(&self, query: &ModuleQuery) -> Result<Vec<FoundModule>, String> {
        match &self.code {
            Some(code) => code.modules(query),
            None => Err("nothing is known about programs here".into()),
        }
    }
    fn locations(&self, _: &ProbeModule, query: &CodeQuery) -> Result<Vec<FoundLocation>, String> {
        let code = self.code.as_ref();
        code.map_or_else(|| Ok(Vec::new()), |code| code.locations(query))
    }
    fn location_variables(
        &self,
        of: &ProbeModule,
        location: u64,
        ret: bool,
    ) -> Result<Vec<Variable>, String> {
        match &self.code {
            Some(code) => Ok(code.variables(location, ret)),
            None => Err(format!("{of} has no debugging information")),
        }
    }
    fn module_variable(&self, _: &ProbeModule, name: &str, _: Option<&str>) -> Option<Variable> {
        self.code.as_ref()?.global(name)
    }
    fn variable(&self, name: &str) -> Option<KernelVar> {
        (name == "jiffies").then_some(KernelVar {
            address: 0x1000,
            ty: LONG,
            per_cpu: None,
        })
    }
    fn location_locals(
        &self,
        _: &ProbeModule,
        _: &FoundLocation,
        _: bool,
    ) -> Result<Vec<Variable>, String> {
        Ok(Vec::new())
    }
    fn data_location(&self, _: &WatchOwner, name: &str) -> Result<DataLocation, String> {
        Err(format!("nothing is known about `{name}`"))
    }
    fn no_debuginfo(&self, _: &ProbeModule) -> Option<String> {
        None
    }
    fn is_stripped(&self, _: &ProbeModule) -> bool {
        false
    }
    fn file_identity(&self, _: &str) -> Option<FileIdentity> {
        None
    }
}

impl MachineFacts for FakeMachine {
    fn syscalls(&self) -> &[Syscall] {
        &self.calls
    }
    fn perf_events(&self) -> Vec<NamedPerfEvent> {
        let e = |group, name: &str, ty, config| NamedPerfEvent {
            group,
            name: name.into(),
            ty,
            config,
        };
        vec![
            e("sw", "cpu_clock", 1, 0),
            e("sw", "page_faults", 1, 2),
            e("hw", "cpu_cycles", 0, 0),
        ]
    }
    fn hz(&self) -> u64 {
        250
    }
    fn arch(&self) -> &str {
        "x86_64"
    }
    fn release(&self) -> &str {
        "6.12.0"
    }
    fn probes_kernel(&self) -> bool {
        true
    }
    fn kernel_return_stack(&self) -> bool {
        true
    }
}

impl SessionFacts for FakeMachine {
    fn host(&self) -> HostKind {
        self.host
    }
    fn has_target(&self) -> bool {
        self.target
    }
    fn process_number(&self, pid: u32) -> u32 {
        pid
    }
    fn take_warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
