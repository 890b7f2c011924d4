//! Runs a program in the kernel, on chosen CPUs, and collects its results.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::process::{self, Process};
use rustix::thread::CpuSet;
use spile_bpf::compiled::{Object, RING};
use spile_bpf::target::{Features, KernelOffsets, Target};
use spile_ir::interp::{Cell, Value};
use spile_ir::{ElemTy, Global, GlobalId, GlobalKind, Init, Program, SiteId, StatsSpec};
use spile_kernel::bpf::{Ring, test_run};
use spile_kernel::machine::{online_cpus, possible_cpus};
use spile_layout::{
    ErrorKind, GlobalLocation, HandlerInfo, PerCpuArray, RecordKind, counters, percpu, shared,
};
use spile_runtime::load::LoadedObject;
use spile_runtime::shared::drain::{self, GlobalDeltas};
use spile_runtime::shared::large_arrays::LargeElements;
use spile_runtime::shared::maps::{ByteTable, FieldTable, HostTables};
use spile_runtime::shared::ring_record::{self, FieldValue};
use spile_runtime::shared::state::{
    HostMemory, StateMemory, cell_bytes, read_cell, read_keys, word_of,
};

/// The content of a global: one value, or elements by key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Contents {
    /// Of a scalar.
    One(Cell),
    /// Of an array.
    Elements(BTreeMap<Vec<Value>, Cell>),
}

/// An error that ended a handler.
pub(crate) type Failure = (String, SiteId);

/// The results of a program.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Outcome {
    /// Printed text.
    pub out: String,
    /// Uncaught errors.
    pub errors: Vec<Failure>,
    /// For each error, its active calls.
    pub callers: Vec<Vec<SiteId>>,
    /// For each global, its content; `None` for the controller's globals.
    pub globals: Vec<Option<Contents>>,
    /// Number of truncated strings.
    pub cuts: u64,
}

/// Major and minor number of the running kernel.
fn version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Compiler options for the running kernel.
pub(crate) fn options() -> Target {
    Target {
        host: spile_ir::HostKind::Kernel,
        cpus: possible_cpus().last().map_or(1, |c| c + 1),
        ring_bytes: 1 << 23,
        timing: false,
        // The kernel has to accept the lines, too.
        lines: true,
        offsets: KernelOffsets::default(),
        features: Features {
            may_goto: version() >= (6, 9),
            ..Features::SINCE_6_9
        },
        syscalls: &[],
        functions: Default::default(),
        share: None,
        abi: spile_abi::HOST,
        resident: false,
    }
}

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// In the kernel, as eBPF.
    Kernel,
    /// In this process, as machine code.
    Process,
}

impl HostKind {
    pub(crate) const ALL: [HostKind; 2] = [HostKind::Kernel, HostKind::Process];

    /// These options, for the host.
    fn target(self, options: &Target) -> Target {
        match self {
            HostKind::Kernel => options.clone(),
            HostKind::Process => Target {
                host: spile_ir::HostKind::Process,
                resident: true,
                offsets: KernelOffsets::process(),
                features: Features {
                    may_goto: options.features.may_goto,
                    bpf_loop: options.features.bpf_loop,
                    ..Features::PROCESS
                },
                ..options.clone()
            },
        }
    }

    /// Compiles, and puts the program into the host.
    pub(crate) fn load(self, program: &Program) -> Kernel<'_> {
        self.load_with(program, &options())
    }

    /// The same with other options.
    pub(crate) fn load_with<'p>(self, program: &'p Program, options: &Target) -> Kernel<'p> {
        let kernel = Kernel::in_host(self, program, options);
        kernel.unwrap_or_else(|why| panic!("{self:?}: {why}\n{program}"))
    }

    /// Moves to the `n`th processor, or to the `n`th of as many areas.
    pub(crate) fn go_to(self, n: u64) {
        match self {
            HostKind::Kernel => go_to(n),
            HostKind::Process => process::go_to(n % online_cpus().len() as u64),
        }
    }
}

/// A host with a program in it.
pub(crate) enum Host {
    /// With the ring, if it has one.
    Kernel(LoadedObject, RefCell<Option<Ring>>),
    Process(Process),
}

impl Host {
    fn run(&self, name: &str, context: &mut [u64]) {
        match self {
            Host::Kernel(loaded, _) => loaded
                .with_program(name, |fd| test_run(fd, context, None))
                .expect("program")
                .map(drop)
                .expect("test run"),
            Host::Process(process) => process.run(name, context),
        }
    }

    /// A map as the controller's table.
    pub(crate) fn table(&self, name: &str) -> Box<dyn ByteTable> {
        match self {
            Host::Kernel(loaded, _) => loaded.table(name).expect("map"),
            Host::Process(process) => process.table(name),
        }
    }

    fn memory(&self, name: &str) -> HostMemory {
        match self {
            Host::Kernel(loaded, _) => loaded.map_fd(name).expect("map").into(),
            Host::Process(process) => process.memory(name),
        }
    }

    /// Takes the records that were sent since the last call.
    fn take_records(&self) -> Vec<Vec<u8>> {
        match self {
            Host::Kernel(_, ring) => {
                let mut all = Vec::new();
                if let Some(ring) = &mut *ring.borrow_mut() {
                    ring.consume(usize::MAX, |record| all.push(record.to_vec()));
                }
                all
            }
            Host::Process(process) => process.take_records(RING),
        }
    }

    /// The object in the kernel.
    pub(crate) fn loaded(&self) -> &LoadedObject {
        match self {
            Host::Kernel(loaded, _) => loaded,
            Host::Process(_) => panic!("the program is in this process"),
        }
    }
}

/// A program in a host.
pub(crate) struct Kernel<'p> {
    program: &'p Program,
    object: Object,
    pub host: Host,
    pub state: StateMemory,
    base: Vec<Option<Contents>>,
}

impl<'p> Kernel<'p> {
    /// Compiles and loads. An error is the refusal of the compiler or the verifier. The test is
    /// skipped if BPF is not allowed.
    pub(crate) fn new(program: &'p Program) -> Result<Kernel<'p>, String> {
        Kernel::with(program, &options())
    }

    /// Compiles and loads with other options.
    pub(crate) fn with(program: &'p Program, options: &Target) -> Result<Kernel<'p>, String> {
        Kernel::in_host(HostKind::Kernel, program, options)
    }

    /// Compiles for a host, and puts the program into it.
    pub(crate) fn in_host(
        kind: HostKind,
        program: &'p Program,
        options: &Target,
    ) -> Result<Kernel<'p>, String> {
        let options = kind.target(options);
        let object = spile_bpf::compile(program, &options).map_err(|e| format!("compiler: {e}"))?;
        let (host, state) = match kind {
            HostKind::Kernel => match LoadedObject::new(&object, program) {
                Ok((loaded, state)) => {
                    let ring = RefCell::new(loaded.ring().expect("ring buffer"));
                    (Host::Kernel(loaded, ring), state)
                }
                Err(e @ (spile_runtime::Error::Privileges | spile_runtime::Error::NoBpf)) => {
                    spile_testing::skip(e)
                }
                Err(e) => return Err(format!("verifier: {e}")),
            },
            HostKind::Process => {
                let process =
                    Process::new(&object.spec).map_err(|e| format!("machine code: {e}"))?;
                let (memory, bytes) = (process.state(), object.spec.bss_size as usize);
                let state = StateMemory::map(&object.layout, &memory, bytes);
                let state = state.expect("state memory");
                (Host::Process(process), state)
            }
        };
        let kernel = Kernel {
            base: program.globals.iter().map(|g| empty(program, g)).collect(),
            program,
            object,
            host,
            state,
        };
        kernel.initialise();
        kernel.state.set_running(true);
        Ok(kernel)
    }

    fn initialise(&self) {
        for (global, layout) in self.program.globals.iter().zip(&self.object.layout.globals) {
            if let (Some(layout), Some(Contents::One(cell))) = (layout, initial(global))
                && let GlobalLocation::Scalar { offset, ty } = layout.location
            {
                let layout = spile_layout::ValueLayout::Scalar(ty);
                let bytes = cell_bytes(&cell, &layout);
                assert!(!bytes.is_empty());
                self.state.set(offset, &layout, &cell);
            }
        }
    }

    /// Runs the first program once, on this CPU.
    pub(crate) fn run(&self, args: &[u64]) {
        let mut context = args.to_vec();
        let name = &self.object.programs[0].name;
        self.host.run(name, &mut context);
    }

    /// The location of a global.
    pub(crate) fn location(&self, g: usize) -> Option<&GlobalLocation> {
        self.object.layout.globals[g].as_ref().map(|g| &g.location)
    }

    /// Offsets of the lock words, in order.
    pub(crate) fn locks(&self) -> Vec<u32> {
        let globals = self.object.layout.globals.iter().flatten();
        globals.filter_map(|g| g.lock).collect()
    }

    /// Sum of a header word over all CPUs.
    pub(crate) fn header(&self, at: u32) -> u64 {
        self.state.sum(at)
    }

    /// Hits of a handler on all CPUs.
    pub(crate) fn hits(&self, handler: usize) -> u64 {
        self.state.sum(self.info(handler).counters + counters::HITS)
    }

    /// The counters of a handler.
    pub(crate) fn info(&self, handler: usize) -> &HandlerInfo {
        let info = self.object.layout.handlers[handler].as_ref();
        info.expect("in the kernel")
    }

    /// Adds the deltas of one generation to the base.
    pub(crate) fn drain(&mut self, generation: u32) {
        for (i, layout) in self.object.layout.globals.iter().enumerate() {
            let Some(layout) = layout else { continue };
            let (maps, double): (&[String], bool) = match &layout.location {
                GlobalLocation::PerCpuArray(array) => (&array.maps, array.double()),
                GlobalLocation::PerCpuScalar { gen_stride, .. } => (&[], *gen_stride > 0),
                _ => continue,
            };
            if generation > 0 && !double {
                continue;
            }
            let id = GlobalId(i as u32);
            if let GlobalLocation::PerCpuArray(array) = &layout.location
                && let Some(large) = &array.large
            {
                let map = self.host.memory(&maps[0]);
                let elements = LargeElements::new(map, large, double);
                let mut all = Vec::new();
                let add = |key: &[u8], delta| all.push((key.to_vec(), delta));
                let how = (generation, false);
                elements.take(&self.state, array, how, add).expect("drain");
                let base = self.base[i].as_mut().expect("per-CPU");
                merge(base, GlobalDeltas::Array(all), &layout.location);
                continue;
            }
            let mut map = maps
                .get(generation as usize)
                .map(|name| self.host.table(name));
            let table = map.as_mut().map(|m| &mut **m as &mut dyn ByteTable);
            let deltas = drain::take(
                &self.state,
                &self.object.layout,
                id,
                (generation, false),
                table,
            )
            .expect("drain");
            for (g, deltas) in deltas {
                let base = self.base[g.index()].as_mut().expect("per-CPU");
                merge(base, deltas, &layout.location);
            }
        }
    }

    /// The content of a global.
    fn contents(&self, i: usize) -> Option<Contents> {
        let layout = self.object.layout.globals[i].as_ref()?;
        Some(match &layout.location {
            GlobalLocation::Scalar { offset, ty } => {
                let layout = spile_layout::ValueLayout::Scalar(*ty);
                Contents::One(self.state.get(*offset, &layout))
            }
            GlobalLocation::Stats { offset, agg } => {
                let layout = spile_layout::ValueLayout::Stats(agg.clone());
                Contents::One(self.state.get(*offset, &layout))
            }
            GlobalLocation::Hash {
                map,
                keys,
                seq,
                value,
                field,
                ..
            } => {
                let skip = if *seq { 8 } else { 0 };
                let mut map = self.host.table(map);
                let entries = match *field {
                    Some(field) => {
                        let records = map;
                        FieldTable { records, field }.entries()
                    }
                    None => map.entries(),
                };
                let entries = entries.expect("entries");
                Contents::Elements(
                    entries
                        .iter()
                        .map(|(k, v)| {
                            let cell = read_cell(value, |o| word_of(v, o + skip));
                            (read_keys(keys, k), cell)
                        })
                        .collect(),
                )
            }
            GlobalLocation::PerCpuScalar { .. } | GlobalLocation::PerCpuArray(_) => {
                self.base[i].clone()?
            }
        })
    }

    /// Everything so far; per-CPU deltas are drained.
    pub(crate) fn outcome(&mut self) -> Outcome {
        for generation in 0..2 {
            self.drain(generation);
        }
        let mut outcome = Outcome {
            globals: (0..self.program.globals.len())
                .map(|i| self.contents(i))
                .collect(),
            cuts: self.header(percpu::TRUNCATED),
            ..Outcome::default()
        };
        assert_eq!(self.header(percpu::LOST_OUTPUT), 0, "lost output");
        assert_eq!(self.header(percpu::BUSY), 0, "still busy");
        for layout in self.object.layout.globals.iter().flatten() {
            let held = layout.lock.map(|at| {
                self.state
                    .shared(at)
                    .load(std::sync::atomic::Ordering::SeqCst)
            });
            assert_eq!(held.unwrap_or(0), 0, "a lock is still held");
        }
        let mut out = Vec::new();
        for record in self.host.take_records() {
            self.read(&record, &mut out, &mut outcome);
        }
        outcome.out = String::from_utf8_lossy(&out).into_owned();
        outcome
    }

    fn read(&self, bytes: &[u8], out: &mut Vec<u8>, outcome: &mut Outcome) {
        let shapes = &self.object.layout.records;
        let (_, pieces) = ring_record::open(bytes, shapes).expect("a record");
        for piece in pieces {
            let piece = piece.expect("a piece");
            let fields: Vec<Value> = piece
                .fields
                .iter()
                .map(|f| match f {
                    FieldValue::Long(n) => Value::Long(*n),
                    FieldValue::Str(s) => Value::from(*s),
                })
                .collect();
            match &shapes[piece.shape].what {
                RecordKind::Print { stream, fmt } => {
                    out.extend_from_slice(crate::world::mark(*stream));
                    let memory = &mut |_: spile_ir::Space, _: u64, _: &mut [u8]| Ok(());
                    let format = &self.program.formats[fmt.index()];
                    spile_ir::fmt::render(format, &fields, memory, out).expect("renders");
                }
                RecordKind::Deferred
                | RecordKind::File
                | RecordKind::Executed
                | RecordKind::Copy => {
                    panic!("nothing is left to anybody here")
                }
                RecordKind::Hist(hist) => {
                    out.extend_from_slice(hist.draw(&piece.words).as_bytes());
                }
                RecordKind::Error { kind, site, .. } => {
                    let message = message(*kind, &fields, self.program);
                    outcome.errors.push((message, *site));
                    outcome.callers.push(Vec::new());
                }
                RecordKind::Rethrown { kinds, .. } => {
                    let e = spile_runtime::controller::message::rethrown(
                        kinds,
                        &piece.fields,
                        self.program,
                    )
                    .expect("an error with callers");
                    outcome.errors.push((e.message, e.site));
                    outcome.callers.push(e.callers);
                }
            }
        }
    }

    /// Number of errors that the shared area counts.
    pub(crate) fn errors(&self) -> u64 {
        self.state
            .shared(shared::ERRORS)
            .load(std::sync::atomic::Ordering::SeqCst)
    }
}

/// Moves to the `n`th CPU, modulo their number. A test run on another CPU would run in an
/// interrupt, where the kernel cannot allocate memory.
pub(crate) fn go_to(n: u64) {
    let cpus = online_cpus();
    let mut set = CpuSet::new();
    set.set(cpus[n as usize % cpus.len()] as usize);
    rustix::thread::sched_setaffinity(None, &set).expect("affinity");
}

/// The message for a full array of this kind.
pub(crate) fn overflow(program: &Program, g: spile_ir::GlobalId) -> String {
    let global = &program.globals[g.index()];
    spile_ir::interp::overflow(global)
}

fn message(kind: ErrorKind, fields: &[Value], program: &Program) -> String {
    let address = || format!("0x{:x}", fields[0].as_long());
    match kind {
        ErrorKind::DivisionByZero => "division by 0".into(),
        ErrorKind::EmptyAggregate => "empty aggregate".into(),
        ErrorKind::Overflow(g) => overflow(program, g),
        ErrorKind::HistIndex => "histogram index out of range".into(),
        ErrorKind::ReadFault => format!("read fault at {}", address()),
        ErrorKind::WriteFault => format!("write fault at {}", address()),
        ErrorKind::Signal => "the signal cannot be sent".into(),
        ErrorKind::KernelStrFault => format!("kernel string copy fault at {}", address()),
        ErrorKind::UserStrFault => format!("user string copy fault at {}", address()),
        ErrorKind::Raised => String::from_utf8_lossy(fields[0].as_bytes()).into_owned(),
        ErrorKind::MaxAction => "MAXACTION exceeded".into(),
        ErrorKind::MaxNesting => "MAXNESTING exceeded".into(),
        ErrorKind::Counter => "the counter cannot be read".into(),
        ErrorKind::Verdict => "a packet can be dropped (0) or accepted (1)".into(),
        ErrorKind::Decision => spile_layout::DECISION.into(),
    }
}

/// The value of a scalar before anything runs.
fn initial(global: &Global) -> Option<Contents> {
    let GlobalKind::Scalar(ty) = &global.kind else {
        return None;
    };
    let value = match global.init.as_ref()? {
        Init::Long(n) => Value::Long(*n),
        Init::Str(s) => Value::Str(s.clone()),
    };
    Some(Contents::One(Cell::Scalar(value.truncated_to(*ty).0)))
}

/// The controller's initial value of a global.
fn empty(_: &Program, global: &Global) -> Option<Contents> {
    Some(match &global.kind {
        GlobalKind::Scalar(ty) => {
            initial(global).unwrap_or(Contents::One(Cell::Scalar(Value::zero(*ty))))
        }
        GlobalKind::Stats(spec) => Contents::One(Cell::Stats(spile_ir::stats::Stat::new(spec))),
        GlobalKind::Array { .. } => Contents::Elements(BTreeMap::new()),
    })
}

fn add(to: &mut Cell, delta: Cell) {
    match (to, delta) {
        (Cell::Scalar(Value::Long(a)), Cell::Scalar(Value::Long(b))) => *a = a.wrapping_add(b),
        (Cell::Stats(a), Cell::Stats(b)) => a.merge(&b),
        other => panic!("deltas of a string: {other:?}"),
    }
}

fn merge(base: &mut Contents, deltas: GlobalDeltas, location: &GlobalLocation) {
    match (base, deltas, location) {
        (Contents::One(cell), GlobalDeltas::Scalar(delta), _) => add(cell, delta),
        (
            Contents::Elements(all),
            GlobalDeltas::Array(deltas),
            GlobalLocation::PerCpuArray(PerCpuArray { keys, .. }),
        ) => {
            for (key, delta) in deltas {
                match all.entry(read_keys(keys, &key)) {
                    std::collections::btree_map::Entry::Occupied(mut e) => add(e.get_mut(), delta),
                    std::collections::btree_map::Entry::Vacant(e) => {
                        e.insert(delta);
                    }
                }
            }
        }
        other => panic!("deltas of another kind: {:?}", other.1),
    }
}

/// Reduces a statistic to the values that its specification keeps.
pub(crate) fn kept(global: &Global, cell: &Cell) -> Cell {
    let spec: &StatsSpec = match &global.kind {
        GlobalKind::Stats(spec) => spec,
        GlobalKind::Array {
            value: ElemTy::Stats(spec),
            ..
        } => spec,
        _ => return cell.clone(),
    };
    let Cell::Stats(stat) = cell else {
        return cell.clone();
    };
    let mut stat = stat.clone();
    let empty = spile_ir::stats::Stat::default();
    stat.sum = match spec.keeps_sum() {
        true => (stat.sum as i64).into(),
        false => empty.sum,
    };
    if !spec.min {
        stat.min = empty.min;
    }
    if !spec.max {
        stat.max = empty.max;
    }
    if !spec.variance {
        stat.sumsq = empty.sumsq;
    }
    if stat.buckets.is_empty() {
        stat.buckets = vec![0; spec.hist.map_or(0, |h| h.buckets() as usize)];
    }
    Cell::Stats(stat)
}
