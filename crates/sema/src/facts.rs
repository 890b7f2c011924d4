//! Facts about the machine that analysis needs: tracepoints, C types, system calls, perf events.
//!
//! Analysis does no I/O. The command line implements [`Facts`] over the running kernel, tests over
//! small tables (`crate::fake`). Every query is answered lazily; an implementation caches expensive
//! answers. Queries for names that do not exist return `None` or an empty list, never an error.

use std::sync::Arc;

use spile_ir::{HostKind, Space, WatchOwner};
use spile_syscalls::Syscall;

use crate::ctype::CTy;

pub use code::*;

mod code;

/// The numbering that a type's number belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TypeHome {
    /// No numbering: types that need no description, see [`LONG`].
    Builtin,
    /// The kernel's own type information, which has the types that its modules share with it.
    Kernel,
    /// The type information of a kernel module. The implementation of [`Facts`] numbers the
    /// modules.
    KernelModule(u32),
    /// The debugging information of a file. The implementation of [`Facts`] numbers the files.
    File(u32),
}

/// A C type, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CTypeId {
    /// The numbering.
    pub home: TypeHome,
    /// The number there; 0 is `void`.
    pub number: u32,
}

impl CTypeId {
    /// `void`, which belongs to no numbering.
    pub const VOID: CTypeId = CTypeId {
        home: TypeHome::Builtin,
        number: 0,
    };

    /// A type of the kernel.
    pub const fn kernel(number: u32) -> CTypeId {
        CTypeId::new(TypeHome::Kernel, number)
    }

    /// A type by its number in a home.
    pub const fn new(home: TypeHome, number: u32) -> CTypeId {
        match number {
            0 => CTypeId::VOID,
            _ => CTypeId { home, number },
        }
    }
}

/// A 64-bit signed integer: arguments of markers.
pub const LONG: CTypeId = CTypeId {
    home: TypeHome::Builtin,
    number: 1,
};

/// A C type with `typedef`, `const`, `volatile`, `restrict` and type tags removed.
pub type CType = spile_ctype::CType<CTypeId>;

/// A member of a structure, seen from the structure that was asked. Its name is never empty in answers
/// to [`TypeFacts::members`] (inner anonymous structures are flattened).
pub type Member = spile_ctype::Member<CTypeId>;
/// The variants of a structure.
pub type Variants = spile_ctype::Variants<CTypeId>;

/// An argument of a tracepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracepointArg {
    /// Its name in the kernel's source.
    pub name: Arc<str>,
    /// Its type.
    pub ty: CTypeId,
}

/// A trace event, and the fields of the record that the kernel writes for it.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceRecord {
    /// The event.
    pub event: spile_ir::TraceEvent,
    /// The fields in order.
    pub fields: Vec<RecordField>,
}

/// A field of a trace event's record.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordField {
    /// Its name.
    pub name: Arc<str>,
    /// Its type. An array is the address of its first element.
    pub ty: CTy,
    /// Its location.
    pub loc: VarLocation,
}

/// A named perf event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPerfEvent {
    /// `sw`, `hw` or `cache`: the second component of the probe point.
    pub group: &'static str,
    /// Name as in `perf.sw.NAME`.
    pub name: Arc<str>,
    /// `perf_event_attr.type`
    pub ty: u32,
    /// `perf_event_attr.config`
    pub config: u64,
}

/// A variable of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelVar {
    /// Its address in the running kernel.
    pub address: u64,
    /// Its type.
    pub ty: CTypeId,
    /// For a per-CPU variable: the address of the kernel's table of offsets (`__per_cpu_offset`).
    pub per_cpu: Option<u64>,
}

impl KernelVar {
    /// Its location; for a per-CPU variable, on the current processor.
    pub fn location(&self) -> Vec<LocOp> {
        let add = LocOp::Bin(spile_ir::BinOp::Add);
        let mut ops = vec![LocOp::Const(self.address.cast_signed())];
        if let Some(table) = self.per_cpu {
            ops.extend([
                LocOp::Cpu,
                LocOp::Const(8),
                LocOp::Bin(spile_ir::BinOp::Mul),
                LocOp::Const(table.cast_signed()),
                add,
                LocOp::Load {
                    size: 8,
                    signed: false,
                },
                add,
            ]);
        }
        ops
    }
}

/// An LSM hook that programs can attach to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LsmHook {
    /// Its arguments.
    pub args: Vec<TracepointArg>,
    /// Whether it returns a decision: 0, or a negative error number.
    pub decides: bool,
}

/// The machine that a script is compiled for.
pub trait Facts: TracepointFacts + TypeFacts + CodeFacts + MachineFacts + SessionFacts {}

impl<T: TracepointFacts + TypeFacts + CodeFacts + MachineFacts + SessionFacts> Facts for T {}

/// Tracepoints and LSM hooks of the kernel.
pub trait TracepointFacts {
    /// Names of tracepoints without their subsystem (`sched_switch`) that match a glob of `*`, `?`
    /// and `[...]`, sorted. A glob without wildcards asks whether one exists.
    fn tracepoints(&self, glob: &str) -> Vec<Arc<str>>;
    /// Like [`TracepointFacts::tracepoints`], for those of a kernel module.
    fn module_tracepoints(&self, module: &str, glob: &str) -> Vec<Arc<str>>;
    /// The subsystem of a tracepoint (`sched`), if known.
    fn tracepoint_system(&self, name: &str) -> Option<Arc<str>>;
    /// Whether a tracepoint belongs to that subsystem; cheaper than to look the subsystem up.
    fn tracepoint_is_of(&self, name: &str, system: &str) -> bool {
        self.tracepoint_system(name).as_deref() == Some(system)
    }
    /// Whether subsystems are known; then a tracepoint without one has none.
    fn has_subsystems(&self) -> bool;
    /// The arguments of a tracepoint; `None` if there is no such tracepoint or its arguments are
    /// unknown.
    fn tracepoint_args(&self, name: &str) -> Option<Vec<TracepointArg>>;
    /// The record of a tracepoint; `None` where tracefs has none.
    fn trace_record(&self, name: &str, system: Option<&str>) -> Option<TraceRecord>;
    /// Names of LSM hooks that programs can attach to and that match a glob, sorted.
    fn lsm_hooks(&self, glob: &str) -> Vec<Arc<str>>;
    /// The LSM hook of that name.
    fn lsm_hook(&self, name: &str) -> Option<LsmHook>;
}

/// C types of the kernel, its modules and programs.
pub trait TypeFacts {
    /// A type without typedefs and qualifiers.
    fn ctype(&self, id: CTypeId) -> CType;
    /// The type's name in C, typedefs kept: `struct task_struct *`.
    fn c_name(&self, id: CTypeId) -> String;
    /// The owner of a type, for messages: a file, or the kernel.
    fn type_home(&self, id: CTypeId) -> String;
    /// The memory that objects of a type are in.
    fn type_space(&self, id: CTypeId) -> Space;
    /// A type of a module by name: `struct x`, `union x`, `enum x`, a typedef, a basic type, or a
    /// bare tag.
    fn module_type(&self, module: &ProbeModule, name: &str) -> Option<CTypeId>;
    /// A type of the kernel by name.
    fn type_by_name(&self, name: &str) -> Option<CTypeId> {
        self.module_type(&ProbeModule::Kernel, name)
    }
    /// The type of a module whose name is most similar to that of a type that does not exist.
    fn similar_type(&self, module: &ProbeModule, name: &str) -> Option<String>;
    /// A member by name, inner anonymous structures included.
    fn member(&self, id: CTypeId, name: &str) -> Option<Member> {
        self.members(id).into_iter().find(|m| &*m.name == name)
    }
    /// All members in order, inner anonymous structures flattened; empty for other types.
    fn members(&self, id: CTypeId) -> Vec<Member>;
    /// The variants of a structure that consists of them alone; `None` for any other type.
    fn variants(&self, id: CTypeId) -> Option<Variants>;
    /// The value of an enumeration constant.
    fn enum_constant(&self, name: &str) -> Option<i64>;
    /// The constants of an enumeration type; empty for other types.
    fn enum_values(&self, id: CTypeId) -> Vec<(Arc<str>, i64)>;
}

/// Modules, locations in their code, and variables.
pub trait CodeFacts {
    /// The modules that a query matches.
    ///
    /// # Errors
    /// Why there are none, for a message: `there is no process 12`.
    fn modules(&self, query: &ModuleQuery) -> Result<Vec<FoundModule>, String>;
    /// The locations in a module that a query matches, by name. Empty: there are none.
    ///
    /// # Errors
    /// Why that is unknown, for a message: `/bin/x has no line numbers`.
    fn locations(
        &self,
        module: &ProbeModule,
        query: &CodeQuery,
    ) -> Result<Vec<FoundLocation>, String>;
    /// The variables at a location, by [`FoundLocation::id`]: parameters first, in order. With `ret` they
    /// are those at the return of the function, including the return value; the locations of the
    /// others are those at its entry.
    ///
    /// # Errors
    /// Why they are unknown, for a message: `/bin/x has no debugging information`.
    fn location_variables(
        &self,
        module: &ProbeModule,
        location: u64,
        ret: bool,
    ) -> Result<Vec<Variable>, String>;
    /// Variables of a function that [`CodeFacts::location_variables`] leaves out because they are
    /// expensive to find: for handlers that mention variables that it did not list.
    ///
    /// # Errors
    /// Why they are unknown, for a message.
    fn location_locals(
        &self,
        module: &ProbeModule,
        location: &FoundLocation,
        ret: bool,
    ) -> Result<Vec<Variable>, String>;
    /// A global variable of a module; `file` is the end of the path of its source file.
    fn module_variable(
        &self,
        module: &ProbeModule,
        name: &str,
        file: Option<&str>,
    ) -> Option<Variable>;
    /// A variable of the kernel with known address and type.
    fn variable(&self, name: &str) -> Option<KernelVar>;
    /// A variable of the kernel, of a process, or of a program, by its symbol.
    ///
    /// # Errors
    /// Why it is unavailable, for a message: `the kernel has no variable x`.
    fn data_location(&self, owner: &WatchOwner, name: &str) -> Result<DataLocation, String>;
    /// Why a module lacks debugging information, if it should have some.
    fn no_debuginfo(&self, module: &ProbeModule) -> Option<String>;
    /// Whether a program has neither debugging information nor symbols of its own functions.
    fn is_stripped(&self, module: &ProbeModule) -> bool;
    /// The kernel's identity of a file; symbolic links are followed.
    fn file_identity(&self, path: &str) -> Option<FileIdentity>;
}

/// The processor and the kernel.
pub trait MachineFacts {
    /// The system calls of both tables, native ones first.
    fn syscalls(&self) -> &[Syscall];
    /// The named perf events.
    fn perf_events(&self) -> Vec<NamedPerfEvent>;
    /// Timer interrupts a second (CONFIG_HZ).
    fn hz(&self) -> u64;
    /// The architecture in the spelling of the language's `arch` condition (`x86_64`).
    fn arch(&self) -> &str;
    /// `uname -r`
    fn release(&self) -> &str;
    /// Whether the running kernel supports function probes at all.
    fn probes_kernel(&self) -> bool;
    /// Whether handlers of kernel functions' returns see the stack pointer that the function
    /// leaves, if functions are attached through ftrace.
    fn kernel_return_stack(&self) -> bool;
}

/// The session that the script is compiled for.
pub trait SessionFacts {
    /// What runs the session's compiled handlers.
    fn host(&self) -> HostKind;
    /// Whether the session has a target, from `-c` or `-x`.
    fn has_target(&self) -> bool;
    /// The process id that handlers see for a process; the two differ in a PID namespace.
    fn process_number(&self, pid: u32) -> u32;
    /// What a user should know about the answers of [`CodeFacts::modules`] and
    /// [`CodeFacts::locations`] since the last call.
    fn take_warnings(&self) -> Vec<String>;
}
