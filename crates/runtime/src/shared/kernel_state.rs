//! The kernel's half of a session as the controller sees it: state memory, hash maps, locks, and
//! per-CPU deltas.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use spile_cast::Cast;
use spile_ir::interp::{Cell, Fault, Globals, MemGlobals, Value};
use spile_ir::storage::Storage;
use spile_ir::{GlobalId, Init, Program, Ty};
use spile_kernel::resources::error_text;
use spile_layout::{GlobalLayout, GlobalLocation, Layout};

use crate::error::Error;
use crate::shared::critical_section::{CopyFailure, CriticalSection};
use crate::shared::drain::{self, GlobalDeltas};
use crate::shared::grace::GracePeriod;
use crate::shared::handler_effects::HandlerEffects;
use crate::shared::large_arrays::LargeElements;
use crate::shared::locked_array::LockedTable;
use crate::shared::maps::{ByteTable, FieldTable, HostTables};
use crate::shared::realtime_guard::RealtimeGuard;
use crate::shared::state::{StateMemory, read_keys};
use crate::shared::thread_records::ThreadRecords;

/// How long the controller waits for a lock. A kernel handler holds one for microseconds; only a
/// controller without CPU time reaches this limit.
const LOCK_PATIENCE: Duration = Duration::from_millis(200);

/// The value of a global at one moment, in the kernel's form.
pub enum RawValue {
    /// A number, a string or a statistic.
    Cell(Cell),
    /// Keys and values of a hash map.
    Entries(Vec<(Vec<u8>, Vec<u8>)>),
}

/// A hash map behind a global.
pub type BoxedTable = RefCell<Box<dyn ByteTable>>;

/// The text that a key of an array stands for, where keys have this type, and whether all of it is known;
/// `None` for any other key.
pub type KeyText<'a> = &'a dyn Fn(&Value, Ty) -> Option<(Value, bool)>;

/// The state of a loaded object; in tests, a substitute in plain memory.
pub struct KernelState {
    state: Rc<StateMemory>,
    layout: Layout,
    /// For each global, its hash map, or one for each generation.
    tables: Vec<Vec<BoxedTable>>,
    /// For each global, the elements of a large array.
    elements: Vec<Option<LargeElements>>,
    critical: Option<CriticalSection>,
    grace: GracePeriod,
    /// Whether handlers can run, so that deltas keep coming.
    live: bool,
    /// Elements whose keys refer to files that are not known yet.
    waiting: RefCell<Vec<(GlobalId, Elements)>>,
}

impl KernelState {
    /// Opens the tables of a started program.
    ///
    /// # Errors
    /// A table of the layout is not there, or cannot be opened.
    pub fn new(
        host: &dyn HostTables,
        state: Rc<StateMemory>,
        layout: &Layout,
    ) -> Result<KernelState, Error> {
        let tables = layout.globals.iter().map(|g| match g {
            Some(g) => tables_of(host, &state, &g.location),
            None => Ok(Vec::new()),
        });
        let tables = tables.collect::<Result<_, Error>>()?;
        let elements = layout.globals.iter().map(|g| {
            let Some(GlobalLocation::PerCpuArray(array)) = g.as_ref().map(|g| &g.location) else {
                return Ok(None);
            };
            let (Some(large), Some(map)) = (&array.large, array.maps.first()) else {
                return Ok(None);
            };
            let memory = host.memory(map)?;
            Ok(Some(LargeElements::new(memory, large, array.double())))
        });
        let elements = elements.collect::<Result<_, Error>>()?;
        Ok(KernelState {
            elements,
            critical: CriticalSection::open(host, layout.critical.as_ref())?,
            grace: host.grace_period(),
            ..KernelState::with_tables(state, layout, tables)
        })
    }

    pub(super) fn with_tables(
        state: Rc<StateMemory>,
        layout: &Layout,
        tables: Vec<Vec<BoxedTable>>,
    ) -> KernelState {
        KernelState {
            state,
            layout: layout.clone(),
            tables,
            elements: Vec::new(),
            critical: None,
            grace: GracePeriod::Visit,
            live: true,
            waiting: RefCell::default(),
        }
    }

    /// The state memory.
    pub fn state(&self) -> &StateMemory {
        &self.state
    }

    /// The layout of the state memory.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The state memory, for its host.
    pub(crate) fn state_memory(&self) -> Rc<StateMemory> {
        Rc::clone(&self.state)
    }

    /// The location of a global that controller and kernel share; `None` if its value is the
    /// controller's.
    pub fn shared(&self, g: GlobalId) -> Option<&GlobalLayout> {
        let layout = self.layout.globals.get(g.index())?.as_ref()?;
        match layout.location {
            GlobalLocation::Scalar { .. }
            | GlobalLocation::Stats { .. }
            | GlobalLocation::Hash { .. } => Some(layout),
            GlobalLocation::PerCpuScalar { .. } | GlobalLocation::PerCpuArray(_) => None,
        }
    }

    /// The hash map of a shared array.
    pub fn table(&self, g: GlobalId) -> Option<&BoxedTable> {
        self.tables.get(g.index())?.first()
    }

    /// Stores the initial values of scalars in the shared area.
    pub fn initialise(&self, program: &Program) {
        for (i, global) in program.globals.iter().enumerate() {
            let location = self.shared(GlobalId(i.fit())).map(|l| &l.location);
            let (Some(GlobalLocation::Scalar { offset, ty }), Some(init)) =
                (location, &global.init)
            else {
                continue;
            };
            let value = match init {
                Init::Long(n) => Value::Long(*n),
                Init::Str(s) => Value::Str(s.clone()),
            };
            let layout = spile_layout::ValueLayout::Scalar(*ty);
            self.state
                .set(*offset, &layout, &Cell::Scalar(value.truncated_to(*ty).0));
        }
    }

    /// Consistent copies of the globals that a handler copies. Those that it takes are empty
    /// afterwards.
    pub fn copies(&self, needs: &HandlerEffects) -> Result<Vec<(GlobalId, RawValue)>, CopyFailure> {
        match &self.critical {
            Some(critical) => {
                // The section reads maps; see `drain`.
                let _urgent = (self.grace == GracePeriod::Barrier).then(RealtimeGuard::begin);
                critical.run(&self.state, needs, LOCK_PATIENCE, |g| self.table(g))
            }
            None => Err(CopyFailure::Unable),
        }
    }

    /// Takes all locks of a handler, or none; the error is the global whose lock was not available.
    pub fn lock(&self, needs: &HandlerEffects) -> Result<(), GlobalId> {
        for (n, (global, offset)) in needs.locks.iter().enumerate() {
            if !self.state.lock(*offset, LOCK_PATIENCE) {
                needs.locks[..n]
                    .iter()
                    .for_each(|(_, offset)| self.state.unlock(*offset));
                return Err(*global);
            }
        }
        self.locked_tables(needs)
            .for_each(|t| t.borrow_mut().begin_exclusive());
        Ok(())
    }

    /// Writes a handler's changes of arrays back, before their locks are released.
    pub fn write_back(&self, needs: &HandlerEffects) -> Result<(), Fault> {
        let tables = self.locked_tables(needs);
        // Writes each array back, even if another one fails.
        let done: Vec<_> = tables.map(|t| t.borrow_mut().end_exclusive()).collect();
        let done: Result<(), _> = done.into_iter().collect();
        done.map_err(|e| Fault::from(format!("writing a map: {e}")))
    }

    fn locked_tables<'a>(
        &'a self,
        needs: &'a HandlerEffects,
    ) -> impl Iterator<Item = &'a BoxedTable> {
        needs.locks.iter().filter_map(|(g, _)| self.table(*g))
    }

    /// Releases the locks of a handler.
    pub fn unlock(&self, needs: &HandlerEffects) {
        needs
            .locks
            .iter()
            .for_each(|(_, offset)| self.state.unlock(*offset));
    }

    /// Moves the current deltas into the controller's values. Returns the globals whose elements
    /// did not all fit, with the number of lost elements.
    pub fn drain(
        &mut self,
        program: &Program,
        mem: &mut MemGlobals,
        key_text: KeyText<'_>,
    ) -> Result<Vec<(GlobalId, u64)>, Fault> {
        if !self.live {
            return Ok(Vec::new());
        }
        let old = self.state.flip();
        if !self.grace.wait(&self.state) {
            // A handler may still add to the old generation. Its deltas stay there for the next
            // drain.
            return Ok(Vec::new());
        }
        // While a map is read, the kernel runs no program of a trace event on that processor. If
        // this thread is switched out in the meantime, hits of other threads are lost. This can
        // happen on the kernels that need the barrier.
        let _urgent = (self.grace == GracePeriod::Barrier).then(RealtimeGuard::begin);
        let mut merge = self.merge(mem, key_text);
        self.collect(program, &mut merge, old, (true, false))?;
        Ok(merge.full)
    }

    /// The final drain: no handler runs any more, so all deltas are moved and no more will come.
    pub fn final_drain(
        &mut self,
        program: &Program,
        mem: &mut MemGlobals,
        key_text: KeyText<'_>,
    ) -> Result<Vec<(GlobalId, u64)>, Fault> {
        self.grace.wait(&self.state);
        let now = self.state.generation();
        // The older generation first: its elements came first.
        let mut merge = self.merge(mem, key_text);
        self.collect(program, &mut merge, now ^ 1, (true, true))?;
        self.collect(program, &mut merge, now, (false, true))?;
        let full = merge.full;
        self.live = false;
        Ok(full)
    }

    fn merge<'a>(&'a self, mem: &'a mut MemGlobals, key_text: KeyText<'a>) -> DeltaMerge<'a> {
        DeltaMerge {
            mem,
            key_text,
            with_unknown_files: false,
            waiting: &self.waiting,
            full: Vec::new(),
        }
    }

    /// Moves the elements that had to wait: the files that they refer to had time to become known.
    fn collect_waiting(&self, merge: &mut DeltaMerge<'_>) -> Result<(), Fault> {
        merge.with_unknown_files = true;
        for (g, elements) in self.waiting.take() {
            let layout = self.layout.globals.get(g.index()).and_then(Option::as_ref);
            let Some(layout) = layout else { continue };
            merge.deltas(g, &layout.location, GlobalDeltas::Array(elements))?;
        }
        Ok(())
    }

    /// Moves the deltas of one generation: those of globals with two generations, or of all.
    fn collect(
        &self,
        program: &Program,
        merge: &mut DeltaMerge<'_>,
        generation: u32,
        (only_double, last): (bool, bool),
    ) -> Result<(), Fault> {
        self.collect_waiting(merge)?;
        merge.with_unknown_files = last;
        for (i, layout) in self.layout.globals.iter().enumerate() {
            let g = GlobalId(i.fit());
            let (Some(layout), Some(global)) = (layout, program.globals.get(i)) else {
                continue;
            };
            let double = global.storage == Storage::PerCpu { double: true };
            if only_double && !double {
                continue;
            }
            // A global with one generation has it under both numbers.
            let generation = if double { generation } else { 0 };
            let reading = |e| Fault::from(format!("reading {}: {}", global.name, error_text(&e)));
            let elements = self.elements.get(i).and_then(Option::as_ref);
            if let (Some(elements), GlobalLocation::PerCpuArray(array)) =
                (elements, &layout.location)
            {
                merge.elements(g, &array.keys, |add| {
                    let taken = elements.take(&self.state, array, (generation, last), add);
                    taken.map_err(reading)
                })?;
                continue;
            }
            let table = self.tables.get(i).and_then(|t| t.get(generation as usize));
            let mut table = table.map(|t| t.borrow_mut());
            let table = table.as_mut().map(|t| &mut ***t as &mut dyn ByteTable);
            let deltas = drain::take(&self.state, &self.layout, g, (generation, last), table)
                .map_err(reading)?;
            for (g, deltas) in deltas {
                merge.deltas(g, &layout.location, deltas)?;
            }
        }
        Ok(())
    }
}

/// The tables of a global: one, or one for each generation.
fn tables_of(
    host: &dyn HostTables,
    state: &Rc<StateMemory>,
    location: &GlobalLocation,
) -> Result<Vec<BoxedTable>, Error> {
    let table: Box<dyn ByteTable> = match location {
        GlobalLocation::Hash {
            map,
            field: Some(field),
            ..
        } => {
            let mut records = host.table(map)?;
            if let Some(front) = field.front {
                records = Box::new(ThreadRecords::new(front, Rc::clone(state), records));
            }
            let field = *field;
            Box::new(FieldTable { records, field })
        }
        GlobalLocation::Hash { map, .. } => Box::new(LockedTable::new(host.table(map)?)),
        // Co-located arrays are drained with their host.
        GlobalLocation::PerCpuArray(array)
            if array.colocated.host.is_none() && array.large.is_none() =>
        {
            let tables = array.maps.iter().map(|map| host.table(map));
            return tables.map(|t| t.map(RefCell::new)).collect();
        }
        _ => return Ok(Vec::new()),
    };
    Ok(vec![RefCell::new(table)])
}

/// Elements with the bytes of their keys.
type Elements = Vec<(Vec<u8>, Cell)>;

/// Adds per-CPU deltas to the controller's values.
struct DeltaMerge<'a> {
    mem: &'a mut MemGlobals,
    key_text: KeyText<'a>,
    /// Also adds elements whose keys refer to unknown files.
    with_unknown_files: bool,
    waiting: &'a RefCell<Vec<(GlobalId, Elements)>>,
    /// The globals whose elements did not all fit, with the number of lost elements.
    full: Vec<(GlobalId, u64)>,
}

impl DeltaMerge<'_> {
    /// Adds deltas to the controller's value.
    fn deltas(
        &mut self,
        g: GlobalId,
        location: &GlobalLocation,
        deltas: GlobalDeltas,
    ) -> Result<(), Fault> {
        match (deltas, location) {
            (GlobalDeltas::Scalar(Cell::Scalar(v)), _) => self.mem.gadd(g, v.as_long()).map(drop),
            (GlobalDeltas::Scalar(Cell::Stats(s)), _) => self.mem.stat_merge(g, &[], &s),
            (GlobalDeltas::Array(elements), GlobalLocation::PerCpuArray(array)) => {
                self.elements(g, &array.keys, |add| {
                    elements
                        .into_iter()
                        .for_each(|(key, delta)| add(&key, delta));
                    Ok(())
                })
            }
            (GlobalDeltas::Array(_), _) => Ok(()),
        }
    }

    /// Adds the elements that a function gives. Those whose keys refer to unknown files have to wait unless
    /// `with_unknown_files` is set.
    fn elements(
        &mut self,
        g: GlobalId,
        types: &[Ty],
        each: impl FnOnce(&mut dyn FnMut(&[u8], Cell)) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (mut missed, mut unknown) = (0, Vec::new());
        each(&mut |key, delta| match self.add(g, types, key, &delta) {
            AddResult::Yes => {}
            AddResult::Full => missed += 1,
            AddResult::Unknown => unknown.push((key.to_vec(), delta)),
        })?;
        self.full.extend((missed > 0).then_some((g, missed)));
        if !unknown.is_empty() {
            self.waiting.borrow_mut().push((g, unknown));
        }
        Ok(())
    }

    /// Adds the delta of an element.
    fn add(&mut self, g: GlobalId, types: &[Ty], key: &[u8], delta: &Cell) -> AddResult {
        let mut keys = read_keys(types, key);
        let mut all_resolved = true;
        for (key, ty) in keys.iter_mut().zip(types) {
            if let Value::Str(_) = key
                && let Some((text, all_known)) = (self.key_text)(key, *ty)
            {
                *key = text;
                all_resolved &= all_known;
            }
        }
        if !all_resolved && !self.with_unknown_files {
            return AddResult::Unknown;
        }
        let added = match delta {
            Cell::Scalar(v) => self.mem.aadd(g, &keys, v.as_long()).map(|_| ()),
            Cell::Stats(s) => self.mem.stat_merge(g, &keys, s),
        };
        // No other error is possible here.
        added.map_or(AddResult::Full, |()| AddResult::Yes)
    }
}

/// The result of adding an element.
enum AddResult {
    /// It is part of the controller's value.
    Yes,
    /// The array is full.
    Full,
    /// Its key refers to files that are not known yet.
    Unknown,
}
