//! What analysis asks about the machine: tracepoints, C types, system calls, perf events.
//!
//! Analysis does no I/O. The command line implements [`Facts`] over the running kernel, tests
//! over small tables (`crate::fake`). Every question is answered lazily; an
//! implementation caches what is dear. Questions about names that do not exist answer `None`
//! or an empty list, never an error.

use std::sync::Arc;

use spile_ir::{Space, WatchOf};

pub use code::*;

mod code;

/// Whose numbers a type's number is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TypeHome {
    /// Of nobody's: types that need no description, see [`LONG`].
    Builtin,
    /// The kernel's own type information, which has the types that its modules share with it.
    Kernel,
    /// That of a module of the kernel, which whoever implements [`Facts`] numbers.
    KernelModule(u32),
    /// The debugging information of a file, which whoever implements [`Facts`] numbers.
    File(u32),
}

/// A C type, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CTypeId {
    /// Whose number it is.
    pub home: TypeHome,
    /// The number there; 0 is `void`.
    pub number: u32,
}

impl CTypeId {
    /// `void`, which is nobody's.
    pub const VOID: CTypeId = CTypeId {
        home: TypeHome::Builtin,
        number: 0,
    };

    /// A type of the kernel.
    pub const fn kernel(number: u32) -> CTypeId {
        CTypeId::of(TypeHome::Kernel, number)
    }

    /// A type by its number in a home.
    pub const fn of(home: TypeHome, number: u32) -> CTypeId {
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
/// to [`Facts::members`] (inner anonymous structures are flattened).
pub type Member = spile_ctype::Member<CTypeId>;

/// An argument of a tracepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracepointArg {
    /// Its name in the kernel's source.
    pub name: Arc<str>,
    /// Its type.
    pub ty: CTypeId,
}

/// A system call of one table (native or 32-bit).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysCall {
    /// Its number as in [`spile_ir::NrSet`]: the native one, or `NrSet::COMPAT` plus the
    /// 32-bit one.
    pub nr: u32,
    /// The kernel's name of it (`newfstatat`), which `syscall_any` reports.
    pub name: &'static str,
    /// Name as in `syscall.NAME` and in that probe's `name` (`fstatat`).
    pub probe: &'static str,
    /// The name of the point that it is a hit of, too (`pipe` for `pipe2`).
    pub point: &'static str,
    /// Its arguments in order.
    pub args: Vec<SysArg>,
}

/// An argument of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SysArg {
    /// The variable that scripts read (`buf_uaddr`).
    pub var: &'static str,
    /// The kernel's name of it (`buf`), for `$buf`.
    pub kernel: &'static str,
    /// Which argument word it is in, from 0.
    pub word: u8,
    /// What it is.
    pub kind: SysArgKind,
    /// `argstr` shows it as more than a number.
    pub text: bool,
}

/// What an argument of a system call is, as far as its value in a script goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SysArgKind {
    /// An integer of 1, 2, 4 or 8 bytes.
    Int {
        /// Bytes.
        size: u8,
        /// Sign.
        signed: bool,
    },
    /// The number of a signal.
    Signal,
    /// An address in user space; the value is the address.
    Ptr,
    /// The address of a string in user space; the value is the quoted string.
    Str,
    /// The address of a vector of strings in user space, which only `argstr` shows.
    StrVec,
    /// A 64-bit number in this 32-bit word (low) and the next.
    Pair,
}

impl SysCall {
    /// Whether it belongs to the table of 32-bit programs.
    pub fn is_compat(&self) -> bool {
        self.nr >= spile_ir::NrSet::COMPAT
    }
}

/// A perf event that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfEvent {
    /// `sw`, `hw` or `cache`: the second component of the probe point.
    pub group: &'static str,
    /// Name as in `perf.sw.NAME`.
    pub name: Arc<str>,
    /// `perf_event_attr.type`
    pub ty: u32,
    /// `perf_event_attr.config`
    pub config: u64,
}

/// What is known about a variable of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelVar {
    /// Its address in the running kernel.
    pub address: u64,
    /// Its type.
    pub ty: CTypeId,
    /// Each processor has its own: the address of the kernel's table of what is to be added on
    /// which processor (`__per_cpu_offset`).
    pub per_cpu: Option<u64>,
}

impl KernelVar {
    /// Where it is; on the current processor, if each has its own.
    pub fn location(&self) -> Vec<LocOp> {
        let add = LocOp::Bin(spile_ir::BinOp::Add);
        let mut ops = vec![LocOp::Const(self.address as i64)];
        if let Some(table) = self.per_cpu {
            ops.extend([
                LocOp::Cpu,
                LocOp::Const(8),
                LocOp::Bin(spile_ir::BinOp::Mul),
                LocOp::Const(table as i64),
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

/// The machine that a script is compiled for.
pub trait Facts {
    /// Names of tracepoints without their system (`sched_switch`) that match a glob of `*`,
    /// `?` and `[...]`, sorted. A pattern without these asks whether one exists.
    fn tracepoints(&self, glob: &str) -> Vec<Arc<str>>;
    /// As [`Facts::tracepoints`], those of a module of the kernel.
    fn module_tracepoints(&self, module: &str, glob: &str) -> Vec<Arc<str>> {
        let _ = (module, glob);
        Vec::new()
    }
    /// The system of a tracepoint (`sched`), where known.
    fn tracepoint_system(&self, name: &str) -> Option<Arc<str>>;
    /// Whether a tracepoint is of that system, which is cheaper to find out than of which.
    fn tracepoint_is_of(&self, name: &str, system: &str) -> bool {
        self.tracepoint_system(name).as_deref() == Some(system)
    }
    /// Whether the systems of tracepoints are known: one without is then of none.
    fn knows_systems(&self) -> bool {
        true
    }
    /// The arguments of a tracepoint; `None` when there is no such tracepoint or nothing is
    /// known about its arguments.
    fn tracepoint_args(&self, name: &str) -> Option<Vec<TracepointArg>>;

    /// Hooks of security modules that programs can be at, by a glob, sorted.
    fn lsm_hooks(&self, glob: &str) -> Vec<Arc<str>> {
        let _ = glob;
        Vec::new()
    }
    /// The arguments of such a hook.
    fn lsm_args(&self, name: &str) -> Vec<TracepointArg> {
        let _ = name;
        Vec::new()
    }

    /// A type without typedefs and qualifiers.
    fn ctype(&self, id: CTypeId) -> CType;
    /// The type as C spells it, typedefs kept: `struct task_struct *`.
    fn c_name(&self, id: CTypeId) -> String;
    /// Whose a type is, for messages: a file, or the kernel.
    fn type_home(&self, id: CTypeId) -> String {
        let _ = id;
        "the kernel".into()
    }
    /// A type by name: `struct x`, `union x`, `enum x`, a typedef, a basic type, or a bare tag.
    fn type_by_name(&self, name: &str) -> Option<CTypeId>;
    /// A member by name, inner anonymous structures included.
    fn member(&self, id: CTypeId, name: &str) -> Option<Member>;
    /// All members in order, inner anonymous structures flattened; empty for other types.
    fn members(&self, id: CTypeId) -> Vec<Member>;
    /// The value of an enumeration constant.
    fn enum_constant(&self, name: &str) -> Option<i64>;
    /// The constants of an enumeration type; empty for other types.
    fn enum_values(&self, id: CTypeId) -> Vec<(Arc<str>, i64)>;
    /// A variable of the kernel with known address and type.
    fn variable(&self, name: &str) -> Option<KernelVar>;
    /// Whether the running kernel has a symbol of that name.
    fn symbol_exists(&self, name: &str) -> bool;

    /// The modules that a script names.
    ///
    /// # Errors
    /// Why there are none, for a message: `there is no process 12`.
    fn modules(&self, query: &ModuleQuery) -> Result<Vec<FoundModule>, String> {
        let _ = query;
        Err("nothing is known about programs here".into())
    }
    /// Whether the session has a target, of `-c` or `-x`.
    fn has_target(&self) -> bool {
        false
    }
    /// The number that handlers see of a process with that number, which are not the same in a
    /// PID namespace.
    fn process_number(&self, pid: u32) -> u32 {
        pid
    }
    /// What the kernel knows a file by; links are followed.
    fn file_identity(&self, path: &str) -> Option<FileIdentity> {
        let _ = path;
        None
    }
    /// A variable of the kernel, of a process, or of a program, by its symbol.
    ///
    /// # Errors
    /// Why it is not to be had, for a message: `the kernel has no variable x`.
    fn data_place(&self, of: &WatchOf, name: &str) -> Result<DataPlace, String> {
        let _ = of;
        Err(format!("nothing is known about `{name}`"))
    }
    /// The places in a module that a query means, by name. None: there are no such.
    ///
    /// # Errors
    /// Why that cannot be known, for a message: `/bin/x has no line numbers`.
    fn places(&self, module: &Module, query: &CodeQuery) -> Result<Vec<FoundPlace>, String> {
        let _ = (module, query);
        Ok(Vec::new())
    }
    /// The variables at a place, by [`FoundPlace::id`]: parameters first, in order. `ret`: at the
    /// return of the function, where what it returns is one of them; the locations of the others
    /// are those at its entry.
    ///
    /// # Errors
    /// Why nothing is known about them, for a message: `/bin/x has no debugging information`.
    fn place_variables(
        &self,
        module: &Module,
        place: u64,
        ret: bool,
    ) -> Result<Vec<Variable>, String> {
        let _ = (place, ret);
        Err(format!("{module} has no debugging information"))
    }
    /// Variables of a function that [`Facts::place_variables`] leaves out because they are dear to
    /// find: for handlers that mention some that it did not name.
    ///
    /// # Errors
    /// Why nothing is known about them, for a message.
    fn place_locals(
        &self,
        module: &Module,
        place: &FoundPlace,
        ret: bool,
    ) -> Result<Vec<Variable>, String> {
        let _ = (module, place, ret);
        Ok(Vec::new())
    }
    /// Why a module has no debugging information, if it has none that one could expect.
    fn no_debuginfo(&self, module: &Module) -> Option<String> {
        let _ = module;
        None
    }
    /// A variable of a whole module; `file`: the end of the path of the source file that has it.
    fn module_variable(&self, module: &Module, name: &str, file: Option<&str>) -> Option<Variable> {
        let _ = (module, name, file);
        None
    }
    /// A type of a module by name, as [`Facts::type_by_name`] has those of the kernel.
    fn module_type(&self, module: &Module, name: &str) -> Option<CTypeId> {
        match module {
            Module::Kernel => self.type_by_name(name),
            _ => None,
        }
    }
    /// Whether functions of the running kernel can be probed at all.
    fn probes_kernel(&self) -> bool {
        true
    }
    /// Whether handlers of returns of functions of the kernel see the stack pointer that the
    /// function leaves, where functions are attached through ftrace.
    fn kernel_return_stack(&self) -> bool {
        true
    }
    /// Which memory objects of a type are in.
    fn type_space(&self, id: CTypeId) -> Space {
        let _ = id;
        Space::Kernel
    }

    /// The system calls of both tables, native ones first.
    fn syscalls(&self) -> &[SysCall];
    /// The perf events that have names.
    fn perf_events(&self) -> Vec<PerfEvent>;
    /// Timer interrupts a second (CONFIG_HZ).
    fn hz(&self) -> u64;
    /// The architecture as the language's `arch` condition spells it (`x86_64`).
    fn arch(&self) -> &str;
    /// `uname -r`
    fn release(&self) -> &str;
}
