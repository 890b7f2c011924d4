//! The calls that are running when a process forks: the child returns from them as well, with the
//! values of the parent's entries (`@entry`).
//!
//! A program at `sched_process_fork`, where the child exists and does not run yet, copies the
//! elements of the forking thread, whose number is the first part of their keys. It runs whether or
//! not handlers may.

use spile_cast::Cast;
use spile_ir::{Event, Global, GlobalId, Inst, Program, Space};
use spile_layout::{GlobalLayout, GlobalLocation};
use spile_lir::builder::build;
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::op::Size;
use spile_lir::{LirFunc, Module};

use crate::target::{Features, KernelOffsets};

/// Name of the program.
const PROGRAM: &str = "p_calls";

/// An array with the entries of calls: its map, and the number of words of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallMap {
    map: String,
    words: u32,
}

/// The arrays with values of the entries of functions of programs. The keys of others do not
/// identify calls that a child has too.
pub(crate) fn maps(program: &Program, globals: &[Option<GlobalLayout>]) -> Vec<CallMap> {
    let entries = program.handlers.iter().filter(
        |h| matches!(&h.event, Event::Code(p) if p.space == Space::User && !p.ret && !p.of_goroutines()),
    );
    let mut stored: Vec<GlobalId> = Vec::new();
    for inst in entries.flat_map(|h| h.body.insts()) {
        if let Inst::ASet { g, .. } = inst
            && program
                .globals
                .get(g.index())
                .is_some_and(Global::saves_entry_values)
            && !stored.contains(g)
        {
            stored.push(*g);
        }
    }
    let map = |g: GlobalId| match &globals.get(g.index())?.as_ref()?.location {
        GlobalLocation::Hash { map, key_size, .. } => Some(CallMap {
            map: map.clone(),
            words: key_size / 8,
        }),
        _ => None,
    };
    stored.into_iter().filter_map(map).collect()
}

/// The program, and the functions that it calls; `None` where there is nothing to copy, or the kernel
/// cannot iterate over an array.
pub(crate) fn module(
    maps: &[CallMap],
    offsets: &KernelOffsets,
    features: &Features,
) -> Option<Module> {
    if maps.is_empty() || !features.for_each {
        return None;
    }
    let offset = |o: Option<u32>| o.and_then(|o| i32::try_from(o).ok());
    let tgid = offset(offsets.task_tgid)?;
    let utask = offset(offsets.task_utask);
    let mut widths: Vec<u32> = maps.iter().map(|m| m.words).collect();
    widths.sort_unstable();
    widths.dedup();
    let mut funcs = vec![copier(maps, tgid, utask)];
    funcs.extend(widths.into_iter().map(copy_one));
    Some(Module {
        funcs,
        ..Module::default()
    })
}

/// The program. `tgid` and `utask` are offsets in a task's description.
fn copier(maps: &[CallMap], tgid: i32, utask: Option<i32>) -> LirFunc {
    let contract = "\
Copies the elements of the forking thread for its child.
ctx: the tasks of the parent and of the child. New threads have no calls of their parent, and a thread
that hit no uprobe has no elements.
Cost: a read of the task; in threads that hit a uprobe an iteration over each array.";
    build(PROGRAM, contract, ["ctx"], |f, [ctx]| {
        let read = f.slot(8);
        if let Some(utask) = utask {
            let field = ctx.load_u64(0) + utask;
            f.helper(Helper::Read, &[read, f.number(8), field]);
            f.ret_if(read.load_u64(0).eq(0), 0);
        }
        let child = ctx.load_u64(8);
        let parent = f.helper(Helper::PidTgid, &[]);
        f.helper(Helper::Read, &[read, f.number(4), child + tgid]);
        let process = read.load_bytes(Size::U32, 0);
        f.ret_if(process.eq(parent >> 32), 0);
        let threads = f.slot(16);
        threads.store_u64(0, (parent << 32) >> 32);
        threads.store_u64(8, process);
        for CallMap { map, words } in maps {
            let map = f.addr(MemoryOperand::Map(map.clone()));
            let function = f.addr(MemoryOperand::Func(function_name(*words)));
            f.helper(Helper::ForEach, &[map, function, threads, f.constant(0)]);
        }
    })
}

fn function_name(words: u32) -> String {
    format!("copy_call_{words}")
}

/// The callback for each element, by the size of keys.
fn copy_one(words: u32) -> LirFunc {
    let contract = "\
Copies an element of a thread for another one; returns 0.
map: the array. key, value: the element; the key begins with the thread. threads: the thread and the
other one.
Cost: a comparison; an insertion for each element of the thread.";
    let params = ["map", "key", "value", "threads"];
    build(
        &function_name(words),
        contract,
        params,
        |f, [map, key, value, threads]| {
            f.ret_if(key.load_u64(0).ne(threads.load_u64(0)), 0);
            let child_key = f.slot(8 * words);
            child_key.store_u64(0, threads.load_u64(8));
            for offset in (8..8 * words.fit::<i16>()).step_by(8) {
                child_key.store_u64(offset, key.load_u64(offset));
            }
            f.helper(Helper::MapUpdate, &[map, child_key, value, f.constant(0)]);
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use spile_ebpf::emit::LIMITS;
    use spile_lir::verify::verify;

    #[test]
    fn the_program_has_a_function_for_each_size_of_keys() {
        let map = |map: &str, words| CallMap {
            map: map.into(),
            words,
        };
        let maps = [map("a", 2), map("b", 4), map("c", 2)];
        let known = KernelOffsets {
            task_tgid: Some(8),
            task_utask: Some(16),
            ..KernelOffsets::default()
        };
        let features = Features::SINCE_6_9;
        let module = super::module(&maps, &known, &features).expect("a module");
        verify(&module, &LIMITS).expect("a module without faults");
        let names: Vec<&str> = module.funcs.iter().map(|f| &*f.name).collect();
        assert_eq!(names, [PROGRAM, "copy_call_2", "copy_call_4"]);
        let old = Features {
            for_each: false,
            ..features
        };
        assert!(super::module(&[], &known, &features).is_none());
        assert!(super::module(&maps, &KernelOffsets::default(), &features).is_none());
        assert!(super::module(&maps, &known, &old).is_none());
    }
}
