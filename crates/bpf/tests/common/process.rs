//! Runs programs as machine code in this process, for the tests. The host's helpers are functions of this file; tables are plain memory.

// Each test uses only a part of it.
#![allow(dead_code)]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::rc::Rc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};
use spile_bpf::object::elf::{MapSpec, MapType, ObjectSpec};
use spile_ebpf::isa::helpers::{Helper, NOEXIST, errno};
use spile_native::code::HostSymbol;
use spile_native::translate::translate;
use spile_runtime::shared::maps::{ByteTable, Entries};

thread_local! {
    /// The number of the area that the current thread's handlers use, in place of a processor's.
    static SLOT: Cell<u64> = const { Cell::new(0) };
}

/// Handlers of this thread use the `n`th area from here on.
pub(crate) fn go_to(n: u64) {
    SLOT.set(n);
}

/// A map of the process.
struct Table {
    key: usize,
    value: usize,
    most: usize,
    /// The values of a hash table. Their addresses do not change.
    elements: RefCell<HashMap<Vec<u8>, Box<[u64]>>>,
    /// The values of an array.
    array: Option<(OwnedFd, Mapping)>,
    /// What a ring has.
    records: RefCell<Vec<Vec<u8>>>,
}

/// Memory that is given back at the end.
struct Mapping(*mut c_void, usize);

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nobody uses it any more.
        unsafe { munmap(self.0, self.1).expect("mapped") };
    }
}

/// A shared memory file of this many bytes, in whole pages, mapped at `at` if that is given.
fn shared(bytes: usize, at: Option<*mut c_void>) -> (OwnedFd, Mapping) {
    let bytes = bytes.max(1).next_multiple_of(rustix::param::page_size());
    let file = memfd_create("spile", MemfdFlags::CLOEXEC).expect("a file");
    ftruncate(&file, bytes as u64).expect("space");
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = match at {
        Some(_) => MapFlags::SHARED | MapFlags::FIXED,
        None => MapFlags::SHARED,
    };
    // SAFETY: the address is in the reservation of the caller, or the kernel chooses one.
    let start = unsafe {
        mmap(
            at.unwrap_or_default(),
            bytes,
            access,
            flags,
            file.as_fd(),
            0,
        )
    };
    (file, Mapping(start.expect("memory"), bytes))
}

impl Table {
    fn new(spec: &MapSpec) -> Table {
        let value = (spec.value_size as usize).next_multiple_of(8);
        let bytes = value * spec.max_entries as usize;
        Table {
            key: spec.key_size as usize,
            value,
            most: spec.max_entries as usize,
            elements: RefCell::default(),
            array: (spec.ty == MapType::Array).then(|| shared(bytes, None)),
            records: RefCell::default(),
        }
    }

    /// The bytes of a key.
    ///
    /// # Safety
    /// The handler's key is at the address.
    unsafe fn key_at(&self, at: u64) -> Vec<u8> {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(at as *const u8, self.key) }.to_vec()
    }
}

/// An object as machine code, with its memory.
pub(crate) struct Process {
    programs: HashMap<String, usize>,
    tables: HashMap<String, Rc<Table>>,
    state: OwnedFd,
    /// The addresses of the code and of the state memory, and the latter's length.
    base: usize,
    state_at: (usize, usize),
    _reservation: Mapping,
}

impl Process {
    /// Translates an object and puts it into the memory of this process.
    pub(crate) fn new(spec: &ObjectSpec) -> Result<Process, String> {
        let programs = spec.programs.iter().map(|p| &p.function);
        let code = translate(programs.chain(&spec.subprograms)).map_err(|e| e.to_string())?;
        let page = rustix::param::page_size();
        let pages = |bytes: usize| bytes.max(1).next_multiple_of(page);
        let (state, constants) = (spec.bss_size as usize, spec.rodata.len());
        let sizes = [code.length(), constants, 8 * spec.maps.len(), state].map(pages);
        let whole = sizes.iter().sum();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), whole, access, MapFlags::PRIVATE) };
        let base = start.expect("memory") as usize;
        let reservation = Mapping(base as *mut c_void, whole);
        let [text, constants, handles, state_at] =
            std::array::from_fn(|i| base + sizes[..i].iter().sum::<usize>());
        let (state, mapped) = shared(state, Some(state_at as *mut c_void));
        // It is a part of the reservation.
        std::mem::forget(mapped);
        let tables: Vec<_> = spec
            .maps
            .iter()
            .map(|map| (map.name.clone(), Rc::new(Table::new(map))))
            .collect();
        let bytes = code.link(text as u64, |symbol| match symbol {
            HostSymbol::State => Some(state_at as u64),
            HostSymbol::Constants => Some(constants as u64),
            HostSymbol::Map(name) => {
                let number = tables.iter().position(|(map, _)| **map == **name)?;
                Some((handles + 8 * number) as u64)
            }
            HostSymbol::Helper(number) => helper(*number),
        });
        let bytes = bytes.map_err(|e| e.to_string())?;
        let put = |at: usize, bytes: &[u8]| {
            // SAFETY: the reservation has space for each of them, and nobody uses it yet.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
        };
        put(text, &bytes);
        put(constants, &spec.rodata);
        for (number, (_, table)) in tables.iter().enumerate() {
            put(
                handles + 8 * number,
                &(Rc::as_ptr(table) as usize).to_ne_bytes(),
            );
        }
        let access = MprotectFlags::READ | MprotectFlags::EXEC;
        // SAFETY: only code is there.
        unsafe { mprotect(text as *mut c_void, sizes[0], access).expect("executable") };
        let position = |name: &str| code.function(name).map(|at| (name.to_owned(), at));
        Ok(Process {
            programs: spec
                .programs
                .iter()
                .filter_map(|p| position(&p.function.name))
                .collect(),
            tables: tables.into_iter().collect(),
            state,
            base,
            state_at: (state_at, spec.bss_size as usize),
            _reservation: reservation,
        })
    }

    /// The state memory.
    pub(crate) fn state_bytes(&self) -> Vec<u8> {
        let (at, length) = self.state_at;
        // SAFETY: the memory is a part of the reservation, and no handler runs.
        unsafe { std::slice::from_raw_parts(at as *const u8, length) }.to_vec()
    }

    /// The file of the state memory.
    pub(crate) fn state(&self) -> &OwnedFd {
        &self.state
    }

    /// Runs a program.
    pub(crate) fn run(&self, name: &str, context: &mut [u64]) {
        let at = self.base + self.programs[name];
        // SAFETY: the code is that of a program, which takes its context, in the C convention.
        unsafe {
            let code: extern "C" fn(*mut u64) -> u64 = std::mem::transmute(at);
            code(context.as_mut_ptr());
        }
    }

    /// A map as the controller's table.
    pub(crate) fn table(&self, name: &str) -> Box<dyn ByteTable> {
        Box::new(Elements(Rc::clone(&self.tables[name])))
    }

    /// A descriptor that maps an array.
    pub(crate) fn memory(&self, name: &str) -> OwnedFd {
        let (file, _) = self.tables[name].array.as_ref().expect("an array");
        file.try_clone().expect("a descriptor")
    }

    /// Takes the records of a ring.
    pub(crate) fn take_records(&self, ring: &str) -> Vec<Vec<u8>> {
        let ring = self.tables.get(ring);
        ring.map(|ring| ring.records.take()).unwrap_or_default()
    }
}

/// The elements of a hash table for the controller.
struct Elements(Rc<Table>);

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn words_of(bytes: &[u8]) -> Box<[u64]> {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    });
    words.collect()
}

impl ByteTable for Elements {
    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        if let Some((_, memory)) = &self.0.array {
            let index = u32::from_ne_bytes(key.try_into().expect("four bytes")) as usize;
            // SAFETY: the memory has the values, one after the other, and no handler runs.
            let all = unsafe { std::slice::from_raw_parts(memory.0 as *const u8, memory.1) };
            let value = all[..self.0.most * self.0.value]
                .chunks(self.0.value)
                .nth(index);
            return Ok(value.map(<[u8]>::to_vec));
        }
        let elements = self.0.elements.borrow();
        Ok(elements.get(key).map(|words| bytes_of(words)))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        let mut elements = self.0.elements.borrow_mut();
        let fits = elements.contains_key(key) || elements.len() < self.0.most;
        if fits {
            elements.insert(key.to_vec(), words_of(value));
        }
        Ok(fits)
    }

    fn remove(&mut self, key: &[u8]) -> io::Result<()> {
        self.0.elements.borrow_mut().remove(key);
        Ok(())
    }

    fn entries(&mut self) -> io::Result<Entries> {
        let elements = self.0.elements.borrow();
        Ok(elements
            .iter()
            .map(|(key, words)| (key.clone(), bytes_of(words)))
            .collect())
    }

    fn capacity(&self) -> usize {
        self.0.most
    }
}

/// The table of a handle.
///
/// # Safety
/// The address is that of a map's handle in a living process.
unsafe fn table<'t>(handle: u64) -> &'t Table {
    // SAFETY: the caller's promise.
    unsafe { &**(handle as *const *const Table) }
}

/// A helper's result that means an error.
fn error(code: i32) -> u64 {
    i64::from(code).cast_unsigned()
}

extern "C" fn lookup(map: u64, key: u64) -> u64 {
    // SAFETY: handlers call it with a map and its key.
    let (table, key) = unsafe { (table(map), table(map).key_at(key)) };
    if let Some((_, memory)) = &table.array {
        let index = u32::from_ne_bytes(key.try_into().expect("four bytes")) as usize;
        return match index < table.most {
            true => memory.0 as u64 + (index * table.value) as u64,
            false => 0,
        };
    }
    let elements = table.elements.borrow();
    elements.get(&key).map_or(0, |words| words.as_ptr() as u64)
}

extern "C" fn update(map: u64, key: u64, value: u64, flags: u64) -> u64 {
    // SAFETY: handlers call it with a map, its key and its value.
    let (table, key, value) = unsafe {
        let table = table(map);
        (
            table,
            table.key_at(key),
            std::slice::from_raw_parts(value as *const u8, table.value),
        )
    };
    let mut elements = table.elements.borrow_mut();
    let is_new = match elements.get_mut(&key) {
        Some(_) if flags & u64::from(NOEXIST.cast_unsigned()) != 0 => return error(errno::EEXIST),
        Some(words) => {
            words.copy_from_slice(&words_of(value));
            false
        }
        None => true,
    };
    if is_new && elements.len() >= table.most {
        return error(errno::E2BIG);
    }
    if is_new {
        elements.insert(key, words_of(value));
    }
    0
}

extern "C" fn delete(map: u64, key: u64) -> u64 {
    // SAFETY: handlers call it with a map and its key.
    let (table, key) = unsafe { (table(map), table(map).key_at(key)) };
    match table.elements.borrow_mut().remove(&key) {
        // A handler may still have the value's address.
        Some(words) => drop(Box::leak(words)),
        None => return error(-2),
    }
    0
}

extern "C" fn for_each(map: u64, callback: u64, context: u64) -> u64 {
    // SAFETY: handlers call it with a map and one of their functions.
    let (table, callback) = unsafe {
        let callback: extern "C" fn(u64, *const u8, *const u64, u64) -> u64 =
            std::mem::transmute(callback);
        (table(map), callback)
    };
    let all: Vec<_> = table
        .elements
        .borrow()
        .iter()
        .map(|(key, words)| (key.clone(), words.as_ptr()))
        .collect();
    let mut done = 0;
    for (key, value) in all {
        done += 1;
        if callback(map, key.as_ptr(), value, context) != 0 {
            break;
        }
    }
    done
}

extern "C" fn output(ring: u64, data: u64, size: u64) -> u64 {
    // SAFETY: handlers call it with a ring and a record.
    unsafe {
        let record = std::slice::from_raw_parts(data as *const u8, size as usize);
        table(ring).records.borrow_mut().push(record.to_vec());
    }
    0
}

extern "C" fn slot() -> u64 {
    SLOT.get()
}

/// Reads memory that may not be there.
extern "C" fn read(to: u64, size: u64, from: u64) -> u64 {
    let part = |at: u64| libc::iovec {
        iov_base: at as *mut c_void,
        iov_len: size as usize,
    };
    let (to, from) = (part(to), part(from));
    // SAFETY: the kernel checks both addresses; the first is the handler's own memory.
    let done =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
    match u64::try_from(done) == Ok(size) {
        true => 0,
        false => {
            // SAFETY: as above. The kernel's helper clears the memory after a fault.
            unsafe { ptr::write_bytes(to.iov_base.cast::<u8>(), 0, size as usize) };
            error(-14)
        }
    }
}

/// Reads a string with its end, of at most `size` bytes.
extern "C" fn read_string(to: u64, size: u64, from: u64) -> u64 {
    for i in 0..size {
        let failed = read(to + i, 1, from + i);
        if failed != 0 {
            return failed;
        }
        // SAFETY: the byte was just written.
        let byte = unsafe { (to as *mut u8).add(i as usize) };
        // SAFETY: the same.
        unsafe {
            if i + 1 == size {
                *byte = 0;
            }
            if *byte == 0 {
                return i + 1;
            }
        }
    }
    0
}

extern "C" fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

extern "C" fn thread() -> u64 {
    let number = |pid: rustix::process::Pid| u64::from(pid.as_raw_nonzero().get().cast_unsigned());
    number(rustix::process::getpid()) << 32 | number(rustix::thread::gettid())
}

extern "C" fn name(to: u64, size: u64) -> u64 {
    let name = rustix::thread::name()
        .expect("a name")
        .into_bytes_with_nul();
    // SAFETY: handlers call it with memory of that size, which is at least a name's.
    let to = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, size as usize) };
    to.fill(0);
    to[..name.len()].copy_from_slice(&name);
    0
}

extern "C" fn random() -> u64 {
    4
}

/// The address of a helper.
fn helper(number: u32) -> Option<u64> {
    const fn of(helper: Helper) -> u32 {
        helper as u32
    }
    let at = match number {
        n if n == of(Helper::MapLookupElem) => lookup as *const () as usize,
        n if n == of(Helper::MapUpdateElem) => update as *const () as usize,
        n if n == of(Helper::MapDeleteElem) => delete as *const () as usize,
        n if n == of(Helper::ForEachMapElem) => for_each as *const () as usize,
        n if n == of(Helper::RingbufOutput) => output as *const () as usize,
        n if n == of(Helper::GetSmpProcessorId) => slot as *const () as usize,
        n if n == of(Helper::KtimeGetNs) => now as *const () as usize,
        n if n == of(Helper::GetCurrentPidTgid) => thread as *const () as usize,
        n if n == of(Helper::GetCurrentComm) => name as *const () as usize,
        n if n == of(Helper::GetPrandomU32) => random as *const () as usize,
        n if [Helper::ProbeReadKernel, Helper::ProbeReadUser]
            .map(of)
            .contains(&n) =>
        {
            read as *const () as usize
        }
        n if [Helper::ProbeReadKernelStr, Helper::ProbeReadUserStr]
            .map(of)
            .contains(&n) =>
        {
            read_string as *const () as usize
        }
        _ => return None,
    };
    Some(at as u64)
}
