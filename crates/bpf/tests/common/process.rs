//! Runs programs as machine code in this process, for the tests: the image of an object, as spile and probed processes
//! have it.

// Each test uses only a part of it.
#![allow(dead_code)]

use std::cell::Cell;
use std::os::fd::AsFd;

use spile_bpf::object::elf::{MapSpec, MapType, ObjectSpec};
use spile_layout::{THREAD_RECORDS, ThreadRecord};
use spile_native::image::{HostImage, ImageSpec, SharedTableKind, SharedTableSpec};
use spile_native::processor::enter;
use spile_runtime::shared::maps::ByteTable;
use spile_runtime::shared::state::HostMemory;

thread_local! {
    /// The number of the record that the current thread's handlers use, in place of a processor's.
    static SLOT: Cell<u32> = const { Cell::new(0) };
}

/// Handlers of this thread use the `n`th area from here on.
pub(crate) fn go_to(n: u64) {
    SLOT.set(u32::try_from(n).expect("few areas"));
}

/// An object as machine code, with its memory.
pub(crate) struct Process(HostImage);

fn table(map: &MapSpec) -> Result<SharedTableSpec, String> {
    Ok(SharedTableSpec {
        name: map.name.clone(),
        kind: match map.ty {
            MapType::Hash => SharedTableKind::Hash,
            MapType::PercpuHash => SharedTableKind::HashByRecord,
            MapType::Array => SharedTableKind::Array,
            MapType::Ringbuf => SharedTableKind::Ring,
            other => return Err(format!("a process has no {other:?}")),
        },
        key: map.key_size,
        value: map.value_size,
        entries: map.max_entries,
    })
}

impl Process {
    /// Translates an object and puts it into the memory of this process.
    pub(crate) fn new(spec: &ObjectSpec) -> Result<Process, String> {
        let programs = spec.programs.iter().map(|p| &p.function);
        let image = HostImage::new(&ImageSpec {
            functions: programs.chain(&spec.subprograms).collect(),
            constants: &spec.rodata,
            state: spec.bss_size as usize,
            tables: spec.maps.iter().map(table).collect::<Result<_, _>>()?,
            records: THREAD_RECORDS,
            stack: 0,
        });
        image.map(Process).map_err(|e| e.to_string())
    }

    /// The state memory.
    pub(crate) fn state_bytes(&self) -> Vec<u8> {
        let state = self.0.state();
        // SAFETY: the memory is a part of the image, and no handler runs.
        let bytes = unsafe {
            let start = (self.0.address() + state.offset) as *const u8;
            std::slice::from_raw_parts(start, state.bytes)
        };
        bytes.to_vec()
    }

    /// The file of the state memory, and where it begins.
    pub(crate) fn state(&self) -> HostMemory {
        self.memory_from(self.0.state().offset)
    }

    /// Runs a program.
    pub(crate) fn run(&self, name: &str, context: &mut [u64]) {
        let number = SLOT.get();
        self.identify(number);
        let function = self.0.function(name).expect("a program");
        let record = self.0.record_offset(number).expect("a record");
        let start = self.0.address();
        // SAFETY: the code is that of a program, which takes its context, and only this thread runs programs.
        unsafe { enter(start + function, start + record, context.as_mut_ptr()) };
    }

    /// Makes a record this thread's.
    fn identify(&self, number: u32) {
        let of = |pid: rustix::process::Pid| pid.as_raw_nonzero().get().cast_unsigned();
        let tgid = of(rustix::process::getpid());
        let mut comm = [0; 16];
        let name = rustix::thread::name().expect("a name");
        comm[..name.count_bytes()].copy_from_slice(name.to_bytes());
        let record = ThreadRecord {
            tid: of(rustix::thread::gettid()),
            tgid,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            comm,
            ..self.0.record(number).expect("a record")
        };
        self.0.set_record(number, &record);
    }

    /// A map as the controller's table.
    pub(crate) fn table(&self, name: &str) -> Box<dyn ByteTable> {
        Box::new(self.0.table(name).expect("a table"))
    }

    /// A descriptor that maps an array, and where the array begins.
    pub(crate) fn memory(&self, name: &str) -> HostMemory {
        self.memory_from(self.0.array(name).expect("an array").offset)
    }

    fn memory_from(&self, offset: usize) -> HostMemory {
        let file = self.0.as_fd().try_clone_to_owned();
        HostMemory::new(file.expect("a descriptor"), offset as u64)
    }

    /// Takes the records of a ring.
    pub(crate) fn take_records(&self, ring: &str) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        if let Some(mut ring) = self.0.ring(ring) {
            ring.consume(usize::MAX, |record| all.push(record.to_vec()));
            assert!(!ring.is_damaged());
        }
        all
    }
}
