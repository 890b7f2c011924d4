//! The image of an object: its code and memory in the form of processes, and its tables for the controller.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use spile_bpf::compiled::Object;
use spile_bpf::object::elf::{MapSpec, MapType};
use spile_inject::{AreaAccess, ImageArea, ProcessImage, RecordSlots};
use spile_layout::critical::CriticalLayout;
use spile_layout::{Layout, THREAD_SLOTS, ThreadRecord};
use spile_native::image::{HostImage, ImageSpec, SharedTableKind, SharedTableSpec};
use spile_native::memory::Protection;
use spile_native::requests::Requests;
use spile_native::ring::SharedRing;
use spile_native::table::Table;

use crate::error::Error;
use crate::shared::grace::GracePeriod;
use crate::shared::maps::{ByteTable, Entries, HostTables, SectionRunner};
use crate::shared::state::{HostMemory, StateMemory};

/// Bytes of the stack that handlers of a thread run on. A signal can run its own handler on it.
const STACK: usize = 256 << 10;

/// The image of an object.
pub(super) struct SharedImage {
    image: HostImage,
    /// Bytes of the state memory.
    state: usize,
    /// Offset of `clock_gettime` in the vDSO.
    clock: Option<u64>,
}

impl SharedImage {
    /// Makes the image.
    ///
    /// # Errors
    /// The object has something that processes have no answer for, or there is no memory.
    pub(super) fn new(object: &Object) -> Result<SharedImage, Error> {
        let spec = &object.spec;
        let programs = spec.programs.iter().map(|program| &program.function);
        let tables = spec.maps.iter().map(table_spec);
        let image = HostImage::new(&ImageSpec {
            functions: programs.chain(&spec.subprograms).collect(),
            constants: &spec.rodata,
            state: spec.bss_size as usize,
            tables: tables.collect::<Result<_, _>>()?,
            records: object.layout.cpus,
            stack: STACK,
        });
        Ok(SharedImage {
            image: image.map_err(|e| Error::Internal(e.to_string()))?,
            state: spec.bss_size as usize,
            clock: vdso_clock(),
        })
    }

    /// A descriptor of the image.
    fn file(&self) -> Result<OwnedFd, Error> {
        let file = self.image.as_fd().try_clone_to_owned();
        file.map_err(|e| Error::System("duplicating a descriptor", e))
    }

    /// The memory from an offset on.
    fn memory_from(&self, offset: usize) -> Result<HostMemory, Error> {
        Ok(HostMemory::new(self.file()?, offset as u64))
    }

    /// The state memory.
    pub(super) fn state(&self, layout: &Layout) -> Result<StateMemory, Error> {
        let memory = self.memory_from(self.image.state().offset)?;
        StateMemory::map(layout, &memory, self.state)
    }

    /// The reader of a ring.
    pub(super) fn ring(&self, name: &str) -> Option<SharedRing> {
        self.image.ring(name)
    }

    /// Offset of a function.
    pub(super) fn function(&self, name: &str) -> Result<u64, Error> {
        let offset = self.image.function(name).map(|offset| offset as u64);
        offset.ok_or_else(|| Error::Internal(format!("the image has no function {name}")))
    }

    /// The areas to map.
    pub(super) fn areas(&self) -> [ImageArea; 3] {
        self.image.areas().map(|area| ImageArea {
            offset: area.offset as u64,
            length: area.bytes as u64,
            access: match area.protection {
                Protection::Execute => AreaAccess::Code,
                Protection::Read => AreaAccess::Constants,
                Protection::Write => AreaAccess::Shared,
            },
        })
    }

    /// What is put into processes.
    pub(super) fn injected<'i>(&'i self, areas: &'i [ImageArea]) -> ProcessImage<'i> {
        ProcessImage {
            file: self.image.as_fd(),
            areas,
            threads: RecordSlots {
                records: self.image.records().offset as u64,
                slots: THREAD_SLOTS,
                stacks: self.image.stacks().offset as u64,
                stack: STACK as u64,
            },
            clock: self.clock,
            exact: false,
        }
    }

    /// Keeps the record of a number from threads: this process uses its area, see [`SharedImage::run_for`].
    pub(super) fn reserve(&self, slot: u32) {
        let record = ThreadRecord {
            slot,
            owner: u64::MAX,
            tid: std::process::id(),
            tgid: std::process::id(),
            ..ThreadRecord::default()
        };
        self.image.set_record(slot, &record);
    }

    /// Runs a program in this process.
    pub(super) fn run_for(&self, name: &str, record: &mut ThreadRecord, context: &mut [u64]) {
        self.image.run_for(name, record, context);
    }

    /// Requests of threads.
    pub(super) fn requests(&self) -> Requests {
        self.image.requests()
    }

    /// Cleans up after threads that ended within a handler.
    pub(super) fn recover(&self) {
        self.image.recover_dead(is_alive);
    }

    /// Hits that were skipped because the thread was in a handler.
    pub(super) fn skipped(&self) -> u64 {
        let records = (0..self.image.record_count()).filter_map(|n| self.image.record(n));
        records.map(|record| record.skipped).sum()
    }
}

/// Offset of `clock_gettime` in the vDSO, which all processes of this machine share.
fn vdso_clock() -> Option<u64> {
    let vdso = crate::text::user_files::vdso()?;
    let symbols = spile_debuginfo::ElfSymbols::exported(&vdso);
    let found = symbols.named("__vdso_clock_gettime").next()?;
    Some(found.address)
}

/// Whether a thread exists.
fn is_alive(tid: u32) -> bool {
    Path::new(&format!("/proc/{tid}")).exists()
}

fn table_spec(map: &MapSpec) -> Result<SharedTableSpec, Error> {
    let kind = match map.ty {
        MapType::Hash => SharedTableKind::Hash,
        MapType::PercpuHash => SharedTableKind::HashByRecord,
        MapType::Array => SharedTableKind::Array,
        MapType::Ringbuf => SharedTableKind::Ring,
        _ => {
            return Err(Error::Internal(format!(
                "a process has no map like {}",
                map.name
            )));
        }
    };
    Ok(SharedTableSpec {
        name: map.name.clone(),
        kind,
        key: map.key_size,
        value: map.value_size,
        entries: map.max_entries,
    })
}

impl HostTables for SharedImage {
    fn table(&self, name: &str) -> Result<Box<dyn ByteTable>, Error> {
        let table = self.image.table(name);
        let table = table.ok_or_else(|| Error::Internal(format!("the image has no table {name}")));
        Ok(Box::new(table?))
    }

    fn memory(&self, name: &str) -> Result<HostMemory, Error> {
        let region = self.image.array(name);
        let region =
            region.ok_or_else(|| Error::Internal(format!("the image has no array {name}")));
        self.memory_from(region?.offset)
    }

    fn critical_section(&self, _: &CriticalLayout) -> Result<Option<SectionRunner>, Error> {
        Ok(None)
    }

    fn grace_period(&self) -> GracePeriod {
        GracePeriod::Busy
    }
}

impl ByteTable for Table {
    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        Table::get(self, key)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        Table::set(self, key, value)
    }

    fn remove(&mut self, key: &[u8]) -> io::Result<()> {
        Table::remove(self, key)
    }

    fn entries(&mut self) -> io::Result<Entries> {
        Table::entries(self)
    }

    fn drain(&mut self) -> io::Result<Entries> {
        Table::drain(self)
    }

    fn capacity(&self) -> usize {
        Table::capacity(self)
    }
}
