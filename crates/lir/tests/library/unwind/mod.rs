//! Unwinds of user stacks against Rust, on random processes: trees of mappings, tables of unwind rows,
//! stacks of random words, and return probes. The functions run as they are written and with their
//! loops as callbacks.

mod kernel;
mod world;

use proptest::collection::vec;
use proptest::prelude::*;
use spile_lir::interp::Memory;
use spile_lir::library::unwind::row::kind;
use spile_lir::library::unwind::{BEHIND, COPIED, FILE_NAME, GIVEN, VDSO, at, copy};

use super::forms::properties;
use kernel::Kernel;
use world::*;

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let rule = prop_oneof![
        1 => Just(kind::NONE), 8 => Just(kind::STACK), 4 => Just(kind::FRAME), 1 => Just(kind::AT_STACK),
        1 => Just(kind::AT_FRAME), 2 => Just(kind::PLT), 1 => Just(kind::END), 1 => Just(kind::SIGNAL),
    ];
    let distance = prop_oneof![9 => 1..12i16, 1 => -2..20i16];
    vec((0..0x8000u32, rule, distance, 0..5u8), 1..30).prop_map(|mut rows| {
        rows.sort_by_key(|r| r.0);
        rows.dedup_by_key(|r| r.0);
        rows
    })
}

fn table() -> impl Strategy<Value = Table> {
    prop_oneof![
        1 => Just(Table::New), 1 => Just(Table::Loading), 1 => Just(Table::None),
        8 => rows().prop_map(Table::Rows),
    ]
}

fn mapping() -> impl Strategy<Value = Mapping> {
    let gap = prop_oneof![Just(0u64), 1..9u64];
    let file = prop_oneof![9 => (0..3usize).prop_map(Some), 1 => Just(None)];
    (gap, 0..4u64, any::<bool>(), file).prop_map(|(gap, pgoff, executable, file)| Mapping {
        gap,
        pgoff,
        executable,
        file,
    })
}

fn world() -> impl Strategy<Value = World> {
    // Some are more than a copy has space for.
    let mappings = prop_oneof![30 => vec(mapping(), 1..40), 1 => vec(mapping(), 190..198)];
    let files = [table(), table(), table()];
    // A word of the stack: an address of code, one of the stack, or anything.
    let word = (0..3u8, any::<u32>());
    let slots = prop_oneof![Just(3usize), Just(2), Just(10), Just(16)];
    let some = (any::<u32>(), 0..400u64, any::<bool>(), 0..5u64);
    let more = (
        prop_oneof![9 => Just(false), 1 => Just(true)],
        vec((0..500u64, any::<u32>()), 0..4),
        any::<bool>(),
        prop_oneof![3 => Just(-1i64), 1 => 0..10i64],
    );
    let update =
        prop_oneof![6 => Just(Update::Done), 1 => Just(Update::Full), 1 => Just(Update::Raced)];
    let waiting = prop_oneof![4 => Just(0), 1 => Just(WAITING), 1 => Just(WAITING + 1)];
    let (rare, often) = (proptest::bool::weighted(0.1), proptest::bool::weighted(0.9));
    let kernel = (
        0..15usize,
        rare,
        waiting,
        often,
        update,
        any::<bool>(),
        rare,
        0..5u8,
    );
    (mappings, files, vec(word, 600), slots, some, more, kernel).prop_map(
        |(
            mappings,
            files,
            kinds,
            slots,
            (ip, sp, bp, code),
            (compat, returns, copies, most),
            kernel,
        )| {
            let (depth, full, waiting, buffer, update, vdso_rows, no_rows, long) = kernel;
            let vdso = mappings.iter().position(|m| m.file.is_none());
            let (mut mappings, mut slots) = (mappings, slots);
            if mappings.len() > 60 {
                // No tree of the kernel is deeper.
                slots = slots.max(3);
                mappings.iter_mut().for_each(|m| m.executable = true);
            }
            let mut world = World {
                vdso,
                mappings,
                files: files.into(),
                slots,
                stack: Vec::new(),
                code,
                ip: 0,
                sp: STACK + 8 * sp,
                bp: STACK + 8 * (sp + 20) + u64::from(bp) * 4,
                compat,
                returns: Vec::new(),
                copies,
                most,
                depth,
                full,
                waiting,
                buffer,
                update,
                vdso_rows,
                no_rows,
            };
            let code = |n: u32| {
                let at = n as usize % world.mappings.len();
                let (from, to) = world.range(at);
                let mapping = &world.mappings[at];
                let more = u64::from(n >> 8);
                let rows = mapping.file.map(|file| &world.files[file]);
                match rows {
                    // At and around the first address of a row, or of the mapping.
                    Some(Table::Rows(rows)) if more.is_multiple_of(3) => {
                        let row = rows[more as usize / 3 % rows.len()].0;
                        let off = u64::from(row).wrapping_sub(mapping.pgoff * PAGE);
                        (from.wrapping_add(off) + more / 3 % 3 - 1).clamp(from, to - 1)
                    }
                    _ if more % 16 == 1 => from + more / 16 % 2,
                    _ => from + more % (4 * PAGE),
                }
            };
            let word = |(i, (kind, n)): (usize, &(u8, u32))| match kind {
                0 => STACK + 8 * (i as u64 + u64::from(n % 40)),
                1 if n % 11 == 0 => u64::from(*n),
                _ => code(*n),
            };
            let mut stack: Vec<u64> = kinds.iter().enumerate().map(word).collect();
            if long == 0 {
                // More pages than a copy has.
                stack = stack.repeat(10);
            }
            let ip = code(ip);
            let mut locations: Vec<(u64, u64)> = returns
                .iter()
                .map(|(at, n)| (STACK + 8 * at, code(*n)))
                .collect();
            locations.sort_unstable();
            locations.dedup_by_key(|p| p.0);
            (world.stack, world.ip, world.returns) = (stack, ip, locations);
            world
        },
    )
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..at + 8].try_into();
    u64::from_le_bytes(word.unwrap_or_default())
}

properties! {
    1000 cases: fn unwinds_agree_with_rust(world in world(), given in any::<bool>()) {
        let mut reference = Reference::new(&world);
        if world.compat {
            reference.registers[1] = u64::MAX;
        }
        let most = if given { GIVEN.into() } else { world.most };
        reference.run(usize::try_from(most).map_or(MOST as usize, |m| m.min(MOST as usize)));
        for mut machine in functions().machines(10_000_000) {
            let mut kernel = Kernel::new(&mut machine.memory, &world);
            let mut set = |field: u32, n: u64| {
                let to = kernel.block + BASE as u64 + u64::from(field);
                machine.memory.write(to, &n.to_le_bytes()).expect("a word");
            };
            set(at::COPY, world.copies.into());
            if given {
                for (field, n) in [(at::IP, world.ip), (at::SP, world.sp), (at::BP, world.bp)] {
                    set(field, n);
                }
                machine.memory.write(kernel.registers, &[0xee; 136]).expect("registers");
            }
            let result = machine.run("user_unwind", &[most.cast_unsigned()], &mut kernel);
            prop_assert_eq!(result, Ok(0));
            let block = machine.memory.region(kernel.block).expect("the block");
            let frames = number(block, COUNT as usize) as usize / 8;
            let copied = reference.frames.last().is_some_and(|f| f.1 == u64::from(COPIED));
            prop_assert_eq!(frames + usize::from(copied), reference.frames.len());
            for (n, (ip, file, offset)) in reference.frames.iter().enumerate() {
                let field = |field: u32| number(block, BASE + field as usize + 8 * n);
                let found = (number(block, FRAMES + 8 * n), field(at::FILES));
                prop_assert_eq!(found, (*ip, *file), "frame {}", n);
                if *file != u64::from(COPIED) {
                    prop_assert_eq!(field(at::offsets(MOST)), *offset, "frame {}", n);
                }
            }
            prop_assert_eq!(number(block, GUESSED as usize), reference.guessed);
            prop_assert_eq!(number(block, CUT as usize), reference.cut);
            prop_assert_eq!(number(block, LOST as usize), kernel.lost);
            if !copied {
                prop_assert!(reference.unknown <= number(block, NO_MEMORY as usize));
            }
            check_records(&world, &mut machine.memory, &kernel, &reference)?;
        }
    }

    1000 cases: fn addresses_agree_with_rust(world in world(), address in 0..400 * PAGE) {
        let address = CODE + address;
        let mut reference = Reference::new(&world);
        reference.map(address);
        let mut behind = 0;
        if reference.now.file == 0 && reference.now.start != 0 {
            let start = reference.now.start;
            reference.map(start - 1);
            behind = BEHIND;
        }
        for mut machine in functions().machines(1_000_000) {
            let mut kernel = Kernel::new(&mut machine.memory, &world);
            prop_assert_eq!(machine.run("user_address", &[address], &mut kernel), Ok(0));
            let block = machine.memory.region(kernel.block).expect("the block");
            let field = |field: u32| number(block, BASE + (field + 8 * MOST) as usize);
            prop_assert_eq!(field(at::FILES), reference.now.file);
            if reference.now.file != 0 {
                let offset = reference.now.off.wrapping_add(address) | behind;
                prop_assert_eq!(field(at::offsets(MOST)), offset);
            }
            prop_assert_eq!(number(block, FRAMES + 8 * MOST as usize), address);
            prop_assert_eq!(number(block, BASE + at::TGID as usize), 77);
        }
    }
}

/// New files are announced once, and copies have the executable mappings of files.
fn check_records(
    world: &World,
    memory: &mut Memory,
    kernel: &Kernel<'_>,
    reference: &Reference<'_>,
) -> Result<(), TestCaseError> {
    let (files, copies): (Vec<_>, Vec<_>) = kernel.records.iter().partition(|r| number(r, 8) == 5);
    let copied = reference
        .frames
        .last()
        .is_some_and(|f| f.1 == u64::from(COPIED));
    prop_assert_eq!(copies.len(), usize::from(copied));
    let mut announced: Vec<u64> = files.iter().map(|r| number(r, 16)).collect();
    announced.sort_unstable();
    prop_assert_eq!(&announced, &(1..=files.len() as u64).collect::<Vec<_>>());
    if !copied && !world.full && world.update == Update::Done {
        prop_assert_eq!(files.len() as u64, reference.next - 1);
    }
    for record in &files {
        let field = |n: usize| number(record, 16 + 8 * n);
        let head = u64::from(at::RECORD_SIZE) << 32;
        prop_assert_eq!(
            (number(record, 0), record.len() as u32),
            (head, at::RECORD_SIZE)
        );
        prop_assert_eq!((field(1), field(4)), (77, 7));
        let file = field(5) as usize - 1000;
        let of_file = |n: &usize| world.mappings[*n].file == Some(file);
        let mut ranges = (0..world.mappings.len())
            .filter(of_file)
            .map(|n| world.range(n));
        prop_assert!(ranges.any(|range| range == (field(2), field(3))));
        for (i, name) in record[16 + 48..].chunks(FILE_NAME).enumerate() {
            // A file without a path is its own root.
            let wanted = match (i, world.depth) {
                (0, 0) => "root".to_owned(),
                (i, depth) if i < depth => World::name(file, i),
                _ => String::new(),
            };
            prop_assert!(
                name.starts_with(&[wanted.as_bytes(), &[0]].concat()),
                "{} {}",
                file,
                i
            );
        }
    }
    let mut code = Vec::new();
    for (n, mapping) in world
        .mappings
        .iter()
        .enumerate()
        .filter(|(_, m)| m.executable)
    {
        let (from, to) = world.range(n);
        let off = (mapping.pgoff * PAGE).wrapping_sub(from);
        let vdso = [from, to, from.wrapping_neg(), VDSO.into()];
        let Some(file) = mapping.file else {
            code.extend((world.vdso == Some(n)).then_some(vdso));
            continue;
        };
        let key = [7u64, 1000 + file as u64].map(u64::to_le_bytes).concat();
        if let Some(value) = kernel.files.get(&key) {
            let bytes = memory.read(*value, 8).expect("a word");
            code.push([from, to, off, number(bytes, 0)]);
        }
    }
    code.truncate(copy::MAPPINGS);
    for record in copies {
        let field = |n: usize| number(record, 16 + 8 * n);
        let head = u64::from(copy::BYTES) << 32;
        prop_assert_eq!(
            (number(record, 0), record.len() as u32),
            (head, copy::BYTES)
        );
        prop_assert_eq!([0, 1].map(field), [9 << 10 | CPU, 77]);
        prop_assert_eq!([2, 3, 4, 5].map(field), reference.copied);
        let (pages, from) = (world.pages(field(4)), field(4) & PAGE.wrapping_neg());
        prop_assert_eq!((field(6), field(7)), (pages as u64, code.len() as u64));
        for at in (0..pages * PAGE as usize).step_by(8) {
            let here = number(record, copy::HEAD as usize + at);
            prop_assert_eq!(Some(here), world.word(from + at as u64));
        }
        let found = record[copy::MAPPED as usize..].chunks(copy::MAPPING as usize);
        let found = found.map(|words| [0, 8, 16, 24].map(|at| number(words, at)));
        prop_assert_eq!(found.take(code.len()).collect::<Vec<_>>(), code.clone());
    }
    Ok(())
}
