//! Facts about the running kernel for analysis.
//!
//! Every fact is looked up when analysis asks for it. Frequent queries (members of structures,
//! tracepoints) are cheap by the index of crate kernel.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use spile_ir::{HostKind, Space, WatchOwner};
use spile_kernel::btf::{Btf, Type};
use spile_kernel::features::{self, Feature};
use spile_kernel::functions;
use spile_kernel::symbols::Symbols;
use spile_kernel::tracepoints::{self, Tracefs};
use spile_runtime::TargetProcess;
use spile_sema::facts::{
    CType, CTypeId, CodeFacts, CodeQuery, DataLocation, FileIdentity, FoundLocation, FoundModule,
    KernelVar, LsmHook, MachineFacts, Member, ModuleQuery, NamedPerfEvent, ProbeModule,
    SessionFacts, TraceRecord, TracepointArg, TracepointFacts, TypeFacts, Variable, Variants,
};
use spile_syscalls::Syscall;

mod breakpoints;
mod by_symbol;
mod callees;
mod code_owner;
mod convention;
mod data;
mod dwarf;
mod headers;
mod ifunc;
pub(crate) mod kernel_code;
pub(crate) mod kernel_debug;
mod location_notes;
mod locations;
mod marks;
mod paths;
mod records;
mod returns;
mod types;
pub(crate) mod user;

use dwarf::OpenedFile;
use kernel_code::KernelCode;
use kernel_debug::{KernelDebug, TargetKernel};
use types::KernelTypes;

/// The running kernel, for analysis.
pub(crate) struct KernelFacts {
    release: String,
    types: KernelTypes,
    code: KernelCode,
    debug: KernelDebug,
    tracefs: OnceLock<Option<Tracefs>>,
    /// Number of queries for the subsystem of a tracepoint.
    asked: AtomicUsize,
    /// The subsystems of all tracepoints, read after many queries.
    systems: OnceLock<HashMap<String, Arc<str>>>,
    programs: user::Programs,
    host: HostKind,
}

/// Number of single queries after which all subsystems are listed at once.
const SINGLE_QUESTIONS: usize = 8;

impl KernelFacts {
    /// For the kernel of that release.
    pub(crate) fn new(release: &str) -> KernelFacts {
        KernelFacts {
            release: release.into(),
            types: KernelTypes::default(),
            code: KernelCode::default(),
            debug: KernelDebug::new(TargetKernel {
                release: release.into(),
                ..TargetKernel::default()
            }),
            tracefs: OnceLock::new(),
            asked: AtomicUsize::new(0),
            systems: OnceLock::new(),
            programs: user::Programs::new(TargetProcess::None, None, release),
            host: HostKind::Kernel,
        }
    }

    /// Sets the meaning of `process` without a name, and the root directory below which paths of
    /// programs are looked up (`None`: this process's). With `unsafe_returns`, uretprobes are used
    /// even where they can kill programs.
    pub(crate) fn with_target(
        mut self,
        target: TargetProcess,
        root: Option<user::Root>,
        unsafe_returns: bool,
    ) -> KernelFacts {
        self.programs = user::Programs::new(target, root, &self.release);
        self.programs.returns.take_risks = unsafe_returns;
        self
    }

    /// Sets what runs the session's handlers.
    pub(crate) fn with_host(self, host: HostKind) -> KernelFacts {
        KernelFacts { host, ..self }
    }

    /// Locations that match but are left out or have inexact hits: what that is about, and the locations with
    /// their reasons.
    pub(crate) fn location_notes(&self) -> [(&'static str, Vec<String>); 3] {
        let programs = &self.programs;
        [
            (
                "function(s) that match are left out, because their returns cannot be probed",
                programs.returns.left_out.all(),
            ),
            (
                "location(s) that match are left out, because a breakpoint there would change the program",
                programs.breakpoints.left_out.all(),
            ),
            (
                "function(s) have hits that are not exactly their calls",
                programs.inexact.all(),
            ),
        ]
    }

    /// The files of programs that were read, with their state at that time.
    pub(crate) fn read_files(&self) -> Vec<(std::path::PathBuf, spile_runtime::FileState)> {
        self.programs.read_files()
    }

    /// Sets the kernel that `-r` names.
    ///
    /// # Errors
    /// When the named kernel's files are missing.
    pub(crate) fn with_kernel(mut self, kernel: TargetKernel) -> Result<KernelFacts, String> {
        let other = kernel.other;
        self.debug = KernelDebug::new(kernel);
        if other {
            kernel_debug::stand_in(&*self.debug.image_of_other()?);
        }
        Ok(self)
    }

    /// Locations in the kernel or a module: from symbols and BTF where these are enough.
    fn kernel_locations(
        &self,
        module: Option<&Arc<str>>,
        query: &CodeQuery,
    ) -> Result<Vec<FoundLocation>, String> {
        let table = &self.programs.file_table;
        if kernel_code::needs_source(query) {
            return self.debug.locations(table, module, query);
        }
        let mut locations = self
            .code
            .locations(&self.types, module.map(|m| &**m), query);
        if let CodeQuery::Function { name, kind, .. } = query {
            let mut more = locations.clone().unwrap_or_default();
            self.debug.with_lines(table, module, name, kind, &mut more);
            if !more.is_empty() {
                locations = Ok(more);
            }
        }
        locations
    }

    fn kernel_variables(
        &self,
        module: Option<&Arc<str>>,
        location: u64,
        ret: bool,
    ) -> Result<Vec<Variable>, String> {
        let table = &self.programs.file_table;
        if table.has_location(location) {
            let opened = self.debug.opened(module, true)?;
            return opened.queried(table).variables(location, ret);
        }
        let module = module.map(|m| &**m);
        self.code.variables(&self.types, module, location, ret)
    }

    /// The file with the debugging information of a module. `remote`: servers are asked for the kernel's.
    fn opened(&self, module: &ProbeModule, remote: bool) -> Result<Arc<OpenedFile>, String> {
        match module {
            ProbeModule::Kernel => self.debug.opened(None, remote),
            ProbeModule::KernelModule(name) => self.debug.opened(Some(name), remote),
            ProbeModule::File(path) => self.programs.opened(path),
        }
    }

    /// Number of kernel functions that were left out of answers because they cannot be probed.
    pub(crate) fn left_out(&self) -> usize {
        self.code.left_out()
    }

    /// Frees the data that only analysis needs.
    pub(crate) fn analysed(&mut self) {
        if let Some(Some(tracefs)) = self.tracefs.take() {
            tracefs.close();
        }
    }

    fn tracefs(&self) -> Option<&Tracefs> {
        self.tracefs.get_or_init(|| Tracefs::open().ok()).as_ref()
    }

    /// The subsystem of each event; the alphabetically first where several have one.
    fn all_systems(&self) -> HashMap<String, Arc<str>> {
        let mut systems = HashMap::new();
        let Some(tracefs) = self.tracefs() else {
            return systems;
        };
        for system in tracefs.systems().unwrap_or_default() {
            let name: Arc<str> = system.as_str().into();
            for event in tracefs.events(&system, "*").unwrap_or_default() {
                systems.entry(event).or_insert_with(|| name.clone());
            }
        }
        systems
    }
}

/// The kernel's types; without BTF every look-up finds nothing.
fn btf() -> Option<&'static Btf> {
    Btf::vmlinux().ok()
}

impl TracepointFacts for KernelFacts {
    fn tracepoints(&self, glob: &str) -> Vec<Arc<str>> {
        let tracepoints = btf().and_then(|btf| tracepoints::matching(btf, glob).ok());
        let tracepoints: Vec<Arc<str>> = tracepoints
            .unwrap_or_default()
            .into_iter()
            .map(Into::into)
            .collect();
        if !tracepoints.is_empty() {
            return tracepoints;
        }
        let modules = self.code.modules("*").unwrap_or_default();
        let names = |found_module: &FoundModule| match &found_module.module {
            ProbeModule::KernelModule(module) => self.module_tracepoints(module, glob),
            _ => Vec::new(),
        };
        modules.iter().flat_map(names).collect()
    }

    fn module_tracepoints(&self, module: &str, glob: &str) -> Vec<Arc<str>> {
        let types = self.types.module(module);
        let tracepoints = types.and_then(|t| tracepoints::matching(t.btf, glob).ok());
        // A module's types extend the kernel's, including tracepoints.
        let is_new = |name: &String| !btf().is_some_and(|btf| tracepoints::exists(btf, name));
        let tracepoints = tracepoints.unwrap_or_default().into_iter().filter(is_new);
        tracepoints.map(Into::into).collect()
    }

    fn tracepoint_system(&self, name: &str) -> Option<Arc<str>> {
        if self.asked.fetch_add(1, Ordering::Relaxed) < SINGLE_QUESTIONS {
            return self.tracefs()?.system_of(name).ok()?.map(Into::into);
        }
        let systems = self.systems.get_or_init(|| self.all_systems());
        systems.get(name).cloned()
    }

    fn tracepoint_is_of(&self, name: &str, system: &str) -> bool {
        self.tracefs().is_some_and(|t| t.has(system, name))
    }

    fn has_subsystems(&self) -> bool {
        self.tracefs().is_some()
    }

    fn tracepoint_args(&self, name: &str) -> Option<Vec<TracepointArg>> {
        let kernel = KernelTypes::kernel()?;
        let types = std::iter::once(kernel).chain(self.types.opened());
        let find = |types: types::Types| Some((types, tracepoints::find(types.btf, name)?));
        let (types, tracepoint) = types.into_iter().find_map(find)?;
        let arg = |a: tracepoints::TracepointParam| TracepointArg {
            name: a.name.into(),
            ty: types.common_id(a.ty),
        };
        Some(tracepoint.args.into_iter().map(arg).collect())
    }

    fn trace_record(&self, name: &str, system: Option<&str>) -> Option<TraceRecord> {
        let tracefs = self.tracefs()?;
        let named = system.map(str::to_owned);
        let system = named.or_else(|| tracefs.system_of(name).ok()?)?;
        records::record(tracefs, &system, name, |ty| self.type_by_name(ty))
    }

    fn lsm_hooks(&self, glob: &str) -> Vec<Arc<str>> {
        let hooks = btf().map(|btf| functions::lsm_hooks(btf, glob));
        hooks
            .unwrap_or_default()
            .into_iter()
            .map(Into::into)
            .collect()
    }

    fn lsm_hook(&self, name: &str) -> Option<LsmHook> {
        // The kernel takes other results from these, or ignores them.
        const OTHERS: [&str; 9] = [
            "audit_rule_known",
            "inode_xattr_skipcap",
            "inode_need_killpriv",
            "inode_getsecurity",
            "inode_listsecurity",
            "inode_copy_up_xattr",
            "xfrm_state_pol_flow_match",
            "getprocattr",
            "setprocattr",
        ];
        let signature = functions::lsm_hook(btf()?, name)?;
        let result = self.types.ctype(CTypeId::kernel(signature.ret));
        let arg = |(name, ty): (String, u32)| TracepointArg {
            // A suffix for the kernel's verifier, on newer kernels.
            name: name.strip_suffix("__nullable").unwrap_or(&name).into(),
            ty: CTypeId::kernel(ty),
        };
        Some(LsmHook {
            args: signature.params.into_iter().map(arg).collect(),
            decides: matches!(result, CType::Int { size: 4, .. }) && !OTHERS.contains(&name),
        })
    }
}

impl TypeFacts for KernelFacts {
    fn ctype(&self, id: CTypeId) -> CType {
        let of_file = self.programs.file_table.ctype(id);
        of_file.unwrap_or_else(|| self.types.ctype(id))
    }

    fn c_name(&self, id: CTypeId) -> String {
        let of_file = self.programs.file_table.c_name(id);
        of_file.unwrap_or_else(|| self.types.c_name(id))
    }

    fn type_home(&self, id: CTypeId) -> String {
        let table = &self.programs.file_table;
        match (table.file_of(id), table.space_of(id)) {
            (Some(file), Some(Space::User)) => file.image().path().display().to_string(),
            _ => "the kernel".into(),
        }
    }

    fn member(&self, id: CTypeId, name: &str) -> Option<Member> {
        match self.programs.file_table.members(id) {
            Some(members) => members.into_iter().find(|m| &*m.name == name),
            None => self.types.member(id, name),
        }
    }

    fn members(&self, id: CTypeId) -> Vec<Member> {
        let of_file = self.programs.file_table.members(id);
        of_file.unwrap_or_else(|| self.types.members(id))
    }

    fn variants(&self, id: CTypeId) -> Option<Variants> {
        self.programs.file_table.variants(id)
    }

    fn enum_constant(&self, name: &str) -> Option<i64> {
        btf()?.enum_value(name)
    }

    fn enum_values(&self, id: CTypeId) -> Vec<(Arc<str>, i64)> {
        let of_file = self.programs.file_table.enum_values(id);
        of_file.unwrap_or_else(|| self.types.enum_values(id))
    }

    fn module_type(&self, module: &ProbeModule, name: &str) -> Option<CTypeId> {
        let types = match module {
            ProbeModule::Kernel => KernelTypes::kernel(),
            ProbeModule::KernelModule(module) => self.types.module(module),
            ProbeModule::File(_) => None,
        };
        let id = types.and_then(|types| KernelTypes::by_name(types, name));
        id.or_else(|| {
            let opened = self.opened(module, false).ok()?;
            opened.queried(&self.programs.file_table).type_named(name)
        })
    }

    fn similar_type(&self, module: &ProbeModule, name: &str) -> Option<String> {
        let types = match module {
            ProbeModule::Kernel => KernelTypes::kernel(),
            ProbeModule::KernelModule(module) => self.types.module(module),
            ProbeModule::File(path) => return self.programs.similar_type(path, name),
        };
        KernelTypes::similar(types?, name)
    }

    fn type_space(&self, id: CTypeId) -> Space {
        let space = self.programs.file_table.space_of(id);
        space.unwrap_or(Space::Kernel)
    }
}

impl CodeFacts for KernelFacts {
    fn variable(&self, name: &str) -> Option<KernelVar> {
        let btf = btf()?;
        let (_, ty) = btf
            .find_all(spile_kernel::btf::BtfKind::Var, name)
            .find_map(|id| match btf.ty(id) {
                Type::Var { name, ty } => Some((name, ty)),
                _ => None,
            })?;
        let address = Symbols::kernel().ok()?.address_of(name)?;
        code_owner::kernel_variable(address, CTypeId::kernel(ty))
    }

    fn modules(&self, query: &ModuleQuery) -> Result<Vec<FoundModule>, String> {
        match query {
            ModuleQuery::KernelModule(pattern) => self.code.modules(pattern),
            ModuleQuery::Headers(names) => Ok(vec![headers::module(names)?]),
            _ => self.programs.modules(query),
        }
    }

    fn file_identity(&self, path: &str) -> Option<FileIdentity> {
        data::file_identity(path)
    }

    fn data_location(&self, owner: &WatchOwner, name: &str) -> Result<DataLocation, String> {
        data::location(owner, name)
    }

    fn locations(
        &self,
        module: &ProbeModule,
        query: &CodeQuery,
    ) -> Result<Vec<FoundLocation>, String> {
        match module {
            ProbeModule::Kernel => self.kernel_locations(None, query),
            ProbeModule::KernelModule(name) => self.kernel_locations(Some(name), query),
            ProbeModule::File(path) => self.programs.locations(path, query),
        }
    }

    fn location_variables(
        &self,
        module: &ProbeModule,
        location: u64,
        ret: bool,
    ) -> Result<Vec<Variable>, String> {
        match module {
            ProbeModule::Kernel => self.kernel_variables(None, location, ret),
            ProbeModule::KernelModule(name) => self.kernel_variables(Some(name), location, ret),
            ProbeModule::File(path) => self.programs.variables(path, location, ret),
        }
    }

    fn location_locals(
        &self,
        module: &ProbeModule,
        location: &FoundLocation,
        ret: bool,
    ) -> Result<Vec<Variable>, String> {
        let table = &self.programs.file_table;
        match module {
            ProbeModule::File(_) => Ok(Vec::new()),
            _ if table.has_location(location.id) => Ok(Vec::new()),
            ProbeModule::Kernel => self.debug.locals(table, None, location, ret),
            ProbeModule::KernelModule(name) => self.debug.locals(table, Some(name), location, ret),
        }
    }

    fn no_debuginfo(&self, module: &ProbeModule) -> Option<String> {
        match module {
            ProbeModule::File(_) => None,
            _ => self.opened(module, true).err(),
        }
    }

    fn module_variable(
        &self,
        module: &ProbeModule,
        name: &str,
        file: Option<&str>,
    ) -> Option<Variable> {
        let opened = self.opened(module, true).ok()?;
        opened.queried(&self.programs.file_table).global(name, file)
    }

    fn is_stripped(&self, module: &ProbeModule) -> bool {
        matches!(module, ProbeModule::File(path) if self.programs.is_stripped(path))
    }
}

impl MachineFacts for KernelFacts {
    fn probes_kernel(&self) -> bool {
        !features::has(Feature::Kprobes).is_unavailable()
    }

    fn kernel_return_stack(&self) -> bool {
        crate::machine::return_stack()
    }

    fn syscalls(&self) -> &[Syscall] {
        spile_syscalls::of(spile_abi::HOST)
    }

    fn perf_events(&self) -> Vec<NamedPerfEvent> {
        crate::machine::perf_events()
    }

    fn hz(&self) -> u64 {
        spile_kernel::machine::hz().into()
    }

    fn arch(&self) -> &str {
        std::env::consts::ARCH
    }

    fn release(&self) -> &str {
        &self.release
    }
}

impl SessionFacts for KernelFacts {
    fn host(&self) -> HostKind {
        self.host
    }

    fn take_warnings(&self) -> Vec<String> {
        self.programs.take_warnings()
    }

    fn has_target(&self) -> bool {
        self.programs.has_target()
    }

    fn process_number(&self, pid: u32) -> u32 {
        spile_runtime::machine::pid_namespace::PidMap::now().to_machine(pid)
    }
}
