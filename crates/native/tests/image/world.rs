//! An image with a table of each kind, handlers that use them, and threads that run the handlers.

use std::sync::atomic::AtomicU64;

use spile_ebpf::emit::{ObjectSymbols, emit};
use spile_ebpf::isa::asm::{Asm, AsmFunction};
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::Reg::{R0, R1, R2, R3, R4, R6};
use spile_ebpf::isa::insn::Size;
use spile_layout::ThreadRecord;
use spile_lir::Module;
use spile_lir::builder::{Builder, Scalar, build};
use spile_lir::func::{LirFunc, MemoryOperand};
use spile_lir::helpers::Helper as LirHelper;
use spile_native::image::{HostImage, ImageSpec, SharedTableKind, SharedTableSpec};
use spile_native::processor::enter;

/// The number of records.
pub(crate) const RECORDS: u32 = 16;
/// The names of the tables.
pub(crate) const TABLE: &str = "table";
pub(crate) const PAIRS: &str = "pairs";
pub(crate) const ARRAY: &str = "array";
pub(crate) const RING: &str = "ring";
/// Limits of tables.
pub(crate) const ENTRIES: u32 = 100;
pub(crate) const RING_BYTES: u32 = 1 << 14;
/// The number of the result among the words of a context.
pub(crate) const RESULT: usize = 4;

/// The handlers that call one helper: with a table, or the first word of the context, and the next words.
const HELPERS: &[(&str, Helper, Option<&str>)] = &[
    ("lookup", Helper::MapLookupElem, Some(TABLE)),
    ("update", Helper::MapUpdateElem, Some(TABLE)),
    ("delete", Helper::MapDeleteElem, Some(TABLE)),
    ("lookup_pair", Helper::MapLookupElem, Some(PAIRS)),
    ("update_pair", Helper::MapUpdateElem, Some(PAIRS)),
    ("lookup_array", Helper::MapLookupElem, Some(ARRAY)),
    ("update_array", Helper::MapUpdateElem, Some(ARRAY)),
    ("output", Helper::RingbufOutput, Some(RING)),
    ("waiting", Helper::RingbufQuery, Some(RING)),
    ("read", Helper::ProbeReadUser, None),
    ("read_text", Helper::ProbeReadUserStr, None),
    ("copy", Helper::ProbeReadKernel, None),
    ("copy_text", Helper::ProbeReadKernelStr, None),
    ("now", Helper::KtimeGetNs, None),
    ("random", Helper::GetPrandomU32, None),
    ("processor", Helper::GetSmpProcessorId, None),
    ("task", Helper::GetCurrentTask, None),
    ("thread", Helper::GetCurrentPidTgid, None),
    ("user", Helper::GetCurrentUidGid, None),
    ("name", Helper::GetCurrentComm, None),
];

fn calls((name, helper, table): (&'static str, Helper, Option<&str>)) -> AsmFunction {
    let mut asm = Asm::new(name, &["ctx"]);
    asm.mov(R6, R1);
    for (word, register) in (0..).zip([R1, R2, R3, R4]) {
        asm.load(Size::DW, register, R6, 8 * word);
    }
    if let Some(table) = table {
        asm.ld_map(R1, table);
    }
    asm.call(helper);
    asm.store(Size::DW, R6, 8 * RESULT as i16, R0);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().expect("assembles")
}

fn map<'b>(f: &'b Builder, name: &str) -> Scalar<'b> {
    f.addr(MemoryOperand::Map(name.into()))
}

/// `table[key] += 1`, as handlers do it.
fn count() -> LirFunc {
    build("count", "", ["ctx"], |f, [ctx]| {
        let (key, one) = (f.slot(8), f.slot(8));
        key.store_u64(0, ctx.load_u64(0));
        one.store_u64(0, 1);
        let (times, done) = (ctx.load_u64(8), f.var("done", 0));
        f.repeat_open(1 << 22, || {
            f.break_if(done.ge(times));
            let value = f.helper(LirHelper::MapLookup, &[map(f, TABLE), key]);
            f.if_else(
                value.ne(0),
                || {
                    value.fetch_add(0, 1);
                    done.set(done + 1);
                },
                || {
                    let args = [map(f, TABLE), key, one, f.number(1)];
                    let failed = f.helper(LirHelper::MapUpdate, &args);
                    f.if_(failed.eq(0), || done.set(done + 1));
                    f.if_(failed.eq(-7), || f.ret(1));
                },
            );
        });
        f.ret(0);
    })
}

/// Walks through a table: one adds up the values and removes them, one does nothing.
fn visit() -> [LirFunc; 4] {
    let visit = build("visit", "", ["ctx"], |f, [ctx]| {
        let each = f.addr(MemoryOperand::Func("each".into()));
        let args = [map(f, TABLE), each, ctx, f.number(0)];
        let calls = f.helper(LirHelper::ForEach, &args);
        ctx.store_u64(8 * RESULT as i16, calls);
        f.ret(0);
    });
    let look = build("look", "", ["ctx"], |f, [ctx]| {
        let nothing = f.addr(MemoryOperand::Func("nothing".into()));
        let args = [map(f, TABLE), nothing, ctx, f.number(0)];
        let calls = f.helper(LirHelper::ForEach, &args);
        ctx.store_u64(8 * RESULT as i16, calls);
        f.ret(0);
    });
    let params = ["table", "key", "value", "ctx"];
    let nothing = build("nothing", "", params, |f, _| f.ret(0));
    let each = build("each", "", params, |f, [_, key, value, ctx]| {
        ctx.store_u64(0, ctx.load_u64(0) + value.load_u64(0));
        let removed = f.helper(LirHelper::MapDelete, &[map(f, TABLE), key]);
        ctx.store_u64(8, ctx.load_u64(8) + removed);
        f.ret(0);
    });
    [visit, each, look, nothing]
}

/// An image with all of it.
pub(crate) struct World {
    pub(crate) image: HostImage,
}

fn tables() -> Vec<SharedTableSpec> {
    let table = |name: &str, kind, key, value, entries| SharedTableSpec {
        name: name.into(),
        kind,
        key,
        value,
        entries,
    };
    vec![
        table(TABLE, SharedTableKind::Hash, 8, 8, ENTRIES),
        table(PAIRS, SharedTableKind::Hash, 16, 20, ENTRIES),
        table(ARRAY, SharedTableKind::Array, 4, 12, ENTRIES),
        table(RING, SharedTableKind::Ring, 0, 0, RING_BYTES),
    ]
}

impl World {
    pub(crate) fn new() -> World {
        let around = ObjectSymbols {
            may_goto: true,
            ..ObjectSymbols::default()
        };
        let module: Module = [count()]
            .into_iter()
            .chain(visit())
            .collect::<Vec<_>>()
            .into();
        let mut functions = emit(&module, &around).expect("code");
        functions.extend(HELPERS.iter().copied().map(calls));
        let image = HostImage::new(&ImageSpec {
            functions: functions.iter().collect(),
            constants: b"constants",
            state: 100,
            tables: tables(),
            records: RECORDS,
            stack: 0,
        });
        let world = World {
            image: image.expect("an image"),
        };
        for number in 0..RECORDS {
            world.identify(number);
        }
        world
    }

    /// Gives a record the numbers of this thread.
    pub(crate) fn identify(&self, number: u32) {
        let own = |pid: rustix::process::Pid| pid.as_raw_nonzero().get().unsigned_abs();
        let tgid = own(rustix::process::getpid());
        self.image.set_record(
            number,
            &ThreadRecord {
                tid: own(rustix::thread::gettid()),
                tgid,
                uid: 5,
                gid: 6,
                comm: *b"fifteen letters\0",
                clock: crate::measured::clock(),
                ..self.image.record(number).expect("a record")
            },
        );
    }

    /// Runs a handler with a record and words; gives the result.
    pub(crate) fn run_as(&self, number: u32, name: &str, words: &mut [u64; 5]) -> u64 {
        let function = self.image.function(name).expect("a handler");
        let record = self.image.record_offset(number).expect("a record");
        let start = self.image.address();
        // SAFETY: the handlers of this file have as many words, and no other thread has the record.
        let failed = unsafe { enter(start + function, start + record, words.as_mut_ptr()) };
        assert_eq!(failed, 0, "{name}");
        words[RESULT]
    }

    /// The same with the first record and up to four words.
    pub(crate) fn run<const N: usize>(&self, name: &str, args: [u64; N]) -> i64 {
        let mut words = [0; 5];
        words[..N].copy_from_slice(&args);
        self.run_as(0, name, &mut words).cast_signed()
    }
}

/// An address as a word.
pub(crate) fn at<T: ?Sized>(value: &T) -> u64 {
    std::ptr::from_ref(value).addr() as u64
}

/// The address of what a handler writes.
pub(crate) fn at_mut<T: ?Sized>(value: &mut T) -> u64 {
    std::ptr::from_mut(value).addr() as u64
}

/// A second mapping of the shared memory, which writes what it likes.
pub(crate) struct Bytes(*mut u8, usize);

impl Bytes {
    pub(crate) fn of(world: &World) -> Bytes {
        let [.., shared] = world.image.areas();
        let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        let flags = rustix::mm::MapFlags::SHARED;
        let (none, from) = (std::ptr::null_mut(), shared.offset as u64);
        // SAFETY: the kernel chooses the address.
        let start =
            unsafe { rustix::mm::mmap(none, shared.bytes, access, flags, &world.image, from) };
        Bytes(start.expect("memory").cast(), shared.bytes)
    }

    /// The words, from the image's state on.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has whole pages, and stays.
        unsafe { std::slice::from_raw_parts(self.0.cast(), self.1 / 8) }
    }
}
