//! The controller's critical section, run by the host (in the kernel it is
//! `crates/bpf/src/programs/critical_section.rs`): consistent copies of globals, made without this
//! thread ever holding their locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spile_cast::Cast;
use spile_ir::GlobalId;
use spile_layout::critical::{
    CopyLocation, CriticalLayout, ENTRY, ElementCopies, LockedGlobal, answer, request,
};

use crate::error::Error;
use crate::shared::handler_effects::HandlerEffects;
use crate::shared::kernel_state::{BoxedTable, RawValue};
use crate::shared::maps::{Entries, HostTables, SectionRunner};
use crate::shared::state::{StateMemory, WordMemory};

/// Checks of a lock that a handler holds before this thread yields.
const LOOKS: u32 = 200;
/// Attempts while the host does not run the section. Some kernels run none in threads of process
/// 1.
const REFUSALS: u32 = 64;

/// The section, and the memory of its copies of arrays.
pub(crate) struct CriticalSection {
    layout: CriticalLayout,
    copies: Vec<Option<WordMemory>>,
    runner: SectionRunner,
}

/// The reason why there is no copy.
pub enum CopyFailure {
    /// Handlers held the lock of this global in every attempt.
    Busy(GlobalId),
    /// The section is not available; the controller has to take the locks.
    Unable,
}

impl CriticalSection {
    /// The section of a started program; `None` if it has none, or if the host refused it.
    pub(crate) fn open(
        tables: &dyn HostTables,
        layout: Option<&CriticalLayout>,
    ) -> Result<Option<Self>, Error> {
        let Some(layout) = layout else {
            return Ok(None);
        };
        let Some(runner) = tables.critical_section(layout)? else {
            return Ok(None);
        };
        let copy = |guarded: &LockedGlobal| {
            let CopyLocation::Elements(ElementCopies {
                to,
                key,
                value,
                max,
                ..
            }) = &guarded.copy
            else {
                return Ok(None);
            };
            let bytes = (ENTRY + *key + *value) as usize * *max as usize;
            let bytes = bytes.next_multiple_of(rustix::param::page_size());
            let memory = tables.memory(to)?.map(0, bytes);
            let memory = memory.map_err(|e| Error::System("mapping copies of arrays", e))?;
            Ok(Some(memory))
        };
        let copies = layout.globals.iter().map(copy);
        let copies = copies.collect::<Result<_, Error>>()?;
        Ok(Some(CriticalSection {
            layout: layout.clone(),
            copies,
            runner,
        }))
    }

    /// The bits of globals; `None` if the section cannot copy one of them.
    fn bits(&self, mut globals: impl Iterator<Item = GlobalId>) -> Option<u64> {
        globals.try_fold(0, |bits, g| {
            let index = self.layout.globals.iter().position(|c| c.global == g)?;
            Some(bits | 1 << index)
        })
    }

    /// Consistent copies of the globals that a handler needs. Those that it takes are empty
    /// afterwards.
    pub(crate) fn run<'a>(
        &self,
        state: &StateMemory,
        needs: &HandlerEffects,
        timeout: Duration,
        table: impl Fn(GlobalId) -> Option<&'a BoxedTable>,
    ) -> Result<Vec<(GlobalId, RawValue)>, CopyFailure> {
        let wanted = self.bits(needs.locks.iter().map(|(g, _)| *g));
        let taken = self.bits(needs.taken.iter().copied());
        let (Some(wanted), Some(taken)) = (wanted, taken) else {
            return Err(CopyFailure::Unable);
        };
        for (n, (guarded, copy)) in self.layout.globals.iter().zip(&self.copies).enumerate() {
            if let (true, Some(copy)) = (wanted & (1 << n) != 0, copy) {
                write_keys(state, guarded, copy, table(guarded.global));
            }
        }
        let since = Instant::now();
        let mut refusals = 0;
        for turn in 0.. {
            let mut words = [0; request::WORDS];
            (words[request::WANTED], words[request::TAKEN]) = (wanted, taken);
            match (self.runner)(turn, &mut words) {
                Some(answer::DONE) => break,
                Some(answer::BUSY) if since.elapsed() < timeout => wait_for_locks(state, needs),
                Some(answer::BUSY) => {
                    let is_locked =
                        |offset: &u32| state.shared(*offset).load(Ordering::Relaxed) != 0;
                    let locked = needs.locks.iter().find(|(_, offset)| is_locked(offset));
                    let locked = locked.or(needs.locks.first());
                    return Err(locked.map_or(CopyFailure::Unable, |(g, _)| CopyFailure::Busy(*g)));
                }
                Some(_) if refusals < REFUSALS => refusals += 1,
                _ => return Err(CopyFailure::Unable),
            }
        }
        let globals = self.layout.globals.iter().zip(&self.copies).enumerate();
        let globals = globals.filter(|(n, _)| wanted & (1 << n) != 0);
        Ok(globals
            .filter_map(|(_, (guarded, copy))| {
                Some((guarded.global, copy_of(state, guarded, copy)?))
            })
            .collect())
    }
}

/// Waits until the locks look free; handlers hold them for microseconds.
fn wait_for_locks(state: &StateMemory, needs: &HandlerEffects) {
    for (_, offset) in &needs.locks {
        let mut looks = 0;
        while state.shared(*offset).load(Ordering::Relaxed) != 0 && looks < LOOKS {
            looks += 1;
            std::hint::spin_loop();
        }
        if looks == LOOKS {
            std::thread::yield_now();
        }
    }
}

/// The copy of a global.
fn copy_of(
    state: &StateMemory,
    guarded: &LockedGlobal,
    copy: &Option<WordMemory>,
) -> Option<RawValue> {
    match (&guarded.copy, copy) {
        (CopyLocation::Words { to, value, .. }, _) => Some(RawValue::Cell(state.get(*to, value))),
        (
            CopyLocation::Elements(ElementCopies {
                count, key, value, ..
            }),
            Some(copy),
        ) => {
            let n = state.shared(*count).load(Ordering::Relaxed).fit::<usize>();
            Some(RawValue::Entries(entries(
                copy.words(),
                n,
                (*key as usize / 8, *value as usize / 8),
            )))
        }
        _ => None,
    }
}

/// Collects the keys of an array without its lock, and writes them to the entries.
fn write_keys(
    state: &StateMemory,
    guarded: &LockedGlobal,
    copy: &WordMemory,
    table: Option<&BoxedTable>,
) {
    let CopyLocation::Elements(ElementCopies {
        key,
        value,
        max,
        known: Some(known),
        ..
    }) = &guarded.copy
    else {
        return;
    };
    state.shared(known.fresh).store(0, Ordering::SeqCst);
    let elements = table.and_then(|t| t.borrow_mut().entries().ok());
    let elements = elements.filter(|f| f.len() <= *max as usize);
    let size = (ENTRY + *key + *value) as usize / 8;
    let entries = copy.words().chunks_exact(size);
    for (entry, (key, _)) in entries.zip(elements.iter().flatten()) {
        let words = entry[ENTRY as usize / 8..].iter();
        for (to, from) in words.zip(key.chunks_exact(8)) {
            let from = u64::from_ne_bytes(from.try_into().unwrap_or_default());
            to.store(from, Ordering::Relaxed);
        }
    }
    let keys = elements.map_or(u64::MAX, |f| f.len() as u64);
    state.shared(known.keys).store(keys, Ordering::SeqCst);
}

/// The elements among the first `n` entries of a copy. `key` and `value` are their sizes in words.
fn entries(words: &[AtomicU64], n: usize, (key, value): (usize, usize)) -> Entries {
    let bytes = |words: &[AtomicU64]| {
        let words = words.iter().map(|w| w.load(Ordering::Relaxed));
        words.flat_map(u64::to_ne_bytes).collect::<Vec<u8>>()
    };
    let entries = words.chunks_exact(ENTRY as usize / 8 + key + value).take(n);
    let entries = entries.map(|entry| entry.split_at(ENTRY as usize / 8));
    entries
        .filter(|(presence, _)| presence[0].load(Ordering::Relaxed) != 0)
        .map(|(_, entry)| (bytes(&entry[..key]), bytes(&entry[key..])))
        .collect()
}
